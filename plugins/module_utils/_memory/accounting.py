# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Memory without an owner: the account of a node's memory, its baseline, its samples. This module util is PRIVATE to the collection.

On unified memory a leak of the driver does not appear in any process or list, but as memory that is not available and that nothing
explains. The formula is this collection's own and uncalibrated: it has not yet been compared with a known leak on a GB10.

Recorded on an H200, which has memory of its own: what a process pins (cuMemHostAlloc) counts as Shmem there, and managed memory that the CPU
wrote to is in none of the figures, so it is unexplained as long as the process lives. So a leak is proven only while no GPU process lives.
"""

from __future__ import annotations

import json
import os
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState, file_error
from ansible_collections.gb10.cluster.plugins.module_utils._files import files
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.notes import read_side
from ansible_collections.gb10.cluster.plugins.module_utils._memory import node_memory, note
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

MIB = node_memory.KIB_PER_MIB

#: What explains memory that is not available, by meminfo's names: none of it can be reclaimed.
EXPLAINED = {
    "anon_mb": "AnonPages",
    "shmem_mb": "Shmem",
    "sunreclaim_mb": "SUnreclaim",
    "kernel_stack_mb": "KernelStack",
    "page_tables_mb": "PageTables",
    "hugetlb_mb": "Hugetlb",
}
#: Reported in addition and not part of the formula: pages of files that are in use, and smaller figures of the kernel.
ADDITIONAL = {
    "mapped_mb": "Mapped",
    "mlocked_mb": "Mlocked",
    "percpu_mb": "Percpu",
    "vmalloc_mb": "VmallocUsed",
    "sec_page_tables_mb": "SecPageTables",
    "swap_cached_mb": "SwapCached",
}

FORMULA = (
    "unexplained = (MemTotal - MemAvailable) - (AnonPages + Shmem + SUnreclaim + KernelStack + PageTables + Hugetlb)"
    " - memory of the GPU processes on unified memory - baseline of this boot"
)
UNCALIBRATED = "the formula is uncalibrated: it has not yet been compared with a known leak on a GB10"

BASELINE_SCHEMA = 1
#: The required keys of a baseline, with their types.
_BASELINE_KEYS: dict[str, type] = {"schema": int, "boot_id": str, "recorded_at": str, "unexplained_mb": int, "uptime_s": int}
#: Bytes of a baseline that are read; a valid one has a few KiB.
_BASELINE_LIMIT = 1024 * 1024


# -- samples ---------------------------------------------------------------------------------------------------------


def available_mb(meminfo: t.Mapping[str, int]) -> int:
    return meminfo["MemAvailable"] // MIB


def settled(samples: t.Sequence[int], settle_mb: int) -> bool:
    """Return whether the last two samples agree."""
    return len(samples) > 1 and abs(samples[-1] - samples[-2]) < settle_mb


def movement(samples: t.Sequence[int], settle_mb: int) -> str:
    """Return how samples of the available memory (MiB) move: ``one sample``, ``settled``, ``rising`` or ``falling``."""
    if len(samples) < 2 or settled(samples, settle_mb):
        return "settled" if len(samples) > 1 else "one sample"
    return "rising" if samples[-1] > samples[-2] else "falling"


# -- account ---------------------------------------------------------------------------------------------------------


def account(meminfo: t.Mapping[str, int], gpu_mib: int | None, unified: bool | None, baseline_mb: int | None) -> dict[str, t.Any]:
    """Return the account of a node's memory, in MiB.

    ``meminfo`` is in KiB; ``gpu_mib`` is the total of the living GPU processes, None when the driver does not report it; ``unified`` is whether
    that is in the machine's memory; ``baseline_mb`` is the unexplained memory when nothing ran, None when it is unknown.

    All of ``gpu_mib`` is subtracted, although some of it may also be in a process's own memory and is then counted twice: the result errs
    towards "no leak", since the other error costs a reboot. ``unexplained_mb`` is None when the driver does not report the memory of its processes.
    """
    used = meminfo["MemTotal"] - meminfo["MemAvailable"]
    explained = sum(meminfo.get(name, 0) for name in EXPLAINED.values())
    in_memory = gpu_mib if unified else 0
    before = None if in_memory is None else (used - explained) // MIB - in_memory
    return {
        "total_mb": meminfo["MemTotal"] // MIB,
        "available_mb": meminfo["MemAvailable"] // MIB,
        "used_mb": used // MIB,
        "explained": node_memory.figures(meminfo, EXPLAINED),
        "explained_mb": explained // MIB,
        "beside": node_memory.figures(meminfo, ADDITIONAL),
        "unified": unified,
        "gpu_processes_mb": gpu_mib,
        "before_baseline_mb": before,
        "baseline_mb": baseline_mb,
        "unexplained_mb": None if before is None else before - (baseline_mb or 0),
        "formula": FORMULA,
        "calibrated": False,
    }


class Conditions(t.NamedTuple):
    """The conditions at the time of the account. ``managed`` is the number of our running containers, None when unknown; ``live`` that of living
    compute processes; ``movement`` as of :func:`movement`; ``baseline`` why there is no baseline, empty when there is one."""

    managed: int | None
    live: int
    movement: str
    baseline: str


def judge_leak(table: t.Mapping[str, t.Any], threshold_mb: int, now: Conditions) -> tuple[str, list[str]]:
    """Return the verdict of the account about a leak, and the reasons why it is not a clearer one.

    ``none``: less than ``threshold_mb`` is unexplained. ``proven``: more is, no container of this collection and no compute process runs, two samples
    agree, and it is more than when this boot began. ``suspected``: one of the last three is missing. ``not judged``: the account cannot be made, or
    is not evidence while this collection's own engine may have memory that the driver does not count.
    """
    unexplained = table["unexplained_mb"]
    if unexplained is not None and table["unified"] and unexplained < threshold_mb:
        return "none", []
    unfit = (
        (table["unified"] is None, "there is no GPU"),
        (not table["unified"], "the GPU has memory of its own: what it leaks is not missing here"),
        (unexplained is None, "the driver does not report what its processes hold"),
        (now.managed, "a container of this collection runs: what its processes pin cannot be separated"),
    )
    if not_judged := [reason for applies, reason in unfit if applies]:
        return "not judged", not_judged[:1]
    possible = (
        (now.managed is None, "it is unknown whether a container of this collection runs"),
        (now.live, f"{now.live} GPU process(es) run: what they pin cannot be separated"),
        (now.movement == "one sample", "only one sample was taken"),
        (now.movement not in ("settled", "one sample"), f"the available memory is {now.movement}"),
        (now.baseline, now.baseline),
    )
    doubts = [reason for applies, reason in possible if applies]
    return ("suspected" if doubts else "proven"), doubts


# -- baseline --------------------------------------------------------------------------------------------------------


def baseline_path(state_dir: str) -> str:
    """Return the path of a node's baseline, which belongs to the node and to no cluster."""
    return os.path.join(state_dir, "baseline.json")


