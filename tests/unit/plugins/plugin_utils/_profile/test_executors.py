# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The executor that follows from a profile and an image, and the message when no executor fits."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import executors
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.form import ProfileError


def profile(executor="auto", layers=(), data=1, reason="", tensor=2):
    sizes = {"tensor": tensor, "pipeline": 1, "data": data}
    return {"executor": executor, "executor_reason": reason, "image": {"tag": "base:1", "layers": list(layers)}, "parallel": sizes}


def image(vllm="0.32.0", ray=None, program=True):
    return {"exists": True, "contract": {"versions": {"vllm": vllm, "ray": ray}, "programs": {"ray": "/usr/bin/ray" if ray and program else None}}}


@pytest.mark.parametrize(
    ("chosen", "layers", "answer", "executor", "reason"),
    [
        ("ray", [], None, "ray", "the profile says so"),
        ("native", ["ray"], None, "native", "the profile says so"),
        ("auto", ["ray"], None, "ray", "auto: the profile adds Ray to the image"),
        ("auto", [], image(ray="2.60.0"), "ray", "auto: base:1 holds Ray 2.60.0"),
        ("auto", [], image(), "native", "auto: base:1 holds no Ray, and vLLM 0.32.0 spreads its own ranks"),
        # Without the program `ray`, the library alone cannot start a cluster.
        ("auto", [], image(ray="2.60.0", program=False), "native", "holds no Ray"),
        ("auto", [], image(vllm="0.11.2"), "native", "vLLM 0.11.2"),
        ("auto", [], image(vllm="0.20.1rc2.dev14+nv26.05"), "native", "vLLM 0.20.1rc2"),
        ("auto", [], image(vllm="0.11.2rc1"), "native", "vLLM 0.11.2rc1"),
    ],
)
def test_choice(chosen, layers, answer, executor, reason):
    choice = executors.choose(profile(chosen, layers), answer)
    assert choice["executor"] == executor
    assert reason in choice["reason"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (image(vllm="0.11.1"), "holds no Ray, and vLLM 0.11.1, which spreads its own ranks from 0.11.2 on. Remedy: add `ray`"),
        (image(vllm=None), "holds no Ray, and no vLLM"),
        (image(vllm="nightly"), "cannot be read: 'nightly'. Remedy: set executor in the profile"),
        ({"exists": False, "contract": None}, "is not on the head, so it cannot be asked. Remedy: run with --tags image"),
        (None, "image base:1 was not checked. Remedy: include the role gb10.cluster.gb10 with tasks_from: engine"),
        ({}, "image base:1 was not checked"),
    ],
)
def test_no_choice_says_why_and_what_to_do(answer, words):
    with pytest.raises(ProfileError) as caught:
        executors.choose(profile(), answer)
    assert words in caught.value.with_remedy()


def test_data_ranks_need_ray():
    with pytest.raises(ProfileError, match="parallel.data is 2"):
        executors.choose(profile(data=2), image())
    assert executors.choose(profile(data=2), image(ray="2.60.0"))["executor"] == "ray"


def test_check_mode_takes_an_image_to_come_for_one_without_ray():
    choice = executors.choose(profile(), {"exists": False, "contract": None}, predict=True)
    assert choice["executor"] == "native"
    assert "not there yet" in choice["reason"]


def test_the_profiles_own_reason_is_said():
    assert executors.choose(profile("native", reason="as it was measured"))["reason"] == "the profile says so: as it was measured"


@pytest.mark.parametrize("executor", ["ray", "native", "auto"])
def test_one_rank_is_spread_by_nothing(executor):
    single = profile(executor, tensor=1)
    assert executors.choose(single) == {"executor": "native", "reason": "one rank: there is nothing to spread"} and not executors.is_asked(single)
