# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of this collection's units on a node. This module util is PRIVATE to the collection.

All code and pages that check, show, prune or list units read this table, and name no unit themselves.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._guard import guard_files
from ansible_collections.gb10.cluster.plugins.module_utils._lease import lease_files
from ansible_collections.gb10.cluster.plugins.module_utils._recover import recover_files
from ansible_collections.gb10.cluster.plugins.module_utils._redact import SECRETS_DIR
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import sweep_files
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import installed
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit
from ansible_collections.gb10.cluster.plugins.module_utils._unit import unit_files

Found = dict[str, t.Any]


class Where(t.NamedTuple):
    """The directories of a cluster and of its node."""

    state_dir: str
    cluster: str = "CLUSTER"
    secrets_dir: str = SECRETS_DIR
    etc_root: str = "/etc"


def files_left(unit: Unit, _where: Where) -> dict[str, str]:
    """Return the folder of a removed unit with the reason: nothing reads it."""
    return {unit.folder: "left of a unit that is gone"} if os.path.isdir(unit.folder) and not os.path.lexists(unit.path) else {}


def sweep_left(unit: Unit, where: Where) -> dict[str, str]:
    """Return the directories of a sweep whose timer is gone, with the reason."""
    gone = not os.path.lexists(unit.path)
    return dict.fromkeys(sweep_files.left(where.state_dir, where.secrets_dir), "left of a sweep that is gone") if gone else {}


class Service(t.NamedTuple):
    """One unit. ``key`` is its name in results, and the command of the units' program, which runs ``main``. ``unit`` returns the unit itself.
    ``page``, ``does``, ``read_by`` and ``leaves`` are for the documentation.

    ``look`` returns the unit's state on a node, and ``text`` returns it as a line. ``absent`` is the variable that removes a unit which stays when its
    cluster is removed; a unit with ``goes`` is removed with its cluster. ``left`` returns its leftovers by path, with the reason; ``kind`` is their kind
    in the playbook prune.
    """

    key: str
    main: str
    unit: t.Callable[[Where], Unit]
    page: str
    does: str
    read_by: str
    leaves: str
    look: t.Callable[[Unit], Found] = installed.look
    text: t.Callable[[Found], str] = installed.text
    absent: str = ""
    goes: bool = False
    kind: str = "unit"
    left: t.Callable[[Unit, Where], dict[str, str]] = files_left


SERVICES = (
    Service(
        key="guard",
        main="_guard.recorder",
        unit=lambda where: guard_files.unit_of(where.state_dir, where.etc_root),
        page="guard",
        does="samples the node every second, and ends ranks before memory is gone",
        read_by="status, postmortem, ladder",
        leaves="its ring, until gb10_allow=forget",
        look=guard_files.guard,
        text=guard_files.text,
        absent="gb10_guard=absent",
        left=lambda _unit, _where: {},
    ),
    Service(
        key="sweep",
        main="_sweep.program",
        unit=lambda where: sweep_files.unit_of(where.state_dir, where.etc_root),
        page="sweep",
        does="compares the node with what is declared, and sends alerts",
        read_by="status",
        leaves="nothing",
        look=sweep_files.sweep,
        text=sweep_files.text,
        absent="gb10_sweep=absent",
        kind="sweep",
        left=sweep_left,
    ),
    Service(
        key="engine",
        main="_unit.program",
        unit=lambda where: unit_files.of_engine(where.state_dir, where.cluster, where.etc_root),
        page="unit",
        does="brings the engine back after a reboot, and stops it gently",
        read_by="status, mode, sweep, lease",
        leaves="nothing",
        look=unit_files.unit,
        goes=True,
    ),
    Service(
        key="recover",
        main="_recover.recovering",
        unit=lambda where: recover_files.unit_of(where.state_dir, where.cluster, where.etc_root),
        page="recover",
        does="names an engine that died or hangs on any node, and can take all nodes down and up again",
        read_by="status, sweep",
        leaves="its evidence below the log directory, until prune",
        look=recover_files.look,
        text=recover_files.text,
        goes=True,
    ),
    Service(
        key="companions",
        main="_unit.companions",
        unit=lambda where: unit_files.of_companions(where.state_dir, where.etc_root),
        page="companions",
        does="brings the companions back after a reboot, before the engine",
        read_by="status, mode",
        leaves="nothing",
        look=unit_files.unit,
    ),
    Service(
        key="lease",
        main="_lease.keeper",
        unit=lambda where: lease_files.unit_of(where.state_dir, where.etc_root),
        page="lease",
        does="ends a lease whose caller is silent",
        read_by="status (tag glance), mode",
        leaves="its record, until the next mode run or prune",
        # The first screen of status shows its record.
        text=lambda _found: "",
        kind="lease",
        left=lambda _unit, where: lease_files.over(where.state_dir),
    ),
)


def folders() -> list[str]:
    """Return the directories of units below the state directory whose names a cluster could have."""
    where = Where("/")
    names = [service.unit(where).folder.split("/")[1] for service in SERVICES]
    return [name for name in names if name != where.cluster and not name.startswith("_")]
