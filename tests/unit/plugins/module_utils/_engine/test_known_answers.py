# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Questions with known answers, sent to a scripted engine that is sound or misbehaves in one way."""

from __future__ import annotations

import json
import types

import pytest
import scripted_engine
from scripted_engine import Reply

from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state, questions
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._engine import known_answers as module

ALL = list(questions.CHECKS)
RUN, OTHER_RUN = "20261122T101500Z-3f1c", "20261122T112000Z-77aa"


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node with a live engine whose API is a scripted one; ``ask`` calls the module."""
    state = {"live": True, "run_id": RUN, "api_address": "127.0.0.1", "api_port": 0}
    monkeypatch.setattr(engine_state, "engine_state", lambda _paths: state)
    (tmp_path / "gb10").mkdir()

    def ask(reply, *, check_mode=False, context=32768, **params):
        options = {
            "cluster_name": "gb10", "state_dir": str(tmp_path), "log_dir": str(tmp_path), "checks": ALL, "model": None, "api_key_file": None,
            "needle_percent": 2, "max_tokens": 4096, "timeout": 10, "again": False,
        }  # fmt: skip
        with scripted_engine.serving(reply, context) as (state["api_port"], requests):
            result = module.work(types.SimpleNamespace(params={**options, **params}, check_mode=check_mode))
        return {**result, "questions": requests, "verdicts": {answer["check"]: answer["verdict"] for answer in result["results"]}}

    return types.SimpleNamespace(ask=ask, state=state, kept=tmp_path / "gb10/answers.json")


@pytest.mark.parametrize("run", range(10))
def test_a_sound_engine_passes_everything(node, run):
    node.state["run_id"] = f"20261122T10150{run}-3f1c"
    result = node.ask(scripted_engine.sound)
    assert set(result["verdicts"].values()) == {"pass"}
    assert [finding["id"] for finding in result["findings"]] == list(questions.IDS)


def on(marker, wrong):
    """An engine that is sound except for questions that contain ``marker``."""
    return lambda body: wrong if marker in json.dumps(body) else scripted_engine.sound(body)


def call(arguments):
    return Reply(tool_calls=({"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}},))


MISBEHAVIOURS = {
    "a wrong sum": ("arithmetic", on(" + ", Reply("1000000")), "is not in it"),
    "a line with one letter changed": ("echo", on("Repeat the", Reply("amber-100 birch-200")), "another text"),
    "a wrong needle": ("needle", on("log of a store", Reply("amber-1")), "is not in it"),
    "exclamation marks": ("coherence", on("sky", Reply("!" * 200)), "repeats '!' 200 times"),
    "one word again and again": ("coherence", on("sky", Reply("The sky " + "blue light " * 40)), "repeats"),
    "no text": ("coherence", on("sky", Reply("The light \ufffd\ufffd is blue")), "U+FFFD"),
    "control characters": ("coherence", on("sky", Reply("The light \x00 is blue")), "control character"),
    "another language": ("coherence", on("sky", Reply(scripted_engine.SKY[:130] + "天空看起来是蓝色的因为阳光在穿过大气时被空气分子散射而蓝光比红光散射得多" * 4)), "not English"),
    "a word salad": ("coherence", on("sky", Reply(" ".join(f"{word}{n}" for n in range(9) for word in ("tree", "stone", "river")))), "something else"),
    "another topic": ("coherence", on("sky", Reply("A bicycle has two wheels and a frame. " + "It is ridden by many people in towns. " * 2)), "something else"),
    "an empty answer": ("coherence", on("sky", Reply("")), "0 words"),
    "thinking in the answer": ("reasoning_split", on("weeks", Reply("<think>7 days</think> 21")), "<think>"),
    "no thinking": ("reasoning_split", on("weeks", Reply("21")), "no separate thinking"),
    "garbage in the thinking": ("reasoning_split", on("weeks", Reply("21", reasoning="day and " * 60)), "in the thinking"),
    "a call that stays text": ("tool_call", on("tools", Reply('<tool_call>{"name": "get_weather"}</tool_call>')), "stayed text"),
    "no call": ("tool_call", on("tools", Reply("It is sunny in Paris.")), "no tool was called"),
    "broken arguments": ("tool_call", on("tools", call('{"city": "Par')), "the arguments of the call"),
    "another city": ("tool_call", on("tools", call('{"city": "Rome"}')), "the city is 'Rome'"),
    "no JSON": ("structured_output", on("response_format", Reply("Paris.")), "not JSON"),
    "JSON by another schema": ("structured_output", on("response_format", Reply('{"capital": "Paris"}')), "schema"),
    "a refusal": ("tool_call", on("tools", 400), "HTTP 400"),
}


@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_each_misbehaviour_is_found_by_its_own_check(node, name):
    check, reply, why = MISBEHAVIOURS[name]
    result = node.ask(reply)
    assert {check_id: verdict for check_id, verdict in result["verdicts"].items() if verdict != "pass"} == {check: "block"}
    finding = next(finding for finding in result["findings"] if finding["id"] == f"answers.{check}")
    assert why in finding["message"] and repr(finding["needed"]) in finding["message"] and repr(finding["measured"]) in finding["message"]
    assert "left running" in finding["remedy"]


def test_an_answer_that_is_cut_off_warns(node):
    result = node.ask(on("weeks", Reply("", finish_reason="length")))
    assert result["verdicts"]["reasoning_split"] == "warn"
    assert next(finding["remedy"] for finding in result["findings"] if finding["verdict"] == "warn")


def test_a_run_is_asked_once_and_another_one_again(node):
    wrong = node.ask(on(" + ", Reply("0")))
    kept = node.ask(scripted_engine.sound)
    assert not kept["questions"] and kept["asked"] == [] and kept["results"] == wrong["results"]
    assert node.ask(scripted_engine.sound, again=True)["verdicts"]["arithmetic"] == "pass"
    node.state["run_id"] = OTHER_RUN
    assert node.ask(scripted_engine.sound)["asked"] == ALL


def test_only_what_was_not_asked_yet_is_asked(node):
    node.ask(scripted_engine.sound, checks=["echo"])
    assert node.ask(scripted_engine.sound, checks=["echo", "arithmetic"])["asked"] == ["arithmetic"]


def test_a_question_without_an_answer_is_unknown_and_asked_again(node):
    assert node.ask(on(" + ", 503), checks=["arithmetic"])["verdicts"] == {"arithmetic": "unknown"}
    assert node.ask(scripted_engine.sound, checks=["arithmetic"])["verdicts"] == {"arithmetic": "pass"}


def test_thinking_before_the_answer_is_not_the_answer(node):
    def reply(body):
        sound = scripted_engine.sound(body)
        return sound._replace(content=f"<think>1000 or 2000?</think>\n{sound.content}") if sound.content else sound

    assert {check: verdict for check, verdict in node.ask(reply)["verdicts"].items() if verdict != "pass"} == {"reasoning_split": "block"}


def test_rubbish_is_unknown():
    assert questions.parse_message(b'{"choices": []}') is None
    assert questions.parse_message(b"\xff") is None
    assert questions.parse_message(b"[" * 100_000) is None


def test_check_mode_asks_nothing_and_keeps_nothing(node):
    result = node.ask(scripted_engine.sound, check_mode=True)
    assert result["results"] == [] and not result["questions"] and not node.kept.exists()


def test_no_engine_is_asked_nothing(node):
    node.state["live"] = False
    assert node.ask(scripted_engine.sound)["msg"] == "no live engine"


def test_a_rubbish_record_counts_as_none(node):
    node.kept.write_text(json.dumps({"run_id": RUN, "results": []}))
    assert node.ask(scripted_engine.sound, checks=["echo"])["asked"] == ["echo"]


def test_the_needle_fills_its_share_of_the_context(node):
    text = node.ask(scripted_engine.sound, checks=["needle"], context=100_000, needle_percent=50)["questions"][0]["messages"][0]["content"]
    assert 150_000 <= len(text) < 160_000
    assert 0.35 < text.index("the code of the safe is") / len(text) < 0.45


def test_an_answer_leaves_room_for_its_question(node):
    assert node.ask(scripted_engine.sound, checks=["echo"], context=512)["questions"][0]["max_tokens"] == 256


def test_the_same_run_is_asked_the_same_and_another_run_something_else(node):
    first, again, other = (node.ask(scripted_engine.sound, checks=["arithmetic"], again=True) for _time in range(3))
    assert first["questions"] == again["questions"] == other["questions"]
    node.state["run_id"] = OTHER_RUN
    assert node.ask(scripted_engine.sound, checks=["arithmetic"])["questions"] != first["questions"]


@pytest.mark.parametrize(("option", "value"), [("needle_percent", 0), ("needle_percent", 91), ("max_tokens", 0), ("timeout", 0)])
def test_a_number_out_of_range_is_refused(node, option, value):
    with pytest.raises(ClusterError, match=option):
        node.ask(scripted_engine.sound, **{option: value})


def test_another_model_than_asked_for_is_unknown(node):
    with pytest.raises(UnknownState, match="serves lab/tiny"):
        node.ask(scripted_engine.sound, model="other")


SOUND_TEXTS = [
    "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 3 + "-" * 200,
    "=" * 300,
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "ha ha ha ha ha ha ha ha ha ha",
    "    " * 100 + "x",
    "Wait... " + "." * 50,
    scripted_engine.SKY * 3,
]


@pytest.mark.parametrize("text", SOUND_TEXTS)
def test_rulers_tables_and_pauses_are_not_garbage(text):
    assert questions.damage(text) == ""
