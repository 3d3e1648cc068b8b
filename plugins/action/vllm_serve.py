# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of vllm_serve: runs the module once, then polls the node until a token came back or something failed.

The instances on head and workers run at once. Each polls only its own node; what decides for all (the first failure, or
the head's token) they publish on a :class:`RunBoard`. Without Ray they also start their ranks together, see :mod:`ranks`.
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

from ansible_collections.gb10.cluster.plugins.module_utils._engine import health
from ansible_collections.gb10.cluster.plugins.module_utils._engine.engine_state import clock_text, end_text
from ansible_collections.gb10.cluster.plugins.module_utils._engine.serve_arguments import served_name
from ansible_collections.gb10.cluster.plugins.module_utils._engine.serve_options import ARGUMENT_SPEC
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._module import complete
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.failures import Diagnosis
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.progress import Progress, minutes
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.ranks import JointStart
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.run_board import AnotherFailed, RunBoard

MODULE = "gb10.cluster.vllm_serve"
INFO = "gb10.cluster.vllm_serve_info"
JOB = "ansible.builtin.async_status"

#: Seconds that one poll of a node may take: a lost connection can hang forever.
POLL_SECONDS = 30
#: How often an instance reads the board for each poll of its own node: reading the board costs nothing.
BOARD_READS_PER_POLL = 20
#: What a result keeps of the last snapshot, for the stages after it.
SEEN = ("engine", "last_end", "container", "api", "engine_version", "completion", "progress", "routes")
#: Options that every look at a node has from the task's.
INFO_OPTIONS = ("cluster_name", "node_role", "state_dir", "log_dir", "docker_socket", "docker_timeout", "fabric_address")
#: What an answer to the question for a token knows that the poll after it does not.
ANSWERED = ("completion", "progress", "routes", "engine_version", "requests_running")
#: Seconds for which polls may fail one after the other before that counts as the node's failure.
UNREACHABLE_SECONDS = 60.0
#: Seconds that a worker waits for the head's instance of the task to begin.
JOIN_SECONDS = 60.0
#: Seconds that a worker waits longer than the head, so that it is the head's message that counts.
WORKER_MARGIN = 60.0

#: Characters of a log's line that a message holds; the whole line is in the findings.
LINE_LENGTH = 300

display = Display()

NodeSnapshot = dict[str, t.Any]


class PollTimeout(AnsibleError):
    """A poll of a node took too long."""


@contextlib.contextmanager
def time_limit(seconds: int) -> t.Iterator[None]:
    """Raise :class:`PollTimeout` in the block after ``seconds``; a task with a ``timeout`` of its own keeps its alarm."""
    if signal.getsignal(signal.SIGALRM) not in (signal.SIG_DFL, None):
        yield
        return

    def ring(_number: int, _frame: object) -> t.NoReturn:
        raise PollTimeout(f"no answer within {seconds} s")

    signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


class TokenQuestion:
    """The question for the first token: one job on the node, which goes on while polls come and go and connections are lost.

    Kernels are compiled for that token. Asked in short attempts, each would be aborted, and leave the engine another request.
    ``ask`` runs a module on the node: ``ask(module, arguments, seconds)``, as a job of at most so many ``seconds`` when these are given.
    """

    def __init__(self, ask: t.Callable[..., dict[str, t.Any]], arguments: dict[str, t.Any], directory: str) -> None:
        self._ask = ask
        self._arguments = {**arguments, "probe": True}
        self._directory = directory
        self._job = ""

    def answer(self) -> NodeSnapshot | None:
        """Ask unless that goes on; return the answer that a token came with, None while there is none. Raises :class:`ClusterError` on a refusal."""
        if not self._job:
            self._job = self._ask(INFO, self._arguments, self._arguments["first_token_timeout"] + POLL_SECONDS)["ansible_job_id"]
        try:
            answer = self._of_job("status")
        except ClusterError as error:
            if error.reason != "connection":
                # It ended without an answer, which the node still keeps.
                self.forget()
            raise
        if not answer["finished"]:
            return None
        self.forget()
        return answer if answer["completion"] else None

    def forget(self) -> None:
        """Remove what the node keeps of the job."""
        if self._job:
            try:
                self._of_job("cleanup")
            except ClusterError as error:
                # A file of some lines stays; whether the engine serves was decided without it.
                display.vv(f"job {self._job} cannot be cleaned up: {error}")
            self._job = ""

    def _of_job(self, mode: str) -> dict[str, t.Any]:
        return self._ask(JOB, {"jid": self._job, "mode": mode, "_async_dir": self._directory})


class EngineLog:
    """This node's log of one run, read on from poll to poll, and its diagnosis."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._offset = 0
        self._suspected = False
        self.diagnosis = Diagnosis()

    @property
    def position(self) -> dict[str, t.Any]:
        """The options of a poll that reads on from here."""
        return {"log_offset": self._offset, "log_run_id": self._run_id}

    def feed(self, snapshot: NodeSnapshot) -> None:
        self._offset = snapshot["log_offset"]
        self.diagnosis.feed(snapshot["log_lines"])

    def is_fatal(self) -> bool:
        """Return whether the engine cannot serve. The line that names the cause may follow its echo, so a suspicion is judged at the next poll."""
        suspected_before, self._suspected = self._suspected, self.diagnosis.fatal is not None
        return suspected_before and self._suspected


def container_trouble(node: str, container: dict[str, t.Any], elapsed: float, executor: str) -> ClusterError | None:
    """Return what is wrong with the node's container, None when it runs."""
    if container["running"]:
        return None
    if not container["exists"]:
        return ClusterError(f"the container of node {node} is gone {minutes(elapsed)} after the start", remedy=f"Bring it up again: --tags {executor}")
    memory = ", killed by the kernel because memory ran out" if container["oom_killed"] else ""
    return ClusterError(
        f"container {container['name']} of node {node} ended with exit code {container['exit_code']}{memory} {minutes(elapsed)} after the start",
        remedy=f"See docker logs {container['name']} on {node}, then bring it up again: --tags {executor}",
    )


class HaltWatch:
    """Whether every process of the engine on this node runs on. A profiler stops one for some milliseconds; two polls in a row do not meet that."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._last: set[str] = set()

    def trouble(self, processes: t.Sequence[dict[str, t.Any]]) -> ClusterError | None:
        """Return the error for processes that stay stopped, None when there is none."""
        halted = set(health.texts({self._node: processes}, "stopped").get(self._node, []))
        lasting, self._last = self._last & halted, halted
        if not lasting:
            return None
        return ClusterError(
            f"stopped on {self._node} by a signal or a debugger, so that the engine hangs: {'; '.join(sorted(lasting))}",
            remedy=f"Find out who did it; kill -CONT PID on {self._node} lets it go on. Then run again.",
            reason="process stopped",
        )


class FabricWatch:
    """Whether this node's interface to the other nodes stays up. One poll may hit a link that is being retrained, two in a row do not."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._was_up = True

    def trouble(self, fabric: dict[str, t.Any] | None, elapsed: float) -> ClusterError | None:
        """Return what is wrong with the fabric, None when it is up, or not watched."""
        up = fabric is None or fabric["up"]
        lasting, self._was_up = not up and not self._was_up, up
        if fabric is None or not lasting:
            return None
        name = fabric["interface"]
        if not name:
            return ClusterError(
                f"the fabric address of node {self._node} is on no interface any more, {minutes(elapsed)} after the start",
                remedy=f"Find out what removed it (journalctl -b on {self._node}), configure it again, then run again.",
                reason="fabric",
            )
        return ClusterError(
            f"interface {name} of node {self._node}, which carries the fabric, is {fabric['operstate'] or 'without a carrier'} "
            f"{minutes(elapsed)} after the start",
            remedy=f"Look at its cable and at: ip link show {name}; journalctl -k -g {name}. Run again when it is up.",
            reason="fabric",
        )


def engine_trouble(node: str, what: str, engine: dict[str, t.Any], diagnosis: Diagnosis) -> ClusterError:
    """Return why an engine or rank ended: how, and the line of its log that says why."""
    hint = "A SIGKILL that no user sent comes from the kernel when memory runs out: journalctl -k. " if engine["exit_signal"] == signal.SIGKILL else ""
    return log_trouble(node, f"the {what} on {node} {end_text(engine)}", diagnosis, engine, hint)


def stopped(node: str, what: str, engine: dict[str, t.Any], diagnosis: Diagnosis) -> ClusterError:
    """Return the error for an engine or rank that was stopped on request while this play waited for it. Its log after that shows no failure."""
    return ClusterError(
        f"the {what} on {node} was stopped by {engine['stopped_by']} at {clock_text(engine['stopped_at'])}, while this play waited for it",
        remedy="Run again when it should serve.",
        reason="stopped",
        log_lines=list(diagnosis.tail),
    )


def log_trouble(node: str, what: str, diagnosis: Diagnosis, engine: dict[str, t.Any], hint: str = "") -> ClusterError:
    """Return a failure with the log's evidence: cause, line, remedy and the log's path."""
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


def seen(snapshot: NodeSnapshot) -> dict[str, t.Any]:
    """Return what the result keeps of a snapshot."""
    return {name: snapshot[name] for name in SEEN}


class ActionModule(ActionBase):
    """Serves, and waits for the first token on all nodes at once."""

    _requires_connection = True
    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        self._vars = task_vars or {}
        self._node = str(self._vars["inventory_hostname"])
        self._started = time.monotonic()
        self._log: EngineLog | None = None
        _result, options = self.validate_argument_spec(ARGUMENT_SPEC)
        # Without Ray the nodes decide jointly, so they use the board even when there is nothing to wait for.
        self._starts_jointly = options["executor"] == "native" and options["node_count"] > 1
        self._fabric, self._halts = FabricWatch(self._node), HaltWatch(self._node)
        self._what = "rank" if self._starts_jointly and options["node_role"] == "worker" else "engine"
        if options["state"] == "stopped" or not (self._starts_jointly or self._waits(options)):
            return self._execute_module(MODULE, task_vars=self._vars)
        board = RunBoard(C.DEFAULT_LOCAL_TMP, self._task._uuid, self._node, options["node_role"])
        board.join()
        try:
            return self._serve(board, options)
        finally:
            board.leave()

    def _waits(self, options: dict[str, t.Any]) -> bool:
        return options["wait"] and not self._task.check_mode

    def _serve(self, board: RunBoard, options: dict[str, t.Any]) -> dict[str, t.Any]:
        """Run the module, wait, and return the result; publish whatever goes wrong here."""
        result: dict[str, t.Any] = {}
        try:
            if self._starts_jointly:
                ranks = JointStart(board, options["node_role"] == "head", options["node_count"], options["stop_grace"], self._run_module)
                ranks.start(result, self._task.check_mode)
            else:
                result.update(self._execute_module(MODULE, task_vars=self._vars))
            if result.get("failed"):
                board.fail(str(result.get("msg", "")))
                return result
            if self._waits(options):
                wait = self._wait_head if options["node_role"] == "head" else self._wait_rank if self._starts_jointly else self._wait_worker
                result.update(wait(board, options, result))
        except AnotherFailed as error:
            return self._failed(board, result, self._own_cause(options, error))
        except ClusterError as error:
            return self._failed(board, result, error)
        except AnsibleError as error:
            board.fail(str(error))
            raise
        return complete({**result, "failed": False}, self._started)

    def _failed(self, board: RunBoard, result: dict[str, t.Any], error: ClusterError) -> dict[str, t.Any]:
        """Return the failed result, with what was changed until then, and publish it unless another node failed first."""
        first = board.fail(str(error))
        failure = {"msg": str(error), "verdict": error.verdict, "remedy": error.remedy, "reason": error.reason, **error.details}
        done = {key: value for key, value in result.items() if key != "engine_live"}
        return complete({**done, **failure, "failed": True, "failed_node": first.node}, self._started)

    def _run_module(self, state: str, predict: bool, more: dict[str, t.Any]) -> dict[str, t.Any]:
        """Run the module for one step of a joint start, with ``more`` options."""
        check_mode = self._task.check_mode
        self._task.check_mode = check_mode or predict
        try:
            return self._execute_module(MODULE, module_args={**self._task.args, "state": state, **more}, task_vars=self._vars)
        finally:
            self._task.check_mode = check_mode

    def _own_cause(self, options: dict[str, t.Any], error: AnotherFailed) -> ClusterError:
        """Poll a last time when another rank failed first: it may have seen only the echo of what this node's log names."""
        if not self._starts_jointly or self._log is None:
            return error
        try:
            snapshot = self._poll(options, **self._log.position)
        except ClusterError as trouble:
            display.vv(f"{self._node}: the last poll failed: {trouble}")
            return error
        self._log.feed(snapshot)
        fatal = self._log.diagnosis.fatal
        if fatal is None or fatal.signature.rank_scope != "cause":
            return error
        return log_trouble(self._node, f"the {self._what} on {self._node} cannot serve", self._log.diagnosis, snapshot["engine"])

    # -- one poll ----------------------------------------------------------------------------------------------------

    def _poll(self, options: dict[str, t.Any], **more: t.Any) -> NodeSnapshot:
        """Return a snapshot of this node. Raises :class:`UnknownState` when it did not answer, :class:`ClusterError` on a refusal."""
        return self._ask(INFO, {**{name: options[name] for name in INFO_OPTIONS}, **more})

    def _ask(self, module: str, arguments: dict[str, t.Any], job_seconds: int = 0) -> dict[str, t.Any]:
        """Return what a module answers, or with ``job_seconds`` what is known of the job that was begun with it. Raises as :meth:`_poll` does."""
        try:
            with time_limit(POLL_SECONDS):
                # A job's limit is read from the task; a task that keeps one would become a job as a whole.
                self._task.async_val = job_seconds
                snapshot = self._execute_module(module, module_args=arguments, task_vars=self._vars, wrap_async=job_seconds > 0)
        except (AnsibleConnectionFailure, PollTimeout) as error:
            reason = " ".join(str(error).split())
            raise UnknownState(f"node {self._node} does not answer: {reason}", reason="connection") from error
        finally:
            self._task.async_val = 0
        if not snapshot.get("failed"):
            return snapshot
        kind = ClusterError if snapshot.get("verdict") == "block" else UnknownState
        raise kind(f"node {self._node}: {snapshot.get('msg')}", remedy=snapshot.get("remedy", ""), reason=snapshot.get("reason", ""))

    def _snapshots(
        self, board: RunBoard, options: dict[str, t.Any], timeout: float, more: t.Callable[[], dict[str, t.Any]]
    ) -> t.Iterator[tuple[float, NodeSnapshot]]:
        """Yield (seconds since the task began, snapshot) until the head succeeded or ``timeout`` is over; another node's failure raises.

        Polls that fail are repeated for a bounded time: a connection may come back.
        """
        failing_since: float | None = None
        next_poll = 0.0
        for elapsed in clock(timeout, options["wait_sleep"] / BOARD_READS_PER_POLL):
            board.raise_if_another_failed()
            if board.success():
                return
            if elapsed < min(next_poll, timeout):
                continue
            try:
                snapshot = self._poll(options, **more())
            except UnknownState as error:
                failing_since = elapsed if failing_since is None else failing_since
                if elapsed - failing_since >= UNREACHABLE_SECONDS:
                    raise
                display.vv(f"{self._node}: {error}")
                self._reset_connection()
            else:
                failing_since = None
                board.raise_if_another_failed()
                yield time.monotonic() - self._started, snapshot
            next_poll = elapsed + options["wait_sleep"]

    def _reset_connection(self) -> None:
        """Reset a multiplexed connection that hangs: it would fail the next poll too."""
        try:
            with time_limit(POLL_SECONDS):
                self._connection.reset()
        except (AnsibleError, NotImplementedError) as error:
            # The next poll decides: it works over the old connection, or fails and counts as unreachable.
            display.vvv(f"{self._node}: the connection cannot be reset: {error}")

    # -- head --------------------------------------------------------------------------------------------------------

    def _wait_head(self, board: RunBoard, options: dict[str, t.Any], started: dict[str, t.Any]) -> dict[str, t.Any]:
        """Watch the engine until it generated a token; returns what the result gains."""
        progress, log = Progress(self._node, display.display), EngineLog(started["run_id"])
        self._log, healthy_at = log, None
        api = {"model": served_name(options["model"], options["arguments"]), "api_key_file": options["api_key_file"]}
        asked = {**{name: options[name] for name in INFO_OPTIONS}, **api, "first_token_timeout": options["first_token_timeout"]}
        question = TokenQuestion(self._ask, asked, self.get_shell_option("async_dir", default="~/.ansible_async"))
        # An engine that serves already answers within a poll.
        first_poll = True
        try:
            for elapsed, snapshot in self._snapshots(
                board, options, options["wait_timeout"], lambda: {**api, **log.position, "probe": first_poll and not started["changed"]}
            ):
                self._process(options, snapshot, log, progress, elapsed)
                if snapshot["healthy"] and not snapshot["completion"]:
                    snapshot = {**snapshot, **self._answered(question)}
                if snapshot["completion"]:
                    return self._ready(board, started, snapshot, log.diagnosis, already=first_poll and not started["changed"])
                self._check_engine(snapshot, log)
                healthy_at = healthy_at or (elapsed if snapshot["healthy"] else None)
                if healthy_at is not None and elapsed - healthy_at > options["first_token_timeout"]:
                    what = f"the engine on {self._node} answers /health but generated no token within {options['first_token_timeout']} s"
                    raise log_trouble(self._node, what, log.diagnosis, snapshot["engine"])
                first_poll = False
        finally:
            question.forget()
        raise WaitTimeout(
            f"no token within {options['wait_timeout']} s; last seen on {self._node}: {progress.stage or 'nothing'}"
            + (f": {log.diagnosis.line}" if log.diagnosis.line else ""),
            remedy=f"See {started['log_path']} on {self._node}; if the start only needs longer, raise wait_timeout.",
            log_lines=list(log.diagnosis.tail),
        )

    def _answered(self, question: TokenQuestion) -> dict[str, t.Any]:
        """Return what the question for a token brought, nothing while it goes on. A node that does not answer is the next poll's to judge."""
        try:
            answer = question.answer()
        except UnknownState as error:
            display.vv(f"{self._node}: {error}")
            return {}
        return {name: answer[name] for name in ANSWERED} if answer else {}

    def _process(self, options: dict[str, t.Any], snapshot: NodeSnapshot, log: EngineLog, progress: Progress, elapsed: float) -> None:
        """Check, read and show a snapshot. Raises :class:`ClusterError` when the container or the fabric is gone, or the engine was stopped."""
        self._check_node(options, snapshot, elapsed)
        log.feed(snapshot)
        progress.update(snapshot["stage"], snapshot["shards"], snapshot["memory_available_mb"], elapsed)
        if snapshot["engine"]["stopped_by"]:
            raise stopped(self._node, self._what, snapshot["engine"], log.diagnosis)

    def _check_node(self, options: dict[str, t.Any], snapshot: NodeSnapshot, elapsed: float) -> None:
        """Raise :class:`ClusterError` when the node's container or its interface to the others is gone, or a process there was stopped."""
        trouble = (
            container_trouble(self._node, snapshot["container"], elapsed, options["executor"])
            or self._fabric.trouble(snapshot["fabric"], elapsed)
            or self._halts.trouble(snapshot["processes"])
        )
        if trouble:
            raise trouble

    def _check_engine(self, snapshot: NodeSnapshot, log: EngineLog) -> None:
        """Raise :class:`ClusterError` when this node's part of the engine has ended, or its log says that it cannot serve."""
        if not snapshot["engine"]["live"]:
            raise engine_trouble(self._node, self._what, snapshot["engine"], log.diagnosis)
        if log.is_fatal():
            raise log_trouble(self._node, f"the {self._what} on {self._node} cannot serve", log.diagnosis, snapshot["engine"])

    def _ready(self, board: RunBoard, started: dict[str, t.Any], snapshot: NodeSnapshot, diagnosis: Diagnosis, already: bool) -> dict[str, t.Any]:
        """Return the proof: which engine, how long its start took, how long its first token."""
        proof = snapshot["completion"]
        seconds = None if already else snapshot["engine"]["seconds"]
        summary = "the engine served already" if already else f"ready after {minutes(seconds)}"
        board.succeed(f"{started['endpoint']}: {summary}")
        display.display(f"{self._node}: {summary}, first token in {proof['seconds']:.2f} s, {started['endpoint']}")
        return {
            "msg": f"{summary}; {proof['tokens']} token generated by vLLM {snapshot['engine_version']} in {proof['seconds']:.2f} s",
            "engine_version": snapshot["engine_version"],
            "seconds_to_ready": seconds,
            "seconds_to_first_token": proof["seconds"],
            "engine_live": True,
            "findings": [match.finding(self._node) for match in diagnosis.warnings],
            "seen": seen(snapshot),
        }

    # -- worker ------------------------------------------------------------------------------------------------------

    def _wait_worker(self, board: RunBoard, options: dict[str, t.Any], _started: dict[str, t.Any]) -> dict[str, t.Any]:
        """Watch this node's container until the head says how it ended; returns what the result gains."""
        progress = Progress(self._node, display.display)
        for elapsed, snapshot in self._snapshots(board, options, options["wait_timeout"] + WORKER_MARGIN, dict):
            self._check_node(options, snapshot, elapsed)
            self._check_head(board, elapsed)
            progress.update("container up", "", snapshot["memory_available_mb"], elapsed)
        return self._head_result(board, options)

    def _wait_rank(self, board: RunBoard, options: dict[str, t.Any], started: dict[str, t.Any]) -> dict[str, t.Any]:
        """Watch this node's container and rank until the head says how it ended; returns what the result gains."""
        progress, log = Progress(self._node, display.display), EngineLog(started["run_id"])
        self._log, last = log, {}
        for elapsed, snapshot in self._snapshots(board, options, options["wait_timeout"] + WORKER_MARGIN, lambda: log.position):
            self._process(options, snapshot, log, progress, elapsed)
            self._check_engine(snapshot, log)
            self._check_head(board, elapsed)
            last = {"seen": seen(snapshot)}
        return {**self._head_result(board, options), **last, "findings": [match.finding(self._node) for match in log.diagnosis.warnings]}

    def _head_result(self, board: RunBoard, options: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the head's success for the result. Raises :class:`WaitTimeout` when the head said nothing."""
        success = board.success()
        if success:
            return {"msg": f"{success.node}: {success.message}"}
        raise WaitTimeout(f"the head published no result within {options['wait_timeout'] + WORKER_MARGIN:g} s", remedy="Look at the head's part of this task.")

    def _check_head(self, board: RunBoard, elapsed: float) -> None:
        """Raise :class:`ClusterError` when the head can no longer publish a result."""
        if board.head() is None and elapsed > JOIN_SECONDS:
            raise ClusterError(
                f"the head's part of this task did not begin within {JOIN_SECONDS:g} s",
                remedy="Run head and workers in one play, with as many forks as nodes and without serial; see whether the head failed before.",
            )
        if board.head_ended() and not board.failure() and not board.success():
            raise ClusterError(f"this task ended on the head ({board.head()}) without a result", remedy="Look at the head's messages above.")
