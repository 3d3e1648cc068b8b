# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The result of node_info, section by section."""

from __future__ import annotations

import ast
import json
import os
import pathlib
import time
import types

import pytest
import through_ansible
import yaml
from node_roots import rooted

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import NotFound
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._protect import limits
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult
from ansible_collections.gb10.cluster.plugins.modules import node_info
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import profiles
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures"
GB10 = FIXTURES / "nvidia_smi/composed_gb10_idle.xml"

VERSION = {"Version": "28.3.3", "ApiVersion": "1.51", "MinAPIVersion": "1.24"}
INFO = {"CgroupDriver": "systemd", "CgroupVersion": "2", "Runtimes": {"runc": {}, "nvidia": {}}, "Driver": "overlay2", "DockerRootDir": "/"}


def entry(name, **labels):
    shape = {"Id": f"id-{name}", "Names": [f"/{name}"], "Image": "e:1", "Labels": labels, "State": "running", "Status": "Up 3 hours"}
    return {**shape, "Created": 1793600000, "Command": "run", "Ports": []}


OURS = entry("gb10-gb10-head", **{"io.gb10.owner": "gb10.cluster", "io.gb10.cluster": "gb10", "io.gb10.role": "head", "io.gb10.spec": "1:ab"})


class Engine:
    """A fake of EngineApi; an error is raised by every call."""

    def __init__(self, error=None, info=None):
        self.error, self.info = error, INFO if info is None else info
        self.asked = []

    def inspect(self, container_id):
        self.asked.append(container_id)
        request = {"Driver": "", "DeviceIDs": None, "Capabilities": [["gpu"]]}
        return {"HostConfig": {"NetworkMode": "host", "DeviceRequests": [request]}, "Config": {"Env": ["VLLM_PORT=1"]}}

    def get(self, path):
        self.asked.append(path)
        if self.error:
            raise self.error
        return {"/version": VERSION, "/info": self.info}[path]

    def containers(self, labels):
        self.asked.append("/containers")
        return [entry("stranger"), OURS]


class Declared(Exception):
    """Ends ``main`` once its options are recorded."""


def defaults():
    """Return the options as ``main`` declares them, and their defaults."""
    declared = {}

    def module(argument_spec, **_more):
        declared.update(argument_spec)
        raise Declared

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_info, "AnsibleModule", module)
        with pytest.raises(Declared):
            node_info.main()
    return declared, {name: option.get("default") for name, option in declared.items()}


