# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A flipped byte is found and named: in a large file of the hub, in a small one, and in one that the hub did not name."""

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
    assert (read.files, read.size, read.without, read.problems) == (5, 7109, 1, {})
    flip(root / name)
    (problem,) = list(digests.verify({str(root): REPO}).problems)
    assert problem.id == "model.digest" and f"{name} was changed" in problem.message and f"its {kind} is" in problem.message
    assert problem.file == os.path.realpath(root / name) and f"sudo rm {problem.file}" in digests.remedy(problem, "")


def test_a_file_that_became_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is no longer a file"):
        digests.digest(str(tmp_path / "pipe"), "sha256")


def test_nothing_to_read_reads_nothing() -> None:
    read = digests.verify({})
    assert (read.files, read.size, read.problems) == (0, 0, {})


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A plain directory, whose files have no digest as their names, with what is left out."""
    root = tmp_path / "plain"
    for name in ("model.safetensors", "config.json", "code/__pycache__/x.pyc", ".cache/download.json"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode() * 20)
    return root


def test_files_without_a_digest_of_the_hub_are_compared_with_the_manifest(plain: Path) -> None:
    root = str(plain)
    first = digests.verify({root: root})
    assert (first.files, first.without, first.problems) == (2, 2, {}) and sorted(first.noted[root]) == ["config.json", "model.safetensors"]
    noted = first.noted[root]["model.safetensors"]
    assert noted["size"] == 340 and len(noted["digest"]) == 64 and noted["inode"] == (plain / "model.safetensors").stat().st_ino
    again = digests.verify({root: root}, first.noted)
    assert (again.without, again.problems, again.noted) == (0, {}, first.noted) and digests.rewritten(root, first.noted[root]) == []
    flip(plain / "model.safetensors")
    assert digests.rewritten(root, first.noted[root]) == []
    damaged = digests.verify({root: root}, first.noted)
    (problem,) = list(damaged.problems)
    assert problem.id == "model.digest" and "model.safetensors was changed, with the same size and time" in problem.message
    assert damaged.noted == first.noted, "the damage must not become what is right"
    assert "Copy " in digests.remedy(problem, "/note.json") and "sudo rm /note.json" in digests.remedy(problem, "/note.json")


def test_a_rewritten_file_is_reported_once_and_noted(plain: Path) -> None:
    root = str(plain)
    first = digests.verify({root: root})
    (plain / "config.json").write_text("{}")
    (seen,) = digests.rewritten(root, first.noted[root])
    assert seen.id == "model.rewritten" and "gb10_model_verify=full" in digests.remedy(seen, "")
    second = digests.verify({root: root}, first.noted)
    assert [problem.id for problem in second.problems] == ["model.rewritten"] and list(second.problems.values()) == [root]
    assert digests.verify({root: root}, second.noted).problems == {} and digests.rewritten(root, second.noted[root]) == []
