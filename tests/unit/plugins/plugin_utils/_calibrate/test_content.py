# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From answers to archive members: pseudonyms change no verdict, and a node can only send its own files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from healthy_pair import PROFILE, RUN, asked, node, second

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.plugin_utils._calibrate import content, replay
from ansible_collections.gb10.cluster.plugins.plugin_utils._calibrate.anonymize import Names

sys.path.insert(0, str(Path(__file__).parents[5] / "tests" / "tools"))

import field_check  # noqa: E402

NAMES = Names(nodes=(("quiet-left",), ("quiet-right",)), users=("jenny",), addresses=("192.168.100.11", "192.168.100.12"), secrets={"k": "Planted0Secret0"})
TO_REAL = {"node-1": "quiet-left", "node-2": "quiet-right"}


def members(first=None, other=None, **texts):
    """Return the archive content of a pair that the preflight judged, and the verdicts on the original answers."""
    evidence = {
        "nodes": ["quiet-left", "quiet-right"],
        "profile": PROFILE,
        "run": RUN,
        "preflight": {"quiet-left": first or asked(), "quiet-right": other or second()},
    }
    live = field_check.verdicts_of(replay.records(evidence)["preflight"])
    return content.content({replay.ASKED: evidence, replay.RECORDS: replay.records(evidence), **texts}, {}, NAMES), live


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"memory__swap_free_mb": 100},
        {"fabric__0__carrier": False},
        {"fabric__1__networks": [{"address": "192.168.100.13", "network": "192.168.100.0/24", "family": "ipv4", "scope": "global", "prefix": 24}]},
        {"docker__nvidia": "none"},
        {"kernel__release": "6.17.0-1008-nvidia"},
    ],
    ids=str,
)
def test_pseudonyms_change_no_verdict(changes):
    made, live = members(asked(node(**changes)))
    again = field_check.of_rules(replay.records(json.loads(made.texts[replay.ASKED])))["preflight"]
    assert {rule: {TO_REAL.get(name, name): verdict for name, verdict in cells.items()} for rule, cells in again.items()} == live
    assert field_check.compared(made) == []
    assert not [text for text in made.texts.values() if "quiet-" in text or "192.168.100." in text]


def test_an_engine_s_log_has_its_signatures_and_stages():
    log = "(EngineCore pid=9) ERROR 11-22 10:00:00 [core.py:1] torch.OutOfMemoryError: CUDA out of memory on quiet-right\n"
    made, _live = members(**{"quiet-left/logs/now/engine.log": log})
    summary = json.loads(made.texts[replay.VERDICTS])["signatures"]["node-1/logs/now/engine.log"]
    assert summary["fatal"] == "memory-out" and summary["first_error"].endswith("on node-2")


def test_figures_after_the_name_of_a_secret_stay_and_secrets_go():
    made, _live = members(**{"quiet-left/answers/engine.json": {"first_token": 12.5, "api_token": "Planted0Secret0", "argv": ["--api-key", "other"]}})
    kept = json.loads(made.texts["node-1/answers/engine.json"])
    assert kept["first_token"] == 12.5 and "Planted" not in json.dumps(kept) and "other" not in json.dumps(kept)


@pytest.mark.parametrize(("tags", "parts"), [(["all"], ["driver", "cluster"]), (["driver"], ["driver"]), (["cluster"], ["cluster"])])
def test_the_plan_names_what_its_tags_take(tags, parts):
    lines = content.plan(tags, "")
    assert [line.partition(":")[0] for line in lines if line.partition(":")[0] in content.PARTS] == parts
    assert "gb10_to=FILE" in lines[-1]


def sent(*files):
    """Return the answers of one node; its recorder sends these files."""
    return {"quiet-left": {**dict.fromkeys(content.READS), "recorded": {"msg": "", "texts": {"files": list(files), "errors": [], "hostname": ""}}}}


def test_a_nodes_files_are_below_its_name():
    texts, links = content.collected(
        sent({"name": "sys/a/../b", "text": "x"}, {"name": "d.json", "text": "[1]"}, {"name": "sys/l", "link": "b"}), {}, {}, {}
    )
    assert texts["quiet-left/sys/b"] == "x" and texts["quiet-left/d.json"] == [1] and links == {"quiet-left/sys/l": "b"}


@pytest.mark.parametrize(
    "file",
    [
        {"name": "../quiet-right/answers/info.json", "text": "{}"},
        {"name": "../records.json", "text": "{}"},
        {"name": "/etc/x", "text": ""},
        {"name": "..", "link": "a"},
        {"name": "a/../..", "text": ""},
        {"name": "a\0b", "text": ""},
        {"name": "docker/info.json", "text": "no JSON"},
        {"name": "docker/info.json", "text": "[" * 100000},
    ],
    ids=lambda file: str(file)[:60],
)
def test_a_node_that_sends_another_s_file_or_no_json_is_named(file):
    with pytest.raises(UnknownState) as caught:
        content.collected(sent({"name": "a", "text": "x"}, file), {}, {}, {})
    assert str(caught.value).startswith("quiet-left") and caught.value.remedy
