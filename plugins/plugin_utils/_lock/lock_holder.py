# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The identity of this run, and whether another run of this controller is still alive. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import datetime
import getpass
import hashlib
import os
import platform
import typing as t

#: The kernel's first pid namespace, outside of any container. Its id stays the same across reboots, those of others do not.
MACHINE_NAMESPACE = "pid:[4026531836]"


def _text(path: str) -> str:
    """Return a small file's text, empty where this controller has no such file (it may not be Linux)."""
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _user() -> str:
    """Return who runs this; the account's number where it has no name, as in a container with a user of its own."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _stat_fields(pid: int, proc_root: str) -> list[str]:
    """Return the fields of a process's stat that follow its name: state first; none when there is no such process."""
    return _text(f"{proc_root}/{pid}/stat").rpartition(")")[2].split()


def process_start(pid: int, proc_root: str = "/proc") -> str:
    """Return when a process started, in clock ticks since boot; empty when there is none, or when it has ended unreaped."""
    fields = _stat_fields(pid, proc_root)
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""


def _started_at(ticks: str, proc_root: str) -> str:
    """Return a start in clock ticks since boot as UTC time, empty when it is unknown."""
    boot = next((line.split()[1] for line in _text(f"{proc_root}/stat").splitlines() if line.startswith("btime ")), "")
    if not (boot.isdigit() and ticks.isdigit()):
        return ""
    seconds = int(boot) + int(ticks) // os.sysconf("SC_CLK_TCK")
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def lock_holder(pid: int, play: str, *, proc_root: str = "/proc", machine_id_path: str = "/etc/machine-id") -> dict[str, t.Any]:
    """Return the identity of the run whose ansible-playbook process is ``pid``.

    The machine's id is hashed, since it is meant to stay private. Fields that this controller cannot determine are empty.
    """
    start = process_start(pid, proc_root)
    machine = _text(machine_id_path)
    return {
        "user": _user(),
        "hostname": platform.node(),
        "machine": hashlib.sha256(f"gb10.cluster {machine}".encode()).hexdigest()[:16] if machine else "",
        "boot_id": _text(f"{proc_root}/sys/kernel/random/boot_id"),
        "pid_namespace": _link(f"{proc_root}/self/ns/pid"),
        "pid": pid,
        "pid_start": start,
        "play": play,
        "started_at": _started_at(start, proc_root),
    }


def why_ended(other: dict[str, t.Any], me: dict[str, t.Any], proc_root: str = "/proc") -> str | None:
    """Return why another run is known to have ended; None when it is alive, or when this controller cannot determine it.

    Only process numbers of the same boot and the same pid namespace can be compared. An earlier boot of this very machine has ended
    as a whole; the same machine id alone proves nothing, because clones and containers share it.
    """
    if me["boot_id"] and other.get("boot_id") == me["boot_id"]:
        pid, start = other.get("pid"), other.get("pid_start")
        if other.get("pid_namespace") != me["pid_namespace"] or not isinstance(pid, int) or not start:
            return None
        return None if process_start(pid, proc_root) == start else f"its process {pid} on this controller has ended"
    same_machine = bool(me["machine"]) and all(other.get(field) == me[field] for field in ("machine", "hostname"))
    on_metal = other.get("pid_namespace") == me["pid_namespace"] == MACHINE_NAMESPACE
    return "this controller was restarted since" if same_machine and on_metal and other.get("boot_id") else None
