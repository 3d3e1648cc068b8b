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
import subprocess
import sys
import tempfile
import types
import typing as t
from pathlib import Path

import docker_store
import pytest
from copying_pair import COMMIT, blob, cache, tree

from ansible_collections.gb10.cluster.plugins.module_utils._bundle import content, image_part, programs, wheel_part
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import copy_job
from ansible_collections.gb10.cluster.plugins.module_utils._model import copying
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock
from ansible_collections.gb10.cluster.plugins.modules import bundle

NODE, BASE = "gb10/engine:ray", "r/vllm:1"
REPO = "org/tiny"
SHARD = b"A" * 4000
#: A safetensors file needs a header; files of the purpose ``files`` are taken as they are.
REPOSITORIES = [{"name": "model", "repo": REPO, "revision": COMMIT, "purpose": "files", "files": [], "side_files": ["config.json"]}]


class Pair:
    """A node with an image and a model, a node with neither, and a disk between them."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, stores: tuple[str, str] = ("classic", "classic")) -> None:
        self.path, self.patch, self.bundle = path, monkeypatch, path / "disk/bundle"
        (path / "disk").mkdir()
        self.one, self.two = (docker_store.Store(path / name, kind) for name, kind in zip(("one", "two"), stores))
        self.base_id = self.one.build(BASE, None, {"opt/engine": b"e" * 300_000})
        self.image_id = self.one.build(NODE, BASE, {"opt/ray": b"ray" * 1000})
        self.source, self.target = cache(path / "cache-one", REPO), path / "cache-two/hub/models--org--tiny"
        (path / "cache-two").mkdir()
        program = path / "bin/docker"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\nexec {sys.executable} {docker_store.__file__} \"$@\"\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        monkeypatch.setattr(bundle, "engine_of", lambda params: docker_store.Store(Path(params["docker_socket"]).parent))

    def call(self, engine: docker_store.Store, state: str, check_mode: bool = False, **params: t.Any) -> dict[str, t.Any]:
        given = {
            "state": state, "path": str(self.bundle), "profile": "tiny", "image": NODE, "base_image": BASE, "repositories": REPOSITORIES,
            "hf_home": str(self.path / ("cache-one" if engine is self.one else "cache-two")), "texts": {"tiny.yml": "id: tiny\n"},
            "wheels": False, "pip_env": {}, "ca_file": None, "signers": "",
            "replace": False, "disk_floor_gib": 0, "timeout": 30, "made_by": "gb10.cluster 0", "cluster_name": "gb10",
            "state_dir": str(self.path / "state"), "lock_id": "", "docker_socket": engine.socket_path, "docker_timeout": 5, **params,
        }  # fmt: skip
        return bundle.work(types.SimpleNamespace(params=given, check_mode=check_mode))

    def export(self, **params: t.Any) -> dict[str, t.Any]:
        return self.call(self.one, "exported", **params)

    def bring(self, **params: t.Any) -> dict[str, t.Any]:
        return self.call(self.two, "imported", **params)

    def refused(self, image: bool = False, **params: t.Any) -> ClusterError:
        """Return why an import failed, after a check that nothing of it is there, or only the ``image``, which comes first."""
        with pytest.raises(ClusterError) as caught:
            self.bring(**params)
        assert (NODE in self.two.tags) is image and not (self.target / "snapshots").exists()
        return caught.value

    @property
    def archive(self) -> Path:
        (image,) = (self.bundle / "image").iterdir()
        return image

    def list_again(self) -> None:
        """Rewrite the list for the files that are there, as for a bundle made by hand."""
        names = sorted(str(path.relative_to(self.bundle)) for path in self.bundle.rglob("*") if path.is_file() and path.name != "SHA256SUMS")
        sums = {name: hashlib.sha256((self.bundle / name).read_bytes()).hexdigest() for name in names}
        (self.bundle / "SHA256SUMS").write_bytes(content.sums_text(sums))


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    return Pair(tmp_path, monkeypatch)


def about_of(pair: Pair) -> dict[str, t.Any]:
    return json.loads((pair.bundle / "bundle.json").read_text(encoding="utf-8"))


def write_about(pair: Pair, about: t.Any) -> None:
    (pair.bundle / "bundle.json").write_text(about if isinstance(about, str) else json.dumps(about), encoding="utf-8")
    pair.list_again()


def shard_path(pair: Pair) -> Path:
    return pair.bundle / "hub/models--org--tiny/snapshots" / COMMIT / "a.safetensors"


def plain_tools(pair: Pair) -> None:
    """Check a bundle as anyone can who has the disk and coreutils."""
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=pair.bundle, check=True, timeout=30)
    names = {str(path.relative_to(pair.bundle)) for path in pair.bundle.rglob("*") if not path.is_dir()}
    assert names - {"SHA256SUMS", "SHA256SUMS.sig"} == set(content.sums_of((pair.bundle / "SHA256SUMS").read_bytes(), ""))
    assert not any(path.is_symlink() for path in pair.bundle.rglob("*"))


@pytest.mark.parametrize("stores", [("classic", "classic"), ("classic", "containerd"), ("containerd", "classic"), ("containerd", "containerd")])
def test_a_bundle_goes_out_of_either_image_store_and_into_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stores: tuple[str, str]) -> None:
    pair = Pair(tmp_path, monkeypatch, stores)
    labels = {"io.gb10.base": pair.base_id, "io.gb10.base_config": pair.one.tags[BASE]}
    image_id = pair.one.build(NODE, BASE, {"opt/ray": b"ray" * 1000}, labels=labels)
    exported = pair.export()
    assert exported["changed"] and exported["bundle"]["models"] == [f"{REPO}@{COMMIT[:12]}"]
    assert sorted(os.listdir(pair.bundle)) == ["README.md", "SHA256SUMS", "bundle.json", "hub", "image", "profile"]
    plain_tools(pair)
    assert str(pair.archive.relative_to(pair.bundle)) in (pair.bundle / "README.md").read_text()
    again = pair.export()
    assert not again["changed"] and [call for call in pair.one.log if call[0] == "save"] == [["save", BASE, NODE]], again["written"]
    # As a person carries it: with other times and modes.
    pair.bundle = Path(shutil.copytree(pair.bundle, tmp_path / "carried", copy_function=shutil.copyfile))
    imported = pair.bring()
    assert imported["changed"] and imported["other_texts"] == imported["left_out"] == []
    # In this order: engine 26.1.5 with containerd's store was seen to lose what it had unpacked of a base that came second.
    assert list(pair.two.tags.items()) == [(BASE, pair.one.tags[BASE]), (NODE, pair.one.tags[NODE])]
    assert imported["bundle"]["image_config"] == exported["bundle"]["image_config"] == pair.one.tags[NODE]
    assert (imported["image_id"] == image_id) is (stores[0] == stores[1])
    assert tree(pair.target) == tree(pair.source)
    again = pair.bring()
    assert not again["changed"] and again["bytes"] == 0 and pair.two.log == [["load"]]
    # An export into what was carried needs no times.
    assert not pair.export()["changed"]


def test_a_bundle_is_a_hub_cache_by_itself_and_loads_by_hand(pair: Pair) -> None:
    pair.export()
    words = (pair.bundle / "README.md").read_text()
    (line,) = (line.strip() for line in words.splitlines() if line.strip().startswith("rsync"))
    hub = pair.path / "by-hand"
    hub.mkdir()
    subprocess.run([*line.split()[:-1], f"{hub}/"], cwd=pair.bundle, check=True, timeout=30)
    base = hub / "models--org--tiny"
    snapshot = base / "snapshots" / (base / "refs/main").read_text()
    assert (snapshot / "a.safetensors").read_bytes() == SHARD and (snapshot / "sub/c.safetensors").read_bytes() == b"C" * 100
    (line,) = (line.strip() for line in words.splitlines() if "docker load" in line)
    with tempfile.TemporaryFile() as stream:
        stream.write((pair.bundle / line.split()[-1]).read_bytes())
        stream.seek(0)
        subprocess.run(["docker", "--host", f"unix://{pair.two.socket_path}", "load"], stdin=stream, check=True, timeout=30)
    assert pair.two.tags[NODE] == pair.one.tags[NODE]


def test_what_is_there_is_neither_read_nor_written_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.export()
    pair.bring()
    monkeypatch.setattr(programs.Watch, "run", lambda *_given, **_more: pytest.fail("a program ran"))
    for check_mode in (True, False):
        assert not pair.export(check_mode=check_mode)["changed"]
        assert not pair.bring(check_mode=check_mode)["changed"]


def test_check_mode_says_what_would_come_and_writes_nothing(pair: Pair) -> None:
    predicted = pair.export(check_mode=True)
    assert predicted["changed"] and "would be written" in predicted["msg"] and not pair.bundle.exists() and not (pair.path / "state").exists()
    done = pair.export()
    assert predicted["bundle"]["digest"] == "" and predicted["bundle"]["files"] == done["bundle"]["files"] and predicted["written"] == done["written"]
    wanted = pair.bring(check_mode=True)
    assert wanted["changed"] and "would be imported" in wanted["msg"] and pair.two.tags == {} and not pair.target.exists()
    assert pair.bring()["bytes"] == wanted["bytes"] > 300_000


@pytest.mark.parametrize("what", ["shard", "image"])
def test_a_flipped_byte_is_named_with_its_file_and_has_no_name_here(pair: Pair, what: str) -> None:
    pair.export()
    path = shard_path(pair) if what == "shard" else pair.archive
    status, data = path.stat(), bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    for _again in range(2):
        error = pair.refused(image=what == "shard")
        assert error.reason == "wrong digest" and path.name in str(error), error
        assert not (pair.target / "blobs").exists()
    with pytest.raises(ClusterError, match=path.name):
        pair.call(pair.two, "verified")
    data[2000] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    size = sum(file.stat().st_size for file in pair.bundle.rglob("*") if file.is_file() and file.name != "SHA256SUMS")
    assert pair.call(pair.two, "verified")["bytes"] == size
    assert pair.bring()["changed"] and tree(pair.target) == tree(pair.source)
    assert not (pair.target.parent / ".gb10-copy").exists()


def ends_at(monkeypatch: pytest.MonkeyPatch, program: str, most: int = 0) -> None:
    """Have a run be killed when it comes to a program for this time, or in the middle of its files."""
    whole, calls = programs.Watch.run, []

    def killed(self: programs.Watch, argv: t.Sequence[str], *given: t.Any, **more: t.Any) -> programs.Done:
        calls.append(argv[0])
        if calls.count(program) <= most or argv[0] != program:
            return whole(self, argv, *given, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(programs.Watch, "run", killed)
        yield


killed_at = contextlib.contextmanager(ends_at)


@pytest.mark.parametrize(("program", "images", "files"), [("docker", 0, 0), ("rsync", 1, 0), ("sync", 1, 4), ("sha256sum", 1, 4)])
def test_an_export_that_was_killed_goes_on_behind_the_last_whole_file(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, program: str, images: int, files: int
) -> None:
    with killed_at(monkeypatch, program), pytest.raises(KeyboardInterrupt):
        pair.export()
    assert (pair.bundle / "bundle.unfinished").exists() and not (pair.bundle / "SHA256SUMS").exists()
    (pair.bundle / "bundle.parts/left").write_bytes(b"half")
    error = pair.refused()
    assert error.reason == "unfinished" and "Run the export again" in error.remedy
    again = pair.export()
    assert len([name for name in again["written"] if name.startswith("image/")]) == 1 - images
    assert len([name for name in again["written"] if "/snapshots/" in name]) == 4 - files
    plain_tools(pair)
    assert pair.call(pair.two, "verified")["bytes"] and pair.bring()["changed"]


@pytest.mark.parametrize(("program", "most"), [("docker", 0), ("rsync", 0), ("sha256sum", 1)])
def test_an_import_that_was_killed_goes_on(pair: Pair, monkeypatch: pytest.MonkeyPatch, program: str, most: int) -> None:
    pair.export()
    with killed_at(monkeypatch, program, most), pytest.raises(KeyboardInterrupt):
        pair.bring()
    assert not (pair.target / "snapshots").exists()
    again = pair.bring()
    assert again["changed"] and pair.two.log.count(["load"]) == 1 and tree(pair.target) == tree(pair.source)


def test_a_program_ends_with_the_module_and_in_time(pair: Pair) -> None:
    with pytest.raises(ClusterError, match="not done in time") as caught:
        programs.Watch(0.2, lambda _text: None).run(["sleep", "60"])
    assert "gb10_transfer_timeout" in caught.value.remedy
    source = "import os, sys; sys.path.insert(0, sys.argv[1]); from ansible_collections.gb10.cluster.plugins.module_utils._bundle import programs; "
    source += "programs.Watch(60, lambda _text: os.write(1, b'.')).run(['sleep', '61.5'])"
    argv = [sys.executable, "-c", source, str(Path(__file__).resolve().parents[4] / "collections")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as running:
        assert running.stdout and running.stdout.read(1) == b"."
        (child,) = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        about = Path(f"/proc/{child}/stat")
        for _elapsed in clock(10, 0.05):
            if "(sleep)" in about.read_text():
                break
        running.kill()
    assert any(not about.exists() or ") Z" in about.read_text() for _elapsed in clock(10, 0.05))


@pytest.mark.parametrize("program", ["rsync", "docker", "sha256sum"])
def test_a_program_that_is_not_there_is_named_with_its_package(pair: Pair, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == program else which(name))
    with pytest.raises(ClusterError, match=f"this node has no {program}") as caught:
        pair.export()
    assert f"apt-get install {programs.PACKAGES[program]}" in caught.value.remedy and not pair.bundle.exists()


def test_a_file_of_the_same_name_and_other_content_stays(pair: Pair) -> None:
    pair.export()
    theirs = pair.target / "blobs" / blob(SHARD, True)
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"theirs")
    error = pair.refused()
    assert error.reason == "other content" and str(theirs) in str(error) and theirs.read_bytes() == b"theirs"


def test_another_image_of_the_name_keeps_it_without_consent(pair: Pair) -> None:
    pair.export()
    theirs = pair.two.build(NODE, None, {"opt/theirs": b"1"})
    with pytest.raises(ClusterError, match="gb10/engine:ray") as caught:
        pair.bring()
    assert "gb10_allow=names" in caught.value.remedy and list(pair.two.tags) == [NODE] and pair.two.id_of(NODE) == theirs and not pair.target.exists()
    assert pair.bring(replace=True)["changed"] and pair.two.id_of(NODE) == pair.image_id


def test_an_older_export_is_brought_up_to_date_and_nothing_of_it_is_removed(pair: Pair) -> None:
    pair.export()
    other, data, image = "f" * 40, b"N" * 2000, pair.archive
    cache(pair.path / "cache-one", REPO, {"config.json": b"{}", "a.safetensors": data}, other)
    pair.one.build(NODE, BASE, {"opt/ray": b"newer"})
    wanted = [{**REPOSITORIES[0], "revision": other}]
    again = pair.export(repositories=wanted)
    new = f"hub/models--org--tiny/snapshots/{other}/a.safetensors"
    assert new in again["written"] and len([name for name in again["written"] if name.startswith("image/")]) == 1
    assert {str(shard_path(pair).relative_to(pair.bundle)), f"image/{image.name}"} <= set(again["unlisted"]) and image.exists()
    plain_tools(pair)
    assert pair.bring(repositories=wanted)["changed"] and (pair.target / "snapshots" / other / "a.safetensors").read_bytes() == data
    assert pair.two.tags[NODE] == pair.one.tags[NODE] and not (pair.target / "snapshots" / COMMIT).exists()


def test_what_differs_in_a_bundle_is_not_replaced(pair: Pair) -> None:
    pair.export()
    link = pair.source / "snapshots" / COMMIT / "a.safetensors"
    link.unlink()
    link.write_bytes(b"N" * len(SHARD))
    os.utime(link, ns=(1, 1))
    with pytest.raises(ClusterError, match="other content") as caught:
        pair.export()
    assert "new directory" in caught.value.remedy and shard_path(pair).read_bytes() == SHARD
    plain_tools(pair)


@pytest.mark.parametrize("name", ["a.safetensors", "config.json"])
def test_a_damaged_source_is_found_by_the_hubs_own_name(pair: Pair, name: str) -> None:
    path = (pair.source / "snapshots" / COMMIT / name).resolve()
    path.write_bytes(b"B" + path.read_bytes()[1:])
    with pytest.raises(ClusterError, match=name) as caught:
        pair.export()
    assert caught.value.reason == "wrong digest" and not (pair.bundle / "SHA256SUMS").exists()
    assert not shard_path(pair).with_name(name).exists()


def test_a_source_that_changes_meanwhile_gets_no_name(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    settle = programs.Watch.settle

    def changing(self: programs.Watch, *given: t.Any) -> None:
        os.utime(pair.source / "snapshots" / COMMIT / "a.safetensors", ns=(1, 1))
        settle(self, *given)

    monkeypatch.setattr(programs.Watch, "settle", changing)
    with pytest.raises(ClusterError, match="was changed while it was exported"):
        pair.export()
    assert not shard_path(pair).exists() and not (pair.bundle / "SHA256SUMS").exists()


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
    shard_path(pair).unlink()
    shard_path(pair).symlink_to(pair.path / "secret")
    error = pair.refused()
    assert error.reason == "link" and "a.safetensors" in str(error)
    folder = pair.bundle / "hub/models--org--tiny"
    shutil.move(folder, pair.path / "away")
    folder.symlink_to(pair.path / "away")
    for state in ("imported", "exported", "verified"):
        with pytest.raises(ClusterError, match="models--org--tiny"):
            pair.call(pair.two, state)


# -- whose directories these are ---------------------------------------------------------------------------------------

#: A user that has no account.
ONE = 4711
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="takes root to be led anywhere")
HUB = "cache-two/hub"


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Pair]:
    """A cache and a disk of a user's, where everybody may pass; and a directory of root's that no other account may write to."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    made = Pair(place, monkeypatch)
    (place / "etc").mkdir()
    give(place / "cache-two")
    give(place / "disk")
    yield made
    shutil.rmtree(place)


