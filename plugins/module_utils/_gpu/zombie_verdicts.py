# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings about GPU processes, memory and the kernel log. This module util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._memory import accounting
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding

#: From best to worst; the worst finding is the verdict.
VERDICTS = ("pass", "warn", "unknown", "block")
VERDICT_OF_CLASS = {"live": "pass", "defunct": "warn", "ghost": "block", "orphan": "block", "unknown": "unknown"}
REMEDY_OF_CLASS = {
    "defunct": "Nothing to do: its memory comes back when its parent ends. When it stays, see who the parent is: ps -o ppid= -p {pid}",
    "ghost": "Reboot this node when it is idle: nothing else frees this memory.",
    "orphan": "End it, its memory comes back then: sudo kill {pid}, or run cuda_zombie_check with kill_orphans: true.",
    "unknown": "Run the task with become: true.",
}
MESSAGE_OF_CLASS = {
    "defunct": "GPU process {pid} ({name}) has ended and waits for its parent; the driver still counts {memory} as its own",
    "ghost": "GPU process {pid} ({name}) is gone, and the driver still counts {memory} as its own",
    "orphan": "engine process {pid} ({name}) lost its server and still holds {memory}: {why}",
    "unknown": "GPU process {pid} ({name}) may not be read, so it is unknown whether it runs",
}
MESSAGE_OF_END = {
    "term": "engine process {pid} ({name}) without a server was ended, it held {memory}",
    "kill": "engine process {pid} ({name}) without a server did not heed SIGTERM and was killed, it held {memory}",
    "gone": "engine process {pid} ({name}) without a server had ended already",
    "another": "engine process {pid} ({name}) without a server had ended already; its number has another process now, which was left alone",
    "would end": "engine process {pid} ({name}) without a server would be ended, it holds {memory}",
    "remains": "engine process {pid} ({name}) without a server does not end, not even when it is killed: it hangs in the kernel and holds {memory}",
}
#: The action on an orphan by its outcome, for the module's actions.
ACTION_OF_END = {"term": "ended", "kill": "killed", "remains": "signalled", "would end": "end"}
SOURCE = "nvidia-smi and /proc"


def amount(process: t.Mapping[str, t.Any]) -> str:
    """Return the memory of a process as text."""
    if process["used_mib"] is not None:
        return f"{process['used_mib']} MiB"
    return "an unknown amount of memory" if process.get("rss_mb") is None else f"an unknown amount of GPU memory and {process['rss_mb']} MiB"


def judge_processes(processes: list[dict[str, t.Any]], node: str) -> list[dict[str, t.Any]]:
    """Return one finding for each process that is not live."""
    rows = [(process["class"], {**process, "memory": amount(process)}) for process in processes if process["class"] != "live"]
    return [
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
        for kind, words in rows
    ]


def judge_ended(ended: list[dict[str, t.Any]], node: str) -> list[dict[str, t.Any]]:
    """Return one finding for each orphan that was, or would be, ended."""
    verdicts = {"remains": "block", "would end": "warn"}
    remedies = {"remains": "Reboot this node when it is idle.", "would end": "Run it without check mode."}
    return [
        finding(
            "cuda_zombie.orphan",
            node,
            verdicts.get(orphan["outcome"], "pass"),
            MESSAGE_OF_END[orphan["outcome"]].format(**orphan, memory=amount(orphan)),
            measured=orphan["outcome"],
            needed="ended",
            remedy=remedies.get(orphan["outcome"], ""),
            source=SOURCE,
        )
        for orphan in ended
    ]


def judge_memory(table: t.Mapping[str, t.Any] | None, reclaim: t.Mapping[str, t.Any], error: str, node: str) -> list[dict[str, t.Any]]:
    """Return findings about memory that is still coming back, and about unexplained memory."""
    if table is None:
        return [finding("cuda_zombie.memory", node, "unknown", f"no account of the memory: {error}", remedy="Look at /proc/meminfo.", source="meminfo")]
    findings = []
    if reclaim["state"] == "rising":
        message = f"memory is still coming back: {reclaim['samples_mb'][-1]} MiB available, {reclaim['risen_mb']} more than at first"
        remedy = "Look again in a minute, or raise settle_timeout."
        findings.append(finding("cuda_zombie.slow_reclaim", node, "warn", message, measured=reclaim["samples_mb"], remedy=remedy, source="meminfo"))
    if leaks(table):
        proven = table["leak"] == "proven"
        message = f"{table['unexplained_mb']} MiB of the used memory belong to no process and nothing of the kernel's ({accounting.UNCALIBRATED})"
        doubts = "" if proven else f"; not proven: {'; '.join(table['doubts'])}"
        remedy = "Reboot this node when it is idle: nothing else frees this memory." if proven else (
            "End the GPU processes and look again. When it stays, reboot the node when it is idle, and run doctor --tags baseline right after."
        )
        findings.append(
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
    return findings


def leaks(table: t.Mapping[str, t.Any] | None) -> bool:
    """Return whether unexplained memory is missing."""
    return bool(table) and table["leak"] in ("proven", "suspected")


def judge_log(log: t.Mapping[str, t.Any], table: t.Mapping[str, t.Any] | None, node: str) -> list[dict[str, t.Any]]:
    """Return a finding when the driver got no memory in this boot, or when that is unknown.

    A healthy busy node logs a thousand of these lines a day, and a node that freezes logs the same text. Of four starts that an owner observed, the three
    good ones had such lines, and the aborted one had none. So they are a warning only when memory is missing. An impossible account is a separate finding.
    """
    if log["error"]:
        message = f"the kernel's log cannot be read, so it is unknown whether the driver got no memory in this boot: {log['error']}"
        return [finding("cuda_zombie.kernel_log", node, "warn", message, remedy="Run the task with become: true.", source="kernel log")]
    if not log["failures"]:
        return []
    first = log["events"][0]
    at = f" at {first['time']}" if first["time"] else ""
    return [
        finding(
            "cuda_zombie.suspect",
            node,
            "warn" if leaks(table) else "pass",
            f"the driver got no memory {log['failures']} time(s) in this boot, first{at}: {first['text']}",
            measured=log["failures"],
            needed=0,
            remedy="Watch this node. When an engine fails to start or memory stays missing, reboot it when it is idle.",
            source=log["source"],
        )
    ]
