# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node sees of its own part of an engine, and that what it cannot read is unknown."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._engine import health
from ansible_collections.gb10.cluster.plugins.module_utils._engine.token_probe import Asked
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._recover import evidence
from ansible_collections.gb10.cluster.plugins.module_utils._recover.budget import Moment

NOW = Moment("b", 1000.0)
CONFIG = {"secrets_dir": "/etc/gb10/secrets", "roots": {}, "state_dir": "/s"}
STATE = {"boot_id": "b", "at_s": 940.0, "own": {}, "history": [], "kernel": {}}


def unit(**more: t.Any) -> dict[str, t.Any]:
    return {"name": "gb10-engine-gb10.service", "error": "", "active": True, "starting": False, "failed": False, "state": "running", "reason": "", **more}


FAILED = {"active": False, "failed": True, "state": "failed", "reason": "the engine ended"}


@pytest.mark.parametrize(
    ("seen", "runs", "word", "why"),
    [
        ({}, True, "running", "gb10-engine-gb10.service running"),
        ({}, False, "running", "gb10-engine-gb10.service running"),
        ({"active": False, "starting": True, "state": "starting", "reason": "waits for spark-2"}, False, "starting", "starting: waits for spark-2"),
        ({"active": True, "starting": True}, True, "starting", "running"),
        # It waits for other nodes to restart it once.
        ({"state": "starting", "reason": "run r ended"}, False, "ended", "starting: run r ended"),
        ({"state": "starting"}, True, "running", "starting"),
        (FAILED, False, "failed", "gb10-engine-gb10.service failed: the engine ended"),
        # Its process was killed, and its part of the engine was not.
        (FAILED, True, "running", "failed: the engine ended"),
        ({**FAILED, "state": "running", "reason": ""}, False, "failed", "gb10-engine-gb10.service running"),
        # A start after an unclean shutdown is a person's decision, and so is one after a stop on request.
        ({**FAILED, "state": "refused"}, False, "off", "refused"),
        ({**FAILED, "state": "refused"}, True, "off", "refused"),
        ({"active": False, "state": "stopped", "reason": "stopped by systemd"}, False, "off", "stopped: stopped by systemd"),
        ({"active": False, "state": "stopped"}, True, "off", "stopped"),
        ({"active": False, "state": ""}, False, "off", "gb10-engine-gb10.service never ran"),
    ],
)
def test_the_state_of_a_unit(seen: dict[str, t.Any], runs: bool, word: str, why: str) -> None:
    found, reason = evidence.unit_of(unit(**seen), runs)
    assert found == word and why in reason


@pytest.mark.parametrize("seen", [{"active": None}, {"starting": None}, {"failed": None}, {"error": "state.json is not JSON"}])
def test_a_unit_that_is_not_seen_is_unknown(seen: dict[str, t.Any]) -> None:
    with pytest.raises(UnknownState, match=seen.get("error") or "systemd does not answer"):
        evidence.unit_of(unit(**seen), True)


def events(*rows: tuple[str, str, int]) -> dict[str, t.Any]:
    return {"events": [{"kind": kind, "text": text, "count": count} for kind, text, count in rows]}


def test_only_new_lines_of_the_kernel_count(monkeypatch: pytest.MonkeyPatch) -> None:
    log = events(("xid", "Xid 13", 2), ("gpu", "fallen off the bus", 1), ("mlx5", "link down", 4), ("oom", "killed", 1))
    monkeypatch.setattr(evidence.kernel_log, "kernel_log", lambda source, proc: log if (source, proc) == ("auto", "/p") else None)
    roots = {"kernel_log": "auto", "proc_root": "/p"}
    lines, counts = evidence.kernel_lines(roots, {})
    assert lines == [] and counts == {"booted": 1, "xid: Xid 13": 2, "gpu: fallen off the bus": 1, "oom: killed": 1}
    assert evidence.kernel_lines(roots, counts) == ([], counts)
    assert evidence.kernel_lines(roots, {"booted": 1, "xid: Xid 13": 1, "oom: killed": 1})[0] == ["xid: Xid 13", "gpu: fallen off the bus"]
    assert evidence.kernel_lines(roots, {"booted": 1})[0] == ["xid: Xid 13", "gpu: fallen off the bus", "oom: killed"]
    log["events"] = events(*(("xid", f"Xid {number}", 1) for number in range(40)))["events"]
    assert evidence.kernel_lines(roots, counts)[0] == [f"xid: Xid {number}" for number in range(30, 40)]


