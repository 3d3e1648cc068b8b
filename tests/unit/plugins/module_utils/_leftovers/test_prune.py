# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is no longer needed, and above all what stays."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._clock import seconds_of
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._leftovers import prune

NOW = 1_800_000_000.0
DAY = 86400
OURS = {"io.gb10.owner": "gb10.cluster", "io.gb10.cluster": "gb10", "io.gb10.role": "worker"}


# -- times -----------------------------------------------------------------------------------------------------------


def test_a_clock_that_was_set_back_gives_no_negative_age():
    assert prune.age_of(NOW + 5, NOW) == 0


# -- containers ------------------------------------------------------------------------------------------------------


def container(status="exited", name="gb10-gb10-worker", finished="2027-01-14T08:00:00Z", **differing):
    labels = differing.get("labels", OURS)
    state = {"Status": status, "FinishedAt": finished}
    return {"Id": f"{name}-id", "Name": f"/{name}", "Created": "2027-01-10T08:00:00.123456789Z", "State": state, "Config": {"Labels": labels}}


def removable(*containers, sizes=None):
    return [(candidate.name, candidate.why) for candidate in prune.containers(containers, sizes or {}, "gb10", NOW, {}).candidates]


@pytest.mark.parametrize("status", ["exited", "created", "dead"])
def test_a_stopped_container_of_this_cluster_may_go(status):
    assert removable(container(status)) == [("gb10-gb10-worker", status)]


@pytest.mark.parametrize("status", ["running", "paused", "restarting", "removing"])
def test_one_that_may_hold_something_stays(status):
    assert removable(container(status)) == []


@pytest.mark.parametrize(
    "labels",
    [
        None,
        {},
        {"io.gb10.cluster": "gb10"},
        {**OURS, "io.gb10.owner": "stranger"},
        {**OURS, "io.gb10.cluster": "other"},
        {**OURS, "io.gb10.cluster": ""},
        {"io.gb10.owner": "gb10.cluster"},
        {"io.gb10.owner": "gb10.cluster", "io.gb10.role": "head"},
    ],
)
def test_one_that_is_not_of_this_cluster_stays(labels):
    assert removable(container(labels=labels)) == []


def test_a_probes_container_is_left_over_after_an_hour():
    labels = {"io.gb10.owner": "gb10.cluster", "io.gb10.role": "probe"}
    assert removable(container(labels=labels)) == [("gb10-gb10-worker", "left over from asking an image")]
    assert removable(container(labels=labels, finished="2027-01-15T07:59:00Z")) == []


@pytest.mark.parametrize(("age", "why"), [(prune.PROBE_AGE - 1, ""), (prune.PROBE_AGE, "left over from asking an image")])
def test_a_probe_that_just_ended_may_still_be_waited_for(age, why):
    labels = {"io.gb10.owner": "gb10.cluster", "io.gb10.role": "probe", "io.gb10.cluster": "gb10"}
    assert prune.why_container(container(labels=labels), "gb10", age) == why


@pytest.mark.parametrize(
    ("companions", "why"),
    [
        (None, ""),
        (["asr"], ""),
        (["asr", "tts"], ""),
        (["tts"], "exited, of a companion that is not declared"),
        ([], "exited, of a companion that is not declared"),
    ],
)
def test_a_companion_that_is_no_longer_declared_goes_if_the_declared_ones_are_known(companions, why):
    labels = {"io.gb10.owner": "gb10.cluster", "io.gb10.role": "companion", "io.gb10.companion": "asr", "io.gb10.cluster": "gb10"}
    assert prune.why_container(container(labels=labels), "gb10", 9 * DAY, companions) == why


def test_a_container_that_is_at_work_stays_and_is_named():
    result = prune.containers([container(), container(name="b")], {}, "gb10", NOW, {"b-id": ["python3 (7)", "sh (8)"]})
    assert [candidate.name for candidate in result.candidates] == ["gb10-gb10-worker"]
    assert result.left == [prune.Left("container", "b", "exited, and yet at work: python3 (7); sh (8)")]


def test_what_a_result_shows_of_a_candidate():
    (candidate,) = prune.containers([container()], {"gb10-gb10-worker-id": 7}, "gb10", NOW, {}).candidates
    assert candidate.view() == {"kind": "container", "name": "gb10-gb10-worker", "age_seconds": candidate.age, "size_bytes": 7, "why": "exited"}


