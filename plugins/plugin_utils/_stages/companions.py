# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The services next to the engines: which to start and to stop, and their state, in lines. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._companion import container, declared, running
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_SPEC
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import gpu_access
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.module_utils._node import fields
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import Finding

#: Version of what is passed on.
SCHEMA = 1
MIB_IN_GIB = 1024

#: Ids of findings that are made here.
IDS = ("companion.ended", "companion.healthy", "companion.runs")
READS = {"companions": "gb10_companions", "mode": "__gb10_mode", "stop_grace": "gb10_stop_grace"}
KILL = "-e gb10_kill_companions=true"
#: What a row has for comparing alone; values of variables are among it.
MADE_OF = ("spec", "fields")
#: How the reason of a replacement begins.
CHANGED = "changed"
#: What the unit of companions knows of each.
BOOT = ("name", "port", "health_path", "gpus", "health_timeout")

Rows = t.Sequence[t.Mapping[str, t.Any]]


class Wanted(t.NamedTuple):
    """What a run asks for: companions of ``mode`` are ``up``, or only those end that it does not have. ``pull`` is that of docker_container."""

    mode: str
    up: bool
    stop_grace: int
    pull: str = "never"


def reason(one: t.Mapping[str, t.Any], row: t.Mapping[str, t.Any]) -> str:
    """Return why a declared companion has to be started, empty when it runs as declared."""
    if not one["unit"] and row["container"] and row["spec"] != container.labels(one)[LABEL_SPEC]:
        return f"{CHANGED}: {', '.join(fields.compare(row['fields'], container.wanted(one), {}))}"
    return "" if row["running"] else f"{'unit' if one['unit'] else 'container'} is {row['state']}"


def log_path(docker: t.Mapping[str, t.Any], row: t.Mapping[str, t.Any]) -> str:
    """Return where Docker's driver json-file has the log of a container."""
    return f"{docker.get('root_dir')}/containers/{row['container_id']}/{row['container_id']}-json.log"


def plan(companions: Rows, info: t.Mapping[str, t.Any], wanted: Wanted) -> dict[str, t.Any]:
    """Return what leads a node to a mode; ``info`` is the answer of ``node_info``.

    ``containers`` have the options of community.docker.docker_container and ``units`` names, for those that are ``up``; ``pull`` has the images that
    they lack, and ``boots`` what the unit of companions starts. ``stop`` names those that end first: with ``wanted.up`` those that are replaced, whose
    logs are in ``logs``, else those that the mode does not have. ``seconds`` are those that an end and a start may take. ``why`` says by name why one is
    started, ``actions`` is all of it in words.
    """
    up = declared.up_in(companions, wanted.mode)
    names = [one["name"] for one in up]
    ours = [one for one in up if one["image"]]
    seen, images = info["companions"] or [], info["images"] or {}
    rows = {row["name"]: row for row in seen if row["declared"]}
    why = {one["name"]: said for one in up if one["name"] in rows and (said := reason(one, rows[one["name"]]))}
    replaced = [row for name, row in rows.items() if why.get(name, "").startswith(CHANGED)]
    ends = [row for row in seen if not (row["declared"] and row["name"] in names)]
    # One that is replaced is asked to end first: docker_container would kill it.
    stop = [row for row in (replaced if wanted.up else ends) if row["running"]]
    docker = info["docker"] or {}
    devices = docker.get("cdi_devices") or []
    target = {name: row["unit"] or container.name_for(name) for name, row in rows.items()}
    return {
        "up": names,
        "containers": [
            {"options": container.options(one, devices, wanted.pull), "label": f"{one['name']}: {why.get(one['name'], 'as declared')}"}
            for one in ours
        ],
        # Docker reads specifications of devices, and none has the GPU yet.
        "lacks_cdi": bool(docker.get("cdi_dirs")) and any(one["gpus"] and one["name"] in why for one in ours) and gpu_access.ALL_GPUS not in devices,
        "units": [one["unit"] for one in up if one["unit"]],
        # The id of an image names no registry.
        "pull": list(dict.fromkeys(one["image"] for one in ours if "@" in one["image"] and images.get(one["image"]) is None)),
        "stop": [{"name": row["name"], "unit": row["unit"], "container": row["container"]} for row in stop],
        "logs": [{"of": row["container"], "path": log_path(docker, row)} for row in replaced if row["state"] != "created"],
        "boots": [{**{word: one[word] for word in BOOT}, "stop_timeout": wanted.stop_grace} for one in ours],
        "seconds": {"up": max((one["health_timeout"] for one in up), default=0), "down": wanted.stop_grace},
        "why": why,
        "actions": [f"stop {row['unit'] or row['container']}" for row in stop]
        + [f"start {target[name]} ({said})" for name, said in why.items() if wanted.up],
    }


