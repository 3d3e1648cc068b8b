# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans which node downloads a model and which nodes copy it from whom, and reports the copies. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._model import model_files
from ansible_collections.gb10.cluster.plugins.plugin_utils._report.leavings import size_text
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, answered

#: The value of gb10_model_copy with which every node downloads.
NEVER = "never"

#: The fields of a copy in a report.
OF_COPY = ("bytes", "resumed_bytes", "seconds", "cached_bytes", "left_bytes")


def plan(answers: dict[str, dict[str, t.Any]], copy: str, offline: bool) -> dict[str, t.Any]:
    """Return which nodes download, and the chains in which others copy; ``answers`` are those of ``model_info`` by node, in the cluster's order.

    A node with the whole model sends it to a node without it, which sends each block on to the next one at the same time; several nodes with the model make
    several chains. Without such a node, the one with most of the model downloads it. A complete copy that differs from the download is not copied.
    """
    whole = {node: _is_whole(answer) for node, answer in answers.items()}
    lacking = [node for node in answers if not whole[node]]
    holders = [node for node, answer in answers.items() if whole[node] and answer["verdict"] == "pass"]
    if copy == NEVER or not lacking:
        return {"downloads": [] if offline else lacking, "chains": []}
    downloads: list[str] = []
    if not holders and not offline and len(lacking) == len(answers):
        downloads = [max(lacking, key=lambda node: answers[node]["size_bytes"])]
        holders, lacking = downloads, [node for node in lacking if node not in downloads]
    senders = holders[:len(lacking)]
    return {"downloads": downloads, "chains": [[sender, *lacking[number::len(senders)]] for number, sender in enumerate(senders)]}


def _is_whole(answer: dict[str, t.Any]) -> bool:
    """Return whether a node has all files of the hub's repositories. Nothing is ever copied into a plain directory."""
    return all(row["complete"] for row in answer["repositories"] if not model_files.is_directory(row["repo"]))


def copies_of(answers: Answers, word: str = "copied") -> dict[str, dict[str, t.Any]]:
    """Return the nodes' answers about their copies in this run, of models or under another ``word``, by node."""
    copies = {node: answer.get(word) for node, answer in answers.items()}
    return {node: copied for node, copied in copies.items() if copied and answered(copied) and copied["changed"]}


def lines(copies: dict[str, dict[str, t.Any]]) -> list[str]:
    """Return a line for each copy: its size and speed, what an earlier run had copied, and what it left in the page cache."""
    result = []
    for node, copied in copies.items():
        again = f", {size_text(copied['resumed_bytes'])} of it by an earlier run" if copied["resumed_bytes"] else ""
        cached = f"; {size_text(copied['cached_bytes'])} taken out of the page cache, {size_text(copied['left_bytes'])} left" if copied["cached_bytes"] else ""
        result.append(f"{node}: {copied['msg']}{again}{cached}")
    return result


def verified(answers: Answers) -> list[str]:
    """Return a line for each node whose files were all read."""
    checks = {node: answer.get("verified") for node, answer in answers.items()}
    totals = {node: check["verified"] for node, check in checks.items() if check and answered(check)}
    return [
        f"{node}: the digests of {total['files']} file(s), {size_text(total['bytes'])}, were recomputed in {total['seconds']} s"
        + (f"; {total['without']} file(s) have none" if total["without"] else "")
        for node, total in totals.items()
    ]


def reported(copied: dict[str, t.Any] | None, words: t.Sequence[str] = OF_COPY) -> dict[str, t.Any] | None:
    """Return the report's fields for a node's copy, None where it made none."""
    return {word: copied[word] for word in words} if copied and answered(copied) and copied.get("changed") else None
