# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The devices that a Docker engine knows by the Container Device Interface (CDI). This module util is PRIVATE to the collection."""

from __future__ import annotations

import functools
import json
import os
import re
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import Section, names, strict

#: What NVIDIA's devices are called there (``nvidia-ctk cdi generate``).
NVIDIA_KIND = "nvidia.com/gpu"

SPEC_LIMIT = 4 * 1024 * 1024

#: The driver's library as a specification of ``nvidia-ctk`` names it on the host.
_LIBCUDA = re.compile(r"/libcuda\.so\.(\d+(?:\.\d+)+)\b")


def discovered(info: dict[str, t.Any]) -> list[str]:
    """Return the CDI devices that an engine from API 1.50 on lists itself. Raises :class:`UnknownState` for a list of another shape."""
    try:
        return sorted(str(device["ID"]) for device in info.get("DiscoveredDevices") or [] if device.get("Source") == "cdi")
    except (AttributeError, KeyError, TypeError) as error:
        raise UnknownState("the Docker engine's list of devices cannot be read", raw=str(info.get("DiscoveredDevices"))[:2000]) from error


def parse(text: str) -> list[str]:
    """Return the devices of a CDI specification (``nvidia.com/gpu=0``), JSON or YAML.

    Of YAML only the block style is understood that ``nvidia-ctk`` writes: the node has no parser for more. Raises :class:`UnknownState` otherwise.
    """
    if text.lstrip().startswith("{"):
        try:
            spec = json.loads(text)
            return [f"{_word(spec['kind'])}={_word(device['name'])}" for device in spec["devices"]]
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise UnknownState(f"the CDI specification cannot be read: {error!r}", raw=text[:2000]) from error
    kind, names = _parse_yaml(text)
    if not kind:
        raise UnknownState("the CDI specification names no kind of device", raw=text[:2000])
    return [f"{kind}={name}" for name in names]


def _word(value: t.Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{value!r} is not a name")
    return value


def _parse_yaml(text: str) -> tuple[str, list[str]]:
    """Return (kind, names of the devices) of a specification in YAML's block style."""
    kind, names = "", []
    key, item_indent, field_indent, items = "", -1, -1, 0
    for line in text.splitlines():
        content = line.strip()
        if not content or content.startswith("#") or content in ("---", "..."):
            continue
        indent = len(line) - len(line.lstrip(" "))
        if line[indent] == "\t":
            raise UnknownState(f"the CDI specification is indented by a tab: {line[:200]!r}", raw=text[:2000])
        if indent == 0 and not content.startswith("- ") and content != "-":
            key, _colon, value = content.partition(":")
            value = _scalar(value)
            if key == "kind":
                kind = value
            elif key == "devices" and value not in ("", "[]"):
                raise UnknownState(f"the CDI specification lists its devices in a way that cannot be read: {line[:200]!r}", raw=text[:2000])
            item_indent = -1
        elif key == "devices":
            if content.startswith("-") and item_indent in (-1, indent):
                item_indent, items = indent, items + 1
                rest = content[1:]
                indent, content = indent + 1 + len(rest) - len(rest.lstrip(" ")), rest.strip()
                field_indent = indent if content else -1
            elif field_indent == -1 < item_indent < indent:
                field_indent = indent  # the dash stood alone
            if indent == field_indent and content.startswith("name:"):
                names.append(_scalar(content[len("name:"):]))
    if len(names) != items or not all(names):
        raise UnknownState(f"the CDI specification has {items} devices and {len(names)} names", raw=text[:2000])
    return kind, names


def _scalar(value: str) -> str:
    value = value.strip()
    if value[:1] in ("'", '"'):
        return value[1:].partition(value[0])[0]
    return value.split(" #", 1)[0].strip()


def specs(directories: t.Iterable[str], etc_root: str, section: Section = strict) -> list[dict[str, t.Any]]:
    """Return the CDI specifications in these directories; of two that name a device the engine takes the later one.

    ``etc_root`` stands for ``/etc``. What cannot be read or parsed is noted by ``section``.
    """
    found: list[dict[str, t.Any]] = []
    for directory in directories:
        place = os.path.join(etc_root, directory[len("/etc/"):]) if directory.startswith("/etc/") else directory
        for name in section(functools.partial(names, place), []):
            if name.endswith((".json", ".yaml", ".yml")):
                spec = section(functools.partial(_spec, os.path.join(place, name)))
                found += [{"path": os.path.join(directory, name), **spec}] if spec else []
    return found


def _spec(path: str) -> dict[str, t.Any]:
    """Return the devices of one specification, and the versions of the driver's ``libcuda`` that it gives to containers."""
    # Nothing but a file is read: the engine would hang on a FIFO, too, but this look must not.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise UnknownState(f"{path} is not a file")
        text = stream.read(SPEC_LIMIT).decode("utf-8", errors="replace")
    try:
        return {"devices": parse(text), "libcuda": sorted(set(_LIBCUDA.findall(text)))}
    except UnknownState as error:
        raise UnknownState(f"{path}: {error}", remedy=f"Write it again: sudo nvidia-ctk cdi generate --output={path}", **error.details) from error


def devices(found: t.Iterable[dict[str, t.Any]], listed: t.Iterable[str] = ()) -> list[str]:
    """Return the devices of these specifications, and those that the engine lists itself."""
    return sorted({*(device for spec in found for device in spec["devices"]), *listed})
