# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The models on the nodes, the profiles that use them, and which could be removed. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._model import inventory, model_files
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.repositories import repositories
from ansible_collections.gb10.cluster.plugins.plugin_utils._report.leavings import size_text
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import aligned

#: Version of the record.
SCHEMA = 1
#: Nothing but what the task names.
READS: dict[str, str] = {}

#: Digits of a commit that the table shows. What could go is named with all of them below it.
SHORT = 12
#: The words for what is to become of a model.
COULD_GO, OWNERS = "could go", "its owner's"

Model = dict[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Want:
    """A profile wants a repository for a purpose, at a commit or at whatever ``main`` is."""

    profile: str
    repo: str
    revision: str | None
    purpose: str


@dataclasses.dataclass
class Row:
    """One model on any nodes: its entry by node. ``state`` is :data:`COULD_GO`, :data:`OWNERS`, or why it is kept; ``verdict`` judges a request for it."""

    name: str
    models: dict[str, Model]
    wanted_by: list[str]
    state: str = COULD_GO
    verdict: str = "pass"

    @property
    def request(self) -> str:
        """What is typed to have it removed, empty for what cannot be."""
        model = next(iter(self.models.values()))
        return f"{model['repo']}@{model['revision']}" if model["own"] and model["revision"] else ""

    @property
    def last_run(self) -> dict[str, t.Any] | None:
        """The last run of this collection that a node recorded."""
        runs = [model["last_run"] for model in self.models.values() if model["last_run"]]
        return max(runs, key=lambda run: (run["live"], run["started_at"] or ""), default=None)

    def view(self) -> dict[str, t.Any]:
        """Return it as the record has it."""
        return {
            "name": self.name, "request": self.request, "wanted_by": self.wanted_by, "last_run": self.last_run, "state": self.state, "nodes": self.models,
        }  # fmt: skip


def wants(profiles: t.Iterable[dict[str, t.Any]]) -> list[Want]:
    """Return what these profiles want, as they are read."""
    return [
        Want(profile["id"], one["repo"], one["revision"], one["purpose"]) for profile in profiles for one in repositories(profile)
    ]


def for_its_purpose(model: Model, wanted: t.Iterable[Want]) -> Model:
    """Return an entry without what is missing of it and matters to no purpose for which a profile wants it: a drafter needs no tokenizer."""
    purposes = {want.purpose for want in wanted if want.repo == model["repo"] or by_path(want, model)}
    if not purposes or model["complete"] is not False or model["revision"] == inventory.LEFTOVERS:
        return model
    missing = [name for name in model["missing"] if any(model_files.matters(purpose, name) for purpose in purposes)]
    return {**model, "missing": missing, "complete": not missing}


def by_path(want: Want, model: Model) -> bool:
    """Return whether a profile names a directory that leads to the model: a profile calls a plain directory by its path."""
    return want.repo == model["path"] or want.repo in model["named"]


def wanted_by(model: Model, siblings: t.Sequence[Model], wanted: t.Iterable[Want]) -> list[str]:
    """Return the profiles that want a model; ``siblings`` are all entries of its node.

    Without a revision a profile wants what ``main`` leads to, or any revision where that is unknown. Leftovers are wanted while what is wanted is not
    complete, since the next download continues them.
    """
    of_repo = [one for one in siblings if one["repo"] == model["repo"] and one["own"] == model["own"]]
    main = {one["revision"] for one in of_repo if "main" in one["refs"]}
    complete = {one["revision"] for one in of_repo if one["complete"]}

    def fits(want: Want) -> bool:
        commits = {want.revision} if want.revision else main
        is_wanted = not commits <= complete if model["revision"] == inventory.LEFTOVERS else model["revision"] in commits
        return want.repo == model["repo"] and model["revision"] is not None and (not commits or is_wanted)

    return list(dict.fromkeys(want.profile for want in wanted if by_path(want, model) or fits(want)))


def name_of(model: Model) -> str:
    """Return what to call a model: repository and commit, with its cache unless that is the cluster's own; the path of a plain directory."""
    if model["repo"] is None:
        return model["path"]
    known = f"@{model['revision']}" if model["revision"] else ""
    return f"{model['repo']}{known}" + ("" if model["own"] else f" in {model['root']}")


def rows(found: Answers, profiles: t.Sequence[dict[str, t.Any]], active: dict[str, t.Any]) -> list[Row]:
    """Return all models, the largest first; ``found`` are the answers of model_inventory_info by node."""
    wanted, wanted_now = wants(profiles), wants([active])
    by_name: dict[str, Row] = {}
    found = {node: {**answer, "models": [for_its_purpose(model, [*wanted_now, *wanted]) for model in answer["models"]]} for node, answer in found.items()}
    for node, answer in found.items():
        for model in answer["models"]:
            row = by_name.setdefault(name_of(model), Row(name_of(model), {}, []))
            row.models[node] = model
            row.wanted_by = list(dict.fromkeys([*row.wanted_by, *wanted_by(model, answer["models"], [*wanted_now, *wanted])]))
    holders = unnamed(found)
    for row in by_name.values():
        row.verdict, row.state = _judged(row, found, [*wanted_now, *wanted], wanted_now, holders)
    return sorted(by_name.values(), key=lambda row: (-max(model["bytes"] for model in row.models.values()), row.name))


def _judged(row: Row, found: Answers, wanted: t.Sequence[Want], wanted_now: t.Sequence[Want], holders: dict[str, list[str]]) -> tuple[str, str]:
    """Return (verdict, state) of a model. What one node says counts for all: the ranks of a worker do not name their model."""
    used = {node: model["in_use"] for node, model in row.models.items() if model["in_use"]}
    if used:
        return "block", f"in use: {'; '.join(f'{uses[0]} on {node}' for node, uses in used.items())}"
    # A doubt about another revision counts: it may have the same files.
    doubts = [f"{partly[0]['doubts'][0]} on {node}" for node, model in row.models.items() if (partly := _partly_known(found[node], model["repo"], model))]
    if doubts:
        return "unknown", f"only partly known: {'; '.join(doubts)}"
    if not row.request:
        return "block", OWNERS
    # A profile that names the directory itself downloads nothing again.
    pathed = sorted({f"{want.profile} as {want.repo}" for want in wanted for model in row.models.values() if by_path(want, model)})
    if pathed:
        return "block", f"wanted by its path: {', '.join(pathed)}"
    unknown = [f"nothing says which model {text} on {node} has" for node in row.models for text in holders[node]]
    unknown += [f"{error['error']} on {node}" for node in row.models for error in found[node]["errors"] if error["section"] == "processes"]
    if unknown:
        return "unknown", f"may be in use: {'; '.join(unknown)}"
    active = sorted({name for node, model in row.models.items() for name in wanted_by(model, found[node]["models"], wanted_now)})
    return ("block", f"wanted by the profile of this cluster, {', '.join(active)}") if active else ("pass", COULD_GO)


def _partly_known(answer: dict[str, t.Any], repo: str | None, model: Model | None = None) -> list[Model]:
    """Return what is only partly known of a model, or of a repository in the cluster's own cache."""
    root = model["root"] if model else None
    if repo is None:
        return [model] if model and model["doubts"] else []
    return [one for one in answer["models"] if one["repo"] == repo and one["doubts"] and (one["root"] == root if root else one["own"])]


def keep(found: t.Iterable[Row]) -> dict[str, str]:
    """Return by request what must not go on any node, and why."""
    return {row.request: row.state for row in found if row.request and row.state != COULD_GO}


def unnamed(found: Answers) -> dict[str, list[str]]:
    """Return by node the parts of engines of which no node names the model."""
    named = {stack for answer in found.values() for stack in answer["named_stacks"]}
    return {node: [one["text"] for one in answer["unnamed"] if one["stack"] not in named] for node, answer in found.items()}


def request_findings(requests: t.Iterable[inventory.Request], found: Answers, listed: t.Sequence[Row]) -> list[dict[str, t.Any]]:
    """Judge the models to remove, on every node, before any is removed."""
    by_request = {row.request: row for row in listed if row.request}
    return [one for request in requests for one in _findings_of(request, found, by_request.get(str(request)), by_request)]


def _findings_of(request: inventory.Request, found: Answers, row: Row | None, others: t.Iterable[str]) -> list[dict[str, t.Any]]:
    findings = []
    for node, answer in found.items():
        model = row.models.get(node) if row else None
        partly = _partly_known(answer, request.repo)
        errors = [error for error in answer["errors"] if error["section"] == "hf_home"]
        if row and model and row.verdict == "pass":
            findings.append(finding("models.could_go", node, "pass", f"{request} frees {size_text(model['frees'])}", source=model["path"]))
        elif row and model:
            make = inventory.in_use if row.verdict == "block" else inventory.unknown
            findings.append(make(node, f"{request} stays: {row.state}", model["path"]))
        elif partly:
            findings.append(inventory.unknown(node, f"whether {request} is here is unknown: {partly[0]['doubts'][0]}", partly[0]["path"]))
        elif errors:
            findings.append(inventory.unknown(node, f"whether {request} is here is unknown: {errors[0]['error']}", "", errors[0]["remedy"]))
    if not findings:
        of_repo = [other for other in others if other.startswith(f"{request.repo}@")]
        there = f"; of it there is {', '.join(of_repo)}" if of_repo else ""
        findings.append(finding("models.absent", next(iter(found)), "pass", f"{request} is on no node{there}"))
    return findings


# -- text ------------------------------------------------------------------------------------------------------------


def _short(text: str) -> str:
    """Return a row's name with its commit cut short."""
    repo, at, rest = text.partition("@")
    commit, blank, where = rest.partition(" ")
    return f"{repo}{at}{commit[:SHORT]}{blank}{where}"


def _cell(model: Model | None) -> str:
    """Return the size of a model on a node."""
    if model is None:
        return "-"
    if model["revision"] is None and model["repo"]:
        return "?"
    gaps = "" if model["complete"] is not False or model["revision"] == inventory.LEFTOVERS else ", incomplete"
    return f"{size_text(model['bytes'])}{gaps}"


def table(listed: t.Sequence[Row], nodes: t.Sequence[str]) -> list[str]:
    """Return the rows as a table of models and nodes."""
    cells = [("model", *nodes, "last run", "profiles", "what of it")]
    for row in listed:
        run, refs = row.last_run, sorted({ref for model in row.models.values() for ref in model["refs"]})
        last = "none noted" if run is None else "now" if run["live"] else run["started_at"] or "unknown"
        cells.append(
            (
                _short(row.name) + (f" ({', '.join(refs)})" if refs else ""),
                *(_cell(row.models.get(node)) for node in nodes),
                last,
                ", ".join(row.wanted_by) or "none",
                row.state,
            )
        )
    return aligned(cells)


def totals(found: Answers, listed: t.Sequence[Row]) -> dict[str, dict[str, int]]:
    """Return by node how many models there are, and their bytes and those that could go, each file once."""
    counted = {}
    for node, answer in found.items():
        going = [row.models[node] for row in listed if row.state == COULD_GO and node in row.models]
        counted[node] = {"models": len(answer["models"]), "bytes": answer["bytes"], "could_go_bytes": sum(model["frees"] for model in going)}
    return counted


def _wanting(path: str, paths: t.Iterable[Want]) -> str:
    """Return which profiles want a directory, as the end of a sentence; nothing when none does."""
    profiles = dict.fromkeys(want.profile for want in paths if want.repo == path)
    return f", missing for profile {', '.join(profiles)}" if profiles else ""


def lines(found: Answers, listed: t.Sequence[Row], broken: t.Sequence[str] = (), paths: t.Sequence[Want] = ()) -> list[str]:
    """Return what is shown: the table, each node's sum, what could be removed, and what was not seen. ``broken`` are profiles that are not valid.

    ``paths`` is what profiles want, for directories that a node lacks.
    """
    said = table(listed, list(found)) if listed else ["no models"]
    for node, count in totals(found, listed).items():
        said.append(f"{node}: {count['models']} model(s), {size_text(count['bytes'])}; {size_text(count['could_go_bytes'])} could go")
        said += [f"{node}: there is no {path}{_wanting(path, paths)}" for path in found[node]["absent"]]
        said += [f"{node}: unknown: {error['error']}" for error in found[node]["errors"]]
    said += [f"{node}: nothing says which model this has: {text}" for node, texts in unnamed(found).items() for text in texts]
    said += [f"profile {name} is not valid, so what it wants is unknown" for name in broken]
    going = [row for row in listed if row.state == COULD_GO]
    said += ["To remove one, or several with commas between them: -e gb10_models_remove=REPO@REVISION"] if going else []
    for row in going:
        where = ", ".join(f"{size_text(model['frees'])} on {node}" for node, model in row.models.items())
        said.append(f"  {row.request}  frees {where}" + (f"; profile {', '.join(row.wanted_by)} wants it" if row.wanted_by else ""))
    return said


def record(found: Answers, listed: t.Sequence[Row], run: Run) -> dict[str, t.Any]:
    """Return what is written and passed on."""
    return {
        "schema": SCHEMA,
        "time": run.time,
        "nodes": {node: {"totals": count, "absent": found[node]["absent"], "errors": found[node]["errors"]} for node, count in totals(found, listed).items()},
        "models": [row.view() for row in listed],
    }


def judge(answers: Answers, run: Run) -> Outcome:
    """Show the models on the nodes, and judge those to remove. ``settings`` has ``profiles``, the ``active`` one, and the requests to ``remove``."""
    found = {node: answer["found"] for node, answer in answers.items()}
    profiles = run.settings["profiles"]
    valid = [entry["profile"] for entry in profiles if not entry["problems"]]
    listed = rows(found, valid, run.settings["active"])
    asked = [inventory.parse_request(text) for text in run.settings["remove"]]
    findings = request_findings(asked, found, listed) if asked else None
    content = record(found, listed, run)
    return Outcome(
        "Removal of models",
        findings,
        lines=lines(found, listed, [entry["id"] for entry in profiles if entry["problems"]], wants([run.settings["active"], *valid])),
        files={run.path: content} if run.path else {},
        fresh=True,
        stats={"gb10_models": content},
        returns={"keep": keep(listed), "elsewhere": sorted({stack for answer in found.values() for stack in answer["named_stacks"]})},
    )
