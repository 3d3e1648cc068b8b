# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The check of a download, before any node starts it. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.node_settings import SETTINGS
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import Finding

READS = {word: SETTINGS[word] for word in ("offline", "model_root", "hub_token")}
#: The rules that judge a download before it starts.
BEFORE_A_DOWNLOAD = ("model.disk", "model.gated", "model.license")


def refusals(answers: dict[str, dict[str, t.Any]], wanted: t.Iterable[dict[str, t.Any]], own: t.Mapping[str, dict[str, t.Any]]) -> list[Finding]:
    """Judge the downloads of the nodes: whether they fit on the disks, and whether the hub allows them.

    ``answers`` maps a node to its answer of ``model_info``, ``own`` to its ``model_root`` and ``hub_token``. ``wanted`` is the result of
    :func:`judging.wanted` for the profile. These are rules of the preflight, which a play with only the tag ``model`` skips.
    """
    # Each node answered for the single revision that it would serve, so that counts as main here. The node judged whether it is complete for its purpose.
    seen = {
        node: {
            "models": [
                {"refs": ["main"], "bytes": row["size_bytes"], **{part: row[part] for part in ("repo", "revision", "complete", "missing", "unfinished_bytes")}}
                for row in answer["repositories"]
            ],
            "disk": {own[node]["model_root"]: {"free_bytes": answer["free_bytes"]}},
        }
        for node, answer in answers.items()
    }
    repositories = [{**repository, "revision": None, "purpose": "model"} for repository in wanted]
    needs = {"repositories": repositories, "model_size_known": any(repository["gib"] is not None for repository in repositories)}
    return judging.judge_after_stage(BEFORE_A_DOWNLOAD, seen, needs, own)


def judge(answers: Answers, run: Run) -> Outcome:
    """Judge the download before any node starts it. ``settings`` has ``profile``. Nodes that may not download anything are not judged."""
    fetching = {node: answer for node, answer in answers.items() if not boolean(answer["offline"])}
    own = {node: {"model_root": answer["model_root"], "hub_token": boolean(answer["hub_token"])} for node, answer in fetching.items()}
    return Outcome(
        "Download", refusals({node: answer["model"] for node, answer in fetching.items()}, judging.wanted(run.settings["profile"], len(answers)), own)
    )
