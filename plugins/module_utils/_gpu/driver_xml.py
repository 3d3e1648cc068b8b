# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NVIDIA driver's detailed facts about GPUs: ``nvidia-smi -q -x``. This module util is PRIVATE to the collection.

The answer is another program's text and is read as such: no entity is expanded, no document type definition is fetched, and an incomplete answer
is refused.
"""

from __future__ import annotations

import re
import typing as t
import xml.etree.ElementTree as ET

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import Section, strict
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import driver
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult, run_tool

XML_QUERY = ("-q", "-x")
#: The query for the compute processes and their GPUs, for the fallback.
PROCESS_QUERY = ("--query-compute-apps=gpu_uuid,pid,process_name,used_memory", "--format=csv,noheader")

_ROOT = "nvidia_smi_log"

#: The texts by which the driver's tool shows in XML that a value does not exist. GB10 has no separate GPU memory.
_ABSENT = re.compile(
    r"^\[?(N/A|None|Not Supported|Insufficient Permissions|Not Found|Requested functionality has been deprecated)\]?$", re.IGNORECASE
)
_QUANTITY = re.compile(r"^(?P<value>-?\d{1,12}(?:\.\d{1,6})?) ?(?P<unit>[A-Za-z%]*)$", re.ASCII)
_SWITCH = {"enabled": True, "disabled": False}
_REASON_PREFIXES = ("clocks_event_reason_", "clocks_throttle_reason_")

#: Where the tool reports the power, in watts: the place and the name changed with drivers 535 and 545.
_POWER = (
    "gpu_power_readings/average_power_draw",
    "gpu_power_readings/instant_power_draw",
    "gpu_power_readings/power_draw",
    "power_readings/power_draw",
)

#: The facts about a GPU that the short CSV answer does not have.
_UNREPORTED: dict[str, t.Any] = {
    "bus_id": None,
    "cuda_version": None,
    "vbios": None,
    "utilisation_percent": None,
    "sm_clock_mhz": None,
    "sm_clock_max_mhz": None,
    "power_w": None,
    "temperature_c": None,
    "pstate": None,
    "throttle": None,
    "persistence": None,
    "mig": None,
}


def _unreadable(why: str, raw: str) -> UnknownState:
    return UnknownState(f"nvidia-smi -q -x {why}", reason="output not understood", remedy=driver.BY_HAND, raw=raw[:4000])


def parse_tree(text: str) -> ET.Element:
    """Return the answer's root element.

    Other output before and after it is ignored: the document's head, and warnings (for example about a corrupted infoROM). Without the head no entity can be
    declared, so the use of one is an error. Raises :class:`UnknownState` for anything that is not a complete answer.
    """
    start, end = text.find(f"<{_ROOT}"), text.rfind(f"</{_ROOT}>")
    if start < 0:
        raise _unreadable(f"did not answer in XML: {driver.first_line(text)[:200]}", text)
    if end < start:
        raise _unreadable("stopped in the middle of its answer", text)
    try:
        return ET.fromstring(f"{text[start:end]}</{_ROOT}>")
    except ET.ParseError as error:
        raise _unreadable(f"answered in XML that cannot be read: {error}", text) from error


def _text(element: ET.Element, path: str) -> str | None:
    """Return an element's text, None where the tool has no such element or no value for it."""
    text = (element.findtext(path) or "").strip()
    return None if not text or _ABSENT.match(text) else text


def _version(element: ET.Element, *paths: str) -> str | None:
    """Return the first existing version. The tool of the 610 branch renames both and annotates the old names: ``610.57.04 [Deprecated; …]``."""
    version = next(filter(None, (_text(element, path) for path in paths)), None)
    return version and version.partition(" [")[0]


def _quantity(element: ET.Element, path: str, unit: str) -> float | None:
    text = _text(element, path)
    if text is None:
        return None
    match = _QUANTITY.match(text)
    if not match or match["unit"] != unit:
        raise _unreadable(f"gives a figure that cannot be read in {path}: {text[:80]!r}", text)
    return float(match["value"])


def _whole(element: ET.Element, path: str, unit: str) -> int | None:
    value = _quantity(element, path, unit)
    return None if value is None else int(value)


def _switch(element: ET.Element, path: str) -> bool | None:
    text = _text(element, path)
    if text is None:
        return None
    if text.lower() not in _SWITCH:
        raise _unreadable(f"says neither Enabled nor Disabled in {path}: {text[:80]!r}", text)
    return _SWITCH[text.lower()]


def _power(gpu: ET.Element) -> float | None:
    figures = (_quantity(gpu, path, "W") for path in _POWER)
    return next((figure for figure in figures if figure is not None), None)


