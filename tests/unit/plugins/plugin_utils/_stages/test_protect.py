# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is said of the protection of all nodes, and that the page has the table that the code has."""

from __future__ import annotations

import datetime
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._protect import measures, plan
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import protect
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Outcome, Run

PAGE = Path(__file__).resolve().parents[5] / "docs" / "protect.md"


def judged(findings: list[dict[str, t.Any]], actions: list[str], *, revert: t.Any = False, check_mode: bool = False) -> Outcome:
    journal = {"path": "/var/lib/gb10/protection.json", "measures": ["swap"], "changes": len(actions), "error": ""}
    answer = {"msg": f"{len(actions)} change(s) made", "changed": bool(actions), "actions": actions, "findings": findings, "journal": journal}
    run = Run({"revert": revert}, [], "", [], [], datetime.datetime.now(datetime.timezone.utc), check_mode)
    return protect.judge({"spark-1": {"protected": answer}}, run)


def one(verdict: str) -> dict[str, t.Any]:
    return {"id": "protect.swap", "node": "its-own-name", "verdict": verdict, "message": "m", "measured": 60, "needed": 1, "remedy": "r", "source": "s"}


def test_the_page_has_the_measures_with_their_reasons_and_sources() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "\n".join(protect.page()).strip() in text
    assert all(figure.source and figure.why for measure in measures.MEASURES for figure in measure.figures)
    assert {f"protect.{id}" for id in measures.BY_ID} == set(plan.IDS)


def test_what_was_done_and_how_it_comes_back_is_said() -> None:
    outcome = judged([one("pass")], ["write /etc/x"])
    assert outcome.lines == [
        "spark-1: 1 change(s) made; 1 change(s) in /var/lib/gb10/protection.json, -e gb10_protect=revert takes them back", "  write /etc/x",
    ]  # fmt: skip
    assert outcome.findings and outcome.findings[0]["node"] == "spark-1" and outcome.stats["gb10_verdict"] == "pass"
    assert judged([], ["write /etc/x"], check_mode=True).lines[1] == "  would write /etc/x"


@pytest.mark.parametrize(("verdict", "told"), [("pass", False), ("warn", True), ("unknown", True)])
def test_what_is_left_has_its_reason(verdict: str, told: bool) -> None:
    outcome = judged([one(verdict)], [])
    assert (f"swap: {measures.BY_ID['swap'].reason}" in outcome.lines) is told
    assert outcome.stats["gb10_verdict"] == verdict


def test_one_line_says_what_protects_a_node() -> None:
    kept = {"path": "/p", "measures": ["holds", "swap"], "changes": 3, "error": ""}
    assert protect.text(kept) == "protected: holds, swap (3 change(s), -e gb10_protect=revert takes them back)"
    assert protect.text({**kept, "changes": 0}) == protect.text({}) == ""
    assert protect.text({**kept, "changes": None, "error": "cannot be read"}) == "protection: not known: cannot be read"


def test_a_revert_without_findings_shows_no_table() -> None:
    outcome = judged([], ["remove /etc/x"], revert=True)
    assert outcome.findings is None and outcome.title == "Taken back" and outcome.stats["gb10_protection"]["reverted"] is True
