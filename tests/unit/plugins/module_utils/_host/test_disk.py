# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The space of a path that exists, and of a path that does not exist yet."""

from __future__ import annotations

from ansible_collections.gb10.cluster.plugins.module_utils._host import disk


def test_nearest_existing(tmp_path):
    assert disk.nearest_existing(str(tmp_path / "x/y")) == str(tmp_path)
    assert disk.nearest_existing("/") == "/"


def test_a_missing_path_has_the_space_of_its_parent(tmp_path):
    space = disk.disk(str(tmp_path / "models/hub"))
    assert space["measured_at"] == str(tmp_path)
    assert 0 <= space["free_bytes"] <= space["total_bytes"]
