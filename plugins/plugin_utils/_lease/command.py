# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command of a lease: what it is, what it is told, and how it runs on the controller. This plugin util is PRIVATE to the collection."""

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

#: Seconds that a command gets to end after SIGTERM.
END_SECONDS = 30.0
#: Bytes of its output that one look takes in, and characters of a line that are shown.
LOOK_BYTES, LINE_LENGTH = 1 << 20, 1000
#: Lines of its output that a result keeps.
TAIL_LINES = 20
#: Linux: the signal that a process gets when its parent ends.
_PR_SET_PDEATHSIG = 1


def words_of(given: t.Any) -> list[str]:
    """Return the words of a command: those of a list, or those of a text as a shell reads it, without any expansion.

    Empty where no lease is wanted (an empty text). Raises :class:`ValueError` for anything that is no command.
    """
    if isinstance(given, str):
        return shlex.split(given)
    if not isinstance(given, (list, tuple)) or any(isinstance(word, (dict, list, tuple)) or word is None for word in given):
        raise ValueError("neither a text nor a list of words")
    words = [str(word) for word in given]
    if not words or not words[0]:
        raise ValueError("a list without a program")
    if any("\0" in word for word in words):
        raise ValueError("a word holds a NUL character")
    return words


def program_of(word: str) -> str:
    """Return where the program of a command lies on this controller, empty where it does not, or cannot be run."""
    return shutil.which(os.path.expanduser(word)) or ""


class Service(t.NamedTuple):
    """An engine that a lease has: its cluster, its address and model as clients call them, and the file with its key, empty where it wants none."""

    cluster: str
    endpoint: str
    model: str
    key_file: str


def environment(inherited: t.Mapping[str, str], mode: str, services: t.Sequence[Service], services_file: str) -> dict[str, str]:
    """Return the environment of the command. The variables about one engine are about the first one; the file has all of them."""
    first = services[0]
    given = {
        "GB10_MODE": mode,
        "GB10_CLUSTER": first.cluster,
        "GB10_ENDPOINT": first.endpoint,
        "GB10_MODEL": first.model,
        "GB10_SERVICES_FILE": services_file,
        "OPENAI_BASE_URL": first.endpoint,
        **({"GB10_API_KEY_FILE": first.key_file} if first.key_file else {}),
    }
    # A file that the credential of a job controller named holds the same key, or is about another engine.
    return {**{name: value for name, value in inherited.items() if name != "GB10_API_KEY_FILE"}, **given}


def _end_with_parent() -> None:
    """Have the kernel end the command when the process that watches it is killed. Not on every system."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Command:
    """A command that runs, without a shell and in a process group of its own; what it prints goes into its log, which its user alone may read."""

    def __init__(self, words: t.Sequence[str], env: t.Mapping[str, str], log: str) -> None:
        """Start it. Raises :class:`ClusterError` when the log cannot be made or the program cannot be run."""
        self.log = log
        self.began = time.monotonic()
        self._shown = 0
        self._rest = b""
        try:
            os.makedirs(os.path.dirname(log), mode=0o700, exist_ok=True)
            handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_APPEND, 0o600)
        except OSError as error:
            raise ClusterError(f"the log {log} cannot be made: {error.strerror}", remedy="Free space there, or set gb10_records_dir.", reason="log") from error
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
        """Return for how long it has been running."""
        return time.monotonic() - self.began

    def exit_code(self) -> int | None:
        """Return how it ended, None while it runs; 128 and the signal's number where one ended it."""
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code

    def new_lines(self, last: bool = False) -> list[str]:
        """Return the lines that it printed since the last look, of very many the first; with ``last`` all of them, and an unfinished one, too."""
        with open(self.log, "rb") as stream:
            stream.seek(self._shown)
            found = stream.read(-1 if last else LOOK_BYTES)
        self._shown += len(found)
        *lines, self._rest = (self._rest + found).split(b"\n")
        if self._rest and (last or len(self._rest) > LOOK_BYTES):
            lines, self._rest = [*lines, self._rest], b""
        return [line.decode("utf-8", "replace").rstrip("\r")[:LINE_LENGTH] for line in lines]

    def end(self) -> None:
        """Ask it and its children to end, and kill them when they do not. One that has ended leaves nothing to do."""
        if self.exit_code() is not None:
            return
        for number, seconds in ((signal.SIGTERM, END_SECONDS), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
                return


def log_path(beside: str, cluster: str, now: time.struct_time) -> str:
    """Return where the log of a command is kept: in the directory of ``beside``, by the time at which it began (UTC)."""
    return os.path.join(os.path.dirname(os.path.expanduser(beside)), f"{cluster}-lease-{time.strftime('%Y%m%dT%H%M%SZ', now)}.log")