def give(path: Path) -> None:
    for entry in [path, *path.rglob("*")]:
        os.chown(entry, ONE, ONE, follow_symlinks=False)


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
@pytest.mark.parametrize("link", ["disk/bundle", "disk/bundle/hub", "disk/bundle/image", "disk/bundle/bundle.parts", "disk/bundle/profile"])
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
@pytest.mark.parametrize("whose", ["cache-one", "cache-two", "disk"])
def test_each_end_is_its_own_user(theirs: Pair, whose: str) -> None:
    """A user's cache comes to a bundle of root's, and the other way round: what is read is read as its user, and written so."""
    for path in ("cache-one", "cache-two", "disk"):
        for entry in [theirs.path / path, *(theirs.path / path).rglob("*")]:
            os.chown(entry, *((ONE, ONE) if path == whose else (0, 0)), follow_symlinks=False)
    (theirs.path / "cache-one").chmod(0o700)
    assert theirs.export()["changed"] and theirs.bring()["changed"] and tree(theirs.target) == tree(theirs.source)
    assert {path.lstat().st_uid for path in theirs.target.rglob("*")} == {ONE if whose == "cache-two" else 0}
    assert {path.lstat().st_uid for path in theirs.bundle.rglob("*")} == {ONE if whose == "disk" else 0}


