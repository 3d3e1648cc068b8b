# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The texts of our units. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._gpu import gpu_access
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import marked
from ansible_collections.gb10.cluster.plugins.module_utils._unit import beside, specification, unit_files

#: Seconds beyond what the program allows itself, after which systemd ends it.
MARGIN = 120


def start_seconds(given: t.Mapping[str, t.Any]) -> int:
    """Return the most seconds that a start may take: its steps, the wait for the other nodes, and that for a token."""
    return sum(one["timeout"] for one in given["start"]) + 2 * given["start_seconds"] + MARGIN


def stop_seconds(given: t.Mapping[str, t.Any]) -> int:
    """Return the most seconds that a stop may take: the step that may be under way, and its own."""
    longest = max((one["timeout"] for one in given["start"]), default=0)
    return longest + sum(one["timeout"] for one in given["stop"]) + MARGIN


def engine(folder: str, python: str, given: t.Mapping[str, t.Any]) -> str:
    """Return the unit of an engine's specification. It begins when the companions are there, so that what they hold counts, and whether they came or not."""
    about = f"engine of {given['cluster']} ({given['role']})"
    return _unit(about, f"{unit_files.COMPANIONS} ", f"{python} -I {_words(folder, 'engine')}", start_seconds(given), stop_seconds(given))


def companions(folder: str, python: str, given: t.Mapping[str, t.Any]) -> str:
    """Return the unit of the companions' specification."""
    each = [beside.seconds(one) for one in given["companions"]]
    # A stop waits for the one that may be under way.
    return _unit("companions of this node", "", f"{python} -I {_words(folder, 'companions')}", sum(each) + MARGIN, sum(each) + max(each, default=0) + MARGIN)


def _words(folder: str, command: str) -> str:
    return f"{os.path.join(folder, unit_files.PROGRAM)} {command} {os.path.join(folder, specification.FILE)}"


def _unit(about: str, after: str, command: str, start: int, stop: int) -> str:
    """Return the text of a unit. It restarts nothing by itself, and at a shutdown it stops before Docker does.

    It waits for the whole of multi-user.target, of which it is a part: the specification of the GPU may be written after that (see ``gpu_access``), so that a
    unit which the target waits for would never see it.
    Its modules leave the same files as those of a play, which users other than root read.
    """
    return marked(f"""[Unit]
Description=gb10.cluster {about}
Documentation=man:systemd.service(5)
After={after}docker.service multi-user.target {gpu_access.REFRESH_UNIT} nvidia-persistenced.service network-online.target local-fs.target
Wants=docker.service network-online.target

[Service]
Type=notify
ExecStart={command}
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
