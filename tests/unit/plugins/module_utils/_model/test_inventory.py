# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The contents of hub caches and plain directories, file by file, on trees like those of the hub's client."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._model import hub_caches, inventory

from .test_hub_caches import COMMIT, OTHER, model, tensors


def shared(root: Path) -> Path:
    """Two revisions of a repository that share their weights; returns the repository."""
    model(root / "hub")
    base = root / "hub/models--org--tiny"
    newer = base / "snapshots" / OTHER
    newer.mkdir()
    (newer / "model.safetensors").symlink_to(os.readlink(base / "snapshots" / COMMIT / "model.safetensors"))
    (base / "blobs/fresh").write_bytes(b"{}")
    for name in ("config.json", "tokenizer.json"):
        (newer / name).symlink_to("../../blobs/fresh")
    (base / "refs/main").write_text(OTHER)
    return base


def look(root: Path, limits: inventory.Limits | None = None) -> inventory.Repository:
    return inventory.read_repository(str(root), "hub/models--org--tiny", limits or inventory.Limits(100000, 3600))


def listed(repository: inventory.Repository) -> dict[t.Any, dict[str, t.Any]]:
    return {entry["revision"]: entry for entry in inventory.entries_of(repository, hub_caches.judged)}


def disk(*paths: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in paths)


def test_a_shared_file_counts_for_each_revision_and_no_single_one_frees_it(tmp_path: Path) -> None:
    base = shared(tmp_path)
    repository = look(tmp_path)
    entries = listed(repository)
    weights = Path(os.readlink(base / "snapshots" / COMMIT / "model.safetensors")).name
    assert set(entries) == {COMMIT, OTHER}
    assert entries[COMMIT]["bytes"] == 4 + len(tensors()) and entries[OTHER]["bytes"] == 2 + len(tensors())
    assert entries[COMMIT]["complete"] and entries[OTHER]["complete"] and entries[OTHER]["refs"] == ["main"] and entries[COMMIT]["refs"] == []
    assert weights not in repository.going([COMMIT]) and weights not in repository.going([OTHER]) and weights in repository.going([COMMIT, OTHER])
    assert entries[OTHER]["frees"] == disk(base / "blobs/fresh")
    assert repository.size() == sum(path.stat().st_size for path in (base / "blobs").iterdir())


def test_leftovers_are_the_blobs_without_a_revision(tmp_path: Path) -> None:
    base = shared(tmp_path)
    (base / "blobs/aa.incomplete").write_bytes(b"123")
    (base / "blobs/orphan").write_bytes(b"12345")
    repository = look(tmp_path)
    left = listed(repository)[inventory.LEFTOVERS]
    assert left["bytes"] == 8 and left["missing"] == ["aa.incomplete"] and left["complete"] is False and left["doubts"] == []
    assert repository.going([inventory.LEFTOVERS]) == ["aa.incomplete", "orphan"]
    assert left["frees"] == disk(base / "blobs/aa.incomplete", base / "blobs/orphan")
    now = (base / "blobs/aa.incomplete").stat().st_mtime
    assert repository.unfinished(now + 1) == ["aa.incomplete"] and repository.unfinished(now + inventory.RUNNING + 1) == []


