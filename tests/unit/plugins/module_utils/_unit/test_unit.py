# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An engine's unit: when it refuses a boot, who owns a unit file, what a specification may contain, and how the program starts, watches and stops."""

from __future__ import annotations

import datetime
import json
import os
import types
import typing as t
from pathlib import Path

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils import _wait
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._network import listeners
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import unit
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult
from ansible_collections.gb10.cluster.plugins.module_utils._unit import admission, boots, bring_up, glance, lock, meeting, place
from ansible_collections.gb10.cluster.plugins.module_utils._unit import program, record, service, specification, steps, text
from ansible_collections.gb10.cluster.plugins.module_utils._unit import unit_files

NODES = {"spark-1": "10.0.0.1", "spark-2": "10.0.0.2"}


def given(state_dir: str = "/var/lib/gb10", role: str = "head", executor: str = "ray", pair: bool = True, **more: t.Any) -> dict[str, t.Any]:
    """A specification as the role makes it, with short arguments."""
    module = "ray_cluster" if executor == "ray" else "node_container"
    meets = executor == "native" and pair
    step = {"drop": "page_cache_drop", "zombies": "cuda_zombie_check", "memory": "", "note": "node_samples_info", "container": module}
    begin = {"ray": "node_container_info"} if executor == "ray" else {"meet": ""} if meets else {}
    engine = {"engine": "vllm_serve", **({"join": ""} if meets else {}), **({"token": "vllm_serve_info"} if role == "head" else {}), "guard": "node_service"}
    has_engine = role == "head" or executor == "native"
    own = {**step, **({**begin, **engine} if has_engine else {})}
    stop = {**({"drain": "vllm_serve"} if role == "head" else {}), **({"engine": "vllm_serve"} if has_engine else {}), "container": module}
    nodes = NODES if pair else {"spark-1": "10.0.0.1"}
    container = {"image": "mine", **({"head_address": NODES["spark-1"], "port": 6379} if executor == "ray" and role != "head" else {})}
    begin = [{"name": name, "module": module, "arguments": container if name == "container" else {}, "timeout": 10} for name, module in own.items()]
    return {
        "cluster": "gb10", "role": role, "executor": executor, "nodes": nodes, "gpus": 1,
        "state_dir": state_dir, "log_dir": state_dir, "address": "", "start_seconds": 1,
        "meeting": {"address": NODES["spark-1"], "port": 29501} if meets else {},
        "roots": {"proc_root": f"{state_dir}/proc", "sysfs_root": f"{state_dir}/sys", "meminfo": None},
        "memory": {"profile": "mine", "profile_digest": "9f", "context": 1024},
        "start": begin,
        "stop": [
            {"name": name, "module": module, "arguments": {"drain_timeout": 60} if name == "drain" else {}, "timeout": 10} for name, module in stop.items()
        ],
        **more,
    }  # fmt: skip


# --- at a boot ----------------------------------------------------------------------------------------------------------


UNCLEAN = "the node did not shut down cleanly: the unit was {} since "


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize(
    ("state", "boot", "cycled", "says"),
    [
        (record.STOPPED, "before", False, ""),
        (record.FAILED, "before", False, ""),
        (record.RUNNING, "before", False, UNCLEAN),
        (record.STARTING, "before", False, UNCLEAN),
        (record.RUNNING, "before", True, UNCLEAN),
        (record.REFUSED, "before", False, "as it was"),
        (record.REFUSED, "before", True, "as it was"),
        # A person's start, after the first one of this boot was refused.
        (record.REFUSED, "now", False, ""),
        (record.RUNNING, "now", False, ""),
    ],
)
def test_the_first_start_after_an_unclean_shutdown_needs_the_setting_or_consent(tmp_path, monkeypatch, state, boot, cycled, says, once):
    asked = []
    monkeypatch.setattr(record, "take_power_cycle", lambda state_dir: bool(asked.append(state_dir)) or cycled)
    record.write(str(tmp_path), boot, state, "as it was")
    says = says.format(state)

    def check():
        return record.check_boot(str(tmp_path), "now", str(tmp_path), "gb10-x.service", once)

    unclean = says not in ("", "as it was")
    if cycled:
        assert check().startswith(says) and check().endswith("this collection cycled the power, so the unit starts once")
    elif not says:
        assert check() == ""
    elif unclean and once:
        assert check().startswith(says) and check().endswith("in an earlier boot; the unit starts once, because a boot returns leaked memory")
    else:
        with pytest.raises(ClusterError) as caught:
            check()
        assert str(caught.value).startswith(says) and str(caught.value).endswith("gb10_unclean_boot is never" if unclean else says)
        assert caught.value.reason == record.REFUSED and caught.value.remedy.endswith("then: systemctl start gb10-x.service")
    # Each later boot takes the consent, and only what nothing allowed before counts as an unclean boot.
    assert set(asked) == ({str(tmp_path)} if boot == "before" else set())
    assert [entry["boot_id"] for entry in boots.read(str(tmp_path))] == (["now"] if unclean and not cycled else [])


def test_a_unit_that_never_ran_starts(tmp_path):
    assert record.check_boot(str(tmp_path), "now", str(tmp_path), "gb10-x.service", False) == "" and boots.read(str(tmp_path)) == []


def test_a_record_comes_back_as_it_was_and_another_file_is_not_one(tmp_path):
    record.write(str(tmp_path), "b", record.RUNNING, "why", "run", 1)
    assert {**record.read(str(tmp_path)), "at": ""} == {
        "schema": 1, "boot_id": "b", "state": "running", "reason": "why", "run_id": "run", "tries": 1, "at": "",
    }  # fmt: skip
    for wrong in ("{", "[]", json.dumps({"schema": 1, "state": "running"}), json.dumps({**record.read(str(tmp_path)), "state": "odd"})):
        (tmp_path / record.FILE).write_text(wrong)
        with pytest.raises(UnknownState, match=record.FILE):
            record.read(str(tmp_path))
    (tmp_path / record.FILE).unlink()
    assert record.read(str(tmp_path)) is None


