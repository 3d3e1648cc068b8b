# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Companions as the setting ``gb10_companions`` declares them. This module util is PRIVATE to the collection.

A companion is a service next to the engine, such as Ollama or speech recognition: a container of this collection by the digest of its image, or an
existing unit of the owner's. It claims a part of its node's memory, and runs in some of the cluster's modes.
"""

from __future__ import annotations

import re
import typing as t

Companion = dict[str, t.Any]

#: The modes that every cluster has, in addition to its layouts.
MODES = ("cluster", "singles", "off")

#: The fields of a companion with their defaults; None for a required field.
DEFAULTS: dict[str, t.Any] = {
    "name": None,
    "image": "",
    "unit": "",
    "port": None,
    "health_path": None,
    "memory_gib": None,
    # Empty for every mode that has an engine.
    "modes": [],
    "env": {},
    "arguments": [],
    "mounts": [],
    "gpus": False,
    "health_timeout": 120,
}
#: The fields of a container only: the owner configures a unit.
OF_IMAGE = ("env", "arguments", "mounts", "gpus")
_MOUNT = ("source", "target", "read_only")

#: A name is the end of the container's name, where ``head`` and ``worker`` are reserved for the cluster's containers.
NAME = re.compile(r"(?!(?:.*-)?(?:head|worker)\Z)[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?\Z")
NAME_MEANS = "1 to 32 of a-z, 0-9 and '-', a letter or digit first and last, and neither head nor worker as its last word"
#: An immutable image: repository@digest, or the id of an image on the node.
IMAGE = re.compile(r"(?:[^\s@]+@)?sha256:[0-9a-f]{64}\Z")
IMAGE_MEANS = "repository@sha256:… with 64 digits, or the id sha256:… of an image on the node"
IMAGE_REMEDY = "docker image inspect IMAGE shows the digest of an image on a node (RepoDigests, Id); a tag can become another image"
#: A service of systemd. Names that begin with gb10- are reserved for this collection.
UNIT = re.compile(r"(?!gb10-)[A-Za-z0-9:_.\\@-]+\.service\Z")
#: The most memory that can be claimed, in GiB: far more than the largest machine with this chip has.
MOST_GIB = 4096


_REMEDY = "correct gb10_companions"


class Fault(t.NamedTuple):
    """One fault of a setting: its place in the list, what is wrong, what is expected, and the remedy."""

    where: str
    what: str
    expected: str = ""
    remedy: str = _REMEDY


#: By field: whether a value is valid, and the expected form as text.
Forms = t.Mapping[str, tuple[t.Callable[[t.Any], t.Any], str]]


def field_faults(
    where: str, given: t.Mapping[str, t.Any], forms: Forms, required: t.Container[str], wrong: t.Callable[[str, t.Any], str], remedy: str
) -> t.Iterator[Fault]:
    """Yield the unknown, missing and invalid fields of one entry of a setting. ``wrong`` returns the text for an invalid value of a field."""
    for word in given:
        if word not in forms:
            yield Fault(f"{where}.{word}", "is not a known field", f"one of {', '.join(forms)}", remedy)
    for word, (fits, expected) in forms.items():
        if (word in given or word in required) and not fits(given.get(word)):
            yield Fault(f"{where}.{word}", wrong(word, given[word]) if word in given else "is missing", expected, remedy)


def modes_of(value: t.Any) -> t.Any:
    """Return modes as texts: YAML reads a plain ``off`` as false."""
    return ["off" if mode is False else mode for mode in value] if isinstance(value, list) else value


def whole(companion: t.Mapping[str, t.Any]) -> Companion:
    """Return a valid companion with its defaults."""
    with_defaults = {**DEFAULTS, **companion}
    return {**with_defaults, "modes": modes_of(with_defaults["modes"])}


def up_in(companions: t.Iterable[t.Mapping[str, t.Any]], mode: str) -> list[Companion]:
    """Return the companions that run in a mode; none for an empty mode. Without modes of its own, a companion runs in each that has an engine."""
    return [companion for companion in map(whole, companions) if mode in (companion["modes"] or {mode} - {"", "off"})]


def is_whole_number(value: t.Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _texts(value: t.Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, (str, int, float)) and not isinstance(word, bool) and "\0" not in str(word) for word in value)


def _is_mount(value: t.Any) -> bool:
    paths = [value.get(word) for word in ("source", "target")] if isinstance(value, dict) else []
    return (
        bool(paths)
        and set(value) <= set(_MOUNT)
        and isinstance(value.get("read_only", False), bool)
        and all(isinstance(path, str) and path.startswith("/") and ".." not in path.split("/") and not re.search(r"[\s:\0]", path) for path in paths)
    )


def _claim(value: t.Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= MOST_GIB


_FORMS: Forms = {
    "name": (lambda value: isinstance(value, str) and NAME.match(value), NAME_MEANS),
    "image": (lambda _value: True, ""),
    "unit": (lambda _value: True, ""),
    "port": (lambda value: is_whole_number(value, 1, 65535), "a port from 1 to 65535"),
    "health_path": (lambda value: isinstance(value, str) and re.fullmatch(r"/[!-~]*", value), "a path that begins with /, such as /health"),
    "memory_gib": (_claim, f"GiB above 0, up to {MOST_GIB}, as a number"),
    "env": (lambda value: isinstance(value, dict) and all(isinstance(name, str) for name in value), "a mapping of variables"),
    "arguments": (_texts, "a list of words"),
    "mounts": (
        lambda value: isinstance(value, list) and all(map(_is_mount, value)),
        "a list of {source, target, read_only} with absolute paths without '..', spaces and colons",
    ),
    "gpus": (lambda value: isinstance(value, bool), "true or false"),
    "health_timeout": (lambda value: is_whole_number(value, 1, 3600), "seconds from 1 to 3600"),
}
#: The required fields.
_REQUIRED = tuple(name for name, default in DEFAULTS.items() if default is None)


def _kind(where: str, companion: t.Mapping[str, t.Any]) -> t.Iterator[Fault]:
    """Yield the faults of a companion's image or unit: it has exactly one of them."""
    given = [word for word in ("image", "unit") if companion.get(word) not in (None, "")]
    if len(given) != 1:
        what = "has an image and a unit" if given else "has neither an image nor a unit"
        yield Fault(where, what, "one of the two", "use image for a container of this collection, or unit for an existing service")
        return
    value, pattern = companion[given[0]], IMAGE if given == ["image"] else UNIT
    if not isinstance(value, str) or not pattern.match(value):
        means = (IMAGE_MEANS, IMAGE_REMEDY) if pattern is IMAGE else ("the name of your service, such as ollama.service", "systemctl list-units --type service")
        yield Fault(f"{where}.{given[0]}", f"is {value!r}", *means)
    for word in OF_IMAGE if pattern is UNIT else ():
        if companion.get(word):
            yield Fault(f"{where}.{word}", "is only for a container, and this is a unit", "", "remove it, and set it in the unit (systemctl edit UNIT)")


