# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Models in hub caches: which, complete or not, how large."""

from __future__ import annotations

import json
import os
import struct

import hypothesis
import hypothesis.strategies as st
import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._model import hub_caches
from ansible_collections.gb10.cluster.plugins.module_utils._sections import Sections

COMMIT, OTHER = "0123456789abcdef" * 2 + "01234567", "f" * 40


def tensors(size=16):
    header = json.dumps({"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(size)


def model(root, repo="org/tiny", commit=COMMIT, ref="main", **files):
    """Put a model into a hub cache the way its client does: blobs, and links to them."""
    base = root / ("models--" + repo.replace("/", "--"))
    snapshot = base / "snapshots" / commit
    (base / "blobs").mkdir(parents=True, exist_ok=True)
    snapshot.mkdir(parents=True)
    content = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": tensors(), **{name.replace("__", "."): data for name, data in files.items()}}
    for number, (name, data) in enumerate(content.items()):
        if data is not None:
            blob = base / "blobs" / f"{commit[:8]}{number}"
            blob.write_bytes(data)
            (snapshot / name).symlink_to(f"../../blobs/{blob.name}")
    if ref:
        (base / "refs").mkdir(exist_ok=True)
        (base / "refs" / ref).write_text(commit)
    return snapshot


def look(*roots):
    sections = Sections()
    return hub_caches.models([str(root) for root in roots], sections.section("models")), sections.errors


def test_a_complete_model(tmp_path):
    snapshot = model(tmp_path / "hub")
    ((entry,), errors) = look(tmp_path)
    assert errors == [] and entry == {
        "repo": "org/tiny",
        "revision": COMMIT,
        "refs": ["main"],
        "complete": True,
        "missing": [],
        "unfinished": 0,
        "unfinished_bytes": 0,
        "bytes": 4 + len(tensors()),
        "path": str(snapshot),
    }


def test_the_hub_itself_may_be_the_root_and_counts_once(tmp_path):
    model(tmp_path / "hub")
    (tmp_path / "link").symlink_to("hub")
    (tmp_path / "hub/datasets--org--x").mkdir()
    (tmp_path / "hub/.locks").mkdir()
    models, errors = look(tmp_path / "hub", tmp_path, tmp_path / "link")
    assert len(models) == 1 and errors == []


def test_an_absent_root_has_no_models(tmp_path):
    (tmp_path / "file").write_text("x")
    assert look(tmp_path / "absent", tmp_path, tmp_path / "file") == ([], [])


def test_a_copy_that_was_cut_off(tmp_path):
    model(tmp_path, model__safetensors=tensors()[:-1])
    ((entry,), _errors) = look(tmp_path)
    assert entry["complete"] is False and entry["missing"] == ["model.safetensors"]


def test_files_that_are_missing(tmp_path):
    index = json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}).encode()
    files = {"model.safetensors.index.json": index, "model-00001-of-00002.safetensors": tensors(), "model.safetensors": None, "tokenizer.json": None}
    model(tmp_path, **files)
    ((entry,), _errors) = look(tmp_path)
    assert entry["complete"] is False and entry["missing"] == ["model-00002-of-00002.safetensors", "tokenizer.json"]


def test_parts_without_their_index(tmp_path):
    model(tmp_path, **{"model-00001-of-00002.safetensors": tensors(), "model.safetensors": None})
    ((entry,), _errors) = look(tmp_path)
    assert entry["complete"] is False and entry["missing"] == ["model.safetensors.index.json"]


@pytest.mark.parametrize("name", ["x-Q4_K_M.gguf", "pytorch_model.bin", "adapter_model.safetensors"])
def test_other_formats_than_safetensors_are_not_judged(tmp_path, name):
    model(tmp_path, **{"model.safetensors": None, "config.json": None, name: b"12345"})
    ((entry,), errors) = look(tmp_path)
    assert entry["complete"] is None and entry["missing"] == [] and entry["bytes"] == 7 and errors == []


def test_two_revisions_and_a_download_that_runs(tmp_path):
    model(tmp_path)
    model(tmp_path, commit=OTHER, ref="pr1", model__safetensors=None)
    (tmp_path / "models--org--tiny/blobs/aa.incomplete").write_bytes(b"1")
    (tmp_path / "models--org--tiny/snapshots/not-a-commit").mkdir()
    models, _errors = look(tmp_path)
    assert [(entry["revision"], entry["refs"], entry["complete"], entry["unfinished"], entry["unfinished_bytes"]) for entry in models] == [
        (COMMIT, ["main"], True, 1, 1),
        (OTHER, ["pr1"], False, 1, 1),
    ]


