# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node shows to everybody, and what status makes of it."""

from __future__ import annotations

import datetime
import os
import types

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import sweep_files as sweep_look
from ansible_collections.gb10.cluster.plugins.module_utils._unit import boots, glance
from ansible_collections.gb10.cluster.plugins.modules import node_state_info
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import glance as glancing
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Run

BOOT = "b6f1e0b4-6a3c-4f0e-9a51-0b0f1f0c2d11"
GLANCE = {
    "cluster": "spark-1", "role": "head", "state": "running", "reason": "", "boot_id": BOOT, "at": "2026-11-24T02:09:12Z", "model": "tiny",
    "endpoint": "http://192.168.100.10:8000/v1", "token": {"seconds": 0.41, "at": "2026-11-24T02:09:12Z"},
    "start": "start: 702 s (image 3, weights 606, compile 22, graphs 15, warmup 37, first token 1), compile cache used; last: 695 s; reported by x: 480 s",
}  # fmt: skip


@pytest.fixture
def node(tmp_path):
    proc = tmp_path / "proc"
    (proc / "sys" / "kernel" / "random").mkdir(parents=True)
    (proc / "sys" / "kernel" / "random" / "boot_id").write_text(f"{BOOT}\n", encoding="ascii")
    text = "MemTotal: 127600640 kB\nMemFree: 2048 kB\nMemAvailable: 44142592 kB\nBuffers: 0 kB\nCached: 0 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
    (proc / "meminfo").write_text(text, encoding="ascii")
    (tmp_path / "state" / "spark-1").mkdir(parents=True)
    return tmp_path


def look(node):
    roots = {"proc_root": str(node / "proc"), "meminfo": str(node / "proc" / "meminfo"), "etc_root": str(node / "etc")}
    params = {"want": ["mode", "lease", "engines", "unclean_boots", "sweep", "memory"], "strict": False, "state_dir": str(node / "state"), "roots": roots}
    return node_state_info.work(types.SimpleNamespace(params=params, check_mode=False))


def show(node, **more):
    glance.write(str(node / "state"), {**GLANCE, **more})


def test_what_a_unit_shows_is_for_everybody_whatever_the_umask(node):
    before = os.umask(0o077)
    try:
        show(node)
    finally:
        os.umask(before)
    assert os.stat(glance.path_of(str(node / "state"), "spark-1")).st_mode & 0o777 == 0o644
    (engine,) = look(node)["engines"]
    assert engine == {key: value for key, value in GLANCE.items() if key != "boot_id"}


def test_what_ran_before_the_last_boot_is_unknown_and_what_was_refused_stays(node):
    show(node, boot_id="another")
    (engine,) = look(node)["engines"]
    assert (engine["state"], engine["reason"], engine["token"], engine["start"]) == ("unknown", "it was running before the last boot", {}, "")
    show(node, boot_id="another", state="refused", reason="the node did not shut down cleanly", token={})
    assert look(node)["engines"][0]["state"] == "refused"


def test_a_glance_of_an_older_version_has_no_start(node):
    glance.write(str(node / "state"), {key: value for key, value in GLANCE.items() if key != "start"})
    (engine,) = look(node)["engines"]
    assert engine == {**{key: value for key, value in GLANCE.items() if key != "boot_id"}, "start": ""}
    assert not any("start: " in line for line in screen(one={**look(node), "reached": True}).lines)


@pytest.mark.parametrize("start", [None, 1])
def test_a_start_that_is_not_text_is_an_error(node, start):
    show(node, start=start)
    with pytest.raises(UnknownState, match="start: missing, or of another type"):
        glance.on_node(str(node / "state"))


def test_a_node_that_shows_nothing_still_says_its_memory(node):
    state = look(node)
    assert (state["mode"], state["engines"], state["errors"]) == (None, [], [])
    assert state["memory"] == {"total_mb": 124610, "available_mb": 43108}


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 2}', '{"schema": 1, "cluster": "spark-1"}'])
def test_a_glance_that_is_none_is_an_error_and_hides_nothing_else(node, text):
    path = glance.path_of(str(node / "state"), "spark-1")
    (node / "state" / "glance-spark-1.json").write_text(text, encoding="utf-8")
    with pytest.raises(UnknownState, match="glance"):
        glance.on_node(str(node / "state"))
    state = look(node)
    assert state["engines"] == [] and path in state["errors"][0] and state["memory"]


