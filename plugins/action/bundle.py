# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of bundle: runs it in the background on the node, and prints its progress."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._bundle import content
from ansible_collections.gb10.cluster.plugins.plugin_utils._progress.node_job import NodeJob
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.collection import collection_version


class ActionModule(NodeJob):
    """Exports, imports or verifies, and prints the progress, the speed and the remaining time."""

    MODULE = "gb10.cluster.bundle"
    DOING = "bundle"
    LOST = "See on the node: pgrep -af bundle. What goes on ends by itself; the next run waits for it."
    TIMEOUT, STATE_DIR, KIND = content.TIMEOUT, content.STATE_DIR, content.KIND

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        self._task.args.setdefault("made_by", f"gb10.cluster {collection_version()}")
        return super().run(tmp, task_vars)
