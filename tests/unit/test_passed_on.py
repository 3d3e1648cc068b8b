# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What plays pass on to the next job of a workflow, and secrets that come as files: expressions and tasks of roles, through Ansible itself, on this machine."""

from __future__ import annotations

import json
import stat
import sys
import typing as t
from pathlib import Path

import pytest
import through_ansible
import yaml

ROOT = Path(__file__).resolve().parents[2]
KEY, TOKEN = "plantedKeyOfTheTest", "hf_plantedTokenOfTheTest"


class Book:
    """Runs tasks on this machine as two hosts, without root and without any node."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def play(self, tasks: list[dict[str, t.Any]], *arguments: str, facts: dict[str, t.Any] | None = None, **variables: t.Any) -> tuple[int, str]:
        """Return the exit code and all that was printed."""
        play = [{"hosts": "gb10_cluster", "gather_facts": False, "tasks": tasks}]
        (self.place / "book.yml").write_text(yaml.safe_dump(play), encoding="utf-8")
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
        known = {"spark-1": {}, "spark-2": {}, **(facts or {})}
        hosts = {"gb10_head": {"hosts": {"spark-1": known["spark-1"]}}, "gb10_workers": {"hosts": {"spark-2": known["spark-2"]}}}
        (self.place / "hosts.yml").write_text(yaml.safe_dump({"gb10_cluster": {"vars": local, "children": hosts}}), encoding="utf-8")
        more = ["--extra-vars", json.dumps(variables), *arguments]
        done = through_ansible.run("playbook", "-i", str(self.place / "hosts.yml"), str(self.place / "book.yml"), *more)
        return done.rc, done.out

    def evaluate(self, role: str, names: list[str], facts: dict[str, t.Any], *arguments: str) -> dict[str, t.Any]:
        """The values of variables of a role, or of expressions with them, for the head, with facts that its tasks would have left, by host."""
        answer = self.place / "answer.json"
        code, output = self.play(
            [
                {"ansible.builtin.include_vars": {"file": str(ROOT / "roles" / "gb10" / "defaults" / "main.yml")}},
                {"ansible.builtin.include_vars": {"file": str(ROOT / "roles" / "gb10" / "vars" / "main.yml")}},
                {"ansible.builtin.include_vars": {"file": str(ROOT / "roles" / role / "vars" / "main.yml")}},
                {
                    "ansible.builtin.copy": {
                        "content": "{{ {%s} | to_json }}" % ", ".join(f"'{name}': {name}" for name in names),
                        "dest": str(answer),
                    },
                    "check_mode": False,
                    "run_once": True,
                },
            ],
            *arguments,
            facts=facts,
        )
        assert code == 0 and "template error" not in output, output
        return json.loads(answer.read_text(encoding="utf-8"))


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path)


ENGINE = {"live": True, "api_address": "10.0.0.1", "api_port": 8000, "run_id": "r", "log_path": "/l"}


def status(executor: str, *live: bool) -> dict[str, t.Any]:
    """What the role status knows of the two nodes, whose ranks live or do not."""
    return {
        f"spark-{number}": {
            "__status_ray": {"executor": executor, "exists": True},
            "__status_engine": {"engine": {**ENGINE, "live": lives}, "requests_running": 0} if executor == "native" or number == 1 else {"skipped": True},
            "__status_live": executor == "native" and lives,
        }
        for number, lives in enumerate(live, 1)
    }


@pytest.mark.parametrize(
    ("executor", "live", "endpoint"),
    [
        ("ray", (True, False), "http://10.0.0.1:8000/v1"),
        ("ray", (False, False), ""),
        ("native", (True, True), "http://10.0.0.1:8000/v1"),
        # An engine that lost a rank answers nobody, whatever its head says.
        ("native", (True, False), ""),
        ("native", (False, False), ""),
    ],
)
def test_the_endpoint_is_one_that_answers(book: Book, executor: str, live: tuple[bool, bool], endpoint: str) -> None:
    assert book.evaluate("status", ["__status_endpoint"], status(executor, *live)) == {"__status_endpoint": endpoint}


def left(*verdicts: str) -> dict[str, t.Any]:
    found = {f"spark-{number}": {"__teardown_findings": [{"id": "teardown.ports", "verdict": verdict}]} for number, verdict in enumerate(verdicts, 1)}
    return found or {f"spark-{number}": {"__teardown_findings": []} for number in (1, 2)}


@pytest.mark.parametrize(
    ("verdicts", "arguments", "verdict"),
    [
        (("pass", "pass"), (), "pass"),
        (("pass", "warn"), (), "warn"),
        (("unknown", "warn"), (), "unknown"),
        (("unknown", "block"), (), "block"),
        # Nothing was taken down, or nothing was looked at, so nothing is known.
        ((), (), "unknown"),
        (("pass", "pass"), ("--check",), "unknown"),
    ],
)
def test_the_verdict_of_a_teardown_is_the_gravest(book: Book, verdicts: tuple[str, ...], arguments: tuple[str, ...], verdict: str) -> None:
    passed_on = "__teardown_left | gb10.cluster.findings_verdict(gb10_silenced)"
    assert book.evaluate("teardown", [passed_on], left(*verdicts), *arguments) == {passed_on: verdict}


# --- secrets that come as files -----------------------------------------------------------------------------------------------


def secret(place: Path, content: str) -> str:
    path = place / "given"
    path.write_text(content, encoding="utf-8")
    path.chmod(0o600)
    return str(path)


@pytest.mark.parametrize("content", [KEY, f"{KEY}\n"])
def test_a_key_that_is_given_is_the_heads_key(book: Book, tmp_path: Path, content: str) -> None:
    settings = {"gb10_secrets_dir": str(tmp_path / "secrets"), "gb10_api_key_file": secret(tmp_path, content)}
    role = [{"ansible.builtin.include_role": {"name": "gb10.cluster.secrets"}, "when": "inventory_hostname == gb10_head_host"}]
    tasks = [{"ansible.builtin.include_role": {"name": "gb10.cluster.gb10", "public": True}}, *role]
    code, output = book.play(tasks, "-vvvv", "--diff", **settings)
    assert code == 0, output
    key = tmp_path / "secrets" / "gb10" / "api_key"
    assert (key.read_text(encoding="utf-8"), stat.S_IMODE(key.stat().st_mode)) == (KEY, 0o600)
    code, again = book.play(tasks, "-vvvv", "--diff", **settings)
    assert code == 0 and "changed=0" in again, again
    assert KEY not in output + again


@pytest.mark.parametrize(
    ("settings", "token"),
    [
        ({}, ""),
        ({"gb10_hf_token": TOKEN}, TOKEN),
        ({"gb10_hf_token_file": f"{TOKEN}\n"}, TOKEN),
        ({"gb10_hf_token": TOKEN, "gb10_hf_token_file": "another"}, TOKEN),
    ],
)
def test_the_token_is_the_one_that_was_set_or_that_of_the_file(book: Book, tmp_path: Path, settings: dict[str, str], token: str) -> None:
    given = {**settings, "gb10_hf_token_file": secret(tmp_path, settings["gb10_hf_token_file"])} if "gb10_hf_token_file" in settings else settings
    answer = tmp_path / "token"
    content = "{{ __model_token }}|{{ __model_download_env['HF_TOKEN_PATH'] | default('') }}"
    tasks = [
        {"ansible.builtin.include_vars": {"file": str(ROOT / "roles" / "model" / "vars" / "main.yml")}},
        {"ansible.builtin.include_role": {"name": "gb10.cluster.gb10", "public": True}},
        {"ansible.builtin.copy": {"content": content, "dest": str(answer)}, "run_once": True},
    ]
    code, output = book.play(tasks, **given)
    assert code == 0, output
    assert answer.read_text(encoding="utf-8") == f"{token}|{'/run/secrets/gb10/hf_token' if token else ''}"
