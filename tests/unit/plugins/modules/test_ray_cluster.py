# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module's decisions: what is wanted, obstacles, refusals, and results."""

from __future__ import annotations

import json
import os
import re

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import ExecResult, NotFound
from ansible_collections.gb10.cluster.plugins.module_utils._engine import at_work, engine_state, interruption
from ansible_collections.gb10.cluster.plugins.module_utils._engine.interruption import Requests
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_contract
from ansible_collections.gb10.cluster.plugins.module_utils._network import listeners, net_devices
from ansible_collections.gb10.cluster.plugins.module_utils._node import apply, fields, native, obstacles, ray
from ansible_collections.gb10.cluster.plugins.module_utils._node import container as node_container
from ansible_collections.gb10.cluster.plugins.module_utils._node.ray import RayTable
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import Process, Scan
from ansible_collections.gb10.cluster.plugins.modules import ray_cluster

OWN_ID = "a" * 64
STALE_ID = "b" * 64
OTHER_ID = "c" * 64

#: Labels of an image that our recipe built.
BUILT = {"io.gb10.base": "sha256:b", "io.gb10.recipe": "r"}

#: What is noted of a live engine in our container; its main process is the first that an engine of these tests has.
ENGINE = {"live": True, "run_id": "20261121T000000-1", "pid": 100, "argv": [], "secret_env": {}, "api_address": "127.0.0.1", "api_port": 8000}


def params(**given):
    defaults = {name: option.get("default") for name, option in fields.argument_spec("ray").items()}
    here = {"node_role": "head", "image": "local/vllm-ray:26.05", "node_address": "10.0.0.11", "devices": []}
    return {**defaults, **here, "wait_timeout": 0.2, "wait_sleep": 0.01, **given}


def container(container_id=OWN_ID, name="gb10-gb10-head", status="running", labels=None, path="ray", args=("start", "--block")):
    state = {
        "Status": status, "Running": status == "running", "ExitCode": 0 if status == "running" else 137, "OOMKilled": False,
        "StartedAt": "2026-11-21T01:57:53.754100254Z",
    }  # fmt: skip
    return {
        "Id": container_id, "Name": f"/{name}", "State": state, "Created": "2026-11-21T01:57:50.000000000Z", "Path": path, "Args": list(args),
        "Image": "sha256:aaa", "Config": {"Labels": labels or {}, "Image": "local/vllm-ray:26.05"},
    }  # fmt: skip


def seen_by(engine):
    """The processes of an engine's containers, as a pass over /proc shows them."""
    return Scan({pid: Process(pid, 1, "S", "x", tuple(title.split(" ")), "", 0, 1) for pid, title in engine.titles.items()}, 0)


class Engine:
    """A Docker engine of memory."""

    def __init__(self, containers=(), image="sha256:aaa", titles=()):
        self.known = {entry["Id"]: entry for entry in containers}
        self.image_id = image
        self.made_of = {}
        self.titles = dict(enumerate(titles, 100))

    #: What it says of itself.
    info = {}

    def get(self, path):
        return self.info

    def containers(self, labels):
        return [
            {"Id": entry["Id"], "Names": [entry["Name"]], "State": entry["State"]["Status"]}
            for entry in self.known.values()
            if labels.items() <= entry["Config"]["Labels"].items()
        ]

    def inspect(self, wanted):
        for entry in self.known.values():
            if wanted in (entry["Id"], entry["Name"].lstrip("/")):
                return entry
        raise NotFound("No such container")

    def image(self, reference):
        return {"Id": self.image_id, "Architecture": "arm64", "Config": {"Labels": self.made_of}} if self.image_id else None

    def history(self, image_id):
        return [{"CreatedBy": "LABEL io.gb10.base=sha256:b io.gb10.recipe=r"}]

    def top(self, container_id):
        return sorted(self.titles)

    def logs(self, container_id, tail=50):
        return "its last line\n"

    #: Nothing may be done to an engine of a test without the fixture sdk.
    sdk = None

    def whole_log(self, container_id):
        return iter([self.sdk.log])

    def stop(self, container_id, grace):
        self.sdk.calls.append(("stop", container_id, grace))

    def unpause(self, container_id):
        self.sdk.calls.append(("unpause", container_id))

    def remove(self, container_id):
        self.sdk.calls.append(("remove", container_id))

    def create(self, payload):
        self.sdk.calls.append(("create", payload["name"]))
        self.sdk.mounts, self.sdk.device_requests = payload["mounts"], payload["device_requests"]
        return "new"

    def start(self, container_id):
        self.sdk.calls.append(("start", container_id))


class Module:
    def __init__(self, check_mode=False, **given):
        self.params = params(**given)
        self.check_mode = check_mode
        self.warnings = []

    def warn(self, text):
        self.warnings.append(text)


@pytest.fixture
def node(monkeypatch):
    """A node with an address, no listener, no engine state; returns a function that sets its engine."""
    monkeypatch.setattr(net_devices, "ipv4_addresses", lambda: ADDRESSES)
    monkeypatch.setattr(net_devices, "ipv6_addresses", list)
    monkeypatch.setattr(listeners, "listeners", lambda ports: [])
    monkeypatch.setattr(listeners, "answers", lambda address, port, timeout: "")
    monkeypatch.setattr(ray, "ask", lambda *arguments: RayTable("2.60.0", "3.11.2", [READY], "", ""))
    monkeypatch.setattr(interruption, "requests_of", lambda engine, timeout, key_file: Requests(0))
    engines = []

    def use(engine):
        monkeypatch.setattr(at_work, "scan", lambda root, pids=None: seen_by(engine))
        monkeypatch.setattr(apply, "Docker", lambda *arguments: engine)
        engines.append(engine)
        return engine

    return use


ADDRESSES = [
    {"interface": "lo", "address": "127.0.0.1", "scope": "host"},
    {"interface": "enp1s0f0np0", "address": "10.0.0.11", "scope": "global"},
]

READY = {"node_id": "3a", "address": "10.0.0.11", "alive": True, "head": True, "started_ms": 1795226274000, "gpus": 1.0, "resources": {"GPU": 1.0}}


def running(**given):
    """Our container as it runs with these options."""
    wanted = params(**given)
    unit = ray.wanted(wanted, "sha256:aaa", None)
    return container(labels=unit.labels, name=unit.name)


# -- the whole, without acting ---------------------------------------------------------------------------------------


def test_same_options_change_nothing(node):
    node(Engine([running()]))
    result = ray_cluster.work(Module())
    assert (result["changed"], result["actions"], result["reason"]) == (False, [], "as wanted")
    assert result["info"]["container"]["id"] == OWN_ID
    assert re.fullmatch(r"[0-9a-f]{16}", result["session"])
    assert result["address"] == "10.0.0.11:6379"
    assert result["info"]["nodes"] == [READY]
    assert result["diff"]["before"] == result["diff"]["after"]


def test_check_mode_predicts_on_a_cold_node_without_its_image(node):
    node(Engine(image=None))
    result = ray_cluster.work(Module(check_mode=True, secret_files={"ray_token": "/none/ray_token"}))
    assert result["changed"]
    assert result["actions"] == ["create gb10-gb10-head (no container)", "start gb10-gb10-head"]
    assert result["session"] == apply.SESSION_TO_COME
    assert result["diff"]["before"] == {"state": "absent", "fields": {}}
    assert result["diff"]["after"]["state"] == "running"


