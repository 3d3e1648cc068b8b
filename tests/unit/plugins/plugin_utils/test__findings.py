# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the stages judge."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils import _findings, _profile

PROFILE, _PROBLEMS = _profile.validate(
    {
        "schema": 1,
        "id": "small",
        "model": {"repo": "org/small", "revision": "0" * 40},
        "image": {"base": "base:1", "tag": "tag:1"},
        "parallel": {"tensor": 2},
        "memory": {"config": {"num_attention_heads": 4}},
        "requires": {"vllm": ">=0.20,<0.33", "python": ">=3.10"},
    }
)


def stopping(findings):
    return {finding["id"] for finding in findings if finding["verdict"] in ("block", "unknown")}


INFO = {
    "errors": [],
    "docker": {
        "reachable": True,
        "version": "28.2.2",
        "api_version": "1.50",
        "python_docker": "5.0.3",
        "root_dir": "/var/lib/docker",
        "root_free_bytes": 100 * _findings.GIB,
    },
    "devices": {"/dev/infiniband": True},
    "interfaces": [{"name": "enp1s0f0np0", "addresses": ["192.168.100.1"], "carrier": True}],
    "listeners": [],
    "containers": [],
    "disk": {"/models": {"free_bytes": 100 * _findings.GIB}},
    "memory": {"total_mb": 124620},
}
NEEDS = {
    "address": "192.168.100.1",
    "devices": ["/dev/infiniband"],
    "ports": {"gb10_ray_port": 6379},
    "cluster": "gb10",
    "disk_gib": 20,
    "replace_stale": False,
    "api_address": "192.168.100.1",
    "memory_class_gb": 128,
}
ZOMBIES = {"findings": []}
OURS = {"name": "gb10-gb10-head", "cluster": "gb10"}
HELD = {"port": 6379, "address": "0.0.0.0", "pid": 7, "process": "redis-server", "since": "2026-11-20T10:00:00Z", "container": ""}


def test_good_node_passes():
    assert stopping(_findings.preflight(INFO, "spark-1", ZOMBIES, NEEDS)) == set()


@pytest.mark.parametrize(
    ("change", "id", "part"),
    [
        ({"docker": {**INFO["docker"], "reachable": False}, "errors": [{"section": "docker", "error": "no such file"}]}, "docker.reachable", "no such file"),
        ({"docker": {**INFO["docker"], "python_docker": None}}, "docker.sdk", "SDK for Python is missing"),
        ({"devices": {"/dev/infiniband": False}}, "device.present", "/dev/infiniband is missing"),
        ({"interfaces": [{"name": "eth0", "addresses": ["10.0.0.1"], "carrier": True}]}, "fabric.address", "on no interface"),
        ({"interfaces": [{"name": "eth1", "addresses": ["192.168.100.1"], "carrier": False}]}, "fabric.address", "no carrier"),
        ({"listeners": [HELD]}, "port.free", "redis-server (pid 7) since 2026-11-20"),
        ({"interfaces": [], "errors": [{"section": "interfaces", "error": "denied"}]}, "fabric.address", "denied"),
        ({"errors": [{"section": "listeners", "error": "denied"}]}, "port.free", "denied"),
        ({"docker": {**INFO["docker"], "root_free_bytes": 3 * _findings.GIB}}, "disk.free", "3.0 GiB free under /var/lib/docker"),
        ({"disk": {"/models": {"free_bytes": 3 * _findings.GIB}}}, "disk.free", "3.0 GiB free under /models"),
        ({"disk": {"/models": None}}, "disk.free", "could not be read"),
        ({"memory": {"total_mb": 60200}}, "memory.class", "58.8 GiB of memory; the profile is for Sparks of 128 GB"),
        ({"memory": None}, "memory.class", "could not be read"),
        ({"interfaces": [{"name": "eth0", "addresses": ["10.0.0.1"], "carrier": True}]}, "api.address", "192.168.100.1 is on no interface of the head"),
    ],
)
def test_bad_node_blocks(change, id, part):
    findings = [finding for finding in _findings.preflight({**INFO, **change}, "spark-1", ZOMBIES, NEEDS) if finding["id"] == id]
    assert stopping(findings) == {id}
    assert any(part in finding["message"] for finding in findings)
    assert all(finding["remedy"] for finding in findings if finding["verdict"] != "pass")


