# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A cluster's lock on one node, held by a unit while it changes something. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import os
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._lock.lock_holder import lock_holder
from ansible_collections.gb10.cluster.plugins.module_utils._unit import steps
from ansible_collections.gb10.cluster.plugins.module_utils._unit.journal import say

#: Seconds for one run of the module.
SECONDS = 30.0


class Lock:
    """The lock of the cluster of ``given``, held by ``unit`` as a service. ``run`` runs a module.

    ``id`` is empty while the unit does not hold it. ``within`` is True inside :meth:`held`, also while a wait has released it.
    """

    def __init__(self, given: t.Mapping[str, t.Any], unit: str, run: steps.Run) -> None:
        self._run = run
        self._holder = lock_holder(os.getpid(), service=unit)
        self._common = {"cluster_name": given["cluster"], "state_dir": given["state_dir"], "log_dir": given["log_dir"], "holder": self._holder}
        self.id = ""
        self.within = False

    def _set(self, state: str, **more: str) -> steps.Result:
        return self._run("cluster_lock", {**self._common, "state": state, **more}, SECONDS, False)

    def take(self) -> None:
        """Take the lock unless the unit holds it. Raises :class:`ClusterError` when a run works on the cluster."""
        if self.id:
            return
        result = self._set("acquired")
        before = (result.get("lock") or {}).get("holder") or {}
        if result.get("failed") and all(before.get(word) == self._holder[word] != "" for word in ("service", "machine")):
            # systemd runs one instance of this unit at a time, so the holder was an instance of an earlier boot.
            result = self._set("acquired", break_lock=result["lock"]["id"])
        self.id = steps.require("lock", result)["lock"]["id"]

    def refused(self) -> ClusterError | None:
        """Take the lock; return the error that names the run which holds it, None when the unit holds it. Raises any other :class:`ClusterError`."""
        try:
            self.take()
        except ClusterError as error:
            if error.reason != cluster_locks.HELD:
                raise
            return error
        return None

    def release(self) -> None:
        """Release the lock if the unit holds it. A failure is logged, and the next call tries again."""
        if not self.id:
            return
        try:
            steps.require("lock", self._set("released"))
            self.id = ""
        except ClusterError as error:
            say(str(error))

    @contextlib.contextmanager
    def held(self) -> t.Iterator[None]:
        """Hold the lock; a wait meanwhile may release it and take it again. Raises what :meth:`take` raises."""
        self.take()
        self.within = True
        try:
            yield
        finally:
            self.within = False
            self.release()
