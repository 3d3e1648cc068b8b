# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lease on a node: its holder, its end, and what the node does then."""

from __future__ import annotations

import json
import os
import time

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._lease import keeper, lease_files, modes, record
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import unit
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult
from ansible_collections.gb10.cluster.plugins.module_utils._unit import specification
from ansible_collections.gb10.cluster.plugins.module_utils._unit import record as units_record
from ansible_collections.gb10.cluster.plugins.module_utils._unit import unit_files as units

BOOT = "b6f1e0b4-6a3c-4f0e-9a51-0b0f1f0c2d11"
HOLDER = {"user": "ada", "hostname": "workbench", "pid": 4711, "run": "ansible-local-4711"}
PAIR = {"gb10": {"profile": "pair_tp2", "source": "pair_tp2", "nodes": ["spark-1", "spark-2"]}}
ONE = {"spark-1": {"profile": "mine_one", "source": "mine_one", "nodes": ["spark-1"]}}
SETTLED = {"mode": "singles", "phase": "settled", "reason": "", "clusters": ONE}
LEASED = {"mode": "cluster", "phase": "leased", "reason": "", "clusters": PAIR}


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node with the pair's unit and its own service's kept unit, leased by a caller that is silent for 300 s."""
    kernel = tmp_path / "proc" / "sys" / "kernel" / "random"
    kernel.mkdir(parents=True)
    (kernel / "boot_id").write_text(f"{BOOT}\n", encoding="ascii")
    state = tmp_path / "state"
    monkeypatch.setattr(record, "boot_seconds", lambda: 1000.0)
    for name in ("gb10", "spark-1"):
        folder = units.of_engine(str(state), name).folder
        os.makedirs(folder)
        step = {"name": "engine", "module": "vllm_serve", "timeout": 10, "arguments": {}}
        given = {
            "cluster": name, "role": "head", "executor": "ray", "nodes": {}, "meeting": {}, "gpus": 1, "state_dir": str(state), "log_dir": "/l", "roots": {},
            "memory": {}, "address": "", "start_seconds": 100, "start": [step], "stop": [step],
        }  # fmt: skip
        with open(os.path.join(folder, specification.FILE), "w", encoding="utf-8") as stream:
            stream.write(specification.dump(given))
        with open(os.path.join(folder, units.PROGRAM), "wb"):
            pass
        path = units.of_engine("/", name, str(tmp_path / "etc")).path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(unit.marked("[Unit]\n"))
    modes.write(str(state), modes.following(None, SETTLED, "2026-11-24T01:00:00Z", "singles is up"))
    modes.write(str(state), modes.following(modes.read(str(state)), LEASED, "2026-11-24T02:00:00Z", "leased"))
    return tmp_path


def lease(node, **more):
    roots = {"proc_root": str(node / "proc"), "etc_root": str(node / "etc")}
    made = {
        "id": cluster_locks.holder_id(HOLDER), "holder": HOLDER, "program": "judge.sh", "mode": "cluster", "began_at": "2026-11-24T02:00:00Z",
        "lost_seconds": 300, "state": "live", "reason": "", "boot_id": BOOT, "renewed_s": 650.0, "clusters": ["gb10"], "restore": ["spark-1"], "whole": True,
        "awaits": {}, "memory": {"tolerance_mb": 4096, "wait_timeout": 180}, "companions": False, "roots": roots, **more,
    }  # fmt: skip
    record.write(str(node / "state"), made)
    return made


class Node:
    """A node's systemd and modules, which record their calls."""

    def __init__(self, node, fails=(), memory="pass"):
        self.asked, self.fails, self.memory = [], fails, memory
        self.state = str(node / "state")
        self.keeper = keeper.Keeper(self.state, self.systemctl, self.runner)

    def systemctl(self, words, seconds):
        assert seconds >= 60
        self.asked.append(" ".join(words))
        return ToolResult(int(" ".join(words) in self.fails), "", "it would not")

    def runner(self, program):
        def run(name, arguments, seconds, predict):
            self.asked.append(f"{name} {arguments['cluster_name']}")
            assert arguments["tolerance_mb"] == 4096 and seconds == 240 and not predict and program.endswith("gb10/unit/unit.pyz")
            return {"changed": False, "verdict": self.memory, "msg": f"memory is {self.memory}"}

        return run

    def record(self):
        return modes.read(self.state)


