# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Companions as the setting ``gb10_companions`` declares them. This module util is PRIVATE to the collection.

A companion is a service beside the engine, such as Ollama or speech recognition: a container of ours by the digest of its image, or an existing unit of
the owner's. It claims a part of its node's memory, and is up in some of the cluster's modes.
"""

from __future__ import annotations

import re
import typing as t

Companion = dict[str, t.Any]

#: The modes that a cluster can be declared to be in.
MODES = ("cluster", "singles", "off")

#: What a companion says of itself, with its value where it says nothing; None where it has to.
DEFAULTS: dict[str, t.Any] = {
    "name": None,
    "image": "",
    "unit": "",
    "port": None,
    "health_path": None,
    "memory_gib": None,
    "modes": ["cluster", "singles"],
    "env": {},
    "arguments": [],
    "mounts": [],
    "gpus": False,
    "health_timeout": 120,
}
#: What only a container has: a unit is its owner's, and is what its owner wrote.
OF_IMAGE = ("env", "arguments", "mounts", "gpus")
_MOUNT = ("source", "target", "read_only")

#: A name becomes part of a container's, where ``head`` and ``worker`` at the end are those of the cluster's own.
NAME = re.compile(r"(?!(?:.*-)?(?:head|worker)\Z)[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?\Z")
NAME_MEANS = "1 to 32 of a-z, 0-9 and '-', a letter or digit first and last, and neither head nor worker as its last word"
#: An image that can't change under its name: repository@digest, or the id of one that lies on the node.
IMAGE = re.compile(r"(?:[^\s@]+@)?sha256:[0-9a-f]{64}\Z")
IMAGE_MEANS = "repository@sha256:… with 64 digits, or the id sha256:… of an image on the node"
IMAGE_REMEDY = "a tag can be another image tomorrow; the digest of one that is on a node: docker image inspect IMAGE (RepoDigests, Id)"
#: A service of systemd. Those that begin with gb10- are this collection's own.
UNIT = re.compile(r"(?!gb10-)[A-Za-z0-9:_.\\@-]+\.service\Z")
#: Most of a node's memory that can be claimed, in GiB: four times the largest machine with this chip.
MOST_GIB = 4096


class Fault(t.NamedTuple):
    """One thing that is wrong: where it stands in the list, what it is, what is expected there, and what to do."""

    where: str
    what: str
    expected: str = ""
    remedy: str = "correct gb10_companions"


def modes_of(value: t.Any) -> t.Any:
    """Return modes as texts: YAML reads a plain ``off`` as false."""
    return ["off" if one is False else one for one in value] if isinstance(value, list) else value


def whole(one: t.Mapping[str, t.Any]) -> Companion:
    """Return a companion with what it leaves out. It has to be one without faults."""
    found = {**DEFAULTS, **one}
    return {**found, "modes": modes_of(found["modes"])}


def up_in(companions: t.Iterable[t.Mapping[str, t.Any]], mode: str) -> list[Companion]:
    """Return those of the companions that are up in a mode; none for an empty one."""
    return [one for one in map(whole, companions) if mode in one["modes"]]


def _whole_number(value: t.Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _texts(value: t.Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, (str, int, float)) and not isinstance(one, bool) and "\0" not in str(one) for one in value)


def _mounts(value: t.Any) -> bool:
    def fits(one: t.Any) -> bool:
        paths = [one.get(word) for word in ("source", "target")] if isinstance(one, dict) else []
        return (
            bool(paths)
            and set(one) <= set(_MOUNT)
            and isinstance(one.get("read_only", False), bool)
            and all(isinstance(path, str) and path.startswith("/") and ".." not in path.split("/") and not re.search(r"[\s:\0]", path) for path in paths)
        )

    return isinstance(value, list) and all(map(fits, value))


def _modes(value: t.Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) and one in MODES for one in modes_of(value))


def _claim(value: t.Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= MOST_GIB


#: What each word has to be: whether a value is that, and how to say it.
_FORMS: dict[str, tuple[t.Callable[[t.Any], t.Any], str]] = {
    "name": (lambda value: isinstance(value, str) and NAME.match(value), NAME_MEANS),
    "port": (lambda value: _whole_number(value, 1, 65535), "a port from 1 to 65535"),
    "health_path": (lambda value: isinstance(value, str) and re.fullmatch(r"/[!-~]*", value), "a path that begins with /, such as /health"),
    "memory_gib": (_claim, f"GiB above 0, up to {MOST_GIB}, as a number"),
    "modes": (_modes, f"a list of some of {', '.join(MODES)}"),
    "env": (lambda value: isinstance(value, dict) and all(isinstance(name, str) for name in value), "a mapping of variables"),
    "arguments": (_texts, "a list of words"),
    "mounts": (_mounts, "a list of {source, target, read_only} with absolute paths without '..', spaces and colons"),
    "gpus": (lambda value: isinstance(value, bool), "true or false"),
    "health_timeout": (lambda value: _whole_number(value, 1, 3600), "seconds from 1 to 3600"),
}


def _kind(where: str, one: t.Mapping[str, t.Any]) -> t.Iterator[Fault]:
    """Yield what is wrong with the image or the unit of a companion: it has exactly one."""
    given = [word for word in ("image", "unit") if one.get(word) not in (None, "")]
    if len(given) != 1:
        what = "has an image and a unit" if given else "has neither an image nor a unit"
        yield Fault(where, what, "one of the two", "leave image for a container of this collection's, or unit for a service that is there already")
        return
    value = one[given[0]]
    if given == ["image"]:
        if not isinstance(value, str) or not IMAGE.match(value):
            yield Fault(f"{where}.image", f"is {value!r}", IMAGE_MEANS, IMAGE_REMEDY)
        return
    if not isinstance(value, str) or not UNIT.match(value):
        yield Fault(f"{where}.unit", f"is {value!r}", "the name of a service of yours, such as ollama.service", "see systemctl list-units --type service")
    for word in OF_IMAGE:
        if one.get(word):
            yield Fault(f"{where}.{word}", "is for a container, and this is a unit", "", "remove it, and set it in the unit (systemctl edit UNIT)")


def _one(where: str, one: t.Any) -> t.Iterator[Fault]:
    if not isinstance(one, dict):
        yield Fault(where, f"is {one!r}", f"a mapping of {', '.join(DEFAULTS)}")
        return
    for word in one:
        if word not in DEFAULTS:
            yield Fault(f"{where}.{word}", "is not a known field", f"one of {', '.join(DEFAULTS)}")
    for word, default in DEFAULTS.items():
        if word in _FORMS and (word in one or default is None):
            fits, expected = _FORMS[word]
            value = one.get(word)
            if not fits(value):
                # Values of variables can be secrets.
                what = "is missing" if word not in one else "is of another form" if word == "env" else f"is {value!r}"
                yield Fault(f"{where}.{word}", what, expected)
    yield from _kind(where, one)


def _twice(companions: list[t.Any]) -> t.Iterator[Fault]:
    """Yield the names, ports and units that two companions of a node share."""
    seen: dict[tuple[str, t.Any], int] = {}
    for index, one in enumerate(companions):
        for word in ("name", "port", "unit") if isinstance(one, dict) else ():
            value = one.get(word)
            if value in (None, "") or isinstance(value, (list, dict)):
                continue
            first = seen.setdefault((word, value), index)
            if first != index:
                yield Fault(f"gb10_companions[{index}].{word}", f"is {value}, as of gb10_companions[{first}]", f"a {word} of its own on each node")


def faults(companions: list[t.Any]) -> list[Fault]:
    """Return all that is wrong with the companions of one node."""
    return [*(fault for index, one in enumerate(companions) for fault in _one(f"gb10_companions[{index}]", one)), *_twice(companions)]


def port_faults(companions: list[t.Any], ports: t.Mapping[str, int], span: tuple[int, int] | None) -> list[Fault]:
    """Return the companions whose port the cluster needs: ``ports`` by setting, ``span`` the first and the last of Ray's range.

    One that is up in the mode ``off`` alone is never beside an engine.
    """
    found = []
    for index, one in enumerate(companions):
        port = one.get("port") if isinstance(one, dict) else None
        if not _whole_number(port, 1, 65535) or modes_of(one.get("modes")) == ["off"]:
            continue
        taken = [f"{name} is {value}" for name, value in ports.items() if value == port]
        if span and span[0] <= port <= span[1]:
            taken.append(f"gb10_ray_port_range is {span[0]}-{span[1]}")
        for who in taken:
            remedy = f"give the companion another port, or change {who.split(' ', maxsplit=1)[0]}"
            found.append(Fault(f"gb10_companions[{index}].port", f"is {port}, and {who}", "a port that the cluster does not need", remedy))
    return found
