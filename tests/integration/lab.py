# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plays on the lab, run through ansible-runner as a job controller would run them, and direct access to its nodes."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import ansible_runner
import yaml

ROOT = Path(__file__).resolve().parents[2]
#: Head and worker of each lab, by the name of its inventory.
LABS = {"lab": ("spark-1", "spark-2"), "lab_next": ("spark-3", "spark-4")}

#: The lab that the tests run on, as for molecule.
INVENTORY = ROOT / "inventories" / os.environ.get("GB10_LAB", "lab")
HEAD, WORKER = LABS[INVENTORY.name]

#: Schema of the records of the preflight, the doctor and the fabric probe.
RECORD_SCHEMA = json.loads((ROOT / "plugins" / "plugin_utils" / "_rules" / "preflight.schema.json").read_text(encoding="utf-8"))

#: Seconds until Ctrl-C is pressed again.
PATIENCE = 12

#: The launcher's record of an engine's start.
RUN = "/var/lib/gb10/gb10/run/run.json"
#: A node's recorded baseline, with which it is compared later.
BASELINE = "/var/lib/gb10/baseline.json"
#: The unit of the pair's engine on each node.
UNIT = "gb10-engine-gb10.service"
#: Removes that unit, and leaves running what it started. Argument: the unit.
UNIT_AWAY = """
file=/etc/systemd/system/$1
[ -e "$file" ] || exit 0
touch /var/lib/gb10/gb10/unit/release
systemctl disable --quiet --now "$1"
rm -rf "$file" /var/lib/gb10/gb10/unit /var/lib/gb10/glance-gb10.json
systemctl daemon-reload
systemctl reset-failed "$1" 2> /dev/null || true
"""


def utc(created: str) -> float:
    """Convert the time of an ansible-runner event, which is in UTC, to seconds since the epoch."""
    return datetime.datetime.fromisoformat(created).replace(tzinfo=datetime.timezone.utc).timestamp()


@dataclasses.dataclass
class Play:
    """A finished play."""

    rc: int
    events: list[dict[str, t.Any]]
    stdout: str
    #: Seconds since the epoch.
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def said(self) -> str:
        """The whole output as one line without colors. Ansible wraps long lines and colors each part."""
        return " ".join(re.sub(r"\x1b\[[\d;]*m", "", self.stdout).split())

    @property
    def hosts(self) -> set[str]:
        """All hosts on which a task ran or was skipped."""
        counts = ("ok", "skipped", "failures", "dark")
        return {host for count in counts for host in self._stats[count]}

    @property
    def changed(self) -> dict[str, int]:
        """Number of changes by host, without unchanged hosts."""
        return {host: count for host, count in self._stats["changed"].items() if count}

    @property
    def _stats(self) -> dict[str, dict[str, int]]:
        return next(event["event_data"] for event in reversed(self.events) if event["event"] == "playbook_on_stats")

    @property
    def failures(self) -> str:
        """The messages of all failed tasks, one per line, and the tables and lines that they refer to."""
        messages = [message for _at, message in self.failed_at]
        shown = [event["stdout"] for event in self.events if event["event"] == "verbose"]
        return "\n".join([*messages, *(shown if messages else [])])

    @property
    def failed_at(self) -> list[tuple[float, str]]:
        """Time (seconds since the epoch) and message of every task that failed on a host, or did not reach it."""
        return [
            (utc(event["created"]), str(event["event_data"]["res"].get("msg", "")))
            for event in self.events
            if event["event"] in ("runner_on_failed", "runner_on_unreachable")
        ]

    @property
    def logs(self) -> Path | None:
        """The controller's directory with the logs of a failed bring-up, None when the play names none."""
        named = re.search(r"Logs on this controller: (\S+)", self.failures)
        return Path(named[1]) if named else None

    def tasks(self) -> list[tuple[str, str]]:
        """(role, task) of every task that really ran on a host, in order, without the framework's own argument checks.

        For the roles ``engine`` (several stages) and ``gb10`` (more than settings), the name of the task file replaces the role's name.
        """
        seen = []
        for event in self.events:
            if event["event"] not in ("runner_on_ok", "runner_on_failed"):
                continue
            data = event["event_data"]
            if data.get("task_action") in ("ansible.builtin.include_role", "ansible.builtin.include_tasks", "ansible.builtin.validate_argument_spec"):
                continue
            role, file = data.get("role", ""), Path(data["task_path"].rpartition(":")[0]).stem
            key = (file if role.rpartition(".")[2] in ("engine", "gb10") else role, data["task"])
            if key not in seen:
                seen.append(key)
        return seen

    def stat(self, name: str) -> t.Any:
        """A value that the play published with set_stats."""
        return self._stats["artifact_data"][name]


@dataclasses.dataclass
class Interrupted:
    """An interrupted run."""

    rc: int
    output: str
    #: How often Ctrl-C was pressed.
    presses: int
    #: Seconds since the epoch: the first Ctrl-C, and the end of the run.
    pressed: float
    ended: float


