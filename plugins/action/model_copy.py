# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of model_copy: runs a copy in the background on the node, and prints its progress."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils._model import copying
from ansible_collections.gb10.cluster.plugins.plugin_utils._progress.node_job import NodeJob


class ActionModule(NodeJob):
    """Copies, and prints the progress, the speed and the remaining time."""

    MODULE = "gb10.cluster.model_copy"
    DOING = "copying"
    LOST = "See on the node: pgrep -af model_copy. A copy that goes on ends by itself; the next run waits for it."
    TIMEOUT, STATE_DIR, KIND = copying.TIMEOUT, copying.STATE_DIR, copying.KIND

    def is_short(self) -> bool:
        return super().is_short() or self._task.args.get("state") != "copied"
