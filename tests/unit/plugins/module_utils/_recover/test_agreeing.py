# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the evidence of all nodes means: what is a fault, what only may be one, and when looks are about the same incident."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._engine import health
from ansible_collections.gb10.cluster.plugins.module_utils._recover import agreeing

HEAD, WORKER = "spark-1", "spark-2"
TOKEN = health.Probe(health.ANSWERS, True)
NO_TOKEN = health.Probe(health.ANSWERS, False, False, 20.0)


def process(state: str = "alive", kind: str = "rank") -> dict[str, t.Any]:
    return {"pid": 7, "text": f"VLLM::Worker (pid 7), {state}", "kind": kind, "state": state, "start_ticks": 1, "cpu_s": 1.0, "cpu_percent": None}


def node(probe: health.Probe | None = None, **more: t.Any) -> dict[str, t.Any]:
    """The evidence of a node whose part of the engine has run for an hour."""
    return {
        "boot_id": "b", "run": "r1", "container": "c1 2026", "last": "", "unit": agreeing.RUNNING, "why": "unit running", "seconds": 3600.0,
        "processes": [process()], "probe": list(probe) if probe else [], "kernel": [], **more,
    }  # fmt: skip


def pair(probe: health.Probe | None = NO_TOKEN, worker: t.Any = None, **head: t.Any) -> dict[str, t.Any]:
    return {HEAD: node(probe, **head), WORKER: node() if worker is None else worker}


def failed(**more: t.Any) -> dict[str, t.Any]:
    return node(**{"unit": "failed", "why": "unit failed: its rank ended", "processes": [], **more})


@pytest.mark.parametrize(
    ("nodes", "kind", "text"),
    [
        # A token proves health, also where another node is not seen, or its unit has failed.
        (pair(TOKEN), "well", "a token came"),
        (pair(TOKEN, "no answer"), "well", "a token came"),
        (pair(TOKEN, failed(processes=[process()])), "well", "a token came"),
        # Busy is not hung: tokens of other requests, a cache that grows, traffic of the ranks.
        (pair(NO_TOKEN._replace(grew=True)), "well", "tokens of other requests flow or a prompt is being read"),
        (pair(NO_TOKEN._replace(grew=True, still_s=9999.0)), "well", "tokens of other requests flow"),
        # A prefill of 1,300 s, and whatever is below the limit of a stall.
        (pair(NO_TOKEN._replace(still_s=1300.0)), "unknown", "no progress for 1300 s"),
        (pair(NO_TOKEN._replace(still_s=1799.9)), "unknown", "no progress for 1800 s"),
        (pair(NO_TOKEN._replace(still_s=1800.0)), "fault", "no progress for 1800 s"),
        (pair(NO_TOKEN._replace(still_s=1800.0, limit_s=1950.0)), "unknown", "no progress for 1800 s"),
        (pair(NO_TOKEN._replace(grew=None, still_s=9999.0)), "unknown", "do not show whether it works"),
        # Dead and halted, on either node.
        (pair(NO_TOKEN, node(processes=[process("stopped")])), "fault", "a signal or a debugger stopped a process"),
        (pair(NO_TOKEN, processes=[process("stopped")]), "fault", "a signal or a debugger stopped a process"),
        # A token that came now is newer than what another node saw.
        (pair(TOKEN, node(processes=[process("stopped")])), "well", "a token came"),
        (pair(TOKEN, node(processes=[])), "well", "a token came"),
        (pair(NO_TOKEN, node(processes=[])), "fault", "it has lost a rank; spark-2: no rank runs there"),
        (pair(NO_TOKEN._replace(api=health.SAYS_DEAD)), "fault", "reports that the engine is dead"),
        (pair(NO_TOKEN._replace(api=health.REFUSED)), "fault", "refuses connections"),
        (pair(NO_TOKEN._replace(withheld="another program listens")), "unknown", "it was not asked for a token"),
        # Shortly after a start a fault is only named.
        (pair(NO_TOKEN, node(processes=[]), seconds=1799.0), "young", "it has lost a rank; spark-2: no rank runs there; it counts 30 min after the start"),
        (pair(NO_TOKEN, node(processes=[]), seconds=1800.0), "fault", "it has lost a rank; spark-2: no rank runs there"),
        # What is not seen confirms nothing.
        (pair(NO_TOKEN, "no answer"), "unknown", "spark-2: no answer"),
        (pair(NO_TOKEN, "no answer", processes=[process("stopped")]), "unknown", "spark-2: no answer; halted: a signal"),
        ({HEAD: "no answer", WORKER: failed()}, "unknown", "spark-1: no answer"),
        ({HEAD: "Docker does not answer", WORKER: ""}, "unknown", "spark-1: Docker does not answer; spark-2: "),
        # Units.
        (pair(None, failed()), "fault", "failed: spark-2: unit failed: its rank ended"),
        (pair(None, failed(), unit="starting", why="unit starting: waits"), "fault", "failed: spark-2: unit failed: its rank ended"),
        ({HEAD: failed(), WORKER: node()}, "fault", "failed: spark-1: unit failed: its rank ended"),
        ({HEAD: failed(), WORKER: failed(why="also")}, "fault", "failed: spark-1: unit failed: its rank ended; spark-2: also"),
        ({HEAD: failed(), WORKER: node(unit="off", why="unit stopped: by a person")}, "off", "spark-2: unit stopped: by a person"),
        (pair(NO_TOKEN, node(unit="off", why="unit stopped", processes=[])), "off", "spark-2: unit stopped"),
        (pair(None, unit="starting", why="unit starting: waits for spark-2"), "starting", "spark-1: unit starting: waits for spark-2"),
        (pair(NO_TOKEN, node(unit="starting", why="unit starting", processes=[])), "starting", "spark-2: unit starting"),
        (pair(None, node(unit="ended", why="unit starting: its rank ended")), "fault", "ended: spark-2: unit starting: its rank ended"),
        (pair(None, node(unit="ended"), unit="starting", why="unit starting: loads"), "starting", "spark-1: unit starting: loads"),
        (pair(None, node(unit="ended"), unit="failed", why="unit failed"), "fault", "failed: spark-1: unit failed"),
        (pair(None, processes=[]), "unknown", "no engine lives, and its unit has not ended yet"),
        (pair(NO_TOKEN._replace(api=health.STARTING)), "starting", "its API is not up yet"),
        ({HEAD: node(TOKEN)}, "well", "a token came"),
        ({HEAD: failed()}, "fault", "failed: spark-1: unit failed: its rank ended"),
    ],
)  # fmt: skip
def test_what_evidence_means(nodes: dict[str, t.Any], kind: str, text: str) -> None:
    found, why = agreeing.judge(nodes, HEAD)
    assert found == kind and text in why