ENDING = ["disable --quiet gb10-engine-gb10.service", "stop gb10-engine-gb10.service", "node_samples_info gb10"]
BACK = ["enable --quiet gb10-engine-spark-1.service", "start gb10-engine-spark-1.service", "disable --quiet gb10-lease.service"]


def test_a_lease_that_is_not_renewed_ends_and_the_former_mode_returns(node):
    lease(node)
    fake = Node(node)
    cluster_locks.write(keeper.lock_path(fake.state), cluster_locks.dump(HOLDER, keeper.utc_now()), replace=False)
    assert fake.keeper.look() and fake.asked == ENDING + BACK
    after = fake.record()
    assert (after["mode"], after["phase"], after["clusters"], after["reason"]) == ("singles", "settled", ONE, "")
    assert [event["text"] for event in after["events"]][-2:] == [
        "the lease ends: it was not renewed for 350 s",
        "back to singles, the lease for judge.sh is over",
    ]
    over = record.read(fake.state)
    assert over["state"] == "ended" and "it was not renewed for 350 s; back to singles" in over["reason"]
    # The lock of a run that is gone does not delay the next run.
    assert cluster_locks.read(keeper.lock_path(fake.state)) is None
    assert fake.keeper.look() and len(fake.asked) == len(ENDING + BACK)


def test_a_renewed_lease_does_not_end(node):
    lease(node, renewed_s=800.0)
    fake = Node(node)
    assert not fake.keeper.look() and fake.asked == [] and fake.record()["phase"] == "leased"


def test_a_lease_that_was_given_up_ends_at_once_and_an_end_that_was_interrupted_goes_on(node):
    lease(node, renewed_s=999.0, state="ending", reason="its caller gave it up before the command had ended")
    fake = Node(node)
    assert fake.keeper.look() and fake.asked == ENDING + BACK
    assert "its caller gave it up before the command had ended" in record.read(fake.state)["reason"]


def test_a_reboot_ends_a_lease_at_once(node):
    """Its caller may be alive, but the engine that it uses does not come back."""
    lease(node, boot_id="earlier", renewed_s=990.0)
    units_record.write(units.of_engine(str(node / "state"), "gb10").folder, "earlier", units_record.STOPPED, "stopped by systemd")
    fake = Node(node)
    assert fake.keeper.look() and fake.asked == ENDING + BACK
    assert (fake.record()["mode"], fake.record()["phase"]) == ("singles", "settled")
    assert "the node was rebooted, and a lease's engines do not restart; back to singles" in record.read(fake.state)["reason"]


@pytest.mark.parametrize(("consent", "setting"), [(False, None), (False, "never"), (False, "once"), (True, "never")])
def test_after_an_unclean_shutdown_the_node_goes_on_where_its_unit_would_start(node, monkeypatch, consent, setting):
    lease(node, boot_id="earlier")
    folder = units.of_engine(str(node / "state"), "gb10").folder
    given = specification.read(os.path.join(folder, specification.FILE))
    with open(os.path.join(folder, specification.FILE), "w", encoding="utf-8") as stream:
        stream.write(specification.dump({**given, **({"unclean_boot": setting} if setting else {})}))
    units_record.write(folder, "earlier", units_record.RUNNING)
    monkeypatch.setattr(units_record, "take_power_cycle", lambda state_dir: consent)
    fake, goes_on = Node(node), consent or setting == "once"
    assert fake.keeper.look() and fake.asked == (ENDING + BACK if goes_on else [*ENDING, BACK[-1]])
    after = fake.record()
    assert (after["mode"], after["phase"]) == ("singles", "settled" if goes_on else "failed")
    assert goes_on or ("the node did not shut down cleanly" in after["reason"] and "run the playbook mode to continue" in after["reason"])
    # The next start of this unit is by a person, and no later boot takes the unclean one for its own.
    noted = units_record.read(folder)
    assert (noted["state"], noted["boot_id"]) == ("stopped" if goes_on else "refused", BOOT)
    assert "did not shut down cleanly" in noted["reason"]


