# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ring keeps a day of records in bounded space, and stays readable however it ends."""

from __future__ import annotations

import errno
import json
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
    assert [record["t"] for record in records] == [NOW + 17, NOW + 18, NOW + 19, NOW + 20] and torn == 0


def test_a_missing_ring_has_no_boots_and_an_unreadable_one_is_an_error(tmp_path: Path) -> None:
    assert ring.segments(str(tmp_path / "none")) == [] and ring.boots(str(tmp_path / "none")) == []
    (tmp_path / "file").write_text("", encoding="ascii")
    with pytest.raises(NotADirectoryError):
        ring.boots(str(tmp_path / "file"))


def test_invalid_lines_are_counted_and_skipped() -> None:
    lines = [b'{"t":1,"a":2}', b"", b"  ", b"[1]", b'"t"', b'{"a":1}', b'{"t":"1"}', b"[" * 100000, b'{"t":2.5}', b'{"t":']
    assert ring.parse(b"\n".join(lines)) == ([{"t": 1, "a": 2}, {"t": 2.5}], 6)


def test_a_large_segment_is_read_by_its_first_and_last_lines(tmp_path: Path) -> None:
    writer = ring.Writer(str(tmp_path), HEAD)
    records = [{**sample(NOW + second), "text": "x" * 1000} for second in range(200)]
    writer.write([*records, {"e": "stop", "t": NOW + 200}], NOW)
    (boot,) = ring.boots(str(tmp_path))
    assert os.stat(boot.paths[0]).st_size > 2 * ring.TAIL_BYTES
    assert (boot.first, boot.last, boot.stopped) == (NOW, NOW + 200, True)
    assert len(ring.window(boot, NOW, NOW + 199)[0]) == 200
    # A record that is longer than what is read of the end leaves the first line's time.
    writer.write([{"t": NOW + 201, "text": "x" * 2 * ring.TAIL_BYTES}], NOW)
    assert ring.boots(str(tmp_path))[0].last == NOW and not ring.boots(str(tmp_path))[0].stopped


def test_a_segment_is_read_up_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment(tmp_path, 1, ring.dumps({"t": NOW, "boot": "b1"}) + ring.dumps(sample(NOW)) * 100)
    whole = ring.boots(str(tmp_path))[0]
    monkeypatch.setattr(ring, "READ_LIMIT", 200)
    assert len(ring.window(whole, 0, 1e12)[0]) < 10 and ring.window(whole, 0, 1e12)[1] == 1


def test_a_segment_without_its_first_line_counts_to_the_boot_before(tmp_path: Path) -> None:
    segment(tmp_path, 1, ring.dumps(sample(NOW - 9)))
    segment(tmp_path, 2, ring.dumps({"t": NOW, "boot": "b1", "e": "segment"}))
    segment(tmp_path, 3, b'{"torn\n' + ring.dumps(sample(NOW + 5)))
    segment(tmp_path, 4, b"{")
    segment(tmp_path, 5, ring.dumps({"t": NOW + 6, "boot": 7}))
    segment(tmp_path, 6, ring.dumps({"t": NOW + 7, "boot": "b2"}))
    first, second = ring.boots(str(tmp_path))
    assert (first.boot_id, first.first, first.last, len(first.paths)) == ("b1", NOW, NOW + 5, 2) and second.boot_id == "b2"


def test_a_boot_that_went_on_after_a_stop_was_not_stopped(tmp_path: Path) -> None:
    written(tmp_path, 1).write([{"e": "stop", "t": NOW + 1}], NOW + 1)
    assert ring.boots(str(tmp_path))[0].stopped
    written(tmp_path, 1, start=NOW + 10)
    (boot,) = ring.boots(str(tmp_path))
    assert not boot.stopped and (boot.first, boot.last) == (NOW, NOW + 10)


def test_the_newest_boots_are_returned(tmp_path: Path) -> None:
    for number in range(9):
        written(tmp_path, 1, f"b{number}", NOW + 100 * number)
    assert [boot.boot_id for boot in ring.boots(str(tmp_path))] == [f"b{number}" for number in range(3, 9)]