def test_shortened_times_shorten_the_grace() -> None:
    nodes = pair(NO_TOKEN, node(processes=[]), seconds=60.0)
    assert [agreeing.judge(nodes, HEAD, scale)[0] for scale in (1.0, 29.0, 30.0)] == ["young", "young", "fault"]


def test_an_incident_is_another_one_after_anything_new() -> None:
    first = agreeing.incident(pair())
    assert first == agreeing.incident(dict(reversed(pair().items()))) and len(first) == 16
    # What a process does is not part of it.
    assert agreeing.incident(pair(NO_TOKEN, node(processes=[process("stopped")], seconds=1.0, kernel=["xid: 79"]))) == first
    changed = [{"boot_id": "c"}, {"run": "r2"}, {"container": "c2 2026"}, {"last": "2026-11-24T02:00:00Z"}]
    others = {agreeing.incident(pair(NO_TOKEN, **change)) for change in changed} | {agreeing.incident(pair(NO_TOKEN, node(**change))) for change in changed}
    assert len(others) == 8 and first not in others
    assert agreeing.incident(pair(NO_TOKEN, "no answer")) not in {first, agreeing.incident(pair(NO_TOKEN, "late"))}


@pytest.mark.parametrize(
    ("kind", "now", "before", "count"),
    [
        ("fault", "i", {"incident": "i", "count": 2}, 3),
        ("fault", "i", {"incident": "i", "count": 0}, 1),
        ("fault", "j", {"incident": "i", "count": 2}, 1),
        ("fault", "i", {"incident": "", "count": 0}, 1),
        *((kind, "i", {"incident": "i", "count": 2}, 0) for kind in ("well", "young", "starting", "off", "unknown")),
    ],
)
def test_only_consecutive_looks_at_one_incident_count(kind: str, now: str, before: dict[str, t.Any], count: int) -> None:
    assert agreeing.counted(kind, now, before) == count


def test_a_fault_says_what_follows() -> None:
    assert agreeing.intent(1, {}) == "look 1 of 3; then all nodes go down and up again"
    assert agreeing.intent(2, {HEAD: "gb10_recover is observe"}).startswith("look 2 of 3; restart would take all nodes down and up again, but spark-1: gb10")
    assert agreeing.intent(3, {HEAD: "a", WORKER: "b"}) == "3 looks agree; restart would take all nodes down and up again, but spark-1: a; spark-2: b"
    assert agreeing.intent(4, {}).startswith("3 looks agree")
