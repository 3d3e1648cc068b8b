# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Collects the ids of all findings that can stop or warn, from the modules that make them. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import functools

from ansible_collections.gb10.cluster.plugins.module_utils._engine import long_prompt, questions
from ansible_collections.gb10.cluster.plugins.module_utils._errors import Problem
from ansible_collections.gb10.cluster.plugins.module_utils._memory import node_memory, page_cache
from ansible_collections.gb10.cluster.plugins.module_utils._model import digests, inventory, model_code, model_files
from ansible_collections.gb10.cluster.plugins.plugin_utils._bench import rows
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs import cluster, settings, tags, values
from ansible_collections.gb10.cluster.plugins.plugin_utils._lease import leasing
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import planning
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import flags
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import reaching, rule_table
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve import signature
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import registry
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import schema

#: Ids of findings that are made here.
IDS = ("input.silenced",)

#: The modules that make findings, each with its ids in ``IDS``. The ids of rules are in the rules' own tables.
OWNERS = (
    cluster, digests, flags, inventory, leasing, long_prompt, model_code, model_files, node_memory, page_cache, planning, questions, reaching, rows,
    schema, settings, signature, tags, values,
)  # fmt: skip


@functools.cache
def known_ids() -> frozenset[str]:
    """Return the ids that a user may put into gb10_silenced."""
    return rule_table.known_ids().union(IDS, registry.ids(), *(owner.IDS for owner in OWNERS))


def silenced(ids: list[str]) -> settings.Problems:
    """Yield a warning for each id in gb10_silenced that no finding has."""
    for id in ids:
        if id not in known_ids():
            what = f"no finding has the id '{settings.short(id)}'{schema.near(id, sorted(known_ids()))}"
            yield Problem("input.silenced", "gb10_silenced", what, remedy="correct the id", verdict="warn")
