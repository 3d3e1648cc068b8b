# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a user with only the installed tarball and two host names sees: the doctor beside a stack that was started by hand, init, preflight.

There is no inventory of the collection and no clone: another directory, an empty ansible.cfg, and ssh settings as in a person's own configuration.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import jsonschema
import pytest
import yaml

from .lab import HEAD, INVENTORY, RECORD_SCHEMA, ROOT, WORKER, Lab
from .making import IMAGE

MODEL = "/root/.cache/huggingface/hub/models--gb10-lab--tiny-llama/snapshots/0123456789abcdef0123456789abcdef01234567"
#: A variable that only one of the ranks has.
VARIABLE = "NCCL_DEBUG"
STARTED = ("stranger-head", "stranger-worker")


@dataclasses.dataclass
class Output:
    """The output and the return code of a command."""

    rc: int
    text: str

    def changes(self) -> int:
        return sum(int(count) for count in re.findall(r"changed=(\d+)", self.text))


class Stranger:
    """A user with an installed collection, an account on the nodes, and nothing else."""

    def __init__(self, place: Path, addresses: tuple[str, str]) -> None:
        self.place = place
        self.hosts = ",".join(addresses) + ","
        self.home = place / "home"
        self.home.mkdir()
        (place / "ansible.cfg").touch()
        lab = ROOT / ".lab"
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
            "HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "ANSIBLE_COLLECTIONS_PATH": str(place / "installed"),
            "ANSIBLE_FORCE_COLOR": "false",
            # These replace a person's own ~/.ssh.
            "ANSIBLE_REMOTE_USER": "spark",
            "ANSIBLE_PRIVATE_KEY_FILE": str(lab / "id_ed25519"),
            "ANSIBLE_SSH_COMMON_ARGS": f"-o UserKnownHostsFile={lab / 'known_hosts'} -o IdentitiesOnly=yes",
        }

    def types(self, *argv: str) -> Output:
        done = subprocess.run(argv, cwd=self.place, env=self._env, capture_output=True, text=True, timeout=600, check=False)
        return Output(done.returncode, done.stdout + done.stderr)

    def playbook(self, name: str, *, inventory: str = "", **variables: t.Any) -> Output:
        return self.types("ansible-playbook", f"gb10.cluster.{name}", "-i", inventory or self.hosts, "-e", json.dumps(variables))

    def record(self, path: str) -> dict[str, t.Any]:
        record = json.loads((self.home / ".cache" / "gb10" / path).read_text(encoding="utf-8"))
        jsonschema.validate(record, RECORD_SCHEMA)
        return record


