# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a change of mode stops and starts, and how it ends."""

from __future__ import annotations

import datetime

import pytest
from ansible_collections.gb10.cluster.plugins.plugin_utils._lease import leasing
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import mode as ending
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import mode_declared, mode_plan, mode_return
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Run

PAIR = {"profile": "pair_tp2", "model": "org/pair"}
ONE = {"profile": "mine_one", "model": "org/one"}
CLUSTERS = {"gb10": {"source": "pair_tp2", "profile": "pair_tp2", "nodes": ["spark-1", "spark-2"]}}
RECORD = {"mode": "cluster", "phase": "settled", "reason": "", "clusters": CLUSTERS, "previous": {}, "changed_at": "2026-11-24T02:00:00Z", "events": []}

BOTH = ["spark-1", "spark-2"]

#: The ping result of a node that answers.
PONG = {"ping": "pong"}


def run(check_mode=False, **settings):
    now = datetime.datetime(2026, 11, 24, 2, 10, tzinfo=datetime.timezone.utc)
    return Run({"lost": [], **settings}, [], "", ["all"], [], now, check_mode)


def there(role="head", live=True, model="org/pair", running=True):
    return {"role": role, "running": running, "live": live, "run_id": "1", "argv": ["vllm", "serve", model] if live else []}


def answers(mode, clusters=None, record=None, units=None, **more):
    """Return the answers of two nodes; ``clusters`` has the clusters that exist on each node, ``units`` the units, by default those of these clusters."""
    by_node = {}
    for node in ("spark-1", "spark-2"):
        there = (clusters or {}).get(node, {})
        look = {"mode": record, "clusters": there, "units": list(there) if units is None else units.get(node, [])}
        by_node[node] = {
            "mode": mode,
            "pair": "gb10",
            "layouts": {},
            "pair_source": "pair_tp2",
            "profile": {"cluster": PAIR, "singles": ONE}.get(mode, {}),
            "single": node,
            "single_source": "./mine.yml" if mode == "singles" else "",
            "one": "",
            "companions": [],
            "look": look,
            "lease": "",
            "allow": [],
            "unit": "auto",
            "break_lock": "",
            **more,
        }
    return by_node


def plan_of(given, **settings):
    return mode_plan.judge(given, run(**settings))


def names(turns):
    return [cluster["name"] for cluster in turns["clusters"]]


def downs_and_ups(plan):
    return names(plan["down"]), names(plan["up"])


PAIR_RUNS = {"spark-1": {"gb10": there()}, "spark-2": {"gb10": there("worker", live=False)}}
SINGLES_RUN = {node: {node: there(model="org/one")} for node in ("spark-1", "spark-2")}


def test_singles_take_the_place_of_the_pair():
    outcome = plan_of(answers("singles", PAIR_RUNS, RECORD))
    plan = outcome.returns["plan"]
    assert plan["changes"] and plan["down"] == {"clusters": [{"name": "gb10", "profile": "pair_tp2", "nodes": BOTH}], "batches": [BOTH]}
    assert plan["up"] == {"clusters": [{"name": node, "profile": "./mine.yml", "nodes": [node]} for node in BOTH], "batches": [["spark-1"], ["spark-2"]]}
    assert outcome.lines[0] == "Mode: cluster -> singles" and "down: gb10 on spark-1, spark-2 (the mode singles does not have it)" in outcome.lines[1]


def test_the_pair_takes_the_place_of_singles():
    plan = plan_of(answers("cluster", SINGLES_RUN)).returns["plan"]
    assert downs_and_ups(plan) == (BOTH, ["gb10"]) and plan["clusters"] == CLUSTERS


def test_off_takes_down_what_is_there_also_when_it_only_lies_there():
    stopped = {"spark-1": {"gb10": there(live=False, running=False)}}
    plan = plan_of(answers("off", stopped)).returns["plan"]
    assert downs_and_ups(plan) == (["gb10"], []) and plan["changes"] and plan["clusters"] == {}
    assert not plan_of(answers("off")).returns["plan"]["changes"]


@pytest.mark.parametrize(("mode", "clusters"), [("cluster", PAIR_RUNS), ("singles", SINGLES_RUN)])
def test_what_serves_already_is_only_looked_at(mode, clusters):
    outcome = plan_of(answers(mode, clusters))
    assert not outcome.returns["plan"]["changes"] and outcome.lines[-1] == "  no engine has to be stopped or started"
    assert outcome.returns["plan"]["down"] == {"clusters": [], "batches": [BOTH]}


def test_the_plan_names_the_companions_of_the_mode_and_those_that_it_does_not_have():
    judge = {"name": "judge", "unit": "ollama.service", "port": 11434, "health_path": "/api/tags", "memory_gib": 40, "modes": [False]}
    speech = {**judge, "name": "asr", "port": 8765, "modes": ["cluster", "off"]}
    off, pair = (plan_of(answers(mode, companions=[judge, speech])).lines for mode in ("off", "cluster"))
    assert off[-2:] == ["  no engine has to be stopped or started", "  companions: judge on spark-1, asr on spark-1, judge on spark-2, asr on spark-2"]
    assert pair[-2:] == [
        "  companions: asr on spark-1, asr on spark-2",
        "  without: judge on spark-1, judge on spark-2 (companions that the mode does not have)",
    ]
    assert "judge on spark-2" not in plan_of(answers("off", companions=[judge]), lost=["spark-2"]).lines[-1]


