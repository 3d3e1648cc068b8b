# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of vllm_serve: runs the module once, then polls the node until a token came back or something failed.

The instances on head and workers run at the same time. Each polls only its own node. What decides for all (the first failure, or
the head's token) they publish on a :class:`RunBoard`. Without Ray they also start their ranks together, see :mod:`ranks`.
"""

from __future__ import annotations

import time
import typing as t

from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.cluster.plugins.module_utils._arguments.serve_arguments import served_name
from ansible_collections.gb10.cluster.plugins.module_utils._engine import interruption
from ansible_collections.gb10.cluster.plugins.module_utils._engine.serve_options import ARGUMENT_SPEC, has_engine
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._module import complete
from ansible_collections.gb10.cluster.plugins.module_utils._records import cold_starts
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import profiles
from ansible_collections.gb10.cluster.plugins.plugin_utils._progress.progress import Progress, minutes
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve import events, node_logs, signature
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.failures import KNOWN, Diagnosis
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.ranks import JointStart
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.run_board import ANOTHER_FAILED, AnotherFailed, RunBoard
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.time_limit import PollTimeout, time_limit
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.token_question import INFO, POLL_SECONDS, TokenQuestion
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.watches import FabricWatch, HaltWatch, MemoryWatch, RankWatch, WorkWatch
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.watches import container_trouble, stall, waited_for

MODULE = "gb10.cluster.vllm_serve"

#: How often an instance reads the board for each poll of its own node: reading the board costs nothing.
BOARD_READS_PER_POLL = 20
#: The keys of the last snapshot that a result keeps for later stages.
SEEN = ("engine", "last_end", "container", "api", "engine_version", "completion", "progress", "routes", "cold_start")
#: Options of the task that every poll of a node uses.

INFO_OPTIONS = ("cluster_name", "node_role", "state_dir", "log_dir", "roots", "docker_socket", "docker_timeout", "fabric_address")
#: Keys that the answer to a token request has and a plain poll lacks.
ANSWERED = ("completion", "progress", "routes", "engine_version", "requests_running", "cold_start")
#: Seconds for which consecutive polls may fail although the node answers, before that counts as its failure.
UNKNOWN_SECONDS = 60.0
#: Seconds between two lines about a node that does not answer.
SILENT_REPEAT = 30.0
#: Topic on which nodes publish that the module has run, which includes its sample of their traffic.
LOOKED = "looked"
#: Topic on which nodes publish their last signs of work.
WORK = "work"
#: Topic on which nodes publish their address on the fabric.
ADDRESS = "address"
#: Topic on which the head publishes that its engine is the one to wait for.
BEGUN = "begun"
#: Topic on which nodes collect the evidence of a failed start, and the seconds for each node's last poll.
EVIDENCE, EVIDENCE_SECONDS = "evidence", 15.0
#: Seconds that a worker waits for the head's instance of the task to begin.
JOIN_SECONDS = 60.0
#: Seconds that a worker waits longer than the head, so that the head's message counts.
WORKER_MARGIN = 60.0

display = Display()


def seen(snapshot: node_logs.NodeSnapshot) -> dict[str, t.Any]:
    """Return the keys of a snapshot that the result keeps."""
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
        self._longest_silence = 0.0
        self._lowest_mb: int | None = None
        self._log: node_logs.NodeLogs | None = None
        _result, options = self.validate_argument_spec(ARGUMENT_SPEC)
        # Without Ray the nodes decide jointly, so they use the board even when there is nothing to wait for.
        self._starts_jointly = options["executor"] == "native" and options["node_count"] > 1
        self._fabric, self._halts = FabricWatch(self._node), HaltWatch(self._node)
        self._ranks, self._memory = RankWatch(self._node), MemoryWatch(self._node)
        self._work = WorkWatch(time.monotonic())
        # With Ray no process of the engine is started on a worker by this task.
        self._has_engine = has_engine(options)
        self._what = "rank" if self._starts_jointly and options["node_role"] == "worker" else "engine"
        if options["state"] == "stopped" and options["drain_timeout"] and not self._task.check_mode:
            return self._drain(options)
        if options["state"] == "stopped" or not (self._starts_jointly or self._waits(options)):
            return self._execute_module(MODULE, task_vars=self._vars)
        try:
            self._signatures = signature.load(options["signature_dirs"], profiles.roots(self._vars))
        except signature.SignatureError as error:
            failure = {"failed": True, "msg": str(error), "verdict": "block", "remedy": error.problems[0].remedy, "reason": "signatures"}
            return complete(failure, self._started)
        board = RunBoard(C.DEFAULT_LOCAL_TMP, self._task._uuid, self._node, options["node_role"])
        board.join()
        board.publish(ADDRESS, {"address": options["fabric_address"] or ""})
        try:
            return self._serve(board, options)
        finally:
            board.leave()

    def _drain(self, options: dict[str, t.Any]) -> dict[str, t.Any]:
        """Stop the engine once its requests are answered, and print how many are left."""
        return interruption.drain(
            options["drain_timeout"],
            options["cluster_name"],
            lambda seconds: self._run_module("stopped", False, {"drain_timeout": seconds}),
            lambda text: display.display(f"{self._node}: {text}"),
        )

    def _waits(self, options: dict[str, t.Any]) -> bool:
        return options["wait"] and not self._task.check_mode

    def _serve(self, board: RunBoard, options: dict[str, t.Any]) -> dict[str, t.Any]:
        """Run the module, wait, and return the result. Publish every failure of this node."""
        result: dict[str, t.Any] = {}
        try:
            if options["begun"]:
                result.update(options["begun"])
            elif self._starts_jointly:
                ranks = JointStart(board, options["node_role"] == "head", options["node_count"], options["stop_grace"], self._run_module)
                ranks.start(result, self._task.check_mode)
            else:
                result.update(self._execute_module(MODULE, task_vars=self._vars))
            if result.get("failed"):
                board.fail(str(result.get("msg", "")))
                return self._refused(board, result, options)
            if self._waits(options):
                board.publish(LOOKED, {})
                wait = self._wait_head if options["node_role"] == "head" else self._wait_rank if self._starts_jointly else self._wait_worker
                result.update(wait(board, options, result))
        except AnotherFailed as error:
            return self._failed(board, result, self._own_cause(options, error), options)
        except ClusterError as error:
            return self._failed(board, result, error, options)
        except AnsibleError as error:
            board.fail(str(error))
            raise
        waited = {"longest_silence_seconds": round(self._longest_silence, 1), "lowest_available_mb": self._lowest_mb, "finished_at": time.time()}
        return complete({**result, "failed": False, **waited}, self._started)

    def _refused(self, board: RunBoard, result: dict[str, t.Any], options: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the result of a module that started nothing. A launcher's message, such as that a disk is full, is judged like a line of a log.

        It is the known cause for the other nodes, too: an engine cannot serve without this node. A head that refused has started no engine anywhere.
        """
        is_launcher = result.get("reason") == "launcher"
        if not is_launcher and options["node_role"] == "head":
            return result
        kind = UnknownState if result.get("verdict") == "unknown" else ClusterError
        error = kind(str(result.get("msg", "")), remedy=result.get("remedy", ""), reason=result.get("reason", ""))
        diagnosis = Diagnosis(self._signatures)
        diagnosis.feed([str(error)] if is_launcher else [])
        first = diagnosis.fatal.finding(self._node) if diagnosis.fatal else events.of_error(self._node, error, time.time())
        board.publish(EVIDENCE, {"failures": [first], "told": [], "address": options["fabric_address"] or ""})
        return {**result, "first_failure": first, "cause_known": first["certainty"] == KNOWN}

    def _failed(self, board: RunBoard, result: dict[str, t.Any], error: ClusterError, options: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the failed result, with the changes made so far, and publish it unless another node failed first.

        All nodes share their evidence and reach one conclusion: which failure was the first, and whether its cause is known.
        """
        now = time.time()
        outcome = board.fail(str(error))
        if error.reason not in (ANOTHER_FAILED, "connection"):
            self._last_look(options)
        mine = self._log.findings() if self._log else []
        if error.reason != ANOTHER_FAILED and error.reason not in {failure["id"] for failure in mine}:
            mine.append(events.of_error(self._node, error, now))
        reported = self._log.deaths.told if self._log else []
        board.publish(EVIDENCE, {"failures": mine, "told": reported, "address": options["fabric_address"] or ""})
        known = board.gather(EVIDENCE, EVIDENCE_SECONDS)
        failures = [failure for entry in known.values() for failure in entry["failures"]]
        addresses = {entry["address"]: node for node, entry in known.items()}
        names = list(known)
        has_head = bool(names) and known[names[0]]["role"] == "head"
        ranks = events.ranks_of(names, options["node_count"]) if has_head else {}
        first = events.first(failures, [who for entry in known.values() for who in entry["told"]], addresses, ranks)
        is_known = any(failure["certainty"] == KNOWN and failure["verdict"] == "block" for failure in [*failures, *([first] if first else [])])
        conclusion = board.conclude({"first_failure": first, "cause_known": is_known})
        details = {name: value for name, value in error.details.items() if name not in ("suspected", "node")}
        failure = {"msg": str(error), "verdict": error.verdict, "remedy": error.remedy, "reason": error.reason, **details, **conclusion}
        done = {key: value for key, value in result.items() if key != "engine_live"}
        return complete({**done, **failure, "failed": True, "failed_node": outcome.node}, self._started)

    def _run_module(self, state: str, predict: bool, more: dict[str, t.Any]) -> dict[str, t.Any]:
        """Run the module for one step of a joint start or of a stop, with ``more`` options."""
        check_mode = self._task.check_mode
        self._task.check_mode = check_mode or predict
        try:
            return self._execute_module(MODULE, module_args={**self._task.args, "state": state, **more}, task_vars=self._vars)
        finally:
            self._task.check_mode = check_mode

    def _own_cause(self, options: dict[str, t.Any], error: AnotherFailed) -> ClusterError:
        """Poll a last time when another node failed first. Its failure may be a consequence of what this node's logs or processes show."""
        snapshot = self._last_look(options)
        if self._log is None or snapshot is None:
            return error
        if self._has_engine and snapshot["engine"]["stopped_by"]:
            return node_logs.stopped(self._node, self._what, snapshot["engine"], self._log.diagnosis)
        diagnosis = self._log.worst()
        if diagnosis.fatal and diagnosis.fatal.signature.names_cause:
            return node_logs.log_trouble(self._node, f"the {self._what} on {self._node} cannot serve", diagnosis, snapshot["engine"]["log_path"])
        # A rank that ended here may be the cause of the other node's failure or its consequence. The evidence of all nodes decides that.
        return self._ranks.trouble(snapshot["processes"], self._log.line) or error

    def _last_look(self, options: dict[str, t.Any]) -> node_logs.NodeSnapshot | None:
        """Read the end of this node's logs, including the kernel's. Return the snapshot, None without one."""
        if self._log is None:
            return None
        try:
            snapshot = self._poll(options, **self._log.last_position)
        except ClusterError as trouble:
            display.vv(f"{self._node}: the last poll failed: {trouble}")
            return None
        self._log.feed(snapshot)
        if self._log.kernel_error:
            display.warning(f"{self._node}: the kernel's log could not be read, so it may hold the cause: {self._log.kernel_error}")
        return snapshot

    # -- one poll ----------------------------------------------------------------------------------------------------

    def _poll(self, options: dict[str, t.Any], **more: t.Any) -> node_logs.NodeSnapshot:
        """Return a snapshot of this node. Raises :class:`UnknownState` when it did not answer, :class:`ClusterError` on a refusal."""
        sent = time.time()
        snapshot = self._ask(INFO, {**{name: options[name] for name in INFO_OPTIONS}, **more})
        if self._log:
            self._log.clock.measure(sent, snapshot["now"], time.time())
        return snapshot

    def _ask(self, module: str, arguments: dict[str, t.Any], job_seconds: int = 0) -> dict[str, t.Any]:
        """Return a module's answer, or with ``job_seconds`` the state of the job that was started with it. Raises as :meth:`_poll` does."""
        try:
            with time_limit(POLL_SECONDS):
                # Ansible reads a job's limit from the task. A task that keeps the limit would as a whole become a job.
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
        self, board: RunBoard, options: dict[str, t.Any], timeout: float, more: t.Callable[[], dict[str, t.Any]], first: float = 0.0
    ) -> t.Iterator[tuple[float, node_logs.NodeSnapshot]]:
        """Yield (seconds since the task began, snapshot) until the head succeeded or ``timeout`` is over; another node's failure raises.

        ``first`` is the number of seconds until the first poll.

        Failed polls are repeated for a limited time: a connection may recover, and loading weights was reported to starve ssh.
        This also holds after the head has succeeded, because later stages query every node once.
        """
        failing_since: float | None = None
        next_poll, next_line, asked_at = first, 0.0, 0.0
        for elapsed in clock(timeout, options["wait_sleep"] / BOARD_READS_PER_POLL):
            board.raise_if_another_failed()
            if board.success() and failing_since is None:
                return
            if elapsed < min(next_poll, timeout):
                continue
            asked_at = time.monotonic() if failing_since is None else asked_at
            try:
                snapshot = self._poll(options, **more())
            except UnknownState as error:
                if failing_since is None:
                    failing_since, next_line = elapsed, elapsed + SILENT_REPEAT
                silent = error.reason == "connection"
                allowed = options["silent_timeout"] if silent else UNKNOWN_SECONDS
                if elapsed - failing_since >= allowed:
                    raise self._silent(elapsed - failing_since, error) if silent else error
                display.vv(f"{self._node}: {error}")
                if elapsed >= next_line:
                    next_line = elapsed + SILENT_REPEAT
                    waits = f"no answer for {minutes(elapsed - failing_since)}, which a node that loads may need; failed from {minutes(allowed)} on"
                    display.display(f"{self._node}: {waits}")
                self._reset_connection()
            else:
                failing_since = None
                self._longest_silence = max(self._longest_silence, time.monotonic() - asked_at)
                available = snapshot["memory_available_mb"]
                self._lowest_mb = available if self._lowest_mb is None else min(self._lowest_mb, available)
                board.raise_if_another_failed()
                yield time.monotonic() - self._started, snapshot
            next_poll = elapsed + options["wait_sleep"]

    def _silent(self, seconds: float, error: UnknownState) -> UnknownState:
        """Return the error for a node that does not answer. There is no proof that its engine is dead."""
        return UnknownState(
            f"{error}; it has been silent for {minutes(seconds)}",
            remedy=f"Try ssh and ping from the head. When it answers again, run again; when only ping answers, its memory is used up: power {self._node} off.",
            reason=error.reason,
            suspected=True,
        )

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
        """Watch the engine until it generates a token. Return the keys to add to the result."""
        progress, log = Progress(self._node, display.display), node_logs.NodeLogs(self._node, started["run_id"], options["executor"] == "ray", self._signatures)
        self._log, healthy_at, withheld = log, None, ""
        board.publish(BEGUN, {})
        api = {"model": served_name(options["model"], options["arguments"]), "api_key_file": options["api_key_file"]}
        if options["prompt_letters"] and not started["changed"]:
            api["prompt_letters"] = options["prompt_letters"]
            board.wait_for(LOOKED, JOIN_SECONDS, lambda looked: len(looked) >= options["node_count"], options["node_count"])
        arguments = {**{name: options[name] for name in INFO_OPTIONS}, **api, "first_token_timeout": options["first_token_timeout"]}
        question = TokenQuestion(self._ask, arguments, self.get_shell_option("async_dir", default="~/.ansible_async"))
        # An engine that serves already answers within one poll.
        first_poll = True
        try:
            for elapsed, snapshot in self._snapshots(
                board, options, options["wait_timeout"], lambda: {**api, **log.position, "probe": first_poll and not started["changed"]}
            ):
                self._process(board, options, snapshot, log, progress, elapsed)
                if snapshot["healthy"] and not snapshot["completion"]:
                    snapshot = {**snapshot, **self._answered(question)}
                    withheld = (snapshot["progress"] or {}).get("withheld") or withheld
                if snapshot["completion"]:
                    return self._ready(board, options, started, snapshot, log.diagnosis, already=first_poll and not started["changed"])
                self._check_engine(snapshot, log)
                if not snapshot["healthy"] and (stalled := stall(board.latest(WORK), log.stage, time.monotonic(), options["stall_timeout"])):
                    raise stalled
                healthy_at = healthy_at or (elapsed if snapshot["healthy"] else None)
                if healthy_at is not None and elapsed - healthy_at > options["first_token_timeout"]:
                    what = f"the engine on {self._node} answers /health but generated no token within {options['first_token_timeout']} s"
                    what += f": {withheld}" if withheld else ""
                    raise self._no_token(what, snapshot, log, waited_for(board.latest(WORK), time.monotonic(), options["first_token_timeout"] / 2))
                first_poll = False
        finally:
            question.forget()
        raise WaitTimeout(
            f"no token within {options['wait_timeout']} s; last seen on {self._node}: {progress.stage or 'nothing'}"
            + (f": {log.diagnosis.line}" if log.diagnosis.line else ""),
            remedy=f"See {started['log_path']} on {self._node}; if the start only needs longer, raise wait_timeout.",
            log_lines=list(log.diagnosis.tail),
            suspected=True,
        )

    def _no_token(self, what: str, snapshot: node_logs.NodeSnapshot, log: node_logs.NodeLogs, awaited: str) -> ClusterError:
        """Return the error for an engine that is up but generates no token. ``awaited`` is the node with idle ranks that the others wait for."""
        awaits = f"; the ranks of {awaited} rest while the others wait in a loop" if awaited else ""
        error = node_logs.log_trouble(self._node, what + awaits, log.diagnosis, snapshot["engine"]["log_path"])
        error.reason = error.reason or "no token"
        error.details["node"] = awaited or self._node
        return error

    def _answered(self, question: TokenQuestion) -> dict[str, t.Any]:
        """Return the answer to the token request, nothing while it is pending. A node that does not answer is left to the next poll."""
        try:
            answer = question.answer()
        except UnknownState as error:
            display.vv(f"{self._node}: {error}")
            return {}
        return {name: answer[name] for name in ANSWERED} if answer else {}

    def _process(
        self, board: RunBoard, options: dict[str, t.Any], snapshot: node_logs.NodeSnapshot, log: node_logs.NodeLogs, progress: Progress, elapsed: float
    ) -> None:
        """Check, read and show a snapshot. Raises :class:`ClusterError` when a check of the node fails, or the engine was stopped."""
        log.feed(snapshot)
        board.update(WORK, self._work.update(time.monotonic(), log.stage, log.shards, log.new_lines, snapshot["processes"]).to_dict())
        progress.update(log.stage, log.shards, self._work.text, snapshot["memory_available_mb"], elapsed)
        if self._has_engine and snapshot["engine"]["stopped_by"]:
            raise node_logs.stopped(self._node, self._what, snapshot["engine"], log.diagnosis)
        self._check_node(board, options, snapshot, elapsed)

    def _check_node(self, board: RunBoard, options: dict[str, t.Any], snapshot: node_logs.NodeSnapshot, elapsed: float) -> None:
        """Raise :class:`ClusterError` when the node's container, its fabric or its memory is gone, or a process there was stopped."""
        trouble = (
            container_trouble(self._node, snapshot["container"], elapsed, options["executor"])
            or self._fabric.trouble(snapshot["fabric"], elapsed, {entry["address"]: node for node, entry in board.published(ADDRESS).items()})
            or self._halts.trouble(snapshot["processes"])
            or self._memory.trouble(snapshot["memory_available_mb"], snapshot["memory_total_mb"])
        )
        if trouble:
            raise trouble

    def _check_engine(self, snapshot: node_logs.NodeSnapshot, log: node_logs.NodeLogs) -> None:
        """Raise :class:`ClusterError` when this node's part of the engine has ended, or its logs show that it cannot serve."""
        engine = snapshot["engine"]
        if self._has_engine and not engine["live"]:
            raise node_logs.engine_trouble(self._node, self._what, engine, log.diagnosis)
        if log.is_fatal():
            raise node_logs.log_trouble(self._node, f"the {self._what} on {self._node} cannot serve", log.worst(), engine["log_path"])
        ended = self._ranks.trouble(snapshot["processes"], log.line)
        if ended:
            raise ended

    def _ready(
        self,
        board: RunBoard,
        options: dict[str, t.Any],
        started: dict[str, t.Any],
        snapshot: node_logs.NodeSnapshot,
        diagnosis: Diagnosis,
        already: bool,
    ) -> dict[str, t.Any]:
        """Return the proof: the engine's version, and the seconds of its start and of its first token."""
        proof = snapshot["completion"]
        seconds = None if already else snapshot["engine"]["seconds"]
        summary = "the engine served already" if already else f"ready after {minutes(seconds)}"
        board.succeed(f"{started['endpoint']}: {summary}")
        display.display(f"{self._node}: {summary}, first token in {proof['seconds']:.2f} s, {started['endpoint']}")
        stages = {"image": options["image_seconds"], "first_token": proof["seconds"]}
        cold = cold_starts.measured(snapshot["cold_start"], seconds, stages, options["reported_start"])
        if not already:
            display.display(f"{self._node}: {cold_starts.text(cold)}")
        return {
            "msg": f"{summary}; {proof['tokens']} token generated by vLLM {snapshot['engine_version']} in {proof['seconds']:.2f} s",
            "engine_version": snapshot["engine_version"],
            "seconds_to_ready": seconds,
            "seconds_to_first_token": proof["seconds"],
            "engine_live": True,
            "findings": [match.finding(self._node) for match in diagnosis.warnings],
            "seen": seen({**snapshot, "cold_start": cold}),
        }

    # -- worker ------------------------------------------------------------------------------------------------------

    def _wait_worker(self, board: RunBoard, options: dict[str, t.Any], _started: dict[str, t.Any]) -> dict[str, t.Any]:
        """Watch this node's container and Ray's processes in it until the head publishes the outcome. Return the keys to add to the result."""
        progress = Progress(self._node, display.display)
        log = node_logs.NodeLogs(self._node, "", True, self._signatures)
        # If the engine serves already, the head has its token before that.
        first = float(options["wait_sleep"])
        for elapsed, snapshot in self._snapshots(board, options, options["wait_timeout"] + WORKER_MARGIN, lambda: log.position, first):
            if self._log is None:
                # Until the head has started its engine, ranks and logs here belong to the previous one.
                self._check_node(board, options, snapshot, elapsed)
                self._check_head(board, elapsed)
                self._log = log if board.published(BEGUN) else None
                continue
            self._process(board, options, snapshot, log, progress, elapsed)
            self._check_engine(snapshot, log)
            self._check_head(board, elapsed)
        return self._head_result(board, options)

    def _wait_rank(self, board: RunBoard, options: dict[str, t.Any], started: dict[str, t.Any]) -> dict[str, t.Any]:
        """Watch this node's container and rank until the head publishes the outcome. Return the keys to add to the result."""
        progress, log = Progress(self._node, display.display), node_logs.NodeLogs(self._node, started["run_id"], False, self._signatures)
        self._log, last = log, {}
        for elapsed, snapshot in self._snapshots(board, options, options["wait_timeout"] + WORKER_MARGIN, lambda: log.position):
            self._process(board, options, snapshot, log, progress, elapsed)
            self._check_engine(snapshot, log)
            self._check_head(board, elapsed)
            last = {"seen": seen(snapshot)}
        return {**self._head_result(board, options), **last, "findings": [match.finding(self._node) for match in log.diagnosis.warnings]}

    def _head_result(self, board: RunBoard, options: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the head's success for the result. Raises :class:`WaitTimeout` when the head published nothing."""
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
