# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A bundle carries an image and models from one node to another that it cannot reach: whole or not at all, and nothing else."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import tempfile
import types
import typing as t
from pathlib import Path

import pytest
from copying_pair import COMMIT, blob, cache, tree
from engine_tree import Engine, layer_tar

from ansible_collections.gb10.cluster.plugins.module_utils._bundle import content, model_part, place, wheel_part
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_identity
from ansible_collections.gb10.cluster.plugins.module_utils._model import copying
from ansible_collections.gb10.cluster.plugins.modules import bundle

NODE, BASE = "gb10/engine:ray", "r/vllm:1"
REPO = "org/tiny"
SHARD = b"A" * 4000
#: A safetensors file needs a header; files of the purpose ``files`` are taken as they are.
REPOSITORIES = [{"name": "model", "repo": REPO, "revision": COMMIT, "purpose": "files", "files": [], "side_files": ["config.json"]}]


class Pair:
    """A node that has an image and a model, one that has neither, and a disk between them."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, stores: tuple[str, str] = ("classic", "classic")) -> None:
        self.path, self.patch, self.bundle = path, monkeypatch, path / "disk/bundle"
        (path / "disk").mkdir()
        self.one, self.two = Engine(path / "one"), Engine(path / "two")
        for engine, store in zip((self.one, self.two), stores):
            if store == "containerd":
                engine.use_containerd()
        if stores[0] == "classic":
            self.base_id = self.one.build(BASE, None, {"opt/engine": b"e" * 300_000})
            self.image_id = self.one.build(NODE, BASE, {"opt/ray": b"ray" * 1000})
        else:
            layers = [layer_tar({"opt/engine": b"e" * 300_000}), layer_tar({"opt/ray": b"ray" * 1000})]
            self.base_id = self.one.add_blobs(BASE, layers[0])
            self.image_id = self.one.add_blobs(NODE, *layers)
        self.source, self.target = cache(path / "cache-one", REPO), path / "cache-two/hub/models--org--tiny"
        (path / "cache-two").mkdir()

    def call(self, engine: Engine, state: str, check_mode: bool = False, **params: t.Any) -> dict[str, t.Any]:
        given = {
            "state": state, "path": str(self.bundle), "profile": "tiny", "image": NODE, "base_image": BASE, "repositories": REPOSITORIES,
            "hf_home": str(self.path / ("cache-one" if engine is self.one else "cache-two")), "texts": {"tiny.yml": "id: tiny\n"},
            "wheels": False, "pip_env": {}, "ca_file": None,
            "replace": False, "disk_floor_gib": 0, "timeout": 30, "made_by": "gb10.cluster 0", "cluster_name": "gb10",
            "state_dir": str(self.path / "state"), "lock_id": "", "docker_socket": engine.socket, "docker_timeout": 5, **params,
        }  # fmt: skip
        return bundle.work(types.SimpleNamespace(params=given, check_mode=check_mode))

    def export(self, **params: t.Any) -> dict[str, t.Any]:
        return self.call(self.one, "exported", **params)

    def bring(self, **params: t.Any) -> dict[str, t.Any]:
        return self.call(self.two, "imported", **params)

    def refused(self, image: bool = False, **params: t.Any) -> ClusterError:
        """Return why an import did not go, once nothing of it is there, or the ``image`` alone, which comes first."""
        with pytest.raises(ClusterError) as caught:
            self.bring(**params)
        assert (NODE in self.two.tags) is image and not (self.target / "snapshots").exists()
        return caught.value

    def end(self) -> None:
        self.one.close()
        self.two.close()


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Pair]:
    made = Pair(tmp_path, monkeypatch)
    yield made
    made.end()


def manifest_of(pair: Pair) -> dict[str, t.Any]:
    return json.loads((pair.bundle / "bundle.json").read_text(encoding="utf-8"))


def write_manifest(pair: Pair, manifest: dict[str, t.Any]) -> None:
    (pair.bundle / "bundle.json").write_text(json.dumps(manifest), encoding="utf-8")


def blob_path(pair: Pair, data: bytes = SHARD) -> Path:
    return pair.bundle / "hub/models--org--tiny/blobs" / blob(data, True)


@pytest.mark.parametrize("stores", [("classic", "classic"), ("classic", "containerd"), ("containerd", "classic"), ("containerd", "containerd")])
def test_a_bundle_goes_out_of_either_image_store_and_into_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stores: tuple[str, str]) -> None:
    pair = Pair(tmp_path, monkeypatch, stores)
    try:
        exported = pair.export()
        assert exported["changed"] and exported["bundle"]["models"] == [f"{REPO}@{COMMIT[:12]}"]
        assert not (pair.bundle / "bundle.unfinished").exists() and not (pair.bundle / "bundle.part").exists()
        listed = {row["path"]: row for row in manifest_of(pair)["files"]}
        lying = {str(path.relative_to(pair.bundle)): path for path in pair.bundle.rglob("*") if path.is_file()}
        assert set(lying) == {*listed, "bundle.json"}
        assert all(hashlib.sha256(path.read_bytes()).hexdigest() == listed[name]["sha256"] for name, path in lying.items() if name != "bundle.json")
        assert not pair.export()["changed"]
        # As a person carries it: with other times and modes.
        carried = shutil.copytree(pair.bundle, tmp_path / "carried", copy_function=shutil.copyfile)
        pair.bundle = Path(carried)
        imported = pair.bring()
        assert imported["changed"] and imported["other_texts"] == []
        here = pair.two.images[pair.two.tags[NODE]]
        assert here["RootFS"]["Layers"] == pair.one.images[pair.image_id]["RootFS"]["Layers"]
        # In this order: engine 26.1.5 with containerd's store was seen to lose what it had unpacked of a base that came second.
        assert list(pair.two.tags) == ([BASE, NODE] if imported["left_out"] == [] else [NODE])
        config = imported["bundle"]["image_config"]
        info = {"DockerRootDir": str(pair.two.root), "DriverStatus": pair.two.status}
        assert image_identity.config_digest(None, here, info) == config
        assert (here["Id"] == pair.image_id) is (stores[0] == stores[1]) and imported["image_id"] == here["Id"]
        assert tree(pair.target) == tree(pair.source)
        again = pair.bring()
        assert not again["changed"] and again["bytes"] == 0 and pair.two.loads == 1
    finally:
        pair.end()


def test_what_is_there_is_neither_read_nor_written_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.export()
    pair.bring()
    monkeypatch.setattr(place, "chunks_of", lambda _stream: pytest.fail("a file was read"))
    monkeypatch.setattr(model_part, "chunks_of", lambda _stream: pytest.fail("a file was read"))
    monkeypatch.setattr(place.Place, "write", lambda *_arguments: pytest.fail("a file was written"))
    for check_mode in (True, False):
        assert not pair.export(check_mode=check_mode)["changed"]
        assert not pair.bring(check_mode=check_mode)["changed"]


def test_check_mode_says_what_would_come_and_writes_nothing(pair: Pair) -> None:
    predicted = pair.export(check_mode=True)
    assert predicted["changed"] and "would be written" in predicted["msg"] and not pair.bundle.exists() and not (pair.path / "state").exists()
    done = pair.export()
    assert predicted["bytes"] == done["bytes"] and predicted["written"] == done["written"]
    wanted = pair.bring(check_mode=True)
    assert wanted["changed"] and "would be imported" in wanted["msg"] and pair.two.tags == {} and not pair.target.exists()
    assert pair.bring()["bytes"] == wanted["bytes"]


@pytest.mark.parametrize("what", ["shard", "layer", "config"])
def test_a_flipped_byte_is_named_with_its_file_and_has_no_name_here(pair: Pair, what: str) -> None:
    pair.export()
    image = manifest_of(pair)["image"]["images"][0]
    digest = {"layer": image["layers"][-1][0], "config": image["config"][0]}.get(what, "")
    path = pair.bundle / "image/blobs/sha256" / digest[7:] if digest else blob_path(pair)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    error = pair.refused(image=what == "shard")
    assert error.reason == "wrong digest" and path.name in str(error), error
    assert not (pair.target / "blobs" / path.name).exists()
    with pytest.raises(ClusterError, match=path.name):
        pair.call(pair.two, "verified")
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert pair.call(pair.two, "verified")["bytes"] == sum(row["size"] for row in manifest_of(pair)["files"])
    assert pair.bring()["changed"] and tree(pair.target) == tree(pair.source)
    assert not (pair.target.parent / ".gb10-copy").exists()


def test_an_export_that_was_killed_goes_on_behind_the_last_whole_file(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, written = place.written, []

    def killed(descriptor: int, chunks: t.Any, *rest: t.Any) -> int:
        if len(written) == 6:
            os.write(descriptor, next(iter(chunks))[:10])
            raise KeyboardInterrupt
        written.append(descriptor)
        return whole(descriptor, chunks, *rest)

    monkeypatch.setattr(place, "written", killed)
    with pytest.raises(KeyboardInterrupt):
        pair.export()
    assert not (pair.bundle / "bundle.json").exists() and (pair.bundle / "bundle.part").exists()
    error = pair.refused()
    assert error.reason == "unfinished" and "Run the export again" in error.remedy
    # What was killed in the middle of a line of the journal.
    with open(pair.bundle / "bundle.unfinished", "a", encoding="utf-8") as stream:
        stream.write('{"path": "hub/mod')
    monkeypatch.setattr(place, "written", whole)
    again = pair.export()
    total = len(manifest_of(pair)["files"])
    assert len(again["written"]) == total - 6 and not (pair.bundle / "bundle.part").exists()
    assert pair.call(pair.two, "verified")["bytes"] and pair.bring()["changed"]


def test_an_import_that_was_killed_goes_on_behind_the_last_whole_file(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.export()
    whole, written = model_part.written, []

    def killed(descriptor: int, chunks: t.Any, *rest: t.Any) -> int:
        if len(written) == 2:
            os.write(descriptor, b"half")
            raise KeyboardInterrupt
        written.append(descriptor)
        return whole(descriptor, chunks, *rest)

    monkeypatch.setattr(model_part, "written", killed)
    with pytest.raises(KeyboardInterrupt):
        pair.bring()
    names = os.listdir(pair.target / "blobs")
    assert len(names) == 2 and all((pair.target / "blobs" / name).read_bytes() == (pair.source / "blobs" / name).read_bytes() for name in names)
    assert not (pair.target / "snapshots").exists()
    monkeypatch.setattr(model_part, "written", whole)
    again = pair.bring()
    assert len([name for name in again["written"] if name.startswith("hub/")]) == 2 and pair.two.loads == 1
    assert tree(pair.target) == tree(pair.source)


def test_a_file_of_the_same_name_and_other_content_stays(pair: Pair) -> None:
    pair.export()
    theirs = pair.target / "blobs" / blob(SHARD, True)
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"theirs")
    error = pair.refused()
    assert error.reason == "other content" and str(theirs) in str(error) and theirs.read_bytes() == b"theirs"


def test_another_image_of_the_name_keeps_it_until_it_is_told_to_give_it(pair: Pair) -> None:
    pair.export()
    theirs = pair.two.build(NODE, None, {"opt/theirs": b"1"})
    with pytest.raises(ClusterError, match="gb10/engine:ray") as caught:
        pair.bring()
    assert "gb10_bundle_replace=true" in caught.value.remedy and pair.two.tags == {NODE: theirs} and not pair.target.exists()
    assert pair.bring(replace=True)["changed"] and pair.two.tags[NODE] == pair.image_id and theirs in pair.two.images


def test_an_older_export_is_brought_up_to_date_and_nothing_of_it_is_removed(pair: Pair) -> None:
    pair.export()
    data = b"N" * 2000
    new = pair.source / "blobs" / blob(data, True)
    new.write_bytes(data)
    link = pair.source / "snapshots" / COMMIT / "a.safetensors"
    link.unlink()
    link.symlink_to(os.path.relpath(new, link.parent))
    again = pair.export()
    assert again["written"] == [f"hub/models--org--tiny/blobs/{new.name}"]
    assert again["unlisted"] == [f"hub/models--org--tiny/blobs/{blob(SHARD, True)}"] and blob_path(pair).exists()
    assert pair.bring()["changed"] and (pair.target / "snapshots" / COMMIT / "a.safetensors").read_bytes() == data


def test_a_damaged_source_is_found_by_the_hubs_own_name(pair: Pair) -> None:
    path = pair.source / "blobs" / blob(SHARD, True)
    path.write_bytes(b"B" + SHARD[1:])
    with pytest.raises(ClusterError, match=path.name) as caught:
        pair.export()
    assert caught.value.reason == "wrong digest" and not (pair.bundle / "bundle.json").exists() and not blob_path(pair).exists()


def test_a_source_that_changes_meanwhile_gets_no_name(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = model_part.chunks_of

    def changing(stream: t.Any) -> t.Iterator[memoryview]:
        yield from whole(stream)
        os.utime(stream.fileno(), ns=(1, 1))

    monkeypatch.setattr(model_part, "chunks_of", changing)
    with pytest.raises(ClusterError, match="was changed while it was exported"):
        pair.export()


@pytest.mark.parametrize("which", ["bundle", "target"])
def test_the_disk_is_asked_before_the_first_byte(pair: Pair, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    if which == "target":
        pair.export()
    monkeypatch.setattr(bundle, "disk", lambda path: {"free_bytes": 1000, "path": path})
    with pytest.raises(ClusterError, match="0.0 GiB free; expected") as caught:
        pair.bring() if which == "target" else pair.export()
    assert caught.value.reason == "disk full" and not pair.target.exists() and pair.bundle.exists() is (which == "target")
    with pytest.raises(ClusterError, match="GiB free; expected"):
        pair.call(pair.two if which == "target" else pair.one, "imported" if which == "target" else "exported", check_mode=True)


def test_a_link_in_a_bundle_is_refused(pair: Pair) -> None:
    pair.export()
    (pair.path / "secret").write_bytes(SHARD)
    blob_path(pair).unlink()
    blob_path(pair).symlink_to(pair.path / "secret")
    error = pair.refused()
    assert error.reason == "link" and blob_path(pair).name in str(error)
    folder = pair.bundle / "hub/models--org--tiny"
    shutil.move(folder, pair.path / "away")
    folder.symlink_to(pair.path / "away")
    assert pair.refused().reason == "link"


# -- whose directories these are ---------------------------------------------------------------------------------------

#: A user that has no account.
ONE = 4711
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="takes root to be led anywhere")
HUB = "cache-two/hub"


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Pair]:
    """A cache and a disk of a user's, where everybody may pass; and a directory of root's that nobody else may write to."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    made = Pair(place, monkeypatch)
    (place / "etc").mkdir()
    give(place / "cache-two")
    give(place / "disk")
    yield made
    made.end()
    shutil.rmtree(place)