def test_a_live_engine_with_another_model_goes_and_a_dead_one_is_the_bring_ups():
    outcome = plan_of(answers("cluster", {"spark-1": {"gb10": there(model="org/other")}, "spark-2": {"gb10": there("worker", live=False)}}))
    assert names(outcome.returns["plan"]["down"]) == ["gb10"] and "it has another model than org/pair" in outcome.lines[1]
    half = plan_of(answers("cluster", {"spark-1": {"gb10": there(live=False)}})).returns["plan"]
    assert not half["down"]["clusters"] and half["changes"]


def test_a_foreign_cluster_refuses_the_change():
    outcome = plan_of(answers("off", {"spark-2": {"judges": there()}}))
    (foreign,) = [finding for finding in outcome.findings if finding["id"] == "mode.foreign"]
    assert (foreign["node"], foreign["verdict"]) == ("spark-2", "block") and "gb10_cluster_name=judges" in foreign["remedy"]


@pytest.mark.parametrize(
    ("more", "id", "words"),
    [
        ({"mode": ""}, "mode.declared", "gb10_mode is not set; expected one of cluster, singles, off."),
        ({"mode": "night", "layouts": {"day": {"all": "a_tp2"}}}, "mode.declared", "gb10_mode is night; expected one of cluster, singles, off, day."),
        ({"one": "spark-1"}, "mode.declared", "a mode is about all nodes"),
        ({"single": "gb10"}, "mode.names", "the name of more than one cluster"),
        ({"single": "gb10", "mode": "cluster"}, "mode.names", "gb10 is the name of more than one cluster"),
        ({"single_source": ""}, "mode.profile", "no host has a gb10_single_profile"),
        ({"layouts": {"off": {"all": "a_tp2"}}}, "mode.layout", "gb10_layouts.off: is the name of a mode that always exists; expected another name"),
    ],
)
def test_wrong_settings_are_said_before_any_node_is_reached(more, id, words):
    outcome = mode_declared.judge(answers(**{"mode": "singles", **more}), run())
    matches = [finding for finding in outcome.findings if finding["id"] == id]
    assert matches and matches[0]["verdict"] == "block" and words in matches[0]["message"] and matches[0]["remedy"]


def test_the_services_to_come_are_named_with_what_chooses_their_profile():
    returns = mode_declared.judge(answers("singles"), run()).returns
    assert returns["clusters"][1] == {"name": "spark-2", "profile": "./mine.yml", "nodes": ["spark-2"]} and returns["batches"] == [["spark-1"], ["spark-2"]]
    quiet = mode_declared.judge(answers("cluster"), run())
    assert quiet.findings is None and quiet.returns == {"clusters": [{"name": "gb10", "profile": "pair_tp2", "nodes": BOTH}], "batches": [BOTH]}
    assert mode_declared.judge(answers("off"), run()).returns == {"clusters": [], "batches": [BOTH]}
    # Nothing is computed from a layout that is wrong.
    assert mode_declared.judge(answers("day", layouts={"day": {"spark-9": "a"}}), run()).returns["clusters"] == []


def test_a_node_that_could_not_be_looked_at_stops_the_change():
    outcome = plan_of(answers("singles", look={"failed": True, "msg": "the Docker engine did not answer"}))
    assert {(finding["id"], finding["verdict"]) for finding in outcome.findings} == {("mode.look", "unknown")}
    assert "the Docker engine did not answer" in outcome.findings[0]["message"]


def test_nothing_is_planned_for_a_node_that_is_lost():
    outcome = plan_of(answers("singles"), lost=["spark-2"])
    assert names(outcome.returns["plan"]["up"]) == ["spark-1"]
    assert plan_of(answers("cluster"), lost=["spark-2"]).returns["plan"]["up"] == {"clusters": [], "batches": [BOTH]}


# --- the end ----------------------------------------------------------------------------------------------------------------


def fault(text, remedy=""):
    """The error that a node records for a failed step."""
    return {"said": text, "remedy": remedy}


def ended(mode="singles", errors=None, decided=None, check_mode=False, **more):
    base = answers(mode, PAIR_RUNS, RECORD)
    plan = mode_plan.judge(base, run(**(decided or {}))).returns
    state = {"decided": plan, "returning": None, "return_asked": False, "allow": [], "leak": False, "down_at": "", "served": None, "answer": PONG}
    by_node = {node: {**answer, **state, "errors": (errors or {}).get(node, {}), **more} for node, answer in base.items()}
    return by_node, ending.judge(by_node, run(check_mode))


def test_a_change_that_went_well_is_settled_with_its_seconds():
    _by_node, outcome = ended(down_at=100.0, served={"finished_at": 252.5})
    record = outcome.returns["record"]
    assert (record["mode"], record["phase"], record["reason"]) == ("singles", "settled", "")
    assert record["event"] == "singles is up; 152.5 s from the first stop to the last first token"
    assert [finding["verdict"] for finding in outcome.findings] == ["pass"] and outcome.stats["gb10_verdict"] == "pass"
    assert outcome.stats["gb10_mode_report"]["seconds_down"] == 152.5
    assert list(record["clusters"]) == ["spark-1", "spark-2"]


