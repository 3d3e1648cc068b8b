# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The list of a node's models; how trees and processes are read is tested with their parts."""

from __future__ import annotations

import json
import types
import typing as t
from pathlib import Path

import pytest
import stack_tree
import through_ansible
from node_roots import rooted

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.modules import model_inventory_info

from ..module_utils._model.test_hub_caches import COMMIT, OTHER, model, tensors


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node without engines, with one model in its cache."""
    stack_tree.Tree(tmp_path / "proc")
    model(tmp_path / "hf/hub")
    return tmp_path


def call(node: Path, **params: t.Any) -> dict[str, t.Any]:
    defaults = {"hf_home": str(node / "hf"), "directories": [], "models": [], "state_dir": str(node / "state"), "max_files": 1000, "max_seconds": 60}
    given = rooted({**defaults, "proc_root": str(node / "proc"), **params})
    return model_inventory_info.work(types.SimpleNamespace(params=given, check_mode=False))


def test_the_own_cache(node: Path) -> None:
    result = call(node)
    (revision,) = result["models"]
    assert result["errors"] == [] and result["bytes"] == revision["bytes"] == 4 + len(tensors())
    assert {**revision, "written": "", "frees": 0} == {
        "kind": "hub", "root": str(node / "hf"), "own": True, "repo": "org/tiny", "revision": COMMIT, "refs": ["main"], "complete": True, "missing": [],
        "broken": [], "files": 3, "bytes": 4 + len(tensors()), "frees": 0, "written": "", "doubts": [], "in_use": [], "last_run": None, "named": [],
        "path": str(node / "hf/hub/models--org--tiny/snapshots" / COMMIT),
    }  # fmt: skip
    assert revision["written"].endswith("Z")


def test_other_caches_and_plain_directories_are_listed_only_when_named(node: Path) -> None:
    model(node / "home/other/.cache/huggingface/hub", repo="org/theirs")
    (node / "models/plain").mkdir(parents=True)
    (node / "models/plain/config.json").write_text("{}")
    assert [entry["repo"] for entry in call(node)["models"]] == ["org/tiny"]
    named = call(node, directories=[f"{node}/home/*/.cache/huggingface", str(node / "models"), str(node / "none"), str(node / "hf")])
    assert [(entry["repo"], entry["own"], entry["kind"]) for entry in named["models"]] == [
        ("org/tiny", True, "hub"), ("org/theirs", False, "hub"), (None, False, "directory"),
    ]  # fmt: skip
    assert named["absent"] == [str(node / "none")] and named["bytes"] == sum(entry["bytes"] for entry in named["models"])


def test_a_named_directory_is_listed_once_wherever_it_lies(node: Path) -> None:
    plain, empty, link = node / "models/plain", node / "empty", node / "link"
    plain.mkdir(parents=True)
    empty.mkdir()
    (plain / "config.json").write_text("{}")
    link.symlink_to(plain)
    named = [str(path) for path in (plain, empty, link, node / "none")]
    alone, within = call(node, models=named), call(node, models=named, directories=[str(node / "models")])
    for result in (alone, within):
        assert {entry["path"]: entry["named"] for entry in result["models"] if entry["kind"] == "directory"} == {
            str(plain): [str(plain), str(link)], str(empty): [str(empty)],
        }  # fmt: skip
        assert result["absent"] == [str(node / "none")] and result["errors"] == []
        assert result["bytes"] == sum(entry["bytes"] for entry in result["models"])
    assert next(entry for entry in alone["models"] if entry["path"] == str(empty))["complete"] is False


def test_a_named_directory_in_the_cache_is_the_revision(node: Path) -> None:
    (node / "link").symlink_to(node / "hf/hub/models--org--tiny/snapshots" / COMMIT)
    (revision,) = call(node, models=[str(node / "link")])["models"]
    assert revision["revision"] == COMMIT and revision["named"] == [str(node / "link")]


def test_what_cannot_be_read_as_a_whole_is_only_partly_known_and_hides_nothing(node: Path) -> None:
    model(node / "hf/hub", repo="org/whole")
    (node / "hf/hub/models--org--link").symlink_to(node / "hf/hub/models--org--tiny")
    result = call(node)
    by_repo = {entry["repo"]: entry for entry in result["models"]}
    assert by_repo["org/link"]["doubts"] and by_repo["org/link"]["revision"] is None and by_repo["org/whole"]["complete"]
    assert [error["section"] for error in result["errors"]] == ["hf_home"]


def test_the_limits(node: Path) -> None:
    result = call(node, max_files=2)
    assert result["models"][0]["revision"] is None and "ended after 2 files" in result["errors"][0]["error"]
    with pytest.raises(ClusterError, match="max_files"):
        call(node, max_files=0)


def test_an_index_that_names_files_outside_leads_nowhere(node: Path) -> None:
    index = json.dumps({"weight_map": {"a": "../../../../../../etc/passwd"}}).encode()
    model(node / "hf/hub", repo="org/evil", **{"model.safetensors.index.json": index})
    result = call(node)
    assert next(entry["complete"] for entry in result["models"] if entry["repo"] == "org/evil") is None
    assert "must be a path inside the model" in result["errors"][0]["error"]


def test_a_process_that_serves_it(node: Path) -> None:
    model(node / "hf/hub", commit=OTHER, ref="")
    tree = stack_tree.Tree.__new__(stack_tree.Tree)
    tree.root, tree.network, tree.tcp, tree._inode = node / "proc", stack_tree.HOST_NETWORK, [], 1
    tree.process(10, 1, ["vllm", "serve", "org/tiny", "--revision", COMMIT])
    result = call(node)
    assert {entry["revision"]: bool(entry["in_use"]) for entry in result["models"]} == {COMMIT: True, OTHER: False}
    assert result["unnamed"] == [] and result["named_stacks"] == []


def test_through_ansible(node: Path) -> None:
    arguments = json.dumps({"hf_home": str(node / "hf"), "state_dir": str(node / "state"), "roots": {"proc_root": str(node / "proc")}})
    ran = through_ansible.run("adhoc", "localhost", "-c", "local", "-m", "gb10.cluster.model_inventory_info", "-a", arguments)
    assert ran.rc == 0, ran.out
    assert "SUCCESS" in ran.out and f"revision: {COMMIT}" in ran.out and "changed: false" in ran.out, ran.out
