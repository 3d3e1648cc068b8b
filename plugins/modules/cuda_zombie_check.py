#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_zombie_check
short_description: Find GPU memory that is held by the dead, the orphaned, or nobody
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Compares the processes that the NVIDIA driver lists with the processes that the kernel has, and gives each one a class.
  - C(live) runs. RV(processes[].owner) tells whether it is one of this collection's.
  - C(defunct) has ended and waits for its parent; the driver gives its memory back by itself.
  - C(ghost) is listed by the driver while the kernel has no such process; once that lasts, a reboot alone gives its memory back.
  - C(orphan) is an engine's core or worker whose API server, or Ray on this node, is gone, also in a container, where the first process adopts
    it. It holds its memory until somebody ends it, and ending it is enough. A core whose parent is any other living program is not an orphan, since
    that may use the engine as a library.
  - C(unknown) is there but may not be looked at.
  - Looks at memory beside the processes. With C(slow_reclaim) it is still coming back after something ended; the module waits for it until two
    samples agree. With C(leak) memory is missing that nothing explains. With C(suspect) the driver logged in this boot that it got no memory.
  - The account behind C(leak) is the formula in RV(accounting.formula). It is uncalibrated, since nobody has yet compared it with a known leak on a
    GB10, and it errs towards finding none. A leak blocks only when no container of this collection and no compute process runs, two samples agree,
    and the playbook C(gb10.cluster.baseline) recorded what is normal in this boot. Otherwise it warns, and says what is missing.
  - A process that has ended only counts after it stayed for O(wait_timeout), since the driver takes a moment to clear up after it.
  - One process counts once, however often the driver lists it (as one that computes and one that draws).
  - The check is never passed by not knowing. A tool that is missing, hangs, fails or prints what cannot be read is the verdict V(unknown).
  - It reboots nothing, and ends a process with O(kill_orphans=true) alone.
notes:
  - While memory comes back the controller prints a line about it every O(settle_sleep) or ten seconds, whichever is longer.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._docker
attributes:
  check_mode:
    support: full
    details:
      - Looks and waits as otherwise. With O(kill_orphans=true) it ends nothing and tells what would be ended.
  diff_mode:
    support: full
  action:
    description: Runs partly on the controller, which shows the progress.
    support: full
options:
  nvidia_smi:
    description:
      - The driver's tool, as a path or as a name to be found on C(PATH).
    type: str
    default: nvidia-smi
  tool_timeout:
    description:
      - Seconds to wait for one answer of O(nvidia_smi). It hangs when the driver does.
    type: int
    default: 30
  proc_root:
    description:
      - Where the proc file system is mounted.
    type: path
    default: /proc
  meminfo:
    description:
      - A file to read in place of C(meminfo) below O(proc_root).
    type: path
    version_added: 0.2.0
  kernel_log:
    description:
      - Where the kernel's log is. V(auto) takes the kernel's own buffer, or the journal of this boot. Anything else is a file.
      - With V(none) nobody looks, and C(suspect) is never found.
    type: str
    default: auto
    version_added: 0.2.0
  pid_namespace:
    description:
      - The driver counts processes in the machine's own pid namespace, so the check means nothing in any other.
      - With V(auto), the namespace is recognised by its inode, and any other than the machine's own is the verdict V(unknown).
      - With V(host), you assert that the numbers agree. RV(pid_namespace.asserted) and RV(ignore:msg) say so.
    type: str
    choices: [auto, host]
    default: auto
  fail_on:
    description:
      - The verdicts that make the module fail. With an empty list it always returns normally, and the caller looks at RV(verdict).
    type: list
    elements: str
    choices: [warn, block, unknown]
    default: [block, unknown]
  wait:
    description:
      - Whether processes that have ended get time to vanish, and memory to come back, before they count. Without it processes are looked at
        twice at once, memory once, and no leak is proven.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds that a process that has ended gets to vanish.
    type: int
    default: 10
  wait_sleep:
    description:
      - Seconds between two looks while waiting for that.
    type: int
    default: 1
  settle_mb:
    description:
      - Two samples of the available memory that differ by less than this many MiB agree, 1 or more.
    type: int
    default: 256
    version_added: 0.2.0
  settle_sleep:
    description:
      - Seconds between two samples of the available memory, 1 or more.
    type: int
    default: 5
    version_added: 0.2.0
  settle_timeout:
    description:
      - Seconds that memory gets to come back. Field reports say that it takes up to four minutes.
      - Memory is sampled more than once only when there is a reason, which RV(reclaim.why) names. A process has ended, an engine of ours was
        stopped less than this long ago and memory is not back to what was noted before its start, or too much is unexplained.
    type: int
    default: 240
    version_added: 0.2.0
  leak_threshold_mb:
    description:
      - MiB of unexplained memory from which on it counts as a leak.
    type: int
    default: 4096
    version_added: 0.2.0
  state_dir:
    description:
      - The directory that holds the state of this collection's clusters on the node.
    type: path
    default: /var/lib/gb10
    version_added: 0.2.0
  baseline:
    description:
      - The file with the node's baseline. Defaults to C(baseline.json) below O(state_dir). One of another boot is not used.
    type: path
    version_added: 0.2.0
  kill_orphans:
    description:
      - Whether to end the processes of class C(orphan), and no other. Each gets SIGTERM, and SIGKILL after O(kill_grace).
      - Right before each signal the process is held fast and its start time compared, so that no other one with its number is hit.
      - Only possible where O(proc_root) shows the module's own pid namespace.
    type: bool
    default: false
    version_added: 0.2.0
  kill_grace:
    description:
      - Seconds from SIGTERM to SIGKILL. A killed engine can leak memory on this hardware, so leave it generous.
    type: int
    default: 120
    version_added: 0.2.0
  earlier:
    description:
      - For the controller's half of this module, which calls the other half several times. What the call before found. Leave it empty.
    type: dict
    default: {}
    version_added: 0.2.0
