# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The model lists of all nodes: which profile needs which model, which models could go, and which a user may remove."""

from __future__ import annotations

import dataclasses
import datetime
import json
import typing as t

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._model.inventory import LEFTOVERS, parse_request
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import validation
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import models as model_inventory
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Run

COMMIT, OTHER = "0123456789abcdef" * 2 + "01234567", "f" * 40
ROOT = "/home/spark/.cache/huggingface"
GIB = 1 << 30


def model(repo: str | None = "org/name", revision: str | None = COMMIT, **more: t.Any) -> dict[str, t.Any]:
    plain = {
        "kind": "hub", "root": ROOT, "own": True, "repo": repo, "revision": revision, "refs": [], "complete": True, "missing": [], "broken": [], "files": 3,
        "bytes": GIB, "frees": GIB // 2, "written": "2026-11-20T08:12:44Z", "path": f"{ROOT}/hub/{repo}/{revision}", "in_use": [], "last_run": None,
        "doubts": [], "named": [],
    }  # fmt: skip
    return {**plain, **more}


def answer(*models: dict[str, t.Any], **more: t.Any) -> dict[str, t.Any]:
    plain = {"models": list(models), "absent": [], "unnamed": [], "named_stacks": [], "errors": [], "bytes": sum(entry["bytes"] for entry in models)}
    return {**plain, **more}


def profile(id: str, repo: str, revision: str | None = None, **repositories: dict[str, t.Any]) -> dict[str, t.Any]:
    """A valid profile with every default, as the catalogue reads it."""
    raw = {"schema": 1, "id": id, "model": {"repo": repo}, "image": {"base": "x:1", "layers": []}, "parallel": {"tensor": 1}, "executor": "native"}
    raw["model"] |= {"revision": revision} if revision else {}
    raw["serve"] = {"speculative_config": {name: f"repository:{name}" for name in repositories}} if repositories else {}
    validated, problems = validation.validate({**raw, "repositories": repositories})
    assert problems == []
    return validated


ACTIVE = profile("served_tp2", "org/served", OTHER)


def rows(known: t.Sequence[dict[str, t.Any]] = (), active: dict[str, t.Any] | None = None, **nodes: dict[str, t.Any]) -> dict[str, model_inventory.Row]:
    return {row.name: row for row in model_inventory.rows(nodes, known, active or ACTIVE)}


def request_verdicts(request: str, active: dict[str, t.Any] | None = None, **nodes: dict[str, t.Any]) -> list[tuple[str, str, str]]:
    listed = model_inventory.rows(nodes, [], active or ACTIVE)
    findings = model_inventory.request_findings([parse_request(request)], nodes, listed)
    assert all(finding["remedy"] for finding in findings if finding["verdict"] != "pass")
    return [(finding["id"], finding["node"], finding["verdict"]) for finding in findings]


def test_what_nothing_speaks_for_could_go() -> None:
    by_name = rows(a=answer(model()), b=answer(model()))
    row = by_name[f"org/name@{COMMIT}"]
    assert row.state == model_inventory.COULD_GO and row.request == f"org/name@{COMMIT}" and set(row.models) == {"a", "b"} and row.wanted_by == []
    assert model_inventory.keep(by_name.values()) == {}
    assert request_verdicts(f"org/name@{COMMIT}", a=answer(model()), b=answer()) == [("models.could_go", "a", "pass")]


def test_a_model_that_one_node_uses_is_kept_on_all() -> None:
    nodes = {"a": answer(model(in_use=["vllm serve org/name (pid 7)"])), "b": answer(model())}
    row = rows(**nodes)[f"org/name@{COMMIT}"]
    assert "vllm serve org/name (pid 7) on a" in row.state and model_inventory.keep([row]) == {row.request: row.state}
    assert request_verdicts(row.request, **nodes) == [("models.in_use", "a", "block"), ("models.in_use", "b", "block")]


