# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plays on the lab, run through ansible-runner as a job controller would run them.

The lab must be up (`make lab-up`). Tests run in the order of their files and leave the lab as they found it: no cluster.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path

import ansible_runner
import pytest

ROOT = Path(__file__).resolve().parents[2]
INVENTORY = ROOT / "inventories" / "lab"
HEAD, WORKER = "spark-1", "spark-2"


@dataclasses.dataclass
class Play:
    """What a finished play left behind."""

    rc: int
    events: list[dict[str, t.Any]]
    stdout: str
    seconds: float
    ended: float

    @property
    def changed(self) -> dict[str, int]:
        """Number of changes by host, hosts without any left out."""
        return {host: count for host, count in self._stats["changed"].items() if count}

    @property
    def _stats(self) -> dict[str, dict[str, int]]:
        return next(event["event_data"] for event in reversed(self.events) if event["event"] == "playbook_on_stats")

    @property
    def failures(self) -> str:
        """The messages of all failed tasks, one below the other."""
        return "\n".join(
            str(event["event_data"]["res"].get("msg", "")) for event in self.events if event["event"] == "runner_on_failed"
        )

    def tasks(self) -> list[tuple[str, str]]:
        """(role, task) of every task that really ran on a host, in order, without the framework's own argument checks."""
        seen = []
        for event in self.events:
            if event["event"] not in ("runner_on_ok", "runner_on_failed"):
                continue
            data = event["event_data"]
            if data.get("task_action") in ("ansible.builtin.include_role", "ansible.builtin.include_tasks", "ansible.builtin.validate_argument_spec"):
                continue
            key = (data.get("role", ""), data["task"])
            if key not in seen:
                seen.append(key)
        return seen

    def stat(self, name: str) -> t.Any:
        """A value that the play passed on with set_stats."""
        return self._stats["artifact_data"][name]


class Lab:
    """The two simulated Sparks, seen from the controller."""

    def __init__(self, private: Path) -> None:
        self._private = private
        self.scratch = private
        self._runs = 0

    def play(
        self,
        playbook: str = "nemotron_tp2",
        *,
        check: bool = False,
        tags: str = "",
        on_output: t.Callable[[str], None] | None = None,
        **variables: t.Any,
    ) -> Play:
        """Run a playbook to its end. ``on_output`` sees every chunk of output while the play goes on."""
        self._runs += 1
        directory = self._private / str(self._runs)
        directory.mkdir()
        began = time.monotonic()
        runner = ansible_runner.run(
            private_data_dir=str(directory),
            project_dir=str(ROOT),
            playbook=str(ROOT / "playbooks" / f"{playbook}.yml"),
            inventory=str(INVENTORY),
            extravars=variables,
            tags=tags or None,
            cmdline="--check --diff" if check else None,
            envvars={
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
            },
            event_handler=(lambda event: on_output(event.get("stdout", "")) or True) if on_output else None,
            quiet=True,
        )
        ended = time.time()
        return Play(runner.rc, list(runner.events), runner.stdout.read(), time.monotonic() - began, ended)

    def run(self, host: str, *argv: str, check: bool = True) -> str:
        """Run a command on a node as root, over the engine that holds the node; returns its output."""
        done = subprocess.run(["docker", "exec", f"gb10-lab-{host}", *argv], capture_output=True, text=True, timeout=180, check=False)
        if check and done.returncode:
            raise AssertionError(f"{host}: {argv} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def containers(self, host: str) -> dict[str, str]:
        """Names and ids of the cluster's containers on a node, running or not."""
        ours = ("--filter", "label=io.gb10.cluster=gb10")
        return dict(line.split() for line in self.run(host, "docker", "ps", "-a", "--no-trunc", *ours, "--format", "{{.Names}} {{.ID}}").splitlines())

    def json(self, host: str, path: str) -> dict[str, t.Any]:
        return json.loads(self.run(host, "cat", path))

    def write_host_vars(self, host: str, variables: dict[str, t.Any]) -> None:
        """Give one host variables of its own, as a user would: in the inventory's host_vars."""
        path = INVENTORY / "host_vars" / f"{host}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(variables), encoding="utf-8")

    def remove_host_vars(self, host: str) -> None:
        (INVENTORY / "host_vars" / f"{host}.json").unlink()

    @contextlib.contextmanager
    def driver(self, **state: t.Any) -> t.Iterator[None]:
        """Let the simulated driver tools of all nodes behave in a certain way for a while."""
        path = "/var/lib/gb10-lab/gpu.json"
        try:
            for host in (HEAD, WORKER):
                self._write(host, path, json.dumps(state))
            yield
        finally:
            for host in (HEAD, WORKER):
                self.run(host, "rm", "-f", path)

    @staticmethod
    def _write(host: str, path: str, text: str) -> None:
        subprocess.run(["docker", "exec", "-i", f"gb10-lab-{host}", "tee", path], input=text, text=True, stdout=subprocess.DEVNULL, timeout=60, check=True)

    def inspect(self, host: str, container: str) -> dict[str, t.Any]:
        return json.loads(self.run(host, "docker", "inspect", container))[0]


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    if not (INVENTORY / "hosts.yml").exists():
        pytest.fail("the lab is not up; run `make lab-up` first")
    return Lab(tmp_path_factory.mktemp("runner"))


@pytest.fixture
def no_cluster(lab: Lab) -> t.Iterator[None]:
    """A test that starts and ends without a cluster."""
    lab.play("teardown")
    yield
    assert lab.play("teardown").rc == 0


@pytest.fixture
def live_cluster(lab: Lab) -> Play:
    """A test that needs a serving cluster; brings one up unless it is there."""
    played = lab.play()
    assert played.rc == 0, played.failures
    return played


class Once:
    """Calls something once, in a thread of its own, as soon as the output of a play holds a text."""

    def __init__(self, text: str, act: t.Callable[[], None]) -> None:
        self._text, self._act = text, act
        self._thread: threading.Thread | None = None
        #: Seconds since the epoch when it was done.
        self.at = 0.0

    def __call__(self, output: str) -> None:
        if self._thread is None and self._text in output:
            self._thread = threading.Thread(target=self._run)
            self._thread.start()

    def _run(self) -> None:
        self._act()
        self.at = time.time()

    def join(self) -> None:
        assert self._thread is not None, f"the play never said {self._text!r}"
        self._thread.join()
