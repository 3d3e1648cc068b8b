# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a node's engine: its files, its process, its log, its API. This module util is PRIVATE to the collection.

These functions only read, need only the standard library, and never enter the container, so they also work on a node that is short of memory.

The container's notes and its log are untrusted. A note is believed only about the engine's process and its end, as far as the kernel agrees. The
arguments of the engine come from the host's own order, which the container can only read.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import os
import random
import signal
import string
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils import _http
from ansible_collections.gb10.cluster.plugins.module_utils._clock import boot_seconds, utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_log, health
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import files, untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.notes import read_note, read_run, read_side
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.protocol import ENGINE_LOGS, LOG_TARGET, ORDER, RUN_TARGET, STOP_NOTE
from ansible_collections.gb10.cluster.plugins.module_utils._process import process_table
from ansible_collections.gb10.cluster.plugins.module_utils._redact import redacted, secrets_of
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

#: Most characters of a log's line in a message about something else.
SHOWN_LINE = 300

#: Addresses for all interfaces of a node, each with the loopback address that reaches the same listener.
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}

#: Answers of an API that requires a key.
KEY_WANTED = (401, 403)

#: The prompt, and the tokens of its answer. Only that a token is generated matters.
PROMPT = "Hello"
MAX_TOKENS = 8


class EnginePaths(t.NamedTuple):
    """The directories of a cluster on the node, by their paths on the host."""

    launch: str
    run: str
    cache: str
    log: str

    @classmethod
    def of(cls, state_dir: str, log_dir: str, cluster: str) -> EnginePaths:
        state = os.path.join(state_dir, cluster)
        return cls(os.path.join(state, "launch"), os.path.join(state, "run"), os.path.join(state, "cache"), os.path.join(log_dir, cluster))

    @property
    def closed(self) -> tuple[str, str]:
        """Return the directories above those that the container writes; only root may enter them."""
        return os.path.dirname(self.run), self.log

    @property
    def engine_log(self) -> str:
        return os.path.join(self.log, ENGINE_LOGS)

    def log_of(self, run_id: str) -> str:
        """Return the path of a run's log on the host."""
        return os.path.join(self.engine_log, f"{run_id}.log")


class Completion(t.NamedTuple):
    """A proven answer: generated tokens, seconds to the first of them, tokens of the prompt as the engine counts them (0 when it does not report them)."""

    tokens: int
    seconds: float
    prompt_tokens: int = 0


# -- process ---------------------------------------------------------------------------------------------------------


def host_pid(run: dict[str, t.Any], run_dir: str, proc: str = "/proc") -> int | None:
    """Return the host's pid of the recorded engine while it lives.

    The start (in clock ticks since boot) is the same on the host and in the container, and identifies one process together with the container's pid.
    The host can read it even if no process can be started in the container any more. A note can name any process of the node, so a process counts only
    if it has ``run_dir`` mounted.
    """
    for pid in map(int, filter(str.isdigit, os.listdir(proc))):
        stat = process_table.read_stat(pid, proc)
        if stat and stat.start_ticks == run["start_ticks"] and stat.state not in "ZX" and process_table.namespace_pid(pid, proc) == run["pid"]:
            if sees_directory(pid, run_dir, proc):
                return pid
    return None


def sees_directory(pid: int, run_dir: str, proc: str = "/proc") -> bool:
    """Return whether a process is in the container that has this directory of records. Raises :class:`UnknownState` if that cannot be read."""
    try:
        with untrusted.directory(os.path.join(proc, str(pid), "root"), RUN_TARGET.lstrip("/")) as there:
            return os.path.samestat(os.fstat(there), os.stat(run_dir))
    except PermissionError as error:
        raise UnknownState(f"process {pid} may be the engine, and cannot be looked at", remedy=BECOME, reason="permission", raw=str(error)) from error
    except (OSError, untrusted.Tampered):
        return False


def read_order(paths: EnginePaths) -> dict[str, t.Any]:
    """Return the host's last order to the launcher, empty without one. The container can read it, but not write it."""
    return read_note(os.path.join(paths.launch, ORDER)) or {}


