# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which profiles fit the queried nodes, and the record that is written."""

from __future__ import annotations

import copy
import datetime
import typing as t

import healthy_pair
import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import catalogue, profiles, validation
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import catalogue as profile_catalogue
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Run

GIB = 1024**3
REPO, COMMIT = "org/m", "a" * 40
RUN = Run({}, [], "/profiles.json", ["all"], [], datetime.datetime(2026, 11, 23, tzinfo=datetime.timezone.utc), False)


def profile(**fields: t.Any) -> dict[str, t.Any]:
    """A profile for two nodes of 128 GB whose model takes 100 GB of disk."""
    raw: dict[str, t.Any] = {
        "schema": 1,
        "id": "small",
        "model": {"repo": REPO, "revision": COMMIT, "size_gb": 100},
        "image": {"base": "r/vllm:1", "layers": []},
        "parallel": {"tensor": 2},
        "memory": {"class_gb": 128},
    }
    for path, value in fields.items():
        *above, last = path.split("__")
        target = raw
        for name in above:
            target = target.setdefault(name, {})
        target[last] = value
    judged, problems = validation.validate(raw)
    assert problems == []
    return judged


def node(free_gib: float = 200, total_gib: float = 121.7, models: t.Sequence[dict[str, t.Any]] = (), **settings: t.Any) -> dict[str, t.Any]:
    """The answers of a node."""
    info = {
        "errors": [],
        "memory": {"total_mb": int(total_gib * 1024)},
        "disk": {"/hf": {"measured_at": "/", "total_bytes": 10**13, "free_bytes": int(free_gib * GIB)}},
        "models": list(models),
    }
    return {"info": info, "failure": None, "model_root": "/hf", "offline": "false", "hub_token": False, **settings}


def lies(gib: float, complete: bool = True, unfinished_gib: float = 0) -> dict[str, t.Any]:
    sizes = {"bytes": int(gib * GIB), "unfinished_bytes": int(unfinished_gib * GIB)}
    return {"repo": REPO, "revision": COMMIT, "refs": [], "complete": complete, "missing": [], "unfinished": 0, "path": "/hf/m", **sizes}


SILENT = {**node(), "info": {"unreachable": True, "msg": "no route"}}
UNREAD = {**node(), "info": {**node()["info"], "models": [], "errors": [{"section": "models", "error": "permission denied", "remedy": "become"}]}}


@pytest.mark.parametrize(
    ("asks", "nodes", "fit", "words"),
    [
        ({}, [node(), node()], "yes", []),
        ({}, [node()], "no", ["it takes 2 nodes, and there is 1"]),
        ({"parallel__tensor": 4}, [node(), node()], "no", ["it takes 4 nodes, and there are 2"]),
        ({}, [node(), node(free_gib=90)], "no", ["spark-2: 90.0 GiB free under /hf, 93.1 GiB are missing of org/m"]),
        ({}, [node(), node(free_gib=90, models=[lies(10, complete=False)])], "yes", []),
        ({}, [node(), node(free_gib=90, models=[lies(1, complete=False, unfinished_gib=9)])], "yes", []),
        ({}, [node(), node(free_gib=1, models=[lies(93)])], "yes", []),
        ({}, [node(total_gib=60), node(total_gib=60)], "no", ["spark-1: 60.0 GiB of memory; the profile is for Sparks of 128 GB"]),
        ({"memory__class_gb": 64}, [node(total_gib=60), node()], "no", ["the nodes differ in memory"]),
        ({"parallel__tensor": 1}, [node(), node()], "in part", []),
        # One node is enough, so the other's disk is no obstacle.
        ({"parallel__tensor": 1}, [node(free_gib=1), node()], "in part", []),
        ({"parallel__tensor": 1}, [node(free_gib=1), node(free_gib=1)], "no", ["spark-1: 1.0 GiB free", "spark-2: 1.0 GiB free"]),
        ({"parallel__tensor": 1}, [node()], "yes", []),
        ({}, [node(), SILENT], "unknown", ["spark-2: it did not answer"]),
        ({"parallel__tensor": 1}, [node(), SILENT], "in part", ["spark-2: it did not answer"]),
        ({}, [node(free_gib=1), SILENT], "no", ["spark-1: 1.0 GiB free"]),
        ({}, [node(), UNREAD], "unknown", ["permission denied"]),
        ({"model__gated": True}, [node(), node()], "no", ["cluster: org/m is gated", "no token is set"]),
        ({"model__gated": True}, [node(hub_token=True), node(hub_token="true")], "yes", []),
        ({"model__gated": True}, [node(models=[lies(93)]), node(models=[lies(93)])], "yes", []),
        ({"model__gated": True, "parallel__tensor": 1}, [node(), node()], "no", ["org/m is gated"]),
        # An offline node downloads nothing, so it needs no token.
        ({"model__gated": True}, [node(offline=True), node(offline=True)], "yes", []),
    ],
)
def test_what_fits(asks: dict[str, t.Any], nodes: list[dict[str, t.Any]], fit: str, words: list[str]) -> None:
    result = profile_catalogue.fits(profile(**asks), {f"spark-{number}": copy.deepcopy(answer) for number, answer in enumerate(nodes, 1)})
    assert result["fits"] == fit, result
    assert all(any(word in why for why in result["why"]) for word in words), result
    if fit == "yes":
        assert result["why"] == []


