# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook calibrate on the lab, with a live engine: the archive is anonymous, and its replay gives the verdicts from the lab."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tarfile
import typing as t
from pathlib import Path

import pytest
import yaml

from .lab import HEAD, INVENTORY, ROOT, RUN, WORKER, Lab

SECRET_FILES = ("/etc/gb10/secrets/gb10/api_key", "/etc/gb10/secrets/gb10/ray_token")
PLANTED_SECRET, PLANTED_ADDRESS = "Planted0Secret0Of0A0Test", "10.91.92.93"
#: A line of an engine's log with a node's name, an address, a person and a token.
LINE = f"(EngineCore pid=9) INFO 11-22 10:00:00 [x.py:1] {WORKER.upper()} {PLANTED_ADDRESS} API_TOKEN={PLANTED_SECRET} /home/plantedperson/x\n"


def hosts() -> dict[str, dict[str, t.Any]]:
    """Return the variables of the lab's nodes."""
    listed = yaml.safe_load((INVENTORY / "hosts.yml").read_text(encoding="utf-8"))["gb10_cluster"]["children"]
    return {host: about for group in listed.values() for host, about in group["hosts"].items()}


def identities(lab: Lab) -> set[str]:
    """Return the texts that must appear nowhere: names, addresses and MAC addresses of the nodes, their secrets, and planted texts."""
    texts = {HEAD, WORKER, PLANTED_SECRET, PLANTED_ADDRESS, "plantedperson"}
    for host, about in hosts().items():
        texts |= {about["ansible_host"], about["gb10_fabric_address"], lab.run(host, "hostname").strip()}
        texts |= set(lab.run(host, "sh", "-c", "cat /sys/class/net/*/address").split()) - {"00:00:00:00:00:00"}
        # The worker has no API key.
        texts |= {lab.run(host, "cat", path, check=False).strip() for path in SECRET_FILES}
    return {text for text in texts if len(text) > 3}


def plant(lab: Lab) -> None:
    """Append a line to the engine's log, as a user's engine might write it."""
    run = lab.json(HEAD, RUN)["run_id"]
    lab.run(HEAD, "sh", "-c", 'printf %s "$1" >> "$2"', "sh", LINE, f"/var/log/gb10/gb10/engine/{run}.log")


def content_of(path: Path) -> bytes:
    """Return the whole content of an archive, headers included, in lower case."""
    return gzip.decompress(path.read_bytes()).lower()


def field_check(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "collections")}
    command = [sys.executable, str(ROOT / "tests/tools/field_check.py"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def texts_of(path: Path) -> dict[str, str]:
    """Return the text of each file in an archive, by name."""
    with tarfile.open(path) as archive:
        return {member.name.removeprefix("calibration/"): archive.extractfile(member).read().decode() for member in archive if member.isfile()}


@pytest.mark.usefixtures("live_cluster")
def test_the_archive_of_a_live_cluster_is_anonymous_and_replays_to_the_nodes_own_verdicts(lab: Lab) -> None:
    path = lab.scratch / "lab.tar.gz"
    own = lab.scratch / "doctor.json"
    plant(lab)
    played = lab.play("calibrate", gb10_to=str(path), gb10_records_dir=str(own.parent))
    assert played.rc == 0, played.failures
    assert lab.engine_lives() and played.changed == {} and played.stat("gb10_calibration")["nodes"] == 2

    raw = content_of(path)
    assert [text for text in sorted(identities(lab)) if text.lower().encode() in raw] == []

    texts = texts_of(path)
    assert "(EngineCore pid=9)" in texts["node-1/logs/now/engine.log"] and "API_TOKEN=<secret>" in texts["node-1/logs/now/engine.log"]
    assert json.loads(texts["node-1/answers/engine.json"])["completion"]["seconds"] > 0
    assert isinstance(json.loads(texts["node-1/answers/preflight.json"])["starts"], list)
    assert "libcuda" in texts["node-1/answers/ranks.json"]

    checked = field_check(str(path))
    assert (checked.returncode, checked.stdout) == (0, f"{path}: nothing judged otherwise than on the machine\n"), checked.stdout + checked.stderr
    # The archive contains the doctor's verdicts.
    record, named = json.loads(texts["records.json"])["doctor"], {"node-1": HEAD, "node-2": WORKER}
    matrix = {rule: {named.get(node, node): verdict for node, verdict in cells.items()} for rule, cells in record["matrix"].items()}
    assert matrix == json.loads(own.read_text(encoding="utf-8"))["matrix"]
    assert field_check("--row", str(path)).stdout.startswith("| `lab.tar.gz` |")

    # Nothing is left on the nodes. An existing file is refused before any node is contacted.
    for host in (HEAD, WORKER):
        assert lab.run(host, "sh", "-c", "ls -d /tmp/gb10-calibrate-* /root/.ansible_async/* 2>/dev/null || true").strip() == ""
    refused = lab.play("calibrate", gb10_to=str(path))
    assert refused.rc != 0 and "exists" in refused.said