def test_the_model_and_drafter_of_the_active_profile_are_kept() -> None:
    active = profile("pair", "org/name", COMMIT, drafter={"repo": "org/drafter", "purpose": "drafter"})
    nodes = {"a": answer(model(), model(revision=OTHER), model("org/drafter", refs=["main"]), model("org/drafter", OTHER))}
    by_name = rows(active=active, **nodes)
    states = {name: row.state for name, row in by_name.items()}
    kept = {f"org/name@{COMMIT}", f"org/drafter@{COMMIT}"}
    assert {name for name, state in states.items() if state != model_inventory.COULD_GO} == kept == set(model_inventory.keep(by_name.values()))
    assert request_verdicts(f"org/name@{COMMIT}", active, **nodes)[0][2] == "block" and request_verdicts(f"org/name@{OTHER}", active, **nodes)[0][2] == "pass"


def test_a_drafter_needs_no_tokenizer_to_be_whole() -> None:
    active = profile("pair", "org/name", COMMIT, drafter={"repo": "org/drafter", "purpose": "drafter"})
    lacking = {"complete": False, "missing": ["tokenizer.json"]}
    by_name = rows(active=active, a=answer(model("org/drafter", **lacking), model(**lacking)))
    assert by_name[f"org/drafter@{COMMIT}"].models["a"]["complete"] is True and by_name[f"org/name@{COMMIT}"].models["a"]["complete"] is False


def test_a_plain_directory_that_a_profile_names_is_wanted() -> None:
    raw = {"schema": 1, "id": "own", "model": {"path": "/m/own"}, "image": {"base": "x:1", "layers": []}, "parallel": {"tensor": 1}}
    raw["repositories"] = {"drafter": {"path": "/m/drafter", "purpose": "drafter"}}
    own, problems = validation.validate({**raw, "serve": {"speculative_config": {"model": "repository:drafter"}}})
    assert problems == []
    plain = {"kind": "directory", "repo": None, "revision": None, "own": False, "frees": 0}
    lacking = {"complete": False, "missing": ["tokenizer.json"]}
    by_name = rows([own], a=answer(model(**plain, path="/m/own"), model(**plain, **lacking, path="/m/drafter"), model(**plain, path="/m/other")))
    assert {name: row.wanted_by for name, row in by_name.items()} == {"/m/own": ["own"], "/m/drafter": ["own"], "/m/other": []}
    assert all(row.state == model_inventory.OWNERS for row in by_name.values())
    assert by_name["/m/drafter"].models["a"]["complete"], "a drafter needs no tokenizer"


def of_path(path: str) -> dict[str, t.Any]:
    raw = {"schema": 1, "id": "own", "model": {"path": path}, "image": {"base": "x:1", "layers": []}, "parallel": {"tensor": 1}}
    own, problems = validation.validate(raw)
    assert problems == []
    return own


def test_a_revision_that_a_profile_names_by_path_is_kept() -> None:
    nodes = {"a": answer(model(named=["/m/link"]), model(revision=OTHER)), "b": answer(model())}
    by_name = rows([of_path("/m/link")], **nodes)
    wanted, other = by_name[f"org/name@{COMMIT}"], by_name[f"org/name@{OTHER}"]
    assert wanted.wanted_by == ["own"] and wanted.state == "wanted by its path: own as /m/link" and other.state == model_inventory.COULD_GO
    assert set(model_inventory.keep(by_name.values())) == {wanted.request}
    requests = [parse_request(wanted.request)]
    assert {finding["id"] for finding in model_inventory.request_findings(requests, nodes, list(by_name.values()))} == {"models.in_use"}


def test_a_path_that_a_node_lacks_is_said_with_its_profile() -> None:
    answers = {"a": {"found": answer(absent=["/m/own", "/m/else"])}}
    own = {"id": "own", "problems": [], "profile": of_path("/m/own")}
    outcome = model_inventory.judge(answers, run(profiles=[own]))
    assert outcome.findings is None and outcome.lines[2:] == ["a: there is no /m/own, missing for profile own", "a: there is no /m/else"]


