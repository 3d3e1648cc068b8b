# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Listing and removing, on a Docker engine of memory and real files."""

from __future__ import annotations

import json
import os
import time
import types

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import NotFound
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._leftovers import caches
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import sweep_files
from ansible_collections.gb10.cluster.plugins.modules import cluster_prune

OURS = {"io.gb10.owner": "gb10.cluster", "io.gb10.cluster": "gb10", "io.gb10.role": "head"}
DOWNLOADS = {**OURS, "io.gb10.role": "download"}
DAY = 86400
RUN = "20261101T010000Z-0a1b"
#: Labels of an image that our recipe built.
BUILT = {"io.gb10.recipe": "y", "io.gb10.base": f"sha256:{'c' * 64}"}
OLD_IMAGE, NEW_IMAGE, BASE_IMAGE = (f"sha256:{letter * 64}" for letter in "abc")


class Engine:
    """A Docker engine of memory; it is its own SDK, and notes what is removed."""

    def __init__(self):
        self.known: dict[str, dict] = {}
        self.listed: dict[str, dict] = {}
        self.removed: list[str] = []
        self.refuses: dict[str, ClusterError] = {}
        self.containers_seen = 0

    def add_container(self, name, status="exited", labels=None, image=OLD_IMAGE, inherited=None):
        state = {"Status": status, "FinishedAt": "2026-11-01T00:00:00Z"}
        labels = OURS if labels is None else labels
        self.known[f"{name}-id"] = {
            "Id": f"{name}-id", "Name": f"/{name}", "Created": "2026-11-01T00:00:00Z", "State": state, "Config": {"Labels": labels}, "Image": image,
            "inherited": inherited or {}, "mounts": [],
        }  # fmt: skip

    def add_image(self, image_id, tags=(), days=0.0, labels=None, step="LABEL io.gb10.base=x io.gb10.recipe=y"):
        labels = {"io.gb10.recipe": "y", "io.gb10.base": BASE_IMAGE} if labels is None else labels
        self.listed[image_id] = {
            "Id": image_id, "RepoTags": list(tags), "RepoDigests": [], "Created": time.time() - days * DAY, "Size": 1000, "Labels": labels, "step": step,
        }  # fmt: skip

    # -- reading, by either client

    def containers(self, labels, statuses=(), size=False):
        of_downloads = {**DOWNLOADS, "io.gb10.cluster": labels.get("io.gb10.cluster")}
        assert (labels, size) in (({}, False), ({"io.gb10.owner": "gb10.cluster"}, True), (of_downloads, False))
        return [
            {"Id": entry["Id"], "Names": [entry["Name"]], "Image": "mine:1", "ImageID": entry["Image"], "SizeRw": 10, "State": entry["State"]["Status"],
             "Mounts": entry["mounts"], **entry["inherited"]}  # fmt: skip
            for entry in self.known.values()
            if labels.items() <= entry["Config"]["Labels"].items() and (not statuses or entry["State"]["Status"] in statuses)
        ]

    def images(self, labels=("x",)):
        return [image for image in self.listed.values() if labels[0] in {**image["Labels"], "x": ""}]

    def history(self, image_id):
        return [{"CreatedBy": self.listed[image_id]["step"]}]

    def inspect(self, container_id):
        if container_id not in self.known:
            raise NotFound(container_id)
        return self.known[container_id]

    def image(self, reference):
        return next((image for image in self.listed.values() if reference in (image["Id"], *image["RepoTags"])), None)

    # -- acting

    def stop(self, container_id, grace):
        self.removed.append(f"stopped {container_id}")

    def remove(self, container_id):
        self._allowed(container_id)
        self.removed.append(container_id)
        del self.known[container_id]

    def remove_image(self, name):
        self._allowed(name)
        self.removed.append(name)
        image = self.image(name)
        image["RepoTags"] = [tag for tag in image["RepoTags"] if tag != name]
        if not image["RepoTags"]:
            del self.listed[image["Id"]]

    def _allowed(self, name):
        if name in self.refuses:
            raise self.refuses[name]


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node with items of each kind: some that may be removed, and one of each kind that must stay."""
    engine = Engine()
    engine.add_container("gb10-gb10-head")
    engine.add_container("other", labels={**OURS, "io.gb10.cluster": "other"}, image=BASE_IMAGE)
    engine.add_container("stranger", labels={}, image=BASE_IMAGE)
    engine.add_container("gb10-gb10-worker", status="running", image=NEW_IMAGE)
    engine.add_image(BASE_IMAGE, ["nvcr.io/nvidia/vllm:26.05-py3"], labels={})
    engine.add_image(OLD_IMAGE)
    engine.add_image(NEW_IMAGE, ["local/vllm-ray:26.05"], days=99)
    files = {
        f"log/gb10/engine/{RUN}.log": 30,
        "log/gb10/engine/20261120T010000Z-ffff.log": 30,
        "log/gb10/engine/notes.txt": 30,
        "log/other/engine/20261101T010000Z-aaaa.log": 30,
        f"state/image-contracts/{'a' * 64}.json": 0,
        f"state/image-contracts/{'b' * 64}.json": 0,
        "state/gb10/lock.json": 30,
    }
    for path, days in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
        os.utime(tmp_path / path, (time.time() - days * DAY, time.time() - days * DAY))

    monkeypatch.setattr(cluster_prune, "EngineApi", lambda socket, timeout: engine)
    monkeypatch.setattr(cluster_prune, "Docker", lambda socket, timeout: engine)
    return types.SimpleNamespace(root=tmp_path, engine=engine)


def call(node, *, check_mode=False, **params):
    defaults = {
        "cluster_name": "gb10", "remove": False, "days": 14, "keep_images": [], "companions": None,
        "state_dir": str(node.root / "state"), "log_dir": str(node.root / "log"),
        "lock_id": "", "secrets_dir": str(node.root / "secrets"), "hf_home": str(node.root / "hf"), "docker_socket": "/none", "docker_timeout": 5,
    }  # fmt: skip
    return cluster_prune.work(types.SimpleNamespace(params={**defaults, **params}, check_mode=check_mode))


def files(node):
    return {str(path.relative_to(node.root)) for path in node.root.rglob("*") if path.is_file()}


GOING = ["gb10-gb10-head", OLD_IMAGE[:19], f"{RUN}.log", f"{'a' * 64}.json"]


def short(names):
    return [os.path.basename(name) if name.startswith("/") else name for name in names]


def test_what_may_go_is_listed_and_nothing_touched(node):
    before = files(node)
    result = call(node)
    assert short(entry["name"] for entry in result["candidates"]) == GOING
    assert [entry["kind"] for entry in result["candidates"]] == ["container", "image", "log", "note"]
    assert not result["changed"] and result["removed"] == [] and result["diff"]["before"] == result["diff"]["after"]
    assert [os.path.basename(entry["name"]) for entry in result["left"]] == ["notes.txt"]
    assert result["total_bytes"] == sum(entry["size_bytes"] for entry in result["candidates"]) > 0
    assert files(node) == before and node.engine.removed == []


def test_check_mode_predicts_and_touches_nothing(node):
    before = files(node)
    result = call(node, remove=True, check_mode=True)
    assert result["changed"] and short(result["removed"]) == GOING and result["diff"]["after"] == {"leavings": []}
    assert files(node) == before and node.engine.removed == []


def test_removal_takes_exactly_these_and_a_second_run_finds_nothing(node):
    before = files(node)
    result = call(node, remove=True)
    assert result["changed"] and short(result["removed"]) == GOING and len(result["actions"]) == 4
    assert node.engine.removed == ["gb10-gb10-head-id", OLD_IMAGE]
    assert before - files(node) == {f"log/gb10/engine/{RUN}.log", f"state/image-contracts/{'a' * 64}.json"}
    assert set(node.engine.known) == {"other-id", "stranger-id", "gb10-gb10-worker-id"}
    again = call(node, remove=True)
    assert not again["changed"] and again["candidates"] == []


@pytest.fixture
def download(node):
    """What an interrupted download leaves, next to another cluster's and to a secret that stays."""
    node.engine.add_container("gb10-gb10-download", status="running", labels=DOWNLOADS, image=NEW_IMAGE)
    node.engine.add_container("gb10-other-download", status="running", labels={**DOWNLOADS, "io.gb10.cluster": "other"}, image=NEW_IMAGE)
    for name in ("gb10/hf_token", "gb10/ray_token", "other/hf_token"):
        path = node.root / "secrets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("hf_planted")
    return node


