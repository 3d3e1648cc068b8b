# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role abort makes of what it knows: an engine that served before the play is only stopped by who knows that it ended."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

ROOT = Path(__file__).resolve().parents[2]

OLD, NEW, NONE, UNKNOWN = ({"engine": {"live": True, "run_id": "old"}}, {"engine": {"live": True, "run_id": "new"}}, {"engine": {"live": False, "run_id": ""}}, {})  # fmt: skip


def lines(before: dict[str, t.Any] | None, now: dict[str, t.Any] | None, *, check_mode: bool = False, memory: dict[str, t.Any] | None = None) -> tuple[bool, str]:
    """Return whether the role leaves everything alone, and what it says. None: the question was never asked."""
    loader = DataLoader()
    on_head = {} if now is None else {"__abort_after": now}
    variables = {
        **loader.load_from_file(str(ROOT / "roles/abort/vars/main.yml"), trusted_as_template=True),
        **({} if before is None else {"__abort_before": before}),
        "hostvars": {"spark-1": {**on_head, "__abort_logs": {"files": []}}, "spark-2": {"__abort_logs": {"files": []}, "__abort_memory": memory or {}}},
        "__gb10_nodes": ["spark-1", "spark-2"],
        "__abort_reasons": ["spark-2: it broke."],
        "__abort_dir": "/logs",
        "ansible_check_mode": check_mode,
        "gb10_cluster_name": "gb10",
        "gb10_head_host": "spark-1",
    }
    templar = Templar(loader=loader, variables=variables)
    return templar.template(variables["__abort_kept"]), "\n".join(filter(None, templar.template(variables["__abort_lines"])))


@pytest.mark.parametrize(
    ("before", "now", "kept", "said"),
    [
        (OLD, OLD, True, "The engine that served before this play was left alone."),
        (OLD, NEW, False, "are stopped; the next run replaces them"),
        (OLD, NONE, False, "are stopped; the next run replaces them"),
        (OLD, UNKNOWN, True, "still serves could not be told, so nothing was stopped. Remedy: See that spark-1 and its Docker answer"),
        (OLD, None, True, "still serves could not be told, so nothing was stopped."),
        (NONE, NEW, False, "are stopped; the next run replaces them"),
        (NONE, UNKNOWN, False, "are stopped; the next run replaces them"),
        ({"unreachable": True, "msg": "no route"}, UNKNOWN, True, "Whether an engine served before this play could not be told, so nothing was stopped."),
        (None, NONE, True, "Whether an engine served before this play could not be told, so nothing was stopped."),
    ],
)
def test_what_may_be_somebody_elses_is_left_alone(before, now, kept, said):
    told = lines(before, now)
    assert told[0] is kept and said in told[1]


def test_check_mode_claims_nothing():
    assert "Check mode started nothing, and stops nothing." in lines(NONE, NONE, check_mode=True)[1]


def test_memory_that_did_not_come_back_is_told_with_its_remedy():
    memory = {"verdict": "warn", "msg": "33100 MiB have not come back", "remedy": "See what holds it."}
    assert "spark-2: 33100 MiB have not come back Remedy: See what holds it." in lines(NONE, NONE, memory=memory)[1]
    assert "MiB" not in lines(NONE, NONE, memory={**memory, "verdict": "pass"})[1]