def test_without_a_known_main_any_revision_is_wanted() -> None:
    assert "wanted by" in rows(active=profile("x", "org/name"), a=answer(model()))[f"org/name@{COMMIT}"].state


@pytest.mark.parametrize(("complete", "stays"), [(True, False), (False, True)])
def test_leftovers_are_wanted_while_what_is_wanted_is_not_whole(complete: bool, stays: bool) -> None:
    wanted = model(complete=complete, missing=[] if complete else ["config.json"])
    by_name = rows(active=profile("x", "org/name", COMMIT), a=answer(wanted, model(revision=LEFTOVERS, complete=False)))
    assert (by_name[f"org/name@{LEFTOVERS}"].state != model_inventory.COULD_GO) is stays


def test_other_profiles_are_named_and_keep_nothing() -> None:
    row = rows([profile("other_tp1", "org/name", COMMIT)], a=answer(model()))[f"org/name@{COMMIT}"]
    assert row.wanted_by == ["other_tp1"] and row.state == model_inventory.COULD_GO
    assert any("profile other_tp1 wants it" in line for line in model_inventory.lines({"a": answer(model())}, [row]))


def test_a_doubt_about_one_revision_keeps_all_of_its_repository() -> None:
    nodes = {"a": answer(model(), model(revision=OTHER, doubts=["snapshots/f leads out"]), model("org/else"))}
    by_name = rows(**nodes)
    assert "only partly known" in by_name[f"org/name@{COMMIT}"].state and by_name[f"org/else@{COMMIT}"].state == model_inventory.COULD_GO
    assert request_verdicts(f"org/name@{COMMIT}", **nodes) == [("models.unknown", "a", "unknown")]


def test_what_could_not_be_read_is_not_taken_for_absent() -> None:
    unread = model(revision=None, complete=None, doubts=["it could not be read as a whole"])
    assert request_verdicts(f"org/name@{COMMIT}", a=answer(model()), b=answer(unread)) == [("models.could_go", "a", "pass"), ("models.unknown", "b", "unknown")]
    error = {"section": "hf_home", "verdict": "unknown", "error": "hub cannot be read", "remedy": "Run the task with become: true."}
    assert request_verdicts(f"org/name@{COMMIT}", a=answer(errors=[error])) == [("models.unknown", "a", "unknown")]
    # Nothing is ever removed from a plain directory, so an unreadable one does not matter.
    assert request_verdicts(f"org/name@{COMMIT}", a=answer(errors=[{**error, "section": "directories"}])) == [("models.absent", "a", "pass")]


def test_ranks_that_no_node_explains_may_use_anything() -> None:
    rank = {"text": "ray::RayWorkerWrapper (pid 21)", "stack": "ray 10.0.0.11:6379"}
    lone = {"a": answer(model()), "b": answer(model(), unnamed=[rank])}
    assert "nothing says which model ray::RayWorkerWrapper (pid 21) on b has" in rows(**lone)[f"org/name@{COMMIT}"].state
    assert ("models.unknown", "a", "unknown") in request_verdicts(f"org/name@{COMMIT}", **lone)
    explained = {"a": answer(model(), named_stacks=["ray 10.0.0.11:6379"]), "b": answer(model(), unnamed=[rank])}
    assert rows(**explained)[f"org/name@{COMMIT}"].state == model_inventory.COULD_GO


def test_processes_that_may_not_be_asked_make_it_unknown() -> None:
    error = {"section": "processes", "verdict": "unknown", "error": "x (pid 1) may not be asked", "remedy": "Run the task with become: true."}
    assert request_verdicts(f"org/name@{COMMIT}", a=answer(model(), errors=[error])) == [("models.unknown", "a", "unknown")]


