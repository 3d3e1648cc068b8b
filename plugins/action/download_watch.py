# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of download_watch: runs the module in the background on the node, and prints the download's progress."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils._model import downloading
from ansible_collections.gb10.cluster.plugins.plugin_utils._progress.node_job import NodeJob


class ActionModule(NodeJob):
    """Waits, and prints the progress, the speed and the remaining time."""

    MODULE = "gb10.cluster.download_watch"
    DOING = "downloading"
    LOST = "See on the node: docker ps --filter label=io.gb10.role=download"
    TIMEOUT, STATE_DIR, KIND = downloading.TIMEOUT, downloading.STATE_DIR, downloading.KIND