def test_a_download_that_has_just_begun(tmp_path):
    (tmp_path / "models--gpt2/blobs").mkdir(parents=True)
    (tmp_path / "models--gpt2/blobs/aa.incomplete").write_bytes(b"123")
    ((entry,), _errors) = look(tmp_path)
    assert (entry["repo"], entry["revision"], entry["complete"], entry["unfinished"], entry["bytes"]) == ("gpt2", None, False, 1, 3)
    assert entry["unfinished_bytes"] == 0, "they are its bytes already"


def test_unreadable_directories_are_reported_and_the_rest_is_listed(tmp_path, monkeypatch):
    model(tmp_path)
    model(tmp_path, repo="org/secret")
    listdir = os.listdir

    def denied(path="."):
        if "secret" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", denied)
    models, (error,) = look(tmp_path)
    assert [entry["repo"] for entry in models] == ["org/tiny"] and "secret" in error["error"] and "become" in error["remedy"]


def test_a_file_that_may_not_be_read_leaves_complete_open(tmp_path, monkeypatch):
    model(tmp_path)

    def denied(_path):
        raise UnknownState("no", remedy="Run the task with become: true.")

    monkeypatch.setattr(hub_caches, "judged", denied)
    ((entry,), errors) = look(tmp_path)
    assert entry["complete"] is None and len(errors) == 1


@pytest.mark.parametrize("content", ["{", "[]", '{"weight_map": {}}', '{"weight_map": {"a": 1}}', "\0", "[" * 100_000])
def test_an_index_that_cannot_be_read_is_incomplete(tmp_path, content):
    model(tmp_path, **{"model.safetensors.index.json": content.encode()})
    ((entry,), errors) = look(tmp_path)
    assert entry["complete"] is False and entry["missing"] == ["model.safetensors.index.json"] and errors == []


@hypothesis.settings(deadline=None, derandomize=True, database=None, max_examples=60, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(st.sampled_from(["config.json", "model.safetensors.index.json", "model.safetensors"]), st.integers(0, 120), st.binary(max_size=20))
def test_no_file_is_too_strange(tmp_path_factory, name, start, put):
    content = {
        "config.json": b'{"architectures": ["X"], "text_config": {}}',
        "model.safetensors": tensors(),
        "model.safetensors.index.json": b'{"weight_map": {"a": "model.safetensors"}}',
    }[name]
    root = tmp_path_factory.mktemp("cache")
    model(root, **{name: content[:start] + put + content[start + len(put):]})
    ((entry,), errors) = look(root)
    assert entry["complete"] in (True, False) or errors


def test_an_index_that_leads_out_of_the_model_is_reported(tmp_path):
    model(tmp_path, **{"model.safetensors.index.json": b'{"weight_map": {"a": "../../../etc/passwd"}}'})
    ((entry,), errors) = look(tmp_path)
    assert entry["complete"] is None and "inside the model" in errors[0]["error"]


def test_a_root_may_be_a_pattern(tmp_path):
    for user in ("ann", "bob", ".trash"):
        model(tmp_path / user / ".cache" / "huggingface" / "hub", repo=f"org/{user.strip('.')}")
    (tmp_path / "carl").mkdir()
    (tmp_path / "notes.txt").write_text("no home")
    models, errors = look(tmp_path / "*" / ".cache" / "huggingface")
    assert [entry["repo"] for entry in models] == ["org/ann", "org/bob"] and errors == []
    models, errors = look(tmp_path / "[b]o?" / ".cache" / "*")
    assert [entry["repo"] for entry in models] == ["org/bob"] and errors == []
    assert look(tmp_path / "*" / "nowhere" / "*") == ([], [])


def test_a_pattern_reports_unreadable_directories(tmp_path):
    model(tmp_path / "ann" / "hub")
    (tmp_path / "bob").symlink_to("bob")  # a loop, which not even root can open
    models, errors = look(tmp_path / "*" / "hub")
    assert len(models) == 1 and len(errors) == 1
    assert "bob/hub" in errors[0]["error"]


def test_a_directory_that_looks_like_a_pattern_is_itself(tmp_path):
    model(tmp_path / "a[1]")
    assert len(look(tmp_path / "a[1]")[0]) == 1