def give(path: Path) -> None:
    for one in [path, *path.rglob("*")]:
        os.chown(one, ONE, ONE, follow_symlinks=False)


@AS_ROOT
def test_what_comes_to_a_user_is_that_users(theirs: Pair) -> None:
    theirs.export()
    assert theirs.bring()["changed"] and tree(theirs.target) == tree(theirs.source)
    assert {path.lstat().st_uid for top in (theirs.target, theirs.bundle) for path in top.rglob("*")} == {ONE} and os.geteuid() == 0


@AS_ROOT
@pytest.mark.parametrize(
    "link",
    ["cache-two", HUB, f"{HUB}/models--org--tiny", f"{HUB}/models--org--tiny/snapshots", f"{HUB}/models--org--tiny/blobs",
     f"{HUB}/models--org--tiny/refs", f"{HUB}/{copying.STAGE}", f"{HUB}/{copying.STAGE}/models--org--tiny"],
)  # fmt: skip
@pytest.mark.parametrize("target", ["etc", "etc/absent"])
def test_no_link_of_a_user_leads_an_import(theirs: Pair, link: str, target: str) -> None:
    theirs.export()
    path = theirs.path / link
    if path.exists():
        path.rmdir()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(theirs.path / target)
    if link not in ("cache-two", HUB):
        (theirs.path / HUB / ".locks").symlink_to(theirs.path / "etc")
    if link == "cache-two":
        os.chown(path, ONE, ONE, follow_symlinks=False)
    else:
        give(theirs.path / "cache-two")
    with pytest.raises(ClusterError) as caught:
        theirs.bring()
    assert caught.value.remedy and os.listdir(theirs.path / "etc") == [] and os.geteuid() == 0


