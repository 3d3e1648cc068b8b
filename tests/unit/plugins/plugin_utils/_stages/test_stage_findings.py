# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the stages judge."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import profiles
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import stage_findings

PROFILE, _PROBLEMS = profiles.validate(
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


COMPAT, OWN = "/usr/local/cuda/compat/lib.real/libcuda.so.595.45.04", "/usr/lib/aarch64-linux-gnu/libcuda.so.580.159.03"


def reached(**changes):
    """NGC 26.05 on driver 580: its entrypoint switches on the libcuda that it brings (26.03's banner is recorded)."""
    answer = {"error": "", "why": "", "remedy": "", "driver": "580.159.03", "gpus": 1, "cuda": "13.2", "libcuda": [COMPAT], "image_cuda": "13.2"}
    return {**answer, **changes}


def contract(**changes):
    answer = {
        "exists": True,
        "image_id": "sha256:1",
        "labels": {"io.gb10.base": "sha256:b", "io.gb10.recipe": "r"},
        "base": {"image_id": "sha256:b", "recipe": "r", "lock": [], "ray_wanted": None},
        "contract": {
            "python": "3.12.3",
            "versions": {"vllm": "0.32.0+cpu", "ray": "2.60.0"},
            "programs": {"ray": "/usr/bin/ray"},
            "packages_digest": "d",
            "entrypoint": {"argv": ["/opt/nvidia/nvidia_entrypoint.sh"], "kind": "wrapper"},
        },
        "gpu": reached(),
    }
    for path, value in changes.items():
        target = answer
        *parents, last = path.split("__")
        for parent in parents:
            target = target[parent]
        target[last] = value
    return answer


@pytest.mark.parametrize(("copy", "verdict"), [("required", "block"), ("preferred", "warn"), ("never", None)])
def test_images_of_other_ids(copy, verdict):
    """Each node may have built its own where nothing is copied, or where it could not be."""
    found = stage_findings.images({"spark-1": contract(), "spark-2": contract(image_id="sha256:2")}, PROFILE, copy)
    ids = {one["node"]: one["verdict"] for one in found if one["id"] == "image.id"}
    assert ids == ({"spark-2": verdict} if verdict else {})
    live = stage_findings.images({"spark-1": contract(), "spark-2": contract(image_id="sha256:2")}, PROFILE, copy, live=True)
    assert [one["verdict"] for one in live if one["id"] == "image.id"] == (["warn"] if verdict else [])
    same = stage_findings.images({"spark-1": contract(), "spark-2": contract()}, PROFILE, copy)
    assert [one["verdict"] for one in same if one["id"] == "image.id"] == (["pass"] if verdict else [])


def test_equal_images_pass():
    assert stopping(stage_findings.images({"spark-1": contract(), "spark-2": contract(image_id="sha256:2")}, PROFILE)) == set()


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
        ({"contract__entrypoint": {"argv": ["/srv/server"], "kind": "unknown"}}, "image.entrypoint"),
        ({"gpu": reached(error="Failed to initialize NVML: Unknown Error")}, "image.gpu"),
        ({"gpu": reached(gpus=0)}, "image.gpu"),
        ({"gpu": reached(cuda="12.9", libcuda=[OWN])}, "image.cuda"),
        ({"image_id": "sha256:2", "labels": {}}, "image.same"),
        ({"labels": {"io.gb10.base": "sha256:b", "io.gb10.recipe": "s"}}, "image.same"),
    ],
)
def test_bad_images_block(change, id):
    assert id in stopping(stage_findings.images({"spark-1": contract(), "spark-2": contract(**change)}, PROFILE))