def test_a_stop_that_was_refused_leaves_the_mode_as_it_was():
    _by_node, outcome = ended(errors={"spark-1": {"down": fault("it has 2 request(s)", "Wait for them.")}})
    record = outcome.returns["record"]
    assert (record["mode"], record["phase"], record["clusters"]) == ("cluster", "settled", CLUSTERS)
    assert "singles refused, nothing was stopped: spark-1: it has 2 request(s)" in record["event"]
    (refused,) = outcome.findings
    assert refused["id"] == "mode.down" and refused["remedy"] == "Wait for them; then run the same command again, which continues from here"


def test_memory_that_is_not_back_leaves_everything_off():
    by_node, outcome = ended(errors={"spark-2": {"down": fault("9000 MiB have not come back")}}, down_at=100.0, leak=True)
    assert (outcome.returns["record"]["mode"], outcome.returns["record"]["phase"]) == ("off", "leak")
    assert "mode.memory" in [finding["id"] for finding in outcome.findings]
    assert not mode_return.judge({node: {**answer, "return_asked": True} for node, answer in by_node.items()}, run()).returns["returns"]


def test_a_change_that_failed_says_why_and_goes_back_only_when_asked():
    errors = {"spark-2": {"up": fault("the engine did not start")}}
    by_node, outcome = ended(errors=errors, down_at=100.0)
    assert (outcome.returns["record"]["mode"], outcome.returns["record"]["phase"]) == ("singles", "failed")
    assert not mode_return.judge(by_node, run()).returns["returns"]
    with_return = {node: {**answer, "return_asked": True, "look": {"mode": None, "clusters": SINGLES_RUN[node]}} for node, answer in by_node.items()}
    back = mode_return.judge(with_return, run()).returns
    assert back["returns"] and downs_and_ups(back["plan"]) == (BOTH, ["gb10"])
    assert back["plan"]["up"]["clusters"][0]["profile"] == "pair_tp2" and back["plan"]["clusters"] == CLUSTERS
    came = ending.judge({node: {**answer, "returning": back} for node, answer in with_return.items()}, run())
    assert (came.returns["record"]["mode"], came.returns["record"]["phase"]) == ("cluster", "settled")
    assert {finding["id"] for finding in came.findings} == {"mode.up", "mode.returned"}
    lost = {
        node: {**answer, "returning": back, "errors": {**answer["errors"], "return": fault("it did not start either")}} for node, answer in with_return.items()
    }
    assert ending.judge(lost, run()).returns["record"]["phase"] == "failed"


def test_what_ended_without_a_reason_is_not_settled():
    text = "what failed on another node ended it"
    _by_node, outcome = ended(errors={"spark-1": {"down": fault(text)}, "spark-2": {"down": fault(text)}}, down_at=100.0)
    assert outcome.returns["record"]["phase"] == "failed"


def test_a_node_that_is_lost_during_the_change_is_named_and_not_started_again():
    errors = {"spark-1": {"up": fault("spark-2 is gone")}}
    by_node, _outcome = ended(errors=errors, down_at=100.0, return_asked=True)
    gone = {**by_node, "spark-2": {**by_node["spark-2"], "answer": {"unreachable": True}, "errors": None, "decided": None, "look": None}}
    back = mode_return.judge(gone, run()).returns
    assert back["returns"] and not back["plan"]["up"]["clusters"], "the pair needs the node that is lost"
    outcome = ending.judge({node: {**answer, "returning": back} for node, answer in gone.items()}, run())
    assert outcome.returns["record"]["phase"] == "failed" and "mode.lost" in {finding["id"] for finding in outcome.findings}


def test_a_node_that_no_play_asks_any_more_is_lost_also_where_nothing_else_failed():
    by_node, outcome = ended(down_at=100.0)
    assert outcome.returns["record"]["phase"] == "settled"
    gone = {**by_node, "spark-2": {**by_node["spark-2"], "answer": None, "look": None}}
    after = ending.judge(gone, run())
    assert after.returns["record"]["phase"] == "failed" and [finding["node"] for finding in after.findings if finding["id"] == "mode.lost"] == ["spark-2"]
    back = mode_return.judge({node: {**answer, "return_asked": True} for node, answer in gone.items()}, run()).returns
    assert back["returns"] and back["lost"] == ["spark-2"]


def test_a_return_takes_down_another_profile_of_the_same_name():
    base = answers("cluster", PAIR_RUNS, {**RECORD, "clusters": {"gb10": {**CLUSTERS["gb10"], "profile": "older_tp2", "source": "older_tp2"}}})
    plan = mode_plan.judge(base, run()).returns
    state = {"decided": plan, "returning": None, "return_asked": True, "allow": [], "leak": False, "down_at": 1.0, "served": None, "answer": PONG}
    back = mode_return.judge({node: {**answer, **state, "errors": {"up": fault("a wrong answer")}} for node, answer in base.items()}, run()).returns
    assert names(back["plan"]["down"]) == ["gb10"] and back["plan"]["up"]["clusters"] == [{"name": "gb10", "profile": "older_tp2", "nodes": BOTH}]


