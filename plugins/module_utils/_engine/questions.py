# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Questions with known answers, and the problem of a wrong answer. This module util is PRIVATE to the collection.

An engine with the wrong kernels, a damaged shard or the wrong parser is healthy and fast, but its answers are wrong: field reports have answers of
``!!!!!!``, of one repeated word, of U+FFFD, and tool calls that stay text. Every model that a profile may name can answer these questions, so a wrong
answer is the engine's fault and not the model's.

The random parts of a question depend on the engine's run: another run gets other numbers, the same run gets the same ones.
"""

from __future__ import annotations

import json
import random
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils import _http
from ansible_collections.gb10.cluster.plugins.module_utils._engine import api_key, api_probe, engine_state
from ansible_collections.gb10.cluster.plugins.module_utils._engine.api_key import ApiKey
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding

CHAT_PATH = "/v1/chat/completions"
#: Seconds for the request for the served models.
MODELS_SECONDS = 10.0

#: Most characters of a question or an answer in a message and a recorded result, and most characters that are searched for garbage.
SHOWN = 600
SEARCHED = 40_000

#: The fewest characters per token in the needle's haystack: English has about four, digits fewer.
CHARACTERS_A_TOKEN = 3
#: How deep in the haystack the needle is, 0 at its beginning. Long context fails in the middle first.
NEEDLE_DEPTH = 0.4

#: The models' markers of thinking, which the reasoning parser should have removed from the answer.
REASONING_MARKERS = ("<think>", "</think>", "◁think▷", "◁/think▷", "<|channel|>", "<|channel>thought")

#: A piece of text that occurs ten times in a row. One without a letter or a digit may be a ruler or a table's border.
_AGAIN = re.compile(r"(.{1,80}?)\1{9,}", re.DOTALL)
#: The shortest such run that counts: "ha ha ha" is not a failure.
_AGAIN_LENGTH = 60
#: A run of one sign that is not a ruler.
_SIGNS = re.compile(r"([^\w\s\-=_*.#~|+])\1{19,}")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

_WORDS = (
    *("amber", "birch", "cobalt", "delta", "ember", "fjord", "granite", "harbor"),
    *("indigo", "juniper", "kelp", "lantern", "maple", "nickel", "onyx", "pebble"),
)


class Message(t.NamedTuple):
    """An engine's answer: the text, the separate thinking, its tool calls, the reason of its end and its tokens."""

    content: str
    reasoning: str
    tool_calls: list[dict[str, t.Any]]
    finish_reason: str
    prompt_tokens: int
    tokens: int


class Question(t.NamedTuple):
    """A question: ``text`` is the user's message, ``expected`` describes the right answer, ``wrong`` returns what is wrong, or an empty text."""

    text: str
    expected: str
    wrong: t.Callable[[Message], str]
    options: dict[str, t.Any] = {}


def after_thinking(content: str) -> str:
    """Return the text after the thinking of a model whose thinking is part of its answer, with or without a reasoning parser."""
    return content.rpartition("</think>")[2]


def damage(text: str) -> str:
    """Return why a text is garbage, empty for a normal one."""
    text = text[:SEARCHED]
    if "\ufffd" in text:
        return "it has U+FFFD, tokens that are not text"
    control = _CONTROL.search(text)
    if control:
        return f"it has the control character {control[0]!r}"
    for again in _AGAIN.finditer(text):
        if len(again[0]) >= _AGAIN_LENGTH and any(sign.isalnum() for sign in again[1]):
            return f"it repeats {again[1]!r} {len(again[0]) // len(again[1])} times"
    signs = _SIGNS.search(text)
    return f"it repeats {signs[1]!r} {len(signs[0])} times" if signs else ""


def arithmetic(chance: random.Random, _context: int, _percent: int) -> Question:
    first, second = chance.randint(200, 799), chance.randint(101, 199)
    expected = str(first + second)

    def wrong(message: Message) -> str:
        numbers = re.findall(r"\d+", after_thinking(message.content).replace(",", ""))
        return "" if expected in numbers else f"{expected} is not in it"

    return Question(f"What is {first} + {second}? Answer with the number alone.", expected, wrong)


