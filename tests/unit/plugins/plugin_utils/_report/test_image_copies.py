# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One node makes the image, the others copy it, and what serves stays."""

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
    """What a node says of its image; None has none."""
    labels = {"io.gb10.base": "b", "io.gb10.recipe": recipe} if image_id else {}
    contract = {"versions": {"ray": ray}} if image_id else None
    built = {"ray_wanted": {"version": kept_out, "why": "w"} if kept_out else None} if image_id else None
    known = {"exists": bool(image_id), "image_id": image_id, "base_image_id": base, "on_base": on_base, "base": built}
    return {**known, "labels": labels, "contract": contract}


def plan(*nodes: dict[str, t.Any], copy: str = "preferred", **wanted: t.Any) -> dict[str, t.Any]:
    return image_copies.plan({f"n{number}": one for number, one in enumerate(nodes)}, copy, {**WANTED, **wanted})


def pairs(found: dict[str, t.Any]) -> list[list[str]]:
    return [[f"{pair['from']}>{pair['to']}" for pair in one] for one in found["rounds"]]


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
        # Another base under the base's name: what was built on it does not count.
        ([node("i", base="newer", on_base=False), node("i", base="newer", on_base=False)], ["n0"], [["n0>n1"]]),
        # The very image of a node that goes on needs no base of its own, nor the same one under the base's name.
        ([BUILT, node("i", base=None)], [], []),
        ([BUILT, node("i", base="newer", on_base=False)], [], []),
        ([BUILT, BARE, BARE, BARE], [], [["n0>n1"], ["n0>n2", "n1>n3"]]),
        ([BUILT, BUILT, BARE, BARE], [], [["n0>n2", "n1>n3"]]),
    ],
)
def test_who_makes_and_who_copies(nodes: list[dict[str, t.Any]], makes: list[str], rounds: list[list[str]]) -> None:
    found = plan(*nodes)
    assert (found["makes"], pairs(found), found["waits"]) == (makes, rounds, [])


def test_never_has_each_node_make_its_own() -> None:
    found = plan(NONE, BUILT, BARE, copy="never")
    assert (found["makes"], found["rounds"]) == (["n0", "n2"], [])
    assert plan(BUILT, node("other"), copy="never")["makes"] == []


def test_a_base_without_layers_is_the_image() -> None:
    bare = {"exists": True, "image_id": "b", "base_image_id": "b", "labels": {}, "contract": {}}
    assert plan(bare, bare, layered=False)["makes"] == []
    assert pairs(plan(bare, NONE, layered=False)) == [["n0>n1"]]
    assert plan(NONE, NONE, layered=False)["makes"] == ["n0"]


@pytest.mark.parametrize(
    ("nodes", "waits", "makes", "rounds"),
    [
        # An earlier recipe alone: all keep theirs.
        ([node("a", recipe="q"), node("b", recipe="q")], ["n0", "n1"], [], []),
        ([node("a", recipe="q", base=None), node("a", recipe="q")], ["n0", "n1"], [], []),
        # Images of an earlier version of the collection, made on each node.
        ([BUILT, node("other")], [], [], []),
        # What is lost comes back from who has it, by an earlier recipe, too.
        ([node("a", recipe="q"), NONE], ["n0"], [], [["n0>n1"]]),
        # An older Ray in the place of the wanted one, which the base keeps out.
        ([node("a", recipe="q", ray="2.52.1", kept_out="2.60.0")] * 2, ["n0", "n1"], [], []),
        ([node("a", recipe="q", ray="2.52.1", kept_out="2.59.0")] * 2, [], ["n0"], [["n0>n1"]]),
        # Another Ray, or another base: that is not continued.
        ([node("a", recipe="q", ray="2.55.0")] * 2, [], ["n0"], [["n0>n1"]]),
    ],
)
def test_what_serves_is_kept(nodes: list[dict[str, t.Any]], waits: list[str], makes: list[str], rounds: list[list[str]]) -> None:
    found = plan(*nodes, live=True)
    assert (found["waits"], found["makes"], pairs(found)) == (waits, makes, rounds)


def test_a_rebuilt_image_replaces_all_that_were_there() -> None:
    before = plan(BUILT, node("i"), rebuild=True)
    assert (before["makes"], pairs(before)) == (["n0"], [["n0>n1"]])
    # The first node has no base, so that the second one built.
    after = plan(node("i", base=None), node("new"), rebuild=True, made=["n1"])
    assert (after["makes"], pairs(after)) == ([], [["n1>n0"]])


def test_what_a_copy_reports() -> None:
    copied = {"changed": True, "msg": "copied", "how": "layers", "layers_sent": 1, "bytes": 5, "seconds": 0.1, "more": 1}
    answers = {"n0": {}, "n1": {"image_copied": copied}, "n2": {"image_copied": {"changed": False}}, "n3": {"image_copied": {"skipped": True}}}
    assert image_copies.lines(model_copies.copies_of(answers, "image_copied")) == ["n1: copied"]
    assert model_copies.reported(copied, image_copies.OF_COPY) == {"how": "layers", "layers_sent": 1, "bytes": 5, "seconds": 0.1}
    assert model_copies.reported(None, image_copies.OF_COPY) is model_copies.reported({"changed": False}, image_copies.OF_COPY) is None
