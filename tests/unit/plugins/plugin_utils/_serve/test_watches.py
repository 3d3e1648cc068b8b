# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ends a wait and what does not: every recorded healthy start with its own timing, and loads without log lines for minutes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_log
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve import watches
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve.log_lines import timed

LOGS = Path(__file__).resolve().parents[3] / "fixtures" / "field" / "logs"
#: Starts in which the engine downloaded its model, for up to 6880 s without a line.
DOWNLOADS = ("nemotron-3-super-120b-nvfp4-0.19-cold.log", "qwen3.6-35b-bf16-0.19.log")
#: The default of gb10_stall_seconds.
ALLOWED = 600
HEALTHY = [item["file"] for item in yaml.safe_load((LOGS / "healthy.yml").read_text())]


def process(pid=7, kind="rank", cpu_s=0.0, io_mb=0, state="alive", ticks=5):
    text = f"{kind} (pid {pid})"
    return {"pid": pid, "start_ticks": ticks, "text": text, "kind": kind, "state": state, "cpu_s": cpu_s, "cpu_percent": None, "io_mb": io_mb}


# --- ranks ------------------------------------------------------------------------------------------------------------------


def test_a_rank_that_ends_is_named():
    watch = watches.RankWatch("spark-2")
    there = [process(7), process(8, "engine_core"), process(9, "raylet")]
    assert [watch.trouble(there) for _poll in range(3)] == [None] * 3
    error = watch.trouble(there[1:])
    assert str(error) == "ended on spark-2 while the engine started: rank (pid 7)" and error.reason == "rank ended"
    assert watch.trouble([]).reason == "core ended"


@pytest.mark.parametrize(
    "polls",
    [
        # Another process with the same pid; a zombie that was not reaped.
        [[process(7)], [process(7)], [process(7, ticks=6)]],
        [[process(7)], [process(7)], [process(7, state="ended")]],
    ],
)
def test_what_has_taken_its_place_is_not_the_rank(polls):
    watch = watches.RankWatch("spark-2")
    assert [bool(watch.trouble(poll)) for poll in polls] == [False, False, True]


@pytest.mark.parametrize(
    "polls",
    [
        # A process that only exists for one poll; one that becomes idle after its work; services of Ray.
        [[process(7)], [], []],
        [[process(7)], [process(7)], [process(7, "ray_idle")]],
        [[process(7, "ray_worker")], [process(7, "ray_worker")], []],
    ],
)
def test_what_ends_and_is_no_rank(polls):
    watch = watches.RankWatch("spark-2")
    assert [watch.trouble(poll) for poll in polls] == [None] * 3


# --- progress ---------------------------------------------------------------------------------------------------------------


class Start:
    """A start that is polled every two seconds, with one watch per node."""

    def __init__(self, *nodes):
        self.now = 0.0
        self.watches = {node: watches.WorkWatch(0.0) for node in nodes}
        self.works = {}

    def poll(self, stage="loading weights", shards="", lines=(), **processes):
        self.now += 2.0
        for node, watch in self.watches.items():
            self.works[node] = watch.update(self.now, stage, shards, lines, processes.get(node, [])).to_dict()
        return watches.stall(self.works, stage, self.now, ALLOWED)

    def until_stalled(self, most, **poll):
        """Return the seconds until the start counts as stalled, or None after ``most``; ``poll`` makes the arguments of each poll."""
        while self.now < most:
            if self.poll(**{name: make(self.now) if callable(make) else make for name, make in poll.items()}):
                return self.now
        return None


def test_silence_alone_is_a_stall_at_the_limit():
    assert Start("one").until_stalled(4000) == pytest.approx(600, abs=4)
    assert Start("one").until_stalled(4000, stage="joining ranks") == pytest.approx(660, abs=4)


@pytest.mark.parametrize(
    ("what", "seconds"),
    [
        # Reading without a log line for an hour; computing without reading for half an hour; ranks that wait in a loop.
        ({"one": lambda now: [process(cpu_s=0.0, io_mb=int(now * 100))]}, None),
        ({"one": lambda now: [process(cpu_s=now)]}, 1800),
        ({"one": lambda now: [process(cpu_s=now)], "stage": "joining ranks"}, 660),
        ({"one": lambda now: [process(cpu_s=now * 0.01)]}, 600),
        # A counter of shards, and a moving progress bar.
        ({"shards": lambda now: f"{int(now // 500)}/9"}, None),
        ({"lines": lambda now: [f"line at {now}"] if now % 500 < 2 else []}, None),
        # An engine that repeats that it waits.
        ({"lines": ["INFO [shm_broadcast.py:705] No available shared memory broadcast block found in 60 seconds."]}, 600),
        # The process that reads does not belong to the engine.
        ({"one": lambda now: [process(kind="ray_agent", io_mb=int(now * 100), cpu_s=now)]}, 600),
    ],
)
def test_the_progress_that_counts(what, seconds):
    stalled_at = Start("one").until_stalled(3600, **what)
    assert stalled_at is None if seconds is None else stalled_at == pytest.approx(seconds, abs=6)


