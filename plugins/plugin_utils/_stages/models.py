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
#: Only the answers that the task names.
READS: dict[str, str] = {}

#: Digits of a commit in the table. Below it, models that could be removed have all digits.
SHORT = 12
#: Two states of a model: it could be removed, or it belongs to its owner.
COULD_GO, OWNERS = "could go", "its owner's"

Model = dict[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Want:
    """A repository that a profile wants for a purpose, at a commit or at the current ``main``."""

    profile: str
    repo: str
    revision: str | None
    purpose: str


@dataclasses.dataclass
class Row:
    """One model, with its entry by node.

    ``state`` is :data:`COULD_GO`, :data:`OWNERS`, or why it is kept. ``verdict`` judges a request to remove it.
    """

    name: str
    models: dict[str, Model]
    wanted_by: list[str]
    state: str = COULD_GO
    verdict: str = "pass"

    @property
    def request(self) -> str:
        """The text that requests its removal, empty if it cannot be removed."""
        model = next(iter(self.models.values()))
        return f"{model['repo']}@{model['revision']}" if model["own"] and model["revision"] else ""

    @property
    def last_run(self) -> dict[str, t.Any] | None:
        """The last run of this collection that a node recorded."""
        runs = [model["last_run"] for model in self.models.values() if model["last_run"]]
        return max(runs, key=lambda run: (run["live"], run["started_at"] or ""), default=None)

    def view(self) -> dict[str, t.Any]:
        """Return the row as it is stored in the record."""
        return {
            "name": self.name, "request": self.request, "wanted_by": self.wanted_by, "last_run": self.last_run, "state": self.state, "nodes": self.models,
        }  # fmt: skip


def wants(profiles: t.Iterable[dict[str, t.Any]]) -> list[Want]:
    """Return the repositories that these profiles want, in the order of the profiles."""
    return [
        Want(profile["id"], repository["repo"], repository["revision"], repository["purpose"]) for profile in profiles for repository in repositories(profile)
    ]


def for_its_purpose(model: Model, wanted: t.Iterable[Want]) -> Model:
    """Return an entry without missing files that no wanted purpose needs. For example, a drafter needs no tokenizer."""
    purposes = {want.purpose for want in wanted if want.repo == model["repo"] or by_path(want, model)}
    if not purposes or model["complete"] is not False or model["revision"] == inventory.LEFTOVERS:
        return model
    missing = [name for name in model["missing"] if any(model_files.matters(purpose, name) for purpose in purposes)]
    return {**model, "missing": missing, "complete": not missing}


def by_path(want: Want, model: Model) -> bool:
    """Return whether a profile names the model by the path of its directory, as it does for a plain directory."""
    return want.repo == model["path"] or want.repo in model["named"]


def wanted_by(model: Model, siblings: t.Sequence[Model], wanted: t.Iterable[Want]) -> list[str]:
    """Return the profiles that want a model. ``siblings`` are all entries of its node.

    A profile without a revision wants the target of ``main``, or any revision if that is unknown. Leftovers are wanted while the wanted revision is not
    complete, because the next download continues them.
    """
    of_repo = [sibling for sibling in siblings if sibling["repo"] == model["repo"] and sibling["own"] == model["own"]]
    main = {sibling["revision"] for sibling in of_repo if "main" in sibling["refs"]}
    complete = {sibling["revision"] for sibling in of_repo if sibling["complete"]}

    def fits(want: Want) -> bool:
        commits = {want.revision} if want.revision else main
        is_wanted = not commits <= complete if model["revision"] == inventory.LEFTOVERS else model["revision"] in commits
        return want.repo == model["repo"] and model["revision"] is not None and (not commits or is_wanted)

    return list(dict.fromkeys(want.profile for want in wanted if by_path(want, model) or fits(want)))


def name_of(model: Model) -> str:
    """Return the name of a model: repository and commit, plus its cache if that is not the cluster's own. A plain directory has its path as name."""
    if model["repo"] is None:
        return model["path"]
    known = f"@{model['revision']}" if model["revision"] else ""
    return f"{model['repo']}{known}" + ("" if model["own"] else f" in {model['root']}")


def rows(inventories: Answers, profiles: t.Sequence[dict[str, t.Any]], active: dict[str, t.Any]) -> list[Row]:
    """Return all models, the largest first. ``inventories`` has the answers of model_inventory_info by node."""
    wanted, wanted_now = wants(profiles), wants([active])
    by_name: dict[str, Row] = {}
    inventories = {
        node: {**answer, "models": [for_its_purpose(model, [*wanted_now, *wanted]) for model in answer["models"]]} for node, answer in inventories.items()
    }
    for node, answer in inventories.items():
        for model in answer["models"]:
            row = by_name.setdefault(name_of(model), Row(name_of(model), {}, []))
            row.models[node] = model
            row.wanted_by = list(dict.fromkeys([*row.wanted_by, *wanted_by(model, answer["models"], [*wanted_now, *wanted])]))
    holders = unnamed(inventories)
    for row in by_name.values():
        row.verdict, row.state = _judged(row, inventories, [*wanted_now, *wanted], wanted_now, holders)
    return sorted(by_name.values(), key=lambda row: (-max(model["bytes"] for model in row.models.values()), row.name))


def _judged(row: Row, inventories: Answers, wanted: t.Sequence[Want], wanted_now: t.Sequence[Want], holders: dict[str, list[str]]) -> tuple[str, str]:
    """Return (verdict, state) of a model. The result of one node applies to all, because the ranks of a worker do not name their model."""
    used = {node: model["in_use"] for node, model in row.models.items() if model["in_use"]}
    if used:
        return "block", f"in use: {'; '.join(f'{uses[0]} on {node}' for node, uses in used.items())}"
    # A doubt about another revision also counts, because it may share the files.
    doubts = [f"{partly[0]['doubts'][0]} on {node}" for node, model in row.models.items() if (partly := _partly_known(inventories[node], model["repo"], model))]
    if doubts:
        return "unknown", f"only partly known: {'; '.join(doubts)}"
    if not row.request:
        return "block", OWNERS
    # A profile that names the directory itself does not download the model again.
    pathed = sorted({f"{want.profile} as {want.repo}" for want in wanted for model in row.models.values() if by_path(want, model)})
    if pathed:
        return "block", f"wanted by its path: {', '.join(pathed)}"
    unknown = [f"nothing says which model {text} on {node} has" for node in row.models for text in holders[node]]
    unknown += [f"{error['error']} on {node}" for node in row.models for error in inventories[node]["errors"] if error["section"] == "processes"]
    if unknown:
        return "unknown", f"may be in use: {'; '.join(unknown)}"
    active = sorted({name for node, model in row.models.items() for name in wanted_by(model, inventories[node]["models"], wanted_now)})
    return ("block", f"wanted by the profile of this cluster, {', '.join(active)}") if active else ("pass", COULD_GO)


def _partly_known(answer: dict[str, t.Any], repo: str | None, model: Model | None = None) -> list[Model]:
    """Return the entries with doubts about a model, or about a repository in the cluster's own cache."""
    root = model["root"] if model else None
    if repo is None:
        return [model] if model and model["doubts"] else []
    return [entry for entry in answer["models"] if entry["repo"] == repo and entry["doubts"] and (entry["root"] == root if root else entry["own"])]


def keep(listed: t.Iterable[Row]) -> dict[str, str]:
    """Return by request the models that must not be removed on any node, and why."""
    return {row.request: row.state for row in listed if row.request and row.state != COULD_GO}


def unnamed(inventories: Answers) -> dict[str, list[str]]:
    """Return by node the parts of engines whose model no node names."""
    named = {stack for answer in inventories.values() for stack in answer["named_stacks"]}
    return {node: [part["text"] for part in answer["unnamed"] if part["stack"] not in named] for node, answer in inventories.items()}


def request_findings(requests: t.Iterable[inventory.Request], inventories: Answers, listed: t.Sequence[Row]) -> list[dict[str, t.Any]]:
    """Judge the models to remove on every node, before any is removed."""
    by_request = {row.request: row for row in listed if row.request}
    return [entry for request in requests for entry in _findings_of(request, inventories, by_request.get(str(request)), by_request)]


def _findings_of(request: inventory.Request, inventories: Answers, row: Row | None, others: t.Iterable[str]) -> list[dict[str, t.Any]]:
    findings = []
    for node, answer in inventories.items():
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
        findings.append(finding("models.absent", next(iter(inventories)), "pass", f"{request} is on no node{there}"))
    return findings


# -- text ------------------------------------------------------------------------------------------------------------


def _short(text: str) -> str:
    """Return a row's name with a shortened commit."""
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


def totals(inventories: Answers, listed: t.Sequence[Row]) -> dict[str, dict[str, int]]:
    """Return by node the number of models, their bytes, and the bytes that could be removed. Each file counts once."""
    counted = {}
    for node, answer in inventories.items():
        going = [row.models[node] for row in listed if row.state == COULD_GO and node in row.models]
        counted[node] = {"models": len(answer["models"]), "bytes": answer["bytes"], "could_go_bytes": sum(model["frees"] for model in going)}
    return counted


def _wanting(path: str, paths: t.Iterable[Want]) -> str:
    """Return which profiles want a directory, as the end of a sentence. The text is empty if none does."""
    profiles = dict.fromkeys(want.profile for want in paths if want.repo == path)
    return f", missing for profile {', '.join(profiles)}" if profiles else ""


def lines(inventories: Answers, listed: t.Sequence[Row], broken: t.Sequence[str] = (), paths: t.Sequence[Want] = ()) -> list[str]:
    """Return the shown lines: the table, each node's totals, the models that could be removed, and the unknown parts.

    ``broken`` has the names of invalid profiles. ``paths`` has the wants of profiles, to explain directories that are missing on a node.
    """
    shown = table(listed, list(inventories)) if listed else ["no models"]
    for node, count in totals(inventories, listed).items():
        shown.append(f"{node}: {count['models']} model(s), {size_text(count['bytes'])}; {size_text(count['could_go_bytes'])} could go")
        shown += [f"{node}: there is no {path}{_wanting(path, paths)}" for path in inventories[node]["absent"]]
        shown += [f"{node}: unknown: {error['error']}" for error in inventories[node]["errors"]]
    shown += [f"{node}: nothing says which model this has: {text}" for node, texts in unnamed(inventories).items() for text in texts]
    shown += [f"profile {name} is not valid, so what it wants is unknown" for name in broken]
    going = [row for row in listed if row.state == COULD_GO]
    shown += ["To remove one, or several with commas between them: -e gb10_models_remove=REPO@REVISION"] if going else []
    for row in going:
        where = ", ".join(f"{size_text(model['frees'])} on {node}" for node, model in row.models.items())
        shown.append(f"  {row.request}  frees {where}" + (f"; profile {', '.join(row.wanted_by)} wants it" if row.wanted_by else ""))
    return shown


def record(inventories: Answers, listed: t.Sequence[Row], run: Run) -> dict[str, t.Any]:
    """Return the record that is written and returned."""
    return {
        "schema": SCHEMA,
        "time": run.time,
        "nodes": {
            node: {"totals": count, "absent": inventories[node]["absent"], "errors": inventories[node]["errors"]}
            for node, count in totals(inventories, listed).items()
        },
        "models": [row.view() for row in listed],
    }


def judge(answers: Answers, run: Run) -> Outcome:
    """Show the models on the nodes, and judge the requested removals. ``settings`` has ``profiles``, the ``active`` one, and the requests ``remove``."""
    inventories = {node: answer["found"] for node, answer in answers.items()}
    profiles = run.settings["profiles"]
    valid = [entry["profile"] for entry in profiles if not entry["problems"]]
    listed = rows(inventories, valid, run.settings["active"])
    requests = [inventory.parse_request(text) for text in run.settings["remove"]]
    findings = request_findings(requests, inventories, listed) if requests else None
    content = record(inventories, listed, run)
    return Outcome(
        "Removal of models",
        findings,
        lines=lines(inventories, listed, [entry["id"] for entry in profiles if entry["problems"]], wants([run.settings["active"], *valid])),
        files={run.path: content} if run.path else {},
        fresh=True,
        stats={"gb10_models": content},
        returns={"keep": keep(listed), "elsewhere": sorted({stack for answer in inventories.values() for stack in answer["named_stacks"]})},
    )
