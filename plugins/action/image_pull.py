# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of image_pull: has the module run on the node by itself, and says how far it is until it is done."""

from __future__ import annotations

import base64
import json
import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.module_utils._docker import pulling
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.progress import Progress

MODULE = "gb10.cluster.image_pull"

#: Seconds between two looks at the node; the first comes soon, for what is there already.
FIRST_LOOK, LOOK_SECONDS = 1.0, 15.0
#: Seconds beyond the pull's own limit after which the node's job is given up.
MARGIN = 60
#: What the status of a job adds to the module's result.
OF_JOB = ("ansible_job_id", "finished", "results_file", "started", "stderr", "stderr_lines", "stdout", "stdout_lines")

display = Display()


class ActionModule(ActionBase):
    """Runs the module as a job of the node, and prints a line now and then."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        self._vars = task_vars or {}
        if self._task.check_mode:
            return self._execute_module(MODULE, task_vars=self._vars)
        limit = int(self._task.args.get("pull_timeout") or pulling.TIMEOUT) + MARGIN
        self._task.async_val = limit
        try:
            job = self._execute_module(MODULE, task_vars=self._vars, wrap_async=True)
        finally:
            # Else Ansible would wait for the job once more.
            self._task.async_val = 0
        if job.get("failed") or "ansible_job_id" not in job:
            return job
        return self._watch(job["ansible_job_id"], limit)

    def _watch(self, job: str, limit: int) -> dict[str, t.Any]:
        """Return the job's result once it is there."""
        progress = Progress(str(self._vars["inventory_hostname"]), display.display)
        next_look = FIRST_LOOK
        for elapsed in clock(limit, FIRST_LOOK):
            if elapsed < min(next_look, limit):
                continue
            next_look = elapsed + LOOK_SECONDS
            status = self._job(job, "status")
            if status.get("finished"):
                self._job(job, "cleanup")
                return {key: value for key, value in status.items() if key not in OF_JOB}
            text = self._text()
            if text:
                progress.update("pulling", text, "", None, elapsed)
        return {"failed": True, "msg": f"the pull did not end within {limit} s", "remedy": "See on the node: journalctl -u docker --since -10min"}

    def _job(self, job: str, mode: str) -> dict[str, t.Any]:
        folder = self._remote_expand_user(self.get_shell_option("async_dir", default="~/.ansible_async"))
        return self._execute_module("ansible.legacy.async_status", module_args={"jid": job, "mode": mode, "_async_dir": folder}, task_vars=self._vars)

    def _text(self) -> str:
        """Return what the node noted of the pull, empty when it noted nothing yet."""
        path = pulling.note_path(self._task.args.get("state_dir") or pulling.STATE_DIR, self._task.args["image"])
        answer = self._execute_module("ansible.legacy.slurp", module_args={"src": path}, task_vars=self._vars)
        try:
            return str(json.loads(base64.b64decode(answer["content"]))["text"])
        except (KeyError, TypeError, ValueError):
            return ""
