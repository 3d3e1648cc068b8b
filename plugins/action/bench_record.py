# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._module import complete, finding
from ansible_collections.gb10.cluster.plugins.module_utils._redact import cleaned
from ansible_collections.gb10.cluster.plugins.plugin_utils._bench import history, rows
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.failure import failure_result
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import answered


def failed_cases(results: t.Iterable[dict[str, t.Any]], client: str) -> list[rows.Finding]:
    """Return a finding for each case that was not measured."""
    found = []
    for one in results:
        if not answered(one):
            case = one.get("item") or {}
            name = rows.name_of(case) if case else "a case"
            verdict = one.get("verdict") if one.get("verdict") in ("block", "unknown") else "block"
            said = str(one.get("msg") or "the host was not reached").rstrip(".")
            found.append(finding("bench.case", client, verdict, f"{name}: {said}.", remedy=one.get("remedy") or "see the message, and repeat"))
    return found


class ActionModule(ActionBase):
    """Makes rows of what was measured, compares them with earlier ones, and appends them on the controller."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        started = time.monotonic()
        _result, options = self.validate_argument_spec(
            argument_spec={
                "results": {"type": "list", "elements": "dict", "required": True},
                "about": {"type": "dict", "required": True},
                "samples": {"type": "dict", "default": {}},
                "path": {"type": "path", "default": ""},
            },
        )
        about = options["about"]
        measured = [one for one in options["results"] if answered(one) and one.get("figures")]
        samples = {node: answer if answered(answer) and "samples" in answer else None for node, answer in options["samples"].items()}
        new = [rows.row(one, about, samples) for one in measured]
        try:
            kept = history.record(options["path"], new, self._task.check_mode)
        except ClusterError as error:
            # What was measured is not lost where it cannot be kept.
            return cleaned(complete({**failure_result(error), "rows": new}, started), {})
        findings = [*failed_cases(options["results"], about["client"]), *kept.findings]
        msg = f"{len(new)} row(s)" + (f", appended in {options['path']}" if kept.files else "")
        result = {
            "changed": bool(kept.files),
            "msg": msg,
            "rows": kept.rows,
            "findings": findings,
            "files": kept.files,
            "table": rows.table(kept.rows) if new else [],
        }
        return cleaned(complete(result, started), {})