def test_a_link_does_not_mark_a_power_cycle(tmp_path):
    (tmp_path / "there").touch()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    assert record.is_power_cycled(str(tmp_path / "there")) is (os.getuid() == 0)
    assert not record.is_power_cycled(str(tmp_path / "link")) and not record.is_power_cycled(str(tmp_path / "none"))


# --- the unit's text ----------------------------------------------------------------------------------------------------


def test_a_unit_file_shows_its_owner_and_edits(tmp_path):
    written = text.engine("/var/lib/gb10/gb10/unit", "/usr/bin/python3", given())
    path = tmp_path / "unit.service"
    for content, whose in ((written, "ours"), (written.replace("Restart=no", "Restart=always"), "edited"), ("[Unit]\nDescription=mine\n", "foreign")):
        assert unit.whose(content.encode()) == whose
        path.write_text(content)
        if whose == "ours":
            assert unit.require_ours(str(path)) == content.encode()
            continue
        with pytest.raises(ClusterError) as caught:
            unit.require_ours(str(path))
        assert str(path) in str(caught.value) and str(path) in caught.value.remedy
    assert unit.require_ours(str(tmp_path / "none")) is None


def test_the_unit_restarts_nothing_and_waits_longer_than_the_program():
    requested = given(start_seconds=3600)
    lines = text.engine("/state/unit", "/usr/bin/python3", requested).splitlines()
    assert "Restart=no" in lines and "Type=notify" in lines
    assert "ExecStart=/usr/bin/python3 -I /state/unit/unit.pyz engine /state/unit/specification.json" in lines
    assert int(next(line for line in lines if line.startswith("TimeoutStartSec=")).partition("=")[2]) > 2 * 3600
    assert int(next(line for line in lines if line.startswith("TimeoutStopSec=")).partition("=")[2]) > sum(step["timeout"] for step in requested["stop"])


# --- the specification --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"gpus": "1"}, "gpus"),
        ({"nodes": []}, "nodes"),
        ({"meeting": {"address": "10.0.0.1"}}, "meeting: port"),
        ({"start": [{"name": "drop", "module": "shell", "arguments": {}, "timeout": 1}]}, "expected one of"),
        ({"start": [{"name": "rm", "module": "vllm_serve", "arguments": {}, "timeout": 1}]}, "expected one of"),
        ({"start": list(reversed(given()["start"]))}, "not in the order"),
        ({"stop": [*given()["stop"], *given()["stop"]]}, "not in the order"),
    ],
)
def test_a_specification_runs_only_known_modules_in_order(change, why):
    with pytest.raises(ClusterError, match=why):
        specification.check(given(**change))


def test_a_specification_is_read_as_it_was_written(tmp_path):
    path = tmp_path / specification.FILE
    path.write_text(specification.dump(given()))
    assert specification.read(str(path)) == {**given(), "schema": 1}
    assert specification.dump(given()) == specification.dump(dict(reversed(given().items())))
    for wrong in ("{", json.dumps({**given(), "schema": 2}), json.dumps({**given(), "schema": 1, "start": None})):
        path.write_text(wrong)
        with pytest.raises(UnknownState, match=specification.FILE):
            specification.read(str(path))


def test_what_a_reboot_changed_is_named():
    was = {"the interface of 10.0.0.1": "enp1", "GID 3 of mlx5_0 port 1": "10.0.0.1 (RoCE v2)"}
    assert place.differences(was, dict(was)) == []
    assert place.differences(was, {**was, "the interface of 10.0.0.1": ""}) == ["the interface of 10.0.0.1 was enp1 and is none"]
    assert place.differences(was, {"the interface of 10.0.0.1": "enp1"}) == ["GID 3 of mlx5_0 port 1 was 10.0.0.1 (RoCE v2) and is none"]


# --- memory -------------------------------------------------------------------------------------------------------------


def start(**more):
    memory = {"before_mb": 102400, "lowest_mb": 10240, "steady_mb": 20480}
    return {"image_id": "sha256:1", "profile_digest": "9f", "driver": "580", "context": 1024, **memory, **more}


def test_the_memory_of_recorded_starts_must_be_available():
    known = [start(), start(profile_digest="other", lowest_mb=0), start(image_id="sha256:2", lowest_mb=0), start(context=4096, lowest_mb=0)]
    levels = admission.taken(known, "sha256:1", "9f", 1024)
    assert levels == (80.0, 90.0)
    assert "100.0 GiB are available" in admission.judge(levels, 100)
    with pytest.raises(ClusterError, match="90.0 GiB at its peak.*85.0 GiB are available") as caught:
        admission.judge(levels, 85)
    assert (caught.value.details["measured"], caught.value.details["needed"]) == (85, 90)
    assert admission.taken(known, "sha256:3", "9f", 1024) is None and "is recorded" in admission.judge(None, 1)


# --- the program --------------------------------------------------------------------------------------------------------


def test_a_module_that_prints_no_result_is_unknown():
    assert steps.parse("m", ToolResult(0, 'warning\n{"changed": false, "msg": "x"}\n', ""))["msg"] == "x"
    for printed in ("", "{", "[1]", '{"msg": "x"}'):
        with pytest.raises(UnknownState, match="m ended with code 1"):
            steps.parse("m", ToolResult(1, printed, "boom"))
    with pytest.raises(ClusterError, match="m: no") as caught:
        steps.require("m", {"failed": True, "msg": "no", "verdict": "block", "remedy": "do", "reason": "why"})
    assert (caught.value.remedy, caught.value.reason) == ("do", "why")


