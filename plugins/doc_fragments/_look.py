# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of modules that read a node. This fragment is PRIVATE to the collection."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  roots:
    description:
      - Paths to read on the node, if they differ from Linux's usual ones. A module reads only those that it needs.
      - The roles pass the setting C(gb10_node_roots).
    type: dict
    version_added: 0.2.0
    suboptions:
      proc_root:
        description:
          - Mount point of the proc file system.
        type: path
        default: /proc
      sysfs_root:
        description:
          - Mount point of the sys file system.
        type: path
        default: /sys
      etc_root:
        description:
          - The directory to read as C(/etc).
        type: path
        default: /etc
      modules_root:
        description:
          - The directory with the kernels' modules.
        type: path
        default: /lib/modules
      boot_root:
        description:
          - The directory with the kernels.
        type: path
        default: /boot
      meminfo:
        description:
          - A file to read memory figures from, instead of C(meminfo) below O(roots.proc_root).
        type: path
      kernel_log:
        description:
          - The source of the kernel's log. V(auto) is the kernel's own buffer, or the journal if that cannot be read or no longer reaches back to the
            boot.
          - Otherwise a file, with the output of C(dmesg), C(journalctl -k) or C(/dev/kmsg).
          - With V(none), M(gb10.cluster.cuda_zombie_check) does not read the log, and never finds C(suspect).
        type: str
        default: auto
      nvidia_smi:
        description:
          - The NVIDIA driver's tool, as a path or a name on C(PATH).
        type: str
        default: nvidia-smi
"""

    DRIVER = r"""
options:
  tool_timeout:
    description:
      - Seconds to wait for one answer from O(roots.nvidia_smi), which hangs if the driver does, and for the kernel's log where it is read.
    type: int
    default: 30
"""
