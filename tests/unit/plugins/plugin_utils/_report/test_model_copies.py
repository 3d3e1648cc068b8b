# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which nodes download a model, and which nodes copy it from which."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._report import model_copies

WHOLE, NONE, HALF, CHANGED = (True, "pass", 80), (False, "block", 0), (False, "block", 40), (True, "block", 80)


def answers(*nodes: tuple[bool, str, int]) -> dict[str, dict[str, t.Any]]:
    return {
        f"n{number}": {"repositories": [{"repo": "org/m", "complete": complete}, {"repo": "/plain", "complete": False}], "verdict": verdict, "size_bytes": size}
        for number, (complete, verdict, size) in enumerate(nodes, 1)
    }


@pytest.mark.parametrize(
    ("nodes", "offline", "downloads", "copies"),
    [
        ([WHOLE, WHOLE], False, [], []),
        ([WHOLE, NONE], False, [], ["n1>n2"]),
        ([NONE, WHOLE], True, [], ["n2>n1"]),
        ([NONE, NONE], False, ["n1"], ["n1>n2"]),
        ([NONE, HALF], False, ["n2"], ["n2>n1"]),
        ([NONE, NONE], True, [], []),
        ([NONE], False, ["n1"], []),
        ([CHANGED, NONE], False, [], []),
        ([CHANGED, WHOLE, NONE], False, [], ["n2>n3"]),
        ([NONE, NONE, NONE, NONE, NONE], False, ["n1"], ["n1>n2>n3>n4>n5"]),
        ([WHOLE, WHOLE, NONE, NONE], False, [], ["n1>n3", "n2>n4"]),
        ([WHOLE, WHOLE, NONE, NONE, NONE], False, [], ["n1>n3>n5", "n2>n4"]),
        ([WHOLE, WHOLE, NONE], False, [], ["n1>n3"]),
    ],
)
def test_one_node_downloads_and_each_that_has_it_gives_it_on(nodes: list, offline: bool, downloads: list[str], copies: list[list[str]]) -> None:
    planned = model_copies.plan(answers(*nodes), "required", offline)
    assert (planned["downloads"], [">".join(chain) for chain in planned["chains"]]) == (downloads, copies)


@pytest.mark.parametrize("offline", [False, True])
def test_without_copies_each_node_downloads(offline: bool) -> None:
    assert model_copies.plan(answers(WHOLE, NONE, HALF), "never", offline) == {"downloads": [] if offline else ["n2", "n3"], "chains": []}


COPIED = {
    "changed": True, "msg": "74.9 GiB copied and compared in 101.4 s, 793 MB/s", "bytes": 80 << 30, "resumed_bytes": 3 << 30, "seconds": 101.4,
    "cached_bytes": 1 << 30, "left_bytes": 0,
}  # fmt: skip


def test_a_copy_is_reported_once_per_node() -> None:
    copies = model_copies.copies_of({"n1": {}, "n2": {"copied": COPIED}, "n3": {"copied": {**COPIED, "changed": False}}, "n4": {"copied": {"skipped": True}}})
    assert list(copies) == ["n2"]
    line = "n2: 74.9 GiB copied and compared in 101.4 s, 793 MB/s, 3.0 GiB of it by an earlier run; 1.0 GiB taken out of the page cache, 0 B left"
    assert model_copies.lines(copies) == [line]
    assert model_copies.reported(COPIED) == {name: COPIED[name] for name in model_copies.OF_COPY} and model_copies.reported(None) is None


def test_verified_files_are_reported() -> None:
    read = {"verified": {"files": 27, "bytes": 80 << 30, "seconds": 46.2, "without": 1}}
    assert model_copies.verified({"n1": {"verified": read}, "n2": {"verified": {"skipped": True}}, "n3": {}}) == [
        "n1: the digests of 27 file(s), 80.0 GiB, were recomputed in 46.2 s; 1 file(s) have none"
    ]
