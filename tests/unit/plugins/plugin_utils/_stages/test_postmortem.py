# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which node went first follows from the nodes' records alone, and the report names what is unknown."""

from __future__ import annotations

import datetime
import typing as t

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._guard import guard_files
from ansible_collections.gb10.cluster.plugins.plugin_utils._report import black_box, units
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import postmortem, postmortem_when
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Run

NOW = 1795444512.0
GIB = 1024 * 1024
SYNCED = {"synchronized": True, "offset_s": 0.001}


def sample(at: float, gib: float = 20.0, **more: t.Any) -> dict[str, t.Any]:
    gpu = {"sm": 2300, "w": 60.0, "c": 70, "u": 95, "why": 1}
    plain = {"t": at, "a": int(gib * GIB), "f": GIB, "c": GIB, "s": 0, "pm": [0.0, 0.0], "pi": [0.0, 0.0], "g": gpu, "l": {"eth1": [True, 2, 5]}, "r": []}
    return {**plain, "p": "none", **more}


def boot(last: float, *, current: bool = False, stopped: bool = False, records: t.Sequence[dict[str, t.Any]] = ()) -> dict[str, t.Any]:
    return {"boot_id": f"b{int(last)}", "first": last - 100, "last": last, "stopped": stopped, "current": current, "records": list(records), "torn": 0}


