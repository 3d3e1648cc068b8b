# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The services beside the engines: which are to be started and stopped, and what they do, in lines. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._companion import declared
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered

#: Version of what is passed on.
SCHEMA = 1
MIB_IN_GIB = 1024

READS = {"companions": "gb10_companions", "mode": "__gb10_mode"}

Rows = t.Sequence[t.Mapping[str, t.Any]]


def plan(companions: Rows, seen: Rows, images: t.Mapping[str, t.Any], mode: str) -> dict[str, list[t.Any]]:
    """Return what leads a node to a mode: the options of the module ``companion`` for each that is ``start``ed, the images to ``pull`` for them, and
    the name and the unit of each that is ``stop``ped.

    ``seen`` and ``images`` are the sections of ``node_info``.
    """
    up = declared.up_in(companions, mode)
    start = [{word: value for word, value in one.items() if word not in ("memory_gib", "modes") and value != ""} for one in up]
    # The id of an image names no registry.
    pull = [one["image"] for one in up if "@" in one["image"] and images.get(one["image"]) is None]
    names = {one["name"] for one in up}
    stop = [{"name": one["name"], "unit": one["unit"]} for one in seen if one["running"] and not (one["declared"] and one["name"] in names)]
    return {"start": start, "pull": list(dict.fromkeys(pull)), "stop": stop}


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


def judge(answers: Answers, run: Run) -> Outcome:
    """Show what runs on each node, and pass it on."""
    said, nodes = [], {}
    for node, answer in answers.items():
        if not answered(answer["now"]):
            said.append(f"{node}: not seen: {(answer['now'] or {}).get('msg', 'it was not asked')}")
            continue
        seen = answer["now"]["companions"] or []
        actions = [action for one in (answer["done"] or {}).get("results", []) for action in one.get("actions", [])]
        nodes[node] = {"companions": seen, "actions": actions}
        said += [f"{node}: {line}" for line in lines(answer["companions"], seen, answer["mode"])]
    mode = next(iter(answers.values()))["mode"]
    title = f"Companions (as they are; mode {mode or 'none'})" if run.check_mode else f"Companions (mode {mode or 'none'})"
    return Outcome(title, lines=[f"{title}:", *(f"  {line}" for line in said or ["none"])], stats={
        "gb10_companions_report": {"schema": SCHEMA, "mode": mode, "nodes": nodes}, "gb10_verdict": "pass",
    })  # fmt: skip


def stays(found: t.Mapping[str, Rows]) -> list[str]:
    """Return in one line which companions stay when their cluster is gone; no line where none runs."""
    running = [f"{one['name']} on {node}" for node, seen in found.items() for one in seen if one["running"]]
    return [f"Companions stay as they are: {', '.join(running)}."] if running else []
