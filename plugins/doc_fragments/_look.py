# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of modules that look at a node. This fragment is PRIVATE to the collection."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  proc_root:
    description:
      - Where the node's proc file system is mounted.
    type: path
    default: /proc
"""

    DRIVER = r"""
options:
  nvidia_smi:
    description:
      - The NVIDIA driver's tool, as a path or as a name to be found on C(PATH).
    type: str
    default: nvidia-smi
  tool_timeout:
    description:
      - Seconds to wait for one answer of O(nvidia_smi), which hangs when the driver does, and for the kernel's log where it is read.
    type: int
    default: 30
"""
