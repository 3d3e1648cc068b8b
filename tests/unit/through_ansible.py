# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible as a process of its own, with this collection, on this machine."""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: The bytecode of modules, for as long as this process lives.
_COMPILED = tempfile.TemporaryDirectory()
#: Seconds that a run may take.
TIMEOUT = 180

#: What every run gets, so that a test finds the same from whatever directory and shell it is started.
ENVIRONMENT = {
    "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
    "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
    "ANSIBLE_INJECT_FACT_VARS": "false",
    "ANSIBLE_LOCALHOST_WARNING": "false",
    "ANSIBLE_PIPELINING": "true",
    "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
    "COMPILED_ONCE": _COMPILED.name,
    "PYTHONPATH": str(ROOT / "tests/unit/compiled_once"),
}


@dataclasses.dataclass(frozen=True)
class Ran:
    """The outcome of a run."""

    rc: int
    stdout: str
    stderr: str

    @property
    def out(self) -> str:
        """Its whole output, errors and warnings last."""
        return self.stdout + self.stderr


class Parent:
    """A process that forks for each run, see ansible_parent.py."""

    def __init__(self, env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("ansible_parent.py"))],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )
        atexit.register(self.end)

    def end(self) -> None:
        """End it; it removes Ansible's temporary directory first."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(TIMEOUT)

    def run(self, **request: object) -> int:
        """Let it fork for a run, and return the exit code.

        Raises subprocess.TimeoutExpired when it takes longer than ``TIMEOUT`` seconds; the process has ended then.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        with selectors.DefaultSelector() as answered:
            answered.register(self._process.stdout, selectors.EVENT_READ)
            if not answered.select(TIMEOUT):
                os.killpg(self._process.pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired([str(request["program"]), *request["arguments"]], TIMEOUT)  # type: ignore[misc]
        return int(self._process.stdout.readline())


#: The parents of this test process by the environment that Ansible reads its configuration from.
_parents: dict[frozenset[tuple[str, str]], Parent] = {}


def run(program: str, *arguments: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> Ran:
    """Run one of Ansible's programs (``playbook``, ``adhoc``) to its end, whatever its exit code; ``env`` goes on top of ``ENVIRONMENT``.

    Raises subprocess.TimeoutExpired when it takes longer than ``TIMEOUT`` seconds, and OSError when there is no directory ``cwd``.
    """
    whole = {**os.environ, **ENVIRONMENT, **(env or {})}
    configuration = frozenset((name, value) for name, value in whole.items() if name.startswith("ANSIBLE_") or name in ("HOME", "PATH", "PYTHONPATH"))
    if configuration not in _parents:
        _parents[configuration] = Parent(whole)
    with tempfile.TemporaryDirectory() as place:
        outputs = {name: Path(place) / name for name in ("stdout", "stderr")}
        for output in outputs.values():
            output.touch()
        files = {name: str(output) for name, output in outputs.items()}
        try:
            rc = _parents[configuration].run(program=program, arguments=arguments, cwd=str(Path(cwd).resolve(strict=True)), env=whole, **files)
        except subprocess.TimeoutExpired:
            # The process was ended: the next run needs another one.
            del _parents[configuration]
            raise
        return Ran(rc, *(output.read_text(encoding="utf-8") for output in outputs.values()))
