# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The text of environment variables."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._arguments.env_text import env_text
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError


@pytest.mark.parametrize(("value", "text"), [("a b", "a b"), (7, "7"), (0.5, "0.5"), (True, "1"), (False, "0"), ("", "")])
def test_values_have_one_spelling(value, text):
    assert env_text("X", value) == text


@pytest.mark.parametrize("value", [None, ["planted"], {"a": "planted"}])
def test_a_value_with_several_spellings_is_refused_and_not_shown(value):
    with pytest.raises(ClusterError, match="env X is of type") as caught:
        env_text("X", value)
    assert "planted" not in str(caught.value) and "Quote" in caught.value.remedy