def test_what_each_node_would_fetch() -> None:
    drafter = {"drafter": {"repo": "org/d", "revision": "b" * 40, "purpose": "drafter"}}
    both = profile(repositories=drafter, serve={"speculative_config": {"model": "repository:drafter"}})
    result = profile_catalogue.fits(both, {"spark-1": node(), "spark-2": node(models=[lies(93)]), "spark-3": copy.deepcopy(UNREAD)})
    assert result["to_fetch"] == {"spark-1": {REPO: 93.1, "org/d": None}, "spark-2": {"org/d": None}, "spark-3": None}


def test_a_license_that_has_to_be_accepted_is_a_note() -> None:
    licensed = profile(model__license={"id": "x", "accept": True})
    result = profile_catalogue.fits(licensed, {"spark-1": node(), "spark-2": node()})
    assert result["fits"] == "yes" and result["notes"] and "cluster: org/m is under x" in result["notes"][0]


def entry(**fields: t.Any) -> dict[str, t.Any]:
    judged = profile(**fields)
    return {"id": judged["id"], "path": "/p.yml", "problems": [], "needs": catalogue.needs(judged), "profile": judged}


BROKEN = {"id": "broken", "path": "/b.yml", "problems": ["parallel.tensr: is not a known field"], "needs": {}, "profile": {}}


def judge(answers: dict[str, t.Any], *entries: dict[str, t.Any]) -> t.Any:
    return profile_catalogue.judge(answers, Run({"entries": list(entries)}, *list(vars(RUN).values())[1:]))


def test_the_list_has_the_speeds_that_others_reported() -> None:
    text = "\n".join(judge({}, entry(speed={"one": 20.5, "many": 130, "users": 32, "by": "x.org"})).lines)
    assert "  20.5, 130 for 32 (x.org)  " in text


def test_the_list_without_nodes_says_nothing_of_what_fits() -> None:
    outcome = judge({}, entry(), BROKEN)
    text = "\n".join(outcome.lines)
    assert "2 x 128 GB  100 GB  the model's  -         unknown  unknown" in text and "this cluster" not in text
    assert "No node was asked" in text
    record = outcome.files["/profiles.json"]
    assert outcome.fresh and outcome.stats == {"gb10_profiles": record}
    assert [row["cluster"] for row in record["profiles"]] == [None] and record["nodes"] == {}
    assert record["invalid"] == [{"id": "broken", "path": "/b.yml", "problems": BROKEN["problems"]}]
    assert {finding["id"]: finding["verdict"] for finding in outcome.findings} == {"small": "pass", "broken": "block"}


def test_the_list_with_nodes_says_what_fits_and_who_was_silent() -> None:
    terms = {"model__license": {"id": "x-1", "accept": True}, "model__gated": True, "parallel__tensor": 1}
    outcome = judge({"spark-1": node(hub_token=True), "spark-2": {**SILENT, "failure": "no route"}}, entry(**terms))
    text = "\n".join(outcome.lines)
    assert "x-1 (to be accepted)" in text and " gated " in text
    assert "1 of the nodes, as a cluster of its own; spark-1 would fetch 93.1 GiB; spark-2: it did not answer" in text
    assert "spark-2 was not checked: no route" in text
    record = outcome.files["/profiles.json"]
    assert record["nodes"] == {"spark-1": {"answered": True, "why": ""}, "spark-2": {"answered": False, "why": "no route"}}


@pytest.mark.parametrize("path", sorted(profiles.SHIPPED.glob("*.yml")), ids=lambda path: path.stem)
def test_every_shipped_profile_is_judged_on_a_healthy_pair(path: t.Any) -> None:
    answers = {
        name: {"info": healthy_pair.node(), "failure": None, "model_root": "/models", "offline": False, "hub_token": False} for name in ("spark-1", "spark-2")
    }
    shipped = profiles.load(path.stem)
    result = profile_catalogue.fits(shipped, answers)
    assert result["fits"] in (("yes", "no") if catalogue.facts(shipped)["nodes"] == 2 else ("in part", "no"))
    assert catalogue.facts(shipped)["disk_gb"], "what a shipped profile takes of a disk is known"


def test_a_file_that_is_not_a_valid_profile_stops_and_names_the_file() -> None:
    good = {"id": "small", "path": "/p/small.yml", "problems": [], "needs": {"nodes": "2"}, "profile": {}}
    assert profile_catalogue.valid(good)["verdict"] == "pass"
    broken = profile_catalogue.valid({**good, "id": "broken", "path": "/p/broken.yml", "problems": ["parallel.tensr: is not a known field"], "needs": {}})
    assert (broken["verdict"], broken["remedy"]) == ("block", "correct /p/broken.yml")
