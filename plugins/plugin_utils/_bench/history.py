# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stores the rows of all benches in a directory of the controller, as JSON and as CSV. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import json
import os
import typing as t
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import files
from ansible_collections.gb10.cluster.plugins.plugin_utils._bench import rows

Row = rows.Row
Finding = rows.Finding

#: The rows, their CSV for spreadsheets, and the lock between two runs.
JSON, CSV, LOCK = "bench.json", "bench.csv", ".bench.lock"
MODE = 0o600


class Kept(t.NamedTuple):
    """The result for a run's rows: the rows, the findings, and the files that were written."""

    rows: list[Row]
    findings: list[Finding]
    files: list[str]


def as_csv(kept: t.Iterable[Row]) -> str:
    """Return rows as CSV. Unknown values are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, rows.COLUMNS, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: "" if row.get(name) is None else row[name] for name in rows.COLUMNS} for row in kept)
    return text.getvalue()


def load(directory: str) -> list[Row]:
    """Return the rows of earlier runs. Raises :class:`ClusterError` for a file that no bench wrote, or that was changed: it is not overwritten."""
    path = Path(directory) / JSON
    remedy = f"Give gb10_to another directory, or move {path} away."
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))["rows"]
        numbers = (*(name for name, _words, _slower in rows.COMPARED), "concurrency")
        whole = all(isinstance(row, dict) and all(isinstance(row[name], (int, float)) for name in numbers) for row in kept)
        if not whole or not all({"image", "run", "client", "workload", "profile"} <= row.keys() for row in kept):
            raise ValueError("a row is not one of a bench")
        text = (Path(directory) / CSV).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        if error.filename == str(path) and not (Path(directory) / CSV).exists():
            return []
        raise ClusterError(f"{directory} holds one of {JSON} and {CSV} alone", remedy=remedy, reason="history") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ClusterError(f"{path} cannot be read as the rows of earlier benches: {error}", remedy=remedy, reason="history") from None
    if text != as_csv(kept):
        raise ClusterError(f"{Path(directory) / CSV} was changed, and differs from {JSON} next to it", remedy=remedy, reason="history")
    return kept


@contextlib.contextmanager
def alone(directory: str) -> t.Iterator[None]:
    """Keep other runs out of a directory, and create it if it is missing. Raises :class:`ClusterError` while another run uses it."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    with open(os.open(Path(directory) / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE), "rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterError(f"another bench writes to {directory} now", remedy="Repeat when it is done.", reason="history") from None
        yield


def write(directory: str, kept: list[Row], new: list[Row]) -> list[str]:
    """Append rows to those that are kept, and return the files. Raises OSError."""
    place, everything = Path(directory), [*kept, *new]
    # The CSV is last: the next run detects a write that stopped in between, and no row is lost.
    files.write_text(str(place / JSON), json.dumps({"schema": rows.SCHEMA, "rows": everything}, indent=1) + "\n", MODE)
    files.write_text(str(place / CSV), as_csv(everything), MODE)
    return [str(place / name) for name in (JSON, CSV)]


def record(directory: str, new: list[Row], check_mode: bool = False) -> Kept:
    """Compare a run's rows with earlier ones, and append them. Without a directory there is nothing to compare with. Raises :class:`ClusterError`."""
    if not directory or not new:
        return Kept(*rows.judged(new, []), [])
    if check_mode:
        return Kept(*rows.judged(new, load(directory)), [])
    try:
        with alone(directory):
            kept = load(directory)
            marked, findings = rows.judged(new, kept)
            return Kept(marked, findings, write(directory, kept, marked))
    except OSError as error:
        raise ClusterError(f"{directory} cannot be written: {error.strerror}", remedy="Give gb10_to another directory.", reason="history") from error
