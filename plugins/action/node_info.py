# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of node_info: runs the module, and with ``reach`` returns a result with the reason when it cannot run."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.action.node_state_info import TriesNode

MODULE = "gb10.cluster.node_info"


class ActionModule(TriesNode):
    """Runs the module. If it fails and ``reach`` is set, a smaller module shows whether any module can run there."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        base = super().run(tmp, task_vars)
        if not boolean(self._task.args.get("reach", False)):
            return {**base, **self._look(task_vars)}
        try:
            answer = self._look(task_vars)
        except AnsibleError:
            if (reach := self._reach(task_vars or {}))["reached"]:
                raise
            return {**base, **reach}
        if answer.get("failed") and not (reach := self._reach(task_vars or {}))["reached"]:
            return {**base, **reach}
        return {**base, **answer, "reached": True}

    def _look(self, task_vars: dict[str, t.Any] | None) -> dict[str, t.Any]:
        """Run the module as Ansible runs modules without an action plugin."""
        return self._execute_module(module_name=MODULE, task_vars=task_vars, wrap_async=bool(self._task.async_val))
