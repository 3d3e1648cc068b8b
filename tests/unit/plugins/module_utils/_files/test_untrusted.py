# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What root in a container can put at a path: nothing there leads out of the directory, hangs, or is mistaken for the collection's files."""

from __future__ import annotations

import io
import os
import socket
import stat

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted

SECRET = b"not yours\n"


@pytest.fixture
def tree(tmp_path):
    """A directory that a container can write, and a file outside of it."""
    (tmp_path / "top" / "engine").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.log").write_bytes(SECRET)
    return tmp_path


def link(path, outside):
    path.symlink_to(outside)


def absent_link(path, outside):
    path.symlink_to(outside.with_name("to-be-made"))


def hard_link(path, outside):
    path.hardlink_to(outside)


def fifo(path, _outside):
    os.mkfifo(path)


def folder(path, _outside):
    path.mkdir()


def local_socket(path, _outside):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


PLANTED = [link, absent_link, hard_link, fifo, folder, local_socket]

each_planted = pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)


@each_planted
def test_only_a_regular_file_is_read(tree, plant):
    plant(tree / "top" / "engine" / "a.log", tree / "outside" / "a.log")
    with pytest.raises(untrusted.Tampered, match=r"top/engine/a\.log was tampered with") as caught:
        untrusted.read(str(tree / "top"), "engine/a.log", 1000)
    assert caught.value.reason == "tampered" and caught.value.verdict == "unknown" and caught.value.remedy


def test_a_file_behind_links_is_read_up_to_a_limit_and_nothing_else_is_opened(tmp_path):
    (tmp_path / "file").write_bytes(b"1234")
    (tmp_path / "link").symlink_to("file")
    assert untrusted.content(str(tmp_path / "link"), 4) == b"1234" and untrusted.content(str(tmp_path / "link"), 3) is None
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero", "."):
        assert untrusted.content(str(tmp_path / name), 4) is None
    with pytest.raises(FileNotFoundError):
        untrusted.content(str(tmp_path / "absent"), 4)


@pytest.mark.skipif(os.geteuid() != 0, reason="making a device node takes root")
def test_a_device_is_not_even_opened(tree):
    os.mknod(tree / "top" / "a.log", 0o20666, os.makedev(1, 5))
    with pytest.raises(untrusted.Tampered, match="a device is in the place"):
        untrusted.reader(str(tree / "top"), "a.log")


@pytest.mark.parametrize("act", [lambda top: untrusted.read(top, "engine/a.log", 1000), lambda top: untrusted.remove(top, "engine/a.log")])
def test_a_link_on_the_way_leads_nowhere(tree, act):
    (tree / "top" / "engine").rmdir()
    (tree / "top" / "engine").symlink_to(tree / "outside")
    with pytest.raises(untrusted.Tampered, match="top/engine was tampered with: a link"):
        act(str(tree / "top"))
    assert (tree / "outside" / "a.log").read_bytes() == SECRET


@pytest.mark.parametrize("relative", ["../outside/a.log", "/etc/hostname", "engine/../../outside/a.log", "engine//a.log", ".", ""])
def test_a_path_that_leads_out_is_refused(tree, relative):
    with pytest.raises((ValueError, OSError)):
        untrusted.reader(str(tree / "top"), relative)


def test_a_regular_file_is_read_up_to_a_limit(tree):
    (tree / "top" / "engine" / "a.log").write_bytes(b"x" * 100)
    assert untrusted.read(str(tree / "top"), "engine/a.log", 100) == b"x" * 100
    with pytest.raises(untrusted.Tampered, match="more than 99 bytes"):
        untrusted.read(str(tree / "top"), "engine/a.log", 99)
    with pytest.raises(FileNotFoundError):
        untrusted.read(str(tree / "top"), "engine/b.log", 99)


def test_a_file_with_a_planted_name_is_not_written(tree):
    (tree / "top" / "new").symlink_to(tree / "outside" / "a.log")
    with untrusted.directory(str(tree / "top")) as top, pytest.raises(FileExistsError):
        untrusted.create(top, "new")
    assert (tree / "outside" / "a.log").read_bytes() == SECRET


def test_missing_directories_are_made_and_links_are_not_taken_for_them(tree):
    with untrusted.directory(str(tree / "top"), "one/two", create=True) as made:
        os.close(untrusted.create(made, "file"))
    assert (tree / "top" / "one" / "two" / "file").is_file()
    (tree / "top" / "linked").symlink_to(tree / "outside")
    with pytest.raises(untrusted.Tampered), untrusted.directory(str(tree / "top"), "linked/two", create=True):
        pass
    assert os.listdir(tree / "outside") == ["a.log"]


