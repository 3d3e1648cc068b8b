# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulated sysfs writes what the kernel does, on the Python of either lab."""

from __future__ import annotations

import runpy
from pathlib import Path

SYSFS = runpy.run_path(str(Path(__file__).resolve().parents[1] / "node" / "files" / "gb10_lab_sysfs.py"))


def test_the_gid_of_an_ipv4_address_is_all_hex():
    assert SYSFS["mapped"]("10.77.1.11") == "0000:0000:0000:0000:0000:ffff:0a4d:010b"


def test_a_host_that_is_not_on_the_fabric_has_no_card(tmp_path, monkeypatch):
    monkeypatch.setitem(SYSFS["build"].__globals__, "NETDEV", "absent0")
    SYSFS["build"](tmp_path / "sys")
    assert (tmp_path / "sys/class/net/lo").is_symlink() and not (tmp_path / "sys/class/infiniband").exists()
