# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Ray adds: ports, arguments, environment, the table of nodes, and what counts as live work."""

from __future__ import annotations

import ast
import inspect
import json
import os
import signal
import sys
import types

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import ExecResult
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._node import container, fields, ray, ray_probe

FIELDS = {
    "node_role": "head",
    "node_address": "192.168.100.11",
    "head_address": "192.168.100.11",
    "head_session": "",
    "port": 6379,
    "port_range": "20100-20299",
    "image": "local/vllm-ray:26.05",
    "image_id": "sha256:aaa",
    "env": {"NCCL_NET": "IB"},
    "secret_files": {"ray_token": "/etc/gb10/secrets/ray_token"},
    "devices": ["/dev/infiniband"],
    "gpus": "all",
    "ray_gpus": 1,
    "capabilities": ["IPC_LOCK"],
    "ulimits": {"memlock": -1},
    "shm_size": "10g",
    "ipc_host": False,
    "mounts": [{"source": "/srv/hub", "target": "/hub", "read_only": True}],
    "object_store_memory": 1073741824,
    "ray_arguments": [],
    "state_dir": "/var/lib/gb10",
    "log_dir": "/var/log/gb10",
}
WORKER = {**FIELDS, "node_role": "worker", "node_address": "192.168.100.12", "object_store_memory": None, "ray_arguments": ["--num-cpus=4"]}

FIXED_PORTS = [
    "--node-manager-port=20100",
    "--object-manager-port=20101",
    "--runtime-env-agent-port=20102",
    "--dashboard-agent-grpc-port=20103",
    "--dashboard-agent-listen-port=20104",
    "--metrics-export-port=20105",
    "--min-worker-port=20110",
    "--max-worker-port=20299",
]


def test_arguments_of_a_head():
    assert ray.start_arguments(FIELDS) == [
        "start",
        "--block",
        "--disable-usage-stats",
        "--log-color=false",
        "--node-ip-address=192.168.100.11",
        "--head",
        "--port=6379",
        "--include-dashboard=false",
        "--ray-client-server-port=20106",
        "--num-gpus=1",
        *FIXED_PORTS,
        "--object-store-memory=1073741824",
    ]


def test_arguments_of_a_worker():
    assert ray.start_arguments(WORKER) == [
        "start",
        "--block",
        "--disable-usage-stats",
        "--log-color=false",
        "--node-ip-address=192.168.100.12",
        "--address=192.168.100.11:6379",
        "--num-gpus=1",
        *FIXED_PORTS,
        "--num-cpus=4",
    ]


def test_an_ipv6_head_gets_brackets():
    assert "--address=[fd00::11]:6379" in ray.start_arguments({**WORKER, "head_address": "fd00::11"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("20100", "port_range: is '20100'"),
        ("a-b", "port_range: is 'a-b'"),
        ("20100-20148", "has 49 ports; expected 50 or more"),
        ("20299-20100", "has 0 ports"),
        ("1000-1100", "between 1024 and 65535"),
        ("65500-65600", "between 1024 and 65535"),
        ("6300-6400", "port 6379 is inside port_range 6300-6400"),
    ],
)
def test_port_ranges_that_cannot_work(text, message):
    with pytest.raises(ClusterError, match=message) as caught:
        ray.parse_port_range(text, 6379)
    assert caught.value.remedy


def test_port_range_shares_no_port():
    ports = ray.parse_port_range(" 20100 - 20149 ", 6379)
    first, last = ports.workers
    used = [*ports.services.values(), *range(first, last + 1)]
    assert len(used) == len(set(used))
    assert min(used) == 20100
    assert max(used) == 20149


def wanted(**given):
    params = {**{name: option.get("default") for name, option in fields.argument_spec("ray").items()}, **FIELDS, **given}
    return ray.wanted(params, "sha256:aaa", None)


def test_environment_is_the_same_on_both_ends():
    expected = {
        **container.CACHES,
        "AUTOSCALER_METRIC_PORT": "20107",
        "DASHBOARD_METRIC_PORT": "20108",
        "NCCL_NET": "IB",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": "/run/secrets/gb10/ray_token",
    }
    assert container.creation_payload(wanted(), "/c")["environment"] == container.creation_payload(wanted(**WORKER), "/c")["environment"] == expected


