# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a bundle holds, as its file ``bundle.json`` says, and what a directory is that is given as one. This module util is PRIVATE to the collection.

A bundle is a directory of plain files, so that any file system may carry it: links and refs of a model stand in the list alone. While it is written, its
list is a journal (:data:`JOURNAL`) of what is whole so far; :data:`MANIFEST` comes last, so a bundle that has it is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted

#: The version of the format that is written, and the newest that is read.
FORMAT = 1
#: The list of a whole bundle, that of one that is being written, and the one file that is being written.
MANIFEST, JOURNAL, PART = "bundle.json", "bundle.unfinished", "bundle.part"
#: Where what lies.
IMAGE, HUB, DIRECTORIES, PROFILE, WHEELS = "image", "hub", "directories", "profile", "wheels"
PLACES = (IMAGE, HUB, DIRECTORIES, PROFILE, WHEELS)
#: Defaults of ``bundle`` that its action plugin needs, too.
TIMEOUT = 14400
STATE_DIR = "/var/lib/gb10"
#: Most bytes of a list: some 250 for each file, and the disk may be anybody's.
LIST_LIMIT = 32 << 20
#: How many names a message has.
NAMED = 5

Manifest = dict[str, t.Any]


class Row(t.NamedTuple):
    """A file of a bundle: its path from there, its bytes, their sha256, and the time in nanoseconds of what it was copied from (0: it has none)."""

    path: str
    size: int
    sha256: str
    mtime: int = 0


def is_path(path: t.Any) -> bool:
    """Return whether a text is a path below a directory, and no other."""
    return isinstance(path, str) and bool(path) and not {"", ".", ".."} & set(path.split("/")) and not any(letter in path for letter in "\0\n")


def note_path(state_dir: str, cluster: str) -> str:
    """Return where a node notes how far it is."""
    return os.path.join(state_dir, f"bundle-{cluster}.json")


def lock_path(state_dir: str, path: str) -> str:
    """Return the file that keeps others out of a bundle's directory."""
    return os.path.join(state_dir, f"bundle-{sha256_of(os.path.realpath(path).encode())[:12]}.lock")


def sha256_of(text: bytes) -> str:
    """Return the sha256 of a text."""
    return hashlib.sha256(text).hexdigest()


def named(names: t.Sequence[str]) -> str:
    """Return a few of many names, and how many more there are."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def text_of(manifest: Manifest) -> str:
    """Return a manifest as its file has it."""
    return json.dumps(manifest, indent=1, sort_keys=True) + "\n"


def rows_of(manifest: Manifest) -> list[Row]:
    """Return the files that a manifest lists."""
    return [Row(**row) for row in manifest["files"]]


def parsed(text: bytes, path: str) -> Manifest:
    """Return a manifest, once it is known to be one that this collection reads. Raises :class:`ClusterError`."""
    try:
        found = json.loads(text)
        written = found["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ClusterError(f"{path} is not the list of a bundle: {error!r}", remedy="Copy the bundle again, or export it again.", reason="foreign") from error
    if not isinstance(written, int) or written > FORMAT:
        raise ClusterError(
            f"{path} has format {written!r}, written by {found.get('made_by', 'an unknown collection')}",
            expected=f"format {FORMAT} at most, which this collection reads",
            remedy="Use the collection that wrote it, or a newer one, also here.",
            reason="newer",
        )
    try:
        rows = rows_of(found)
        wrong = [str(row.path) for row in rows if not is_path(row.path) or row.path.split("/")[0] not in PLACES]
        wrong += [str(row.path) for row in rows if not isinstance(row.size, int) or not isinstance(row.sha256, str) or len(row.sha256) != 64]
        if not isinstance(found["image"], dict) or not isinstance(found["models"], list) or not isinstance(found["profile"], str):
            wrong.append("image, models or profile")
    except (KeyError, TypeError) as error:
        raise ClusterError(f"{path} is not the list of a bundle: {error!r}", remedy="Copy the bundle again, or export it again.", reason="foreign") from error
    if wrong:
        raise ClusterError(
            f"{path} lists what no bundle has: {named(wrong)}", remedy="Take a bundle that this collection has written.", reason="foreign", files=wrong
        )
    return found


def journal_line(row: Row) -> str:
    """Return the line that says that a file is whole."""
    return json.dumps(row._asdict(), sort_keys=True) + "\n"


def journal(text: bytes) -> dict[str, Row]:
    """Return the files that a journal says are whole, by path. The last line of an export that was killed may be half of one."""
    found: dict[str, Row] = {}
    for line in text.splitlines(keepends=True):
        try:
            row = Row(**json.loads(line))
        except (ValueError, TypeError):
            continue
        if line.endswith(b"\n") and is_path(row.path):
            found[row.path] = row
    return found


class Seen(t.NamedTuple):
    """What a directory is: ``absent``, ``empty``, ``unfinished`` or ``whole``; the list that it has, and the files that this says are whole.

    ``digest`` is the sha256 of the list of one that is whole: who exported it can tell it to who imports.
    """

    what: str
    manifest: Manifest | None
    files: dict[str, Row]
    digest: str = ""


def _read(path: str, name: str) -> bytes | None:
    try:
        return untrusted.read(path, name, LIST_LIMIT)
    except FileNotFoundError:
        return None
    except untrusted.Tampered as error:
        raise irregular(os.path.join(path, name), error) from error


def irregular(path: str, error: untrusted.Tampered) -> ClusterError:
    """Return the error for something in a bundle that is no plain file or directory."""
    return ClusterError(
        f"{path} cannot be used: {error.what.rpartition('tampered with: ')[2]}",
        expected="files and directories alone, as an export writes them: no link leads out of a bundle",
        remedy="Copy the bundle again, with what copies files and no links.",
        reason="link",
        files=[path],
    )


def look(path: str) -> Seen:
    """Say what lies in a directory that is given as a bundle. Raises :class:`ClusterError` for what is none, OSError."""
    try:
        names = sorted(os.listdir(path))
    except FileNotFoundError:
        return Seen("absent", None, {})
    except NotADirectoryError as error:
        raise ClusterError(f"{path} is a file", expected="a directory", remedy="Give gb10_bundle_dir a directory.", reason="foreign") from error
    text = _read(path, MANIFEST)
    if text is not None:
        manifest = parsed(text, os.path.join(path, MANIFEST))
        return Seen("whole", manifest, {row.path: row for row in rows_of(manifest)}, sha256_of(text))
    begun = _read(path, JOURNAL)
    if begun is not None:
        return Seen("unfinished", None, journal(begun))
    if names:
        raise ClusterError(
            f"{path} is no bundle: it has {named(names)}, and no {MANIFEST}",
            expected="a bundle, or for an export a directory that is empty or not there yet",
            remedy="Name the directory of the bundle itself, or for an export a new one.",
            reason="foreign",
        )
    return Seen("empty", None, {})


def require_whole(path: str, seen: Seen) -> Manifest:
    """Return the manifest of a bundle that is whole. Raises :class:`ClusterError`."""
    if seen.manifest is not None:
        return seen.manifest
    if seen.what == "unfinished":
        raise ClusterError(
            f"the bundle {path} is not whole: its export did not end, or was copied before it had",
            remedy="Run the export again, which goes on there, and copy the bundle again.",
            reason="unfinished",
        )
    raise ClusterError(
        f"there is no bundle in {path}: it is {seen.what}", remedy="Copy or mount the bundle there, and name its directory in gb10_bundle_dir.", reason="absent"
    )
