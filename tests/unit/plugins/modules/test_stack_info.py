# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What stack_info finds on recorded and composed nodes."""

from __future__ import annotations

import ast
import http.server
import json
import os
import pathlib
import subprocess
import sys
import threading
import types

import pytest
import stack_tree
import through_ansible
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from node_roots import rooted

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.modules import stack_info

RAY_1, RAY_2 = (stack_tree.recorded(f"ray_tp2_spark-{number}") for number in (1, 2))
THEIRS = "cd" * 32


class Engine:
    """A fake of EngineApi: one container, or an error for every call."""

    def __init__(self, container_id="", error=None, **host):
        self.id, self.error, self.host = container_id, error, host

    def containers(self, labels):
        if self.error:
            raise self.error
        shape = {"Id": self.id, "Names": ["/vllm_node"], "Image": "eugr/spark-vllm:1", "Labels": {}, "State": "running", "Status": "Up"}
        return [{**shape, "Ports": [{"IP": "0.0.0.0", "PublicPort": 8001, "PrivatePort": 8000, "Type": "tcp"}]}] if self.id else []

    def inspect(self, container_id):
        host = {"NetworkMode": "host", "Ulimits": [{"Name": "memlock", "Soft": -1, "Hard": -1}], "Devices": [{"PathOnHost": "/dev/infiniband"}], **self.host}
        config = {"Image": "eugr/spark-vllm:1", "Labels": {}, "Env": ["NCCL_NET=IB", "VLLM_API_KEY=topsecret1", "PATH=/bin"]}
        networks = {"bridge": {"IPAddress": "172.17.0.2"}}
        return {"Id": container_id, "Image": "sha256:1f", "HostConfig": host, "Config": config, "NetworkSettings": {"Networks": networks}}


@pytest.fixture
def call(tmp_path, monkeypatch):
    def call(root, engine=None, sleep=lambda _seconds: None, **params):
        monkeypatch.setattr(stack_info, "EngineApi", lambda socket, timeout: engine or Engine())
        mine = {
            "sample_s": 0, "probe": False, "probe_timeout": 1, "probe_token": False, "token_timeout": 1, "api_key_file": None,
            "nvidia_smi": str(tmp_path / "absent"), "tool_timeout": 5, "proc_root": str(root), "docker_socket": "/x", "docker_timeout": 1, **params,
        }  # fmt: skip
        return stack_info.work(types.SimpleNamespace(params=rooted(mine), check_mode=False), sleep)

    return call


@pytest.fixture
def tree(tmp_path):
    return stack_tree.Tree(tmp_path / "proc")


def kinds(result):
    return [(entry["pid"], entry["kind"]) for entry in result["processes"]]


def test_a_recorded_stack(call, tree):
    result = call(tree.replay(RAY_1).root, Engine(RAY_1["container"]))
    assert {entry["stack"] for entry in result["processes"]} == {"ray 10.77.1.11:6379"}
    by_pid = {entry["pid"]: entry for entry in result["processes"]}
    assert (by_pid[381]["kind"], by_pid[855]["kind"], by_pid[1033]["kind"], by_pid[31977]["kind"], by_pid[32121]["kind"]) == (
        "api_server", "engine_core", "rank", "gcs_server", "raylet",
    )  # fmt: skip
    rank = by_pid[1033]
    assert rank["env"]["VLLM_HOST_IP"] == "10.77.1.11" and "PATH" not in rank["env"] and rank["env_source"] == "exec"
    assert rank["container"] == "vllm_node" and rank["memlock_bytes"] == 8388608 and rank["rdma"] == [] and rank["orphan"] is False
    assert {peer["address"] for peer in rank["peers"]} >= {"10.77.1.12"} and rank["age_s"] == 3467
    assert by_pid[31977]["listens"] == [{"address": "0.0.0.0", "port": 6379}]
    assert by_pid[855]["env"]["VLLM_API_KEY"] == "<secret>"
    (api,) = result["apis"]
    assert (api["address"], api["port"], api["asked"], api["world"], api["state"]) == ("10.77.0.11", 8000, "http://10.77.0.11:8000", True, "not_asked")
    (container,) = result["containers"]
    assert container["memlock_bytes"] == -1 and container["infiniband"] and container["host_network"] and not container["ours"]
    assert container["env"] == {"NCCL_NET": "IB", "VLLM_API_KEY": "<secret>"}
    assert [error["section"] for error in result["errors"]] == ["gpu_mib"]
    assert "1 server process(es), 1 rank(s)" in result["msg"]
    json.dumps(result)


