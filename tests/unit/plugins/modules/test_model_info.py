# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The result of model_info about a model; its parts have their own tests."""

from __future__ import annotations

import json
import os
import struct
import types

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.modules import model_info

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def snapshot(tmp_path):
    directory = tmp_path / "hub/models--org--name/snapshots" / COMMIT
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps({"architectures": ["A"], "num_attention_heads": 4}))
    (directory / "tokenizer.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    return directory


def call(check=False, **params):
    absent = dict.fromkeys(("repo", "revision", "hf_home", "path", "state_dir", "token_file", "repositories"))
    defaults = {**absent, "side_files": [], "verify": "quick"}
    return model_info.work(types.SimpleNamespace(params={**defaults, **params}, check_mode=check))


def test_a_complete_model(snapshot, tmp_path):
    result = call(repo="org/name", revision=COMMIT, hf_home=str(tmp_path))
    assert result["verdict"] == "pass" and result["present"] and result["complete"] and result["missing"] == []
    assert result["revision"] == COMMIT and result["snapshot_path"] == str(snapshot)
    assert result["snapshot_relpath"] == f"hub/models--org--name/snapshots/{COMMIT}"
    assert result["shards"] == ["model.safetensors"] and result["facts"]["num_attention_heads"] == 4
    assert result["size_bytes"] == sum(path.stat().st_size for path in snapshot.iterdir())
    assert [finding["id"] for finding in result["findings"]] == ["model.complete"]


def test_an_absent_model(tmp_path):
    result = call(repo="org/name", hf_home=str(tmp_path))
    assert result["verdict"] == "block" and not result["present"] and not result["complete"]
    assert result["snapshot_path"] is None and result["size_bytes"] == 0
    assert "there is no org/name (revision main)" in result["msg"] and result["remedy"]


def test_what_lies_around_it(snapshot, tmp_path):
    token = tmp_path / "hf_token"
    params = {"repo": "org/name", "revision": COMMIT, "hf_home": str(tmp_path), "token_file": str(token)}
    assert (call(**params)["cache_exists"], call(**params)["token_left"]) == (True, False)
    token.write_text("")
    assert call(**params)["token_left"]
    own = tmp_path.stat()
    assert call(**params)["download_as"] == {"uid": own.st_uid, "gid": own.st_gid, "because": ""}
    assert not call(**{**params, "hf_home": str(tmp_path / "none")})["cache_exists"]
    plain = call(path=str(snapshot))
    assert plain["cache_exists"] and not plain["token_left"]


def test_a_missing_side_file(snapshot, tmp_path):
    result = call(repo="org/name", revision=COMMIT, hf_home=str(tmp_path), side_files=["parser.py"])
    assert result["present"] and not result["complete"] and result["missing"] == ["parser.py"]
    assert [(finding["id"], finding["verdict"]) for finding in result["findings"]] == [("model.missing", "block")]


def test_a_download_beside_a_complete_model_only_warns(snapshot, tmp_path):
    blobs = snapshot.parents[1] / "blobs"
    blobs.mkdir()
    (blobs / "x.incomplete").touch()
    (blobs / "x.incomplete").write_bytes(b"123")
    result = call(repo="org/name", revision=COMMIT, hf_home=str(tmp_path))
    assert result["complete"] and result["verdict"] == "pass" and result["incomplete_blobs"] == ["x.incomplete"]
    assert [row["unfinished_bytes"] for row in result["repositories"]] == [3] and result["free_bytes"] > 0
    assert [finding["verdict"] for finding in result["findings"]] == ["warn"]


def test_a_plain_directory(snapshot, tmp_path):
    result = call(path=str(snapshot))
    assert result["complete"] and result["revision"] is None and result["snapshot_relpath"] is None and result["free_bytes"] is None
    assert not call(path=str(tmp_path / "none"))["present"]


def test_what_the_code_is_gets_noted_once_it_is_complete(snapshot, tmp_path):
    params = {"repo": "org/name", "revision": COMMIT, "hf_home": str(tmp_path), "state_dir": str(tmp_path / "state")}
    note = tmp_path / "state/model-code/models--org--name" / f"{COMMIT}.code.json"
    (snapshot / "modeling.py").write_text("x = 1")
    call(**params, side_files=["absent.py"])
    call(check=True, **params)
    assert not note.exists()
    call(**params)
    assert list(json.loads(note.read_text())["files"]) == ["modeling.py"]
    (snapshot / "modeling.py").write_text("x = 2")
    changed = call(**params)
    assert changed["verdict"] == "block" and changed["complete"]
    assert "modeling.py was replaced on this node" in changed["msg"] and any(f"remove {note}" in finding["remedy"] for finding in changed["findings"])
    assert list(json.loads(note.read_text())["files"]) == ["modeling.py"]


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to be led anywhere")
@pytest.mark.parametrize("link", [".cache", ".cache/huggingface"])
@pytest.mark.parametrize("target", ["etc", "etc/absent"])
def test_a_cache_behind_a_users_link_to_what_is_roots_is_refused_before_a_download(tmp_path, link, target):
    (tmp_path / "etc").mkdir()
    path = tmp_path / "home" / link
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / target)
    for entry in [tmp_path / "home", *(tmp_path / "home").rglob("*")]:
        os.chown(entry, 4711, 4711, follow_symlinks=False)
    with pytest.raises(ClusterError) as caught:
        call(repo="org/name", revision=COMMIT, hf_home=str(tmp_path / "home/.cache/huggingface"))
    assert str(path) in caught.value.remedy and caught.value.reason in ("owner", "link")


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to be led anywhere")
def test_what_is_complete_is_not_written_to_and_needs_no_owner(snapshot, tmp_path):
    os.chown(tmp_path / "hub", 4711, 4711)
    (tmp_path / "link").symlink_to(tmp_path)
    os.chown(tmp_path / "link", 4711, 4711, follow_symlinks=False)
    # What that user may not read is not read for them.
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_mode & 0o011 != 0o011:
            path.chmod(path.stat().st_mode | 0o011)
    assert call(repo="org/name", revision=COMMIT, hf_home=str(tmp_path / "link"))["download_as"]["uid"] == 0


