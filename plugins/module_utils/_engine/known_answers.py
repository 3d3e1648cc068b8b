# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asks a live engine questions with known answers. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import socket
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state, questions
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import write_json
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.notes import read_note

MINIMUM = {"max_tokens": 1, "needle_percent": 1, "timeout": 1}
MOST_PERCENT = 90


def kept_results(path: str, run_id: str) -> dict[str, dict[str, t.Any]]:
    """Return the earlier results of a run by check, none for another run."""
    kept = read_note(path) or {}
    results = kept.get("results")
    return results if kept.get("run_id") == run_id and isinstance(results, dict) else {}


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    _module.require_least(params, MINIMUM)
    _module.require_most(params, {"needle_percent": MOST_PERCENT})
    paths = engine_state.EnginePaths.of(params["state_dir"], params["log_dir"], params["cluster_name"])
    state = engine_state.engine_state(paths)
    if not state["live"] or not state["api_address"]:
        return {"msg": "no live engine", "run_id": "", "asked": [], "results": [], "findings": []}
    path = os.path.join(params["state_dir"], params["cluster_name"], "answers.json")
    kept = kept_results(path, state["run_id"])
    names = [name for name in questions.CHECKS if name in params["checks"] and (params["again"] or name not in kept)]
    if names and not module.check_mode:
        engine = questions.Engine.of(state, params, params["needle_percent"])
        engine = engine._replace(max_tokens=max(1, min(engine.max_tokens, engine.context // 2)))
        came = {name: questions.ask(name, engine, state["run_id"]) for name in names}
        known = {name: result for name, result in came.items() if result["verdict"] != "unknown"}
        try:
            write_json(path, {"run_id": state["run_id"], "results": {**kept, **known}})
        except OSError as error:
            raise ClusterError(f"{path} cannot be written: {error.strerror}", remedy="Run the task with become: true, or free space there.") from error
        kept = {**kept, **came}
    results = [kept[name] for name in questions.CHECKS if name in params["checks"] and name in kept]
    wrong = [result["check"] for result in results if result["verdict"] != "pass"]
    return {
        "msg": f"{len(results)} question(s), " + (f"not answered as they should be: {', '.join(wrong)}" if wrong else "all answered right"),
        "run_id": state["run_id"],
        "asked": [] if module.check_mode else names,
        "results": results,
        "findings": [questions.as_finding(result, socket.gethostname()) for result in results],
    }
