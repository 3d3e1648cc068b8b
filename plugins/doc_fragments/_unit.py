# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shared documentation of the modules that set up a systemd unit of the collection. This fragment is PRIVATE to the collection."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
requirements:
  - systemd.
  - Python 3.10 or newer on the node. The unit runs the module's Python if only root can change it, the directories that it imports
    from, and all paths to them. Otherwise it runs C(/usr/bin/python3).
options:
  tool_timeout:
    description:
      - Seconds to wait for one answer from systemd.
    type: int
    default: 60
"""

    START = r"""
options:
  enabled:
    description:
      - Whether systemd starts the unit at boot.
    type: bool
    default: false
  start_timeout:
    description:
      - Seconds for the unit to verify that everything is as specified, or to start it.
    type: int
    default: 300
"""

    PROGRAM = r"""
attributes:
  action:
    description: Runs partly on the controller, which builds the program and sends it to the node if that has a different one.
    support: full
options:
  program_digest:
    description:
      - SHA-256 of the required program. Set by the action plugin.
    type: str
    default: ""
  program_file:
    description:
      - Path of that program on the node. Set by the action plugin if the node has a different one.
    type: path
"""
