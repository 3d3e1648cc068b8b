# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a program under a deadline that holds even when the program cannot die. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import tempfile
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState

#: Seconds that a killed program gets to end before it is left running.
KILL_GRACE = 2.0

#: Maximum bytes to read of each output. No expected tool prints more.
OUTPUT_LIMIT = 8 * 1024 * 1024


@dataclasses.dataclass(frozen=True)
class ToolResult:
    """How a program ended: exit status (negative: the signal) and its two outputs as text."""

    rc: int
    stdout: str
    stderr: str

    @property
    def raw(self) -> str:
        """Both outputs in one text, for messages about an answer that could not be parsed."""
        return "\n".join(output.strip() for output in (self.stdout, self.stderr) if output.strip())


def _output(stream: t.BinaryIO) -> str:
    stream.seek(0)
    return stream.read(OUTPUT_LIMIT).decode("utf-8", errors="replace")


def run_tool(argv: t.Sequence[str], timeout: float, content: bytes = b"") -> ToolResult:
    """Run ``argv`` (no shell, C locale, ``content`` as its input) for at most ``timeout`` seconds.

    A program stuck in the kernel ignores SIGKILL, and waiting for it would hang the module too, so it is left running. Its input and output
    are files and not pipes, so that a child process that keeps them open cannot hang the module either.

    Raises :class:`UnknownState` when the program is missing, cannot be run, or does not end in time.
    """
    name = os.path.basename(argv[0])
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        stdin.write(content)
        stdin.seek(0)
        try:
            # run_command waits forever for a process that is stuck in the kernel.
            process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                list(argv),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,
            )
        except OSError as error:
            raise UnknownState(
                f"{name} cannot be run: {error.strerror or error} ({argv[0]})",
                remedy=f"Install {name} on this node, or set its path.",
                reason="tool missing",
                raw=str(error),
            ) from error
        try:
            rc = process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            _kill(process)
            raise UnknownState(
                f"{name} did not answer within {timeout:g} s",
                remedy=f"Run it by hand on this node and see where it hangs: {' '.join(argv)}",
                reason="tool hangs",
                raw=ToolResult(0, _output(stdout), _output(stderr)).raw,
            ) from error
        return ToolResult(rc, _output(stdout), _output(stderr))


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(KILL_GRACE)
