# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the guard reads: recorded lines of the driver's tool, a log that grows, the phase of ranks, and the program as one file."""

from __future__ import annotations

import json
import os
import subprocess
import types
from pathlib import Path

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._guard import recorder, sources, trend, unit_text
from ansible_collections.gb10.cluster.plugins.module_utils._memory import note


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("2398, 13.52, 49, 0, 0x0000000000000001", {"sm": 2398, "w": 13.52, "c": 49, "u": 0, "why": 1}),
        ("2327, 80.39, 80, 96, 0x0000000000000020", {"sm": 2327, "w": 80.39, "c": 80, "u": 96, "why": 0x20}),
        ("[N/A], 11.17, 35, 0, [Not Supported]", {"sm": None, "w": 11.17, "c": 35, "u": 0, "why": None}),
        ("No devices were found", None),
        ("1, 2, 3", None),
        ("\x00<<<simulated rubbish>>>, x, y, z, w", {"sm": None, "w": None, "c": None, "u": None, "why": None}),
    ],
)
def test_a_line_of_the_driver_is_parsed_and_missing_values_are_unknown(line: str, values: dict[str, object] | None) -> None:
    assert sources.parse_gpu(line) == values


def test_new_lines_of_a_log_are_returned_once(tmp_path: Path) -> None:
    log = tmp_path / "kernel.log"
    log.write_text("5,0,0,-;Linux version 6.14 (lab)\n4,1,10,-;NVRM: Xid (PCI:000f:01:00): 13, old\n", encoding="utf-8")
    kernel = sources.Kernel(str(log), "/proc")
    assert kernel.now() == []
    with log.open("a", encoding="utf-8") as stream:
        stream.write("4,2,20,-;NVRM: Xid (PCI:000f:01:00): 43, pid=1\n4,3,21,-;half a li")
    assert kernel.now() == [["xid", "NVRM: Xid (PCI:000f:01:00): 43, pid=1"]]
    assert kernel.now() == []
    assert sources.Kernel(str(tmp_path / "none"), "/proc").now() is None


HERTZ = os.sysconf("SC_CLK_TCK")
YOUNG = sources.Rank(7, 4000 * HERTZ, "rank", "c", True, "gb10")


class Holders(sources.Ranks):
    """Ranks without Docker and without processes, on a node that is up for 5000 s."""

    def __init__(self, root: Path, *ranks: sources.Rank) -> None:
        (root / "uptime").write_text("5000.0 1.0\n", encoding="ascii")
        super().__init__(str(root), "b1", {"served": str(root / "served.json"), "state_dir": str(root), "load_seconds": 3600.0})
        self.found = list(ranks)


def noted(root: Path, cluster: str = "gb10", **more: object) -> None:
    """A note of what was available before a start."""
    (root / cluster).mkdir(exist_ok=True)
    content = {"available_mb": 1, "boot_id": "b1", "uptime_s": 3990, "level_mb": 7000, "level_why": "the plan", **more}
    (root / cluster / "memory.json").write_text(json.dumps(content), encoding="utf-8")


def test_ranks_load_until_they_are_said_to_serve_or_are_old(tmp_path: Path) -> None:
    served, old = tmp_path / "served.json", sources.Rank(8, 10 * HERTZ, "rank", "c", True)
    assert Holders(tmp_path, YOUNG._replace(ours=False)).phase() == trend.NONE == Holders(tmp_path, YOUNG._replace(kind="api_server")).phase()
    assert Holders(tmp_path, YOUNG).phase() == trend.LOADING
    assert Holders(tmp_path, old).phase() == trend.SERVING
    served.write_text(json.dumps({"ranks": [[7, 4000 * HERTZ]]}), encoding="utf-8")
    assert Holders(tmp_path, YOUNG).phase() == trend.SERVING
    # Another process with the same number.
    served.write_text(json.dumps({"ranks": [[7, 3999 * HERTZ]]}), encoding="utf-8")
    assert Holders(tmp_path, YOUNG).phase() == trend.LOADING
    for broken in ("[]", "{", '{"ranks": 7}', "[" * 100000):
        served.write_text(broken, encoding="utf-8")
        assert Holders(tmp_path, YOUNG).phase() == trend.LOADING


