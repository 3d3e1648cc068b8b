# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which images the stage takes."""

from __future__ import annotations

import pytest
from stage_answers import FULL, OWN, PROFILE, contract, reached, stopping

from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import image


@pytest.mark.parametrize(("copy", "verdict"), [("required", "block"), ("preferred", "warn"), ("never", None)])
def test_images_of_other_ids(copy, verdict):
    """Each node may have built its own where nothing is copied, or where it could not be."""
    found = image.images({"spark-1": contract(), "spark-2": contract(image_id="sha256:2")}, PROFILE, copy)
    ids = {one["node"]: one["verdict"] for one in found if one["id"] == "image.id"}
    assert ids == ({"spark-2": verdict} if verdict else {})
    live = image.images({"spark-1": contract(), "spark-2": contract(image_id="sha256:2")}, PROFILE, copy, live=True)
    assert [one["verdict"] for one in live if one["id"] == "image.id"] == (["warn"] if verdict else [])
    same = image.images({"spark-1": contract(), "spark-2": contract()}, PROFILE, copy)
    assert [one["verdict"] for one in same if one["id"] == "image.id"] == (["pass"] if verdict else [])


def test_equal_images_pass():
    assert stopping(image.images({"spark-1": contract(), "spark-2": contract(image_id="sha256:2")}, PROFILE)) == set()


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
    assert id in stopping(image.images({"spark-1": contract(), "spark-2": contract(**change)}, PROFILE))


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
    (found,) = (one for one in image.images({"spark-1": first, "spark-2": second}, PROFILE) if one["id"] == "image.contract")
    assert (found["node"], found["message"], found["verdict"]) == ("spark-2", message, "block" if "differ" in message else "pass")


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
    (found,) = [one for one in image.images({"spark-1": contract(gpu=gpu)}, PROFILE) if one["id"] == "image.cuda"]
    assert (found["verdict"], found["node"]) == (verdict, "spark-1") and words in found["message"]
    assert bool(found["remedy"]) is (verdict != "pass")


def test_a_gpu_that_no_container_requests_is_not_judged():
    found = {one["id"] for one in image.images({"spark-1": contract(gpu=None)}, PROFILE)}
    assert not found & {"image.gpu", "image.cuda"} and "image.entrypoint" in found


def test_what_keeps_a_container_from_the_gpu_is_said_with_its_remedy():
    lost = reached(error="Failed to initialize NVML: Unknown Error", why="the container may not use the devices", remedy="sudo nvidia-ctk cdi generate")
    (found,) = [one for one in image.images({"spark-1": contract(gpu=lost)}, PROFILE) if one["id"] == "image.gpu"]
    assert all(words in found["message"] for words in ("Unknown Error", "may not use", "current platform None does not support ray"))
    assert found["remedy"] == "sudo nvidia-ctk cdi generate"
    (odd,) = [one for one in image.images({"spark-1": contract(gpu=reached(error="odd"))}, PROFILE) if one["id"] == "image.gpu"]
    assert "odd" in odd["message"] and "docker run" in odd["remedy"]


@pytest.mark.parametrize(
    ("version", "executor", "verdict"),
    [
        ("2.60.0", "ray", "pass"), ("2.52.0", "ray", "pass"), ("3.0.0.dev0", "ray", "pass"), ("2.51.1", "ray", "block"), ("2.9.3", "ray", "block"),
        ("master", "ray", "block"), ("2.51.1", "native", "pass"),
    ],
)  # fmt: skip
def test_a_ray_that_ignores_the_token_is_refused_where_it_is_used(version, executor, verdict):
    found = image._ray("spark-1", contract(contract__versions={"vllm": "0.32.0", "ray": version}), {**PROFILE, "executor": executor})
    assert found["verdict"] == verdict and ("ignores the token" in found["message"]) is (verdict == "block")


def test_a_replaced_ray_is_reported():
    wanted = {"version": "2.60.0", "why": "ray 2.60.0 depends on packaging>=24.2, and the image has packaging 23.2"}
    answer = contract(contract__versions={"vllm": "0.21.0+2325b6f0", "ray": "2.52.1"}, base={"ray_wanted": wanted})
    found = image._ray("spark-1", answer, {**PROFILE, "evidence": "untested"})
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
    found = image._ray("spark-1", answer, {**PROFILE, "evidence": measured})
    assert (found["verdict"], found["message"]) == ("pass", words)