@AS_ROOT
@pytest.mark.parametrize("link", ["disk/bundle", "disk/bundle/hub", "disk/bundle/image", "disk/bundle/bundle.part", "disk/bundle/bundle.unfinished"])
def test_no_link_of_a_user_leads_an_export(theirs: Pair, link: str) -> None:
    path = theirs.path / link
    if link != "disk/bundle":
        path.parent.mkdir()
        (path.parent / "bundle.unfinished").touch()
    if path.exists():
        path.unlink()
    path.symlink_to(theirs.path / "etc")
    give(theirs.path / "disk")
    with contextlib.suppress(ClusterError, OSError):
        theirs.export()
    assert os.listdir(theirs.path / "etc") == [] and os.geteuid() == 0


@AS_ROOT
def test_an_export_of_roots_follows_no_link_and_waits_for_no_pipe(pair: Pair) -> None:
    (pair.path / "etc").mkdir()
    pair.bundle.mkdir()
    (pair.bundle / "bundle.unfinished").touch()
    (pair.bundle / "hub").symlink_to(pair.path / "etc")
    os.mkfifo(pair.bundle / "bundle.part")
    with pytest.raises(ClusterError):
        pair.export()
    assert os.listdir(pair.path / "etc") == []
    (pair.bundle / "hub").unlink()
    assert pair.export()["changed"]


