# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's pure parts."""

from __future__ import annotations

import io
import ipaddress
import pathlib
import sys
import tarfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from labkit import cluster, common, hosts, machine


def test_free_subnet_skips_what_is_in_use():
    used = [ipaddress.IPv4Network("10.77.0.0/24"), ipaddress.IPv4Network("10.77.1.0/25")]
    assert str(cluster.free_subnet(used)) == "10.77.2.0/24"


def test_free_subnet_leaves_a_range_that_is_routed_whole():
    assert str(cluster.free_subnet([ipaddress.IPv4Network("10.0.0.0/8")])) == "192.168.0.0/24"


def test_no_free_subnet():
    with pytest.raises(common.LabError, match="no free /24"):
        cluster.free_subnet([ipaddress.IPv4Network("0.0.0.0/0")])


def test_flags_of_a_privileged_machine():
    assert "--privileged" in hosts.flags(machine.Abilities(privileged=True, memlock=-1, cgroup_version=2))
    assert "--cgroupns=private" in hosts.flags(machine.Abilities(privileged=True, memlock=-1, cgroup_version=2))


def test_flags_of_a_restricted_machine_ask_for_nothing_it_lacks():
    flags = hosts.flags(machine.Abilities(privileged=False, memlock=8388608, cgroup_version=1))
    assert "--cap-drop=SYS_RESOURCE" in flags
    assert not [flag for flag in flags if "privileged" in flag or "memlock" in flag]


def test_archive_keeps_owner_and_mode():
    with tarfile.open(fileobj=io.BytesIO(hosts.archive({"a/b": hosts.File(b"x", 0o600, 1000)}))) as tar:
        member = tar.getmember("a/b")
    assert (member.mode, member.uid, member.gid, member.size) == (0o600, 1000, 1000, 1)


@pytest.mark.parametrize(
    ("url", "remote"),
    [("https://index.example/simple", True), ("file:///opt/simple", False), ("http://localhost:3141/root", False), ("/srv/wheels", False)],
)
def test_is_remote(url, remote):
    assert machine.is_remote(url) is remote


def test_pip_environment_keeps_only_what_a_container_reaches(monkeypatch):
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "file:///opt/simple https://index.example/simple")
    assert machine.pip_environment() == {"PIP_EXTRA_INDEX_URL": "https://index.example/simple"}


def test_fingerprint_follows_content_and_mode(tmp_path):
    path = tmp_path / "file"
    path.write_text("one", encoding="utf-8")
    first = common.fingerprint(tmp_path)
    path.chmod(0o755)
    second = common.fingerprint(tmp_path)
    path.write_text("two", encoding="utf-8")
    assert len({first, second, common.fingerprint(tmp_path)}) == 3


def test_to_yaml():
    assert cluster.to_yaml({"a": {"b": 1, "c": {"d": "x"}}}) == 'a:\n  b: 1\n  c:\n    d: "x"\n'
