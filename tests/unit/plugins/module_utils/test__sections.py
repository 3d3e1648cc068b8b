# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Readers that are called once, or in parallel: what they return and what they raise reaches every caller."""

from __future__ import annotations

import threading

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._sections import Sections, once, pending

#: Seconds that a test waits for what happens at once.
WAIT = 30


def test_a_pending_reader_starts_before_its_answer_is_asked_for():
    started, may_end = threading.Event(), threading.Event()

    def reader():
        started.set()
        assert may_end.wait(WAIT)
        return "read"

    answer = pending(reader)
    assert started.wait(WAIT)
    may_end.set()
    assert (answer(), answer()) == ("read", "read")


@pytest.mark.parametrize("error", [UnknownState("nvidia-smi is missing"), OSError(5, "I/O error"), ValueError("a mistake of ours")])
def test_what_a_reader_raises_is_raised_whenever_it_is_asked(error):
    calls = []

    def reader():
        calls.append(1)
        raise error

    answer = pending(reader)
    for _time in range(2):
        with pytest.raises(type(error), match=str(error.args[-1])):
            answer()
    assert calls == [1]


def test_a_reader_that_runs_once_may_be_pending_and_fails_every_section_that_asks():
    def reader():
        raise UnknownState("nvidia-smi is missing", remedy="Install it.")

    sections = Sections()
    cards = pending(once(reader))
    assert sections.read("gpus", cards, []) == [] and sections.read("tenants", cards, []) == []
    assert [entry["section"] for entry in sections.errors] == ["gpus", "tenants"]
