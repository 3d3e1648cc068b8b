# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines that the kernels of real Sparks wrote: the verdicts of the rules match what the owners saw."""

from __future__ import annotations

import pytest
import yaml
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.module_utils._gpu import zombie_verdicts
from ansible_collections.gb10.cluster.plugins.module_utils._host import kernel_log
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging, rule_table

FIELD = Path(__file__).resolve().parents[3] / "fixtures" / "field"

ITEMS = yaml.safe_load((FIELD / "kernel_log.yml").read_text())
VARIANTS = yaml.safe_load((FIELD / "kernel_variants.yml").read_text())
RULES = [rule for rule in rule_table.shipped() if rule.evidence == ("kernel_log", "kernel_log.events")]
NEEDS = {"cluster": "gb10", "ports": {}, "silenced": [], "rules": {}, "profile_rules": {}, "stages": []}
VERDICTS = {"harmless": "pass", "trouble": "warn", "fatal": "block"}
ORDER = ("pass", "warn", "unknown", "block")


def findings(lines):
    """The findings of the rules and of the search for the driver's failed allocations, for a node whose kernel wrote these lines."""
    events = kernel_log.parse_log(lines).events()
    node = judging.Node("spark-1", {"kernel_log": {"events": events}, "containers": [], "errors": []}, {"findings": []}, NEEDS)
    judge = judging.Judge([node], RULES)
    judge.run()
    failed = [event for event in events if event["kind"] == "nv_no_memory"]
    log = {"error": "", "failures": sum(event["count"] for event in failed), "events": failed, "source": "kernel log"}
    return [*judge.findings, *zombie_verdicts.judge_log(log, {"leak": "none"}, "spark-1")]


def verdict(lines):
    return max((finding["verdict"] for finding in findings(lines)), key=ORDER.index, default="pass")


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item["id"])
def test_recorded_lines_are_judged_as_their_owners_met_them(item):
    assert verdict(item["lines"]) == VERDICTS[item["judge"]], findings(item["lines"])


@pytest.mark.parametrize("item", VARIANTS, ids=[f"{number}-{item['judge']}" for number, item in enumerate(VARIANTS)])
def test_other_words_for_the_same_are_judged_alike(item):
    assert verdict(item["lines"]) == VERDICTS[item["judge"]], findings(item["lines"])


@pytest.mark.parametrize(
    "head",
    [
        "Nov 22 22:10:00.123456 spark-a vllm[812]: ",
        "Sun 2026-11-22 22:10:00 UTC spark-a vllm[812]: ",
        "2026-11-22T22:10:00+0000 spark-a vllm[812]: ",
        "[ 5012.123456] spark-a vllm[812]: ",
        "user  :notice: [ 5012.123456] ",
    ],
)
def test_what_a_program_quotes_is_not_the_kernels(head):
    assert verdict(f"{head}NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus.") == "pass"


def test_the_corpus_and_the_rules_are_whole():
    assert len(ITEMS) == 22 and len(RULES) == len([rule for rule in rule_table.shipped() if rule.id.startswith("log.")])