def test_a_bundle_gives_no_file_more_than_everybody_may_read(pair: Pair) -> None:
    pair.export()
    manifest = manifest_of(pair)
    for entry in manifest["models"][0]["entries"]:
        entry["mode"] = 0o6755
    write_manifest(pair, manifest)
    assert pair.bring()["changed"]
    files = [path for path in pair.target.rglob("*") if path.is_file() and not path.is_symlink()]
    assert {path.stat().st_mode & 0o7777 for path in files} == {0o644}


@pytest.mark.parametrize("path", ["refs/main", "refs/convert"])
def test_a_ref_of_a_bundle_is_a_commit(pair: Pair, path: str) -> None:
    pair.export()
    manifest = manifest_of(pair)
    ref = {"path": path, "kind": "ref", "size": 0, "mtime": 0, "mode": 0o6755, "target": "#!/bin/sh\nid\n"}
    manifest["models"][0]["entries"] = [one for one in manifest["models"][0]["entries"] if one["kind"] != "ref"] + [ref]
    write_manifest(pair, manifest)
    error = pair.refused()
    assert error.reason == "foreign" and path in str(error) and error.remedy


def test_the_digest_of_the_list_is_said_by_all_three(pair: Pair) -> None:
    assert pair.export(check_mode=True)["bundle"]["digest"] == ""
    digest = pair.export()["bundle"]["digest"]
    assert digest == hashlib.sha256((pair.bundle / "bundle.json").read_bytes()).hexdigest()
    assert {one["bundle"]["digest"] for one in (pair.export(), pair.bring(), pair.call(pair.two, "verified"))} == {digest}


