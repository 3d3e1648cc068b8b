# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Memory without an owner: the account of a node's memory, its baseline, its samples. This module util is PRIVATE to the collection.

On unified memory a leak of the driver shows in no process and in no list. It shows as memory that is not available and that nothing
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
#: What a baseline must hold, and as what, to be used.
_BASELINE_KEYS: dict[str, type] = {"schema": int, "boot_id": str, "recorded_at": str, "unexplained_mb": int, "uptime_s": int}
#: Bytes of a baseline that are read: a few KiB when it is one.
_BASELINE_LIMIT = 1024 * 1024


# -- samples ---------------------------------------------------------------------------------------------------------


def uptime(proc_root: str) -> int:
    """Return the seconds since boot. Raises :class:`UnknownState` when they cannot be read."""
    path = os.path.join(proc_root, "uptime")
    try:
        with open(path, encoding="ascii", errors="replace") as handle:
            text = handle.read(200)
        return int(float(text.split()[0]))
    except OSError as error:
        raise UnknownState(f"{path} cannot be read: {error.strerror}") from error
    except (IndexError, ValueError, OverflowError):
        raise UnknownState(f"{path} does not show the time since boot: {text[:80]!r}", raw=text) from None


def available_mb(meminfo: t.Mapping[str, int]) -> int:
    return meminfo["MemAvailable"] // MIB


def settled(samples: t.Sequence[int], settle_mb: int) -> bool:
    """Return whether the last two samples agree."""
    return len(samples) > 1 and abs(samples[-1] - samples[-2]) < settle_mb


def movement(samples: t.Sequence[int], settle_mb: int) -> str:
    """Return how samples of the available memory (MiB) move: ``one sample``, ``settled``, ``rising`` or ``falling``."""
    if len(samples) < 2:
        return "one sample"
    if settled(samples, settle_mb):
        return "settled"
    return "rising" if samples[-1] > samples[-2] else "falling"


# -- account ---------------------------------------------------------------------------------------------------------


def figures_mb(meminfo: t.Mapping[str, int], names: t.Mapping[str, str]) -> dict[str, int]:
    """Return some of meminfo's figures in MiB; one that this kernel does not have is 0."""
    return {key: meminfo.get(name, 0) // MIB for key, name in names.items()}


def account(meminfo: t.Mapping[str, int], gpu_mib: int | None, unified: bool | None, baseline_mb: int | None) -> dict[str, t.Any]:
    """Return the account of a node's memory, in MiB.

    ``meminfo`` is in KiB; ``gpu_mib`` what the living GPU processes hold together, None when the driver does not say; ``unified`` whether
    they hold it in the machine's memory; ``baseline_mb`` what was unexplained when nothing ran, None when that is not known.

    All of ``gpu_mib`` is subtracted, although some of it may also be in a process's own memory and is then counted twice: the result errs
    towards "no leak", since the other error costs a reboot.``unexplained_mb`` is None when the driver does not report what its processes hold.
    """
    used = meminfo["MemTotal"] - meminfo["MemAvailable"]
    explained = sum(meminfo.get(name, 0) for name in EXPLAINED.values())
    in_memory = gpu_mib if unified else 0
    before = None if in_memory is None else (used - explained) // MIB - in_memory
    return {
        "total_mb": meminfo["MemTotal"] // MIB,
        "available_mb": meminfo["MemAvailable"] // MIB,
        "used_mb": used // MIB,
        "explained": figures_mb(meminfo, EXPLAINED),
        "explained_mb": explained // MIB,
        "beside": figures_mb(meminfo, ADDITIONAL),
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
    """Return what the account shows about a leak, and the reasons why it shows no more.

    ``none``: less than ``threshold_mb`` is unexplained. ``proven``: more is, nothing of ours and no compute process runs, two samples agree,
    and it is more than when this boot began. ``suspected``: one of the last three is missing. ``not judged``: the account cannot be made, or
    is not evidence while our own engine may hold memory that the driver does not count.
    """
    if table["unified"] is None:
        return "not judged", ["there is no GPU"]
    if not table["unified"]:
        return "not judged", ["the GPU has memory of its own: what it leaks is not missing here"]
    if table["unexplained_mb"] is None:
        return "not judged", ["the driver does not report what its processes hold"]
    if table["unexplained_mb"] < threshold_mb:
        return "none", []
    if now.managed:
        return "not judged", ["a container of this collection runs: what its processes pin cannot be separated"]
    doubts = []
    if now.managed is None:
        doubts.append("it is unknown whether a container of this collection runs")
    if now.live:
        doubts.append(f"{now.live} GPU process(es) live: what they pin cannot be separated")
    if now.movement != "settled":
        doubts.append({"one sample": "only one sample was taken"}.get(now.movement, f"the available memory is {now.movement}"))
    if now.baseline:
        doubts.append(now.baseline)
    return ("suspected" if doubts else "proven"), doubts


# -- baseline --------------------------------------------------------------------------------------------------------


def baseline_path(state_dir: str) -> str:
    """Return the path of a node's baseline, which belongs to the node and to no cluster."""
    return os.path.join(state_dir, "baseline.json")


def _is(value: t.Any, kind: type) -> bool:
    """Return whether a value of JSON is of a kind; a truth value counts as a number otherwise."""
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def parse_baseline(text: str) -> dict[str, t.Any]:
    """Return a baseline. Raises :class:`UnknownState` with the raw text for anything else."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnknownState(f"the baseline is not JSON: {error}", raw=text[:2000], reason="baseline broken") from error
    if not isinstance(content, dict) or any(not _is(content.get(key), kind) for key, kind in _BASELINE_KEYS.items()):
        raise UnknownState("the baseline lacks required keys", raw=text[:2000], reason="baseline broken")
    if content["schema"] != BASELINE_SCHEMA:
        raise UnknownState(f"the baseline has schema {content['schema']}, expected {BASELINE_SCHEMA}", raw=text[:2000], reason="baseline broken")
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
        found = read_baseline(path)
    except UnknownState as error:
        return None, str(error)
    if found is None:
        return None, "no baseline of this boot was recorded"
    if found["boot_id"] != boot:
        return None, f"the baseline is of another boot ({found['recorded_at']})"
    return found, ""


# -- what was stopped ------------------------------------------------------------------------------------------------


def last_stop(state_dir: str) -> tuple[float | None, int | None]:
    """Return (seconds since the last engine of ours ended, MiB available before it was started), None for what was not recorded.

    A clock that was set back makes the seconds 0. Records that cannot be read count as missing: they only decide whether memory is watched.
    """
    latest, noted = None, None
    try:
        clusters = sorted(os.listdir(state_dir))
    except OSError:
        return None, None
    for cluster in clusters:
        ended = read_side(os.path.join(state_dir, cluster, "run", "exit.json")).get("ended_at")
        if isinstance(ended, (int, float)) and not isinstance(ended, bool) and (latest is None or ended > latest):
            latest = ended
            before = read_side(note.path_of(state_dir, cluster)).get("available_mb")
            noted = before if isinstance(before, int) and not isinstance(before, bool) else None
    return (None, None) if latest is None else (max(0.0, time.time() - latest), noted)


def write_baseline(path: str, content: t.Mapping[str, t.Any]) -> None:
    """Write a baseline. Raises :class:`ClusterError` when that is not possible."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        files.write_json(path, content)
    except OSError as error:
        raise file_error(error, path, BECOME, "write", " cannot be written") from error
