# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the live engine proves."""

from __future__ import annotations

import pytest
from stage_answers import COMPAT, OWN, stopping

from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import form
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import tuning
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import proof


def a_rank(env=None, present=(), source="live", halted=False, **environ):
    every = {"A": "1", "B": "x", "HOSTNAME": "spark-9", **environ}
    live = {"env": env or {"A": "1", "B": "x"}, "environ": every, "present": list(present), "source": source}
    return {"pid": 10, **live, "halted": halted, "libcuda": [COMPAT]}


AS_IT_SHOULD = {"hub_tokens": [], "hub_alone": True, "entrypoint_bypassed": False, "libcuda": [COMPAT]}


def rank_answer(**changes):
    answer = {
        "ranks": [a_rank()],
        "container": {"devices": ["/dev/infiniband"], "capabilities": ["IPC_LOCK"], "memlock_bytes": -1, **AS_IT_SHOULD},
    }
    return {**answer, **changes}


PROOF_NEEDS = {
    "stage": "ray", "head": "spark-1", "ranks": 2, "secrets": ["VLLM_API_KEY"], "api_secrets": [], "devices": ["/dev/infiniband"],
    "capabilities": ["IPC_LOCK"], "memlock": -1, "checks": list(form.PROOFS), "gpus": True, "own_names": ["HOSTNAME", "RAY_*", "OWN"],
}  # fmt: skip
EXPECTED = {"spark-1": {"A": "1", "B": "x"}, "spark-2": {"A": "1", "B": "x"}}


def judged(change=None, completion=None):
    ranks = {"spark-1": rank_answer(), "spark-2": rank_answer(**(change or {}))}
    return stopping(proof.findings_of(ranks, completion or {"tokens": 8, "seconds": 0.4}, EXPECTED, PROOF_NEEDS))


def test_proof_holds():
    assert judged() == set()


@pytest.mark.parametrize(
    ("change", "id"),
    [
        ({"ranks": []}, "proof.rank_hosts"),
        ({"ranks": [rank_answer()["ranks"][0]] * 2}, "proof.rank_hosts"),
        ({"ranks": [a_rank({"A": "1"})]}, "proof.env"),
        ({"ranks": [a_rank(halted=True)]}, "proof.halted"),
        ({"ranks": [a_rank({"A": "1", "B": "stale"})]}, "proof.env"),
        ({"ranks": [a_rank(present=["VLLM_API_KEY"])]}, "proof.secrets"),
        ({"container": {"devices": [], "capabilities": ["IPC_LOCK"], "memlock_bytes": -1, **AS_IT_SHOULD}}, "proof.device"),
        ({"container": {"devices": ["/dev/infiniband"], "capabilities": [], "memlock_bytes": -1, **AS_IT_SHOULD}}, "proof.capability"),
        ({"container": {"devices": ["/dev/infiniband"], "capabilities": ["IPC_LOCK"], "memlock_bytes": 65536, **AS_IT_SHOULD}}, "proof.memlock"),
    ],
)
def test_proof_fails(change, id):
    assert judged(change) == {id}


def test_a_container_without_the_image_s_entrypoint_is_a_warning():
    rights = {**rank_answer()["container"], "entrypoint_bypassed": True}
    ranks = {"spark-1": rank_answer(), "spark-2": rank_answer(container=rights)}
    (finding,) = [finding for finding in proof.findings_of(ranks, {"tokens": 8, "seconds": 0.4}, EXPECTED, PROOF_NEEDS) if finding["verdict"] != "pass"]
    assert (finding["id"], finding["node"], finding["verdict"]) == ("proof.entrypoint", "spark-2", "warn") and "gb10_allow=restart" in finding["remedy"]


