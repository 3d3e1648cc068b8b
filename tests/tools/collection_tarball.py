# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the collection's tarball so that the same commit gives the same bytes: python tests/tools/collection_tarball.py DIRECTORY.

``ansible-galaxy collection build`` lists files in the order of the file system and notes when it ran. Here they are sorted, and all times
are SOURCE_DATE_EPOCH: the variable of the environment, or the time of the last commit.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MANIFEST, FILES = "MANIFEST.json", "FILES.json"
#: Seconds for one command.
TIMEOUT = 180


def source_date(root: Path, env: t.Mapping[str, str]) -> int:
    """Return the time that everything in the tarball gets, in seconds since the epoch."""
    if env.get("SOURCE_DATE_EPOCH"):
        return int(env["SOURCE_DATE_EPOCH"])
    argv = ["git", "-C", str(root), "log", "-1", "--format=%ct"]
    return int(subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT, check=True).stdout)


def as_galaxy_writes(content: t.Any) -> bytes:
    """Return JSON in the form of ``ansible-galaxy``."""
    return json.dumps(content, indent=1).encode()


def normalized(content: bytes, date: int) -> bytes:
    """Return a tarball of ``ansible-galaxy`` with its files sorted and all times equal."""
    with tarfile.open(fileobj=io.BytesIO(content)) as built:
        members = {member.name: (member, built.extractfile(member).read() if member.isreg() else b"") for member in built}
    listing = json.loads(members[FILES][1])
    listing["files"].sort(key=lambda entry: entry["name"])
    manifest = json.loads(members[MANIFEST][1])
    files = as_galaxy_writes(listing)
    manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(files).hexdigest()
    contents = {name: body for name, (_member, body) in members.items()} | {FILES: files, MANIFEST: as_galaxy_writes(manifest)}
    packed = io.BytesIO()
    # Without a name and a time of its own, as `gzip --no-name` does.
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        # The manifest comes first: Galaxy's servers look for it.
        for name in [MANIFEST, FILES, *sorted(members.keys() - {MANIFEST, FILES})]:
            member = members[name][0]
            member.mtime, member.size, member.pax_headers = date, len(contents[name]), {}
            archive.addfile(member, io.BytesIO(contents[name]))
    return packed.getvalue()


def build(root: Path, target: Path, env: t.Mapping[str, str]) -> Path:
    """Build the collection in ``root`` into the directory ``target`` and return the tarball's path."""
    with tempfile.TemporaryDirectory(prefix="gb10-tarball-") as scratch:
        argv = ["ansible-galaxy", "collection", "build", "--output-path", scratch]
        done = subprocess.run(argv, cwd=root, env=dict(env), capture_output=True, text=True, timeout=TIMEOUT, check=False)
        if done.returncode:
            sys.exit(f"FAILED in {root}: {' '.join(argv)}\n{done.stdout}{done.stderr}")
        (built,) = Path(scratch).glob("*.tar.gz")
        target.mkdir(parents=True, exist_ok=True)
        tarball = target / built.name
        tarball.write_bytes(normalized(built.read_bytes(), source_date(root, env)))
    return tarball


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--root", type=Path, default=ROOT, help="the clone to build")
    arguments = parser.parse_args()
    tarball = build(arguments.root, arguments.directory, os.environ)
    print(f"{hashlib.sha256(tarball.read_bytes()).hexdigest()}  {tarball}")


if __name__ == "__main__":
    main()
