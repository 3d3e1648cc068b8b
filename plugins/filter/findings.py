# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters of the stages, which turn the nodes' answers into plans and findings."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.plugin_utils._init import inventory
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs import cluster


class FilterModule:
    """Filters of the collection."""

    def filters(self):
        return {
            "init_plan": inventory.plan,
            "init_writes": inventory.writes,
            "input_findings": cluster.judge_cluster,
        }