def test_after_an_unclean_shutdown_a_unit_that_is_gone_is_no_obstacle(node):
    lease(node, boot_id="earlier")
    folder = units.of_engine(str(node / "state"), "gb10").folder
    os.unlink(os.path.join(folder, specification.FILE))
    os.unlink(units.of_engine("/", "gb10", str(node / "etc")).path)
    fake = Node(node)
    assert fake.keeper.look() and fake.record()["phase"] == "settled" and units_record.read(folder) is None


def test_another_run_that_took_the_lock_is_not_disturbed(node, capsys):
    lease(node)
    fake = Node(node)
    cluster_locks.write(keeper.lock_path(fake.state), cluster_locks.dump({**HOLDER, "user": "bob"}, keeper.utc_now()), replace=False)
    assert not fake.keeper.look() and not fake.keeper.look() and fake.asked == []
    assert capsys.readouterr().out.count("another run works here: bob@workbench") == 1
    assert record.read(fake.state)["state"] == "live"


def test_memory_that_is_not_back_starts_nothing_and_says_leak(node):
    lease(node)
    fake = Node(node, memory="block")
    assert fake.keeper.look() and fake.asked == [*ENDING, BACK[-1]]
    after = fake.record()
    assert (after["mode"], after["phase"], after["clusters"]) == ("off", "leak", {}) and "memory is block" in after["reason"]


@pytest.mark.parametrize(("fails", "calls"), [(ENDING[1], [*ENDING, BACK[-1]]), (BACK[1], ENDING + BACK)])
def test_what_fails_is_recorded_and_the_next_run_continues(node, fails, calls):
    lease(node)
    fake = Node(node, fails=[fails])
    assert fake.keeper.look() and fake.asked == calls
    after = fake.record()
    assert (after["mode"], after["phase"]) == ("singles", "failed") and "it would not; run the playbook mode to continue" in after["reason"]
    assert modes.former(after)["mode"] == "singles"


@pytest.mark.parametrize(
    ("more", "words"), [({"whole": False, "restore": []}, "this node kept no unit of it"), ({"companions": True}, "companions as the lease left them")]
)
def test_what_a_node_cannot_bring_back_is_said(node, more, words):
    lease(node, **more)
    fake = Node(node)
    assert fake.keeper.look()
    assert fake.record()["phase"] == "failed" and words in fake.record()["reason"]


def test_a_mode_that_was_never_declared_is_not_declared_after_the_lease(node):
    lease(node, restore=[])
    modes.remove(str(node / "state"))
    modes.write(str(node / "state"), modes.following(None, LEASED, "2026-11-24T02:00:00Z"))
    fake = Node(node)
    assert fake.keeper.look() and fake.record() is None and fake.asked == [*ENDING, BACK[-1]]


def test_a_worker_waits_until_the_head_is_gone(node, monkeypatch):
    lease(node, awaits={"address": "192.0.2.1", "port": 6379, "seconds": 60})
    answers = [True, True, False]
    monkeypatch.setattr(keeper.listeners, "answers", lambda *_given: "" if answers.pop(0) else "refused")
    monkeypatch.setattr(keeper, "LOOK_SECONDS", 0.01)
    fake = Node(node)
    assert fake.keeper.look() and answers == [] and fake.asked == ENDING + BACK


