# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of the sweep on a node, and its state. This module util is PRIVATE to the collection.

A sweep and its files belong to the node, not to a cluster.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import Document, lacking
from ansible_collections.gb10.cluster.plugins.module_utils._redact import SECRETS_DIR
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import judging
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import installed
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit, path_of

#: Names of the units.
SERVICE, TIMER = "gb10-sweep.service", "gb10-sweep.timer"
#: The name of its directories below the state directory and the secrets directory. No cluster name begins with an underscore.
FOLDER = "_sweep"
#: The link to its secrets where the secrets directory is not the default one.
LINK = os.path.join(SECRETS_DIR, f"ELSEWHERE-{FOLDER}")
#: The files.
PROGRAM, CONFIG, STATE, TEST, ANSWERS = "sweep.pyz", "sweep.json", "state.json", "test", "answers.json"
#: The first line of its unit files; the digest of all lines after it follows.
MARK = "# Written by gb10.cluster (playbook sweep), "

#: The keys of the state: ``at`` is the last sweep, ``since`` the start of each trouble, ``told`` what each channel confirmed, ``last`` the last message.
KEYS: dict[str, type] = {"at": float, "quiet": str, "since": dict, "problems": list, "told": dict, "last": dict, "undelivered": dict}


def folder_of(state_dir: str) -> str:
    """Return the directory of a node's sweep."""
    return os.path.join(state_dir, FOLDER)


def unit_of(state_dir: str, etc_root: str) -> Unit:
    """Return the timer as the running unit, with the service that it starts."""
    return Unit(TIMER, (path_of(SERVICE, etc_root), path_of(TIMER, etc_root)), folder_of(state_dir), PROGRAM, MARK)


def _wrong(state: t.Any) -> str:
    """Return why a state is invalid, empty when it is valid."""
    if problem := lacking(state, KEYS):
        return problem
    valid = all(isinstance(entry, dict) and isinstance(entry.get("at"), float) and isinstance(entry.get("problems"), dict) for entry in state["told"].values())
    return "" if valid and all(isinstance(at, float) for at in state["since"].values()) else "told or since: has another form"


DOCUMENT = Document("state", "the state of a sweep", 1, _wrong, "rm {path}: the next sweep writes it again.")


def read_state(folder: str) -> judging.State | None:
    """Return the state of the last sweep, None without one. Raises :class:`UnknownState` when it cannot be read."""
    return DOCUMENT.read_keys(os.path.join(folder, STATE), KEYS)


def write_state(folder: str, state: judging.State) -> None:
    """Write a state, readable by all accounts: it contains no secret. Raises OSError."""
    DOCUMENT.write(os.path.join(folder, STATE), state)


def shown(state: judging.State | None) -> dict[str, t.Any]:
    """Return the part of a state that status shows."""
    known = state or {"at": None, "quiet": "", "problems": [], "last": {}, "undelivered": {}}
    last = known["last"]
    return {
        "last_sweep": utc_text(known["at"]) if known["at"] is not None else "",
        "quiet": known["quiet"],
        "problems": known["problems"],
        "last_alert": f"{utc_text(last['at'])} {last['subject']}" if last else "",
        "undelivered": known["undelivered"],
    }


def sweep(unit: Unit, timeout: float = 20) -> dict[str, t.Any]:
    """Return the sweep's unit (see ``installed.look``), and the results of the last sweep. ``error`` says why its state cannot be read."""
    state, unread = None, ""
    try:
        state = read_state(unit.folder)
    except ClusterError as error:
        unread = str(error)
    return {**installed.look(unit, timeout), **shown(state), "error": unread}


def left(state_dir: str, secrets_dir: str) -> list[str]:
    """Return the existing directories of a sweep: its files, and its channels' secrets."""
    return [path for path in (folder_of(state_dir), os.path.join(secrets_dir, FOLDER)) if os.path.isdir(path)]


def found_text(status: t.Mapping[str, t.Any]) -> str:
    """Return the results of the last sweep as text."""
    if status.get("error"):
        return str(status["error"])
    problems = f"silent, {status['quiet']}" if status["quiet"] else "; ".join(f"{problem['id']}: {problem['text']}" for problem in status["problems"])
    return f"last {status['last_sweep']}: {problems or 'all is well'}" if status["last_sweep"] else "no sweep yet"


def text(status: t.Mapping[str, t.Any]) -> str:
    """Return the sweep's state as a line, empty where there is no sweep."""
    if not status.get("installed"):
        return ""
    state = {True: "active", False: "not active", None: "state unknown"}[status["active"]]
    undelivered = "; ".join(f"the last message to {name} was not delivered: {why}" for name, why in status["undelivered"].items())
    ended = "" if undelivered or not status["failed"] else "the last one failed, see journalctl -u gb10-sweep"
    last = f"last alert {status['last_alert']}" if status["last_alert"] else "no alert yet"
    return f"sweep: {'; '.join(filter(None, (state, found_text(status), ended, undelivered, last)))}"
