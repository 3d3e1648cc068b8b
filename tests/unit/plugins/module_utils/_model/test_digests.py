# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A flipped byte is found, in a large file and in a small one, and named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from copying_pair import COMMIT, REPO, cache

from ansible_collections.gb10.cluster.plugins.module_utils._model import digests


def flip(path: Path) -> None:
    """Change a byte in the middle, and keep size and times."""
    status, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(("name", "kind"), [("b.safetensors", "sha256"), ("config.json", "git id")])
def test_a_flipped_byte_is_named(tmp_path: Path, name: str, kind: str) -> None:
    root = cache(tmp_path) / "snapshots" / COMMIT
    (root / "own.txt").write_text("by hand")
    (root / "twice.json").symlink_to(os.readlink(root / "config.json"))
    read = digests.verify({str(root): REPO})
    assert (read.files, read.size, read.without, read.problems) == (4, 7102, 1, [])
    flip(root / name)
    (problem,) = digests.verify({str(root): REPO}).problems
    assert problem.id == "model.digest" and f"{name} was changed" in problem.message and f"its {kind} is" in problem.message
    assert problem.file == os.path.realpath(root / name) and f"sudo rm {problem.file}" in digests.remedy(problem)


def test_nothing_to_read_reads_nothing() -> None:
    read = digests.verify({})
    assert (read.files, read.size, read.problems) == (0, 0, [])
