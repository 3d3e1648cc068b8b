# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which images the stage accepts."""

from __future__ import annotations

import pytest
from stage_answers import FULL, OWN, PROFILE, contract, reached, stopping

from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import image


@pytest.mark.parametrize(("copy", "verdict"), [("required", "block"), ("preferred", "warn"), ("never", None)])
def test_images_of_other_ids(copy, verdict):
    """Without a copy, or after a failed one, each node may have built its own image."""
    findings = image.images({"spark-1": contract(), "spark-2": contract(image_id="sha256:2")}, PROFILE, copy)
    ids = {finding["node"]: finding["verdict"] for finding in findings if finding["id"] == "image.id"}
    assert ids == ({"spark-2": verdict} if verdict else {})
    live = image.images({"spark-1": contract(), "spark-2": contract(image_id="sha256:2")}, PROFILE, copy, live=True)
    assert [finding["verdict"] for finding in live if finding["id"] == "image.id"] == (["warn"] if verdict else [])
    same = image.images({"spark-1": contract(), "spark-2": contract()}, PROFILE, copy)
    assert [finding["verdict"] for finding in same if finding["id"] == "image.id"] == (["pass"] if verdict else [])


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
    (finding,) = (finding for finding in image.images({"spark-1": first, "spark-2": second}, PROFILE) if finding["id"] == "image.contract")
    assert (finding["node"], finding["message"], finding["verdict"]) == ("spark-2", message, "block" if "differ" in message else "pass")


@pytest.mark.parametrize(
    ("gpu", "verdict", "words"),
    [
        (reached(), "pass", "knows 13.2"),
        (reached(image_cuda="13.0", cuda="13.0", libcuda=[OWN]), "pass", "knows 13.0"),
        (reached(image_cuda="12.9", cuda="13.0", libcuda=[OWN]), "pass", "knows 13.0"),
        # The entrypoint does not enable the image's libcuda, or the image has none: measured on a Spark with 26.08 started without its entrypoint.
        (reached(cuda="13.0", libcuda=[OWN]), "warn", "the provided PTX was compiled with an unsupported toolchain"),
        (reached(image_cuda="13.10", cuda="13.9"), "warn", "unsupported toolchain"),
        (reached(image_cuda="14.0"), "block", "nothing of it runs"),
        (reached(image_cuda=""), "warn", "neither CUDA_VERSION nor PyTorch"),
    ],
)
def test_the_cuda_of_the_image_against_the_libcuda_that_a_container_gets(gpu, verdict, words):
    (finding,) = [finding for finding in image.images({"spark-1": contract(gpu=gpu)}, PROFILE) if finding["id"] == "image.cuda"]
    assert (finding["verdict"], finding["node"]) == (verdict, "spark-1") and words in finding["message"]
    assert bool(finding["remedy"]) is (verdict != "pass")


def test_a_gpu_that_no_container_requests_is_not_judged():
    ids = {finding["id"] for finding in image.images({"spark-1": contract(gpu=None)}, PROFILE)}
    assert not ids & {"image.gpu", "image.cuda"} and "image.entrypoint" in ids


def test_what_keeps_a_container_from_the_gpu_is_said_with_its_remedy():
    lost = reached(error="Failed to initialize NVML: Unknown Error", why="the container may not use the devices", remedy="sudo nvidia-ctk cdi generate")
    (finding,) = [finding for finding in image.images({"spark-1": contract(gpu=lost)}, PROFILE) if finding["id"] == "image.gpu"]
    assert all(words in finding["message"] for words in ("Unknown Error", "may not use", "current platform None does not support ray"))
    assert finding["remedy"] == "sudo nvidia-ctk cdi generate"
    (odd,) = [finding for finding in image.images({"spark-1": contract(gpu=reached(error="odd"))}, PROFILE) if finding["id"] == "image.gpu"]
    assert "odd" in odd["message"] and "docker run" in odd["remedy"]


@pytest.mark.parametrize(
    ("version", "executor", "verdict"),
    [
        ("2.60.0", "ray", "pass"), ("2.52.0", "ray", "pass"), ("3.0.0.dev0", "ray", "pass"), ("2.51.1", "ray", "block"), ("2.9.3", "ray", "block"),
        ("master", "ray", "block"), ("2.51.1", "native", "pass"),
    ],
)  # fmt: skip
def test_a_ray_that_ignores_the_token_is_refused_where_it_is_used(version, executor, verdict):
    finding = image._ray("spark-1", contract(contract__versions={"vllm": "0.32.0", "ray": version}), {**PROFILE, "executor": executor})
    assert finding["verdict"] == verdict and ("ignores the token" in finding["message"]) is (verdict == "block")


def test_a_replaced_ray_is_reported():
    wanted = {"version": "2.60.0", "why": "ray 2.60.0 depends on packaging>=24.2, and the image has packaging 23.2"}
    answer = contract(contract__versions={"vllm": "0.21.0+2325b6f0", "ray": "2.52.1"}, base={"ray_wanted": wanted})
    finding = image._ray("spark-1", answer, {**PROFILE, "evidence": "untested"})
    assert (finding["verdict"], finding["measured"], finding["needed"]) == ("warn", "2.52.1", "2.60.0")
    assert finding["message"] == f"Ray 2.52.1 in place of 2.60.0: {wanted['why']}; untested together with vLLM 0.21.0+2325b6f0."
    assert finding["remedy"].startswith("set gb10_ray_version: 2.52.1")


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
    finding = image._ray("spark-1", answer, {**PROFILE, "evidence": measured})
    assert (finding["verdict"], finding["message"]) == ("pass", words)
