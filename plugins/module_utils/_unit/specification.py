# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an engine's unit does, as data: modules of the collection with their arguments, in order. This module util is PRIVATE to the collection.

The arguments are those that the roles pass to the same modules. Nothing else defines how an engine or a container is started.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files.documents import Document, lacking
from ansible_collections.gb10.cluster.plugins.module_utils._unit import meeting

SCHEMA = 1
FILE = "specification.json"

#: The modules that a step may run, and those that the programs themselves run. All of them are packed into the program.
STEP_MODULES = (
    "cuda_zombie_check", "node_container", "node_container_info", "node_samples_info", "node_service", "page_cache_drop", "ray_cluster", "vllm_serve",
    "vllm_serve_info",
)  # fmt: skip
MODULES = (*STEP_MODULES, "cluster_lock", "engine_questions", "node_logs")

#: The steps of a start, in this order, and of a stop. Role and executor decide which of them a specification has. ``memory``, ``meet`` and
#: ``join`` run no module.
START = ("drop", "zombies", "memory", "note", "container", "ray", "meet", "engine", "join", "token", "guard")
STOP = ("drain", "engine", "container")

#: The keys with their types. ``nodes`` maps names to addresses. ``meeting`` is the address where the ranks of several nodes meet without Ray, and is
#: empty for other engines; seconds are integers.
KEYS: dict[str, type] = {
    "cluster": str, "role": str, "executor": str, "nodes": dict, "gpus": int, "state_dir": str, "log_dir": str, "roots": dict, "memory": dict,
    "meeting": dict, "address": str, "start_seconds": int, "start": list, "stop": list,
}  # fmt: skip

Specification = dict[str, t.Any]


def wrong(given: t.Any) -> str:
    """Return why a specification is invalid, empty when it is valid."""
    if problem := lacking(given, KEYS):
        return problem
    if given["meeting"] and (problem := lacking(given["meeting"], meeting.KEYS)):
        return f"meeting: {problem}"
    for part, allowed in (("start", START), ("stop", STOP)):
        for step in given[part]:
            whole = isinstance(step, dict) and isinstance(step.get("arguments"), dict) and isinstance(step.get("timeout"), int)
            if not whole or step.get("name") not in allowed or step.get("module", "") not in ("", *STEP_MODULES):
                return f"{part} has an unknown step, expected one of {', '.join(allowed)}"
        order = [allowed.index(step["name"]) for step in given[part]]
        if order != sorted(set(order)):
            return f"the steps of {part} are not in the order {', '.join(allowed)}"
    return ""


def check(given: t.Any) -> Specification:
    """Return a valid specification. Raises :class:`ClusterError` for an invalid one."""
    if why := wrong(given):
        raise ClusterError(f"the specification cannot be used: {why}", remedy="Let the stage engine_unit of a bring-up write it.", reason="input")
    return given


def dump(given: Specification) -> str:
    """Return the text of any unit's specification: the same for the same content."""
    return json.dumps({**given, "schema": SCHEMA}, indent=1, sort_keys=True) + "\n"


def read(path: str, wrong: t.Callable[[t.Any], str] = wrong) -> Specification:
    """Return the specification in a file. Raises :class:`UnknownState` when it is absent, or invalid according to ``wrong``."""
    remedy = "Run the bring-up or the playbook mode again: it writes the specification."
    given = Document("specification", "a specification", SCHEMA, wrong, remedy).read(path)
    if given is None:
        raise UnknownState(f"{path} does not exist", remedy=remedy, reason="specification broken")
    return given


def step(given: Specification, part: str, name: str) -> dict[str, t.Any] | None:
    """Return a step by its name, None when there is none."""
    return next((step for step in given[part] if step["name"] == name), None)


def arguments(given: Specification, name: str) -> dict[str, t.Any]:
    """Return the arguments of a step of the start, empty when there is no such step."""
    return (step(given, "start", name) or {"arguments": {}})["arguments"]
