# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of nodes to the stages that judge them, for the tests of several stages."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import validation

PROFILE, _PROBLEMS = validation.validate(
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