def test_segments_that_ended_before_a_window_are_not_read(tmp_path: Path) -> None:
    old = segment(tmp_path, 1, ring.dumps({"t": NOW, "boot": "b1"}) + ring.dumps(sample(NOW + 50)) + b"{\n")
    new = segment(tmp_path, 2, ring.dumps({"t": NOW + 60, "boot": "b1", "e": "segment"}) + ring.dumps(sample(NOW + 61)))
    (boot,) = ring.boots(str(tmp_path))
    for ended, read in ((NOW + 48.5, False), (NOW + 49, True), (NOW + 50, True)):
        os.utime(old, (ended, ended))
        records, torn = ring.window(boot, NOW + 50, NOW + 61)
        assert ([record["t"] for record in records], torn) == (([NOW + 50] if read else []) + [NOW + 61], int(read))
    new.unlink()
    assert ring.window(boot, NOW + 50, NOW + 61)[0] == [sample(NOW + 50)], "it went meanwhile"


def test_a_segment_that_goes_while_the_boots_are_read_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, 1)
    written(tmp_path, 1, start=NOW + 5)
    real = ring.segments
    monkeypatch.setattr(ring, "segments", lambda folder: [str(tmp_path / "ring-0000000000.jsonl"), *real(folder)])
    (boot,) = ring.boots(str(tmp_path))
    assert (boot.first, boot.last, len(boot.paths)) == (NOW, NOW + 5, 2)


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


def segment(folder: Path, number: int, content: bytes = b"") -> Path:
    path = folder / f"ring-{number:010}.jsonl"
    path.write_bytes(content)
    return path


def names(folder: Path) -> list[str]:
    return [os.path.basename(path) for path in ring.segments(str(folder))]


def test_the_ring_stays_within_its_bytes(tmp_path: Path) -> None:
    writer = ring.Writer(str(tmp_path), HEAD, size=4096, segment=512)
    for second in range(600):
        writer.write([sample(NOW + second)], NOW + second)
    sizes = [os.stat(path).st_size for path in ring.segments(str(tmp_path))]
    assert 4096 - 2 * 518 < sum(sizes) <= 4096 + 128 and max(sizes) <= 512 + 64
    assert ring.boots(str(tmp_path))[0].last == NOW + 599


