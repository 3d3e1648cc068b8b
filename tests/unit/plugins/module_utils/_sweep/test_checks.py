# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a sweep sees of engines: which are meant to be here, and how the verdict of status comes about."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._clock import utc_text
from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state, health, token_probe
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._records import recoveries
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import checks
from ansible_collections.gb10.cluster.plugins.module_utils._unit import boots, glance, record
from ansible_collections.gb10.cluster.plugins.module_utils._unit import unit_files as unit_look

COMPLETION = engine_state.Completion(1, 0.1, 1)
RUN = {
    "live": True, "run_id": "r1", "seconds": 60.0, "stopped_by": "", "api_address": "127.0.0.1", "api_port": 8000, "log_path": "/nowhere", "exit_code": None,
    "argv": ["vllm", "serve", "m", "--tensor-parallel-size", "2"], "exit_signal": None, "ended_at": None, "stopped_at": None, "start_error": "",
}  # fmt: skip
RANK = {"text": "VLLM::Worker_TP0 (pid 7)", "kind": "rank", "state": "alive", "cpu_percent": None}


class Engine:
    """A Docker engine with containers of clusters: (cluster, role, state)."""

    def __init__(self, *there: tuple[str, str, str]) -> None:
        self.there = there

    def containers(self, _labels: dict[str, str]) -> list[dict[str, t.Any]]:
        def labels(cluster: str, role: str) -> dict[str, str]:
            return {"io.gb10.owner": "gb10.cluster", "io.gb10.cluster": cluster, "io.gb10.role": role}

        return [
            {"Id": f"{cluster}-{role}", "Image": "x", "Names": [f"/gb10-{cluster}-{role}"], "State": state, "Status": state, "Labels": labels(cluster, role)}
            for cluster, role, state in self.there
        ]

    def top(self, _id: str) -> list[int]:
        return [7]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, t.Any]:
    """A node with an engine that lives and gives a token, and no unit."""
    monkeypatch.setattr(checks, "EngineApi", lambda *_words: Engine(("gb10", "head", "running")))
    monkeypatch.setattr(checks.engine_state, "engine_state", lambda *_words: dict(RUN))
    monkeypatch.setattr(checks.at_work, "members", lambda _pids: [dict(RANK)])
    monkeypatch.setattr(token_probe, "api_of", lambda *_words: health.ANSWERS)
    monkeypatch.setattr(token_probe, "ask", lambda *_words: token_probe.Asked(health.ANSWERS, COMPLETION, None))
    for place in ("state", "secrets/gb10"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "secrets" / "gb10" / "api_key").write_text("k3y-planted", encoding="utf-8")
    return {
        "node": "spark-1", "state_dir": str(tmp_path / "state"), "log_dir": str(tmp_path / "log"), "secrets_dir": str(tmp_path / "secrets"),
        "docker_socket": "/nowhere", "token_s": 5, "roots": {"etc_root": str(tmp_path), "proc_root": "/proc", "sysfs_root": "/s", "meminfo": None},
    }  # fmt: skip


def mode(nodes: list[str], phase: str = "settled", name: str = "gb10") -> dict[str, t.Any]:
    return {"mode": "cluster", "phase": phase, "clusters": {name: {"nodes": nodes}}}


def test_a_token_is_health_and_the_key_is_its_own_nodes(config: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch):
    calls: list[tuple[t.Any, ...]] = []
    monkeypatch.setattr(token_probe, "ask", lambda *words: calls.append(words) or token_probe.Asked(health.ANSWERS, COMPLETION, None))
    (engine,) = checks.engines(config, mode(["spark-1", "spark-2"]))
    assert (engine["cluster"], engine["role"], engine["of_mode"], engine["health"]["state"]) == ("gb10", "head", True, health.SERVING)
    url, model, key, _seconds, token_s, fabric, run_id, note = calls[0]
    assert (url, model, key._text, token_s, fabric, run_id) == ("http://127.0.0.1:8000", None, "k3y-planted", 5, "/s", "r1")
    assert note.endswith("/gb10/no-progress.json")


