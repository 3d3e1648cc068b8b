# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All profiles with their needs, and which of them fit the checked nodes. This plugin util is PRIVATE to the collection.

The rules of the preflight judge whether a profile fits, so the catalogue agrees with a bring-up.
"""

from __future__ import annotations

import contextlib
import typing as t

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import catalogue
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging, model_checks
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.evidence import Node, Unseen
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run, answered
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import CONTROLLER, STOPPING, aligned

#: Version of the record.
SCHEMA = 1

#: The variables of a node that are read, apart from its answers.
READS = {"model_root": "gb10_hf_home", "offline": "gb10_offline", "hub_token": "__gb10_hub_token"}

#: The rules that judge each node alone, and those that judge all nodes of a profile together.
OF_A_NODE = ("memory.class", "model.disk")
OF_ALL = ("memory.alike", "model.gated", "model.license")

#: Whether a profile fits: all nodes, some of them, none, or unknown.
YES, IN_PART, NO, UNKNOWN = "yes", "in part", "no", "unknown"


def _needs(profile: dict[str, t.Any], nodes: int) -> dict[str, t.Any]:
    """Return the settings of the catalogue's rules that are the same for every node."""
    wanted = judging.wanted(profile, nodes)
    return {
        "repositories": wanted,
        "model_size_known": any(repository["gib"] is not None for repository in wanted),
        "memory_class_gb": profile["memory"]["class_gb"],
    }