FULL = {
    "packages": ["torch==2.9.0", "vllm==0.32.0"],
    "image_env": ["PATH"],
    "engine_error": "",
    "engine": {
        "flags": {"--dtype": {"default": "auto", "choices": ["auto", "half"]}},
        "env": ["VLLM_HOST_IP"],
        "executor": {"default": None, "ray_v2": True},
        "parsers": {"reasoning": ["qwen3"], "tool": ["hermes"]},
    },
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "the image holds and takes what that of spark-1 does."),
        ({"engine_error": "no answer"}, "the image holds and takes what that of spark-1 does."),
        (
            {"packages": ["torch==2.9.1"]},
            "2 field(s) differ: packages.torch is 2.9.1 here and 2.9.0 on spark-1; packages.vllm is absent here and 0.32.0 on spark-1.",
        ),
        ({"engine": {**FULL["engine"], "env": []}}, "1 field(s) differ: engine.env.VLLM_HOST_IP is absent here and True on spark-1."),
        (
            {"engine": {**FULL["engine"], "flags": {"--dtype": {"default": "half", "choices": ["auto", "half"]}}}},
            "1 field(s) differ: engine.flags.--dtype.default is half here and auto on spark-1.",
        ),
        (
            {"engine": {**FULL["engine"], "executor": {"default": "mp", "ray_v2": False}}},
            "2 field(s) differ: engine.executor.default is mp here and None on spark-1; engine.executor.ray_v2 is False here and True on spark-1.",
        ),
        ({"python": "3.12.4"}, "1 field(s) differ: python is 3.12.4 here and 3.12.3 on spark-1."),
    ],
)
def test_contracts_are_compared_field_by_field(change, message):
    first, second = contract(), contract()
    first["contract"] |= FULL
    second["contract"] |= {**FULL, **change}
    (found,) = (one for one in stage_findings.images({"spark-1": first, "spark-2": second}, PROFILE) if one["id"] == "image.contract")
    assert (found["node"], found["message"], found["verdict"]) == ("spark-2", message, "block" if "differ" in message else "pass")


def resolved(arguments, env=(), profile=None, nodes=2, **changes):
    answer = contract(**changes)
    answer["contract"] = {**FULL, **answer["contract"]} if answer["exists"] else None
    changed, found = stage_findings.resolved(answer, profile or PROFILE, arguments, dict(env), "ray", nodes)
    return changed, [(one["id"], one["verdict"]) for one in found]


def test_what_the_engine_takes_is_not_changed():
    assert resolved({"dtype": "half"}, {"VLLM_HOST_IP": "x"}) == ({"without": [], "arguments": {}, "env": {}}, [])


def test_changes_are_names_and_new_values():
    changed, found = resolved({"attention_backend": "A"}, {"VLLM_RPC_TIMEOUT": "9"}, contract__engine=None, contract__versions={"vllm": "0.12.0"})
    assert changed == {"without": ["attention_backend"], "arguments": {}, "env": {"VLLM_ATTENTION_BACKEND": "A"}}
    assert found == [("engine.answers", "warn"), ("engine.flags", "pass")]
    changed, found = resolved({}, {"VLLM_RPC_TIMEOUT": "9"})
    assert changed["without"] == ["VLLM_RPC_TIMEOUT"] and found == [("engine.flags", "warn")]


@pytest.mark.parametrize(
    ("arguments", "changes", "finding"),
    [
        ({"swap_space": 4}, {}, ("engine.flags", "block")),
        ({}, {"exists": False}, ("engine.answers", "unknown")),
        ({}, {"contract__versions": {"vllm": None}}, ("engine.answers", "block")),
        ({}, {"contract__versions": {"vllm": "rubbish!"}}, ("engine.answers", "unknown")),
    ],
)
def test_an_engine_that_cannot_be_given_what_is_wanted_stops(arguments, changes, finding):
    assert resolved(arguments, **changes)[1] == [finding]


def test_a_variable_that_the_profile_declares_is_known():
    assert resolved({}, {"VLLM_MINE": "1"})[1] == [("engine.flags", "block")]
    declaring = {**PROFILE, "env": {**PROFILE["env"], "declared": ["VLLM_MINE"]}}
    assert resolved({}, {"VLLM_MINE": "1"}, declaring)[1] == [] == resolved({}, {"VLLM_MINE": "1"}, contract__image_env=["VLLM_MINE"])[1]


