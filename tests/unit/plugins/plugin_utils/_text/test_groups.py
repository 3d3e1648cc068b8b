# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values by their keys, and rows as aligned lines."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.plugin_utils._text.groups import grouped
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import aligned


def test_values_keep_the_order_of_the_pairs():
    groups = grouped([("b", 2), ("a", 1), ("b", 1)])
    assert list(groups.items()) == [("b", [2, 1]), ("a", [1])] and groups["c"] == []


def test_the_last_column_is_as_wide_as_its_text():
    assert aligned([("model", "node", "state"), ("m", "spark-1", "in use by an engine")]) == ["model  node     state", "m      spark-1  in use by an engine"]