@AS_ROOT
def test_a_link_of_a_users_cache_leads_an_export_to_nothing_of_roots(theirs: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = theirs.path / "secret"
    secret.write_bytes(b"S" * len(SHARD))
    secret.chmod(0o600)
    give(theirs.path / "cache-one")
    os.chown(theirs.path / "disk", 0, 0)
    whole = programs.Watch.rsync

    def replaced(self: programs.Watch, *given: t.Any) -> None:
        path = theirs.source / "blobs" / blob(SHARD, True)
        path.unlink()
        path.symlink_to(secret)
        whole(self, *given)

    monkeypatch.setattr(programs.Watch, "rsync", replaced)
    with pytest.raises(ClusterError):
        theirs.export()
    assert not any(path.is_file() and b"SSSS" in path.read_bytes() for path in theirs.bundle.rglob("*"))


@AS_ROOT
def test_an_export_of_roots_follows_no_link_and_waits_for_no_pipe(pair: Pair) -> None:
    (pair.path / "etc").mkdir()
    pair.bundle.mkdir()
    (pair.bundle / "bundle.unfinished").touch()
    (pair.bundle / "hub").symlink_to(pair.path / "etc")
    with pytest.raises(ClusterError):
        pair.export()
    assert os.listdir(pair.path / "etc") == []
    (pair.bundle / "hub").unlink()
    os.mkfifo(pair.bundle / "profile")
    with pytest.raises(ClusterError, match="profile"):
        pair.export()
    (pair.bundle / "profile").unlink()
    assert pair.export()["changed"]


def test_a_bundle_gives_no_file_more_than_everybody_may_read(pair: Pair) -> None:
    pair.export()
    about = about_of(pair)
    for entry in about["models"][0]["entries"]:
        entry["mode"] = 0o6755
    write_about(pair, about)
    for path in pair.bundle.rglob("*.safetensors"):
        path.chmod(0o6755)
    assert pair.bring()["changed"]
    files = [path for path in pair.target.rglob("*") if path.is_file() and not path.is_symlink()]
    assert {path.stat().st_mode & 0o7777 for path in files} == {0o644}
    assert {path.stat().st_mode & 0o7777 for path in pair.target.rglob("*") if path.is_dir() and not path.is_symlink()} == {0o755}


@pytest.mark.parametrize("path", ["refs/main", "refs/convert"])
def test_a_ref_of_a_bundle_is_a_commit(pair: Pair, path: str) -> None:
    pair.export()
    about, text = about_of(pair), "#!/bin/sh\nid\n"
    ref = {"path": path, "kind": "ref", "size": 0, "mtime": 0, "mode": 0o6755, "target": text}
    about["models"][0]["entries"] = [entry for entry in about["models"][0]["entries"] if entry["kind"] != "ref"] + [ref]
    (pair.bundle / "hub/models--org--tiny" / path).write_text(text)
    write_about(pair, about)
    error = pair.refused()
    assert error.reason == "foreign" and path in str(error) and error.remedy
    ref["target"] = COMMIT
    write_about(pair, about)
    assert pair.refused().reason == "foreign"


def test_the_digest_of_the_list_is_said_by_all_three(pair: Pair) -> None:
    assert pair.export(check_mode=True)["bundle"]["digest"] == ""
    digest = pair.export()["bundle"]["digest"]
    assert digest == hashlib.sha256((pair.bundle / "SHA256SUMS").read_bytes()).hexdigest()
    assert {result["bundle"]["digest"] for result in (pair.export(), pair.bring(), pair.call(pair.two, "verified"))} == {digest}


def keys(place: Path, *names: str) -> dict[str, str]:
    """Make keys, and return the line of each in a list of allowed signers."""
    entries = {}
    for name in names:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / name], check=True, timeout=30)
        entries[name] = f"{name}@example.org {(place / f'{name}.pub').read_text()}"
    return entries