seealso:
  - module: gb10.cluster.memory_baseline
  - module: gb10.cluster.memory_watch
"""

EXAMPLES = r"""
- name: Refuse to start an engine on a GPU whose memory is held by the dead
  gb10.cluster.cuda_zombie_check:

- name: Look, and decide later
  gb10.cluster.cuda_zombie_check:
    fail_on: []
    wait_timeout: 120
  register: zombies

- name: Say what was found
  ansible.builtin.debug:
    var: zombies.findings

- name: See what would be ended
  gb10.cluster.cuda_zombie_check:
    kill_orphans: true
  become: true
  check_mode: true
  diff: true

- name: End engine cores that lost their server, and wait until their memory is back
  gb10.cluster.cuda_zombie_check:
    kill_orphans: true
  become: true
"""

RETURN = r"""
verdict:
  description:
    - V(pass) when all GPU processes are live or there are none and nothing is missing. V(warn) with a defunct one, with memory that is still coming
      back, with a suspicion. V(block) with a ghost, an orphan, or a proven leak. V(unknown) when nobody can tell.
  returned: always
  type: str
  sample: block
processes:
  description: The GPU processes, each once, and engine cores and workers without a server that the driver does not list.
  returned: always
  type: list
  elements: dict
  contains:
    pid:
      description: Its number in the machine's pid namespace.
      type: int
      sample: 4711
    name:
      description: Its name as the driver gives it.
      type: str
      sample: "VLLM::EngineCore"
    type:
      description: C(C) for one that computes, C(G) for one that draws, C(C+G) for both. Null where the driver does not say.
      type: str
      sample: C
    used_mib:
      description: The GPU memory it holds in MiB, null where the driver does not say.
      type: int
      sample: 52310
    class:
      description: One of C(live), C(defunct), C(ghost), C(orphan), C(unknown).
      type: str
      sample: orphan
    owner:
      description: C(ours) when it runs in a container of this collection or was started by it, C(foreign) when not, null when that cannot be told.
      type: str
      sample: foreign
    container:
      description: The full id of its container, empty for a process of the host.
      type: str
      sample: ""
    title:
      description: Its command line, or the title it gave itself; empty when the kernel does not have it.
      type: str
      sample: "VLLM::EngineCore"
    rss_mb:
      description: What it has in memory beside what the GPU uses, in MiB.
      type: int
      sample: 3120
    start_ticks:
      description: When it started, in the kernel's clock ticks since boot. With its number it names one process.
      type: int
      sample: 763367
    listed:
      description: Whether the driver lists it.
      type: bool
      sample: true
    why:
      description: Why an engine's core or worker is an orphan, or is not.
      type: str
      sample: no API server or raylet of it lives; the machine's first process adopted it
classes:
  description: The pids of each class of processes.
  returned: always
  type: dict
  sample: {"live": [1203], "defunct": [], "ghost": [4711], "orphan": [], "unknown": []}
held:
  description: What each class holds. Classes that hold nothing are left out.
  returned: always
  type: list
  elements: dict
  contains:
    class:
      description: A class of processes, or one of C(slow_reclaim), C(leak), C(suspect).
      type: str
      sample: live
    owner:
      description: As in RV(processes[].owner), for C(live); null for the others.
      type: str
      sample: foreign
    pids:
      description: Its processes.
      type: list
      elements: int
      sample: [1203]
    mib:
      description: Their GPU memory, what came back so far, or what is unexplained, in MiB. Null where one does not tell.
      type: int
      sample: 5120
