# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Logs on the controller: which are read, and which are only reported as unread."""

from __future__ import annotations

import gzip
import os

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve import log_files


def texts(path, most=log_files.MOST_OF_A_FILE):
    return [line.text for line in log_files.read(log_files.LogFile(path, path.name, "spark-1"), most).lines]


def test_the_first_directory_stands_for_the_node_and_else_the_logs_name(tmp_path):
    for name in ("spark-1/a.log", "spark-2/session/logs/raylet.err", "spark-3.engine.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x\n")
    logs, unread = log_files.find(str(tmp_path))
    assert [(log.name, log.node) for log in logs] == [
        ("spark-3.engine.log", "spark-3.engine"),
        ("spark-1/a.log", "spark-1"),
        ("spark-2/session/logs/raylet.err", "spark-2"),
    ]
    assert unread == []
    assert [(log.name, log.node) for log in log_files.find(str(tmp_path / "spark-1" / "a.log"))[0]] == [("a.log", "a")]


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("kat-coder-0.8.log", "kat-coder-0.8"), ("qwen3.8", "qwen3.8"), ("ngc-26.05.post1.txt", "ngc-26.05.post1"), ("ngc-26.10.log.1.gz", "ngc-26.10"),
        ("a", "a"), (".log", ".log"),
    ],
)  # fmt: skip
def test_a_log_is_called_by_its_name_without_what_says_only_that_it_is_a_log(tmp_path, name, node):
    (tmp_path / name).write_text("x\n")
    assert [log.node for log in log_files.find(str(tmp_path / name))[0]] == [log.node for log in log_files.find(str(tmp_path))[0]] == [node]


def test_links_are_named_and_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.log").write_text("secret\n")
    inside = tmp_path / "logs"
    inside.mkdir()
    (inside / "file.log").symlink_to(outside / "secret.log")
    (inside / "directory").symlink_to(outside)
    (inside / "a.log").write_text("x\n")
    logs, unread = log_files.find(str(inside))
    assert [log.name for log in logs] == ["a.log"]
    assert sorted(entry["name"] for entry in unread) == ["directory", "file.log"] and {entry["why"] for entry in unread} == {"a link"}


def test_sockets_and_pipes_are_left_out(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert log_files.find(str(tmp_path)) == ([], [])


def test_a_link_that_appears_after_the_search_is_not_followed(tmp_path):
    (tmp_path / "x.log").symlink_to("/etc/passwd")
    with pytest.raises(OSError):
        texts(tmp_path / "x.log")


def test_the_number_of_files_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(log_files, "MOST_FILES", 2)
    for name in "abc":
        (tmp_path / name).write_text("x\n")
    logs, unread = log_files.find(str(tmp_path))
    assert [log.name for log in logs] == ["a", "b"] and unread == [{"name": "c", "why": "beyond the first 2 files"}]


def test_a_path_without_anything_is_named(tmp_path):
    with pytest.raises(ClusterError, match=r"none: cannot be read: No such file or directory; expected a log or a directory with logs"):
        log_files.find(str(tmp_path / "none"))


def test_of_a_long_file_whole_lines_of_its_two_ends_are_read(tmp_path):
    path = tmp_path / "long.log"
    path.write_text("".join(f"line {number:04}\n" for number in range(1000)))
    content = log_files.read(log_files.LogFile(path, "long.log", ""), 105)
    assert [line.text for line in content.lines] == [f"line {number:04}" for number in (0, 1, 2, 3, 4, 995, 996, 997, 998, 999)]
    assert (content.size, content.cut) == (10000, True)


def test_a_huge_file_costs_no_more_than_its_two_ends(tmp_path):
    path = tmp_path / "huge.log"
    with open(path, "wb") as stream:
        stream.write(b"OSError: [Errno 98] Address already in use\n")
        stream.truncate(2 * 1024**3)  # a sparse file: it takes no disk space
        stream.seek(0, os.SEEK_END)
        stream.write(b"\nthe end\n")
    lines = texts(path, 1024)
    assert lines == ["OSError: [Errno 98] Address already in use", "the end"]


def test_a_packed_log_is_unpacked_by_what_is_in_it_not_by_its_name(tmp_path):
    path = tmp_path / "x.log"
    path.write_bytes(gzip.compress(b"one\ntwo\n", mtime=0))
    assert texts(path) == ["one", "two"]


def test_a_packed_log_that_is_huge_or_cut_short_counts_as_far_as_it_goes(tmp_path):
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"x" * 50 + b"\n" + b"y\n" * 10_000_000))
    content = log_files.read(log_files.LogFile(path, "x.gz", ""), 1000)
    assert content.cut and content.lines[0].text == "x" * 50 and len(content.lines) < 1000
    whole = gzip.compress(b"".join(b"%d line\n" % number for number in range(9000)))
    path.write_bytes(whole[: len(whole) // 2])
    content = log_files.read(log_files.LogFile(path, "x.gz", ""))
    assert content.cut and content.lines[0].text == "0 line"


@pytest.mark.parametrize(
    ("raw", "why"),
    [(b"\x7fELF\x02\x01\x01\0\0\0", "not text"), (b"\x1f\x8bnothing", "a broken gzip file"), (gzip.compress(b"\0\1\2tar", mtime=0), "not text, once unpacked")],
)
def test_what_is_no_text_is_named(tmp_path, raw, why):
    (tmp_path / "x").write_bytes(raw)
    with pytest.raises(log_files.NotText, match=why):
        texts(tmp_path / "x")


def test_what_is_no_file_is_named(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(log_files.NotText, match="not a regular file"):
        texts(tmp_path / "pipe")


def test_zeros_that_a_lost_host_leaves_at_the_end_do_not_hide_the_log(tmp_path):
    (tmp_path / "x.log").write_bytes(b"serving\n" * 600 + b"\0" * 4096)
    assert set(texts(tmp_path / "x.log")) == {"serving"}


def test_lines_that_are_wrapped_in_json_have_their_own_times(tmp_path):
    path = tmp_path / "x-json.log"
    path.write_text(
        '{"log":"vllm: error: unrecognized arguments: --x\\n","stream":"stderr","time":"2026-10-09T10:15:22.5Z"}\n'
        '{"__REALTIME_TIMESTAMP":"1791540922500000","MESSAGE":"NVRM: Xid (PCI:000f:01:00): 79, pid=1"}\n'
        '{"MESSAGE":[1,2]}\n'
        '{"not json\n'
    )
    lines = log_files.read(log_files.LogFile(path, "x", "")).lines
    assert [line.text for line in lines][:2] == ["vllm: error: unrecognized arguments: --x", "NVRM: Xid (PCI:000f:01:00): 79, pid=1"]
    assert lines[0].time == lines[1].time == 1791540922.5 and len(lines) == 4
