# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that finds, inside an image, which files pip would add."""

from __future__ import annotations

import hashlib
import inspect
import json
import pathlib
import subprocess
import types
import venv
import zipfile

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._image import lock_probe


def distributions(*pairs):
    return lambda: [types.SimpleNamespace(metadata={"Name": name}, version=version) for name, version in pairs]


def test_every_package_is_pinned_but_the_requested_one(monkeypatch):
    installed = distributions(("Foo.Bar", "1+cpu"), ("ray", "2.51.0"), (None, "0"), ("aiohttp", "3.14.1"))
    monkeypatch.setattr(lock_probe.importlib.metadata, "distributions", installed)
    assert lock_probe.constraints(["Ray==2.60.0"]) == "aiohttp==3.14.1\nfoo-bar==1+cpu\n"
    assert lock_probe.constraints(["ray[default]>=2"]) == "aiohttp==3.14.1\nfoo-bar==1+cpu\n"


def test_of_two_distributions_with_one_name_the_imported_one_is_pinned(monkeypatch, tmp_path):
    for place, version in (("first", "25.0"), ("behind", "24.0")):
        info = tmp_path / place / f"packaging-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: packaging\nVersion: {version}\n")
    monkeypatch.setattr(lock_probe.sys, "path", [str(tmp_path / "first"), str(tmp_path / "behind")])
    assert lock_probe.constraints(["ray==2.60.0"]) == "packaging==25.0\n"


def test_a_line_for_each_file():
    # The shape is that of pip 23.0.1 for `pip install --dry-run --report`.
    def entry(name, digest):
        return {"metadata": {"name": name, "version": "1.0"}, "download_info": {"url": "https://x", "archive_info": {"hash": f"sha256={digest}"}}}

    report = {"install": [entry("ray", "a1"), entry("MsgPack_x", "b2")]}
    assert lock_probe.locked(report) == ["msgpack-x==1.0 --hash=sha256:b2", "ray==1.0 --hash=sha256:a1"]


def wheel(folder: pathlib.Path, name: str, version: str, *requires: str) -> str:
    """Write a wheel without content and return its hash."""
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """An environment that has old-web 1.0, an index with newer ones, and a function that runs the probe there."""
    place = tmp_path_factory.mktemp("base")
    wheels = place / "wheels"
    wheels.mkdir()
    hashes = {
        name: wheel(wheels, *name.split("-"), *requires)
        for name, requires in {
            "web-1.0": (), "web-2.0": (), "pack-1.1": (), "pack-1.2": (),
            "spread-1.0": ("web", "pack<2"), "spread-2.0": ("web>=2",), "web_extra-1.0": (),
        }.items()
    }
    venv.create(place / "venv", with_pip=True)
    python = str(place / "venv/bin/python")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", "--find-links", str(wheels), "web==1.0"], check=True, timeout=120)

    def run(*requirements, then=(), **env):
        given = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_CONFIG_FILE": "/dev/null", **env}
        environment = {name: value for name, value in given.items() if value is not None}
        argv = [python, "-c", inspect.getsource(lock_probe), json.dumps([requirements, *then])]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=True)
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(lock_probe.MARK)]
        answers = json.loads(line[len(lock_probe.MARK):])
        return answers if then else answers[0]

    run.hashes, run.python, run.wheels = hashes, python, wheels
    return run


def test_additions_of_pip_are_locked_and_not_installed(base):
    answer = base("spread==1.0")
    assert answer == {"lock": [f"{name.replace('-', '==')} --hash=sha256:{base.hashes[name]}" for name in ("pack-1.2", "spread-1.0")], "error": ""}
    listed = subprocess.run([base.python, "-m", "pip", "freeze", "--all"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "spread" not in listed and "pack==" not in listed


def test_pip_accepts_only_the_lock_of_the_recipe(base, tmp_path):
    path = tmp_path / "layer.lock"
    options = ["--dry-run", "--no-index", "--find-links", str(base.wheels), "--no-deps", "--only-binary=:all:", "--require-hashes", "--requirement", str(path)]
    path.write_text("\n".join(base("spread==1.0")["lock"]) + "\n")
    subprocess.run([base.python, "-m", "pip", "install", "-q", *options], check=True, timeout=60)
    path.write_text(path.read_text().replace("sha256:", "sha256:0"))
    assert subprocess.run([base.python, "-m", "pip", "install", "-q", *options], capture_output=True, timeout=60, check=False).returncode != 0


def test_a_requirement_that_would_change_the_image_is_refused_in_pips_words(base):
    answer = base("spread==2.0")
    assert answer["lock"] is None and "ResolutionImpossible" in answer["error"] and "web==1.0" in answer["error"]


def test_a_package_that_is_there_in_another_version_is_replaced(base):
    assert base("web==2.0") == {"lock": [f"web==2.0 --hash=sha256:{base.hashes['web-2.0']}"], "error": ""}


def test_the_newest_version_that_fits_follows_a_conflict(base):
    refused, accepted, *more = base("spread==2.0", then=[["spread>=1.0,<2.0"], ["never"]])
    assert refused["lock"] is None and "spread 2.0 depends on web>=2" in refused["error"] and not more
    assert [line.partition(" ")[0] for line in accepted["lock"]] == ["pack==1.2", "spread==1.0"]
    assert len(base("spread==1.0", then=[["web==2.0"]])) == 1, "what fits is not asked again"


def test_a_bundle_may_hold_another_version(base):
    missing, accepted = base("spread==3.0", then=[["spread>=1.0,<2.0"]])
    assert "No matching distribution found for spread==3.0" in missing["error"] and len(accepted["lock"]) == 2
    (alone,) = base("spread==3.0", then=[["spread>=1.0,<2.0"]], PIP_NO_INDEX=None, PIP_INDEX_URL="file:///nowhere")
    assert alone["lock"] is None, "an index that does not answer is not asked again"
