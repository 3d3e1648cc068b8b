# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a node's engine: its files, its process, its log, its API. This module util is PRIVATE to the collection.

Everything here only reads, needs the standard library alone, and never enters the container: a node short of memory can
still be asked.

What the container writes (its notes, its log) is untrusted. Of a note only which process the engine is and how it ended is believed, as far as
the kernel agrees; what the engine was started with comes from the host's own order, which the container can only read.
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

#: Addresses that mean all of a node's own, and the one of these that answers on the node itself.
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}

#: Answers of an API that wants a key.
KEY_WANTED = (401, 403)

#: The prompt, and the tokens of its answer. Only that a token is generated matters.
PROMPT = "Hello"
MAX_TOKENS = 8


class EnginePaths(t.NamedTuple):
    """One cluster's directories on the node, as the host sees them."""

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
        """Return the directories above what the container writes, which root alone may enter."""
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

    The start (in clock ticks since boot) is the same seen from the host and from inside, and with the container's own pid
    it names one process. Reading it from the host works when nothing can be started inside any more. A note can name any process
    of the node, so only one counts that lives where ``run_dir`` is mounted.
    """
    for pid in map(int, filter(str.isdigit, os.listdir(proc))):
        stat = process_table.read_stat(pid, proc)
        if stat and stat.start_ticks == run["start_ticks"] and stat.state not in "ZX" and process_table.namespace_pid(pid, proc) == run["pid"]:
            if sees_directory(pid, run_dir, proc):
                return pid
    return None


def sees_directory(pid: int, run_dir: str, proc: str = "/proc") -> bool:
    """Return whether a process is in the container that has this directory of records. Raises :class:`UnknownState` when that may not be seen."""
    try:
        with untrusted.directory(os.path.join(proc, str(pid), "root"), RUN_TARGET.lstrip("/")) as there:
            return os.path.samestat(os.fstat(there), os.stat(run_dir))
    except PermissionError as error:
        raise UnknownState(f"process {pid} may be the engine, and cannot be looked at", remedy=BECOME, reason="permission", raw=str(error)) from error
    except (OSError, untrusted.Tampered):
        return False


def read_order(paths: EnginePaths) -> dict[str, t.Any]:
    """Return the host's last order to the launcher, empty without one.

    The container can read it and cannot write it.
    """
    return read_note(os.path.join(paths.launch, ORDER)) or {}


def engine_state(paths: EnginePaths, proc: str = "/proc", *, lenient: bool = False) -> dict[str, t.Any]:
    """Return the last run of this node's engine, with every key also when there was none.

    ``live`` is true only when its very process is there. A run that is over has ``exit_code`` or ``exit_signal``, or neither
    when its launcher was killed with it. ``seconds`` is the time since its start, or how long a run lasted that is over, and
    does not depend on the wall clock; ``stopped_by`` says who had it stopped, by the host's own note, and ``ordered`` which run was ordered last.
    With ``lenient`` a note that cannot be read counts as none, and ``unreadable`` says why; otherwise it raises :class:`UnknownState`.
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
        "digest": order.get("digest", ""),
        # An order of a former version of the collection has no guard.
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

    A directory that may not be entered does not count as a cluster without a run.
    """
    names = [name for name in files.names(state_dir) if os.path.isdir(os.path.join(state_dir, name))]
    found = {name: engine_state(EnginePaths.of(state_dir, state_dir, name), proc) for name in names}
    return {name: engine for name, engine in found.items() if engine["run_id"]}


def one_line(text: str) -> str:
    """Return a record's text without line breaks and control characters."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def start_error(paths: EnginePaths, ended: dict[str, t.Any]) -> str:
    """Return why a run never began, by the record of its end; empty when it began."""
    why = one_line(ended.get("error") or "").replace(LOG_TARGET, paths.log).replace(RUN_TARGET, paths.run)
    return f"run {ended.get('run_id')} did not start: {why}" if why else ""


def last_end(engine: dict[str, t.Any]) -> str:
    """Return which engine ended last, how, and its log's last line, or why the last one never began; empty when it lives, or when there was none."""
    if engine["start_error"] and not engine["live"]:
        return engine["start_error"]
    how = end_text(engine)
    try:
        # Before it is cut: a part of a secret is not recognized.
        line = redacted(engine_log.last_line(engine["log_path"]), secrets_of({})) if how else ""
    except ClusterError as error:
        line = f"({error})"
    return f"run {engine['run_id']} {how}" + (f", its log ends: {line[:SHOWN_LINE]}" if line else "") if how else ""


def signal_name(number: int) -> str:
    """Return the name of a signal; real-time signals have no name."""
    return signal.Signals(number).name if number in {*signal.Signals} else f"signal {number}"


def end_text(engine: dict[str, t.Any]) -> str:
    """Return how the last engine ended in words, without a subject; empty when it lives, or when there was none."""
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
    """Return the API's URL as this node reaches it: a wildcard address is asked on the loopback."""
    return _http.base_url(WILDCARDS.get(address, address), port)


def asked(url: str, timeout: float, key: _http.Key | None) -> _http.Answer:
    """Ask without the API's key, and once more with it where it is wanted."""
    answer = _http.ask(url, timeout)
    return _http.ask(url, timeout, key=key) if key and answer.status in KEY_WANTED else answer


def asked_health(url: str, timeout: float) -> str:
    """Return how the API answers ``/health``, in the words of :mod:`health`: a hint that it is worth asking for a token, and no proof of anything."""
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
    """Return a prompt of so many letters and blanks that no cache knows. It has no more tokens than that, whatever the tokenizer."""
    return "".join(random.choice(f"{string.ascii_lowercase} ") for _letter in range(letters))


def first_token(url: str, model: str | None, key: _http.Key | None, timeout: float, prompt: str = PROMPT) -> Completion | None:
    """Ask for a short completion; return it once at least one token was generated, None when none came within ``timeout``.

    Without a ``model`` vLLM takes the first that it serves.

    The answer is streamed, so the seconds are those to the first token, and a slow engine needs no time for the others.
    Raises :class:`ClusterError` when the API refuses what was asked, for then waiting is in vain, and what ``key`` raises.
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
    """Return the API key in a file, an empty string without a file. It is for :mod:`api_key`, which alone sends it."""
    if not path:
        return ""
    try:
        key = files.required_text(path)
    except OSError as error:
        raise ClusterError(f"cannot read the API key in {path}: {error.strerror}", remedy="Run the task with become: true, or create the file.") from None
    if not key:
        raise ClusterError(f"the API key file {path} is empty")
    return key