class Node:
    """A node whose modules answer from a table; ``asked`` lists the modules that ran, with ``!`` after those in check mode."""

    def __init__(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str = "head", executor: str = "native", boot: str = "now", pair: bool = False
    ) -> None:
        self.path = tmp_path
        (tmp_path / "proc/sys/kernel/random").mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc/sys/kernel/random/boot_id").write_text(boot)
        (tmp_path / "proc/meminfo").write_text("MemTotal: 127600748 kB\nMemAvailable: 120000000 kB\nCached: 1 kB\nBuffers: 1 kB\n")
        self.folder = tmp_path / "gb10" / "unit"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.given = given(str(tmp_path), role, executor, pair or executor == "ray")
        self.asked: list[str] = []
        self.said: list[str] = []
        self.lives = False
        self.nodes = [{"address": address, "alive": True, "gpus": 1, "node_id": f"{name}-1"} for name, address in NODES.items()]
        self.answers: dict[str, t.Any] = {}
        #: The calls to the lock, and how many times a run keeps it from the unit from now on.
        self.locks: list[str] = []
        self.busy = 0
        self.engine = {"live": True, "run_id": "r1", "ordered": "r1", "unreadable": "", "stopped_by": "", "start_error": "", "log_path": "/l"}
        for module in (program, bring_up, service, lock):
            monkeypatch.setattr(module, "say", self.said.append)
        monkeypatch.setattr(record, "RUN_DIR", str(tmp_path / "run"))
        monkeypatch.setattr(bring_up, "EngineApi", lambda *_given: types.SimpleNamespace(image=lambda _name: {"Id": "sha256:1"}))
        monkeypatch.setattr(program.engine_state, "engine_state", lambda *_given, **_more: dict(self.engine))
        monkeypatch.setattr(program.engine_state, "last_end", lambda engine: f"run {engine['run_id']} ended")
        for name in ("LOOK_SECONDS", "ASK_SECONDS", "NETWORK_SECONDS"):
            monkeypatch.setattr(bring_up, name, 0.01)
        for name in ("LOOK_SECONDS", "ASK_SECONDS"):
            monkeypatch.setattr(program, name, 0.01)
        monkeypatch.setattr(program.ray, "FORGET_SECONDS", 0.05)
        self.connections: list[listeners.Connection] = []
        self.listens, self.silent = True, False
        monkeypatch.setattr(meeting.listeners, "connections", lambda: list(self.connections))
        monkeypatch.setattr(bring_up.listeners, "answers", lambda *_given: "" if self.listens else "refused")
        monkeypatch.setattr(meeting, "_answer", lambda *_given: meeting.SILENT if self.silent else meeting.LISTENS if self.listens else meeting.REFUSES)
        self.supervisor = program.Supervisor(self.given, self.run)

    def run(self, name: str, arguments: t.Mapping[str, t.Any], _seconds: float, predict: bool) -> dict[str, t.Any]:
        self.asked.append(f"{name}{'!' if predict else ''}")
        if (name, predict) in self.answers:
            answer = self.answers[name, predict]
            return answer() if callable(answer) else answer
        if name == "cluster_lock":
            self.locks.append(arguments["state"])
            if self.busy:
                self.busy -= 1
                other = {"reason": "held by another run", "lock": {"id": "x", "holder": {"service": ""}}}
                return {"failed": True, "msg": "another run works on this cluster", "verdict": "block", **other}
            return {"lock": {"id": "l"}, "msg": arguments["state"]}
        if name == "node_container_info":
            return {"nodes": self.nodes, "msg": ""}
        if name == "vllm_serve_info":
            cold = {"seconds": {"weights": 30.0}, "compiled": "kept", "last": {}, "reported": {"ready": 50.0}, "error": ""}
            return {"completion": {"seconds": 0.1}, "engine_version": "0.32.0", "engine": {"live": True, "seconds": 42.2}, "cold_start": cold, "msg": ""}
        if name == "vllm_serve" and not predict:
            self.lives = True
            if self.given["meeting"]:
                self.meets()
        return {"actions": [] if self.lives else ["start"], "engine_live": self.lives, "run_id": "r1", "msg": f"{name} done", "reason": ""}

    def meets(self) -> None:
        """Let the other node's rank be connected to this one's."""
        ends = (("10.0.0.1", 29501), ("10.0.0.2", 40000))
        here, there = ends if self.given["role"] == "head" else reversed(ends)
        self.connections = [listeners.Connection(*here, *there, listeners.TCP_ESTABLISHED, 0, 1)]

    @property
    def state(self) -> dict[str, t.Any]:
        return record.read(str(self.folder))

    @property
    def shown(self) -> dict[str, t.Any]:
        return glance.on_node(self.given["state_dir"])[0]


@pytest.fixture
def node(tmp_path, monkeypatch):
    return lambda **more: Node(tmp_path, monkeypatch, **more)


def test_an_engine_that_runs_as_requested_is_not_touched(node):
    host = node()
    host.lives = True
    host.supervisor.begin()
    assert host.asked == ["node_container!", "vllm_serve!", "vllm_serve_info"]
    assert (host.state["state"], host.state["run_id"], host.state["tries"]) == ("running", "r1", 0)
    assert host.shown["start"] == "start: weights 30, compile cache used; reported by others: 50 s", "it was not seen when the engine was ready"
    host.supervisor.note(record.STOPPED)
    assert host.shown["start"] == ""


