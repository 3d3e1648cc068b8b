# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of image_pull: has the module run on the node by itself, and says how far it is until it is done."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils._image import pulling
from ansible_collections.gb10.cluster.plugins.plugin_utils._progress.node_job import NodeJob


class ActionModule(NodeJob):
    """Pulls, and prints how much is downloaded and unpacked."""

    MODULE = "gb10.cluster.image_pull"
    DOING = "pulling"
    LOST = "See on the node: journalctl -u docker --since -10min"

    def limit(self) -> int:
        return int(self._task.args.get("pull_timeout") or pulling.TIMEOUT)

    def note(self) -> str:
        return pulling.note_path(self._task.args.get("state_dir") or pulling.STATE_DIR, self._task.args["image"])