@pytest.mark.parametrize(
    ("held", "belongs", "bypassed", "verdict"),
    [
        ([COMPAT], [COMPAT], False, "pass"),
        ([OWN], [OWN], False, "pass"),
        ([OWN], [COMPAT], False, "block"),
        ([], [COMPAT], False, "block"),
        # A container of an older version, created without the entrypoint, needs a restart.
        ([OWN], [COMPAT], True, "warn"),
        ([OWN], None, False, "warn"),
    ],
)
def test_a_rank_holds_the_libcuda_that_its_image_was_proven_to_give(held, belongs, bypassed, verdict):
    answer = rank_answer(ranks=[{**a_rank(), "libcuda": held}], container={**rank_answer()["container"], "libcuda": belongs, "entrypoint_bypassed": bypassed})
    ranks = {"spark-1": rank_answer(), "spark-2": answer}
    by_node = {finding["node"]: finding for finding in proof.findings_of(ranks, {"tokens": 8}, EXPECTED, PROOF_NEEDS) if finding["id"] == "proof.libcuda"}
    assert (by_node["spark-1"]["verdict"], by_node["spark-2"]["verdict"]) == ("pass", verdict)
    assert ("unsupported toolchain" in by_node["spark-2"]["message"]) is (bool(belongs) and verdict != "pass")
    assert bool(by_node["spark-2"]["remedy"]) is (verdict != "pass")
    without = proof.findings_of(ranks, {"tokens": 8}, EXPECTED, {**PROOF_NEEDS, "gpus": False})
    assert "proof.libcuda" not in {finding["id"] for finding in without}


def test_without_a_token_there_is_no_proof():
    assert judged(completion={"error": "HTTP 500"}) == {"proof.completion"}


@pytest.mark.parametrize(("alone", "verdict"), [(True, "block"), (False, "warn")])
def test_a_token_of_the_hub_is_found(alone, verdict):
    """A container of an older version mounts the whole cache and needs a restart."""
    seen = {**rank_answer()["container"], "hub_tokens": ["/root/.cache/huggingface/token"], "hub_alone": alone}
    finding = proof._hub_token("spark-2", seen, {"stage": "ray"})
    assert (finding["id"], finding["verdict"]) == ("proof.hub_token", verdict) and "/root/.cache/huggingface/token" in finding["message"]
    assert proof._hub_token("spark-2", {**seen, "hub_tokens": []}, {"stage": "ray"})["verdict"] == "pass"


@pytest.mark.parametrize(("present", "secrets"), [((), "unknown"), (("VLLM_API_KEY",), "block")])
def test_the_environment_of_a_start_proves_nothing_but_a_leak(present, secrets):
    ranks = {"spark-1": rank_answer(), "spark-2": rank_answer(ranks=[a_rank(present=present, source="exec")])}
    findings = proof.findings_of(ranks, {"tokens": 8, "seconds": 0.4}, EXPECTED, PROOF_NEEDS)
    bad = [(finding["id"], finding["node"], finding["verdict"]) for finding in findings if finding["verdict"] != "pass"]
    assert bad == [("proof.env", "spark-2", "unknown"), ("proof.secrets", "spark-2", secrets), ("proof.env_same", "cluster", "unknown")]


@pytest.mark.parametrize(("have", "verdict"), [("<secret>", "pass"), (None, "block")])
def test_a_secret_that_is_forwarded_is_compared_and_shown_by_its_name_alone(have, verdict):
    """A node never reports the value of a secret, so the value in the inventory is not compared."""
    rank = a_rank({"WANDB_API_KEY": have} if have else {})
    (finding, _leaks) = proof._rank_env("spark-2", [rank], {"WANDB_API_KEY": "4f1c9a77d02b"}, PROOF_NEEDS)
    assert (finding["id"], finding["verdict"]) == ("proof.env", verdict)
    assert "4f1c9a77d02b" not in str(finding)


def env_same(head, worker):
    """Return the findings for two live ranks with these extra variables; their forwarded variables are correct."""
    ranks = {"spark-1": rank_answer(ranks=[a_rank(**head)]), "spark-2": rank_answer(ranks=[a_rank(**worker)])}
    findings = proof.findings_of(ranks, {"tokens": 8, "seconds": 0.4}, EXPECTED, PROOF_NEEDS)
    assert stopping(findings) <= {"proof.env_same"}
    return [(finding["verdict"], finding["message"]) for finding in findings if finding["id"] == "proof.env_same"]