DOWNLOAD = {**OURS, "io.gb10.role": "download"}


@pytest.mark.parametrize(
    ("status", "labels", "is_found"),
    [
        ("running", DOWNLOAD, True), ("paused", DOWNLOAD, True), ("exited", DOWNLOAD, False), ("running", OURS, False), ("running", None, False),
        ("running", {**DOWNLOAD, "io.gb10.cluster": "other"}, False), ("running", {**DOWNLOAD, "io.gb10.owner": "stranger"}, False),
    ],
)  # fmt: skip
def test_a_download_of_this_cluster_that_goes_on(status, labels, is_found):
    download = container(status, labels=labels)
    download["State"]["StartedAt"] = "2027-01-15T07:00:00Z"
    downloads = prune.downloads([download], "gb10", NOW)
    assert bool(downloads) is is_found
    if downloads:
        assert (downloads[0].kind, downloads[0].name, downloads[0].ref, downloads[0].size) == ("download", "gb10-gb10-worker", ("gb10-gb10-worker-id",), 0)
        assert downloads[0].age == int(NOW - seconds_of("2027-01-15T07:00:00Z"))
        del download["State"]["StartedAt"]
        assert prune.downloads([download], "gb10", NOW)[0].age == int(NOW - seconds_of(download["Created"]))


def test_age_and_size_of_a_container():
    stopped, never_ran = container(), container("created", name="b", finished="0001-01-01T00:00:00Z")
    first, second = prune.containers([never_ran, stopped], {"gb10-gb10-worker-id": 7}, "gb10", NOW, {}).candidates
    assert (first.name, first.ref, first.size) == ("b", ("b-id",), 0)
    assert first.age == int(NOW - seconds_of(never_ran["Created"])) and second.size == 7
    assert second.age == int(NOW - seconds_of("2027-01-14T08:00:00Z"))


# -- images ----------------------------------------------------------------------------------------------------------

STEP = {"CreatedBy": "/bin/sh -c #(nop)  LABEL io.gb10.base=sha256:ba5e io.gb10.recipe=abc"}
STEP_BUILDKIT = {"CreatedBy": "LABEL io.gb10.base=sha256:ba5e io.gb10.recipe=abc"}


def image(image_id="sha256:aaaa", tags=("local/vllm-ray:26.05",), days=20, **more):
    labels = {"io.gb10.recipe": "abc", "io.gb10.base": "sha256:ba5e"}
    return {"Id": image_id, "RepoTags": list(tags), "RepoDigests": [], "Created": NOW - days * DAY, "Size": 1000, "Labels": labels, **more}


def judged(*listed, history=(STEP,), used=(), keep=(), days=14):
    return prune.images(list(listed), {entry["Id"]: list(history) for entry in listed}, {"sha256:ba5e": 900}, used, keep, days, NOW)


@pytest.mark.parametrize("history", [(STEP,), (STEP_BUILDKIT, {"CreatedBy": "RUN x"})])
def test_an_old_unused_image_may_go(history):
    (only,) = judged(image(), history=history).candidates
    assert (only.name, only.ref, only.age, only.size) == ("local/vllm-ray:26.05", ("local/vllm-ray:26.05",), 20 * DAY, 100)
    assert "more than 14 days ago" in only.why


@pytest.mark.parametrize("tags", [(), ("<none>:<none>",), None])
def test_the_predecessor_of_a_rebuild_may_go_at_once_by_its_id(tags):
    young = image(days=0)
    young["RepoTags"] = list(tags) if tags is not None else None
    (only,) = judged(young).candidates
    assert only.ref == ("sha256:aaaa",) and "newer build" in only.why


def test_an_image_without_a_name_is_called_by_the_short_form_of_its_id():
    assert judged(image(f"sha256:{'abcd' * 16}", tags=())).candidates[0].name == "sha256:abcdabcdabcd"


def test_an_image_of_many_names_goes_by_all_of_them():
    assert judged(image(tags=("a:1", "b:2"))).candidates[0].ref == ("a:1", "b:2")


