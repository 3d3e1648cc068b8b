# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parses the answers that the role protect collected from a node. This plugin util is PRIVATE to the collection.

Each reader raises :class:`UnknownState` with the raw answer of a tool that is missing, hangs, or prints something unexpected.
"""

from __future__ import annotations

import functools
import json
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._protect.protection import SCHEMA

#: dpkg's selections of a package.
WANTS = ("unknown", "install", "hold", "deinstall", "purge")
#: The capability that lowers an OOM score (CAP_SYS_RESOURCE, capability.h).
SYS_RESOURCE = 24
#: What systemd reports as the time of its last ping of a watchdog that it does not ping (``USEC_INFINITY``).
NEVER = "18446744073709551615"

_ALTERED = re.compile(r"^..5.*/etc/default/earlyoom$", re.MULTILINE)
_CANDIDATE = re.compile(r"^  Candidate: (?!\(none\))\S+$", re.MULTILINE)
_OPTION = re.compile(r'^(?P<name>[A-Za-z0-9_:./+-]+) "(?P<value>.*)";$', re.MULTILINE)


def sysctl_file(name: str) -> str:
    """Return the file of a value of the kernel."""
    return f"/proc/sys/{name.replace('.', '/')}"


class Package(t.NamedTuple):
    """One package of dpkg; ``name`` has its architecture where dpkg needs it, ``plain`` never has."""

    name: str
    plain: str
    want: str
    status: str
    version: str


class Facts:
    """One node's answers: ``info`` (node_info), ``read`` (tools by the names in the role's variables) and ``files`` (stat)."""

    def __init__(self, answer: t.Mapping[str, t.Any]) -> None:
        self.info = answer["info"]
        self._read = {result["item"]["key"]: result for result in answer["read"]["results"]}
        self.files = {result["item"]: result["stat"] for result in answer["files"]["results"]}

    def said(self, name: str, *fine: int) -> str:
        """Return the output of a tool. ``fine`` are exit codes of a missing file, or of an empty result."""
        answer = self._read[name]
        quiet = all(line.endswith("No such file or directory") for line in answer.get("stderr_lines", []))
        if answer.get("rc") != 0 and not (answer.get("rc") in fine and quiet):
            raw = f"{answer.get('stdout', '')}{answer.get('stderr') or answer.get('msg', '')}"
            raise UnknownState(f"{answer['item']['value'][0]} ended with {answer.get('rc')}: {raw[:200]!r}", remedy="Run it there.", raw=raw[:2000])
        return answer["stdout"]

    def limit(self, name: str) -> dict[str, t.Any]:
        """Return a part of the section limits of node_info."""
        if part := (self.info["limits"] or {}).get(name):
            return part
        errors = [error for error in self.info["errors"] if error["section"].startswith("limits")]
        raise UnknownState("; ".join(error["error"] for error in errors) or f"{name} cannot be seen", remedy=errors[0]["remedy"] if errors else "")

    @property
    def record_path(self) -> str:
        """The path of the record."""
        return self._read["record"]["item"]["value"][-1]

    @functools.cached_property
    def measures(self) -> dict[str, dict[str, t.Any]]:
        """The recorded changes, by measure."""
        text = self.said("record", 1)
        try:
            record = json.loads(text) if text or self._read["record"]["rc"] == 0 else {"schema": SCHEMA, "measures": {}}
            if record["schema"] != SCHEMA or not all(isinstance(entry["changes"], list) for entry in record["measures"].values()):
                raise ValueError("another shape")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            remedy = "Inspect it. Nothing is changed while it is invalid: only this record has the original values."
            raise UnknownState(f"{self.record_path} is not a record of this collection ({error})", remedy=remedy, raw=text[:2000]) from error
        return record["measures"]

    @property
    def recorded(self) -> dict[str, dict[str, t.Any]]:
        """The record, empty where it cannot be read: then nothing is changed."""
        try:
            return self.measures
        except UnknownState:
            return {}

    def unit(self, name: str) -> dict[str, str]:
        """Return the properties of a unit."""
        blocks = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in self.said("units").split("\n\n")]
        properties = next((block for block in blocks if block.get("Id") == name), None)
        if not properties or not properties.get("ActiveState"):
            raise UnknownState(f"systemctl does not report {name}", remedy=f"Run systemctl show {name} on the node.", raw=self.said("units")[:2000])
        return properties

    @property
    def watchdog(self) -> tuple[str, bool]:
        """The timeout that systemd has for the hardware watchdog, ``0`` for none, and whether it pings one."""
        values = dict(line.partition("=")[::2] for line in self.said("manager").splitlines())
        if not values.get("RuntimeWatchdogUSec"):
            raise UnknownState("systemd does not report its watchdog", remedy="Run systemctl show there.", raw=self.said("manager")[:2000])
        return values["RuntimeWatchdogUSec"], values.get("WatchdogLastPingTimestampMonotonic", NEVER) not in ("0", NEVER)

    def nut(self, pattern: str) -> bool:
        """Return whether NUT's files have a line, read as ``FILE: LINE`` without quotes and with single spaces."""
        lines = [line.replace('"', "").partition(":") for line in self.said("nut", 1, 2).splitlines()]
        return any(re.fullmatch(pattern, f"{path}: {' '.join(text.split())}") for path, _colon, text in lines)

    @functools.cached_property
    def packages(self) -> list[Package]:
        """All packages of dpkg."""
        rows = [line.split("\t") for line in self.said("packages").splitlines()]
        bad = next((row for row in rows if len(row) != len(Package._fields) or row[2] not in WANTS), None)
        if bad or not rows:
            raise UnknownState(f"dpkg-query prints {bad!r}", remedy="Run dpkg-query -W there, and dpkg --audit.")
        return [Package(*row) for row in rows]

    def package(self, name: str) -> Package | None:
        """Return a package by its plain name, None if dpkg does not have it."""
        return next((package for package in self.packages if package.plain == name), None)

    @property
    def altered(self) -> bool:
        """Whether /etc/default/earlyoom is not the package's own any more."""
        package = self.package("earlyoom")
        return package is not None and package.status == "installed" and bool(_ALTERED.search(self.said("altered", 1)))

    def assigned(self, place: str, own: str, names: t.Collection[str]) -> dict[str, tuple[str, str]]:
        """Return which of ``names`` files below ``place`` set, each with the last file and value. The collection's ``own`` file does not count."""
        values: dict[str, tuple[str, str]] = {}
        lines = [line.partition(":") for line in self.said("settings", 1, 2).splitlines()]
        for path, _colon, text in sorted(lines, key=lambda parts: parts[0]):
            name, _sign, value = text.strip().removeprefix("-").partition("=")
            name = name.strip().replace("/", ".")
            if path.startswith(place) and path != own and name in names:
                values[name] = (path, value.strip())
        return values

    def kernel(self, path: str, name: str = "") -> str:
        """Return the text after ``name`` in a file of /proc."""
        start = f"{path}:{name}"
        for line in self.said("kernel").splitlines():
            if line.startswith(start):
                return line.removeprefix(start).strip()
        raise UnknownState(f"the kernel does not report {start}", remedy="Check that /proc is mounted.")

    def kib(self, name: str) -> int:
        """Return a number of meminfo, in KiB."""
        return int(self.kernel("/proc/meminfo", f"{name}:").split()[0])

    @property
    def may_lower(self) -> bool:
        """Whether OOM scores can be lowered here."""
        return bool(int(self.kernel("/proc/self/status", "CapEff:"), 16) >> SYS_RESOURCE & 1)

    def started(self, pid: int) -> str:
        """Return when a process was started, in the kernel's ticks."""
        return self.kernel(f"/proc/{pid}/stat").rpartition(")")[2].split()[19]

    @property
    def candidate(self) -> bool:
        """Whether the package lists have earlyoom."""
        return bool(_CANDIDATE.search(self.said("candidate")))

    def writable(self, path: str) -> bool:
        """Return whether a file of the kernel exists and can be written here."""
        return path in self.said("writable", 1).splitlines()

    def apt(self, *names: str) -> list[str]:
        """Return the values of options of apt."""
        options = [(match["name"], match["value"]) for match in _OPTION.finditer(self.said("apt"))]
        if not options:
            raise UnknownState("apt-config dump cannot be read", remedy="Run apt-config dump there.", raw=self.said("apt")[:2000])
        return [value for name, value in options if name in names]