def _companion(where: str, companion: t.Any, modes: t.Sequence[str]) -> t.Iterator[Fault]:
    if not isinstance(companion, dict):
        yield Fault(where, f"is {companion!r}", f"a mapping of {', '.join(DEFAULTS)}")
        return
    # Which modes there are depends on the cluster's layouts.
    forms: Forms = {
        **_FORMS,
        "modes": (lambda value: isinstance(value, list) and value and all(mode in modes for mode in modes_of(value)), f"a list of some of {', '.join(modes)}"),
    }
    # Values of variables can be secrets.
    yield from field_faults(where, companion, forms, _REQUIRED, lambda word, value: "has another form" if word == "env" else f"is {value!r}", _REMEDY)
    yield from _kind(where, companion)


def _twice(companions: list[t.Any]) -> t.Iterator[Fault]:
    """Yield the names, ports and units that two companions of a node share."""
    seen: dict[tuple[str, t.Any], int] = {}
    for index, companion in enumerate(companions):
        for word in ("name", "port", "unit") if isinstance(companion, dict) else ():
            value = companion.get(word)
            if value in (None, "") or isinstance(value, (list, dict)):
                continue
            first = seen.setdefault((word, value), index)
            if first != index:
                yield Fault(f"gb10_companions[{index}].{word}", f"is {value}, as in gb10_companions[{first}]", f"a unique {word} on each node")


def faults(companions: list[t.Any], layouts: t.Iterable[str] = ()) -> list[Fault]:
    """Return the faults of one node's companions. ``layouts`` are the names of the cluster's layouts."""
    modes = (*MODES, *layouts)
    each = [fault for index, companion in enumerate(companions) for fault in _companion(f"gb10_companions[{index}]", companion, modes)]
    return [*each, *_twice(companions)]


def port_faults(companions: list[t.Any], ports: t.Mapping[str, int], span: tuple[int, int] | None) -> list[Fault]:
    """Return a fault for each companion whose port the cluster needs: ``ports`` by setting, ``span`` is Ray's first and last port.

    A companion that only runs in the mode ``off`` never runs next to an engine.
    """
    conflicts = []
    for index, companion in enumerate(companions):
        port = companion.get("port") if isinstance(companion, dict) else None
        if not is_whole_number(port, 1, 65535) or modes_of(companion.get("modes")) == ["off"]:
            continue
        taken = [f"{name} is {value}" for name, value in ports.items() if value == port]
        if span and span[0] <= port <= span[1]:
            taken.append(f"gb10_ray_port_range is {span[0]}-{span[1]}")
        for who in taken:
            remedy = f"give the companion another port, or change {who.split(' ', maxsplit=1)[0]}"
            conflicts.append(Fault(f"gb10_companions[{index}].port", f"is {port}, and {who}", "a port that the cluster does not need", remedy))
    return conflicts
