# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an engine's unit records of itself, and what follows from it at a boot. This module util is PRIVATE to the collection.

A unit that stops says so. One whose record still says that it runs, in a later boot, was ended by a power cut, a reset or a kernel that died: whether
memory and disk are as they should be is then a person's to say.
"""

from __future__ import annotations

import os
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import Document, lacking
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import RUN_DIR
from ansible_collections.gb10.cluster.plugins.module_utils._unit.journal import clean

FILE = "state.json"
#: The file below the state directory by which a power cycle says that it was this collection's own, and where it counts for all units until the next boot.
POWER_CYCLED = "power_cycled"

STARTING, RUNNING, STOPPED, REFUSED, FAILED = "starting", "running", "stopped", "refused", "failed"
STATES = (STARTING, RUNNING, STOPPED, REFUSED, FAILED)

#: The form of a record. ``tries`` counts the starts of the engine in this activation, ``at`` is in UTC.
KEYS: dict[str, type] = {"boot_id": str, "state": str, "reason": str, "run_id": str, "at": str, "tries": int}


def _wrong(record: dict[str, t.Any]) -> str:
    """Return what is wrong with a record, empty when nothing is."""
    return lacking(record, KEYS) or ("" if record["state"] in STATES else f"state is {record['state']!r}")


DOCUMENT = Document("record", "a record of this unit", 1, _wrong, "Look at it, and remove it when the node is as it should be: {path}")


def path_of(folder: str) -> str:
    return os.path.join(folder, FILE)


def read(folder: str) -> dict[str, t.Any] | None:
    """Return the record, None when there is none. Raises :class:`UnknownState` when it cannot be read."""
    return DOCUMENT.read(path_of(folder))


def write(folder: str, boot_id: str, state: str, reason: str = "", run_id: str = "", tries: int = 0) -> None:
    """Record a state, for everybody to read. Raises OSError."""
    noted = {"boot_id": boot_id, "state": state, "reason": clean(reason), "run_id": run_id, "tries": tries, "at": utc_text()}
    DOCUMENT.write(path_of(folder), noted)


def why_refused(noted: t.Mapping[str, t.Any] | None, boot_id: str, power_cycled: bool) -> str:
    """Return why a unit must not start now, empty when it may.

    Only the first start of a boot is refused, and not when the power cycle was this collection's own: a person who starts it after that has
    looked.
    """
    if noted is None or noted["boot_id"] == boot_id or power_cycled:
        return ""
    if noted["state"] in (STARTING, RUNNING):
        return (
            f"the node did not shut down cleanly: the unit was {noted['state']} since {noted['at']}, and this is another boot. "
            "A killed engine can leak memory, and a disk can have lost writes"
        )
    return noted["reason"] if noted["state"] == REFUSED else ""


def check_boot(folder: str, boot_id: str, state_dir: str, unit: str) -> str:
    """Return what to say of a start that goes ahead after an unclean shutdown, empty after a clean one.

    Raises :class:`ClusterError` with the reason :data:`REFUSED` at the first start after a shutdown that was not clean, unless the power cycle was this
    collection's own.
    """
    noted = read(folder)
    if noted is None or noted["boot_id"] == boot_id:
        return ""
    cycled = take_power_cycle(state_dir)
    why, anyway = (why_refused(noted, boot_id, power_cycled) for power_cycled in (False, cycled))
    if anyway:
        remedy = f"Look at the node (the doctor, with and without the inventory), then: systemctl start {unit}"
        raise ClusterError(anyway, remedy=remedy, reason=REFUSED)
    return f"{why}; the power cycle was this collection's own, so the unit starts once" if why else ""


def take_power_cycle(state_dir: str) -> bool:
    """Return whether the power cycle before this boot was our own. The file that says so goes with this boot, and counts for all units until then."""
    marker, taken = os.path.join(state_dir, POWER_CYCLED), os.path.join(RUN_DIR, POWER_CYCLED)
    if is_power_cycled(marker):
        os.makedirs(RUN_DIR, mode=0o755, exist_ok=True)
        with open(taken, "wb"):
            pass
        os.unlink(marker)
    return is_power_cycled(taken)


def is_power_cycled(path: str) -> bool:
    """Return whether a file there says that the power cycle was our own: a plain file of root's."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == 0
