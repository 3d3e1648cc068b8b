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

#: What the role gb10 computes from the settings, by its names there.
DERIVED = ("env", "own_names", "repositories")
#: What else it computes once it is known what spreads the ranks: of some profiles only the image says that.
DERIVED_BY_EXECUTOR = ("executor_choice", "serve_arguments")
#: How the problems of the command line are shown, as options of the action judge.
REFUSING = {"silenced": (), "show": "problems", "nodes": (), "note": "", "fail": True, "fail_on_block": True, "fail_on_warn": False}


#: How to find the file that Ansible could not read.
PLACE = "ansible-inventory -i INVENTORY --list names the file and the line"


class ActionModule(ActionBase):
    """Evaluates each setting of the host on its own, so that one that can't be evaluated is named; runs on the controller alone."""

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
            found = self._command_line(task_vars, task_vars if role else self._given(), arguments["known"])
            found += self._passwords(task_vars["hostvars"], passwords_of or [])
            found += self._role(task_vars, role, arguments["profile"]) if role else []
            if found:
                return judge.show(Outcome("Inputs", cleaned(found, {})), REFUSING, [])
            answer = {"findings": found}
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
        # A setting that holds a secret is refused by a finding; its value is not shown for that.
        return cleaned(result, {})

    def _given(self):
        """The variables that the command line, or a job controller, gives values to."""
        return load_extra_vars(self._loader)

    def _command_line(self, task_vars, names, known):
        """What is wrong with the names among these variables, and with the run's tags."""
        given, books, run_tags = self._given(), context.CLIARGS.get("args", ()), task_vars.get("ansible_run_tags", ())
        problems = [
            *settings.unknown_settings(names, given, known),
            *tags.problems(books, run_tags, task_vars.get("ansible_skip_tags", ())),
            *tags.unwritten(books, run_tags, given.get("gb10_to")),
        ]
        return [problem_finding(problem, table.CONTROLLER) for problem in problems]

    def _role(self, task_vars, role, with_profile):
        """What is wrong with what a role reads, where anybody has set it."""
        evaluated, failures = self._evaluate(task_vars, settings.read_by(role))
        return inputs.judge_role(role, table.CONTROLLER, evaluated, failures, profiles.roots(task_vars), with_profile)

    def _settings(self, task_vars, with_profile):
        """The settings of this host, with the profile where that is wanted, and how Ansible reaches it."""
        missing = sorted(set(settings.settings()) - set(task_vars))
        if missing:
            remedy = "include the role gb10.cluster.gb10 before, or gb10.cluster.engine with tasks_from: validate"
            raise AnsibleActionFail(f"not defined: {', '.join(missing)}. Remedy: {remedy}")
        host = task_vars["inventory_hostname"]
        evaluated, failures = self._evaluate(task_vars, settings.settings())
        # A default that is made from another setting fails with it; the one that was set is the one to correct.
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
        """What follows from sound settings; what can't be computed fails where it is needed, as without this."""
        computed = task_vars["__gb10_computed"]
        # An answer of an earlier play must not count.
        self._templar.available_variables = {**task_vars, "__gb10_derived": {"profile": profile}, "__gb10_by_executor": computed}
        asked = self._templar.template(task_vars["__gb10_executor_asked"])
        return {"profile": profile, **self._evaluate(computed, DERIVED if asked else (*DERIVED, *DERIVED_BY_EXECUTOR))[0]}

    def _passwords(self, hostvars, hosts):
        """What stands in the way of the passwords of other hosts; the passwords themselves stay where they are."""
        failures = {}
        for host in hosts:
            try:
                variables = hostvars[host]
            except AnsibleError as error:
                # Ansible reads group_vars and host_vars when they are first used, and leaves out here which file is wrong.
                said = str(error).splitlines()[0].rstrip(".")
                failures[host] = {"a file with variables of this host (group_vars or host_vars)": settings.Failure.of(f"{said}; {PLACE}")}
            else:
                failures[host] = self._evaluate(variables, cluster.PASSWORDS)[1]
        return cluster.judge_passwords(failures)

    def _evaluate(self, variables, names):
        """The values of those variables that are defined and can be evaluated, and why the others can't."""
        evaluated, failures = {}, {}
        for name in names:
            if name not in variables:
                continue
            try:
                evaluated[name] = self._templar.template(variables[name])
            except AnsibleError as error:
                failures[name] = settings.Failure.of(str(error))
        return evaluated, failures
