# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Logs for the controller: bounded, without secrets, and complete as far as they can be read."""

from __future__ import annotations

import io
import json
import tarfile
import types

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import NotFound
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._redact import cleaned, secrets_of
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult
from ansible_collections.gb10.cluster.plugins.modules import node_logs

KEY = "Zk3v9PqL0aWb7"


def archive(files):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


class Api:
    """An engine with one container that has ended."""

    def __init__(self, *_args):
        pass

    def containers(self, labels):
        assert labels == {"io.gb10.owner": "gb10.cluster"}
        return [
            {"Id": "abc", "Names": ["/gb10-gb10-head"], "Labels": {**labels, "io.gb10.cluster": "gb10", "io.gb10.role": "head"}},
            {"Id": "def", "Names": ["/gb10-other-head"], "Labels": {**labels, "io.gb10.cluster": "other", "io.gb10.role": "head"}},
            {"Id": "ask", "Names": ["/brave_hopper"], "Labels": {**labels, "io.gb10.role": "probe"}},
        ]

    def inspect(self, ident):
        env = ["B=1", "HF_TOKEN=hf_abcdefghijklmnopqrstuvw"]
        return {"Id": ident, "Name": "/gb10-gb10-head", "State": {"ExitCode": 137}, "Config": {"Image": "x:1", "Env": env, "Labels": {}}, "HostConfig": {}}

    def logs(self, ident, lines):
        return f"started with {KEY}\n"

    def archive(self, ident, path, limit):
        return archive({"logs/raylet.out": b"hello\n", "logs/empty.err": b"", "logs/worker.err": b"x\n" * 100000})


RUN = "20260101T000000Z-0001"


@pytest.fixture
def node(tmp_path, monkeypatch):
    (tmp_path / "state/gb10/run").mkdir(parents=True)
    (tmp_path / "log/gb10/engine").mkdir(parents=True)
    (tmp_path / "secrets/gb10").mkdir(parents=True)
    (tmp_path / "secrets/gb10/api_key").write_text(KEY)
    (tmp_path / "state/gb10/run/run.json").write_text(json.dumps({"run_id": RUN, "log_path": "/etc/shadow"}))
    (tmp_path / f"log/gb10/engine/{RUN}.log").write_text(f"key {KEY}\n" + "line\n" * 2000)
    monkeypatch.setattr(node_logs, "EngineApi", Api)
    monkeypatch.setattr(node_logs._tool, "run_tool", lambda argv, timeout: ToolResult(0, "oom\n", ""))
    return tmp_path


def call(node, **params):
    defaults = {
        "cluster_name": "gb10", "max_bytes": 4096, "state_dir": str(node / "state"), "log_dir": str(node / "log"),
        "secrets_dir": str(node / "secrets"), "docker_socket": "/none", "docker_timeout": 1,
    }  # fmt: skip
    params = {**defaults, **params}
    result = cleaned(node_logs.work(types.SimpleNamespace(params=params, check_mode=False)), secrets_of(params))
    return {log["name"]: log for log in result["logs"]}, result["errors"]


def test_every_source_is_there_bounded_and_without_secrets(node):
    logs, errors = call(node)
    assert errors == []
    assert set(logs) == {
        "run.json", "engine.log", "container-head.json", "container-head.log", "ray-head-raylet.out", "ray-head-worker.err", "kernel.log", "meminfo.txt",
    }  # fmt: skip
    assert logs["engine.log"]["cut"] and len(logs["engine.log"]["text"]) <= 4096 and logs["engine.log"]["text"].startswith("line\n")
    assert logs["ray-head-worker.err"]["cut"] and len(logs["ray-head-worker.err"]["text"]) <= node_logs.RAY_FILE_BYTES
    assert logs["container-head.log"]["text"] == "started with <secret api_key>\n"
    assert "hf_abc" not in logs["container-head.json"]["text"] and '"ExitCode": 137' in logs["container-head.json"]["text"]
    assert "MemAvailable" in logs["meminfo.txt"]["text"]


def test_a_container_that_lost_its_labels_is_found_by_its_name(node, monkeypatch):
    """As the rules of a start find it, which replace it unasked: its log must not go with it."""
    monkeypatch.setattr(Api, "containers", lambda self, labels: [{"Id": "abc", "Names": ["/gb10-gb10-worker"], "Labels": labels}])
    logs, errors = call(node)
    assert errors == [] and {"container-worker.json", "container-worker.log"} <= set(logs)


