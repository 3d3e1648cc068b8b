# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A unit that this collection writes, and whose a unit file is. This module util is PRIVATE to the collection."""

from __future__ import annotations

import hashlib
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import plain_content
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import ask
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

#: The line by which a unit file is known to be ours; the digest of all lines after it follows.
MARK = "# Written by gb10.cluster, "


def path_of(name: str, etc_root: str) -> str:
    """Return where a unit lies."""
    return os.path.join(etc_root, "systemd", "system", name)


def marked(body: str, mark: str = MARK) -> str:
    """Return a unit's text with the mark that says whose it is, and that nobody edited it since."""
    return f"{mark}sha256 {hashlib.sha256(body.encode()).hexdigest()}\n{body}"


def whose(text: bytes, mark: str = MARK) -> str:
    """Return ``ours``, ``edited`` for one of ours that somebody changed, or ``foreign``."""
    first, _end, body = text.decode("utf-8", "replace").partition("\n")
    if not first.startswith(mark):
        return "foreign"
    return "ours" if marked(body, mark).partition("\n")[0] == first else "edited"


def require_ours(path: str, mark: str = MARK) -> bytes | None:
    """Return the unit file, None when there is none. Raises :class:`ClusterError` for somebody else's, and for one that was edited."""
    there = plain_content(path)
    if there is None and os.path.lexists(path):
        raise ClusterError(f"{path} is not a plain file", remedy=f"Look at it, and remove it when nobody needs it: {path}", reason="foreign unit")
    found = whose(there, mark) if there is not None else "ours"
    if found == "foreign":
        raise ClusterError(f"{path} is not this collection's", remedy=f"Look at it, and remove it when nobody needs it: {path}", reason="foreign unit")
    if found == "edited":
        raise ClusterError(
            f"{path} was edited by hand",
            remedy=f"Move your lines to {path}.d/local.conf, where they stay, remove {path}, and run again.",
            reason="unit edited",
        )
    return there


class Unit(t.NamedTuple):
    """A unit of ours: ``name`` is what is enabled and started, ``paths`` are its unit files, which have ``mark`` in them.

    ``folder`` is where its other files lie, with its program by the name ``archive``. ``why`` returns the reason that its program recorded for not being
    there, empty when it records none.
    """

    name: str
    paths: tuple[str, ...]
    folder: str = ""
    archive: str = ""
    mark: str = MARK
    why: t.Callable[[], str] = str

    @property
    def program(self) -> str:
        """Return where its program lies."""
        return os.path.join(self.folder, self.archive)

    @property
    def path(self) -> str:
        """Return where the file of its own lies."""
        return next(path for path in self.paths if os.path.basename(path) == self.name)

    def require_ours(self) -> dict[str, bytes]:
        """Return those of its files that are there. Raises :class:`ClusterError` for somebody else's, and for one that was edited."""
        found = {path: require_ours(path, self.mark) for path in self.paths}
        return {path: text for path, text in found.items() if text is not None}

    def state(self, timeout: float) -> ask.State:
        """Return what it does; it failed where one of its unit files did. systemd is not asked about one that is not there."""
        if not os.path.lexists(self.path):
            return ask.State()
        found = ask.states(timeout, self.name, *(name for name in map(os.path.basename, self.paths) if name != self.name))
        failed = [one.failed for one in found]
        return found[0]._replace(failed=None if None in failed else any(failed))

    def systemctl(self, timeout: float, *words: str) -> None:
        """Have systemd change something. Raises :class:`ClusterError` when that fails."""
        answer = run_tool(["systemctl", *words], timeout)
        if answer.rc:
            raise ClusterError(
                f"systemctl {' '.join(words)} ended with {answer.rc}: {self.why() or answer.raw[:300]}",
                remedy=f"See on the node: journalctl -u {self.name}",
                reason="unit",
            )