def test_what_ran_undeclared_is_not_started_again():
    base = answers("singles", PAIR_RUNS)
    plan = mode_plan.judge(base, run()).returns
    assert plan["undeclared"]
    state = {"decided": plan, "returning": None, "return_asked": True, "allow": [], "leak": False, "down_at": 1.0, "served": None, "answer": PONG}
    assert not mode_return.judge({node: {**answer, **state, "errors": {"up": fault("no")}} for node, answer in base.items()}, run()).returns["returns"]


@pytest.mark.parametrize(
    ("record", "declares"),
    [
        (None, True),
        (RECORD, False),
        ({**RECORD, "phase": "switching"}, True),
        ({**RECORD, "mode": "singles", "clusters": {}}, True),
        ({**RECORD, "clusters": {"gb10": {**CLUSTERS["gb10"], "profile": "older_tp2"}}}, True),
    ],
)
def test_what_serves_already_is_declared_only_where_the_record_says_something_else(record, declares):
    returns = plan_of(answers("cluster", PAIR_RUNS, record)).returns
    assert (returns["plan"]["changes"], returns["declares"]) == (False, declares)


def test_a_node_that_was_lost_keeps_a_change_from_being_settled():
    _by_node, outcome = ended(decided={"lost": ["spark-2"]})
    assert outcome.returns["record"]["phase"] == "failed" and [finding["id"] for finding in outcome.findings] == ["mode.lost"]


def test_a_teardown_says_that_the_mode_still_has_what_it_took_down():
    assert "mode remains cluster on spark-1, and has gb10" in ending.remaining({"spark-1": RECORD, "spark-2": {}}, "gb10")[0]
    assert ending.remaining({"spark-1": {**RECORD, "phase": "switching"}}, "gb10") == ending.remaining({"spark-1": RECORD}, "other") == []


def test_off_may_be_forgotten_and_check_mode_passes_nothing_on():
    _by_node, outcome = ended("off", allow=["forget"])
    assert outcome.returns["record"] == {"state": "absent"}
    _by_node, checked = ended("off", check_mode=True)
    assert checked.stats == {} and checked.title == "Mode off (would be declared)"


# --- layouts ----------------------------------------------------------------------------------------------------------------

LAYOUTS = {"day": {"spark-1": "one", "spark-2": "two"}, "big": {"all": "pair_tp2"}}


def test_the_same_engine_on_the_same_nodes_stays_under_another_name():
    outcome = plan_of(answers("big", PAIR_RUNS, RECORD, layouts=LAYOUTS, profile=PAIR))
    assert not outcome.returns["plan"]["changes"] and outcome.returns["declares"] and outcome.lines[0] == "Mode: cluster -> big"
    day = plan_of(answers("day", PAIR_RUNS, RECORD, layouts=LAYOUTS, profile=ONE)).returns["plan"]
    assert downs_and_ups(day) == (["gb10"], ["spark-1", "spark-2"])
    assert day["clusters"]["spark-2"] == {"profile": "mine_one", "source": "two", "nodes": ["spark-2"]}


DEGRADED = {**LAYOUTS, "big": {"all": "pair_tp2", "degraded": "day"}}
ALONE = {"spark-1": "spark-1", "spark-2": "spark-2"}
BIG = {"gb10": {**CLUSTERS["gb10"], "degraded": ALONE}}
DAY = {name: {"profile": "mine_one", "source": source, "nodes": [name]} for name, source in LAYOUTS["day"].items()}


def big(clusters=None, record=None, mode="big", **more):
    settled = {**RECORD, "mode": "big", "clusters": BIG}
    return answers(mode, PAIR_RUNS if clusters is None else clusters, record or settled, **{"layouts": DEGRADED, "profile": PAIR, **more})


def test_the_units_of_a_degraded_layout_stay_and_the_record_names_them():
    plan = plan_of(big(SINGLES_RUN, {**RECORD, "mode": "day", "clusters": DAY})).returns["plan"]
    assert downs_and_ups(plan) == (BOTH, ["gb10"]) and plan["kept"] == ALONE and plan["clusters"] == BIG
    # Then nothing is left to do, with or without them.
    kept = {node: ["gb10", node] for node in BOTH}
    for units in (kept, None):
        after = plan_of(big(units=units)).returns
        assert not after["plan"]["changes"] and not after["declares"] and after["plan"]["kept"] == ALONE
    # A record of before the layout had the key is written again.
    assert plan_of(big(record={**RECORD, "mode": "big"}, units=kept)).returns["declares"]
    assert plan_of(answers("day", SINGLES_RUN, layouts=DEGRADED, profile=ONE)).returns["plan"]["kept"] == {}


@pytest.mark.parametrize(("mode", "layouts"), [("off", DEGRADED), ("big", LAYOUTS), ("cluster", DEGRADED)])
def test_what_is_left_of_a_cluster_is_taken_down_where_the_mode_does_not_name_it(mode, layouts):
    units = {"spark-1": ["gb10", "spark-1", "foreign"], "spark-2": ["gb10"]}
    outcome = plan_of(big(units=units, mode=mode, layouts=layouts))
    downs = (["gb10"] if mode == "off" else []) + ["spark-1"]
    assert names(outcome.returns["plan"]["down"]) == downs and outcome.returns["plan"]["changes"]
    assert f"  down: spark-1 on spark-1 (the mode {mode} does not have it)" in outcome.lines and not outcome.returns["undeclared"]
    assert outcome.findings is None and not any("foreign" in line for line in outcome.lines)
    # Of a node that was not asked nothing is known.
    assert names(plan_of(big(mode="off", look={"failed": True})).returns["plan"]["down"]) == []


