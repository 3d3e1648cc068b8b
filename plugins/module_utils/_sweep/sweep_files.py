# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of the sweep is on a node. This module util is PRIVATE to the collection.

A sweep belongs to its node, whatever clusters there are on it, and so does all that it leaves there.
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
#: The directory of its files below that of the state, and of its channels' secrets below that of the secrets. No name of a cluster begins with an underscore.
FOLDER = "_sweep"
#: What leads to those secrets where they are in another directory than the usual one.
LINK = os.path.join(SECRETS_DIR, f"ELSEWHERE-{FOLDER}")
#: The files.
PROGRAM, CONFIG, STATE, TEST, ANSWERS = "sweep.pyz", "sweep.json", "state.json", "test", "answers.json"
#: The line by which a unit file is known to be ours; the digest of all lines after it follows.
MARK = "# Written by gb10.cluster (playbook sweep), "

#: The form of the state: ``at`` is the last sweep, ``since`` when each trouble was first seen, ``told`` what each channel took, ``last`` the last message.
KEYS: dict[str, type] = {"at": float, "quiet": str, "since": dict, "problems": list, "told": dict, "last": dict, "undelivered": dict}


def folder_of(state_dir: str) -> str:
    """Return where the files of a node's sweep lie."""
    return os.path.join(state_dir, FOLDER)


def unit_of(state_dir: str, etc_root: str) -> Unit:
    """Return the timer as the unit that runs, with the service that it starts."""
    return Unit(TIMER, (path_of(SERVICE, etc_root), path_of(TIMER, etc_root)), folder_of(state_dir), PROGRAM, MARK)


def _wrong(state: t.Any) -> str:
    """Return what is wrong with a state, empty when nothing is."""
    if problem := lacking(state, KEYS):
        return problem
    told = all(isinstance(one, dict) and isinstance(one.get("at"), float) and isinstance(one.get("problems"), dict) for one in state["told"].values())
    return "" if told and all(isinstance(at, float) for at in state["since"].values()) else "told or since: of another form"


DOCUMENT = Document("state", "the state of a sweep", 1, _wrong, "Remove {path}: the next sweep writes it again.")


def read_state(folder: str) -> judging.State | None:
    """Return what the last sweep kept, None when there was none. Raises :class:`UnknownState` when it cannot be read."""
    content = DOCUMENT.read(os.path.join(folder, STATE))
    return {key: content[key] for key in KEYS} if content else None


def write_state(folder: str, state: judging.State) -> None:
    """Keep a state, for everybody to read: it holds no secret. Raises OSError."""
    path = os.path.join(folder, STATE)
    DOCUMENT.write(path, state)


def shown(state: judging.State | None) -> dict[str, t.Any]:
    """Return what status says of a state."""
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
    """Return what there is (see ``installed.look``), and what the last sweep found. ``error`` says why its state cannot be read."""
    about = {**installed.look(unit, timeout), "error": ""}
    try:
        return {**about, **shown(read_state(unit.folder))}
    except ClusterError as error:
        return {**about, **shown(None), "error": str(error)}


def left(state_dir: str, secrets_dir: str) -> list[str]:
    """Return the directories of a sweep that are there: that of its files, and that of its channels' secrets."""
    return [path for path in (folder_of(state_dir), os.path.join(secrets_dir, FOLDER)) if os.path.isdir(path)]


def found_text(found: t.Mapping[str, t.Any]) -> str:
    """Return what the last sweep found, in words."""
    if found.get("error"):
        return str(found["error"])
    if not found["last_sweep"]:
        return "none was done yet"
    if found["quiet"]:
        return f"last {found['last_sweep']}: silent, {found['quiet']}"
    problems = "; ".join(f"{one['id']}: {one['text']}" for one in found["problems"])
    return f"last {found['last_sweep']}: {problems or 'all is well'}"


def text(found: t.Mapping[str, t.Any]) -> str:
    """Return what of the sweep is on a node in a line, empty where there is nothing."""
    if not found.get("installed"):
        return ""
    state = {True: "active", False: "not active", None: "state not known"}[found["active"]]
    undelivered = "; ".join(f"{name} did not take the last message: {why}" for name, why in found["undelivered"].items())
    ended = "" if undelivered or not found["failed"] else "the last one failed, see journalctl -u gb10-sweep"
    last = f"last alert {found['last_alert']}" if found["last_alert"] else "no alert yet"
    return f"sweep: {'; '.join(filter(None, (state, found_text(found), ended, undelivered, last)))}"
