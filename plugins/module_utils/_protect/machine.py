# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node is, as far as its protection asks. This module util is PRIVATE to the collection.

Each reader raises :class:`UnknownState` with the raw answer for a tool that is missing, hangs, or says what nobody can parse, and OSError for files.
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import hashlib
import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import optional_number, required_text
from ansible_collections.gb10.cluster.plugins.module_utils._memory.node_memory import parse_meminfo
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Process, read_stat, scan
from ansible_collections.gb10.cluster.plugins.module_utils._protect import limits
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult, run_tool

#: The capability that lowers an OOM score (CAP_SYS_RESOURCE, capability.h).
SYS_RESOURCE = 24

ENABLED = ("enabled", "enabled-runtime", "disabled", "static", "masked", "masked-runtime", "indirect", "generated", "alias", "linked", "not-found")
ACTIVE = ("active", "inactive", "failed", "activating", "deactivating", "reloading")
WANTS = ("unknown", "install", "hold", "deinstall", "purge")

_CAPABILITIES = re.compile(r"^CapEff:\s*([0-9a-f]{1,16})$", re.MULTILINE)
_CANDIDATE = re.compile(r"^  Candidate: (\S+)$", re.MULTILINE)
_OPTION = re.compile(r'^(?P<name>[A-Za-z0-9_:./+-]+) "(?P<value>.*)";$', re.MULTILINE)


class Package(t.NamedTuple):
    """One package as dpkg has it; ``name`` carries its architecture where dpkg needs that, ``plain`` never does."""

    name: str
    plain: str
    want: str
    status: str
    version: str


@dataclasses.dataclass
class Node:
    """A node. ``timeout`` is in seconds for each answer of a tool."""

    etc: str
    proc: str
    timeout: float

    def tool(self, *argv: str) -> ToolResult:
        """Run a tool."""
        return run_tool(argv, self.timeout)

    def path(self, *parts: str) -> str:
        """Return a path below /etc."""
        return os.path.join(self.etc, *parts)

    def processes(self) -> list[Process]:
        """Return the node's processes."""
        return list(scan(self.proc).processes.values())

    def meminfo(self) -> dict[str, int]:
        """Return meminfo, in KiB."""
        return parse_meminfo(required_text(os.path.join(self.proc, "meminfo")))

    @functools.cached_property
    def swappiness_path(self) -> str:
        """Where the kernel has vm.swappiness."""
        return os.path.join(self.proc, "sys", "vm", "swappiness")


def _unclear(what: str, answer: ToolResult, command: str) -> UnknownState:
    """Return the error for an answer that nobody can parse."""
    return UnknownState(f"{what}: {answer.raw[:200]!r}", remedy=f"Run {command} there.", raw=answer.raw[:2000])


def enabled(node: Node, unit: str) -> str:
    """Return what systemd says of a unit file, one of :data:`ENABLED`."""
    answer = node.tool("systemctl", "is-enabled", unit)
    word = answer.stdout.strip()
    if word in ENABLED:
        return word
    if not word and "No such file" in answer.stderr:
        return "not-found"
    raise _unclear(f"systemctl does not say whether {unit} is enabled", answer, f"systemctl is-enabled {unit}")


def active(node: Node, unit: str) -> str:
    """Return the state of a unit, one of :data:`ACTIVE`."""
    answer = node.tool("systemctl", "is-active", unit)
    word = answer.stdout.strip()
    if word in ACTIVE:
        return word
    if word == "unknown":
        return "inactive"
    raise _unclear(f"systemctl does not say whether {unit} is active", answer, f"systemctl is-active {unit}")


def packages(node: Node) -> list[Package]:
    """Return all packages that dpkg knows."""
    answer = node.tool("dpkg-query", "-W", "-f=${binary:Package}\t${Package}\t${db:Status-Want}\t${db:Status-Status}\t${Version}\n")
    found = [Package(*line.split("\t")) if line.count("\t") == 4 else None for line in answer.stdout.splitlines()]
    bad = next((line for line, one in zip(answer.stdout.splitlines(), found) if one is None or one.want not in WANTS), None)
    if answer.rc or bad is not None or not found:
        what = f"prints {bad[:200]!r}" if bad is not None else f"ends with {answer.rc} and lists {len(found)} package(s)"
        raise UnknownState(f"dpkg-query {what}", remedy="Run dpkg-query -W there, and dpkg --audit.", raw=answer.raw[:2000])
    return [one for one in found if one is not None]


def candidate(node: Node, package: str) -> str | None:
    """Return the version of a package that would be installed, None when the node's lists have none."""
    answer = node.tool("apt-cache", "policy", package)
    if answer.rc:
        raise _unclear(f"apt-cache ends with {answer.rc}", answer, f"apt-cache policy {package}")
    if not answer.stdout.strip():
        return None
    match = _CANDIDATE.search(answer.stdout)
    if not match:
        raise _unclear(f"apt-cache policy {package} cannot be read", answer, f"apt-cache policy {package}")
    return None if match[1] == "(none)" else match[1]


