# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of cluster_lock: identifies this run, locks the nodes in a fixed order, and takes over the lock of an ended run of this controller."""

from __future__ import annotations

import os
import time
import typing as t

from ansible import constants as C
from ansible.plugins.action import ActionBase

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._lock.lock_holder import Place, lock_holder, why_ended
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.run_board import RunBoard

MODULE = "gb10.cluster.cluster_lock"

#: Topics that the instances publish: a node's sort key, and that it is locked.
ORDER, LOCKED = "order", "locked"

#: Seconds for all nodes to join, and for each to be locked.
ORDER_SECONDS = 120.0
LOCK_SECONDS = 120.0


def before(node: str, published: t.Mapping[str, t.Mapping[str, t.Any]]) -> set[str]:
    """Return the nodes that are locked before ``node``, by their published sort keys."""
    key = {name: (entry["order"], name) for name, entry in published.items()}
    return {name for name in key if key[name] < key[node]}


class ActionModule(ActionBase):
    """Runs the module, and again with break_lock when the run that has the lock is known to have ended."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        base = super().run(tmp, task_vars)
        self._vars = task_vars or {}
        # Every task runs in a worker process. Its parent, ansible-playbook, and that process's directory are the same for the whole run.
        me = lock_holder(os.getppid(), str(self._vars.get("ansible_play_name", "")), os.path.basename(C.DEFAULT_LOCAL_TMP))
        args = {"holder": me, **self._task.args}
        if args.get("state", "acquired") != "acquired":
            return {**base, **self._lock(args)}
        result = {**base, **self._acquire(args)}
        if result.get("failed") or "path" in args:
            return result
        # From here on the run may change something, so the last verdict no longer counts. The lock of a mode has its own path.
        unknown = {"data": {"gb10_verdict": "unknown"}, "per_host": False, "aggregate": False}
        return {**result, "ansible_stats": unknown, "finished_at": time.time()}

    def _acquire(self, args: dict[str, t.Any]) -> dict[str, t.Any]:
        """Lock this node. Several nodes are locked one after the other."""
        nodes = args.get("nodes") or []
        if len(nodes) < 2:
            return self._lock(args)
        node = str(self._vars["inventory_hostname"])
        board = RunBoard(C.DEFAULT_LOCAL_TMP, self._task._uuid, node, "node")
        board.join()
        try:
            return self._lock_in_turn(board, node, len(nodes), args)
        except ClusterError as error:
            board.fail(str(error))
            return {"failed": True, "msg": str(error), "verdict": error.verdict, "remedy": error.remedy, "reason": error.reason}
        finally:
            board.leave()

    def _lock_in_turn(self, board: RunBoard, node: str, count: int, args: dict[str, t.Any]) -> dict[str, t.Any]:
        """Lock this node after all nodes before it. Raises :class:`ClusterError` without trying when another node could not be locked."""
        board.publish(ORDER, {"order": str(args.get("order") or "")})
        everybody = board.wait_for(ORDER, ORDER_SECONDS, lambda published: len(published) >= count, count)
        first = before(node, everybody)
        board.wait_for(LOCKED, LOCK_SECONDS, lambda published: first <= published.keys(), count)
        result = self._lock(args)
        if result.get("failed"):
            board.fail(str(result.get("msg", "")))
        else:
            board.publish(LOCKED, {})
        return result

    def _lock(self, args: dict[str, t.Any]) -> dict[str, t.Any]:
        """Run the module on this node, and again when the run that has the lock is known to have ended."""
        result = self._execute_module(module_name=MODULE, module_args=args, task_vars=self._vars)
        lock = result.get("lock")
        # In check mode a refusal is a warning.
        refused = result.get("failed") or result.get("verdict") == "warn"
        why = why_ended(lock["holder"], Place.here()) if refused and lock and args.get("state") != "held" else ""
        if not why:
            return result
        again = self._execute_module(module_name=MODULE, module_args={**args, "break_lock": lock["id"]}, task_vars=self._vars)
        if again.get("taken_over"):
            again["reason"] = again["msg"] = f"{again['reason']}: {why}"
        return again
