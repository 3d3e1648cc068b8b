# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The holder of a lock, and whether it is known to have ended. This module util is PRIVATE to the collection.

A holder is a run of ansible-playbook on a controller, or a service on a node. A process that cannot be read counts as running.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import platform
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import required_text
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import read_stat


def _text(path: str) -> str:
    """Return a small file's text, empty where the controller has no such file (it may not be Linux)."""
    with contextlib.suppress(OSError):
        return required_text(path)
    return ""


def process_start(pid: int, proc_root: str = "/proc") -> str:
    """Return the start of a process in clock ticks since boot, empty for a process that ended or cannot be read."""
    with contextlib.suppress(OSError, UnknownState):
        stat = read_stat(pid, proc_root)
        return str(stat.start_ticks) if stat and stat.state not in "ZX" else ""
    return ""


def _is_number_free(pid: int) -> bool:
    """Return whether the kernel has no process of this number, also where /proc hides processes of other users (hidepid)."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False


def has_ended(pid: int, start: str, proc_root: str = "/proc") -> bool:
    """Return whether the process of this number and start is known to have ended. A process that cannot be read counts as running."""
    with contextlib.suppress(OSError, UnknownState):
        stat = read_stat(pid, proc_root)
        return stat.state in "ZX" or str(stat.start_ticks) != start if stat else _is_number_free(pid)
    return False


def _started_at(ticks: str, proc_root: str) -> str:
    """Return a start in clock ticks since boot as UTC time, empty when it is unknown."""
    boot = re.search(r"^btime (\d+)$", _text(f"{proc_root}/stat"), re.MULTILINE)
    return utc_text(int(boot[1]) + int(ticks) // os.sysconf("SC_CLK_TCK")) if boot and ticks else ""


def _user() -> str:
    """Return the name of the current account, its number where it has no name, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


class Place(t.NamedTuple):
    """The boot and the pid namespace within which process numbers can be compared. Empty where this machine does not report them."""

    boot_id: str
    pid_namespace: str

    @classmethod
    def here(cls, proc_root: str = "/proc") -> Place:
        namespace = f"{proc_root}/self/ns/pid"
        return cls(_text(f"{proc_root}/sys/kernel/random/boot_id"), os.readlink(namespace) if os.path.islink(namespace) else "")


def lock_holder(
    pid: int, play: str = "", run: str = "", service: str = "", *, proc_root: str = "/proc", machine_id_path: str = "/etc/machine-id"
) -> dict[str, t.Any]:
    """Return the identity of the run whose ansible-playbook process is ``pid``, or of the ``service`` with that main process.

    ``run`` is unique to the run: it distinguishes runs in containers without other identity. The machine's id is hashed, since it is confidential.
    Fields that cannot be determined are empty.
    """
    start, machine = process_start(pid, proc_root), _text(machine_id_path)
    return {
        "user": _user(),
        "hostname": platform.node(),
        "machine": hashlib.sha256(f"gb10.cluster {machine}".encode()).hexdigest()[:16] if machine else "",
        **Place.here(proc_root)._asdict(),
        "pid": pid,
        "pid_start": start,
        "run": run,
        "service": service,
        "play": play,
        "started_at": _started_at(start, proc_root),
    }


def why_ended(holder: dict[str, t.Any], here: Place, proc_root: str = "/proc") -> str:
    """Return why a holder is known to have ended, empty when it runs, or when this machine cannot determine it.

    Only process numbers of the same boot and the same pid namespace can be compared. Another boot proves nothing: it may be the boot of a running clone
    with this machine's id and name.
    """
    pid, start = holder.get("pid"), holder.get("pid_start")
    if not all(here) or (holder.get("boot_id"), holder.get("pid_namespace")) != here or not isinstance(pid, int) or not start:
        return ""
    return f"its process {pid} has ended" if has_ended(pid, str(start), proc_root) else ""
