# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One node makes the image, the others copy it, and an image in use stays."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._report import image_copies, model_copies

WANTED = {"layered": True, "recipe": "r", "ray": "2.60.0", "rebuild": False, "made": [], "live": False}


def node(
    image_id: str | None,
    base: str | None = "b",
    recipe: str = "r",
    on_base: bool = True,
    ray: str = "2.60.0",
    kept_out: str = "",
) -> dict[str, t.Any]:
    """Return the answers of a node about its image; with None it has no image."""
    labels = {"io.gb10.base": "b", "io.gb10.recipe": recipe} if image_id else {}
    contract = {"versions": {"ray": ray}} if image_id else None
    built = {"ray_wanted": {"version": kept_out, "why": "w"} if kept_out else None} if image_id else None
    known = {"exists": bool(image_id), "image_id": image_id, "base_image_id": base, "on_base": on_base, "base": built}
    return {**known, "labels": labels, "contract": contract}


def plan(*nodes: dict[str, t.Any], copy: str = "preferred", **wanted: t.Any) -> dict[str, t.Any]:
    return image_copies.plan({f"n{number}": answer for number, answer in enumerate(nodes)}, copy, {**WANTED, **wanted})


def pairs(planned: dict[str, t.Any]) -> list[list[str]]:
    return [[f"{pair['from']}>{pair['to']}" for pair in round_pairs] for round_pairs in planned["rounds"]]


NONE, BARE, BUILT = node(None, None), node(None), node("i")


@pytest.mark.parametrize(
    ("nodes", "makes", "rounds"),
    [
        ([BUILT, BUILT], [], []),
        ([NONE, NONE], ["n0"], [["n0>n1"]]),
        ([NONE, BARE], ["n1"], [["n1>n0"]]),
        ([NONE, BUILT], [], [["n1>n0"]]),
        ([BUILT, BARE], [], [["n0>n1"]]),
        ([BUILT, node("other")], [], [["n0>n1"]]),
        ([node("old", recipe="q"), node("i")], [], [["n1>n0"]]),
        ([node("old", recipe="q"), node("old", recipe="q")], ["n0"], [["n0>n1"]]),
        # The base's name now refers to another image: what was built on the old one does not count.
        ([node("i", base="newer", on_base=False), node("i", base="newer", on_base=False)], ["n0"], [["n0>n1"]]),
        # A node with exactly the image that stays needs no base, and its base may differ.
        ([BUILT, node("i", base=None)], [], []),
        ([BUILT, node("i", base="newer", on_base=False)], [], []),
        ([BUILT, BARE, BARE, BARE], [], [["n0>n1"], ["n0>n2", "n1>n3"]]),
        ([BUILT, BUILT, BARE, BARE], [], [["n0>n2", "n1>n3"]]),
    ],
)
def test_who_makes_and_who_copies(nodes: list[dict[str, t.Any]], makes: list[str], rounds: list[list[str]]) -> None:
    planned = plan(*nodes)
    assert (planned["makes"], pairs(planned), planned["waits"]) == (makes, rounds, [])


def test_never_has_each_node_make_its_own() -> None:
    planned = plan(NONE, BUILT, BARE, copy="never")
    assert (planned["makes"], planned["rounds"]) == (["n0", "n2"], [])
    assert plan(BUILT, node("other"), copy="never")["makes"] == []


def test_a_base_without_layers_is_the_image() -> None:
    bare = {"exists": True, "image_id": "b", "base_image_id": "b", "labels": {}, "contract": {}}
    assert plan(bare, bare, layered=False)["makes"] == []
    assert pairs(plan(bare, NONE, layered=False)) == [["n0>n1"]]
    assert plan(NONE, NONE, layered=False)["makes"] == ["n0"]


@pytest.mark.parametrize(
    ("nodes", "waits", "makes", "rounds"),
    [
        # All nodes have an earlier recipe: each keeps its image.
        ([node("a", recipe="q"), node("b", recipe="q")], ["n0", "n1"], [], []),
        ([node("a", recipe="q", base=None), node("a", recipe="q")], ["n0", "n1"], [], []),
        # Images of an earlier version of the collection, made on each node.
        ([BUILT, node("other")], [], [], []),
        # A lost image is copied from a node that has it, even with an earlier recipe.
        ([node("a", recipe="q"), NONE], ["n0"], [], [["n0>n1"]]),
        # The image has an older Ray, since the base prevents the wanted version.
        ([node("a", recipe="q", ray="2.52.1", kept_out="2.60.0")] * 2, ["n0", "n1"], [], []),
        ([node("a", recipe="q", ray="2.52.1", kept_out="2.59.0")] * 2, [], ["n0"], [["n0>n1"]]),
        # An image with another Ray or another base is not kept.
        ([node("a", recipe="q", ray="2.55.0")] * 2, [], ["n0"], [["n0>n1"]]),
    ],
)
def test_what_serves_is_kept(nodes: list[dict[str, t.Any]], waits: list[str], makes: list[str], rounds: list[list[str]]) -> None:
    planned = plan(*nodes, live=True)
    assert (planned["waits"], planned["makes"], pairs(planned)) == (waits, makes, rounds)


def test_a_rebuilt_image_replaces_all_that_were_there() -> None:
    before = plan(BUILT, node("i"), rebuild=True)
    assert (before["makes"], pairs(before)) == (["n0"], [["n0>n1"]])
    # The first node has no base, so the second node built the image.
    after = plan(node("i", base=None), node("new"), rebuild=True, made=["n1"])
    assert (after["makes"], pairs(after)) == ([], [["n1>n0"]])


def test_what_a_copy_reports() -> None:
    copied = {"changed": True, "msg": "copied", "how": "layers", "layers_sent": 1, "bytes": 5, "seconds": 0.1, "more": 1}
    answers = {"n0": {}, "n1": {"image_copied": copied}, "n2": {"image_copied": {"changed": False}}, "n3": {"image_copied": {"skipped": True}}}
    assert image_copies.lines(model_copies.copies_of(answers, "image_copied")) == ["n1: copied"]
    assert model_copies.reported(copied, image_copies.OF_COPY) == {"how": "layers", "layers_sent": 1, "bytes": 5, "seconds": 0.1}
    assert model_copies.reported(None, image_copies.OF_COPY) is model_copies.reported({"changed": False}, image_copies.OF_COPY) is None
