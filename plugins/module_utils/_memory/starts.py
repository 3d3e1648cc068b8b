# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What starts that went well took of a node's memory, on record. This module util is PRIVATE to the collection.

A record is worth more than any plan, for what it is of: the same image, the same profile (by the digest of what memory follows from) and the same driver.
"""

from __future__ import annotations

import json
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._host import files

SCHEMA = 1
#: Starts that a node keeps of a cluster; the oldest go.
KEEP = 32
#: Bytes of such a file that are read.
_LIMIT = 1 << 20

Start = dict[str, t.Any]

#: What every record has, with its type. ``before_mb`` was available before the start, ``lowest_mb`` is the least that was seen while it started and
#: ``steady_mb`` what was available once it had answered; ``context`` is the length in tokens (the rung).
KEYS: dict[str, type] = {
    "image_id": str, "profile": str, "profile_digest": str, "driver": str, "kernel": str, "boot_id": str, "run_id": str, "recorded_at": str,
    "context": int, "total_mb": int, "before_mb": int, "lowest_mb": int, "steady_mb": int,
}  # fmt: skip


def path_of(state_dir: str, cluster: str) -> str:
    """Return where a node keeps the starts of a cluster."""
    return os.path.join(state_dir, cluster, "starts.json")


def _is(value: t.Any, kind: type) -> bool:
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def parse(text: str, path: str) -> list[Start]:
    """Return the records in a file's text. Raises :class:`UnknownState` for anything else."""
    remedy = f"Remove {path}: the next bring-up records its start again."
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnknownState(f"{path} is not JSON: {error}", raw=text[:2000], remedy=remedy, reason="starts broken") from error
    starts = content.get("starts") if isinstance(content, dict) and content.get("schema") == SCHEMA else None
    if not isinstance(starts, list) or not all(isinstance(one, dict) and all(_is(one.get(key), kind) for key, kind in KEYS.items()) for one in starts):
        raise UnknownState(f"{path} holds no starts of schema {SCHEMA}", raw=text[:2000], remedy=remedy, reason="starts broken")
    return starts


def read(path: str) -> list[Start]:
    """Return the records in a file, none when it does not exist. Raises :class:`UnknownState` when it holds something else or may not be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return parse(handle.read(_LIMIT), path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UnknownState(f"{path} cannot be read: {error.strerror}", remedy="Run the task with become: true.", reason="starts unread") from error


def on_node(state_dir: str) -> list[Start]:
    """Return the records of all clusters of a node, each with its ``cluster``. Raises as :func:`read` does."""
    try:
        clusters = sorted(os.listdir(state_dir))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UnknownState(f"{state_dir} cannot be read: {error.strerror}", remedy="Run the task with become: true.", reason="starts unread") from error
    return [{**one, "cluster": cluster} for cluster in clusters for one in read(path_of(state_dir, cluster))]


def last(state_dir: str, cluster: str) -> dict[str, t.Any]:
    """Return the newest record of a cluster in short, empty without one. What is wrong with the file is its ``error``."""
    try:
        known = read(path_of(state_dir, cluster))
    except UnknownState as error:
        return {"error": f"{error}. Remedy: {error.remedy}"}
    if not known:
        return {}
    one = known[-1]
    short = {"took_mb": max(0, one["before_mb"] - one["steady_mb"]), "left_mb": one["steady_mb"]}
    return {**{name: one[name] for name in ("profile", "context", "recorded_at")}, **short, "error": ""}


def same(one: Start, image_id: str, profile_digest: str, driver: str) -> bool:
    """Return whether a record is of this image, profile and driver."""
    return (one["image_id"], one["profile_digest"], one["driver"]) == (image_id, profile_digest, driver)


def with_start(starts: t.Sequence[Start], new: Start) -> list[Start]:
    """Return the records with a new one, which takes the place of that of the same image, profile, driver and context."""
    alike = (one for one in starts if one["context"] == new["context"] and same(one, new["image_id"], new["profile_digest"], new["driver"]))
    replaced = [id(one) for one in alike]
    return [*(one for one in starts if id(one) not in replaced), new][-KEEP:]


def taken_gib(starts: t.Sequence[Start], context: int) -> tuple[float, float] | None:
    """Return the most GiB that starts of at most ``context`` tokens took (once they had answered, at their peak), None without one.

    A longer context takes no less, so a shorter one's record counts, and a longer one's does not.
    """
    known = [one for one in starts if one["context"] <= context]
    if not known:
        return None
    steady = max(one["before_mb"] - one["steady_mb"] for one in known)
    peak = max(one["before_mb"] - min(one["lowest_mb"], one["steady_mb"]) for one in known)
    return max(0, steady) / 1024, max(0, peak) / 1024


def bears(starts: t.Sequence[Start], context: int) -> bool:
    """Return whether a start with at least ``context`` tokens is among these records."""
    return any(one["context"] >= context for one in starts)


def write(path: str, starts: t.Sequence[Start]) -> None:
    """Write the records. Raises :class:`ClusterError` when that is not possible."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        files.write_json(path, {"schema": SCHEMA, "starts": list(starts)})
    except OSError as error:
        remedy = "Run the task with become: true, or free space there."
        raise ClusterError(f"{path} cannot be written: {error.strerror}", remedy=remedy, reason="write") from error
