#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: long_prompt
short_description: Ask a live engine a prompt that fills most of its context
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - An engine that was started with a context length has not shown that it bears a prompt of that length. This module asks it one.
  - The prompt is measured in the engine's own tokens (C(/tokenize)) before it is asked, and the answer has to say that it was read whole
    (C(usage.prompt_tokens)).
  - The prompt is a list of made-up entries with one line that answers the question at its end.
  - Nothing is stopped, whatever comes back. An engine that does not answer in time goes on with the prompt by itself.
notes:
  - Runs where the engine's API is, on the head.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._cluster
  - gb10.cluster._cluster.state_dir
attributes:
  check_mode:
    support: full
    details:
      - Asks nothing.
  diff_mode:
    support: none
options:
  log_dir:
    description:
      - Directory on the node that holds the engines' logs.
    type: path
    default: /var/log/gb10
  model:
    description:
      - Name under which the API serves the model. Without it, what the API serves first is asked.
    type: str
  api_key_file:
    description:
      - File on the node with the API's key.
    type: path
  context:
    description:
      - The context length in tokens that the engine has to serve. Without it, the length that it serves.
    type: int
  percent:
    description:
      - How long the prompt is, in percent of the context length, 1 to 95. It has at least 98 of 100 tokens of that.
    type: int
    default: 90
  max_tokens:
    description:
      - Tokens that the answer may take, thinking included, 1 or more; never more than the context leaves.
    type: int
    default: 4096
  check_answer:
    description:
      - Whether the answer's text has to be right, too, and no garbage. A model that was trained for nothing, such as the lab's, gives no right answer.
    type: bool
    default: true
  timeout:
    description:
      - Seconds to wait for the answer, 1 or more.
    type: int
    default: 3600
seealso:
  - module: gb10.cluster.known_answers
"""

EXAMPLES = r"""
- name: Ask a prompt of 90 % of the context
  gb10.cluster.long_prompt:
    context: 262144
    api_key_file: /etc/gb10/secrets/gb10/api_key
  become: true
  register: asked
"""

RETURN = r"""
run_id:
  description: The engine's run that was asked. Empty when none lives, and in check mode.
  returned: success
  type: str
  sample: 20261123T140000Z-1
context:
  description: The context length that the engine serves.
  returned: success
  type: int
  sample: 262144
wanted_tokens:
  description: Tokens that the prompt was to have.
  returned: success
  type: int
  sample: 235929
counted_tokens:
  description: Tokens that the engine counted before it was asked.
  returned: success
  type: int
  sample: 233402
prompt_tokens:
  description: Tokens that the engine says it read.
  returned: success
  type: int
  sample: 233402
tokens:
  description: Tokens of the answer.
  returned: success
  type: int
  sample: 9
seconds:
  description: How long the answer took.
  returned: success
  type: float
  sample: 141.2
answer:
  description: The answer, shortened.
  returned: success
  type: str
  sample: birch-4711
findings:
  description: One finding, C(ladder.prompt). None in check mode.
  returned: success
  type: list
  elements: dict
  sample: []
"""

import socket
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._engine import api_key, engine_state, long_prompt, questions
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState

MINIMUM = {"percent": 1, "max_tokens": 1, "timeout": 1}
MOST_PERCENT = 95
NOTHING = {"run_id": "", "context": 0, "wanted_tokens": 0, "counted_tokens": 0, "prompt_tokens": 0, "tokens": 0, "seconds": 0.0, "answer": "", "findings": []}


def found(verdict: str, message: str, measured: t.Any, needed: t.Any) -> dict[str, t.Any]:
    """Return the finding about this node."""
    return long_prompt.as_finding(socket.gethostname(), verdict, message, measured, needed)


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    _module.require_least(params, MINIMUM)
    if params["percent"] > MOST_PERCENT:
        raise ClusterError(f"percent is {params['percent']}, expected at most {MOST_PERCENT}", remedy="Correct percent.", reason="input")
    if module.check_mode:
        return {**NOTHING, "msg": "a prompt would be asked"}
    paths = engine_state.EnginePaths.of(params["state_dir"], params["log_dir"], params["cluster_name"])
    state = engine_state.engine_state(paths)
    if not state["live"] or not state["api_address"]:
        return {**NOTHING, "msg": "no live engine", "findings": [found("block", "no engine is live", None, "an answer")]}
    url, key = engine_state.base_url(state["api_address"], state["api_port"]), api_key.of(state, params["api_key_file"])
    result: dict[str, t.Any] = {**NOTHING, "run_id": state["run_id"]}
    try:
        model = questions.served(url, key, params["model"])
        context = result["context"] = model["max_model_len"]
        if params["context"] and params["context"] != context:
            message = f"the engine serves {context} tokens instead of {params['context']}"
            return {**result, "msg": message, "findings": [found("block", f"{message}.", context, params["context"])]}
        asked = long_prompt.Asked(url, model["id"], key, context, params["percent"], params["max_tokens"], params["timeout"], params["check_answer"])
        came = long_prompt.ask(asked, f"{state['run_id']} long")
    except UnknownState as error:
        return {**result, "msg": str(error), "findings": [found("unknown", f"{error}.", None, "an answer")]}
    verdict, wrong = came.pop("verdict"), came.pop("message")
    said = f"{came['prompt_tokens'] or came['counted_tokens']} tokens, {came['tokens']} back after {came['seconds']} s"
    message = f"a prompt of {said}{f': {wrong}' if wrong else ''}"
    return {**result, **came, "msg": message, "findings": [found(verdict, f"{message}.", came["prompt_tokens"], came["wanted_tokens"])]}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "cluster_name": {"type": "str", "default": "gb10"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "log_dir": {"type": "path", "default": "/var/log/gb10"},
            "model": {"type": "str"},
            "api_key_file": {"type": "path", "no_log": False},
            "context": {"type": "int"},
            "percent": {"type": "int", "default": 90},
            "max_tokens": {"type": "int", "default": 4096, "no_log": False},
            "check_answer": {"type": "bool", "default": True},
            "timeout": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    _module.run(module, work)


if __name__ == "__main__":
    main()
