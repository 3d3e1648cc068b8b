# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Models in a hub cache."""

from __future__ import annotations

import json
import os
import pathlib
import struct

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._model import model_files

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "dtype": "bfloat16",
}


def safetensors(size: int = 64) -> bytes:
    header = json.dumps({"__metadata__": {"format": "pt"}, "a": {"dtype": "BF16", "shape": [size // 4], "data_offsets": [0, size // 2]},
                         "b": {"dtype": "BF16", "shape": [size // 4], "data_offsets": [size // 2, size]}}).encode()  # fmt: skip
    return struct.pack("<Q", len(header)) + header + bytes(size)


def write(path: pathlib.Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.fixture
def hub(tmp_path):
    """A complete model of two shards, laid out as the hub's client does it: links from the snapshot into the blobs."""
    repo = tmp_path / "hub/models--org--name"
    snapshot = repo / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    index = {"metadata": {}, "weight_map": {"a": first, "b": second, "c": first}}
    files = {
        "config.json": json.dumps(CONFIG).encode(),
        "tokenizer.json": b"{}",
        "model.safetensors.index.json": json.dumps(index).encode(),
        "model-00001-of-00002.safetensors": safetensors(64),
        "model-00002-of-00002.safetensors": safetensors(128),
        "parser.py": b"pass\n",
    }
    for name, content in files.items():
        write(repo / "blobs" / f"sha-{name}", content)
        (snapshot / name).symlink_to(f"../../blobs/sha-{name}")
    write(repo / "refs/main", COMMIT.encode())
    return tmp_path


@pytest.fixture
def snapshot(hub):
    return hub / "hub/models--org--name/snapshots" / COMMIT


def problems(snapshot: pathlib.Path, *side_files: str) -> dict[str, str]:
    findings, _shards, _facts = model_files.examine(str(snapshot), side_files)
    return {problem.file: problem.id.removeprefix("model.") for problem in findings}


def spoil(snapshot: pathlib.Path, name: str, content: bytes) -> None:
    (snapshot / name).unlink(missing_ok=True)
    (snapshot / name).write_bytes(content)


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_a_revision_is_found_by_ref_and_by_commit(hub, snapshot, revision):
    place = model_files.locate(str(hub), "org/name", revision)
    assert (place.path, place.revision) == (str(snapshot), COMMIT)


def test_what_is_not_there(hub):
    assert model_files.locate(str(hub), "org/name", "f" * 40).path is None
    assert model_files.locate(str(hub), "org/name", "v2").path is None
    assert model_files.locate(str(hub), "org/other", None) == model_files.Place(None, None, None)


def test_a_ref_without_a_commit_is_unknown(hub):
    write(hub / "hub/models--org--name/refs/main", b"garble")
    with pytest.raises(UnknownState, match="has 6 characters that are not a commit"):
        model_files.locate(str(hub), "org/name", None)


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_a_ref_that_is_not_a_file_is_unknown_and_no_other_file_is_shown(hub, tmp_path, kind):
    ref, other = hub / "hub/models--org--name/refs/main", tmp_path / "shadow"
    other.write_text("root:planted-secret")
    ref.unlink(missing_ok=True)
    {"link": lambda: ref.symlink_to(other), "pipe": lambda: os.mkfifo(ref), "directory": ref.mkdir}[kind]()
    with pytest.raises(UnknownState, match=r"refs/main is (not a file of .* bytes|a link to .*/shadow); expected a file that names a commit") as caught:
        model_files.locate(str(hub), "org/name", None)
    assert f"Remove {ref}" in caught.value.remedy
    assert "planted-secret" not in f"{caught.value} {caught.value.details}"


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd"])
def test_paths_stay_inside(hub, snapshot, name):
    with pytest.raises(ClusterError, match="inside the model"):
        model_files.locate(str(hub), "org/name", name)
    with pytest.raises(ClusterError, match="inside the model"):
        model_files.examine(str(snapshot), [name])


def test_a_complete_model(snapshot):
    findings, shards, facts = model_files.examine(str(snapshot), ["parser.py"])
    assert findings == []
    assert shards == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert facts == CONFIG
    assert model_files.size_bytes(str(snapshot)) == sum(path.stat().st_size for path in snapshot.iterdir())


def test_the_type_of_values_has_two_names_and_may_lie_deeper():
    """Transformers 4 wrote torch_dtype, 5 writes dtype; models with several parts keep the text's under text_config."""
    facts = model_files.facts({"architectures": ["A"], "text_config": {"torch_dtype": "bfloat16", "hidden_size": 8}})
    assert (facts["architectures"], facts["dtype"], facts["hidden_size"], facts["num_hidden_layers"]) == (["A"], "bfloat16", 8, None)


def test_a_model_of_one_file(snapshot):
    for name in ("model.safetensors.index.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
        (snapshot / name).unlink()
    assert problems(snapshot) == {"model.safetensors": "missing"}
    (snapshot / "model.safetensors").write_bytes(safetensors())
    assert problems(snapshot) == {}


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (safetensors()[:-1], "its header says"),
        (safetensors() + b"x", "its header says"),
        (safetensors()[:20], "ends inside its header"),
        (b"abc", "no header"),
        (b"", "is empty"),
        (struct.pack("<Q", 2) + b"{}", None),
        (struct.pack("<Q", 2) + b"[]", "not a JSON object"),
        (struct.pack("<Q", 3) + b"{x}", "cannot be read"),
        (struct.pack("<Q", 9) + b'{"a": {}}', "with the offsets of each tensor"),
        (struct.pack("<Q", 2**40) + b"{}", "not a safetensors file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "Git LFS pointer"),
    ],
)
def test_weight_files_are_as_long_as_their_header_says(tmp_path, content, fault):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    message = model_files.safetensors_fault(str(path))
    assert message is None if fault is None else fault in message


def test_a_shard_that_was_cut_off(snapshot):
    spoil(snapshot, "model-00002-of-00002.safetensors", safetensors(128)[:-7])
    assert problems(snapshot) == {"model-00002-of-00002.safetensors": "size"}


def test_a_shard_that_is_missing_empty_or_dangling(hub, snapshot):
    (snapshot / "model-00001-of-00002.safetensors").unlink()
    spoil(snapshot, "model-00002-of-00002.safetensors", b"")
    (hub / "hub/models--org--name/blobs/sha-parser.py").unlink()
    assert problems(snapshot, "parser.py") == {
        "model-00001-of-00002.safetensors": "missing",
        "model-00002-of-00002.safetensors": "empty",
        "parser.py": "dangling",
    }


@pytest.mark.parametrize("content", [b"{", b"[]", b""])
def test_a_config_that_cannot_be_used(snapshot, content):
    spoil(snapshot, "config.json", content)
    findings, _shards, facts = model_files.examine(str(snapshot), [])
    assert [problem.file for problem in findings] == ["config.json"]
    assert set(facts.values()) == {None}


@pytest.mark.parametrize("content", [b"{", b"{}", b'{"weight_map": {}}', b'{"weight_map": {"a": 1}}'])
def test_an_index_that_cannot_be_used(snapshot, content):
    spoil(snapshot, "model.safetensors.index.json", content)
    assert problems(snapshot) == {"model.safetensors.index.json": "not_json"}


def test_an_index_that_leads_outside(snapshot):
    spoil(snapshot, "model.safetensors.index.json", b'{"weight_map": {"a": "../../../secret"}}')
    with pytest.raises(ClusterError, match="inside the model"):
        problems(snapshot)


def test_tokenizers(snapshot):
    (snapshot / "tokenizer.json").unlink()
    assert problems(snapshot) == {"tokenizer.json": "missing"}
    (snapshot / "vocab.json").write_bytes(b"{}")
    assert problems(snapshot) == {"tokenizer.json": "missing"}
    (snapshot / "merges.txt").write_bytes(b"a b")
    assert problems(snapshot) == {}


def test_downloads_that_did_not_finish(hub):
    repo = hub / "hub/models--org--name"
    assert model_files.incomplete_blobs(str(repo)) == []
    write(repo / "blobs/abc.incomplete", b"x")
    assert model_files.incomplete_blobs(str(repo)) == ["abc.incomplete"]
    assert model_files.incomplete_blobs(None) == []


def test_facts_of_a_model_with_several_parts():
    facts = model_files.facts({"architectures": ["Multi"], "text_config": {"num_attention_heads": 32, "architectures": ["Inner"]}})
    assert facts["architectures"] == ["Multi"] and facts["num_attention_heads"] == 32 and facts["num_key_value_heads"] is None


def test_a_file_that_may_not_be_read_is_unknown(snapshot, monkeypatch):
    def denied(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", denied)
    with pytest.raises(UnknownState, match="Permission denied") as caught:
        model_files.examine(str(snapshot), [])
    assert "become" in caught.value.remedy


def test_a_file_that_root_in_a_container_cannot_read_is_named(hub, snapshot, monkeypatch):
    assert model_files.private_path(str(hub), str(snapshot)) is None
    blob = hub / "hub/models--org--name/blobs/sha-parser.py"
    os.chmod(blob, 0o600)
    assert model_files.private_path(str(hub), str(snapshot)) is None if os.geteuid() == 0 else True
    real = os.stat

    def another_users(path, *more, **how):
        status = list(real(path, *more, **how))
        return os.stat_result([*status[:4], 1000, 1000, *status[6:]])

    monkeypatch.setattr(model_files.os, "stat", another_users)
    assert model_files.private_path(str(hub), str(snapshot)) == str(snapshot / "parser.py")
    os.chmod(hub / "hub", 0o750)
    assert model_files.private_path(str(hub), str(snapshot)) == str(hub / "hub")


# -- whose files a download makes --------------------------------------------------------------------------------------


# -- of any length, and no file at all ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [model_files.CONFIG, model_files.INDEX])
@pytest.mark.parametrize("what", ["sparse", "device", "endless"])
def test_no_json_is_read_without_end(tmp_path, name, what):
    path = tmp_path / name
    if what == "sparse":
        with open(path, "wb") as handle:
            handle.truncate(64 << 30)
    elif what == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(b"[" * (model_files.JSON_LIMIT + 1))
    _content, problem = model_files.read_json(str(tmp_path), name)
    assert problem.id in ("model.not_json", "model.empty") and problem.file == name


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to be led anywhere")
def test_a_users_link_shows_nothing_that_the_user_may_not_read(tmp_path):
    (tmp_path / "secret").write_text('{"dtype": "secret"}')
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / model_files.CONFIG).symlink_to("secret")
    assert model_files.read_json(str(tmp_path), model_files.CONFIG)[0] == {"dtype": "secret"}
    os.chown(tmp_path / model_files.CONFIG, 4711, 4711, follow_symlinks=False)
    with pytest.raises(ClusterError, match="may not read"):
        model_files.read_json(str(tmp_path), model_files.CONFIG)


def test_a_pipe_does_not_block(tmp_path):
    for name in (model_files.CONFIG, model_files.INDEX, model_files.SINGLE):
        os.mkfifo(tmp_path / name)
    problems, _shards, _facts = model_files.examine(str(tmp_path), [])
    assert {problem.file for problem in problems} >= {model_files.CONFIG, model_files.INDEX}
    assert model_files.safetensors_fault(str(tmp_path / model_files.SINGLE)) == "is not a file"


def test_a_header_is_no_longer_than_any_json(tmp_path):
    path = tmp_path / model_files.SINGLE
    with open(path, "wb") as handle:
        handle.write(struct.pack("<Q", model_files.JSON_LIMIT + 1))
        handle.truncate(64 << 30)
    assert "its header would have" in model_files.safetensors_fault(str(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to be led anywhere")
def test_a_users_link_above_a_ref_leads_root_to_nothing_that_user_may_not_read(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "private/main").write_text(COMMIT)
    (tmp_path / "refs").symlink_to(tmp_path / "private")
    assert model_files.read_ref(str(tmp_path / "refs/main")) == COMMIT
    os.chown(tmp_path / "refs", 4711, 4711, follow_symlinks=False)
    with pytest.raises(ClusterError, match="which that user may not read"):
        model_files.read_ref(str(tmp_path / "refs/main"))


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="takes root to give files away")


@AS_ROOT
def test_a_download_runs_as_the_owner_of_the_cache(tmp_path):
    """As root it would leave root's files in a user's home."""
    (tmp_path / "hub/models--org--name/blobs").mkdir(parents=True)
    give(tmp_path, 4711)
    assert model_files.writer(str(tmp_path), "org/name") == (4711, 4711, "")


@AS_ROOT
def test_a_cache_that_is_not_there_belongs_to_whom_its_place_belongs(tmp_path):
    assert model_files.writer(str(tmp_path / "huggingface"), "org/name") == (0, 0, "")
    give(tmp_path, 4711)
    assert model_files.writer(str(tmp_path / ".cache/huggingface"), "org/name") == (4711, 4711, "")


@AS_ROOT
@pytest.mark.parametrize("below", ["hub", "hub/.locks", "hub/.locks/models--org--name", "hub/models--org--name", "hub/models--org--name/blobs", "xet"])
def test_roots_directory_in_a_users_cache_makes_root_the_downloader_and_is_named(tmp_path, below):
    (tmp_path / below).mkdir(parents=True)
    give(tmp_path, 4711)
    give(tmp_path / below, 0)
    assert model_files.writer(str(tmp_path), "org/name") == (0, 0, str(tmp_path / below))


@AS_ROOT
@pytest.mark.parametrize("below", ["hub", "hub/.locks", "hub/models--org--name", "xet"])
def test_a_link_to_roots_directory_does_not_make_root_the_downloader(tmp_path, below):
    cache = tmp_path / "cache"
    (cache / below).parent.mkdir(parents=True)
    (tmp_path / "roots/.locks").mkdir(parents=True)
    (cache / below).symlink_to(tmp_path / "roots")
    give(cache, 4711)
    assert model_files.writer(str(cache), "org/name") == (4711, 4711, "")


@AS_ROOT
def test_another_users_file_does_not_keep_root_from_its_own_cache(tmp_path):
    (tmp_path / "hub").mkdir()
    give(tmp_path / "hub", 4711)
    assert model_files.writer(str(tmp_path), "org/name") == (0, 0, "")


def give(path, uid):
    """Give a tree to a user that has no account."""
    for entry in [path, *path.rglob("*")]:
        os.chown(entry, uid, uid, follow_symlinks=False)