def test_what_is_down_already_is_not_stopped_again(node):
    lease(node)
    os.unlink(units.of_engine("/", "gb10", str(node / "etc")).path)
    fake = Node(node)
    assert fake.keeper.look() and fake.asked == [ENDING[-1], *BACK]


# --- the record ---------------------------------------------------------------------------------------------------------------


def test_a_lease_is_lost_without_renewal_and_by_a_reboot(node):
    made = lease(node)
    assert record.why_lost(made, BOOT, 1000.0) == "it was not renewed for 350 s" and not record.why_lost(made, BOOT, 950.0)
    assert "the node was rebooted" in record.why_lost(made, "another", 1.0) and record.summary(made, "another")["left_seconds"] == 0


def test_only_the_holder_renews_a_lease_that_lives(node):
    made = lease(node)
    assert record.renewed(made, made["id"], BOOT, 5.0)["renewed_s"] == 5.0
    for there, id, words in (
        ({**made, "boot_id": "another"}, made["id"], "the node was rebooted"),
        (None, made["id"], "it is gone"),
        (made, "other", "ada@workbench, process 4711, for judge.sh"),
        ({**made, "state": "ended", "reason": "why"}, made["id"], "ended: why"),
    ):
        with pytest.raises(ClusterError, match=words) as caught:
            record.renewed(there, id, BOOT, 5.0)
        assert caught.value.reason == record.OVER


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 1}', '{"schema": 2}'])
def test_a_record_that_is_none_is_not_taken_for_no_lease(node, text):
    lease(node)
    with open(record.path_of(str(node / "state")), "w", encoding="utf-8") as stream:
        stream.write(text)
    with pytest.raises(UnknownState, match="lease.json") as caught:
        record.read(str(node / "state"))
    assert "run again" in caught.value.remedy


def test_a_lease_says_for_how_long_it_lives_and_nothing_of_the_command_but_its_program(node):
    made = lease(node, renewed_s=988.0)
    summary = record.summary(made, BOOT)
    assert summary["left_seconds"] == 288 and summary["program"] == "judge.sh" and "roots" not in summary
    assert record.summary({**made, "state": "ended"}, BOOT)["left_seconds"] == 0 and record.summary(None, BOOT) == {}
    assert os.stat(record.path_of(str(node / "state"))).st_mode & 0o777 == 0o644


def test_the_unit_is_known_as_ours_and_comes_back_at_boot(tmp_path):
    text = lease_files.unit_text("/var/lib/gb10", "/usr/bin/python3")
    assert unit.whose(text.encode()) == "ours" and "WantedBy=multi-user.target" in text and "lease.pyz lease /var/lib/gb10\n" in text


# -- the way back ------------------------------------------------------------------------------------------------------------


def returning(node, **more):
    """The rest of a lease after all that ran for it is down."""
    return lease(node, clusters=[], awaits={}, **more)


def test_when_the_caller_is_gone_on_the_way_back_the_node_starts_what_was_there_before(node):
    returning(node)
    fake = Node(node)
    cluster_locks.write(keeper.lock_path(fake.state), cluster_locks.dump(HOLDER, keeper.utc_now()), replace=False)
    assert fake.keeper.look() and fake.asked == BACK
    assert (fake.record()["mode"], fake.record()["phase"], fake.record()["clusters"]) == ("singles", "settled", ONE)
    assert cluster_locks.read(keeper.lock_path(fake.state)) is None and record.read(fake.state)["state"] == "ended"


def test_a_returning_caller_keeps_its_time(node):
    returning(node, lost_seconds=3600)
    assert not Node(node).keeper.look()


@pytest.mark.parametrize("text", [cluster_locks.dump(HOLDER, keeper.utc_now()), "{"])
def test_a_cluster_that_a_run_restores_is_not_started(node, capsys, text):
    """The caller may be alive, or its lock needs a person."""
    returning(node)
    fake = Node(node)
    path = cluster_locks.path_of(fake.state, "spark-1")
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)
    assert not fake.keeper.look() and not fake.keeper.look() and fake.asked == [] and record.read(fake.state)["state"] == "live"
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 and lines[0].startswith("spark-1 is not started" if text == "{" else "a run works on spark-1: ada@workbench, process 4711")
    os.unlink(path)
    assert fake.keeper.look() and fake.asked == BACK


