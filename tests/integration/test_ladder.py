# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ladder climbs on the lab, meets a collapse of memory and returns to the last good rung. The next bring-up starts there.

The memory of a lab node is that of the machine underneath, so curves are played into a file that the guard reads as meminfo, as the guard's own tests do.
The engine, its starts, its ends and the prompts are real.
"""

from __future__ import annotations

import concurrent.futures
import json
import time
import typing as t
from pathlib import Path

import pytest

from .lab import HEAD, RUN, WORKER, Lab
from .test_guard import COLLAPSE, MEMINFO, NOTED, ROOTS, note_level, play_memory, records

LADDER = "/var/lib/gb10/gb10/ladder.json"
RUNGS = "512,2048"
COLLAPSES_AT = 2048


@pytest.fixture
def guarded(lab: Lab) -> t.Iterator[None]:
    """Nodes with a guard that reads played memory, and without a ladder record. Afterwards both are gone."""
    for host in (HEAD, WORKER):
        lab.run(host, "rm", "-f", LADDER)
        play_memory(lab, host, [60])
    set_up = lab.play("protect", tags="guard", gb10_node_roots={**ROOTS, "meminfo": MEMINFO})
    assert set_up.rc == 0, set_up.failures
    yield
    lab.down()
    gone = lab.play("protect", tags="guard", gb10_guard="absent", gb10_allow="forget")
    assert gone.rc == 0, gone.failures
    for host in (HEAD, WORKER):
        lab.run(host, "rm", "-f", LADDER, MEMINFO)


def tried(lab: Lab) -> int:
    """Return the rung that is being tried according to the head's record."""
    content = lab.run(HEAD, "cat", LADDER, check=False)
    return json.loads(content)["climbs"][-1]["trying"] if content else 0


def collapse(lab: Lab, over: concurrent.futures.Future[t.Any]) -> float:
    """Wait until ranks load at one rung, then let the head's memory collapse and recover. Return the time of the collapse.

    The lab's model has no plan, so the level that a plan would have noted before the start is added to the note.
    """
    while not over.done():
        last = records(lab, HEAD)[-1:] if tried(lab) == COLLAPSES_AT else []
        if last and last[0].get("p") == "loading":
            at = time.time()
            note_level(lab, HEAD, 15, str(lab.json(HEAD, NOTED)["uptime_s"]))
            play_memory(lab, HEAD, COLLAPSE)
            play_memory(lab, HEAD, [60])
            return at
        time.sleep(0.5)
    raise AssertionError(f"the play ended before a rank loaded at that rung: {over.result().failures}")


def context_served(lab: Lab) -> int:
    argv = lab.json(HEAD, RUN)["argv"]
    return int(argv[argv.index("--max-model-len") + 1])


def test_without_a_guard_nothing_begins(lab: Lab, no_cluster: None) -> None:
    lab.play("protect", tags="guard", gb10_guard="absent", gb10_allow="forget")
    ran = lab.play("bench", tags="ladder", gb10_allow="ladder")
    assert ran.rc != 0 and "no guard runs" in ran.said and "run protect --tags guard first" in ran.said
    assert lab.containers(HEAD) == {} and tried(lab) == 0


def test_the_ladder_climbs_meets_a_collapse_and_returns(lab: Lab, no_cluster: None, guarded: None, tmp_path: Path) -> None:
    for options in ({"check": True, "gb10_allow": "ladder"}, {}):
        shown = lab.play("bench", tags="ladder", gb10_ladder_rungs=RUNGS, **options)
        assert shown.rc == 0 and shown.changed == {}, shown.failures
        for text in ("512, 2048 tokens", "Starts: 3 at most", "Risk: a context that does not fit can hang a node", "a prompt of 1843 tokens"):
            assert text in shown.said, shown.said
        assert lab.containers(HEAD) == {} and lab.run(HEAD, "cat", LADDER, check=False) == "", "nothing is touched"

    to = tmp_path / "ladder.json"
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        climb = pool.submit(lab.play, "bench", tags="ladder", gb10_allow="ladder", gb10_ladder_rungs=RUNGS, gb10_to=str(to))
        collapse(lab, climb)
        ran = climb.result()
    assert ran.rc == 0, ran.failures
    report = ran.stat("gb10_ladder_report")
    assert (report["outcome"], report["rung"]) == ("returned", 512), report
    assert "the guard acted" in report["reason"] and report["reason"].startswith("2048: ")
    assert ran.stat("gb10_verdict") == "warn"
    for node in (HEAD, WORKER):
        rungs = report["nodes"][node]["rungs"]
        assert [(rung["context"], rung["good"]) for rung in rungs] == [(512, True), (2048, False)]
        assert 88 <= rungs[0]["prompt_tokens"] * 100 / 512 <= 90 and rungs[0]["sshd_ms"] is not None and rungs[0]["lowest_mb"] == 60 * 1024
    assert report["nodes"][HEAD]["rungs"][1]["lowest_mb"] < 4096
    written = json.loads(to.read_text(encoding="utf-8"))
    assert len(written["nodes"][HEAD]["rungs"][1]["curve"]) > 10
    assert lab.engine_lives() and context_served(lab) == 512

    # The live engine is what the next bring-up wants, and the play gives the reason.
    again = lab.play("nemotron_tp2")
    assert again.rc == 0 and again.changed == {}, again.said
    assert "the last good rung of the ladder" in again.said
    assert "ladder: lab_tiny_tp2 is good for 512" in str(lab.play("status").stat("gb10_status"))

    down = lab.play("teardown")
    assert down.rc == 0 and "The ladder record remains" in down.said, down.failures
    up = lab.play("nemotron_tp2")
    assert up.rc == 0 and context_served(lab) == 512, up.failures
    assert lab.play("nemotron_tp2").changed == {}

    # Another climb starts its plan from the previous one, and the settings override its result.
    planned = lab.play("bench", tags="ladder", gb10_allow="ladder", gb10_serve_arguments={"max_model_len": 2048})
    assert planned.rc != 0 and "Before: ladder: lab_tiny_tp2 is good for 512" in planned.said and "wins over every rung" in planned.said
    other = lab.play("nemotron_tp2", check=True, gb10_serve_arguments={"max_model_len": 2048})
    assert "the last good rung of the ladder" not in other.said
