# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The evidence that is kept before anything is stopped: what it has, how much, and that no secret is in it."""

from __future__ import annotations

import os
import stat
import typing as t

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils import _redact
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._guard import guard_files, ring
from ansible_collections.gb10.cluster.plugins.module_utils._recover import keeping
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult

SECRET = "plantedSecret4711"
OWN = {"unit": "running", "processes": [{"pid": 41}, {"pid": 42}]}


class Node:
    """A node whose modules and tools answer from here."""

    def __init__(self, path: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given = {
            "cluster": "gb10", "state_dir": str(path / "state"), "log_dir": str(path / "log"),
            "roots": {"proc_root": str(path / "proc"), "sysfs_root": str(path / "sys"), "etc_root": str(path / "etc")},
        }  # fmt: skip
        self.folder = path / "log" / "gb10" / keeping.FOLDER
        logs = [{"name": "engine.log", "text": "the last words"}, {"name": "kernel.log", "text": f"key {SECRET}"}]
        self.logs: dict[str, t.Any] = {"changed": False, "logs": logs}
        self.asked: list[t.Any] = []
        self.ran: list[list[str]] = []
        (path / "secrets" / "gb10").mkdir(parents=True)
        (path / "secrets" / "gb10" / "recover_key").write_text(SECRET)
        monkeypatch.setattr(_redact, "SECRETS_DIR", str(path / "secrets"))
        monkeypatch.setattr(keeping, "run_tool", self.tool)
        monkeypatch.setattr(keeping.traffic, "sample", lambda sysfs, proc: {"devices": {"rocep1s0f0": {"sent": 7}}})
        for pid, thread in ((41, 41), (41, 43), (42, 42), (44, 44)):
            for name in (*keeping.THREAD_FILES, "environ"):
                (path / "proc" / str(pid) / "task" / str(thread)).mkdir(parents=True, exist_ok=True)
                (path / "proc" / str(pid) / "task" / str(thread) / name).write_text(name)

    def tool(self, argv: list[str], seconds: float) -> ToolResult:
        assert seconds == keeping.SECONDS
        self.ran.append(argv)
        return ToolResult(0, f"answer of {argv[0]}", "")

    def run(self, name: str, arguments: dict[str, t.Any], seconds: float, predict: bool) -> dict[str, t.Any]:
        self.asked.append((name, arguments, seconds, predict))
        return self.logs

    def keep(self) -> str:
        return keeping.keep(self.given, OWN, self.run)


@pytest.fixture
def node(tmp_path: t.Any, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_logs_stacks_and_counters_are_in_one_file_of_root(node: Node) -> None:
    path = node.keep()
    with open(path, encoding="utf-8") as stream:
        content = stream.read()
    assert os.path.dirname(path) == str(node.folder) and keeping.NAME.fullmatch(os.path.basename(path))
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600 and stat.S_IMODE(os.stat(node.folder).st_mode) == 0o700
    sections = [line.removeprefix("== ") for line in content.splitlines() if line.startswith("== ")]
    assert sections == ["evidence", "stacks", "nccl", "counters", "guard", "engine.log", "kernel.log"]
    assert '"unit": "running"' in content and "answer of tail" in content and '"sent": 7' in content and "== engine.log\nthe last words" in content
    assert SECRET not in content and "<secret recover_key>" in content
    (name, options, seconds, predict), *rest = node.asked
    assert (name, options["cluster_name"], options["log_dir"], options["max_bytes"], seconds, predict, rest) == (
        "node_logs", "gb10", node.given["log_dir"], keeping.MOST, keeping.LOG_SECONDS, False, [],
    )  # fmt: skip


def test_stacks_are_those_of_the_engines_threads_alone(node: Node) -> None:
    keeping.stacks(node.given, OWN)
    ((tail, lines, verbose, first, *paths),) = node.ran
    assert (tail, lines, verbose, first) == ("tail", "--lines=+1", "--verbose", "/dev/null")
    threads = [f"{node.given['roots']['proc_root']}/{pid}/task/{thread}" for pid, thread in ((41, 41), (41, 43), (42, 42))]
    assert paths == sorted(f"{thread}/{name}" for thread in threads for name in keeping.THREAD_FILES)


def test_the_last_minute_of_the_guard(node: Node) -> None:
    assert keeping.ring_end(node.given) == []
    folder = os.path.join(guard_files.unit_of(node.given["state_dir"], "/etc").folder, guard_files.RING)
    for boot, first in (("a", 0.0), ("b", 1000.0)):
        writer = ring.Writer(folder, {"boot": boot})
        writer.write([{"t": first + second, "a": second} for second in range(100)], first)
        writer.close()
    assert [record["t"] for record in keeping.ring_end(node.given)] == [1039.0 + second for second in range(61)]


@pytest.mark.parametrize("error", [UnknownState("it hangs"), PermissionError(13, "denied", "/x")])
def test_a_source_that_cannot_be_read_is_named(node: Node, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fails(_given: t.Any, _own: t.Any) -> str:
        raise error

    monkeypatch.setitem(keeping.SOURCES, "nccl", fails)
    with open(node.keep(), encoding="utf-8") as stream:
        content = stream.read()
    assert "== nccl\nunknown: " in content and "== counters" in content


def test_nothing_is_kept_without_the_logs(node: Node) -> None:
    node.logs = {"failed": True, "msg": "Docker does not answer", "verdict": "unknown"}
    with pytest.raises(ClusterError, match="node_logs: Docker does not answer"):
        node.keep()
    assert not node.folder.exists()


def test_it_is_bounded_and_the_new_one_stays_whatever_its_name(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.folder.mkdir(parents=True)
    names = [f"2026112{day}T000000Z.txt" for day in range(1, 8)]
    for name in (*names, "users-own.txt"):
        (node.folder / name).write_text("x")
    monkeypatch.setattr(keeping, "utc_text", lambda: "2001-01-01T00:00:00Z")
    monkeypatch.setattr(keeping, "MOST", 40)
    node.logs["logs"] = [{"name": f"{number}.log", "text": f"begin {'x' * 100} end"} for number in range(3)]
    path = node.keep()
    assert sorted(os.listdir(node.folder)) == sorted(["20010101T000000Z.txt", *names[-4:], "users-own.txt"])
    with open(path, encoding="utf-8") as stream:
        content = stream.read()
    assert "== 2.log\n" in content and content.endswith(" end") and "begin" not in content.partition("== 0.log")[2]
    monkeypatch.setattr(keeping, "MOST_OF_FILE", 60)
    assert os.path.getsize(node.keep()) == 60


def test_a_secret_is_hidden_before_it_is_cut(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "MOST", 10)
    node.logs["logs"] = [{"name": "engine.log", "text": f"{'x' * 50}{SECRET}"}]
    with open(node.keep(), encoding="utf-8") as stream:
        assert SECRET[-10:] not in stream.read()


def test_nccl_is_asked_on_this_node_and_a_limit_holds(node: Node) -> None:
    keeping.read("nccl", node.given, OWN)
    (argv,) = node.ran
    assert argv[1:3] == ["-I", "-c"] and '("127.0.0.1", 28028)' in argv[3] and r'b"verbose status\n"' in argv[3]
    compile(argv[3], "ras", "exec")
