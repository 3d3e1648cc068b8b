# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the guard reads: recorded lines of the driver's tool, a log that grows, the phase of ranks, and the program as one file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._guard import program, recorder, sources, trend
from ansible_collections.gb10.cluster.plugins.module_utils._host import archive


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("2398, 13.52, 49, 0, 0x0000000000000001", {"sm": 2398, "w": 13.52, "c": 49, "u": 0, "why": 1}),
        ("2327, 80.39, 80, 96, 0x0000000000000020", {"sm": 2327, "w": 80.39, "c": 80, "u": 96, "why": 0x20}),
        ("[N/A], 11.17, 35, 0, [Not Supported]", {"sm": None, "w": 11.17, "c": 35, "u": 0, "why": None}),
        ("No devices were found", None),
        ("1, 2, 3", None),
        ("\x00<<<simulated rubbish>>>, x, y, z, w", {"sm": None, "w": None, "c": None, "u": None, "why": None}),
    ],
)
def test_a_line_of_the_driver_is_read_and_what_it_does_not_say_is_unknown(line: str, found: dict[str, object] | None) -> None:
    assert sources.parse_gpu(line) == found


def test_an_older_driver_is_asked_less() -> None:
    assert sources.parse_gpu("2398, 13.52, 49, 0", sources.GPU_FIELDS_OLD) == {"sm": 2398, "w": 13.52, "c": 49, "u": 0}
    assert sources.parse_gpu("a, b, c, d", sources.GPU_FIELDS_OLD) is None


def test_new_lines_of_a_log_are_told_once(tmp_path: Path) -> None:
    log = tmp_path / "kernel.log"
    log.write_text("5,0,0,-;Linux version 6.14 (lab)\n4,1,10,-;NVRM: Xid (PCI:000f:01:00): 13, old\n", encoding="utf-8")
    kernel = sources.Kernel(str(log), "/proc")
    assert kernel.now() == []
    with log.open("a", encoding="utf-8") as stream:
        stream.write("4,2,20,-;NVRM: Xid (PCI:000f:01:00): 43, pid=1\n4,3,21,-;half a li")
    assert kernel.now() == [["xid", "NVRM: Xid (PCI:000f:01:00): 43, pid=1"]]
    assert kernel.now() == []
    assert sources.Kernel(str(tmp_path / "none"), "/proc").now() is None


class Holders(sources.Ranks):
    """Ranks without Docker and without processes."""

    def __init__(self, served: Path, uptime: Path, found: list[sources.Rank]) -> None:
        super().__init__(str(uptime.parent), str(served), 3600.0)
        self.found = found


def test_ranks_load_until_they_are_said_to_serve_or_are_old(tmp_path: Path) -> None:
    hertz = os.sysconf("SC_CLK_TCK")
    (tmp_path / "uptime").write_text("5000.0 1.0\n", encoding="ascii")
    served = tmp_path / "served.json"
    young, old = sources.Rank(7, 4000 * hertz, "rank", "c", True), sources.Rank(8, 10 * hertz, "rank", "c", True)
    foreign = young._replace(ours=False)
    assert Holders(served, tmp_path / "uptime", [foreign]).phase() == trend.NONE
    assert Holders(served, tmp_path / "uptime", [young]).phase() == trend.LOADING
    assert Holders(served, tmp_path / "uptime", [old]).phase() == trend.SERVING
    served.write_text(json.dumps({"ranks": [[7, 4000 * hertz]]}), encoding="utf-8")
    assert Holders(served, tmp_path / "uptime", [young]).phase() == trend.SERVING
    # Another process with the same number.
    served.write_text(json.dumps({"ranks": [[7, 3999 * hertz]]}), encoding="utf-8")
    assert Holders(served, tmp_path / "uptime", [young]).phase() == trend.LOADING


def test_only_holders_of_ours_are_signalled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "60"]) as ours, subprocess.Popen(["sleep", "60"]) as foreign, subprocess.Popen(["sleep", "60"]) as front:
        try:
            ticks = {one.pid: sources.process_table.read_stat(one.pid).start_ticks for one in (ours, foreign, front)}
            ranks = sources.Ranks("/proc", str(tmp_path / "served.json"), 3600.0)
            ranks.found = [
                sources.Rank(ours.pid, ticks[ours.pid], "rank", "c", True),
                sources.Rank(foreign.pid, ticks[foreign.pid], "rank", "d", False),
                sources.Rank(front.pid, ticks[front.pid], "api_server", "c", True),
            ]
            monkeypatch.setattr(ranks, "look", lambda: ranks.found)
            assert ranks.signal(15) == [ours.pid]
            assert ours.wait(10) == -15 and foreign.poll() is None and front.poll() is None
            # A number that was given to another process since.
            ranks.found = [sources.Rank(foreign.pid, ticks[foreign.pid] - 1, "rank", "c", True)]
            assert ranks.signal(15) == [] and foreign.poll() is None
        finally:
            for one in (ours, foreign, front):
                one.kill()


def test_the_program_is_the_same_bytes_again_and_runs_by_itself(tmp_path: Path) -> None:
    assert program.archive() == program.archive()
    assert not [name for name in archive.sources([recorder.__name__]) if not name.startswith(archive.OWN)]
    packed = tmp_path / "guard.pyz"
    packed.write_bytes(program.archive())
    said = subprocess.run([sys.executable, "-I", packed, "--help"], capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path)
    assert "--config" in said.stdout


def test_a_guard_takes_samples_and_says_when_it_stops(tmp_path: Path) -> None:
    roots = {"proc_root": "/proc", "sysfs_root": "/sys", "meminfo": None, "kernel_log": str(tmp_path / "none"), "nvidia_smi": str(tmp_path / "none")}
    config = json.loads(program.config(str(tmp_path), "loading", 3600, [], roots))
    said: list[str] = []
    guard = recorder.Guard(config, said.append)
    guard.slow.once()
    sample = guard.sample()
    assert sample["a"] > 0 and sample["g"] is None and sample["p"] in (trend.NONE, trend.LOADING, trend.SERVING)
    assert sample["k"] == [["unknown", "the kernel's log cannot be read"]]


def test_the_unit_is_bounded() -> None:
    text = program.unit("/var/lib/gb10/guard", "/usr/bin/python3")
    for line in ("MemoryMax=192M", "OOMScoreAdjust=-900", "CPUQuota=20%", "ReadWritePaths=/var/lib/gb10/guard", "Restart=always"):
        assert line in text.splitlines()
