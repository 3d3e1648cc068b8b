# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cluster as it stands after the play, seen from the nodes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

GROUPS = yaml.safe_load(Path(os.environ["GB10_INVENTORY"], "hosts.yml").read_text())["gb10_cluster"]["children"]
HEAD = GROUPS["gb10_head"]["hosts"]
testinfra_hosts = [f"docker://gb10-lab-{node}" for group in GROUPS.values() for node in group["hosts"]]
API_KEY = "/etc/gb10/secrets/gb10/api_key"
HEAD_RAY = f"{next(iter(HEAD.values()))['gb10_fabric_address']}:6379"
RAY_TOKEN = "/etc/gb10/secrets/gb10/ray_token"


@pytest.fixture
def role(host):
    return "head" if host.backend.get_hostname().removeprefix("gb10-lab-") in HEAD else "worker"


@pytest.fixture
def container(host, role):
    """What the engine says of this node's container."""
    with host.sudo():
        return json.loads(host.check_output("docker inspect gb10-gb10-%s", role))[0]


def test_one_container_runs(host, role, container):
    with host.sudo():
        ids = host.check_output("docker ps --all --quiet --no-trunc --filter label=io.gb10.cluster=gb10").split()
    assert ids == [container["Id"]]
    assert container["State"]["Running"]
    assert container["Config"]["Labels"]["io.gb10.owner"] == "gb10.cluster"
    assert container["Config"]["Labels"]["io.gb10.role"] == role


def test_container_has_what_it_needs_and_no_more(container):
    config = container["HostConfig"]
    assert config["Privileged"] is False
    assert config["CapAdd"] == ["IPC_LOCK"] or config["CapAdd"] == ["CAP_IPC_LOCK"]
    assert config["CapDrop"] == ["ALL"] and config["SecurityOpt"] == ["no-new-privileges:true"]
    assert {"Name": "core", "Soft": 0, "Hard": 0} in config["Ulimits"]
    assert [device["PathOnHost"] for device in config["Devices"]] == ["/dev/infiniband"]
    assert config["NetworkMode"] == "host"
    assert config["RestartPolicy"]["Name"] in ("", "no")
    assert config["AutoRemove"] is False
    assert config["LogConfig"]["Config"]["max-size"]


def test_gpus_were_asked_for(host, container):
    requests = container["HostConfig"]["DeviceRequests"]
    with host.sudo():
        knows_cdi = "CDI spec directories:" in host.check_output("docker info")
    if knows_cdi:
        assert requests[0]["Driver"] == "cdi" and requests[0]["DeviceIDs"] == ["nvidia.com/gpu=all"], "CDI comes first where the engine has it"
        return
    assert requests and requests[0]["Capabilities"] == [["gpu"]]
    with host.sudo():
        assert host.file("/var/lib/gb10-lab/hook.log").content_string.strip(), "the simulated runtime hook was never called"


def test_secrets_are_files_for_root_alone(host, role):
    with host.sudo():
        for path in [RAY_TOKEN] + ([API_KEY] if role == "head" else []):
            secret = host.file(path)
            assert (secret.user, secret.mode) == ("root", 0o600)
        assert host.file("/etc/gb10/secrets").mode == 0o700
        assert not host.file(API_KEY).exists or role == "head"


def test_secrets_are_nowhere_else(host, role, container):
    """Neither in a container's config, nor in any process's arguments, nor in a log of ours or of Ray's."""
    with host.sudo():
        secrets = [host.file(path).content_string.strip() for path in [RAY_TOKEN] + ([API_KEY] if role == "head" else [])]
        arguments = host.check_output("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        logs = host.check_output("docker logs gb10-gb10-%s 2>&1", role)
        for secret in secrets:
            assert len(secret) == 43
            assert secret not in json.dumps(container)
            assert secret not in arguments
            assert secret not in logs
            assert host.run("grep -rqF -- %s /var/log/gb10", secret).rc == 1
            assert host.run("docker exec gb10-gb10-%s grep -rqF -- %s /tmp/ray", role, secret).rc == 1


def test_worker_never_holds_the_api_key(host, role, container):
    if role == "worker":
        assert not any("api_key" in mount["Destination"] for mount in container["Mounts"])


def test_ray_has_no_dashboard_and_wants_its_token(host, role):
    """Ray binds its ports on every address and has no option against that; the token is what keeps strangers out."""
    with host.sudo():
        assert ":8265 " not in host.check_output("ss -Hltn")
        assert host.run("docker exec gb10-gb10-%s ray health-check --address %s", role, HEAD_RAY).rc == 0
        assert host.run("docker exec --env RAY_AUTH_TOKEN_PATH=/dev/null gb10-gb10-%s ray health-check --address %s", role, HEAD_RAY).rc != 0


def test_api_wants_its_key(host, role):
    if role != "head":
        return
    with host.sudo():
        run = json.loads(host.file("/var/lib/gb10/gb10/run/run.json").content_string)
        key = host.file(API_KEY).content_string.strip()
    url = f"http://{run['api_address']}:{run['api_port']}/v1/models"
    ask = (
        "import sys, urllib.request as r; "
        "key = {'Authorization': 'Bearer ' + sys.stdin.read().strip()}; "
        "print(r.urlopen(r.Request(sys.argv[1], headers=key), timeout=30).status)"
    )
    assert host.run("printf %%s %s | python3 -c %s %s", key, ask, url).stdout.strip() == "200"
    for path in ("/v1/models", "/metrics", "/docs"):
        assert "401" in host.run("printf wrong | python3 -c %s %s", ask, url.replace("/v1/models", path)).stderr


def test_engine_logs_are_on_the_host(host, role):
    if role == "head":
        with host.sudo():
            assert host.run("ls /var/log/gb10/gb10/engine").stdout.strip().endswith(".log")


def test_its_unit_runs_and_starts_at_boot(host):
    with host.sudo():
        shown = host.check_output("systemctl show --property=ActiveState,UnitFileState gb10-engine-gb10.service").split()
        assert sorted(shown) == ["ActiveState=active", "UnitFileState=enabled"]
        assert host.file("/var/lib/gb10/gb10/unit/specification.json").mode == 0o600
