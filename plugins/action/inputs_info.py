# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible import context

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

from ansible_collections.gb10.cluster.plugins.action import judge
from ansible_collections.gb10.cluster.plugins.module_utils._module import problem_finding
from ansible_collections.gb10.cluster.plugins.module_utils._redact import cleaned
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs import cluster, inputs, secrets, settings, tags
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import profiles
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Outcome

#: Values that the role gb10 computes from the settings, by their names there.
DERIVED = ("env", "own_names", "repositories")
#: Further values that it computes once the executor is known. For some profiles only the image determines the executor.
DERIVED_BY_EXECUTOR = ("executor_choice", "serve_arguments")
#: Options of the action judge for showing the problems of the command line.
REFUSING = {"silenced": (), "show": "problems", "nodes": (), "note": "", "fail": True, "fail_on_block": True, "fail_on_warn": False}


#: How to find the file that Ansible could not read.
PLACE = "ansible-inventory -i INVENTORY --list names the file and the line"


class ActionModule(ActionBase):
    """Evaluates each setting of the host on its own, so that a failure names the setting. Runs only on the controller."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        dummy, arguments = self.validate_argument_spec(
            argument_spec={
                "passwords_of": {"type": "list", "elements": "str"},
                "role": {"type": "str"},
                "known": {"type": "list", "elements": "str", "default": []},
                "profile": {"type": "bool", "default": True},
            },
        )
        role, passwords_of = arguments["role"], arguments["passwords_of"]
        if role or passwords_of is not None:
            findings = self._command_line(task_vars, task_vars if role else self._given(), arguments["known"])
            findings += self._passwords(task_vars["hostvars"], passwords_of or [])
            findings += self._role(task_vars, role, arguments["profile"]) if role else []
            if findings:
                return judge.show(Outcome("Inputs", cleaned(findings, {})), REFUSING, [])
            answer = {"findings": findings}
        else:
            answer = self._settings(task_vars, arguments["profile"])
        result = {
            "changed": False,
            "msg": table.counts(answer["findings"]),
            "verdict": table.worst(answer["findings"]),
            "remedy": "",
            "reason": "",
            "actions": [],
            **answer,
        }
        # A finding refuses a setting that contains a secret, without showing its value.
        return cleaned(result, {})

    def _given(self):
        """Return the variables that the command line or a job controller sets."""
        return load_extra_vars(self._loader)

    def _command_line(self, task_vars, names, known):
        """Return findings about the names of these variables and about the run's tags."""
        given, books, run_tags = self._given(), context.CLIARGS.get("args", ()), task_vars.get("ansible_run_tags", ())
        problems = [
            *settings.unknown_settings(names, given, known),
            *tags.problems(books, run_tags, task_vars.get("ansible_skip_tags", ())),
            *tags.unwritten(books, run_tags, given.get("gb10_to")),
        ]
        return [problem_finding(problem, table.CONTROLLER) for problem in problems]

    def _role(self, task_vars, role, with_profile):
        """Return findings about the settings that a role reads, as far as they are set."""
        evaluated, failures = self._evaluate(task_vars, settings.read_by(role))
        return inputs.judge_role(role, table.CONTROLLER, evaluated, failures, profiles.roots(task_vars), with_profile)

    def _settings(self, task_vars, with_profile):
        """Return the settings of this host, with the profile if wanted, and how Ansible connects to it."""
        missing = sorted(set(settings.settings()) - set(task_vars))
        if missing:
            remedy = "include the role gb10.cluster.gb10 before, or gb10.cluster.engine with tasks_from: validate"
            raise AnsibleActionFail(f"not defined: {', '.join(missing)}. Remedy: {remedy}")
        host = task_vars["inventory_hostname"]
        evaluated, failures = self._evaluate(task_vars, settings.settings())
        # A default that is computed from another setting fails with it. Only the setting that was set has to be corrected.
        derived = {name for name in failures if isinstance(task_vars[name], str) and task_vars[name] == settings.settings()[name].get("default")}
        own = {name: failure for name, failure in failures.items() if name not in derived}
        login, dummy = self._evaluate(task_vars, ("ansible_connection", "ansible_host", "ansible_port", *secrets.KEY_FILES))
        judged = inputs.judge_host(host, evaluated, own or failures, login, list(task_vars), profiles.roots(task_vars), with_profile, self._given())
        return {
            "login": {
                "connection": login.get("ansible_connection", "ssh"),
                "host": login.get("ansible_host", host),
                "port": login.get("ansible_port", 22),
            },
            **judged,
            "derived": self._derived(task_vars, judged["profile"]) if with_profile and table.worst(judged["findings"]) not in table.STOPPING else {},
        }

    def _derived(self, task_vars, profile):
        """Return the values that are computed from valid settings. A value that cannot be computed fails later, where it is needed."""
        computed = task_vars["__gb10_computed"]
        # The values of an earlier play must not count.
        self._templar.available_variables = {**task_vars, "__gb10_derived": {"profile": profile}, "__gb10_by_executor": computed}
        executor = self._templar.template(task_vars["__gb10_executor_asked"])
        return {"profile": profile, **self._evaluate(computed, DERIVED if executor else (*DERIVED, *DERIVED_BY_EXECUTOR))[0]}

    def _passwords(self, hostvars, hosts):
        """Return findings about passwords of other hosts that cannot be evaluated. The passwords themselves are not returned."""
        failures = {}
        for host in hosts:
            try:
                variables = hostvars[host]
            except AnsibleError as error:
                # Ansible reads group_vars and host_vars when they are first used, and this error does not name the file.
                message = str(error).splitlines()[0].rstrip(".")
                failures[host] = {"a file with variables of this host (group_vars or host_vars)": settings.Failure.of(f"{message}; {PLACE}")}
            else:
                failures[host] = self._evaluate(variables, cluster.PASSWORDS)[1]
        return cluster.judge_passwords(failures)

    def _evaluate(self, variables, names):
        """Return the values of the defined variables, and the failures of those that cannot be evaluated."""
        evaluated, failures = {}, {}
        for name in names:
            if name not in variables:
                continue
            try:
                evaluated[name] = self._templar.template(variables[name])
            except AnsibleError as error:
                failures[name] = settings.Failure.of(str(error))
        return evaluated, failures