def test_every_account_reads_it_although_only_root_enters_the_clusters_directory(node):
    show(node)
    (node / "state" / "spark-1").chmod(0)
    assert (look(node)["engines"], look(node)["errors"]) == ([{key: value for key, value in GLANCE.items() if key != "boot_id"}], [])


def screen(**answers):
    run = Run({}, [], "", ["all"], [], datetime.datetime.now(datetime.timezone.utc), False)
    return glancing.judge({name: {"seen": answer} for name, answer in answers.items()}, run)


def test_one_screen_says_mode_models_tokens_memory_and_events(node):
    show(node)
    events = [{"at": f"2026-11-24T02:1{number}:00Z", "text": f"event {number}"} for number in range(5)]
    record = {"mode": "singles", "phase": "settled", "reason": "", "clusters": {}, "previous": {}, "changed_at": "2026-11-24T02:10:00Z", "events": events}
    modes.write(str(node / "state"), record)
    lines = screen(one={**look(node), "reached": True}, two={"reached": False, "what": "no route to host", "msg": ""}).lines
    assert lines[0] == "Mode: singles, settled since 2026-11-24T02:10:00Z"
    assert lines[1] == "two: not reached: no route to host", "what is wrong comes first"
    assert lines[2].startswith("one: 42.1 of 121.7 GiB available")
    assert lines[-3].endswith("tiny, http://192.168.100.10:8000/v1, token in 0.41 s at 2026-11-24T02:09:12Z")
    assert lines[-2] == f"  {GLANCE['start']}"
    assert lines[-1] == "2026-11-24T02:12:00Z event 2; 2026-11-24T02:13:00Z event 3; 2026-11-24T02:14:00Z event 4"


def test_a_node_that_went_away_while_it_was_read_is_named():
    assert screen(two={"unreachable": True, "msg": "no route to host"}).lines[1:] == ["two: not reached: no route to host"]


def test_how_an_engine_came_back_is_shown_and_is_no_trouble(node):
    show(node, reason="the unit starts once")
    assert boots.why_not(str(node / "state"), BOOT) == ""
    ((boot,), answer) = look(node)["unclean_boots"], {**look(node), "reached": True}
    assert boot["boot_id"] == BOOT and not boot["over"] and glancing.is_well(answer)
    lines = screen(one=answer).lines
    assert any("spark-1 head running since 2026-11-24T02:09:12Z: the unit starts once, tiny" in line for line in lines)
    assert any(f"unclean boot at {boot['at']}" in line for line in lines)
    boots.outlast(str(node / "state"))
    assert "unclean boot" not in "\n".join(screen(one={**look(node), "reached": True}).lines)
    show(node, state="starting", token={})
    assert glancing.is_well({**look(node), "reached": True})
    show(node, state="refused", reason="it is the second unclean boot in a row")
    assert not glancing.is_well({**look(node), "reached": True})


def test_nothing_declared_and_nothing_served_is_said():
    quiet = {"mode": None, "lease": {}, "engines": [], "unclean_boots": [], "sweep": {}, "memory": {}, "errors": ["mode.json cannot be read"]}
    line = "one: memory unknown; no engine unit (the full status shows engines without one)"
    assert screen(one=quiet).lines == ["Mode: none is declared", line, "  mode.json cannot be read"]


def test_a_lease_says_who_holds_it_and_when_it_ends_or_how_it_ended(node):
    holder = {"user": "ada", "hostname": "workbench", "pid": 7}
    lease = {"holder": holder, "program": "judge.sh", "began_at": "2026-11-24T02:00:00Z", "state": "live", "reason": ""}
    assert look(node)["lease"] == {}
    lines = screen(one={**look(node), "lease": {**lease, "left_seconds": 270}}).lines
    leased = "leased to ada@workbench, process 7, for judge.sh, since 2026-11-24T02:00:00Z; expires in 270 s unless it is renewed"
    assert leased in "\n".join(lines)
    over = screen(one={**look(node), "lease": {**lease, "state": "ended", "reason": "nobody renewed it", "left_seconds": 0}}).lines
    assert "lease of ada@workbench, process 7, for judge.sh, since 2026-11-24T02:00:00Z: ended: nobody renewed it" in "\n".join(over)