@pytest.mark.parametrize(
    ("gpu", "verdict", "words"),
    [
        (reached(), "pass", "knows 13.2"),
        (reached(image_cuda="13.0", cuda="13.0", libcuda=[OWN]), "pass", "knows 13.0"),
        (reached(image_cuda="12.9", cuda="13.0", libcuda=[OWN]), "pass", "knows 13.0"),
        # The entrypoint does not switch its libcuda on, or the image brings none: what a Spark reported of 26.08 started around its entrypoint.
        (reached(cuda="13.0", libcuda=[OWN]), "warn", "the provided PTX was compiled with an unsupported toolchain"),
        (reached(image_cuda="13.10", cuda="13.9"), "warn", "unsupported toolchain"),
        (reached(image_cuda="14.0"), "block", "nothing of it runs"),
        (reached(image_cuda=""), "warn", "neither CUDA_VERSION nor PyTorch"),
    ],
)
def test_the_cuda_of_the_image_against_the_libcuda_that_a_container_gets(gpu, verdict, words):
    (found,) = [one for one in stage_findings.images({"spark-1": contract(gpu=gpu)}, PROFILE) if one["id"] == "image.cuda"]
    assert (found["verdict"], found["node"]) == (verdict, "spark-1") and words in found["message"]
    assert bool(found["remedy"]) is (verdict != "pass")


def test_a_gpu_that_nobody_asked_for_is_not_judged():
    found = {one["id"] for one in stage_findings.images({"spark-1": contract(gpu=None)}, PROFILE)}
    assert not found & {"image.gpu", "image.cuda"} and "image.entrypoint" in found


def test_what_keeps_a_container_from_the_gpu_is_said_with_its_remedy():
    lost = reached(error="Failed to initialize NVML: Unknown Error", why="the container may not use the devices", remedy="sudo nvidia-ctk cdi generate")
    (found,) = [one for one in stage_findings.images({"spark-1": contract(gpu=lost)}, PROFILE) if one["id"] == "image.gpu"]
    assert all(words in found["message"] for words in ("Unknown Error", "may not use", "current platform None does not support ray"))
    assert found["remedy"] == "sudo nvidia-ctk cdi generate"
    (odd,) = [one for one in stage_findings.images({"spark-1": contract(gpu=reached(error="odd"))}, PROFILE) if one["id"] == "image.gpu"]
    assert "odd" in odd["message"] and "docker run" in odd["remedy"]


def ray(*nodes):
    listed = [{"address": address, "alive": alive, "gpus": gpus} for address, alive, gpus in nodes]
    return {"ray_error": "", "ray_version": "2.60.0", "ray_without_token": "refused", "nodes": listed}


def model(revision, complete=True):
    findings = [{"id": "model.complete", "node": "the-machine", "verdict": "pass", "message": ""}]
    row = {"repo": PROFILE["model"]["repo"], "revision": revision, "complete": complete, "size_bytes": 10}
    return {**row, "findings": findings, "repositories": [row]}


@pytest.mark.parametrize(
    ("second", "ids"),
    [(model("a" * 40), set()), (model("b" * 40), {"model.same"}), (model("b" * 40, complete=False), set())],
)
def test_all_nodes_load_one_revision(second, ids):
    assert stopping(stage_findings.models({"spark-1": model("a" * 40), "spark-2": second}, PROFILE)) == ids


@pytest.mark.parametrize(("listing", "ids"), [("1" * 64, set()), ("2" * 64, {"model.same"})])
def test_a_plain_directory_holds_the_same_on_all_nodes(listing, ids):
    """Names and sizes of its files stand for the commit that it has not."""
    profile, problems = profiles.validate(
        {"schema": 1, "id": "p", "model": {"path": "/m/x"}, "image": {"base": "r/i:1", "layers": []}, "parallel": {"tensor": 2}}
    )
    assert problems == []
    row = {"name": "model", "repo": "/m/x", "purpose": "model", "revision": None, "complete": True, "size_bytes": 10, "files": []}
    answers = {name: {"findings": [], "repositories": [{**row, "listing": one}]} for name, one in (("spark-1", "1" * 64), ("spark-2", listing))}
    assert stopping(stage_findings.models(answers, profile)) == ids


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
    assert stopping(stage_findings.gate(answer, ADDRESSES, 1)) == ids