accounting:
  description: The account of the node's memory in MiB. Null when it could not be read; RV(accounting_error) says why.
  returned: always
  type: dict
  contains:
    total_mb:
      description: The node's memory.
      type: int
      sample: 124610
    available_mb:
      description: What of it is available.
      type: int
      sample: 70211
    used_mb:
      description: The difference.
      type: int
      sample: 54399
    explained:
      description: What of that the kernel explains, by kind.
      type: dict
      sample: {"anon_mb": 2105, "shmem_mb": 44, "sunreclaim_mb": 610, "kernel_stack_mb": 20, "page_tables_mb": 60, "hugetlb_mb": 0}
    explained_mb:
      description: The sum of these.
      type: int
      sample: 2839
    beside:
      description: Figures that are told and are no part of the formula.
      type: dict
      sample: {"mapped_mb": 700, "mlocked_mb": 27, "percpu_mb": 30, "vmalloc_mb": 260, "sec_page_tables_mb": 0, "swap_cached_mb": 0}
    unified:
      description: Whether the GPUs use the node's memory, null without a GPU.
      type: bool
      sample: true
    gpu_processes_mb:
      description: What the living GPU processes hold, null when the driver does not tell it of one.
      type: int
      sample: 0
    before_baseline_mb:
      description: What neither the kernel nor a GPU process explains. Null when RV(accounting.gpu_processes_mb) is.
      type: int
      sample: 51560
    baseline_mb:
      description: What was unexplained when this boot began, null when that was not recorded.
      type: int
      sample: 1480
    unexplained_mb:
      description: What is left.
      type: int
      sample: 50080
    formula:
      description: How it was computed.
      type: str
      sample: unexplained = (MemTotal - MemAvailable) - …
    calibrated:
      description: Whether somebody compared the formula with a known leak. Always false so far.
      type: bool
      sample: false
    threshold_mb:
      description: From where on it counts, O(leak_threshold_mb).
      type: int
      sample: 4096
    leak:
      description: C(none), C(proven), C(suspected) or C(not judged).
      type: str
      sample: proven
    doubts:
      description: Why it is not proven, or not judged.
      type: list
      elements: str
      sample: []
accounting_error:
  description: Why there is no account, empty when there is one.
  returned: always
  type: str
  sample: ""
reclaim:
  description: How the available memory moved.
  returned: always
  type: dict
  contains:
    state:
      description: C(settled), C(rising), C(falling), or C(one sample) when there was no reason to wait.
      type: str
      sample: settled
    why:
      description: Why memory was sampled more than once.
      type: list
      elements: str
      sample: [a GPU process has ended]
    samples_mb:
      description: The samples of the available memory, in MiB.
      type: list
      elements: int
      sample: [61022, 97113, 118204, 118210]
    risen_mb:
      description: By how much it rose, in MiB.
      type: int
      sample: 57188
kernel_log:
  description: What the kernel's log says about allocations of the driver in this boot.
  returned: always
  type: dict
  contains:
    source:
      description: Where it was read, empty when nobody looked.
      type: str
      sample: /dev/kmsg
    since_boot:
      description: Whether it reaches back to the boot, null when it was not read.
      type: bool
      sample: true
    failures:
      description: How often the driver got no memory, null when it was not read.
      type: int
      sample: 0
    events:
      description: The messages.
      type: list
      elements: dict
      sample: []
    error:
      description: Why it could not be read.
      type: str
      sample: ""
pid_namespace:
  description: The pid namespace that was looked at.
  returned: always
  type: dict
  contains:
    namespace:
      description: Its name, null when it cannot be read.
      type: str
      sample: pid:[4026531836]
    asserted:
      description: Whether O(pid_namespace=host) alone says that its numbers are those of the driver.
      type: bool
      sample: false
ended:
  description: How each orphan was ended, with O(kill_orphans=true).
  returned: always
  type: list
  elements: dict
  contains:
    pid:
      description: Its number.
      type: int
      sample: 4711
    name:
      description: Its name.
      type: str
      sample: "VLLM::EngineCore"
    used_mib:
      description: What it held, in MiB.
      type: int
      sample: 52310
    outcome:
      description:
        - C(term) or C(kill) by that signal, C(gone) when it had ended before, C(another) when its number had another process, which was left alone,
          C(remains) when it did not end, C(would end) in check mode.
      type: str
      sample: term
  sample: []
