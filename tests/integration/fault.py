# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The checks that every injected fault must pass.

A test injects a fault and asserts its message. It then checks the state that the failed play left, and that the user's own things
are unchanged. Finally the next run must complete. Each fault becomes one row of a table that pytest prints at its end.
"""

from __future__ import annotations

import dataclasses
import json
import typing as t
from pathlib import Path

from .lab import HEAD, WORKER, Interrupted, Lab, Play

#: Processes of the engine and of Ray, which may run on a node as long as the cluster does.
PROCESSES = r"ray start|raylet|gcs_server|vllm serve|VLLM::|launcher\.py"

#: Parts of command lines that no process of the collection may have after a play, whatever its result and whether or not an engine is live.
PASSING = (
    # The driver tool, the simulated one too.
    "nvidia-smi",
    # The model download.
    "snapshot_download",
    # An image build: the client, and the step that runs as long as the build does.
    "docker build",
    "--root-user-action=ignore",
    # Modules of the collection: started over a pipe, from a file, and in the background.
    "BECOME-SUCCESS-",
    "AnsiballZ_",
    "ansible-tmp-",
    "async_wrapper",
)
#: The same as a pattern for pgrep that does not match its own command line. A module that came over a pipe runs as a bare interpreter.
LEFT_BEHIND = "|".join([*(f"[{word[0]}]{word[1:]}" for word in PASSING), "^/usr/bin/python3 *$"])

#: Seconds that a module may run on after its play has ended. It finishes its task, such as a wait for Ray or an image build.
ENDING = 150

#: The node containers of a whole cluster, as :meth:`Fault.left` names them.
BOTH = (f"{HEAD} head", f"{WORKER} worker")

STATE = "/var/lib/gb10/gb10"
SECRETS = "/etc/gb10/secrets/gb10"

#: Prints a checksum or link target for each file in the user's directories, and the files of the collection that do not parse.
#: Arguments: the collection's state directory, its secrets directory, the user's directories.
FINGERPRINT = r"""
import hashlib, json, os, sys, zipfile
seen, broken = {}, []

def files(root):
    for folder, _dirs, names in os.walk(root):
        for name in names:
            yield os.path.join(folder, name)

for root in sys.argv[3:]:
    for path in files(root):
        if os.path.islink(path):
            seen[path] = os.readlink(path)
        else:
            with open(path, "rb") as handle:
                seen[path] = hashlib.sha256(handle.read()).hexdigest()
for root in sys.argv[1:3]:
    for path in files(root):
        try:
            # The program of a unit.
            if path.endswith(".pyz"):
                zipfile.ZipFile(path).close()
                continue
            with open(path, encoding="utf-8") as handle:
                text = handle.read()
            if path.endswith(".json"):
                json.loads(text)
            if path.endswith(".py"):
                compile(text, path, "exec")
            if root == sys.argv[2] and len(text.split()) != 1:
                broken.append(f"{path}: a secret is one word, this has {len(text.split())}")
        except FileNotFoundError:
            # A name of passage that was given up meanwhile.
            continue
        except (ValueError, SyntaxError, zipfile.BadZipFile) as error:
            broken.append(f"{path}: {error}")
print(json.dumps({"seen": seen, "broken": broken}))
"""


def left_behind(lab: Lab, host: str) -> str:
    """Return the processes on a node and in its containers that no ended play may leave. A failed search raises an error."""
    search = 'pgrep --full --list-full "$1" || [ $? -eq 1 ]'
    return lab.run(host, "sh", "-c", search, "sh", LEFT_BEHIND)


def half_written() -> list[str]:
    """Return the records in this controller's default directory that do not parse."""
    places = Path.home() / ".cache" / "gb10"
    broken = []
    for path in sorted([*places.glob("*.json"), *places.glob("*-baseline/*.json")]):
        try:
            json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            broken.append(f"{path}: {error}")
    return broken


@dataclasses.dataclass
class Row:
    """One line of the table."""

    fault: str
    where: str = ""
    seconds: str = ""
    left: str = ""
    next_run: str = ""