def test_an_interrupted_download_is_listed_and_nothing_of_its_token_shown(download):
    result = call(download)
    assert [(entry["kind"], short([entry["name"]])[0]) for entry in result["candidates"]][:2] == [("download", "gb10-gb10-download"), ("token", "hf_token")]
    assert download.engine.removed == [] and (download.root / "secrets/gb10/hf_token").exists() and "hf_planted" not in json.dumps(result)


def test_an_interrupted_download_is_ended_and_its_token_removed(download):
    result = call(download, remove=True)
    assert short(result["removed"])[:2] == ["gb10-gb10-download", "hf_token"]
    assert download.engine.removed[:2] == ["stopped gb10-gb10-download-id", "gb10-gb10-download-id"] and "gb10-other-download-id" in download.engine.known
    assert {path for path in files(download) if path.startswith("secrets/")} == {"secrets/gb10/ray_token", "secrets/other/hf_token"}
    assert call(download, remove=True)["candidates"] == []


def test_a_download_that_ended_meanwhile_is_skipped(download):
    candidates = cluster_prune.prune.downloads([download.engine.known["gb10-gb10-download-id"]], "gb10", time.time())
    download.engine.known["gb10-gb10-download-id"]["State"]["Status"] = "exited"
    assert not cluster_prune.Remover(download.engine, {"cluster_name": "gb10", "lock_id": "", "state_dir": "/none"})(candidates[0])
    assert download.engine.removed == []


