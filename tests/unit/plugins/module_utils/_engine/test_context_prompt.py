# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A prompt that fills the context, sent to a scripted engine."""

from __future__ import annotations

import types

import pytest
import scripted_engine
from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state, long_prompt, questions
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._engine import context_prompt as module
from scripted_engine import Reply

RUN = "20261123T101500Z-3f1c"


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """A live engine whose API is a scripted one, which counts a token for each word; ``ask`` calls the module."""
    state = {"live": True, "run_id": RUN, "api_address": "127.0.0.1", "api_port": 0}
    monkeypatch.setattr(engine_state, "engine_state", lambda _paths: state)

    def ask(reply=scripted_engine.sound, *, check_mode=False, serves=4096, **params):
        options = {
            "cluster_name": "gb10", "state_dir": str(tmp_path), "log_dir": str(tmp_path), "model": None, "api_key_file": None, "context": 4096,
            "percent": 90, "max_tokens": 64, "check_answer": True, "timeout": 10,
        }  # fmt: skip
        with scripted_engine.serving(reply, serves, counts=True) as (state["api_port"], requests):
            result = module.work(types.SimpleNamespace(params={**options, **params}, check_mode=check_mode))
        return {**result, "questions": requests, "verdict": result["findings"][0]["verdict"] if result["findings"] else ""}

    return types.SimpleNamespace(ask=ask, state=state)


def test_the_prompt_has_ninety_percent_by_the_engines_own_count(engine):
    result = engine.ask()
    assert result["verdict"] == "pass" and result["wanted_tokens"] == 3686
    assert 0.98 * 3686 <= result["counted_tokens"] <= 3686 and result["prompt_tokens"] == result["counted_tokens"]
    assert result["questions"][-1]["max_tokens"] == 64


def test_the_answer_gets_no_more_than_the_context_leaves(engine):
    result = engine.ask(max_tokens=100000)
    assert result["questions"][-1]["max_tokens"] == 4096 - result["counted_tokens"] - long_prompt.LEAST_ANSWER


@pytest.mark.parametrize(
    ("reply", "verdict", "words"),
    [
        (400, "block", "HTTP 400"),
        (500, "block", "HTTP 500"),
        (lambda body: Reply("amber-1"), "block", "is not in it"),
        (lambda body: Reply("!" * 200), "block", "repeats"),
        (lambda body: Reply("amber-1", finish_reason="length"), "warn", "cut off"),
    ],
)
def test_a_wrong_answer_is_reported(engine, reply, verdict, words):
    result = engine.ask(reply if callable(reply) else lambda body: reply)
    assert result["verdict"] == verdict and words in result["findings"][0]["message"]


def test_an_engine_that_learnt_nothing_only_has_to_answer(engine):
    assert engine.ask(lambda body: Reply("!" * 200), check_answer=False)["verdict"] == "pass"


def test_an_engine_that_serves_another_length_is_another_one(engine):
    result = engine.ask(serves=2048)
    assert result["verdict"] == "block" and "serves 2048 tokens instead of 4096" in result["msg"]


def test_an_engine_that_does_not_count_is_unknown(engine):
    with scripted_engine.serving(scripted_engine.sound, 4096) as (port, _requests):
        api = questions.Engine(f"http://127.0.0.1:{port}", "lab/tiny", "", 4096, 90, 64, 1)
        with pytest.raises(UnknownState, match="does not count"):
            long_prompt.count(api, "some words")


def test_no_engine_is_not_an_answer(engine):
    engine.state["live"] = False
    assert engine.ask()["verdict"] == "block"


def test_check_mode_asks_nothing(engine):
    result = engine.ask(check_mode=True)
    assert result["questions"] == [] and result["findings"] == []


def test_numbers_out_of_their_range_are_refused(engine):
    with pytest.raises(ClusterError, match="percent is 96"):
        engine.ask(percent=96)


#: The lab's tokenizer has 512 pieces: it counted 959 tokens for 1275 characters. A line is about 34 tokens.
@pytest.mark.parametrize(("wanted", "letters"), [(20000, 1), (20000, 2), (20000, 3), (20000, 4), (20000, 7), (921, 1.33), (460, 1.33), (943718, 4.1)])
def test_a_text_is_fitted_to_any_tokenizer(wanted, letters):
    text, code, tokens = long_prompt.fitted("seed", wanted, lambda text: 30 + int(len(text) / letters))
    assert 0.98 * wanted <= tokens <= wanted and text.count(code) == 1


def test_counts_that_make_no_sense_end():
    with pytest.raises(UnknownState, match="no text of 1000 tokens"):
        long_prompt.fitted("seed", 1000, lambda _text: 5)


def test_a_read_prompt_that_was_cut_is_a_bad_sign():
    message = questions.Message("x", "", [], "stop", 1000, 5)
    assert long_prompt.judged(message, None, 3686) == ("block", "the engine read 1000 tokens of a prompt of 3686")
    assert long_prompt.judged(message._replace(prompt_tokens=3686, tokens=0), None, 3686)[0] == "block"
