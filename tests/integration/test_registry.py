# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images are pulled from a real registry (Debian's): once, by digest. Each refusal has a clear message."""

from __future__ import annotations

import typing as t

import pytest

from .hub import Registry, registry
from .lab import HEAD, WORKER, Lab, Play
from .making import lab_profile

BARE_IMAGE, NODE_IMAGE = "gb10-lab/engine:0.32.0", "gb10-lab/engine-ray:0.32.0"
NAME = "users/small"
#: An image of one layer that does not compress. Arguments: its name, bytes.
MAKE = 'cd "$(mktemp -d)" && head -c "$2" /dev/urandom > data && printf "FROM scratch\\nCOPY data /\\n" > Dockerfile && docker build --quiet --tag "$1" .'
LAYER = 8_000_000


@pytest.fixture(scope="module")
def served(lab: Lab) -> t.Iterator[tuple[Registry, str]]:
    """A registry with a small image, and the image's digest."""
    with registry(lab) as made:
        name = f"{made.direct}/{NAME}:1"
        lab.run(HEAD, "sh", "-c", MAKE, "sh", name, str(LAYER))
        pushed = lab.run(HEAD, "docker", "push", "--quiet", name)
        assert pushed
        digest = lab.run(HEAD, "docker", "image", "inspect", "--format", "{{index .RepoDigests 0}}", name).strip().partition("@")[2]
        lab.run(HEAD, "docker", "rmi", name)
        yield made, digest


@pytest.fixture
def source(lab: Lab, no_cluster: None, served: tuple[Registry, str]) -> t.Iterator[tuple[Registry, str]]:
    """The registry and the digest, with the image on no node."""

    def clear() -> None:
        for host in (HEAD, WORKER):
            lab.run(host, "sh", "-c", f"docker images --quiet '{made.place}/{NAME}' | sort -u | xargs --no-run-if-empty docker rmi --force")

    made = served[0]
    made.gate.control(reset=True)
    clear()
    yield served
    clear()


def image(lab: Lab, base: str, **more: t.Any) -> Play:
    """Run the stage `image` with a profile for this base."""
    changes = ((f"base: {BARE_IMAGE}", f"base: {base}"), ("layers: [ray]", "layers: []"), (f"  tag: {NODE_IMAGE}\n", ""), ("executor: ray", "executor: native"))
    return lab.play(tags="image", gb10_profile=lab_profile(lab, "lab_from_registry", *changes), **more)


def has(lab: Lab, host: str, name: str) -> bool:
    return bool(lab.run(host, "docker", "images", "--quiet", name))


REFUSALS: dict[str, tuple[dict[str, t.Any], str]] = {
    # The gate's answer, and a text of the remedy.
    "unauthorized": ({"status": 401, "error": "authentication required"}, "docker login localhost:5000"),
    "no such image": ({"status": 404, "error": "manifest unknown"}, "Correct image.base"),
    "too many requests": ({"status": 429, "error": "toomanyrequests: You have reached your pull rate limit"}, "raises the limit"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_a_registry_refuses_is_said(lab: Lab, source: tuple[Registry, str], name: str) -> None:
    made, digest = source
    fault, remedy = REFUSALS[name]
    for base in (f"{made.place}/{NAME}:1", f"{made.place}/{NAME}@{digest}"):
        made.gate.control(reset=True, faults=[{"match": "/manifests/", **fault}])
        played = image(lab, base)
        assert played.rc != 0 and base in played.failures, played.failures
        assert remedy in played.said, (played.failures, played.said)
        assert not has(lab, HEAD, f"{made.place}/{NAME}") and not has(lab, WORKER, f"{made.place}/{NAME}")


def test_a_registry_that_is_not_there_is_named(lab: Lab, source: tuple[Registry, str]) -> None:
    base = f"localhost:5999/{NAME}:1"
    played = image(lab, base)
    assert played.rc != 0 and base in played.failures and "connection refused" in played.failures, played.failures


@pytest.mark.parametrize("percent", [10, 50, 90])
def test_a_pull_that_was_cut_goes_on(lab: Lab, source: tuple[Registry, str], percent: int) -> None:
    """Docker itself resumes a layer where it was cut."""
    made, digest = source
    base = f"{made.place}/{NAME}@{digest}"
    made.gate.control(faults=[{"match": "/blobs/", "cut": percent / 100, "times": 2}])
    played = image(lab, base)
    # The image is not an engine image, which the contract reports after the pull.
    assert played.rc != 0 and "cannot pull" not in played.failures, played.failures
    assert has(lab, HEAD, f"{made.place}/{NAME}")
    of = {client for client, path in made.gate.sent() if "/blobs/" in path}
    sent = sum(size for (_client, path), size in made.gate.sent().items() if "/blobs/" in path)
    assert len(of) == 1 and sent < 1.3 * LAYER, made.gate.sent()


def test_a_pull_that_never_ends_is_said_and_leaves_nothing(lab: Lab, source: tuple[Registry, str]) -> None:
    made, digest = source
    base = f"{made.place}/{NAME}@{digest}"
    made.gate.control(faults=[{"match": "/blobs/", "cut": 0.5}])
    played = image(lab, base)
    assert played.rc != 0 and "cannot pull the image" in played.failures, played.failures
    assert not has(lab, HEAD, f"{made.place}/{NAME}") and not has(lab, WORKER, f"{made.place}/{NAME}")
