# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each example inventory is a system that its owner reported: its settings are right, and what it serves goes on its nodes beside its companions."""

from __future__ import annotations

import json
from pathlib import Path
import through_ansible

import pytest
import yaml

from ansible_collections.gb10.cluster.plugins.module_utils._companion import declared
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import declared_claims, planning, wording
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import profiles

INVENTORIES = Path(__file__).parents[2] / "inventories"
EXAMPLES = sorted(path.name for path in INVENTORIES.iterdir() if (path / "hosts").is_file())
#: What is typed for each: the playbook, and the node of a separate service.
TYPED = {
    "example": [("serve", "")],
    "judges_and_pair": [("serve", "")],
    "one_spark": [("serve", "")],
    "pair_with_speech": [("serve", "")],
    "two_services": [("serve", "spark-1"), ("serve", "spark-2")],
}
#: The modes that each is used in, the one that it declares first; "example" declares none.
MODES = {"judges_and_pair": ["off", "cluster"], "one_spark": ["cluster"], "pair_with_speech": ["cluster"], "two_services": ["singles"]}
#: Playbooks over all nodes ask that these agree, whatever is served.
OVER_ALL = [(example, "serve", "") for example in TYPED]
RUNS = [(example, playbook, node) for example, runs in TYPED.items() for playbook, node in runs]


def variables(example: str) -> tuple[dict[str, dict], dict]:
    """Return the variables of the hosts of an example, and those of their group."""
    hosts: dict[str, dict] = {}
    content = yaml.safe_load((INVENTORIES / example / "hosts").read_text(encoding="utf-8"))
    for group in content["gb10_cluster"]["children"].values():
        hosts.update(group["hosts"])
    return hosts, yaml.safe_load((INVENTORIES / example / "group_vars" / "gb10_cluster.yml").read_text(encoding="utf-8"))


def test_each_example_is_tried() -> None:
    assert set(TYPED) == set(EXAMPLES)


@pytest.mark.parametrize(("example", "playbook", "node"), sorted({*RUNS, *OVER_ALL}))
def test_its_settings_are_right(example: str, playbook: str, node: str) -> None:
    more = ["--extra-vars", json.dumps({"gb10_single": node})] if node else []
    done = through_ansible.run("playbook", "-i", f"inventories/{example}", f"playbooks/{playbook}.yml", "--tags", "validate", "--check", *more)
    assert done.rc == 0, done.out
    # Only the example's host names are warned about.
    rows = [line for line in done.out.splitlines() if line.startswith(("  warn", "  block", "  unknown"))]
    assert rows and all("input.placeholder" in row for row in rows), done.out


def test_each_system_declares_its_mode() -> None:
    assert {example: variables(example)[1]["gb10_mode"] for example in EXAMPLES if "gb10_mode" in variables(example)[1]} == {
        example: modes[0] for example, modes in MODES.items()
    }


@pytest.mark.parametrize(("example", "mode"), [(example, mode) for example, modes in MODES.items() for mode in modes])
def test_its_modes_pass_check_mode_up_to_the_first_node(example: str, mode: str) -> None:
    """The nodes of an example do not exist, so ssh gives up at once. Everything that is judged before that has passed then."""
    given = json.dumps({"gb10_mode": mode, "ansible_ssh_common_args": "-o ProxyCommand=false"})
    done = through_ansible.run("playbook", "-i", f"inventories/{example}", "playbooks/mode.yml", "--check", "--extra-vars", given)
    assert done.rc != 0 and "TASK [gb10.cluster.teardown : Check which nodes answer]" in done.out, done.out
    judged, _task, reached = done.out.partition("TASK [gb10.cluster.teardown : Check which nodes answer]")
    assert "fatal:" not in judged and "TASK [gb10.cluster.mode : Judge the declared mode]" in judged, judged
    assert not [line for line in judged.splitlines() if line.startswith(("  block", "  unknown"))], judged
    blocked = [line for line in reached.splitlines() if line.startswith("  block")]
    assert blocked and all("teardown.lost" in line for line in blocked), reached


@pytest.mark.parametrize(("example", "playbook", "node"), RUNS)
def test_what_it_serves_goes_beside_its_companions(example: str, playbook: str, node: str) -> None:
    hosts, shared = variables(example)
    id = hosts[node]["gb10_single_profile"] if node else shared["gb10_profile"]
    names = [node] if node else list(hosts)
    mode = "singles" if node else "cluster"
    claimed = [
        {"name": f"companion {name}", "node": host, "gib": gib}
        for host in names
        for name, gib in declared_claims.companion_claims(hosts[host].get("gb10_companions", []), mode).items()
    ]
    given = [{"node": host} for host in names]
    plan = planning.memory_plan(profiles.load(id), given, shared.get("gb10_serve_arguments"), tenants=claimed)
    assert plan["verdict"] in ("fits", "tight"), wording.lines(plan)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_claims_of_a_mode_go_on_a_node(example: str) -> None:
    for host, own in variables(example)[0].items():
        for mode in declared.MODES:
            total = sum(declared_claims.companion_claims(own.get("gb10_companions", []), mode).values())
            assert total <= 112, f"{host} in {mode}: {total} GiB of the 117 that a Spark with 128 GB has available"
