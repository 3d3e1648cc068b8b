# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The time, node and rank of a log line, in the formats that programs use."""

from __future__ import annotations

import datetime

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._serve import log_lines

#: 2026-11-22, 12:00 UTC.
NOW = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.timezone.utc).timestamp()


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("(EngineCore pid=222) INFO 08-15 11:20:19 [shm_broadcast.py:705] x", "2026-08-15T11:20:19+00:00"),
        ("ERROR 12-31 23:59:59 [x.py:1] of last year", "2025-12-31T23:59:59+00:00"),
        ("ERROR 11-23 01:00:00 [x.py:1] a clock that is ahead", "2026-11-23T01:00:00+00:00"),
        ("[2026-04-06 23:02:12] spark-a:158:188 [0] NCCL WARN x", "2026-04-06T23:02:12+00:00"),
        ("2026-07-02 10:00:01,100 INFO worker.py:1832 -- x", "2026-07-02T10:00:01.100000+00:00"),
        ("2026-10-09T10:15:22.123456789Z docker logs -t", "2026-10-09T10:15:22.123457+00:00"),
        ("2026-10-09T10:15:22+0200 spark-a kernel: NVRM: x", "2026-10-09T08:15:22+00:00"),
        ("2026-10-09T10:15:22,000000+02:00 NVRM: x", "2026-10-09T08:15:22+00:00"),
        ("Jun 06 20:20:27 spark kernel: Out of memory", "2026-06-06T20:20:27+00:00"),
        ("[Fri Oct  9 10:15:22 2026] NVRM: x", "2026-10-09T10:15:22+00:00"),
        ("[rank0]:[W424 19:55:34.987081798 ProcessGroupNCCL.cpp:1575] x", "2026-04-24T19:55:34.987082+00:00"),
        ("(EngineCore pid=187) E0801 20:47:40.123000 187 torch/x.py:1] x", "2026-08-01T20:47:40.123000+00:00"),
        ("ERROR 02-30 10:00:00 [x.py:1] no such day", None),
        ("[    1.150104] mlx5_core 0000:01:00.0: since boot", None),
        ("ValueError: no time", None),
        ("", None),
    ],
)
def test_when_a_line_was_written(text, written):
    seconds = log_lines.moment(text, NOW)
    assert (seconds if seconds is None else datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat()) == written


def test_a_line_without_a_time_has_that_of_the_one_before_it_on_the_common_clock():
    texts = ["first", "ERROR 11-22 10:00:00 [x.py:1] x", "Traceback", "ERROR 11-22 10:00:05 [x.py:1] y"]
    made = list(log_lines.timed(texts, "spark-1", NOW, source="engine.log", ahead=60.0))
    assert [line.time and NOW - line.time for line in made] == [None, 7260.0, 7260.0, 7255.0]
    assert {(line.node, line.source) for line in made} == {("spark-1", "engine.log")}


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("[rank1]: Traceback (most recent call last):", 1),
        ("(EngineCore pid=676) (RayWorkerProc pid=918) (Worker_TP0 pid=918) ERROR x", 0),
        ("(Worker_TP1_EP1 pid=9) ERROR x", 1),
        ("(VllmWorker TP3 pid=9) ERROR x", 3),
        ("(Worker_PP1_TP0 pid=9) ERROR x", None),
        ("ERROR [ray_executor.py:1] RayWorkerProc rank=[1] died unexpectedly", 1),
        ("(VllmWorker rank=2 pid=9) ERROR x", 2),
        ("spark-1:412:903 [0] NCCL WARN the number of a device", None),
        ("(EngineCore pid=676) ERROR x", None),
    ],
)
def test_the_rank_that_a_line_names(text, rank):
    assert log_lines.rank_of(text) == rank


def test_the_address_that_ray_puts_before_a_line_of_another_node():
    assert log_lines.address_of("(RayWorkerProc pid=2158, ip=192.168.10.254) double free") == "192.168.10.254"
    assert log_lines.address_of("(RayWorkerProc pid=2158) double free") == ""


PASSED_ON = "2026-05-29 09:14:44,197 - INFO - "


@pytest.mark.parametrize(
    ("text", "quiet"),
    [
        # The logger of a benchmark wrapper puts its prefix before a container's line (the format was reported by an owner).
        (f"{PASSED_ON}[container] (EngineCore pid=120) ERROR 05-29 09:14:44 [core.py:946] RuntimeError: CUDA error: out of memory", False),
        ("2026-05-29 09:14:44,197 - supervisor - INFO - ERROR 05-29 09:14:44 [core.py:946] EngineCore failed to start.", False),
        (f"{PASSED_ON}(Worker_TP1 pid=7) (RayWorker pid=8) CRITICAL: the raylet died", False),
        (f"{PASSED_ON}[container] (EngineCore pid=120) INFO 05-29 09:14:44 [core.py:90] retrying after ERROR", True),
        (f"{PASSED_ON}autotuner said ERROR 3 times and went on", True),
        (f"{PASSED_ON}[Autotuner]: Skipping tactic", True),
        ("2026-05-29 09:14:44,197 - ERROR - the server is gone", False),
    ],
)
def test_the_level_of_a_line_that_was_passed_on_is_its_own(text, quiet):
    assert log_lines.is_quiet(text) is quiet