def test_check_mode_predicts_a_worker_whose_head_is_to_come(node, monkeypatch):
    monkeypatch.setattr(listeners, "answers", lambda address, port, timeout: "Connection refused")
    node(Engine())
    assert ray_cluster.work(Module(check_mode=True, node_role="worker", head_address="10.0.0.1"))["changed"]


def test_check_mode_predicts_that_a_worker_follows_a_new_head(node):
    node(Engine([running(node_role="worker", head_address="10.0.0.1", head_session="abc")]))
    module = Module(check_mode=True, node_role="worker", head_address="10.0.0.1", head_session=apply.SESSION_TO_COME)
    assert ray_cluster.work(module)["changed_fields"] == ["head_session"]


@pytest.mark.parametrize("given", [None, "", "abc"])
def test_a_worker_stays_with_its_head(node, monkeypatch, given):
    node(Engine([running(node_role="worker", head_address="10.0.0.1", head_session="abc")]))
    assert not ray_cluster.work(Module(node_role="worker", head_address="10.0.0.1", head_session=given))["changed"]


def test_a_tag_that_is_gone_restarts_nothing(node):
    node(Engine([running()], image=None))
    assert not ray_cluster.work(Module())["changed"]


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize(
    ("titles", "role"),
    [(["ray start", "ray::RayWorkerProc.run"], "worker"), (["VLLM::EngineCore"], "head")],
)
def test_live_work_is_not_thrown_away(node, check_mode, titles, role):
    given = {"node_role": role, "head_address": "10.0.0.1"}
    node(Engine([running(**given, env={"VLLM_X": "1"})], titles=titles))
    with pytest.raises(ClusterError) as caught:
        ray_cluster.work(Module(check_mode=check_mode, **given, env={"VLLM_X": "2"}))
    error = caught.value
    assert f"container gb10-gb10-{role} on" in str(error)
    assert 'env.VLLM_X "1" -> "2"' in str(error)
    assert "how many requests it has is unknown" in str(error) or "not of this cluster's engine" in str(error)
    assert "-e gb10_allow=restart" in error.remedy
    assert error.details["changed_fields"] == ["env.VLLM_X"]
    assert error.details["engine_live"]
    assert error.details["diff"]["after"]["fields"]["env.VLLM_X"] == "2"
    assert "changed" not in error.details or not error.details["changed"]


def test_the_guard_tells_how_many_requests_run(node, monkeypatch):
    monkeypatch.setattr(engine_state, "engine_state", lambda paths, **_how: ENGINE)
    monkeypatch.setattr(interruption, "requests_of", lambda engine, timeout, key_file: Requests(3))
    node(Engine([running()]))
    with pytest.raises(ClusterError, match=r"holds live work \(run 20261121T000000-1, it has 3 request") as caught:
        ray_cluster.work(Module(shm_size="20g"))
    assert caught.value.details["engine_requests_running"] == 3


@pytest.mark.parametrize(
    ("requests", "why"), [(Requests(3), "it has 3 request"), (Requests(None, "HTTP 401"), "how many requests it has is unknown: HTTP 401"), (Requests(0), "")]
)
@pytest.mark.parametrize("wanted", [{"allow_restart": True, "shm_size": "20g"}, {"state": "stopped"}, {"state": "absent"}])
def test_a_live_engine_is_taken_away_only_where_no_request_is_lost(node, monkeypatch, requests, why, wanted):
    monkeypatch.setattr(engine_state, "engine_state", lambda paths, **_how: ENGINE)
    monkeypatch.setattr(interruption, "requests_of", lambda engine, timeout, key_file: requests)
    node(Engine([running()], titles=["vllm serve", "ray::RayWorkerProc.run"]))
    for known in ({"interrupt_requests": True}, {"lacks_rank": True}, {"unready_runs": [ENGINE["run_id"]]}, {} if not why else {"lacks_rank": True}):
        assert ray_cluster.work(Module(check_mode=True, **wanted, **known))["changed"]
    if why:
        with pytest.raises(ClusterError, match=why) as caught:
            ray_cluster.work(Module(check_mode=True, **wanted, unready_runs=["another"]))
        assert caught.value.reason == ("requests running" if requests.count else "requests unknown")
        assert "-e gb10_allow=interrupt" in caught.value.remedy


@pytest.mark.parametrize(
    ("table", "lacks"),
    [
        (RayTable("2.60.0", "3.11.2", [{"alive": True, "gpus": 1.0}, {"alive": False, "gpus": 1.0}], "", ""), True),
        (RayTable("2.60.0", "3.11.2", [{"alive": True, "gpus": 1.0}, {"alive": True, "gpus": 1.0}], "", ""), False),
        (RayTable("", "", [], "no answer within 5 s", "time"), False),
        (UnknownState("the probe printed what cannot be read"), False),
    ],
)
def test_an_engine_whose_rank_is_gone_answers_no_request(node, monkeypatch, table, lacks):
    """Its requests hang, and its metrics go on counting them."""

    def ask(*_arguments):
        if isinstance(table, Exception):
            raise table
        return table

    argv = ["vllm", "serve", "m", "--distributed-executor-backend", "ray", "--tensor-parallel-size", "2"]
    monkeypatch.setattr(engine_state, "engine_state", lambda paths, **_how: {**ENGINE, "argv": argv})
    monkeypatch.setattr(interruption, "requests_of", lambda engine, timeout, key_file: Requests(3))
    node(Engine([running()], titles=["vllm serve"]))
    monkeypatch.setattr(ray, "ask", ask)
    if lacks:
        assert ray_cluster.work(Module(check_mode=True, state="absent"))["changed"]
        return
    with pytest.raises(ClusterError, match="it has 3 request"):
        ray_cluster.work(Module(check_mode=True, state="absent"))


@pytest.mark.parametrize("wanted", [{"state": "stopped"}, {"state": "absent"}, {"allow_restart": True, "shm_size": "20g"}])
@pytest.mark.parametrize("started", [["vllm", "serve", "mine"], ["ray::train"], ["VLLM::EngineCore"]])
def test_foreign_work_in_the_container_needs_consent(node, monkeypatch, wanted, started):
    """``docker exec … vllm serve``: the answers of the cluster's own engine do not show it."""
    monkeypatch.setattr(engine_state, "engine_state", lambda paths, **_how: ENGINE)
    engine = node(Engine([running()], titles=["vllm serve", " ".join(started)]))
    for known in ({}, {"lacks_rank": True}, {"unready_runs": [ENGINE["run_id"]]}):
        with pytest.raises(UnknownState, match="not of this cluster's engine") as caught:
            ray_cluster.work(Module(check_mode=True, **wanted, **known))
        assert " ".join(started) in str(caught.value)
    assert ray_cluster.work(Module(check_mode=True, **wanted, interrupt_requests=True))["changed"]
    engine.titles = {100: "vllm serve"}
    assert ray_cluster.work(Module(check_mode=True, **wanted))["changed"]