def test_a_signature_is_that_of_an_allowed_signer(pair: Pair) -> None:
    pair.export()
    known = keys(pair.path, "ours", "theirs")
    error = pair.refused(signers=known["ours"])
    assert error.reason == "signature" and "ssh-keygen -Y sign" in error.remedy
    sign = ["ssh-keygen", "-q", "-Y", "sign", "-f", pair.path / "ours", "-n", "file", pair.bundle / "SHA256SUMS"]
    subprocess.run(sign, check=True, timeout=30, capture_output=True)
    plain_tools(pair)
    assert pair.refused(signers=known["theirs"]).reason == "signature"
    assert pair.call(pair.two, "verified", signers=known["ours"])["signed_by"] == "ours@example.org"
    assert pair.call(pair.two, "verified")["signed_by"] == ""
    assert not pair.export()["changed"] and (pair.bundle / "SHA256SUMS.sig").exists()
    (pair.bundle / "profile/tiny.yml").write_text("id: theirs\n")
    signature = (pair.bundle / "SHA256SUMS.sig").read_bytes()
    pair.list_again()
    (pair.bundle / "SHA256SUMS.sig").write_bytes(signature)
    assert pair.refused(signers="".join(known.values())).reason in ("signature", "foreign")
    # An export that writes another list removes the signature of the earlier list.
    pair.list_again()
    text = (pair.bundle / "SHA256SUMS").read_text()
    (pair.bundle / "SHA256SUMS").write_text("".join(line for line in text.splitlines(keepends=True) if not line.endswith("SHA256SUMS.sig\n")))
    assert pair.export()["changed"] and not (pair.bundle / "SHA256SUMS.sig").exists()