@pytest.mark.parametrize("error", [UnknownState("no log"), PermissionError(13, "denied", "/dev/kmsg")])
def test_an_unreadable_log_of_the_kernel_is_said_and_prevents_nothing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fails(_source: str, _proc: str) -> dict[str, t.Any]:
        raise error

    monkeypatch.setattr(evidence.kernel_log, "kernel_log", fails)
    lines, counts = evidence.kernel_lines({"kernel_log": "auto", "proc_root": "/p"}, {"booted": 1})
    assert lines[0].startswith("unknown: ") and len(lines) == 1 and counts == {"booted": 1}


class Engine:
    """A node with an engine: what each reader returns, and what was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state = {"live": True, "run_id": "r1", "seconds": 500.0, "api_address": "10.0.0.1", "api_port": 8000, "argv": ["vllm"], "log_path": ""}
        self.container: dict[str, t.Any] | None = {"Id": "c" * 64, "State": {"Running": True, "StartedAt": "2026"}}
        self.members = [
            {"pid": 5, "start_ticks": 9, "kind": "rank", "state": "alive", "cpu_s": 40.0, "text": "rank"},
            {"pid": 6, "start_ticks": 9, "kind": "ray_idle", "state": "alive", "cpu_s": 1.0, "text": "idle"},
            {"pid": 7, "start_ticks": 9, "kind": "raylet", "state": "stopped", "cpu_s": 1.0, "text": "raylet"},
        ]
        self.unit = unit()
        self.flows = False
        self.refused: ClusterError | OSError | None = None
        self.asked = Asked(health.ANSWERS, None, {"grew": False, "still_s": 20.0, "limit_s": 1800.0, "withheld": ""})
        self.calls: list[t.Any] = []
        monkeypatch.setattr(evidence, "EngineApi", lambda socket, seconds: types.SimpleNamespace(top=lambda ident: [5, 6, 7], socket=socket))
        monkeypatch.setattr(evidence, "find_node_container", self.find)
        monkeypatch.setattr(evidence.engine_state, "engine_state", lambda paths, proc: self.state)
        monkeypatch.setattr(evidence.at_work, "members", lambda pids, proc: self.members)
        monkeypatch.setattr(evidence.unit_files, "unit", lambda place, seconds: self.unit)
        monkeypatch.setattr(evidence.kernel_log, "kernel_log", lambda source, proc: events(("xid", "Xid 79", 1)))
        monkeypatch.setattr(evidence.checks, "key_of", lambda config, cluster, state: "key")
        monkeypatch.setattr(evidence.checks, "ask", self.ask)
        self.locks: list[dict[str, t.Any]] = []
        monkeypatch.setattr(evidence.checks, "locks", lambda state_dir: self.locks if state_dir == "/s" else None)
        monkeypatch.setattr(evidence.token_probe, "flows", self.flow)

    def find(self, api: t.Any, cluster: str, role: str) -> dict[str, t.Any] | None:
        self.calls.append((api.socket, cluster, role))
        return self.container

    def flow(self, url: str, key: str, _timeout: float, seconds: float) -> bool:
        self.calls.append(("flows", url, key, seconds))
        return self.flows

    def ask(self, config: t.Any, cluster: str, state: t.Any) -> Asked:
        self.calls.append("token")
        if self.refused:
            raise self.refused
        return self.asked


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    return Engine(monkeypatch)


def given(role: str = "head", executor: str = "ray", **container: t.Any) -> dict[str, t.Any]:
    roots = {"proc_root": "/proc", "sysfs_root": "/sys", "etc_root": "/etc", "kernel_log": "auto"}
    start = [{"name": "container", "module": "ray_cluster", "arguments": container, "timeout": 1}]
    return {"cluster": "gb10", "role": role, "executor": executor, "state_dir": "/s", "log_dir": "/l", "roots": roots, "start": start}


def test_tokens_that_flow_prove_a_head_without_a_request(engine: Engine) -> None:
    engine.flows = True
    changes = evidence.look(CONFIG, given(), STATE, NOW)
    own = changes["own"]
    assert changes["error"] == "" and own["probe"] == list(health.Probe(health.ANSWERS, True)) and "token" not in engine.calls
    assert ("flows", "http://10.0.0.1:8000", "key", evidence.FLOW_SECONDS) in engine.calls
    assert engine.calls[0] == ("/var/run/docker.sock", "gb10", "head")
    assert {key: own[key] for key in ("boot_id", "run", "container", "last", "unit", "seconds", "kernel")} == {
        "boot_id": "b", "run": "r1", "container": f"{'c' * 12} 2026", "last": "", "unit": "running", "seconds": 500.0, "kernel": [],
    }  # fmt: skip
    assert changes["kernel"] == {"booted": 1, "xid: Xid 79": 1}
    # Ray's idle workers are left out, and what a signal stopped is not.
    assert [process["pid"] for process in own["processes"]] == [5, 7]


def test_without_a_flow_a_token_is_requested(engine: Engine) -> None:
    probe = health.Probe(*evidence.look(CONFIG, given(), STATE, NOW)["own"]["probe"])
    assert probe == health.Probe(health.ANSWERS, False, False, 20.0, 1800.0) and "token" in engine.calls
    scaled = health.Probe(*evidence.look(CONFIG, given(), STATE, NOW._replace(scale=60.0))["own"]["probe"])
    assert (scaled.still_s, scaled.limit_s) == (1200.0, 1800.0)
    engine.asked = Asked(health.SILENT, None, None)
    assert health.Probe(*evidence.look(CONFIG, given(), STATE, NOW)["own"]["probe"]) == health.Probe(health.SILENT, False)


def test_nothing_is_requested_while_a_run_works_here(engine: Engine) -> None:
    engine.locks = [{"name": "of cluster gb10", "who": "ada"}]
    probe = health.Probe(*evidence.look(CONFIG, given(), STATE, NOW)["own"]["probe"])
    assert probe == health.Probe(health.ANSWERS, False, withheld="the lock of cluster gb10 is held")
    assert engine.calls == [("/var/run/docker.sock", "gb10", "head")]
    # The recovery's own lock is held while the head looks once more: only a token shows that the fault is over.
    engine.locks = [{"name": "of cluster gb10", "who": "service gb10-recover-gb10.service on spark-1, process 7"}]
    evidence.look(CONFIG, given(), STATE, NOW)
    assert "token" in engine.calls


def test_use_is_measured_between_two_looks(engine: Engine) -> None:
    before = {"pid": 5, "start_ticks": 9, "cpu_s": 10.0}
    own = evidence.look(CONFIG, given(), {**STATE, "own": {"processes": [before]}}, NOW)["own"]
    assert own["processes"][0]["cpu_percent"] == 50.0
    assert evidence.look(CONFIG, given(), STATE, NOW)["own"]["processes"][0]["cpu_percent"] is None


def test_a_worker_is_not_asked_for_a_token(engine: Engine) -> None:
    engine.state = {**engine.state, "live": False, "run_id": "", "seconds": None}
    engine.unit = unit(**FAILED)
    own = evidence.look(CONFIG, given("worker", docker_socket="/run/d.sock"), STATE, NOW)["own"]
    assert own["probe"] == [] and "token" not in engine.calls and engine.calls[0] == ("/run/d.sock", "gb10", "worker")
    # Its container runs, so its part does.
    assert (own["unit"], own["seconds"]) == ("running", 0.0)
    engine.container["State"] = {"Running": False, "StartedAt": "2026"}
    stopped = evidence.look(CONFIG, given("worker"), STATE, NOW)["own"]
    assert (stopped["unit"], stopped["processes"], stopped["container"]) == ("failed", [], f"{'c' * 12} 2026")
    engine.container = None
    gone = evidence.look(CONFIG, given("worker"), STATE, NOW)["own"]
    assert (gone["unit"], gone["container"].strip()) == ("failed", "")


def test_without_ray_a_rank_counts_and_not_its_container(engine: Engine) -> None:
    engine.state, engine.unit = {**engine.state, "live": False}, unit(**FAILED)
    for role in ("head", "worker"):
        own = evidence.look(CONFIG, given(role, "native"), STATE, NOW)["own"]
        assert own["unit"] == "failed" and own["probe"] == []
    engine.state["live"] = True
    assert evidence.look(CONFIG, given("worker", "native"), STATE, NOW)["own"]["unit"] == "running"
    engine.state["live"] = False
    assert evidence.look(CONFIG, given("head", "ray"), STATE, NOW)["own"]["unit"] == "failed"


def test_the_last_recovery_and_the_kernels_lines_of_this_boot_are_part_of_it(engine: Engine) -> None:
    history = [{"at": "2026-11-24T01:00:00Z"}, {"at": "2026-11-24T02:00:00Z"}]
    own = evidence.look(CONFIG, given(), {**STATE, "history": history, "kernel": {"booted": 1}}, NOW)["own"]
    assert own["last"] == "2026-11-24T02:00:00Z" and own["kernel"] == ["xid: Xid 79"]
    assert evidence.look(CONFIG, given(), {**STATE, "boot_id": "a", "kernel": {"booted": 1}}, NOW)["own"]["kernel"] == []


@pytest.mark.parametrize("error", [ClusterError("the API refuses a completion: HTTP 401", remedy="Give the key."), OSError(5, "bad", "/x")])
def test_what_cannot_be_read_makes_the_node_unknown(engine: Engine, error: ClusterError | OSError) -> None:
    engine.refused = error
    changes = evidence.look(CONFIG, given(), STATE, NOW)
    assert changes["own"] == {} and changes["kernel"] == {} and changes["error"]