@pytest.mark.parametrize("address", ["", "0.0.0.0", "::", "127.0.0.1", "192.168.100.1", "fe80::1"])
def test_where_the_api_can_listen(address):
    interfaces = [{"name": "enp1s0f0np0", "addresses": ["192.168.100.1", "fe80::1"], "carrier": True}]
    assert stopping(_findings.preflight({**INFO, "interfaces": interfaces}, "spark-1", ZOMBIES, {**NEEDS, "api_address": address})) == set()


def test_an_api_address_that_is_a_name_blocks():
    assert stopping(_findings.preflight(INFO, "spark-1", ZOMBIES, {**NEEDS, "api_address": "spark-1.lan"})) == {"api.address"}


@pytest.mark.parametrize(("total_mb", "class_gb"), [(124620, 128), (122536, 128), (124620, 64), (60200, 64), (24000, None)])
def test_memory_of_the_profiles_class_or_more_is_enough(total_mb, class_gb):
    info = {**INFO, "memory": {"total_mb": total_mb}}
    assert stopping(_findings.preflight(info, "spark-1", ZOMBIES, {**NEEDS, "memory_class_gb": class_gb})) == set()


@pytest.mark.parametrize(
    ("totals", "ids"),
    [
        ([124620, 124620], set()),
        ([124620, 122536], set()),
        ([124620], set()),
        ([124620, 60200], {"memory.alike"}),
        ([124620, None], {"memory.alike"}),
    ],
)
def test_nodes_have_the_same_memory(totals, ids):
    answers = {f"spark-{number}": {"memory": total and {"total_mb": total}} for number, total in enumerate(totals, 1)}
    findings = _findings.memory_alike(answers)
    assert stopping(findings) == ids
    assert all(found["remedy"] for found in findings if found["verdict"] != "pass")


def test_a_port_held_by_our_own_container_is_ours():
    info = {**INFO, "containers": [OURS], "listeners": [{**HELD, "container": "gb10-gb10-head"}]}
    assert stopping(_findings.preflight(info, "spark-1", ZOMBIES, NEEDS)) == set()


STALE = {**HELD, "process": "gcs_server", "container": "node-1731"}


@pytest.mark.parametrize(
    ("listeners", "replace_stale", "verdict", "part"),
    [
        ([STALE], False, "block", "gb10_replace_stale=true"),
        ([STALE], True, "warn", "stage ray will stop and remove it"),
        ([STALE, HELD], True, "block", "choose another port"),
        ([{**STALE, "container": ""}], True, "block", "choose another port"),
    ],
)
def test_another_runs_ray_head_goes_only_with_consent(listeners, replace_stale, verdict, part):
    findings = _findings.preflight({**INFO, "listeners": listeners}, "spark-1", ZOMBIES, {**NEEDS, "replace_stale": replace_stale})
    (port,) = [finding for finding in findings if finding["id"] == "port.free"]
    assert port["verdict"] == verdict
    assert part in port["remedy"]


def contract(**changes):
    answer = {
        "exists": True,
        "image_id": "sha256:1",
        "labels": {"io.gb10.base": "sha256:b", "io.gb10.recipe": "r"},
        "contract": {"python": "3.12.3", "versions": {"vllm": "0.32.0+cpu", "ray": "2.60.0"}, "programs": {"ray": "/usr/bin/ray"}, "packages_digest": "d"},
    }
    for path, value in changes.items():
        target = answer
        *parents, last = path.split("__")
        for parent in parents:
            target = target[parent]
        target[last] = value
    return answer


def test_equal_images_pass():
    assert stopping(_findings.images({"spark-1": contract(), "spark-2": contract(image_id="sha256:2")}, PROFILE)) == set()


