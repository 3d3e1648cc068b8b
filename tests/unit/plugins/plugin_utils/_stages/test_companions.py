# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime

from healthy_pair import HEALTHY, PROFILE, SETTINGS, node

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import node_settings
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import companions, companions_plan
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Run

ID = "sha256:" + "a" * 64
OLLAMA = {"name": "ollama", "unit": "ollama.service", "port": 11434, "health_path": "/api/tags", "memory_gib": 20}
SPEECH = {"name": "asr", "image": f"someone/parakeet@{ID}", "port": 8765, "health_path": "/health", "memory_gib": 4, "modes": ["singles"]}
RUN = Run({"up": True}, [], "", ["all"], [], datetime.datetime(2026, 11, 24, tzinfo=datetime.timezone.utc), False)


def row(one, **changes):
    there = {
        "name": one["name"], "kind": "unit", "declared": True, "container": "", "container_id": "", "unit": one.get("unit", ""), "state": "active",
        "running": True, "port": one["port"], "health_path": one["health_path"], "healthy": True, "health": "status 200", "pids": [],
        "gpu_mib": 0, "anon_mb": 0,
    }  # fmt: skip
    return {**there, **changes}


def test_what_leads_to_a_mode():
    found = companions.plan([OLLAMA, SPEECH], [row(OLLAMA), row(SPEECH, running=False)], {SPEECH["image"]: None}, "singles")
    assert [one["name"] for one in found["start"]] == ["ollama", "asr"] and found["pull"] == [SPEECH["image"]] and found["stop"] == []
    assert "memory_gib" not in found["start"][0] and "modes" not in found["start"][0] and "image" not in found["start"][0]

    found = companions.plan([OLLAMA, SPEECH], [row(OLLAMA), row(SPEECH, unit="")], {}, "cluster")
    assert [one["name"] for one in found["start"]] == ["ollama"] and found["stop"] == [{"name": "asr", "unit": ""}]


def test_without_a_mode_all_of_ours_end_and_a_stopped_one_is_left():
    rows = [row(OLLAMA), row(SPEECH, unit="", running=False), row(SPEECH, name="old", unit="", declared=False)]
    found = companions.plan([OLLAMA, SPEECH], rows, {}, "")
    assert found["start"] == [] and found["stop"] == [{"name": "ollama", "unit": "ollama.service"}, {"name": "old", "unit": ""}]


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
    return {"spark-1": {**names, "head_host": "spark-1", "allow_restart": False, "kv_cache": "profile", "disk_gib": 20, "memlock": -1, **own}}


def test_the_mode_off_counts_the_companions_alone():
    one = {**OLLAMA, "modes": ["off"], "memory_gib": 110}
    fits = companions_plan.judge(answers("off", [one], {}, companions=[row(one, running=False)]), RUN)
    assert fits.findings is None and [start["name"] for start in fits.returns["nodes"]["spark-1"]["start"]] == ["ollama"]

    one["memory_gib"] = 200
    (found,) = companions_plan.judge(answers("off", [one], {}, companions=[row(one, running=False)]), RUN).findings
    assert (found["id"], found["verdict"]) == ("companion.claims", "block") and "companion ollama 200 GiB declared" in found["message"]


def test_beside_an_engine_both_count_and_nothing_is_judged_when_they_only_end():
    many = answers("singles", [{**OLLAMA, "memory_gib": 90}], PROFILE, companions=[row(OLLAMA, running=False)])
    found = companions_plan.judge(many, RUN).findings
    assert [one["id"] for one in found] == ["plan.fits"] and "others there: companion ollama 90 GiB declared" in found[0]["message"]
    down = Run(**{**vars(RUN), "settings": {"up": False}})
    assert companions_plan.judge(many, down).findings is None


def test_what_is_not_seen_is_said():
    blind = answers("off", [OLLAMA], {}, companions=None)
    blind["spark-1"]["info"]["errors"] = [*HEALTHY["errors"], {"section": "companions", "verdict": "unknown", "error": "no answer", "remedy": ""}]
    found = companions_plan.judge(blind, RUN).findings
    assert [(one["id"], one["verdict"]) for one in found] == [("companion.seen", "unknown")]


def test_the_report_has_what_was_done():
    told = {"companions": [OLLAMA], "mode": "cluster", "now": {"companions": [row(OLLAMA)]}, "done": {"results": [{"actions": ["start ollama.service"]}]}}
    found = companions.judge({"spark-1": told}, RUN)
    assert found.stats["gb10_companions_report"]["nodes"]["spark-1"]["actions"] == ["start ollama.service"]
    assert "  spark-1: ollama (ollama.service): active" in found.lines[1]


def test_teardown_says_who_stays():
    assert companions.stays({"spark-1": [row(OLLAMA)], "spark-2": []}) == ["Companions stay as they are: ollama on spark-1."]
    assert companions.stays({"spark-1": [row(OLLAMA, running=False)]}) == []