@pytest.mark.parametrize("known", [{"lacks_rank": True}, {"unready_runs": ["20261121T000000-1"]}, {"interrupt_requests": True}])
def test_a_rank_on_a_worker_waits_for_what_is_known_of_its_head(node, known):
    given = {"node_role": "worker", "head_address": "10.0.0.1"}
    node(Engine([running(**given)], titles=["ray::RayWorkerProc.run"]))
    with pytest.raises(UnknownState, match="its main process is not in this container"):
        ray_cluster.work(Module(check_mode=True, **given, state="absent"))
    assert ray_cluster.work(Module(check_mode=True, **given, state="absent", **known))["changed"]


def test_allowed_restarts_are_planned(node):
    node(Engine([running()], titles=["VLLM::EngineCore"]))
    result = ray_cluster.work(Module(check_mode=True, allow_restart=True, interrupt_requests=True, env={"A": "1"}))
    assert [action.split()[0] for action in result["actions"]] == ["stop", "remove", "create", "start"]


def test_ranks_of_a_head_that_is_gone_hold_no_work(node):
    given = {"node_role": "worker", "head_address": "10.0.0.1"}
    node(Engine([running(**given, head_session="abc")], titles=["ray::RayWorkerProc.run"]))
    assert ray_cluster.work(Module(check_mode=True, **given, head_session="def"))["changed_fields"] == ["head_session"]


def test_a_worker_that_never_noted_its_head_is_guarded(node):
    given = {"node_role": "worker", "head_address": "10.0.0.1"}
    node(Engine([running(**given)], titles=["ray::RayWorkerProc.run"]))
    with pytest.raises(ClusterError, match='head_session "" -> "def"'):
        ray_cluster.work(Module(**given, head_session="def"))


def without_ray(**given):
    """Our container as it runs for an engine without Ray."""
    given = {"node_role": "worker", **given}
    unit = native.wanted({**params(**given), "ports": []}, "sha256:aaa", None)
    return container(labels=unit.labels, name=unit.name, path="python3")


def test_a_container_without_ray_is_recreated(node):
    node(Engine([without_ray(node_role="head")]))
    changed = ray_cluster.work(Module(check_mode=True))["changed_fields"]
    assert {"executor", "port", "head_address"} <= {*changed}
    assert "env" not in changed


def test_a_live_rank_without_ray_is_guarded_on_the_head(node):
    node(Engine([without_ray(node_role="head")], titles=["VLLM::Worker_TP0"]))
    with pytest.raises(ClusterError, match='executor "native" -> "ray"'):
        ray_cluster.work(Module())


def test_a_rank_whose_head_runs_ray_by_now_holds_no_work(node):
    node(Engine([without_ray()], titles=["VLLM::Worker_TP1"]))
    assert ray_cluster.work(Module(check_mode=True, node_role="worker", head_address="10.0.0.1", head_session="abc"))["changed"]


def test_an_exited_container_is_replaced(node):
    entry = running()
    entry["State"].update(Status="exited", Running=False, ExitCode=1)
    node(Engine([entry]))
    result = ray_cluster.work(Module(check_mode=True))
    assert result["reason"] == "container of this collection had exited with code 1"
    assert result["changed_fields"] == []


@pytest.mark.parametrize(("state", "verbs"), [("stopped", ["stop"]), ("absent", ["stop", "remove"])])
def test_stopping_needs_no_other_option(node, state, verbs):
    node(Engine([running()]))
    result = ray_cluster.work(Module(check_mode=True, state=state, image=None, node_address=None))
    assert [action.split()[0] for action in result["actions"]] == verbs
    assert result["diff"]["after"]["state"] == {"stopped": "exited", "absent": "absent"}[state]
    assert result["session"] == ""


@pytest.mark.parametrize("state", ["stopped", "absent"])
def test_a_container_with_labels_of_its_image_alone_is_left_alone_and_named(node, monkeypatch, state):
    monkeypatch.setattr(apply, "lookalikes", lambda docker, cluster, role: ["copy (of image mine:1)"])
    node(Engine())
    module, warned = Module(state=state, image=None, node_address=None), []
    module.warn = warned.append
    assert not ray_cluster.work(module)["changed"]
    assert warned == ["Container copy (of image mine:1) has the labels of this cluster from its image alone: it is foreign and left alone."]


@pytest.mark.parametrize("state", ["stopped", "absent"])
def test_nothing_to_stop(node, state):
    node(Engine())
    assert not ray_cluster.work(Module(state=state, image=None, node_address=None))["changed"]


# -- inputs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"node_role": "worker"}, "a worker needs head_address"),
        ({"gpus": 2}, "gpus is 2"),
        ({"gpus": "two"}, "gpus is 'two'"),
        ({"gpus": [{"id": 0}]}, "gpus is"),
        ({"ulimits": {"memlock": "unlimited"}}, "ulimits.memlock is 'unlimited'"),
        ({"ulimits": {"memlock": True}}, "ulimits.memlock is True"),
        ({"env": {"A": None}}, "env A is of type NoneType"),
        ({"port_range": "1-2"}, "port_range: 1-2"),
        ({"secret_files": {"ray_token": "/none/ray_token"}}, "secret ray_token: /none/ray_token"),
        ({"node_address": "203.0.113.9"}, r"others do not reach .* at 203.0.113.9; its addresses are 10.0.0.11 \(enp1s0f0np0\)"),
        ({"node_address": "127.0.0.1"}, "others do not reach .* at 127.0.0.1"),
        ({"devices": ["/dev/none"]}, "has no /dev/none"),
    ],
)
def test_wrong_inputs_are_refused(node, given, message):
    node(Engine())
    with pytest.raises(ClusterError, match=message) as caught:
        ray_cluster.work(Module(**given))
    assert caught.value.remedy


def test_a_missing_image_names_the_stage(node):
    node(Engine(image=None))
    with pytest.raises(ClusterError, match=r"image local/vllm-ray:26.05 is not on") as caught:
        ray_cluster.work(Module())
    assert "--tags image" in caught.value.remedy


def test_no_head_is_reported_at_once(node, monkeypatch):
    monkeypatch.setattr(listeners, "answers", lambda address, port, timeout: "no answer within 5 s")
    node(Engine())
    with pytest.raises(ClusterError, match=r"no Ray head answers at 10.0.0.1:6379 from .* \(no answer within 5 s\)"):
        ray_cluster.work(Module(node_role="worker", head_address="10.0.0.1"))


def test_a_strangers_container_keeps_its_name(node):
    node(Engine([container(OTHER_ID, "gb10-gb10-head")]))
    with pytest.raises(ClusterError, match="a foreign container has the name of this node's container: container gb10-gb10-head"):
        ray_cluster.work(Module())


# -- what holds the ports --------------------------------------------------------------------------------------------


def listener(process="python3", port=6379, holder="", pid=15085):
    return {"port": port, "address": "0.0.0.0", "pid": pid, "process": process, "cmdline": process, "since": "2026-11-21T02:09:08Z", "container": holder}


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_taken_port_names_its_holder(node, monkeypatch, check_mode):
    monkeypatch.setattr(listeners, "listeners", lambda ports: [listener(), listener(pid=None, port=20100)])
    node(Engine())
    with pytest.raises(ClusterError) as caught:
        ray_cluster.work(Module(check_mode=check_mode))
    assert "port 6379 on 0.0.0.0: python3 (pid 15085) since 2026-11-21T02:09:08Z" in str(caught.value)
    assert "port 20100 on 0.0.0.0: a process that only root can see" in str(caught.value)
    assert "gb10_ray_port" in caught.value.remedy


