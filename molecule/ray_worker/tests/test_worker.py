# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The worker's container, and that Ray counts it in."""

from __future__ import annotations

import json
import os
from pathlib import Path

import yaml

GROUPS = yaml.safe_load(Path(os.environ["GB10_INVENTORY"], "hosts.yml").read_text())["gb10_cluster"]["children"]
testinfra_hosts = [f"docker://gb10-lab-{node}" for node in GROUPS["gb10_workers"]["hosts"]]


def inspect(host):
    with host.sudo():
        return json.loads(host.check_output("docker inspect gb10-gb10-worker"))[0]


def test_the_container_joined_the_head(host):
    container = inspect(host)
    assert container["State"]["Running"]
    assert container["Config"]["Labels"]["io.gb10.role"] == "worker"
    command = container["Config"]["Entrypoint"] + container["Config"]["Cmd"]
    assert command[0] == "/opt/nvidia/nvidia_entrypoint.sh", "the image's own entrypoint stands before what the container runs"
    assert command[1:3] == ["ray", "start"]
    assert "--head" not in command


def test_infiniband_is_really_there(host):
    with host.sudo():
        assert host.run("docker exec gb10-gb10-worker test -c /dev/infiniband/uverbs0").rc == 0


def test_the_api_key_is_not(host):
    assert not any("api_key" in mount["Destination"] for mount in inspect(host)["Mounts"])
    with host.sudo():
        assert not host.file("/etc/gb10/secrets/gb10/api_key").exists