needs_reboot:
  description: Whether a ghost stayed, a leak is proven or an orphan cannot be ended, so that a reboot alone gives the memory back.
  returned: always
  type: bool
  sample: true
findings:
  description: One finding for each thing that is wrong, or one that says that all is well, and one for each process that was ended.
  returned: always
  type: list
  elements: dict
  sample:
    - id: cuda_zombie.ghost
      node: spark-1
      verdict: block
      message: GPU process 4711 (VLLM::EngineCore) is gone, and the driver still counts 52310 MiB as its own
      measured: ghost
      needed: live
      remedy: Reboot this node when nobody uses it.
      source: nvidia-smi and /proc
raw:
  description: What the driver's tool printed, when it could not be used.
  returned: when the tool gave no usable answer
  type: str
  sample: No devices were found
"""

import os
import platform
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _accounting, _gpu, _launcher, _memory, _processes, _zombies
from ansible_collections.gb10.cluster.plugins.module_utils._docker import LABEL_OWNER, OWNER, EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._engine import RUN_TARGET
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._kernel_log import kernel_log
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding, run
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

Params = dict[str, t.Any]

#: From best to worst; the worst finding is the verdict.
VERDICTS = ("pass", "warn", "unknown", "block")

VERDICT_OF_CLASS = {"live": "pass", "defunct": "warn", "ghost": "block", "orphan": "block", "unknown": "unknown"}

REMEDY_OF_CLASS = {
    "defunct": "Nothing to do: its memory comes back when its parent ends. When it stays, see who the parent is: ps -o ppid= -p {pid}",
    "ghost": "Reboot this node when nobody uses it: nothing else gives this memory back.",
    "orphan": "End it, its memory comes back then: sudo kill {pid}, or run cuda_zombie_check with kill_orphans: true.",
    "unknown": "Run the task with become: true.",
}

MESSAGE_OF_CLASS = {
    "defunct": "GPU process {pid} ({name}) has ended and waits for its parent; the driver still counts {memory} as its own",
    "ghost": "GPU process {pid} ({name}) is gone, and the driver still counts {memory} as its own",
    "orphan": "engine process {pid} ({name}) lost its server and still holds {memory}: {why}",
    "unknown": "GPU process {pid} ({name}) may not be looked at, so nobody can tell whether it lives",
}

MESSAGE_OF_END = {
    "term": "engine process {pid} ({name}) without a server was ended, it held {memory}",
    "kill": "engine process {pid} ({name}) without a server did not heed SIGTERM and was killed, it held {memory}",
    "gone": "engine process {pid} ({name}) without a server had ended already",
    "another": "engine process {pid} ({name}) without a server had ended already; its number has another process now, which was left alone",
    "would end": "engine process {pid} ({name}) without a server would be ended, it holds {memory}",
    "remains": "engine process {pid} ({name}) without a server does not end, not even when it is killed: it hangs in the kernel and holds {memory}",
}

#: What was done about an orphan, for the plan.
ACTION_OF_END = {"term": "ended", "kill": "killed", "remains": "signalled", "would end": "end"}

SOURCE = "nvidia-smi and /proc"

LEAST = {"wait_timeout": 0, "wait_sleep": 0, "settle_mb": 1, "settle_sleep": 1, "settle_timeout": 0, "leak_threshold_mb": 1, "kill_grace": 0, "tool_timeout": 1}

NO_LOG: dict[str, t.Any] = {"source": "", "since_boot": None, "failures": None, "events": [], "error": ""}


# -- judging ---------------------------------------------------------------------------------------------------------


def amount(process: t.Mapping[str, t.Any]) -> str:
    """Return what a process holds, in words."""
    if process["used_mib"] is not None:
        return f"{process['used_mib']} MiB"
    return "an unknown amount of memory" if process.get("rss_mb") is None else f"an unknown amount of GPU memory and {process['rss_mb']} MiB"


def judge_processes(processes: list[dict[str, t.Any]], node: str) -> list[dict[str, t.Any]]:
    """Return one finding for each process that is not live."""
    findings = []
    for process in processes:
        kind = process["class"]
        if kind != "live":
            words = {**process, "memory": amount(process)}
            findings.append(
                finding(
                    f"cuda_zombie.{kind}",
                    node,
                    VERDICT_OF_CLASS[kind],
                    MESSAGE_OF_CLASS[kind].format(**words),
                    measured=kind,
                    needed="live",
                    remedy=REMEDY_OF_CLASS[kind].format(**words),
                    source=SOURCE,
                )
            )
    return findings


def judge_ended(ended: list[dict[str, t.Any]], node: str) -> list[dict[str, t.Any]]:
    """Return one finding for each orphan that was, or would be, ended."""
    verdicts = {"remains": "block", "would end": "warn"}
    remedies = {"remains": "Reboot this node when nobody uses it.", "would end": "Run it without check mode."}
    return [
        finding(
            "cuda_zombie.orphan",
            node,
            verdicts.get(one["outcome"], "pass"),
            MESSAGE_OF_END[one["outcome"]].format(**one, memory=amount(one)),
            measured=one["outcome"],
            needed="ended",
            remedy=remedies.get(one["outcome"], ""),
            source=SOURCE,
        )
        for one in ended
    ]


def judge_memory(table: t.Mapping[str, t.Any] | None, reclaim: t.Mapping[str, t.Any], error: str, node: str) -> list[dict[str, t.Any]]:
    """Return findings about memory that is still coming back, and about memory that nothing explains."""
    if table is None:
        return [finding("cuda_zombie.memory", node, "unknown", f"no account of the memory: {error}", remedy="Look at /proc/meminfo.", source="meminfo")]
    found = []
    if reclaim["state"] == "rising":
        message = f"memory is still coming back: {reclaim['samples_mb'][-1]} MiB available, {reclaim['risen_mb']} more than at first"
        remedy = "Look again in a minute, or raise settle_timeout."
        found.append(finding("cuda_zombie.slow_reclaim", node, "warn", message, measured=reclaim["samples_mb"], remedy=remedy, source="meminfo"))
    if table["leak"] in ("proven", "suspected"):
        proven = table["leak"] == "proven"
        message = f"{table['unexplained_mb']} MiB of the used memory belong to no process and nothing of the kernel's ({_accounting.UNCALIBRATED})"
        doubts = "" if proven else f"; not proven: {'; '.join(table['doubts'])}"
        remedy = "Reboot this node when nobody uses it: nothing else gives this memory back." if proven else (
            "End the GPU processes and look again. When it stays, reboot when nobody uses the node, and run the playbook baseline right after."
        )
        found.append(
            finding(
                "cuda_zombie.leak",
                node,
                "block" if proven else "warn",
                message + doubts,
                measured=table["unexplained_mb"],
                needed=f"less than {table['threshold_mb']}",
                remedy=remedy,
                source="meminfo and nvidia-smi",
            )
        )
    return found


def judge_log(log: t.Mapping[str, t.Any], node: str) -> list[dict[str, t.Any]]:
    """Return a finding when the driver got no memory in this boot, or when nobody can tell."""
    if log["error"]:
        message = f"the kernel's log cannot be read, so nobody can tell whether the driver got no memory in this boot: {log['error']}"
        return [finding("cuda_zombie.kernel_log", node, "warn", message, remedy="Run the task with become: true.", source="kernel log")]
    if not log["failures"]:
        return []
    first = log["events"][0]
    at = f" at {first['time']}" if first["time"] else ""
    return [
        finding(
            "cuda_zombie.suspect",
            node,
            "warn",
            f"the driver got no memory {log['failures']} time(s) in this boot, first{at}: {first['text']}",
            measured=log["failures"],
            needed=0,
            remedy="Watch this node. When an engine fails to start or memory stays missing, reboot it when nobody uses it.",
            source=log["source"],
        )
    ]


def held(
    processes: list[dict[str, t.Any]], table: t.Mapping[str, t.Any] | None, reclaim: t.Mapping[str, t.Any], log: t.Mapping[str, t.Any]
) -> list[dict[str, t.Any]]:
    """Return what each class holds."""
    rows: dict[tuple[str, str | None], list[dict[str, t.Any]]] = {}
    for process in processes:
        rows.setdefault((process["class"], process["owner"] if process["class"] == "live" else None), []).append(process)
    found = [
        {"class": kind, "owner": owner, "pids": [process["pid"] for process in members], "mib": _zombies.sum_mib(members)}
        for (kind, owner), members in sorted(rows.items(), key=lambda row: (_zombies.CLASSES.index(row[0][0]), str(row[0][1])))
    ]
    beside = {"owner": None, "pids": []}
    if reclaim["state"] == "rising":
        found.append({"class": "slow_reclaim", **beside, "mib": reclaim["risen_mb"]})
    if table and table["leak"] in ("proven", "suspected"):
        found.append({"class": "leak", **beside, "mib": table["unexplained_mb"]})
    if log["failures"]:
        found.append({"class": "suspect", **beside, "mib": None})
    return found


class Evidence(t.NamedTuple):
    """All that was found out, ready to be judged."""

    processes: list[dict[str, t.Any]]
    ended: list[dict[str, t.Any]]
    table: dict[str, t.Any] | None
    table_error: str
    reclaim: dict[str, t.Any]
    log: dict[str, t.Any]


NOTHING = Evidence([], [], None, "", {"state": "one sample", "why": [], "samples_mb": [], "risen_mb": 0}, NO_LOG)


def shown(evidence: Evidence) -> dict[str, t.Any]:
    """Return the part of the result that is evidence."""
    ended = [{"pid": one["pid"], "name": one["name"], "used_mib": one["used_mib"], "outcome": one["outcome"]} for one in evidence.ended]
    return {
        "processes": evidence.processes,
        "classes": {kind: [process["pid"] for process in evidence.processes if process["class"] == kind] for kind in _zombies.CLASSES},
        "held": held(evidence.processes, evidence.table, evidence.reclaim, evidence.log),
        "accounting": evidence.table,
        "accounting_error": evidence.table_error,
        "reclaim": evidence.reclaim,
        "kernel_log": evidence.log,
        "ended": ended,
    }


def outcome(evidence: Evidence, node: str) -> dict[str, t.Any]:
    """Return the module's result."""
    handled = {one["pid"] for one in evidence.ended if one["outcome"] in ("would end", "remains")}
    problems = [
        *judge_processes([process for process in evidence.processes if process["pid"] not in handled], node),
        *judge_memory(evidence.table, evidence.reclaim, evidence.table_error, node),
        *judge_log(evidence.log, node),
    ]
    findings = [*judge_ended(evidence.ended, node), *problems]
    if all(entry["verdict"] == "pass" for entry in findings):
        count = len(evidence.processes)
        message = f"{count} GPU process(es), all live" if count else "no GPU process"
        findings.append(finding("cuda_zombie.none", node, "pass", message, measured=count, source=SOURCE))
    worst = max(findings, key=lambda entry: VERDICTS.index(entry["verdict"]))
    acted = [one for one in evidence.ended if one["outcome"] in ACTION_OF_END]
    result = shown(evidence)
    return {
        "changed": bool(acted),
        "actions": [f"{ACTION_OF_END[one['outcome']]} process {one['pid']} ({one['name']})" for one in acted],
        "diff": diff(evidence.ended),
        "verdict": worst["verdict"],
        "msg": "; ".join(entry["message"] for entry in findings),
        "remedy": worst["remedy"],
        "reason": worst["id"],
        **result,
        "needs_reboot": bool(
            result["classes"]["ghost"]
            or any(one["outcome"] == "remains" for one in evidence.ended)
            or (evidence.table is not None and evidence.table["leak"] == "proven")
        ),
        "findings": findings,
    }