def test_a_taken_port_names_its_container(node, monkeypatch):
    monkeypatch.setattr(listeners, "listeners", lambda ports: [listener("redis-server", holder=OTHER_ID)])
    node(Engine([container(OTHER_ID, "cache", path="redis-server", args=())]))
    with pytest.raises(ClusterError, match=r"redis-server \(pid 15085\) in container cache since"):
        ray_cluster.work(Module(replace_stale=True))


@pytest.mark.parametrize(
    ("path", "args", "process"),
    [
        ("ray", ("start", "--head", "--block"), "gcs_server"),
        ("bash", ("-c", "ray start --head --port 6379 --block"), "python3"),
        ("sleep", ("infinity",), "gcs_server"),
    ],
)
def test_a_stale_head_blocks_without_consent(node, monkeypatch, path, args, process):
    monkeypatch.setattr(listeners, "listeners", lambda ports: [listener(process, holder=STALE_ID), listener("ray::X", 20102, STALE_ID)])
    node(Engine([container(STALE_ID, "yesterday", path=path, args=args)]))
    with pytest.raises(ClusterError) as caught:
        ray_cluster.work(Module(check_mode=True))
    assert "container yesterday (image local/vllm-ray:26.05, created 2026-11-21T01:57:50Z, started 2026-11-21T01:57:53Z)" in str(caught.value)
    assert "-e gb10_allow=stale_head" in caught.value.remedy
    result = ray_cluster.work(Module(check_mode=True, replace_stale=True))
    assert result["actions"][:2] == ["stop yesterday (stale head)", "remove yesterday (stale head)"]


def test_our_own_listeners_are_not_foreign():
    listening = [listener(holder=OWN_ID), listener(holder=OTHER_ID), listener(holder="d" * 64)]
    kept = obstacles.foreign_listeners(listening, {OWN_ID: "ours", OTHER_ID: "theirs"}, OWN_ID)
    assert [(entry["container"], entry["container_name"]) for entry in kept] == [(OTHER_ID, "theirs"), ("", "")]


def test_the_hosts_own_listeners_are_foreign_to_a_new_container():
    assert len(obstacles.foreign_listeners([listener()], {}, "")) == 1


# -- waiting ---------------------------------------------------------------------------------------------------------


def wait(engine, table, monkeypatch, **given):
    answers = table if isinstance(table, list) else [table]

    def ask(*arguments):
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(ray, "ask", ask)
    wanted = params(**given)
    unit = ray.wanted(wanted, "sha256:aaa", None)
    return ray.wait(engine, wanted, "spark-1", unit)


def test_the_wait_ends_when_ray_knows_the_node(monkeypatch):
    before = [UnknownState("printed what cannot be read", raw="x"), ClusterError("is not running"), RayTable("", "", [], "Connection refused", "head")]
    table = RayTable("2.60.0", "3.11.2", [READY], "", "")
    assert wait(Engine([running()]), [*before, RayTable("2.60.0", "3.11.2", [], "", ""), table], monkeypatch)["nodes"] == [READY]


@pytest.mark.parametrize(
    ("table", "last"),
    [
        (RayTable("", "", [], "Connection refused", "head"), "Connection refused"),
        (RayTable("2.60.0", "3.11.2", [{**READY, "address": "10.0.0.9"}], "", ""), "the head knows 10.0.0.9"),
        (RayTable("2.60.0", "3.11.2", [], "", ""), "the head knows no node"),
    ],
)
def test_the_wait_tells_what_it_last_saw(monkeypatch, table, last):
    with pytest.raises(WaitTimeout, match=last):
        wait(Engine([running()]), table, monkeypatch)


def test_the_wait_ends_with_the_container(monkeypatch):
    entry = running()
    entry["State"].update(Status="exited", Running=False, ExitCode=137)
    with pytest.raises(ClusterError, match=r"gb10-gb10-head on spark-1 ended with exit code 137; its log ends:\nits last line"):
        wait(Engine([entry]), RayTable("", "", [], "", ""), monkeypatch)


def test_the_wait_ends_when_the_container_is_removed(monkeypatch):
    with pytest.raises(ClusterError, match="was removed while it was waited for"):
        wait(Engine(), RayTable("", "", [], "", ""), monkeypatch)


@pytest.mark.parametrize(("uptime", "ready"), [(10.0, False), (3600.0, True)])
def test_a_clock_that_was_set_back_does_not_keep_ray_waiting_for_ever(monkeypatch, uptime, ready):
    """The container's start is then in the future. After a while the head's entry can only be that of this container."""
    monkeypatch.setattr(node_container.ExistingContainer, "uptime", lambda current: uptime)
    earlier = RayTable("2.60.0", "3.11.2", [{**READY, "started_ms": READY["started_ms"] - 86400000}], "", "")
    if ready:
        assert wait(Engine([running()]), earlier, monkeypatch)["nodes"] == earlier.nodes
    else:
        with pytest.raises(WaitTimeout):
            wait(Engine([running()]), earlier, monkeypatch)


@pytest.mark.parametrize(("listed", "ready"), [(READY, True), ({**READY, "alive": False}, False), ({**READY, "started_ms": 1}, False)])
def test_a_head_that_just_listed_the_node_as_ready_is_not_asked_again(monkeypatch, listed, ready):
    """An entry of the container's predecessor, which the head goes on listing for a while, does not count."""
    monkeypatch.setattr(node_container.ExistingContainer, "uptime", lambda current: 10.0)
    refused = RayTable("", "", [], "Connection refused", "head")
    if ready:
        assert wait(Engine([running()]), refused, monkeypatch, ray_nodes=[listed]) == {"nodes": [listed]}
    else:
        with pytest.raises(WaitTimeout, match="Connection refused"):
            wait(Engine([running()]), refused, monkeypatch, ray_nodes=[listed])


# -- acting ----------------------------------------------------------------------------------------------------------


class Calls:
    """The calls to an engine that acts."""

    def __init__(self, log=b"a line\n"):
        self.calls = []
        self.log = log


@pytest.fixture
def sdk(monkeypatch):
    calls = Calls()
    monkeypatch.setattr(Engine, "sdk", calls)
    return calls


def test_a_replacement_goes_through_stop_log_remove_create_start(node, sdk, tmp_path):
    places = {"state_dir": str(tmp_path / "state"), "log_dir": str(tmp_path / "log")}
    node(Engine([running(**places)]))
    ray_cluster.work(Module(**places, env={"A": "1"}, stop_timeout=130))
    assert sdk.calls == [("stop", OWN_ID, 130), ("remove", OWN_ID), ("create", "gb10-gb10-head"), ("start", "new")]
    kept = tmp_path / "log" / "gb10" / "containers" / f"gb10-gb10-head-{OWN_ID[:12]}.log"
    assert kept.read_text() == "a line\n"
    assert (tmp_path / "state" / "gb10" / "run").is_dir()
    assert (tmp_path / "state" / "gb10" / "launch").is_dir()


def test_a_new_container_asks_by_cdi_where_docker_has_it_and_one_that_runs_stays(node, sdk, tmp_path):
    places = {"state_dir": str(tmp_path / "state"), "log_dir": str(tmp_path / "log")}
    by_cdi = {"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=all"}]}
    for info, driver in (({}, "nvidia"), (by_cdi, "cdi")):
        engine = Engine()
        engine.info = info
        node(engine)
        ray_cluster.work(Module(**places, wait=False))
        assert [request["driver"] for request in sdk.device_requests] == [driver]
        there = Engine([running(**places)])
        there.info = info
        node(there)
        assert ray_cluster.work(Module(**places, wait=False))["changed"] is False


