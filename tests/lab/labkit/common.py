# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names and directories of the lab; helpers that run commands and print progress."""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import subprocess
import time
import typing as t

HERE = pathlib.Path(__file__).resolve().parent.parent
REPOSITORY = HERE.parent.parent
LAB_DIR = REPOSITORY / ".lab"

# Everything the lab makes carries this label, and only what carries it is ever removed.
LABEL = "io.gb10.lab=1"


class LabError(Exception):
    """The lab cannot go on; the message says why and what to do."""


def run(argv: t.Sequence[str], *, timeout: float = 60, data: str | None = None, check: bool = True) -> str:
    """Run a command and return what it wrote to standard output, stripped.

    ``timeout`` is in seconds. Raises LabError when it cannot start, does not end in time or, with ``check``, fails.
    """
    try:
        done = subprocess.run(argv, input=data, capture_output=True, text=True, timeout=timeout, check=False)
    except FileNotFoundError as error:
        raise LabError(f"{argv[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"no end after {timeout:.0f} s: {' '.join(argv)}") from error
    if check and done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise LabError(f"exit code {done.returncode}: {' '.join(argv)}\n{tail}")
    return done.stdout.strip()


def succeeds(argv: t.Sequence[str], *, timeout: float = 60) -> bool:
    """Whether a command exists, ends in time and exits with 0."""
    try:
        run(argv, timeout=timeout)
    except LabError:
        return False
    return True


def docker(*arguments: str, timeout: float = 60, data: str | None = None, check: bool = True) -> str:
    """Run the Docker CLI; see ``run``."""
    return run(["docker", *arguments], timeout=timeout, data=data, check=check)


def pipe(source: t.Sequence[str], sink: t.Sequence[str], *, timeout: float) -> None:
    """Run ``source | sink`` without a shell. Raises LabError when either fails or the sink does not end within ``timeout`` seconds."""
    with subprocess.Popen(source, stdout=subprocess.PIPE) as producer:
        try:
            done = subprocess.run(sink, stdin=producer.stdout, capture_output=True, text=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired as error:
            producer.kill()
            raise LabError(f"no end after {timeout:.0f} s: {' '.join(source)} | {' '.join(sink)}") from error
        if producer.stdout is not None:
            producer.stdout.close()
    if producer.returncode != 0 or done.returncode != 0:
        raise LabError(f"failed: {' '.join(source)} | {' '.join(sink)}\n{done.stderr.strip()}")


def wait_until(condition: t.Callable[[], bool], what: str, *, timeout: float, interval: float = 0.5) -> None:
    """Ask until the condition holds. Raises LabError naming ``what`` after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise LabError(f"waited {timeout:.0f} s for {what}")
        time.sleep(interval)


@contextlib.contextmanager
def step(what: str) -> t.Iterator[None]:
    """Print what is being done and how long it took, in seconds."""
    print(f"  {what} …", end="", flush=True)
    started = time.monotonic()
    try:
        yield
    except BaseException:
        print(" failed", flush=True)
        raise
    print(f" {time.monotonic() - started:.1f} s", flush=True)


def fingerprint(*inputs: pathlib.Path | str) -> str:
    """Twelve hex digits over strings and over the names, modes and contents of all files under directories."""
    digest = hashlib.sha256()
    for item in inputs:
        if isinstance(item, str):
            digest.update(item.encode())
            continue
        for path in sorted(item.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(item)} {path.stat().st_mode & 0o111:o}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
