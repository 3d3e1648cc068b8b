# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which failure was the first, with clocks that differ by minutes."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve import events
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.events import Clock
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.failures import Diagnosis
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.log_lines import timed

#: 2026-11-21T02:41:17Z by the controller's clock.
NOW = 1795228877.0


def log(node, ahead, *lines):
    """Return the findings of a node whose clock is ``ahead`` seconds ahead of the controller's, as measured by one poll."""
    clock = Clock()
    clock.measure(NOW - 0.4, NOW + ahead - 0.1, NOW + 0.2)
    diagnosis = Diagnosis()
    diagnosis.feed(timed(lines, node, NOW + ahead, ahead=clock.ahead))
    return diagnosis.findings(node)


def test_the_shortest_poll_measures_the_clock():
    clock = Clock()
    clock.measure(100.0, 230.0, 110.0)
    assert clock.ahead == 125.0
    clock.measure(200.0, 321.0, 201.0)
    assert clock.ahead == 120.5
    clock.measure(300.0, 500.0, 320.0)
    assert clock.ahead == 120.5


@pytest.mark.parametrize("minutes", [0, 7, -7, 300])
def test_the_first_failure_is_the_first_by_one_clock(minutes):
    """The worker ran out of memory four seconds before the head's rank lost its connection, whatever its own clock shows."""
    ahead = 60.0 * minutes
    hour, minute = divmod(2 * 60 + 41 + minutes, 60)
    worker = log("spark-2", ahead, f"ERROR 11-21 {hour:02}:{minute:02}:10 [x.py:1] torch.OutOfMemoryError: CUDA out of memory.")
    head = log("spark-1", 0.0, "ERROR 11-21 02:41:14 [x.py:1] torch.distributed.DistBackendError: NCCL error in: x", "CUDA_ERROR_ILLEGAL_ADDRESS")
    failure = events.first([*head, *worker])
    assert (failure["node"], failure["id"]) == ("spark-2", "memory-out") and abs(failure["time"] - (NOW - 7)) < 1
    assert events.text(failure).startswith("First to fail: spark-2 at 02:41:")


def test_a_known_cause_stands_before_an_earlier_echo():
    echo = log("spark-1", 0.0, "ERROR 11-21 02:41:10 [x.py:1] EngineCore failed to start.")
    cause = log("spark-2", 0.0, "ERROR 11-21 02:41:12 [x.py:1] torch.OutOfMemoryError: CUDA out of memory.")
    assert events.first([*echo, *cause])["node"] == "spark-2"


def ended(node, at):
    return events.of_error(node, ClusterError(f"ended on {node}", reason="rank ended", remedy="look"), at)


#: Log of Ray 2.60 after the node of a rank was lost, recorded in the lab.
DIED = [
    "(EngineCore pid=536) ERROR 11-21 02:41:17 [core.py:1510] ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    "(EngineCore pid=536) ERROR 11-21 02:41:17 [core.py:1510] \tclass_name: RayWorkerProc",
    "(EngineCore pid=536) ERROR 11-21 02:41:17 [core.py:1510] \tip: 10.77.1.12",
]
ADDRESSES = {"10.77.1.11": "spark-1", "10.77.1.12": "spark-2"}


def dead_addresses(*lines):
    """Return the addresses of the dead in these lines, when each line comes with its own poll."""
    deaths = events.Deaths()
    for line in lines:
        deaths.feed([line])
    return deaths.told


def test_of_ranks_that_ended_within_a_poll_ray_names_the_first():
    findings = [ended("spark-1", NOW), ended("spark-2", NOW + 1.5)]
    assert events.first(findings)["node"] == "spark-1"
    assert events.first(findings, dead_addresses(*DIED), ADDRESSES)["node"] == "spark-2"
    # An unknown address names no node, nor does an address before the death.
    assert events.first(findings, dead_addresses(DIED[2], *DIED[:2]), ADDRESSES)["node"] == "spark-1"
    assert events.first(findings, dead_addresses(*DIED), {"10.77.1.11": "spark-1"})["node"] == "spark-1"


