#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: known_answers
short_description: Ask a live engine questions whose answers are known
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - An engine with the wrong kernels, a damaged shard or the wrong parser is healthy and fast, and what it says is wrong. This module asks it, over its
    API, what every model can answer, and judges the answers.
  - A question is asked once in the life of an engine. The result is kept on the node, and the next call returns it without asking.
    A question that got no answer is asked again by the next call.
  - Nothing is stopped, whatever the engine says.
notes:
  - What is kept is a record and not state of the node, so RV(ignore:changed) stays false.
  - Runs where the engine's API is, on the head.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._cluster
options:
  state_dir:
    description:
      - Directory on the node that holds the state of the collection's clusters. The results are kept below it.
    type: path
    default: /var/lib/gb10
  log_dir:
    description:
      - Directory on the node that holds the engines' logs.
    type: path
    default: /var/log/gb10
  checks:
    description:
      - What to ask.
      - V(arithmetic) asks for a sum, V(echo) for a line word by word, V(coherence) for some sentences.
      - V(reasoning_split) asks for a thought, which has to come beside the answer and not in it. It needs the engine's C(--reasoning-parser).
      - V(tool_call) asks for a call of a tool, which has to come as one. It needs the engine's C(--enable-auto-tool-choice).
      - V(structured_output) asks for JSON by a schema.
      - V(needle) asks for one line of a long text.
      - In every answer and every thought garbage is looked for, namely repetition, U+FFFD and control characters.
    type: list
    elements: str
    choices: [arithmetic, echo, coherence, reasoning_split, tool_call, structured_output, needle]
    required: true
  model:
    description:
      - Name under which the API serves the model. Without it, what the API serves first is asked.
    type: str
  api_key_file:
    description:
      - File on the node with the API's key.
    type: path
  needle_percent:
    description:
      - How long the text of V(needle) is, in percent of the context length that the engine serves, 1 to 90.
    type: int
    default: 2
  max_tokens:
    description:
      - Tokens that an answer may take, thinking included, 1 or more; never more than half of the context length. An answer that is cut off warns.
    type: int
    default: 4096
  timeout:
    description:
      - Seconds to wait for each answer, 1 or more.
    type: int
    default: 600
  again:
    description:
      - Ask also what this engine was asked already.
    type: bool
    default: false
attributes:
  check_mode:
    details:
      - Asks nothing, and returns what is kept.
seealso:
  - module: gb10.cluster.vllm_serve
  - module: gb10.cluster.vllm_serve_info
"""

EXAMPLES = r"""
- name: Ask what has a known answer
  gb10.cluster.known_answers:
    checks: [arithmetic, echo, coherence]
    api_key_file: /etc/gb10/secrets/gb10/api_key
  become: true
"""

RETURN = r"""
run_id:
  description: The engine's run that was asked; empty when none is live.
  returned: success
  type: str
  sample: 20261122T101500Z-3f1c
asked:
  description: The checks that were asked now. The others' results are kept ones.
  returned: success
  type: list
  elements: str
  sample: [arithmetic, echo, coherence]
results:
  description: The result of each check that was ever asked of this run, of those in O(checks).
  returned: success
  type: list
  elements: dict
  contains:
    check:
      description: Its name.
      type: str
      sample: arithmetic
    verdict:
      description: >-
        V(pass) for a right answer, V(block) for a wrong one or garbage, V(warn) for one that was cut off, V(unknown) for none.
      type: str
      sample: pass
    message:
      description: What is wrong with the answer, empty when it is right.
      type: str
      sample: ""
    question:
      description: What was asked, its middle left out when it is long.
      type: str
      sample: What is 412 + 137? Answer with the number alone.
    expected:
      description: What is right, in words where there is no single right text.
      type: str
      sample: "549"
    answer:
      description: What came, its middle left out when it is long.
      type: str
      sample: "549"
    prompt_tokens:
      description: Tokens of the question, as the engine counts them.
      type: int
      sample: 24
    tokens:
      description: Tokens of the answer.
      type: int
      sample: 3
