# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The services next to the engines: which to start and to stop, and their state as lines. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._companion import container, declared, running
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_SPEC
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import gpu_access
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.module_utils._node import fields
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import Finding

#: Version of the returned statistics.
SCHEMA = 1
MIB_IN_GIB = 1024

#: Ids of findings that are made here.
IDS = ("companion.ended", "companion.healthy", "companion.runs")
READS = {"companions": "gb10_companions", "mode": "__gb10_mode", "stop_grace": "gb10_stop_grace"}
KILL = "-e gb10_allow=kill_companions"
#: Fields of a row that are used only for comparison. They contain values of variables.
MADE_OF = ("spec", "fields")
#: The first word of the reason for a replacement.
CHANGED = "changed"
#: The fields of each companion that the unit of companions needs.
BOOT = ("name", "port", "health_path", "gpus", "health_timeout")

Rows = t.Sequence[t.Mapping[str, t.Any]]


class Wanted(t.NamedTuple):
    """The request of a run: with ``up`` it starts the companions of ``mode``, otherwise it only stops those outside of the mode.

    ``pull`` is the option of docker_container.
    """

    mode: str
    up: bool
    stop_grace: int
    pull: str = "never"


def reason(companion: t.Mapping[str, t.Any], row: t.Mapping[str, t.Any]) -> str:
    """Return why a declared companion has to be started, empty if it runs as declared."""
    if not companion["unit"] and row["container"] and row["spec"] != container.labels(companion)[LABEL_SPEC]:
        return f"{CHANGED}: {', '.join(fields.compare(row['fields'], container.wanted(companion), {}))}"
    return "" if row["running"] else f"{'unit' if companion['unit'] else 'container'} is {row['state']}"


def log_path(docker: t.Mapping[str, t.Any], row: t.Mapping[str, t.Any]) -> str:
    """Return the path of a container's log under Docker's driver json-file."""
    return f"{docker.get('root_dir')}/containers/{row['container_id']}/{row['container_id']}-json.log"


def plan(companions: Rows, info: t.Mapping[str, t.Any], wanted: Wanted) -> dict[str, t.Any]:
    """Return the plan that brings a node to a mode. ``info`` is the answer of ``node_info``.

    For the companions that are ``up``, ``containers`` has the options of community.docker.docker_container, ``units`` the names of units, ``pull`` the
    missing images, and ``boots`` the entries for the unit of companions. ``stop`` lists the companions that are stopped first: with ``wanted.up`` those
    that are replaced (their logs are in ``logs``), otherwise those outside of the mode. ``seconds`` has the time limits of a stop and a start. ``why``
    maps a name to the reason for its start. ``actions`` describes the plan as text.
    """
    up = declared.up_in(companions, wanted.mode)
    names = [companion["name"] for companion in up]
    ours = [companion for companion in up if companion["image"]]
    seen, images = info["companions"] or [], info["images"] or {}
    rows = {row["name"]: row for row in seen if row["declared"]}
    why = {companion["name"]: cause for companion in up if companion["name"] in rows and (cause := reason(companion, rows[companion["name"]]))}
    replaced = [row for name, row in rows.items() if why.get(name, "").startswith(CHANGED)]
    ends = [row for row in seen if not (row["declared"] and row["name"] in names)]
    # A companion that is replaced is first stopped gracefully: docker_container would kill it.
    stop = [row for row in (replaced if wanted.up else ends) if row["running"]]
    docker = info["docker"] or {}
    devices = docker.get("cdi_devices") or []
    target = {name: row["unit"] or container.name_for(name) for name, row in rows.items()}
    return {
        "up": names,
        "containers": [
            {"options": container.options(companion, devices, wanted.pull), "label": f"{companion['name']}: {why.get(companion['name'], 'as declared')}"}
            for companion in ours
        ],
        # Docker reads CDI specifications, and none of them contains the GPU yet.
        "lacks_cdi": bool(docker.get("cdi_dirs"))
        and any(companion["gpus"] and companion["name"] in why for companion in ours)
        and gpu_access.ALL_GPUS not in devices,
        "units": [companion["unit"] for companion in up if companion["unit"]],
        # An image id contains no registry to pull from.
        "pull": list(dict.fromkeys(companion["image"] for companion in ours if "@" in companion["image"] and images.get(companion["image"]) is None)),
        "stop": [{"name": row["name"], "unit": row["unit"], "container": row["container"]} for row in stop],
        "logs": [{"of": row["container"], "path": log_path(docker, row)} for row in replaced if row["state"] != "created"],
        "boots": [{**{word: companion[word] for word in BOOT}, "stop_timeout": wanted.stop_grace} for companion in ours],
        "seconds": {"up": max((companion["health_timeout"] for companion in up), default=0), "down": wanted.stop_grace},
        "why": why,
        "actions": [f"stop {row['unit'] or row['container']}" for row in stop]
        + [f"start {target[name]} ({cause})" for name, cause in why.items() if wanted.up],
    }