@pytest.mark.parametrize(("came", "verdict"), [("refused", "pass"), ("answered", "block"), ("", "unknown"), ("no answer", "unknown")])
def test_gate_of_the_token(came, verdict):
    answer = {**ray(("192.168.100.1", True, 1), ("192.168.100.2", True, 1)), "ray_without_token": came}
    (found,) = (one for one in stage_findings.gate(answer, ADDRESSES, 1) if one["id"] == "ray.token")
    assert found["verdict"] == verdict and ("gb10_ray_version" in found["remedy"]) is (verdict == "block")


@pytest.mark.parametrize(
    ("version", "executor", "verdict"),
    [
        ("2.60.0", "ray", "pass"), ("2.52.0", "ray", "pass"), ("3.0.0.dev0", "ray", "pass"), ("2.51.1", "ray", "block"), ("2.9.3", "ray", "block"),
        ("master", "ray", "block"), ("2.51.1", "native", "pass"),
    ],
)  # fmt: skip
def test_a_ray_that_ignores_the_token_is_refused_where_it_is_used(version, executor, verdict):
    found = stage_findings._ray("spark-1", contract(contract__versions={"vllm": "0.32.0", "ray": version}), {**PROFILE, "executor": executor})
    assert found["verdict"] == verdict and ("ignores the token" in found["message"]) is (verdict == "block")


def test_a_ray_in_the_place_of_another_is_told_of():
    wanted = {"version": "2.60.0", "why": "ray 2.60.0 depends on packaging>=24.2, and the image has packaging 23.2"}
    answer = contract(contract__versions={"vllm": "0.21.0+2325b6f0", "ray": "2.52.1"}, base={"ray_wanted": wanted})
    found = stage_findings._ray("spark-1", answer, {**PROFILE, "evidence": "untested"})
    assert (found["verdict"], found["measured"], found["needed"]) == ("warn", "2.52.1", "2.60.0")
    assert found["message"] == f"Ray 2.52.1 in place of 2.60.0: {wanted['why']}; untested together with vLLM 0.21.0+2325b6f0."
    assert found["remedy"].startswith("set gb10_ray_version: 2.52.1")


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ([], "Ray 2.60.0; untested together with vLLM 0.21.0+a; on Python 3.12.3."),
        ([{"vllm": "==0.21.0", "ray": ""}], "Ray 2.60.0; untested together with vLLM 0.21.0+a; on Python 3.12.3."),
        ([{"vllm": "==0.30.0", "ray": "==2.60.0"}], "Ray 2.60.0; untested together with vLLM 0.21.0+a; on Python 3.12.3."),
        ([{"vllm": "==0.21.0", "ray": "==2.60.0"}], "Ray 2.60.0; measured together with vLLM 0.21.0+a; on Python 3.12.3."),
        (
            [{"vllm": "==0.21.0", "ray": "==2.55.1"}],
            "Ray 2.60.0; untested together with vLLM 0.21.0+a, where Ray ==2.55.1 was measured (gb10_ray_version); on Python 3.12.3.",
        ),
    ],
)
def test_whether_a_pair_of_vllm_and_ray_was_measured(measured, words):
    answer = contract(contract__versions={"vllm": "0.21.0+a", "ray": "2.60.0"})
    found = stage_findings._ray("spark-1", answer, {**PROFILE, "evidence": measured})
    assert (found["verdict"], found["message"]) == ("pass", words)


