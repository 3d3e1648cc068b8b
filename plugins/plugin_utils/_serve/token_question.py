# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Requests the first token in one job on the node while the play continues to watch. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError

INFO = "gb10.cluster.vllm_serve_info"
JOB = "ansible.builtin.async_status"

#: Seconds that one poll of a node may take: a lost connection can hang forever.
POLL_SECONDS = 30

display = Display()


class TokenQuestion:
    """The request for the first token: one job on the node, which continues while polls come and go and connections are lost.

    Kernels are compiled for that token. Short attempts would each be aborted, and each would leave another request in the engine.
    ``ask`` runs a module on the node: ``ask(module, arguments, seconds)``, as a job of at most so many ``seconds`` when these are given.
    """

    def __init__(self, ask: t.Callable[..., dict[str, t.Any]], arguments: dict[str, t.Any], directory: str) -> None:
        self._ask = ask
        self._arguments = {**arguments, "probe": True}
        self._directory = directory
        self._job = ""

    def answer(self) -> dict[str, t.Any] | None:
        """Start the job unless it runs; return the answer with a token, None while there is none. Raises :class:`ClusterError` on a refusal."""
        if not self._job:
            self._job = self._ask(INFO, self._arguments, self._arguments["first_token_timeout"] + POLL_SECONDS)["ansible_job_id"]
        try:
            answer = self._of_job("status")
        except ClusterError as error:
            if error.reason != "connection":
                # The job ended without an answer, and the node still keeps its file.
                self.forget()
            raise
        if not answer["finished"]:
            return None
        self.forget()
        return answer if answer["completion"] else None

    def forget(self) -> None:
        """Remove the job's file from the node."""
        if self._job:
            try:
                self._of_job("cleanup")
            except ClusterError as error:
                # A file of some lines stays; whether the engine serves was decided without it.
                display.vv(f"job {self._job} cannot be cleaned up: {error}")
            self._job = ""

    def _of_job(self, mode: str) -> dict[str, t.Any]:
        return self._ask(JOB, {"jid": self._job, "mode": mode, "_async_dir": self._directory})
