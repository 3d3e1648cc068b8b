# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs modules of the collection for a unit, each as a separate process with a time limit. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import json
import runpy
import sys
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult, run_tool
from ansible_collections.gb10.cluster.plugins.module_utils._unit import specification

MODULES = "ansible_collections.gb10.cluster.plugins.modules"

Result = dict[str, t.Any]

#: Runs a module: its name, its arguments, the time limit in seconds, and check mode.
Run = t.Callable[[str, t.Mapping[str, t.Any], float, bool], Result]


def main(argv: t.Sequence[str]) -> int:
    """Run the module that the command line names in this process, as Ansible does: it reads its arguments, prints its result and exits."""
    if len(argv) != 1 or argv[0] not in specification.MODULES:
        sys.stderr.write(f"usage: module {' | '.join(specification.MODULES)}\n")
        return 2
    runpy.run_module(f"{MODULES}.{argv[0]}", run_name="__main__", alter_sys=True)
    return 0


def parse(name: str, answer: ToolResult) -> Result:
    """Return the result that a module printed. Raises :class:`UnknownState` for anything else."""
    for line in reversed(answer.stdout.splitlines()):
        with contextlib.suppress(ValueError):
            result = json.loads(line)
            if isinstance(result, dict) and {"changed", "failed"} & set(result):
                return result
            break
    raise UnknownState(
        f"{name} ended with code {answer.rc} and no result: {answer.raw[-300:]}", remedy="Run the bring-up again: it installs the program.", raw=answer.raw
    )


def require(name: str, result: Result) -> Result:
    """Return the result of a module that succeeded. Raises its failure as an error."""
    if not result.get("failed"):
        return result
    kind = ClusterError if result.get("verdict") == "block" else UnknownState
    remedy, reason = str(result.get("remedy") or ""), str(result.get("reason") or "")
    raise kind(f"{name}: {result.get('msg')}", remedy=remedy, reason=reason, result=result)


def runner(program: str) -> Run:
    """Return a function that runs a module out of the archive ``program``."""

    def run(name: str, arguments: t.Mapping[str, t.Any], seconds: float, predict: bool = False) -> Result:
        content = json.dumps({"ANSIBLE_MODULE_ARGS": {**arguments, "_ansible_check_mode": predict}}).encode()
        return parse(name, run_tool([sys.executable, "-I", program, "module", name], seconds, content))

    return run
