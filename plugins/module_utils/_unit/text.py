# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The text of an engine's unit. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._unit import look, specification

#: Seconds beyond what the program allows itself, after which systemd ends it.
MARGIN = 120


def start_seconds(given: t.Mapping[str, t.Any]) -> int:
    """Return the most seconds that a start may take: its steps, the wait for the other nodes, and that for a token."""
    return sum(one["timeout"] for one in given["start"]) + 2 * given["start_seconds"] + MARGIN


def stop_seconds(given: t.Mapping[str, t.Any]) -> int:
    """Return the most seconds that a stop may take: the step that may be under way, and its own."""
    longest = max((one["timeout"] for one in given["start"]), default=0)
    return longest + sum(one["timeout"] for one in given["stop"]) + MARGIN


def unit(folder: str, python: str, given: t.Mapping[str, t.Any]) -> str:
    """Return the unit of a specification. It restarts nothing by itself, and at a shutdown it stops before Docker does.

    Its modules leave the same files as those of a play, which users other than root read.
    """
    program = os.path.join(folder, look.PROGRAM)
    return look.marked(f"""[Unit]
Description=gb10.cluster engine of {given["cluster"]} ({given["role"]})
Documentation=man:systemd.service(5)
After=docker.service network-online.target local-fs.target
Wants=docker.service network-online.target

[Service]
Type=notify
ExecStart={python} -I {program} run {os.path.join(folder, specification.FILE)}
Restart=no
KillMode=mixed
TimeoutStartSec={start_seconds(given)}
TimeoutStopSec={stop_seconds(given)}
UMask=0022
NoNewPrivileges=yes
PrivateTmp=yes
LockPersonality=yes
RestrictRealtime=yes

[Install]
WantedBy=multi-user.target
""")
