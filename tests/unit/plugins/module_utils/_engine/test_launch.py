# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the node's modules call the launcher."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._engine import launch


@pytest.mark.parametrize(("sudo_user", "uid", "name"), [("ada", 0, "ada"), ("", 0, "root"), ("", 4242, "4242")])
def test_who_stops_an_engine_has_a_name_or_a_number(monkeypatch, sudo_user, uid, name):
    monkeypatch.setenv("SUDO_USER", sudo_user)
    monkeypatch.setattr(launch.os, "getuid", lambda: uid)
    assert launch.who("vllm_serve") == f"user {name} with vllm_serve"
