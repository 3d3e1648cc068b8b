# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which node downloads a model, which ones copy it from whom, and what became of that. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._model import model_files
from ansible_collections.gb10.cluster.plugins.plugin_utils._report.leavings import size_text
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, answered

#: The value of gb10_model_copy with which every node downloads.
NEVER = "never"

#: What a report keeps of a copy.
OF_COPY = ("bytes", "resumed_bytes", "seconds", "cached_bytes", "left_bytes")


def plan(answers: dict[str, dict[str, t.Any]], copy: str, offline: bool) -> dict[str, t.Any]:
    """Return who downloads, and in which chains who copies from whom; ``answers`` are those of ``model_info`` by node, in the cluster's order.

    A node that has the model whole gives it to one that lacks it, which gives each block on to the next one meanwhile; with several that have it, there
    are several chains. Without such a node, the one with most of it downloads. A complete copy that differs from the download is not copied.
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
    givers = holders[:len(lacking)]
    return {"downloads": downloads, "chains": [[giver, *lacking[number::len(givers)]] for number, giver in enumerate(givers)]}


def _is_whole(answer: dict[str, t.Any]) -> bool:
    """Return whether a node lacks nothing of the hub's. Nothing is ever brought into a plain directory."""
    return all(row["complete"] for row in answer["repositories"] if not model_files.is_directory(row["repo"]))


def copies_of(answers: Answers, word: str = "copied") -> dict[str, dict[str, t.Any]]:
    """Return what the nodes said of their copies in this run, of models or under another ``word``, by node."""
    found = {node: answer.get(word) for node, answer in answers.items()}
    return {node: copied for node, copied in found.items() if copied and answered(copied) and copied["changed"]}


def lines(copies: dict[str, dict[str, t.Any]]) -> list[str]:
    """Return a line for each copy: how much, how fast, what of it was there, and what it left in the page cache."""
    found = []
    for node, copied in copies.items():
        again = f", {size_text(copied['resumed_bytes'])} of it by an earlier run" if copied["resumed_bytes"] else ""
        cached = f"; {size_text(copied['cached_bytes'])} taken out of the page cache, {size_text(copied['left_bytes'])} left" if copied["cached_bytes"] else ""
        found.append(f"{node}: {copied['msg']}{again}{cached}")
    return found


def verified(answers: Answers) -> list[str]:
    """Return a line for each node whose files were all read."""
    found = {node: answer.get("verified") for node, answer in answers.items()}
    return [
        f"{node}: the digests of {one['verified']['files']} file(s), {size_text(one['verified']['bytes'])}, were recomputed in {one['verified']['seconds']} s"
        + (f"; {one['verified']['without']} file(s) have none" if one["verified"]["without"] else "")
        for node, one in found.items()
        if one and answered(one)
    ]


def reported(copied: dict[str, t.Any] | None, words: t.Sequence[str] = OF_COPY) -> dict[str, t.Any] | None:
    """Return what the report says of a node's copy, None where it made none."""
    return {word: copied[word] for word in words} if copied and answered(copied) and copied.get("changed") else None
