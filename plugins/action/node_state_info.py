# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of node_state_info: checks whether Ansible can work on the node, and runs the module if it can."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleError
from ansible.module_utils.common.validation import check_type_list
from ansible.plugins.action import ActionBase

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import reaching

MODULE, REACH = "gb10.cluster.node_state_info", "reach"


class TriesNode(ActionBase):
    """Determines why a module does not run on a node."""

    TRANSFERS_FILES = False

    def _reach(self, task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return whether Ansible can work on the node, which it tests with the smallest module."""
        try:
            answer = self._execute_module(module_name="ansible.builtin.ping", module_args={}, task_vars=task_vars)
        except AnsibleError as error:
            message, reached = str(error), False
        else:
            reached = answer.get("ping") == "pong"
            message = " ".join(str(answer.get(part) or "") for part in ("msg", "module_stderr", "module_stdout", "exception"))
        problem = {"cause": "", "what": "", "remedy": ""}
        if not reached:
            node = task_vars["inventory_hostname"]
            account = task_vars.get("ansible_user") or self._connection_option("remote_user")
            problem = reaching.cause_of(message, node, str(task_vars.get("ansible_host") or node), str(account or ""))
        return {
            "changed": False,
            "reached": reached,
            **problem,
            "msg": problem["what"],
            "verdict": "pass" if reached else "block",
            "reason": problem["cause"],
            "actions": [],
        }

    def _connection_option(self, name: str) -> t.Any:
        """Return an option of the connection, None when it has none of that name."""
        try:
            return self._connection.get_option(name)
        except (AnsibleError, KeyError):
            return None


class ActionModule(TriesNode):
    """Runs the module. With ``reach``, an unreachable node gives a result. As an error, Ansible would show it for each node, with its own message."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        base = super().run(tmp, task_vars)
        args = dict(self._task.args)
        wants = check_type_list(args.get("want") or [])
        if REACH not in wants:
            return {**base, **self._execute_module(module_name=MODULE, module_args=args, task_vars=task_vars)}
        reach = self._reach(task_vars or {})
        args["want"] = [want for want in wants if want != REACH]
        if not reach["reached"] or not args["want"]:
            return {**base, **reach}
        return {**base, **reach, **self._execute_module(module_name=MODULE, module_args=args, task_vars=task_vars)}
