# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Device nodes."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._host import devices


def test_a_node_a_filled_directory_an_empty_one_and_nothing(tmp_path):
    (tmp_path / "dev/infiniband").mkdir(parents=True)
    assert not devices.has_device("/dev/infiniband", str(tmp_path))
    (tmp_path / "dev/infiniband/uverbs0").touch()
    assert devices.has_device("/dev/infiniband", str(tmp_path))
    assert devices.has_device("/dev/infiniband/uverbs0", str(tmp_path))
    assert not devices.has_device("/dev/nvidia0", str(tmp_path))
    assert not devices.has_device("/dev/infiniband/uverbs0/x", str(tmp_path))


def test_a_missing_permission_is_not_an_answer(tmp_path, monkeypatch):
    def denied(_path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "stat", denied)
    with pytest.raises(PermissionError):
        devices.has_device("/dev/infiniband", str(tmp_path))