def echo(chance: random.Random, _context: int, _percent: int) -> Question:
    line = " ".join(f"{word}-{chance.randint(100, 999)}" for word in chance.sample(_WORDS, 6))

    def wrong(message: Message) -> str:
        answer = after_thinking(message.content).strip().strip("`\"'").strip()
        return "" if answer == line else "it is another text"

    return Question(f"Repeat the following line exactly, and write nothing else:\n{line}", line, wrong)


def store_log(chance: random.Random, characters: int) -> tuple[str, str]:
    """Return a log of so many characters with a question at its end, and the answer: a code in one line of the log."""
    code = f"{chance.choice(_WORDS)}-{chance.randint(1000, 9999)}"
    lines: list[str] = []
    size = 0
    while size < characters:
        lines.append(f"Entry {len(lines) + 1}: the {chance.choice(_WORDS)} crate stands in row {chance.randint(1, 99)}.")
        size += len(lines[-1]) + 1
    if size > characters:
        # A whole line is many tokens if a token is only one or two letters.
        lines[-1] = lines[-1][: max(1, len(lines[-1]) - (size - characters))]
    lines.insert(int(len(lines) * NEEDLE_DEPTH), f"Note: the code of the safe is {code}.")
    return "This is the log of a store.\n" + "\n".join(lines) + "\nWhat is the code of the safe? Answer with the code alone.", code


def code_question(text: str, code: str) -> Question:
    """Return the question that a text of :func:`store_log` asks."""
    return Question(text, code, lambda message: "" if code in after_thinking(message.content) else f"{code} is not in it")