def test_a_list_without_end_is_not_read(pair: Pair) -> None:
    pair.bundle.mkdir()
    with open(pair.bundle / "SHA256SUMS", "wb") as handle:
        handle.truncate(64 << 30)
    with pytest.raises(ClusterError, match="more than"):
        pair.bring()


def test_a_file_that_is_gone_or_shorter_is_named_before_anything_comes(pair: Pair) -> None:
    pair.export()
    shard_path(pair).write_bytes(SHARD[:100])
    error = pair.refused()
    assert error.reason == "incomplete" and "100 bytes instead of 4000" in str(error) and pair.two.log == []
    shard_path(pair).unlink()
    assert pair.refused().reason == "incomplete"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 3}, "newer"), ({"format": "x"}, "newer"), ({"image": []}, "foreign"), ({"profile": "other"}, "other profile"),
        ({"models": []}, "other profile"), ({"models": [{}]}, "other profile"), ({"models": {}}, "foreign"), ({"profile": 1}, "foreign"),
        ({"image": {"tag": NODE, "archive": "../x", "store": "classic"}}, "foreign"), ({"image": {"tag": NODE, "archive": "x", "store": "classic"}}, "foreign"),
    ],
)  # fmt: skip
def test_what_this_collection_does_not_read_says_so(pair: Pair, change: dict[str, t.Any], reason: str) -> None:
    pair.export()
    write_about(pair, {**about_of(pair), **change})
    error = pair.refused()
    assert error.reason == reason and error.remedy


