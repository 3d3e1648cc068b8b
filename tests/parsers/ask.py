# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs with one release of the engine and returns the answers of its own parser.

Usage: ask.py QUESTION ANSWER   both JSON files. QUESTION is a list of {id, argv, env, parser}: argv begins with `serve`; parser is the
name that the model's own parser file registers, or null. ANSWER maps each id to its problems, none when all is accepted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import sys
import tempfile
import typing as t
from pathlib import Path

import pydantic

# The collection's program that probes the engine in an image; nothing else of the collection can be imported here.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "plugins" / "module_utils" / "_image"))
from engine_probe import first, serve_parser

#: What an engine's own checks raise.
REFUSALS = (ValueError, TypeError, KeyError, AttributeError, AssertionError, NotImplementedError, RuntimeError, OSError, ImportError)

#: Stands for the file from the model repository: it registers the same name.
PARSER_FILE = """
from vllm.reasoning import ReasoningParser, ReasoningParserManager


@ReasoningParserManager.register_module({name!r})
class Parser(ReasoningParser):
    pass
"""


def parsed(argv: list[str]) -> t.Any:
    """Return the parsed arguments after all checks that come before the model is loaded. Raises one of :data:`REFUSALS`."""
    parser, _own, command = serve_parser()
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            arguments = parser.parse_args(argv)
    except SystemExit as error:
        raise ValueError(stderr.getvalue().strip().splitlines()[-1]) from error
    arguments.model = arguments.model_tag
    command.validate(arguments)
    if arguments.reasoning_parser_plugin:
        first("ReasoningParserManager", "vllm.reasoning").import_reasoning_parser(arguments.reasoning_parser_plugin)
    first("validate_api_server_args", "vllm.entrypoints.launchers.launcher", "vllm.entrypoints.openai.api_server")(arguments)
    return arguments


def engine_problems(arguments: t.Any) -> list[str]:
    """Return what the engine would refuse only with a model, as far as that can be checked without one."""
    engine = first("AsyncEngineArgs", "vllm.engine.arg_utils").from_cli_args(arguments)
    problems = speculative_problems(engine.speculative_config or {})
    methods = first("QUANTIZATION_METHODS", "vllm.model_executor.layers.quantization")
    if engine.quantization is not None and engine.quantization not in methods:
        problems.append(f"--quantization {engine.quantization}: this release has no such method")
    backends = first("AttentionBackendEnum", "vllm.v1.attention.backends.registry").__members__
    if isinstance(engine.attention_backend, str) and engine.attention_backend.upper() not in backends:
        problems.append(f"--attention-backend {engine.attention_backend}: this release has no such backend")
    parsers = first("ReasoningParserManager", "vllm.reasoning").list_registered()
    if arguments.reasoning_parser and arguments.reasoning_parser not in parsers:
        problems.append(f"--reasoning-parser {arguments.reasoning_parser}: this release has no such parser")
    return problems


def speculative_problems(config: dict[str, t.Any]) -> list[str]:
    """Return the keys of the speculation that the engine does not have, and the values that it does not accept."""
    kind = first("SpeculativeConfig", "vllm.config", "vllm.config.speculative")
    known = {field.name for field in dataclasses.fields(kind)}
    hints = t.get_type_hints(kind, vars(sys.modules[kind.__module__]))
    problems = [f"speculative_config.{key}: this release has no such key" for key in config if key not in known]
    for key in config.keys() & known:
        try:
            pydantic.TypeAdapter(hints[key]).validate_python(config[key])
        except pydantic.ValidationError as error:
            problems.append(f"speculative_config.{key}: {error.errors()[0]['msg']}")
    return problems


def env_problems(env: dict[str, str]) -> list[str]:
    """Return the engine's variables that it does not know, and the values that it does not accept."""
    known = first("environment_variables", "vllm.envs")
    problems = [f"{name}: this release knows no such variable" for name in env if name.startswith("VLLM_") and name not in known]
    for name in env.keys() & known.keys():
        try:
            known[name]()
        except REFUSALS as error:
            problems.append(f"{name}={env[name]}: {error}")
    return problems


def judge(case: dict[str, t.Any], directory: Path) -> list[str]:
    """Return the problems of one case."""
    before = dict(os.environ)
    os.environ.update(case["env"])
    try:
        problems = env_problems(case["env"])
        argv = list(case["argv"])
        if case["parser"]:
            file = directory / f"{case['parser']}.py"
            file.write_text(PARSER_FILE.format(name=case["parser"]), encoding="utf-8")
            argv[argv.index("--reasoning-parser-plugin") + 1] = str(file)
        try:
            problems += engine_problems(parsed(argv))
        except REFUSALS as error:
            problems.append(f"{type(error).__name__}: {error}")
        return problems
    finally:
        os.environ.clear()
        os.environ.update(before)


def main() -> None:
    question, answer = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory() as directory:
        answers = {case["id"]: judge(case, Path(directory)) for case in json.loads(question.read_text(encoding="utf-8"))}
    answer.write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main()