def test_no_token_no_authentication():
    assert "RAY_AUTH_MODE" not in wanted(secret_files={"hf_token": "/x"}).environment


def test_the_users_environment_wins():
    assert container.creation_payload(wanted(env={"RAY_AUTH_MODE": "disabled"}), "/c")["environment"]["RAY_AUTH_MODE"] == "disabled"


def test_the_container_mounts_state_secrets_and_what_the_user_names():
    payload = container.creation_payload(wanted(cluster_name="blue"), "/var/lib/gb10/blue/cache/of-the-image")
    assert payload["name"] == "gb10-blue-head"
    assert payload["entrypoint"] == ["ray"]
    assert [(mount["Source"], mount["Target"], mount["ReadOnly"]) for mount in payload["mounts"]] == [
        ("/var/lib/gb10/blue/launch", "/opt/gb10/launch", True),
        ("/var/lib/gb10/blue/run", "/opt/gb10/run", False),
        ("/var/lib/gb10/blue/cache/of-the-image", "/opt/gb10/cache", False),
        ("/var/log/gb10/blue/engine", "/var/log/gb10/engine", False),
        ("/etc/gb10/secrets/ray_token", "/run/secrets/gb10/ray_token", True),
        ("/srv/hub", "/hub", True),
    ]


def test_a_secret_is_in_no_argument_and_no_label():
    assert not [word for word in wanted().command if "token" in word]


def test_ports_that_must_be_free():
    assert ray.needed_ports(FIELDS) == [6379, *range(20100, 20109)]
    assert ray.needed_ports(WORKER) == list(range(20100, 20106))


# -- the probe -------------------------------------------------------------------------------------------------------

HEAD_NODE = {"node_id": "3a", "address": "10.0.0.11", "alive": True, "head": True, "started_ms": 1795225985686, "gpus": 1.0, "resources": {"GPU": 1.0}}


def worker_node(node_id, alive, started_ms):
    return {"node_id": node_id, "address": "10.0.0.12", "alive": alive, "head": False, "started_ms": started_ms, "gpus": 1.0, "resources": {"GPU": 1.0}}


def answer(**changed):
    whole = {"python_version": "3.11.2", "ray_version": "2.60.0", "error": "", "kind": "", "nodes": [HEAD_NODE], "without_token": "refused"}
    return json.dumps({**whole, **changed})


def test_the_probe_stands_alone():
    """It runs inside the container as text: only the standard library and Ray, no import from this collection."""
    tree = ast.parse(inspect.getsource(ray_probe))
    names = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names == {"__future__", "json", "os", "platform", "ray", "ray._raylet", "signal", "socket", "sys", "typing"}


def test_table_of_a_good_answer():
    table = ray.parse_table(ExecResult(0, f"a warning of some library\n{answer()}\n", "noise"), 5)
    assert (table.ray_version, table.python_version, table.error) == ("2.60.0", "3.11.2", "")
    assert table.nodes == [HEAD_NODE]


def test_what_came_of_the_question_without_the_token_is_passed_on():
    assert ray.answer(ray.parse_table(ExecResult(0, answer(), ""), 5))["ray_without_token"] == "refused"


@pytest.mark.parametrize(
    ("version", "knows"),
    [("2.52.0", True), ("2.60.0", True), ("3.0.0.dev0", True), ("2.51.9", False), ("2.9.0", False), ("1.13", False), ("", False), (None, False)]
)
def test_versions_that_ask_for_the_token(version, knows):
    assert ray.knows_token(version) is knows


def fake_ray(monkeypatch, outcome, has_tokens=True):
    """A Ray whose head answers a question with ``outcome``; returns what became of its settings."""

    class RayError(Exception):
        pass

    class AuthenticationError(RayError):
        pass

    settings = []

    def ask(address, seconds):
        raise {"refused": AuthenticationError, "failed": RayError}[outcome](outcome)

    exceptions = types.SimpleNamespace(RayError=RayError, **({"AuthenticationError": AuthenticationError} if has_tokens else {}))
    raylet = types.SimpleNamespace(Config=types.SimpleNamespace(initialize=settings.append))
    monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(exceptions=exceptions, _raylet=raylet))
    monkeypatch.setitem(sys.modules, "ray._raylet", raylet)
    monkeypatch.setattr(ray_probe, "table", (lambda *_arguments: []) if outcome == "answered" else ask)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "HOME"):
        monkeypatch.setenv(name, "x")
    return settings


