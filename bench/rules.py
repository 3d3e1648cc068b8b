# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CPU seconds of the preflight's rules on the controller: for many nodes, and for one more rule.

    .venv/bin/python bench/rules.py [--nodes 64] [--repeat 5] [--answer FILE …]

The answers are files of what node_info returned (JSON); several are dealt out in turn. Without any, the composed healthy node of the
unit tests is taken. Each node gets addresses of its own, and every eighth has faults, so that messages are made, too.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import statistics
import time
import typing as t
from pathlib import Path

from ansible.plugins.loader import init_plugin_loader

ROOT = Path(__file__).resolve().parents[1]
init_plugin_loader([str(ROOT / "collections")])

# Only now can the collection be found.
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import profiles
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging, rule_table

HEALTHY = ROOT / "tests" / "unit" / "fixtures" / "node_info" / "healthy.json"
#: What the issue allows: CPU seconds for 64 nodes, and CPU milliseconds for one more rule on one node.
SECONDS_64, MS_PER_RULE = 1.0, 1.0
#: Copies of all rules that are judged in addition, to measure the time of one.
COPIES = 4


def answers(paths: t.Sequence[Path], count: int) -> dict[str, dict[str, t.Any]]:
    """Return what the role notes for ``count`` nodes."""
    texts = [path.read_text(encoding="utf-8") for path in paths]
    by_node = {}
    for number in range(1, count + 1):
        info = json.loads(
            texts[(number - 1) % len(texts)].replace("192.168.100.11", f"192.168.100.{number}").replace("192.168.101.11", f"192.168.101.{number}")
        )
        if number % 8 == 0:
            info["memory"]["swap_free_mb"] = 0
            info["tenants"] = [
                {"pid": 1, "name": "ollama", "cmdline": "ollama serve", "user": "x", "kind": "ollama", "container": "", "gpu_mib": 9000, "rss_mb": 1}
            ]
        by_node[f"spark-{number}"] = {"info": info, "zombies": {"findings": []}, "settings": settings(number, count)}
    return by_node


def settings(number: int, count: int) -> dict[str, t.Any]:
    """Return the settings of one node, the first being the head."""
    head = number == 1
    return {
        "head": head,
        "cluster": "gb10",
        "address": f"192.168.100.{number}",
        "peers": [f"192.168.100.{other}" for other in range(1, count + 1) if other != number],
        "api_address": f"192.168.100.{number}" if head else "",
        "ports": {"gb10_api_port": 8000, "gb10_ray_port": 6379} if head else {},
        "fabric_interfaces": ["enp1s0f0np0", "enP2p1s0f0np0"],
        "rdma_devices": ["rocep1s0f0", "roceP2p1s0f0"],
        "fabric_fallback": "none",
        "devices": ["/dev/infiniband"],
        "container_gpus": "all",
        "memlock": -1,
        "model_root": "/models",
        "offline": False,
        "disk_gib": 20,
        "serve_arguments": {},
        "replace_stale": False,
        "rules": {},
        "silenced": [],
    }


def more_rules(rules: t.Sequence[rule_table.Rule], copies: int) -> list[rule_table.Rule]:
    """Return the rules with copies of each under other ids."""
    named = [
        dataclasses.replace(rule, id=f"{rule.id}_{number}", after=tuple(f"{id}_{number}" for id in rule.after)) for number in range(copies) for rule in rules
    ]
    return [*rules, *named]


def cpu_seconds(work: t.Callable[[], t.Any], repeat: int) -> float:
    """Return the median CPU seconds of one run."""
    taken = []
    for _run in range(repeat):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--answer", type=Path, nargs="+", default=[HEALTHY])
    options = parser.parse_args()

    profile = profiles.load("nemotron_3_super_tp2")
    run = {"cluster": "gb10", "tags": ["all"], "skip_tags": [], "time": "2026-11-21T15:00:00Z"}
    by_node = answers(options.answer, options.nodes)
    rules = rule_table.shipped()
    loaded = cpu_seconds(lambda: rule_table.parsed(rule_table.TABLE.read_text(encoding="utf-8")), options.repeat)
    record = judging.judge(copy.deepcopy(by_node), profile, run)

    all_rules = cpu_seconds(lambda: judging.judge(by_node, profile, run), options.repeat)
    many = more_rules(rules, COPIES)
    many_rules = cpu_seconds(lambda: judging.judge(by_node, profile, run, many), options.repeat)
    per_rule_ms = (many_rules - all_rules) / (len(many) - len(rules)) / options.nodes * 1000
    one_node = cpu_seconds(lambda: judging.judge(dict([next(iter(by_node.items()))]), profile, run), options.repeat)

    print(f"rules                    {len(rules)}, read in {loaded * 1000:.0f} ms of CPU")
    print(f"nodes                    {options.nodes}, {len(record['findings'])} findings")
    print(f"all rules, all nodes     {all_rules:.3f} s of CPU (median of {options.repeat})")
    print(f"all rules, one node      {one_node * 1000:.2f} ms of CPU")
    print(f"one more rule, one node  {per_rule_ms:.4f} ms of CPU")
    allowed = SECONDS_64 * options.nodes / 64
    print(f"ratio to what is allowed {all_rules / allowed:.3f} for all nodes, {per_rule_ms / MS_PER_RULE:.4f} for one more rule")


if __name__ == "__main__":
    main()
