# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of node_service: builds the unit's program, and sends it to a node that has a different one."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.plugin_utils._unit.sending import SendsProgram


class ActionModule(SendsProgram):
    """Runs the module, and again with the program if the node needs it."""

    MODULE = "gb10.cluster.node_service"
