# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A test container proves whether containers reach the GPU. If not, the failure is reported with its remedy."""

from __future__ import annotations

import typing as t

import pytest

from .lab import HEAD, INVENTORY, WORKER, Lab

IMAGE = "gb10-lab/engine-ray:0.32.0"
NOTES = "/var/lib/gb10/image-contracts"
HOOK_LOG = "/var/lib/gb10-lab/hook.log"
#: The CUDA version that a process finds and the one that its image was made for, as the lab's ranks read them.
ASK = "from gb10_lab_platform.cuda import image_cuda, known_cuda; print(known_cuda(), image_cuda())"

by_hook = pytest.mark.skipif(INVENTORY.name == "lab_next", reason="the simulated hook decides what a container gets, and this lab's engine takes CDI")


def forget(lab: Lab, host: str) -> None:
    """Remove the notes about the GPU, as a reboot or a driver update does."""
    lab.run(host, "sh", "-c", f"rm -f {NOTES}/*.gpu.json")


def given(lab: Lab, host: str) -> int:
    """Count how often a container got the GPU."""
    return len(lab.run(host, "cat", HOOK_LOG).splitlines())


@pytest.fixture(scope="module", autouse=True)
def image(lab: Lab) -> t.Iterator[None]:
    """The image exists, and afterwards the notes about the GPU exist again."""
    assert lab.play(tags="image").rc == 0
    yield
    played = lab.play(tags="image")
    assert (played.rc, played.changed) == (0, {}), played.failures


@by_hook
def test_the_gpu_is_proven_once_and_by_no_check(lab: Lab) -> None:
    for host in (HEAD, WORKER):
        forget(lab, host)
    before = given(lab, WORKER)
    assert lab.play(tags="image", check=True).rc == 0 and given(lab, WORKER) == before
    for _time in range(2):
        played = lab.play(tags="image")
        assert (played.rc, played.changed) == (0, {}), played.failures
        assert given(lab, WORKER) == before + 1
    assert lab.run(WORKER, "docker", "ps", "--all", "--quiet", "--filter", "label=io.gb10.role=probe") == ""


@by_hook
@pytest.mark.parametrize(
    ("state", "words", "remedy"),
    [
        ("lost", "Failed to initialize NVML: Unknown Error", "docker.gpu_kept"),
        ("withheld", "libnvidia-ml.so.1: cannot open shared object file", "sudo nvidia-ctk cdi generate"),
    ],
)
def test_a_container_that_does_not_reach_it_stops_the_stage(lab: Lab, state: str, words: str, remedy: str) -> None:
    forget(lab, WORKER)
    with lab.driver([WORKER], **{state: True}):
        played = lab.play(tags="image")
    assert played.rc != 0 and played.changed == {}
    assert all(word in played.said for word in ("image.gpu", WORKER, words, "current platform None does not support ray", remedy)), played.failures
    assert lab.run(WORKER, "docker", "ps", "--all", "--quiet", "--filter", "label=io.gb10.role=probe") == ""
    assert lab.play(tags="image").rc == 0, "what was not reached is asked for again"


def test_what_the_image_s_own_entrypoint_switches_on(lab: Lab) -> None:
    """Without the entrypoint, processes get the driver's libcuda, which is older than the version that the image compiles with."""
    run = ("docker", "run", "--rm", "--network=none", "--gpus=all")
    assert lab.run(HEAD, *run, IMAGE, "python3", "-c", ASK).splitlines()[-1] == "(13, 2) (13, 2)"
    assert lab.run(HEAD, *run, "--entrypoint=python3", IMAGE, "-c", ASK).splitlines()[-1] == "(13, 0) (13, 2)"
    image_id = lab.run(HEAD, "docker", "image", "inspect", "--format", "{{.Id}}", IMAGE).strip().removeprefix("sha256:")
    answer = lab.json(HEAD, f"{NOTES}/{image_id}.gpu.json")["answer"]
    assert (answer["cuda"], answer["image_cuda"], answer["driver"], answer["gpus"]) == ("13.2", "13.2", "580.159.03", 1)
    assert answer["libcuda"] == ["/usr/local/cuda/compat/lib.real/libcuda.so.595.45.04"]
