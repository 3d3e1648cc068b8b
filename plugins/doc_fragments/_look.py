# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of modules that look at a node. This fragment is PRIVATE to the collection."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  roots:
    description:
      - Where the node keeps what is read of it, when that is not where Linux has it. A module reads only those that it needs.
      - The roles pass the setting C(gb10_node_roots).
    type: dict
    version_added: 0.2.0
    suboptions:
      proc_root:
        description:
          - Where the proc file system is mounted.
        type: path
        default: /proc
      sysfs_root:
        description:
          - Where the sys file system is mounted.
        type: path
        default: /sys
      etc_root:
        description:
          - The directory that is read as C(/etc).
        type: path
        default: /etc
      modules_root:
        description:
          - Where the kernels' modules are installed.
        type: path
        default: /lib/modules
      boot_root:
        description:
          - Where the kernels themselves lie.
        type: path
        default: /boot
      meminfo:
        description:
          - A file to read memory figures from, in place of C(meminfo) below O(roots.proc_root).
        type: path
      kernel_log:
        description:
          - Where the kernel's log is read. V(auto) is the kernel's own buffer, and the journal where that may not be read or no longer reaches back to the
            boot.
          - Otherwise a file, which may hold what C(dmesg), C(journalctl -k) or C(/dev/kmsg) print.
          - With V(none), M(gb10.cluster.cuda_zombie_check) does not read the log, and never finds C(suspect).
        type: str
        default: auto
      nvidia_smi:
        description:
          - The NVIDIA driver's tool, as a path or as a name to be found on C(PATH).
        type: str
        default: nvidia-smi
"""

    DRIVER = r"""
options:
  tool_timeout:
    description:
      - Seconds to wait for one answer of O(roots.nvidia_smi), which hangs when the driver does, and for the kernel's log where it is read.
    type: int
    default: 30
"""
