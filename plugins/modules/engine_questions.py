#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_questions
short_description: Check a live engine's answers
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - With O(questions=known_answers) it asks questions that every model can answer, and judges the answers. An engine with the wrong kernels, a damaged shard or
    the wrong parser is healthy and fast, and its answers are wrong. A question is asked once per engine run. The result is stored on the node, and the next
    call returns it without asking. A question that got no answer is asked again by the next call.
  - With O(questions=long_prompt) it sends a prompt that fills most of the engine's context. An engine that was started with a context length has not shown that
    it can process a prompt of that length. The prompt is a list of made-up entries with one line that answers the question at its end. It is measured in the
    engine's own tokens (C(/tokenize)) before it is sent, and the answer must show that it was read completely (C(usage.prompt_tokens)).
  - Nothing is stopped, no matter what the engine answers. An engine that does not answer in time continues with the prompt.
notes:
  - Stored results are a record and not state of the node, so RV(ignore:changed) stays false.
  - Runs on the node with the engine's API, the head.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._cluster
  - gb10.cluster._cluster.state_dir
options:
  questions:
    description:
      - The kind of questions.
    type: str
    choices: [known_answers, long_prompt]
    required: true
  log_dir:
    description:
      - Directory on the node for the engines' logs.
    type: path
    default: /var/log/gb10
  checks:
    description:
      - The questions with known answers. Required with O(questions=known_answers).
      - V(arithmetic) asks for a sum, V(echo) for a line word by word, V(coherence) for some sentences.
      - V(reasoning_split) asks for a thought, which must be separate from the answer. It needs the engine's C(--reasoning-parser).
      - V(tool_call) asks for a tool call, which must be returned as one. It needs the engine's C(--enable-auto-tool-choice).
      - V(structured_output) asks for JSON by a schema.
      - V(needle) asks for one line of a long text.
      - Every answer and every thought is checked for garbage, namely repetition, U+FFFD and control characters.
    type: list
    elements: str
    choices: [arithmetic, echo, coherence, reasoning_split, tool_call, structured_output, needle]
  model:
    description:
      - Name under which the API serves the model. Without it, the first model that the API serves is used.
    type: str
  api_key_file:
    description:
      - File on the node with the API's key.
    type: path
  needle_percent:
    description:
      - Length of the text of V(needle), in percent of the context length that the engine serves, 1 to 90.
    type: int
    default: 2
  again:
    description:
      - With O(questions=known_answers), whether to repeat questions that this engine has answered already.
    type: bool
    default: false
  context:
    description:
      - With O(questions=long_prompt), the context length in tokens that the engine must serve. Without it, the length that it serves.
    type: int
  percent:
    description:
      - Length of the long prompt, in percent of the context length, 1 to 95. It has at least 98 of 100 tokens of that.
    type: int
    default: 90
  check_answer:
    description:
      - Whether the text of the answer to the long prompt must also be right, and without garbage. A model that was not trained for anything, such as
        the lab's, gives no right answer.
    type: bool
    default: true
  max_tokens:
    description:
      - Maximum tokens of an answer, thinking included, 1 or more. Never more than half of the context length for known answers, and never more than the
        context leaves for the long prompt. A known answer that is cut off warns.
    type: int
    default: 4096
  timeout:
    description:
      - Seconds to wait for each answer, 1 or more. The default is 600 with O(questions=known_answers) and 3600 with O(questions=long_prompt).
    type: int
attributes:
  check_mode:
    details:
      - Asks nothing, and returns the stored results.
seealso:
  - module: gb10.cluster.vllm_serve
  - module: gb10.cluster.vllm_serve_info
"""

EXAMPLES = r"""
- name: Ask questions with known answers
  gb10.cluster.engine_questions:
    questions: known_answers
    checks: [arithmetic, echo, coherence]
    api_key_file: /etc/gb10/secrets/gb10/api_key
  become: true

