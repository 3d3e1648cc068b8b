# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sends one prompt that fills most of the context, measured in the engine's own tokens. This module util is PRIVATE to the collection.

A context length is unproven until a prompt of that length was answered: a prefill takes memory in addition to the cache.
The engine counts the tokens of the text first (``/tokenize``), and its answer reports again how many it read (``usage.prompt_tokens``).
"""

from __future__ import annotations

import functools
import json
import random
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._engine import questions
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding

#: Ids of findings.
IDS = ("ladder.prompt",)

TOKENIZE_PATH = "/tokenize"
#: Seconds for one count, and bytes of its answer, which lists every token.
COUNT_SECONDS, COUNT_LIMIT = 120.0, 128 * 1024 * 1024
#: The least share of the wanted tokens that a text must have, and the most attempts to find its length.
ENOUGH, ATTEMPTS = 0.98, 8
#: The most characters of a token: a count that implies more is wrong, and its text would grow without end.
MOST_CHARACTERS = 16
#: The least tokens that are kept free for the answer.
LEAST_ANSWER = 8

Count = t.Callable[[str], int]


def count(engine: questions.Engine, text: str) -> int:
    """Return the engine's count of a text's tokens, including the chat's own. Raises :class:`UnknownState` when the engine does not report it."""
    came = engine.post(TOKENIZE_PATH, text, COUNT_SECONDS, COUNT_LIMIT)
    try:
        tokens = None if came.problem else json.loads(came.body)["count"]
    except (ValueError, KeyError, TypeError, RecursionError):
        tokens = None
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
        why = came.problem or "no count in its answer"
        raise UnknownState(f"the engine does not count a text of {len(text)} characters: {why}", raw=repr(came.body[:500]))
    return tokens


def fitted(seed: str, wanted: int, count: Count) -> tuple[str, str, int]:
    """Return a text of at most ``wanted`` tokens and slightly fewer at least, the code that answers its question, and its tokens.

    Raises :class:`UnknownState` if no such text is found: then the engine's counts are wrong.
    """
    characters, tried = wanted * questions.CHARACTERS_A_TOKEN, []
    for _attempt in range(ATTEMPTS):
        text, code = questions.store_log(random.Random(seed), characters)
        tokens = count(text)
        tried.append(f"{len(text)} characters are {tokens} tokens")
        if ENOUGH * wanted <= tokens <= wanted:
            return text, code, tokens
        # Aimed at the middle of the accepted range.
        characters = min(max(1, int(characters * wanted * (1 + ENOUGH) / 2 / tokens)), MOST_CHARACTERS * wanted)
    raise UnknownState(f"no text of {wanted} tokens was found: {'; '.join(tried)}")


def as_finding(node: str, verdict: str, message: str, measured: t.Any, needed: t.Any) -> dict[str, t.Any]:
    """Return the finding about a prompt."""
    remedy = "" if verdict == "pass" else "see the engine's log and the node's memory at that time"
    return finding("ladder.prompt", node, verdict, message, measured=measured, needed=needed, remedy=remedy)


def ask(engine: questions.Engine, seed: str, check_answer: bool) -> dict[str, t.Any]:
    """Send the prompt. Returns ``verdict``, ``message``, ``wanted_tokens``, ``prompt_tokens``, ``tokens``, ``seconds`` and ``answer``.

    Whether the answer's text is right counts only with ``check_answer``. Raises :class:`UnknownState` when no prompt of the length could be made.
    """
    wanted = engine.context * engine.percent // 100
    text, code, counted = fitted(seed, wanted, functools.partial(count, engine))
    began = time.monotonic()
    message, why, came = engine.chat(text, max(1, min(engine.max_tokens, engine.context - counted - LEAST_ANSWER)))
    result = {"wanted_tokens": wanted, "counted_tokens": counted, "prompt_tokens": 0, "tokens": 0, "seconds": round(time.monotonic() - began, 1), "answer": ""}
    if message is None:
        # A refusal is a result about this length; a missing answer is not.
        verdict = "unknown" if came.status is None or came.error else "block"
        return {**result, "verdict": verdict, "message": why, "answer": questions.shortened(came.body.decode(errors="replace").strip())}
    result.update(prompt_tokens=message.prompt_tokens, tokens=message.tokens, answer=questions.shortened(message.content))
    verdict, wrong = judged(message, questions.code_question(text, code) if check_answer else None, wanted)
    return {**result, "verdict": verdict, "message": wrong}


def judged(message: questions.Message, question: questions.Question | None, wanted: int) -> tuple[str, str]:
    """Return the verdict about an answer, and its problem as text."""
    if message.prompt_tokens < ENOUGH * wanted:
        return "block", f"the engine read {message.prompt_tokens} tokens of a prompt of {wanted}"
    if message.tokens < 1:
        return "block", "no token came back"
    return questions.judge(question, message) if question else ("pass", "")
