# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role protect in check mode on this machine, with a simulated node for its tools' output."""

from __future__ import annotations

import json
from pathlib import Path

import stack_tree
import through_ansible
import yaml
from protected_node import ProtectedNode

SYSCTL = Path("/etc/sysctl.d/90-gb10-protect.conf")
BOOK = [{"hosts": "gb10_cluster", "gather_facts": False, "any_errors_fatal": True, "roles": ["gb10.cluster.protect"]}]


def play(place: Path, node: ProtectedNode, **variables: object) -> tuple[int, str]:
    stack_tree.Tree(place / "proc")
    looks = {}
    for name, answer in node._read().items():
        (place / name).write_text(answer["stdout"])
        looks[name] = ["cat", str(place / ("none" if answer["rc"] else name))]
    inventory = {"all": {"children": {"gb10_cluster": {"children": {"gb10_head": {"hosts": {"spark-1": {"ansible_connection": "local"}}}}}}}}
    (place / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
    (place / "book.yml").write_text(yaml.safe_dump(BOOK), encoding="utf-8")
    given = {
        "__protect_looks": looks, "gb10_state_dir": str(place), "ansible_become": False, "gb10_node_roots": {"proc_root": str(place / "proc")}, **variables,
    }  # fmt: skip
    done = through_ansible.run("playbook", "-i", "hosts.yml", "book.yml", "--check", "--diff", "-e", json.dumps(given), cwd=place)
    return done.rc, done.out


def test_check_mode_shows_what_would_be_done(tmp_path: Path) -> None:
    rc, output = play(tmp_path, ProtectedNode(), gb10_protect_measures="swap,unattended")
    assert rc == 0, output
    assert f"would write {SYSCTL}" in output and "+vm.swappiness = 1" in output and "would set vm.swappiness from 60 to 1" in output
    assert "upgrades come unattended, from" in output and not SYSCTL.exists() and not (tmp_path / "protection.json").exists()
    assert "changed=0 " not in output


def test_what_is_not_known_fails_the_play_at_its_end(tmp_path: Path) -> None:
    node = ProtectedNode()
    node.apt = {}
    rc, output = play(tmp_path, node, gb10_protect_measures="swap,unattended")
    assert rc == 2 and "apt-config dump cannot be read" in output and "not set up yet" in output, output


def test_where_all_is_as_it_should_be_nothing_is_changed(tmp_path: Path) -> None:
    node = ProtectedNode()
    node.files["/etc/sysctl.conf"], node.swappiness = ("vm.swappiness = 1\n", "0644"), "1"
    node.packages = {name: ["hold", *about[1:]] for name, about in node.packages.items()}
    rc, output = play(tmp_path, node, gb10_protect_measures="swap,holds,unattended")
    assert rc == 0 and "nothing to change" in output and "changed=0 " in output, output


def test_a_revert_in_check_mode_names_what_would_go(tmp_path: Path) -> None:
    node = ProtectedNode()
    node.run("swap")
    rc, output = play(tmp_path, node, gb10_protect="revert", gb10_protect_measures="swap,sshd")
    assert rc == 0 and f"would remove {SYSCTL}" in output and "would set vm.swappiness back to 60" in output, output


def test_a_measure_that_cannot_be_carried_out_stops_no_other(tmp_path: Path) -> None:
    """This machine has no package of that name."""
    node = ProtectedNode()
    node.packages = {"nvidia-open-of-nowhere": ["install", "installed", "1"], **node.packages}
    rc, output = play(tmp_path, node, gb10_protect_measures="holds,unattended,swap")
    assert rc == 2 and "Hold the packages, or release them: " in output, output
    assert "upgrades come unattended, from" in output and f"would write {SYSCTL}" in output, output
