# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Removes a node's container: its log is kept, and the end of the removal is awaited. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import glob
import os
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import NotFound
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import private, untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._node import container
from ansible_collections.gb10.cluster.plugins.module_utils._node.container import ExistingContainer
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

if t.TYPE_CHECKING:
    from ansible_collections.gb10.cluster.plugins.module_utils._docker.sdk import Docker

#: The directory of the logs of replaced containers, below that of the logs.
KEPT = "containers"


@contextlib.contextmanager
def local_files() -> t.Iterator[None]:
    """Turn errors of files and directories on the node into the collection's error."""
    try:
        yield
    except OSError as error:
        raise ClusterError(
            f"{error.filename}: {error.strerror}", remedy="Run the task with become: true, or choose other directories (state_dir, log_dir)."
        ) from error


class Remover:
    """Removes containers. ``top`` is the directory of their logs, ``timeout`` and ``sleep`` are the seconds of the wait and between two checks."""

    def __init__(self, docker: Docker, top: str, timeout: float, sleep: float) -> None:
        self.docker, self.top, self.timeout, self.sleep = docker, top, timeout, sleep
        #: Actions in addition to the plan, and failures that do not fail the task.
        self.notes: list[str] = []

    def remove(self, container_id: str) -> None:
        """Remove a container, or wait until another removal of it is done. Raises :class:`ClusterError` when it remains."""
        try:
            self.docker.remove(container_id)
            return
        except NotFound:
            return
        except ClusterError as error:
            if not container.under_removal(error):
                raise
        for _elapsed in clock(self.timeout, self.sleep):
            try:
                self.docker.inspect(container_id)
            except NotFound:
                return
        raise ClusterError(
            f"removing container {container_id[:12]}: Docker began that and has not done it within {self.timeout:g} s",
            remedy="See what holds it: journalctl -u docker --since -10min",
            reason="container remains",
        )

    def keep_log(self, current: ExistingContainer) -> None:
        """Write the log of a container that is about to go below the log directory, and delete the oldest such logs.

        A log that Docker can no longer read, or a full disk, does not prevent the removal: the log is left out, and a note is added.
        """
        name = f"{current.name}-{current.id[:12]}.log"
        folder, new = os.path.join(self.top, KEPT), f".{name}.{os.getpid()}-{time.monotonic_ns()}.new"
        with local_files():
            private.make(self.top)
            try:
                with untrusted.directory(self.top, KEPT, create=True) as kept:
                    self.write_log(current, kept, new, name)
                    # The one just written stays even when a clock that was set back makes it the oldest.
                    others = [other for other in os.listdir(kept) if fnmatch.fnmatchcase(other, f"{glob.escape(current.name)}-*.log") and other != name]
                    ages = [(os.stat(other, dir_fd=kept, follow_symlinks=False).st_mtime, other) for other in others]
                    for other in container.surplus_logs(ages, container.KEPT_LOGS - 1):
                        os.unlink(other, dir_fd=kept)
            except ClusterError as error:
                self.notes.append(f"left the log of {current.name} out: {error}")
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                self.notes.append(f"left the log of {current.name} out: {folder}: {error.strerror}")

    def write_log(self, current: ExistingContainer, kept: int, new: str, name: str) -> None:
        """Write a container's log as ``name`` into an open directory, completely or not at all."""
        try:
            with open(untrusted.create(kept, new), "wb") as handle:
                for part in self.docker.whole_log(current.id):
                    handle.write(part)
            os.replace(new, name, src_dir_fd=kept, dst_dir_fd=kept)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new, dir_fd=kept)