@pytest.mark.parametrize(
    ("change", "id"),
    [
        ({"exists": False}, "image.present"),
        ({"contract__programs": {}}, "image.ray"),
        ({"contract__versions": {"vllm": "0.33.0", "ray": "2.60.0"}}, "image.requires"),
        ({"contract__versions": {"ray": "2.60.0"}}, "image.requires"),
        ({"contract__versions": {"vllm": "rubbish!", "ray": "2.60.0"}}, "image.requires"),
        ({"contract__versions": {"vllm": "0.32.0", "ray": "2.55.1"}}, "image.same"),
        ({"contract__python": "3.12.4"}, "image.same"),
        ({"contract__packages_digest": "e"}, "image.same"),
        ({"labels": {"io.gb10.base": "sha256:b", "io.gb10.recipe": "s"}}, "image.same"),
    ],
)
def test_bad_images_block(change, id):
    assert id in stopping(_findings.images({"spark-1": contract(), "spark-2": contract(**change)}, PROFILE))


def ray(*nodes):
    return {"nodes": [{"address": address, "alive": alive, "gpus": gpus} for address, alive, gpus in nodes]}


ADDRESSES = {"spark-1": "192.168.100.1", "spark-2": "192.168.100.2"}


@pytest.mark.parametrize(
    ("answer", "ids"),
    [
        (ray(("192.168.100.1", True, 1), ("192.168.100.2", True, 1)), set()),
        (ray(("192.168.100.1", True, 1), ("192.168.100.2", False, 1), ("192.168.100.2", True, 1)), set()),
        (ray(("192.168.100.1", True, 1)), {"ray.node"}),
        (ray(("192.168.100.1", True, 1), ("192.168.100.2", False, 1)), {"ray.node"}),
        (ray(("192.168.100.1", True, 1), ("192.168.100.2", True, 0)), {"ray.node"}),
        (ray(("192.168.100.1", True, 1), ("192.168.100.2", True, 1), ("192.168.100.9", True, 1)), {"ray.stranger"}),
    ],
)
def test_gate(answer, ids):
    assert stopping(_findings.gate(answer, ADDRESSES, 1)) == ids


def rank_answer(**changes):
    answer = {
        "ranks": [{"pid": 10, "env": {"A": "1", "B": "x"}, "present": []}],
        "container": {"devices": ["/dev/infiniband"], "capabilities": ["IPC_LOCK"], "memlock_bytes": -1},
    }
    return {**answer, **changes}


PROOF_NEEDS = {
    "stage": "ray", "head": "spark-1", "ranks": 2, "secrets": ["VLLM_API_KEY"], "api_secrets": [], "devices": ["/dev/infiniband"],
    "capabilities": ["IPC_LOCK"], "memlock": -1,
}  # fmt: skip
EXPECTED = {"spark-1": {"A": "1", "B": "x"}, "spark-2": {"A": "1", "B": "x"}}


def judged(change=None, completion=None):
    ranks = {"spark-1": rank_answer(), "spark-2": rank_answer(**(change or {}))}
    return stopping(_findings.proof(ranks, completion or {"tokens": 8, "seconds": 0.4}, EXPECTED, PROOF_NEEDS))


def test_proof_holds():
    assert judged() == set()


@pytest.mark.parametrize(
    ("change", "id"),
    [
        ({"ranks": []}, "proof.rank_hosts"),
        ({"ranks": [rank_answer()["ranks"][0]] * 2}, "proof.rank_hosts"),
        ({"ranks": [{"pid": 10, "env": {"A": "1"}, "present": []}]}, "proof.env"),
        ({"ranks": [{"pid": 10, "env": {"A": "1", "B": "stale"}, "present": []}]}, "proof.env"),
        ({"ranks": [{"pid": 10, "env": {"A": "1", "B": "x"}, "present": ["VLLM_API_KEY"]}]}, "proof.secrets"),
        ({"container": {"devices": [], "capabilities": ["IPC_LOCK"], "memlock_bytes": -1}}, "proof.device"),
        ({"container": {"devices": ["/dev/infiniband"], "capabilities": [], "memlock_bytes": -1}}, "proof.capability"),
        ({"container": {"devices": ["/dev/infiniband"], "capabilities": ["IPC_LOCK"], "memlock_bytes": 65536}}, "proof.memlock"),
    ],
)
def test_proof_fails(change, id):
    assert judged(change) == {id}


