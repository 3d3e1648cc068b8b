# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that queries the engine in an image, next to a package in place of vLLM. The real ones are asked in tests/parsers."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._image import engine_probe, image_contract

#: What a build without a GPU does is that of vllm/platforms/__init__.py and config/device.py of 0.20.1: the parser's defaults need a device.
FILES = {
    "torch/__init__.py": "class version:\n    cuda = '13.0'\n",
    "torch/cuda/__init__.py": "",
    "torch/cuda/nccl.py": "def version():\n    return (2, 28, 9)\n",
    "vllm/__init__.py": "print('a banner')\n",
    "vllm/platforms/__init__.py": (
        "from vllm.platforms.interface import Platform\n"
        "class Unspecified(Platform):\n    device_type = ''\n    def is_unspecified(self):\n        return True\n"
        "_current_platform = {platform}()\n"
        "def __getattr__(name):\n    if name == 'current_platform':\n        return _current_platform\n    raise AttributeError(name)\n"
    ),
    "vllm/platforms/interface.py": (
        "import enum\nPlatformEnum = enum.Enum('PlatformEnum', 'CUDA CPU')\n"
        "class Platform:\n    device_type = 'cpu'\n    def is_unspecified(self):\n        return False\n"
    ),
    "vllm/utils/__init__.py": "",
    "vllm/utils/argparse_utils.py": "import argparse\nclass FlexibleArgumentParser(argparse.ArgumentParser):\n    pass\n",
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/cli/__init__.py": "",
    "vllm/entrypoints/cli/serve.py": (
        "import argparse\nfrom vllm.platforms import current_platform\n"
        "class Config:\n    pass\n"
        "class ServeSubcommand:\n    def subparser_init(self, subparsers):\n"
        "        if not current_platform.device_type:\n            raise RuntimeError('Failed to infer device type')\n"
        "        parser = subparsers.add_parser('serve')\n"
        "        parser.add_argument('model_tag', nargs='?')\n"
        "        parser.add_argument('--dtype', choices=['half', 'auto'], default='auto')\n"
        "        parser.add_argument('--enable-x', action=argparse.BooleanOptionalAction, default=None)\n"
        "        parser.add_argument('--distributed-executor-backend', '-d', default=None)\n"
        "        parser.add_argument('--device', default=current_platform.device_type)\n"
        "        parser.add_argument('--config', default=Config())\n"
        "        parser.add_argument('--sizes', default=(1, 2))\n"
        "        return parser\n"
    ),
    "vllm/envs.py": "environment_variables = {'VLLM_Z': lambda: 1, 'VLLM_USE_RAY_V2_EXECUTOR_BACKEND': lambda: False}\n",
    "vllm/reasoning/__init__.py": "class ReasoningParserManager:\n    @staticmethod\n    def list_registered():\n        return ['b', 'a']\n",
    "vllm/tool_parsers/__init__.py": "class ToolParserManager:\n    tool_parsers = {}\n",
}


def probe(directory, platform):
    for name, text in FILES.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{platform}", platform))
    command = [sys.executable, "-c", inspect.getsource(engine_probe)]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": str(directory)}, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize(("platform", "device"), [("Platform", "cpu"), ("Unspecified", "cuda")])
def test_the_engines_own_parser_answers(tmp_path, platform, device):
    stdout = probe(tmp_path, platform)
    assert stdout.startswith("a banner") and len([line for line in stdout.splitlines() if line.startswith(engine_probe.MARK)]) == 1
    answer = image_contract.parse_answer(stdout, engine_probe.MARK, image_contract.ENGINE_FORM)
    assert answer == {
        "flags": {
            "--help": {"default": "==SUPPRESS=="},
            "--dtype": {"choices": ["auto", "half"], "default": "auto"},
            "--enable-x": {"default": None},
            "--no-enable-x": {"default": None},
            "--distributed-executor-backend": {"default": None},
            "--device": {"default": device},
            "--config": {"default": "<Config>"},
            "--sizes": {"default": [1, 2]},
        },
        "env": ["VLLM_USE_RAY_V2_EXECUTOR_BACKEND", "VLLM_Z"],
        "executor": {"default": None, "ray_v2": False},
        "parsers": {"reasoning": ["a", "b"], "tool": []},
        "versions": {"cuda": "13.0", "nccl": "2.28.9"},
    }


def test_equal_engines_give_equal_answers(tmp_path):
    """An object's text contains its address, which differs in every process."""
    assert json.dumps(probe(tmp_path, "Platform")) == json.dumps(probe(tmp_path, "Platform"))
