# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of vllm_serve: runs the module once, then looks at the node until a token came back or something failed.

The instances on head and workers run at once. Each looks at its own node alone; what decides for all (the first failure, or
the head's token) they tell each other through a :class:`Meeting`.
"""

from __future__ import annotations

import contextlib
import signal
import textwrap
import time
import typing as t

from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._module import complete
from ansible_collections.gb10.cluster.plugins.module_utils._serve_spec import ARGUMENT_SPEC
from ansible_collections.gb10.cluster.plugins.module_utils._vllm_args import served_name
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock
from ansible_collections.gb10.cluster.plugins.plugin_utils._failures import Diagnosis
from ansible_collections.gb10.cluster.plugins.plugin_utils._meeting import Meeting
from ansible_collections.gb10.cluster.plugins.plugin_utils._progress import Progress, minutes

MODULE = "gb10.cluster.vllm_serve"
INFO = "gb10.cluster.vllm_serve_info"

#: Seconds that one look at a node may take: a lost connection can hang for ever.
LOOK_SECONDS = 30
#: How often an instance listens to the others for each look at its own node: listening costs nothing.
HEEDS_PER_LOOK = 8
#: Seconds for which looks may fail one after the other before that counts as the node's failure.
TROUBLE_SECONDS = 60.0
#: Seconds that a worker waits for the head's instance of the task to begin.
JOIN_SECONDS = 60.0
#: Seconds that a worker waits longer than the head, so that it is the head's message that counts.
WORKER_MARGIN = 60.0

#: Characters of a log's line that a message holds; the whole line is in the findings.
LINE_LENGTH = 300

display = Display()

Look = dict[str, t.Any]


class LookTimeout(AnsibleError):
    """A look at a node took too long."""


@contextlib.contextmanager
def time_limit(seconds: int) -> t.Iterator[None]:
    """Raise :class:`LookTimeout` in the block after ``seconds``; a task with a ``timeout`` of its own keeps its alarm."""
    if signal.getsignal(signal.SIGALRM) not in (signal.SIG_DFL, None):
        yield
        return

    def ring(_number: int, _frame: object) -> t.NoReturn:
        raise LookTimeout(f"no answer within {seconds} s")

    signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def container_trouble(node: str, container: dict[str, t.Any], elapsed: float) -> ClusterError | None:
    """Return what is wrong with the node's container, None when it runs."""
    if container["running"]:
        return None
    if not container["exists"]:
        return ClusterError(f"the container of node {node} is gone {minutes(elapsed)} after the start", remedy="Bring it up again: --tags ray")
    memory = ", ended by the kernel for want of memory" if container["oom_killed"] else ""
    return ClusterError(
        f"container {container['name']} of node {node} ended with exit code {container['exit_code']}{memory} {minutes(elapsed)} after the start",
        remedy=f"See docker logs {container['name']} on {node}, then bring it up again: --tags ray",
    )


def engine_trouble(node: str, engine: dict[str, t.Any], diagnosis: Diagnosis) -> ClusterError:
    """Return why an engine that is no more ended: how, and the line of its log that says why."""
    hint = ""
    if engine["exit_code"] is not None:
        how = f"ended with exit code {engine['exit_code']}"
    elif engine["exit_signal"] is not None:
        how = f"was ended by {signal.Signals(engine['exit_signal']).name}"
        hint = "A SIGKILL that nobody sent comes from the kernel, for want of memory: journalctl -k. " if engine["exit_signal"] == signal.SIGKILL else ""
    else:
        how = "is gone, and nothing noted how it ended"
    return log_trouble(node, f"the engine on {node} {how}", diagnosis, engine, hint)


def log_trouble(node: str, what: str, diagnosis: Diagnosis, engine: dict[str, t.Any], hint: str = "") -> ClusterError:
    """Return a failure with the log's evidence: cause, line, remedy and the log's place."""
    fatal = diagnosis.fatal
    cause = f" ({fatal.signature.cause})" if fatal and fatal.signature.rank_scope == "cause" else ""
    line = f": {textwrap.shorten(diagnosis.line, LINE_LENGTH, placeholder=' …')}" if diagnosis.line else "; its log names no error"
    known = f"{fatal.signature.remedy} " if fatal else ""
    matches = [*([fatal] if fatal else []), *diagnosis.warnings]
    return ClusterError(
        f"{what}{cause}{line}",
        remedy=f"{known}{hint}The whole log is {engine['log_path']} on {node}.",
        reason=fatal.signature.id if fatal else "",
        findings=[match.finding(node) for match in matches],
        log_lines=list(diagnosis.tail),
    )


class ActionModule(ActionBase):
    """Serves, and waits for the first token on all nodes at once."""

    _requires_connection = True
    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        self._vars = task_vars or {}
        self._node = str(self._vars["inventory_hostname"])
        self._started = time.monotonic()
        _result, options = self.validate_argument_spec(ARGUMENT_SPEC)
        if options["state"] == "stopped" or not options["wait"] or self._task.check_mode:
            return self._execute_module(MODULE, task_vars=self._vars)
        meeting = Meeting(C.DEFAULT_LOCAL_TMP, self._task._uuid, self._node, options["node_role"])
        meeting.join()
        try:
            return self._serve(meeting, options)
        finally:
            meeting.leave()

    def _serve(self, meeting: Meeting, options: dict[str, t.Any]) -> dict[str, t.Any]:
        """Run the module, wait, and return the result; whatever goes wrong here is told to the others."""
        result: dict[str, t.Any] = {}
        try:
            result = self._execute_module(MODULE, task_vars=self._vars)
            if result.get("failed"):
                meeting.fail(str(result.get("msg", "")))
                return result
            wait = self._wait_worker if options["node_role"] == "worker" else self._wait_head
            result.update(wait(meeting, options, result))
        except ClusterError as error:
            return self._failed(meeting, result, error)
        except AnsibleError as error:
            meeting.fail(str(error))
            raise
        return complete({**result, "failed": False}, self._started)

    def _failed(self, meeting: Meeting, result: dict[str, t.Any], error: ClusterError) -> dict[str, t.Any]:
        """Return the failed result, with what was changed until then, and tell the others unless one of them failed first."""
        first = meeting.fail(str(error))
        failure = {"msg": str(error), "verdict": error.verdict, "remedy": error.remedy, "reason": error.reason, **error.details}
        done = {key: value for key, value in result.items() if key != "engine_live"}
        return complete({**done, **failure, "failed": True, "failed_node": first.node}, self._started)

    # -- one look ----------------------------------------------------------------------------------------------------

    def _look(self, options: dict[str, t.Any], **more: t.Any) -> Look:
        """Return one look at this node. Raises :class:`UnknownState` when there was none, :class:`ClusterError` on a refusal."""
        shared = ("cluster_name", "node_role", "state_dir", "log_dir", "docker_socket", "docker_timeout")
        try:
            with time_limit(LOOK_SECONDS):
                look = self._execute_module(INFO, module_args={**{name: options[name] for name in shared}, **more}, task_vars=self._vars)
        except (AnsibleConnectionFailure, LookTimeout) as error:
            words = " ".join(str(error).split())
            raise UnknownState(f"node {self._node} does not answer: {words}", reason="connection") from error
        if not look.get("failed"):
            return look
        kind = ClusterError if look.get("verdict") == "block" else UnknownState
        raise kind(f"node {self._node}: {look.get('msg')}", remedy=look.get("remedy", ""), reason=look.get("reason", ""))

    def _looks(self, meeting: Meeting, options: dict[str, t.Any], timeout: float, more: t.Callable[[], dict[str, t.Any]]) -> t.Iterator[tuple[float, Look]]:
        """Yield (seconds since the task began, look) until the head succeeded or ``timeout`` is over; another node's failure raises.

        Looks that fail are made again for a bounded time: a connection may come back.
        """
        trouble_since: float | None = None
        next_look = 0.0
        for elapsed in clock(timeout, options["wait_sleep"] / HEEDS_PER_LOOK):
            self._heed(meeting)
            if meeting.success():
                return
            if elapsed < min(next_look, timeout):
                continue
            try:
                look = self._look(options, **more())
            except UnknownState as error:
                trouble_since = elapsed if trouble_since is None else trouble_since
                if elapsed - trouble_since >= TROUBLE_SECONDS:
                    raise
                display.vv(f"{self._node}: {error}")
                self._reset_connection()
            else:
                trouble_since = None
                self._heed(meeting)
                yield time.monotonic() - self._started, look
            next_look = elapsed + options["wait_sleep"]

    def _heed(self, meeting: Meeting) -> None:
        """End this node's wait when another node failed first."""
        failure = meeting.failure()
        if failure and failure.node != self._node:
            raise ClusterError(
                f"ended because {failure.node} failed: {failure.message}", remedy=f"See what {failure.node} says.", reason="another node failed"
            )

    def _reset_connection(self) -> None:
        """A multiplexed connection that hangs would fail the next look too."""
        try:
            with time_limit(LOOK_SECONDS):
                self._connection.reset()
        except (AnsibleError, NotImplementedError) as error:
            display.vvv(f"{self._node}: the connection cannot be reset: {error}")

    # -- head --------------------------------------------------------------------------------------------------------

    def _wait_head(self, meeting: Meeting, options: dict[str, t.Any], started: dict[str, t.Any]) -> dict[str, t.Any]:
        """Watch the engine until it generated a token; returns what the result gains."""
        progress, diagnosis = Progress(self._node, display.display), Diagnosis()
        offset, healthy_at, suspected = 0, None, False
        probe = {"probe": True, "model": served_name(options["model"], options["arguments"]), "api_key_file": options["api_key_file"]}
        first_look = True
        for elapsed, look in self._looks(
            meeting, options, options["wait_timeout"], lambda: {**probe, "log_offset": offset, "log_run_id": started["run_id"]}
        ):
            trouble = container_trouble(self._node, look["container"], elapsed)
            if trouble:
                raise trouble
            engine, offset = look["engine"], look["log_offset"]
            diagnosis.feed(look["log_lines"])
            progress.update(look["stage"], look["shards"], look["memory_available_mb"], elapsed)
            if look["completion"]:
                return self._ready(meeting, started, look, diagnosis, already=first_look and not started["changed"])
            if not engine["live"]:
                raise engine_trouble(self._node, engine, diagnosis)
            # The line that names the cause may follow its echo: what is suspected now is judged at the next look.
            if diagnosis.fatal and suspected:
                raise log_trouble(self._node, f"the engine on {self._node} cannot serve", diagnosis, engine)
            suspected = diagnosis.fatal is not None
            healthy_at = healthy_at or (elapsed if look["healthy"] else None)
            if healthy_at is not None and elapsed - healthy_at > options["first_token_timeout"]:
                what = f"the engine on {self._node} answers /health but generated no token within {options['first_token_timeout']} s"
                raise log_trouble(self._node, what, diagnosis, engine)
            first_look = False
        raise WaitTimeout(
            f"no token within {options['wait_timeout']} s; last seen on {self._node}: {progress.stage or 'nothing'}"
            + (f": {diagnosis.line}" if diagnosis.line else ""),
            remedy=f"See {started['log_path']} on {self._node}; if the start only needs longer, raise wait_timeout.",
            log_lines=list(diagnosis.tail),
        )

    def _ready(self, meeting: Meeting, started: dict[str, t.Any], look: Look, diagnosis: Diagnosis, already: bool) -> dict[str, t.Any]:
        """Return the proof: which engine, how long its start took, how long its first token."""
        proof = look["completion"]
        seconds = None if already else look["engine"]["seconds"]
        told = "the engine served already" if already else f"ready after {minutes(seconds)}"
        meeting.succeed(f"{started['endpoint']}: {told}")
        display.display(f"{self._node}: {told}, first token in {proof['seconds']:.2f} s, {started['endpoint']}")
        return {
            "msg": f"{told}; {proof['tokens']} token generated by vLLM {look['engine_version']} in {proof['seconds']:.2f} s",
            "engine_version": look["engine_version"],
            "seconds_to_ready": seconds,
            "seconds_to_first_token": proof["seconds"],
            "engine_live": True,
            "findings": [match.finding(self._node) for match in diagnosis.warnings],
        }

    # -- worker ------------------------------------------------------------------------------------------------------

    def _wait_worker(self, meeting: Meeting, options: dict[str, t.Any], _started: dict[str, t.Any]) -> dict[str, t.Any]:
        """Watch this node's container until the head says how it ended; returns what the result gains."""
        progress = Progress(self._node, display.display)
        for elapsed, look in self._looks(meeting, options, options["wait_timeout"] + WORKER_MARGIN, dict):
            trouble = container_trouble(self._node, look["container"], elapsed)
            if trouble:
                raise trouble
            self._check_head(meeting, elapsed)
            progress.update("container up", "", look["memory_available_mb"], elapsed)
        success = meeting.success()
        if success:
            return {"msg": f"{success.node}: {success.message}"}
        raise WaitTimeout(f"the head said nothing for {options['wait_timeout'] + WORKER_MARGIN:g} s", remedy="Look at the head's part of this task.")

    def _check_head(self, meeting: Meeting, elapsed: float) -> None:
        """Raise :class:`ClusterError` when no word of the head can be expected any more."""
        if meeting.head() is None and elapsed > JOIN_SECONDS:
            raise ClusterError(
                f"the head's part of this task did not begin within {JOIN_SECONDS:g} s",
                remedy="Run head and workers in one play, with as many forks as nodes and without serial; see whether the head failed before.",
            )
        if meeting.head_gone() and not meeting.failure() and not meeting.success():
            raise ClusterError(f"the head's part of this task ({meeting.head()}) ended without a word", remedy="Look at the head's messages above.")
