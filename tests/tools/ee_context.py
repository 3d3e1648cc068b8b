# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the collection and write the build context of the execution environment: build/ee. No container engine, no registry.

    .venv/bin/python tests/tools/ee_context.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEFINITION = ROOT / "execution-environment.yml"
#: Where the definition looks for the collection, seen from its own directory; no version in the name, so that a release does not edit the definition.
TARBALL = Path("build") / "ee-files" / "gb10-cluster.tar.gz"
CONTEXT = Path("build") / "ee"
#: Seconds for one command.
TIMEOUT = 180


def run(argv: t.Sequence[str], cwd: Path) -> None:
    """Run one command of this Python's environment; exits with all of its output when it fails."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(argv, cwd=cwd, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if done.returncode:
        sys.exit(f"FAILED in {cwd}: {' '.join(argv)}\n{done.stdout}{done.stderr}")


def build_collection(target: Path) -> None:
    """Build the collection as the file ``target``."""
    shutil.rmtree(target.parent, ignore_errors=True)
    target.parent.mkdir(parents=True)
    run([sys.executable, str(ROOT / "tests" / "tools" / "collection_tarball.py"), str(target.parent)], ROOT)
    (tarball,) = target.parent.glob("*.tar.gz")
    tarball.rename(target)


def write_context(directory: Path) -> Path:
    """Write the context of the definition in ``directory``, which has the tarball in its place, and return the context's directory."""
    context = directory / CONTEXT
    shutil.rmtree(context, ignore_errors=True)
    # The name would otherwise depend on which engine this machine has.
    options = ["--file", str(directory / DEFINITION.name), "--context", str(context), "--output-filename", "Containerfile"]
    run(["ansible-builder", "create", *options], directory)
    return context


def main() -> None:
    """Build both where a person finds them."""
    build_collection(ROOT / TARBALL)
    context = write_context(ROOT)
    print(f"{context.relative_to(ROOT)}: the build context, for podman build {context.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
