# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Jobs as AWX would run them: the directory that it passes to ansible-runner, and the results of a finished job.

AWX gives a job a directory of its own with a copy of the project, the inventory as a program that prints JSON, the variables, credentials as files that
the environment names, and an ssh key for an agent. The container around all that is left out: the machine's own Ansible runs it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import typing as t
import unittest.mock
from pathlib import Path

import ansible_runner
import awx_rules
import yaml

ROOT = Path(__file__).resolve().parents[2]
DATA = sorted(path.name for path in (ROOT / "awx").glob("*.yml"))
#: The variables that an administrator has to set, as in the documentation.
SETTINGS = {"gb10_awx_scm_url": "https://git.example.com/gb10.cluster.git", "gb10_awx_image": "registry.example.com/gb10-ee:1"}
#: Verbosity 4 of AWX, Connection Debug.
LOUDEST = 4

#: Escape sequences that only set colors; others move a cursor, which a job's output does not have.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def ansible(program: str, *arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run one of Ansible's programs with the repository's configuration, and nothing of the caller's."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "GB10_", "CONTROLLER_", "TOWER_"))}
    quiet = {"ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false"}
    return subprocess.run(
        [sys.executable, "-m", "ansible", program, *arguments],
        cwd=cwd,
        env={**clean, **quiet, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def data(place: Path, **settings: t.Any) -> dict[str, list[dict[str, t.Any]]]:
    """The data of awx/, evaluated by Ansible: the lists of objects by the names of their variables."""
    names = [name for file in DATA for name in yaml.load((ROOT / "awx" / file).read_text(encoding="utf-8"), _Loader) if name.startswith("controller_")]
    content = "{{ dict(%s) | to_json }}" % ", ".join(f"{name}={name}" for name in names)
    book = [
        {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "vars_files": [str(ROOT / "awx" / file) for file in DATA],
            "tasks": [{"ansible.builtin.copy": {"content": content, "dest": str(place / "data.json")}}],
        }
    ]
    (place / "data.yml").write_text(yaml.safe_dump(book), encoding="utf-8")
    done = ansible("playbook", str(place / "data.yml"), "--extra-vars", json.dumps({**SETTINGS, **settings}))
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((place / "data.json").read_text(encoding="utf-8"))


def templates() -> list[dict[str, t.Any]]:
    """The job templates as they are written, for their names alone: nothing in them is evaluated."""
    return yaml.load((ROOT / "awx" / "job_templates.yml").read_text(encoding="utf-8"), _Loader)["controller_templates"]


class _Loader(yaml.SafeLoader):
    """Reads the tag of a text that is not a template."""


_Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))


def checkout(target: Path) -> Path:
    """Copy this repository's tracked files, links as links, as in a checkout. Files that are new and not ignored are included."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if os.path.lexists(ROOT / name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    return target


@dataclasses.dataclass
class Credential:
    """A credential of one of this collection's types, with its secrets."""

    type: dict[str, t.Any]
    inputs: dict[str, str]

    def inject(self, directory: Path) -> dict[str, str]:
        """Write its files and return the variables of the environment (CredentialType.inject_credential in AWX)."""
        names = {}
        for key, text in self.type["injectors"].get("file", {}).items():
            path = directory / f"tmp_{key.replace('.', '_')}"
            path.write_text(self._filled(text, self.inputs), encoding="utf-8")
            path.chmod(0o600)
            names["tower." + key.replace("template", "filename", 1)] = str(path)
        return {name: self._filled(text, {**self.inputs, **names}) for name, text in self.type["injectors"].get("env", {}).items()}

    @staticmethod
    def _filled(text: str, values: dict[str, str]) -> str:
        return re.sub(r"{{\s*([\w.]+)\s*}}", lambda match: values[match[1]], text)


