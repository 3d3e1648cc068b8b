# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime

import pytest
from healthy_pair import HEALTHY, PROFILE, SETTINGS, node

from ansible_collections.gb10.cluster.plugins.module_utils._companion import container, declared
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import node_settings
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import companions, companions_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Run

ID = "sha256:" + "a" * 64
OLLAMA = {"name": "ollama", "unit": "ollama.service", "port": 11434, "health_path": "/api/tags", "memory_gib": 20}
SPEECH = {"name": "asr", "image": f"someone/parakeet@{ID}", "port": 8765, "health_path": "/health", "memory_gib": 4, "modes": ["singles"]}
RUN = Run({"up": True}, [], "", ["all"], [], datetime.datetime(2026, 11, 24, tzinfo=datetime.timezone.utc), False)


def row(companion, **changes):
    there = {
        "name": companion["name"], "kind": "unit", "declared": True, "container": "", "container_id": "", "unit": companion.get("unit", ""), "state": "active",
        "running": True, "port": companion["port"], "health_path": companion["health_path"], "healthy": True, "health": "status 200", "pids": [],
        "gpu_mib": 0, "anon_mb": 0, "spec": "", "fields": {}, "log": "",
    }  # fmt: skip
    return {**there, **changes}


def info(rows, **sections):
    return {"companions": rows, "images": {}, "docker": {}, "listeners": [], **sections}


def there(companion, **changes):
    """The row of a companion whose container runs as declared."""
    companion = declared.whole(companion)
    spec = container.labels(companion)["io.gb10.spec"]
    of = {"unit": "", "container": f"gb10-companion-{companion['name']}", "spec": spec, "fields": container.wanted(companion)}
    return row(companion, **{**of, **changes})


def wanted(mode, up=True):
    return companions.Wanted(mode, up, 120)


def test_what_leads_to_a_mode():
    plan = companions.plan([OLLAMA, SPEECH], info([row(OLLAMA), there(SPEECH, container="", state="absent", running=False)]), wanted("singles"))
    assert plan["up"] == ["ollama", "asr"] and plan["units"] == ["ollama.service"] and plan["pull"] == [SPEECH["image"]] and plan["stop"] == []
    assert [(entry["label"], entry["options"]["name"]) for entry in plan["containers"]] == [("asr: container is absent", "gb10-companion-asr")]
    assert plan["actions"] == ["start gb10-companion-asr (container is absent)"] and plan["seconds"] == {"up": 120, "down": 120}
    # Only containers are listed: systemd starts a unit at boot if its owner enabled it.
    assert plan["boots"] == [
        {"name": "asr", "port": 8765, "health_path": "/health", "gpus": False, "health_timeout": 120, "stop_timeout": 120},
    ]

    plan = companions.plan([OLLAMA, SPEECH], info([row(OLLAMA), there(SPEECH)]), wanted("cluster", up=False))
    assert plan["up"] == ["ollama"] and plan["stop"] == [{"name": "asr", "unit": "", "container": "gb10-companion-asr"}]
    assert plan["actions"] == ["stop gb10-companion-asr"]


def test_a_companion_as_declared_is_kept_and_a_changed_variable_stops_it_first():
    plan = companions.plan([SPEECH], info([there(SPEECH)]), wanted("singles"))
    assert (plan["why"], plan["stop"], plan["actions"]) == ({}, [], [])
    before = info([there({**SPEECH, "env": {"A": 1}}, container_id="c")], docker={"root_dir": "/var/lib/docker"})
    plan = companions.plan([{**SPEECH, "env": {"A": 2}}], before, wanted("singles"))
    assert plan["why"] == {"asr": "changed: env.A"} and [entry["name"] for entry in plan["stop"]] == ["asr"]
    assert plan["actions"] == ["stop gb10-companion-asr", "start gb10-companion-asr (changed: env.A)"]
    assert plan["logs"] == [{"of": "gb10-companion-asr", "path": "/var/lib/docker/containers/c/c-json.log"}]
    # A companion that has exited needs no stop.
    assert companions.plan([SPEECH], info([there(SPEECH, running=False, state="exited")]), wanted("singles"))["stop"] == []