def needle(chance: random.Random, context: int, percent: int) -> Question:
    return code_question(*store_log(chance, context * percent // 100 * CHARACTERS_A_TOKEN))


def coherence(_chance: random.Random, _context: int, _percent: int) -> Question:
    def wrong(message: Message) -> str:
        answer = after_thinking(message.content)
        words = re.findall(r"[a-z]+", answer.lower())
        letters = [letter for letter in answer if letter.isalpha()]
        if len(words) < 20:
            return f"it has {len(words)} words"
        if sum(letter.isascii() for letter in letters) < 0.7 * len(letters):
            return "it is not English"
        return "" if {"light", "sunlight"} & set(words) and "blue" in words else "it is about something else"

    return Question("Explain in English, in about 80 words, why the sky is blue.", "some sentences about light", wrong)


def reasoning_split(chance: random.Random, _context: int, _percent: int) -> Question:
    weeks = chance.randint(3, 9)

    def wrong(message: Message) -> str:
        marker = next((candidate for candidate in REASONING_MARKERS if candidate in message.content), "")
        if marker:
            return f"the thinking is part of the answer: {marker}"
        return "" if message.reasoning.strip() else "no separate thinking came with the answer"

    return Question(f"How many days are {weeks} weeks? Think first, then answer with the number.", "separate thinking, none in the answer", wrong)


def tool_call(_chance: random.Random, _context: int, _percent: int) -> Question:
    tool = {
        "name": "get_weather",
        "description": "Return the weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }

    def wrong(message: Message) -> str:
        if not message.tool_calls:
            return "the call stayed text: the tool call parser did not recognize it" if "get_weather" in message.content else "no tool was called"
        function = message.tool_calls[0].get("function") or {}
        if function.get("name") != "get_weather":
            return f"the tool {function.get('name')!r} was called"
        try:
            city = json.loads(function.get("arguments") or "")["city"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return f"the arguments of the call are {str(function.get('arguments'))[:80]!r}"
        return "" if "paris" in str(city).lower() else f"the city is {str(city)[:80]!r}"

    options = {"tools": [{"type": "function", "function": tool}], "tool_choice": "auto"}
    return Question("What is the weather in Paris now? Use the tool.", 'the call get_weather({"city": "Paris"})', wrong, options)


def structured_output(_chance: random.Random, _context: int, _percent: int) -> Question:
    cities = ["Paris", "Rome", "Berlin"]
    schema = {
        "type": "object",
        "properties": {"capital": {"type": "string", "enum": cities}, "in_europe": {"type": "boolean"}},
        "required": ["capital", "in_europe"],
        "additionalProperties": False,
    }

    def wrong(message: Message) -> str:
        try:
            answer = json.loads(after_thinking(message.content))
        except (ValueError, RecursionError):
            return "it is not JSON"
        fits = isinstance(answer, dict) and set(answer) == set(schema["required"])
        return "" if fits and answer["capital"] in cities and isinstance(answer["in_europe"], bool) else "it does not fit the schema"

    options = {"response_format": {"type": "json_schema", "json_schema": {"name": "capital", "schema": schema, "strict": True}}}
    return Question("What is the capital of France, and is it in Europe? Answer in JSON.", "JSON with capital and in_europe alone", wrong, options)


class Check(t.NamedTuple):
    """A question: the id of its finding, the argument of the engine that it needs, and the remedy for a wrong answer.

    ``make`` is called with a random generator, the context length and the needle's share of it in percent.
    """

    id: str
    make: t.Callable[[random.Random, int, int], Question]
    remedy: str
    needs: str = ""


REMEDY = "verify the weights (--tags model), then try another moe_backend, attention_backend or kv_cache_dtype, or the image of the profile's evidence"
PARSER_REMEDY = "compare {} with what the model's card names for this engine"

#: The checks by name, in the order in which they are asked.
CHECKS = {
    "arithmetic": Check("answers.arithmetic", arithmetic, REMEDY),
    "echo": Check("answers.echo", echo, REMEDY),
    "coherence": Check("answers.coherence", coherence, REMEDY),
    "reasoning_split": Check("answers.reasoning_split", reasoning_split, PARSER_REMEDY.format("reasoning_parser"), "reasoning_parser"),
    "tool_call": Check("answers.tool_call", tool_call, PARSER_REMEDY.format("tool_call_parser and the chat template"), "enable_auto_tool_choice"),
    "structured_output": Check(
        "answers.structured_output", structured_output, "look in the engine's log for the structured output backend, and try another"
    ),
    "needle": Check("answers.needle", needle, "try a shorter max_model_len, another kv_cache_dtype and another attention_backend, one at a time"),
}
IDS = tuple(check.id for check in CHECKS.values())


def served(url: str, key: ApiKey, model: str | None) -> dict[str, t.Any]:
    """Return ``{id, max_model_len}`` of the model to ask. Raises :class:`UnknownState` when the API does not report it."""
    answer = _http.ask(f"{url}/v1/models", MODELS_SECONDS, key=key)
    if answer.problem:
        raise UnknownState(f"the API at {url} does not report which models it serves: {answer.problem}", raw=repr(answer.body[:500]))
    models = api_probe.parse_models(answer.body)
    chosen = next((entry for entry in models if model in (None, entry["id"])), None)
    if not chosen or not chosen["max_model_len"]:
        names = ", ".join(entry["id"] for entry in models)
        raise UnknownState(f"the API at {url} serves {names or 'nothing'}, and no context length of {model or 'its model'}")
    return chosen


def parse_message(body: bytes) -> Message | None:
    """Return the message of a chat completion, None for any other content."""
    try:
        answer = json.loads(body)
        choice, usage = answer["choices"][0], answer.get("usage") or {}
        message = choice["message"]
        return Message(
            content=str(message.get("content") or ""),
            # vLLM uses `reasoning` since 0.12, `reasoning_content` before.
            reasoning=str(message.get("reasoning") or message.get("reasoning_content") or ""),
            tool_calls=[dict(call) for call in message.get("tool_calls") or []],
            finish_reason=str(choice.get("finish_reason") or ""),
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            tokens=int(usage.get("completion_tokens") or 0),
        )
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return None


def judge(question: Question, message: Message) -> tuple[str, str]:
    """Return the verdict about an answer, and its problem as text. An answer that was cut off might have become right, so it is only a warning."""
    for text, what in ((message.content, ""), (message.reasoning, "in the thinking, ")):
        broken = damage(text)
        if broken:
            return "block", what + broken
    wrong = question.wrong(message)
    if wrong and message.finish_reason == "length":
        return "warn", f"it was cut off after {message.tokens} tokens: {wrong}"
    return ("block", wrong) if wrong else ("pass", "")


def shortened(text: str) -> str:
    """Return a text of at most :data:`SHOWN` characters: its beginning and its end."""
    return text if len(text) <= SHOWN else f"{text[: SHOWN // 2]} ... {text[-SHOWN // 2 :]}"


class Engine(t.NamedTuple):
    """The engine to ask: its API's URL, its name of the model, its key, and the limits of a request."""

    url: str
    model: str
    key: ApiKey
    context: int
    percent: int
    max_tokens: int
    timeout: float

    @classmethod
    def of(cls, state: t.Mapping[str, t.Any], params: t.Mapping[str, t.Any], percent: int) -> Engine:
        """Return the live engine that :func:`engine_state.engine_state` describes. Raises :class:`UnknownState` when its API does not report its model."""
        url, key = engine_state.base_url(state["api_address"], state["api_port"]), api_key.of(state, params["api_key_file"])
        model = served(url, key, params["model"])
        return cls(url, model["id"], key, model["max_model_len"], percent, params["max_tokens"], params["timeout"])

    def post(self, path: str, text: str, timeout: float, limit: int = _http.ANSWER_LIMIT, **options: t.Any) -> _http.Answer:
        """Send a text as the only message of a chat."""
        body = {"model": self.model, "messages": [{"role": "user", "content": text}], **options}
        headers = {"Content-Type": "application/json"}
        return _http.ask(f"{self.url}{path}", timeout, method="POST", body=json.dumps(body).encode(), headers=headers, limit=limit, key=self.key)

    def chat(self, text: str, max_tokens: int, **options: t.Any) -> tuple[Message | None, str, _http.Answer]:
        """Return (the engine's answer, why there is none, the raw answer)."""
        came = self.post(CHAT_PATH, text, self.timeout, max_tokens=max_tokens, **options)
        message = None if came.problem else parse_message(came.body)
        return message, "" if message else came.error or f"HTTP {came.status}", came


def ask(name: str, engine: Engine, run_id: str) -> dict[str, t.Any]:
    """Ask one question and return its result: ``check, verdict, message, question, expected, answer, prompt_tokens, tokens``. Never raises.

    The verdict is ``unknown`` without an answer, or with one that cannot be parsed.
    """
    # Without a temperature the engine uses the model's own generation_config.json. At 0 some thinking models repeat themselves forever (card of Qwen3).
    question = CHECKS[name].make(random.Random(f"{run_id} {name}"), engine.context, engine.percent)
    message, why, came = engine.chat(question.text, engine.max_tokens, **question.options)
    result = {"check": name, "question": shortened(question.text), "expected": question.expected, "answer": "", "prompt_tokens": 0, "tokens": 0}
    if message is None:
        # The engine would refuse the same request again. A request without an answer may get one next time.
        verdict = "block" if came.status in (400, 404, 422) else "unknown"
        return {**result, "verdict": verdict, "message": why, "answer": shortened(came.body.decode(errors="replace").strip())}
    verdict, wrong = judge(question, message)
    answer = message.content or json.dumps(message.tool_calls) if message.tool_calls else message.content
    return {**result, "verdict": verdict, "message": wrong, "answer": shortened(answer), "prompt_tokens": message.prompt_tokens, "tokens": message.tokens}


def as_finding(result: dict[str, t.Any], node: str) -> dict[str, t.Any]:
    """Return a result as a finding, with the actual and the expected answer."""
    check, verdict = CHECKS[result["check"]], result["verdict"]
    if verdict == "pass":
        message, remedy = f"{result['expected']!r} came back.", ""
    elif verdict == "unknown":
        message, remedy = f"no answer to a question: {result['message']}.", "see the engine's log, then run with --tags proof"
    else:
        message = f"a wrong answer, {result['message']}: {result['answer']!r} instead of {result['expected']!r}."
        remedy = f"the engine was left running; {check.remedy}" if verdict == "block" else check.remedy
    return finding(check.id, node, verdict, message, measured=result["answer"], needed=result["expected"], remedy=remedy)