def text(row: t.Mapping[str, t.Any], claim: float | None, wanted: bool) -> str:
    """Return one line about a companion."""
    where = row["unit"] or row["container"] or "no container"
    held = "" if not row["running"] else f", holds {((row['gpu_mib'] or 0) + row['anon_mb']) / MIB_IN_GIB:.1f} GiB"
    says = {True: f", answers on port {row['port']}", False: f", does not answer on port {row['port']} ({row['health']})", None: ""}[row["healthy"]]
    claims = ", not declared" if claim is None else f", claims {claim:g} GiB"
    return f"{row['name']} ({where}): {row['state']}{says}{claims}{held}{'' if wanted == row['running'] else ', not as its modes say'}"


def lines(companions: Rows, seen: Rows, mode: str) -> list[str]:
    """Return the lines about a node's companions."""
    claims = {companion["name"]: companion["memory_gib"] for companion in companions}
    names = {companion["name"] for companion in declared.up_in(companions, mode)}
    return [text(row, claims.get(row["name"]) if row["declared"] else None, row["declared"] and row["name"] in names) for row in seen]


def failures(node: str, answer: dict[str, t.Any], plan: t.Mapping[str, t.Any], awaited: str) -> t.Iterator[Finding]:
    """Yield a finding for each companion of a node that did not start (``up``) or did not stop (``down``)."""
    of = {companion["name"]: companion for companion in map(declared.whole, answer["companions"])}
    for row in answer["now"]["companions"] or []:
        name = row["name"]
        if awaited == "down" and row["running"] and name in [entry["name"] for entry in plan["stop"]]:
            kill = f"sudo systemctl kill --signal=SIGKILL {row['unit']}" if row["unit"] else f"{KILL}, or on the node: sudo docker kill {row['container']}"
            yield finding(
                "companion.ended", node, "block", running.ignores_stop(name, node, int(answer["stop_grace"])), remedy=f"See what it does. To kill it: {kill}"
            )
        elif awaited == "up" and name in plan["up"] and not row["running"]:
            message = f"companion {name} on {node} ended: it is {row['state']}"
            log = f"journalctl -u {row['unit']}" if row["unit"] else f"docker logs {row['container']}"
            yield finding("companion.runs", node, "block", message, remedy=f"Read its whole log: sudo {log}")
        elif awaited == "up" and name in plan["up"] and not row["healthy"]:
            yield finding(
                "companion.healthy",
                node,
                "block",
                running.unhealthy(of[name], node, row["health"]),
                remedy="See its log; correct port and health_path in gb10_companions, or give it more time with health_timeout.",
            )


def judge(answers: Answers, run: Run) -> Outcome:
    """Show the companions of each node, and return them. ``settings`` has ``awaited``: the expected state, ``up``, ``down`` or empty."""
    shown, nodes, findings = [], {}, []
    for node, answer in answers.items():
        if not answered(answer["now"]):
            shown.append(f"{node}: not seen: {(answer['now'] or {}).get('msg', 'it was not asked')}")
            continue
        seen = answer["now"]["companions"] or []
        awaited = run.settings["awaited"]
        plan = answer["plan"]["nodes"][node] if awaited else {"actions": []}
        nodes[node] = {"companions": [{word: value for word, value in row.items() if word not in MADE_OF} for row in seen], "actions": plan["actions"]}
        shown += [f"{node}: {line}" for line in lines(answer["companions"], seen, answer["mode"])]
        shown += [f"{node}: {row['name']}: {line}" for row in seen for line in row["log"].splitlines()]
        findings += failures(node, answer, plan, awaited) if not run.check_mode else []
    mode = next(iter(answers.values()))["mode"]
    title = f"Companions (as they are; mode {mode or 'none'})" if run.check_mode else f"Companions (mode {mode or 'none'})"
    return Outcome(title, findings or None, lines=[f"{title}:", *(f"  {line}" for line in shown or ["none"])], stats={
        "gb10_companions_report": {"schema": SCHEMA, "mode": mode, "nodes": nodes}, "gb10_verdict": "block" if findings else "pass",
    })  # fmt: skip


def remaining(by_node: t.Mapping[str, Rows]) -> list[str]:
    """Return one line with the companions that keep running after a teardown of their cluster. The list is empty if none runs."""
    running = [f"{row['name']} on {node}" for node, seen in by_node.items() for row in seen if row["running"]]
    return [f"Companions stay as they are: {', '.join(running)}."] if running else []
