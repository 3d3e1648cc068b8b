# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs a long module as a job on its node, while the controller prints its progress. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import base64
import json
import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.module_utils._files import copy_job
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock
from ansible_collections.gb10.cluster.plugins.plugin_utils._progress.progress import Progress

#: Seconds until the node is first polled; later polls wait for this share of the elapsed time, up to this maximum. Short work thus has a short wait.
FIRST_LOOK, LOOK_SHARE, LOOK_SECONDS = 0.5, 0.25, 15.0
#: Seconds until the first progress line, and between two lines.
FIRST_LINE, LINE_SECONDS = 5.0, 15.0
#: Seconds after the module's own limit at which the job is given up.
MARGIN = 60
#: Keys that the status of a job adds to the module's result.
OF_JOB = ("ansible_job_id", "finished", "results_file", "started", "stderr", "stderr_lines", "stdout", "stdout_lines")

display = Display()


class NodeJob(ActionBase):
    """Runs a module as an asynchronous job on its node, and prints progress lines.

    ``MODULE`` is the module, ``DOING`` its activity in the lines, ``LOST`` the remedy when the job does not end. ``TIMEOUT`` and ``STATE_DIR`` are the
    defaults of its options, and ``KIND`` names its note.
    """

    MODULE = ""
    DOING = ""
    LOST = ""
    TIMEOUT = 0
    STATE_DIR = ""
    KIND = ""

    def limit(self) -> int:
        """Return the seconds that the module itself may take."""
        return int(self._task.args.get("timeout") or self.TIMEOUT)

    def note(self) -> str:
        """Return the path of the progress note on the node, a file with ``{"text": …}``."""
        return copy_job.note_path(self._task.args.get("state_dir") or self.STATE_DIR, self.KIND, self._task.args.get("cluster_name") or "gb10")

    def is_short(self) -> bool:
        """Return whether the job is short enough to run without progress lines."""
        return bool(self._task.check_mode)

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        self._vars = task_vars or {}
        if self.is_short():
            return self._execute_module(self.MODULE, task_vars=self._vars)
        limit = self.limit() + MARGIN
        self._task.async_val = limit
        try:
            job = self._execute_module(self.MODULE, task_vars=self._vars, wrap_async=True)
        finally:
            # Otherwise Ansible would wait for the job again.
            self._task.async_val = 0
        if job.get("failed") or "ansible_job_id" not in job:
            return job
        return self._watch(job["ansible_job_id"], limit)

    def _watch(self, job: str, limit: int) -> dict[str, t.Any]:
        """Wait for the job and return its result."""
        progress = Progress(str(self._vars["inventory_hostname"]), display.display)
        next_look, next_line = FIRST_LOOK, FIRST_LINE
        for elapsed in clock(limit, FIRST_LOOK):
            if elapsed < min(next_look, limit):
                continue
            next_look = elapsed + min(LOOK_SHARE * elapsed, LOOK_SECONDS)
            status = self._job(job, "status")
            if status.get("finished"):
                self._job(job, "cleanup")
                return {key: value for key, value in status.items() if key not in OF_JOB}
            if elapsed < next_line:
                continue
            next_line = elapsed + LINE_SECONDS
            text = self._text()
            if text:
                progress.update(self.DOING, text, "", None, elapsed)
        return {"failed": True, "msg": f"{self.DOING} did not end within {limit} s", "remedy": self.LOST}

    def _job(self, job: str, mode: str) -> dict[str, t.Any]:
        folder = self._remote_expand_user(self.get_shell_option("async_dir", default="~/.ansible_async"))
        return self._execute_module("ansible.legacy.async_status", module_args={"jid": job, "mode": mode, "_async_dir": folder}, task_vars=self._vars)

    def _text(self) -> str:
        """Return the text of the progress note, empty when there is no note yet."""
        answer = self._execute_module("ansible.legacy.slurp", module_args={"src": self.note()}, task_vars=self._vars)
        try:
            return str(json.loads(base64.b64decode(answer["content"]))["text"])
        except (KeyError, TypeError, ValueError):
            return ""
