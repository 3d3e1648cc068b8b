# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit files of engine and companions. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._gpu import gpu_access
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import marked
from ansible_collections.gb10.cluster.plugins.module_utils._unit import companions as companions_program
from ansible_collections.gb10.cluster.plugins.module_utils._unit import specification, unit_files

#: Seconds beyond the program's own limits, after which systemd ends it.
MARGIN = 120


def start_seconds(given: t.Mapping[str, t.Any]) -> int:
    """Return the most seconds that a start may take: its steps, the wait for the other nodes, and the wait for a token."""
    return sum(step["timeout"] for step in given["start"]) + 2 * given["start_seconds"] + MARGIN


def stop_seconds(given: t.Mapping[str, t.Any]) -> int:
    """Return the most seconds that a stop may take: the step of a start that may be running, and its own steps."""
    return max((step["timeout"] for step in given["start"]), default=0) + sum(step["timeout"] for step in given["stop"]) + MARGIN


def engine(folder: str, python: str, given: t.Mapping[str, t.Any]) -> str:
    """Return the unit of an engine. It starts after the companions, so that their memory counts, also when a companion failed."""
    about = f"engine of {given['cluster']} ({given['role']})"
    return _unit(about, f"{unit_files.COMPANIONS} ", folder, python, "engine", start_seconds(given), stop_seconds(given))


def companions(folder: str, python: str, given: t.Mapping[str, t.Any]) -> str:
    """Return the unit of the companions."""
    each = [companions_program.seconds(companion) for companion in given["companions"]]
    # A stop waits for the companion that may be starting.
    return _unit("companions of this node", "", folder, python, "companions", sum(each) + MARGIN, sum(each) + max(each, default=0) + MARGIN)


def _unit(about: str, after: str, folder: str, python: str, command: str, start: int, stop: int) -> str:
    """Return the text of a unit. It restarts nothing, and at a shutdown it stops before Docker does.

    It starts after multi-user.target, although it is a part of it: the CDI specification of the GPU may be written after that target (see ``gpu_access``), so
    a unit that the target waits for would never find it.
    UMask: its modules create the same files as those of a play, which other accounts read.
    """
    return marked(f"""[Unit]
Description=gb10.cluster {about}
Documentation=man:systemd.service(5)
After={after}docker.service multi-user.target {gpu_access.REFRESH_UNIT} nvidia-persistenced.service network-online.target local-fs.target
Wants=docker.service network-online.target

[Service]
Type=notify
ExecStart={python} -I {os.path.join(folder, unit_files.PROGRAM)} {command} {os.path.join(folder, specification.FILE)}
Restart=no
KillMode=mixed
TimeoutStartSec={start}
TimeoutStopSec={stop}
UMask=0022
NoNewPrivileges=yes
PrivateTmp=yes
LockPersonality=yes
RestrictRealtime=yes

[Install]
WantedBy=multi-user.target
""")
