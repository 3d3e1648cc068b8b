# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state record of a unit, and what follows from it at a boot. This module util is PRIVATE to the collection.

A unit records its stop. A record of an earlier boot that is still ``running`` means a power cut, a reset or a kernel crash.
"""

from __future__ import annotations

import os
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import Document, lacking
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import RUN_DIR, write_whole
from ansible_collections.gb10.cluster.plugins.module_utils._unit import boots
from ansible_collections.gb10.cluster.plugins.module_utils._unit.journal import clean

FILE = "state.json"
#: The file below the state directory that marks a power cycle by this collection. Below RUN_DIR it counts for all units until the next boot.
POWER_CYCLED = "power_cycled"

STARTING, RUNNING, STOPPED, REFUSED, FAILED = "starting", "running", "stopped", "refused", "failed"
STATES = (STARTING, RUNNING, STOPPED, REFUSED, FAILED)

#: The keys of a record. ``tries`` counts the starts of the engine in this activation, ``at`` is in UTC.
KEYS: dict[str, type] = {"boot_id": str, "state": str, "reason": str, "run_id": str, "at": str, "tries": int}


def _wrong(record: dict[str, t.Any]) -> str:
    """Return why a record is invalid, empty when it is valid."""
    return lacking(record, KEYS) or ("" if record["state"] in STATES else f"state is {record['state']!r}")


DOCUMENT = Document("record", "a record of this unit", 1, _wrong, "Check the node, then remove the record: rm {path}")


def read(folder: str) -> dict[str, t.Any] | None:
    """Return the record, None when there is none. Raises :class:`UnknownState` when it cannot be read."""
    return DOCUMENT.read(os.path.join(folder, FILE))


def write(folder: str, boot_id: str, state: str, reason: str = "", run_id: str = "", tries: int = 0) -> None:
    """Record a state, readable by all accounts. Raises OSError."""
    noted = {"boot_id": boot_id, "state": state, "reason": clean(reason), "run_id": run_id, "tries": tries, "at": utc_text()}
    DOCUMENT.write(os.path.join(folder, FILE), noted)


def check_boot(folder: str, boot_id: str, state_dir: str, unit: str, once: bool) -> str:
    """Return why a start after an unclean shutdown is allowed, empty after a clean one. ``once`` allows it once.

    Raises :class:`ClusterError` with the reason :data:`REFUSED` at the first start after an unclean shutdown that is not allowed, unless this collection
    cycled the power. A later start of the same boot is a person's decision.
    """
    noted = read(folder)
    if noted is None or noted["boot_id"] == boot_id:
        return ""
    cycled, was_refused = take_power_cycle(state_dir), noted["state"] == REFUSED
    if not was_refused and noted["state"] not in (STARTING, RUNNING):
        return ""
    why = noted["reason"] if was_refused else f"the node did not shut down cleanly: the unit was {noted['state']} since {noted['at']}, in an earlier boot"
    if cycled:
        return f"{why}; this collection cycled the power, so the unit starts once"
    if not was_refused:
        # Recorded also where it decides nothing, for status and for the next boot.
        again = boots.why_not(state_dir, boot_id)
        if once and not again:
            return f"{why}; the unit starts once, because a boot returns leaked memory"
        why = f"{why}; {again or 'gb10_unclean_boot is never'}"
    raise ClusterError(why, remedy=f"Run the doctor, with and without the inventory, then: systemctl start {unit}", reason=REFUSED)


def take_power_cycle(state_dir: str) -> bool:
    """Return whether this collection cycled the power before this boot. The marker moves below RUN_DIR, where it counts for all units until the next boot."""
    marker, taken = os.path.join(state_dir, POWER_CYCLED), os.path.join(RUN_DIR, POWER_CYCLED)
    if is_power_cycled(marker):
        os.makedirs(RUN_DIR, mode=0o755, exist_ok=True)
        write_whole(taken, b"")
        os.unlink(marker)
    return is_power_cycled(taken)


def is_power_cycled(path: str) -> bool:
    """Return whether ``path`` marks a power cycle by this collection: a plain file of root's."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == 0
