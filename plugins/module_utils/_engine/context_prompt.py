# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sends a live engine a prompt that fills most of its context. This module util is PRIVATE to the collection."""

from __future__ import annotations

import socket
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state, long_prompt, questions
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState

MINIMUM = {"percent": 1, "max_tokens": 1, "timeout": 1}
MOST_PERCENT = 95
NOTHING = {"run_id": "", "context": 0, "wanted_tokens": 0, "counted_tokens": 0, "prompt_tokens": 0, "tokens": 0, "seconds": 0.0, "answer": "", "findings": []}


def found(verdict: str, message: str, measured: t.Any, needed: t.Any) -> dict[str, t.Any]:
    """Return the finding about this node."""
    return long_prompt.as_finding(socket.gethostname(), verdict, message, measured, needed)


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    _module.require_least(params, MINIMUM)
    _module.require_most(params, {"percent": MOST_PERCENT})
    if module.check_mode:
        return {**NOTHING, "msg": "a prompt would be asked"}
    paths = engine_state.EnginePaths.of(params["state_dir"], params["log_dir"], params["cluster_name"])
    state = engine_state.engine_state(paths)
    if not state["live"] or not state["api_address"]:
        return {**NOTHING, "msg": "no live engine", "findings": [found("block", "no engine is live", None, "an answer")]}
    result: dict[str, t.Any] = {**NOTHING, "run_id": state["run_id"]}
    try:
        engine = questions.Engine.of(state, params, params["percent"])
        context = result["context"] = engine.context
        if params["context"] and params["context"] != context:
            message = f"the engine serves {context} tokens instead of {params['context']}"
            return {**result, "msg": message, "findings": [found("block", f"{message}.", context, params["context"])]}
        came = long_prompt.ask(engine, f"{state['run_id']} long", params["check_answer"])
    except UnknownState as error:
        return {**result, "msg": str(error), "findings": [found("unknown", f"{error}.", None, "an answer")]}
    verdict, wrong = came.pop("verdict"), came.pop("message")
    summary = f"{came['prompt_tokens'] or came['counted_tokens']} tokens, {came['tokens']} back after {came['seconds']} s"
    message = f"a prompt of {summary}{f': {wrong}' if wrong else ''}"
    return {**result, **came, "msg": message, "findings": [found(verdict, f"{message}.", came["prompt_tokens"], came["wanted_tokens"])]}