def _is_of(kind: type, value: t.Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def parse_baseline(text: str) -> dict[str, t.Any]:
    """Return a baseline. Raises :class:`UnknownState` with the raw text for anything else."""
    try:
        content = json.loads(text)
        complete = isinstance(content, dict) and all(_is_of(kind, content.get(key)) for key, kind in _BASELINE_KEYS.items())
        wrong = "lacks required keys" if not complete else "" if content["schema"] == BASELINE_SCHEMA else f"has schema {content['schema']}"
    except (ValueError, RecursionError) as error:
        wrong = f"is not JSON: {error}"
    if wrong:
        raise UnknownState(f"the baseline {wrong}; expected schema {BASELINE_SCHEMA}", raw=text[:2000], reason="baseline broken")
    return content


def read_baseline(path: str) -> dict[str, t.Any] | None:
    """Return the baseline in a file, None when it does not exist. Raises :class:`UnknownState` when it is not a baseline or may not be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return parse_baseline(handle.read(_BASELINE_LIMIT))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnknownState(f"{path} cannot be read: {error.strerror}", remedy=BECOME, reason="baseline unread") from error


def baseline_of(path: str, boot: str) -> tuple[dict[str, t.Any] | None, str]:
    """Return (the baseline of this boot, empty), or (None, why there is none)."""
    try:
        baseline = read_baseline(path)
    except UnknownState as error:
        return None, str(error)
    if baseline is None:
        return None, "no baseline of this boot was recorded"
    return (baseline, "") if baseline["boot_id"] == boot else (None, f"the baseline is of another boot ({baseline['recorded_at']})")


# -- what was stopped ------------------------------------------------------------------------------------------------


def last_stop(state_dir: str) -> tuple[float | None, int | None]:
    """Return (seconds since this collection's last engine ended, MiB available before it was started), None for what was not recorded.

    A clock that was set back makes the seconds 0. Records that cannot be read count as missing: they only decide whether memory is watched.
    """
    try:
        clusters = sorted(os.listdir(state_dir))
    except OSError:
        return None, None
    ends = [(read_side(os.path.join(state_dir, cluster, "run", "exit.json")).get("ended_at"), cluster) for cluster in clusters]
    known = [end for end in ends if type(end[0]) in (int, float)]
    if not known:
        return None, None
    ended, cluster = max(known, key=lambda end: end[0])
    before = read_side(note.path_of(state_dir, cluster)).get("available_mb")
    return max(0.0, time.time() - ended), before if _is_of(int, before) else None


def write_baseline(path: str, content: t.Mapping[str, t.Any]) -> None:
    """Write a baseline. Raises :class:`ClusterError` when that is not possible."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        files.write_json(path, content)
    except OSError as error:
        raise file_error(error, path, BECOME, "write", " cannot be written") from error