def assigned(paths: t.Iterable[str], names: t.Collection[str]) -> dict[str, tuple[str, str]]:
    """Return which of ``names`` these files set, each with the last file and value. A missing file sets nothing. Raises OSError."""
    found = {}
    for path in paths:
        try:
            text = required_text(path)
        except FileNotFoundError:
            continue
        for line in text.splitlines():
            name, sign, value = line.strip().removeprefix("-").partition("=")
            name = name.strip().replace("/", ".")
            if sign and name in names and not line.lstrip().startswith(("#", ";")):
                found[name] = (path, value.strip())
    return found


def drop_ins(node: Node, own: str, *parts: str) -> list[str]:
    """Return the files ``*.conf`` in a directory below /etc, without the one of this collection."""
    return [path for path in sorted(glob.glob(os.path.join(glob.escape(node.path(*parts)), "*.conf"))) if path != own]


# -- measures ----------------------------------------------------------------------------------------------------------------


def sshd(node: Node) -> dict[str, t.Any]:
    """Return ``{pid, start, score, may_lower, unit_score}``: the listener (None when none runs) and what stands in the unit."""
    found = limits.sshd(node.processes(), node.proc)
    pid = found["pid"]
    stat = read_stat(pid, node.proc) if pid else None
    own = _CAPABILITIES.search(required_text(os.path.join(node.proc, "self", "status")))
    if not own:
        raise UnknownState("the kernel does not say which capabilities this process has (CapEff in /proc/self/status)")
    answer = node.tool("systemctl", "show", "-p", "OOMScoreAdjust", "--value", "ssh.service")
    if answer.rc or not answer.stdout.strip():
        raise _unclear("systemctl does not say with which OOM score ssh.service starts", answer, "systemctl show -p OOMScoreAdjust ssh.service")
    return {
        "pid": pid if stat else None,
        "start": stat.start_ticks if stat else None,
        "score": found["oom_score_adj"],
        "may_lower": bool(int(own[1], 16) >> SYS_RESOURCE & 1),
        "unit_score": limits.parse_oom_score_adj(answer.stdout.strip()),
    }


def journal(node: Node, own: str) -> dict[str, t.Any]:
    """Return ``{settings}``: what others' files below /etc set of journald. ``own`` is the path of this collection's drop-in."""
    paths = [node.path("systemd", "journald.conf"), *drop_ins(node, own, "systemd", "journald.conf.d")]
    return {"settings": assigned(paths, ("Storage", "SyncIntervalSec"))}


def altered(node: Node, package: str, path: str) -> bool:
    """Return whether a configuration file of an installed package is not the package's own any more."""
    answer = node.tool("dpkg-query", "-W", "-f=${Conffiles}\n", package)
    stock = {words[0]: words[1] for line in answer.stdout.splitlines() if len(words := line.split()) >= 2}
    if path not in stock:
        return False
    with open(node.path(os.path.relpath(path, "/etc")), "rb") as stream:
        return hashlib.md5(stream.read(), usedforsecurity=False).hexdigest() != stock[path]


def earlyoom(node: Node) -> dict[str, t.Any]:
    """Return ``{oomd, package, candidate, altered, enabled, active, live, mem_total_kib}``; ``live`` is that of :func:`limits.earlyoom`."""
    meminfo, swappiness = node.meminfo(), optional_number(node.swappiness_path)
    package = next((one for one in packages(node) if one.plain == "earlyoom"), None)
    installed = package is not None and package.status == "installed"
    try:
        changed = installed and altered(node, "earlyoom", "/etc/default/earlyoom")
    except FileNotFoundError:
        changed = False
    return {
        "oomd": active(node, "systemd-oomd.service"),
        "package": package,
        "candidate": None if installed else candidate(node, "earlyoom"),
        "altered": changed,
        "enabled": enabled(node, "earlyoom.service") if installed else "not-found",
        "active": active(node, "earlyoom.service") if installed else "inactive",
        "live": limits.earlyoom(node.processes(), meminfo, swappiness, lambda: package.version if package else ""),
        "mem_total_kib": meminfo["MemTotal"],
    }


def swap(node: Node, own: str) -> dict[str, t.Any]:
    """Return ``{settings, live, writable, swap_kib}``. ``own`` is the path of this collection's drop-in."""
    paths = [node.path("sysctl.conf"), *drop_ins(node, own, "sysctl.d")]
    return {
        "settings": assigned(paths, ("vm.swappiness",)),
        "live": optional_number(node.swappiness_path),
        "writable": os.access(node.swappiness_path, os.W_OK),
        "swap_kib": node.meminfo().get("SwapTotal", 0),
    }


def unattended(node: Node) -> dict[str, t.Any]:
    """Return ``{installed, periodic, timer, origins}``: whether the package is there, apt's setting, the timer's state, from where upgrades come."""
    answer = node.tool("apt-config", "dump")
    options = [(match["name"], match["value"]) for match in _OPTION.finditer(answer.stdout)]
    if answer.rc or not options:
        raise _unclear("apt-config dump cannot be read", answer, "apt-config dump")
    lists = ("Unattended-Upgrade::Allowed-Origins::", "Unattended-Upgrade::Origins-Pattern::")
    return {
        "installed": any(one.plain == "unattended-upgrades" and one.status == "installed" for one in packages(node)),
        "periodic": next((value for name, value in reversed(options) if name == "APT::Periodic::Unattended-Upgrade"), "0"),
        "timer": enabled(node, "apt-daily-upgrade.timer"),
        "origins": [value for name, value in options if name in lists],
    }