def test_a_pair_that_was_given_up_returns_and_what_serves_alone_goes_down():
    """Its containers are gone, and both units are there."""
    given = big({"spark-1": {"spark-1": there(model="org/one")}}, units={node: ["gb10", node] for node in BOTH})
    plan = plan_of(given).returns["plan"]
    assert downs_and_ups(plan) == (["spark-1"], ["gb10"]) and plan["kept"] == ALONE and plan["changes"]
    # In another mode nothing of the pair stays, also not its unit.
    day = plan_of({node: {**answer, "mode": "day", "profile": ONE} for node, answer in given.items()}).returns["plan"]
    assert downs_and_ups(day) == (["gb10"], BOTH) and day["kept"] == {}


def test_a_degraded_layout_without_a_unit_is_said_and_is_no_failure():
    lines = [f"  degraded: {node} has no unit of day; run mode day once" for node in BOTH]
    given = big(units={"spark-1": ["gb10"], "spark-2": ["gb10", "spark-2"]})
    outcome = plan_of(given)
    assert outcome.findings is None and outcome.returns["degraded_lines"] == lines[:1] and lines[0] in outcome.lines and lines[1] not in outcome.lines
    assert plan_of(big(units={})).returns["degraded_lines"] == lines
    assert plan_of(big(units={node: [node] for node in BOTH})).returns["degraded_lines"] == []
    assert plan_of(big(look={"failed": True})).returns["degraded_lines"] == plan_of(big(look=None)).returns["degraded_lines"] == []
    state = {"returning": None, "return_asked": False, "leak": False, "down_at": "", "served": None, "answer": PONG, "errors": {}}
    ends = {node: {**answer, **state, "decided": outcome.returns} for node, answer in given.items()}
    end = ending.judge(ends, run())
    assert end.lines == ["Mode: big, settled", "  gb10: serves", lines[0]] and end.stats["gb10_verdict"] == "pass"
    back = {"returns": True, "lost": [], "plan": {"mode": "day", "clusters": DAY}}
    failed = {node: {**answer, "returning": back, "errors": {"up": fault("no")}} for node, answer in ends.items()}
    assert ending.judge(failed, run()).lines[0].startswith("Mode: day") and lines[0] not in ending.judge(failed, run()).lines


def test_a_return_to_a_degraded_layout_keeps_its_units():
    decided = plan_of(answers("day", PAIR_RUNS, {**RECORD, "mode": "big", "clusters": BIG}, layouts=DEGRADED, profile=ONE)).returns
    state = {"decided": decided, "returning": None, "return_asked": True, "allow": [], "leak": False, "down_at": 1.0, "served": None, "answer": PONG}
    given = {node: {**answer, **state, "errors": {"up": fault("no")}} for node, answer in answers("day", SINGLES_RUN, layouts=DEGRADED).items()}
    plan = mode_return.judge(given, run()).returns["plan"]
    assert (plan["mode"], plan["kept"], plan["clusters"]) == ("big", ALONE, BIG)


def test_an_engine_of_one_node_is_not_given_up_for_itself():
    both = {"mixed": {"spark-1": "one", "degraded": "day"}, "day": LAYOUTS["day"]}
    plan = plan_of(answers("mixed", layouts=both, profile=ONE)).returns["plan"]
    assert plan["kept"] == {} and "degraded" not in plan["clusters"]["spark-1"]


def test_two_sets_of_nodes_may_not_have_one_name():
    names = {"spark-1": "a.b", "spark-2": "c", "spark-3": "a", "spark-4": "b.c"}
    base = answers("off")["spark-1"]
    given = {node: {**base, "single": name, "layouts": {"x": {"spark-1,spark-2": "p", "spark-3,spark-4": "p"}}} for node, name in names.items()}
    (finding,) = mode_declared.judge(given, run()).findings
    assert (finding["id"], finding["message"].split(" is ")[0]) == ("mode.names", "a.b.c")
    # Two layouts with the same nodes are one cluster.
    both = {node: {**answer, "layouts": {"x": {"spark-1,spark-2": "p"}, "y": {"spark-2,spark-1": "q"}}} for node, answer in given.items()}
    assert mode_declared.judge(both, run()).findings is None


def test_a_cluster_that_only_the_record_has_is_taken_down_on_the_nodes_where_it_was_started():
    """A layout that the inventory no longer has, and one before it that was never taken down."""
    group = {"profile": "p", "source": "p", "nodes": ["spark-2", "spark-1"]}
    seen = {"spark-1": {"old": there("worker", live=False)}, "spark-2": {"old": there(), "older": there(live=False)}}
    record = {**RECORD, "mode": "gone", "clusters": {"old": group}, "previous": {"clusters": {"older": {**group, "nodes": ["spark-2"]}}}}
    outcome = plan_of(answers("off", seen, record))
    assert outcome.findings is None
    assert outcome.returns["plan"]["down"]["clusters"] == [
        {"name": "old", "profile": "p", "nodes": ["spark-2", "spark-1"]}, {"name": "older", "profile": "p", "nodes": ["spark-2"]},
    ]  # fmt: skip
    # Its nodes are unknown when one of them is no longer in the inventory.
    foreign = plan_of(answers("off", seen, {**record, "clusters": {"old": {**group, "nodes": ["spark-2", "spark-9"]}}}))
    assert [finding["id"] for finding in foreign.findings] == ["mode.foreign"] and [c["name"] for c in foreign.returns["plan"]["down"]["clusters"]] == ["older"]