@dataclasses.dataclass
class Done:
    """A finished job."""

    status: str
    events: list[dict[str, t.Any]]
    stdout: str
    directory: Path

    @property
    def artifacts(self) -> dict[str, t.Any]:
        """What the job passes on, as AWX stores it."""
        stats = [event for event in self.events if event["event"] == "playbook_on_stats"]
        return stats[-1]["event_data"].get("artifact_data", {}) if stats else {}

    @property
    def failures(self) -> str:
        """The messages of all failed tasks, one per line, with the tables and lines that they refer to."""
        messages = [event["event_data"]["res"].get("msg", "") for event in self.events if event["event"] in ("runner_on_failed", "runner_on_unreachable")]
        shown = [event["stdout"] for event in self.events if event["event"] == "verbose"]
        return "\n".join(map(str, [*messages, *(shown if messages else [])]))

    @property
    def actions(self) -> set[str]:
        """Modules and actions of all tasks."""
        return {event["event_data"]["task_action"] for event in self.events if event.get("event_data", {}).get("task_action")}

    @property
    def changed(self) -> dict[str, int]:
        stats = next(event["event_data"] for event in reversed(self.events) if event["event"] == "playbook_on_stats")
        return {host: count for host, count in stats["changed"].items() if count}

    def largest(self) -> tuple[int, str]:
        """The size of the largest event as JSON, in bytes, and its description."""
        return max((len(json.dumps(event)), self._what(event)) for event in self.events)

    @staticmethod
    def _what(event: dict[str, t.Any]) -> str:
        return f"{event['event']} {event.get('event_data', {}).get('task', '')}".rstrip()

    def leaks(self, *secrets: str) -> list[str]:
        """Places that hold a secret: events, output, and every other file that the runner left behind."""
        places = [self._what(event) for event in self.events if any(secret in json.dumps(event) for secret in secrets)]
        places += ["output"] if any(secret in self.stdout for secret in secrets) else []
        for path in (self.directory / "artifacts").rglob("*"):
            if path.is_file() and any(secret in path.read_text(encoding="utf-8", errors="replace") for secret in secrets):
                places.append(str(path.relative_to(self.directory)))
        return places

    def strange_controls(self) -> list[str]:
        """Control characters in the output that are neither colors nor ends of lines: what only a terminal understands."""
        plain = _COLOUR.sub("", self.stdout.replace("\r\n", "\n"))
        return sorted({repr(character) for character in plain if ord(character) < 32 and character not in "\n\t"})


class Jobs:
    """Runs job templates, each job in a directory of its own."""

    def __init__(self, place: Path, objects: dict[str, list[dict[str, t.Any]]]) -> None:
        self.place = place
        self.templates = {template["name"]: template for template in objects["controller_templates"]}
        self.credential_types = {type["name"]: type for type in objects["controller_credential_types"]}
        self.project = checkout(place / "checkout")
        self._runs = 0

    def credential(self, type: str, **inputs: str) -> Credential:
        return Credential(self.credential_types[type], inputs)

    def launch(self, name: str, inventory: dict[str, t.Any], answers: dict[str, t.Any] | None = None, tags: str = "", **options: t.Any) -> Done:
        """Launch a template as a person does who fills in its survey and its tags. Raises :class:`awx_rules.Refused` where AWX would not start it."""
        template = awx_rules.tagged(self.templates[name], tags)
        return self.run(template, inventory, awx_rules.extra_vars(template, awx_rules.accepted(template, answers or {})), **options)

    def run(
        self,
        template: dict[str, t.Any],
        inventory: dict[str, t.Any],
        variables: dict[str, t.Any],
        *,
        credentials: t.Sequence[Credential] = (),
        check: bool = False,
        verbosity: int = LOUDEST,
        login: str = "",
        ssh_key: str = "",
    ) -> Done:
        """Create a job's directory and run the job. ``inventory`` is what ``ansible-inventory --list`` prints, ``ssh_key`` the text of a key."""
        self._runs += 1
        directory = self.place / f"job-{self._runs}"
        shutil.copytree(self.project, directory / "project", symlinks=True)
        for name in ("inventory", "env", "requirements_collections", "requirements_roles", "home", "cp"):
            (directory / name).mkdir()
        self._write_inventory(directory / "inventory" / "hosts", inventory)
        (directory / "env" / "extravars").write_text(json.dumps(variables), encoding="utf-8")
        if ssh_key:
            (directory / "env" / "ssh_key").write_text(ssh_key, encoding="utf-8")
            (directory / "env" / "ssh_key").chmod(0o600)
        injected = {name: value for credential in credentials for name, value in credential.inject(directory / "env").items()}
        options = [f"--user={login}"] if login else []
        options += ["--check"] if check or template["job_type"] == "check" else []
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "GB10_"))}
        with unittest.mock.patch.dict(os.environ, clean, clear=True):
            runner = ansible_runner.run(
                private_data_dir=str(directory),
                playbook=template["playbook"],
                inventory=str(directory / "inventory" / "hosts"),
                tags=template.get("job_tags") or None,
                forks=template["forks"],
                verbosity=verbosity,
                cmdline=" ".join(options) or None,
                envvars={
                    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                    "HOME": str(directory / "home"),
                    "ANSIBLE_COLLECTIONS_PATH": awx_rules.collections_path(directory / "project", directory),
                    "ANSIBLE_RETRY_FILES_ENABLED": "False",
                    "ANSIBLE_HOST_KEY_CHECKING": "False",
                    "ANSIBLE_SSH_CONTROL_PATH_DIR": str(directory / "cp"),
                    "MAX_EVENT_RES": str(awx_rules.EVENT_BYTES),
                    "JOB_ID": str(self._runs),
                    **injected,
                },
                quiet=True,
            )
            return Done(runner.status, list(runner.events), runner.stdout.read(), directory)

    @staticmethod
    def _write_inventory(path: Path, inventory: dict[str, t.Any]) -> None:
        path.write_text(f"#!{sys.executable}\n# -*- coding: utf-8 -*-\nprint({json.dumps(inventory)!r})\n", encoding="utf-8")
        path.chmod(0o700)
