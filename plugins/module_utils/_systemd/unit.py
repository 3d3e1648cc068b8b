# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The units of this collection, and the owner of a unit file. This module util is PRIVATE to the collection."""

from __future__ import annotations

import hashlib
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import plain_content
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import ask
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

#: The first line of this collection's unit files; the digest of all lines after it follows.
MARK = "# Written by gb10.cluster, "


def path_of(name: str, etc_root: str) -> str:
    """Return the path of a unit file."""
    return os.path.join(etc_root, "systemd", "system", name)


def marked(body: str, mark: str = MARK) -> str:
    """Return a unit's text with the mark that identifies its owner and later edits."""
    return f"{mark}sha256 {hashlib.sha256(body.encode()).hexdigest()}\n{body}"


def whose(text: bytes, mark: str = MARK) -> str:
    """Return ``ours``, ``edited`` for an own one that was edited, or ``foreign``."""
    first, _end, body = text.decode("utf-8", "replace").partition("\n")
    if not first.startswith(mark):
        return "foreign"
    return "ours" if marked(body, mark).partition("\n")[0] == first else "edited"


def require_ours(path: str, mark: str = MARK) -> bytes | None:
    """Return the unit file, None when there is none. Raises :class:`ClusterError` for a foreign or an edited file."""
    content = plain_content(path)
    if content is None and not os.path.lexists(path):
        return None
    owner = whose(content, mark) if content is not None else "foreign"
    if owner == "foreign":
        what = "is not this collection's" if content is not None else "is not a plain file"
        raise ClusterError(f"{path} {what}", remedy=f"Inspect the file. If it is not needed: rm {path}", reason="foreign unit")
    if owner == "edited":
        raise ClusterError(
            f"{path} was edited by hand",
            remedy=f"Move your lines to {path}.d/local.conf, which is kept, remove {path}, and run again.",
            reason="unit edited",
        )
    return content


class Unit(t.NamedTuple):
    """A unit of this collection: ``name`` is enabled and started, ``paths`` are its unit files, which begin with ``mark``.

    ``folder`` contains its other files, its program with the name ``archive`` among them. ``why`` returns the reason that its program recorded for its end,
    empty when there is none.
    """

    name: str
    paths: tuple[str, ...]
    folder: str = ""
    archive: str = ""
    mark: str = MARK
    why: t.Callable[[], str] = str

    @property
    def program(self) -> str:
        """Return the path of its program."""
        return os.path.join(self.folder, self.archive)

    @property
    def path(self) -> str:
        """Return the path of its own unit file."""
        return next(path for path in self.paths if os.path.basename(path) == self.name)

    def require_ours(self) -> dict[str, bytes]:
        """Return its existing unit files. Raises :class:`ClusterError` for a foreign or an edited file."""
        texts = {path: require_ours(path, self.mark) for path in self.paths}
        return {path: text for path, text in texts.items() if text is not None}

    @property
    def others(self) -> list[str]:
        """Return the names of its other unit files that systemd can be asked about: not those of templates."""
        return [name for name in map(os.path.basename, self.paths) if name != self.name and "@." not in name]

    def state(self, timeout: float) -> ask.State:
        """Return its state; it failed where one of its unit files did. systemd is not asked about a missing unit."""
        if not os.path.lexists(self.path):
            return ask.State()
        states = ask.states(timeout, self.name, *self.others)
        failed = [state.failed for state in states]
        return states[0]._replace(failed=None if None in failed else any(failed))

    def systemctl(self, timeout: float, *words: str) -> None:
        """Run a systemctl command. Raises :class:`ClusterError` when it fails."""
        answer = run_tool(["systemctl", *words], timeout)
        if answer.rc:
            raise ClusterError(
                f"systemctl {' '.join(words)} ended with {answer.rc}: {self.why() or answer.raw[:300]}",
                remedy=f"Run on the node: journalctl -u {self.name}",
                reason="unit",
            )
