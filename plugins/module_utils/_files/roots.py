# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a node keeps what modules read of it. This module util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

#: The option ``roots`` of every module that examines a node; the fragment ``_look`` documents it. Real nodes need none of it: with it the same code examines
#: a container that mounts the machine's files elsewhere, a simulated node and a recorded tree.
ROOTS: dict[str, t.Any] = {
    "type": "dict",
    "apply_defaults": True,
    "options": {
        "proc_root": {"type": "path", "default": "/proc"},
        "sysfs_root": {"type": "path", "default": "/sys"},
        "etc_root": {"type": "path", "default": "/etc"},
        "modules_root": {"type": "path", "default": "/lib/modules"},
        "boot_root": {"type": "path", "default": "/boot"},
        "meminfo": {"type": "path"},
        "kernel_log": {"type": "str", "default": "auto"},
        "nvidia_smi": {"type": "str", "default": "nvidia-smi"},
    },
}