@pytest.fixture
def gb10(tmp_path):
    """A driver's tool that describes an idle GB10."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat {GB10}\n")
    tool.chmod(0o755)
    return str(tool)


@pytest.fixture
def call(tmp_path, monkeypatch):
    def call(engine=None, **params):
        monkeypatch.setattr(node_info, "EngineApi", lambda socket, timeout: engine or Engine())
        mine = {"devices": ["/dev/null", "/dev/nonexistent"], "nvidia_smi": str(tmp_path / "absent"), "tool_timeout": 5}
        return node_info.work(types.SimpleNamespace(params=rooted({**defaults()[1], **mine, **params}), check_mode=False))

    return call


def sections(result):
    return [error["section"] for error in result["errors"]]


def add_process(root, pid, *argv, ppid=1, cgroup="0::/\n", **files):
    """Put a process into a proc tree."""
    base = root / str(pid)
    (base / "fd").mkdir(parents=True)
    (base / "stat").write_text(f"{pid} ({os.path.basename(argv[0])[:15]}) S {ppid} " + "0 " * 19 + "256 0 0\n")
    (base / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in argv))
    (base / "cgroup").write_text(cgroup)
    for name, text in files.items():
        (base / name).write_text(text)


@pytest.fixture
def node(tmp_path):
    """The trees of a node with 64 GB, stock earlyoom, Ollama and leftover variables: what each section reads, and nothing of this machine."""
    proc, etc, sys_root = tmp_path / "proc", tmp_path / "etc", tmp_path / "sys"
    for directory in ("sys/kernel/random", "sys/vm", "net", "pressure"):
        (proc / directory).mkdir(parents=True)
    (proc / "sys/kernel/osrelease").write_text("6.11.0-1016-nvidia\n")
    (proc / "sys/kernel/random/boot_id").write_text("2a5dc1f5-3983-4f96-a958-ebff58fa47ab\n")
    (proc / "sys/vm/swappiness").write_text("60\n")
    (proc / "cmdline").write_text("quiet\n")
    (proc / "uptime").write_text("100.00 200.00\n")
    (proc / "stat").write_text("btime 1793600000\n")
    (proc / "vmstat").write_text("pswpin 1\npswpout 2\n")
    (proc / "meminfo").write_text(
        "MemTotal: 65000000 kB\nMemFree: 1 kB\nMemAvailable: 60000000 kB\nBuffers: 1 kB\nCached: 1 kB\nAnonPages: 1000000 kB\n"
        "SwapTotal: 16777216 kB\nSwapFree: 16777216 kB\n"
    )
    limits = (FIXTURES / "proc/recorded_dockerd_limits.txt").read_text()
    add_process(proc, 1, "/sbin/init", ppid=0)
    add_process(proc, 700, "/usr/bin/dockerd", "-H", "fd://", limits=limits)
    add_process(proc, 710, "/usr/bin/earlyoom", "-r", "3600")
    add_process(proc, 720, "sshd", oom_score_adj="-1000\n")
    add_process(proc, 800, "/usr/local/bin/ollama", "serve")
    (proc / "800/fd/3").symlink_to("/dev/nvidia-uvm")
    (proc / "900").mkdir()
    etc.mkdir()
    (etc / "environment").write_text("VLLM_USE_V1=1\nHF_TOKEN=hf_abcdefghijklmnopqrstuv\n")
    (tmp_path / "kernel.log").write_text(
        "[    0.000000] Linux version 6.11.0-1016-nvidia\n[   60.000000] NVRM: Xid (PCI:000f:01:00): 43, pid=2211, name=VLLM\n"
    )
    (sys_root / "class/net").mkdir(parents=True)
    (tmp_path / "hub/models--org--x/blobs").mkdir(parents=True)
    (tmp_path / "hub/models--org--x/blobs/a.incomplete").write_text("x")
    (tmp_path / "empty").mkdir()
    return {
        "proc_root": str(proc),
        "sysfs_root": str(sys_root),
        "etc_root": str(etc),
        "modules_root": str(tmp_path / "empty"),
        "boot_root": str(tmp_path / "empty"),
        "kernel_log": str(tmp_path / "kernel.log"),
        "model_roots": [str(tmp_path / "hub")],
    }


def test_this_node(call, gb10):
    started = time.monotonic()
    wanted = [section for section in node_info.SECTIONS if section not in ("kernel", "kernel_log", "tenants", "environment", "limits", "fabric")]
    result = call(nvidia_smi=gb10, sections=wanted)
    assert result["errors"] == [] and result["msg"] == "all was seen"
    assert result["memory"]["total_mb"] > 0
    assert result["devices"] == {"/dev/null": True, "/dev/nonexistent": False}
    assert result["gpus"][0]["name"] == "NVIDIA GB10" and result["gpus"][0]["memory_total_mb"] is None
    (loopback,) = [interface for interface in result["interfaces"] if interface["name"] == "lo"]
    assert "127.0.0.1" in loopback["addresses"] and loopback["networks"][0]["prefix"] == 8
    assert result["docker"]["reachable"] and result["docker"]["runtimes"] == ["nvidia", "runc"] and result["docker"]["root_free_bytes"] > 0
    assert result["docker"]["nvidia"] == "runtime" and result["docker"]["python_docker"]
    assert [(container["name"], container["cluster"], container["role"], container["spec"]) for container in result["containers"]] == [
        ("gb10-gb10-head", "gb10", "head", "1:ab")
    ]
    assert time.monotonic() - started < 20


def test_what_depends_on_this_machines_rights_never_crashes(call, gb10):
    result = call(nvidia_smi=gb10)
    assert len(result["kernel"]["boot_id"]) == 36 and result["kernel"]["release"] and result["kernel"]["clock"]
    assert set(result) == {*node_info.SECTIONS, "errors", "msg"}


def test_images_and_firewall(call, node, tmp_path):
    class WithImage(Engine):
        def image(self, reference):
            return {"Id": "sha256:1a", "Architecture": "arm64"} if reference == "e:1" else None

    answer = {"nftables": [{"chain": {"family": "inet", "table": "f", "name": "in", "type": "filter", "hook": "input", "prio": 0, "policy": "drop"}}]}
    tool = tmp_path / "nft"
    tool.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    tool.chmod(0o755)
    result = call(WithImage(), images=["e:1", "gone:1"], nft=str(tool), sections=["images", "firewall"], **node)
    assert result["errors"] == []
    assert result["images"]["e:1"]["architecture"] == "arm64" and result["images"]["gone:1"] is None
    assert result["firewall"] == {"source": "nft", "default_deny": True, "interfaces": [], "networks": []}


def test_images_are_unknown_while_the_engine_does_not_answer(call):
    result = call(Engine(error=UnknownState("no answer")), images=["e:1"], sections=["images"])
    assert result["images"] is None and sections(result) == ["images"]


def test_the_rules_can_judge_a_node_in_depth(call, gb10, node):
    """The answers have the shape that the rules need; the problems of this node are found, and nothing is missing."""

    class WithImage(Engine):
        def image(self, reference):
            return {"Id": "sha256:1a", "Architecture": "arm64"}

    profile = profiles.load("nemotron_3_super_tp2")
    images = [profile["image"]["base"], profile["image"]["tag"]]
    result = call(WithImage(), nvidia_smi=gb10, nft="/nonexistent/nft", images=images, paths=["/"], **node)
    settings = {
        "head": True, "cluster": "gb10", "address": "127.0.0.1", "peers": ["192.168.100.12"], "api_address": "127.0.0.1", "ports": {"gb10_api_port": 8000},
        "fabric_interfaces": ["lo"], "rdma_devices": [], "fabric_fallback": "tcp", "devices": ["/dev/null"], "container_gpus": "all", "memlock": -1,
        "model_root": "/", "offline": False, "serve_arguments": {}, "allow": [], "rules": {"disk.free": {"least_gib": 0, "why": "a test"}}, "silenced": [],
    }
    run = {"cluster": "gb10", "tags": ["all"], "skip_tags": [], "time": "2026-11-21T15:00:00Z"}
    record = judging.judge({"spark-1": {"info": result, "zombies": {"findings": []}, "settings": settings}}, profile, run)
    verdicts = {finding["id"]: finding["verdict"] for finding in record["findings"]}
    # The module tree is empty, and no address of the loopback may be read from the recorded trees.
    assert {id for id, verdict in verdicts.items() if verdict == "unknown"} <= {"driver.next_boot", "driver.loaded", "clock.synchronized", "clock.offset"}
    expected = {"memory.class": "block", "limits.earlyoom": "warn", "env.left": "warn", "log.xid": "warn", "tenant.idle": "warn", "model.ready": "warn"}
    assert {id: verdicts.get(id) for id in expected} == expected


def test_a_node_in_depth(call, gb10, node):
    result = call(nvidia_smi=gb10, **node)
    assert result["errors"] == []
    assert result["memory"]["anon_mb"] == 976 and result["memory"]["swap_out_pages"] == 2 and result["memory"]["swappiness"] == 60
    assert result["kernel"]["release"] == "6.11.0-1016-nvidia" and result["kernel"]["cmdline"] == "quiet"
    assert result["docker"]["memlock_bytes"] == result["limits"]["docker_memlock_bytes"] == 8388608 and result["limits"]["containerd_memlock_bytes"] is None
    assert result["limits"]["sshd"] == {"pid": 720, "oom_score_adj": -1000}
    assert result["limits"]["earlyoom"]["effective"] is False and result["limits"]["earlyoom"]["args"] == "-r 3600"
    assert [(tenant["pid"], tenant["kind"], tenant["cuda"], tenant["container"]) for tenant in result["tenants"]] == [(800, "ollama", True, "")]
    assert [(entry["where"], entry["name"], entry["value"]) for entry in result["environment"]] == [
        ("/etc/environment", "VLLM_USE_V1", "1"),
        ("/etc/environment", "HF_TOKEN", "<secret>"),
    ]
    assert [(container["name"], container["gpu"], container["env_names"]) for container in result["foreign_containers"]] == [("stranger", True, ["VLLM_PORT"])]
    assert [(model["repo"], model["complete"], model["unfinished"]) for model in result["models"]] == [("org/x", False, 1)]
    assert [event["kind"] for event in result["kernel_log"]["events"]] == ["xid"] and result["kernel_log"]["since_boot"]
    assert result["fabric"] == [] and result["rdma"] == []
    json.dumps(result)


def test_only_what_was_asked_for_is_read(call, node):
    engine = Engine()
    result = call(engine, sections=["memory", "limits"], **node)
    assert set(result) == {"memory", "limits", "errors", "msg"} and engine.asked == [] and result["errors"] == []


def test_the_engine_is_asked_once_for_all_sections(call, node, gb10):
    engine = Engine()
    call(engine, nvidia_smi=gb10, **node)
    assert sorted(engine.asked) == ["/containers", "/info", "/version", "id-stranger"]


def test_an_engine_that_hangs_is_waited_for_once(call, node, gb10):
    engine = Engine(UnknownState("the Docker engine did not answer"))
    result = call(engine, nvidia_smi=gb10, **node)
    assert engine.asked == ["/version"] and set(sections(result)) == {"docker", "containers", "foreign_containers", "held", "companions"}


def test_our_engine_is_no_tenant_and_a_foreign_one_has_the_name_of_its_container(call, node, gb10):
    proc = pathlib.Path(node["proc_root"])
    ours, theirs = "ab" * 32, "cd" * 32
    add_process(proc, 1000, "VLLM::EngineCore", cgroup=f"0::/system.slice/docker-{ours}.scope\n", status="VmRSS:\t 9 kB\nRssAnon:\t 7168000 kB\n")
    add_process(proc, 1001, "VLLM::EngineCore", cgroup=f"0::/system.slice/docker-{theirs}.scope\n")
    engine = Engine()
    engine.containers = lambda labels: [{**OURS, "Id": ours}, {**entry("eugr"), "Id": theirs}]
    result = call(engine, nvidia_smi=gb10, **node)
    assert [(tenant["pid"], tenant["container"]) for tenant in result["tenants"]] == [(800, ""), (1001, "eugr")]
    assert result["foreign_containers"][0]["pids"] == [1001]
    assert result["held"] == {"gb10": {"gpu_mib": 0, "anon_mb": 7000}}

    result = call(Engine(ClusterError("no Docker engine answers")), nvidia_smi=gb10, **node)
    assert {tenant["pid"] for tenant in result["tenants"]} == {800, 1000, 1001} and "tenants" in sections(result)


def test_a_foreign_container_that_goes_meanwhile(call, node, gb10):
    engine = Engine()

    def gone(_id):
        raise NotFound("no such container")

    engine.inspect = gone
    result = call(engine, nvidia_smi=gb10, **node)
    assert result["foreign_containers"] == [] and result["errors"] == []


def test_meminfo_from_a_file(call, tmp_path, node, monkeypatch):
    monkeypatch.setattr(limits, "run_tool", lambda *_given: ToolResult(0, "", "earlyoom 1.7\n"))
    path = tmp_path / "meminfo"
    path.write_text("MemTotal: 4096 kB\nMemAvailable: 2048 kB\nBuffers: 0 kB\nCached: 0 kB\n")
    result = call(sections=["memory", "limits"], **{**node, "meminfo": str(path)})
    assert result["memory"]["total_mb"] == 4 and result["limits"]["earlyoom"]["why"].startswith("there is no swap")


@pytest.mark.parametrize("answer", ["", "<?xml", "rubbish", "Nvidia-SMI ist fehlgeschlagen"])
def test_a_driver_that_cannot_be_understood_leaves_the_rest(call, node, tmp_path, answer):
    tool = tmp_path / "smi"
    tool.write_text(f"#!/bin/sh\necho '{answer}'\nexit 9\n")
    tool.chmod(0o755)
    result = call(nvidia_smi=str(tool), **node)
    assert result["gpus"] == [] and {"gpus", "tenants", "held"} == set(sections(result))
    assert [tenant["pid"] for tenant in result["tenants"]] == [800], "its open files tell all the same"


def test_every_result_and_option_is_documented():
    documented = {}
    for node in ast.parse(pathlib.Path(node_info.__file__).read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id in ("DOCUMENTATION", "RETURN"):
            documented[node.targets[0].id] = yaml.safe_load(node.value.value)
    options, _defaults = defaults()
    described = documented["DOCUMENTATION"]["options"]
    of_fragments = {"docker_socket", "docker_timeout", "roots", "tool_timeout"}
    assert set(options) - of_fragments == set(described)
    assert described["sections"]["choices"] == [*node_info.SECTIONS, *node_info.BY_NAME]
    assert set(documented["RETURN"]) == {*node_info.SECTIONS, *node_info.BY_NAME, "errors", "reached"}


def keys_of(value, described, path=""):
    """Return the keys of a result that are not documented."""
    if isinstance(value, list):
        for entry_ in value:
            yield from keys_of(entry_, described, path)
    elif isinstance(value, dict) and "contains" in described:
        for key, inner in value.items():
            if key not in described["contains"]:
                yield f"{path}.{key}"
            else:
                yield from keys_of(inner, described["contains"][key], f"{path}.{key}")


def test_every_key_of_a_result_is_documented(call, node, gb10):
    (text,) = [
        statement.value.value
        for statement in ast.parse(pathlib.Path(node_info.__file__).read_text()).body
        if isinstance(statement, ast.Assign) and statement.targets[0].id == "RETURN"
    ]
    documented = yaml.safe_load(text)
    result = call(nvidia_smi=gb10, **node)
    assert [key for section in node_info.SECTIONS for key in keys_of(result[section], documented[section], section)] == []
    # And the other way round, where the node has something to show.
    for section in ("memory", "kernel", "docker", "limits", "kernel_log"):
        assert set(documented[section]["contains"]) == set(result[section]), section
    for section in ("containers", "foreign_containers", "gpus", "tenants", "environment", "models"):
        assert set(documented[section]["contains"]) == set(result[section][0]), section


def as_nobody(function, path):
    """Return what ``function`` returns in a process of the user nobody; it goes through the file ``path``."""
    # Once as root: that imports what is imported on first use, which nobody cannot read where Python lies in root's home.
    function()
    with open(path, "w", encoding="utf-8") as stream:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                json.dump(function(), stream)
                stream.flush()
                status = 0
            finally:
                os._exit(status)
    _pid, status = os.waitpid(pid, 0)
    assert status == 0, "the module crashed"
    return json.loads(path.read_text())


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to become another account")
def test_an_unprivileged_user_gets_what_it_may_see_and_the_rest_is_reported(tmp_path):
    params = {**defaults()[1], "nvidia_smi": "/nonexistent/nvidia-smi", "docker_socket": "/nonexistent.sock", "ports": [1], "model_roots": ["/root"]}
    result = as_nobody(lambda: node_info.work(types.SimpleNamespace(params=rooted(params), check_mode=False)), tmp_path / "result")
    unseen = {error["section"]: error for error in result["errors"]}
    unchecked = [error for error in result["errors"] if "processes cannot be checked" in error["error"]]
    assert unchecked and unchecked[0]["section"] == "tenants" and "become" in unchecked[0]["remedy"]
    assert result["memory"]["total_mb"] > 0 and result["kernel"]["boot_id"] and result["interfaces"] and result["limits"]["earlyoom"]
    assert result["models"] == [] and "become" in unseen["models"]["remedy"]
    assert not {"memory", "interfaces", "rdma", "disk", "devices", "environment"} & set(unseen)


def test_through_ansible(node, gb10, tmp_path):
    arguments = {**node, "nvidia_smi": gb10, "docker_socket": str(tmp_path / "absent.sock"), "sections": ["memory", "docker", "limits", "tenants", "models"]}
    module = ["-m", "gb10.cluster.node_info", "-a", json.dumps(rooted(arguments))]
    done = through_ansible.run("adhoc", "localhost", "-c", "local", *module, "--check", "-t", str(tmp_path / "results"))
    assert done.rc == 0, done.out
    result = json.loads((tmp_path / "results/localhost").read_text())
    assert result["changed"] is False and result["memory"]["anon_mb"] == 976 and "kernel" not in result
    assert result["docker"]["reachable"] is False and "docker" in sections(result)
    assert result["tenants"][0]["kind"] == "ollama" and result["models"][0]["repo"] == "org/x"


def test_each_section_fails_by_itself(call, tmp_path):
    result = call(Engine(ClusterError("no Docker engine answers", remedy="start it")), proc_root=str(tmp_path))
    assert set(sections(result)) >= {"docker", "memory", "kernel", "gpus", "limits", "tenants"}
    error = next(error for error in result["errors"] if error["section"] == "docker")
    assert error == {"section": "docker", "verdict": "block", "error": "no Docker engine answers", "remedy": "start it"}
    assert not result["docker"]["reachable"] and result["docker"]["version"] is None and "python_docker" in result["docker"]
    assert result["containers"] == [] and result["memory"] is None and result["gpus"] == []
    assert "could not see: " in result["msg"] and "docker" in result["msg"]


def test_an_engine_that_answers_rubbish_is_unknown(call):
    result = call(Engine(info={}), sections=["docker"])
    assert result["errors"][0]["verdict"] == "unknown" and not result["docker"]["reachable"]


def test_listeners_carry_the_name_of_their_container(call, monkeypatch):
    def listening(ports, root):
        shape = {"address": "0.0.0.0", "process": "x", "cmdline": "x", "since": ""}
        return [{"port": 1, "pid": 5, "container": "id-gb10-gb10-head", **shape}, {"port": 2, "pid": None, "container": "", **shape}]

    monkeypatch.setattr(node_info, "listeners", listening)
    result = call(ports=[1, 2], sections=["listeners"])
    assert [listener["container"] for listener in result["listeners"]] == ["gb10-gb10-head", ""]
    (error,) = [error for error in result["errors"] if error["section"] == "listeners"]
    assert "port 2" in error["error"] and "become" in error["remedy"]


def test_disk_space_of_a_path_that_does_not_exist_yet(call, tmp_path):
    path = str(tmp_path / "a/b/c")
    result = call(paths=[path], sections=["disk"])
    assert result["disk"][path]["measured_at"] == str(tmp_path) and 0 < result["disk"][path]["free_bytes"] <= result["disk"][path]["total_bytes"]


def test_a_device_that_may_not_be_looked_at_is_not_missing(call, monkeypatch):
    def denied(_path):
        raise PermissionError(13, "Permission denied", "/dev/infiniband")

    monkeypatch.setattr(node_info, "has_device", denied)
    result = call(devices=["/dev/infiniband"], sections=["devices"])
    assert result["devices"] == {"/dev/infiniband": None} and "devices" in sections(result)
    assert result["errors"][0]["error"] == "/dev/infiniband: Permission denied"


def test_sdk_version(monkeypatch):
    def absent(_name):
        raise node_info.importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(node_info.importlib.metadata, "version", absent)
    assert node_info.sdk_version() is None


@pytest.mark.parametrize(("given", "looks"), [
    ({"await_up": ["asr"], "await_timeout": 5}, 3),
    ({"await_down": ["tts"], "await_timeout": 5}, 2),
    ({"await_up": ["asr"]}, 1),
    ({}, 1),
])  # fmt: skip
def test_companions_are_waited_for(monkeypatch, given, looks):
    def row(name, **changes):
        return {"name": name, "running": True, "healthy": False, "unit": "", "container_id": "", **changes}

    seen = [[row("asr"), row("tts")], [row("asr"), row("tts", running=False)], [row("asr", healthy=True), row("tts", running=False)]]
    calls = []

    def answer(params, api):
        calls.append(params)
        return {"companions": seen[len(calls) - 1]}

    monkeypatch.setattr(node_info, "answer", answer)
    monkeypatch.setattr(node_info, "LOOK_SECONDS", 0.01)
    params = {"docker_socket": "/nowhere", "docker_timeout": 1, "tool_timeout": 1, "await_up": [], "await_down": [], "await_timeout": 0, **given}
    result = node_info.work(types.SimpleNamespace(params=params, check_mode=False))
    assert len(calls) == looks and [companion["name"] for companion in result["companions"]] == ["asr", "tts"]