def test_a_list_without_end_is_not_read(pair: Pair) -> None:
    pair.bundle.mkdir()
    with open(pair.bundle / "bundle.json", "wb") as handle:
        handle.truncate(64 << 30)
    with pytest.raises(ClusterError, match="more than"):
        pair.bring()


def test_a_file_that_is_gone_or_shorter_is_named_before_anything_comes(pair: Pair) -> None:
    pair.export()
    blob_path(pair).write_bytes(SHARD[:100])
    error = pair.refused()
    assert error.reason == "incomplete" and "100 bytes instead of 4000" in str(error) and pair.two.loads == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 2}, "newer"), ({"format": "x"}, "newer"), ({"files": [{"path": "../x", "size": 1, "sha256": "0" * 64}]}, "foreign"),
        ({"files": [{"path": "etc/x", "size": 1, "sha256": "0" * 64}]}, "foreign"), ({"files": [{"nothing": 1}]}, "foreign"), ({"image": []}, "foreign"),
        ({"profile": "other"}, "other profile"), ({"models": []}, "other profile"), ({"files": []}, "foreign"),
    ],
)  # fmt: skip
def test_a_list_that_is_not_what_this_collection_reads_says_so(pair: Pair, change: dict[str, t.Any], reason: str) -> None:
    pair.export()
    write_manifest(pair, {**manifest_of(pair), **change})
    error = pair.refused()
    assert error.reason == reason and error.remedy


