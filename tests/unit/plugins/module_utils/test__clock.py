# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moments as records have them, and as Docker has."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils import _clock
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState


def test_a_moment_is_written_in_utc():
    assert _clock.utc_text(1795226273.9) == "2026-11-21T01:57:53Z"
    assert _clock.utc_text(0) == "1970-01-01T00:00:00Z" and _clock.utc_text().endswith("Z")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:01:00Z", 60),
        ("1970-01-01T00:01:00.753754100Z", 60),
        ("1970-01-01T01:01:00.5+01:00", 60),
    ],
)
def test_dockers_times_are_read(text, seconds):
    assert _clock.seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "yesterday", "1970-01-01 00:01:00", "1970-01-01T00:01:00"])
def test_a_time_of_another_shape_is_unknown(text):
    with pytest.raises(UnknownState):
        _clock.seconds_of(text)
