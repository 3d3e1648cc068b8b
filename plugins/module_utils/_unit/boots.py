# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unclean boots of a node, which all its units share. This module util is PRIVATE to the collection.

A boot returns the memory that a killed engine leaked, so the units start after an unclean one. A second one soon after the first looks like a crash loop.
No decision depends on the time of day, which can be wrong after a power cut: an unclean boot counts until a unit has run for :data:`SECONDS`.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import boot_seconds, utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import files
from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import Document, lacking

#: The file below the state directory, readable by all accounts.
FILE = "unclean_boots.json"
#: The value of a specification's ``unclean_boot`` that lets a unit start after an unclean boot.
ONCE = "once"
#: The most boots that are kept.
KEPT = 10
#: Seconds that a unit has to run until an unclean boot no longer counts.
SECONDS = 3600.0

#: The keys of a boot. ``at`` (UTC) is for people, ``seen_s`` are the seconds since the boot when it was recorded, ``over`` says that it no longer counts.
KEYS: dict[str, type] = {"boot_id": str, "at": str, "seen_s": float, "over": bool}

Boot = dict[str, t.Any]


def _wrong(content: dict[str, t.Any]) -> str:
    """Return why a record is invalid, empty when it is valid."""
    return lacking(content, {"boots": list}) or next(filter(None, (lacking(boot, KEYS) for boot in content["boots"])), "")


DOCUMENT = Document("boots", "a record of unclean boots", 1, _wrong, "Check the node, then remove the record: rm {path}")


def _path(state_dir: str) -> str:
    return os.path.join(state_dir, FILE)


def read(state_dir: str) -> list[Boot]:
    """Return the unclean boots, oldest first. Raises :class:`UnknownState` when the record cannot be read."""
    content = DOCUMENT.read(_path(state_dir))
    return content["boots"] if content else []


def why_not(state_dir: str, boot_id: str) -> str:
    """Record that this boot is unclean. Return why nothing may start after it, empty when it may: the former unclean boot still counts, or is unknown."""
    try:
        boots = read(state_dir)
        former = [boot for boot in boots if boot["boot_id"] != boot_id]
        if former == boots:
            DOCUMENT.write(_path(state_dir), {"boots": [*boots, {"boot_id": boot_id, "at": utc_text(), "seen_s": boot_seconds(), "over": False}][-KEPT:]})
    except (ClusterError, OSError) as error:
        return f"whether it is the second unclean boot in a row is unknown: {error}"
    if former and not former[-1]["over"]:
        return f"it is the second unclean boot in a row: after the one of {former[-1]['at']} no unit has run for {SECONDS / 60:.0f} minutes"
    return ""


def outlast(state_dir: str) -> None:
    """Record that the unclean boots so far no longer count. Raises :class:`UnknownState` and OSError."""
    boots = read(state_dir)
    if any(not boot["over"] for boot in boots):
        DOCUMENT.write(_path(state_dir), {"boots": [{**boot, "over": True} for boot in boots]})


def recent(state_dir: str, proc_root: str) -> str:
    """Return the time of this boot if it is unclean and began less than :data:`SECONDS` ago, else an empty text. Raises :class:`UnknownState`."""
    last = read(state_dir)[-1:]
    return "".join(boot["at"] for boot in last if boot_seconds() - boot["seen_s"] < SECONDS and boot["boot_id"] == files.boot_id(proc_root))
