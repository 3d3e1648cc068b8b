# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Archives from a stranger or a node: no member is written or read outside the directory that the archive is extracted to."""

from __future__ import annotations

import gzip
import io
import os
import sys
import tarfile
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.plugin_utils._calibrate import archive
from ansible_collections.gb10.cluster.plugins.plugin_utils._calibrate.archive import Content

sys.path.insert(0, str(Path(__file__).parents[5] / "tests" / "tools"))

import field_check  # noqa: E402


@pytest.fixture
def top(tmp_path):
    """Return the directory that an archive is extracted to; the file next to it does not belong to the archive."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/keys").write_text("mine")
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


def everything(top):
    """Return all names below a directory."""
    return sorted(os.path.relpath(os.path.join(folder, name), top) for folder, folders, files in os.walk(top) for name in (*folders, *files))


def test_a_tree_is_put_up_with_its_links(top):
    texts = {"n/sys/devices/p/f/net/e/mtu": "9000", "n/sys/odd": "\ud800", "n/sys/devices/p/f/class": "2", "n/other": "no", "n/system/x": "no"}
    links = {"n/sys/class/net/e": "../../devices/p/f/net/e", "n/sys/devices/p/f/net/e/device": "../..", "n/sys/devices/p/f/driver": "../../../bus/d",
             "n/sys/again": "class/net/e", "n/sys/all": "class/.."}  # fmt: skip
    archive.spread(Content(texts, links), "n/sys", str(top / "made"))
    made = top / "made"
    assert (made / "class/net/e/mtu").read_text() == "9000" and (made / "class/net/e/device/class").read_text() == "2"
    assert (made / "again/mtu").read_text() == "9000", "a link may lead to another one"
    assert (made / "bus/d").is_dir(), "what a link leads to is a directory where nothing of it was recorded"
    assert not os.path.lexists(made / "all"), "a path that comes back up may do so over a link"
    assert not {"other", "x"} & set(everything(top))


@pytest.mark.parametrize(
    "target", ["{top}/../mine", "../../mine", "/etc", "..", "../here/../../mine", "a/../../../mine", "./../../mine", "", "a//b", "a/./b", "."]
)
def test_a_link_that_leads_out_or_may_do_so_is_left_out(top, target):
    archive.spread(Content({"n/sys/a/b": "x"}, {"n/sys/out": target.format(top=top)}), "n/sys", str(top))
    assert everything(top) == ["a", "a/b"] and os.listdir(top.parent / "mine") == ["keys"]


@pytest.mark.parametrize(
    "texts, links, words",
    [
        # The text of the first link leads inside. The second link is below it, so it is not at the place for which its text is checked.
        ({"n/sys/d/x/keys": "evil"}, {"n/sys/d/l": "../a/b/c", "n/sys/d/l/out": "../../../../mine", "n/sys/d/x": "l/out"}, "is below"),
        ({"n/sys/l/keys": "evil"}, {"n/sys/l": "a"}, "is below 'l'"),
        ({"n/sys/l/a/b/keys": "evil"}, {"n/sys/l": "a"}, "is below 'l'"),
        ({}, {"n/sys/l": "a", "n/sys/l/m": "b"}, "is below 'l'"),
        # The directory would be created for the target of a link.
        ({}, {"n/sys/l": "a", "n/sys/m": "l/new"}, "is below 'l'"),
        ({"n/sys/f": "x", "n/sys/f/g": "y"}, {}, "is below 'f'"),
        ({"n/sys/f": "x"}, {"n/sys/f": "a"}, "both a file and a link"),
        ({"n/sys/../mine/keys": "evil"}, {}, "is not a name"),
        ({"n/sys//x": "evil"}, {}, "is not a name"),
        ({"n/sys/a\0b": "evil"}, {}, "is not a name"),
        ({"n/sys/a\ud800": "evil"}, {}, "is not a name"),
        ({"n/sys/a\x1b[2J": "evil"}, {}, "is not a name"),
        ({f"n/sys/{'a/' * 64}b": "evil"}, {}, "is not a name"),
        ({f"n/sys/{'a' * 255}{'/b' * 400}": "evil"}, {}, "is not a name"),
        ({}, {"n/sys/../out": "a"}, "is not a name"),
        # A name that the file system does not take is reported as well.
        ({f"n/sys/{'x' * 300}": "y"}, {}, "cannot be put up as a tree"),
    ],
)
def test_members_that_make_no_tree_are_refused_and_nothing_lies_outside(top, texts, links, words):
    with pytest.raises(UnknownState) as caught:
        archive.spread(Content(texts, links), "n/sys", str(top))
    assert words in str(caught.value) and caught.value.remedy
    assert (top.parent / "mine/keys").read_text() == "mine" and os.listdir(top.parent / "mine") == ["keys"]
    assert words.startswith("cannot") or everything(top) == [], "it is judged before anything is written"


def test_a_link_that_lies_there_already_is_not_followed(top):
    (top / "a").symlink_to("../mine")
    (top / "f").symlink_to("../mine/keys")
    for texts in ({"n/sys/a/keys": "evil"}, {"n/sys/f": "evil"}):
        with pytest.raises(UnknownState):
            archive.spread(Content(texts, {}), "n/sys", str(top))
    assert (top.parent / "mine/keys").read_text() == "mine"


# -- the file itself -------------------------------------------------------------------------------------------------


def member(name, **fields):
    made = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def packed(path, members):
    with tarfile.open(path, "w:gz") as made:
        for info, content in members:
            made.addfile(info, io.BytesIO(content))
    return str(path)


@pytest.mark.parametrize(
    "name", ["/etc/x", "calibration/../x", "calibration/a/../../x", "../calibration/x", "calibration//x", "calibration/./x", "other/x", "calibration"]
)
def test_a_name_that_is_not_a_plain_one_below_the_root_is_refused(tmp_path, name):
    with pytest.raises(UnknownState) as caught:
        field_check.read_archive(packed(tmp_path / "a.tar.gz", [(member(name, size=1), b"x")]))
    assert "not the name of something below calibration" in str(caught.value)


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE, b"Z"])
def test_a_hard_link_or_a_device_is_refused(tmp_path, kind):
    with pytest.raises(UnknownState) as caught:
        field_check.read_archive(packed(tmp_path / "a.tar.gz", [(member("calibration/x", type=kind, linkname="calibration/y"), b"")]))
    assert "neither a file nor a symbolic link" in str(caught.value)


@pytest.mark.parametrize("second", [{"size": 1}, {"type": tarfile.SYMTYPE, "linkname": "y"}])
def test_a_name_that_is_there_twice_is_refused(tmp_path, second):
    with pytest.raises(UnknownState) as caught:
        field_check.read_archive(packed(tmp_path / "a.tar.gz", [(member("calibration/x", size=1), b"x"), (member("calibration/x", **second), b"x")]))
    assert "is there twice" in str(caught.value)


def test_directories_count_and_say_nothing(tmp_path, monkeypatch):
    folders = [(member(f"calibration/{number}", type=tarfile.DIRTYPE), b"") for number in range(3)]
    path = packed(tmp_path / "a.tar.gz", [*folders, (member("calibration/x", size=1), b"x")])
    assert field_check.read_archive(path) == Content({"x": "x"}, {})
    monkeypatch.setattr(field_check, "MOST_MEMBERS", 3)
    with pytest.raises(UnknownState):
        field_check.read_archive(path)


def test_more_than_a_calibration_holds_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MOST_BYTES", 1000)
    monkeypatch.setattr(field_check, "MOST_MEMBERS", 10)
    path = packed(tmp_path / "a.tar.gz", [(member("calibration/x", size=600), b"x" * 600), (member("calibration/y", size=600), b"x" * 600)])
    with pytest.raises(UnknownState) as caught:
        field_check.read_archive(path)
    assert "there is more of it" in str(caught.value)


def test_a_header_of_tar_itself_that_would_fill_the_memory_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MOST_BYTES", 1000)
    monkeypatch.setattr(field_check, "MOST_MEMBERS", 10)
    # A long name in the format of GNU tar is read whole before the first member.
    header = member("././@LongLink", type=tarfile.GNUTYPE_LONGNAME, size=5_000_000).tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(header + b"x" * 5_000_000))
    with pytest.raises(UnknownState) as caught:
        field_check.read_archive(str(tmp_path / "a.tar.gz"))
    assert "more than a calibration can" in str(caught.value)


def test_a_file_that_breaks_off_or_is_damaged_is_one_error(tmp_path):
    whole = gzip.compress(archive.packed(Content({"a": "x" * 9000}, {})))
    good = archive.packed(Content({name: name * 3000 for name in "abc"}, {}))
    for broken in (good[:-40], good[:200] + b"\xff" * 40 + good[240:], whole, b"\x1f\x8b"):
        (tmp_path / "a.tar.gz").write_bytes(broken)
        with pytest.raises(UnknownState):
            field_check.read_archive(str(tmp_path / "a.tar.gz"))
