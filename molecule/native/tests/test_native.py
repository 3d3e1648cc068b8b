# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cluster without Ray as it stands after the play, seen from the nodes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

GROUPS = yaml.safe_load(Path(os.environ["GB10_INVENTORY"], "hosts.yml").read_text())["gb10_cluster"]["children"]
HEAD = GROUPS["gb10_head"]["hosts"]
testinfra_hosts = [f"docker://gb10-lab-{node}" for group in GROUPS.values() for node in group["hosts"]]
HEAD_ADDRESS = next(iter(HEAD.values()))["gb10_fabric_address"]
MASTER_PORT = 20299
API_KEY = "/etc/gb10/secrets/gb10/api_key"
RUN = "/var/lib/gb10/gb10/run/run.json"


@pytest.fixture
def role(host):
    return "head" if host.backend.get_hostname().removeprefix("gb10-lab-") in HEAD else "worker"


@pytest.fixture
def container(host, role):
    """What the engine says of this node's container."""
    with host.sudo():
        return json.loads(host.check_output("docker inspect gb10-gb10-%s", role))[0]


@pytest.fixture
def run(host):
    """What the launcher noted of this node's rank."""
    with host.sudo():
        return json.loads(host.file(RUN).content_string)


def titles(host, role):
    with host.sudo():
        return host.check_output("docker top gb10-gb10-%s -eo pid,args", role)


def test_one_container_runs_from_the_bare_image(host, role, container):
    with host.sudo():
        ids = host.check_output("docker ps --all --quiet --no-trunc --filter label=io.gb10.cluster=gb10").split()
    assert ids == [container["Id"]]
    assert container["State"]["Running"]
    assert container["Config"]["Image"] == "gb10-lab/engine:0.32.0"
    assert container["Config"]["Labels"]["io.gb10.role"] == role
    assert json.loads(container["Config"]["Labels"]["io.gb10.fields"])["executor"] == "native"


def test_the_launcher_holds_it_open(container):
    command = container["Config"]["Entrypoint"] + container["Config"]["Cmd"]
    assert command[0] == "/opt/nvidia/nvidia_entrypoint.sh", "the image's own entrypoint stands before what the container runs"
    assert command[1:4] == ["python3", "/opt/gb10/launch/launcher.py", "hold"]
    assert container["HostConfig"]["RestartPolicy"]["Name"] in ("", "no")
    assert container["HostConfig"]["Privileged"] is False


def test_there_is_no_ray(host, role):
    assert "ray" not in titles(host, role)
    with host.sudo():
        listening = host.check_output("ss -Hltn")
    assert ":6379 " not in listening


def test_each_node_has_its_one_rank(host, role, run):
    argv = run["argv"]
    assert argv[argv.index("--nnodes") + 1] == "2"
    assert argv[argv.index("--node-rank") + 1] == ("0" if role == "head" else "1")
    assert argv[argv.index("--master-addr") + 1] == HEAD_ADDRESS
    assert argv[argv.index("--distributed-executor-backend") + 1] == "mp"
    assert ("--headless" in argv) == (role == "worker")
    assert ("--host" in argv) == (role == "head")
    assert titles(host, role).count("VLLM::Worker") == 1
    assert titles(host, role).count("VLLM::EngineCore") == (1 if role == "head" else 0)


def test_the_ranks_met_on_the_fabric(host, role):
    if role == "head":
        with host.sudo():
            assert f":{MASTER_PORT} " in host.check_output("ss -Hltn")


def test_the_api_key_is_the_heads_alone(host, role, container, run):
    with host.sudo():
        assert host.file(API_KEY).exists == (role == "head")
        assert any("api_key" in mount["Destination"] for mount in container["Mounts"]) == (role == "head")
        assert (run["secret_env"] != {}) == (role == "head")
        if role == "head":
            key = host.file(API_KEY).content_string.strip()
            assert key not in json.dumps(container)
            assert key not in host.check_output("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
            assert host.run("grep -rqF -- %s /var/log/gb10", key).rc == 1


def test_each_rank_has_its_log_on_the_host(host):
    with host.sudo():
        assert host.run("ls /var/log/gb10/gb10/engine").stdout.strip().endswith(".log")


def test_its_unit_runs_and_starts_at_boot(host):
    with host.sudo():
        shown = host.check_output("systemctl show --property=ActiveState,UnitFileState gb10-engine-gb10.service").split()
        assert sorted(shown) == ["ActiveState=active", "UnitFileState=enabled"]
        assert host.file("/var/lib/gb10/gb10/unit/specification.json").mode == 0o600