def test_a_start_takes_all_steps_under_the_lock(node):
    host = node()
    host.supervisor.begin()
    assert host.asked == [
        "node_container!", "cluster_lock", "page_cache_drop", "cuda_zombie_check", "node_samples_info", "node_container", "vllm_serve", "vllm_serve_info",
        "node_service", "cluster_lock",
    ]  # fmt: skip
    assert (host.state["state"], host.state["tries"]) == ("running", 1)
    assert host.shown["start"] == "start: 42 s (weights 30, first token 0), compile cache used; reported by others: 50 s"


def test_a_step_that_blocks_ends_the_start_and_says_why(node):
    host = node()
    host.answers["cuda_zombie_check", False] = {"failed": True, "msg": "a leak", "verdict": "block", "remedy": "Reboot.", "reason": "leak"}
    assert host.supervisor.main() == 1
    assert host.asked[-2:] == ["cuda_zombie_check", "cluster_lock"] and "vllm_serve" not in host.asked
    assert host.state["state"] == "failed" and "a leak" in host.state["reason"]
    assert "Reboot." in host.said[-1]


def test_a_play_that_holds_the_lock_comes_first(node):
    host = node()
    lock = {"id": "x", "holder": {"service": ""}}
    host.answers["cluster_lock", False] = {"failed": True, "msg": "another run works on this cluster", "verdict": "block", "lock": lock}
    assert host.supervisor.main() == 1 and "another run works" in host.state["reason"] and "vllm_serve" not in host.asked


def test_after_a_crash_only_a_person_starts_it_where_the_setting_says_so(node):
    record.write(str(node(boot="before").folder), "before", record.RUNNING)
    host = node(boot="now")
    assert host.supervisor.main() == 1
    assert (host.asked, host.state["state"]) == ([], "refused") and "did not shut down cleanly" in host.said[-1]
    later = node(boot="later")
    assert later.supervisor.main() == 1 and later.state["state"] == "refused"
    again = node(boot="later")
    again.supervisor.begin()
    assert again.state["state"] == "running"


def test_after_a_crash_it_comes_back_once_and_says_so(node):
    record.write(str(node(boot="before").folder), "before", record.RUNNING)
    host = node(boot="now")
    host.given["unclean_boot"] = boots.ONCE
    host.supervisor.begin()
    assert "cuda_zombie_check" in host.asked and "vllm_serve" in host.asked
    reason = host.state["reason"]
    assert host.state["state"] == "running" and reason.endswith("the unit starts once, because a boot returns leaked memory") and host.said[0] == reason
    assert glance.on_node(str(host.path))[0]["reason"] == reason
    # A crash of that boot is the second one.
    second = node(boot="later")
    second.given["unclean_boot"] = boots.ONCE
    assert second.supervisor.main() == 1 and second.asked == []
    assert second.state["state"] == "refused" and "it is the second unclean boot in a row" in second.state["reason"]


@pytest.mark.skipif(os.getuid() != 0, reason="the file of a power cycle is root's")
def test_a_power_cycle_of_our_own_lets_it_start_once(node, tmp_path):
    record.write(str(node().folder), "before", record.RUNNING)
    (tmp_path / record.POWER_CYCLED).touch()
    host = node(boot="now")
    host.supervisor.begin()
    assert host.state["state"] == "running" and not (tmp_path / record.POWER_CYCLED).exists()


@pytest.mark.parametrize(
    ("engine", "code", "state"),
    [
        ({"live": False, "stopped_by": "ada"}, 0, "stopped"),
        ({"live": True, "run_id": "r2", "ordered": "r2"}, 0, "stopped"),
        # Another run was ordered, and has not begun.
        ({"live": False, "ordered": "r2"}, 0, "stopped"),
        ({"live": False}, 1, "failed"),
        # What the container can write.
        ({"live": False, "run_id": "r2"}, 1, "failed"),
        ({"live": True, "run_id": "r2"}, 1, "failed"),
        ({"live": False, "run_id": ""}, 1, "failed"),
    ],
)
def test_an_end_on_request_is_clean_and_any_other_is_not(node, engine, code, state):
    host = node()
    host.lives = True
    host.supervisor.begin()
    host.engine.update(engine)
    assert host.supervisor.main() == code and host.state["state"] == state


@pytest.mark.parametrize(
    ("holder", "state"),
    [({"user": "ada"}, "stopped"), ({"service": "gb10-lease.service"}, "stopped"), ({"service": "gb10-recover-gb10.service"}, "failed"), (None, "failed")],
)
def test_an_end_while_a_run_works_on_the_cluster_is_its_own_but_not_the_recoverys(node, holder, state):
    """A recovery requests each end, and holds its lock before that: an engine that hangs may end by itself meanwhile."""
    host = node()
    host.lives = True
    host.supervisor.begin()
    host.engine.update({"live": False})
    if holder:
        path = Path(cluster_locks.path_of(host.given["state_dir"], host.given["cluster"]))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(cluster_locks.dump(holder, datetime.datetime.now(datetime.timezone.utc)), encoding="utf-8")
    assert host.supervisor.main() == int(state == "failed") and host.state["state"] == state
    assert ("worked on the cluster" in host.state["reason"]) is (state == "stopped")


