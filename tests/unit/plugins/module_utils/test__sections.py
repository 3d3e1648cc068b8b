# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sections that fail by themselves."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._sections import Sections, fail, once


def test_what_fails_is_noted_once_and_the_rest_is_read():
    sections = Sections()
    part = sections.part("limits")
    assert part(lambda: 3) == 3 and sections.errors == []
    for _time in range(2):
        assert part(lambda: fail(PermissionError(13, "Permission denied", "/etc/x")), "otherwise") == "otherwise"
    assert part(lambda: fail(ClusterError("no engine", remedy="start it"))) is None
    assert sections.errors == [
        {"section": "limits", "verdict": "unknown", "error": "/etc/x: Permission denied", "remedy": "Run the task with become: true."},
        {"section": "limits", "verdict": "block", "error": "no engine", "remedy": "start it"},
    ]


def test_an_error_of_the_program_is_not_a_section_that_could_not_be_seen():
    with pytest.raises(KeyError):
        Sections().read("limits", lambda: fail(KeyError("x")))


def test_what_several_need_is_read_once_and_fails_for_each():
    calls = []
    reader = once(lambda: calls.append(1) or len(calls))
    assert (reader(), reader()) == (1, 1)

    broken = once(lambda: calls.append(1) or fail(UnknownState("no")))
    for _time in range(2):
        with pytest.raises(UnknownState, match="no"):
            broken()
    assert len(calls) == 2