def test_the_recorded_worker_has_the_other_rank_of_the_same_stack(call, tree):
    result = call(tree.replay(RAY_2).root)
    (rank,) = [entry for entry in result["processes"] if entry["kind"] == "rank"]
    assert rank["stack"] == "ray 10.77.1.11:6379" and result["apis"] == []


def test_a_node_without_a_stack(call, tree):
    tree.process(7, 1, ["python3", "-m", "http.server"])
    result = call(tree.root, Engine(error=ClusterError("no Docker")))
    assert result["processes"] == result["containers"] == result["apis"] == result["errors"] == [] and result["msg"] == "no engine and no Ray runs"


def test_secrets_do_not_leave_the_node(call, tree):
    argv = ["vllm", "serve", "m", "--api-key", "topsecret1", "topsecret2", "--port", "8000", "--hf-token=hf_abcdefghijklmnopqrst"]
    tree.process(7, 1, argv, env={"VLLM_API_KEY": "topsecret1", "HF_TOKEN": "hf_abcdefghijklmnopqrst", "HF_HOME": "/x"})
    result = call(tree.root)
    text = json.dumps(result)
    assert "topsecret" not in text and "abcdefghijkl" not in text
    assert result["processes"][0]["argv"][3:6] == ["--api-key", "<secret>", "<secret>"] and result["processes"][0]["env"]["HF_HOME"] == "/x"


def test_rdma_packages_and_gpu_memory(call, tree, tmp_path):
    tree.process(
        7,
        1,
        ["VLLM::Worker_TP0"],
        links=["/dev/infiniband/uverbs0", "/dev/infiniband/uverbs0", "/dev/nvidia0"],
        packages=["vllm-0.32.0", "torch-2.13.0", "x-1"],
    )
    xml = (stack_tree.FIXTURES.parent / "nvidia_smi/composed_gb10_idle.xml").read_text()
    before, _processes, after = xml.partition("<processes>")
    listed = "<process_info><pid>7</pid><type>C</type><process_name>x</process_name><used_memory>93440 MiB</used_memory></process_info>"
    (tmp_path / "answer.xml").write_text(before + "<processes>" + listed + "</processes>" + after.partition("</processes>")[2])
    tool = tmp_path / "smi"
    tool.write_text(f"#!/bin/sh\ncat {tmp_path}/answer.xml\n")
    tool.chmod(0o755)
    (rank,) = call(tree.root, nvidia_smi=str(tool))["processes"]
    assert rank["rdma"] == ["uverbs0"] and rank["versions"] == {"vllm": "0.32.0", "torch": "2.13.0"} and rank["gpu_mib"] == 93440
    assert rank["orphan"] is True and "adopted" in rank["why"] and rank["stack"] is None


class Api(http.server.BaseHTTPRequestHandler):
    key, tokens, health = False, [100.0], 200

    def do_GET(self):
        body, status = b"", 200
        if self.path == "/health":
            status = self.health
        elif self.path == "/v1/models":
            status = 401 if self.key else 200
            body = json.dumps({"data": [{"id": "tiny", "max_model_len": 2048}]}).encode()
        elif self.path == "/metrics":
            now = self.tokens.pop(0) if len(self.tokens) > 1 else self.tokens[0]
            body = f"vllm:num_requests_running{{}} 1.0\nvllm:generation_tokens_total{{}} {now}\n".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments):
        pass


@pytest.fixture
def api():
    servers = []

    def serve(**attributes):
        handler = type("Handler", (Api,), {"tokens": [100.0], **attributes})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server.server_address[1]

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_an_api_without_a_key_and_its_progress(call, tree, api):
    port = api(tokens=[100.0, 142.0])
    tree.process(7, 1, ["vllm", "serve", "m", "--port", str(port)], listens=[("0.0.0.0", port), ("127.0.0.1", 50000)])
    slept = []
    result = call(tree.root, probe=True, sample_s=0.2, sleep=slept.append)
    (server,) = result["apis"]
    assert (server["state"], server["health"], server["models_status"], server["open"], server["world"]) == ("answers", 200, 200, True, True)
    assert server["models"] == [{"id": "tiny", "max_model_len": 2048}] and (server["running"], server["tokens"]) == (1.0, 42.0)
    assert len(slept) == 1 and 0 < slept[0] <= 0.2 and result["sample_s"] is not None and result["processes"][0]["cpu_percent"] == 0.0
    assert "_place" not in server