def diff(ended: list[dict[str, t.Any]]) -> dict[str, t.Any]:
    """Return the orphans before and after, nothing when there was none to end."""
    before = [f"{one['pid']} {one['name']} ({amount(one)})" for one in ended]
    after = [text for text, one in zip(before, ended) if one["outcome"] == "remains"]
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


def tells_environment(one: _launcher.Process, proc_root: str) -> bool:
    """Say whether a process that carries no mark of ours could be asked for it."""
    if one.state in "DZX":
        return False
    try:
        with open(os.path.join(proc_root, str(one.pid), "environ"), "rb"):
            return True
    except OSError:
        return False


class Containers:
    """Our containers on this node, asked for when they are needed first."""

    def __init__(self, params: Params) -> None:
        self._params = params
        self._entries: list[dict[str, t.Any]] | None = None
        self._asked = False

    def entries(self) -> list[dict[str, t.Any]] | None:
        """Return the engine's entries of our containers, None when it does not tell."""
        if not self._asked:
            self._asked = True
            try:
                self._entries = EngineApi(self._params["docker_socket"], self._params["docker_timeout"]).containers({LABEL_OWNER: OWNER})
            except ClusterError:
                self._entries = None  # told as an owner, or a number of containers, that is not known
        return self._entries

    def running(self) -> int | None:
        """Return how many run, None when nobody tells."""
        entries = self.entries()
        return None if entries is None else sum(entry.get("State") == "running" for entry in entries)

    def owner(self, process: t.Mapping[str, t.Any]) -> str | None:
        """Return whose a process is."""
        proc_root = self._params["proc_root"]
        one = _launcher.process(process["pid"], proc_root)
        if one is None:
            return None
        if _launcher.marked(one, RUN_TARGET, proc_root):
            return "ours"
        if not process["container"]:
            return "foreign" if tells_environment(one, proc_root) else None
        entries = self.entries()
        if entries is None:
            return None
        return "ours" if process["container"] in {entry.get("Id") for entry in entries} else "foreign"


