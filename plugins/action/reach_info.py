# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import reaching


class ActionModule(ActionBase):
    """Tries the smallest module on the node. What stands in the way is a result: as an error, Ansible would show it once a node, in its own words."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        self.validate_argument_spec(argument_spec={})
        try:
            answer = self._execute_module(module_name="ansible.builtin.ping", task_vars=task_vars)
        except AnsibleError as error:
            said, reached = str(error), False
        else:
            reached = answer.get("ping") == "pong"
            said = " ".join(str(answer.get(part) or "") for part in ("msg", "module_stderr", "module_stdout", "exception"))
        found = {"cause": "", "what": "", "remedy": ""}
        if not reached:
            node = task_vars["inventory_hostname"]
            account = task_vars.get("ansible_user") or self._connection_option("remote_user")
            found = reaching.cause_of(said, node, str(task_vars.get("ansible_host") or node), str(account or ""))
        return {
            "changed": False,
            "reached": reached,
            **found,
            "msg": found["what"],
            "verdict": "pass" if reached else "block",
            "reason": found["cause"],
            "actions": [],
        }

    def _connection_option(self, name):
        """An option of the connection, None where it has none of that name."""
        try:
            return self._connection.get_option(name)
        except (AnsibleError, KeyError):
            return None
