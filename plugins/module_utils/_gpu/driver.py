# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NVIDIA driver's short facts about GPUs and their processes. This module util is PRIVATE to the collection."""

from __future__ import annotations

import dataclasses
import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import GONE, hides_others, read_process
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult, run_tool

GPU_QUERY = ("--query-gpu=index,name,uuid,driver_version,memory.total,memory.used", "--format=csv,noheader,nounits")

BY_HAND = "Run nvidia-smi by hand on this node; look for the driver in: journalctl -k | grep -i nvrm"

#: The output of the driver's tool on a machine without a working GPU (status 6), and the reason of the error for it.
NO_DEVICES = "No devices were found"
NO_GPU = "no GPU"

#: Inode of the kernel's first pid namespace, the one whose numbers the driver reports (PROC_PID_INIT_INO).
HOST_PID_NAMESPACE = 4026531836

#: The texts by which the driver's tool shows that a figure does not exist: GB10 has no separate GPU memory.
_ABSENT = re.compile(r"^\[?(N/A|Not Supported|Insufficient Permissions|Unknown Error|Not Found)\]?$", re.IGNORECASE)
_MEMORY = re.compile(r"^(?P<mib>[0-9]{1,12})(?: MiB)?$")
_NUMBER = re.compile(r"^[0-9]{1,10}$")


@dataclasses.dataclass(frozen=True)
class GpuProcess:
    """One process as the driver lists it; ``used_mib`` is None where the driver does not report it."""

    pid: int
    name: str
    used_mib: int | None


def parse_figure(text: str) -> int | None:
    """Return a figure of the driver's tool in MiB, None for its texts that mean "not available".

    Raises :class:`UnknownState` on anything else.
    """
    if _ABSENT.match(text):
        return None
    match = _MEMORY.match(text)
    if not match:
        raise UnknownState(f"nvidia-smi prints a figure that cannot be read: {text!r}", reason="output not understood", remedy=BY_HAND, raw=text)
    return int(match["mib"])


def parse_processes(text: str) -> list[GpuProcess]:
    """Return the processes of a compute-apps answer (CSV without header), each once, in the order of their pids.

    A process is listed once for each GPU that it uses; its memory is then the sum. Only the name may contain commas.
    Raises :class:`UnknownState` for any line of another shape: only an empty answer means that there are no processes.
    """
    by_pid: dict[int, GpuProcess] = {}
    for line in filter(str.strip, text.splitlines()):
        pid_text, _comma, rest = line.strip().partition(", ")
        name, comma, used = rest.rpartition(", ")
        if not comma or not _NUMBER.match(pid_text):
            raise UnknownState(f"nvidia-smi lists a process in a shape that cannot be read: {line!r}", reason="output not understood", remedy=BY_HAND, raw=text)
        process = GpuProcess(int(pid_text), name, parse_figure(used))
        earlier = by_pid.get(process.pid)
        if earlier is not None:
            known = [figure for figure in (earlier.used_mib, process.used_mib) if figure is not None]
            process = dataclasses.replace(process, used_mib=sum(known) if known else None)
        by_pid[process.pid] = process
    return [by_pid[pid] for pid in sorted(by_pid)]


def parse_gpus(text: str) -> list[dict[str, t.Any]]:
    """Return the GPUs of a :data:`GPU_QUERY` answer. Raises :class:`UnknownState` for a line of another shape."""
    gpus = []
    for line in filter(str.strip, text.splitlines()):
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 6 or not _NUMBER.match(fields[0]):
            raise UnknownState(f"nvidia-smi describes a GPU in a shape that cannot be read: {line!r}", reason="output not understood", remedy=BY_HAND, raw=text)
        index, name, uuid, driver, total, used = fields
        gpus.append(
            {
                "index": int(index),
                "name": name,
                "uuid": uuid,
                "driver_version": driver,
                "memory_total_mb": parse_figure(total),
                "memory_used_mb": parse_figure(used),
            }
        )
    return gpus


def answer(result: ToolResult) -> str:
    """Return the output of the driver's tool. Raises :class:`UnknownState` with that output when it failed, or has no GPU."""
    if result.rc != 0 or result.stdout.strip() == NO_DEVICES:
        raise UnknownState(
            f"nvidia-smi failed with status {result.rc}: {first_line(result.raw)}",
            remedy=BY_HAND,
            reason=NO_GPU if result.stdout.strip() == NO_DEVICES else "tool failed",
            raw=result.raw,
        )
    return result.stdout


def first_line(text: str) -> str:
    """Return the first line that is not empty, or ``no output``."""
    return next(filter(None, map(str.strip, text.splitlines())), "no output")


def query_gpus(nvidia_smi: str, timeout: float) -> list[dict[str, t.Any]]:
    """Ask the driver's tool for the GPUs. Raises :class:`UnknownState` when its answer cannot be read."""
    return parse_gpus(answer(run_tool([nvidia_smi, *GPU_QUERY], timeout)))


def state_of(pid: int, proc_root: str) -> str:
    """Return the state of a process that the driver lists.

    ``ghost``: the kernel has no such process. ``defunct``: it has ended and waits for its parent. ``unknown``: it exists but cannot be read.
    """
    try:
        return "defunct" if read_process(pid, proc_root).ended else "live"
    except GONE:
        return "ghost"
    except OSError:
        return "unknown"


def require_host_processes(proc_root: str, *, asserted: bool) -> None:
    """Raise :class:`UnknownState` unless ``proc_root`` shows all of the machine's processes under the numbers that the driver uses.

    With ``asserted`` the caller guarantees that the numbers agree, and the pid namespace is not checked.
    """
    if not asserted:
        path = os.path.join(proc_root, "self", "ns", "pid")
        try:
            namespace = os.readlink(path)
        except OSError as error:
            raise UnknownState(f"{path} cannot be read: {error.strerror}", reason="pid namespace unknown", raw=str(error)) from error
        if namespace != f"pid:[{HOST_PID_NAMESPACE}]":
            raise UnknownState(
                f"this is not the machine's own pid namespace ({namespace}, needed pid:[{HOST_PID_NAMESPACE}]): process numbers here"
                " and those of the driver do not mean the same",
                remedy="Run the check on the machine itself, or set pid_namespace: host where the numbers are known to agree.",
                reason="foreign pid namespace",
                raw=namespace,
            )
    if hides_others(proc_root):
        raise UnknownState(
            f"{proc_root} hides other users' processes (hidepid): each of them would look like a ghost",
            remedy="Run the task with become: true.",
            reason="processes hidden",
        )