def test_a_head_that_does_not_answer_is_not_taken_for_one_without_nodes():
    (found,) = stage_findings.gate({**ray(), "ray_error": "no answer within 10 s"}, ADDRESSES, 1)
    assert (found["id"], found["verdict"]) == ("ray.node", "unknown") and "no answer within 10 s" in found["message"]


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
    "capabilities": ["IPC_LOCK"], "memlock": -1, "checks": list(profiles.PROOFS), "gpus": True, "own_names": ["HOSTNAME", "RAY_*", "OWN"],
}  # fmt: skip
EXPECTED = {"spark-1": {"A": "1", "B": "x"}, "spark-2": {"A": "1", "B": "x"}}


def judged(change=None, completion=None):
    ranks = {"spark-1": rank_answer(), "spark-2": rank_answer(**(change or {}))}
    return stopping(stage_findings.proof(ranks, completion or {"tokens": 8, "seconds": 0.4}, EXPECTED, PROOF_NEEDS))


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
    (found,) = [one for one in stage_findings.proof(ranks, {"tokens": 8, "seconds": 0.4}, EXPECTED, PROOF_NEEDS) if one["verdict"] != "pass"]
    assert (found["id"], found["node"], found["verdict"]) == ("proof.entrypoint", "spark-2", "warn") and "gb10_allow_restart" in found["remedy"]


@pytest.mark.parametrize(
    ("held", "belongs", "bypassed", "verdict"),
    [
        ([COMPAT], [COMPAT], False, "pass"),
        ([OWN], [OWN], False, "pass"),
        ([OWN], [COMPAT], False, "block"),
        ([], [COMPAT], False, "block"),
        # One of an older version, created without the entrypoint, waits for its restart.
        ([OWN], [COMPAT], True, "warn"),
        ([OWN], None, False, "warn"),
    ],
)
def test_a_rank_holds_the_libcuda_that_its_image_was_proven_to_give(held, belongs, bypassed, verdict):
    answer = rank_answer(ranks=[{**a_rank(), "libcuda": held}], container={**rank_answer()["container"], "libcuda": belongs, "entrypoint_bypassed": bypassed})
    ranks = {"spark-1": rank_answer(), "spark-2": answer}
    found = {one["node"]: one for one in stage_findings.proof(ranks, {"tokens": 8}, EXPECTED, PROOF_NEEDS) if one["id"] == "proof.libcuda"}
    assert (found["spark-1"]["verdict"], found["spark-2"]["verdict"]) == ("pass", verdict)
    assert ("unsupported toolchain" in found["spark-2"]["message"]) is (bool(belongs) and verdict != "pass")
    assert bool(found["spark-2"]["remedy"]) is (verdict != "pass")
    without = stage_findings.proof(ranks, {"tokens": 8}, EXPECTED, {**PROOF_NEEDS, "gpus": False})
    assert "proof.libcuda" not in {one["id"] for one in without}


def test_no_token_is_no_proof():
    assert judged(completion={"error": "HTTP 500"}) == {"proof.completion"}


@pytest.mark.parametrize(("alone", "verdict"), [(True, "block"), (False, "warn")])
def test_a_token_of_the_hub_is_found(alone, verdict):
    """A container of an older version, which has the whole cache, waits for its restart."""
    seen = {**rank_answer()["container"], "hub_tokens": ["/root/.cache/huggingface/token"], "hub_alone": alone}
    found = stage_findings._hub_token("spark-2", seen, {"stage": "ray"})
    assert (found["id"], found["verdict"]) == ("proof.hub_token", verdict) and "/root/.cache/huggingface/token" in found["message"]
    assert stage_findings._hub_token("spark-2", {**seen, "hub_tokens": []}, {"stage": "ray"})["verdict"] == "pass"