def test_an_api_with_a_key(call, tree, api):
    port = api(key=True)
    tree.process(7, 1, ["vllm", "serve", "m", "--port", str(port)], listens=[("127.0.0.1", port)])
    (server,) = call(tree.root, probe=True)["apis"]
    assert (server["open"], server["models"], server["models_status"], server["world"]) == (False, None, 401, False)


@pytest.mark.parametrize(("wanted", "tokens"), [(False, None), (True, [100.0, 100.0, 142.0])])
def test_a_token_is_asked_for_when_wanted_alone(call, tree, api, wanted, tokens):
    port = api(tokens=tokens or [100.0])
    tree.process(7, 1, ["vllm", "serve", "m", "--port", str(port)], listens=[("127.0.0.1", port)])
    (server,) = call(tree.root, probe=True, probe_token=wanted, token_timeout=5)["apis"]
    if not wanted:
        assert server["token"] is None
    else:
        # This server has no completions route, but its token count grows: it is busy with other requests.
        assert (server["token"]["completion"], server["token"]["progress"]["grew"]) == (None, True)


def test_a_server_that_docker_does_not_know_is_not_given_the_key(call, tree, api, tmp_path):
    """Anybody can call a process vllm."""
    (tmp_path / "key").write_text("planted-k3y")
    port = api(key=True)
    tree.process(7, 1, ["vllm", "serve", "m", "--port", str(port)], listens=[("127.0.0.1", port)])
    result = call(tree.root, probe=True, probe_token=True, token_timeout=5, api_key_file=str(tmp_path / "key"))
    (server,) = result["apis"]
    assert server["token"]["completion"] is None and "the API's key was not sent" in server["token"]["progress"]["withheld"]
    assert "planted" not in str(result)


def test_an_api_that_does_not_listen_or_does_not_answer(call, tree):
    tree.process(7, 1, ["vllm", "serve", "m"])
    tree.process(8, 1, ["python3", "-m", "sglang.launch_server"], listens=[("127.0.0.1", 1)])
    first, second = call(tree.root, probe=True)["apis"]
    assert (first["state"], first["port"], first["asked"]) == ("not_listening", 8000, None)
    assert (second["state"], second["port"]) == ("silent", 1) and "refused" in second["error"]


def test_several_api_processes_are_one_api(call, tree):
    tree.process(7, 1, ["vllm", "serve", "m", "--api-server-count", "2"])
    tree.process(8, 7, ["VLLM::APIServer_0"], listens=[("0.0.0.0", 8000)])
    tree.process(9, 7, ["VLLM::APIServer_1"], links=["socket:[5001]"])
    (server,) = call(tree.root)["apis"]
    assert (server["pid"], server["address"], server["port"]) == (7, "0.0.0.0", 8000)


@pytest.mark.parametrize(
    ("address", "url", "world", "state"),
    [("0.0.0.0", "http://127.0.0.1:8001", True, "not_asked"), ("127.0.0.1", None, False, "unknown")],
)
def test_an_api_in_a_network_of_its_own(call, tree, address, url, world, state):
    argv = ["vllm", "serve", "m"]
    tree.process(7, 1, argv, cgroup=f"0::/system.slice/docker-{THEIRS}.scope\n", network="net:[4026532999]", listens=[(address, 8000)])
    (server,) = call(tree.root, Engine(THEIRS, NetworkMode="bridge"))["apis"]
    assert (server["asked"], server["world"], server["state"]) == (url, world, state)


def test_what_may_not_be_read_is_null_with_a_line(call, tree, monkeypatch):
    def refuse(*_arguments):
        raise PermissionError(13, "Permission denied", "x")

    tree.process(7, 1, ["vllm", "serve", "m", "--port", "8000"], listens=[("0.0.0.0", 8000)])
    monkeypatch.setattr(stack_info.listeners, "open_files", refuse)
    monkeypatch.setattr(stack_info.installed.os, "listdir", lambda path, real=os.listdir: refuse() if path.endswith("/root") else real(path))
    monkeypatch.setattr("ansible_collections.gb10.cluster.plugins.module_utils._process.live_env.live_environment", refuse)
    result = call(tree.root)
    (entry,) = result["processes"]
    assert entry["env"] is None and entry["listens"] is None and entry["rdma"] is None and entry["versions"] is None and entry["kind"] == "api_server"
    assert {error["section"] for error in result["errors"]} == {"gpu_mib", "env", "listens", "rdma", "versions"}
    assert all("become" in error["remedy"] for error in result["errors"] if error["section"] != "gpu_mib")
    # The port that it was told is in the node's list of sockets, whose it may be.
    assert [(api["address"], api["port"]) for api in result["apis"]] == [("0.0.0.0", 8000)]


