# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who holds a lock, and whether that run or service is known to have ended. This module util is PRIVATE to the collection.

A holder is a run of ansible-playbook on a controller, or a service that lives on a node. Whoever cannot see it does not know that it ended.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import platform
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import GONE


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


def _stat_fields(pid: int, proc_root: str) -> list[str]:
    """Return the fields of a process's stat that follow its name: state first. Raises OSError when it cannot be read."""
    with open(f"{proc_root}/{pid}/stat", encoding="utf-8", errors="replace") as stream:
        return stream.read().rpartition(")")[2].split()


def process_start(pid: int, proc_root: str = "/proc") -> str:
    """Return when a process started, in clock ticks since boot; empty when there is none, when it has ended unreaped, or when it is hidden."""
    try:
        fields = _stat_fields(pid, proc_root)
    except OSError:
        return ""
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""


def _is_number_free(pid: int) -> bool:
    """Return whether the kernel knows no process of this number, also where /proc hides those of other users (hidepid)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def has_ended(pid: int, start: str, proc_root: str = "/proc") -> bool:
    """Return whether the process of this number and start is known to have ended. One that cannot be seen lives."""
    try:
        fields = _stat_fields(pid, proc_root)
    except GONE:
        return _is_number_free(pid)
    except OSError:
        return False
    return len(fields) > 19 and (fields[0] in "ZX" or fields[19] != start)


def _started_at(ticks: str, proc_root: str) -> str:
    """Return a start in clock ticks since boot as UTC time, empty when it is unknown."""
    boot = next((line.split()[1] for line in _text(f"{proc_root}/stat").splitlines() if line.startswith("btime ")), "")
    if not (boot.isdigit() and ticks.isdigit()):
        return ""
    seconds = int(boot) + int(ticks) // os.sysconf("SC_CLK_TCK")
    return utc_text(seconds)


def _user() -> str:
    """Return who runs this, by number where the account has no name here: a container may give any."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


class Place(t.NamedTuple):
    """What tells which processes can be compared: those of one boot and one pid namespace. Empty where this machine does not say."""

    boot_id: str
    pid_namespace: str

    @classmethod
    def here(cls, proc_root: str = "/proc") -> Place:
        return cls(_text(f"{proc_root}/sys/kernel/random/boot_id"), _link(f"{proc_root}/self/ns/pid"))


def lock_holder(
    pid: int, play: str = "", run: str = "", service: str = "", *, proc_root: str = "/proc", machine_id_path: str = "/etc/machine-id"
) -> dict[str, t.Any]:
    """Return the identity of the run whose ansible-playbook process is ``pid``, or of the ``service`` whose main process that is.

    ``run`` is a word of the run's own: two runs in containers that tell nothing of themselves are not taken for one. The machine's id is
    hashed, since it is meant to stay private. Fields that cannot be determined are empty.
    """
    start = process_start(pid, proc_root)
    machine = _text(machine_id_path)
    place = Place.here(proc_root)
    return {
        "user": _user(),
        "hostname": platform.node(),
        "machine": hashlib.sha256(f"gb10.cluster {machine}".encode()).hexdigest()[:16] if machine else "",
        "boot_id": place.boot_id,
        "pid_namespace": place.pid_namespace,
        "pid": pid,
        "pid_start": start,
        "run": run,
        "service": service,
        "play": play,
        "started_at": _started_at(start, proc_root),
    }


def why_ended(holder: dict[str, t.Any], here: Place, proc_root: str = "/proc") -> str:
    """Return why a holder is known to have ended, empty when it lives, or when that cannot be determined from here.

    Only process numbers of the same boot and the same pid namespace can be compared. Another boot proves nothing: it may be that of a clone,
    which has this machine's id and name, and lives.
    """
    pid, start = holder.get("pid"), holder.get("pid_start")
    if not all(here) or (holder.get("boot_id"), holder.get("pid_namespace")) != here or not isinstance(pid, int) or not start:
        return ""
    return f"its process {pid} has ended" if has_ended(pid, str(start), proc_root) else ""
