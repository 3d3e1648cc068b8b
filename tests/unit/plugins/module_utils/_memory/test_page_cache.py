# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real files and the real kernel's page cache, and children that hang."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import select
import signal

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._memory import page_cache

SIZE = 3 * 1024 * 1024 + 1


# -- a deadline that holds -------------------------------------------------------------------------------------------


def test_a_result_comes_back_from_the_child():
    here = os.getpid()
    assert page_cache.bounded("asking", lambda: {"same": os.getpid() == here}, 30) == {"same": False}


def test_a_long_result_comes_back_whole():
    assert page_cache.bounded("asking", lambda: "x" * 1_000_000, 30) == "x" * 1_000_000


def test_the_childs_oserror_is_raised_here(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        page_cache.bounded("opening", lambda: os.open(tmp_path / "none", os.O_RDONLY), 30)
    assert caught.value.filename == str(tmp_path / "none")


def test_a_child_that_hangs_is_killed_and_named():
    reader, say = os.pipe()

    def hang():
        os.write(say, str(os.getpid()).encode())
        signal.pause()

    with pytest.raises(page_cache.Hung, match="writing did not end within 0.2 s") as caught:
        page_cache.bounded("writing", hang, 0.2)
    assert caught.value.verdict == "unknown" and "ps -eo" in caught.value.remedy
    child = int(os.read(reader, 32))
    assert not os.path.exists(f"/proc/{child}")
    os.close(reader)
    os.close(say)


def test_a_child_that_cannot_die_is_left_behind(monkeypatch):
    left = []
    monkeypatch.setattr(page_cache.os, "kill", lambda pid, number: left.append(pid))
    monkeypatch.setattr(page_cache, "KILL_GRACE", 0.05)
    with pytest.raises(page_cache.Hung):
        page_cache.bounded("writing", signal.pause, 0.1)
    monkeypatch.undo()
    os.kill(left[0], signal.SIGKILL)
    os.waitpid(left[0], 0)


def test_a_child_that_dies_does_not_pass():
    with pytest.raises(UnknownState, match="ended without an answer"):
        page_cache.bounded("asking", lambda: os.kill(os.getpid(), signal.SIGKILL), 30)


def test_a_child_holds_none_of_the_parents_streams():
    """Who reads our output waits until its last writer is gone: a child left behind must not be one of them."""
    reader, writer = os.pipe()
    kept = os.dup(1)
    os.dup2(writer, 1)
    os.close(writer)
    stuck = []
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(page_cache.os, "kill", lambda pid, number: stuck.append(pid))
            patch.setattr(page_cache, "KILL_GRACE", 0.05)
            with pytest.raises(page_cache.Hung):
                page_cache.bounded("writing", signal.pause, 0.1)
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    try:
        assert select.select([reader], [], [], 10)[0] and os.read(reader, 1) == b"", "the pipe has no writer left"
    finally:
        os.close(reader)
        os.kill(stuck[0], signal.SIGKILL)
        os.waitpid(stuck[0], 0)


# -- what files hold -------------------------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path):
    """A hub cache with one blob, a snapshot that links to it, a ref, and a link that leads nowhere."""
    for name in ("blobs", "refs", "snapshots/abc"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "blobs/b10b").write_bytes(b"w" * SIZE)
    (tmp_path / "refs/main").write_text("abc")
    (tmp_path / "snapshots/abc/model.safetensors").symlink_to("../../blobs/b10b")
    (tmp_path / "snapshots/abc/gone").symlink_to("../../blobs/gone")
    return tmp_path


def look(*paths, max_files=100, seconds=60, to_each=None):
    return page_cache.visit([str(path) for path in paths], max_files, seconds, to_each)


def droppable(path):
    """Whether this file system's pages can be dropped at all: those of a tmpfs have no disk behind them."""
    look(path, to_each=page_cache.write_back)
    look(path, to_each=page_cache.give_back)
    return look(path)["cached"] == 0


@pytest.fixture
def on_disk(hub):
    if not droppable(hub):
        pytest.skip("the temporary directory keeps its files in memory")
    return hub


@contextlib.contextmanager
def held(path):
    """Keep all of a file's pages in memory. The kernel may drop clean pages that are not mapped at any time."""
    libc = page_cache._libc()
    libc.mlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as pages:
        start = ctypes.c_char.from_buffer(pages)
        if libc.mlock(ctypes.addressof(start), len(pages)) != 0:
            pytest.skip(f"no right to lock {len(pages)} bytes of memory: {os.strerror(ctypes.get_errno())}")
        # An exported buffer keeps the mapping from being closed.
        del start
        yield


def test_links_stand_for_the_file_they_lead_to_once(hub):
    survey = look(hub)
    assert (survey["files"], survey["size"], survey["absent"], survey["unreadable"], survey["ended_by"]) == (2, SIZE + 3, [], 0, "")
    assert look(hub / "snapshots/abc/model.safetensors")["size"] == SIZE
    assert look(hub, hub / "blobs", hub / "blobs/b10b")["files"] == 2


def test_links_to_directories_are_followed_at_the_top_alone(hub, tmp_path_factory):
    top = tmp_path_factory.mktemp("top")
    (top / "linked").symlink_to(hub)
    assert look(top)["files"] == 0
    assert look(top / "linked")["files"] == 2


def test_a_missing_path_or_a_directory_is_not_an_error(hub):
    os.mkfifo(hub / "pipe")
    survey = look(hub, hub / "none")
    assert survey["files"] == 2 and survey["absent"] == [str(hub / "none")] and survey["special"] == 1


def test_a_device_is_counted_and_never_opened(hub, monkeypatch):
    """Opening one can already do something: rewind a tape, start a watchdog. A link to one is the same case."""
    opened = []

    def note(path, flags, *more, real=os.open, **options):
        descriptor = real(path, flags, *more, **options)
        if not flags & os.O_PATH:
            opened.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        return descriptor

    (hub / "device").symlink_to("/dev/null")
    monkeypatch.setattr(page_cache.os, "open", note)
    survey = look(hub)
    assert (survey["files"], survey["special"], survey["refused"]) == (2, 1, [])
    assert set(opened) == {str(path) for path in (hub / "blobs/b10b", hub / "refs/main")}


def test_a_path_that_is_a_device_itself_is_refused_and_a_link_to_nothing_is_absent(hub):
    (hub / "gone").symlink_to(hub / "nowhere")
    (hub / "circle").symlink_to(hub / "circle")
    survey = look("/dev/null", hub / "gone", hub / "circle")
    assert survey["refused"] == ["/dev/null is a character device"] and survey["files"] == 0
    assert survey["absent"] == [str(hub / "gone"), str(hub / "circle")]


def test_what_may_not_be_read_is_counted(hub, monkeypatch):
    def refuse(path, flags, dir_fd=None, real=os.open):
        if "b10b" in str(path):
            raise PermissionError(13, "Permission denied", path)
        return real(path, flags, dir_fd=dir_fd)

    monkeypatch.setattr(page_cache.os, "open", refuse)
    survey = look(hub / "blobs", hub / "refs")
    assert (survey["files"], survey["unreadable"]) == (1, 1)


def test_limits_end_a_survey_and_say_so(hub):
    assert look(hub, max_files=1)["ended_by"] == "max_files"
    assert look(hub, max_files=2)["ended_by"] == ""
    assert look(hub, seconds=-1)["ended_by"] == "time"


def test_pages_are_counted_written_and_released(on_disk):
    blob = on_disk / "blobs/b10b"
    blob.write_bytes(b"v" * SIZE)
    with held(blob):
        full = look(on_disk)
    assert full["cached"] >= SIZE and full["unmeasured"] == 0
    look(on_disk, to_each=page_cache.write_back)
    assert look(on_disk)["dirty"] == 0
    look(on_disk, to_each=page_cache.give_back)
    assert look(on_disk)["cached"] == 0
    assert blob.read_bytes() == b"v" * SIZE, "nothing is lost"


def test_an_older_kernel_reports_the_same_without_dirty_pages(on_disk, monkeypatch):
    with held(on_disk / "blobs/b10b"):
        today = look(on_disk / "blobs")
        monkeypatch.setattr(page_cache, "cachestat", lambda libc, descriptor: None)
        monkeypatch.setattr(page_cache, "MINCORE_STEP", 1024 * 1024)
        older = look(on_disk / "blobs")
    assert older["cached"] == today["cached"] >= SIZE and older["unmeasured"] == 0


def test_files_whose_pages_belong_to_another_file_are_counted_too(on_disk, monkeypatch):
    """As on overlayfs, where the first question is answered with none."""
    with held(on_disk / "blobs/b10b"):
        today = look(on_disk / "blobs")["cached"]
        monkeypatch.setattr(page_cache, "cachestat", lambda libc, descriptor: page_cache.Residency(0, 0))
        assert look(on_disk / "blobs")["cached"] == today >= SIZE
    look(on_disk, to_each=page_cache.give_back)
    assert look(on_disk)["cached"] == 0


def test_what_the_kernel_does_not_report_is_unmeasured(hub, monkeypatch):
    monkeypatch.setattr(page_cache, "cachestat", lambda libc, descriptor: None)
    monkeypatch.setattr(page_cache.os, "geteuid", lambda: 65534)
    monkeypatch.setattr(page_cache.os, "access", lambda path, mode: False)
    survey = look(hub)
    assert (survey["cached"], survey["unmeasured"]) == (0, SIZE + 3)


@pytest.mark.parametrize(("residency", "written"), [(None, True), (page_cache.Residency(9, None), True), (page_cache.Residency(9, 0), False)])
def test_only_files_that_may_be_dirty_are_written(monkeypatch, residency, written):
    written_files = []
    monkeypatch.setattr(page_cache.os, "fdatasync", written_files.append)
    page_cache.write_back(7, residency)
    assert written_files == ([7] if written else [])