@pytest.mark.parametrize(("docker", "lacks"), [
    ({"cdi_dirs": ["/etc/cdi"], "cdi_devices": []}, True),
    ({"cdi_dirs": ["/etc/cdi"], "cdi_devices": ["nvidia.com/gpu=all"]}, False),
    ({"cdi_dirs": [], "cdi_devices": []}, False),
])  # fmt: skip
def test_a_gpu_whose_specification_may_be_to_come(docker, lacks):
    companion = {**SPEECH, "gpus": True}
    absent = [there(companion, container="", running=False, state="absent")]
    assert companions.plan([companion], info(absent, docker=docker), wanted("singles"))["lacks_cdi"] is lacks
    assert companions.plan([companion], info([there(companion)], docker=docker), wanted("singles"))["lacks_cdi"] is False


def test_without_a_mode_all_own_ones_end_and_a_stopped_one_is_left():
    rows = [row(OLLAMA), there(SPEECH, running=False), there(SPEECH, name="old", container="gb10-companion-old", declared=False)]
    plan = companions.plan([OLLAMA, SPEECH], info(rows), wanted("", up=False))
    assert plan["up"] == [] and [(entry["name"], entry["unit"]) for entry in plan["stop"]] == [("ollama", "ollama.service"), ("old", "")]


def test_lines_say_what_is_and_what_is_not_as_wanted():
    rows = [row(OLLAMA, gpu_mib=2048), row(SPEECH, unit="", healthy=False, health="status 500"), row(SPEECH, name="old", unit="", declared=False, healthy=None)]
    assert companions.lines([OLLAMA, SPEECH], rows, "cluster") == [
        "ollama (ollama.service): active, answers on port 11434, claims 20 GiB, holds 2.0 GiB",
        "asr (no container): active, does not answer on port 8765 (status 500), claims 4 GiB, holds 0.0 GiB, not as its modes say",
        "old (no container): active, not declared, holds 0.0 GiB, not as its modes say",
    ]


def answers(mode, declared, profile, **changes):
    names = {word: SETTINGS.get(word, "") for word in node_settings.SETTINGS}
    info = node(**changes)
    own = {"api_port": 8000, "ray_port": 6379, "master_port": 29501, "companions": declared, "mode": mode, "profile": profile, "info": info, "tenants": []}
    usual = {"stop_grace": 120, "offline": False, "head_host": "spark-1", "allow": [], "kv_cache": "profile", "memlock": -1}
    return {"spark-1": {**names, **usual, **own}}


def test_a_plan_is_passed_on_only_when_nothing_stops_it():
    companion = {**OLLAMA, "modes": ["off"], "memory_gib": 200}
    given = answers("off", [companion], {}, companions=[row(companion, running=False)])
    assert companions_plan.judge(given, RUN).returns == {}
    silenced = Run(**{**vars(RUN), "silenced": ["companion.claims"]})
    assert companions_plan.judge(given, silenced).returns["nodes"]["spark-1"]["up"] == ["ollama"]


def test_the_mode_off_counts_the_companions_alone():
    companion = {**OLLAMA, "modes": ["off"], "memory_gib": 110}
    fits = companions_plan.judge(answers("off", [companion], {}, companions=[row(companion, running=False)]), RUN)
    assert fits.findings is None and fits.returns["nodes"]["spark-1"]["units"] == ["ollama.service"]

    companion["memory_gib"] = 200
    (finding,) = companions_plan.judge(answers("off", [companion], {}, companions=[row(companion, running=False)]), RUN).findings
    assert (finding["id"], finding["verdict"]) == ("companion.claims", "block") and "companion ollama 200 GiB declared" in finding["message"]