def _throttle(gpu: ET.Element) -> list[str] | None:
    """Return the names of the active clock event reasons (``gpu_idle``, ``sw_power_cap``, …), None where the tool reports none of them."""
    active: dict[str, bool] = {}
    # The second parent until driver 535.
    for reason in (reason for parent in ("clocks_event_reasons", "clocks_throttle_reasons") for reason in gpu.iterfind(f"{parent}/*")):
        name = next((reason.tag[len(prefix):] for prefix in _REASON_PREFIXES if reason.tag.startswith(prefix)), None)
        state = (reason.text or "").strip()
        if name is None or _ABSENT.match(state):
            continue
        if state not in ("Active", "Not Active"):
            raise _unreadable(f"says neither Active nor Not Active of {reason.tag}: {state[:80]!r}", state)
        active[name] = state == "Active" or active.get(name, False)
    return sorted(name for name, is_active in active.items() if is_active) if active else None


def _process(element: ET.Element) -> tuple[tuple[str, str], dict[str, t.Any]]:
    """Return one listed process with the MIG instance it is listed for."""
    pid = (element.findtext("pid") or "").strip()
    if not pid.isdecimal() or not pid.isascii() or len(pid) > 10:
        raise _unreadable(f"lists a process without a pid: {pid[:80]!r}", ET.tostring(element, encoding="unicode"))
    instance = ((element.findtext("gpu_instance_id") or "").strip(), (element.findtext("compute_instance_id") or "").strip())
    entry = {
        "pid": int(pid),
        "type": _text(element, "type"),
        # The tool's own "[Not Found]" is kept: it means a process that the tool cannot read.
        "name": (element.findtext("process_name") or "").strip(),
        "used_mib": _whole(element, "used_memory", "MiB"),
    }
    return instance, entry


def _processes(gpu: ET.Element) -> list[dict[str, t.Any]]:
    """Return the GPU's processes, each once, by pid.

    The tool lists a process that computes and draws once as ``C`` and once as ``G`` with the same memory: that is one process of type
    ``C+G`` and the larger figure. The memory of a process on several MIG instances is the sum.
    """
    listing = gpu.find("processes")
    if listing is None or (listing.text or "").strip():
        raise _unreadable("does not list the processes", "" if listing is None else ET.tostring(listing, encoding="unicode"))
    figures: dict[int, dict[tuple[str, str], list[int]]] = {}
    by_pid: dict[int, dict[str, t.Any]] = {}
    for element in listing.iterfind("process_info"):
        instance, entry = _process(element)
        pid = entry["pid"]
        earlier = by_pid.setdefault(pid, entry)
        types = {kind for kind in (*(earlier["type"] or "").split("+"), *(entry["type"] or "").split("+")) if kind}
        earlier["type"] = "+".join(sorted(types)) or None
        if entry["used_mib"] is not None:
            figures.setdefault(pid, {}).setdefault(instance, []).append(entry["used_mib"])
    for pid, entry in by_pid.items():
        entry["used_mib"] = sum(map(max, figures[pid].values())) if pid in figures else None
    return [by_pid[pid] for pid in sorted(by_pid)]


def parse_gpus(text: str, section: Section = strict) -> list[dict[str, t.Any]]:
    """Return the GPUs of an ``nvidia-smi -q -x`` answer in the shape of ``node_info``'s ``gpus``.

    Figures are None where the tool reports none, and where one cannot be read, which ``section`` records. Raises
    :class:`UnknownState` for an incomplete answer, or one that describes another number of GPUs than it announces.
    """
    root = parse_tree(text)
    elements = root.findall("gpu")
    announced = (root.findtext("attached_gpus") or "").strip()
    if announced != str(len(elements)):
        raise _unreadable(f"announces {announced[:20] or 'no number of'} GPUs and describes {len(elements)}", text)
    return [_gpu_entry(root, index, element, section) for index, element in enumerate(elements)]


def _gpu_entry(root: ET.Element, index: int, gpu: ET.Element, section: Section) -> dict[str, t.Any]:
    return {
        "index": index,
        "name": _text(gpu, "product_name"),
        "uuid": _text(gpu, "uuid"),
        "bus_id": gpu.get("id"),
        "driver_version": _version(root, "kmd_version", "driver_version"),
        "cuda_version": _version(root, "cuda_umd_version", "cuda_version"),
        "vbios": _text(gpu, "vbios_version"),
        "memory_total_mb": section(lambda: _whole(gpu, "fb_memory_usage/total", "MiB")),
        "memory_used_mb": section(lambda: _whole(gpu, "fb_memory_usage/used", "MiB")),
        "utilisation_percent": section(lambda: _whole(gpu, "utilization/gpu_util", "%")),
        "sm_clock_mhz": section(lambda: _whole(gpu, "clocks/sm_clock", "MHz")),
        "sm_clock_max_mhz": section(lambda: _whole(gpu, "max_clocks/sm_clock", "MHz")),
        "power_w": section(lambda: _power(gpu)),
        "temperature_c": section(lambda: _whole(gpu, "temperature/gpu_temp", "C")),
        "pstate": _text(gpu, "performance_state"),
        "throttle": section(lambda: _throttle(gpu)),
        "persistence": section(lambda: _switch(gpu, "persistence_mode")),
        "mig": section(lambda: _switch(gpu, "mig_mode/current_mig")),
        "processes": section(lambda: _processes(gpu)),
        "source": "xml",
    }


