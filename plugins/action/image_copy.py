# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of image_copy: runs a copy or a pull in the background on the node, and prints its progress."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._image import image_copying, pulling
from ansible_collections.gb10.cluster.plugins.plugin_utils._progress.node_job import NodeJob


class ActionModule(NodeJob):
    """Copies or pulls, and prints the progress, the speed and the remaining time."""

    MODULE = "gb10.cluster.image_copy"
    DOING = "copying the image"
    LOST = "See on the node: journalctl -u docker --since -10min. A copy that goes on ends by itself; the next run waits for it."
    TIMEOUT, STATE_DIR, KIND = image_copying.TIMEOUT, image_copying.STATE_DIR, image_copying.KIND

    @property
    def _pulls(self) -> bool:
        return self._task.args.get("state") == "pulled"

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        if self._pulls:
            self.DOING, self.LOST = "pulling", "See on the node: journalctl -u docker --since -10min"
        return super().run(tmp, task_vars)

    def is_short(self) -> bool:
        return super().is_short() or not (self._pulls or self._task.args.get("state") == "copied")

    def note(self) -> str:
        if self._pulls:
            return pulling.note_path(self._task.args.get("state_dir") or self.STATE_DIR, self._task.args["image"])
        return super().note()
