# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The judgement about a node's GPU processes and memory: the whole of ``cuda_zombie_check``. This module util is PRIVATE to the collection.

A section of ``node_info`` is the result of the same check without waiting.
"""

from __future__ import annotations

import os
import platform
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_OWNER, OWNER, EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import boot_id
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import driver, driver_xml, zombies
from ansible_collections.gb10.cluster.plugins.module_utils._gpu.zombie_verdicts import ACTION_OF_END, SOURCE, VERDICTS, amount, judge_ended, judge_log
from ansible_collections.gb10.cluster.plugins.module_utils._gpu.zombie_verdicts import judge_memory, judge_processes, leaks
from ansible_collections.gb10.cluster.plugins.module_utils._host.kernel_log import kernel_log
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.protocol import MARK, RUN_TARGET
from ansible_collections.gb10.cluster.plugins.module_utils._memory import accounting, node_memory
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding, require_least
from ansible_collections.gb10.cluster.plugins.module_utils._process import process_table
from ansible_collections.gb10.cluster.plugins.module_utils._process.live_env import started_with
from ansible_collections.gb10.cluster.plugins.module_utils._sections import once
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

Params = dict[str, t.Any]


LEAST = {"wait_timeout": 0, "wait_sleep": 0, "settle_mb": 1, "settle_sleep": 1, "settle_timeout": 0, "leak_threshold_mb": 1, "kill_grace": 0, "tool_timeout": 1}

NO_LOG: dict[str, t.Any] = {"source": "", "since_boot": None, "failures": None, "events": [], "error": ""}


# -- judging ---------------------------------------------------------------------------------------------------------


def held(
    processes: list[dict[str, t.Any]], table: t.Mapping[str, t.Any] | None, reclaim: t.Mapping[str, t.Any], log: t.Mapping[str, t.Any]
) -> list[dict[str, t.Any]]:
    """Return the memory that the processes of each class use."""
    rows: dict[tuple[str, str | None], list[dict[str, t.Any]]] = {}
    for process in processes:
        rows.setdefault((process["class"], process["owner"] if process["class"] == "live" else None), []).append(process)
    more = (
        ("slow_reclaim", reclaim["state"] == "rising", reclaim["risen_mb"]),
        ("leak", leaks(table), table and table["unexplained_mb"]),
        ("suspect", log["failures"], None),
    )
    return [
        *(
            {"class": kind, "owner": owner, "pids": [process["pid"] for process in members], "mib": zombies.sum_mib(members)}
            for (kind, owner), members in sorted(rows.items(), key=lambda row: (zombies.CLASSES.index(row[0][0]), str(row[0][1])))
        ),
        *({"class": kind, "owner": None, "pids": [], "mib": mib} for kind, applies, mib in more if applies),
    ]


class Evidence(t.NamedTuple):
    """All facts that are judged."""

    processes: list[dict[str, t.Any]]
    ended: list[dict[str, t.Any]]
    table: dict[str, t.Any] | None
    table_error: str
    reclaim: dict[str, t.Any]
    log: dict[str, t.Any]


NOTHING = Evidence([], [], None, "", {"state": "one sample", "why": [], "samples_mb": [], "risen_mb": 0}, NO_LOG)


def shown(evidence: Evidence) -> dict[str, t.Any]:
    """Return the part of the result that contains the evidence."""
    ended = [{"pid": orphan["pid"], "name": orphan["name"], "used_mib": orphan["used_mib"], "outcome": orphan["outcome"]} for orphan in evidence.ended]
    return {
        "processes": evidence.processes,
        "classes": {kind: [process["pid"] for process in evidence.processes if process["class"] == kind] for kind in zombies.CLASSES},
        "held": held(evidence.processes, evidence.table, evidence.reclaim, evidence.log),
        "accounting": evidence.table,
        "accounting_error": evidence.table_error,
        "reclaim": evidence.reclaim,
        "kernel_log": evidence.log,
        "ended": ended,
    }


def outcome(evidence: Evidence, node: str) -> dict[str, t.Any]:
    """Return the module's result."""
    handled = {orphan["pid"] for orphan in evidence.ended if orphan["outcome"] in ("would end", "remains")}
    problems = [
        *judge_processes([process for process in evidence.processes if process["pid"] not in handled], node),
        *judge_memory(evidence.table, evidence.reclaim, evidence.table_error, node),
        *judge_log(evidence.log, evidence.table, node),
    ]
    findings = [*judge_ended(evidence.ended, node), *problems]
    if all(entry["verdict"] == "pass" for entry in findings):
        count = len(evidence.processes)
        message = f"{count} GPU process(es), all live" if count else "no GPU process"
        findings.append(finding("cuda_zombie.none", node, "pass", message, measured=count, source=SOURCE))
    worst = max(findings, key=lambda entry: VERDICTS.index(entry["verdict"]))
    acted = [orphan for orphan in evidence.ended if orphan["outcome"] in ACTION_OF_END]
    result = shown(evidence)
    return {
        "changed": bool(acted),
        "actions": [f"{ACTION_OF_END[orphan['outcome']]} process {orphan['pid']} ({orphan['name']})" for orphan in acted],
        "diff": diff(evidence.ended),
        "verdict": worst["verdict"],
        "msg": "; ".join(entry["message"] for entry in findings),
        "remedy": worst["remedy"],
        "reason": worst["id"],
        **result,
        "needs_reboot": bool(
            result["classes"]["ghost"]
            or any(orphan["outcome"] == "remains" for orphan in evidence.ended)
            or (evidence.table is not None and evidence.table["leak"] == "proven")
        ),
        "findings": findings,
    }