class Lab:
    """The two simulated Sparks, seen from the controller."""

    def __init__(self, private: Path, inventories: t.Sequence[Path] = (INVENTORY,), tree: Path = ROOT) -> None:
        self._private = private
        # The directory of the collection whose plays run.
        self._tree = tree
        self._inventories = inventories
        self.scratch = private
        #: Variables of every play and of :meth:`interrupt`, unless a call has its own.
        self.settings: dict[str, t.Any] = {}
        self._runs = 0
        # Digest of the engine with the lab's own settings, once it has run.
        self._digest = ""

    def play(
        self,
        playbook: str = "nemotron_tp2",
        *,
        check: bool = False,
        tags: str = "",
        skip_tags: str = "",
        verbosity: int = 0,
        on_output: t.Callable[[str, int], None] | None = None,
        **variables: t.Any,
    ) -> Play:
        """Run a playbook to its end. ``on_output`` receives every chunk of output during the play, with the pid of the play's process."""
        self._runs += 1
        directory = self._private / str(self._runs)
        directory.mkdir()
        began = time.time()
        runner = ansible_runner.run(
            private_data_dir=str(directory),
            project_dir=str(self._tree),
            playbook=str(self._tree / "playbooks" / f"{playbook}.yml"),
            inventory=[str(path) for path in self._inventories],
            extravars={"gb10_records_dir": str(self._private / "records"), **self.settings, **variables},
            tags=tags or None,
            verbosity=verbosity or None,
            skip_tags=skip_tags or None,
            cmdline="--check --diff" if check else None,
            envvars={
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "ANSIBLE_CONFIG": str(self._tree / "ansible.cfg"),
                "ANSIBLE_COLLECTIONS_PATH": str(self._tree / "collections"),
            },
            # Events after the end of a killed play have no pid.
            event_handler=(lambda event: ("pid" in event and on_output(event.get("stdout", ""), event["pid"])) or True) if on_output else None,
            quiet=True,
        )
        return Play(runner.rc, list(runner.events), runner.stdout.read(), began, time.time())

    def interrupt(self, text: str, playbook: str = "nemotron_tp2", *, when: t.Callable[[], object] | None = None, **variables: t.Any) -> Interrupted:
        """Run a playbook as a person at a terminal does, and press Ctrl-C as soon as it prints ``text``.

        ``when`` is called before that and returns at the right time, because the announced step may take a while to begin.
        """
        with subprocess.Popen(
            [Path(sys.executable).with_name("ansible-playbook"), "-i", INVENTORY, f"playbooks/{playbook}.yml", "-e", json.dumps(self.settings | variables)],
            cwd=ROOT,
            env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A terminal sends the signal to the whole process group. Started from a test runner in the background, the play would ignore it.
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        ) as process:
            output = []
            presses, pressed = 0, time.time()
            try:
                for line in process.stdout:
                    output.append(line)
                    if text in line:
                        if when:
                            when()
                        break
            finally:
                # Also if the text never came: no play may outlive a failed test.
                if process.poll() is None:
                    presses, pressed = 1, time.time()
                    os.killpg(process.pid, signal.SIGINT)
            while True:
                try:
                    output.append(process.communicate(timeout=PATIENCE)[0])
                    break
                except subprocess.TimeoutExpired:
                    # Python dropped the signal (within a fork), or a terminated worker held one of Ansible's own locks. A person
                    # would press Ctrl-C again.
                    assert presses < 4, f"{presses} times Ctrl-C did not end the play"
                    presses += 1
                    os.killpg(process.pid, signal.SIGINT)
            ended = time.time()
        printed = "".join(output)
        assert text in printed, f"the play never said {text!r}:\n{printed}"
        assert presses and process.returncode != 0, f"the play ended before it was interrupted:\n{printed}"
        return Interrupted(process.returncode, printed, presses, pressed, ended)

    def engine_lives(self) -> bool:
        """Return whether the head's launcher reports a live engine."""
        argv = ("docker", "exec", "gb10-gb10-head", "python3", "/opt/gb10/launch/launcher.py", "status", "--spec", "/opt/gb10/launch/engine.json")
        return json.loads(self.run(HEAD, *argv))["live"]

    def down(self) -> None:
        """Take the cluster down if there is one."""
        if any(self.containers(host) or self.has_unit(host) for host in (HEAD, WORKER)):
            # A test may have left it in any state.
            played = self.play("teardown", gb10_allow="interrupt")
            assert played.rc == 0, played.failures

    def clear(self) -> None:
        """Remove the cluster's units and containers directly, which is faster than a teardown. Other tests cover the teardown."""
        for host in (HEAD, WORKER):
            self.run(host, "sh", "-c", UNIT_AWAY, "sh", UNIT, timeout=600)
        for host in (HEAD, WORKER):
            names = list(self.containers(host))
            if names:
                self.run(host, "docker", "rm", "--force", *names)

    def up(self) -> None:
        """Bring the cluster up with the lab's own settings, unless it already serves, with its unit."""
        has_unit = self.has_unit(HEAD) or self.settings.get("gb10_unit") == "none"
        if not (has_unit and self.containers(HEAD) and self.engine_lives() and self.json(HEAD, RUN)["digest"] == self._digest):
            played = self.play(gb10_allow="restart,interrupt")
            assert played.rc == 0, played.failures
            self._digest = self.json(HEAD, RUN)["digest"]

    def run(self, host: str, *argv: str, check: bool = True, timeout: float = 180) -> str:
        """Run a command on a node as root, through the Docker engine that runs the node. Return its output."""
        done = subprocess.run(["docker", "exec", f"gb10-lab-{host}", *argv], capture_output=True, text=True, timeout=timeout, check=False)
        if check and done.returncode:
            raise AssertionError(f"{host}: {argv} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def containers(self, host: str) -> dict[str, str]:
        """Names and ids of the cluster's containers on a node, running or not."""
        ours = ("--filter", "label=io.gb10.cluster=gb10")
        return dict(line.split() for line in self.run(host, "docker", "ps", "-a", "--no-trunc", *ours, "--format", "{{.Names}} {{.ID}}").splitlines())

    def has_unit(self, host: str) -> bool:
        """Return whether the engine of the cluster has a unit on a node."""
        return bool(self.run(host, "find", "/etc/systemd/system", "-maxdepth", "1", "-name", UNIT).strip())

    def json(self, host: str, path: str) -> dict[str, t.Any]:
        return json.loads(self.run(host, "cat", path))

    def write_host_vars(self, host: str, variables: dict[str, t.Any]) -> None:
        """Write variables of one host to the inventory's host_vars, as a user would."""
        path = INVENTORY / "host_vars" / f"{host}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(variables), encoding="utf-8")

    def remove_host_vars(self, host: str) -> None:
        (INVENTORY / "host_vars" / f"{host}.json").unlink()

    @contextlib.contextmanager
    def driver(self, hosts: t.Sequence[str] = (HEAD, WORKER), **state: t.Any) -> t.Iterator[None]:
        """Set the behavior of the simulated driver tools on these nodes for the duration of the block."""
        path = "/var/lib/gb10-lab/gpu.json"
        try:
            for host in hosts:
                self.write(host, path, json.dumps(state))
            yield
        finally:
            for host in hosts:
                self.run(host, "rm", "-f", path)

    @staticmethod
    def write(host: str, path: str, text: str) -> None:
        """Write text to a file on a node, as root."""
        subprocess.run(["docker", "exec", "-i", f"gb10-lab-{host}", "tee", path], input=text, text=True, stdout=subprocess.DEVNULL, timeout=60, check=True)

    def inspect(self, host: str, container: str) -> dict[str, t.Any]:
        return json.loads(self.run(host, "docker", "inspect", container))[0]


def secret_file(lab: Lab, text: str) -> str:
    """Write a secret to a file on the controller that only its owner can read. Return its path."""
    path = lab.scratch / "secret"
    path.touch(0o600)
    path.write_text(text, encoding="utf-8")
    return str(path)


def of_both_labs(directory: Path, groups: dict[str, t.Any]) -> Lab:
    """Return a lab of both labs' nodes, with groups of theirs as a user adds them. Fails when one of them is not up."""
    inventories = [ROOT / "inventories" / name for name in LABS]
    missing = [path.name for path in inventories if not (path / "hosts.yml").exists()]
    assert not missing, f"this needs both labs, and {', '.join(missing)} is not up: tests/lab/lab.py --lab current up, --lab next up"
    own = directory / "groups.yml"
    own.write_text(yaml.safe_dump(groups), encoding="utf-8")
    return Lab(directory, [*inventories, own])


class Once:
    """Calls a function once, in its own thread, when a play's output contains a text. The play starts no task until the call has ended."""

    def __init__(self, text: str, act: t.Callable[[], None]) -> None:
        self._text, self._act = text, act
        self._pool = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        self._done: concurrent.futures.Future[None] | None = None
        #: When the call ended, in seconds since the epoch.
        self.at = 0.0

    def __call__(self, output: str, pid: int) -> None:
        if self._done is None and self._text in output:
            os.kill(pid, signal.SIGSTOP)
            self._done = self._pool.submit(self._run, pid)

    def _run(self, pid: int) -> None:
        try:
            self._act()
        finally:
            self.at = time.time()
            os.kill(pid, signal.SIGCONT)

    def join(self) -> None:
        """Wait for the call. Raises its exception, or AssertionError if the text never came."""
        assert self._done is not None, f"the play never said {self._text!r}"
        self._done.result()
        self._pool.shutdown()
