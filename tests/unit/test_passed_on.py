# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What plays pass on to the next job of a workflow, and secrets that come as files: expressions and tasks of roles, through Ansible itself, on this machine."""

from __future__ import annotations

import hashlib
import json
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

    def play(
        self, tasks: list[dict[str, t.Any]], *arguments: str, facts: dict[str, t.Any] | None = None, env: dict[str, str] | None = None, **variables: t.Any
    ) -> tuple[int, str]:
        """Return the exit code and the output."""
        play = [{"hosts": "gb10_cluster", "gather_facts": False, "tasks": tasks}]
        (self.place / "book.yml").write_text(yaml.safe_dump(play), encoding="utf-8")
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
        known = {"spark-1": {}, "spark-2": {}, **(facts or {})}
        hosts = {"gb10_head": {"hosts": {"spark-1": known["spark-1"]}}, "gb10_workers": {"hosts": {"spark-2": known["spark-2"]}}}
        (self.place / "hosts.yml").write_text(yaml.safe_dump({"gb10_cluster": {"vars": local, "children": hosts}}), encoding="utf-8")
        more = ["--extra-vars", json.dumps(variables), *arguments]
        done = through_ansible.run("playbook", "-i", str(self.place / "hosts.yml"), str(self.place / "book.yml"), *more, env=env)
        return done.rc, done.out


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path)


def test_a_stage_passes_on_what_its_nodes_answered_also_when_it_stops(book: Book, tmp_path: Path) -> None:
    """Ansible passes on nothing of a task that failed, so another one fails; role variables are read as the other node would see them."""
    finding = {"id": "memory.back", "node": "x", "verdict": "warn", "message": "9 GiB are left.", "remedy": "look"}
    facts = {
        node: {
            "__teardown_node": {"errors": [], "containers": containers, "listeners": []},
            "__teardown_memory": {"findings": [finding]},
            "own": node,
        }
        for node, containers in (("spark-1", []), ("spark-2", [{"cluster": "gb10-spark-2", "name": "gb10-worker"}]))
    }
    judge = {
        "stage": "teardown",
        "nodes": ["spark-1", "spark-2"],
        "answers": {"node": "__teardown_node", "memory": "__teardown_memory"},
        "settings": {"lost": []},
        "fail": False,
    }
    tasks = [
        {"gb10.cluster.judge": judge, "run_once": True, "register": "judged", "vars": {"gb10_cluster_name": "gb10-{{ own }}"}},
        {"ansible.builtin.fail": {"msg": "{{ judged.msg }}"}, "run_once": True, "when": "judged.stops"},
    ]
    code, output = book.play(tasks, facts=facts, env={"ANSIBLE_SHOW_CUSTOM_STATS": "true"})
    assert code != 0, output
    printed, passed_on = output.split("CUSTOM STATS")
    assert "gb10_verdict: block" in passed_on and "gb10_endpoint: ''" in passed_on and "gb10_teardown" in passed_on
    assert printed.count("left: gb10-worker.") == 1 and "block  teardown.containers  spark-2 " in printed
    assert "Left: 1 block, 2 warn; see the table above" in printed
    assert "warn   memory.back          spark-1, spark-2  9 GiB are left." in printed


# --- secrets that come as files -----------------------------------------------------------------------------------------------


def secret(place: Path, content: str) -> str:
    path = place / "given"
    path.write_text(content, encoding="utf-8")
    path.chmod(0o600)
    return str(path)


@pytest.mark.parametrize("content", [KEY, f"{KEY}\n"])
def test_a_key_that_is_given_is_the_heads_key(book: Book, tmp_path: Path, content: str) -> None:
    settings = {"gb10_secrets_dir": str(tmp_path / "secrets"), "gb10_api_key_file": secret(tmp_path, content)}
    include = {"name": "gb10.cluster.engine", "tasks_from": "secrets", "public": True}
    role = {"ansible.builtin.include_role": include, "when": "inventory_hostname == gb10_head_host"}
    digest = {"ansible.builtin.debug": {"msg": "{{ __engine_secrets_given_key | hash('sha256') }}"}, "run_once": True}
    tasks = [{"ansible.builtin.include_role": {"name": "gb10.cluster.gb10", "public": True}}, role, digest]
    # In check mode: besides the secret, the module makes a link in the node's usual place, which here is this machine's.
    code, output = book.play(tasks, "-vvvv", "--diff", "--check", **settings)
    assert code == 0, output
    assert f"write {tmp_path}/secrets/gb10/api_key" in output and f"make {tmp_path}/secrets/gb10/api_key" not in output
    assert hashlib.sha256(KEY.encode()).hexdigest() in output
    assert KEY not in output and not (tmp_path / "secrets").exists()


@pytest.mark.parametrize(
    ("settings", "token"),
    [
        ({}, ""),
        ({"gb10_hf_token_file": f"{TOKEN}\n"}, TOKEN),
    ],
)
def test_the_token_is_that_of_the_file(book: Book, tmp_path: Path, settings: dict[str, str], token: str) -> None:
    given = {**settings, "gb10_hf_token_file": secret(tmp_path, settings["gb10_hf_token_file"])} if "gb10_hf_token_file" in settings else settings
    answer = tmp_path / "token"
    content = "{{ __engine_model_token }}|{{ __engine_model_download_env['HF_TOKEN_PATH'] | default('') }}"
    tasks = [
        {"ansible.builtin.include_vars": {"file": str(ROOT / "roles" / "engine" / "vars" / "main.yml")}},
        {"ansible.builtin.include_role": {"name": "gb10.cluster.gb10", "public": True}},
        {"ansible.builtin.copy": {"content": content, "dest": str(answer)}, "run_once": True},
    ]
    code, output = book.play(tasks, **given)
    assert code == 0, output
    assert answer.read_text(encoding="utf-8") == f"{token}|{'/run/secrets/gb10/hf_token' if token else ''}"
