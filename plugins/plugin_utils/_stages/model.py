# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The check of the model on all nodes. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.module_utils._model import model_files
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import repositories
from ansible_collections.gb10.cluster.plugins.plugin_utils._report import model_copies
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import models
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import Finding

READS = {"offline": "gb10_offline"}


def models(answers: dict[str, dict[str, t.Any]], profile: dict[str, t.Any]) -> list[Finding]:
    """Judge the model on all nodes, each node alone and compared with the others. ``answers`` maps a node to its answer of ``model_info``."""
    findings = [entry for node, answer in answers.items() for entry in table.on_node(answer["findings"], node)]
    # Each node answered for the single revision that it would serve, so that counts as main here. The node judged whether it is complete for its purpose.
    seen = {
        node: {
            "models": [
                {
                    "refs": ["main"],
                    "bytes": row["size_bytes"],
                    "missing": [],
                    # A plain directory has no commit, so the names and sizes of its files replace it.
                    "revision": row["revision"] or row.get("listing"),
                    **{part: row[part] for part in ("repo", "complete")},
                }
                for row in answer["repositories"]
                if row["complete"]
            ]
        }
        for node, answer in answers.items()
    }
    return findings + judging.judge_after_stage(
        ("model.same",), seen, {"repositories": [judging.fetched({**row, "revision": None}, row["purpose"]) for row in repositories.repositories(profile)]}
    )


def judge(answers: Answers, run: Run) -> Outcome:
    """Judge the model on all nodes. ``settings`` has ``profile``. Check mode judges nothing if a node would download the model."""
    results = {node: answer["verified"] if answered(answer.get("verified")) else answer["model"] for node, answer in answers.items()}
    copies = model_copies.copies_of(answers)
    # Downloads never go into a plain directory.
    would = {
        node: not boolean(answer["offline"]) or node in copies
        for node, answer in answers.items()
        if any(not row["complete"] and not model_files.is_directory(row["repo"]) for row in answer["model"]["repositories"])
    }
    if run.check_mode and any(would.values()):
        return Outcome(f"Model (would be {'copied' if set(would) <= set(copies) else 'downloaded'})", [], lines=model_copies.lines(copies))
    return Outcome("Model", models(results, run.settings["profile"]), lines=[*model_copies.lines(copies), *model_copies.verified(answers)])