def test_a_process_that_ends_meanwhile_is_left_out(call, tree, monkeypatch):
    tree.process(7, 1, ["VLLM::EngineCore"])

    def gone(*_arguments):
        raise FileNotFoundError(2, "gone")

    monkeypatch.setattr(stack_info.listeners, "open_files", gone)
    result = call(tree.root)
    assert result["processes"] == [] and [error["section"] for error in result["errors"]] == ["gpu_mib"]


def test_a_tree_without_processes_is_unknown(call, tmp_path):
    (tmp_path / "empty").mkdir()
    result = call(tmp_path / "empty")
    assert result["processes"] is None and "processes" in {error["section"] for error in result["errors"]}


@pytest.mark.parametrize(("name", "value"), [("sample_s", -1), ("sample_s", 61), ("probe_timeout", 0), ("tool_timeout", 0)])
def test_options_out_of_range(call, tree, name, value):
    with pytest.raises(ClusterError, match=name):
        call(tree.root, **{name: value})


def test_a_process_that_spins_is_seen(call):
    """A real one, on this machine: it calls itself a rank and burns a core."""
    program = "import sys\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen(["VLLM::Worker_TP0", "-c", program], executable=sys.executable, stdout=subprocess.PIPE) as child:
        try:
            child.stdout.readline()
            result = call("/proc", sample_s=0.6, sleep=__import__("time").sleep)
        finally:
            child.kill()
    (rank,) = [entry for entry in result["processes"] if entry["pid"] == child.pid]
    assert rank["kind"] == "rank" and rank["cpu_percent"] > 0, "a process that spins never rests"
    assert rank["env_source"] == "live"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_rubbish_in_proc_never_breaks_it(call, tmp_path_factory, data):
    tree = stack_tree.Tree(tmp_path_factory.mktemp("fuzz") / "proc")
    tree.process(7, 1, ["vllm", "serve", "m"], listens=[("0.0.0.0", 8000)])
    tree.process(8, 7, ["VLLM::EngineCore"], env={"NCCL_NET": "IB"})
    for name in ("cmdline", "stat", "cgroup", "limits", "environ", "status", "net/tcp", "maps"):
        path = tree.root / str(data.draw(st.sampled_from([7, 8]))) / name
        what = data.draw(st.sampled_from(["keep", "keep", "cut", "binary", "gone", "huge"]))
        if what == "cut":
            path.write_bytes(path.read_bytes()[: data.draw(st.integers(0, 60))])
        elif what == "binary":
            path.write_bytes(data.draw(st.binary(max_size=200)))
        elif what == "gone":
            path.unlink(missing_ok=True)
        elif what == "huge":
            path.write_bytes(path.read_bytes() + b"x\0 " * 40000)
    result = call(tree.root, sample_s=0.01)
    json.dumps(result)
    for error in result["errors"]:
        assert error["error"]


def test_every_result_and_option_is_documented(call, tree):
    documented = {}
    for node in ast.parse(pathlib.Path(stack_info.__file__).read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in ("DOCUMENTATION", "RETURN"):
            documented[node.targets[0].id] = yaml.safe_load(node.value.value)
    result = call(tree.replay(RAY_1).root, Engine(RAY_1["container"]))
    returned = documented["RETURN"]
    assert set(result) == {*returned, "msg"}
    for section in ("processes", "containers", "apis", "errors"):
        assert set(result[section][0]) == set(returned[section]["contains"]), section
    assert set(documented["DOCUMENTATION"]["options"]) == {"sample_s", "probe", "probe_timeout", "probe_token", "token_timeout", "api_key_file"}


def test_through_ansible(tree, tmp_path):
    arguments = {"proc_root": str(tree.replay(RAY_2).root), "docker_socket": str(tmp_path / "absent.sock"), "nvidia_smi": "/nonexistent", "sample_s": 0}
    module = ["-m", "gb10.cluster.stack_info", "-a", json.dumps(rooted(arguments))]
    done = through_ansible.run("adhoc", "localhost", "-c", "local", *module, "--check", "-t", str(tmp_path / "results"))
    assert done.rc == 0, done.out
    result = json.loads((tmp_path / "results/localhost").read_text())
    assert result["changed"] is False and (1104, "rank") in kinds(result) and "containers" in {error["section"] for error in result["errors"]}