@pytest.mark.parametrize(
    "arguments",
    [
        {"used": {"sha256:aaaa"}},
        {"days": 21},
        {"keep": ["local/vllm-ray:26.05"]},
        {"keep": ["sha256:aaaa"]},
    ],
)
def test_images_that_stay_without_a_word(arguments):
    assert judged(image(), **arguments) == ([], [])


def test_an_image_of_exactly_that_age_may_go():
    assert judged(image(days=14)).candidates and not judged(image(days=14 - 1 / DAY)).candidates


def test_an_image_smaller_than_its_base_gives_back_nothing():
    assert judged(image(Size=800)).candidates[0].size == 0


@pytest.mark.parametrize("reference", ["a@sha256:dd", "sha256:aaaa", "host:5000/a:1", "a:1"])
def test_a_reference_that_is_whole_stays_as_it_is(reference):
    assert prune.with_tag(reference) == reference and prune.with_tag("host:5000/a") == "host:5000/a:latest"


def test_a_name_without_tag_is_kept_as_latest():
    assert judged(image(tags=("host:5000/ours:latest", "b:2")), keep=["host:5000/ours"]).candidates == []
    assert judged(image(tags=("host:5000/ours:1",)), keep=["host:5000/ours"]).candidates != []


def test_a_digest_is_a_name_too():
    assert judged(image(RepoDigests=["a@sha256:dddd"]), keep=["a@sha256:dddd"]).candidates == []


@pytest.mark.parametrize("history", [({"CreatedBy": "RUN pip install more"}, STEP), ({"CreatedBy": ""}, STEP), ()])
def test_a_foreign_image_built_on_an_own_one_stays(history):
    result = judged(image(), history=history)
    assert result.candidates == [] and [left.why for left in result.left] == ["built by a user on an image of the collection"]


def test_without_its_base_the_whole_image_comes_back():
    assert prune.images([image()], {"sha256:aaaa": [STEP]}, {}, (), (), 14, NOW).candidates[0].size == 1000


# -- files -----------------------------------------------------------------------------------------------------------

OLD, LAST = "20261101T010000Z-0a1b", "20261120T010000Z-ffff"


@pytest.fixture
def logs(tmp_path):
    """A cluster's log directory: all files are 30 days old, those with ``young`` in their list are not."""
    files = {
        f"engine/{OLD}.log": 30,
        f"engine/{OLD}.log.1": 30,
        f"engine/{LAST}.log": 30,
        "engine/20261110T010000Z-beef.log": 1,
        "containers/gb10-gb10-worker-0123456789ab.log": 30,
        "containers/gb10-gb10-head-0123456789ab.log": 1,
        "containers/gb10-other-head-0123456789ab.log": 30,
        "engine/notes.txt": 30,
        "recover/20261101T010000Z.txt": 30,
        "recover/20261120T010000Z.txt": 1,
        "recover/notes.txt": 30,
        f"{OLD}.log": 30,
    }
    for path, days in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("x" * 10)
        os.utime(tmp_path / path, (NOW - days * DAY, NOW - days * DAY))
    return tmp_path


def judge_logs(root, runs=(), days=14):
    result = prune.logs(str(root), prune.files_below(str(root)), "gb10", runs, days, NOW)
    return [os.path.relpath(item.name, root) for item in result.candidates], [os.path.relpath(item.name, root) for item in result.left]


def test_old_own_logs_may_go_and_nothing_else(logs):
    candidates, left = judge_logs(logs)
    gone = ["containers/gb10-gb10-worker-0123456789ab.log", f"engine/{OLD}.log", f"engine/{OLD}.log.1", "recover/20261101T010000Z.txt"]
    assert sorted(candidates) == gone
    assert sorted(left) == [f"{OLD}.log", "containers/gb10-other-head-0123456789ab.log", "engine/notes.txt", "recover/notes.txt"]


def test_a_log_of_exactly_that_age_may_go_and_gives_back_what_it_takes_on_disk(logs):
    path = logs / f"engine/{OLD}.log"
    path.write_bytes(b"x" * 100_000)
    os.utime(path, (NOW - 30 * DAY, NOW - 30 * DAY))
    (log,) = (log for log in prune.logs(str(logs), prune.files_below(str(logs)), "gb10", (), 30, NOW).candidates if log.name == str(path))
    assert (log.size, log.age, log.ref) == (path.stat().st_blocks * 512, 30 * DAY, (str(path),)) and log.size >= 100_000
    assert judge_logs(logs, days=31)[0] == []