def test_a_link_itself_can_be_removed(tree):
    (tree / "top" / "engine" / "a.log").symlink_to(tree / "outside" / "a.log")
    untrusted.remove(str(tree / "top"), "engine/a.log")
    assert os.listdir(tree / "top" / "engine") == [] and (tree / "outside" / "a.log").exists()


def test_a_file_that_is_replaced_while_it_is_opened_is_read(tree, monkeypatch):
    """The launcher replaces its notes whole: the inspected note may be gone."""
    path = tree / "top" / "run.json"
    path.write_text("old")
    looks = []

    def replaced(handle, real=os.fstat):
        if not looks:
            (tree / "top" / "new").write_text("new")
            os.replace(tree / "top" / "new", path)
        looks.append(real(handle))
        return looks[-1]

    monkeypatch.setattr(untrusted.os, "fstat", replaced)
    assert untrusted.read(str(tree / "top"), "run.json", 100) == b"new"


def test_everything_below_a_directory_is_listed_and_no_link_is_followed(tmp_path):
    (tmp_path / "top/inside/deep").mkdir(parents=True)
    (tmp_path / "top/inside/deep/file").write_text("12345")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").touch()
    (tmp_path / "top/inside/link").symlink_to("../../outside")
    os.mkfifo(tmp_path / "top/inside/pipe")
    paths = {entry.path: (entry.target, entry.status.st_size if entry.path.endswith("file") else None) for entry in untrusted.walk(str(tmp_path), "top/inside")}
    assert paths == {"deep": ("", None), "deep/file": ("", 5), "link": ("../../outside", None), "pipe": ("", None)}
    with pytest.raises(FileNotFoundError):
        list(untrusted.walk(str(tmp_path), "top/absent"))
    (tmp_path / "top/other").symlink_to(tmp_path / "outside")
    with pytest.raises(untrusted.Tampered):
        list(untrusted.walk(str(tmp_path), "top/other"))


def test_a_directory_is_removed_with_its_links_and_nothing_that_they_lead_to(tmp_path):
    (tmp_path / "top/going/deep").mkdir(parents=True)
    (tmp_path / "top/going/deep/file").touch()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/kept").touch()
    for name in ("link", "deep/link"):
        (tmp_path / "top/going" / name).symlink_to(tmp_path / "outside")
    os.mkfifo(tmp_path / "top/going/pipe")
    untrusted.remove_tree(str(tmp_path), "top/going")
    assert os.listdir(tmp_path / "top") == [] and (tmp_path / "outside/kept").exists()
    (tmp_path / "top/link").symlink_to(tmp_path / "outside")
    with pytest.raises(untrusted.Tampered):
        untrusted.remove_tree(str(tmp_path), "top/link")
    with pytest.raises(FileNotFoundError):
        untrusted.remove_tree(str(tmp_path), "top/absent")
    assert (tmp_path / "outside/kept").exists()


# -- what is left behind, and what fails ---------------------------------------------------------------------------------


def handles():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("plant", [None, *PLANTED], ids=lambda plant: plant.__name__ if plant else "file")
def test_no_handle_stays_open(tree, plant):
    path = tree / "top/engine/a.log"
    if plant:
        plant(path, tree / "outside/a.log")
    else:
        path.write_bytes(b"x")
    before = handles()
    for act in (
        lambda top: untrusted.reader(top, "engine/a.log").close(),
        lambda top: untrusted.read(top, "engine/a.log", 10),
        lambda top: list(untrusted.walk(top)),
        lambda top: untrusted.directory(top, "engine/a.log").__enter__(),
        lambda top: untrusted.remove(top, "engine/none"),
        lambda top: untrusted.remove_tree(top, "engine"),
    ):
        try:
            act(str(tree / "top"))
        except (OSError, untrusted.Tampered):
            pass
        assert handles() == before


def test_a_directory_that_is_made_is_not_everybodys(tree):
    with untrusted.directory(str(tree / "top"), "made", create=True):
        pass
    assert stat.S_IMODE((tree / "top/made").stat().st_mode) == 0o750
    with untrusted.directory(str(tree / "top"), "made", create=True) as again:
        os.close(untrusted.create(again, "file"))
    assert stat.S_IMODE((tree / "top/made/file").stat().st_mode) == 0o640


