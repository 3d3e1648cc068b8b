# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What clusters left on their nodes, in lines to print."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.plugin_utils._report import leavings


class FilterModule:
    """Filters of the collection."""

    def filters(self):
        return {"leavings_lines": leavings.lines}