def test_an_image_has_its_own_directory_for_what_its_engine_compiles(node, sdk, tmp_path):
    """It is not a field: the image counts already, and an existing container keeps its directory."""
    places = {"state_dir": str(tmp_path / "state"), "log_dir": str(tmp_path / "log")}
    used = []
    for image, labels in (("sha256:aaa", {}), ("sha256:bbb", {}), ("sha256:ccc", BUILT), ("sha256:ddd", BUILT)):
        engine = Engine(image=image)
        engine.made_of = labels
        node(engine)
        contract = tmp_path / "state" / "image-contracts" / f"{image[7:]}.json"
        contract.parent.mkdir(parents=True, exist_ok=True)
        texts = {**dict.fromkeys(("python", "architecture", "packages_digest", "engine_error"), ""), "packages": [], "image_env": []}
        holds = {**texts, "programs": {}, "engine": None, "entrypoint": {"argv": [], "kind": "none"}, "versions": {"vllm": "0.20.1"}}
        contract.write_text(json.dumps({"probe": image_contract.probe_digest(), "contract": holds}))
        ray_cluster.work(Module(**places, wait=False))
        used.append(next(mount["Source"] for mount in sdk.mounts if mount["Target"] == "/opt/gb10/cache"))
        assert os.path.isdir(used[-1]) and os.path.dirname(used[-1]) == str(tmp_path / "state" / "gb10" / "cache")
        assert re.fullmatch(r"0\.20\.1-arm64-[0-9a-f]{16}", os.path.basename(used[-1]))
    assert len(set(used)) == 3 and used[2] == used[3], "built again by the same recipe on the same base"


def test_a_link_where_the_caches_belong_is_not_followed(node, sdk, tmp_path):
    places = {"state_dir": str(tmp_path / "state"), "log_dir": str(tmp_path / "log")}
    node(Engine())
    ray_cluster.work(Module(**places, wait=False))
    cache = next(mount["Source"] for mount in sdk.mounts if mount["Target"] == "/opt/gb10/cache")
    os.rmdir(cache)
    os.symlink("/etc", cache)
    with pytest.raises(ClusterError, match="was tampered with"):
        ray_cluster.work(Module(**places, wait=False))


@pytest.mark.parametrize(
    ("argv", "holder", "refused"),
    [
        (("VLLM::EngineCore",), STALE_ID, True),
        (("ray::RayWorkerProc.run",), STALE_ID, True),
        (("ray::MyActor",), STALE_ID, True),
        (("ray::IDLE",), STALE_ID, False),
        (("VLLM::EngineCore",), OTHER_ID, False),
    ],
)
def test_a_stale_head_with_an_engine_at_work_goes_only_when_requests_may_be_lost(node, monkeypatch, argv, holder, refused):
    monkeypatch.setattr(listeners, "listeners", lambda ports: [listener("gcs_server", holder=STALE_ID)])
    process = Process(pid=4711, ppid=1, state="S", name="x", argv=argv, container=holder, uid=0, rss_kib=1)
    node(Engine([container(STALE_ID, "yesterday")]))
    monkeypatch.setattr(at_work, "scan", lambda root, pids=None: Scan({4711: process}, 0))
    options = {"check_mode": True, "replace_stale": True}
    if refused:
        with pytest.raises(ClusterError, match=rf"it is at work: {argv[0]} \(pid 4711\)") as caught:
            ray_cluster.work(Module(**options, interrupt_requests=False))
        assert "-e gb10_allow=interrupt" in caught.value.remedy
    else:
        assert "remove yesterday (stale head)" in ray_cluster.work(Module(**options, interrupt_requests=False))["actions"]
    assert "remove yesterday (stale head)" in ray_cluster.work(Module(**options, interrupt_requests=True))["actions"]


def test_a_stale_head_goes_first(node, sdk, monkeypatch, tmp_path):
    monkeypatch.setattr(listeners, "listeners", lambda ports: [listener("gcs_server", holder=STALE_ID)])
    node(Engine([container(STALE_ID, "yesterday")]))
    ray_cluster.work(Module(replace_stale=True, wait=False, state_dir=str(tmp_path), log_dir=str(tmp_path)))
    assert sdk.calls == [("stop", STALE_ID, 120), ("remove", STALE_ID), ("create", "gb10-gb10-head"), ("start", "new")]


def test_the_engine_is_stopped_before_its_container(node, sdk, monkeypatch):
    monkeypatch.setenv("SUDO_USER", "ada")
    monkeypatch.setattr(engine_state, "engine_state", lambda paths, **_how: ENGINE)
    node(executing(Engine([running()]), sdk))
    ray_cluster.work(Module(state="stopped"))
    assert sdk.calls == [STOP_ENGINE, ("stop", OWN_ID, 120)]


def executing(engine, sdk):
    """The engine with a launcher in its containers that stops every run it gets."""

    def execute(container_id, argv, *, timeout):
        sdk.calls.append(("exec", argv[1:3], argv[5:], timeout))
        return ray_cluster_result(0)

    engine.exec = execute
    return engine


STOP_ENGINE = ("exec", ["/opt/gb10/launch/launcher.py", "stop"], ["--grace", "120", "--by", "user ada with the node's container"], 180)


@pytest.mark.parametrize("state", ["started", "stopped", "absent"])
def test_a_lock_that_was_broken_keeps_the_container(node, sdk, tmp_path, state):
    node(Engine([running()]))
    with pytest.raises(ClusterError, match="this run lost the cluster's lock abc on .*, it is gone") as caught:
        ray_cluster.work(Module(**places(tmp_path), state=state, shm_size="20g", lock_id="abc", wait=False))
    assert (caught.value.reason, caught.value.details["changed"], caught.value.details["actions"]) == ("lock lost", False, [])
    assert sdk.calls == []


def test_an_engine_whose_note_is_broken_is_stopped_before_its_container(node, sdk, monkeypatch, tmp_path):
    monkeypatch.setenv("SUDO_USER", "ada")
    (tmp_path / "gb10" / "run").mkdir(parents=True)
    (tmp_path / "gb10" / "run" / "run.json").write_text("{")
    (tmp_path / "gb10" / "launch").mkdir()
    (tmp_path / "gb10" / "launch" / "engine.json").write_text("{}")
    node(executing(Engine([running(state_dir=str(tmp_path))], titles=["VLLM::EngineCore"]), sdk))
    ray_cluster.work(Module(state="stopped", state_dir=str(tmp_path), interrupt_requests=True))
    assert sdk.calls == [STOP_ENGINE, ("stop", OWN_ID, 120)]


# -- containers by halves --------------------------------------------------------------------------------------------


def places(tmp_path):
    return {"state_dir": str(tmp_path / "state"), "log_dir": str(tmp_path / "log")}