def diff(ended: list[dict[str, t.Any]]) -> dict[str, t.Any]:
    """Return the orphans before and after, empty when there was none to end."""
    before = [f"{orphan['pid']} {orphan['name']} ({amount(orphan)})" for orphan in ended]
    after = [text for text, orphan in zip(before, ended) if orphan["outcome"] == "remains"]
    return {"before": {"orphans": before}, "after": {"orphans": after}} if ended else {}


def not_known(error: UnknownState, node: str) -> dict[str, t.Any]:
    """Return the module's result when there is no usable answer."""
    return {
        "verdict": error.verdict,
        "msg": str(error),
        "remedy": error.remedy,
        "reason": error.reason,
        **shown(NOTHING._replace(table_error=str(error))),
        "needs_reboot": False,
        "findings": [finding("cuda_zombie.unknown", node, error.verdict, str(error), remedy=error.remedy, source=SOURCE)],
        **error.details,
    }


# -- looking ---------------------------------------------------------------------------------------------------------


def run_mark(pid: int, state: str, proc_root: str) -> str | None:
    """Return the mark of the engine's run that a process descends from, empty without one, None when it cannot be asked."""
    # A process that hangs in the kernel may keep its memory locked, and its reader would hang too.
    if state in "DZX":
        return None
    try:
        return started_with(pid, proc_root).get(MARK, "")
    except OSError:
        return None


class Containers:
    """This collection's containers on the node, requested at their first use."""

    def __init__(self, params: Params) -> None:
        self._params = params
        self._request = once(lambda: EngineApi(params["docker_socket"], params["docker_timeout"]).containers({LABEL_OWNER: OWNER}))

    def entries(self) -> list[dict[str, t.Any]] | None:
        """Return Docker's entries of the containers, None when it does not answer."""
        try:
            return self._request()
        except ClusterError:
            return None  # shown as an owner, or a number of containers, that is not known

    def running(self) -> int | None:
        """Return how many run, None when that is unknown."""
        entries = self.entries()
        return None if entries is None else sum(entry.get("State") == "running" for entry in entries)

    def owner(self, process: t.Mapping[str, t.Any]) -> str | None:
        """Return the owner of a process, None when that is unknown."""
        proc_root = self._params["roots"]["proc_root"]
        stat = process_table.read_stat(process["pid"], proc_root)
        mark = run_mark(process["pid"], stat.state, proc_root) if stat else None
        if mark and mark.startswith(f"{RUN_TARGET}:"):
            return "ours"
        if stat is None or not process["container"]:
            return None if mark is None else "foreign"
        entries = self.entries()
        if entries is None:
            return None
        return "ours" if process["container"] in {entry.get("Id") for entry in entries} else "foreign"


class Readers(t.NamedTuple):
    """Functions that read the driver, the kernel and its log; each raises :class:`UnknownState` or OSError. A caller may pass values that it has already."""

    cards: t.Callable[[], list[dict[str, t.Any]]]
    scan: t.Callable[[], t.Any]
    log: t.Callable[[], dict[str, t.Any]]


def asking(params: Params) -> Readers:
    """Return readers that read again at each call."""
    return Readers(
        lambda: driver_xml.gpus(params["roots"]["nvidia_smi"], params["tool_timeout"]),
        lambda: process_table.scan(params["roots"]["proc_root"]),
        lambda: kernel_log(source=params["roots"]["kernel_log"], proc_root=params["roots"]["proc_root"], timeout=params["tool_timeout"]),
    )