def test_while_something_is_there_for_the_lease_the_lock_of_what_was_before_says_nothing(node):
    lease(node)
    fake = Node(node)
    cluster_locks.write(cluster_locks.path_of(fake.state, "spark-1"), cluster_locks.dump(HOLDER, keeper.utc_now()), replace=False)
    assert fake.keeper.look()


# -- a full disk, and secrets ------------------------------------------------------------------------------------------------


def no_room(*_given, **_more):
    raise OSError(28, "No space left on device", "/x")


def test_a_claim_that_cannot_be_written_is_tried_again(node, monkeypatch, capsys):
    lease(node)
    fake = Node(node)
    with monkeypatch.context() as patch:
        patch.setattr(cluster_locks, "write", no_room)
        assert not fake.keeper.look() and not fake.keeper.look() and fake.asked == []
    assert capsys.readouterr().out.count("No space left on device") == 1
    assert fake.keeper.look() and fake.asked == ENDING + BACK


def test_an_end_that_cannot_be_noted_stops_nothing_a_second_time(node, monkeypatch, capsys):
    """The former services run again: a second end would mistake their memory for a leak."""
    lease(node)
    fake = Node(node)
    written, wrote = modes.DOCUMENT.write, record.write
    waited = []

    def room(*given):
        return written(*given) if given[1]["phase"] == "switching" and not waited else no_room() if len(waited) < 2 else written(*given)

    monkeypatch.setattr(modes, "DOCUMENT", type("Full", (), {"write": staticmethod(room), "read_keys": modes.DOCUMENT.read_keys}))
    monkeypatch.setattr(record, "write", lambda *given: wrote(*given) if len(waited) != 2 or given[1]["state"] != "ended" else no_room())
    monkeypatch.setattr(keeper.time, "sleep", waited.append)
    assert fake.keeper.look() and fake.asked == ENDING + BACK and waited == [keeper.LOOK_SECONDS] * 3
    assert (fake.record()["phase"], record.read(fake.state)["state"]) == ("settled", "ended")
    output = capsys.readouterr().out
    assert output.count("tried again until it is written") == 2 and "record of the mode: " in output and "record of the lease: " in output


def test_what_a_node_says_of_an_end_holds_no_secret(node, capsys):
    lease(node, state="ending", reason="its caller said Bearer abcdefghijklmnop")
    fake = Node(node, fails={"stop gb10-engine-gb10.service"})
    fake.systemctl = lambda words, seconds: ToolResult(int("stop" in words), "", "curl -H 'Authorization: Bearer qrstuvwxyz012345'")
    fake.keeper.systemctl = fake.systemctl
    assert fake.keeper.look()
    texts = [json.dumps(fake.record()), record.read(fake.state)["reason"], capsys.readouterr().out]
    for text in texts:
        assert "Bearer <secret>" in text and "abcdefghijklmnop" not in text and "qrstuvwxyz012345" not in text, text


@pytest.mark.parametrize("jump", [-86400.0 * 365, 86400.0 * 365])
def test_a_clock_that_jumps_neither_ends_nor_prolongs_a_lease(node, monkeypatch, jump):
    """Only the seconds since the boot count; no clock correction changes them."""
    lease(node, renewed_s=800.0)
    fake, now = Node(node), time.time
    monkeypatch.setattr(time, "time", lambda: now() + jump)
    for passed, over in ((1000.0, False), (1100.0, False), (1100.5, True)):
        monkeypatch.setattr(record, "boot_seconds", lambda: passed)
        assert fake.keeper.look() is over
    assert fake.asked == ENDING + BACK
