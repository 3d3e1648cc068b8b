# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A model arrives whole or not at all, goes on where it was cut, and replaces nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import types
from pathlib import Path

import pytest
from copying_pair import COMMIT, REPO, SECRET, Pair, blob, cache, tree

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._host import transient
from ansible_collections.gb10.cluster.plugins.module_utils._model import copy_source, copy_target, copying
from ansible_collections.gb10.cluster.plugins.modules import model_copy

LARGE = f"blobs/{blob(b'A' * 4000, True)}"


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    return Pair(tmp_path, monkeypatch)


def stage(pair: Pair, name: str = LARGE) -> Path:
    return pair.path / "two/hub" / copying.STAGE / "models--org--tiny" / name


def refused(pair: Pair, **params):
    """Return the refusal of a copy that gave no file its own name."""
    before = tree(pair.target) if pair.target.exists() else {}
    with pytest.raises(ClusterError) as caught:
        pair.call(**params)
    assert (tree(pair.target) if pair.target.exists() else {}) == before
    assert SECRET not in str(caught.value) + caught.value.remedy
    return caught.value


def test_what_arrives_is_what_the_source_has_and_a_second_run_reads_nothing(pair: Pair) -> None:
    (pair.source / "snapshots" / COMMIT / "own.txt").write_text("by hand")
    (pair.source / "snapshots" / COMMIT / "own.txt").chmod(0o600)
    predicted = pair.call(check=True)
    assert predicted["changed"] and not pair.target.exists() and pair.seen() == []
    result = pair.call()
    assert result["changed"] and result["copied"] == predicted["copied"] and result["bytes"] == 7109 and result["resumed_bytes"] == 0
    assert tree(pair.target) == tree(pair.source)
    assert not (pair.path / "two/hub" / copying.STAGE).exists() and not (pair.path / "state/model-copy-gb10.json").exists()
    *streams, compared = pair.seen()
    assert len(streams) == 4 and "--dry-run" in compared and "--append-verify" not in compared
    assert all("--append-verify" in words and "--compress" not in words and "--address=127.0.0.1" in words for words in streams)
    assert SECRET not in (pair.path / "seen").read_text() and "--password-file=-" in compared

    (pair.path / "seen").unlink()
    again = pair.call()
    assert not again["changed"] and again["actions"] == [] and pair.seen() == [] and not pair.call(check=True)["changed"]


def test_no_more_streams_run_than_asked_for(pair: Pair) -> None:
    pair.call(streams=2)
    assert len(pair.seen()) == 3 and tree(pair.target) == tree(pair.source)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_connection_that_is_cut_goes_on_where_it_was(pair: Pair, share: float) -> None:
    pair.plan(
        cut_after=int(4000 * share), rc=12,
        says="rsync: connection unexpectedly closed (0 bytes received so far) [receiver]\nrsync error: error in rsync protocol data stream (code 12)\n",
    )  # fmt: skip
    error = refused(pair, streams=4)
    assert error.reason == "cut" and "it goes on with what is there" in error.remedy
    assert stage(pair).stat().st_size == int(4000 * share)
    pair.plan()
    result = pair.call()
    assert result["resumed_bytes"] >= int(4000 * share) and tree(pair.target) == tree(pair.source)


def test_what_was_whole_in_the_stage_is_not_fetched_again(pair: Pair) -> None:
    stage(pair).parent.mkdir(parents=True)
    stage(pair).write_bytes(b"A" * 4000)
    status = (pair.source / LARGE).stat()
    os.utime(stage(pair), ns=(status.st_mtime_ns, status.st_mtime_ns))
    pair.call(streams=1)
    assert tree(pair.target) == tree(pair.source)
    lists = [words for words in pair.seen() if "--dry-run" not in words]
    assert len(lists) == 1


def test_a_file_that_was_never_compared_is_compared(pair: Pair) -> None:
    """Killed between its last byte and its digest, it is as long as the source's, and has not its time."""
    stage(pair).parent.mkdir(parents=True)
    stage(pair).write_bytes(b"X" * 4000)
    pair.call()
    assert tree(pair.target) == tree(pair.source)


