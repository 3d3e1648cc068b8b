# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an engine compiled is kept for its next start, but only as long as its image exists.

The lab's engine image has no compiler, but a second image has one. There torch inductor compiles the model's graph to C++, as it compiles Triton kernels
on a GPU.
"""

from __future__ import annotations

import concurrent.futures
import typing as t
from pathlib import Path

import pytest

from .lab import HEAD, ROOT, WORKER, Lab

BOTH = (HEAD, WORKER)
CACHE = "/var/lib/gb10/gb10/cache"
IMAGE = "gb10-lab/engine-compiler:0.32.0"
BASE = "gb10-lab/engine:0.32.0"
#: Its last step is the same as in the role image, so that builds on both nodes, and the names of their compiled files, are the same.
RECIPE = """
FROM {name}
RUN apt-get update && apt-get install --yes --no-install-recommends g++ python3-dev && rm -rf /var/lib/apt/lists/*
ENV TORCHDYNAMO_DISABLE=0
LABEL io.gb10.base={id} io.gb10.recipe=compiler
"""
BUILD = 'printf "%s" "$1" | timeout 900 docker build --quiet --tag "$2" -'


def build(lab: Lab, host: str) -> None:
    """Build the second image on a node."""
    base = lab.run(host, "docker", "image", "inspect", "--format={{.Id}}", BASE).strip()
    lab.run(host, "sh", "-c", BUILD, "sh", RECIPE.format(name=BASE, id=base), IMAGE, timeout=960)


@pytest.fixture(scope="module")
def profile(lab: Lab) -> t.Iterator[dict[str, str]]:
    """The lab's profile without Ray on the second image, whose engine compiles its model."""
    lab.clear()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda host: build(lab, host), BOTH))
    text = (ROOT / "tests" / "lab" / "profiles" / "lab_tiny_native_tp2.yml").read_text(encoding="utf-8")
    path = Path(lab.scratch) / "lab_tiny_compiled_tp2.yml"
    for before, after in (("lab_tiny_native_tp2", "lab_tiny_compiled_tp2"), (BASE, IMAGE), ("enforce_eager: true", "enforce_eager: false")):
        assert before in text
        text = text.replace(before, after)
    path.write_text(text, encoding="utf-8")
    yield {"gb10_profile": str(path)}
    lab.down()
    for host in BOTH:
        lab.run(host, "docker", "rmi", "--force", IMAGE, check=False)
        # Libraries are not text, unlike all other files of the collection.
        lab.run(host, "rm", "-rf", CACHE)


def compiled(lab: Lab, host: str) -> dict[str, str]:
    """The libraries that an engine compiled on a node, with the time of each, by path."""
    listed = lab.run(host, "find", CACHE, "-name", "*.so", "-printf", "%p %T@\\n").splitlines()
    return dict(line.rsplit(" ", 1) for line in listed)


def test_the_second_start_compiles_nothing_new(lab: Lab, profile: dict[str, str]) -> None:
    for host in BOTH:
        lab.run(host, "rm", "-rf", CACHE)
    first = lab.play(**profile)
    assert first.rc == 0, first.failures
    made = {host: compiled(lab, host) for host in BOTH}
    assert all(made.values()), "the image compiles nothing; this test is about what is compiled"
    assert {path.split("/")[6].split("-")[0] for host in BOTH for path in made[host]} == {"0.32.0+cpu"}

    lab.down()
    second = lab.play(**profile)
    assert second.rc == 0, second.failures
    assert {host: compiled(lab, host) for host in BOTH} == made
    status = lab.play("status", **profile)
    shown = str(status.stat("gb10_status"))
    assert "compiled for its images:" in shown and f"in {CACHE}/0.32.0+cpu-" in shown


def test_what_was_compiled_goes_once_its_image_is_gone(lab: Lab, profile: dict[str, str]) -> None:
    lab.down()
    assert "compiled for an image that is gone" not in lab.play("prune").said
    for host in BOTH:
        lab.run(host, "docker", "rmi", "--force", IMAGE)
    listed = lab.play("prune")
    assert listed.rc == 0 and "compiled for an image that is gone" in listed.said and all(compiled(lab, host) for host in BOTH)
    removed = lab.play("prune", gb10_allow="remove")
    assert removed.rc == 0, removed.failures
    assert not any(compiled(lab, host) for host in BOTH)