def test_two_containers_of_one_role_do_not_write_the_same_files(node, monkeypatch):
    labels = {"io.gb10.owner": "gb10.cluster", "io.gb10.cluster": "gb10", "io.gb10.role": "head"}
    containers = [
        {"Id": "abc", "Names": ["/kept-for-later"], "Labels": labels},
        {"Id": "def", "Names": ["/gb10-gb10-head"], "Labels": {"io.gb10.owner": "gb10.cluster"}},
        {"Id": "ghi", "Names": ["/gb10-gb10-worker"], "Labels": {**labels, "io.gb10.role": "worker"}},
    ]
    monkeypatch.setattr(Api, "containers", lambda self, labels: containers)
    logs, errors = call(node)
    assert errors == []
    assert {name for name in logs if name.startswith("container-")} == {
        f"container-{what}.{kind}" for what in ("kept-for-later", "gb10-gb10-head", "worker") for kind in ("json", "log")
    }


def test_the_whole_log_when_it_is_short(node):
    logs, _errors = call(node, max_bytes=1048576)
    assert not logs["engine.log"]["cut"] and logs["engine.log"]["text"].startswith("key <secret api_key>\n")


def test_what_cannot_be_read_hides_nothing(node, monkeypatch):
    def refused(self, labels):
        raise ClusterError("no Docker engine answers")

    monkeypatch.setattr(Api, "containers", refused)
    monkeypatch.setattr(node_logs._tool, "run_tool", lambda argv, timeout: ToolResult(1, "", "No journal files were found."))
    (node / "state/gb10/run/exit.json").symlink_to(node / "state")
    logs, errors = call(node)
    assert {"engine.log", "run.json", "meminfo.txt"} <= set(logs)
    assert {entry["source"] for entry in errors} == {"containers", "kernel.log", "exit.json"}


def test_a_container_without_ray_has_no_ray_logs(node, monkeypatch):
    def absent(self, ident, path, limit):
        raise NotFound("no such path")

    monkeypatch.setattr(Api, "archive", absent)
    logs, errors = call(node)
    assert errors == [] and not [name for name in logs if name.startswith("ray-")]


def test_an_archive_that_breaks_off_gives_what_came_before():
    whole = archive({"logs/a.out": b"first\n", "logs/b.out": b"second\n" * 1000})
    assert [name for name, _text, _cut in node_logs.ray_logs(whole[:2000])] == ["a.out"]


def test_secrets_that_cannot_be_read_let_nothing_out(node, monkeypatch):
    (node / "secrets/gb10/api_key").unlink()
    (node / "secrets/gb10/api_key").symlink_to("/proc/self/mem")
    with pytest.raises(ClusterError, match="cannot be taken out of the logs"):
        call(node)


@pytest.mark.parametrize("number", [0, 4095, 16777217])
def test_sizes_out_of_range(node, number):
    with pytest.raises(ClusterError, match="max_bytes"):
        call(node, max_bytes=number)


@pytest.mark.parametrize("planted", ["run.json", "the log", "the directory"])
def test_nothing_behind_a_link_is_gathered(node, planted):
    (node / "outside").mkdir()
    (node / "outside" / f"{RUN}.log").write_text("root:canary")
    victim = node / "outside" / f"{RUN}.log"
    if planted == "run.json":
        path = node / "state/gb10/run/run.json"
        path.unlink()
        path.symlink_to(victim)
        (node / "state/gb10/launch").mkdir()
        (node / "state/gb10/launch/engine.json").write_text(json.dumps({"run_id": RUN}))
    elif planted == "the log":
        path = node / f"log/gb10/engine/{RUN}.log"
        path.unlink()
        path.symlink_to(victim)
    else:
        path = node / "log/gb10/engine"
        path.rename(node / "log/gb10/moved")
        path.symlink_to(victim.parent)
    logs, errors = call(node)
    assert not [log for log in logs.values() if "canary" in log["text"]]
    assert any(f"{path} was tampered with: a link" in entry["error"] for entry in errors)
    assert ("engine.log" in logs) is (planted == "run.json"), "the host's own order names the run"