def served(name, nodes, at="2026-11-24T02:00:00Z", mode="serve"):
    cluster = {"profile": "p_one", "source": "p", "nodes": nodes}
    return {"mode": mode, "phase": "settled", "reason": "", "clusters": {name: cluster}, "previous": {}, "changed_at": at, "events": []}


def of_records(*records):
    given = answers("off")
    return {node: {**answer, "look": {**answer["look"], "mode": record}} for (node, answer), record in zip(given.items(), records)}


def test_what_was_brought_up_without_a_mode_is_taken_together_from_its_nodes():
    first, second = served("spark-1", ["spark-1"]), served("spark-2", ["spark-2"], "2026-11-24T03:00:00Z")
    record = mode_plan.record_of(of_records(first, second))
    assert (record["mode"], record["changed_at"], list(record["clusters"])) == ("serve", "2026-11-24T03:00:00Z", ["spark-1", "spark-2"])
    # A pair counts only where both nodes have it; the record of a declared mode is not part of it.
    pair = served("gb10", ["spark-1", "spark-2"])
    assert list(mode_plan.record_of(of_records(pair, second))["clusters"]) == ["spark-2"]
    assert list(mode_plan.record_of(of_records(pair, {**pair, "changed_at": "2026-11-24T03:00:00Z"}))["clusters"]) == ["gb10"]
    assert list(mode_plan.record_of(of_records(served("spark-1", ["spark-1"], mode="day"), second))["clusters"]) == ["spark-2"]
    assert mode_plan.record_of(of_records(second, {**first, "mode": "day", "changed_at": "2026-11-24T04:00:00Z"}))["mode"] == "day"
    assert mode_plan.record_of(of_records(None, None)) is None


def test_a_change_that_fails_returns_to_what_serve_brought_up():
    record = {**RECORD, "mode": "serve"}
    outcome = plan_of(answers("singles", PAIR_RUNS, record))
    assert outcome.lines[0] == "Mode: serve -> singles" and not outcome.returns["undeclared"]
    state = {"decided": outcome.returns, "returning": None, "return_asked": True, "allow": [], "leak": False, "down_at": 1.0, "served": None, "answer": PONG}
    given = {node: {**answer, **state, "errors": {"up": fault("no")}} for node, answer in answers("singles", SINGLES_RUN, record).items()}
    back = mode_return.judge(given, run()).returns
    assert back["returns"] and back["plan"]["mode"] == "serve" and downs_and_ups(back["plan"]) == (BOTH, ["gb10"])
    ended = ending.judge({node: {**answer, "returning": back} for node, answer in given.items()}, run())
    assert (ended.returns["record"]["mode"], ended.returns["record"]["clusters"]) == ("serve", CLUSTERS)


def test_the_engines_that_come_back_after_a_lease_are_judged_before_it():
    assert plan_of(answers("singles", PAIR_RUNS, RECORD, lease="true")).returns["back"]["clusters"] == [
        {"name": "gb10", "profile": "pair_tp2", "nodes": BOTH},
    ]  # fmt: skip
    assert plan_of(answers("cluster", PAIR_RUNS, RECORD, lease="true")).returns["back"] == {"clusters": [], "batches": [BOTH]}
    assert plan_of(answers("singles", PAIR_RUNS, RECORD)).returns["back"]["clusters"] == []


def test_the_end_names_each_service():
    by_node, outcome = ended(errors={"spark-2": {"up": fault("the engine did not start")}}, down_at=100.0)
    assert outcome.stats["gb10_mode_report"]["services"] == {"spark-1": "serves", "spark-2": "failed on spark-2"}
    assert outcome.lines == ["Mode: singles, failed", "  spark-1: serves", "  spark-2: failed on spark-2"]
    gone = {**by_node, "spark-1": {**by_node["spark-1"], "answer": None}}
    assert ending.services(gone) == {"spark-1": "failed on spark-1", "spark-2": "failed on spark-2"}
    # After a stop that failed nothing was started.
    assert ending.services(ended(errors={"spark-2": {"down": fault("it has requests")}}, down_at=100.0)[0]) == {}
    back = {"returns": True, "lost": [], "plan": {"mode": "cluster", "clusters": CLUSTERS}}
    returned = {node: {**answer, "returning": back} for node, answer in by_node.items()}
    assert ending.services(returned) == {"gb10": "serves"}
    assert ending.services({node: {**answer, "errors": {"down": fault("x")}} for node, answer in returned.items()}) == {"gb10": "serves"}
    assert ending.services({node: {**answer, "errors": {"return": fault("x")}} for node, answer in returned.items()}) == {"gb10": "failed on spark-1, spark-2"}


def test_what_serve_brought_up_is_no_declared_mode_for_a_teardown():
    assert ending.remaining({"spark-1": {**RECORD, "mode": "serve"}}, "gb10") == []


# --- a lease ------------------------------------------------------------------------------------------------------------------

