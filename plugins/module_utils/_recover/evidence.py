# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node sees of its own part of an engine. This module util is PRIVATE to the collection.

These functions change nothing. A part that cannot be read raises an error: then the whole node is unknown.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi, find_node_container
from ansible_collections.gb10.cluster.plugins.module_utils._engine import at_work, engine_state, health, token_probe
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._host import kernel_log
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify
from ansible_collections.gb10.cluster.plugins.module_utils._records.recoveries import OFF, SERVICE, STARTING
from ansible_collections.gb10.cluster.plugins.module_utils._recover.agreeing import ENDED, FAILED, RUNNING
from ansible_collections.gb10.cluster.plugins.module_utils._recover.budget import Moment
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import checks
from ansible_collections.gb10.cluster.plugins.module_utils._unit import record, service, specification, unit_files

#: Seconds for one answer of Docker or systemd, for a token, and for which the counters of tokens are watched.
TOOL_SECONDS, TOKEN_SECONDS, FLOW_SECONDS = 30.0, 10.0, 5.0
#: The default socket of the Docker engine.
DOCKER_SOCKET = "/var/run/docker.sock"
#: The kinds of the kernel's lines that matter for an engine, and the beginning of those about a GPU that only a reboot brings back.
KERNEL_KINDS, LOST = ("xid", "gpu", "nv_no_memory", "oops", "hardware", "oom"), "gpu: "
#: The most of these lines in a node's evidence, which is sent to the other nodes.
MOST_LINES = 10
#: A line that counts as logged: the record of a boot without any other line is not empty.
BOOTED = "booted"


def unit_of(unit: t.Mapping[str, t.Any], runs: bool) -> tuple[str, str]:
    """Return the state of an engine's unit, and its reason. ``runs`` is whether its part of the engine does.

    Raises :class:`UnknownState` when systemd does not answer, or its record cannot be read.
    """
    if unit["error"] or None in (unit["active"], unit["starting"], unit["failed"]):
        raise UnknownState(f"the state of {unit['name']} is unknown: {unit['error'] or 'systemd does not answer'}")
    failed = unit["failed"] and unit["state"] != record.REFUSED
    gone = unit["active"] and unit["state"] == record.STARTING and not runs
    word = STARTING if unit["starting"] else ENDED if gone else RUNNING if unit["active"] or (failed and runs) else FAILED if failed else OFF
    return word, service.reasoned(f"{unit['name']} {unit['state'] or 'never ran'}", unit["reason"])


def kernel_lines(roots: t.Mapping[str, t.Any], known: t.Mapping[str, int]) -> tuple[list[str], dict[str, int]]:
    """Return the kernel's lines about GPU and memory that are not ``known``, and how often each was logged in this boot.

    An unreadable log does not prevent a look. Without a record none is new.
    """
    try:
        events = kernel_log.kernel_log(roots["kernel_log"], roots["proc_root"])["events"]
    except (ClusterError, OSError) as error:
        return [f"unknown: {checks.text_of(error)}"], dict(known)
    counts = {BOOTED: 1, **{f"{event['kind']}: {event['text']}": event["count"] for event in events if event["kind"] in KERNEL_KINDS}}
    return [line for line, count in counts.items() if known and count > known.get(line, 0)][-MOST_LINES:], counts


def probe_of(config: t.Mapping[str, t.Any], cluster: str, engine: dict[str, t.Any], scale: float) -> health.Probe:
    """Return the result of a request to the head's live engine. Raises :class:`ClusterError` when it is refused.

    Nothing is requested while tokens flow, or while another run works here: it would find a request that is not a user's.
    """
    if locks := [lock for lock in checks.locks(config["state_dir"]) if SERVICE not in lock["who"]]:
        return health.Probe(health.ANSWERS, False, withheld=f"the lock {locks[0]['name']} is held")
    url = engine_state.base_url(engine["api_address"], engine["api_port"])
    if token_probe.flows(url, checks.key_of(config, cluster, engine), checks.ANSWER_SECONDS, FLOW_SECONDS):
        return health.Probe(health.ANSWERS, True)
    asked = checks.ask(config, cluster, engine)
    progress = asked.progress or {"still_s": 0.0}
    return health.Probe(asked.api, bool(asked.completion), **{**progress, "still_s": progress["still_s"] * scale})


def look(config: t.Mapping[str, t.Any], given: specification.Specification, state: t.Mapping[str, t.Any], now: Moment) -> dict[str, t.Any]:
    """Return what a look at this node changes in ``state``: its evidence (``own``, empty with the ``error`` that prevents it) and the kernel's lines."""
    try:
        counts, own = _look(config, given, state, now)
    except (ClusterError, OSError) as error:
        return {"own": {}, "error": checks.text_of(error), "kernel": {}}
    return {"own": own, "error": "", "kernel": counts}


def _look(
    config: t.Mapping[str, t.Any], given: specification.Specification, state: t.Mapping[str, t.Any], now: Moment
) -> tuple[dict[str, int], dict[str, t.Any]]:
    cluster, roots, is_head = given["cluster"], given["roots"], given["role"] == "head"
    api = EngineApi(specification.arguments(given, "container").get("docker_socket") or DOCKER_SOCKET, TOOL_SECONDS)
    engine = engine_state.engine_state(engine_state.EnginePaths.of(given["state_dir"], given["log_dir"], cluster), roots["proc_root"])
    container = find_node_container(api, cluster, given["role"]) or {"Id": "", "State": {"Running": False}}
    processes = at_work.members(api.top(container["Id"]), roots["proc_root"]) if container["State"]["Running"] else []
    runs = engine["live"] if is_head or given["executor"] == "native" else container["State"]["Running"]
    unit, why = unit_of(unit_files.unit(unit_files.of_engine(given["state_dir"], cluster, roots["etc_root"]), TOOL_SECONDS), runs)
    lines, counts = kernel_lines(roots, state["kernel"] if state["boot_id"] == now.boot_id else {})
    compared = at_work.compared(state["own"].get("processes", []), processes, now.at_s - state["at_s"])
    return counts, {
        "boot_id": now.boot_id,
        "run": engine["run_id"],
        "container": f"{container['Id'][:12]} {container['State'].get('StartedAt', '')}",
        "last": "".join(entry["at"] for entry in state["history"][-1:]),
        "unit": unit,
        "why": why,
        "seconds": engine["seconds"] or 0.0,
        # Ray's idle workers are many.
        "processes": [process for process in compared if process["kind"] in classify.ENGINE_PARTS or process["state"] != "alive"],
        "probe": list(probe_of(config, cluster, engine, now.scale)) if is_head and engine["live"] else [],
        "kernel": lines,
    }