class Bystanders:
    """A user's own things on the nodes, which no play may touch: files, a running and a stopped container, an image."""

    IMAGE = "gb10-lab/engine:0.32.0"

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        for host in (HEAD, WORKER):
            lab.run(host, "docker", "tag", self.IMAGE, "users/own:1")
            names = lab.run(host, "docker", "ps", "--all", "--format", "{{.Names}}").split()
            if "users-stopped" not in names:
                lab.run(host, "docker", "create", "--name=users-stopped", "--network=none", "users/own:1", "true")
            if "users-running" not in names:
                lab.run(host, "docker", "run", "--detach", "--name=users-running", "--network=none", "--entrypoint=sleep", "users/own:1", "infinity")
            lab.run(host, "install", "-D", "-m", "0640", "/etc/hostname", "/home/spark/.cache/huggingface/hub/models--users--own/notes.txt")
            for folder in ("/var/lib/gb10", "/var/log/gb10", SECRETS.rsplit("/", 1)[0]):
                lab.run(host, "install", "-D", "-m", "0640", "/etc/hostname", f"{folder}/users-own.txt")
        self._before = self.look()

    def look(self) -> dict[str, t.Any]:
        """Return the current state of the user's things."""
        state = {}
        for host in (HEAD, WORKER):
            roots = ("/home/spark/.cache/huggingface", "/var/lib/gb10/users-own.txt", "/var/log/gb10/users-own.txt")
            answer = json.loads(self._lab.run(host, "python3", "-c", FINGERPRINT, "/var/lib/gb10", "/etc/gb10", roots[0]))
            assert answer["broken"] == [], f"half written on {host}: {answer['broken']}"
            files = {path: self._lab.run(host, "sha256sum", path).split()[0] for path in (*roots[1:], f"{SECRETS.rsplit('/', 1)[0]}/users-own.txt")}
            # Python modules that the engine compiles into the cache do not belong to the user.
            seen = {path: content for path, content in answer["seen"].items() if "/hub/" in path and "/__pycache__/" not in path}
            docker = self._lab.run(host, "docker", "ps", "--all", "--filter", "name=^users-", "--format", "{{.ID}} {{.Names}} {{.State}}").splitlines()
            image = self._lab.run(host, "docker", "image", "inspect", "--format", "{{.Id}}", "users/own:1").strip()
            state[host] = {"files": files, "models": seen, "containers": sorted(docker), "image": image}
        return state

    def assert_untouched(self) -> None:
        """Assert that the user's things are unchanged, and that no file of the collection is half written on the nodes or here."""
        assert self.look() == self._before
        assert half_written() == []

    def remove(self) -> None:
        for host in (HEAD, WORKER):
            self._lab.run(host, "docker", "rm", "--force", "users-stopped", "users-running")
            self._lab.run(host, "docker", "rmi", "--no-prune", "users/own:1")
            self._lab.run(host, "rm", "-r", "/home/spark/.cache/huggingface/hub/models--users--own")
            self._lab.run(host, "rm", "/var/lib/gb10/users-own.txt", "/var/log/gb10/users-own.txt", f"{SECRETS.rsplit('/', 1)[0]}/users-own.txt")


