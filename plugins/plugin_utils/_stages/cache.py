# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The size of the KV cache. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils._memory import components
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging, node_settings
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.node_settings import SETTINGS
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

READS = SETTINGS


def judge(answers: Answers, run: Run) -> Outcome:
    """Take the size of the KV cache from the plan if recorded starts confirm it. ``settings`` has ``profile``."""
    settings = node_settings.of_nodes(answers)
    pin, findings = judging.judge_cache(
        {node: {"info": answer["info"], "zombies": {}, "settings": settings[node]} for node, answer in answers.items()}, run.settings["profile"]
    )
    if pin is None or pin.size is None:
        return Outcome("KV cache", findings, returns={"arguments": {}, "why": ""})
    when = ", ".join(f"{node} {start['recorded_at'][:10]} with {start['context']} tokens" for node, start in pin.starts.items())
    why = f"{pin.size} bytes ({pin.size / components.GIB:.2f} GiB), proposed by the memory plan, confirmed by recorded starts ({when})"
    return Outcome("KV cache", lines=[f"KV cache: {why}"], returns={"arguments": {"kv_cache_memory_bytes": pin.size}, "why": why})