OFF = {"mode": "off", "phase": "settled", "reason": "", "clusters": {}}
WAS_OFF = {**OFF, "previous": {}, "changed_at": "2026-11-24T02:00:00Z", "events": []}
WAS_SINGLES = {**WAS_OFF, "mode": "singles", "clusters": {"spark-1": {"source": "./mine.yml", "profile": "mine_one", "nodes": ["spark-1"]}}}
HELD = {
    "id": "abc", "holder": {"user": "ada", "hostname": "workbench", "pid": 4711}, "program": "judge.sh", "began_at": "2026-11-24T01:00:00Z", "state": "live",
    "reason": "", "left_seconds": 288,
}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"lease": []}, "gb10_lease is not a command: a list without a program"),
        ({"lease": "  "}, "gb10_lease is not a command: it is blank"),
        ({"lease": "sh -c 'echo"}, "gb10_lease is not a command: No closing quotation"),
        ({"lease": {"sh": 1}}, "gb10_lease is not a command: neither a text nor a list of words"),
        ({"lease": ["/no/such/judge.sh"]}, "gb10_lease names /no/such/judge.sh, which is not an executable program on this controller"),
        ({"lease": "true", "mode": "off"}, "gb10_mode is off, but a lease needs a mode that serves"),
        ({"lease": "true", "allow": ["forget"]}, "gb10_allow contains forget, which removes the declared mode"),
        ({"lease": "true", "unit": "none"}, "gb10_unit is none"),
    ],
)
def test_a_lease_that_cannot_be_is_refused_before_any_node_is_reached(more, words):
    (finding,) = mode_declared.judge(answers(**{"mode": "cluster", **more}), run()).findings
    assert (finding["id"], finding["verdict"]) == ("mode.lease", "block") and words in finding["message"] and finding["remedy"]


def test_without_a_lease_nothing_is_said_of_one():
    assert mode_declared.judge(answers("cluster"), run()).findings is None
    outcome = plan_of(answers("cluster"))
    assert outcome.returns["lease"] == {} and not any("lease" in line for line in outcome.lines)


def test_the_plan_of_a_lease_shows_the_command_and_the_return():
    outcome = plan_of(answers("cluster", SINGLES_RUN, WAS_SINGLES, lease=["./judge.sh", "--turns", "a b"]))
    assert outcome.lines[-1] == "  lease: ./judge.sh --turns 'a b' runs on this controller, then back to singles"
    lease = outcome.returns["lease"]
    assert not lease["keeps"] and lease["back"]["mode"] == "singles" and lease["restore"] == {"spark-1": ["spark-1"]} and lease["whole"]
    assert outcome.returns["event"] == "singles -> cluster, for the lease of judge.sh" and lease["program"] == "judge.sh"


def test_an_engine_that_already_serves_is_kept_after_the_command():
    outcome = plan_of(answers("cluster", PAIR_RUNS, RECORD, lease="true"))
    assert outcome.returns["lease"]["keeps"] and outcome.lines[-1] == "  lease: true runs on this controller, what serves stays as it is"
    # The lease of an earlier run was interrupted: its engine still runs, but did not run before the lease.
    left = plan_of(answers("cluster", PAIR_RUNS, {**RECORD, "phase": "leased", "previous": OFF}, lease="true"))
    assert not left.returns["lease"]["keeps"] and left.returns["lease"]["back"]["mode"] == "off"


def test_a_node_cannot_restore_a_cluster_whose_name_the_lease_needs():
    older = {**RECORD, "clusters": {"gb10": {**CLUSTERS["gb10"], "profile": "older_tp2"}}}
    lease = plan_of(answers("cluster", {"spark-1": {"gb10": there(model="org/other")}}, older, lease="true")).returns["lease"]
    assert lease["restore"] == {"spark-1": [], "spark-2": []} and not lease["whole"]


def leased_look(**more):
    return {"mode": RECORD, "clusters": {}, "units": [], "lease": {**HELD, **more}}


def test_a_foreign_lease_is_refused_with_its_owner_and_a_remedy():
    outcome = plan_of(answers("off", look=leased_look()))
    assert [(finding["id"], finding["node"]) for finding in outcome.findings] == [("mode.leased", "spark-1"), ("mode.leased", "spark-2")]
    assert "ada@workbench, process 4711, for judge.sh, since 2026-11-24T01:00:00Z" in outcome.findings[0]["message"]
    assert "in 288 s" in outcome.findings[0]["remedy"] and "-e gb10_break_lock=abc" in outcome.findings[0]["remedy"]
    assert plan_of(answers("off", look=leased_look(), break_lock="abc")).findings is None
    assert plan_of(answers("off", look=leased_look(state="ended"))).findings is None
    ending_now = plan_of(answers("off", look=leased_look(state="ending", reason="nobody renewed it"), break_lock="abc"))
    assert "is ending the lease" in ending_now.findings[0]["message"]


def test_a_lease_whose_run_is_known_to_have_ended_is_replaced(monkeypatch):
    monkeypatch.setattr(leasing, "why_ended", lambda holder, here: "its process 4711 has ended")
    assert plan_of(answers("off", look=leased_look())).findings is None


def test_a_lease_does_not_take_down_what_was_never_declared_and_needs_all_nodes():
    outcome = plan_of(answers("cluster", SINGLES_RUN, lease="true"))
    assert [finding["id"] for finding in outcome.findings] == ["mode.lease"] and "never declared" in outcome.findings[0]["message"]
    lost = plan_of(answers("cluster", record=WAS_OFF, lease="true"), lost=["spark-2"])
    assert "a lease needs all nodes" in lost.findings[0]["message"]