@pytest.mark.parametrize(
    ("head", "worker", "message"),
    [
        ({}, {"LMCACHE_STALE": "22"}, "LMCACHE_STALE differs between the live ranks: spark-1 (not set), spark-2 22."),
        ({"UCX_LOG_LEVEL": "warn"}, {}, "UCX_LOG_LEVEL differs between the live ranks: spark-1 warn, spark-2 (not set)."),
        ({"PYTHONPATH": "/x"}, {}, "PYTHONPATH differs between the live ranks: spark-1 /x, spark-2 (not set)."),
        ({"HOME": "/root"}, {"HOME": ""}, "HOME differs between the live ranks: spark-1 /root, spark-2 ."),
        (
            {"WANDB_API_KEY": "<secret 0123456789abcdef>"},
            {"WANDB_API_KEY": "<secret fedcba9876543210>"},
            "WANDB_API_KEY differs between the live ranks: spark-1 <secret>, spark-2 <secret>.",
        ),
    ],
    ids=["stale on the worker", "missing on the worker", "Python's path", "another value", "another secret"],
)
def test_a_variable_that_no_inventory_names_must_be_the_same_on_both(head, worker, message):
    assert env_same(head, worker) == [("block", message)]


@pytest.mark.parametrize(
    ("head", "worker"),
    [
        ({"HOSTNAME": "spark-1"}, {"HOSTNAME": "spark-2"}),
        ({"RAY_RAYLET_PID": "100"}, {}),
        ({"OWN": "eth1"}, {"OWN": "=eth1"}),
        ({"PYTHONPATH": "/x:/opt/gb10/launch/guard"}, {"PYTHONPATH": "/x"}),
        ({"PYTHONPATH": "/opt/gb10/launch/guard"}, {}),
        ({"WANDB_API_KEY": "<secret 0123456789abcdef>"}, {"WANDB_API_KEY": "<secret 0123456789abcdef>"}),
    ],
    ids=["a host's name", "one of a pattern", "the inventory's own", "the API's guard beside another", "the API's guard alone", "the same secret"],
)
def test_what_belongs_to_a_host_or_a_process_may_differ(head, worker):
    assert env_same(head, worker) == [("pass", env_same(head, worker)[0][1])]


@pytest.mark.parametrize(
    ("holder", "present", "ids"),
    [
        ("spark-1", ["VLLM_API_KEY"], set()),
        ("spark-1", ["HF_TOKEN"], {"proof.secrets"}),
        ("spark-2", ["VLLM_API_KEY"], {"proof.secrets"}),
    ],
)
def test_without_ray_the_heads_rank_has_what_its_api_has_and_nothing_else(holder, present, ids):
    ranks = {node: rank_answer(ranks=[a_rank(EXPECTED[node], present if node == holder else [])]) for node in EXPECTED}
    needs = {**PROOF_NEEDS, "stage": "native", "secrets": ["VLLM_API_KEY", "HF_TOKEN"], "api_secrets": ["VLLM_API_KEY"]}
    assert stopping(proof.findings_of(ranks, {"tokens": 8, "seconds": 0.4}, EXPECTED, needs)) == ids


def test_a_profile_may_ask_for_less_proof_but_secrets_are_looked_for_in_any_case():
    findings = proof.findings_of({"spark-1": rank_answer(), "spark-2": rank_answer()}, {}, EXPECTED, {**PROOF_NEEDS, "checks": ["rank_hosts"]})
    assert {finding["id"] for finding in findings} == {"proof.rank_hosts", "proof.halted", "proof.secrets", "proof.hub_token"}
    every = proof.findings_of({"spark-1": rank_answer(), "spark-2": rank_answer()}, {}, EXPECTED, PROOF_NEEDS)
    assert {finding["id"] for finding in every} == {"proof.secrets", "proof.hub_token", *proof.PROOF_OF}
    # The path of the traffic is judged from two samples: see test_fabric_traffic.py.
    assert {*proof.PROOF_OF.values(), "fabric"} == set(form.PROOFS)


@pytest.mark.parametrize(("stage", "words"), [("ray", "tear down"), ("native", "--tags serve, which starts all of them again")])
def test_a_missing_rank_has_the_remedy_of_its_executor(stage, words):
    ranks = {"spark-1": rank_answer(), "spark-2": rank_answer(ranks=[])}
    findings = proof.findings_of(ranks, {"tokens": 8, "seconds": 0.4}, EXPECTED, {**PROOF_NEEDS, "stage": stage})
    assert [words in finding["remedy"] for finding in findings if finding["id"] == "proof.rank_hosts"] == [True]


ROUTES = {"listed": True, "asked": 41, "left_out": ["POST /sleep"], "open": [], "unknown": []}