def repository(name, purpose, **more):
    return {"name": name, "repo": f"org/{name}", "revision": COMMIT, "purpose": purpose, "files": [], "side_files": [], **more}


def lay(home, name, *files):
    """Write files into the snapshot of a repository; weights get a header."""
    directory = home / f"hub/models--org--{name}/snapshots" / COMMIT
    directory.mkdir(parents=True, exist_ok=True)
    for file in files:
        (directory / file).write_bytes(struct.pack("<Q", 2) + b"{}" if file.endswith(".safetensors") else b"{}")
    return directory


@pytest.mark.parametrize(
    ("purpose", "files", "needed", "missing"),
    [
        ("drafter", ["config.json", "model.safetensors"], [], []),
        ("assistant", ["config.json"], [], ["model.safetensors"]),
        # Of a repository that holds a whole model, the tokenizer alone was fetched.
        ("tokenizer", ["tokenizer.json", "model.safetensors.index.json"], [], []),
        ("tokenizer", ["config.json"], [], ["tokenizer.json"]),
        ("adapter", ["adapter_config.json", "adapter_model.safetensors"], [], []),
        ("adapter", ["adapter_config.json"], [], ["adapter_model.safetensors"]),
        ("files", ["chat.jinja"], ["chat.jinja", "*.md", "!x.bin"], []),
        ("files", ["chat.jinja"], ["other.jinja"], ["other.jinja"]),
    ],
)
def test_a_repository_is_whole_when_it_has_what_its_purpose_needs(tmp_path, snapshot, purpose, files, needed, missing):
    lay(tmp_path, "beside", *files)
    result = call(repositories=[repository("name", "model"), repository("beside", purpose, files=needed)], hf_home=str(tmp_path))
    model, beside = result["repositories"]
    assert model["complete"] and result["facts"]["num_attention_heads"] == 4
    assert (beside["complete"], beside["missing"], result["missing"]) == (not missing, missing, missing)
    assert (result["complete"], result["verdict"]) == (not missing, "block" if missing else "pass")
    assert result["size_bytes"] == model["size_bytes"] + beside["size_bytes"]
    if missing:
        assert f"({purpose} org/beside)" in result["msg"] and result["remedy"]


