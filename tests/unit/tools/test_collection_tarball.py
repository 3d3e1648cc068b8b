# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The collection's tarball: the same commit gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TOOL = ROOT / "tests" / "tools" / "collection_tarball.py"


def build(root: Path, target: Path, **env: str) -> Path:
    """Build a clone into a directory and return the tarball's path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    argv = [sys.executable, str(TOOL), "--root", str(root), str(target)]
    subprocess.run(argv, env={"PATH": path, "HOME": str(target), **env}, check=True, timeout=180, capture_output=True)
    (tarball,) = target.glob("*.tar.gz")
    return tarball


@pytest.fixture(scope="module")
def clones(tmp_path_factory) -> tuple[Path, Path]:
    """Two clones, whose files have different times, modes and order."""
    place = tmp_path_factory.mktemp("clones")
    for name, umask in (("one", 0o022), ("two", 0o077)):
        subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(place / name)], check=True, timeout=120, umask=umask)
    for path in sorted((place / "two").rglob("*.py"), reverse=True):
        again = path.with_suffix(".again")
        path.rename(again)
        again.rename(path)
        os.utime(path, (1, 1))
    return place / "one", place / "two"


@pytest.fixture(scope="module")
def tarballs(clones, tmp_path_factory) -> tuple[Path, Path]:
    first, second = (build(clone, tmp_path_factory.mktemp("built")) for clone in clones)
    return first, second


def test_two_clones_give_the_same_bytes(tarballs):
    first, second = tarballs
    assert first.name == second.name and first.read_bytes() == second.read_bytes()


def test_its_time_is_that_of_the_commit_or_what_the_environment_says(clones, tarballs, tmp_path):
    def times(tarball: Path) -> set[int]:
        with tarfile.open(tarball) as archive:
            return {member.mtime for member in archive}

    committed = subprocess.run(["git", "-C", str(clones[0]), "log", "-1", "--format=%ct"], check=True, timeout=60, capture_output=True, text=True).stdout
    assert times(tarballs[0]) == {int(committed)}
    assert times(build(clones[0], tmp_path, SOURCE_DATE_EPOCH="86400")) == {86400}


def test_its_manifest_still_says_what_is_in_it(tarballs):
    with tarfile.open(tarballs[0]) as archive:
        read = {member.name: archive.extractfile(member).read() for member in archive if member.isreg()}
        order = archive.getnames()
    assert order[:2] == ["MANIFEST.json", "FILES.json"] and order[2:] == sorted(order[2:])
    assert json.loads(read["MANIFEST.json"])["file_manifest_file"]["chksum_sha256"] == hashlib.sha256(read["FILES.json"]).hexdigest()
    listed = {entry["name"]: entry["chksum_sha256"] for entry in json.loads(read["FILES.json"])["files"] if entry["ftype"] == "file"}
    assert listed == {name: hashlib.sha256(content).hexdigest() for name, content in read.items() if name not in ("MANIFEST.json", "FILES.json")}