@pytest.mark.parametrize("text", ["", "[]", "{", "\0"])
def test_a_bundle_says_what_it_is_for(pair: Pair, text: str) -> None:
    pair.export()
    write_about(pair, text)
    assert pair.refused().reason == "foreign"


@pytest.mark.parametrize("name", ["../x", "/etc/x", "hub/../../x", "etc/x", "hub//x", "hub/\\nx", "x\0"])
def test_a_list_of_digests_leads_nowhere_else(pair: Pair, name: str) -> None:
    pair.export()
    with open(pair.bundle / "SHA256SUMS", "a", encoding="utf-8") as handle:
        handle.write(f"{'0' * 64}  {name}\n")
    assert pair.refused().reason == "foreign"


@pytest.mark.parametrize("name", ["hub/models--org--tiny/x", "x", "lost+found/x"])
def test_a_file_that_no_list_has_is_refused(pair: Pair, name: str) -> None:
    pair.export()
    (pair.bundle / name).parent.mkdir(exist_ok=True)
    (pair.bundle / name).write_bytes(b"theirs")
    for state in ("imported", "exported", "verified"):
        with pytest.raises(ClusterError, match="does not list") as caught:
            pair.call(pair.two, state)
        assert caught.value.reason == "foreign" and name in str(caught.value)
    assert (pair.bundle / name).read_bytes() == b"theirs"


