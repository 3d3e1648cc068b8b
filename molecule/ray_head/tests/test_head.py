# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The head's container and its secrets."""

from __future__ import annotations

import json
import os
from pathlib import Path

import yaml

GROUPS = yaml.safe_load(Path(os.environ["GB10_INVENTORY"], "hosts.yml").read_text())["gb10_cluster"]["children"]
testinfra_hosts = [f"docker://gb10-lab-{node}" for node in GROUPS["gb10_head"]["hosts"]]


def test_the_container_runs_ray(host):
    with host.sudo():
        container = json.loads(host.check_output("docker inspect gb10-gb10-head"))[0]
    assert container["State"]["Running"]
    assert container["Config"]["Labels"]["io.gb10.role"] == "head"
    command = container["Config"]["Entrypoint"] + container["Config"]["Cmd"]
    assert command[0] == "/opt/nvidia/nvidia_entrypoint.sh", "the image's own entrypoint stands before what the container runs"
    assert command[1:3] == ["ray", "start"]
    assert "--head" in command
    assert "--include-dashboard=false" in command
    assert "--disable-usage-stats" in command
    assert "RAY_AUTH_MODE=token" in container["Config"]["Env"]


def test_ray_answers_only_with_the_token(host):
    with host.sudo():
        assert host.run("docker exec gb10-gb10-head ray health-check").rc == 0
        assert host.run("docker exec --env RAY_AUTH_TOKEN_PATH=/dev/null gb10-gb10-head ray health-check").rc != 0


def test_secrets_are_for_root_alone(host):
    with host.sudo():
        for name in ("ray_token", "api_key"):
            assert host.file(f"/etc/gb10/secrets/gb10/{name}").mode == 0o600