findings:
  description: The results in the shape of all findings.
  returned: success
  type: list
  elements: dict
  sample: []
"""

import os
import socket
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._engine import api_key, engine_state, questions
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import write_json
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.notes import read_note

MINIMUM = {"max_tokens": 1, "needle_percent": 1, "timeout": 1}
MOST_PERCENT = 90


def check_numbers(params: dict[str, t.Any]) -> None:
    """Raise :class:`ClusterError` for an option out of its range."""
    _module.require_least(params, MINIMUM)
    if params["needle_percent"] > MOST_PERCENT:
        what = f"needle_percent is {params['needle_percent']}, expected at most {MOST_PERCENT}"
        raise ClusterError(what, remedy="Correct needle_percent.", reason="input")


def kept_results(path: str, run_id: str) -> dict[str, dict[str, t.Any]]:
    """Return what a run answered before, by check; nothing for another run."""
    kept = read_note(path) or {}
    results = kept.get("results")
    return results if kept.get("run_id") == run_id and isinstance(results, dict) else {}


def engine_of(state: dict[str, t.Any], params: dict[str, t.Any]) -> questions.Engine:
    """Return how the live engine is asked."""
    url = engine_state.base_url(state["api_address"], state["api_port"])
    key = api_key.of(state, params["api_key_file"])
    model = questions.served(url, key, params["model"])
    context = model["max_model_len"]
    most = max(1, min(params["max_tokens"], context // 2))
    return questions.Engine(url, model["id"], key, context, params["needle_percent"], most, params["timeout"])


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    check_numbers(params)
    paths = engine_state.EnginePaths.of(params["state_dir"], params["log_dir"], params["cluster_name"])
    state = engine_state.engine_state(paths)
    if not state["live"] or not state["api_address"]:
        return {"msg": "no live engine", "run_id": "", "asked": [], "results": [], "findings": []}
    path = os.path.join(params["state_dir"], params["cluster_name"], "answers.json")
    kept = kept_results(path, state["run_id"])
    asked = [name for name in questions.CHECKS if name in params["checks"] and (params["again"] or name not in kept)]
    if asked and not module.check_mode:
        engine = engine_of(state, params)
        came = {name: questions.ask(name, engine, state["run_id"]) for name in asked}
        keep(path, state["run_id"], {**kept, **{name: result for name, result in came.items() if result["verdict"] != "unknown"}})
        kept = {**kept, **came}
    results = [kept[name] for name in questions.CHECKS if name in params["checks"] and name in kept]
    wrong = [result["check"] for result in results if result["verdict"] != "pass"]
    return {
        "msg": f"{len(results)} question(s), " + (f"not answered as they should be: {', '.join(wrong)}" if wrong else "all answered right"),
        "run_id": state["run_id"],
        "asked": [] if module.check_mode else asked,
        "results": results,
        "findings": [questions.as_finding(result, socket.gethostname()) for result in results],
    }


def keep(path: str, run_id: str, results: dict[str, t.Any]) -> None:
    """Keep the results of a run. Raises :class:`ClusterError` when they cannot be written."""
    try:
        write_json(path, {"run_id": run_id, "results": results})
    except OSError as error:
        raise ClusterError(f"{path} cannot be written: {error.strerror}", remedy="Run the task with become: true, or free space there.") from error


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "cluster_name": {"type": "str", "default": "gb10"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "log_dir": {"type": "path", "default": "/var/log/gb10"},
            "checks": {"type": "list", "elements": "str", "choices": list(questions.CHECKS), "required": True},
            "model": {"type": "str"},
            "api_key_file": {"type": "path", "no_log": False},
            "needle_percent": {"type": "int", "default": 2},
            "max_tokens": {"type": "int", "default": 4096, "no_log": False},
            "timeout": {"type": "int", "default": 600},
            "again": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    _module.run(module, work)


if __name__ == "__main__":
    main()
