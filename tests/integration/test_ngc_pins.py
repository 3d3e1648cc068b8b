# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The wanted Ray is incompatible with the base image's own packages. The newest compatible Ray is used and reported, and the engine gives a token."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from .lab import HEAD, ROOT, WORKER, Lab
from .making import BARE_IMAGE, build_settings, lab_profile

BASE, IMAGE = "gb10-lab/engine-ngc:0.32.0", "gb10-lab/engine-ngc-ray:0.32.0"
PLACE = "/tmp/gb10-ngc-pins"
WHY = "ray 2.60.0 depends on packaging>=24.2, and the image has packaging 23.2"


@pytest.fixture(scope="module", autouse=True)
def base(lab: Lab) -> t.Iterator[None]:
    """The lab's engine image with NGC's pin, on the head."""
    recipe = pathlib.Path(ROOT / "tests" / "lab" / "ngc_pins" / "Dockerfile").read_text(encoding="utf-8")
    lab.run(HEAD, "sh", "-c", 'mkdir "$1" && cp /etc/ssl/certs/ca-certificates.crt "$1/ca.crt"', "sh", PLACE)
    lab.write(HEAD, f"{PLACE}/Dockerfile", recipe)
    given = [f"--build-arg={name}={value}" for name, value in build_settings(BASE=BARE_IMAGE).items()]
    lab.run(HEAD, "docker", "build", "--quiet", *given, "--tag", BASE, PLACE, timeout=300)
    yield
    lab.down()
    lab.run(HEAD, "rm", "-r", PLACE)
    for host in (HEAD, WORKER):
        lab.run(host, "docker", "rmi", "--force", IMAGE, BASE, check=False)


def profile(lab: Lab, name: str = "lab_ngc_pins", requires: str = "") -> str:
    more = f'  vllm: ">=0.32.0,<0.33.0"\n{requires}'
    return lab_profile(lab, name, (f"base: {BARE_IMAGE}", f"base: {BASE}"), ("gb10-lab/engine-ray:0.32.0", IMAGE), ('  vllm: ">=0.32.0,<0.33.0"\n', more))


def test_what_the_profile_does_not_allow_is_refused_by_its_names(lab: Lab, no_cluster: None) -> None:
    played = lab.play(tags="image", gb10_profile=profile(lab, "lab_ngc_newer", '  ray: ">=2.55"\n'))
    assert played.rc != 0 and all(word in played.said for word in (WHY, "ray>=2.52,<2.60.0,>=2.55", "Choose another image.base")), played.failures
    assert lab.run(HEAD, "docker", "images", "--quiet", IMAGE) == ""


def test_the_newest_ray_that_fits_gives_a_token(lab: Lab, no_cluster: None) -> None:
    path = profile(lab)
    played = lab.play(gb10_profile=path)
    assert played.rc == 0, played.failures
    assert f"Ray 2.52.1 in place of 2.60.0: {WHY}" in played.said
    report = played.stat("gb10_report")
    assert report["ray"]["ray_version"] == "2.52.1"
    assert {image["ray_wanted"]["why"] for image in report["images"].values()} == {WHY}
    again = lab.play(gb10_profile=path)
    assert (again.rc, again.changed) == (0, {}), again.failures
    assert f"Ray 2.52.1 in place of 2.60.0: {WHY}" in again.said