ANEW = [("create", "gb10-gb10-head"), ("start", "new")]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("created", "container of this collection was created but never started"),
        ("exited", "container of this collection had exited with code 137"),
        ("dead", "container of this collection was dead"),
        ("removing", "container of this collection was removing"),
    ],
)
def test_a_container_by_halves_is_replaced_unasked(node, sdk, tmp_path, status, reason):
    entry = running(**places(tmp_path))
    entry["State"].update(Status=status, Running=False, ExitCode=137)
    node(Engine([entry]))
    result = ray_cluster.work(Module(**places(tmp_path), wait=False))
    assert result["actions"][0] == f"remove gb10-gb10-head ({reason})"
    assert sdk.calls == [("remove", OWN_ID), *ANEW]


@pytest.mark.parametrize("labels", [{"io.gb10.owner": "gb10.cluster"}, {"io.gb10.owner": "gb10.cluster", "io.gb10.cluster": "gb10", "io.gb10.role": "head"}])
def test_an_own_container_with_broken_labels_is_replaced_unasked(node, sdk, tmp_path, labels):
    node(Engine([container(labels=labels)]))
    result = ray_cluster.work(Module(**places(tmp_path), wait=False))
    assert result["reason"] == "container of this collection has labels without its fields"
    assert sdk.calls == [("stop", OWN_ID, 120), ("remove", OWN_ID), *ANEW]


def test_a_container_with_broken_labels_that_holds_work_is_not(node, sdk, tmp_path):
    node(Engine([container(labels={"io.gb10.owner": "gb10.cluster"})], titles=["VLLM::Worker_TP0"]))
    with pytest.raises(ClusterError, match="labels without its fields.*VLLM::Worker_TP0"):
        ray_cluster.work(Module(**places(tmp_path)))
    assert sdk.calls == []


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"io.gb10.owner": "stranger"},
        {"io.gb10.owner": "gb10.cluster", "io.gb10.cluster": "other"},
        {"io.gb10.cluster": "gb10", "io.gb10.role": "head"},
    ],
)
@pytest.mark.parametrize("status", ["running", "created", "exited"])
def test_a_foreign_container_is_never_removed(node, sdk, tmp_path, labels, status):
    node(Engine([container(labels=labels, status=status)]))
    with pytest.raises(ClusterError, match="a foreign container has the name of this node"):
        ray_cluster.work(Module(**places(tmp_path)))
    assert not ray_cluster.work(Module(state="absent"))["changed"]
    assert sdk.calls == []


def refused(sdk, monkeypatch, words, gone_after=0):
    """Removals are refused with Docker's words; the container is gone after so many looks."""
    looks = []

    def remove(engine, container_id):
        raise ClusterError(f"removing container: {words}", detail=words)

    def inspect(engine, wanted):
        looks.append(wanted)
        if len(looks) > gone_after:
            raise NotFound("No such container")
        return {}

    monkeypatch.setattr(Engine, "remove", remove)
    actor = apply.Actor(Engine(), params(docker_timeout=0.1), None, apply.NO_WORK)
    monkeypatch.setattr(Engine, "inspect", inspect)
    return actor


def test_a_removal_of_another_user_is_waited_for(sdk, monkeypatch):
    refused(sdk, monkeypatch, "removal of container aaa is already in progress", gone_after=3).remove(OWN_ID)


def test_a_removal_that_does_not_end_is_reported(sdk, monkeypatch):
    with pytest.raises(ClusterError, match="Docker began that and has not done it within 0.1 s"):
        refused(sdk, monkeypatch, "removal of container aaa is already in progress", gone_after=10**6).remove(OWN_ID)


def test_a_removal_that_docker_refuses_is_reported(sdk, monkeypatch):
    with pytest.raises(ClusterError, match="device or resource busy"):
        refused(sdk, monkeypatch, "unlinkat: device or resource busy").remove(OWN_ID)


def test_a_container_that_another_user_removed_is_gone(sdk, monkeypatch):
    def remove(engine, container_id):
        raise NotFound("No such container")

    monkeypatch.setattr(Engine, "remove", remove)
    apply.Actor(Engine(), params(), None, apply.NO_WORK).remove(OWN_ID)


def test_a_paused_container_goes_on_before_it_is_stopped(node, sdk, monkeypatch, tmp_path):
    monkeypatch.setenv("SUDO_USER", "ada")
    monkeypatch.setattr(engine_state, "engine_state", lambda paths, **_how: ENGINE)
    entry = running(**places(tmp_path))
    entry["State"].update(Status="paused", Paused=True)
    node(executing(Engine([entry]), sdk))
    with pytest.raises(ClusterError, match="container of this collection was paused.*holds live work") as caught:
        ray_cluster.work(Module(**places(tmp_path)))
    assert "docker unpause gb10-gb10-head" in caught.value.remedy
    assert sdk.calls == []
    ray_cluster.work(Module(**places(tmp_path), state="stopped"))
    assert sdk.calls == [("unpause", OWN_ID), STOP_ENGINE, ("stop", OWN_ID, 120)]


# -- another image, another start ------------------------------------------------------------------------------------


@pytest.fixture
def retagged(node, sdk, monkeypatch, tmp_path):
    """Our container runs, and its image's tag has gone over to another image since; what ``live`` says of an engine in it."""
    old, new = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
    wanted = params(**places(tmp_path))
    unit = ray.wanted(wanted, old, None)
    monkeypatch.setenv("SUDO_USER", "ada")

    def use(live, image=new):
        monkeypatch.setattr(engine_state, "engine_state", lambda paths, **_how: {**ENGINE, "live": live})
        node(executing(Engine([container(labels=unit.labels)], image=image), sdk))
        return lambda **more: ray_cluster.work(Module(**places(tmp_path), wait=False, **more))

    return use


def test_an_image_replaced_under_a_live_engine_blocks_with_both_ids(retagged, sdk):
    play = retagged(live=True)
    with pytest.raises(ClusterError, match='image_id "sha256:aaaaaaaaaaaa" -> "sha256:bbbbbbbbbbbb"') as caught:
        play()
    assert "gb10_allow=restart" in caught.value.remedy
    assert sdk.calls == []
    assert play(allow_restart=True)["changed_fields"] == ["image_id"]
    assert sdk.calls == [STOP_ENGINE, ("stop", OWN_ID, 120), ("remove", OWN_ID), *ANEW]


def test_an_image_replaced_without_an_engine_is_taken_unasked(retagged, sdk):
    assert retagged(live=False)()["changed_fields"] == ["image_id"]
    assert sdk.calls == [("stop", OWN_ID, 120), ("remove", OWN_ID), *ANEW]


@pytest.mark.parametrize("live", [True, False])
def test_an_image_that_was_pruned_changes_nothing_that_runs(retagged, sdk, live):
    assert not retagged(live, image="")()["changed"]
    assert sdk.calls == []


# -- a full disk -----------------------------------------------------------------------------------------------------


def test_a_full_disk_keeps_no_container(node, sdk, monkeypatch, tmp_path):
    folder = tmp_path / "log" / "gb10" / "containers"
    monkeypatch.setattr(apply.untrusted, "create", lambda _folder, _name: os.open("/dev/full", os.O_WRONLY))
    node(Engine([running(**places(tmp_path))]))
    result = ray_cluster.work(Module(**places(tmp_path), state="absent"))
    assert ("remove", OWN_ID) in sdk.calls
    assert result["actions"][-1] == f"left the log of gb10-gb10-head out: {folder}: No space left on device"
    assert list(folder.iterdir()) == []


