# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Only root can reach the files that a container leaves on the node, whatever their modes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import private
from ansible_collections.gb10.cluster.plugins.module_utils._memory import note
from ansible_collections.gb10.cluster.plugins.module_utils._records import starts
from ansible_collections.gb10.cluster.plugins.module_utils._samples import memory_return

STRANGER = 65534

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="another account takes root")


@pytest.fixture
def open_umask():
    """A umask that would make a directory open to everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def of_an_older_version(tmp_path):
    """A cluster as it was left: open, with what root in its container made of the directory that it can write."""
    (tmp_path / "state" / "gb10" / "run").mkdir(parents=True)
    (tmp_path / "state" / "gb10").chmod(0o755)
    planted = tmp_path / "state" / "gb10" / "run" / "planted"
    planted.write_text("#!/bin/sh\n")
    (tmp_path / "state" / "gb10" / "run").chmod(0o777)
    planted.chmod(0o4755)
    return tmp_path / "state" / "gb10", planted


@pytest.mark.parametrize(
    "write",
    [
        lambda path: private.ensure(os.path.dirname(path)),
        lambda path: memory_return.write_note(path, 1, "b", 1, note.Level(None, "nothing says it")),
        lambda path: starts.FILE.write(path, []),
    ],
    ids=["container", "memory", "records"],
)
def test_every_writer_creates_a_clusters_directory_closed(tmp_path, open_umask, write):
    write(str(tmp_path / "state" / "gb10" / "memory.json"))
    assert mode_of(tmp_path / "state" / "gb10") == 0o700
    assert mode_of(tmp_path / "state") == 0o755


def test_a_directory_is_never_open_while_it_is_made(tmp_path, open_umask, monkeypatch):
    monkeypatch.setattr(os, "fchmod", lambda *_args: pytest.fail("it was made open"))
    monkeypatch.setattr(os, "chmod", lambda *_args: pytest.fail("it was made open"))
    private.ensure(str(tmp_path / "state" / "gb10"))


def reached(path):
    """Whether an account without rights runs it by its path."""
    program = f"import os, sys; os.setgroups([]); os.setgid({STRANGER}); os.setuid({STRANGER}); sys.exit(not os.access(sys.argv[1], os.X_OK))"
    return not subprocess.run([sys.executable, "-c", program, path], timeout=30, check=False).returncode


@as_root
def test_a_program_that_was_left_there_is_out_of_reach_once_it_is_closed(tmp_path):
    for above in [tmp_path, *tmp_path.parents]:
        if mode_of(above) & 0o001 == 0:
            above.chmod(0o711)
    folder, planted = of_an_older_version(tmp_path)
    assert private.is_open(str(folder)) and reached(planted)
    private.close(str(folder))
    assert not private.is_open(str(folder)) and not reached(planted)
    # The remaining files keep their modes, which no longer matter.
    assert mode_of(folder) == 0o700 and mode_of(planted) == 0o4755


@pytest.mark.parametrize(("mode", "opened"), [(0o700, False), (0o750, False), (0o710, False), (0o701, True), (0o755, True), (0o707, True)])
@as_root
def test_who_may_enter(tmp_path, mode, opened):
    tmp_path.chmod(mode)
    assert private.is_open(str(tmp_path)) == opened
    if mode & 0o070:
        os.chown(tmp_path, -1, STRANGER)
        assert private.is_open(str(tmp_path))


def test_an_absent_directory_is_not_open(tmp_path):
    assert not private.is_open(str(tmp_path / "none"))


@as_root
def test_a_foreign_directory_is_refused_with_a_remedy(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    os.chown(folder, STRANGER, -1)
    with pytest.raises(ClusterError, match=f"belongs to user {STRANGER}") as caught:
        private.close(str(folder))
    assert "chown root:root" in caught.value.remedy and private.is_open(str(folder))


@as_root
@pytest.mark.parametrize(("mode", "owner", "refused"), [(0o755, STRANGER, True), (0o777, 0, True), (0o1777, 0, False), (0o775, 0, False)])
def test_a_directory_that_another_account_could_replace_is_refused(tmp_path, mode, owner, refused):
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, owner, -1)
    state.chmod(mode)
    private.make(str(state / "gb10"))
    if refused:
        with pytest.raises(ClusterError, match=f"{state}, above {state}/gb10, can be changed"):
            private.close(str(state / "gb10"))
    else:
        private.close(str(state / "gb10"))


@as_root
def test_the_place_that_a_link_leads_to_counts_as_well(tmp_path):
    (tmp_path / "theirs" / "state" / "gb10").mkdir(parents=True)
    os.chown(tmp_path / "theirs", STRANGER, -1)
    (tmp_path / "state").symlink_to(tmp_path / "theirs" / "state")
    with pytest.raises(ClusterError, match="theirs, above"):
        private.close(str(tmp_path / "state" / "gb10"))


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "gb10").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ClusterError, match="is not a directory"):
        private.ensure(str(tmp_path / "gb10"))
    assert mode_of(tmp_path / "elsewhere") == 0o755


def test_the_open_directories_of_a_node_are_named_with_the_command(tmp_path):
    folder, _planted = of_an_older_version(tmp_path)
    (tmp_path / "state" / "closed" / "cache").mkdir(parents=True)
    (tmp_path / "state" / "closed").chmod(0o700)
    (tmp_path / "state" / "image-contracts").mkdir(mode=0o755)
    (tmp_path / "state" / "mode.json").write_text("{}")
    assert private.opened(str(tmp_path / "state"), str(tmp_path / "none")) == [
        {"path": str(folder), "mode": "0755", "remedy": f"chmod 0700 {folder}"}
    ]
    private.close(str(folder))
    assert private.opened(str(tmp_path / "state")) == []


@as_root
def test_a_foreign_directory_is_given_to_root_first(tmp_path):
    folder, _planted = of_an_older_version(tmp_path)
    os.chown(folder, STRANGER, -1)
    assert private.opened(str(tmp_path / "state"))[0]["remedy"] == f"chown root:root {folder} && chmod 0700 {folder}"