@pytest.mark.parametrize("path", ["../../etc/cron.d/x", "/etc/x", "snapshots/../../x", "etc/x"])
def test_a_list_leads_nowhere_else(pair: Pair, path: str) -> None:
    pair.export()
    manifest = manifest_of(pair)
    manifest["models"][0]["entries"].append({"path": path, "kind": "link", "size": 0, "mtime": 0, "mode": 0o644, "target": "blobs/x"})
    write_manifest(pair, manifest)
    assert pair.refused().reason in ("link", "foreign")


def test_what_the_profile_does_not_load_is_not_imported(pair: Pair) -> None:
    """A directory of the bundle's own choice would be written as its owner."""
    theirs = pair.path / "theirs"
    pair.export()
    manifest = manifest_of(pair)
    manifest["models"].append({**manifest["models"][0], "repo": str(theirs), "below": "directories/1"})
    write_manifest(pair, manifest)
    assert pair.bring()["changed"] and not theirs.exists()


@pytest.mark.parametrize("text", ["", "[]", "{", "\0"])
def test_no_list_is_no_bundle(pair: Pair, text: str) -> None:
    pair.bundle.mkdir()
    (pair.bundle / "bundle.json").write_text(text)
    assert pair.refused().reason == "foreign"
    with pytest.raises(ClusterError, match="not the list of a bundle"):
        pair.export()


def test_a_directory_of_somebody_is_not_written_to(pair: Pair) -> None:
    pair.bundle.mkdir()
    (pair.bundle / "holiday.jpg").write_bytes(b"1")
    with pytest.raises(ClusterError, match="holiday.jpg") as caught:
        pair.export()
    assert caught.value.reason == "foreign" and os.listdir(pair.bundle) == ["holiday.jpg"]
    assert pair.refused().reason == "foreign"
    pair.bundle = pair.path / "nowhere/bundle"
    with pytest.raises(ClusterError, match="nowhere is not there"):
        pair.export()
    assert pair.refused().reason == "absent"


def test_a_file_in_a_bundle_that_nobody_listed_stays(pair: Pair) -> None:
    pair.export()
    data = b"N" * 2000
    theirs = pair.bundle / "hub/models--org--tiny/blobs" / blob(data, True)
    theirs.write_bytes(b"theirs")
    cache(pair.path / "cache-one", REPO, {"n.safetensors": data})
    with pytest.raises(ClusterError, match="its list does not know"):
        pair.export()
    assert theirs.read_bytes() == b"theirs" and (pair.bundle / "bundle.json").exists()


def test_a_model_that_is_not_whole_is_not_exported(pair: Pair) -> None:
    (pair.source / "snapshots" / COMMIT / "config.json").unlink()
    with pytest.raises(ClusterError, match="config.json does not exist") as caught:
        pair.export()
    assert "--tags model" in caught.value.remedy and not pair.bundle.exists()


def test_an_image_that_is_absent_is_not_exported(pair: Pair) -> None:
    with pytest.raises(ClusterError, match="no image gb10/none:1 is here"):
        pair.export(image="gb10/none:1")