def leased_end(result, errors=None, before="off", clusters=None, back=True, **more):
    """End a lease of the pair whose command had this ``result``; ``before`` is the record before the lease, or off."""
    base = answers("cluster", clusters, WAS_OFF if before == "off" else before, lease=["./judge.sh"])
    plan = mode_plan.judge(base, run()).returns
    state = {"decided": plan, "returning": None, "return_asked": False, "leak": False, "down_at": "", "served": None, "answer": PONG, "leased": None}
    by_node = {node: {**answer, **state, "errors": errors or {}, **more} for node, answer in base.items()}
    by_node["spark-1"]["leased"] = result
    seen = {node: {**answer, "look": {"mode": None, "clusters": PAIR_RUNS[node]}} for node, answer in by_node.items()}
    returning = mode_return.judge(seen, run())
    assert returning.returns["returns"] == back
    return returning, ending.judge({node: {**answer, "returning": returning.returns} for node, answer in seen.items()}, run())


DONE = {"exit_code": 0, "limited": False, "seconds": 12.0, "log": "/l/judge.log", "msg": "judge.sh ended with exit code 0 after 12 s"}


def test_after_the_command_the_former_mode_returns():
    returning, outcome = leased_end(DONE)
    assert names(returning.returns["plan"]["down"]) == ["gb10"] and returning.lines[0] == "The lease is over; back to the mode before."
    record = outcome.returns["record"]
    assert (record["mode"], record["phase"], record["event"]) == ("off", "settled", "the lease of judge.sh is over, back to off")
    assert [finding["verdict"] for finding in outcome.findings] == ["pass"]
    report = outcome.stats["gb10_mode_report"]["lease"]
    assert (report["exit_code"], report["before"], report["during"], report["after"]) == (0, "off", "cluster", "off")


def test_a_command_that_fails_fails_the_play_with_its_exit_code_after_the_mode_is_back():
    _returning, outcome = leased_end({**DONE, "exit_code": 3, "msg": "judge.sh ended with exit code 3 after 12 s"})
    record = outcome.returns["record"]
    assert (record["mode"], record["phase"], record["reason"]) == ("off", "settled", "") and "ended with exit code 3" in record["event"]
    by_id = {finding["id"]: finding for finding in outcome.findings}
    assert by_id["mode.command"]["measured"] == 3 and "/l/judge.log" in by_id["mode.command"]["message"] and "mode.returned" in by_id
    assert outcome.stats["gb10_mode_report"]["lease"]["exit_code"] == 3 and outcome.stats["gb10_verdict"] == "block"


def test_a_command_that_ran_too_long_says_so():
    _returning, outcome = leased_end({**DONE, "limited": True, "exit_code": 143, "msg": "judge.sh was ended after 60 s, its limit"})
    (finding,) = [finding for finding in outcome.findings if finding["id"] == "mode.command"]
    assert "its limit" in finding["message"] and "gb10_lease_seconds" in finding["remedy"]


def test_a_command_that_could_not_be_run_brings_the_mode_before_back_too():
    _returning, outcome = leased_end(None, errors={"lease": fault("the engine does not answer this controller")})
    assert outcome.returns["record"]["mode"] == "off" and outcome.stats["gb10_mode_report"]["lease"]["exit_code"] is None
    assert "mode.lease" in {finding["id"] for finding in outcome.findings}


def test_a_mode_that_did_not_come_up_for_a_lease_gives_way_unasked():
    _returning, outcome = leased_end(None, errors={"up": fault("a wrong answer")})
    assert (outcome.returns["record"]["mode"], outcome.returns["record"]["phase"]) == ("off", "settled")


def test_a_declared_mode_is_kept_after_any_command():
    for code, verdict in ((0, "pass"), (3, "block")):
        _returning, outcome = leased_end({**DONE, "exit_code": code}, before=RECORD, clusters=PAIR_RUNS, back=False)
        assert (outcome.returns["record"]["mode"], outcome.returns["record"]["phase"]) == ("cluster", "settled")
        assert outcome.stats["gb10_verdict"] == verdict


def test_what_was_never_declared_is_not_declared_after_a_lease():
    assert leased_end(DONE, before=None)[1].returns["record"] == {"state": "absent"}


def test_memory_that_is_not_back_after_a_lease_is_a_leak():
    returning, _outcome = leased_end(DONE, leak=False)
    assert returning.returns["returns"]
    base = answers("cluster", None, WAS_OFF, lease=["./judge.sh"])
    plan = mode_plan.judge(base, run()).returns
    state = {"decided": plan, "returning": returning.returns, "return_asked": False, "leak": True, "down_at": 1.0, "served": None}
    state.update(answer=PONG, leased=DONE)
    outcome = ending.judge({node: {**answer, **state, "errors": {"return": fault("9000 MiB have not come back")}} for node, answer in base.items()}, run())
    assert outcome.returns["record"]["phase"] == "leak"


def test_a_teardown_in_a_lease_says_that_the_mode_remains():
    assert ending.remaining({"spark-1": {**RECORD, "phase": "leased"}}, "gb10")