@pytest.fixture(scope="module")
def stranger(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    inventory = yaml.safe_load((INVENTORY / "hosts.yml").read_text(encoding="utf-8"))["gb10_cluster"]["children"]
    addresses = tuple(group["hosts"][host]["ansible_host"] for group, host in ((inventory["gb10_head"], HEAD), (inventory["gb10_workers"], WORKER)))
    made = Stranger(tmp_path_factory.mktemp("stranger"), addresses)
    lab.clear()
    assert lab.play(tags="image,model").rc == 0
    for argv in (
        ("ansible-galaxy", "collection", "build", "--output-path", str(made.place), str(ROOT)),
        ("ansible-galaxy", "collection", "install", "--offline", "--no-deps", "-p", str(made.place / "installed"), "gb10-cluster-.tar.gz"),
    ):
        tarball = next(made.place.glob("*.tar.gz"), None)
        done = made.types(*(str(tarball) if word.endswith(".tar.gz") else word for word in argv))
        assert done.rc == 0, done.text
    return made


def address(lab: Lab, host: str, interface: str) -> str:
    shown = json.loads(lab.run(host, "ip", "-json", "-4", "address", "show", interface))
    return shown[0]["addr_info"][0]["local"]


#: Asks the engine until it answers. Ends with 1 if it does not answer for two minutes.
ASK = """
import time, urllib.request
end = time.monotonic() + 120
while True:
    try:
        urllib.request.urlopen("http://127.0.0.1:8000/health", timeout=5)
        break
    except OSError:
        if time.monotonic() > end:
            raise SystemExit(1)
        time.sleep(0.5)
print("ready")
"""


@contextlib.contextmanager
def stack_by_hand(lab: Lab) -> t.Iterator[None]:
    """Run Ray and an engine as people start them by hand: docker run on each node, with one variable that only the worker has."""
    fabric = {host: address(lab, host, "eth1") for host in (HEAD, WORKER)}
    docker = ("docker", "run", "--detach", "--network=host", "--shm-size=1g", "--volume=/home/spark/.cache/huggingface:/root/.cache/huggingface")
    settings = ("RAY_AUTH_MODE=disabled", "OMP_NUM_THREADS=1", "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "GLOO_SOCKET_IFNAME=eth1")
    ray = ("ray", "start", "--block", "--disable-usage-stats", "--object-store-memory=200000000", "--num-cpus=2", "--num-gpus=1")
    engine = ("vllm", "serve", MODEL, "--host=0.0.0.0", "--tensor-parallel-size=2", "--distributed-executor-backend=ray", "--enforce-eager")
    limits = ("--dtype=bfloat16", "--max-model-len=512", "--max-num-seqs=4")
    own = {HEAD: ("--head", "--include-dashboard=false"), WORKER: (f"--address={fabric[HEAD]}:6379",)}
    extra = {HEAD: (), WORKER: (f"{VARIABLE}=INFO",)}
    names = dict(zip((HEAD, WORKER), STARTED))
    try:
        for host in (HEAD, WORKER):
            env = [f"--env={setting}" for setting in (*settings, f"VLLM_HOST_IP={fabric[host]}", *extra[host])]
            lab.run(host, *docker, *env, f"--name={names[host]}", IMAGE, *ray, f"--node-ip-address={fabric[host]}", *own[host])
        lab.run(HEAD, "docker", "exec", "--detach", names[HEAD], *engine, *limits)
        # A busy machine may need several attempts.
        answers = (lab.run(HEAD, "docker", "exec", names[HEAD], "python3", "-c", ASK, check=False) for _try in range(5))
        assert any("ready" in answer for answer in answers), "the engine that was started by hand never answered"
        yield
    finally:
        for host, name in names.items():
            lab.run(host, "docker", "rm", "--force", name, check=False)


def test_the_doctor_finds_a_variable_that_one_rank_has_and_the_other_has_not(lab: Lab, stranger: Stranger) -> None:
    with stack_by_hand(lab):
        output = stranger.playbook("doctor", gb10_pid_namespace="host")
        assert output.rc == 0, output.text
        assert output.changes() == 0
        record = stranger.record("doctor.json")
        findings = {finding["id"]: finding for finding in record["findings"]}
        assert VARIABLE in findings["stack.env_same"]["message"] and "INFO" in findings["stack.env_same"]["message"], output.text
        assert VARIABLE in findings["stack.env_same"]["remedy"]
        assert findings["stack.api_closed"]["verdict"] == "warn"
        assert record["verdict"] in ("block", "unknown")
        assert any("vllm serve" in line for line in record["found"]) and any("rank" in line for line in record["found"])

        # Without sudo it still reports what it can see and what it cannot.
        plain = stranger.playbook("doctor", gb10_become=False)
        assert plain.rc == 0, plain.text
        record = stranger.record("doctor.json")
        assert record["counts"]["unknown"] > 0 and any("vllm serve" in line for line in record["found"])

        # The probe creates no load beside an engine, no matter who started it.
        refused = lab.play("doctor", tags="fabric")
        assert refused.rc != 0 and "serves" in refused.failures, refused.stdout


def test_the_doctor_where_nothing_runs(lab: Lab, stranger: Stranger) -> None:
    output = stranger.playbook("doctor", gb10_pid_namespace="host")
    assert output.rc == 0, output.text
    assert not any(finding["id"].startswith(("stack.", "ray.")) for finding in stranger.record("doctor.json")["findings"])


def test_a_verdict_from_two_host_names_without_editing_a_file(lab: Lab, stranger: Stranger) -> None:
    # The paths of this lab's simulated hardware. Real Sparks need no such variable.
    roots = {"sysfs_root": "/run/gb10-lab/sys", "kernel_log": "/run/gb10-lab/kernel.log"}
    output = stranger.playbook("init", gb10_node_roots=roots)
    assert output.rc == 0, output.text
    written = stranger.place / "gb10-inventory"
    hosts = yaml.safe_load((written / "hosts.yml").read_text(encoding="utf-8"))
    assert address(lab, HEAD, "eth1") in json.dumps(hosts) and address(lab, WORKER, "eth1") in json.dumps(hosts)
    again = stranger.playbook("init", gb10_node_roots=roots)
    assert again.rc == 0 and again.changes() == 0, again.text

    judged = stranger.playbook("doctor", inventory=str(written), gb10_node_roots=roots, gb10_pid_namespace="host")
    record = stranger.record("gb10-preflight.json")
    assert judged.changes() == 0
    # The lab's nodes are not Sparks, so a profile for 128 GB is refused with a message.
    assert record["verdict"] == "block"
    (refused, _other) = [finding for finding in record["findings"] if finding["id"] == "memory.class"]
    assert refused["message"] in re.sub(r"\s+", " ", judged.text)