def test_one_node_that_works_is_enough_and_the_quietest_is_named():
    start = Start("spark-1", "spark-2")
    assert start.until_stalled(3000, **{"spark-2": lambda now: [process(io_mb=int(now * 100))]}) is None
    start = Start("spark-1", "spark-2")
    work = {"spark-1": lambda now: [process(io_mb=int(min(now, 300) * 100))], "spark-2": lambda now: [process(io_mb=int(min(now, 100) * 100))]}
    assert start.until_stalled(3000, **work) == pytest.approx(900, abs=6)
    assert "spark-2 was the first to fall silent" in str(watches.stall(start.works, "loading weights", start.now, ALLOWED))


def test_the_rank_that_rests_while_the_others_wait_in_a_loop_is_named():
    """spark-2 never enters a collective, although its last log line is later than that of spark-1."""
    start = Start("spark-1", "spark-2")
    loop = {"spark-1": lambda now: [process(cpu_s=now)], "spark-2": lambda now: [process(cpu_s=0.0, io_mb=int(min(now, 100)))]}
    assert start.until_stalled(3000, **loop) == pytest.approx(1900, abs=6)
    error = watches.stall(start.works, "loading weights", start.now, ALLOWED)
    assert "spark-2 was the first to fall silent, 30:0" in str(error) and error.details["node"] == "spark-2"


def test_what_the_ranks_do_is_said():
    watch = watches.WorkWatch(0.0)
    watch.update(2.0, "", "", [], [])
    assert watch.text == "no process of the engine yet"
    watch.update(4.0, "", "", [], [process(8, "api_server")])
    watch.update(6.0, "", "", [], [process(8, "api_server", cpu_s=1.0)])
    assert watch.text == "1 process(es) at 50 % of a core"
    watch.update(8.0, "", "", [], [process(8, "api_server", cpu_s=1.0), process(7)])
    watch.update(10.0, "", "", [], [process(8, "api_server", cpu_s=2.0), process(7, cpu_s=2.0, io_mb=1700)])
    assert watch.text == "1 rank(s) at 100 % of a core, 850 MiB/s read or written"


# --- no false alarm ---------------------------------------------------------------------------------------------------------


def replayed(name):
    """Return the lines of a recorded log with their seconds since the first line."""
    lines = list(timed(engine_log.plain_lines((LOGS / name).read_text()), "one", 1795228877.0))
    began = next(line.time for line in lines if line.time is not None)
    return [(max(0.0, (line.time or began) - began), line.text) for line in lines]


@pytest.mark.parametrize("name", HEALTHY)
def test_no_recorded_healthy_start_stalls_by_its_lines_alone(name):
    """Only the log is replayed, in real time. Reads and work of the ranks would only help, except in a download, which has no log lines."""
    lines = replayed(name)
    assert max(seconds for seconds, _text in lines) >= 30
    start, stage, at = Start("one"), engine_log.Stage("starting"), 0
    while at < len(lines) and stage.name != engine_log.API_IS_UP:
        new = []
        while at < len(lines) and lines[at][0] <= start.now:
            new.append(lines[at][1])
            at += 1
        stage = engine_log.stage_of(new) or stage
        wrote = [process(io_mb=int(start.now * 20))] if name.endswith(DOWNLOADS) and stage.name == "loading model" else []
        assert start.poll(stage.name, f"{stage.done}/{stage.total}", new, one=wrote) is None, (start.now, stage)


@pytest.mark.parametrize(
    ("low", "ends"), [([True, True], True), ([True, False, True], False), ([False, False], False)]
)
def test_memory_has_to_stay_low(low, ends):
    watch = watches.MemoryWatch("spark-1")
    troubles = [watch.trouble(1200 if is_low else 1300, 124609) for is_low in low]
    assert bool(troubles[-1]) is ends
