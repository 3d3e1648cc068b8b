# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command of a lease: its words, its environment, and its process on the controller. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError

#: Seconds from SIGTERM to SIGKILL.
END_SECONDS = 30.0
#: Bytes of its output that one read returns, and characters of a line that are shown.
LOOK_BYTES, LINE_LENGTH = 1 << 20, 1000
#: Lines of its output in a result.
TAIL_LINES = 20
#: Linux: sets the signal that a process gets when its parent ends.
_PR_SET_PDEATHSIG = 1


def words_of(given: t.Any) -> list[str]:
    """Return the words of a command that is a list, or text. Text is split as a shell does, without expansion.

    Empty text has no words. Raises :class:`ValueError` for an invalid command.
    """
    if isinstance(given, str):
        return shlex.split(given)
    if not isinstance(given, (list, tuple)) or any(isinstance(word, (dict, list, tuple)) or word is None for word in given):
        raise ValueError("neither a text nor a list of words")
    words = [str(word) for word in given]
    if not words or not words[0]:
        raise ValueError("a list without a program")
    if any("\0" in word for word in words):
        raise ValueError("a word contains a NUL character")
    return words


def program_of(word: str) -> str:
    """Return the path of a command's program on this controller, empty when it is missing or not executable."""
    return shutil.which(os.path.expanduser(word)) or ""


class Service(t.NamedTuple):
    """An engine of a lease: its cluster, its endpoint and model for clients, and the file with its key, empty when it needs none."""

    cluster: str
    endpoint: str
    model: str
    key_file: str


def environment(inherited: t.Mapping[str, str], mode: str, services: t.Sequence[Service], services_file: str) -> dict[str, str]:
    """Return the environment of the command. Variables for one engine have the values of the first one; the file has all engines."""
    first = services[0]
    return {
        # A GB10_API_KEY_FILE from the credential of a job controller contains the same key, or another engine's.
        **{name: value for name, value in inherited.items() if name != "GB10_API_KEY_FILE"},
        "GB10_MODE": mode,
        "GB10_CLUSTER": first.cluster,
        "GB10_ENDPOINT": first.endpoint,
        "GB10_MODEL": first.model,
        "GB10_SERVICES_FILE": services_file,
        "OPENAI_BASE_URL": first.endpoint,
        **({"GB10_API_KEY_FILE": first.key_file} if first.key_file else {}),
    }


def _end_with_parent() -> None:
    """Let the kernel end the command when its parent process is killed (Linux only)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Command:
    """A running command, without a shell and in its own process group; its output goes to its log, which only its user may read."""

    def __init__(self, words: t.Sequence[str], env: t.Mapping[str, str], log: str) -> None:
        """Start it. Raises :class:`ClusterError` when the log cannot be created or the program cannot be run."""
        self.log = log
        self.began = time.monotonic()
        self._shown = 0
        self._rest = b""
        try:
            os.makedirs(os.path.dirname(log), mode=0o700, exist_ok=True)
            handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_APPEND, 0o600)
        except OSError as error:
            raise ClusterError(
                f"the log {log} cannot be created: {error.strerror}", remedy="Free disk space, or set gb10_records_dir.", reason="log"
            ) from error
        with open(handle, "wb") as output:
            try:
                self._process = subprocess.Popen(
                    [program_of(words[0]) or words[0], *words[1:]],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=dict(env),
                    start_new_session=True,
                    preexec_fn=_end_with_parent if sys.platform.startswith("linux") else None,  # pylint: disable=subprocess-popen-preexec-fn
                )
            except OSError as error:
                raise ClusterError(
                    f"{words[0]} cannot be run on the controller: {error.strerror}", remedy="Correct gb10_lease.", reason="program"
                ) from error

    @property
    def seconds(self) -> float:
        """Return the seconds since its start."""
        return time.monotonic() - self.began

    def exit_code(self) -> int | None:
        """Return its exit code, None while it runs; 128 plus the signal's number after a signal."""
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code

    def new_lines(self, last: bool = False) -> list[str]:
        """Return the lines since the last call, up to a limit; with ``last`` all of them, including an unfinished line."""
        with open(self.log, "rb") as stream:
            stream.seek(self._shown)
            chunk = stream.read(-1 if last else LOOK_BYTES)
        self._shown += len(chunk)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if self._rest and (last or len(self._rest) > LOOK_BYTES):
            lines, self._rest = [*lines, self._rest], b""
        return [line.decode("utf-8", "replace").rstrip("\r")[:LINE_LENGTH] for line in lines]

    def end(self) -> None:
        """Terminate it and its children, and kill them after a grace period, unless it has ended."""
        if self.exit_code() is not None:
            return
        for number, seconds in ((signal.SIGTERM, END_SECONDS), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
                return


def log_path(beside: str, cluster: str, now: time.struct_time) -> str:
    """Return the path of a command's log: in the directory of ``beside``, named by its start (UTC)."""
    return os.path.join(os.path.dirname(os.path.expanduser(beside)), f"{cluster}-lease-{time.strftime('%Y%m%dT%H%M%SZ', now)}.log")