def test_the_logs_of_the_last_run_stay_however_old(logs):
    assert not [name for name in judge_logs(logs)[0] if LAST in name], "the newest there is"
    assert f"engine/{LAST}.log" not in judge_logs(logs, runs={OLD})[0]
    assert [name for name in judge_logs(logs, runs={OLD})[0] if OLD in name] == [], "the one that was noted"


def test_links_are_not_ours_and_lead_nowhere(logs, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / f"{OLD}.log").write_text("")
    (logs / f"engine/{OLD[:-4]}aaaa.log").symlink_to(outside / f"{OLD}.log")
    (logs / "linked").symlink_to(outside)
    candidates, left = judge_logs(logs)
    assert f"engine/{OLD[:-4]}aaaa.log" in left and "linked" in left
    assert not [name for name in candidates if "linked" in name]


def test_an_absent_directory_holds_nothing(tmp_path):
    assert prune.files_below(str(tmp_path / "none")) == []


def test_a_directory_that_may_not_be_read_is_unknown(logs, monkeypatch):
    def refuse(path, *more, real=os.open, **how):
        if str(path).endswith("engine"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *more, **how)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UnknownState, match="engine cannot be read") as caught:
        prune.files_below(str(logs))
    assert "become: true" in caught.value.remedy


def test_notes_on_images_that_are_gone_may_go(tmp_path):
    for name in (f"{'a' * 64}.json", f"{'a' * 64}.gpu.json", f"{'b' * 64}.json", f"{'b' * 64}.json.4711-17.new", "README"):
        (tmp_path / name).write_text("{}")
        os.utime(tmp_path / name, (NOW - DAY, NOW - DAY))
    (tmp_path / f"{'c' * 64}.json.12-3.new").write_text("{")
    os.utime(tmp_path / f"{'c' * 64}.json.12-3.new", (NOW, NOW))
    result = prune.contracts(str(tmp_path), prune.files_below(str(tmp_path)), {f"sha256:{'b' * 64}"}, NOW)
    assert [(os.path.basename(candidate.name), candidate.why) for candidate in result.candidates] == [
        (f"{'a' * 64}.gpu.json", "its image is gone"),
        (f"{'a' * 64}.json", "its image is gone"),
        (f"{'b' * 64}.json.4711-17.new", "half written"),
    ]
    assert result.candidates[0].ref[1] == f"sha256:{'a' * 64}"
    assert [os.path.basename(entry.name) for entry in result.left] == ["README"]


def test_a_note_gives_back_what_it_takes_on_disk_and_a_half_written_one_waits_an_hour(tmp_path):
    whole, part = tmp_path / f"{'a' * 64}.json", tmp_path / f"{'a' * 64}.json.1-2.new"
    for path, age in ((whole, 5), (part, prune.PROBE_AGE)):
        path.write_bytes(b"x" * 100_000)
        os.utime(path, (NOW - age, NOW - age))
    candidates = {candidate.name: candidate for candidate in prune.contracts(str(tmp_path), prune.files_below(str(tmp_path)), (), NOW).candidates}
    assert {name: (candidate.size >= 100_000, candidate.size, candidate.age) for name, candidate in candidates.items()} == {
        str(path): (True, path.stat().st_blocks * 512, age) for path, age in ((whole, 5), (part, prune.PROBE_AGE))
    }
    os.utime(part, (NOW - prune.PROBE_AGE + 1, NOW - prune.PROBE_AGE + 1))
    assert [candidate.name for candidate in prune.contracts(str(tmp_path), prune.files_below(str(tmp_path)), (), NOW).candidates] == [str(whole)]


def test_a_link_in_place_of_a_note_is_not_ours(tmp_path):
    (tmp_path / f"{'a' * 64}.json").symlink_to("/etc/hostname")
    result = prune.contracts(str(tmp_path), prune.files_below(str(tmp_path)), (), NOW)
    assert result.candidates == [] and [left.why for left in result.left] == ["not ours"]
