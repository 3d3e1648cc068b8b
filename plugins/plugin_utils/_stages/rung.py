# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The context length that the climbs of all nodes confirm. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._records import climbs
from ansible_collections.gb10.cluster.plugins.plugin_utils._ladder import recorded
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import planning
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered

READS = recorded.READS


def judge(answers: Answers, run: Run) -> Outcome:
    """Show and return ``context``: the length to serve according to the nodes' climbs, or 0. ``image_ids`` has by node the image that it applies to.

    The answer of each node is ``look`` (node_info). A length in gb10_serve_arguments takes precedence.
    """
    first = next(iter(answers.values()))
    nothing: dict[str, t.Any] = {"context": 0, "climb_id": "", "why_not": "", "image_ids": {}, "on_record": False}
    if recorded.fixed(first["serve_arguments"] or {}) or not all(answered(answer["look"]) for answer in answers.values()):
        return Outcome(returns=nothing)
    profile = first["profile"]
    tag, digest = profile["image"]["tag"], planning.digest(profile, first["serve_arguments"])
    nodes = {node: (recorded.records(answer["look"], first["cluster"]), recorded.now_of(answer["look"], tag)) for node, answer in answers.items()}
    rung = climbs.rung_of(nodes, digest)
    own = profile["serve"].get("max_model_len")
    lines = []
    if rung.context:
        lines.append(f"Context: {rung.context} tokens, the last good rung of the ladder {rung.climb_id}; the profile's own is {own or 'left to the engine'}.")
    elif rung.why_not:
        lines.append(f"Context: the profile's own, {own or 'left to the engine'}; what the ladder recorded is not used: {rung.why_not}.")
    return Outcome(
        lines=lines,
        returns=(
            {
                "context": rung.context,
                "climb_id": rung.climb_id,
                "why_not": rung.why_not,
                "image_ids": {node: now.image_id for node, (_climbs, now) in nodes.items()},
                "on_record": any(any(climb["profile_digest"] == digest for climb in known) for known, _now in nodes.values()),
            }
        ),
    )
