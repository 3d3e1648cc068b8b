# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prints the options of vLLM in an image as one line of JSON. This module util is PRIVATE to the collection.

The image's own ``python3`` runs the text of this file, without GPU and network. It reads the engine's own parser, because
the help text omits choices and rounds defaults. The engine moves its modules between releases, so each name has several places.
"""

from __future__ import annotations

import importlib
import json
import sys

#: Precedes the JSON, to find it in the image's other output.
MARK = "gb10-engine-contract:"

#: The variable that selects the executor for Ray, in the releases that have two.
RAY_EXECUTOR = "VLLM_USE_RAY_V2_EXECUTOR_BACKEND"


def first(name, *modules):
    """Return ``name`` from the first of ``modules`` that has it. Raises ImportError."""
    missed = None
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ModuleNotFoundError, AttributeError) as error:
            missed = error
    raise ImportError(f"{name} is in none of {', '.join(modules)}: {missed}")


def name_platform():
    """Set the platform to CUDA if the engine cannot detect one: a CUDA build without a GPU refuses to build its parser."""
    platforms = importlib.import_module("vllm.platforms")
    if not platforms.current_platform.is_unspecified():
        return
    interface = importlib.import_module("vllm.platforms.interface")
    platforms._current_platform = type("NamedPlatform", (interface.Platform,), {
        "_enum": interface.PlatformEnum.CUDA, "device_name": "cuda", "device_type": "cuda", "dispatch_key": "CUDA", "ray_device_key": "GPU",
        "device_control_env_var": "CUDA_VISIBLE_DEVICES",
    })()  # fmt: skip


def serve_parser():
    """Return the parser of ``vllm``, that of its subcommand ``serve``, and the subcommand, as the engine's own main() makes them."""
    parser = first("FlexibleArgumentParser", "vllm.utils.argparse_utils", "vllm.utils")(prog="vllm")
    command = first("ServeSubcommand", "vllm.entrypoints.cli.serve")()
    return parser, command.subparser_init(parser.add_subparsers(dest="subparser")), command


def plain(value):
    """Return a default as a JSON value. An object is replaced by the name of its class: its text may have an address in memory."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else f"<{type(value).__name__}>"


def flags(parser):
    """Return every long option of a parser with its default, and its choices where it has some."""
    options = {}
    for action in parser._actions:
        about = {"default": plain(action.default)}
        if action.choices is not None:
            about["choices"] = sorted(str(plain(choice)) for choice in action.choices)
        options.update({option: about for option in action.option_strings if option.startswith("--")})
    return options


def registered(manager, *modules):
    """Return the names of a manager's parsers; none if a release has another kind of manager."""
    try:
        return sorted(first(manager, *modules).list_registered())
    except (ImportError, AttributeError):
        return []


def torch_versions():
    """Return the versions of CUDA and NCCL that PyTorch was built with, None for a missing one."""
    torch = importlib.import_module("torch")
    try:
        nccl = ".".join(map(str, importlib.import_module("torch.cuda.nccl").version()))
    except (AttributeError, ImportError, RuntimeError):
        nccl = None
    return {"cuda": torch.version.cuda, "nccl": nccl}


def contract():
    """Return the engine's options."""
    name_platform()
    known = flags(serve_parser()[1])
    variables = first("environment_variables", "vllm.envs")
    return {
        "flags": known,
        "env": sorted(variables),
        "executor": {
            "default": known.get("--distributed-executor-backend", {}).get("default"),
            "ray_v2": bool(variables[RAY_EXECUTOR]()) if RAY_EXECUTOR in variables else None,
        },
        "parsers": {
            "reasoning": registered("ReasoningParserManager", "vllm.reasoning"),
            "tool": registered("ToolParserManager", "vllm.tool_parsers", "vllm.entrypoints.openai.tool_parsers"),
        },
        "versions": torch_versions(),
    }


if __name__ == "__main__":
    sys.stdout.write("\n" + MARK + json.dumps(contract(), sort_keys=True) + "\n")