@pytest.mark.parametrize("drained", [True, False])
def test_a_stop_drains_then_stops_engine_and_container(node, drained, monkeypatch):
    host = node()
    host.lives = True
    host.supervisor.begin()
    host.asked.clear()
    busy = {"failed": True, "msg": "it has 2 request(s)", "verdict": "block", "reason": "requests running", "requests_running": 2}
    times = iter([0.0, 1.0, 31.0, 61.0])
    monkeypatch.setattr(bring_up.interruption, "time", types.SimpleNamespace(monotonic=times.__next__))
    answers = iter([*([{"msg": "stopped"}] if drained else [busy] * 3), {"msg": "stopped"}])
    host.answers["vllm_serve", False] = lambda: next(answers)
    host.supervisor.ask_to_stop(15, None)
    with pytest.raises(service.StopAsked):
        host.supervisor.serve()
    assert host.supervisor.end() == 0
    assert host.asked == ["cluster_lock", *["vllm_serve"] * (2 if drained else 4), "node_container", "cluster_lock"] and host.state["state"] == "stopped"
    assert any("2 request(s); the engine is stopped anyway" in line for line in host.said) is not drained
    counted = [line for line in host.said if "still has" in line]
    lines = [f"drain: the engine of gb10 still has 2 request(s), running or waiting; they get {left} s more" for left in (59, 29)]
    assert counted == ([] if drained else lines)


@pytest.mark.parametrize("there", [True, False])
def test_a_full_disk_loses_no_engine(node, there, monkeypatch):
    """It runs, or has just started, and the watch goes on; the events are recorded once there is room."""
    host = node()
    host.lives = full = there
    written, looks = record.write, []

    def write(*given):
        if full or host.lives and len(looks) < 3:
            raise OSError(28, "No space left on device")
        written(*given)

    def look(self):
        nonlocal full
        looks.append(self.run_id)
        full = full and len(looks) < 3
        return program.Seen("it gave way") if len(looks) == 5 else program.Seen()

    monkeypatch.setattr(record, "write", write)
    monkeypatch.setattr(program.Supervisor, "seen_engine", look)
    assert host.supervisor.main() == 0 and looks == ["r1"] * 5
    assert (host.state["state"], host.state["reason"]) == ("stopped", "it gave way")
    assert len([line for line in host.said if line.startswith("not recorded")]) == 1 and "the state is recorded again" in host.said
    assert not {"cuda_zombie_check", "vllm_serve"} & set(host.asked) if there else host.asked.count("vllm_serve") == 1


def test_a_start_that_cannot_be_recorded_starts_nothing(node, monkeypatch):
    host = node()

    def full(*_given):
        raise OSError(28, "No space left on device", "/x/state.json")

    monkeypatch.setattr(record, "write", full)
    assert host.supervisor.main() == 1 and host.asked == ["node_container!"]
    assert "failed: /x/state.json: No space left on device Remedy: Free some space and run again: df -h /x" in host.said


def test_a_start_closes_what_an_older_version_left_open(node):
    host = node()
    above = host.folder.parent
    above.chmod(0o755)
    host.lives = True
    host.supervisor.begin()
    assert above.stat().st_mode & 0o777 == 0o700 and f"closed {above} to other accounts" in host.said


@pytest.mark.skipif(os.getuid() != 0, reason="another account takes root")
def test_a_directory_that_cannot_be_closed_is_logged_and_a_running_engine_keeps_serving(node):
    host = node()
    os.chown(host.folder.parent, 65534, -1)
    host.lives = True
    host.supervisor.begin()
    assert host.state["state"] == "running" and any("belongs to user 65534" in line for line in host.said)


def test_a_unit_that_is_released_leaves_all_running(node):
    host = node()
    host.lives = True
    host.supervisor.begin()
    host.asked.clear()
    (host.folder / unit_files.RELEASE).touch()
    assert host.supervisor.end() == 0 and host.asked == [] and host.state["state"] == "stopped" and not (host.folder / unit_files.RELEASE).exists()


def test_a_head_restarts_its_engine_once_when_a_worker_rejoins(node):
    host = node(executor="ray")
    host.supervisor.begin()
    assert host.supervisor.tries == 1
    host.asked.clear()
    host.nodes[1] = {**host.nodes[1], "node_id": "spark-2-2"}
    host.supervisor.come_back(program.Seen(how="run r1 ended"))
    assert host.asked.count("vllm_serve") == 1 and "page_cache_drop" not in host.asked and host.state["state"] == "running" and host.supervisor.tries == 2
    with pytest.raises(ClusterError, match="try 2 of 2"):
        host.supervisor.come_back(program.Seen(how="run r1 ended"))


def test_an_engine_that_ended_with_all_nodes_present_is_not_restarted(node):
    host = node(executor="ray")
    host.supervisor.begin()
    host.asked.clear()
    with pytest.raises(ClusterError, match="run r1 ended"):
        host.supervisor.come_back(program.Seen(how="run r1 ended"))
    assert "vllm_serve" not in host.asked


def test_a_worker_that_stays_away_is_named(node):
    host = node(executor="ray")
    host.supervisor.begin()
    del host.nodes[1]
    with pytest.raises(ClusterError, match="spark-2 did not join Ray within 1 s"):
        host.supervisor.come_back(program.Seen(how="run r1 ended"))


def test_a_worker_waits_for_its_head(node):
    host = node(role="worker", executor="ray")
    failed = {"failed": True, "msg": "no Ray head answers", "verdict": "block", "reason": "no head"}
    tries = iter([failed, failed, {"msg": "started", "actions": ["start"], "changed": True}])
    host.answers["ray_cluster", False] = lambda: next(tries)
    host.supervisor.begin()
    assert host.state["state"] == "running" and host.asked.count("ray_cluster") == 3 and "vllm_serve" not in host.asked


# --- waiting for another node --------------------------------------------------------------------------------------------


