# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The devices of a Docker engine by the Container Device Interface (CDI). This module util is PRIVATE to the collection."""

from __future__ import annotations

import functools
import json
import os
import re
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import Section, names, strict

#: The kind of NVIDIA's devices (``nvidia-ctk cdi generate``).
NVIDIA_KIND = "nvidia.com/gpu"

#: Most bytes of a specification.
SPEC_LIMIT = 4 << 20
#: A key of a specification in YAML's block style that is not indented, its value and the lines below it.
_SECTION = re.compile(r"^([^\s:-][^:\n]*):(.*)((?:\n[ \t-].*)*)", re.MULTILINE)

#: The driver's library on the host in a specification by ``nvidia-ctk``.
_LIBCUDA = re.compile(r"/libcuda\.so\.(\d+(?:\.\d+)+)\b")


def discovered(info: dict[str, t.Any]) -> list[str]:
    """Return the CDI devices that an engine from API 1.50 on lists itself. Raises :class:`UnknownState` for a list of another shape."""
    try:
        return sorted(str(device["ID"]) for device in info.get("DiscoveredDevices") or [] if device.get("Source") == "cdi")
    except (AttributeError, KeyError, TypeError) as error:
        raise UnknownState("the Docker engine's list of devices cannot be read", raw=str(info.get("DiscoveredDevices"))[:2000]) from error


def parse(text: str) -> list[str]:
    """Return the devices of a CDI specification (``nvidia.com/gpu=0``), JSON or YAML.

    For YAML it accepts only the block style of ``nvidia-ctk``, since the node has no YAML parser. Raises :class:`UnknownState` otherwise.
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
    lines = [line for line in text.splitlines() if line.strip() not in ("", "---", "...") and not line.lstrip().startswith("#")]
    sections = {key: (_scalar(value), block) for key, value, block in _SECTION.findall("\n".join(lines))}
    (kind, _block), (value, block) = (sections.get(key, ("", "")) for key in ("kind", "devices"))
    if value not in ("", "[]") or re.search(r"^ *\t", block, re.MULTILINE):
        raise UnknownState(f"the CDI specification lists its devices in a way that cannot be read: {value or block[:200]!r}", raw=text[:2000])
    indent = re.sub(r"\n?( *)(?s:.*)", r"\1", block)
    names = [_name(f"{indent} {item}") for item in re.split(rf"\n{indent}-(?= |\n|\Z)", block)[1:]]
    if not all(names):
        raise UnknownState(f"the CDI specification has {len(names)} devices, of which {names.count('')} have no name", raw=text[:2000])
    return kind, names


def _name(item: str) -> str:
    """Return the value of ``name`` among the fields of a list's item, empty without one. Its first field sets their indentation."""
    fields = re.search(r"^ *(?=\S)", item, re.MULTILINE)
    name = re.search(rf"^{fields[0]}name:(.*)", item, re.MULTILINE) if fields else None
    return _scalar(name[1]) if name else ""


def _scalar(value: str) -> str:
    value = value.strip()
    if value[:1] in ("'", '"'):
        return value[1:].partition(value[0])[0]
    return value.split(" #", 1)[0].strip()


def specs(directories: t.Iterable[str], etc_root: str, section: Section = strict) -> list[dict[str, t.Any]]:
    """Return the CDI specifications in these directories. If two name the same device, the engine uses the later one.

    ``etc_root`` replaces ``/etc``. ``section`` records failures to read or parse one.
    """
    specifications: list[dict[str, t.Any]] = []
    for directory in directories:
        place = os.path.join(etc_root, directory[len("/etc/"):]) if directory.startswith("/etc/") else directory
        for name in section(functools.partial(names, place), []):
            if name.endswith((".json", ".yaml", ".yml")):
                spec = section(functools.partial(_spec, os.path.join(place, name)))
                specifications += [{"path": os.path.join(directory, name), **spec}] if spec else []
    return specifications


def _spec(path: str) -> dict[str, t.Any]:
    """Return the devices of one specification, and the versions of the driver's ``libcuda`` that it mounts into containers."""
    # Only a regular file is read: a FIFO would block.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise UnknownState(f"{path} is not a file")
        text = stream.read(SPEC_LIMIT).decode("utf-8", errors="replace")
    try:
        return {"devices": parse(text), "libcuda": sorted(set(_LIBCUDA.findall(text)))}
    except UnknownState as error:
        raise UnknownState(f"{path}: {error}", remedy=f"Write it again: sudo nvidia-ctk cdi generate --output={path}", **error.details) from error


def devices(specifications: t.Iterable[dict[str, t.Any]], listed: t.Iterable[str] = ()) -> list[str]:
    """Return the devices of these specifications and those that the engine lists itself."""
    return sorted({*(device for spec in specifications for device in spec["devices"]), *listed})