@pytest.mark.parametrize(("present", "secrets"), [((), "unknown"), (("VLLM_API_KEY",), "block")])
def test_the_environment_of_a_start_proves_nothing_but_a_leak(present, secrets):
    ranks = {"spark-1": rank_answer(), "spark-2": rank_answer(ranks=[a_rank(present=present, source="exec")])}
    found = stage_findings.proof(ranks, {"tokens": 8, "seconds": 0.4}, EXPECTED, PROOF_NEEDS)
    bad = [(one["id"], one["node"], one["verdict"]) for one in found if one["verdict"] != "pass"]
    assert bad == [("proof.env", "spark-2", "unknown"), ("proof.secrets", "spark-2", secrets), ("proof.env_same", "cluster", "unknown")]


@pytest.mark.parametrize(("have", "verdict"), [("<secret>", "pass"), (None, "block")])
def test_a_secret_that_is_forwarded_is_compared_and_shown_by_its_name_alone(have, verdict):
    """A node says no secret's value, so the value of the inventory is not what is compared here."""
    rank = a_rank({"WANDB_API_KEY": have} if have else {})
    (found, _leaks) = stage_findings._rank_env("spark-2", [rank], {"WANDB_API_KEY": "4f1c9a77d02b"}, PROOF_NEEDS)
    assert (found["id"], found["verdict"]) == ("proof.env", verdict)
    assert "4f1c9a77d02b" not in str(found)


def env_same(head, worker):
    """What is found when the two live ranks have these variables beside those that they share; forwarded ones are as they should be."""
    ranks = {"spark-1": rank_answer(ranks=[a_rank(**head)]), "spark-2": rank_answer(ranks=[a_rank(**worker)])}
    found = stage_findings.proof(ranks, {"tokens": 8, "seconds": 0.4}, EXPECTED, PROOF_NEEDS)
    assert stopping(found) <= {"proof.env_same"}
    return [(one["verdict"], one["message"]) for one in found if one["id"] == "proof.env_same"]


