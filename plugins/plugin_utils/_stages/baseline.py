# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The baseline of each node. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Only the answers that the task names.
READS: dict[str, str] = {}


def judge(answers: Answers, run: Run) -> Outcome:
    """Write each node's baseline to its own file in the directory ``path``, and return them as statistics."""
    files = {f"{run.path}/baseline-{node}.json": answer["answer"]["record"] for node, answer in answers.items()}
    where = "would be written to" if run.check_mode else "on the controller:"
    return Outcome(
        "Baseline",
        lines=[f"{node}: {answer['answer']['msg']}; {where} {path}" for (node, answer), path in zip(answers.items(), files)],
        files=files,
        mode=0o644,
        stats={"gb10_baseline": dict(zip(answers, files.values()))},
    )