@pytest.mark.parametrize(
    ("api", "progress", "state"),
    [
        (health.STARTING, None, health.STARTING),
        (health.REFUSED, None, health.DEAD),
        (health.SAYS_DEAD, None, health.DEAD),
        (health.ANSWERS, {"grew": True, "still_s": 0.0, "limit_s": 600.0}, health.BUSY),
        (health.ANSWERS, {"grew": False, "still_s": 900.0, "limit_s": 600.0}, health.STALLED),
        (health.ANSWERS, {"grew": None, "still_s": 0.0, "limit_s": 600.0}, health.UNKNOWN),
    ],
)
def test_no_token_is_judged_as_status_does(config: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch, api: str, progress: dict[str, t.Any] | None, state: str):
    monkeypatch.setattr(token_probe, "api_of", lambda *_words: api)
    monkeypatch.setattr(token_probe, "ask", lambda *_words: token_probe.Asked(api, None, progress))
    (engine,) = checks.engines(config, mode(["spark-1"]))
    assert engine["health"]["state"] == state and engine["health"]["limit_s"] == (progress or {"limit_s": health.STALL_SECONDS})["limit_s"]


def test_a_rank_that_a_signal_stopped_is_seen_on_head_and_worker(config: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "EngineApi", lambda *_words: Engine(("gb10", "head", "running"), ("gb10", "worker", "running")))
    monkeypatch.setattr(checks.at_work, "members", lambda _pids: [{**RANK, "state": "stopped"}])
    for nodes in (["spark-1", "spark-2"], ["spark-2", "spark-1"]):
        (engine,) = checks.engines(config, mode(nodes))
        assert engine["health"]["state"] == health.HALTED


def test_a_worker_is_not_asked_for_a_token(config: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "EngineApi", lambda *_words: Engine(("gb10", "worker", "running")))
    monkeypatch.setattr(checks, "ask", lambda *_words: pytest.fail("asked"))
    (engine,) = checks.engines(config, mode(["spark-2", "spark-1"]))
    assert (engine["role"], engine["runs"], engine["health"]["state"]) == ("worker", True, health.SERVING)
    # Without Ray it has its rank, which the launcher noted.
    monkeypatch.setattr(checks.engine_state, "engine_state", lambda *_words: {**RUN, "live": False, "exit_code": 1})
    assert checks.engines(config, mode(["spark-2", "spark-1"]))[0]["runs"] is False


def test_what_the_mode_has_is_looked_for_whatever_is_there(config: dict[str, t.Any]):
    assert checks.engines(config, mode(["spark-3"])) == [] and checks.engines(config, mode(["spark-1"], "switching")) == []
    (engine,) = checks.engines(config, mode(["spark-1"], name="other"))
    assert (engine["runs"], engine["container"], engine["health"]) == (False, "", None)


def test_without_a_mode_what_is_here_counts(config: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch):
    (engine,) = checks.engines(config, None)
    assert (engine["cluster"], engine["of_mode"], engine["runs"]) == ("gb10", False, True)
    monkeypatch.setattr(checks, "EngineApi", lambda *_words: Engine())
    assert checks.engines(config, None) == []
    Path(config["state_dir"], "gb10", "unit").mkdir(parents=True)
    boot = {"boot_id": "b", "at": utc_text()}
    glance.write(config["state_dir"], {"cluster": "gb10", "role": "head", "state": "failed", "reason": "", "model": "", "endpoint": "", "token": {}, **boot})
    record.write(unit_look.of_engine(config["state_dir"], "gb10").folder, "b", "failed", "it ended")
    (engine,) = checks.engines(config, None)
    assert (engine["runs"], engine["unit"]["state"], engine["unit"]["reason"]) == (False, "failed", "it ended")