def test_next_to_an_engine_both_count_and_a_stop_judges_nothing():
    many = answers("singles", [{**OLLAMA, "memory_gib": 90}], PROFILE, companions=[row(OLLAMA, running=False)])
    findings = companions_plan.judge(many, RUN).findings
    assert [finding["id"] for finding in findings] == ["plan.fits"] and "others there: companion ollama 90 GiB declared" in findings[0]["message"]
    down = Run(**{**vars(RUN), "settings": {"up": False}})
    assert companions_plan.judge(many, down).findings is None


def test_each_engine_is_judged_with_its_own_nodes_and_a_node_without_one_alone(monkeypatch):
    """A pair and a single are one layout; the fourth node has no engine."""
    judged = []

    def note(evidence, profile, _run):
        judged.append((list(evidence), profile, {node: entry["settings"]["head"] for node, entry in evidence.items()}))
        return []

    monkeypatch.setattr(companions_plan.judging, "judge_companions", note)
    base = answers("mixed", [OLLAMA], PROFILE, companions=[row(OLLAMA)])["spark-1"]
    given = {
        "spark-1": {**base, "cluster": "a.c", "head_host": "spark-1"},
        "spark-2": {**base, "cluster": "b", "head_host": "spark-2"},
        "spark-3": {**base, "cluster": "a.c", "head_host": "spark-1"},
        **{node: {**base, "cluster": "", "head_host": node, "profile": {}} for node in ("spark-4", "spark-5")},
    }
    assert companions_plan.judge(given, RUN).findings is None
    assert judged == [
        (["spark-1", "spark-3"], PROFILE, {"spark-1": True, "spark-3": False}), (["spark-2"], PROFILE, {"spark-2": True}),
        (["spark-4"], None, {"spark-4": True}), (["spark-5"], None, {"spark-5": True}),
    ]  # fmt: skip


def test_what_is_not_seen_is_said():
    blind = answers("off", [OLLAMA], {}, companions=None)
    blind["spark-1"]["info"]["errors"] = [*HEALTHY["errors"], {"section": "companions", "verdict": "unknown", "error": "no answer", "remedy": ""}]
    findings = companions_plan.judge(blind, RUN).findings
    assert [(finding["id"], finding["verdict"]) for finding in findings] == [("companion.seen", "unknown")]


def in_the_way(companion, offline=False, **sections):
    rows = sections.pop("rows", [there(companion, container="", running=False, state="absent")])
    seen = info(rows, **sections)
    why = companions.plan([companion], seen, wanted("singles"))["why"]
    answer = {"companions": [companion], "mode": "singles", "offline": offline, "info": seen}
    return [(finding["id"], finding["message"]) for finding in companions_plan.in_the_way("spark-1", answer, why)]


def test_others_on_its_port_keep_it_from_being_started():
    held = {"port": 8765, "address": "0.0.0.0", "pid": 7, "process": "python3", "cmdline": "", "since": "then", "container": "", "command": ""}
    assert in_the_way(SPEECH, listeners=[held]) == [("companion.port", "port 8765 of the companion asr is taken by python3 (pid 7) since then")]
    own = {**held, "container": "gb10-companion-asr"}
    changed = {**SPEECH, "env": {"A": 1}}
    assert in_the_way(changed, listeners=[own], rows=[there(SPEECH)]) == []
    assert in_the_way(changed, listeners=[{**own, "container": "web"}], rows=[there(SPEECH)])[0][0] == "companion.port"
    # A companion that runs as declared is not started again.
    assert in_the_way(SPEECH, listeners=[held], rows=[there(SPEECH)]) == []


def test_an_image_that_is_not_pulled_has_to_be_there():
    assert in_the_way(SPEECH, images={SPEECH["image"]: None}) == []
    (reason,) = in_the_way(SPEECH, offline=True, images={SPEECH["image"]: None})
    assert reason == ("companion.image", f"image {SPEECH['image']} of the companion asr is not on spark-1")
    assert in_the_way({**SPEECH, "image": ID}, images={ID: None})[0][0] == "companion.image"
    assert in_the_way({**SPEECH, "image": ID}, images={ID: {"id": ID}}) == []


