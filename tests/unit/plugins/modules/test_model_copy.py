# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A model arrives whole or not at all, goes on where it was cut, and replaces nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import tempfile
import threading
import time
import types
import typing as t
from pathlib import Path

import pytest
from copying_pair import COMMIT, REPO, SECRET, Pair, blob, cache, tree

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._files import copy_job, files
from ansible_collections.gb10.cluster.plugins.module_utils._model import block_client, blocks, copy_source, copy_stage, copy_target, copying
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import transient
from ansible_collections.gb10.cluster.plugins.modules import model_copy

LARGE = f"blobs/{blob(b'A' * 4000, True)}"


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Pair]:
    made = Pair(tmp_path, monkeypatch)
    yield made
    made.end()


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


def progress(pair: Pair) -> Path:
    return pair.path / "two/hub" / copying.STAGE / "models--org--tiny" / copying.PROGRESS


def test_what_arrives_is_what_the_source_has_and_a_second_run_asks_nothing(pair: Pair) -> None:
    (pair.source / "snapshots" / COMMIT / "own.txt").write_text("by hand")
    (pair.source / "snapshots" / COMMIT / "own.txt").chmod(0o600)
    wire = pair.serve()
    predicted = pair.call(check=True)
    assert predicted["changed"] and not pair.target.exists() and wire.connections == 0
    result = pair.call()
    assert result["changed"] and result["copied"] == predicted["copied"] and result["bytes"] == 7109 and result["resumed_bytes"] == 0
    assert tree(pair.target) == tree(pair.source)
    assert not (pair.path / "two/hub" / copying.STAGE).exists() and not (pair.path / "state/model-copy-gb10.json").exists()
    connections = wire.connections
    again = pair.call()
    assert not again["changed"] and again["actions"] == [] and wire.connections == connections and not pair.call(check=True)["changed"]


def test_without_the_fast_digest_it_is_sha256(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "digests", lambda: blocks.SHA256)
    assert pair.call()["changed"] and tree(pair.target) == tree(pair.source)


def test_no_more_streams_run_than_asked_for(pair: Pair) -> None:
    wire = pair.serve()
    pair.call(streams=2)
    # One more compares in the end.
    assert wire.connections == 3 and tree(pair.target) == tree(pair.source)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_connection_that_is_cut_goes_on_where_it_was(pair: Pair, share: float) -> None:
    wire = pair.serve()
    wire.plan = {"cut_after": int(7400 * share)}
    error = refused(pair, streams=1)
    assert error.reason == "cut" and "it continues with the remaining blocks" in error.remedy and REPO in str(error)
    # Of before the cut nothing is sent again but the block that it broke.
    wire.plan, wire.carried = {}, 0
    result = pair.call(streams=1)
    assert result["resumed_bytes"] >= 7102 * share - 1500 and wire.carried <= 7400 * (1 - share) + 1800 and tree(pair.target) == tree(pair.source)


def test_a_partial_shard_of_before_a_reboot_is_compared_and_not_fetched_again(pair: Pair) -> None:
    wire = pair.serve()
    wire.plan = {"cut_after": 4600}
    assert refused(pair, streams=1).reason == "cut"
    _boot, rest = progress(pair).read_text().split("\n", 1)
    progress(pair).write_text(f"another\n{rest}")
    with open(stage(pair), "r+b") as handle:
        handle.seek(1500)
        handle.write(b"X")
    wire.plan, wire.carried = {}, 0
    pair.call(streams=1)
    # The spoiled block came again, and what had not come.
    assert tree(pair.target) == tree(pair.source) and wire.carried < 5500


@pytest.mark.parametrize("there", [b"A" * 4000, b"X" * 4000, b"A" * 5000, b"A" * 10])
def test_what_lies_in_the_stage_and_was_never_compared_is_compared(pair: Pair, there: bytes) -> None:
    stage(pair).parent.mkdir(parents=True)
    stage(pair).write_bytes(there)
    pair.call()
    assert tree(pair.target) == tree(pair.source)


