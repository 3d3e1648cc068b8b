# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs under a deadline."""

from __future__ import annotations

import sys
import time

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils import _tool
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_result_has_status_and_both_outputs():
    result = _tool.run_tool(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"), 20)
    assert (result.rc, result.stdout, result.stderr, result.raw) == (3, "out\n", "err\n", "out\nerr")


def test_runs_in_the_c_locale_without_input():
    result = _tool.run_tool(python("import os, sys; print(os.environ['LC_ALL'], repr(sys.stdin.read()))"), 20)
    assert result.stdout == "C ''\n"


@pytest.mark.parametrize("program", ["/nonexistent/nvidia-smi", "/etc/passwd"])
def test_a_program_that_cannot_be_run_is_unknown(program):
    with pytest.raises(UnknownState, match="cannot be run") as caught:
        _tool.run_tool([program], 5)
    assert caught.value.reason == "tool missing" and caught.value.remedy


def test_a_hanging_program_is_killed_and_unknown_with_what_it_said():
    started = time.monotonic()
    with pytest.raises(UnknownState, match="did not answer within 0.5 s") as caught:
        _tool.run_tool(["sh", "-c", "echo begun; exec sleep 60"], 0.5)
    assert time.monotonic() - started < 10
    assert caught.value.details["raw"] == "begun"


def test_a_child_that_keeps_the_output_open_does_not_hang_the_caller():
    started = time.monotonic()
    result = _tool.run_tool(python("import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(8)']); print('done')"), 20)
    assert result.stdout == "done\n" and time.monotonic() - started < 6