def look(params: Params, readers: Readers | None = None) -> zombies.Look:
    readers = readers or asking(params)
    return zombies.look(readers.cards, readers.scan, params["roots"]["proc_root"])


def again(params: Params) -> bool:
    """Return whether an earlier call has looked already, and this one continues to wait for memory."""
    return "samples_mb" in params["earlier"]


def look_until_settled(params: Params, readers: Readers | None = None) -> tuple[zombies.Look, bool]:
    """Look until there is no ended process and no orphan, at most for the wait time; after a first look with any, look at least once more.

    Returns the last look, and whether any look showed an ended process. The driver lists a process for a moment after it was killed, and
    one that ends between the driver's answer and the look at /proc appears to be a ghost; an engine's core may outlive its server for a moment.
    The second look clears all of these. A later call does not wait for them. ``readers`` are used by the first look only.
    """
    snapshot = look(params, readers)
    ended = bool(snapshot.of("defunct", "ghost"))
    if snapshot.of("defunct", "ghost", "orphan"):
        for _waited in clock(params["wait_timeout"] if params["wait"] and not again(params) else 0, params["wait_sleep"]):
            snapshot = look(params)
            ended = ended or bool(snapshot.of("defunct", "ghost"))
            if not snapshot.of("defunct", "ghost", "orphan"):
                break
    return snapshot, ended


def end_orphans(params: Params, snapshot: zombies.Look, check_mode: bool) -> list[dict[str, t.Any]]:
    """End the orphans, or in check mode only list them; return each with the way it ended."""
    orphans = snapshot.of("orphan")
    if not orphans:
        return []
    if not zombies.own_processes(params["roots"]["proc_root"]):
        raise ClusterError(
            f"{params['roots']['proc_root']} does not show this module's own pid namespace: a signal would reach another process",
            remedy="Run the check with kill_orphans on the machine itself.",
            reason="foreign pid namespace",
        )
    outcomes = {} if check_mode else zombies.end(orphans, params["roots"]["proc_root"], params["kill_grace"])
    return [{**orphan, "outcome": outcomes.get(orphan["pid"], "would end")} for orphan in orphans]


def sample(params: Params) -> dict[str, int]:
    return node_memory.read_meminfo(params["roots"]["proc_root"], params["roots"]["meminfo"])


def stopped_lately(params: Params, available: int) -> bool:
    """Return whether this collection's engine ended a short time ago and memory is below the level recorded before its start."""
    seconds, noted = accounting.last_stop(params["state_dir"])
    lately = seconds is not None and seconds <= params["settle_timeout"]
    return lately and (noted is None or available < noted - params["leak_threshold_mb"])


def watch(params: Params, samples: list[int], meminfo: dict[str, int]) -> dict[str, int]:
    """Take samples until two agree, at most for ``settle_timeout``, and return the last meminfo.

    The clock's last tick may come early. Two samples that are too close agree too easily, so such a sample is left out.
    """
    seconds, last = min(params["settle_timeout"], params["earlier"].get("seconds", params["settle_timeout"])), 0.0
    for waited in clock(seconds, params["settle_sleep"]):
        if waited - last >= params["settle_sleep"]:
            last = waited
            meminfo = sample(params)
            samples.append(accounting.available_mb(meminfo))
            if accounting.settled(samples, params["settle_mb"]):
                break
    return meminfo


def account(params: Params, snapshot: zombies.Look, containers: Containers, ended: list[str]) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """Return (the account with its verdict on a leak, how memory moved). ``ended`` are the reasons, as texts, why memory may still be coming back.

    Raises :class:`UnknownState` when meminfo cannot be read.
    """
    boot = boot_id(params["roots"]["proc_root"])
    baseline, no_baseline = accounting.baseline_of(params["baseline"] or accounting.baseline_path(params["state_dir"]), boot)
    living = snapshot.of("live", "orphan", "unknown")
    held_mib = zombies.sum_mib(process for process in living if process["listed"])
    compute = sum(process["listed"] and "C" in (process["type"] or "C") for process in living)

    def table_of(meminfo: dict[str, int], movement: str) -> dict[str, t.Any]:
        table = accounting.account(meminfo, held_mib, snapshot.unified, baseline["unexplained_mb"] if baseline else None)
        suspicious = table["unified"] and table["unexplained_mb"] is not None and table["unexplained_mb"] >= params["leak_threshold_mb"]
        managed = containers.running() if suspicious else 0
        leak, doubts = accounting.judge_leak(
            table, params["leak_threshold_mb"], accounting.Conditions(managed, compute, movement, no_baseline)
        )
        return {**table, "threshold_mb": params["leak_threshold_mb"], "leak": leak, "doubts": doubts}

    samples: list[int] = list(params["earlier"].get("samples_mb", []))
    meminfo = sample(params)
    if not samples:
        samples.append(accounting.available_mb(meminfo))
    why = list(params["earlier"].get("why", ended))
    if not again(params):
        if stopped_lately(params, samples[-1]):
            why.append("an engine was stopped a short time ago")
        if table_of(meminfo, "settled")["leak"] in ("proven", "suspected"):
            why.append("memory is used that nothing explains")
    if params["wait"] and why:
        meminfo = watch(params, samples, meminfo)
    movement = accounting.movement(samples, params["settle_mb"])
    return table_of(meminfo, movement), {"state": movement, "why": why, "samples_mb": samples, "risen_mb": max(0, samples[-1] - min(samples))}


