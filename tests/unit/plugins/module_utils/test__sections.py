# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Readers that are called once, or beside others: what they return and what they raise reaches whoever asks."""

from __future__ import annotations

import threading

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._sections import Sections, ahead, once

#: Seconds that a test waits for what happens at once.
WAIT = 30


def test_a_reader_that_is_begun_ahead_does_not_wait_to_be_asked():
    begun, may_end = threading.Event(), threading.Event()

    def reader():
        begun.set()
        assert may_end.wait(WAIT)
        return "read"

    answer = ahead(reader)
    assert begun.wait(WAIT)
    may_end.set()
    assert (answer(), answer()) == ("read", "read")


@pytest.mark.parametrize("error", [UnknownState("nvidia-smi is missing"), OSError(5, "I/O error"), ValueError("a mistake of ours")])
def test_what_a_reader_raises_is_raised_whenever_it_is_asked(error):
    calls = []

    def reader():
        calls.append(1)
        raise error

    answer = ahead(reader)
    for _time in range(2):
        with pytest.raises(type(error), match=str(error.args[-1])):
            answer()
    assert calls == [1]


def test_one_that_is_read_once_may_be_begun_ahead_and_fails_every_section_that_asks():
    def reader():
        raise UnknownState("nvidia-smi is missing", remedy="Install it.")

    sections = Sections()
    cards = ahead(once(reader))
    assert sections.read("gpus", cards, []) == [] and sections.read("tenants", cards, []) == []
    assert [entry["section"] for entry in sections.errors] == ["gpus", "tenants"]
