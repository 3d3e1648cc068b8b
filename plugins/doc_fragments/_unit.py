# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What modules have in common that set up a systemd unit of the collection. This fragment is PRIVATE to the collection."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
requirements:
  - systemd.
  - Python 3.10 or newer on the node. The unit runs that of the module where root alone can change it, the directories that it imports
    from, and all that leads to them, else C(/usr/bin/python3).
options:
  tool_timeout:
    description:
      - Seconds that systemd gets for one answer.
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
      - Seconds that the unit gets to find everything as specified, or to start it.
    type: int
    default: 300
"""

    PROGRAM = r"""
attributes:
  action:
    description: Runs partly on the controller, which makes the program and sends it to the node where that has another.
    support: full
options:
  program_digest:
    description:
      - SHA-256 of the program that the node shall have. Set by the action plugin.
    type: str
    default: ""
  program_file:
    description:
      - Where that program lies on the node. Set by the action plugin, where the node has another one.
    type: path
"""