def read_log(params: Params, readers: Readers) -> dict[str, t.Any]:
    """Return what the kernel's log reports about the driver's allocations; what cannot be read is an ``error`` in it."""
    if params["roots"]["kernel_log"] == "none":
        return NO_LOG
    try:
        section = readers.log()
    except (UnknownState, OSError) as error:
        text = str(error) if isinstance(error, UnknownState) else f"{error.filename or params['roots']['kernel_log']}: {error.strerror}"
        return {**NO_LOG, "error": text}
    events = [event for event in section["events"] if event["kind"] == "nv_no_memory"]
    values = {"failures": sum(event["count"] for event in events), "events": events}
    return {**NO_LOG, "source": section["source"], "since_boot": section["since_boot"], **values}


def gather(params: Params, check_mode: bool, readers: Readers | None = None) -> Evidence:
    """Collect all facts. Raises :class:`UnknownState` when the answer of the driver or the kernel cannot be read."""
    earlier, containers = params["earlier"], Containers(params)
    snapshot, some_ended = look_until_settled(params, readers)
    why = ["a GPU process has ended"] if some_ended else []
    ended = list(earlier.get("ended", []))
    if params["kill_orphans"] and not again(params):
        ended = end_orphans(params, snapshot, check_mode)
        if ended and not check_mode:
            why.append("an engine process was ended")
            snapshot, _some = look_until_settled(params)
    for process in snapshot.processes:
        process["owner"] = containers.owner(process) if process["title"] else None
    try:
        (table, reclaim), error = account(params, snapshot, containers, why), ""
    except UnknownState as problem:
        table, reclaim, error = None, NOTHING.reclaim, str(problem)
    return Evidence(snapshot.processes, ended, table, error, reclaim, read_log(params, readers or asking(params)))


def namespace(params: Params) -> dict[str, t.Any]:
    """Return the pid namespace that is checked, and whether only an option asserts that its numbers are the driver's."""
    try:
        name: str | None = os.readlink(os.path.join(params["roots"]["proc_root"], "self", "ns", "pid"))
    except OSError:
        name = None
    return {"namespace": name, "asserted": params["pid_namespace"] == "host" and name != f"pid:[{driver.HOST_PID_NAMESPACE}]"}


#: Options of a quick check, which waits for nothing and ends nothing.
GLANCE: Params = {
    "wait": False,
    "wait_timeout": 0,
    "wait_sleep": 0,
    "settle_mb": 256,
    "settle_sleep": 5,
    "settle_timeout": 240,
    "leak_threshold_mb": 4096,
    "baseline": None,
    "kill_orphans": False,
    "kill_grace": 120,
    "earlier": {},
}


def check(params: Params, check_mode: bool, readers: Readers | None = None) -> dict[str, t.Any]:
    """Collect and judge all facts, and return the module's result. ``params`` are all its options.

    With ``readers`` the first look uses values that the caller has read already. Raises :class:`ClusterError` for an option that is too small.
    Unknown facts have the verdict ``unknown``.
    """
    require_least(params, LEAST)
    node = platform.node()
    seen = namespace(params)
    try:
        driver.require_host_processes(params["roots"]["proc_root"], asserted=params["pid_namespace"] == "host")
        result = outcome(gather(params, check_mode, readers), node)
    except UnknownState as error:
        result = not_known(error, node)
    if seen["asserted"]:
        result["msg"] += f" (in pid namespace {seen['namespace'] or 'unknown'}, whose numbers pid_namespace: host asserts to be the driver's)"
    result["pid_namespace"] = seen
    return result