class Waiting:
    """The awaited condition is true at check number ``comes``; ``during`` is called while the node waits."""

    def __init__(self, host: Node, comes: int = 3) -> None:
        self.one, self.comes, self.looks = host, comes, 0
        self.during: t.Callable[[], None] = lambda: None

    def look(self) -> bool:
        self.looks += 1
        if 1 < self.looks < self.comes:
            assert self.one.supervisor.lock.id == "", "the lock is held while the unit only waits"
            assert (self.one.state["state"], self.one.state["reason"][:10]) == ("starting", "waits for ")
            self.during()
        return self.looks >= self.comes


def waiting(node: t.Callable[..., Node], role: str, executor: str, monkeypatch: pytest.MonkeyPatch, comes: int = 3) -> tuple[Node, Waiting]:
    """A node whose start waits for the other one, at each of the places where it can."""
    host = node(role=role, executor=executor, pair=True)
    awaited = Waiting(host, comes)
    if executor == "ray" and role == "worker":
        monkeypatch.setattr(bring_up.listeners, "answers", lambda *_given: "" if awaited.look() else "refused")
    elif executor == "ray":
        monkeypatch.setattr(host.supervisor, "ray_nodes", lambda: host.nodes if awaited.look() else host.nodes[:1])
    elif role == "worker":
        monkeypatch.setattr(host.supervisor.ranks, "head_listens", awaited.look)
    else:
        monkeypatch.setattr(host.supervisor.ranks, "missing", lambda: [] if host.lives and awaited.look() else ["spark-2"] if host.lives else [])
    return host, awaited


PLACES = [("worker", "ray"), ("head", "ray"), ("worker", "native"), ("head", "native")]


@pytest.mark.parametrize(("role", "executor"), PLACES)
def test_others_may_work_on_the_cluster_while_a_unit_only_waits(node, role, executor, monkeypatch):
    host, awaited = waiting(node, role, executor, monkeypatch)
    host.supervisor.begin()
    assert awaited.looks >= 3 and (host.state["state"], host.state["reason"]) == ("running", "")
    # Taken, given back for the wait, taken again, and given back at the end.
    assert host.locks == ["acquired", "released", "acquired", "released"]


@pytest.mark.parametrize(("role", "executor"), PLACES)
def test_a_present_node_needs_no_lock_release(node, role, executor, monkeypatch):
    host, _awaited = waiting(node, role, executor, monkeypatch, comes=1)
    host.supervisor.begin()
    assert host.locks == ["acquired", "released"]


@pytest.mark.parametrize(("role", "executor"), PLACES)
def test_a_run_that_took_the_lock_meanwhile_is_waited_for_as_well(node, role, executor, monkeypatch):
    host, awaited = waiting(node, role, executor, monkeypatch)
    awaited.during = lambda: setattr(host, "busy", 2)
    host.supervisor.begin()
    assert host.locks == ["acquired", "released", "acquired", "acquired", "acquired", "released"] and host.state["state"] == "running"
    assert any("waits for lock: another run works on this cluster" in line for line in host.said)


@pytest.mark.parametrize(("role", "executor"), PLACES)
def test_a_run_that_keeps_the_lock_ends_the_wait_and_nothing_is_changed(node, role, executor, monkeypatch):
    host, awaited = waiting(node, role, executor, monkeypatch)
    awaited.during = lambda: (setattr(host, "busy", 10**9), host.asked.clear())
    assert host.supervisor.main() == 1 and "another run works on this cluster" in host.state["reason"]
    assert not {"vllm_serve", "ray_cluster", "node_container"} & set(host.asked)


@pytest.mark.parametrize(("role", "executor"), PLACES)
def test_a_waiting_unit_stops_on_request_and_holds_no_lock(node, role, executor, monkeypatch):
    host, awaited = waiting(node, role, executor, monkeypatch, comes=10**9)
    awaited.during = lambda: host.supervisor.ask_to_stop(15, None)
    monkeypatch.setattr(host.supervisor, "stop", lambda: "")
    assert host.supervisor.main() == 0 and host.locks == ["acquired", "released"] and host.state["state"] == "stopped"


@pytest.mark.parametrize(("role", "executor"), PLACES[:3])
def test_an_engine_started_meanwhile_by_another_run_is_taken_over(node, role, executor, monkeypatch):
    host, awaited = waiting(node, role, executor, monkeypatch)
    monkeypatch.setattr(bring_up.admission, "taken", lambda *_given: (80.0, 90.0))
    held = "MemTotal: 127600748 kB\nMemAvailable: 20000000 kB\nCached: 1 kB\nBuffers: 1 kB\n"

    def brought_up():
        host.lives = True
        host.meets()
        (host.path / "proc/meminfo").write_text(held)

    awaited.during = brought_up
    host.supervisor.begin()
    assert host.state["state"] == "running" and "vllm_serve" not in host.asked and host.locks == ["acquired", "released", "acquired", "released"]


def test_a_lock_that_cannot_be_read_ends_the_wait_at_once(node, monkeypatch):
    host, _awaited = waiting(node, "worker", "ray", monkeypatch)
    answers = iter([{"lock": {"id": "l"}, "msg": ""}, {"msg": ""}, {"failed": True, "msg": "lock.json is not JSON", "reason": "not understood"}])
    host.answers["cluster_lock", False] = lambda: next(answers)
    assert host.supervisor.main() == 1 and "lock.json is not JSON" in host.state["reason"]


def test_a_lock_that_could_not_be_released_is_released_later(node, monkeypatch):
    host, awaited = waiting(node, "worker", "ray", monkeypatch, comes=5)
    monkeypatch.setattr(Waiting, "look", lambda self: (setattr(self, "looks", self.looks + 1), self.looks >= self.comes)[1])
    answers = iter([{"lock": {"id": "l"}, "msg": ""}, {"failed": True, "msg": "another run takes the lock at this moment", "verdict": "block"}, {"msg": ""}])
    again = iter([{"lock": {"id": "l"}, "msg": ""}, {"msg": ""}])
    host.answers["cluster_lock", False] = lambda: next(answers, None) or next(again)
    host.supervisor.begin()
    assert awaited.looks == 5 and host.state["state"] == "running" and any("takes the lock at this moment" in line for line in host.said)


