# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of a lease on a node: its record, the program that watches it, and that program's unit. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._lease import record
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit, marked, path_of
from ansible_collections.gb10.cluster.plugins.module_utils._unit import unit_files


def unit_of(state_dir: str, etc_root: str) -> Unit:
    """Return the unit."""
    return Unit(record.UNIT, (path_of(record.UNIT, etc_root),), record.folder_of(state_dir), record.PROGRAM)


def unit_text(state_dir: str, python: str) -> str:
    """Return the unit. It also starts at boot: a lease can expire while the node is off."""
    program = os.path.join(record.folder_of(state_dir), record.PROGRAM)
    return marked(f"""[Unit]
Description=gb10.cluster lease of this node
Documentation=man:systemd.service(5)
After=docker.service network-online.target local-fs.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={python} -I {program} lease {state_dir}
Restart=on-failure
RestartSec=10
TimeoutStopSec=20
UMask=0022
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes

[Install]
WantedBy=multi-user.target
""")


def over(state_dir: str) -> dict[str, str]:
    """Return the directory of a lease that the node ended, with the reason: its record is kept until the next run of the playbook mode."""
    try:
        lease = record.read(state_dir)
    except UnknownState:
        return {}
    ended = lease is not None and lease["state"] == record.ENDED
    return {record.folder_of(state_dir): f"of the lease for {lease['program']}, which is over"} if lease and ended else {}


def kept_units(lease: t.Mapping[str, t.Any], state_dir: str, etc_root: str, seconds: float) -> list[str]:
    """Return the clusters to restore after a lease whose units are still stopped."""
    units = {name: unit_files.unit(unit_files.of_engine(state_dir, name, etc_root), seconds) for name in lease["restore"]}
    return [name for name, unit in units.items() if unit["installed"] and unit["active"] is False]