def test_a_log_that_docker_cannot_read_keeps_no_container(node, sdk, monkeypatch, tmp_path):
    def whole_log(engine, container_id):
        raise ClusterError("reading the log of container gb10-gb10-head: can not get logs from container which is dead or marked for removal")

    monkeypatch.setattr(Engine, "whole_log", whole_log)
    node(Engine([running(**places(tmp_path))]))
    result = ray_cluster.work(Module(**places(tmp_path), state="absent"))
    assert ("remove", OWN_ID) in sdk.calls
    assert "dead or marked for removal" in result["actions"][-1]


def test_a_clock_set_back_costs_no_new_log(sdk, tmp_path):
    actor = apply.Actor(Engine(), params(log_dir=str(tmp_path)), None, apply.NO_WORK)
    folder = tmp_path / "gb10" / "containers"
    folder.mkdir(parents=True)
    for number in range(6):
        (folder / f"gb10-gb10-head-{number}.log").write_text("from the future")
        os.utime(folder / f"gb10-gb10-head-{number}.log", (4e9, 4e9))
    actor.keep_log(node_container.existing(running()))
    assert (folder / f"gb10-gb10-head-{OWN_ID[:12]}.log").read_text() == "a line\n"
    assert len(list(folder.iterdir())) == 5


def test_an_engine_that_cannot_be_stopped_keeps_its_container(node, sdk, monkeypatch):
    monkeypatch.setattr(engine_state, "engine_state", lambda paths, **_how: ENGINE)
    engine = node(Engine([running()]))
    engine.exec = lambda container_id, argv, *, timeout: ray_cluster_result(4)
    with pytest.raises(ClusterError, match=r"processes \[7\] of the engine .* remain 9 s after SIGTERM") as caught:
        ray_cluster.work(Module(state="absent"))
    assert sdk.calls == []
    assert caught.value.reason == "engine remains"


def ray_cluster_result(code):
    answer = {"run_id": "1", "was_live": True, "prevented": "", "signals": [], "killed": [], "remaining": [7] if code else [], "seconds": 9}
    return ExecResult(code, json.dumps(answer), "")


def test_only_the_newest_logs_are_kept(sdk, tmp_path):
    actor = apply.Actor(Engine(), params(log_dir=str(tmp_path)), None, apply.NO_WORK)
    for number in range(7):
        entry = container(f"{number}" * 64, labels=running()["Config"]["Labels"])
        actor.keep_log(node_container.existing(entry))
    assert len(list((tmp_path / "gb10" / "containers").iterdir())) == 5


@pytest.mark.parametrize("planted", ["the directory", "the file", "the file to be written"])
def test_the_log_of_a_container_is_written_through_no_link(node, sdk, tmp_path, planted):
    """Containers of older versions can write where the host keeps the logs of containers."""
    outside, folder = tmp_path / "outside", tmp_path / "log" / "gb10" / "containers"
    outside.mkdir()
    name = f"gb10-gb10-head-{OWN_ID[:12]}.log"
    for victim in (name, f"{name}.new"):
        (outside / victim).write_text("not yours")
    if planted == "the directory":
        folder.parent.mkdir(parents=True)
        folder.symlink_to(outside)
    else:
        folder.mkdir(parents=True)
        victim = name if planted == "the file" else f"{name}.new"
        (folder / victim).symlink_to(outside / victim)
    node(Engine([running(**places(tmp_path))]))
    actions = ray_cluster.work(Module(**places(tmp_path), state="absent"))["actions"]
    assert {path.read_text() for path in outside.iterdir()} == {"not yours"} and len(list(outside.iterdir())) == 2
    if planted == "the directory":
        assert actions[-1] == f"left the log of gb10-gb10-head out: {folder} was tampered with: a link is in the place of a directory"
    else:
        assert (folder / name).read_bytes() == sdk.log and not (folder / name).is_symlink()


def test_no_container_is_created_over_a_planted_directory(node, sdk, tmp_path):
    """Docker would mount what the link leads to, for the next container to write."""
    (tmp_path / "log" / "gb10").mkdir(parents=True)
    (tmp_path / "log" / "gb10" / "engine").symlink_to("/etc")
    node(Engine())
    with pytest.raises(ClusterError, match="engine was tampered with: a link"):
        ray_cluster.work(Module(**places(tmp_path), wait=False))
    assert ("create", "gb10-gb10-head") not in sdk.calls


def test_what_lives_is_stopped_whatever_its_notes_say(node, sdk, monkeypatch, tmp_path):
    """Without a note, or with one of an engine that ended, a rank at work is an engine that the launcher may have started."""
    monkeypatch.setenv("SUDO_USER", "ada")
    (tmp_path / "gb10" / "launch").mkdir(parents=True)
    (tmp_path / "gb10" / "launch" / "engine.json").write_text("{}")
    node(executing(Engine([running(state_dir=str(tmp_path))], titles=["VLLM::EngineCore"]), sdk))
    ray_cluster.work(Module(state="stopped", state_dir=str(tmp_path), interrupt_requests=True))
    assert sdk.calls == [STOP_ENGINE, ("stop", OWN_ID, 120)]


@pytest.mark.parametrize("consent", [True, False])
def test_a_launcher_that_gives_no_answer_keeps_no_container_with_consent(node, sdk, monkeypatch, tmp_path, consent):
    """As for an engine of this node alone, whose container's first process is the launcher: root in it put another python3 there."""
    (tmp_path / "gb10" / "launch").mkdir(parents=True)
    (tmp_path / "gb10" / "launch" / "engine.json").write_text("{}")
    engine = node(executing(Engine([running(state_dir=str(tmp_path))], titles=["VLLM::EngineCore"]), sdk))
    engine.exec = lambda container_id, argv, *, timeout: ExecResult(1, "", "MemoryError")
    monkeypatch.setattr(interruption, "check", lambda *_args: None)
    wanted = Module(state="stopped", state_dir=str(tmp_path), interrupt_requests=consent)
    if not consent:
        with pytest.raises(UnknownState, match="ended with code 1 and no answer"):
            ray_cluster.work(wanted)
        assert sdk.calls == []
        return
    assert "stopped gb10-gb10-head as a whole: the launcher" in ray_cluster.work(wanted)["actions"][-1]
    assert set(sdk.calls) == {("stop", OWN_ID, 120)}


def test_a_container_of_version_1_waits_with_a_warning_for_each_protection(node):
    newer = ("drop_capabilities", "no_new_privileges")
    old = {name: value for name, value in json.loads(running()["Config"]["Labels"]["io.gb10.fields"]).items() if name not in newer}
    labels = {**running()["Config"]["Labels"], "io.gb10.fields": json.dumps(old), "io.gb10.spec": "1:0"}
    node(Engine([container(labels=labels)]))
    module = Module()
    result = ray_cluster.work(module)
    assert (result["changed"], result["actions"], result["reason"]) == (False, [], "as wanted")
    assert [apply.WAITS.format(what) for what in result["waiting_protections"]] == module.warnings and len(module.warnings) == 2
    allowed = Module(check_mode=True, allow_restart=True)
    assert ray_cluster.work(allowed)["changed_fields"] == ["drop_capabilities", "no_new_privileges"] and allowed.warnings == []


def hub_link(home):
    (home / "huggingface").mkdir()
    (home / "huggingface" / "hub").symlink_to(home / "secrets")
    return home / "huggingface" / "hub"


