# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's half of a copy of an image: only fetching is waited for."""

from __future__ import annotations

import types

import pytest

from ansible_collections.gb10.cluster.plugins.action import image_copy


@pytest.mark.parametrize(("state", "check", "short"), [("copied", False, False), ("copied", True, True), ("served", False, True), ("stopped", False, True)])
def test_only_fetching_is_a_job(state: str, check: bool, short: bool) -> None:
    action = image_copy.ActionModule.__new__(image_copy.ActionModule)
    action._task = types.SimpleNamespace(args={"state": state, "timeout": 30, "cluster_name": "c"}, check_mode=check)
    assert action.is_short() is short
    assert (action.limit(), action.note()) == (30, "/var/lib/gb10/image-copy-c.json")