def test_a_lock_that_cannot_be_released_hides_no_stop(node, monkeypatch):
    host, awaited = waiting(node, "worker", "ray", monkeypatch, comes=10**9)
    monkeypatch.setattr(Waiting, "look", lambda self: (host.supervisor.ask_to_stop(15, None), False)[1])
    hangs = UnknownState("cluster_lock did not end within 30 s")

    def answer():
        if host.locks:
            raise hangs
        host.locks.append("acquired")
        return {"lock": {"id": "l"}, "msg": ""}

    host.answers["cluster_lock", False] = answer
    assert host.supervisor.main() == 0 and host.asked.count("ray_cluster") == 1 and host.state["state"] == "stopped"


def test_a_full_disk_ends_no_wait(node, monkeypatch):
    host, awaited = waiting(node, "head", "native", monkeypatch)
    written = record.write

    def write(folder, boot, state, reason="", *more):
        if reason.startswith("waits"):
            raise OSError(28, "No space left on device")
        written(folder, boot, state, reason, *more)

    monkeypatch.setattr(record, "write", write)
    monkeypatch.setattr(Waiting, "look", lambda self: (setattr(self, "looks", self.looks + 1), self.looks >= self.comes)[1])
    host.supervisor.begin()
    assert awaited.looks == 3 and host.state["state"] == "running"


@pytest.mark.parametrize("works", [True, False])
def test_a_rank_that_is_stopped_while_it_waits_fails_the_unit_unless_a_run_works_on_the_cluster(node, works, monkeypatch):
    host, awaited = waiting(node, "head", "native", monkeypatch, comes=4)
    monkeypatch.setattr(host.supervisor, "other_holder", lambda: "ada@bench" if works and awaited.looks < 3 else "")

    def stopped():
        host.engine["live"] = awaited.looks >= 3

    awaited.during = stopped
    if works:
        host.supervisor.begin()
        assert host.state["state"] == "running"
    else:
        assert host.supervisor.main() == 1
    assert any("waits for ada@bench, who stopped it" in line for line in host.said) is works
    assert ("it waited for the rank of spark-2" in host.state["reason"]) is not works


@pytest.mark.parametrize(("role", "executor"), PLACES[:3])
def test_memory_is_judged_again_after_a_wait(node, role, executor, monkeypatch):
    host, awaited = waiting(node, role, executor, monkeypatch)
    monkeypatch.setattr(bring_up.admission, "taken", lambda *_given: (80.0, 90.0))
    taken = "MemTotal: 127600748 kB\nMemAvailable: 20000000 kB\nCached: 1 kB\nBuffers: 1 kB\n"
    awaited.during = lambda: (host.path / "proc/meminfo").write_text(taken) and None
    assert host.supervisor.main() == 1 and "are available" in host.state["reason"] and "vllm_serve" not in host.asked


# --- a pair whose engine spreads the ranks by itself ----------------------------------------------------------------------


def joined(node: t.Callable[..., Node], role: str) -> Node:
    """A node whose unit took over its part of an engine that serves."""
    host = node(role=role, pair=True)
    host.lives = True
    host.meets()
    host.supervisor.begin()
    host.asked.clear()
    return host


def awaited(host: Node) -> program.Seen:
    """What the watch acts on after enough checks."""
    for _look in range(meeting.MISSED_LOOKS):
        assert host.state["state"] == "running"
        if left := host.supervisor.ranks.left():
            return program.Seen(how="gone", left=left)
    return program.Seen()


@pytest.mark.parametrize(("role", "other", "rest"), [("head", "spark-2", ["vllm_serve_info", "node_service"]), ("worker", "spark-1", ["node_service"])])
def test_each_rank_is_started_by_its_own_node_and_joins(node, role, other, rest):
    host = node(role=role, pair=True)
    host.supervisor.begin()
    begin = ["page_cache_drop", "cuda_zombie_check", "node_samples_info", "node_container", "vllm_serve"]
    assert host.asked == ["node_container!", "cluster_lock", *begin, *rest, "cluster_lock"]
    assert (host.state["state"], host.state["tries"]) == ("running", 1) and f"join: {other}" in host.said


@pytest.mark.parametrize(("role", "calls"), [("head", ["node_container!", "vllm_serve!", "vllm_serve_info"]), ("worker", ["node_container!", "vllm_serve!"])])
def test_ranks_that_have_met_are_taken_over_as_they_are(node, role, calls):
    host = node(role=role, pair=True)
    host.lives = True
    host.meets()
    host.supervisor.begin()
    assert host.asked == calls and host.state["state"] == "running"


def test_a_workers_rank_waits_for_that_of_the_head(node):
    host = node(role="worker", pair=True)
    host.listens = False
    with pytest.raises(bring_up.WaitTimeout, match="the rank of spark-1 did not join within 1 s"):
        host.supervisor.begin()
    assert "vllm_serve" not in host.asked and any("waits for the rank of spark-1" in line for line in host.said)


def test_a_heads_rank_that_waits_in_vain_is_stopped_and_the_worker_named(node, monkeypatch):
    host = node(pair=True)
    monkeypatch.setattr(host, "meets", lambda: None)
    with pytest.raises(bring_up.WaitTimeout, match="the rank of spark-2 did not join within 1 s"):
        host.supervisor.begin()
    assert host.asked.count("vllm_serve") == 2 and "vllm_serve_info" not in host.asked