def look(params: Params) -> _zombies.Look:
    return _zombies.look(params["nvidia_smi"], params["tool_timeout"], params["proc_root"], _processes.scan)


def again(params: Params) -> bool:
    """Say whether an earlier call looked already, and this one goes on with waiting for memory."""
    return "samples_mb" in params["earlier"]


def look_until_settled(params: Params) -> tuple[_zombies.Look, bool]:
    """Look until no process that has ended and no orphan is there, at most for the time that such are given, but never once only.

    Returns the last look, and whether any look showed a process that has ended. The driver lists a process for a moment after it was killed, and
    one that ends between the driver's answer and the look at /proc seems to be a ghost; an engine's core may outlive its server for a moment.
    The second look clears all of these. In a later call they had their time.
    """
    found = look(params)
    ended = bool(found.of("defunct", "ghost"))
    if found.of("defunct", "ghost", "orphan"):
        for _waited in clock(params["wait_timeout"] if params["wait"] and not again(params) else 0, params["wait_sleep"]):
            found = look(params)
            ended = ended or bool(found.of("defunct", "ghost"))
            if not found.of("defunct", "ghost", "orphan"):
                break
    return found, ended


def end_orphans(params: Params, found: _zombies.Look, check_mode: bool) -> list[dict[str, t.Any]]:
    """End the orphans of a look, or tell that they would be; returns them with how each ended."""
    orphans = found.of("orphan")
    if not orphans:
        return []
    if not _zombies.own_processes(params["proc_root"]):
        raise ClusterError(
            f"{params['proc_root']} does not show this module's own pid namespace: a signal would reach another process",
            remedy="Run the check with kill_orphans on the machine itself.",
            reason="foreign pid namespace",
        )
    outcomes = {} if check_mode else _zombies.end(orphans, params["proc_root"], params["kill_grace"])
    return [{**orphan, "outcome": outcomes.get(orphan["pid"], "would end")} for orphan in orphans]


