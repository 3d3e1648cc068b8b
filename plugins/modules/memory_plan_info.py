#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: memory_plan_info
short_description: Say what a model would take of a node's memory
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Computes what a model has in use once its weights are loaded and while it serves, and whether that fits, by the same formula as the filter
    P(gb10.cluster.memory_plan#filter), where the task runs. Of the node it reads its memory alone.
  - Without O(nodes) it plans for the node that it runs on, as that is now, with its own MemTotal and with what is in use there.
  - It knows no table of models. What it takes to know of one is in O(facts).
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._look
options:
  facts:
    description:
      - A parsed config.json of the model, or facts in the words of those of a profile's C(memory.config). The collection's docs/plan.md explains them.
    type: dict
    required: true
  serve:
    description:
      - Arguments of C(vllm serve), in snake case.
    type: dict
    default: {}
  parallel:
    description:
      - Over how many ranks the model is spread, one on a node.
    type: dict
    suboptions:
      tensor:
        description:
          - Tensor ranks, 1 or more.
        type: int
        default: 1
      pipeline:
        description:
          - Pipeline stages, 1 or more.
        type: int
        default: 1
      data:
        description:
          - Data ranks, 1 or more.
        type: int
        default: 1
      expert:
        description:
          - Whether experts are spread over the ranks.
        type: bool
        default: false
  ray:
    description:
      - Whether Ray spreads the ranks, which takes memory of its own.
    type: bool
    default: false
  weights_gib:
    description:
      - GiB of weights that one node loads, where O(facts) do not say how large the files are.
    type: float
  drafter_gib:
    description:
      - GiB on disk of a drafter with weights of its own.
    type: float
    default: 0.0
  concurrency:
    description:
      - Whole sequences that the KV cache shall hold at once, 1 or more.
    type: int
    default: 1
  recorded:
    description:
      - Whether a start of the same image, profile and driver is on record. Without one a KV cache in bytes is V(tight) at best.
    type: bool
    default: false
  nodes:
    description:
      - Nodes to plan for, in place of the one that the task runs on.
    type: list
    elements: dict
    suboptions:
      node:
        description:
          - Its name.
        type: str
        required: true
      total_gib:
        description:
          - MemTotal in GiB, 8 or more.
        type: float
        required: true
      tenants_gib:
        description:
          - What others hold there, in GiB.
        type: float
        default: 0.0
      available_gib:
        description:
          - MemAvailable before the start, in GiB.
        type: float
      free_at_start_gib:
        description:
          - What the engine itself said that it found free, in GiB.
        type: float
seealso:
  - plugin: gb10.cluster.memory_plan
    plugin_type: filter
  - module: gb10.cluster.memory_record
"""

EXAMPLES = r"""
- name: Say whether a model fits this node as it is now
  gb10.cluster.memory_plan_info:
    facts: "{{ lookup('ansible.builtin.file', 'config.json') | from_json }}"
    weights_gib: 37.4
    parallel: {tensor: 2}
    serve: {max_model_len: 262144, gpu_memory_utilization: 0.75, kv_cache_dtype: fp8}
  register: plan

- name: Show it
  ansible.builtin.debug:
    msg: "{{ plan.msg }}"
"""

RETURN = r"""
verdict:
  description: V(pass) for a plan that fits, V(warn) for a tight one, V(block) for one that does not go, V(unknown) where facts are missing.
  returned: success
  type: str
  sample: pass
plan:
  description:
    - The plan, as the filter P(gb10.cluster.memory_plan#filter) returns it, without what only a profile says. C(verdict) in it is V(fits), V(tight),
      V(no) or V(unknown).
  returned: success
  type: dict
  contains:
    verdict:
      description: The verdict of the worst node.
      type: str
      sample: fits
    missing:
      description: The facts without which there is no plan, and the arguments whose values the engine would not read.
      type: list
      elements: str
      sample: []
    reasons:
      description: Why it is not V(fits).
      type: list
      elements: str
      sample: []
    nodes:
      description: Each node with its two figures and their parts.
      type: list
      elements: dict
      sample:
        - node: spark-1
          total_gib: 121.69
          verdict: fits
          loading: {used_gib: 49.5, within_gib: 4.3, available_gib: 72.2}
          serving: {used_gib: 101.8, within_gib: 4.1, available_gib: 19.9}
    would_fit:
      description: Single changes with a better verdict.
      type: list
      elements: dict
      sample: [{change: max_model_len, to: 131072, verdict: fits}]
    propose_kv_cache_memory_bytes:
      description: A size for the KV cache, which C(gb10_kv_cache=recorded) applies once a start is on record. Null where there is none.
      type: int
      sample: 8589934592
"""

import socket
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._memory import model_facts, node_memory, plan

VERDICTS = {plan.FITS: "pass", plan.TIGHT: "warn", plan.NO: "block", plan.UNKNOWN: "unknown"}
LEAST_GIB = 8
KIB_IN_GIB = 1024**2


def this_node(params: dict[str, t.Any]) -> plan.Node:
    """Return the node that this runs on, as it is now."""
    meminfo = node_memory.read_meminfo(params["roots"]["proc_root"], params["roots"]["meminfo"])
    return plan.Node(socket.gethostname(), round(meminfo["MemTotal"] / KIB_IN_GIB, 2), available=round(meminfo["MemAvailable"] / KIB_IN_GIB, 2))


def nodes_of(params: dict[str, t.Any]) -> list[plan.Node]:
    """Return the nodes to plan for. Raises :class:`ClusterError` for one that cannot be."""
    if not params["nodes"]:
        return [this_node(params)]
    wrong = [f"nodes[{index}].total_gib is {one['total_gib']:g}" for index, one in enumerate(params["nodes"]) if one["total_gib"] < LEAST_GIB]
    if wrong:
        raise ClusterError(f"{'; '.join(wrong)}, expected {LEAST_GIB} GiB or more", remedy="Correct nodes.", reason="input")
    fields = ("total_gib", "tenants_gib", "available_gib", "free_at_start_gib")
    return [plan.Node(one["node"], *(one[name] for name in fields)) for one in params["nodes"]]


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    _module.require_least(params, {"concurrency": 1})
    _module.require_least(params["parallel"], {"tensor": 1, "pipeline": 1, "data": 1})
    given = params["facts"]
    facts = model_facts.from_config(given) if {"architectures", "model_type"} & set(given) else given
    use = plan.settings_of(params["serve"], params["parallel"], facts, ray=params["ray"], draft_gib=params["drafter_gib"], recorded=params["recorded"])
    found = plan.plan(facts, use, nodes_of(params), declared_gib=params["weights_gib"], concurrency=params["concurrency"])
    why = f": {'; '.join(found['reasons'])}" if found["reasons"] else ""
    go = "; ".join(f"{one['change']} {one['to']} ({one['verdict']})" for one in found["would_fit"])
    return {
        "msg": f"{found['verdict']}{why}",
        "verdict": VERDICTS[found["verdict"]],
        "remedy": f"What would go: {go}." if go else "",
        "plan": found,
    }


def main() -> None:
    rank = {"type": "int", "default": 1}
    gib = {"type": "float"}
    module = AnsibleModule(
        argument_spec={
            "facts": {"type": "dict", "required": True},
            "serve": {"type": "dict", "default": {}},
            "parallel": {
                "type": "dict",
                "apply_defaults": True,
                "options": {"tensor": rank, "pipeline": rank, "data": rank, "expert": {"type": "bool", "default": False}},
            },
            "ray": {"type": "bool", "default": False},
            "weights_gib": gib,
            "drafter_gib": {"type": "float", "default": 0.0},
            "concurrency": {"type": "int", "default": 1},
            "recorded": {"type": "bool", "default": False},
            "nodes": {
                "type": "list",
                "elements": "dict",
                "options": {
                    "node": {"type": "str", "required": True},
                    "total_gib": {"type": "float", "required": True},
                    "tenants_gib": {"type": "float", "default": 0.0},
                    "available_gib": gib,
                    "free_at_start_gib": gib,
                },
            },
            "roots": ROOTS,
        },
        supports_check_mode=True,
    )
    _module.run(module, work)


if __name__ == "__main__":
    main()