def test_a_plain_directory_comes_where_the_profile_has_it(pair: Pair) -> None:
    model = pair.path / "models/tiny"
    (model / "sub").mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "sub/weights.bin").write_bytes(b"W" * 5000)
    os.chmod(model / "sub/weights.bin", 0o640)
    (model / "link.bin").symlink_to("sub/weights.bin")
    wanted = [{**REPOSITORIES[0], "repo": str(model), "revision": None}]
    pair.export(repositories=wanted)
    shutil.move(model, pair.path / "away")
    assert pair.bring(repositories=wanted)["changed"]
    assert tree(model) == tree(pair.path / "away") and stat.S_IMODE((model / "sub/weights.bin").stat().st_mode) == 0o640
    assert not pair.bring(repositories=wanted)["changed"] and not pair.export(repositories=wanted)["changed"]
    (model / "out").symlink_to("/etc/hostname")
    with pytest.raises(ClusterError, match="not in the directory"):
        pair.export(repositories=wanted)


def test_two_revisions_share_what_did_not_change(pair: Pair) -> None:
    other = "f" * 40
    cache(pair.path / "cache-one", REPO, {"config.json": b"{}", "a.safetensors": SHARD, "new.safetensors": b"N" * 10}, other)
    wanted = [*REPOSITORIES, {**REPOSITORIES[0], "name": "drafter", "revision": other}]
    pair.export(repositories=wanted)
    assert pair.bring(repositories=wanted)["changed"] and tree(pair.target) == tree(pair.source)
    assert not pair.bring(repositories=wanted)["changed"]


def test_the_profiles_text_is_compared(pair: Pair) -> None:
    pair.export()
    assert (pair.bundle / "profile/tiny.yml").read_text() == "id: tiny\n"
    assert pair.bring(texts={"tiny.yml": "id: tiny # changed\n", "more.patch": "1"})["other_texts"] == ["profile/more.patch", "profile/tiny.yml"]


def test_packages_come_by_their_hashes(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    data, fetched = b"PK wheel", []
    name = "ray-2.60.0-py3-none-any.whl"
    line = f"ray==2.60.0 --hash=sha256:{hashlib.sha256(data).hexdigest()}"
    labels = {"io.gb10.base": pair.base_id, "io.gb10.recipe": "r", "io.gb10.lock": json.dumps([line])}
    image_id = pair.one.add_image(NODE, pair.one.images[pair.image_id]["RootFS"]["Layers"], labels)

    def fetch(_api: t.Any, image: str, lock: list[str], directory: str, *_more: t.Any) -> None:
        # A container writes there, and could open what is mounted into it to everybody.
        assert stat.S_IMODE(os.stat(os.path.dirname(directory)).st_mode) == 0o700
        fetched.append((image, lock))
        if len(fetched) > 1:
            (Path(directory) / name).write_bytes(data)

    monkeypatch.setattr(wheel_part, "fetch", fetch)
    with pytest.raises(ClusterError, match="ray==2.60.0"):
        pair.export(wheels=True)
    exported = pair.export(wheels=True)
    assert exported["bundle"]["wheels"] == 1 and fetched == [(image_id, [line])] * 2 and exported["bundle"]["recipe"] == "r"
    assert not pair.export(wheels=True)["changed"] and len(fetched) == 2 and os.listdir(pair.path / "state") == [os.path.basename(lock_of(pair))]
    there = pair.path / "state/wheels" / name
    assert pair.bring(wheels=True)["changed"] and there.read_bytes() == data
    assert not pair.bring(wheels=True)["changed"]
    there.write_bytes(b"other content")
    with pytest.raises(ClusterError, match="nothing was replaced"):
        pair.bring(wheels=True)


def lock_of(pair: Pair) -> str:
    return content.lock_path(str(pair.path / "state"), str(pair.bundle))


def test_the_base_comes_under_its_name_only_where_the_image_is_known_to_stand_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another kind of store has another id for it; a bring-up that takes it for another base would build the image again."""
    pair = Pair(tmp_path, monkeypatch, ("classic", "containerd"))
    try:
        pair.one.add_image(NODE, pair.one.images[pair.image_id]["RootFS"]["Layers"], {"io.gb10.base": "sha256:" + "0" * 64})
        pair.export()
        imported = pair.bring()
        assert imported["left_out"] == [BASE] and BASE not in pair.two.tags and NODE in pair.two.tags and BASE in imported["msg"]
        assert not pair.bring()["changed"]
    finally:
        pair.end()
