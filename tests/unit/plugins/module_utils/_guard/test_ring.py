# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ring holds a day in bounded bytes, and is read whatever its end looks like."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils import _redact
from ansible_collections.gb10.cluster.plugins.module_utils._guard import recorder, ring

HEAD = {"boot": "b1", "node": "spark-1", "interval": 1.0, "total": 1}
NOW = 1795444512.0


def sample(at: float, level: int = 5) -> ring.Record:
    return {"t": at, "a": level}


def written(folder: Path, count: int, boot: str = "b1", start: float = NOW) -> ring.Writer:
    writer = ring.Writer(str(folder), {**HEAD, "boot": boot})
    for second in range(count):
        writer.write([sample(start + second)], start + second)
    return writer


def test_what_was_written_is_read_by_boot_and_window(tmp_path: Path) -> None:
    written(tmp_path, 20).write([{"e": "stop", "t": NOW + 20, "text": "x"}], NOW + 20)
    written(tmp_path, 5, "b2", NOW + 100)
    first, second = ring.boots(str(tmp_path))
    assert (first.boot_id, first.first, first.last, first.stopped) == ("b1", NOW, NOW + 20, True)
    assert (second.boot_id, second.last, second.stopped) == ("b2", NOW + 104, False)
    records, torn = ring.window(first, NOW + 17, NOW + 100)
    assert [one["t"] for one in records] == [NOW + 17, NOW + 18, NOW + 19, NOW + 20] and torn == 0


def test_a_torn_last_line_is_passed_over(tmp_path: Path) -> None:
    written(tmp_path, 3)
    with open(ring.segments(str(tmp_path))[-1], "ab") as stream:
        stream.write(b'{"t":1795444515.0,"a":')
    (boot,) = ring.boots(str(tmp_path))
    assert boot.last == NOW + 2 and not boot.stopped
    assert ring.window(boot, NOW, NOW + 10)[1] == 1


def test_zeros_that_a_power_cut_leaves_are_passed_over(tmp_path: Path) -> None:
    written(tmp_path, 3)
    with open(ring.segments(str(tmp_path))[-1], "ab") as stream:
        stream.write(b"\0" * 4096)
    assert ring.boots(str(tmp_path))[0].last == NOW + 2


def test_an_empty_segment_and_other_files_do_not_count(tmp_path: Path) -> None:
    written(tmp_path, 2)
    (tmp_path / "ring-0000000009.jsonl").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    assert ring.boots(str(tmp_path))[0].last == NOW + 1


def test_the_ring_stays_within_its_bytes_and_its_day(tmp_path: Path) -> None:
    writer = ring.Writer(str(tmp_path), HEAD, size=4096, segment=512)
    for second in range(600):
        writer.write([sample(NOW + second)], NOW + second)
    paths = ring.segments(str(tmp_path))
    assert sum(os.stat(path).st_size for path in paths) <= 4096 + 128
    assert ring.boots(str(tmp_path))[0].last == NOW + 599
    for path in paths:
        os.utime(path, (NOW, NOW))
    writer.write([sample(NOW + 90000)], NOW + 90000)
    assert len(ring.segments(str(tmp_path))) <= 2


def test_numbers_go_on_after_a_start(tmp_path: Path) -> None:
    written(tmp_path, 1)
    written(tmp_path, 1)
    assert [os.path.basename(path) for path in ring.segments(str(tmp_path))] == ["ring-0000000001.jsonl", "ring-0000000002.jsonl"]
    assert len(ring.boots(str(tmp_path))) == 1


class Full(ring.Writer):
    """A disk that is full for a while."""

    full = True

    def write(self, records, now):
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.folder)
        super().write(records, now)


def test_a_full_disk_is_told_once_and_nothing_is_lost(tmp_path: Path) -> None:
    said: list[str] = []
    writer = Full(str(tmp_path), HEAD)
    disk = recorder.Disk(writer, said.append)
    for second in range(5):
        disk.put(sample(NOW + second))
        disk.flush()
    assert len(said) == 1 and "No space left" in said[0]
    writer.full = False
    disk.put(sample(NOW + 5))
    disk.flush()
    assert len(said) == 2
    (boot,) = ring.boots(str(tmp_path))
    records, _torn = ring.window(boot, 0, 1e12)
    assert [one["t"] for one in records if "a" in one] == [NOW + second for second in range(6)]
    assert [one["e"] for one in records if "e" in one] == ["disk"]


def test_memory_is_bounded_while_the_disk_refuses(tmp_path: Path) -> None:
    writer = Full(str(tmp_path), HEAD)
    disk = recorder.Disk(writer, lambda text: None)
    for second in range(recorder.KEPT + 10):
        disk.put(sample(NOW + second))
    disk.flush()
    writer.full = False
    disk.flush()
    (boot,) = ring.boots(str(tmp_path))
    kept = [one["t"] for one in ring.window(boot, 0, 1e12)[0] if "a" in one]
    assert kept == [NOW + second for second in range(10, recorder.KEPT + 10)]


def test_no_secret_reaches_the_ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel says of a process, and what the guard says itself, may hold one."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/api_key").write_text("theKeyOfThisCluster")
    monkeypatch.setattr(_redact, "SECRETS_DIR", str(tmp_path / "secrets"))
    disk = recorder.Disk(ring.Writer(str(tmp_path / "ring"), HEAD), lambda text: None)
    sample = {"t": 2.0, "a": 1, "g": [1, 2], "l": None}
    disk.put({"e": "would", "t": 1.0, "text": "vllm --api-key theKeyOfThisCluster", "pids": [7]})
    disk.put(dict(sample))
    disk.put({**sample, "k": [["oom", "killed: Bearer abcdefghijklmnop"]]})
    disk.flush()
    text = "".join(path.read_text() for path in (tmp_path / "ring").iterdir())
    assert "theKeyOfThisCluster" not in text and "abcdefghijklmnop" not in text
    records, torn = ring.parse(text.encode())
    assert not torn and records[1]["pids"] == [7] and records[2] == sample and records[3]["k"] == [["oom", "killed: Bearer <secret>"]]