def test_the_level_of_our_ranks_is_that_of_their_clusters_note(tmp_path: Path) -> None:
    assert Holders(tmp_path).level().mb is None
    assert Holders(tmp_path, YOUNG).level().mb is None, "no note"
    noted(tmp_path)
    assert Holders(tmp_path, YOUNG).level() == (7000, "the plan")
    assert Holders(tmp_path, YOUNG._replace(ours=False)).level().mb is None
    other = YOUNG._replace(pid=9, cluster="spark-1")
    assert Holders(tmp_path, YOUNG, other).level().mb is None, "what one of them is to leave is not known"
    noted(tmp_path, "spark-1", level_mb=5000)
    assert Holders(tmp_path, YOUNG, other).level().mb == 5000
    noted(tmp_path, "spark-1", level_mb=-3)
    assert Holders(tmp_path, YOUNG, other).level().mb == -3
    noted(tmp_path, "spark-1", level_mb=None, level_why="no plan")
    assert Holders(tmp_path, YOUNG, other).level() == (None, "no plan")


@pytest.mark.parametrize("cluster", ["", "..", ".", "../gb10", "/gb10", ".hidden"])
def test_a_label_is_not_used_as_a_path(tmp_path: Path, cluster: str) -> None:
    noted(tmp_path)
    assert Holders(tmp_path, YOUNG._replace(cluster=cluster)).level().mb is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"boot_id": "b0"},
        {"uptime_s": 4002},
        {"uptime_s": None},
        {"uptime_s": "3990"},
        {"level_mb": "7000"},
        {"level_mb": 7000.5},
        {"level_why": None},
    ],
)
def test_a_note_of_another_start_or_form_is_ignored(tmp_path: Path, wrong: dict[str, object]) -> None:
    noted(tmp_path, **wrong)
    assert Holders(tmp_path, YOUNG).level().mb is None


def test_an_older_versions_note_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "gb10").mkdir()
    (tmp_path / "gb10/memory.json").write_text(json.dumps({"available_mb": 118800, "boot_id": "b1", "noted_at": 1.0}), encoding="utf-8")
    assert Holders(tmp_path, YOUNG).level() == (None, "an older version of this collection noted the start")


def test_a_note_is_for_the_ranks_that_come_first_after_it_until_they_are_gone(tmp_path: Path) -> None:
    """A live engine that is started again, with other arguments maybe, is another start, of which nothing was noted."""
    noted(tmp_path)
    ranks, later = Holders(tmp_path, YOUNG), YOUNG._replace(pid=70, start_ticks=4100 * HERTZ)
    assert ranks.level().mb == 7000
    ranks.found = [YOUNG, later]
    assert ranks.level().mb == 7000, "an engine starts its ranks one after the other"
    ranks.found = [later]
    assert ranks.level().mb == 7000
    ranks.found = []
    assert ranks.level().mb is None
    ranks.found = [YOUNG._replace(pid=71, start_ticks=4200 * HERTZ)]
    assert ranks.level() == ranks.level() == (None, "nothing was noted before this start")
    noted(tmp_path, uptime_s=4190, level_mb=6000)
    assert ranks.level().mb == 6000


def test_docker_names_the_owner_of_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [{"Id": "c", "Labels": {"io.gb10.cluster": "gb10"}}, {"Id": "d", "Labels": None}, {"Id": 7}]
    process = types.SimpleNamespace
    parts = {
        pid: process(kind="rank", process=process(container=container, start_ticks=pid)) for pid, container in ((1, "c"), (2, "d"), (3, "e"), (4, ""))
    }
    monkeypatch.setattr(sources.process_table, "scan", lambda _root: process(processes=[]))
    monkeypatch.setattr(sources.classify, "parts", lambda _processes: parts)
    ranks = Holders(tmp_path)
    monkeypatch.setattr(ranks._docker, "containers", lambda labels: listed if labels == {"io.gb10.owner": "gb10.cluster"} else [])
    ranks.refresh()
    assert [(rank.pid, rank.ours, rank.cluster) for rank in ranks.found] == [(1, True, "gb10"), (2, True, ""), (3, False, ""), (4, False, "")]


