# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ranks without Ray start and end together: silent death, death during load, and changes between the executors."""

from __future__ import annotations

import json
import time
import typing as t

import pytest

from .fault import BOTH, Fault
from .lab import HEAD, ROOT, RUN, WORKER, Lab, Once, Play
from .making import HEAD_CONTAINER, WORKER_CONTAINER

pytestmark = pytest.mark.usefixtures("without_units")

NATIVE = {"gb10_profile": "lab_tiny_native_tp2"}
IN_LOAD = f"{WORKER}: joining ranks"

#: Ends the rank in a container with SIGKILL, as the kernel does when memory runs out.
KILL_RANK = r"""
import glob, os, signal
for path in glob.glob("/proc/[0-9]*/cmdline"):
    with open(path, "rb") as handle:
        if handle.read().startswith(b"VLLM::Worker"):
            os.kill(int(path.split("/")[2]), signal.SIGKILL)
"""


def runs(lab: Lab) -> dict[str, str]:
    """The run id of each node's rank."""
    return {host: lab.json(host, RUN)["run_id"] for host in (HEAD, WORKER)}


def containers(lab: Lab) -> dict[str, str]:
    return {**lab.containers(HEAD), **lab.containers(WORKER)}


def rank_lives(lab: Lab, host: str, role: str) -> bool:
    argv = ("docker", "exec", f"gb10-gb10-{role}", "python3", "/opt/gb10/launch/launcher.py", "status", "--spec", "/opt/gb10/launch/engine.json")
    return json.loads(lab.run(host, *argv))["live"]


def kill_rank(lab: Lab) -> None:
    """Kill the worker's rank, and wait until its main process has followed: the head is not notified."""
    lab.run(WORKER, "docker", "exec", "gb10-gb10-worker", "python3", "-c", KILL_RANK)
    lab.run(WORKER, "timeout", "60", "sh", "-c", "while docker top gb10-gb10-worker -eo pid,args | grep -q 'vllm serve'; do :; done")


@pytest.fixture(scope="module")
def native(lab: Lab) -> t.Iterator[Play]:
    """A run that brings the cluster up without Ray and replaces whatever ran before."""
    played = lab.play(**NATIVE, gb10_allow="restart")
    assert played.rc == 0, played.failures
    yield played
    lab.down()


def test_the_report_says_what_spreads_the_ranks(native: Play) -> None:
    report = native.stat("gb10_report")
    assert (report["executor"], report["executor_reason"]) == ("native", "the profile says so")
    assert list(report["stages"]) == ["preflight", "image", "model", "memory", "native", "serve", "proof"]
    assert all(node["rank"]["live"] for node in report["nodes"].values())
    assert {proof["verdict"] for proof in report["proofs"]} == {"pass"}


def test_auto_asks_the_image_and_each_stage_does_so_alone(lab: Lab, native: Play) -> None:
    text = (ROOT / "tests" / "lab" / "profiles" / "lab_tiny_native_tp2.yml").read_text(encoding="utf-8")
    path = lab.scratch / "lab_tiny_auto_tp2.yml"
    path.write_text(text.replace("id: lab_tiny_native_tp2", "id: lab_tiny_auto_tp2").replace("executor: native", "executor: auto"), encoding="utf-8")
    played = lab.play(gb10_profile=str(path))
    assert (played.rc, played.changed) == (0, {}), played.stdout
    report = played.stat("gb10_report")
    assert report["executor"] == "native"
    assert "holds no Ray, and vLLM 0.32.0" in report["executor_reason"]
    for stage in ("native", "serve", "proof"):
        alone = lab.play(tags=stage, gb10_profile=str(path))
        assert (alone.rc, alone.changed) == (0, {}), alone.stdout


def test_a_rank_that_died_while_idle_is_shown_and_replaced_unasked_with_its_peers(lab: Lab, native: Play, fault: Fault) -> None:
    fault.row.fault = "native: the worker's rank dies while idle"
    before, kept = runs(lab), containers(lab)
    kill_rank(lab)
    killed = time.time()
    assert rank_lives(lab, HEAD, "head"), "the head noticed; this test is about the head that does not"

    status = lab.play("status", **NATIVE)
    assert f"the engine is dead: no rank lives on {WORKER}" in status.said
    # Only status shows it.
    fault.row.seconds = f"{status.ended - killed:.1f}"
    fault.row.where, fault.row.left = WORKER, "the head's rank alone"
    fault.nothing_left_behind()

    predicted = lab.play(check=True, **NATIVE)
    assert predicted.rc == 0, predicted.failures
    assert predicted.changed == {HEAD: 1, WORKER: 1}
    assert runs(lab) == before

    played = fault.completes(**NATIVE)
    assert played.changed == {HEAD: 1, WORKER: 1}
    assert rank_lives(lab, WORKER, "worker")
    after = runs(lab)
    assert all(after[host] != before[host] for host in before)
    assert containers(lab) == kept
    again = lab.play(**NATIVE)
    assert (again.rc, again.changed) == (0, {}), again.stdout


def test_another_argument_needs_consent(lab: Lab, native: Play) -> None:
    before = runs(lab)
    blocked = lab.play(**NATIVE, gb10_serve_arguments={"max_num_seqs": 4})
    assert blocked.rc != 0
    assert "max-num-seqs" in blocked.failures
    assert "gb10_allow=restart" in blocked.stdout
    assert runs(lab) == before


@pytest.mark.parametrize(("host", "container"), [(HEAD, HEAD_CONTAINER), (WORKER, WORKER_CONTAINER)], ids=["head", "worker"])
def test_a_container_killed_in_load_ends_all_with_its_message(lab: Lab, native: Play, fault: Fault, host: str, container: str) -> None:
    fault.row.fault = f"native: {container.rsplit('-', 1)[-1]}'s container killed during load"
    lab.down()
    killed = Once(IN_LOAD, lambda: lab.run(host, "docker", "kill", container))
    failed = lab.play(**NATIVE, on_output=killed)
    killed.join()
    fault.now(killed.at)
    fault.answered(failed, f"container {container} of node {host} ended with exit code 137", where=host)
    assert "--tags native" in failed.stdout
    fault.gathered(failed, HEAD, WORKER)
    fault.left(stopped=BOTH)
    fault.completes(**NATIVE)
    assert rank_lives(lab, WORKER, "worker")


def test_ctrl_c_in_load_leaves_what_the_next_run_takes_up(lab: Lab, native: Play, fault: Fault) -> None:
    fault.row.fault = "native: Ctrl-C during load"
    lab.down()
    fault.interrupted(lab.interrupt(IN_LOAD, **NATIVE))
    fault.left_running()
    before = containers(lab)
    fault.completes(**NATIVE)
    assert containers(lab) == before
    assert rank_lives(lab, WORKER, "worker")


def test_ray_and_native_replace_each_other_with_consent_alone(lab: Lab, native: Play) -> None:
    before = containers(lab)
    blocked = lab.play()
    assert blocked.rc != 0
    assert 'executor "native" -> "ray"' in blocked.failures
    assert containers(lab) == before

    ray = lab.play(gb10_allow="restart")
    assert ray.rc == 0, ray.failures
    assert ray.stat("gb10_report")["executor"] == "ray"
    assert all(containers(lab)[name] != before[name] for name in before)

    back = lab.play(**NATIVE, gb10_allow="restart")
    assert back.rc == 0, back.failures
    assert back.stat("gb10_report")["executor"] == "native"