@pytest.mark.parametrize("where", ["manifest.json", "index.json"])
def test_an_image_of_another_name_is_not_loaded(pair: Pair, where: str) -> None:
    pair.export()
    archive, name = pair.archive, "gb10/companion:1"
    pair.one.build(name, BASE, {"opt/theirs": b"1"})
    if where == "index.json":
        (pair.path / "one/kind.json").write_text('"containerd"')
    data = pair.one.save([BASE, NODE, name])
    archive.write_bytes(data if where == "manifest.json" else data.replace(f'"RepoTags":["{name}"]'.encode(), b'"RepoTags":[]' + b" " * (len(name) + 2)))
    pair.list_again()
    error = pair.refused()
    assert error.reason == "other profile" and name in str(error) and pair.two.log == []
    archive.write_bytes(b"no tar" * 100)
    pair.list_again()
    assert pair.refused().reason == "foreign"


@pytest.mark.parametrize("path", ["../../etc/cron.d/x", "/etc/x", "snapshots/../../x", "etc/x"])
def test_a_list_leads_nowhere_else(pair: Pair, path: str) -> None:
    pair.export()
    about = about_of(pair)
    about["models"][0]["entries"].append({"path": path, "kind": "link", "size": 0, "mtime": 0, "mode": 0o644, "target": "blobs/x"})
    write_about(pair, about)
    assert pair.refused().reason in ("link", "foreign")