- name: Send a prompt of 90 % of the context
  gb10.cluster.engine_questions:
    questions: long_prompt
    context: 262144
    api_key_file: /etc/gb10/secrets/gb10/api_key
  become: true
"""

RETURN = r"""
run_id:
  description: The engine's run that was asked. Empty if no engine is live, and for the long prompt in check mode.
  returned: success
  type: str
  sample: 20261122T101500Z-3f1c
findings:
  description: The results in the shape of all findings. For the long prompt one, C(ladder.prompt), and none in check mode.
  returned: success
  type: list
  elements: dict
  sample: []
asked:
  description: The checks that were asked now. The results of the others are stored ones.
  returned: with O(questions=known_answers)
  type: list
  elements: str
  sample: [arithmetic, echo, coherence]
results:
  description: The result of each check in O(checks) that was ever asked of this run.
  returned: with O(questions=known_answers)
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
      description: The problem with the answer. Empty if it is right.
      type: str
      sample: ""
    question:
      description: The question. Its middle is left out if it is long.
      type: str
      sample: What is 412 + 137? Answer with the number alone.
    expected:
      description: The right answer, described in words if there is no single right text.
      type: str
      sample: "549"
    answer:
      description: The answer. Its middle is left out if it is long.
      type: str
      sample: "549"
    prompt_tokens:
      description: Tokens of the question, as counted by the engine.
      type: int
      sample: 24
    tokens:
      description: Tokens of the answer.
      type: int
      sample: 3
context:
  description: The context length that the engine serves.
  returned: with O(questions=long_prompt)
  type: int
  sample: 262144
wanted_tokens:
  description: Intended number of tokens in the prompt.
  returned: with O(questions=long_prompt)
  type: int
  sample: 235929
counted_tokens:
  description: Tokens that the engine counted before the prompt was sent.
  returned: with O(questions=long_prompt)
  type: int
  sample: 233402
prompt_tokens:
  description: Tokens that the engine reports as read.
  returned: with O(questions=long_prompt)
  type: int
  sample: 233402
tokens:
  description: Tokens of the answer.
  returned: with O(questions=long_prompt)
  type: int
  sample: 9
seconds:
  description: Seconds until the answer.
  returned: with O(questions=long_prompt)
  type: float
  sample: 141.2
answer:
  description: The answer, shortened.
  returned: with O(questions=long_prompt)
  type: str
  sample: birch-4711
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._engine import context_prompt, known_answers, questions

#: The function that asks each kind of question, and its default timeout in seconds.
QUESTIONS: dict[str, tuple[t.Callable[[AnsibleModule], dict[str, t.Any]], int]] = {
    "known_answers": (known_answers.work, 600), "long_prompt": (context_prompt.work, 3600),
}  # fmt: skip


def work(module: AnsibleModule) -> dict[str, t.Any]:
    asks, seconds = QUESTIONS[module.params["questions"]]
    if module.params["timeout"] is None:
        module.params["timeout"] = seconds
    return asks(module)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "questions": {"type": "str", "choices": list(QUESTIONS), "required": True},
            "cluster_name": {"type": "str", "default": "gb10"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "log_dir": {"type": "path", "default": "/var/log/gb10"},
            "checks": {"type": "list", "elements": "str", "choices": list(questions.CHECKS)},
            "model": {"type": "str"},
            "api_key_file": {"type": "path", "no_log": False},
            "needle_percent": {"type": "int", "default": 2},
            "again": {"type": "bool", "default": False},
            "context": {"type": "int"},
            "percent": {"type": "int", "default": 90},
            "check_answer": {"type": "bool", "default": True},
            "max_tokens": {"type": "int", "default": 4096, "no_log": False},
            "timeout": {"type": "int"},
        },
        required_if=[("questions", "known_answers", ["checks"])],
        supports_check_mode=True,
    )
    _module.run(module, work)


if __name__ == "__main__":
    main()
