# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is about to be fetched, before any node begins. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.node_settings import SETTINGS
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import Finding

READS = {word: SETTINGS[word] for word in ("offline", "model_root", "hub_token")}
#: The rules by which a download is judged before its first byte.
BEFORE_A_DOWNLOAD = ("model.disk", "model.gated", "model.license")


def refusals(answers: dict[str, dict[str, t.Any]], wanted: t.Iterable[dict[str, t.Any]], own: t.Mapping[str, dict[str, t.Any]]) -> list[Finding]:
    """Judge what nodes are about to fetch: whether it fits on their disks, and whether the hub will give it.

    ``answers`` maps a node to what ``model_info`` answered there, ``own`` to its ``model_root`` and ``hub_token``; ``wanted`` is what
    :func:`judging.wanted` says of the profile. These are rules of the preflight; a play with the tag ``model`` alone comes here without it.
    """
    # Each node was asked for the one revision that it would serve, so it counts as main here; whether it is complete for its purpose was judged there.
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
    asked = [{**one, "revision": None, "purpose": "model"} for one in wanted]
    return judging.judge_after_stage(BEFORE_A_DOWNLOAD, seen, {"repositories": asked, "model_size_known": any(one["gib"] is not None for one in asked)}, own)


def judge(answers: Answers, run: Run) -> Outcome:
    """Judge what is about to be fetched, before any node begins. ``settings`` has ``profile``. A node that may not fetch anything is not judged."""
    fetching = {node: answer for node, answer in answers.items() if not boolean(answer["offline"])}
    own = {node: {"model_root": answer["model_root"], "hub_token": boolean(answer["hub_token"])} for node, answer in fetching.items()}
    return Outcome(
        "Download", refusals({node: answer["model"] for node, answer in fetching.items()}, judging.wanted(run.settings["profile"], len(answers)), own)
    )
