# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two hub caches on this machine, and a stand-in for rsync that copies between them and fails as rsync was seen to."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import types
import typing as t
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.module_utils._host import transient
from ansible_collections.gb10.cluster.plugins.module_utils._model import copy_target, copying
from ansible_collections.gb10.cluster.plugins.modules import model_copy

COMMIT = "0123456789abcdef" * 2 + "01234567"
REPO = "org/tiny"
SECRET = "0123abcd"

#: Does what the collection asks of rsync: the files of a list, into the stage, going on where one was cut. `plan.json` beside it says what goes wrong.
STAND_IN = '''#!{python}
import json, os, sys, time
plan = json.load(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "plan.json")))
words = sys.argv[1:]
if words == ["--version"]:
    print(plan["version"]); sys.exit(0)
with open(plan["seen"], "a") as log:
    log.write(json.dumps(words) + "\\n")
if sys.stdin.read() != plan["secret"] + "\\n":
    sys.stderr.write("@ERROR: auth failed on module r0\\n"); sys.exit(5)
dry = "--dry-run" in words
listed = next(word[len("--files-from="):] for word in words if word.startswith("--files-from="))
names = [name for name in open(listed).read().split("\\0") if name]
source, target = plan["sources"][words[-2].split("/")[3]], words[-1]
if plan.get("hangs"):
    time.sleep(600)
for name in names:
    there, here = os.path.join(source, name), os.path.join(target, name)
    data, status = open(there, "rb").read(), os.stat(there)
    if dry:
        if (os.stat(here).st_size, int(os.stat(here).st_mtime)) != (status.st_size, int(status.st_mtime)):
            print(">f..t...... " + name)
        continue
    begun = os.path.getsize(here) if os.path.exists(here) else 0
    sent = data[begun:]
    cut = plan.get("cut_after")
    with open(here, "ab") as out:
        out.write(sent if cut is None else sent[:cut])
    if plan.get("says"):
        sys.stderr.write(plan["says"]); sys.exit(plan["rc"])
    if open(here, "rb").read() != data:
        # Like rsync, which sends it again where its digest differs.
        open(here, "wb").write(data)
    os.utime(here, ns=(status.st_mtime_ns, status.st_mtime_ns))
    if plan.get("touches"):
        os.utime(there, (1, 1))
'''


def blob(data: bytes, large: bool) -> str:
    return hashlib.sha256(data).hexdigest() if large else hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def cache(root: Path, repo: str = REPO, files: t.Mapping[str, bytes] | None = None, commit: str = COMMIT) -> Path:
    """Make a hub cache as the hub's client does, and return the repository. Files that end with ``.safetensors`` are large ones."""
    base = root / "hub" / ("models--" + repo.replace("/", "--"))
    content = files or {"config.json": b"{}", "a.safetensors": b"A" * 4000, "b.safetensors": b"B" * 3000, "sub/c.safetensors": b"C" * 100}
    for name, data in content.items():
        path = base / "blobs" / blob(data, name.endswith(".safetensors"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        link = base / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(path, link.parent))
    (base / "refs").mkdir(exist_ok=True)
    (base / "refs/main").write_text(commit)
    return base


def tree(base: Path) -> dict[str, t.Any]:
    """Return what lies in a repository: of files content, mode and time, of links where they lead."""
    found: dict[str, t.Any] = {}
    for path in sorted(base.rglob("*")):
        status = path.lstat()
        name = str(path.relative_to(base))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            when = None if name.startswith("refs/") else int(status.st_mtime)
            found[name] = (path.read_bytes(), stat.S_IMODE(status.st_mode), when)
    return found


class Pair:
    """A node that has a model, and one that lacks it."""

    def __init__(self, path: Path, monkeypatch: t.Any) -> None:
        self.path, self.source, self.target = path, cache(path / "one"), path / "two/hub/models--org--tiny"
        (path / "two").mkdir()
        (path / "bin").mkdir()
        (path / "bin/rsync").write_text(STAND_IN.replace("{python}", sys.executable))
        (path / "bin/rsync").chmod(0o755)
        self.plan()
        monkeypatch.setenv("PATH", f"{path / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setattr(transient, "RUN_ROOT", str(path / "run"))
        monkeypatch.setattr(transient, "is_active", lambda _cluster: False)
        monkeypatch.setattr(copy_target, "LOOK_SECONDS", 0.05)

    def plan(self, **more: t.Any) -> None:
        """Say what the stand-in does."""
        known = {"version": "rsync  version 3.5.0  protocol version 32", "secret": SECRET, "seen": str(self.path / "seen"), "sources": {"r0": str(self.source)}}
        (self.path / "bin/plan.json").write_text(json.dumps({**known, **more}))

    def seen(self) -> list[list[str]]:
        """Return the arguments of each call but that for the version."""
        path = self.path / "seen"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def listing(self, revision: str = COMMIT) -> list[dict[str, t.Any]]:
        return [model_copy.listed({"hf_home": str(self.path / "one")}, {"repo": REPO, "revision": revision})]

    def call(self, check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        """Copy, and return the result."""
        defaults = {
            "state": "copied", "repositories": None, "hf_home": str(self.path / "two"), "cluster_name": "gb10", "address": "127.0.0.1", "port": 20300,
            "clients": None, "source": "127.0.0.1", "secret": f"{copying.USER}:{SECRET}\n", "listing": params.get("listing") or self.listing(), "streams": 4,
            "timeout": 20, "disk_floor_gib": 0, "required": True, "state_dir": str(self.path / "state"), "lock_id": "",
        }  # fmt: skip
        return model_copy.work(types.SimpleNamespace(params={**defaults, **params}, check_mode=check))
