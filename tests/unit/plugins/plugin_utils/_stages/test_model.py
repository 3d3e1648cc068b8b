# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All nodes load the same model."""

from __future__ import annotations

import pytest
from stage_answers import PROFILE, stopping

from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import validation
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import model as stage


def model(revision, complete=True):
    findings = [{"id": "model.complete", "node": "the-machine", "verdict": "pass", "message": ""}]
    row = {"repo": PROFILE["model"]["repo"], "revision": revision, "complete": complete, "size_bytes": 10}
    return {**row, "findings": findings, "repositories": [row]}


@pytest.mark.parametrize(
    ("second", "ids"),
    [(model("a" * 40), set()), (model("b" * 40), {"model.same"}), (model("b" * 40, complete=False), set())],
)
def test_all_nodes_load_one_revision(second, ids):
    assert stopping(stage.models({"spark-1": model("a" * 40), "spark-2": second}, PROFILE)) == ids


@pytest.mark.parametrize(("listing", "ids"), [("1" * 64, set()), ("2" * 64, {"model.same"})])
def test_a_plain_directory_holds_the_same_on_all_nodes(listing, ids):
    """A plain directory has no commit, so the names and sizes of its files are compared."""
    profile, problems = validation.validate(
        {"schema": 1, "id": "p", "model": {"path": "/m/x"}, "image": {"base": "r/i:1", "layers": []}, "parallel": {"tensor": 2}}
    )
    assert problems == []
    row = {"name": "model", "repo": "/m/x", "purpose": "model", "revision": None, "complete": True, "size_bytes": 10, "files": []}
    answers = {name: {"findings": [], "repositories": [{**row, "listing": digest}]} for name, digest in (("spark-1", "1" * 64), ("spark-2", listing))}
    assert stopping(stage.models(answers, profile)) == ids
