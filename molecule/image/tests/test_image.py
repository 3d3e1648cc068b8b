# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The image that the role built, as the node's own engine shows it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

GROUPS = yaml.safe_load(Path(os.environ["GB10_INVENTORY"], "hosts.yml").read_text())["gb10_cluster"]["children"]
testinfra_hosts = [f"docker://gb10-lab-{node}" for group in GROUPS.values() for node in group["hosts"]]

IMAGE = "gb10-lab/engine-ray:0.32.0"
BASE = "gb10-lab/engine:0.32.0"


@pytest.fixture(name="inspect")
def fixture_inspect(host):
    """What the node's engine says of an image."""

    def call(reference):
        with host.sudo():
            return json.loads(host.check_output("docker image inspect %s", reference))[0]

    return call


def test_it_names_its_base_and_its_recipe(inspect):
    labels = inspect(IMAGE)["Config"]["Labels"]
    assert labels["io.gb10.base"] == inspect(BASE)["Id"]
    assert len(labels["io.gb10.recipe"]) == 64


def test_it_is_its_base_with_layers_on_top(inspect):
    base, image = (inspect(reference)["RootFS"]["Layers"] for reference in (BASE, IMAGE))
    assert image[: len(base)] == base
    assert len(image) > len(base)


def test_it_has_ray_and_what_the_base_has(host):
    def packages(reference):
        with host.sudo():
            return set(host.check_output("docker run --rm --network none %s python3 -m pip freeze", reference).splitlines())

    base, image = packages(BASE), packages(IMAGE)
    assert not base - image
    assert any(package.startswith("ray==") for package in image - base)


def test_what_it_adds_is_locked_by_hash(host, inspect):
    lock = json.loads(inspect(IMAGE)["Config"]["Labels"]["io.gb10.lock"])
    assert all(" --hash=sha256:" in line for line in lock)
    with host.sudo():
        base, image = (
            set(host.check_output("docker run --rm --network none %s python3 -m pip list --format freeze", reference).splitlines())
            for reference in (BASE, IMAGE)
        )
    assert {line.partition(" ")[0] for line in lock} == image - base


def test_nothing_of_the_build_is_left(host):
    with host.sudo():
        assert host.check_output("docker ps --all --quiet") == ""
        assert host.run("docker run --rm --network none %s test -e /tmp/gb10", IMAGE).rc == 1
