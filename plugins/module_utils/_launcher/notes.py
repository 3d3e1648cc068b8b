# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The launcher's records of a run, read on the host. This module util is PRIVATE to the collection.

The container can write these records, so each value counts only in the form that the launcher writes.
"""

from __future__ import annotations

import json
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.protocol import RUN_ID, RUN_KEYS
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

#: Most bytes of a note.
NOTE_LIMIT = 262144
#: Most characters of a text in a note that is shown.
NOTE_TEXT = 2000
#: The end of the year 9999 in seconds since the epoch.
LATEST = 253402300799


def _is_text(value: t.Any) -> bool:
    return isinstance(value, str) and len(value) <= NOTE_TEXT


def _is_number(value: t.Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= LATEST


def _is_count(value: t.Any) -> bool:
    return isinstance(value, int) and _is_number(value)


def _is_run_id(value: t.Any) -> bool:
    return isinstance(value, str) and bool(RUN_ID.fullmatch(value))


#: The form of the launcher's records; None means an unknown value.
FORMS: dict[str, t.Callable[[t.Any], bool]] = {
    "run_id": _is_run_id,
    "run_ids": lambda value: isinstance(value, list) and all(map(_is_run_id, value)),
    "pid": _is_count,
    "start_ticks": _is_count,
    "container_start": _is_count,
    "boot_id": _is_text,
    "started_at": _is_number,
    "ended_at": _is_number,
    "at": _is_number,
    "seconds": _is_number,
    "code": _is_count,
    "signal": _is_count,
    "error": _is_text,
    "by": _is_text,
}


def read_note(path: str) -> dict[str, t.Any] | None:
    """Return the launcher's record in a file, None without one. Raises :class:`UnknownState` for anything but such a record."""
    try:
        raw = untrusted.read(*os.path.split(path), NOTE_LIMIT)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise ClusterError(f"no permission to read {path}", remedy=BECOME) from None
    except OSError as error:
        raise UnknownState(f"{path} cannot be read: {error.strerror}", reason="note broken") from None
    text = raw.decode(errors="replace")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise broken_note(path, text[:NOTE_TEXT]) from None
    if not isinstance(content, dict) or not all(value is None or FORMS.get(name, lambda _value: True)(value) for name, value in content.items()):
        raise broken_note(path, text[:NOTE_TEXT])
    return content


def broken_note(path: str, raw: str) -> UnknownState:
    return UnknownState(
        f"{path} is not JSON, or not that of the launcher",
        remedy="Take the cluster down with the playbook teardown and -e gb10_interrupt_requests=true: it stops what runs, whatever is in this file.",
        raw=raw,
        reason="note broken",
    )


def read_run(path: str) -> dict[str, t.Any] | None:
    """Return the record of a run, None without one. Raises :class:`UnknownState` for anything but such a record."""
    run = read_note(path)
    if run is not None and any(run.get(name) is None for name in RUN_KEYS):
        raise broken_note(path, json.dumps(run)[:NOTE_TEXT])
    return run


def read_side(path: str) -> dict[str, t.Any]:
    """Return an additional record, empty when it is missing or cannot be read."""
    try:
        return read_note(path) or {}
    except (OSError, ClusterError):
        return {}