def test_what_cannot_be_found_out_has_its_reason(config: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch):
    def fails(*_words: t.Any) -> t.Any:
        raise ClusterError("the API refuses a completion: HTTP 401", remedy="Give the key.")

    monkeypatch.setattr(token_probe, "ask", fails)
    assert "HTTP 401. Remedy: Give the key." in checks.engines(config, mode(["spark-1"]))[0]["error"]

    def silent(*_words: t.Any) -> t.Any:
        raise UnknownState("Docker does not answer within 30 s")

    monkeypatch.setattr(Engine, "containers", silent)
    with pytest.raises(UnknownState):
        checks.engines(config, mode(["spark-1"]))


def test_the_query_of_an_endpoint_is_sent_and_not_shown(monkeypatch: pytest.MonkeyPatch):
    urls: list[str] = []

    def ask(url: str, *_words: t.Any, **_options: t.Any) -> checks._http.Answer:
        urls.append(url)
        return checks._http.Answer(503, b"")

    monkeypatch.setattr(checks._http, "ask", ask)
    seen = checks.endpoint({"name": "a", "url": "https://x.lan/health?t=planted&u=1"}, checks._http.trusting())
    assert urls == ["https://x.lan/health?t=planted&u=1"]
    assert seen["text"] == "https://x.lan/health?...: status 503, expected 200 to 299"


@pytest.fixture
def whole(config: dict[str, t.Any], tmp_path: Path) -> dict[str, t.Any]:
    """The configuration of a node without anything to check over the network."""
    place = tmp_path / "proc" / "sys" / "kernel" / "random"
    place.mkdir(parents=True)
    (place / "boot_id").write_text("now\n", encoding="ascii")
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 2048 kB\nMemAvailable: 1024 kB\nBuffers: 0 kB\nCached: 0 kB\n", encoding="ascii")
    roots = {**config["roots"], "proc_root": str(tmp_path / "proc")}
    return {**config, "roots": roots, "companions": [], "endpoints": [], "peers": [], "ca_file": ""}


def test_an_unclean_boot_is_seen_and_a_broken_record_of_them_hides_nothing_else(whole: dict[str, t.Any]):
    assert (checks.see(whole)["unclean_boot"], checks.see(whole)["errors"]) == ("", [])
    boots.why_not(whole["state_dir"], "now")
    (boot,) = boots.read(whole["state_dir"])
    assert checks.see(whole)["unclean_boot"] == boot["at"] != ""
    Path(whole["state_dir"], boots.FILE).write_text("{", encoding="utf-8")
    seen = checks.see(whole)
    assert seen["unclean_boot"] == "" and [engine["cluster"] for engine in seen["engines"]] == ["gb10"]
    (error,) = seen["errors"]
    assert error.startswith("unclean boots are unknown: ") and f"rm {whole['state_dir']}/{boots.FILE}" in error


def test_what_a_recovery_reports_is_a_problem_of_its_cluster_and_a_broken_state_hides_nothing_else(whole: dict[str, t.Any]):
    for cluster, more in (("gb10", {"kind": "fault", "text": "halted; look 1 of 3"}), ("other", {"kind": "well", "text": "a token"})):
        path = Path(recoveries.path_of(whole["state_dir"], cluster))
        path.parent.mkdir(parents=True)
        recoveries.DOCUMENT.write(str(path), {**{key: kind() for key, kind in recoveries.KEYS.items()}, **more})
    assert checks.see(whole)["asked"] == [{"id": "recovery of gb10", "well": False, "text": "halted; look 1 of 3", "silent": False}]
    Path(recoveries.path_of(whole["state_dir"], "gb10")).write_text("{", encoding="utf-8")
    seen = checks.see(whole)
    assert seen["asked"] == [] and [engine["cluster"] for engine in seen["engines"]] == ["gb10"]
    (error,) = seen["errors"]
    assert error.startswith("recoveries are unknown: ") and "state.json is not JSON" in error


def test_without_a_file_there_is_no_key(config: dict[str, t.Any]):
    assert checks.key_of(config, "gb10", dict(RUN)) and not checks.key_of(config, "other", dict(RUN))