def parse_processes_by_gpu(text: str) -> dict[str, list[dict[str, t.Any]]]:
    """Return the processes of a :data:`PROCESS_QUERY` answer by the UUID of their GPU. Raises :class:`UnknownState` for another shape."""
    lines: dict[str, list[str]] = {}
    for line in filter(str.strip, text.splitlines()):
        uuid, comma, rest = line.strip().partition(", ")
        if not comma or not uuid.startswith(("GPU-", "MIG-")):
            raise UnknownState(
                f"nvidia-smi lists a process without its GPU: {line[:200]!r}", reason="output not understood", remedy=driver.BY_HAND, raw=text[:4000]
            )
        lines.setdefault(uuid, []).append(rest)
    return {
        uuid: [{"pid": entry.pid, "type": "C", "name": entry.name, "used_mib": entry.used_mib} for entry in driver.parse_processes("\n".join(rows))]
        for uuid, rows in lines.items()
    }


def gpus_or_none(nvidia_smi: str, timeout: float, section: Section = strict) -> list[dict[str, t.Any]]:
    """Return the node's GPUs as :func:`gpus` does, none where the tool reports that there is none. Raises :class:`UnknownState` as it does."""
    try:
        return gpus(nvidia_smi, timeout, section)
    except UnknownState as error:
        if error.reason == driver.NO_GPU:
            return []
        raise


def join_csv(gpus: list[dict[str, t.Any]], processes: dict[str, list[dict[str, t.Any]]] | None) -> list[dict[str, t.Any]]:
    """Return the short descriptions of :func:`driver.parse_gpus` in the shape of ``gpus``, None for what they do not report.

    ``processes`` is None where it could not be read. Raises :class:`UnknownState` for processes on a GPU that is not described.
    """
    stranger = set(processes or {}) - {gpu["uuid"] for gpu in gpus}
    if stranger and len(gpus) != 1:
        named = ", ".join(sorted(stranger))
        raise UnknownState(f"nvidia-smi lists processes on GPUs that it does not describe: {named}", remedy=driver.BY_HAND, raw=str(processes)[:4000])

    def listed_on(gpu: dict[str, t.Any]) -> list[dict[str, t.Any]]:
        # On a machine with one GPU every process is on it, a MIG instance of it included.
        here = [entry for uuid, rows in (processes or {}).items() if uuid == gpu["uuid"] or len(gpus) == 1 for entry in rows]
        return sorted(here, key=lambda entry: entry["pid"])

    return [{**_UNREPORTED, **gpu, "processes": None if processes is None else listed_on(gpu), "source": "csv"} for gpu in gpus]


def _whole_answer(result: ToolResult, section: Section) -> list[dict[str, t.Any]]:
    """Return the GPUs from a run of the tool, which may fail and still describe them all: for example, status 14 is a corrupted infoROM."""
    if f"</{_ROOT}>" not in result.stdout:
        driver.answer(result)
    entries = parse_gpus(result.stdout, section)
    section(lambda: driver.answer(result))
    return entries


def gpus(nvidia_smi: str, timeout: float, section: Section = strict) -> list[dict[str, t.Any]]:
    """Return the node's GPUs: the section ``gpus`` of ``node_info``. ``timeout`` is in seconds, for each call of the tool.

    They are read from ``nvidia-smi -q -x``; where that fails or cannot be parsed, from the two short CSV queries. Raises
    :class:`UnknownState` when the tool is missing or hangs (a second run would only take as long), when it reports no GPU (reason
    :data:`driver.NO_GPU`), and when neither answer can be read.
    """
    try:
        return _whole_answer(run_tool([nvidia_smi, *XML_QUERY], timeout), section)
    except UnknownState as error:
        if error.reason in ("tool missing", "tool hangs", driver.NO_GPU):
            raise
        first = error
    try:
        described = driver.query_gpus(nvidia_smi, timeout)
    except UnknownState as second:
        raise UnknownState(f"{first}; and in short: {second}", remedy=first.remedy, reason=first.reason, **first.details) from second
    return join_csv(described, section(lambda: parse_processes_by_gpu(driver.answer(run_tool([nvidia_smi, *PROCESS_QUERY], timeout)))))
