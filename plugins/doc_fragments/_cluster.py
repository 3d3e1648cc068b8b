# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of every module that works on one cluster of a node, or on all of them. This fragment is PRIVATE to the collection."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  cluster_name:
    description:
      - Name of the cluster.
    type: str
    default: gb10
"""

    STATE_DIR = r"""
options:
  state_dir:
    description:
      - Directory on the node for the state of the collection's clusters.
    type: path
    default: /var/lib/gb10
"""
