# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools
import json
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.plugin_utils._report import table

display = Display()


class ActionModule(ActionBase):
    """Prints findings as a table and stops on what must stop; runs on the controller alone."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        dummy, arguments = self.validate_argument_spec(
            argument_spec={
                "title": {"type": "str", "required": True},
                "findings": {"type": "list", "elements": "dict"},
                "record": {"type": "dict"},
                "record_path": {"type": "path"},
                "silenced": {"type": "list", "elements": "str", "default": []},
                "show": {"type": "str", "choices": ["all", "problems"], "default": "all"},
                "fail_on_block": {"type": "bool", "default": True},
                "fail_on_warn": {"type": "bool", "default": False},
                "note": {"type": "str", "default": ""},
            },
            required_one_of=[["findings", "record"]],
            mutually_exclusive=[["findings", "record"]],
            required_by={"record_path": ["record"]},
        )
        record = arguments["record"] or {"findings": arguments["findings"], "matrix": {}}
        findings = table.silence(record["findings"], arguments["silenced"])
        if arguments["record_path"] and not self._task.check_mode:
            write(arguments["record_path"], record)
        verdict = table.worst(findings)
        title = f"{arguments['title']}: {table.summary(table.tally(findings, record['matrix']))}"
        shown = findings if arguments["show"] == "all" else [finding for finding in findings if finding["verdict"] != "pass"]
        blocks = [block for block in (table.grid(record["matrix"]), table.render(shown)) if block]
        lines = [f"  {line}".rstrip() for line in itertools.chain.from_iterable((*block, "") for block in blocks)]
        note = ["", *arguments["note"].rstrip().splitlines()] if arguments["note"] else []
        display.display("\n".join(["\n".join([title, *lines]).rstrip(), *note]))
        stopping = (*table.STOPPING, "warn") if arguments["fail_on_warn"] else table.STOPPING if arguments["fail_on_block"] else ()
        stopped = verdict in stopping
        return {
            "changed": False,
            "failed": stopped,
            "msg": table.reasons(findings, stopping) if stopped else title,
            "verdict": verdict,
            # A record has them already, and a failed task prints all it returns.
            **({} if arguments["record"] else {"findings": findings}),
            "remedy": "",
            "reason": title,
            "actions": [],
        }


def write(path, record):
    """Write a record as JSON on the controller, whole or not at all. Raises :class:`AnsibleActionFail` naming the path."""
    place = Path(path)
    beside = place.with_name(f"{place.name}.new")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(f"{json.dumps(record, indent=2, ensure_ascii=False)}\n", encoding="utf-8")
        beside.replace(place)
    except OSError as error:
        raise AnsibleActionFail(f"the verdicts can't be written to {path} on the controller: {error.strerror}") from error
