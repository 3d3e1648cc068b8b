# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A new file is written whole, readable only by its owner, and never replaces another file."""

from __future__ import annotations

import resource
import signal
import stat

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._text import new_file


def test_it_is_for_its_owner_alone(tmp_path):
    new_file.create(str(tmp_path / "new"), b"text")
    assert (tmp_path / "new").read_bytes() == b"text" and stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600


def test_an_existing_file_is_kept(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    with pytest.raises(FileExistsError):
        new_file.create(str(tmp_path / "link"), b"text")
    assert not (tmp_path / "absent").exists()


def test_no_file_remains_on_a_full_disk(tmp_path):
    """A limit on the file size simulates a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            new_file.create(str(tmp_path / "new"), b"x" * 4096)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert not (tmp_path / "new").exists()