def test_only_our_holders_are_signaled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "60"]) as ours, subprocess.Popen(["sleep", "60"]) as foreign, subprocess.Popen(["sleep", "60"]) as front:
        try:
            ticks = {child.pid: sources.process_table.read_stat(child.pid).start_ticks for child in (ours, foreign, front)}
            ranks = sources.Ranks("/proc", "b1", {"served": str(tmp_path / "served.json"), "state_dir": str(tmp_path), "load_seconds": 3600.0})
            ranks.found = [
                sources.Rank(ours.pid, ticks[ours.pid], "rank", "c", True),
                sources.Rank(foreign.pid, ticks[foreign.pid], "rank", "d", False),
                sources.Rank(front.pid, ticks[front.pid], "api_server", "c", True),
            ]
            monkeypatch.setattr(ranks, "look", lambda: ranks.found)
            assert ranks.signal(15) == [ours.pid]
            assert ours.wait(10) == -15 and foreign.poll() is None and front.poll() is None
            # The pid has been given to another process since.
            ranks.found = [sources.Rank(foreign.pid, ticks[foreign.pid] - 1, "rank", "c", True)]
            assert ranks.signal(15) == [] and foreign.poll() is None
        finally:
            for child in (ours, foreign, front):
                child.kill()


def test_a_guard_takes_samples_and_says_when_it_stops(tmp_path: Path) -> None:
    roots = {"proc_root": "/proc", "sysfs_root": "/sys", "meminfo": None, "kernel_log": str(tmp_path / "none"), "nvidia_smi": str(tmp_path / "none")}
    config = json.loads(unit_text.config(str(tmp_path), "loading", 3600, [], roots))
    messages: list[str] = []
    guard = recorder.Guard(config, messages.append)
    guard.slow.once()
    sample = guard.sample()
    assert sample["a"] > 0 and sample["g"] is None and sample["p"] in (trend.NONE, trend.LOADING, trend.SERVING)
    assert sample["k"] == [["unknown", "the kernel's log cannot be read"]]


class Scripted(trend.Watch):
    """Gives the orders that the test sets."""

    order: trend.Order | None = None

    def feed(self, at: float, available: int, phase: str, level: int | None = None) -> trend.Order | None:
        self.fed = phase, level
        return self.order


def test_a_guards_message_names_the_level_or_why_it_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = {"proc_root": "/proc", "sysfs_root": "/sys", "meminfo": None, "kernel_log": str(tmp_path / "none"), "nvidia_smi": str(tmp_path / "none")}
    messages: list[str] = []
    guard = recorder.Guard(json.loads(unit_text.config(str(tmp_path / "guard"), "loading", 3600, [], roots)), messages.append)
    guard.watch = watch = Scripted()
    (tmp_path / "guard").mkdir()
    monkeypatch.setattr(guard.ranks, "signal", lambda number: [int(number)])
    guard.slow.phase, guard.slow.level = trend.LOADING, note.Level(None, "there is no plan")
    watch.order = trend.Order(trend.WOULD, 7 << 20, -(1 << 20))
    guard.sample()
    assert watch.fed == (trend.LOADING, None) and "no action: the level is unknown, there is no plan" in messages[-1]
    guard.slow.level = note.Level(8192, "the plan")
    guard.sample()
    assert watch.fed == (trend.LOADING, 8 << 20) and messages[-1].endswith("no action: gb10_guard_act is loading")
    watch.order, watch.under = trend.Order(trend.TERM, 7 << 20, -(1 << 20)), 8 << 20
    guard.sample()
    assert messages[-1].endswith("(loading), below the expected 8.0 GiB; SIGTERM to pids [15]")
    guard.slow.phase, watch.order = trend.NONE, trend.Order(trend.WOULD, 7 << 20, -(1 << 20))
    guard.sample()
    assert messages[-1].endswith("no action: no rank of this collection runs")
    guard.disk.flush()
    assert json.loads((tmp_path / "guard/said.json").read_text(encoding="utf-8"))["text"] == messages[-1]


def test_the_ring_records_the_expected_level_of_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put: list[dict[str, object]] = []
    ranks = Holders(tmp_path, YOUNG)
    nothing = types.SimpleNamespace(now=lambda: None, tend=lambda: None)
    slow = recorder.Slow(nothing, nothing, ranks, nothing, put.append)
    monkeypatch.setattr(ranks, "refresh", lambda: None)
    slow.once()
    noted(tmp_path)
    slow.once()
    slow.once()
    texts = [record["text"] for record in put if record["e"] == "level"]
    assert texts == [
        "our ranks are loading: the guard does not act without a level (an older version of this collection noted the start)",
        "our ranks are loading: a collapse counts below 6.8 GiB (the plan)",
    ]
    assert slow.level.mb == 7000


def test_the_unit_is_bounded() -> None:
    text = unit_text.unit("/var/lib/gb10/guard", "/usr/bin/python3")
    for line in ("MemoryMax=192M", "OOMScoreAdjust=-900", "CPUQuota=20%", "ReadWritePaths=/var/lib/gb10/guard", "Restart=always"):
        assert line in text.splitlines()