@pytest.mark.parametrize(
    ("head", "worker", "said"),
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
def test_a_variable_that_no_inventory_names_must_be_the_same_on_both(head, worker, said):
    assert env_same(head, worker) == [("block", said)]


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
    assert stopping(stage_findings.proof(ranks, {"tokens": 8, "seconds": 0.4}, EXPECTED, needs)) == ids


def test_a_profile_may_ask_for_less_proof_but_secrets_are_looked_for_in_any_case():
    found = stage_findings.proof({"spark-1": rank_answer(), "spark-2": rank_answer()}, {}, EXPECTED, {**PROOF_NEEDS, "checks": ["rank_hosts"]})
    assert {one["id"] for one in found} == {"proof.rank_hosts", "proof.halted", "proof.secrets", "proof.hub_token"}
    every = stage_findings.proof({"spark-1": rank_answer(), "spark-2": rank_answer()}, {}, EXPECTED, PROOF_NEEDS)
    assert {one["id"] for one in every} == {"proof.secrets", "proof.hub_token", *stage_findings.PROOF_OF}
    # Where the traffic goes is judged of two looks: see test_fabric_traffic.py.
    assert {*stage_findings.PROOF_OF.values(), "fabric"} == set(profiles.PROOFS)


@pytest.mark.parametrize(("stage", "words"), [("ray", "tear down"), ("native", "--tags serve, which starts all of them again")])
def test_a_missing_rank_has_the_remedy_of_its_executor(stage, words):
    ranks = {"spark-1": rank_answer(), "spark-2": rank_answer(ranks=[])}
    found = stage_findings.proof(ranks, {"tokens": 8, "seconds": 0.4}, EXPECTED, {**PROOF_NEEDS, "stage": stage})
    assert [words in finding["remedy"] for finding in found if finding["id"] == "proof.rank_hosts"] == [True]


INFO = {"errors": [], "containers": [], "listeners": []}
OURS = {"name": "gb10-gb10-head", "cluster": "gb10"}
HELD = {"port": 6379, "address": "0.0.0.0", "pid": 7, "process": "redis-server", "since": "2026-11-20T10:00:00Z", "container": ""}
MEMORY = {"findings": [{"id": "memory.back", "node": "the-machine", "verdict": "warn", "message": "900 MiB have not come back", "remedy": "look"}]}


def test_teardown():
    assert stopping(stage_findings.teardown(INFO, "spark-1", "gb10", MEMORY)) == set()
    assert stopping(stage_findings.teardown({**INFO, "containers": [OURS]}, "spark-1", "gb10", MEMORY)) == {"teardown.containers"}
    unit = {"name": "gb10-engine-gb10.service", "installed": False, "files": True}
    assert stopping(stage_findings.teardown(INFO, "spark-1", "gb10", MEMORY, unit)) == {"teardown.unit"}
    assert stopping(stage_findings.teardown({**INFO, "errors": [{"section": "docker", "error": "refused"}]}, "spark-1", "gb10", MEMORY)) == {"teardown.seen"}


def test_teardown_tells_of_memory_under_the_inventorys_name():
    assert [(found["node"], found["verdict"]) for found in stage_findings.teardown(INFO, "spark-1", "gb10", MEMORY) if found["id"] == "memory.back"] == [
        ("spark-1", "warn")
    ]


def test_teardown_is_not_stopped_by_memory_that_nobody_noted():
    unknown = {"findings": [{**MEMORY["findings"][0], "verdict": "unknown"}]}
    assert [found["verdict"] for found in stage_findings.teardown(INFO, "spark-1", "gb10", unknown) if found["id"] == "memory.back"] == ["warn"]


def test_teardown_names_who_holds_a_port():
    found = {finding["id"]: finding for finding in stage_findings.teardown({**INFO, "listeners": [HELD]}, "spark-1", "gb10", MEMORY)}
    assert found["teardown.ports"]["verdict"] == "warn"
    assert "redis-server" in found["teardown.ports"]["message"]


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
        # What answered is known, whatever else did not.
        ({"open": ["GET /load"], "unknown": ["GET /metrics: no answer within 5 s"]}, True, "block", "GET /load"),
    ],
)
def test_routes_that_answer_without_the_key(routes, guarded, verdict, words):
    (found,) = stage_findings.auth("spark-1", {**ROUTES, **routes}, guarded)
    assert (found["id"], found["node"], found["verdict"]) == ("proof.auth", "spark-1", verdict) and words in found["message"]
    assert bool(found["remedy"]) is (verdict != "pass")


def test_routes_that_nobody_asked_are_unknown():
    (found,) = stage_findings.auth("spark-1", None, True)
    assert found["verdict"] == "unknown"


@pytest.mark.parametrize(
    ("have", "holds"), [("/x", True), ("/x:/opt/gb10/launch/guard", True), ("/xy", False), ("/opt/gb10/launch/guard", False), (None, False)]
)
def test_the_launcher_may_add_to_pythons_path(have, holds):
    ranks = {"spark-1": rank_answer(ranks=[a_rank({"PYTHONPATH": have} if have else {})]), "spark-2": rank_answer(ranks=[a_rank({"PYTHONPATH": "/x"})])}
    found = stage_findings.proof(ranks, {"tokens": 8, "seconds": 0.4}, dict.fromkeys(ranks, {"PYTHONPATH": "/x"}), PROOF_NEEDS)
    assert stopping(found) == (set() if holds else {"proof.env"})


#: What differed between the two live ranks of the lab, with Ray 2.60 and vLLM 0.32 and without Ray: values as they were recorded.
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
    limits = judging.limits_of("stack.env_same", ())
    needs = {**PROOF_NEEDS, "own_names": [*limits["per_host"], *limits["per_process"]]}
    seen = [{name: values[node] for name, values in SEEN_TO_DIFFER[executor].items() if values[node] is not None} for node in (0, 1)]
    ranks = {f"spark-{number}": rank_answer(ranks=[a_rank(**environ)]) for number, environ in enumerate(seen, 1)}
    assert stopping(stage_findings.proof(ranks, {"tokens": 8, "seconds": 0.4}, EXPECTED, needs)) == set()
