# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's half of cluster_lock: identifies this run, and takes over from a run of this controller that has ended."""

from __future__ import annotations

import os
import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.gb10.cluster.plugins.plugin_utils._lock.lock_holder import lock_holder, why_ended

MODULE = "gb10.cluster.cluster_lock"


class ActionModule(ActionBase):
    """Runs the module; once more with break_lock when the lock's run is known to have ended."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        base = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        # Every task runs in a worker process; its parent is the ansible-playbook process, the same for the whole run.
        me = lock_holder(os.getppid(), str(task_vars.get("ansible_play_name", "")))
        args = {"holder": me, **self._task.args}

        result = self._execute_module(module_name=MODULE, module_args=args, task_vars=task_vars)
        lock = result.get("lock")
        # In check mode a refusal is a warning.
        refused = result.get("failed") or result.get("verdict") == "warn"
        why = why_ended(lock["holder"], me) if refused and lock else None
        if not why:
            return {**base, **result}

        again = self._execute_module(module_name=MODULE, module_args={**args, "break_lock": True, "only_id": lock["id"]}, task_vars=task_vars)
        if again.get("taken_over"):
            again["reason"] = again["msg"] = f"{again['reason']}: {why}"
        return {**base, **again}