def sample(params: Params) -> dict[str, int]:
    return _memory.read_meminfo(params["proc_root"], params["meminfo"])


def stopped_lately(params: Params, available: int) -> bool:
    """Say whether an engine of ours ended a short time ago and memory is not back to what was noted before its start."""
    seconds, noted = _accounting.last_stop(params["state_dir"])
    if seconds is None or seconds > params["settle_timeout"]:
        return False
    return noted is None or available < noted - params["leak_threshold_mb"]


def watch(params: Params, samples: list[int], meminfo: dict[str, int]) -> dict[str, int]:
    """Take samples until two agree, at most for the time that memory is given; returns the last meminfo.

    The clock's last look may come early, and two samples that are closer than asked for agree too easily: it is left out then.
    """
    seconds, last = min(params["settle_timeout"], params["earlier"].get("seconds", params["settle_timeout"])), 0.0
    for waited in clock(seconds, params["settle_sleep"]):
        if waited - last >= params["settle_sleep"]:
            last = waited
            meminfo = sample(params)
            samples.append(_accounting.available_mb(meminfo))
            if _accounting.settled(samples, params["settle_mb"]):
                break
    return meminfo


def account(params: Params, found: _zombies.Look, containers: Containers, ended: list[str]) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """Return (the account with what it says about a leak, how memory moved). ``ended`` says in words why memory may be coming back.

    Raises :class:`UnknownState` when meminfo cannot be read.
    """
    boot = _accounting.boot_id(params["proc_root"])
    baseline, no_baseline = _accounting.baseline_of(params["baseline"] or _accounting.baseline_path(params["state_dir"]), boot)
    living = found.of("live", "orphan", "unknown")
    held_mib = _zombies.sum_mib(process for process in living if process["listed"])
    compute = sum(process["listed"] and "C" in (process["type"] or "C") for process in living)

    def table_of(meminfo: dict[str, int], movement: str) -> dict[str, t.Any]:
        table = _accounting.account(meminfo, held_mib, found.unified, baseline["unexplained_mb"] if baseline else None)
        suspicious = table["unified"] and table["unexplained_mb"] is not None and table["unexplained_mb"] >= params["leak_threshold_mb"]
        managed = containers.running() if suspicious else 0
        leak, doubts = _accounting.judge_leak(
            table, params["leak_threshold_mb"], _accounting.Circumstances(managed, compute, movement, no_baseline)
        )
        return {**table, "threshold_mb": params["leak_threshold_mb"], "leak": leak, "doubts": doubts}

    samples: list[int] = list(params["earlier"].get("samples_mb", []))
    meminfo = sample(params)
    if not samples:
        samples.append(_accounting.available_mb(meminfo))
    why = list(params["earlier"].get("why", ended))
    if not again(params):
        if stopped_lately(params, samples[-1]):
            why.append("an engine was stopped a short time ago")
        if table_of(meminfo, "settled")["leak"] in ("proven", "suspected"):
            why.append("memory is used that nothing explains")
    if params["wait"] and why:
        meminfo = watch(params, samples, meminfo)
    movement = _accounting.movement(samples, params["settle_mb"])
    return table_of(meminfo, movement), {"state": movement, "why": why, "samples_mb": samples, "risen_mb": max(0, samples[-1] - min(samples))}