def test_the_noted_run_keeps_its_logs(node):
    (node.root / "state/gb10/run").mkdir()
    (node.root / "state/gb10/run/run.json").write_text(json.dumps({"run_id": RUN}))
    assert f"{RUN}.log" not in short(entry["name"] for entry in call(node)["candidates"])


def test_an_image_that_a_running_container_uses_stays_until_it_does_not(node):
    node.engine.known["gb10-gb10-worker-id"]["State"]["Status"] = "exited"
    names = short(entry["name"] for entry in call(node)["candidates"])
    assert "local/vllm-ray:26.05" in names
    assert "local/vllm-ray:26.05" not in short(entry["name"] for entry in call(node, keep_images=["local/vllm-ray:26.05"])["candidates"])


def test_one_failure_keeps_none_of_the_others_and_fails_at_the_end(node):
    node.engine.refuses[OLD_IMAGE] = ClusterError("removing image: conflict")
    with pytest.raises(ClusterError, match="1 of 4 could not be removed on .*: removing image: conflict") as caught:
        call(node, remove=True)
    details = caught.value.details
    assert details["changed"] and short(details["removed"]) == ["gb10-gb10-head", f"{RUN}.log"]
    assert [entry["id"] for entry in details["findings"]] == ["prune.image"] and details["findings"][0]["verdict"] == "block"
    assert short(details["skipped"]) == [f"{'a' * 64}.json"], "the note of an image that is still there stays"
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("meanwhile", "stays"),
    [
        (lambda node: node.engine.known["gb10-gb10-head-id"]["State"].update(Status="running"), "gb10-gb10-head"),
        (lambda node: node.engine.known.pop("gb10-gb10-head-id"), "gb10-gb10-head"),
        (lambda node: node.engine.listed[OLD_IMAGE].update(RepoTags=["mine:1"]), OLD_IMAGE[:19]),
        (lambda node: node.engine.add_container("new", "running", {}, OLD_IMAGE), OLD_IMAGE[:19]),
        (lambda node: os.utime(node.root / f"log/gb10/engine/{RUN}.log"), f"{RUN}.log"),
        (lambda node: (node.root / f"log/gb10/engine/{RUN}.log").unlink(), f"{RUN}.log"),
    ],
    ids=["started", "removed", "named", "used", "written to", "log removed"],
)
def test_what_changed_since_it_was_listed_is_left(node, monkeypatch, meanwhile, stays):
    real = cluster_prune.remove_all

    def later(*arguments):
        meanwhile(node)
        return real(*arguments)

    monkeypatch.setattr(cluster_prune, "remove_all", later)
    result = call(node, remove=True)
    assert stays in short(result["skipped"]) and stays not in short(result["removed"])