def test_what_the_profile_does_not_load_is_not_imported(pair: Pair) -> None:
    """A directory of the bundle's own choice would be written as its owner."""
    theirs = pair.path / "theirs"
    pair.export()
    about = about_of(pair)
    about["models"].append({**about["models"][0], "repo": str(theirs), "below": "directories/1"})
    write_about(pair, about)
    assert pair.bring()["changed"] and not theirs.exists()


def test_a_foreign_directory_is_not_written_to(pair: Pair) -> None:
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
    image_id = pair.one.build(NODE, BASE, {"opt/ray": b"ray"}, labels=labels)

    def fetch(_api: t.Any, image: str, lock: list[str], directory: str, *_more: t.Any) -> None:
        # A container writes there, and could open what is mounted into it to everybody.
        assert stat.S_IMODE(os.stat(os.path.dirname(directory)).st_mode) == 0o700
        fetched.append((image, lock))
        if len(fetched) > 1:
            (Path(directory) / name).write_bytes(data)

    monkeypatch.setattr(wheel_part, "_download", fetch)
    with pytest.raises(ClusterError, match="ray==2.60.0"):
        pair.export(wheels=True)
    exported = pair.export(wheels=True)
    assert exported["bundle"]["wheels"] == 1 and fetched == [(image_id, [line])] * 2 and exported["bundle"]["recipe"] == "r"
    assert not pair.export(wheels=True)["changed"] and len(fetched) == 2 and os.listdir(pair.path / "state") == [os.path.basename(lock_of(pair))]
    plain_tools(pair)
    there = pair.path / "state/wheels" / name
    assert pair.bring(wheels=True)["changed"] and there.read_bytes() == data
    assert not pair.bring(wheels=True)["changed"]
    there.write_bytes(b"other content")
    with pytest.raises(ClusterError, match="nothing was replaced"):
        pair.bring(wheels=True)


def lock_of(pair: Pair) -> str:
    return copy_job.lock_path(str(pair.path / "state"), content.KIND, str(pair.bundle))


def test_the_base_comes_under_its_name_only_where_the_image_is_known_to_stand_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another kind of store has another id for it; a bring-up that takes it for another base would build the image again."""
    pair = Pair(tmp_path, monkeypatch, ("classic", "containerd"))
    pair.one.build(NODE, BASE, {"opt/ray": b"ray"}, labels={"io.gb10.base": "sha256:" + "0" * 64})
    pair.export()
    imported = pair.bring()
    assert imported["left_out"] == [BASE] and list(pair.two.tags) == [NODE] and BASE in imported["msg"]
    assert not pair.bring()["changed"]


def test_an_image_is_one_by_what_makes_it(pair: Pair) -> None:
    answer = pair.one.image(NODE)
    assert answer
    image = image_part.Image([NODE], "sha256:other", answer["RootFS"]["Layers"], image_part.face_of(answer["Config"]))
    assert image.is_one(answer) and not image.is_one({**answer, "Config": {"Env": ["A=1"]}}) and not image.is_one({**answer, "RootFS": {}})
