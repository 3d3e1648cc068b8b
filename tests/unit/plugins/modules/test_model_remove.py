# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Exactly the named models are removed, or none; an interrupted removal continues."""

from __future__ import annotations

import json
import os
import types
import typing as t
from pathlib import Path

import pytest
import stack_tree
import through_ansible
from node_roots import rooted

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.modules import model_remove

from ..module_utils._model.test_hub_caches import COMMIT, OTHER, model
from ..module_utils._model.test_inventory import shared

THIRD = "a" * 40
OLD, NEW = f"org/tiny@{COMMIT}", f"org/tiny@{OTHER}"


class Node(t.NamedTuple):
    path: Path
    tree: stack_tree.Tree
    base: Path

    def call(self, *models: str, check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        defaults = {
            "models": list(models), "keep": {}, "elsewhere": [], "hf_home": str(self.path / "hf"), "state_dir": str(self.path / "state"), "lock_id": "",
            "cluster_name": "gb10", "max_files": 1000, "max_seconds": 60, "proc_root": str(self.tree.root),
        }  # fmt: skip
        return model_remove.work(types.SimpleNamespace(params=rooted({**defaults, **params}), check_mode=check))

    def files(self) -> set[str]:
        return {str(path.relative_to(self.path / "hf")) for path in (self.path / "hf").rglob("*")}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node without engines; its cache has two revisions that share their weights, and another model."""
    base = shared(tmp_path / "hf")
    (base / ".no_exist" / COMMIT).mkdir(parents=True)
    (base / ".no_exist" / COMMIT / "chat_template.json").touch()
    (base / "trees").mkdir()
    for commit in (COMMIT, OTHER):
        (base / "trees" / f"{commit}.json").touch()
    model(tmp_path / "hf/hub", repo="org/other")
    return Node(tmp_path, stack_tree.Tree(tmp_path / "proc"), base)


def refused(node: Node, *models: str, **params: t.Any) -> ClusterError:
    """Return the refusal of a removal that left everything as it was."""
    before = node.files()
    with pytest.raises(ClusterError) as caught:
        node.call(*models, **params)
    assert node.files() == before
    return caught.value


def test_a_revision_goes_and_what_another_one_has_stays(node: Node) -> None:
    weights = Path(os.readlink(node.base / "snapshots" / COMMIT / "model.safetensors")).name
    before = node.files()
    predicted = node.call(OLD, check=True)
    assert predicted["changed"] and predicted["removed"] == [OLD] and node.files() == before
    free = {name: path.stat().st_blocks * 512 for name in os.listdir(node.base / "blobs") if (path := node.base / "blobs" / name)}
    result = node.call(OLD)
    assert result["changed"] and result["removed"] == [OLD] and result["freed_bytes"] == predicted["freed_bytes"]
    assert set(os.listdir(node.base / "blobs")) == {weights, "fresh"}
    assert result["freed_bytes"] == sum(size for name, size in free.items() if name not in (weights, "fresh"))
    gone = before - node.files()
    assert all(name.startswith("hub/models--org--tiny/") for name in gone) and not any(OTHER in name for name in gone)
    assert os.listdir(node.base / "snapshots") == [OTHER] and (node.base / "refs/main").exists() and not os.listdir(node.base / ".no_exist")
    assert os.listdir(node.base / "trees") == [f"{OTHER}.json"]
    assert all(path.exists() for path in (node.base / "snapshots" / OTHER).iterdir())

    again = node.call(OLD)
    assert not again["changed"] and again["removed"] == [] and again["absent"] == [OLD] and again["diff"] == {"before": {"models": []}, "after": {"models": []}}


def test_with_its_last_revision_a_repository_goes_whole(node: Node) -> None:
    both = node.call(NEW, OLD)
    assert both["removed"] == [NEW, OLD] and not node.base.exists()
    assert (node.path / "hf/hub/models--org--other/snapshots" / COMMIT / "config.json").exists()


def test_leftovers_go_alone_and_keep_the_repository_while_they_stay(node: Node) -> None:
    orphan = node.base / "blobs/orphan.incomplete"
    orphan.write_bytes(b"123")
    os.utime(orphan, (1, 1))
    node.call(OLD, NEW)
    assert node.files() >= {"hub/models--org--tiny/blobs/orphan.incomplete"}
    result = node.call("org/tiny@leftovers")
    assert result["changed"] and not node.base.exists() and not node.call("org/tiny@leftovers")["changed"]


@pytest.mark.parametrize("after", range(8))
def test_a_removal_that_died_is_finished_by_the_next_one(node: Node, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    class Died(Exception):
        pass

    calls, real = [], {name: getattr(os, name) for name in ("unlink", "rmdir")}

    def dying(name: str) -> t.Callable[..., None]:
        def call(*arguments: t.Any, **more: t.Any) -> None:
            if len(calls) >= after:
                raise Died
            calls.append(arguments)
            real[name](*arguments, **more)
        return call

    with monkeypatch.context() as patched:
        for name in real:
            patched.setattr(os, name, dying(name))
        with pytest.raises(Died):
            node.call(OLD)
    assert all(path.exists() for path in (node.base / "snapshots" / OTHER).iterdir()), "the other revision is whole at every moment"
    result = node.call(OLD)
    assert result["changed"] and result["removed"] == [OLD]
    assert os.listdir(node.base / "snapshots") == [OTHER] and len(os.listdir(node.base / "blobs")) == 2
    assert not node.call(OLD)["changed"]


def test_what_is_served_or_kept_stays_and_with_it_all_that_was_asked_for(node: Node) -> None:
    node.tree.process(10, 1, ["vllm", "serve", "org/tiny", "--revision", OTHER])
    error = refused(node, OLD, NEW)
    assert [(item["id"], item["verdict"]) for item in error.details["findings"]] == [("models.in_use", "block")] and "(pid 10)" in str(error) and error.remedy
    assert "wanted by the profile" in str(refused(node, OLD, keep={OLD: "wanted by the profile of this cluster, x"}))
    assert node.call(OLD)["changed"]


def test_an_engine_that_does_not_say_what_it_has_may_have_it(node: Node) -> None:
    node.tree.process(20, 1, ["/usr/lib/raylet", "--gcs-address=10.0.0.11:6379"], cgroup="0::/docker/" + "a" * 64)
    node.tree.process(21, 20, ["ray::RayWorkerWrapper"], cgroup="0::/docker/" + "a" * 64)
    error = refused(node, OLD)
    assert [(finding["id"], finding["verdict"]) for finding in error.details["findings"]] == [("models.unknown", "unknown")]
    assert node.call(OLD, elsewhere=["ray 10.0.0.11:6379"])["changed"]


def test_a_download_that_may_still_run_keeps_its_repository(node: Node) -> None:
    (node.base / "blobs/x.incomplete").write_bytes(b"1")
    assert "may still run: x.incomplete" in str(refused(node, OLD)) and "may still run" in str(refused(node, "org/tiny@leftovers"))
    assert node.call(f"org/other@{COMMIT}")["changed"]


def test_what_is_only_partly_known_stays(node: Node) -> None:
    (node.base / "snapshots" / OTHER / "evil").symlink_to("/etc/passwd")
    error = refused(node, OLD)
    assert error.details["findings"][0]["id"] == "models.unknown" and "leads out of the repository" in str(error)
    assert "ended after 3 files" in str(refused(node, OLD, max_files=3))


def test_nothing_outside_goes_whatever_lies_in_the_place_of_a_directory(node: Node) -> None:
    outside = node.path / "outside"
    (outside / "snapshots" / THIRD).mkdir(parents=True)
    (outside / "snapshots" / THIRD / "file").touch()
    (node.path / "hf/hub/models--org--link").symlink_to(outside)
    with pytest.raises(untrusted.Tampered):
        node.call(f"org/link@{THIRD}")
    assert (outside / "snapshots" / THIRD / "file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to be led anywhere")
def test_a_cache_that_is_replaced_by_a_link_meanwhile_is_not_followed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner would have root remove the same model of another account."""
    theirs = shared(node.path / "theirs").parents[1]
    home = node.path / "hf"
    for entry in [home, *home.rglob("*")]:
        os.chown(entry, 4711, 4711, follow_symlinks=False)

    def swap(*_given: t.Any) -> None:
        home.rename(node.path / "gone")
        home.symlink_to(theirs)
        os.chown(home, 4711, 4711, follow_symlinks=False)

    monkeypatch.setattr(model_remove, "require_removable", swap)
    before = sorted(theirs.rglob("*"))
    with pytest.raises(ClusterError) as caught:
        node.call(OLD)
    assert caught.value.reason == "owner" and sorted(theirs.rglob("*")) == before


def test_a_lost_lock_stops_it(node: Node) -> None:
    with pytest.raises(ClusterError) as caught:
        node.call(OLD, lock_id="0123456789abcdef")
    assert caught.value.reason == cluster_locks.LOST and (node.base / "snapshots" / COMMIT).exists()


def test_what_was_never_there_changes_nothing(node: Node) -> None:
    result = node.call(f"org/none@{COMMIT}", f"org/tiny@{THIRD}", "org/tiny@leftovers")
    assert not result["changed"] and len(result["absent"]) == 3 and "nothing to remove" in result["msg"]
    with pytest.raises(ClusterError, match="does not name a model"):
        node.call("org/tiny@main")


def test_who_may_not_be_asked_could_use_it(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(pid: int, proc: str) -> set[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(model_remove.model_use, "opened_files", denied)
    assert "may not be asked" in str(refused(node, OLD))


def test_through_ansible(node: Node) -> None:
    roots = {"proc_root": str(node.tree.root)}
    arguments = {"hf_home": str(node.path / "hf"), "state_dir": str(node.path / "state"), "models": [OLD], "roots": roots}
    command = ("adhoc", "localhost", "-c", "local", "-m", "gb10.cluster.model_remove", "-a", json.dumps(arguments))
    predicted = through_ansible.run(*command, "--check", "--diff")
    assert predicted.rc == 0 and "CHANGED" in predicted.out and (node.base / "snapshots" / COMMIT).exists(), predicted.out
    ran = through_ansible.run(*command)
    assert ran.rc == 0 and "CHANGED" in ran.out and OLD in ran.out and not (node.base / "snapshots" / COMMIT).exists(), ran.out
    again = through_ansible.run(*command)
    assert again.rc == 0 and "SUCCESS" in again.out and "nothing to remove" in again.out, again.out