def test_half_a_line_of_progress_spoils_nothing(pair: Pair) -> None:
    wire = pair.serve()
    wire.plan = {"cut_after": 2600}
    assert refused(pair, streams=1).reason == "cut"
    with open(progress(pair), "a", encoding="utf-8") as handle:
        handle.write(f"{LARGE}\t4000")
    wire.plan = {"cut_after": wire.carried + 1600}
    assert refused(pair, streams=1).reason == "cut"
    wire.plan = {}
    assert pair.call()["changed"] and tree(pair.target) == tree(pair.source)


def test_a_block_that_is_spoiled_on_the_way_is_fetched_again_and_then_named(pair: Pair) -> None:
    wire = pair.serve()
    wire.plan = {"flip_at": 1500, "once": True}
    assert pair.call(streams=1)["changed"] and tree(pair.target) == tree(pair.source)


def test_bytes_that_are_always_spoiled_are_named_and_get_no_name(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    take = block_client.Connection._take
    monkeypatch.setattr(block_client.Connection, "_take", lambda *given: take(*given)[:-1] + b"X")
    error = refused(pair)
    assert error.reason == "wrong digest" and "blobs/" in str(error) and "journalctl -k" in error.remedy and error.details["files"]


def test_a_disk_that_is_full_halfway_is_named_and_the_next_run_goes_on(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    write, left = os.pwrite, [3000]

    def pwrite(descriptor, data, offset):
        left[0] -= len(data)
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data, offset)

    monkeypatch.setattr(block_client.os, "pwrite", pwrite)
    error = refused(pair, streams=1)
    assert error.reason == "disk full" and "gb10.cluster.models" in error.remedy and "No space left" in str(error)
    left[0] = 1 << 30
    result = pair.call()
    assert result["resumed_bytes"] >= 2000 and tree(pair.target) == tree(pair.source)


def test_who_does_not_know_the_secret_or_is_another_node_gets_nothing(pair: Pair) -> None:
    wire = pair.serve()
    error = refused(pair, secret="0000")
    assert error.reason == "refused" and "one-time secret" in str(error) and wire.carried < 5 * 100
    pair.serve(clients=["10.0.0.2"])
    error = refused(pair)
    assert error.reason == "refused" and "gb10_fabric_address" in error.remedy


def test_a_server_that_does_not_know_the_secret_is_not_believed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would let everybody in and serve any file."""
    pair.serve()
    monkeypatch.setattr(blocks.hmac, "compare_digest", lambda *_given: True)
    error = refused(pair, secret="0000")
    assert error.reason == "refused" and "does not know the secret itself" in str(error)


def test_a_source_that_serves_as_much_as_it_can_reports_it(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks.threading.Semaphore, "acquire", lambda *_given, **_more: False)
    assert refused(pair).reason == "busy"


# -- whose cache it is -------------------------------------------------------------------------------------------------

#: A user that has no account.
ONE = 4711
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="takes root to be led anywhere")
SNAPSHOT = f"models--org--tiny/snapshots/{COMMIT}"


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Pair]:
    """A node whose cache is a user's, where everybody may pass; and a directory of root's that no other account may write to."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    made = Pair(place, monkeypatch)
    (place / "etc").mkdir()
    (place / "two/hub/.locks").mkdir(parents=True)
    give(place / "two", ONE)
    yield made
    made.end()
    shutil.rmtree(place)


def give(path: Path, uid: int) -> None:
    for entry in [path, *path.rglob("*")]:
        os.chown(entry, uid, uid, follow_symlinks=False)


def users_link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


@AS_ROOT
def test_what_arrives_in_a_users_cache_is_that_users(theirs: Pair) -> None:
    assert theirs.call()["changed"] and tree(theirs.target) == tree(theirs.source)
    assert {path.lstat().st_uid for path in theirs.target.rglob("*")} == {ONE} and os.geteuid() == 0
    assert not (theirs.path / "two/hub" / copying.STAGE).exists()


@AS_ROOT
@pytest.mark.parametrize(
    "link",
    ["", "hub", "hub/models--org--tiny", "hub/models--org--tiny/snapshots", f"hub/{SNAPSHOT}", f"hub/{SNAPSHOT}/sub", "hub/models--org--tiny/blobs",
     "hub/models--org--tiny/refs", f"hub/{copying.STAGE}", f"hub/{copying.STAGE}/models--org--tiny", f"hub/{copying.STAGE}/models--org--tiny/blobs"],
)  # fmt: skip
@pytest.mark.parametrize("target", ["etc", "etc/absent", "other"])
def test_no_link_of_a_user_leads_root(theirs: Pair, link: str, target: str) -> None:
    """One more, that of the locks, leads to what is root's, as if a container had left it."""
    (theirs.path / "other").mkdir()
    os.chown(theirs.path / "other", ONE + 1, ONE + 1)
    path = theirs.path / "two" / link
    if link in ("", "hub"):
        shutil.rmtree(path)
    users_link(path, theirs.path / target)
    if link not in ("", "hub"):
        (theirs.path / "two/hub/.locks").rmdir()
        users_link(theirs.path / "two/hub/.locks", theirs.path / "etc")
    if link:
        give(theirs.path / "two", ONE)
    else:
        os.chown(path, ONE, ONE, follow_symlinks=False)
    for check in (True, False):
        with pytest.raises(ClusterError) as caught:
            theirs.call(check=check)
        assert caught.value.remedy and os.geteuid() == 0
    assert os.listdir(theirs.path / "etc") == os.listdir(theirs.path / "other") == []


@AS_ROOT
@pytest.mark.parametrize("swapped", ["hub", "hub/models--org--tiny", f"hub/{copying.STAGE}", f"hub/{copying.STAGE}/models--org--tiny"])
def test_a_link_that_is_put_there_meanwhile_is_not_followed(theirs: Pair, monkeypatch: pytest.MonkeyPatch, swapped: str) -> None:
    """Between the look and the files' names: only the user follows it."""
    real, path = copy_target.place, theirs.path / "two" / swapped

    def place(repository: copy_stage.Repository) -> None:
        if path.exists():
            path.rename(theirs.path / "two/gone")
        path.symlink_to(theirs.path / "etc")
        real(repository)

    monkeypatch.setattr(copy_target, "place", place)
    with pytest.raises(ClusterError):
        theirs.call()
    assert os.listdir(theirs.path / "etc") == []


@AS_ROOT
@pytest.mark.parametrize("below", ["hub", "hub/models--org--tiny", "hub/models--org--tiny/blobs", f"hub/{copying.STAGE}"])
@pytest.mark.parametrize("owner", [0, ONE + 1])
def test_a_cache_of_two_owners_is_refused_with_the_line_that_mends_it(theirs: Pair, below: str, owner: int) -> None:
    path = theirs.path / "two" / below
    path.mkdir(parents=True, exist_ok=True)
    give(theirs.path / "two", ONE)
    os.chown(path, owner, owner)
    error = refused(theirs)
    assert error.reason == "owner" and error.remedy == f"sudo chown -R --reference={path.parent} {path}"
    os.chown(path, ONE, ONE)
    assert theirs.call()["changed"]


@AS_ROOT
def test_a_users_directory_in_roots_cache_is_not_followed(theirs: Pair) -> None:
    give(theirs.path / "two", 0)
    users_link(theirs.target / "snapshots", theirs.path / "etc")
    os.chown(theirs.target, ONE, ONE)
    os.chown(theirs.target / "snapshots", ONE, ONE, follow_symlinks=False)
    assert refused(theirs).reason == "owner" and os.listdir(theirs.path / "etc") == []


@AS_ROOT
def test_what_is_given_on_is_read_below_the_directory_that_was_opened(theirs: Pair) -> None:
    theirs.call()
    hub = theirs.path / "two/hub"
    given = copy_target.Forward(str(hub), theirs.listing())
    given.begin([])
    hub.rename(theirs.path / "two/gone")
    hub.symlink_to(theirs.path / "etc")
    number = copying.numbered(theirs.listing())[REPO, LARGE]
    with open(given.open(number), "rb") as handle:
        assert handle.read() == b"A" * 4000
    given.close()


@AS_ROOT
def test_what_a_link_in_the_stages_place_leads_to_is_not_shown(theirs: Pair) -> None:
    (theirs.path / "etc/secret").mkdir()
    users_link(theirs.path / "two/hub" / copying.STAGE, theirs.path / "etc")
    assert copy_target.left(str(theirs.path / "two/hub")) == {}


@pytest.mark.parametrize("what", ["sparse", "fifo", "link"])
def test_no_note_of_the_stage_is_read_without_end(pair: Pair, what: str) -> None:
    progress(pair).parent.mkdir(parents=True)
    if what == "sparse":
        with open(progress(pair), "wb") as handle:
            handle.truncate(64 << 30)
    elif what == "fifo":
        os.mkfifo(progress(pair))
    else:
        progress(pair).symlink_to("/dev/zero")
    assert pair.call()["changed"] and tree(pair.target) == tree(pair.source)


@pytest.mark.parametrize("mode", [0o6755, 0o4777, 0o2666])
def test_a_list_gives_no_file_more_than_everybody_may_read(pair: Pair, mode: int) -> None:
    listing = pair.listing()
    for row in listing[0]["entries"]:
        row["mode"] = mode
    pair.call(listing=listing)
    files = [path for path in pair.target.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) == 5 and {path.stat().st_mode & 0o7777 for path in files} == {0o644}


@pytest.mark.parametrize("text", ["#!/bin/sh\nid\n", "main", COMMIT[:39], f"{COMMIT}\n", ""])
def test_a_ref_is_a_commit(pair: Pair, text: str) -> None:
    listing = pair.listing()
    ref = next(row for row in listing[0]["entries"] if row["kind"] == "ref")
    ref["target"] = text
    error = refused(pair, listing=listing)
    assert error.reason == "foreign" and "refs/main" in str(error)


def test_a_source_that_is_not_there_and_a_stranger_on_its_port_are_named(pair: Pair) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        threading.Thread(target=lambda: other.accept()[0].sendall(b"SSH-2.0-OpenSSH_9.6\r\n"), daemon=True).start()
        assert refused(pair, port=port).reason == "refused"
    error = refused(pair, port=port)
    assert error.reason == "unreachable" and "gb10_copy_port" in error.remedy


def test_a_source_that_changes_meanwhile_gives_no_file_its_name(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    compare = copy_target.compare

    def compared(*given):
        os.utime(pair.source / LARGE, (1, 1))
        compare(*given)

    monkeypatch.setattr(copy_target, "compare", compared)
    error = refused(pair)
    assert error.reason == "source changed" and LARGE in error.details["files"]
    pair.wire = None
    assert pair.call()["changed"] and tree(pair.target) == tree(pair.source)


@pytest.mark.parametrize("how", ["changed", "longer", "shorter", "gone"])
def test_a_source_that_changed_since_it_was_listed_is_seen(pair: Pair, how: str) -> None:
    listing = pair.listing()
    pair.serve(listing)
    if how == "gone":
        (pair.source / LARGE).unlink()
    else:
        (pair.source / LARGE).write_bytes(b"Z" * {"changed": 4000, "longer": 5000, "shorter": 10}[how])
        os.utime(pair.source / LARGE, (5, 5))
    error = refused(pair, listing=listing)
    assert error.reason == "source changed" and LARGE in str(error)


def test_a_file_of_the_same_name_and_other_content_is_named_and_stays(pair: Pair) -> None:
    (pair.target / "blobs").mkdir(parents=True)
    (pair.target / LARGE).write_bytes(b"mine")
    error = refused(pair)
    assert error.reason == "other content" and str(pair.target / LARGE) in str(error) and "4 bytes instead of 4000" in str(error)
    assert pair.wire.connections == 0 and refused(pair, check=True).reason == "other content"


def test_a_foreign_link_and_a_foreign_ref_stay(pair: Pair) -> None:
    (pair.target / "snapshots" / COMMIT).mkdir(parents=True)
    (pair.target / "snapshots" / COMMIT / "config.json").symlink_to("/etc/passwd")
    assert "leads to /etc/passwd" in str(refused(pair))
    (pair.target / "snapshots" / COMMIT / "config.json").unlink()
    (pair.target / "refs").mkdir()
    (pair.target / "refs/main").write_text("f" * 40)
    assert "names another commit" in str(refused(pair, listing=pair.listing("main")))
    # An unrequested ref is foreign.
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
    monkeypatch.setattr(model_copy, "disk", lambda _path: {"free_bytes": 7000})
    error = refused(pair)
    assert error.reason == "disk full" and error.details["needed_bytes"] == 7102 and pair.wire.connections == 0
    monkeypatch.setattr(model_copy, "disk", lambda _path: {"free_bytes": copy_job.GIB})
    assert refused(pair, disk_floor_gib=1, check=True).reason == "disk full"


def test_a_copy_into_the_same_cache_is_waited_for(pair: Pair, tmp_path: Path) -> None:
    path = copy_job.lock_path(str(tmp_path / "state"), copying.KIND, str(tmp_path / "two/hub"))
    os.makedirs(os.path.dirname(path))
    with open(files.open_lock(path), "wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        error = refused(pair, timeout=1)
    assert isinstance(error, WaitTimeout) and error.reason == "busy" and path in error.remedy
    assert pair.call()["changed"]


def test_a_copy_that_hangs_ends_and_leaves_nothing_running(pair: Pair) -> None:
    wire = pair.serve()
    wire.plan = {"silent": True}
    error = refused(pair, timeout=1)
    assert error.reason == "slow" and "gb10_transfer_timeout" in error.remedy
    pair.serve()
    assert pair.call()["changed"] and tree(pair.target) == tree(pair.source)


@pytest.mark.parametrize("required", [True, False])
def test_a_node_that_cannot_copy_says_so_or_downloads(pair: Pair, required: bool) -> None:
    cases = {"no address": {"address": "192.0.2.1"}, "unreachable": {"port": 1}}
    for reason, params in cases.items():
        if required:
            error = refused(pair, **params)
            assert error.reason == reason and error.remedy
        else:
            result = pair.call(required=False, **params)
            assert (result["able"], result["changed"], result["verdict"], result["reason"]) == (False, False, "warn", reason) and result["remedy"]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes of a chain begin at about the same time."""
    monkeypatch.setattr(block_client, "BEGIN_SECONDS", 20.0)


def test_the_nodes_of_a_chain_give_each_other_what_they_have(pair: Pair, patient: None) -> None:
    """The first one waits for its first byte until the second one asks; both end with all of it."""
    port = free_port()
    results = {}

    def second() -> None:
        results["second"] = pair.call(hf_home=str(pair.path / "three"), port=port, cluster_name="c2", state_dir=str(pair.path / "state2"))

    listing = pair.listing()
    pair.serve(listing)
    (pair.path / "three").mkdir()
    thread = threading.Thread(target=second)
    thread.start()
    # In one process both nodes have one port to name, so that the first one listens where its successor asks.
    given = copy_target.Forward(str(pair.path / "two/hub"), listing)
    with copy_target.forwarding(given, "127.0.0.1", port, SECRET, ["127.0.0.1"], 4) as server:
        params = {"hf_home": str(pair.path / "two"), "listing": listing, "address": "127.0.0.1", "source": "127.0.0.1", "secret": SECRET, "streams": 4}
        repositories = model_copy.wanted(params)
        model_copy.act({**params, "port": pair.wire.port}, repositories, time.monotonic() + 20, lambda _text: None, given)
        copy_target.wait_for_clients(server, time.monotonic() + 20, lambda _text: None)
        assert server.all_done.is_set()
    thread.join(20)
    assert results["second"]["changed"] and tree(pair.path / "three/hub/models--org--tiny") == tree(pair.source) == tree(pair.target)


def test_a_node_that_has_all_gives_it_on(pair: Pair, patient: None) -> None:
    pair.call()
    port, results = free_port(), {}
    (pair.path / "three").mkdir()
    more = {"cluster_name": "c2", "state_dir": str(pair.path / "state2"), "hf_home": str(pair.path / "three")}
    thread = threading.Thread(target=lambda: results.update(second=pair.call(port=port, **more)))
    thread.start()
    first = pair.call(port=port, clients=["127.0.0.1"])
    thread.join(20)
    assert not first["changed"] and results["second"]["changed"] and tree(pair.path / "three/hub/models--org--tiny") == tree(pair.source)


def test_a_node_of_a_chain_that_fails_ends_the_next_one(pair: Pair, patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "SILENT_SECONDS", 2)
    port, failed = free_port(), []
    (pair.path / "three").mkdir()
    wire = pair.serve()
    wire.plan = {"cut_after": 3000}
    listing = pair.listing()

    def second() -> None:
        with pytest.raises(ClusterError) as caught:
            pair.call(port=port, cluster_name="c2", state_dir=str(pair.path / "state2"), hf_home=str(pair.path / "three"))
        failed.append(caught.value)

    given = copy_target.Forward(str(pair.path / "two/hub"), listing)
    thread = threading.Thread(target=second)
    with pytest.raises(ClusterError) as caught, copy_target.forwarding(given, "127.0.0.1", port, SECRET, ["127.0.0.1"], 4):
        thread.start()
        params = {"hf_home": str(pair.path / "two"), "listing": listing, "address": "127.0.0.1", "source": "127.0.0.1", "secret": SECRET, "streams": 1}
        model_copy.act({**params, "port": wire.port}, model_copy.wanted(params), time.monotonic() + 20, lambda _text: None, given)
    thread.join(20)
    assert caught.value.reason == "cut" and failed[0].reason in ("cut", "unreachable")
    assert not (pair.path / "three/hub/models--org--tiny/snapshots").exists()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


# --- the source ---------------------------------------------------------------------------------------------------------------


def serve(pair: Pair, check: bool = False, **params):
    repositories = [{"repo": REPO, "revision": COMMIT}, {"repo": REPO, "revision": COMMIT}]
    return pair.call(check, state="served", hf_home=str(pair.path / "one"), repositories=repositories, clients=["10.0.0.2"], port=20300, **params)


def test_what_is_served_is_listed_and_check_mode_starts_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr(copy_source, "start", lambda *given: started.append(given) or "/run/secret")
    assert serve(pair, check=True)["secret_file"] == "" and started == []
    result = serve(pair)
    ((cluster, order, seconds),) = started
    assert (cluster, order["address"], order["port"], order["clients"], order["connections"], seconds) == ("gb10", "127.0.0.1", 20300, ["10.0.0.2"], 8, 20)
    assert order["root"] == str(pair.path / "one/hub") and {row["path"] for row in result["listing"][0]["entries"] if row["kind"] == "file"} == {
        name.removeprefix("models--org--tiny/") for name, _size, _mtime in order["files"]
    }
    (listing,) = result["listing"]
    assert result["secret_file"] == "/run/secret" and (listing["repo"], listing["revision"], listing["ref"]) == (REPO, COMMIT, "")


def test_a_model_that_is_absent_is_not_served(pair: Pair) -> None:
    with pytest.raises(ClusterError, match="nothing to copy"):
        pair.call(state="served", repositories=[{"repo": "org/none", "revision": "main"}], clients=["10.0.0.2"])


def test_a_port_that_is_taken_is_named(pair: Pair) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ClusterError) as caught:
            transient.require_address("127.0.0.1", port, "gb10_copy_port")
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


def test_two_repositories_go_at_once(pair: Pair, tmp_path: Path) -> None:
    other = cache(tmp_path / "one", "org/drafter", {"d.safetensors": b"D" * 50})
    listing = [*pair.listing(), model_copy.listed({"hf_home": str(tmp_path / "one")}, {"repo": "org/drafter", "revision": "main"})]
    result = pair.call(listing=listing)
    assert set(result["copied"]) == {REPO, "org/drafter"} and tree(tmp_path / "two/hub/models--org--drafter") == tree(other)
