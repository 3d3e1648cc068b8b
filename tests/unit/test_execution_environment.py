# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The execution environment: its build context as ansible-builder writes it, and what ansible-builder reads from the collection in it.

Nothing is built: that takes a registry.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("ee_context", ROOT / "tests" / "tools" / "ee_context.py")
ee_context = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ee_context)

DEFINITION = yaml.safe_load((ROOT / "execution-environment.yml").read_text(encoding="utf-8"))
GALAXY = {entry["name"]: entry for entry in DEFINITION["dependencies"]["galaxy"]["collections"]}


@pytest.fixture(scope="module", name="directory")
def _directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the definition and the collection as the definition wants it."""
    directory = tmp_path_factory.mktemp("ee")
    shutil.copy(ee_context.DEFINITION, directory)
    ee_context.build_collection(directory / ee_context.TARBALL)
    return directory


@pytest.fixture(scope="module", name="context")
def _context(directory: Path) -> Path:
    return ee_context.write_context(directory)


@pytest.fixture(scope="module", name="recipe")
def _recipe(context: Path) -> list[str]:
    return (context / "Containerfile").read_text(encoding="utf-8").splitlines()


def test_the_base_image_is_a_variable_and_pinned(recipe: list[str]) -> None:
    (argument,) = [line for line in recipe if line.startswith("ARG EE_BASE_IMAGE=")]
    image = argument.partition("=")[2].strip('"')
    assert image == DEFINITION["images"]["base_image"]["name"]
    assert re.fullmatch(r"[^:@]+:\d+(\.\d+)+", image), f"{image} is not pinned by version"
    assert {line.split()[1] for line in recipe if line.startswith("FROM ")} == {"$EE_BASE_IMAGE", "base"}, "an image that no variable names"


def test_core_and_runner_are_pinned_and_known_to_the_support_matrix(recipe: list[str]) -> None:
    (core,) = [line for line in recipe if "ansible-core==" in line]
    pins = dict(re.findall(r"(ansible-core|ansible-runner)==([\d.]+)", core))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in (ROOT / "docs" / "SUPPORT_MATRIX.md").read_text(encoding="utf-8").splitlines()]
    by_core = {row[0]: row for row in rows if len(row) == 6}
    assert GALAXY["community.docker"]["version"] == by_core[pins["ansible-core"].rpartition(".")[0]][3]
    tested = (ROOT / "requirements-test.txt").read_text(encoding="utf-8")
    assert f"ansible-runner=={pins['ansible-runner']}\n" in tested


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the older ansible-core runs here; make units-next compares")
def test_the_pins_are_what_the_tests_run_on() -> None:
    assert DEFINITION["dependencies"]["ansible_core"]["package_pip"] == f"ansible-core=={version('ansible-core')}"
    place = Path(next(iter(importlib.import_module("ansible_collections.community.docker").__path__)))
    manifest = json.loads((place / "MANIFEST.json").read_text(encoding="utf-8"))
    assert GALAXY["community.docker"]["version"] == manifest["collection_info"]["version"]


def test_every_dependency_of_the_collection_is_named_within_its_range() -> None:
    wanted = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["dependencies"]
    assert set(GALAXY) - set(wanted) == {"collections/gb10-cluster.tar.gz"}
    for name, spec_text in wanted.items():
        least = spec_text.removeprefix(">=")
        assert least != spec_text, f"{name}: {spec_text} is no lower bound, this test needs to learn it"
        assert [int(part) for part in GALAXY[name]["version"].split(".")] >= [int(part) for part in least.split(".")], name


def test_the_collection_lies_where_its_requirement_says(context: Path, recipe: list[str]) -> None:
    requirements = yaml.safe_load((context / "_build" / "requirements.yml").read_text(encoding="utf-8"))["collections"]
    (own,) = [entry for entry in requirements if entry.get("type") == "file"]
    # The galaxy stage copies _build to /build and works there.
    assert "COPY _build /build" in recipe and "WORKDIR /build" in recipe
    with tarfile.open(context / "_build" / own["name"]) as archive:
        manifest = json.load(archive.extractfile("MANIFEST.json"))
    assert manifest["collection_info"]["name"] == "cluster"
    assert manifest["collection_info"]["version"] == yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"]


def test_the_command_that_the_definition_shows_hands_the_context_to_an_engine(directory: Path, tmp_path: Path) -> None:
    """As it is typed, with an engine that only records its arguments."""
    (shown,) = re.findall(r"^#   (ansible-builder build .*)$", ee_context.DEFINITION.read_text(encoding="utf-8"), re.MULTILINE)
    place = tmp_path / "clone"
    shutil.copytree(directory, place)
    engine = tmp_path / "bin" / "podman"
    engine.parent.mkdir()
    engine.write_text('#!/bin/sh\necho "$@" >>"$(dirname "$0")/asked"\n', encoding="utf-8")
    engine.chmod(0o755)
    path = os.pathsep.join([str(engine.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(shlex.split(shown), cwd=place, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (build_line,) = [line for line in (engine.parent / "asked").read_text(encoding="utf-8").splitlines() if line.startswith("build ")]
    assert build_line.split() == ["build", "-f", "context/Containerfile", "-t", "gb10-ee", "context"]
    assert (place / "context" / "Containerfile").is_file()


def test_what_the_collection_asks_for_is_read_from_it(directory: Path, tmp_path: Path) -> None:
    """As ansible-builder does it within the build: from the installed collections' own meta/execution-environment.yml."""
    place = tmp_path / "ansible_collections" / "gb10" / "cluster"
    place.mkdir(parents=True)
    with tarfile.open(directory / ee_context.TARBALL) as archive:
        archive.extractall(place, filter="data")
    program = Path(sys.executable).parent / "ansible-builder"
    done = subprocess.run([program, "introspect", tmp_path], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    requirements = yaml.safe_load(done.stdout)
    assert [line.split("  #")[0] for line in requirements["system"]] == ["openssh-client [platform:dpkg]", "openssh-clients [platform:rpm]"], done.stdout
    # The controller needs nothing from PyPI beside ansible-core: whatever comes in here has to be a decision.
    assert not requirements.get("python"), done.stdout


def test_no_secret_and_nothing_of_this_machine_is_in_the_context(context: Path) -> None:
    names = {str(path.relative_to(context)) for path in context.rglob("*") if path.is_file()}
    assert {name for name in names if not name.startswith("_build/scripts/")} == {
        "Containerfile", "_build/collections/gb10-cluster.tar.gz", "_build/requirements.yml",
    }
