# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An answer to a long prompt may take longer than others."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible_collections.gb10.cluster.plugins.modules import engine_questions


@pytest.mark.parametrize(("questions", "given", "seconds"), [("known_answers", None, 600), ("long_prompt", None, 3600), ("long_prompt", 5, 5)])
def test_the_seconds_for_an_answer(monkeypatch: pytest.MonkeyPatch, questions: str, given: int | None, seconds: int) -> None:
    def ask(module: t.Any) -> dict[str, t.Any]:
        return {"timeout": module.params["timeout"]}

    monkeypatch.setitem(engine_questions.QUESTIONS, questions, (ask, engine_questions.QUESTIONS[questions][1]))
    assert engine_questions.work(types.SimpleNamespace(params={"questions": questions, "timeout": given})) == {"timeout": seconds}