class Fault:
    """One injected fault, from its message to the next run."""

    def __init__(self, lab: Lab, bystanders: Bystanders, name: str) -> None:
        self.lab = lab
        self.bystanders = bystanders
        self.row = Row(name)
        self._injected: float | None = None

    def now(self, at: float) -> None:
        """Note the time of the fault, in seconds since the epoch. A fault from before the play counts from the play's start."""
        self._injected = at

    def answered(self, played: Play, *texts: str, where: str) -> None:
        """Assert that a play failed and that its messages, with the tables they refer to, contain all ``texts``. Note the seconds until the first one."""
        assert played.rc != 0, played.stdout
        for text in texts:
            assert text in played.failures, f"{text!r} is not in:\n{played.failures}"
        # A text in a table counts from the failed task that refers to the table.
        first = min((at for at, message in played.failed_at if texts[0] in message), default=played.failed_at[0][0])
        since = played.began if self._injected is None else self._injected
        # Printed but not asserted: a build must not fail because the machine is loaded.
        self.row.seconds = f"{first - since:.1f}"
        self.row.where = where

    def interrupted(self, run: Interrupted, where: str = "controller") -> None:
        """Assert that an interrupted run reports the interruption. Note the seconds until it ended."""
        # 250: Ansible sometimes fails on its own workers while it ends (seen with ansible-core 2.19). -2: after a second Ctrl-C it just ends.
        assert run.rc in (99, 250) or (run.rc == -2 and run.presses > 1), f"rc {run.rc}:\n{run.output}"
        message = "User interrupted execution" if run.rc == 99 else "process object is closed" if run.rc == 250 else ""
        assert message in run.output, run.output
        self.row.seconds = f"{run.ended - run.pressed:.1f}"
        self.row.where = where

    def nothing_left_behind(self, hosts: t.Iterable[str] = (HEAD, WORKER)) -> None:
        """Assert that no tool, download, build or module of the collection still runs. Those that lost their connection get time to end."""
        for host in hosts:
            waiting = 'while pgrep --full "$1" > /dev/null; do sleep 0.5; done'
            self.lab.run(host, "timeout", str(ENDING), "sh", "-c", waiting, "sh", LEFT_BEHIND, check=False)
            assert left_behind(self.lab, host) == "", f"left on {host}"
            assert not [name for name in self.lab.containers(host) if name.endswith("-download")], f"a download's container on {host}"

    def left(self, *, live: bool = False, stopped: t.Iterable[str] = (), unheard: t.Iterable[str] = ()) -> None:
        """Check what the failed play left: with ``live`` the earlier engine still serves, otherwise nothing of the collection runs.

        ``stopped`` are containers (``NODE ROLE``) that must exist for inspection. ``unheard`` are nodes that the play could not clear.
        """
        lab = self.lab
        states = {}
        for host in (HEAD, WORKER):
            for name in lab.containers(host):
                states[f"{host} {name.rsplit('-', 1)[-1]}"] = lab.inspect(host, name)["State"]["Status"]
        if live:
            assert set(states.values()) == {"running"}, states
            assert lab.engine_lives()
            self.row.left = "engine serves on"
        else:
            cleared = [host for host in (HEAD, WORKER) if host not in unheard]
            for host in cleared:
                left = lab.run(host, "pgrep", "--full", "--list-full", PROCESSES, check=False)
                assert left == "", f"left on {host}: {left}; containers: {states}"
            assert {state for name, state in states.items() if name.split()[0] in cleared} <= {"exited", "created"}, states
            assert set(stopped) <= set(states), f"{sorted(states)} are there, of {sorted(stopped)}"
            self.row.left = ", ".join(f"{name} {state}" for name, state in sorted(states.items())) or "nothing of ours"
        self.nothing_left_behind()
        self.bystanders.assert_untouched()

    def left_running(self) -> None:
        """Check what an interrupted play left: no file is half written, and no process of the play still runs."""
        self.nothing_left_behind()
        names = {host: sorted(self.lab.containers(host)) for host in (HEAD, WORKER)}
        self.row.left = ", ".join(f"{host} {name.rsplit('-', 1)[-1]}" for host, containers in names.items() for name in containers) or "nothing of ours"
        self.bystanders.assert_untouched()

    def gathered(self, played: Play, *hosts: str) -> None:
        """Assert that the logs of these nodes are on the controller and contain none of the cluster's secrets."""
        directory = played.logs
        assert directory is not None, played.failures
        # Without Ray there is no Ray token.
        secrets = self.lab.run(HEAD, "sh", "-c", 'for file in "$1"/*; do cat "$file"; echo; done', "sh", SECRETS).split()
        assert secrets, "no secrets to look for"
        for host in hosts:
            files = sorted((directory / host).iterdir())
            assert files, f"no logs of {host}"
            text = "".join(path.read_text(encoding="utf-8") for path in files)
            assert not any(secret in text for secret in secrets), f"a secret in the logs of {host}"

    def completes(self, **variables: t.Any) -> Play:
        """Assert that the next run completes without any consent except ``variables``."""
        played = self.lab.play(**variables)
        assert played.rc == 0, played.failures
        assert self.lab.engine_lives()
        changed = sum(played.changed.values())
        self.row.next_run = f"completes in {played.seconds:.0f} s" + ("" if changed else ", changed=0")
        self.bystanders.assert_untouched()
        return played


def table(rows: list[Row]) -> list[str]:
    """Format the rows as lines with aligned columns."""
    lines = [("fault", "where", "seconds to the message", "state left", "next run")]
    lines += [(row.fault, row.where, row.seconds, row.left, row.next_run) for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
