# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible as a process of its own, with this collection, on this machine."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Seconds that a run may take.
TIMEOUT = 180

#: What every run is told, so that a test finds the same from whatever directory and shell it is started.
ENVIRONMENT = {
    "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
    "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
    "ANSIBLE_INJECT_FACT_VARS": "false",
    "ANSIBLE_LOCALHOST_WARNING": "false",
    "ANSIBLE_PIPELINING": "true",
    "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
}


@dataclasses.dataclass(frozen=True)
class Ran:
    """What came of a run."""

    rc: int
    stdout: str
    stderr: str

    @property
    def out(self) -> str:
        """All it printed, errors and warnings last."""
        return self.stdout + self.stderr


def run(program: str, *arguments: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> Ran:
    """Run one of Ansible's programs (``playbook``, ``adhoc``) to its end, whatever its exit code; ``env`` goes on top of ``ENVIRONMENT``.

    Raises subprocess.TimeoutExpired when it takes longer than ``TIMEOUT`` seconds, and OSError when there is no directory ``cwd``.
    """
    done = subprocess.run(
        [sys.executable, "-m", "ansible", program, *arguments],
        cwd=cwd,
        env={**os.environ, **ENVIRONMENT, **(env or {})},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
