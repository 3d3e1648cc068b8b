# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the collection, install it elsewhere, and see that every name of it resolves, from there and from the clone.

Elsewhere means: another directory, an empty ansible.cfg, and of the collection only meta/, plugins/, roles/ and playbooks/, and awx/,
which a playbook reads.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import typing as t
from pathlib import Path

import collection_tarball

ROOT = Path(__file__).resolve().parents[2]
COLLECTION = "gb10.cluster"

#: What a user of the installed collection needs; the installed copy is cut down to this before it is tried.
NEEDED = frozenset({"awx", "meta", "playbooks", "plugins", "roles"})
#: What the tarball must hold at its top, and what it may hold.
REQUIRED = NEEDED | {"CHANGELOG.md", "LICENSE", "MANIFEST.json", "README.md", "completion", "gb10"}
ALLOWED = REQUIRED | {"FILES.json", "changelogs", "docs"}

#: Directories of plugins that carry documentation of their own, and ansible-doc's name for each.
DOCUMENTED = {"callback": "callback", "filter": "filter", "lookup": "lookup", "modules": "module", "test": "test"}
#: Seconds for one command.
TIMEOUT = 180


def run(argv: t.Sequence[str], *, cwd: Path, env: t.Mapping[str, str]) -> str:
    """Run one command and return its standard output; exits with all of its output when it fails."""
    done = subprocess.run(argv, cwd=cwd, env=dict(env), capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if done.returncode:
        sys.exit(f"FAILED in {cwd}: {' '.join(argv)}\n{done.stdout}{done.stderr}")
    return done.stdout


def plugin_names(tree: Path) -> dict[str, list[str]]:
    """Return ansible-doc type → names of the plugins, modules and roles in a collection's tree."""
    names = {
        kind: sorted({path.stem for path in (tree / "plugins" / directory).glob("[!_]*") if path.suffix in {".py", ".yml"}})
        for directory, kind in DOCUMENTED.items()
    }
    # A Python file with several filters has a YAML file of documentation for each, and its own name is not a filter.
    names["filter"] = sorted(path.stem for path in (tree / "plugins" / "filter").glob("*.yml"))
    names["role"] = sorted(path.parents[1].name for path in (tree / "roles").glob("*/meta/argument_specs.yml"))
    return {kind: stems for kind, stems in names.items() if stems}


def check_names(tree: Path, *, cwd: Path, env: t.Mapping[str, str]) -> None:
    """See that ansible-doc knows each plugin and role of ``tree``, and that each playbook starts by its full name."""
    for kind, stems in plugin_names(tree).items():
        names = [f"{COLLECTION}.{name}" for name in stems]
        rendered = json.loads(run(["ansible-doc", "--type", kind, "--json", *names], cwd=cwd, env=env))
        missing = [name for name in names if not rendered.get(name)]
        if missing:
            sys.exit(f"FAILED in {cwd}: ansible-doc --type {kind} shows nothing for {', '.join(missing)}")
        if kind == "role":
            # The sanity test renders the documentation of every plugin, and of no role.
            run(["ansible-doc", "--type", kind, *names], cwd=cwd, env=env)
        print(f"  {kind}: {', '.join(stems)}")
    playbooks = sorted(path.stem for path in (tree / "playbooks").glob("*.yml"))
    run(["ansible-playbook", "--syntax-check", "-i", "localhost,", *(f"{COLLECTION}.{name}" for name in playbooks)], cwd=cwd, env=env)
    print(f"  playbook: {', '.join(playbooks)}")


def build(target: Path, env: t.Mapping[str, str]) -> Path:
    """Build the tarball into ``target``, see that nothing strange is in it, and return its path."""
    tarball = collection_tarball.build(ROOT, target, env)
    with tarfile.open(tarball) as archive:
        members = archive.getnames()
    tops = {member.split("/")[0] for member in members}
    if tops - ALLOWED or REQUIRED - tops:
        sys.exit(f"FAILED: {tarball.name} must not hold {sorted(tops - ALLOWED)} and lacks {sorted(REQUIRED - tops)}")
    print(f"{tarball.name}: {len(members)} entries, {tarball.stat().st_size // 1024} KiB, at the top {', '.join(sorted(tops))}")
    return tarball


def main() -> None:
    """Build, install, cut down, resolve."""
    clean_env = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    with tempfile.TemporaryDirectory(prefix="gb10-galaxy-") as name:
        scratch = Path(name)
        tarball = build(scratch, clean_env)
        (scratch / "ansible.cfg").touch()
        installed_env = {**clean_env, "ANSIBLE_COLLECTIONS_PATH": str(scratch / "installed")}
        install = ["ansible-galaxy", "collection", "install", "--offline", "--no-deps", "-p", str(scratch / "installed"), str(tarball)]
        run(install, cwd=scratch, env=installed_env)
        tree = scratch / "installed" / "ansible_collections" / "gb10" / "cluster"
        for path in tree.iterdir():
            if path.is_dir() and path.name not in NEEDED:
                shutil.rmtree(path)
            elif path.is_file():
                path.unlink()
        print("Installed elsewhere:")
        check_names(tree, cwd=scratch, env=installed_env)
    print("From the clone:")
    check_names(ROOT, cwd=ROOT, env=clean_env)


if __name__ == "__main__":
    main()