SAID = {
    "disk full": ('rsync: [receiver] write failed on "blobs/x": No space left on device (28)\nrsync error: error in file IO (code 11)', "gb10.cluster.models"),
    "refused": ("@ERROR: auth failed on module r0\nrsync error: error starting client-server protocol (code 5)", "Run again"),
    "unreachable": ("rsync: [Receiver] failed to connect to 10.0.0.1 (10.0.0.1): Connection refused (111)", "gb10_copy_port"),
    "wrong digest": ("ERROR: blobs/x failed verification -- update discarded.", "journalctl -k"),
    "source changed": ('file has vanished: "/blobs/x" (in r0)', "what changes the model"),
    "busy": ("@ERROR: max connections (8) reached -- try again later", "Wait"),
    "permission": ('rsync: [sender] send_files failed to open "/blobs/x" (in r0): Permission denied (13)', "chown"),
}


@pytest.mark.parametrize("reason", SAID)
def test_each_failure_has_its_cause_and_its_remedy(pair: Pair, reason: str) -> None:
    said, remedy = SAID[reason]
    pair.plan(cut_after=10, says=f"{said}\n", rc=23)
    error = refused(pair)
    assert error.reason == reason and remedy in error.remedy and REPO in str(error) and said.splitlines()[0][:40] in str(error)
    pair.plan()
    assert pair.call()["changed"] and tree(pair.target) == tree(pair.source)


def test_a_source_that_changes_meanwhile_gives_no_file_its_name(pair: Pair) -> None:
    pair.plan(touches=True)
    error = refused(pair)
    assert error.reason == "source changed" and LARGE in error.details["files"]
    pair.plan()
    assert pair.call()["changed"] and tree(pair.target) == tree(pair.source)


def test_a_source_that_changed_since_it_was_listed_is_seen(pair: Pair) -> None:
    listing = pair.listing()
    (pair.source / LARGE).write_bytes(b"Z" * 4000)
    os.utime(pair.source / LARGE, (5, 5))
    assert refused(pair, listing=listing).reason == "source changed"


def test_a_file_of_the_same_name_and_other_content_is_named_and_stays(pair: Pair) -> None:
    (pair.target / "blobs").mkdir(parents=True)
    (pair.target / LARGE).write_bytes(b"mine")
    error = refused(pair)
    assert error.reason == "other content" and str(pair.target / LARGE) in str(error) and "4 bytes instead of 4000" in str(error)
    assert pair.seen() == [] and refused(pair, check=True).reason == "other content"


def test_a_link_and_a_ref_of_somebody_else_stay(pair: Pair) -> None:
    (pair.target / "snapshots" / COMMIT).mkdir(parents=True)
    (pair.target / "snapshots" / COMMIT / "config.json").symlink_to("/etc/passwd")
    assert "leads to /etc/passwd" in str(refused(pair))
    (pair.target / "snapshots" / COMMIT / "config.json").unlink()
    (pair.target / "refs").mkdir()
    (pair.target / "refs/main").write_text("f" * 40)
    assert "names another commit" in str(refused(pair, listing=pair.listing("main")))
    # A ref that nobody asked for is somebody's own.
    pair.call()
    assert (pair.target / "refs/main").read_text() == "f" * 40