def test_no_container_of_others_is_replaced():
    (reason,) = in_the_way(SPEECH, rows=[there(SPEECH, container="", running=False, state="foreign")])
    assert reason == ("companion.container", "gb10-companion-asr cannot be created: a container that is not ours has that name")
    (reason,) = in_the_way(SPEECH, rows=[there(SPEECH, container="asr-old")])
    assert reason == ("companion.container", "gb10-companion-asr cannot be created: companion asr already has the container asr-old")


def report(rows, awaited, check_mode=False, **plan):
    answer = {"companions": [OLLAMA, SPEECH], "mode": "singles", "stop_grace": 3, "now": {"companions": rows}}
    answer["plan"] = {"nodes": {"spark-1": {"up": ["ollama", "asr"], "stop": [], "actions": ["start ollama.service"], **plan}}}
    return companions.judge({"spark-1": answer}, Run(**{**vars(RUN), "settings": {"awaited": awaited}, "check_mode": check_mode}))


def test_the_report_has_what_was_done():
    outcome = report([row(OLLAMA)], "up")
    assert outcome.stats["gb10_companions_report"]["nodes"]["spark-1"]["actions"] == ["start ollama.service"] and outcome.findings is None
    assert "  spark-1: ollama (ollama.service): active" in outcome.lines[1]
    assert "fields" not in outcome.stats["gb10_companions_report"]["nodes"]["spark-1"]["companions"][0]
    looked = companions.judge({"spark-1": {"companions": [OLLAMA], "mode": "cluster", "now": {"companions": [row(OLLAMA)]}, "plan": None, "stop_grace": 3}},
                              Run(**{**vars(RUN), "settings": {"awaited": ""}}))  # fmt: skip
    assert looked.stats["gb10_companions_report"]["nodes"]["spark-1"]["actions"] == []


def test_one_that_does_not_come_up_fails_with_the_end_of_its_log():
    rows = [row(OLLAMA, running=False, state="failed", healthy=None, log="first\nlast"), there(SPEECH, healthy=False, health="status 503")]
    outcome = report(rows, "up")
    assert [(finding["id"], finding["message"]) for finding in outcome.findings] == [
        ("companion.runs", "companion ollama on spark-1 ended: it is failed"),
        ("companion.healthy", "companion asr on spark-1 is not healthy after 120 s: GET http://127.0.0.1:8765/health: status 503"),
    ]
    assert "  spark-1: ollama: last" in outcome.lines and outcome.stats["gb10_verdict"] == "block"
    assert report(rows, "up", check_mode=True).findings is None and report(rows, "").findings is None


def test_one_that_does_not_end_is_reported_and_the_way_to_kill_it():
    stop = [{"name": "asr", "unit": "", "container": "gb10-companion-asr"}]
    (finding,) = report([row(OLLAMA), there(SPEECH)], "down", stop=stop).findings
    assert finding["message"] == "companion asr on spark-1 got its stop signal and still runs after 3 s; it was not killed"
    assert "gb10_allow=kill_companions" in finding["remedy"] and "docker kill gb10-companion-asr" in finding["remedy"]
    (finding,) = report([row(OLLAMA)], "down", stop=[{"name": "ollama", "unit": "ollama.service", "container": ""}]).findings
    assert "systemctl kill --signal=SIGKILL ollama.service" in finding["remedy"] and "gb10_allow" not in finding["remedy"]
    assert report([there(SPEECH, running=False)], "down", stop=stop).findings is None


def test_teardown_names_the_companions_that_remain():
    assert companions.remaining({"spark-1": [row(OLLAMA)], "spark-2": []}) == ["Companions stay as they are: ollama on spark-1."]
    assert companions.remaining({"spark-1": [row(OLLAMA, running=False)]}) == []
