# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's pure parts."""

from __future__ import annotations

import io
import ipaddress
import json
import pathlib
import subprocess
import sys
import tarfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from labkit import cluster, common, hosts, images, labs, machine, store


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


def test_labs_share_neither_names_nor_numbers():
    def own(lab):
        return [lab.management, lab.fabric, lab.builder, str(lab.inventory), *(part for node in lab.nodes for part in (node.container, node.number))]

    everything = [part for lab in labs.LABS.values() for part in own(lab)]
    assert len(set(everything)) == len(everything)
    assert len({store.seed_name(lab) for lab in labs.LABS.values()}) == len(labs.LABS)


@pytest.mark.parametrize("lab", labs.LABS.values(), ids=labs.LABS)
def test_an_inventory_has_a_head_and_a_worker_with_both_addresses(lab):
    subnets = {lab.management: ipaddress.IPv4Network("10.77.0.0/24"), lab.fabric: ipaddress.IPv4Network("10.77.1.0/24")}
    groups = cluster.inventory(lab, machine.Abilities(privileged=True, memlock=-1, cgroup_version=2), subnets)["gb10_cluster"]["children"]
    assert [len(groups[group]["hosts"]) for group in ("gb10_head", "gb10_workers")] == [1, 1]
    head = lab.nodes[0]
    assert groups["gb10_head"]["hosts"][head.name] == {"ansible_host": f"10.77.0.{10 + head.number}", "gb10_fabric_address": f"10.77.1.{10 + head.number}"}


def test_labs_have_their_committed_variables_in_common():
    assert (labs.NEXT.inventory / "group_vars" / "gb10_cluster.yml").samefile(labs.CURRENT.inventory / "group_vars" / "gb10_cluster.yml")


def test_the_next_lab_keeps_images_in_containerd_and_answers_no_old_version():
    files = hosts.machine_files(labs.NEXT.engine)
    assert json.loads(files["etc/docker/daemon.json"].content)["features"] == {"containerd-snapshotter": True, "cdi": True}
    assert b"DOCKER_MIN_API_VERSION=1.44" in files["etc/systemd/system/docker.service.d/environment.conf"].content
    assert "etc/systemd/system/docker.service.d/environment.conf" not in hosts.machine_files(labs.CURRENT.engine)


def test_a_clone_shares_what_is_immutable_and_copies_the_rest(tmp_path):
    seed, node = tmp_path / "seed", tmp_path / "nodes" / "spark-1"
    for name in ("docker/overlay2/aa/diff/usr/file", "docker/overlay2/aa/link", "docker/image/db", "huggingface/hub/model"):
        (seed / name).parent.mkdir(parents=True, exist_ok=True)
        (seed / name).write_text(name, encoding="utf-8")
    node.parent.mkdir()
    excludes = [f"--exclude=./{pattern}" for pattern in labs.OVERLAY2.immutable]
    subprocess.run(["sh", "-c", store.CLONE, "sh", seed, node, *excludes], check=True, timeout=30)
    shared = {str(path.relative_to(seed)): path.samefile(node / path.relative_to(seed)) for path in seed.rglob("*") if path.is_file()}
    assert shared == {"docker/overlay2/aa/diff/usr/file": True, "docker/overlay2/aa/link": False, "docker/image/db": False, "huggingface/hub/model": False}
    assert sorted(path.name for path in node.parent.iterdir()) == ["spark-1"]


def test_cleaning_one_lab_keeps_the_base_that_the_other_needs(monkeypatch):
    removed = []
    monkeypatch.setattr(images, "exists", lambda tag: True)
    monkeypatch.setattr(images, "docker", lambda command, tag, **_: removed.append(tag))
    images.drop(labs.CURRENT)
    assert removed == [images.node_tag(labs.CURRENT)]
    images.drop(labs.NEXT)
    assert removed[1:] == [images.node_tag(labs.NEXT), images.base_tag(labs.TRIXIE)]