@pytest.mark.parametrize("error", [NotFound("gone"), ClusterError("removal of container abc is already in progress")])
def test_a_container_that_another_user_removes_is_no_failure(node, error):
    node.engine.refuses["gb10-gb10-head-id"] = error
    assert "gb10-gb10-head" in short(call(node, remove=True)["skipped"])


def test_check_mode_without_the_sdk_fails_as_the_removal_would(node, monkeypatch):
    def missing(*_args):
        raise ClusterError("the Docker SDK is missing")

    monkeypatch.setattr(cluster_prune, "Docker", missing)
    with pytest.raises(ClusterError, match="SDK is missing"):
        call(node, remove=True, check_mode=True)
    assert call(node, check_mode=True)["candidates"]


def test_nothing_to_remove_changes_nothing(node):
    node.engine.known.clear()
    node.engine.listed.clear()
    result = call(node, remove=True, cluster_name="none", state_dir=str(node.root / "none"))
    assert not result["changed"]


@pytest.mark.parametrize(("remove", "other"), [(False, "Docker"), (True, "EngineApi")])
def test_listing_needs_no_sdk_and_removing_uses_it_alone(node, monkeypatch, remove, other):
    monkeypatch.setattr(cluster_prune, other, lambda *_args: pytest.fail(f"asked for {other}"))
    assert call(node, remove=remove)["candidates"]


def test_days_below_zero_are_refused(node):
    with pytest.raises(ClusterError, match="days is -1"):
        call(node, days=-1)


def test_a_note_of_the_engine_that_cannot_be_read_stops_before_anything(node):
    (node.root / "state/gb10/run").mkdir()
    (node.root / "state/gb10/run/run.json").write_text("{")
    with pytest.raises(UnknownState):
        call(node, remove=True)
    assert node.engine.removed == []


def test_a_long_list_of_strangers_is_cut(node):
    for number in range(150):
        (node.root / f"log/gb10/engine/mine-{number}").write_text("")
    assert len(call(node)["left"]) == cluster_prune.LEFT_LIMIT


def test_a_lock_that_was_broken_ends_the_removal(node):
    """Another run may work on these nodes by now."""
    (node.root / "state/gb10/lock.json").unlink()
    before = [candidate["name"] for candidate in call(node)["candidates"]]
    with pytest.raises(ClusterError, match=r"this run lost the cluster's lock abc on .*, it is gone") as caught:
        call(node, remove=True, lock_id="abc")
    assert caught.value.details["removed"] == [] and len(caught.value.details["findings"]) == 1
    assert [candidate["name"] for candidate in call(node)["candidates"]] == before