def read_log(params: Params) -> dict[str, t.Any]:
    """Return what the kernel's log says about allocations of the driver; what cannot be read is told in it."""
    if params["kernel_log"] == "none":
        return NO_LOG
    try:
        section = kernel_log(source=params["kernel_log"], proc_root=params["proc_root"], timeout=params["tool_timeout"])
    except UnknownState as error:
        return {**NO_LOG, "error": str(error)}
    except OSError as error:
        return {**NO_LOG, "error": f"{error.filename or params['kernel_log']}: {error.strerror}"}
    events = [event for event in section["events"] if event["kind"] == "nv_no_memory"]
    return {
        "source": section["source"],
        "since_boot": section["since_boot"],
        "failures": sum(event["count"] for event in events),
        "events": events,
        "error": "",
    }


def gather(params: Params, check_mode: bool) -> Evidence:
    """Find out everything. Raises :class:`UnknownState` when the driver or the kernel gives no readable answer."""
    earlier, containers = params["earlier"], Containers(params)
    found, some_ended = look_until_settled(params)
    why = ["a GPU process has ended"] if some_ended else []
    ended = list(earlier.get("ended", []))
    if params["kill_orphans"] and not again(params):
        ended = end_orphans(params, found, check_mode)
        if ended and not check_mode:
            why.append("an engine process was ended")
            found, _some = look_until_settled(params)
    for process in found.processes:
        process["owner"] = containers.owner(process) if process["title"] else None
    try:
        (table, reclaim), error = account(params, found, containers, why), ""
    except UnknownState as problem:
        table, reclaim, error = None, NOTHING.reclaim, str(problem)
    return Evidence(found.processes, ended, table, error, reclaim, read_log(params))


def namespace(params: Params) -> dict[str, t.Any]:
    """Return which pid namespace is looked at, and who says that its numbers are the driver's."""
    try:
        name: str | None = os.readlink(os.path.join(params["proc_root"], "self", "ns", "pid"))
    except OSError:
        name = None
    return {"namespace": name, "asserted": params["pid_namespace"] == "host" and name != f"pid:[{_gpu.HOST_PID_NAMESPACE}]"}


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    for name, least in LEAST.items():
        if params[name] < least:
            raise ClusterError(f"{name} is {params[name]}, needed is {least} or more", remedy=f"Correct {name}.", reason="input")
    node = platform.node()
    seen = namespace(params)
    try:
        _gpu.require_host_processes(params["proc_root"], asserted=params["pid_namespace"] == "host")
        result = outcome(gather(params, module.check_mode), node)
    except UnknownState as error:
        result = not_known(error, node)
    if seen["asserted"]:
        result["msg"] += f" (in pid namespace {seen['namespace'] or 'unknown'}, whose numbers pid_namespace: host asserts to be the driver's)"
    result["pid_namespace"] = seen
    if result["verdict"] in params["fail_on"]:
        raise ClusterError(result.pop("msg"), remedy=result.pop("remedy"), reason=result.pop("reason"), **result)
    return result


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "nvidia_smi": {"type": "str", "default": "nvidia-smi"},
            "tool_timeout": {"type": "int", "default": 30},
            "proc_root": {"type": "path", "default": "/proc"},
            "meminfo": {"type": "path"},
            "kernel_log": {"type": "str", "default": "auto"},
            "pid_namespace": {"type": "str", "choices": ["auto", "host"], "default": "auto"},
            "fail_on": {"type": "list", "elements": "str", "choices": ["warn", "block", "unknown"], "default": ["block", "unknown"]},
            "wait": {"type": "bool", "default": True},
            "wait_timeout": {"type": "int", "default": 10},
            "wait_sleep": {"type": "int", "default": 1},
            "settle_mb": {"type": "int", "default": 256},
            "settle_sleep": {"type": "int", "default": 5},
            "settle_timeout": {"type": "int", "default": 240},
            "leak_threshold_mb": {"type": "int", "default": 4096},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "baseline": {"type": "path"},
            "kill_orphans": {"type": "bool", "default": False},
            "kill_grace": {"type": "int", "default": 120},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
            "earlier": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
