# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guard's settings file and unit. This module util is PRIVATE to the collection."""

from __future__ import annotations

import json
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._guard.guard_files import CONFIG, MARK, PROGRAM, RING, SAID, SERVED
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import marked

#: The most memory of the unit, including the driver's tool.
MEMORY_MAX = "192M"


def config(folder: str, act: str, load_seconds: int, addresses: t.Sequence[str], roots: t.Mapping[str, t.Any]) -> str:
    """Return the settings that the program reads when it starts."""
    content = {
        "ring": os.path.join(folder, RING),
        "served": os.path.join(folder, SERVED),
        "said": os.path.join(folder, SAID),
        "state_dir": os.path.dirname(folder),
        "act": act,
        "load_seconds": load_seconds,
        "addresses": sorted(addresses),
        "roots": {name: roots[name] for name in ("proc_root", "sysfs_root", "meminfo", "kernel_log", "nvidia_smi")},
    }
    return f"{json.dumps(content, indent=1, sort_keys=True)}\n"


def unit(folder: str, python: str) -> str:
    """Return the unit. It has a low OOM score and a memory limit, and may only write below ``folder``."""
    program, settings = os.path.join(folder, PROGRAM), os.path.join(folder, CONFIG)
    return marked(
        f"""[Unit]
Description=gb10.cluster node guard with a black box
Documentation=man:systemd.service(5)
After=local-fs.target docker.service
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={python} -I {program} guard --config {settings}
Restart=always
RestartSec=5
TimeoutStopSec=10
OOMScoreAdjust=-900
MemoryMax={MEMORY_MAX}
MemorySwapMax=0
TasksMax=64
CPUQuota=20%
CPUWeight=500
IOWeight=500
Nice=-5
LimitMEMLOCK=infinity
UMask=0022
NoNewPrivileges=yes
CapabilityBoundingSet=CAP_KILL CAP_SYSLOG CAP_SYS_PTRACE CAP_IPC_LOCK CAP_DAC_READ_SEARCH
ProtectSystem=strict
ProtectHome=yes
ReadWritePaths={folder}
PrivateTmp=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictSUIDSGID=yes
RestrictRealtime=yes
RestrictNamespaces=yes
LockPersonality=yes
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
""",
        MARK,
    )