def test_a_drafter_that_is_absent_is_named(tmp_path, snapshot):
    result = call(repositories=[repository("name", "model"), repository("beside", "drafter")], hf_home=str(tmp_path))
    assert not result["present"] and not result["complete"] and result["snapshot_path"] == str(snapshot)
    assert "there is no the" not in result["msg"] and "drafter org/beside" in result["msg"]


def test_changed_code_of_a_drafter_stops(tmp_path, snapshot):
    directory = lay(tmp_path, "beside", "config.json", "model.safetensors")
    (directory / "modeling.py").write_text("x = 1")
    params = {"repositories": [repository("name", "model"), repository("beside", "drafter")], "hf_home": str(tmp_path), "state_dir": str(tmp_path / "state")}
    call(**params)
    (directory / "modeling.py").write_text("x = 2")
    result = call(**params)
    assert result["complete"] and result["verdict"] == "block"
    assert all(words in result["msg"] for words in ("modeling.py was replaced on this node", "(drafter org/beside)"))


# --- plain directories that a profile names -----------------------------------------------------------------------------------


def plain(snapshot, tmp_path, *more):
    """Request a plain directory as a profile names it, with other paths."""
    model = {**repository("m", "model"), "repo": str(snapshot), "revision": None}
    return call(repositories=[model, *more], hf_home=str(tmp_path))


def test_a_plain_directory_that_a_profile_names(snapshot, tmp_path):
    result = plain(snapshot, tmp_path)
    assert result["verdict"] == "pass" and result["complete"] and result["snapshot_relpath"] is None and result["revision"] is None
    (row,) = result["repositories"]
    assert row["snapshot_path"] == str(snapshot) and len(row["listing"]) == 64 and row["unfinished_bytes"] == 0
    assert result["facts"]["num_attention_heads"] == 4


@pytest.mark.parametrize(
    ("break_it", "id"),
    [
        (lambda directory: (directory / "model.safetensors").unlink(), "model.missing"),
        (lambda directory: (directory / "model.safetensors").write_bytes(b"12345"), "model.size"),
        (lambda directory: (directory / "model.safetensors.index.json").write_text('{"weight_map": {"a": "absent.safetensors"}}'), "model.missing"),
        (lambda directory: (directory / "extra.json").symlink_to("/etc/hostname"), "model.dangling"),
    ],
)
def test_what_is_wrong_with_a_plain_directory_is_copied_again(snapshot, tmp_path, break_it, id):
    break_it(snapshot)
    result = plain(snapshot, tmp_path)
    assert result["verdict"] == "block" and not result["complete"]
    assert {finding["id"] for finding in result["findings"]} == {id}
    assert all("nothing is downloaded into a directory" in finding["remedy"] for finding in result["findings"])


def test_an_absent_plain_directory_beside_a_repository_of_the_hub(snapshot, tmp_path):
    drafter = repository("name", "drafter")
    result = plain(tmp_path / "none", tmp_path, drafter)
    assert result["verdict"] == "block" and not result["present"]
    assert [(row["complete"], row["listing"]) for row in result["repositories"]] == [(False, None), (True, None)]
    assert f"there is no model in {tmp_path}/none" in result["msg"]


def test_copies_are_distinguished_by_names_and_sizes(snapshot, tmp_path):
    before = plain(snapshot, tmp_path)["repositories"][0]["listing"]
    (snapshot / "__pycache__").mkdir()
    (snapshot / "__pycache__/x.pyc").write_text("x")
    assert plain(snapshot, tmp_path)["repositories"][0]["listing"] == before
    (snapshot / "config.json").write_text((snapshot / "config.json").read_text() + " ")
    assert plain(snapshot, tmp_path)["repositories"][0]["listing"] != before


def test_a_plain_directory_that_root_in_a_container_cannot_read_is_a_warning(snapshot, tmp_path, monkeypatch):
    monkeypatch.setattr(model_info.model_files, "private_path", lambda hf_home, root: root)
    (finding,) = [entry for entry in plain(snapshot, tmp_path)["findings"] if entry["id"] == "model.private"]
    assert finding["verdict"] == "warn" and f"chmod -R go+rX {snapshot}" in finding["remedy"]