def _own(answer: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the settings of the rules for one node."""
    return {"model_root": answer["model_root"], "offline": boolean(answer["offline"]), "hub_token": boolean(answer["hub_token"])}


def _messages(findings: t.Iterable[dict[str, t.Any]], *verdicts: str) -> list[str]:
    return [f"{result['node']}: {result['message']}" for result in findings if result["verdict"] in verdicts]


def fits(profile: dict[str, t.Any], answers: Answers) -> dict[str, t.Any]:
    """Return whether a profile fits the checked nodes, the reasons if not, notes, and how many GiB each node would fetch.

    ``fits`` is one of :data:`YES`, :data:`IN_PART` (it takes fewer nodes than there are), :data:`NO` and :data:`UNKNOWN`.
    """
    asks = catalogue.facts(profile)["nodes"]
    seen = {node: answer["info"] for node, answer in answers.items() if answered(answer["info"])}
    own = {node: _own(answers[node]) for node in seen}
    needs = _needs(profile, asks)
    silent = [f"{node}: it did not answer" for node in answers if node not in seen]
    if asks > len(answers):
        return _fit(NO, [f"it takes {asks} nodes, and there {'is' if len(answers) == 1 else 'are'} {len(answers)}"], [], {})
    alone = judging.judge_after_stage(OF_A_NODE, seen, needs, own)
    stopped = {result["node"]: result["verdict"] for result in sorted(alone, key=lambda result: result["verdict"] == "block") if result["verdict"] in STOPPING}
    good = [node for node in seen if node not in stopped]
    doubtful = [*silent, *_messages(alone, "unknown")]
    whys = _messages(alone, *STOPPING)
    if len(good) < asks:
        could = len(good) + len(silent) + sum(verdict == "unknown" for verdict in stopped.values())
        return _fit(UNKNOWN if could >= asks else NO, [*silent, *whys], [], _to_fetch(seen, needs, own))
    together = judging.judge_after_stage(OF_ALL if asks > 1 else OF_ALL[1:], {node: seen[node] for node in good}, needs, own)
    notes = _messages(together, "warn")
    if asks < len(answers):
        # The user chooses which nodes are used, so a difference between all of them is only a note.
        between = [result for result in together if result["id"] == "memory.alike"]
        stops = _messages([result for result in together if result not in between], *STOPPING)
        return _fit(NO if stops else IN_PART, [*stops, *doubtful], [*notes, *_messages(between, *STOPPING)], _to_fetch(seen, needs, own))
    verdicts = {result["verdict"] for result in together}
    return _fit(NO if "block" in verdicts else UNKNOWN if "unknown" in verdicts else YES, _messages(together, *STOPPING), notes, _to_fetch(seen, needs, own))


def _fit(fit: str, why: list[str], notes: list[str], to_fetch: dict[str, t.Any]) -> dict[str, t.Any]:
    return {"fits": fit, "why": list(dict.fromkeys(why)), "notes": notes, "to_fetch": to_fetch}


def _to_fetch(seen: t.Mapping[str, t.Any], needs: dict[str, t.Any], own: t.Mapping[str, dict[str, t.Any]]) -> dict[str, t.Any]:
    """Return by node how many GiB it would fetch of each missing repository. None: the size, or the content of the node, is unknown."""
    by_node: dict[str, t.Any] = dict.fromkeys(seen)
    for name, info in seen.items():
        with contextlib.suppress(Unseen):
            lacking = model_checks.to_fetch(Node(name, info, {}, {**judging.NO_NEEDS, **needs, **own[name]}))
            by_node[name] = {repo: gib if gib is None else round(gib, 1) for repo, gib in lacking.items()}
    return by_node


# -- text ------------------------------------------------------------------------------------------------------------


def _speed_text(entry: dict[str, t.Any]) -> str:
    """Return the tokens per second that other users reported, for one user and for many."""
    speed = entry["speed"]
    many = f", {speed['many']:g} for {speed['users']}" if speed["many"] else ""
    return f"{speed['one']:g}{many} ({speed['by']})" if speed["one"] else "-"


def _license_text(entry: dict[str, t.Any]) -> str:
    """Return the licenses of all repositories, each once."""
    licenses = [repository["license"] for repository in entry["repositories"]]
    return " + ".join(dict.fromkeys((terms["id"] or "unknown") + (" (to be accepted)" if terms["accept"] else "") for terms in licenses))


def _fit_text(fit: dict[str, t.Any], nodes: int) -> str:
    """Return whether a profile fits, with the downloads if it does and the reasons if it does not."""
    if fit["fits"] == NO:
        return f"no: {'; '.join(fit['why'])}"
    sizes = []
    for node, lacking in fit["to_fetch"].items():
        if lacking is None:
            sizes.append(f"{node}: its models are unknown")
        elif lacking:
            known = sum(gib for gib in lacking.values() if gib is not None)
            sizes.append(f"{node} would fetch {f'{known:.1f} GiB' if known else 'an unknown size'}{' and more' if known and None in lacking.values() else ''}")
    return "; ".join(
        [
            {YES: "yes", IN_PART: f"{nodes} of the nodes, as a cluster of its own", UNKNOWN: f"unknown: {'; '.join(fit['why'])}"}[fit["fits"]],
            *sizes,
            *(fit["why"] if fit["fits"] == IN_PART else []),
            *fit["notes"],
        ]
    )


def table(profiles: t.Sequence[dict[str, t.Any]]) -> list[str]:
    """Return the profiles as a table. The last column is present only if nodes were checked."""
    shows_fit = any(entry["cluster"] is not None for entry in profiles)
    return aligned(
        [
            ("profile", "nodes", "disk", "context", "tokens/s", "license", "gate", *(["this cluster"] if shows_fit else [])),
            *(
                (
                    entry["id"],
                    f"{entry['nodes']} x {entry['memory_class_gb']} GB" if entry["memory_class_gb"] else str(entry["nodes"]),
                    "unknown" if entry["disk_gb"] is None else f"{entry['disk_gb']:g} GB{'' if entry['disk_gb_is_whole'] else ' and more'}",
                    str(entry["context"]["served"] or "the model's"),
                    _speed_text(entry),
                    _license_text(entry),
                    catalogue.GATES[entry["gated"]],
                    *([_fit_text(entry["cluster"], entry["nodes"])] if shows_fit else []),
                )
                for entry in profiles
            ),
        ]
    )


def valid(entry: catalogue.Entry) -> dict[str, t.Any]:
    """Return a finding about whether a file is a valid profile; its id is that of the profile."""
    if entry["problems"]:
        return finding(entry["id"], CONTROLLER, "block", "; ".join(entry["problems"]), remedy=f"correct {entry['path']}", source=entry["path"])
    return finding(entry["id"], CONTROLLER, "pass", entry["needs"]["nodes"], source=entry["path"])


def judge(answers: Answers, run: Run) -> Outcome:
    """List the profiles, and judge which files are valid. ``settings`` has ``entries``, as the lookup profile_catalogue returns them.

    ``answers`` has only the nodes that were checked. If it is empty, profiles are not judged against nodes.
    """
    entries = run.settings["entries"]
    listed = [
        {"id": entry["id"], "path": entry["path"], **catalogue.facts(entry["profile"]), "cluster": fits(entry["profile"], answers) if answers else None}
        for entry in entries
        if not entry["problems"]
    ]
    nodes = {node: {"answered": answered(answer["info"]), "why": answer["failure"] or ""} for node, answer in answers.items()}
    record = {
        "schema": SCHEMA,
        "time": run.time,
        "nodes": nodes,
        "profiles": listed,
        "invalid": [{name: entry[name] for name in ("id", "path", "problems")} for entry in entries if entry["problems"]],
    }
    notes = [f"{node} was not checked: {state['why'] or 'no answer'}" for node, state in nodes.items() if not state["answered"]]
    if not answers:
        notes = ["No node was asked what fits it: that takes an inventory with a cluster (-i INVENTORY)."]
    return Outcome(
        "Profiles",
        [valid(entry) for entry in entries],
        lines=[*(table(listed) if listed else ["no valid profiles"]), *notes, ""],
        files={run.path: record} if run.path else {},
        fresh=True,
        stats={"gb10_profiles": record},
    )
