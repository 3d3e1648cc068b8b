# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What root in a container can put at a path: nothing of it leads out of the directory, hangs, or is taken for ours."""

from __future__ import annotations

import os
import socket

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._host import untrusted

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
def test_only_a_file_of_ours_is_read(tree, plant):
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
    with pytest.raises(untrusted.Tampered, match="a device stands"):
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


def test_what_is_ours_is_read_whole_and_bounded(tree):
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
    """The launcher replaces its notes whole: the one that was looked at may be gone."""
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


def test_everything_below_a_directory_is_given_and_no_link_is_followed(tmp_path):
    (tmp_path / "top/inside/deep").mkdir(parents=True)
    (tmp_path / "top/inside/deep/file").write_text("12345")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").touch()
    (tmp_path / "top/inside/link").symlink_to("../../outside")
    os.mkfifo(tmp_path / "top/inside/pipe")
    found = {entry.path: (entry.target, entry.status.st_size if entry.path.endswith("file") else None) for entry in untrusted.walk(str(tmp_path), "top/inside")}
    assert found == {"deep": ("", None), "deep/file": ("", 5), "link": ("../../outside", None), "pipe": ("", None)}
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