def test_the_last_sweep_is_seen_without_rights(node):
    assert look(node)["sweep"] == {}
    folder = node / "state" / "_sweep"
    folder.mkdir()
    trouble = {"id": "memory", "text": "1.2 GiB are available, and 2 should be"}
    kept = {"quiet": "", "since": {}, "problems": [trouble], "told": {}, "last": {}, "undelivered": {}}
    sweep_look.write_state(str(folder), {"at": 1795500000.0, **kept})
    assert look(node)["sweep"]["problems"] == [trouble]
    screen_of_node = "\n".join(glancing.node_lines("spark-1", look(node)))
    assert "sweep: last 2026-11-24T06:00:00Z: memory: 1.2 GiB are available, and 2 should be" in screen_of_node
    (folder / "state.json").write_text("{", encoding="utf-8")
    assert look(node)["sweep"] == {} and "state.json is not JSON" in look(node)["errors"][-1]


def declared(node, **degraded):
    """A node with a pair that names the engine which serves alone on it while the pair is given up."""
    cluster = {"profile": "p", "source": "p", "nodes": ["one", "two"], "degraded": degraded}
    shape = {"mode": "big", "phase": "settled", "reason": "", "clusters": {"gb10": cluster, "other": {**cluster, "degraded": {}}}}
    modes.write(str(node / "state"), modes.following(None, shape, "2026-11-24T02:10:00Z"))
    return {**look(node), "reached": True}


def test_a_node_that_serves_alone_for_a_pair_is_named_and_a_kept_unit_is_not_shown(node):
    pair = {**GLANCE, "cluster": "gb10"}
    single = {**GLANCE, "cluster": "spark-1", "state": "stopped", "reason": "run x was stopped"}
    whole = {**declared(node, one="spark-1", two="spark-2"), "engines": [pair, single]}
    assert not glancing.is_well(whole)
    quiet = screen(one=whole, two={**whole, "engines": [pair]})
    assert "was stopped" not in "\n".join(quiet.lines) and "serves alone" not in "\n".join(quiet.lines) and quiet.lines[1].startswith("one: ")
    assert quiet.stats["gb10_glance"]["one"]["engines"] == [pair, single]
    # It serves alone: the pair's unit has ended.
    ended = {**pair, "state": "stopped", "reason": "run y was stopped", "token": {}}
    alone = {**whole, "engines": [ended, {**single, "state": "running", "reason": ""}]}
    lines = screen(two={**whole, "engines": [ended]}, one=alone).lines
    assert lines[:2] == ["Mode: big, settled since 2026-11-24T02:10:00Z", "degraded: one serves alone"] and len(lines) < 18
    assert "spark-1 head running" in "\n".join(lines) and "\n".join(lines).count("run y was stopped") == 2
    for state in ("failed", "starting"):
        other = screen(one={**whole, "engines": [{**single, "state": state}]}).lines
        assert "serves alone" not in "\n".join(other) and f"spark-1 head {state}" in "\n".join(other)
    # A stopped engine that the mode does not name is shown, and a node that was not reached is named.
    unnamed = screen(one={**whole, "engines": [{**single, "cluster": "spark-3"}]}, two={"reached": False, "what": "no route", "msg": ""}).lines
    assert "spark-3 head stopped" in "\n".join(unnamed) and "two: not reached: no route" in unnamed
    assert "serves alone" not in "\n".join(screen(one={**alone, "mode": None}).lines)


#: Lines around these that a play prints: the command, two plays, and the recap of three hosts.
CHROME = 9


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_pair_and_a_single_with_everything_fit_on_one_screen(node, nodes):
    sweep = {"last_sweep": "2026-11-26T05:30:00Z", "problems": [], "undelivered": {}, "last_alert": "", "quiet": ""}
    whole = {**look(node), "reached": True, "sweep": sweep}
    units = {"one": {}, "two": {"role": "worker", "model": "", "endpoint": "", "token": {}, "start": ""}, "three": {"cluster": "three"}}
    answers = {name: {**whole, "engines": [{**GLANCE, **unit}]} for name, unit in list(units.items())[:nodes]}
    outcome = screen(**answers)
    assert len(outcome.lines) + (CHROME if nodes == 2 else 0) <= glancing.SCREEN == 18, "\n".join(outcome.lines)
    assert max(map(len, outcome.lines)) <= 160 and outcome.lines == outcome.details


@pytest.mark.parametrize(("nodes", "hidden"), [(17, 0), (18, 2), (30, 14)])
def test_more_lines_than_a_screen_are_left_to_verbose(nodes, hidden):
    outcome = screen(**{f"n{number:02}": {"unreachable": True, "msg": "no route"} for number in range(nodes)})
    assert len(outcome.details) == nodes + 1 and len(outcome.lines) == min(nodes + 1, 18)
    assert outcome.lines[:17] == outcome.details[:17]
    assert (outcome.lines[-1] == f"{hidden} more lines: -v shows them") is bool(hidden)
