# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A variable of several hosts."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.filter.by_host import by_host


def test_hosts_without_the_variable_are_left_out_and_the_order_is_theirs():
    hostvars = {"a": {"x": 1}, "b": {}, "c": {"x": None}}
    assert list(by_host(["c", "b", "a"], hostvars, "x").items()) == [("c", None), ("a", 1)]
    assert by_host(["b", "a"], hostvars, "x", 0) == {"b": 0, "a": 1}