def test_links_with_an_absent_file_are_broken_and_not_a_doubt(tmp_path: Path) -> None:
    base = shared(tmp_path)
    (base / "blobs/fresh").unlink()
    entry = listed(look(tmp_path))[OTHER]
    assert entry["broken"] == ["config.json", "tokenizer.json"] and entry["complete"] is False and entry["doubts"] == []


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../../secret", "../../blobs/../../../secret", "../../blobs", "../../blobs/a/b"])
def test_a_link_that_leads_out_is_not_followed(tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base = shared(tmp_path)
    (base / "snapshots" / OTHER / "evil.json").symlink_to(target)
    opened = []
    monkeypatch.setattr(hub_caches, "judged", lambda path: opened.append(path) or (True, []))
    entries = {entry["revision"]: entry for entry in inventory.entries_of(look(tmp_path), hub_caches.judged)}
    assert entries[OTHER]["complete"] is None and "leads out of the repository" in entries[OTHER]["doubts"][0]
    assert entries[COMMIT]["complete"] and opened == [str(base / "snapshots" / COMMIT)]


def test_a_link_with_an_absolute_path_to_its_own_blob_is_one(tmp_path: Path) -> None:
    base = shared(tmp_path)
    (base / "snapshots" / OTHER / "more.json").symlink_to(base / "blobs/fresh")
    assert listed(look(tmp_path))[OTHER]["doubts"] == []


def put_fifo(base: Path) -> None:
    os.mkfifo(base / "blobs/pipe")


def put_link_for_blobs(base: Path) -> None:
    (base / "blobs/link").symlink_to("/etc/passwd")


def put_link_for_snapshot(base: Path) -> None:
    (base / "snapshots" / ("a" * 40)).symlink_to(base / "snapshots" / COMMIT)


def put_device_like(base: Path) -> None:
    os.mkfifo(base / "snapshots" / COMMIT / "pipe")


def put_link_for_ref(base: Path) -> None:
    (base / "refs/pr").symlink_to("/etc/shadow")


@pytest.mark.parametrize("put", [put_fifo, put_link_for_blobs, put_link_for_snapshot, put_device_like, put_link_for_ref])
def test_unknown_entries_are_a_doubt(tmp_path: Path, put: t.Callable[[Path], None]) -> None:
    base = shared(tmp_path)
    put(base)
    repository = look(tmp_path)
    assert repository.doubts and listed(repository)[COMMIT]["doubts"] and listed(repository)[COMMIT]["complete"] is None


def test_a_copy_without_links_is_a_revision_too(tmp_path: Path) -> None:
    snapshot = tmp_path / "hub/models--org--tiny/snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for name, content in (("config.json", b"{}"), ("tokenizer.json", b"{}"), ("model.safetensors", tensors())):
        (snapshot / name).write_bytes(content)
    entry = listed(look(tmp_path))[COMMIT]
    assert entry["complete"] and entry["frees"] == disk(*snapshot.iterdir()) and entry["bytes"] == 4 + len(tensors())


def test_the_look_ends_at_its_limits(tmp_path: Path) -> None:
    shared(tmp_path)
    few = inventory.Limits(3, 100)
    with pytest.raises(UnknownState, match="after 3 files and directories"):
        look(tmp_path, few)
    with pytest.raises(UnknownState, match="after 3 files"):
        few.check()
    times = iter([0.0, 1.0, 99.0, 101.0])
    slow = inventory.Limits(100, 100, lambda: next(times))
    with pytest.raises(UnknownState, match="after 100 seconds"):
        look(tmp_path, slow)


def test_a_hub_that_is_a_link_is_named_and_not_followed(tmp_path: Path) -> None:
    shared(tmp_path / "disk")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/hub").symlink_to(tmp_path / "disk/hub")
    with pytest.raises(UnknownState, match="is a link to") as caught:
        inventory.repositories(str(tmp_path / "home"))
    assert str(tmp_path / "disk/hub") in caught.value.remedy
    assert inventory.repositories(str(tmp_path / "disk")) == ["hub/models--org--tiny"] and inventory.repositories(str(tmp_path / "absent")) == []
    assert inventory.repositories(str(tmp_path / "disk/hub")) == ["models--org--tiny"]


def test_a_repository_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    base = shared(tmp_path)
    (tmp_path / "hub/models--org--other").symlink_to(base)
    with pytest.raises(untrusted.Tampered):
        inventory.read_repository(str(tmp_path), "hub/models--org--other", inventory.Limits(100000, 3600))


@pytest.mark.parametrize(("text", "repo", "revision"), [
    (f"org/name@{COMMIT}", "org/name", COMMIT), (f" gpt2@{COMMIT} ", "gpt2", COMMIT), ("org/na-me_1.5@leftovers", "org/na-me_1.5", "leftovers"),
])
def test_a_request_names_repository_and_revision(text: str, repo: str, revision: str) -> None:
    assert inventory.parse_request(text) == (repo, revision)


@pytest.mark.parametrize(
    "text", ["", "org/name", "org/name@main", f"org/name@{COMMIT[:12]}", f"../x@{COMMIT}", f"a/b/c@{COMMIT}", f"org/name@{COMMIT}x", "@leftovers"]
)
def test_an_invalid_request_is_refused(text: str) -> None:
    with pytest.raises(ClusterError, match="does not name a model") as caught:
        inventory.parse_request(text)
    assert caught.value.remedy


def test_plain_directories(tmp_path: Path) -> None:
    whole = tmp_path / "org/whole"
    (whole / "sub").mkdir(parents=True)
    for name, content in (("config.json", b"{}"), ("tokenizer.json", b"{}"), ("model.safetensors", tensors()), ("sub/config.json", b"{}")):
        (whole / name).write_bytes(content)
    (tmp_path / "half").mkdir()
    (tmp_path / "half/config.json").write_bytes(b"{}")
    (tmp_path / "a.Q4.gguf").write_bytes(b"12345")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/config.json").symlink_to("/etc/passwd")
    (tmp_path / ".cache/huggingface").mkdir(parents=True)
    (tmp_path / ".cache/huggingface/config.json").write_bytes(b"{}")
    models = {entry["path"]: entry for entry in inventory.plain_models(str(tmp_path), list(untrusted.walk(str(tmp_path))), hub_caches.judged)}
    assert set(models) == {str(tmp_path), str(whole), str(tmp_path / "half"), str(tmp_path / "linked")}
    assert models[str(whole)]["complete"] and models[str(whole)]["bytes"] == 6 + len(tensors()) and models[str(whole)]["files"] == 4
    assert models[str(tmp_path / "half")]["complete"] is False and "model.safetensors" in models[str(tmp_path / "half")]["missing"]
    assert models[str(tmp_path)]["complete"] is None and models[str(tmp_path)]["bytes"] == 5
    assert models[str(tmp_path / "linked")]["complete"] is None and "linked/config.json" in models[str(tmp_path / "linked")]["doubts"][0]
    assert all(entry["repo"] is None and entry["frees"] == 0 for entry in models.values())


def test_unprintable_characters_are_replaced() -> None:
    assert inventory.printable({"a": ["x\x1b[31m", {"b": "y\udcff\n"}], "c": 1, "d": None}) == {"a": ["x?[31m", {"b": "y??"}], "c": 1, "d": None}