def answer(*boots: dict[str, t.Any], clock: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
    return {"boots": list(boots), "now": NOW, "clock": clock or SYNCED, "boot_id": "x"}


def went(**nodes: dict[str, t.Any] | None) -> postmortem.First:
    return postmortem.first([postmortem.ends(node, recorded) for node, recorded in nodes.items()])


RUNS = answer(boot(NOW - 1, current=True))


def test_a_node_that_rebooted_next_to_a_running_one_is_sure() -> None:
    first = went(a=RUNS, b=answer(boot(NOW - 100), boot(NOW - 1, current=True)))
    assert (first.node, first.at, first.sure) == ("b", NOW - 100, True)


def test_of_two_that_died_the_earlier_is_named_and_sure_beyond_what_clocks_may_be_wrong() -> None:
    def two(seconds: float, clock: dict[str, t.Any] | None = None) -> postmortem.First:
        return went(a=answer(boot(NOW - 100, stopped=False), clock=clock), b=answer(boot(NOW - 100 + seconds), clock=clock))

    assert two(20).node == "a" and two(20).sure
    assert two(-20).node == "b" and two(-20).sure
    assert two(2).node == "a" and not two(2).sure
    assert not two(20, {"synchronized": False, "offset_s": 0.0}).sure and not two(20, {"synchronized": None, "offset_s": None}).sure


def test_a_death_of_the_day_before_is_another_one() -> None:
    first = went(a=answer(boot(NOW - 50000), boot(NOW - 1, current=True)), b=answer(boot(NOW - 100), boot(NOW - 1, current=True)))
    assert first.node == "b" and first.sure


@pytest.mark.parametrize("gone", [{"unreachable": True}, {"failed": True}, None])
def test_a_node_that_does_not_answer_is_never_sure(gone: dict[str, t.Any] | None) -> None:
    assert went(a=RUNS, b=gone)[:3] == ("b", None, False)
    assert went(a=gone, b=gone)[0] == ""
    first = went(a=answer(boot(NOW - 100), boot(NOW - 1, current=True)), b=gone)
    assert first.node == "a" and not first.sure


def test_an_orderly_reboot_and_an_ended_guard_are_not_deaths() -> None:
    first = went(a=answer(boot(NOW - 100, stopped=True), boot(NOW - 1, current=True)), b=answer(boot(NOW - 500, current=True)))
    assert first.node == "" and "without order" in first.why
    assert postmortem.ends("b", answer(boot(NOW - 500, current=True))).how == postmortem.QUIET
    assert not went(a=answer(), b=answer(boot(NOW - 100), boot(NOW - 1, current=True))).sure


def test_a_slow_leak_a_throttle_and_a_flap_are_seen() -> None:
    leak = [sample(NOW + second, 10 - second / 60 * 2) for second in range(60)]
    assert any(sign.startswith("memory went down slowly, 2.0 GiB a minute") for sign in black_box.signs(leak))
    hot = {"sm": 1200, "w": 60.0, "c": 86, "u": 96, "why": 0x20}
    throttle = [sample(NOW + second, g=hot if second > 40 else sample(0)["g"]) for second in range(60)]
    assert "the driver held the GPU's clock down for 19 s: software thermal, down to 1200 MHz, at up to 86 °C" in black_box.signs(throttle)
    flap = [sample(NOW + second, l={"eth1": [second not in (30, 31), 2, 5]}) for second in range(60)]
    assert "link eth1 went down: 1 time(s), for 2 s of the window" in black_box.signs(flap)
    short = [sample(NOW + second, l={"eth1": [True, 2 if second < 30 else 4, 5]}) for second in range(60)]
    assert "link eth1 went down: 2 change(s) of its carrier between samples" in black_box.signs(short)
    stuck = [sample(NOW + second, g={"sm": 799, "w": 19.5, "c": 50, "u": 96, "why": 0}) for second in range(10)]
    assert any("stuck at low power" in sign for sign in black_box.signs(stuck))
    assert black_box.signs([sample(NOW + second) for second in range(60)]) == []


def test_a_collapse_a_stall_and_what_the_kernel_said_are_seen() -> None:
    fall = [sample(NOW + second, max(1.0, 29 - 2.5 * second)) for second in range(12)]
    assert any(sign.startswith("memory collapsed") for sign in black_box.signs(fall))
    gap = [sample(NOW), sample(NOW + 1), sample(NOW + 20), sample(NOW + 21)]
    assert any(sign.startswith("no sample for 19 s") for sign in black_box.signs(gap))
    xid = [sample(NOW, k=[["xid", "NVRM: Xid (PCI:000f:01:00): 43"]]), sample(NOW + 1, k=[["xid", "NVRM: Xid (PCI:000f:01:00): 43"]])]
    assert [sign for sign in black_box.signs(xid) if "Xid" in sign][0].endswith("xid: NVRM: Xid (PCI:000f:01:00): 43 (2 times)")


def test_what_is_not_known_is_a_dash() -> None:
    records = [sample(NOW - 2), sample(NOW - 1, g=None, l=None, r=None, pm=None), sample(NOW, g={"sm": None, "w": 4.0, "c": 36, "u": 0})]
    table = black_box.rows(records, NOW)
    assert len(table) == 4 and table[2].split()[-6:] == ["-"] * 6


def test_the_outcome_says_it_all() -> None:
    records = [sample(NOW - 100 - 60 + second) for second in range(61)]
    dead = answer(boot(NOW - 100, records=records), boot(NOW - 1, current=True))
    run = Run(settings={"at": 0}, silenced=[], path="/x/why.json", tags=[], skip_tags=[], now=datetime.datetime.now(datetime.timezone.utc), check_mode=False)
    answers = {"a": {"found": RUNS, "window": RUNS}, "b": {"found": dead, "window": dead}}
    assert postmortem_when.judge(answers, run).returns == {"until": NOW - 100 + postmortem.AFTER}
    outcome = postmortem.judge(answers, run)
    assert outcome.lines[0].startswith("b went first, at 2026-11-23 14:33:32 UTC; sure")
    assert outcome.stats["gb10_postmortem"]["first"] == "b" and outcome.stats["gb10_verdict"] == "warn"
    assert sorted(outcome.files) == ["/x/why.json"] and sum(line.startswith("  ") for line in outcome.lines) == 62
    quiet = postmortem.judge({"a": {"found": RUNS, "window": RUNS}}, run)
    assert quiet.stats["gb10_verdict"] == "pass" and quiet.lines[0].startswith("No node is known to have died")
    lost = postmortem.judge({"a": {"found": {"unreachable": True}, "window": {"unreachable": True}}}, run)
    assert lost.stats["gb10_verdict"] == "unknown" and lost.failure.startswith("no node answers")
    half = postmortem.judge({"a": {"found": RUNS, "window": RUNS}, "b": {"found": {"unreachable": True}, "window": None}}, run)
    assert half.failure == quiet.failure == ""


def test_a_remaining_guard_is_reported() -> None:
    guard = {"installed": True, "active": None, "ring": "/r", "ring_bytes": 1 << 20}
    (line,) = units.remaining({"a": {"guard": guard}, "b": {}})
    assert line == "The guard stays on a; ansible-playbook -i inventories/NAME gb10.cluster.protect --tags guard -e gb10_guard=absent takes it away."
    assert guard_files.text(guard) == "guard: state unknown, ring 1.0 MiB in /r, -e gb10_guard=absent removes it"
    assert "its ring remains" in guard_files.text({**guard, "installed": False}) and guard_files.text({}) == ""