def test_no_token_is_no_proof():
    assert judged(completion={"error": "HTTP 500"}) == {"proof.completion"}


@pytest.mark.parametrize(
    ("holder", "present", "ids"),
    [
        ("spark-1", ["VLLM_API_KEY"], set()),
        ("spark-1", ["HF_TOKEN"], {"proof.secrets"}),
        ("spark-2", ["VLLM_API_KEY"], {"proof.secrets"}),
    ],
)
def test_without_ray_the_heads_rank_has_what_its_api_has_and_nothing_else(holder, present, ids):
    ranks = {node: rank_answer(ranks=[{"pid": 10, "env": EXPECTED[node], "present": present if node == holder else []}]) for node in EXPECTED}
    needs = {**PROOF_NEEDS, "stage": "native", "secrets": ["VLLM_API_KEY", "HF_TOKEN"], "api_secrets": ["VLLM_API_KEY"]}
    assert stopping(_findings.proof(ranks, {"tokens": 8, "seconds": 0.4}, EXPECTED, needs)) == ids


@pytest.mark.parametrize(("stage", "words"), [("ray", "tear down"), ("native", "--tags serve, which starts all of them again")])
def test_a_missing_rank_has_the_remedy_of_its_executor(stage, words):
    ranks = {"spark-1": rank_answer(), "spark-2": rank_answer(ranks=[])}
    found = _findings.proof(ranks, {"tokens": 8, "seconds": 0.4}, EXPECTED, {**PROOF_NEEDS, "stage": stage})
    assert [words in finding["remedy"] for finding in found if finding["id"] == "proof.rank_hosts"] == [True]


MEMORY = {"findings": [{"id": "memory.back", "node": "the-machine", "verdict": "warn", "message": "900 MiB have not come back", "remedy": "look"}]}


def test_teardown():
    assert stopping(_findings.teardown(INFO, "spark-1", "gb10", MEMORY)) == set()
    assert stopping(_findings.teardown({**INFO, "containers": [OURS]}, "spark-1", "gb10", MEMORY)) == {"teardown.containers"}
    assert stopping(_findings.teardown({**INFO, "errors": [{"section": "docker", "error": "refused"}]}, "spark-1", "gb10", MEMORY)) == {"teardown.seen"}


def test_teardown_tells_of_memory_under_the_inventorys_name():
    assert [(found["node"], found["verdict"]) for found in _findings.teardown(INFO, "spark-1", "gb10", MEMORY) if found["id"] == "memory.back"] == [
        ("spark-1", "warn")
    ]


def test_teardown_names_who_holds_a_port():
    found = {finding["id"]: finding for finding in _findings.teardown({**INFO, "listeners": [HELD]}, "spark-1", "gb10", MEMORY)}
    assert found["teardown.ports"]["verdict"] == "warn"
    assert "redis-server" in found["teardown.ports"]["message"]


def test_stage_seconds_skip_what_did_not_run():
    assert _findings.stage_seconds({"image": 10.0, "model": None, "ray": 30.5, "report": 42}) == {"image": 20.5, "ray": 11.5}
    assert _findings.stage_seconds({"report": 1.0}) == {}


def test_failure_lines_tell_causes_and_remedies():
    failed = {
        "spark-1": {"msg": "ended because spark-2 failed: boom"},
        "spark-2": {"msg": "boom", "remedy": "look"},
        "spark-3": {},
        "spark-4": {"msg": "bang", "remedy": ""},
    }
    assert _findings.failure_lines(failed) == ["spark-2: boom Remedy: look", "spark-4: bang"]
    assert _findings.failure_lines({"spark-1": failed["spark-1"]}) == ["spark-1: ended because spark-2 failed: boom"]