@pytest.mark.parametrize("outcome", ["refused", "answered", "failed"])
def test_the_question_without_the_token_forgets_it(monkeypatch, outcome):
    settings = fake_ray(monkeypatch, outcome)
    assert ray_probe.ask_without_token("10.0.0.11:6379", 5) == outcome
    assert settings == ['{"AUTH_MODE": "disabled"}'] and not [name for name in os.environ if name.startswith("RAY_AUTH")]


def test_a_ray_without_tokens_is_asked_as_it_is(monkeypatch):
    assert fake_ray(monkeypatch, "answered", has_tokens=False) == []
    assert ray_probe.ask_without_token("10.0.0.11:6379", 5) == "answered"


def test_the_child_answers_through_a_pipe_or_not_at_all(monkeypatch):
    monkeypatch.setattr(ray_probe, "ask_without_token", lambda *_arguments: "refused")
    assert ray_probe.read_answer(ray_probe.start_without_token("10.0.0.11:6379", 5)) == "refused"
    monkeypatch.setattr(ray_probe, "ask_without_token", lambda *_arguments: signal.pause() or "refused")
    assert ray_probe.read_answer(ray_probe.start_without_token("10.0.0.11:6379", 1)) == "no answer"


def test_table_of_a_head_that_hangs():
    table = ray.parse_table(ExecResult(142, "", ""), 5)
    assert (table.kind, table.error) == ("time", "no answer within 5 s")


@pytest.mark.parametrize(
    "result",
    [
        ExecResult(0, "", ""),
        ExecResult(1, "Traceback (most recent call last):", "ImportError"),
        ExecResult(126, 'OCI runtime exec failed: exec: "python3": executable file not found in $PATH: unknown\r\n', ""),
        ExecResult(0, "{}", ""),
        ExecResult(0, "[1]", ""),
        # The container's own python3 made it, and can make it anything.
        *(ExecResult(0, answer(nodes=nodes), "") for nodes in ("all", [1], [{}], *([{**HEAD_NODE, "started_ms": when}] for when in ("x", float("inf"))))),
    ],
)
def test_what_cannot_be_read_is_unknown(result):
    with pytest.raises(UnknownState) as caught:
        ray.parse_table(result, 5)
    assert caught.value.details["raw"] == f"{result.stdout}\n{result.stderr}".strip()


def test_the_dead_of_a_living_address_are_left_out():
    nodes = [HEAD_NODE, worker_node("d6", False, 1), worker_node("37", False, 2), worker_node("87", True, 3)]
    assert [node["node_id"] for node in ray.newest(nodes)] == ["3a", "87"]
    assert [node["node_id"] for node in ray.newest(nodes[:3])] == ["3a", "37"]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([worker_node("a", True, 2000)], True),
        ([], False),
        ([HEAD_NODE], False),
        ([worker_node("a", False, 2000)], False),
        # The one before, killed a moment ago, which the head still believes in: alone, and beside its successor.
        ([worker_node("a", True, 999)], False),
        ([worker_node("a", True, 999), worker_node("b", True, 2000)], False),
        ([worker_node("a", False, 999), worker_node("b", True, 2000)], True),
    ],
)
def test_registered(nodes, expected):
    assert ray.registered(nodes, "10.0.0.12", 1000) is expected


def test_waiting_ends_when_it_is_in_vain():
    for kind, message in (("import", "has no Ray: No module"), ("token", "refuses the token of spark-2")):
        table = ray.RayTable("", "", [], "No module named 'ray'", kind)
        with pytest.raises(ClusterError, match=message):
            ray.check_waiting_helps(table, "base:1", "10.0.0.11:6379", "spark-2")
    ray.check_waiting_helps(ray.RayTable("", "", [], "Connection refused", "head"), "base:1", "10.0.0.11:6379", "spark-2")
