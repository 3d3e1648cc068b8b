# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A change of mode that is killed after any task that changed something: the next run ends in the declared mode.

Each number is a separate test, so that an aborted run can be continued with ``-k``.
"""

from __future__ import annotations

import os
import signal

import pytest

from .modes import Modes

#: The number of changing tasks in the longer of the two changes.
CHANGING = 15


class Killer:
    """Kills a play, as a crash of the controller does, when this many of its tasks have changed something."""

    def __init__(self, after: int) -> None:
        self.left, self.task, self.fired = after, "", False
        self._current = ""

    def __call__(self, output: str, pid: int) -> None:
        if "TASK [" in output:
            self._current = output.rsplit("TASK [", 1)[1].split("]")[0]
        if self._current != self.task and "changed: [" in output and not self.fired:
            self.task, self.left = self._current, self.left - 1
            if self.left == 0:
                self.fired = True
                os.killpg(os.getpgid(pid), signal.SIGKILL)


@pytest.mark.parametrize("number", range(1, CHANGING + 1))
def test_killed_after_a_changing_task_the_next_run_ends_in_the_declared_mode(modes: Modes, number: int) -> None:
    if not modes.settled("cluster"):
        modes.change("cluster", gb10_allow="restart")
    killed = []
    for mode in ("singles", "cluster"):
        modes.forget(mode)
        killer = Killer(number)
        played = modes.lab.play("mode", gb10_mode=mode, on_output=killer)
        if killer.fired:
            killed.append(f"{mode}: killed after {killer.task!r}")
            modes.change(mode)
        else:
            assert played.rc == 0, played.said[-3000:]
        modes.said(mode)
    print("\n".join(killed))
    assert killed, f"neither way has a task number {number} that changes something: CHANGING is {number - 1}"


def test_no_way_has_more_tasks_that_change_something(modes: Modes) -> None:
    modes.change("off")
    for mode in ("cluster", "singles", "cluster"):
        modes.forget(mode)
        killer = Killer(CHANGING + 1)
        played = modes.lab.play("mode", gb10_mode=mode, on_output=killer)
        assert played.rc == 0 and not killer.fired, f"{mode}: {killer.task!r} is task {CHANGING + 1} that changes something, so CHANGING has to grow"