def test_the_oldest_go_until_another_whole_one_fits_and_the_newest_stays(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        segment(tmp_path, number, b"x" * 100)
    writer = ring.Writer(str(tmp_path), HEAD, size=400, segment=100)
    writer.write([sample(NOW)], NOW)
    assert names(tmp_path) == [f"ring-{number:010}.jsonl" for number in (1, 2, 3, 4)], "400 bytes are not more than 400"
    writer.close()
    segment(tmp_path, 4, b"x" * 101)
    writer.write([sample(NOW)], NOW)
    assert names(tmp_path) == [f"ring-{number:010}.jsonl" for number in (3, 4, 5)]
    writer.close()
    segment(tmp_path, 5, b"x" * 1000)
    writer.write([sample(NOW)], NOW)
    assert names(tmp_path) == [f"ring-{number:010}.jsonl" for number in (5, 6)], "however large the newest is, it is what was just recorded"


def test_the_number_of_segments_is_limited(tmp_path: Path) -> None:
    """A guard that ends at once is started every five seconds, and begins one each time."""
    for start in range(9):
        ring.Writer(str(tmp_path), HEAD, count=4).write([sample(NOW + start)], NOW + start)
    assert names(tmp_path) == [f"ring-{number:010}.jsonl" for number in (6, 7, 8, 9)]
    assert ring.RING_SEGMENTS * 5 > 3600, "more than an hour of such starts"


def test_a_ring_of_too_many_segments_is_cut_to_what_is_kept(tmp_path: Path) -> None:
    for number in range(1, 10):
        segment(tmp_path, number)
    ring.Writer(str(tmp_path), HEAD, count=4).write([sample(NOW)], NOW)
    assert names(tmp_path) == [f"ring-{number:010}.jsonl" for number in (7, 8, 9, 10)]


def test_no_handle_stays_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    writer = ring.Writer(str(tmp_path), HEAD)
    for second in range(5):
        writer.write([sample(NOW)], NOW + second * ring.SEGMENT_SECONDS)
    assert len(names(tmp_path)) == 5 and len(os.listdir("/proc/self/fd")) == before + 1
    writer.close()
    writer.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_segment_of_just_its_bytes_is_full(tmp_path: Path) -> None:
    head, line = ring.dumps({"e": "segment", "v": 1, "t": NOW, **HEAD}), ring.dumps(sample(NOW))
    writer = ring.Writer(str(tmp_path), HEAD, segment=len(head) + 2 * len(line))
    for _second in range(3):
        writer.write([sample(NOW)], NOW)
    assert [os.stat(path).st_size for path in ring.segments(str(tmp_path))] == [len(head) + 2 * len(line), len(head) + len(line)]


def test_a_jump_of_the_clock_empties_nothing(tmp_path: Path) -> None:
    """The clock jumps ten years ahead, back, and to zero: all records stay."""
    writer = ring.Writer(str(tmp_path), HEAD)
    jumps = [NOW, NOW + 10 * 365 * 86400, NOW + 10 * 365 * 86400 + 1, NOW + 2, 0.0, NOW + 3]
    for at in jumps:
        writer.write([sample(at)], at)
        for path in ring.segments(str(tmp_path)):
            os.utime(path, (NOW, NOW))
    assert len(names(tmp_path)) == 5, "each jump begins a segment, and the second second of one does not"
    (boot,) = ring.boots(str(tmp_path))
    times = [record["t"] for path in boot.paths for record in ring.parse(Path(path).read_bytes())[0] if "a" in record]
    assert times == jumps


def test_a_segment_ends_by_its_bytes_and_its_quarter_of_an_hour(tmp_path: Path) -> None:
    writer = ring.Writer(str(tmp_path), HEAD, segment=200)
    for seconds in (0, 1, ring.SEGMENT_SECONDS - 0.5):
        writer.write([sample(NOW + seconds)], NOW + seconds)
    assert len(names(tmp_path)) == 1
    writer.write([sample(NOW)], NOW + ring.SEGMENT_SECONDS)
    assert len(names(tmp_path)) == 2
    writer.write([sample(NOW)], NOW + ring.SEGMENT_SECONDS - 1)
    assert len(names(tmp_path)) == 3, "a clock that was set back"
    writer.write([{**sample(NOW), "text": "x" * 100}], NOW + ring.SEGMENT_SECONDS - 1)
    writer.write([sample(NOW)], NOW + ring.SEGMENT_SECONDS - 1)
    assert len(names(tmp_path)) == 4, "200 bytes are full"


def test_each_segment_begins_with_its_version_boot_and_time(tmp_path: Path) -> None:
    written(tmp_path, 1)
    first, second = ring.parse(Path(ring.segments(str(tmp_path))[0]).read_bytes())[0]
    assert first == {"e": "segment", "v": 1, "t": NOW, **HEAD} and second == sample(NOW)
    written(tmp_path, 1, start=NOW + 0.12345)
    assert ring.parse(Path(ring.segments(str(tmp_path))[1]).read_bytes())[0][0]["t"] == NOW + 0.123
    assert ring.dumps({"t": 1.5, "text": "\u00e9"}) == b'{"t":1.5,"text":"\\u00e9"}\n'


def test_the_ring_is_for_root_and_its_group_alone(tmp_path: Path) -> None:
    """The ring contains lines of the kernel's log, which a node can hide from its users (dmesg_restrict)."""
    before = os.umask(0)
    try:
        written(tmp_path / "guard" / "ring", 1)
    finally:
        os.umask(before)
    (path,) = ring.segments(str(tmp_path / "guard" / "ring"))
    assert os.stat(path).st_mode & 0o777 == 0o640 and os.stat(tmp_path / "guard" / "ring").st_mode & 0o777 == 0o750


def test_a_link_in_the_place_of_a_segment_is_not_followed(tmp_path: Path) -> None:
    aim = tmp_path / "aim"
    aim.write_text("mine", encoding="ascii")
    writer = ring.Writer(str(tmp_path / "ring"), HEAD)
    (tmp_path / "ring").mkdir()
    os.symlink(aim, tmp_path / "ring" / "ring-0000000001.jsonl")
    (tmp_path / "ring" / "ring-0000000001.jsonl.old").mkdir()
    writer.write([sample(NOW)], NOW)
    assert aim.read_text(encoding="ascii") == "mine" and names(tmp_path / "ring")[-1] == "ring-0000000002.jsonl"


def test_a_failed_write_closes_the_torn_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after a torn line begins a segment of its own; one whose first line is torn goes."""
    def full(*_given: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    writer, real = written(tmp_path, 1), os.write
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="full"):
        writer.write([sample(NOW + 1)], NOW + 1)
    with pytest.raises(OSError, match="full"):
        writer.write([sample(NOW + 1)], NOW + 1)
    assert names(tmp_path) == ["ring-0000000001.jsonl"]
    monkeypatch.setattr(os, "write", lambda handle, content: real(handle, content[:10]))
    with pytest.raises(OSError) as caught:
        writer.write([sample(NOW + 1)], NOW + 1)
    assert (caught.value.errno, caught.value.strerror) == (errno.ENOSPC, os.strerror(errno.ENOSPC)) and caught.value.filename.endswith("ring-0000000002.jsonl")
    assert names(tmp_path) == ["ring-0000000001.jsonl"]
    monkeypatch.setattr(os, "write", real)
    writer.write([sample(NOW + 1)], NOW + 1)
    assert names(tmp_path) == ["ring-0000000001.jsonl", "ring-0000000002.jsonl"]


def test_a_record_that_goes_out_in_pieces_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, real = written(tmp_path, 1), os.write
    monkeypatch.setattr(os, "write", lambda handle, content: real(handle, content[:7]))
    writer.write([sample(NOW + 1), sample(NOW + 2)], NOW + 1)
    assert [record["t"] for record in ring.window(ring.boots(str(tmp_path))[0], 0, 1e12)[0]] == [NOW, NOW + 1, NOW + 2]


def test_each_write_and_each_new_name_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, str]] = []
    for call in ("fdatasync", "fsync"):
        real = getattr(os, call)

        def recording(handle: int, call: str = call, real=real) -> None:
            done.append((call, os.path.basename(os.readlink(f"/proc/self/fd/{handle}"))))
            real(handle)

        monkeypatch.setattr(os, call, recording)
    written(tmp_path, 2)
    assert done == [("fsync", tmp_path.name), *[("fdatasync", "ring-0000000001.jsonl")] * 2]


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


def test_a_full_disk_is_logged_once_and_nothing_is_lost(tmp_path: Path) -> None:
    messages: list[str] = []
    writer = Full(str(tmp_path), HEAD)
    disk = recorder.Disk(writer, str(tmp_path / "said.json"), messages.append)
    for second in range(5):
        disk.put(sample(NOW + second))
        disk.flush()
    assert len(messages) == 1 and "No space left" in messages[0]
    writer.full = False
    disk.put(sample(NOW + 5))
    disk.flush()
    assert len(messages) == 2
    (boot,) = ring.boots(str(tmp_path))
    records, _torn = ring.window(boot, 0, 1e12)
    assert [record["t"] for record in records if "a" in record] == [NOW + second for second in range(6)]
    assert [record["e"] for record in records if "e" in record] == ["disk"]


def test_memory_is_bounded_while_the_disk_refuses(tmp_path: Path) -> None:
    writer = Full(str(tmp_path), HEAD)
    disk = recorder.Disk(writer, str(tmp_path / "said.json"), lambda text: None)
    for second in range(recorder.KEPT + 10):
        disk.put(sample(NOW + second))
    disk.flush()
    writer.full = False
    disk.flush()
    (boot,) = ring.boots(str(tmp_path))
    kept = [record["t"] for record in ring.window(boot, 0, 1e12)[0] if "a" in record]
    assert kept == [NOW + second for second in range(10, recorder.KEPT + 10)]


def test_no_secret_reaches_the_ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's lines about a process and the guard's own messages can contain one."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/api_key").write_text("theKeyOfThisCluster")
    monkeypatch.setattr(_redact, "SECRETS_DIR", str(tmp_path / "secrets"))
    disk = recorder.Disk(ring.Writer(str(tmp_path / "ring"), HEAD), str(tmp_path / "said.json"), lambda text: None)
    sample = {"t": 2.0, "a": 1, "g": [1, 2], "l": None}
    disk.put({"e": "would", "t": 1.0, "text": "vllm --api-key theKeyOfThisCluster", "pids": [7]})
    disk.put(dict(sample))
    disk.put({**sample, "k": [["oom", "killed: Bearer abcdefghijklmnop"]]})
    disk.flush()
    text = "".join(path.read_text() for path in (tmp_path / "ring").iterdir())
    assert "theKeyOfThisCluster" not in (tmp_path / "said.json").read_text()
    assert "theKeyOfThisCluster" not in text and "abcdefghijklmnop" not in text
    records, torn = ring.parse(text.encode())
    assert not torn and records[1]["pids"] == [7] and records[2] == sample and records[3]["k"] == [["oom", "killed: Bearer <secret>"]]


def test_the_last_action_is_kept_for_readers(tmp_path: Path) -> None:
    path = tmp_path / "said.json"
    disk = recorder.Disk(ring.Writer(str(tmp_path / "ring"), HEAD), str(path), lambda text: None)
    disk.put({"e": "ranks", "t": NOW, "text": "started rank"})
    disk.flush()
    assert not path.exists()
    for second, event in enumerate(("act", "would", "level")):
        disk.put({"e": event, "t": NOW + second, "text": f"text of {event}"})
    disk.flush()
    assert json.loads(path.read_text(encoding="utf-8")) == {"t": NOW + 1, "text": "text of would"} and os.stat(path).st_mode & 0o777 == 0o644