def engine_state(paths: EnginePaths, proc: str = "/proc", *, lenient: bool = False) -> dict[str, t.Any]:
    """Return the last run of this node's engine. The result has all keys even without a run.

    ``live`` is true only if the recorded process itself runs. A run that has ended has ``exit_code`` or ``exit_signal``, or neither if its launcher was
    killed with it. ``seconds`` is the time since its start, or the duration of a run that has ended, and does not depend on the wall clock.
    ``stopped_by`` is who had it stopped, from the host's own note, and ``ordered`` the run that was ordered last.
    With ``lenient`` a note that cannot be read counts as absent, and ``unreadable`` is the reason; otherwise it raises :class:`UnknownState`.
    """
    unreadable = ""
    try:
        run = read_run(os.path.join(paths.run, "run.json")) or {}
    except UnknownState as error:
        if not lenient:
            raise
        run, unreadable = {}, str(error)
    ended, request = (read_side(path) for path in (os.path.join(paths.run, "exit.json"), os.path.join(paths.launch, STOP_NOTE)))
    last_order = read_order(paths)
    order = last_order if run and last_order.get("run_id") == run["run_id"] else {}
    pid = host_pid(run, paths.run, proc) if run else None
    own_end = ended if run and ended.get("run_id") == run["run_id"] and pid is None else {}
    own_stop = request if run and run["run_id"] in (request.get("run_ids") or []) else {}
    lived = own_end.get("seconds") if pid is None else round(max(0.0, boot_seconds() - run["start_ticks"] / os.sysconf("SC_CLK_TCK")), 1)
    return {
        "live": pid is not None,
        "run_id": run.get("run_id", ""),
        "ordered": last_order.get("run_id", ""),
        "pid": pid,
        "argv": order.get("argv", []),
        "profile": order.get("profile", ""),
        "digest": order.get("digest", ""),
        # An order of an older version of the collection has no guard.
        "guarded": bool(order.get("guard")),
        "secret_env": order.get("secret_env", {}),
        "no_carry_env": order.get("no_carry_env", []),
        "api_address": order.get("api_address", ""),
        "api_port": order.get("api_port"),
        "started_at": run.get("started_at"),
        "seconds": lived,
        "exit_code": own_end.get("code"),
        "exit_signal": own_end.get("signal"),
        "ended_at": own_end.get("ended_at"),
        "stopped_at": own_stop.get("at"),
        "stopped_by": one_line(own_stop.get("by") or ""),
        "start_error": start_error(paths, ended) if ended.get("run_id") != run.get("run_id") else "",
        "log_path": paths.log_of(run["run_id"]) if run else "",
        "unreadable": unreadable,
    }


def on_node(state_dir: str, proc: str = "/proc") -> dict[str, dict[str, t.Any]]:
    """Return the last run of the engine of each cluster that has state on this node, by the cluster's name. Raises as :func:`engine_state` does.

    A directory that cannot be entered raises an error: it does not count as a cluster without a run.
    """
    names = [name for name in files.names(state_dir) if os.path.isdir(os.path.join(state_dir, name))]
    engines = {name: engine_state(EnginePaths.of(state_dir, state_dir, name), proc) for name in names}
    return {name: engine for name, engine in engines.items() if engine["run_id"]}


def one_line(text: str) -> str:
    """Return a record's text without line breaks and control characters."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def start_error(paths: EnginePaths, ended: dict[str, t.Any]) -> str:
    """Return why a run never began, from the record of its end; empty if it began."""
    why = one_line(ended.get("error") or "").replace(LOG_TARGET, paths.log).replace(RUN_TARGET, paths.run)
    return f"run {ended.get('run_id')} did not start: {why}" if why else ""


def last_end(engine: dict[str, t.Any]) -> str:
    """Return how the last run ended with its log's last line, or why it never began; empty for a live engine, or without a run."""
    if engine["start_error"] and not engine["live"]:
        return engine["start_error"]
    how = end_text(engine)
    try:
        # It is redacted before it is cut: a part of a secret is not recognized.
        line = redacted(engine_log.last_line(engine["log_path"]), secrets_of({})) if how else ""
    except ClusterError as error:
        line = f"({error})"
    return f"run {engine['run_id']} {how}" + (f", its log ends: {line[:SHOWN_LINE]}" if line else "") if how else ""


def signal_name(number: int) -> str:
    """Return the name of a signal; real-time signals have no name."""
    return signal.Signals(number).name if number in {*signal.Signals} else f"signal {number}"


def end_text(engine: dict[str, t.Any]) -> str:
    """Return how the last run ended as text without a subject; empty for a live engine, or without a run."""
    if engine["live"] or not engine["run_id"]:
        return ""
    after = "" if engine["seconds"] is None else f" after {engine['seconds']:.0f} s"
    at = "" if engine["ended_at"] is None else f" at {utc_text(engine['ended_at'])}"
    if engine["stopped_by"]:
        return f"was stopped by {engine['stopped_by']} at {utc_text(engine['stopped_at'] or 0)}{after}"
    if engine["exit_code"] is not None:
        return f"ended with exit code {engine['exit_code']}{at}{after}"
    if engine["exit_signal"] is not None:
        return f"was ended by {signal_name(engine['exit_signal'])}{at}{after}"
    return "is gone, and nothing noted how it ended"