@pytest.mark.parametrize("status", ["exited", "running"])
def test_a_container_with_labels_of_its_image_alone_stays_and_is_named(node, status):
    node.engine.add_container("copy", status, {}, BASE_IMAGE, {"InheritedLabels": OURS})
    result = call(node, remove=True)
    assert "copy-id" in node.engine.known and "copy" not in result["removed"]
    assert {"kind": "container", "name": "copy (of image mine:1)", "why": "not ours: it has our labels from its image alone"} in result["left"]
    assert not any(entry["name"].startswith("copy") for entry in call(node, cluster_name="other")["left"])


# -- what a container can write ----------------------------------------------------------------------------------------


@pytest.fixture
def cached(node):
    """The node with what engines of three images compiled: one that is used, one that is there, one that is gone."""
    top = node.root / "state/gb10/cache"
    places = {}
    for name, made_of in (("used", (NEW_IMAGE, BUILT)), ("there", (BASE_IMAGE, {})), ("gone", (f"sha256:{'d' * 64}", {}))):
        history = [{"CreatedBy": "LABEL io.gb10.base=x io.gb10.recipe=y"}]
        places[name] = top / f"0.20.1+nv-amd64-{caches.origin(*made_of, history)}"
        (places[name] / "triton").mkdir(parents=True)
        (places[name] / "triton/kernel.so").write_bytes(b"x" * 5000)
        (places[name] / "link").symlink_to(node.root / "state/gb10/lock.json")
    node.engine.known["gb10-gb10-worker-id"]["mounts"] = [{"Source": str(places["used"])}]
    node.places = places
    return node


def named(node, result, key="candidates"):
    """Return which of the caches a result names."""
    paths = {str(path): name for name, path in node.places.items()}
    return {paths[entry["name"]] for entry in result[key] if entry["name"] in paths}


def test_what_was_compiled_for_an_image_that_is_gone_may_go_at_any_age(cached):
    assert named(cached, call(cached)) == {"gone"}
    (entry,) = [entry for entry in call(cached)["candidates"] if entry["kind"] == "cache"]
    assert entry["why"] == "compiled for an image that is gone" and entry["size_bytes"] >= 5000
    assert named(cached, call(cached, remove=True)) == {"gone"}
    assert [path.exists() for path in cached.places.values()] == [True, True, False]
    assert (cached.root / "state/gb10/lock.json").read_text() == "x"


def test_what_no_engine_wrote_to_for_long_may_go_unless_a_container_holds_it(cached):
    assert named(cached, call(cached, days=0)) == {"there", "gone"}
    assert named(cached, call(cached, days=14)) == {"gone"}
    cached.engine.known["gb10-gb10-worker-id"]["State"]["Status"] = "exited"
    assert named(cached, call(cached, days=0)) == {"used", "there", "gone"}


def test_the_caches_of_an_image_that_is_pruned_may_go_with_it(cached):
    """Its container keeps the one that is used."""
    cached.engine.listed[BASE_IMAGE]["Labels"] = {}
    cached.engine.known["gb10-gb10-worker-id"]["mounts"] = []
    cached.engine.known["gb10-gb10-worker-id"]["Image"] = BASE_IMAGE
    assert named(cached, call(cached, days=30)) == {"used", "gone"}, "the image is unused, and old"


def test_a_cache_that_is_used_by_the_time_of_its_removal_stays(cached, monkeypatch):
    remove = cluster_prune.Remover._container
    worker = cached.engine.known["gb10-gb10-worker-id"]

    def use(self, candidate):
        worker["mounts"].append({"Source": str(cached.places["gone"])})
        return remove(self, candidate)

    monkeypatch.setattr(cluster_prune.Remover, "_container", use)
    result = call(cached, remove=True)
    assert str(cached.places["gone"]) in result["skipped"] and cached.places["gone"].exists()


def test_a_directory_of_another_name_among_the_caches_is_not_ours(cached):
    (cached.root / "state/gb10/cache/triton").mkdir()
    result = call(cached, remove=True, days=0)
    assert {"kind": "cache", "name": str(cached.root / "state/gb10/cache/triton"), "why": "not ours"} in result["left"]


