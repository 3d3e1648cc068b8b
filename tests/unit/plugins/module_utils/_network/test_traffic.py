# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node has sent, from a recorded /proc/net/dev and a tree of the form of mlx5's sysfs."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._network import traffic

#: Recorded in the lab (Linux 6.1).
NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 9064048   23069    0    0    0     0          0         0  9064048   23069    0    0    0     0       0          0
  eth0: 217200340   74829    0    0    0     0          0         0  5177641   74440    0    0    0     0       0          0
eth1:6065068   72982    0    0    0     0          0         0  4740748   73054    0    0    0     0       0          0
"""


def test_bytes_that_interfaces_have_sent():
    assert traffic.parse_net_dev(NET_DEV) == {"lo": 9064048, "eth0": 5177641, "eth1": 4740748}


@pytest.mark.parametrize("line", ["eth2: 1 2 3", "eth2:" + " 1" * 8 + " many" + " 1" * 7])
def test_a_count_of_another_shape_is_unknown(line):
    with pytest.raises(UnknownState, match="cannot be read"):
        traffic.parse_net_dev(f"{NET_DEV}{line}\n")


@pytest.fixture
def sysfs(tmp_path):
    """Four functions of a ConnectX-7, as a Spark has them; the last does not count."""
    for number, name in enumerate(("rocep1s0f0", "roceP2p1s0f0", "rocep1s0f1", "roceP2p1s0f1"), 1):
        port = tmp_path / "class/infiniband" / name / "ports/1"
        (port / "counters").mkdir(parents=True)
        (tmp_path / "class/infiniband" / name / "device/net" / f"enp{number}").mkdir(parents=True)
        if number < 4:
            (port / "counters/port_xmit_data").write_text(f"{number}000\n")
    return tmp_path


def test_rdma_devices_count_four_bytes_at_a_time(sysfs: pathlib.Path):
    counters = traffic.sample(str(sysfs))
    assert {name: device["sent"] for name, device in counters["devices"].items()} == {
        "rocep1s0f0": 4000, "roceP2p1s0f0": 8000, "rocep1s0f1": 12000, "roceP2p1s0f1": None,
    }  # fmt: skip
    assert traffic.all_rdma_sent(str(sysfs)) == 24000 and traffic.all_rdma_sent(str(sysfs / "none")) is None
    assert counters["devices"]["rocep1s0f0"]["netdevs"] == ["enp1"]
    assert "127.0.0.1" in counters["interfaces"]["lo"]["addresses"] and counters["at"] > 0


def test_a_count_that_is_not_a_number_is_unknown(sysfs: pathlib.Path):
    (sysfs / "class/infiniband/rocep1s0f0/ports/1/counters/port_xmit_data").write_text("N/A (no PMA)\n")
    with pytest.raises(UnknownState):
        traffic.sample(str(sysfs))
