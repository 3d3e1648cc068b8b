# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cluster is down with its memory back, between two rungs. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import ladder
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered

#: Ids of findings that are made here.
IDS = ("ladder.return",)
READS = ladder.READS


def judge(answers: Answers, run: Run) -> Outcome:
    """Judge whether the cluster is down with its memory back, after a stop. Returns ``off``: why nothing may be started any more, or nothing.

    The answer is ``memory`` (memory_watch). Before the first rung nothing may have been noted that it could be compared with.
    """
    error, reasons = ladder.error_of(answers), []
    for node, answer in answers.items():
        memory = answer["memory"]
        tried = bool(answer["climb"]["rungs"])
        if not answered(memory) or memory is None:
            reasons += [f"{node}: whether memory came back is not known"] if tried and not error else []
        elif memory["verdict"] != "pass" and (tried or memory["verdict"] != "unknown"):
            reasons.append(f"{node}: {memory['msg']}")
    off = "; ".join([*([f"the cluster could not be taken down: {error}"] if error else []), *reasons])
    found = [finding("ladder.return", "cluster", "block", f"{off}.", remedy="see the doctor: it names what holds memory")] if off else None
    return Outcome("Ladder", found, returns={"off": off})