@pytest.mark.parametrize("when", ["before", "between"])
def test_a_directory_of_logs_that_becomes_a_link_loses_nothing_outside(node, monkeypatch, when):
    """Root in a container of an older version can do that at any time."""
    outside = node.root / "outside"
    outside.mkdir()
    (outside / f"{RUN}.log").write_text("not yours")
    os.utime(outside / f"{RUN}.log", (0, 0))
    engine = node.root / "log/gb10/engine"

    def swap():
        engine.rename(node.root / "log/gb10/moved")
        engine.symlink_to(outside)

    if when == "before":
        swap()
        call(node, remove=True)
    else:
        remove_all = cluster_prune.remove_all
        monkeypatch.setattr(cluster_prune, "remove_all", lambda *given: (swap(), remove_all(*given))[1])
        with pytest.raises(ClusterError, match="engine was tampered with: a link"):
            call(node, remove=True)
    assert (outside / f"{RUN}.log").read_text() == "not yours"


def test_a_note_that_is_a_link_is_named(node):
    (node.root / "state/gb10/run").mkdir(exist_ok=True)
    (node.root / "state/gb10/run/run.json").unlink(missing_ok=True)
    (node.root / "state/gb10/run/run.json").symlink_to("/etc/passwd")
    with pytest.raises(ClusterError, match="run.json was tampered with: a link") as caught:
        call(node)
    assert caught.value.reason == "tampered"


@pytest.mark.parametrize("name", ["recipe", "mods", "base_digest", "versions"])
def test_an_own_build_ends_with_any_of_its_labels(node, name):
    """The classic builder makes a layer of each label that a build was given (recorded, engine 20.10.24)."""
    node.engine.add_image("sha256:" + "d" * 64, days=40, step=f"/bin/sh -c #(nop)  LABEL io.gb10.{name}=x")
    node.engine.add_image("sha256:" + "e" * 64, days=40, step="/bin/sh -c #(nop)  LABEL users.note=1")
    names = [candidate["name"] for candidate in call(node)["candidates"]]
    assert any("dddd" in entry for entry in names) and not any("eeee" in entry for entry in names)


def test_what_gives_an_image_out_is_ended(node, monkeypatch):
    monkeypatch.setattr(cluster_prune.transient, "RUN_ROOT", str(node.root / "run"))
    monkeypatch.setattr(cluster_prune.transient, "is_active", lambda _unit: False)
    monkeypatch.setattr(cluster_prune.transient, "run_tool", lambda *_given: None)
    place = node.root / "run/gb10-image-copy/gb10"
    place.mkdir(parents=True)
    assert "gb10-image-copy-gb10.service" in [candidate["name"] for candidate in call(node)["candidates"]] and place.is_dir()
    assert "gb10-image-copy-gb10.service" in short(call(node, remove=True)["removed"]) and not place.exists()


def test_what_a_sweep_left_goes_once_its_timer_is_gone(node, monkeypatch):
    timer = node.root / "etc/gb10-sweep.timer"
    monkeypatch.setattr(sweep_files, "unit_of", lambda _state, _etc: types.SimpleNamespace(path=str(timer)))
    places = [node.root / "state/_sweep", node.root / "secrets/_sweep"]
    for place in places:
        place.mkdir(parents=True)
        (place / "webhook").write_text("https://planted", encoding="utf-8")
    timer.parent.mkdir()
    timer.write_text("", encoding="utf-8")
    assert [candidate for candidate in call(node)["candidates"] if candidate["kind"] == "sweep"] == []
    timer.unlink()
    assert [candidate["name"] for candidate in call(node)["candidates"] if candidate["kind"] == "sweep"] == list(map(str, places)) and places[1].is_dir()
    assert set(map(str, places)) <= set(call(node, remove=True)["removed"]) and not any(place.exists() for place in places)