def test_who_died_is_remembered_however_much_the_log_says_after_it():
    """Recorded in the lab: after Ray lost the other node, the head's core ends with over a hundred lines of tracebacks below the address."""
    deaths = events.Deaths()
    deaths.feed([*DIED, *["(EngineCore pid=302) ERROR 11-23 02:18:33 [ray_executor_v2.py:574] Failed to kill actor rank=0"] * 500])
    assert deaths.told == ["10.77.1.12"]


def test_a_node_that_ray_lost_is_the_first_to_fail():
    """Recorded in the lab, with the packets of the worker's fabric dropped: processes only end on the head."""
    lines = [*DIED, "(EngineCore pid=302) ERROR 11-21 02:41:17 [core.py:1510] health check failed due to missing too many heartbeats"]
    failure = events.first([*log("spark-1", 0.0, *lines), ended("spark-1", NOW)], dead_addresses(*lines), ADDRESSES)
    assert (failure["node"], failure["id"]) == ("spark-2", "ray-node-dead") and "did not answer Ray in time" in failure["cause"]


def core(node, at):
    return events.of_error(node, ClusterError(f"core ended on {node}", reason="core ended"), at)


#: Log line of vLLM's own monitor of its ranks (v1/executor/ray_executor_v2.py of 0.32.0).
RANK_DIED = "(EngineCore pid=5) ERROR 11-21 02:41:17 [ray_executor_v2.py:522] RayWorkerProc rank=[1] died unexpectedly, shutting down executor."


def test_the_engine_names_a_rank_by_its_number():
    findings = [core("spark-1", NOW), ended("spark-1", NOW), ended("spark-2", NOW + 1.5)]
    assert events.first(findings, dead_addresses(RANK_DIED), {}, {0: "spark-1", 1: "spark-2"})["node"] == "spark-2"
    # With more nodes, only the rank of the head is known. The core, which ended with its ranks, is then the best answer.
    assert events.first(findings, dead_addresses(RANK_DIED), {}, {0: "spark-1"})["id"] == "core ended"


def test_what_explains_the_end_of_all_ranks_stands_before_them():
    ranks = [ended("spark-2", NOW), core("spark-1", NOW + 1)]
    assert events.first(ranks)["id"] == "core ended"
    killed = events.of_error("spark-1", ClusterError("the engine on spark-1 was ended by SIGKILL"), NOW + 2)
    assert events.first([*ranks, killed]) == killed
    stop = events.of_error("spark-1", ClusterError("stopped by user bob", reason="stopped"), NOW + 3)
    assert events.first([*ranks, killed, stop]) == stop


def test_an_echo_is_about_the_node_that_ray_names():
    """Recorded in the lab: a rank was killed right after its start and before the first poll, and the head's core failed because of it."""
    failed = "(EngineCore pid=281) ERROR 11-21 02:41:17 [core.py:1510] EngineCore failed to start."
    failure = events.first(log("spark-1", 0.0, failed, *DIED), dead_addresses(*DIED), ADDRESSES)
    assert (failure["node"], failure["id"], failure["certainty"]) == ("spark-2", "rank-died", "known")
    echo = log("spark-1", 0.0, *DIED)
    assert events.first(echo, dead_addresses(*DIED), ADDRESSES)["node"] == "spark-2"


def test_the_unknown_is_shown_with_its_lines():
    line = "ERROR 11-21 02:41:12 [x.py:1] FlurbError: the flurb is gone"
    failure = events.first(log("spark-2", 0.0, line))
    assert (failure["certainty"], failure["lines"]) == ("unknown", [line])
    assert "no signature knows this error" in events.text(failure) and "the flurb is gone" in events.text(failure)
    assert events.first([]) is None


@pytest.mark.parametrize(
    ("error", "certainty"),
    [
        (ClusterError("gone", reason="fabric"), "known"),
        (ClusterError("slow", reason="stalled", suspected=True), "suspected"),
        (UnknownState("silent", reason="connection"), "suspected"),
    ],
)
def test_a_wait_that_ended_is_no_proof(error, certainty):
    assert events.of_error("spark-1", error, NOW)["certainty"] == certainty
