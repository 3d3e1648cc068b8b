# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prints what a calibration collects, and writes the collected data as one anonymous archive. Runs only on the controller."""

from __future__ import annotations

import datetime
import getpass
import os
import pathlib
import platform
import socket

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._redact import SHORTEST_SECRET, read_secret
from ansible_collections.gb10.cluster.plugins.plugin_utils._calibrate import archive, content
from ansible_collections.gb10.cluster.plugins.plugin_utils._calibrate.anonymize import Names
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs.cluster import PASSWORDS
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.collection import collection_version
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.failure import failure_result
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Run, variables_of

display = Display()

#: The variables with the addresses and accounts by which Ansible connects to a node.
LOGIN = {"reached": "ansible_host", "user": "ansible_user", "remote_user": "ansible_ssh_user"}
#: Settings with a path of a secret file on the controller.
SECRET_FILES = ("gb10_api_key_file", "gb10_hf_token_file")


class ActionModule(ActionBase):
    """With ``state: planned`` prints what would be collected; with ``state: written`` writes the nodes' answers."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        dummy, arguments = self.validate_argument_spec(
            argument_spec={
                "state": {"type": "str", "choices": ["planned", "written"], "required": True},
                "path": {"type": "path", "default": ""},
                "profile": {"type": "dict", "default": {}},
                "executor": {"type": "str", "default": ""},
                "logs": {"type": "path", "default": ""},
                "nodes": {"type": "list", "elements": "str", "default": []},
            },
        )
        try:
            result = self._plan(arguments, task_vars) if arguments["state"] == "planned" else self._write(arguments, task_vars)
        except ClusterError as error:
            return {**failure_result(error), "actions": []}
        return {"changed": False, "verdict": "pass", "remedy": "", "reason": "", "actions": [], **result}

    def _plan(self, arguments, task_vars):
        if arguments["path"]:
            archive.require_new(arguments["path"])
        lines = content.plan(task_vars["ansible_run_tags"], arguments["path"])
        display.display("\n".join(["Calibration", *(f"  {line}" for line in lines)]))
        return {"msg": "; ".join(lines)}

    def _write(self, arguments, task_vars):
        now = datetime.datetime.now(datetime.timezone.utc)
        answers = {node: variables_of(self, node, {**content.READS, **LOGIN}) for node in arguments["nodes"]}
        run = Run({}, [], "", task_vars["ansible_run_tags"], task_vars["ansible_skip_tags"], now, self._task.check_mode)
        evidence = content.evidence(answers, arguments["profile"], arguments["executor"], run)
        facts = {
            "taken": now.strftime("%Y-%m-%d"),
            "collection": collection_version(),
            "ansible": task_vars["ansible_version"]["full"],
            "python": platform.python_version(),
            "parts": list(task_vars["ansible_run_tags"]),
        }
        texts, links = content.collected(answers, evidence, facts, logs_in(arguments["logs"]))
        made = content.content(texts, links, self._names(answers, task_vars))
        if self._task.check_mode:
            return {"msg": f"{len(made.texts)} files would be written to {arguments['path']}", "files": sorted(made.texts)}
        size = archive.written(arguments["path"], made)
        gaps = content.missing(answers)
        shown = [f"missing: {gap['what']} of {gap['node']}: {gap['why']}" for gap in gaps if gap["why"] != content.NOT_ASKED]
        lines = [f"{len(made.texts)} files, {size} bytes: {arguments['path']}", *shown]
        display.display("\n".join(["Calibration", *(f"  {line}" for line in lines)]))
        summary = {"path": arguments["path"], "bytes": size, "files": len(made.texts), "nodes": len(answers), "missing": len(gaps)}
        passed_on = {"gb10_calibration": {word: summary[word] for word in ("path", "nodes", "missing")}}
        return {"msg": lines[0], **summary, "ansible_stats": {"data": passed_on, "per_host": False, "aggregate": False}}

    def _names(self, answers, task_vars):
        """Return the identifying words: the names of the nodes, the controller and the users, and the values of secrets."""
        nodes, users, secrets = [], [getpass.getuser()], {}
        for node, answer in answers.items():
            own = [node, str(answer["reached"] or ""), content.recorded(answer)["hostname"]]
            own = [name for name in own if name and not content.is_address(name)]
            nodes.append(tuple(dict.fromkeys([*own, *(name.partition(".")[0] for name in own)])))
            users += [str(answer[word]) for word in ("user", "remote_user") if answer[word]]
            secrets.update(self._secrets(node))
        here = socket.gethostname()
        known = {name for names in nodes for name in names}
        hosts = [name for name in (here, here.partition(".")[0]) if name not in known]
        domains = {name.partition(".")[2] for name in [*known, *hosts] if "." in name}
        return Names(tuple(nodes), tuple(hosts), tuple(dict.fromkeys(users)), tuple(sorted(domains)), content.addresses_of(answers), secrets)

    def _secrets(self, node):
        secrets = {}
        for name in (*PASSWORDS, *SECRET_FILES):
            try:
                value = str(variables_of(self, node, {name: name})[name] or "")
                value = read_secret(os.path.expanduser(value)) if name in SECRET_FILES and value else value
            except (AnsibleError, OSError) as error:
                # A secret that cannot be read here was not sent to a node by this run either.
                display.vvv(f"{node}: {name} is not known here: {error}")
                continue
            if len(value) >= SHORTEST_SECRET:
                secrets[name] = value
        return secrets


def logs_in(directory):
    """Return the texts that node_logs wrote below a directory, by their names in the archive."""
    if not directory:
        return {}
    paths = sorted(path for path in pathlib.Path(directory).glob("*/*/**/*") if path.is_file())
    texts = {}
    for path in paths:
        when, node, *rest = path.relative_to(directory).parts
        texts["/".join((node, "logs", when, *rest))] = path.read_text(encoding="utf-8", errors="replace")
    return texts
