# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import datetime
import itertools
import json
import time
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.module_utils._files import files
from ansible_collections.gb10.cluster.plugins.module_utils._redact import cleaned
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import registry
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import new_file, table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Outcome, Run, variables_of

display = Display()


class ActionModule(ActionBase):
    """Collects the nodes' answers, judges them, shows the outcome once, and fails if required. Runs only on the controller."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        dummy, arguments = self.validate_argument_spec(
            argument_spec={
                "stage": {"type": "str", "choices": registry.NAMES},
                "nodes": {"type": "list", "elements": "str"},
                "answers": {"type": "dict", "default": {}},
                "settings": {"type": "dict", "default": {}},
                "path": {"type": "path", "default": ""},
                "title": {"type": "str"},
                "findings": {"type": "list", "elements": "dict"},
                "note": {"type": "str"},
                "silenced": {"type": "list", "elements": "str", "default": []},
                "show": {"type": "str", "choices": ["all", "problems"], "default": "all"},
                "fail": {"type": "bool", "default": True},
                "fail_on_block": {"type": "bool", "default": True},
                "fail_on_warn": {"type": "bool", "default": False},
            },
            required_one_of=[["stage", "findings", "note"]],
            mutually_exclusive=[["stage", "findings"]],
            required_together=[["title", "findings"]],
        )
        if arguments["stage"]:
            if arguments["nodes"] is None:
                arguments["nodes"] = self._templar.template(task_vars["__gb10_nodes"])
            outcome = self._judge(arguments, task_vars)
        else:
            outcome = Outcome(arguments["title"] or "", arguments["findings"])
        # The nodes' answers contain no secrets, but a person's settings may.
        outcome = dataclasses.replace(outcome, **cleaned(vars(outcome), {}))
        if not self._task.check_mode:
            for path, content in outcome.files.items():
                if outcome.fresh:
                    write_new(path, content)
                else:
                    write(path, content, outcome.mode)
        return show(outcome, arguments, list(outcome.files) if not self._task.check_mode else [])

    def _judge(self, arguments, task_vars):
        """Return the stage's judgement of the answers of all nodes."""
        stage = registry.stage(arguments["stage"])
        run = Run(
            settings=arguments["settings"],
            silenced=arguments["silenced"],
            path=arguments["path"],
            tags=list(task_vars["ansible_run_tags"]),
            skip_tags=list(task_vars["ansible_skip_tags"]),
            now=datetime.datetime.now(datetime.timezone.utc),
            check_mode=self._task.check_mode,
        )
        names = {**stage.READS, **arguments["answers"]}
        return stage.judge({node: variables_of(self, node, names) for node in arguments["nodes"]}, run)


def show(outcome, arguments, written):
    """Print an outcome, and return the result of the task, which does not repeat what was printed."""
    findings = table.silence(outcome.findings or [], arguments["silenced"])
    numbers = table.tally(findings, outcome.matrix)
    counts = table.summary(numbers)
    verdict = "block" if outcome.failure else table.worst(findings)
    stopping = (*table.STOPPING, "warn") if arguments["fail_on_warn"] else table.STOPPING if arguments["fail_on_block"] else ()
    stops = verdict in stopping
    lines = list(outcome.details if outcome.details and display.verbosity else outcome.lines)
    if outcome.findings is not None:
        where = f" (as JSON in {written[0]})" if written else ""
        shown = [finding for finding in findings if arguments["show"] == "all" or finding["verdict"] != "pass"]
        blocks = [block for block in (table.grid(outcome.matrix), table.render(shown, arguments["nodes"] or ())) if block]
        rows = itertools.chain.from_iterable(("", *block) for block in blocks)
        lines += [f"{outcome.title}{where}: {counts}", *(f"  {row}".rstrip() for row in itertools.islice(rows, 1, None))]
    if arguments["note"]:
        lines += ["", *arguments["note"].rstrip().splitlines()]
    if lines:
        display.display("\n".join(lines))
    msg = f"{outcome.title}: {counts}" if outcome.findings is not None else outcome.title
    if stops:
        where = ", or ".join(["see the table above", *written])
        msg = outcome.failure or f"{outcome.title}: {table.summary({**numbers, 'lowered': 0}, ('block', 'unknown', 'warn'))}; {where}"
    failed = stops and arguments["fail"]
    return {
        "changed": False,
        "failed": failed,
        "stops": stops,
        "msg": msg,
        "verdict": verdict,
        **({"findings": findings} if outcome.findings is not None and not outcome.matrix and not failed else {}),
        **({"ansible_stats": {"data": outcome.stats, "per_host": False, "aggregate": False}} if outcome.stats else {}),
        **outcome.returns,
        # Ansible prints the whole result of a failed task, right below the table with the remedies, so it has no empty keys.
        **({} if failed else {"remedy": "", "reason": "" if stops else msg, "actions": []}),
        "finished_at": time.time(),
    }


def write(path, content, mode):
    """Write JSON on the controller, whole or not at all. Raises :class:`AnsibleActionFail` naming the path."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        files.write_text(path, as_text(content), mode)
    except OSError as error:
        raise AnsibleActionFail(f"{path} can't be written on the controller: {error.strerror}") from error


def as_text(content):
    """Return content as indented JSON. A text is returned unchanged."""
    return content if isinstance(content, str) else f"{json.dumps(content, indent=2, ensure_ascii=False)}\n"


def write_new(path, content):
    """Write JSON to a new file on the controller. Raises :class:`AnsibleActionFail` naming the path."""
    try:
        new_file.create(path, as_text(content).encode())
    except FileExistsError as error:
        raise AnsibleActionFail(f"{path} exists on the controller, and is not replaced. Remedy: name a file that does not exist yet.") from error
    except OSError as error:
        raise AnsibleActionFail(f"{path} can't be written on the controller: {error.strerror}") from error
