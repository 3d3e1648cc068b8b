# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds and removes entries that root in a container put in the place of this collection's files. This module util is PRIVATE to the collection.

No program of this collection follows them, and they prevent the start of the next engine. So they are searched before a container is made and before an
engine is started, and a teardown removes them. Only names that these programs use are checked.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker import confinement
from ansible_collections.gb10.cluster.plugins.module_utils._engine.engine_state import EnginePaths
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.notes import NOTE_LIMIT, read_run, read_side
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.protocol import ENGINE_LOGS, MADE_OF, ORDER, RUN_ID
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

#: The files that the launcher and the host write in the directory of records.
RUN_NOTE = "run.json"
NOTES = (RUN_NOTE, "run.json.broken", "exit.json", "stop.json", "run.lock", "config/ray_non_carry_over_env_vars.json")
#: The directory below the records, and the host's directory of kept logs, next to which containers of older versions could write.
CONFIG, KEPT_LOGS = "config", "containers"
#: The files that the launcher writes in the directory of logs.
LOGS = re.compile(rf"(?:{RUN_ID.pattern})\.log(?:\.1(?:\.new)?)?")
#: The directories that programs in the container create in its directory of caches.
CACHES = tuple(sorted(os.path.basename(path) for path in confinement.cache_variables("/").values()))


class Plant(t.NamedTuple):
    """An entry of the wrong kind: its path below ``top``, and its actual kind."""

    top: str
    path: str
    what: str

    @property
    def whole(self) -> str:
        return os.path.join(self.top, self.path)


def _names(top: str, relative: str = "") -> list[str]:
    """Return the names in a directory; none if it is absent or not a directory."""
    try:
        with untrusted.directory(top, relative) as handle:
            return sorted(os.listdir(handle))
    except (FileNotFoundError, untrusted.Tampered):
        return []


def _judged(top: str, names: t.Iterable[str], look: t.Callable[[str, str], object]) -> t.Iterator[Plant]:
    """Yield the entries with these names that ``look`` rejects."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            try:
                look(top, name)
            except untrusted.Tampered as error:
                yield Plant(top, os.path.relpath(error.path, top), error.found)


def _note(top: str, name: str) -> None:
    untrusted.read(top, name, NOTE_LIMIT)


def _log(top: str, name: str) -> None:
    untrusted.reader(top, name).close()


def _directory(top: str, name: str) -> None:
    with untrusted.directory(top, name):
        pass


def found(paths: EnginePaths) -> list[Plant]:
    """Return the planted entries below the directories of a cluster. Raises :class:`UnknownState` if they cannot be read."""
    return [*_looked(_in_the_way, paths), *_looked(_forged, paths)]


def _looked(look: t.Callable[[EnginePaths], list[Plant]], paths: EnginePaths) -> list[Plant]:
    try:
        return look(paths)
    except OSError as error:
        raise UnknownState(f"{error.filename} cannot be read: {error.strerror}", remedy=BECOME, reason="permission") from error


def _forged(paths: EnginePaths) -> list[Plant]:
    """Return the entries that consent overrides: a record of another form, and a wrong entry in place of the directory of kept logs, which are skipped then."""
    broken = []
    try:
        read_run(os.path.join(paths.run, RUN_NOTE))
    except untrusted.Tampered:
        pass  # see _in_the_way
    except UnknownState as error:
        broken = [Plant(paths.run, RUN_NOTE, str(error))]
    return [*broken, *_judged(paths.log, [KEPT_LOGS], _directory)]


def _in_the_way(paths: EnginePaths) -> list[Plant]:
    """Return the entries that prevent an engine from starting, or its logs and caches from being written."""
    logs = [f"{ENGINE_LOGS}/{name}" for name in _names(paths.log, ENGINE_LOGS) if LOGS.fullmatch(name)]
    caches = [f"{image}/{name}" for image in _names(paths.cache) for name in CACHES]
    every = [
        *_judged(paths.run, [CONFIG], _directory),
        *_judged(paths.run, NOTES, _note),
        *_judged(paths.log, [ENGINE_LOGS], _directory),
        *_judged(paths.log, logs, _log),
        *_judged(paths.cache, caches, _directory),
    ]
    return list(dict.fromkeys(every))


def check(paths: EnginePaths) -> None:
    """Raise :class:`untrusted.Tampered` for a planted entry, with its origin and the remedy."""
    plants = _looked(_in_the_way, paths)
    if not plants:
        return
    first, others = plants[0], [plant.whole for plant in plants[1:]]
    made_of, order = (read_side(os.path.join(paths.launch, name)) for name in (MADE_OF, ORDER))
    run = f"run {order['run_id']}" if order.get("run_id") else "no run of an engine"
    image = f"image {made_of['image']} ({made_of['image_id']})" if made_of.get("image") else "an image that no note names"
    more = f", as were {', '.join(others[:3])}{f' and {len(others) - 3} more' if len(others) > 3 else ''}" if others else ""
    raise untrusted.Tampered(first.whole, f"{first.what}{more}; by root in a container of {image}, {run}")


def _is_odd(entry: untrusted.Entry) -> bool:
    """Return whether an entry is neither a directory nor a plain file with one name."""
    mode = entry.status.st_mode
    plain = stat.S_ISREG(mode) and entry.status.st_nlink == 1 and not mode & (stat.S_ISUID | stat.S_ISGID)
    return not plain and not stat.S_ISDIR(mode)


def _remove(top: str, relative: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        mode = os.lstat(os.path.join(top, relative)).st_mode
        (untrusted.remove_tree if stat.S_ISDIR(mode) else untrusted.remove)(top, relative)


def clear(paths: EnginePaths) -> None:
    """Remove planted entries once no container writes there any more: all records, caches with an odd entry, and only the odd entries among the logs.

    Raises OSError.
    """
    for plant in found(paths):
        # All caches of that image are removed: the others are useless without it.
        _remove(plant.top, plant.path.partition("/")[0] if plant.top == paths.cache else plant.path)
    for entry in [*untrusted.walk(paths.log, ENGINE_LOGS)] if os.path.isdir(paths.engine_log) else []:
        if _is_odd(entry):
            _remove(paths.log, f"{ENGINE_LOGS}/{entry.path}")
    for name in _names(paths.run):
        _remove(paths.run, name)
    for image in _names(paths.cache):
        if any(map(_is_odd, untrusted.walk(paths.cache, image))):
            _remove(paths.cache, image)