# -- API -------------------------------------------------------------------------------------------------------------


def base_url(address: str, port: int) -> str:
    """Return the API's URL on this node: the loopback address replaces a wildcard address."""
    return _http.base_url(WILDCARDS.get(address, address), port)


def asked(url: str, timeout: float, key: _http.Key | None) -> _http.Answer:
    """Send a request without the API's key, and again with it if the API requires it."""
    answer = _http.ask(url, timeout)
    return _http.ask(url, timeout, key=key) if key and answer.status in KEY_WANTED else answer


def asked_health(url: str, timeout: float) -> str:
    """Return how the API answers ``/health``, as a constant of :mod:`health`. It only shows whether to request a token, and proves nothing."""
    answer = _http.ask(f"{url}/health", timeout)
    if answer.status is None:
        return health.REFUSED if answer.error == os.strerror(errno.ECONNREFUSED) else health.SILENT
    return health.ANSWERS if answer.status == 200 else health.SAYS_DEAD


def engine_version(url: str, timeout: float, key: _http.Key | None = None) -> str:
    """Return the engine's version, an empty string when it does not report one."""
    answer = asked(f"{url}/version", timeout, key)
    try:
        return "" if answer.problem else str(json.loads(answer.body).get("version", ""))
    except (ValueError, AttributeError):
        return ""


def completion_events(lines: t.Iterable[bytes]) -> t.Iterator[tuple[int, int]]:
    """Yield (generated tokens so far, tokens of the prompt) from the lines of a streamed completion.

    Raises :class:`UnknownState` when a line is not an event of a completion.
    """
    for raw in lines:
        line = raw.decode(errors="replace").strip()
        if not line.startswith("data:"):
            continue
        data = line[len("data:"):].strip()
        if data == "[DONE]":
            return
        try:
            event = json.loads(data)
            if "error" in event:
                return
            usage = event.get("usage") or {}
            yield int(usage.get("completion_tokens") or 0), int(usage.get("prompt_tokens") or 0)
        except (ValueError, AttributeError, TypeError):
            raise UnknownState("the API streams something that is not a completion", raw=line[:engine_log.LINE_LENGTH]) from None


def random_prompt(letters: int) -> str:
    """Return a prompt of so many random letters and spaces, which no cache has. With any tokenizer it has at most as many tokens."""
    return "".join(random.choice(f"{string.ascii_lowercase} ") for _letter in range(letters))


def first_token(url: str, model: str | None, key: _http.Key | None, timeout: float, prompt: str = PROMPT) -> Completion | None:
    """Request a short completion; return it once at least one token was generated, None if none came within ``timeout``.

    Without a ``model`` vLLM uses the first one that it serves.

    The answer is streamed, so the seconds are those to the first token, and a slow engine needs no time for the others.
    Raises :class:`ClusterError` if the API refuses the request, since it is then useless to wait, and the errors of ``key``.
    """
    body = {
        **({"model": model} if model else {}),
        "prompt": prompt,
        "max_tokens": MAX_TOKENS,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    headers = {"Content-Type": "application/json", "Connection": "close"}
    began = time.monotonic()
    try:
        with contextlib.closing(_http.connection_to(url, timeout)) as connection:
            headers.update(connection.key_headers(key))
            connection.request("POST", "/v1/completions", json.dumps(body).encode(), headers)
            with connection.getresponse() as answer:
                if answer.status == 200:
                    for tokens, prompt_tokens in completion_events(answer):
                        if tokens >= 1:
                            return Completion(tokens, round(time.monotonic() - began, 3), prompt_tokens)
                    return None
                refusal = answer.read(engine_log.LINE_LENGTH).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return None
    if answer.status >= 500:
        return None
    raise ClusterError(f"the API at {url} refuses a completion: HTTP {answer.status} {refusal}", remedy=_refusal_remedy(answer.status, model))


def _refusal_remedy(code: int, model: str | None) -> str:
    if code in KEY_WANTED:
        return "Give api_key_file the file whose key the engine was started with (secret_env VLLM_API_KEY)."
    if code == 404:
        return f"The engine does not serve {model!r}: compare its served_model_name, and whether something else listens on this port."
    return ""


def read_key(path: str | None) -> str:
    """Return the API key in a file, an empty string without a file. Only :mod:`api_key` sends it."""
    if not path:
        return ""
    try:
        key = files.required_text(path)
    except OSError as error:
        raise ClusterError(f"cannot read the API key in {path}: {error.strerror}", remedy="Run the task with become: true, or create the file.") from None
    if not key:
        raise ClusterError(f"the API key file {path} is empty")
    return key
