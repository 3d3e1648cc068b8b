# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The example inventory, and bad input, through the playbook itself: judged before any host is contacted."""

from __future__ import annotations

import json
import re

import pytest
import through_ansible


def validate(*arguments, inventory="inventories/example", **variables):
    """Run the main playbook's first stage; returns its exit code and its output."""
    more = ["--tags", "validate", "--extra-vars", json.dumps(variables), *arguments]
    done = through_ansible.run("playbook", "-i", inventory, "playbooks/nemotron_tp2.yml", *more)
    return done.rc, done.out


def test_the_example_inventory_is_good():
    code, output = validate()
    assert code == 0, output
    assert "Inputs: 5 warn" in output
    assert "spark-1.example.lan stands in the example inventory for your own" in output


@pytest.mark.parametrize(
    ("variables", "part"),
    [
        ({"gb10_profile": "nemotron"}, "unknown profile 'nemotron'"),
        ({"gb10_worker_hosts": []}, "asks for 2 ranks"),
        ({"gb10_head_host": "spark-2"}, "spark-2 is the head and a worker"),
        ({"gb10_api_port": 6379}, "gb10_ray_port: is 6379, and so is gb10_api_port"),
        ({"gb10_api_port": "eight"}, "gb10_api_port"),
        ({"gb10_fabric_fallback": "rdma"}, "gb10_fabric_fallback: is 'rdma'; expected none or tcp"),
        ({"gb10_env": {"NOT A NAME": "1"}}, "gb10_env.NOT A NAME: is not a valid variable name"),
        ({"gb10_serve_arguments": {"api_key": "x"}}, "gb10_serve_arguments.api_key: is set by the collection"),
    ],
)
def test_bad_input_has_one_clear_message(variables, part):
    code, output = validate(**variables)
    assert code != 0
    assert part in " ".join(output.split()), output
    assert "UNREACHABLE" not in output


def test_half_a_cluster_is_refused():
    code, output = validate("--limit", "spark-1")
    assert code != 0
    assert "leaves out spark-2" in output


def test_too_few_forks_are_refused():
    code, output = validate("--forks", "1")
    assert code != 0
    assert "--forks 2 or more" in output


def test_an_inventory_without_the_cluster_is_not_skipped_in_silence():
    code, output = validate(inventory="localhost,")
    assert code != 0
    assert "no hosts in the group gb10_cluster" in " ".join(output.split())


@pytest.mark.parametrize(("example", "group", "profile"), [
    (0, "gb10_cluster", "qwen3_8_27b_nvfp4_one on spark-1."),
    (1, "chat", "qwen3_8_27b_nvfp4_one on spark-1."),
    (1, "code", "gpt_oss_120b_one on spark-2."),
])
def test_the_documented_inventories_of_one_node_and_of_two_models_are_good(tmp_path, example, group, profile):
    section = (through_ansible.ROOT / "docs" / "profiles.md").read_text(encoding="utf-8").partition("## One node")[2].partition("\n## ")[0]
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(re.findall(r"```yaml\n(.*?)```", section, flags=re.DOTALL)[example].replace(".example.lan", ".lan"), encoding="utf-8")
    code, output = validate("-v", inventory=str(inventory), gb10_cluster_group=group)
    assert code == 0 and "Inputs: 1 pass" in output, output
    assert profile in " ".join(output.split()), output
