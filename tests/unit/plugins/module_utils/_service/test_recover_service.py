# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The units of a recovery on a node: set up once, with a pause that stays as it began, and removed with everything."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import types
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._lock import cluster_locks
from ansible_collections.gb10.cluster.plugins.module_utils._recover import recover_files
from ansible_collections.gb10.cluster.plugins.module_utils._service import recover_service
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import ask, setup, unit
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult

SENT = b"sent"


class Node:
    """A node without the recovery, and the calls to its systemd."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.asked, self.now, self.runs = path, [], 1000.0, False
        (path / "proc/sys/kernel/random").mkdir(parents=True)
        (path / "proc/sys/kernel/random/boot_id").write_text("b")
        (path / "etc/systemd/system").mkdir(parents=True)
        (path / "state/gb10").mkdir(parents=True)
        (path / "sent").write_bytes(SENT)
        for module in (ask, setup, unit):
            monkeypatch.setattr(module, "run_tool", self.systemctl)
        monkeypatch.setattr(ask.shutil, "which", lambda name: f"/usr/bin/{name}")
        monkeypatch.setattr(recover_service.python, "of_units", lambda *modules: f"/usr/bin/python3-{'-'.join(modules)}")
        monkeypatch.setattr(recover_service, "boot_seconds", lambda: self.now)

    def systemctl(self, argv: list[str], seconds: float, content: bytes = b"") -> ToolResult:
        if argv[1] != "show":
            self.asked.append(" ".join(argv[1:]))
            self.runs = argv[1] == "restart" or (self.runs and argv[1] != "disable")
            return ToolResult(0, "", "")
        assert not any("@." in word for word in argv)
        block = f"ActiveState={'active' if self.runs else 'inactive'}\nUnitFileState={'enabled' if self.runs else 'disabled'}\n"
        return ToolResult(0, "\n".join([block] * len(argv[3:])), "")

    @property
    def folder(self) -> Path:
        return self.path / "state/gb10/recover"

    def call(self, state: str = "present", check: bool = False, nodes: int = 2, **more: t.Any) -> dict[str, t.Any]:
        roots = {"proc_root": str(self.path / "proc"), "etc_root": str(self.path / "etc")}
        given = {
            "cluster": "gb10", "role": "head", "executor": "ray", "nodes": {f"spark-{number}": f"10.0.0.{number}" for number in range(1, nodes + 1)}, "gpus": 1,
            "state_dir": "/s", "log_dir": "/l", "memory": {}, "meeting": {}, "address": "10.0.0.1", "start_seconds": 1, "start": [], "stop": [],
        }  # fmt: skip
        params = {
            "state": state, "state_dir": str(self.path / "state"), "cluster_name": "gb10", "specification": given, "lock_id": "", "tool_timeout": 60,
            "start_timeout": 60, "roots": roots, "program_digest": hashlib.sha256(SENT).hexdigest(), "program_file": str(self.path / "sent"), "node": "spark-1",
            "head": "spark-1", "act": "observe", "pause": "", "port": 20302, "secrets_dir": "/etc/gb10/secrets", "answers": ["echo"], "model": "m",
            "tolerance_mb": 4096, "wait_timeout": 180, **more,
        }  # fmt: skip
        return recover_service.work(types.SimpleNamespace(params=params, check_mode=check))

    def config(self) -> dict[str, t.Any]:
        return json.loads((self.folder / recover_files.CONFIG).read_text())


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_it_is_set_up_once_for_root_alone(node: Node) -> None:
    first = node.call()
    assert first["changed"] and first["recover"]["installed"] and first["recover"]["active"]
    assert node.asked == ["daemon-reload", "enable --quiet gb10-recover-gb10.timer", "restart gb10-recover-gb10.timer"]
    assert stat.S_IMODE(node.folder.stat().st_mode) == 0o700 and stat.S_IMODE((node.folder / recover_files.CONFIG).stat().st_mode) == 0o600
    assert node.config() == {
        "cluster": "gb10", "node": "spark-1", "head": "spark-1", "act": "observe", "port": 20302, "state_dir": str(node.path / "state"), "pause": {},
        "secrets_dir": "/etc/gb10/secrets", "answers": ["echo"], "model": "m", "memory": {"tolerance_mb": 4096, "wait_timeout": 180},
        "proc_root": str(node.path / "proc"),
    }  # fmt: skip
    assert "ListenStream=10.0.0.1:20302" in (node.path / "etc/systemd/system/gb10-recover-gb10.socket").read_text()
    assert "ExecStart=/usr/bin/python3-docker -I" in (node.path / "etc/systemd/system/gb10-recover-gb10.service").read_text()
    node.asked.clear()
    assert not node.call()["changed"] and node.asked == []


def test_a_setting_needs_no_restart_and_another_address_does(node: Node) -> None:
    node.call()
    node.asked.clear()
    assert node.call(act="restart")["changed"] and node.asked == [] and node.config()["act"] == "restart"
    assert node.call(act="restart", port=30302)["changed"] and node.asked == ["daemon-reload", "restart gb10-recover-gb10.timer"]


def test_a_single_node_has_no_listener(node: Node) -> None:
    node.call(nodes=1)
    assert "Wants=" not in (node.path / "etc/systemd/system/gb10-recover-gb10.timer").read_text()


def test_check_mode_writes_nothing(node: Node) -> None:
    assert node.call(check=True)["changed"] and not node.folder.exists() and node.asked == []


def test_a_pause_stays_as_it_began_and_begins_again_when_it_is_over(node: Node) -> None:
    assert node.call(pause="2h upgrading")["changed"]
    assert node.config()["pause"] == {"text": "2h upgrading", "boot_id": "b", "at_s": 1000.0}
    node.now = 8199.0
    assert not node.call(pause="2h upgrading")["changed"]
    node.now = 8200.0
    assert node.call(pause="2h upgrading")["changed"] and node.config()["pause"]["at_s"] == 8200.0
    assert node.call(pause="3h upgrading")["changed"] and node.config()["pause"]["text"] == "3h upgrading"
    assert node.call()["changed"] and node.config()["pause"] == {} and not node.call()["changed"]


def test_an_invalid_specification_and_a_lost_lock_write_nothing(node: Node) -> None:
    with pytest.raises(ClusterError, match="the specification cannot be used"):
        node.call(specification={})
    Path(cluster_locks.path_of(str(node.path / "state"), "gb10")).write_text(json.dumps({"id": "other", "acquired_at": "", "holder": {}}))
    with pytest.raises(ClusterError, match="lost the cluster's lock mine"):
        node.call(lock_id="mine")
    assert not node.folder.exists()


def test_it_is_removed_with_everything(node: Node) -> None:
    node.call()
    (node.folder / "state.json").write_text("{")
    node.asked.clear()
    gone = node.call("absent", specification=None)
    assert gone["changed"] and not node.folder.exists() and os.listdir(node.path / "etc/systemd/system") == []
    disable, stop, *_rest = node.asked
    assert disable == "disable --quiet --now gb10-recover-gb10.timer"
    # A template is not a unit that can be stopped.
    assert stop == "stop gb10-recover-gb10.service gb10-recover-gb10.socket"
    assert not node.call("absent", specification=None)["changed"]