def test_a_file_that_appears_while_it_is_copied_is_not_replaced(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = copy_target.fetch

    def fetched(*given):
        fetch(*given)
        (pair.target / "blobs").mkdir(parents=True)
        (pair.target / LARGE).write_bytes(b"mine")

    monkeypatch.setattr(copy_target, "fetch", fetched)
    with pytest.raises(ClusterError) as caught:
        pair.call()
    assert caught.value.reason == "other content" and (pair.target / LARGE).read_bytes() == b"mine"


def test_the_disk_is_asked_before_the_first_byte(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_target, "free_bytes", lambda _path: 7000)
    error = refused(pair)
    assert error.reason == "disk full" and error.details["needed_bytes"] == 7102 and pair.seen() == []
    monkeypatch.setattr(copy_target, "free_bytes", lambda _path: copying.GIB)
    assert refused(pair, disk_floor_gib=1, check=True).reason == "disk full"


def test_a_disk_that_is_full_for_us_is_named_too(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_given):
        raise OSError(errno.ENOSPC, "No space left on device", "/cache/hub")

    monkeypatch.setattr(copy_target, "write_lists", full)
    assert refused(pair).reason == "disk full"


def test_a_copy_into_the_same_cache_is_waited_for(pair: Pair, tmp_path: Path) -> None:
    path = copying.lock_path(str(tmp_path / "state"), str(tmp_path / "two/hub"))
    os.makedirs(os.path.dirname(path))
    with open(path, "w", encoding="utf-8") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        error = refused(pair, timeout=1)
    assert isinstance(error, WaitTimeout) and error.reason == "busy" and path in error.remedy
    assert pair.call()["changed"]


def test_a_copy_that_hangs_ends_and_leaves_no_process(pair: Pair) -> None:
    pair.plan(hangs=True)
    error = refused(pair, timeout=2)
    assert error.reason == "slow" and "gb10_copy_timeout" in error.remedy
    pair.plan()
    # The streams held the lock: it is free only when none of them lives.
    assert pair.call()["changed"]


@pytest.mark.parametrize("required", [True, False])
def test_a_node_that_cannot_copy_says_so_or_downloads(pair: Pair, monkeypatch: pytest.MonkeyPatch, required: bool) -> None:
    cases = {"no address": {"address": "192.0.2.1"}, "no rsync": {}}
    for reason, params in cases.items():
        if reason == "no rsync":
            monkeypatch.setattr(copy_source.shutil, "which", lambda *_given, **_more: None)
        if required:
            error = refused(pair, **params)
            assert error.reason == reason and error.remedy
        else:
            result = pair.call(required=False, **params)
            assert (result["able"], result["changed"], result["verdict"], result["reason"]) == (False, False, "warn", reason) and result["remedy"]


def test_an_rsync_that_is_too_old_is_named(pair: Pair) -> None:
    pair.plan(version="rsync  version 3.1.3  protocol version 31")
    assert "3.1.3; expected 3.2.0 or newer" in str(refused(pair))


# --- the source ---------------------------------------------------------------------------------------------------------------


def serve(pair: Pair, check: bool = False, **params):
    asked = [{"repo": REPO, "revision": COMMIT}, {"repo": REPO, "revision": COMMIT}]
    return pair.call(check, state="served", hf_home=str(pair.path / "one"), repositories=asked, clients=["10.0.0.2"], **params)


def test_what_is_given_out_is_listed_and_check_mode_starts_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr(copy_source, "start", lambda *given: started.append(given) or "/run/secret")
    assert serve(pair, check=True)["secret_file"] == "" and started == []
    result = serve(pair)
    ((cluster, _rsync, shared, address, port, clients, connections, seconds),) = started
    assert (cluster, address, port, clients, connections, seconds) == ("gb10", "127.0.0.1", 20300, ["10.0.0.2"], 8, 20)
    assert [(one.module, one.path) for one in shared] == [("r0", str(pair.source))]
    (listing,) = result["listing"]
    assert result["secret_file"] == "/run/secret" and (listing["repo"], listing["revision"], listing["ref"]) == (REPO, COMMIT, "")


def test_a_model_that_is_absent_is_not_given_out(pair: Pair) -> None:
    with pytest.raises(ClusterError, match="nothing to copy"):
        pair.call(state="served", repositories=[{"repo": "org/none", "revision": "main"}], clients=["10.0.0.2"])


def test_a_port_that_is_taken_is_named(pair: Pair) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ClusterError) as caught:
            copy_source.require_address("127.0.0.1", port)
    assert caught.value.reason == "port taken" and f":{port}" in caught.value.remedy


def test_the_end_removes_what_is_there_and_says_what_is_left_of_a_copy(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []
    monkeypatch.setattr(transient, "run_tool", lambda argv, _seconds: ended.append(argv) or types.SimpleNamespace(raw="", rc=0))
    assert not pair.call(state="stopped")["changed"] and ended == []
    os.makedirs(copy_source.run_dir("gb10"))
    stage(pair).parent.mkdir(parents=True)
    stage(pair).write_bytes(b"A" * 100)
    looked = pair.call(state="stopped", check=True)
    assert looked["changed"] and looked["partial"] == {str(stage(pair).parents[1]): 100} and os.path.isdir(copy_source.run_dir("gb10"))
    result = pair.call(state="stopped", hf_home=str(pair.path / "one"))
    assert result["running"] == [copy_source.run_dir("gb10")] and not os.path.exists(copy_source.run_dir("gb10"))
    assert ended == [["systemctl", "stop", "gb10-copy-gb10.service"]] and result["left_bytes"] == 0


def test_two_repositories_go_one_after_the_other(pair: Pair, tmp_path: Path) -> None:
    other = cache(tmp_path / "one", "org/drafter", {"d.safetensors": b"D" * 50})
    pair.plan(sources={"r0": str(pair.source), "r1": str(other)})
    listing = [*pair.listing(), model_copy.listed({"hf_home": str(tmp_path / "one")}, {"repo": "org/drafter", "revision": "main"})]
    result = pair.call(listing=listing)
    assert set(result["copied"]) == {REPO, "org/drafter"} and tree(tmp_path / "two/hub/models--org--drafter") == tree(other)