def test_a_directory_that_is_absent_is_named_and_not_made_unasked(tree):
    with pytest.raises(FileNotFoundError) as caught, untrusted.directory(str(tree / "top"), "engine/none"):
        pass
    assert caught.value.filename == str(tree / "top/engine/none") and not (tree / "top/engine/none").exists()


def test_a_file_is_read_without_a_buffer_and_never_beyond_one_byte_of_its_limit(tree, monkeypatch):
    (tree / "top/a.log").write_bytes(b"x" * 10)
    with untrusted.reader(str(tree / "top"), "a.log") as handle:
        assert isinstance(handle, io.RawIOBase)
    sizes = []

    class Dripping(io.BytesIO):
        def read(self, size=-1):
            sizes.append(size)
            return super().read(min(size, 3))

    monkeypatch.setattr(untrusted, "reader", lambda top, relative: Dripping(b"x" * 10))
    assert untrusted.read("/top", "a.log", 10) == b"x" * 10 and sizes == [11, 8, 5, 2, 1]
    sizes.clear()
    with pytest.raises(untrusted.Tampered, match="/top/a.log was tampered with: it has more than 9 bytes"):
        untrusted.read("/top", "a.log", 9)
    assert sizes == [10, 7, 4, 1, 0]


@pytest.mark.parametrize("own", [True, False])
def test_a_name_that_is_replaced_again_and_again_is_absent(tree, monkeypatch, own):
    (tree / "top/run.json").write_text("x")
    looks = []

    def gone(handle, real=os.fstat):
        (tree / "top/new").write_text("new")
        os.replace(tree / "top/new", tree / "top/run.json")
        looks.append(real(handle))
        return looks[-1]

    monkeypatch.setattr(untrusted.os, "fstat", gone)
    if own:
        with pytest.raises(FileNotFoundError) as caught:
            untrusted.reader(str(tree / "top"), "run.json")
        assert caught.value.filename == str(tree / "top/run.json") and len(looks) == untrusted.ATTEMPTS
    else:
        # For another program's file the open handle is enough, whatever the name refers to now.
        untrusted.reader(str(tree / "top"), "run.json", own=False).close()
        assert len(looks) == 1


def test_a_file_of_many_names_is_read_where_it_need_not_be_ours(tree):
    (tree / "top/blob").write_bytes(b"x")
    (tree / "top/snapshot").hardlink_to(tree / "top/blob")
    with untrusted.reader(str(tree / "top"), "snapshot", own=False) as handle:
        assert handle.read() == b"x"
    with pytest.raises(untrusted.Tampered, match="it has 2 names"):
        untrusted.reader(str(tree / "top"), "snapshot")


def opening(monkeypatch, error):
    """Have the directory ``deep`` fail to open."""

    def fail(path, *more, real=os.open, **how):
        if str(path).endswith("deep"):
            raise error(2, "it failed", str(path))
        return real(path, *more, **how)

    monkeypatch.setattr(os, "open", fail)


def test_a_removed_directory_is_empty_and_an_unreadable_one_stops_the_walk(tree, monkeypatch):
    (tree / "top/engine/deep").mkdir()
    (tree / "top/engine/file").touch()
    with monkeypatch.context() as patch:
        opening(patch, FileNotFoundError)
        assert [entry.path for entry in untrusted.walk(str(tree / "top"), "engine")] == ["deep", "file"]
    with monkeypatch.context() as patch:
        opening(patch, PermissionError)
        with pytest.raises(PermissionError):
            list(untrusted.walk(str(tree / "top"), "engine"))


@pytest.mark.parametrize("error", [PermissionError, FileNotFoundError])
def test_a_tree_that_cannot_be_opened_whole_is_not_called_removed(tree, monkeypatch, error):
    (tree / "top/engine/deep").mkdir()
    opening(monkeypatch, error)
    with pytest.raises(error):
        untrusted.remove_tree(str(tree / "top"), "engine")
    assert (tree / "top/engine/deep").exists()


def test_a_name_removed_during_the_walk_is_skipped(tree, monkeypatch):
    for name in ("a", "b"):
        (tree / "top/engine" / name).touch()

    def gone(path, *more, real=os.stat, **how):
        if path == "a":
            raise FileNotFoundError(2, "gone", path)
        return real(path, *more, **how)

    monkeypatch.setattr(untrusted.os, "stat", gone)
    assert [entry.path for entry in untrusted.walk(str(tree / "top"), "engine")] == ["b"]