def text(one: t.Mapping[str, t.Any], claim: float | None, wanted: bool) -> str:
    """Return a companion in a line."""
    where = one["unit"] or one["container"] or "no container"
    held = "" if not one["running"] else f", holds {((one['gpu_mib'] or 0) + one['anon_mb']) / MIB_IN_GIB:.1f} GiB"
    says = {True: f", answers on port {one['port']}", False: f", does not answer on port {one['port']} ({one['health']})", None: ""}[one["healthy"]]
    claims = ", not declared" if claim is None else f", claims {claim:g} GiB"
    return f"{one['name']} ({where}): {one['state']}{says}{claims}{held}{'' if wanted == one['running'] else ', not as its modes say'}"


def lines(companions: Rows, seen: Rows, mode: str) -> list[str]:
    """Return the companions of a node in lines."""
    claims = {one["name"]: one["memory_gib"] for one in companions}
    names = {one["name"] for one in declared.up_in(companions, mode)}
    return [text(one, claims.get(one["name"]) if one["declared"] else None, one["declared"] and one["name"] in names) for one in seen]


def failures(node: str, answer: dict[str, t.Any], plan: t.Mapping[str, t.Any], awaited: str) -> t.Iterator[Finding]:
    """Yield the companions of a node that did not come ``up``, or did not go ``down``."""
    of = {one["name"]: one for one in map(declared.whole, answer["companions"])}
    for row in answer["now"]["companions"] or []:
        name = row["name"]
        if awaited == "down" and row["running"] and name in [one["name"] for one in plan["stop"]]:
            kill = f"sudo systemctl kill --signal=SIGKILL {row['unit']}" if row["unit"] else f"{KILL}, or on the node: sudo docker kill {row['container']}"
            yield finding(
                "companion.ended", node, "block", running.ignores_stop(name, node, int(answer["stop_grace"])), remedy=f"See what it does. To kill it: {kill}"
            )
        elif awaited == "up" and name in plan["up"] and not row["running"]:
            said = f"companion {name} on {node} ended: it is {row['state']}"
            log = f"journalctl -u {row['unit']}" if row["unit"] else f"docker logs {row['container']}"
            yield finding("companion.runs", node, "block", said, remedy=f"Read its whole log: sudo {log}")
        elif awaited == "up" and name in plan["up"] and not row["healthy"]:
            yield finding(
                "companion.healthy",
                node,
                "block",
                running.unhealthy(of[name], node, row["health"]),
                remedy="See its log; correct port and health_path in gb10_companions, or give it more time with health_timeout.",
            )


def judge(answers: Answers, run: Run) -> Outcome:
    """Show what runs on each node, and pass it on. ``settings`` has ``awaited``: whether companions were to be ``up``, ``down``, or neither."""
    said, nodes, found = [], {}, []
    for node, answer in answers.items():
        if not answered(answer["now"]):
            said.append(f"{node}: not seen: {(answer['now'] or {}).get('msg', 'it was not asked')}")
            continue
        seen = answer["now"]["companions"] or []
        awaited = run.settings["awaited"]
        plan = answer["plan"]["nodes"][node] if awaited else {"actions": []}
        nodes[node] = {"companions": [{word: value for word, value in row.items() if word not in MADE_OF} for row in seen], "actions": plan["actions"]}
        said += [f"{node}: {line}" for line in lines(answer["companions"], seen, answer["mode"])]
        said += [f"{node}: {row['name']}: {line}" for row in seen for line in row["log"].splitlines()]
        found += failures(node, answer, plan, awaited) if not run.check_mode else []
    mode = next(iter(answers.values()))["mode"]
    title = f"Companions (as they are; mode {mode or 'none'})" if run.check_mode else f"Companions (mode {mode or 'none'})"
    return Outcome(title, found or None, lines=[f"{title}:", *(f"  {line}" for line in said or ["none"])], stats={
        "gb10_companions_report": {"schema": SCHEMA, "mode": mode, "nodes": nodes}, "gb10_verdict": "block" if found else "pass",
    })  # fmt: skip


def remaining(found: t.Mapping[str, Rows]) -> list[str]:
    """Return in one line which companions stay when their cluster is gone; no line where none runs."""
    running = [f"{one['name']} on {node}" for node, seen in found.items() for one in seen if one["running"]]
    return [f"Companions stay as they are: {', '.join(running)}."] if running else []