def test_what_is_not_in_the_own_cache_is_its_owners() -> None:
    nodes = {"a": answer(model(), model(own=False, root="/home/other"), model(None, None, kind="directory", own=False, path="/home/spark/models/x"))}
    by_name = rows(**nodes)
    assert by_name[f"org/name@{COMMIT} in /home/other"].state == by_name["/home/spark/models/x"].state == model_inventory.OWNERS
    assert not by_name["/home/spark/models/x"].request and model_inventory.keep(by_name.values()) == {}
    assert request_verdicts(f"org/name@{COMMIT}", **nodes) == [("models.could_go", "a", "pass")]


def test_a_request_that_fits_nothing_names_what_there_is() -> None:
    listed = model_inventory.rows({"a": answer(model())}, [], ACTIVE)
    (finding,) = model_inventory.request_findings([parse_request(f"org/name@{OTHER}")], {"a": answer(model())}, listed)
    assert finding["verdict"] == "pass" and f"org/name@{COMMIT}" in finding["message"]


def test_the_last_run_is_the_latest_of_all_nodes() -> None:
    early = {"cluster": "gb10", "run_id": "1", "started_at": "2026-11-01T00:00:00Z", "live": False}
    row = rows(a=answer(model(last_run=early)), b=answer(model(last_run={**early, "started_at": "2026-11-02T00:00:00Z"})))[f"org/name@{COMMIT}"]
    assert row.last_run and row.last_run["started_at"] == "2026-11-02T00:00:00Z"


def run(**settings: t.Any) -> Run:
    now = datetime.datetime(2026, 11, 22, tzinfo=datetime.timezone.utc)
    entries = [{"id": "served_tp2", "problems": [], "profile": ACTIVE}, {"id": "broken", "problems": ["x"], "profile": {}}]
    return Run({"profiles": entries, "active": ACTIVE, "remove": [], **settings}, [], "", [], [], now, False)


def test_the_table() -> None:
    answers = {
        "spark-1": answer(
            model("org/served", OTHER, bytes=70 * GIB, refs=["main"], in_use=["the engine of cluster gb10 (run r)"],
                  last_run={"cluster": "gb10", "run_id": "r", "started_at": "2026-11-22T10:01:04Z", "live": True}),
            model(bytes=30 * GIB, complete=False, frees=10 * GIB), absent=["/home/spark/models"],
        ),
        "spark-2": answer(model("org/served", OTHER, bytes=70 * GIB, refs=["main"])),
    }  # fmt: skip
    outcome = model_inventory.judge({node: {"found": node_answer} for node, node_answer in answers.items()}, run())
    assert outcome.findings is None and outcome.files == {} and outcome.stats["gb10_models"]["schema"] == 1
    assert outcome.lines[1].split() == (
        "org/served@ffffffffffff (main) 70.0 GiB 70.0 GiB now served_tp2 in use: the engine of cluster gb10 (run r) on spark-1".split()
    )
    assert outcome.lines[2].split() == "org/name@0123456789ab 30.0 GiB, incomplete - none noted none could go".split()
    assert outcome.lines[3:] == [
        "spark-1: 2 model(s), 100.0 GiB; 10.0 GiB could go",
        "spark-1: there is no /home/spark/models",
        "spark-2: 1 model(s), 70.0 GiB; 0 B could go",
        "profile broken is not valid, so what it wants is unknown",
        "To remove one, or several with commas between them: -e gb10_models_remove=REPO@REVISION",
        f"  org/name@{COMMIT}  frees 10.0 GiB on spark-1",
    ]
    assert outcome.returns["keep"] == {f"org/served@{OTHER}": "in use: the engine of cluster gb10 (run r) on spark-1"}


def test_an_empty_cache_and_the_record() -> None:
    asking = dataclasses.replace(run(remove=[f"org/name@{COMMIT}"]), path="m.json")
    outcome = model_inventory.judge({"a": {"found": answer()}}, asking)
    assert outcome.lines[0] == "no models" and outcome.fresh and list(outcome.files) == ["m.json"]
    assert [finding["id"] for finding in outcome.findings or []] == ["models.absent"]
    assert json.loads(json.dumps(outcome.files["m.json"]))["nodes"]["a"]["totals"] == {"models": 0, "bytes": 0, "could_go_bytes": 0}
