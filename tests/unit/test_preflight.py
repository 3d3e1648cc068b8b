# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role preflight from what two nodes answered to its verdict, through Ansible itself. The answers are composed, nothing is contacted."""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path

import jsonschema
import pytest
import through_ansible
import yaml

ROOT = Path(__file__).resolve().parents[2]
HEALTHY = ROOT / "tests" / "unit" / "fixtures" / "node_info" / "healthy.json"
SCHEMA = json.loads((ROOT / "plugins" / "plugin_utils" / "_rules" / "preflight.schema.json").read_text(encoding="utf-8"))
INTERPRETER = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}

BOOK = [
    {
        "hosts": "gb10_cluster",
        "gather_facts": False,
        "any_errors_fatal": True,
        "tasks": [
            {
                "name": "Answer as the nodes would",
                "ansible.builtin.set_fact": {
                    "__preflight_node": "{{ lookup('ansible.builtin.file', answer) | from_json }}",
                    "__preflight_waited": {"findings": []},
                },
            },
            {"name": "Load the shared settings", "ansible.builtin.include_role": {"name": "gb10.cluster.gb10", "public": True}},
            {"name": "Judge", "ansible.builtin.include_role": {"name": "gb10.cluster.doctor", "tasks_from": "preflight_judge"}},
        ],
    }
]


class Preflight:
    """Plays the role on two nodes whose answers are files."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.record = place / "verdicts" / "gb10-preflight.json"
        healthy = HEALTHY.read_text(encoding="utf-8")
        self.answers = [json.loads(healthy), json.loads(healthy.replace("192.168.100.11", "192.168.100.12").replace("192.168.101.11", "192.168.101.12"))]

    def play(self, *arguments: str, **settings: t.Any) -> tuple[int, str]:
        """Return the exit code and the output."""
        hosts = {}
        for number, answer in enumerate(self.answers, 1):
            path = self.place / f"spark-{number}.json"
            path.write_text(json.dumps(answer), encoding="utf-8")
            hosts[f"spark-{number}"] = {**INTERPRETER, "gb10_fabric_address": f"192.168.100.1{number}", "answer": str(path)}
        variables = {
            "gb10_hf_home": "/models",
            "gb10_fabric_interfaces": ["enp1s0f0np0", "enP2p1s0f0np0"],
            "gb10_rdma_devices": ["rocep1s0f0", "roceP2p1s0f0"],
            "gb10_records_dir": str(self.record.parent),
            **settings,
        }
        children = {"gb10_head": {"hosts": {"spark-1": {}}}, "gb10_workers": {"hosts": {"spark-2": {}}}}
        inventory = {"all": {"hosts": hosts, "children": {"gb10_cluster": {"children": children, "vars": variables}}}}
        (self.place / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
        (self.place / "book.yml").write_text(yaml.safe_dump(BOOK), encoding="utf-8")
        environment = {"ANSIBLE_SHOW_CUSTOM_STATS": "true"}
        done = through_ansible.run("playbook", "-i", str(self.place / "hosts.yml"), str(self.place / "book.yml"), *arguments, env=environment)
        return done.rc, done.out

    def written(self) -> dict[str, t.Any]:
        record = json.loads(self.record.read_text(encoding="utf-8"))
        jsonschema.validate(record, SCHEMA)
        return record


@pytest.fixture
def preflight(tmp_path: Path) -> Preflight:
    return Preflight(tmp_path)


def test_a_healthy_cluster_passes_and_leaves_its_record(preflight: Preflight) -> None:
    code, output = preflight.play()
    assert code == 0, output
    assert "changed=0" in output and "changed=1" not in output
    record = preflight.written()
    assert (record["verdict"], record["cluster"], record["profile"]) == ("pass", "gb10", "nemotron_3_super_tp2")
    assert record["findings"] == []
    # The play's own result has it, too.
    assert "gb10_preflight:" in output


def test_a_sick_node_is_judged_with_the_others_and_stops_the_play_after_all(preflight: Preflight) -> None:
    preflight.answers[0]["memory"].update(swap_free_mb=100)
    preflight.answers[1]["docker"]["nvidia"] = "none"
    preflight.answers[1]["environment"] = [{"where": "/etc/environment", "name": "NCCL_IB_DISABLE", "value": "{{ not_a_template }}"}]
    code, output = preflight.play()
    assert code != 0
    record = preflight.written()
    assert {(finding["id"], finding["node"], finding["verdict"]) for finding in record["findings"]} == {
        ("memory.swap", "spark-1", "warn"),
        ("docker.runtime", "spark-2", "block"),
        ("env.left", "spark-2", "warn"),
    }
    lines = [line.strip() for line in output.splitlines()]
    assert "docker.runtime  .        block" in lines
    assert "env.left        .        warn" in lines
    assert "memory.swap     warn     ." in lines
    assert any(line.startswith("block  docker.runtime  spark-2  Docker knows neither") for line in lines)
    assert any(line.startswith("→ sudo systemctl restart nvidia-cdi-refresh") for line in lines)
    # The table has the message once, and the failure refers to it. This test's own setting prints the record that is passed on.
    printed = output.split("CUSTOM STATS")[0]
    assert printed.count("Docker knows neither") == 1
    assert f"msg: 'Preflight: 1 block, 2 warn; see the table above, or {preflight.record}'" in " ".join(printed.split())
    assert "{{ not_a_template }}" in record["findings"][1]["message"]


def test_warnings_stop_only_when_asked(preflight: Preflight) -> None:
    preflight.answers[0]["memory"].update(swap_free_mb=100)
    assert preflight.play()[0] == 0
    code, output = preflight.play(gb10_fail_on="warn")
    assert code != 0
    assert "spark-1  16283 MiB lie in swap" in output and "Preflight: 1 warn; see the table above" in output


def test_rules_are_tuned_and_silenced_in_the_inventory(preflight: Preflight) -> None:
    preflight.answers[0]["memory"].update(swap_free_mb=100)
    preflight.answers[0]["docker"]["nvidia"] = "none"
    rules = {"memory.swap": {"most_mb": 20000, "why": "a large swap of idle pages"}}
    code, output = preflight.play(gb10_rules=rules, gb10_silenced=["docker.runtime"])
    assert code == 0, output
    record = preflight.written()
    assert record["verdict"] == "silenced"
    assert [(entry["id"], entry["by"]) for entry in record["tuned"]] == [("docker.runtime", ["gb10_silenced"]), ("memory.swap", ["gb10_rules"])]
    assert "1 silenced" in output


def test_a_stage_that_is_skipped_repairs_nothing(preflight: Preflight) -> None:
    preflight.answers[1]["models"] = []
    assert preflight.play()[0] == 0
    code, output = preflight.play("--skip-tags", "model")
    assert code != 0
    assert "stage model is not part of this run" in output