@pytest.mark.parametrize(
    ("routes", "guarded", "verdict", "words"),
    [
        ({}, True, "pass", "41 routes asked without the API's key, none answers."),
        ({"listed": False}, True, "pass", "does not list its own"),
        ({"open": ["GET /metrics"]}, True, "block", "1 answer: GET /metrics."),
        ({"open": ["GET /metrics"]}, False, "warn", "started before the collection guarded them"),
        ({"open": [f"GET /{number}" for number in range(9)]}, True, "block", "GET /4 and 4 more"),
        ({"unknown": ["GET /metrics: no answer within 5 s"]}, True, "unknown", "1 do not answer"),
        # An open route blocks even if another route did not answer.
        ({"open": ["GET /load"], "unknown": ["GET /metrics: no answer within 5 s"]}, True, "block", "GET /load"),
    ],
)
def test_routes_that_answer_without_the_key(routes, guarded, verdict, words):
    (finding,) = proof.auth("spark-1", {**ROUTES, **routes}, guarded)
    assert (finding["id"], finding["node"], finding["verdict"]) == ("proof.auth", "spark-1", verdict) and words in finding["message"]
    assert bool(finding["remedy"]) is (verdict != "pass")


def test_routes_that_were_not_checked_are_unknown():
    (finding,) = proof.auth("spark-1", None, True)
    assert finding["verdict"] == "unknown"


@pytest.mark.parametrize(
    ("have", "holds"), [("/x", True), ("/x:/opt/gb10/launch/guard", True), ("/xy", False), ("/opt/gb10/launch/guard", False), (None, False)]
)
def test_the_launcher_may_add_to_pythons_path(have, holds):
    ranks = {"spark-1": rank_answer(ranks=[a_rank({"PYTHONPATH": have} if have else {})]), "spark-2": rank_answer(ranks=[a_rank({"PYTHONPATH": "/x"})])}
    findings = proof.findings_of(ranks, {"tokens": 8, "seconds": 0.4}, dict.fromkeys(ranks, {"PYTHONPATH": "/x"}), PROOF_NEEDS)
    assert stopping(findings) == (set() if holds else {"proof.env"})


#: Variables that differed between the two live ranks in the lab, with Ray 2.60 and vLLM 0.32 and without Ray; the values are as recorded.
SEEN_TO_DIFFER = {
    "ray": {
        "HOSTNAME": ("spark-1", "spark-2"),
        "RAY_JOB_ID": ("ffffffff", "01000000"),
        "RAY_RAYLET_PID": ("100", "44"),
        "VLLM_HOST_IP": ("10.77.1.11", "10.77.1.12"),
        "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME": ("vllm_mm_1dOF-lQfRiKjRJkCDJx3Tw", "vllm_mm_rd4p7q9gQcixV2cH4Y9sWA"),
    },
    "native": {
        "GB10_RUN_ID": ("/opt/gb10/run:20261122T231433Z-a040", "/opt/gb10/run:20261122T231431Z-ac2a"),
        "HOSTNAME": ("spark-1", "spark-2"),
        "PYTHONPATH": ("/opt/gb10/launch/guard", None),
        "VLLM_API_KEY": ("<secret 770caab4953a3dda>", None),
        "VLLM_DIST_IDENT": ("vllm_dist_a9f749b966614a5ab19b8c0a11e9f4be", "vllm_dist_95413e8988014077b5560dab81b3a1ef"),
        "VLLM_HOST_IP": ("10.77.1.11", "10.77.1.12"),
        "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME": ("vllm_mm_m-jmmISJQye8s4lELt18Yg", "vllm_mm_P28I8_-ORja2vTaDJ_oh1g"),
        "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR": ("140150497688608", "140581971270688"),
    },
}


@pytest.mark.parametrize("executor", SEEN_TO_DIFFER)
def test_what_differs_between_healthy_ranks_is_in_the_table(executor):
    limits = tuning.limits_of("stack.env_same", ())
    needs = {**PROOF_NEEDS, "own_names": [*limits["per_host"], *limits["per_process"]]}
    seen = [{name: values[node] for name, values in SEEN_TO_DIFFER[executor].items() if values[node] is not None} for node in (0, 1)]
    ranks = {f"spark-{number}": rank_answer(ranks=[a_rank(**environ)]) for number, environ in enumerate(seen, 1)}
    assert stopping(proof.findings_of(ranks, {"tokens": 8, "seconds": 0.4}, EXPECTED, needs)) == set()
