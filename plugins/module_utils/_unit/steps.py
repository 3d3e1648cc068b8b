# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules of the collection, run by a unit: each as a program of its own under a deadline. This module util is PRIVATE to the collection."""

from __future__ import annotations

import json
import runpy
import sys
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult, run_tool
from ansible_collections.gb10.cluster.plugins.module_utils._unit import specification

MODULES = "ansible_collections.gb10.cluster.plugins.modules"

Result = dict[str, t.Any]

#: Runs a module: its name, its arguments, seconds, and whether it only predicts.
Run = t.Callable[[str, t.Mapping[str, t.Any], float, bool], Result]


def main(argv: t.Sequence[str]) -> int:
    """Run the module that the command line names in this process, as Ansible does: it reads its arguments, prints its result and ends the process."""
    if len(argv) != 1 or argv[0] not in specification.MODULES:
        sys.stderr.write(f"usage: module {' | '.join(specification.MODULES)}\n")
        return 2
    runpy.run_module(f"{MODULES}.{argv[0]}", run_name="__main__", alter_sys=True)
    return 0


def parse(name: str, answer: ToolResult) -> Result:
    """Return the result that a module printed. Raises :class:`UnknownState` for anything else."""
    for line in reversed(answer.stdout.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and {"changed", "failed"} & set(found):
            return found
        break
    raise UnknownState(
        f"{name} ended with code {answer.rc} and no result: {answer.raw[-300:]}", remedy="Run the bring-up again: it installs the program.", raw=answer.raw
    )


def require(name: str, result: Result) -> Result:
    """Return the result of a module that did not fail. Raises its failure."""
    if not result.get("failed"):
        return result
    kind = ClusterError if result.get("verdict") == "block" else UnknownState
    remedy, reason = str(result.get("remedy") or ""), str(result.get("reason") or "")
    raise kind(f"{name}: {result.get('msg')}", remedy=remedy, reason=reason, result=result)


def runner(program: str) -> Run:
    """Return what runs a module out of the archive ``program``."""

    def run(name: str, arguments: t.Mapping[str, t.Any], seconds: float, predict: bool = False) -> Result:
        # The program may be an older version's, whose modules have this from Ansible: they write their arguments to the journal without the last.
        given = {**arguments, "_ansible_check_mode": predict, "_ansible_module_name": f"gb10.cluster.{name}", "_ansible_no_log": True}
        content = json.dumps({"ANSIBLE_MODULE_ARGS": given}).encode()
        return parse(name, run_tool([sys.executable, "-I", program, "module", name], seconds, content))

    return run