def hub_link_to_be_made(home):
    (home / "huggingface").mkdir()
    (home / "huggingface" / "hub").symlink_to(home / "to-be-made")
    return home / "huggingface" / "hub"


def link_above(home):
    (home / "huggingface").symlink_to(home / "secrets")
    os.lchown(home / "huggingface", 1000, 1000)
    return home / "huggingface"


@pytest.mark.skipif(os.geteuid() != 0, reason="another account's link takes root")
@pytest.mark.parametrize("plant", [hub_link, hub_link_to_be_made, link_above])
def test_the_owner_of_the_cache_does_not_choose_what_the_engine_reads(tmp_path, plant):
    (tmp_path / "secrets" / "hub").mkdir(parents=True)
    link = plant(tmp_path)
    with pytest.raises(ClusterError, match=f"{link} is a link to") as caught:
        obstacles.check_hub(str(tmp_path / "huggingface"))
    assert f"rm {link}" in caught.value.remedy and caught.value.reason == "hub cache"


@pytest.mark.skipif(os.geteuid() != 0, reason="a link of root's takes root")
def test_a_cache_that_root_put_elsewhere_is_used(tmp_path):
    (tmp_path / "disk" / "hub").mkdir(parents=True)
    (tmp_path / "huggingface").symlink_to(tmp_path / "disk")
    obstacles.check_hub(str(tmp_path / "huggingface"))
    obstacles.check_hub(str(tmp_path / "none"))
    obstacles.check_hub(None)


def test_nothing_is_created_for_a_hub_cache_that_is_a_link(sdk, tmp_path, monkeypatch):
    (tmp_path / "hub").symlink_to("/etc")
    monkeypatch.setattr(obstacles, "check_node_address", lambda *_given: None)
    with pytest.raises(ClusterError, match="is a link to /etc"):
        obstacles.check_node(Engine(), params(hf_home=str(tmp_path)), "spark-1", False)
    assert sdk.calls == []


@pytest.mark.parametrize("swapped", [True, False])
def test_a_hub_cache_that_is_swapped_while_docker_looks_for_it_is_noticed(sdk, tmp_path, monkeypatch, swapped):
    """A process of this test replaces the container's: it sees the directory that is at the target's place in its root."""
    hub, target = tmp_path / "huggingface" / "hub", tmp_path / "target"
    hub.mkdir(parents=True)
    target.mkdir()
    monkeypatch.setattr(obstacles, "HF_HOME_TARGET", str(hub.parent))
    begun = running()
    begun["State"]["Pid"] = os.getpid()

    def start(engine, container_id):
        sdk.calls.append(("start", container_id))
        engine.known["new"] = {**begun, "Id": "new"}
        if swapped:
            hub.rename(tmp_path / "mine")
            target.rename(hub)

    monkeypatch.setattr(Engine, "start", start)
    wanted = node_container.WantedContainer("gb10", "ray", {"node_role": "head", "hf_home": str(hub.parent), "image": "i"}, [], {})
    actor = apply.Actor(Engine(), params(), wanted, apply.NO_WORK)
    if swapped:
        with pytest.raises(ClusterError, match=f"{hub} was replaced by another directory while gb10-gb10-head was started") as caught:
            actor.start(wanted, "new")
        assert caught.value.remedy and sdk.calls == [("start", "new"), ("stop", "new", 0), ("remove", "new")]
    else:
        actor.start(wanted, "new")
        assert sdk.calls == [("start", "new")]


def test_trouble_with_directories_names_the_remedy(sdk, tmp_path):
    (tmp_path / "log").write_text("a file where a directory belongs")
    actor = apply.Actor(Engine(), params(log_dir=str(tmp_path / "log")), None, apply.NO_WORK)
    with pytest.raises(ClusterError, match="File exists"):
        actor.keep_log(node_container.existing(running()))


# -- what a container planted --------------------------------------------------------------------------------------------


@pytest.fixture
def planted_note(tmp_path):
    """A note of the launcher that is a link to a file of the host's."""
    (tmp_path / "outside").write_text("not yours")
    run = tmp_path / "state" / "gb10" / "run"
    run.mkdir(parents=True)
    (run / "run.lock").symlink_to(tmp_path / "outside")
    (run / "exit.json").write_text("{}")
    return run / "run.lock"


@pytest.mark.parametrize("there", [True, False])
def test_over_what_was_planted_no_container_is_made_and_the_message_says_what_to_type(node, sdk, tmp_path, planted_note, there):
    entry = running(**places(tmp_path))
    entry["State"].update(Status="exited", Running=False, ExitCode=137)
    node(Engine([entry] if there else []))
    for check_mode in (True, False):
        with pytest.raises(ClusterError, match=f"{planted_note} was tampered with: a link") as caught:
            ray_cluster.work(Module(check_mode=check_mode, **places(tmp_path), wait=False))
        assert "playbook teardown" in caught.value.remedy
    assert sdk.calls == []


@pytest.mark.parametrize("there", [True, False])
def test_a_teardown_removes_it_and_the_next_container_is_made(node, sdk, tmp_path, planted_note, there):
    node(Engine([running(**places(tmp_path))] if there else []))
    action = f"remove {planted_note} (a link is in the place of a file)"
    predicted = ray_cluster.work(Module(check_mode=True, **places(tmp_path), state="absent"))
    assert predicted["changed"] and predicted["actions"][-1] == action and planted_note.is_symlink()
    done = ray_cluster.work(Module(**places(tmp_path), state="absent"))
    assert done["changed"] and action in done["actions"]
    assert os.listdir(planted_note.parent) == [] and (tmp_path / "outside").read_text() == "not yours"
    node(Engine())
    assert not ray_cluster.work(Module(**places(tmp_path), state="absent"))["changed"]
    ray_cluster.work(Module(**places(tmp_path), wait=False))
    assert sdk.calls[-2:] == ANEW
    made_of = json.loads((planted_note.parents[1] / "launch" / "container.json").read_text())
    assert made_of == {"image": "local/vllm-ray:26.05", "image_id": "sha256:aaa"}


def test_a_new_container_lies_below_directories_that_root_alone_enters(node, sdk, tmp_path):
    for top in ("state", "log"):
        (tmp_path / top / "gb10").mkdir(parents=True)
        (tmp_path / top / "gb10").chmod(0o755)
    node(Engine())
    ray_cluster.work(Module(**places(tmp_path), wait=False))
    above = {os.path.dirname(mount["Source"]) for mount in sdk.mounts if not mount["ReadOnly"]}
    closed = {tmp_path / "state" / "gb10", tmp_path / "log" / "gb10"}
    assert above == {*map(str, closed), str(tmp_path / "state" / "gb10" / "cache")}
    assert {folder.stat().st_mode & 0o777 for folder in closed} == {0o700}


@pytest.mark.skipif(os.geteuid() != 0, reason="another account takes root")
def test_no_container_is_made_where_another_account_could_reach_what_it_writes(node, sdk, tmp_path):
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", 65534, -1)
    entry = running(**places(tmp_path))
    entry["State"].update(Status="exited", Running=False, ExitCode=137)
    node(Engine([entry]))
    for check_mode in (True, False):
        with pytest.raises(ClusterError, match="within reach of other accounts"):
            ray_cluster.work(Module(check_mode=check_mode, **places(tmp_path), wait=False))
    # What was there is not taken away for it.
    assert sdk.calls == []