@pytest.mark.parametrize("role", ["head", "worker"])
def test_when_the_other_rank_is_gone_the_own_rank_restarts_once(node, role):
    host = joined(node, role)
    host.connections = []
    seen = awaited(host)
    host.supervisor.come_back(seen)
    # Stopped under the lock, then started when the other side and the memory of the first start are back.
    assert host.asked[:3] == ["cluster_lock", "vllm_serve", "cluster_lock"] and host.asked[3:].count("vllm_serve") == 1
    assert "page_cache_drop" not in host.asked and (host.state["state"], host.supervisor.tries) == ("running", 2)
    host.asked.clear()
    host.connections = []
    with pytest.raises(ClusterError, match="try 2 of 2"):
        host.supervisor.come_back(awaited(host))
    assert host.asked == ["cluster_lock", "vllm_serve", "cluster_lock"]


def test_a_connection_missed_by_one_check_does_not_count_as_gone(node):
    host = joined(node, "head")
    there, host.connections = host.connections, []
    assert not host.supervisor.ranks.left() and not host.supervisor.ranks.left()
    host.connections = there
    assert not host.supervisor.ranks.left()
    host.connections = []
    assert not host.supervisor.ranks.left()


@pytest.mark.parametrize(("role", "silent", "left"), [("worker", False, ["spark-1"]), ("worker", True, []), ("head", False, [])])
def test_a_heads_power_loss_is_detected_when_its_kernel_refuses(node, role, silent, left):
    """Its connection stays in the list: this node was not notified of its end."""
    host = joined(node, role)
    host.listens, host.silent = False, silent
    results = [host.supervisor.ranks.left() for _look in range(meeting.ASK_LOOKS)]
    assert results == [[]] * (meeting.ASK_LOOKS - 1) + [left]


def test_unreadable_connections_do_not_count_as_gone(node, monkeypatch):
    host = joined(node, "head")

    def unread():
        raise UnknownState("the kernel lists a TCP socket in a shape that cannot be read")

    monkeypatch.setattr(meeting.listeners, "connections", unread)
    assert [host.supervisor.ranks.left() for _look in range(2 * meeting.MISSED_LOOKS)] == [[]] * 2 * meeting.MISSED_LOOKS


@pytest.mark.parametrize(
    ("role", "listens", "silent", "again"),
    [("head", True, False, False), ("head", True, True, True), ("worker", True, False, False), ("worker", False, False, True)],
)
def test_a_rank_that_ended_by_itself_starts_again_only_when_another_node_left(node, role, listens, silent, again):
    host = joined(node, role)
    host.listens, host.silent = listens, silent
    seen = program.Seen(how="run r1 ended")
    if not again:
        with pytest.raises(ClusterError, match="run r1 ended"):
            host.supervisor.come_back(seen)
        assert "vllm_serve" not in host.asked
        return
    if role == "worker":
        # The head is back by the time that it is waited for.
        gone = iter([False])
        host.supervisor.ranks.head_listens = lambda: next(gone, True)
    host.supervisor.come_back(seen)
    assert host.asked.count("vllm_serve") == 1 and host.supervisor.tries == 2


def test_an_incomplete_engine_is_stopped_before_a_start(node):
    host = node(role="worker", pair=True)
    host.lives = True
    gone = iter([False])
    host.supervisor.ranks.head_listens = lambda: next(gone, True)
    host.supervisor.begin()
    assert host.asked.count("vllm_serve") == 2 and host.state["state"] == "running"


def test_a_rank_not_connected_to_a_running_head_keeps_running(node):
    host = node(role="worker", pair=True)
    host.lives = True
    assert host.supervisor.main() == 1 and "is unknown" in host.state["reason"] and "vllm_serve" not in host.asked


def test_an_engine_that_returns_tokens_is_complete(node):
    host = node(pair=True)
    host.lives = True
    host.supervisor.begin()
    assert "vllm_serve" not in host.asked and host.state["state"] == "running" and any("will be noticed when the engine ends" in line for line in host.said)


def test_a_worker_that_ends_while_the_engine_loads_ends_the_start(node):
    host = node(pair=True)

    def loads():
        host.connections = []
        return {"completion": None, "engine": {"live": True, "log_path": ""}, "msg": ""}

    host.answers["vllm_serve_info", False] = loads
    assert host.supervisor.main() == 1 and "the rank of spark-2 ended before the engine started" in host.state["reason"]
    assert host.asked.count("vllm_serve") == 2


@pytest.mark.parametrize("jump", [-86400.0 * 365, 86400.0 * 365])
@pytest.mark.parametrize("comes", [True, False])
def test_a_clock_that_jumps_neither_ends_nor_prolongs_a_wait(node, monkeypatch, jump, comes):
    """Waits count on the clock that no correction moves."""
    host = node(executor="ray")
    clocks = {"wall": 0.0, "steady": 0.0}

    def sleep(seconds):
        clocks["steady"] += seconds
        clocks["wall"] += jump
        host.nodes[1]["alive"] = comes and clocks["steady"] >= 0.5

    monkeypatch.setattr(_wait.time, "time", lambda: 1795500000.0 + clocks["wall"])
    monkeypatch.setattr(_wait.time, "monotonic", lambda: clocks["steady"])
    monkeypatch.setattr(_wait.time, "sleep", sleep)
    host.nodes[1]["alive"] = False
    if comes:
        host.supervisor.begin()
        assert host.state["state"] == "running" and 0.5 <= clocks["steady"] < 0.6
        return
    with pytest.raises(WaitTimeout, match="spark-2 did not join Ray within 1 s"):
        host.supervisor.begin()
    assert 1 <= clocks["steady"] < 1.1
