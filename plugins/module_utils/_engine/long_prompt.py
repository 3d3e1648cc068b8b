# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One prompt that fills most of the context, measured in the engine's own tokens. This module util is PRIVATE to the collection.

A length that an engine was started with says nothing until a prompt of that length was answered: what a prefill needs beside the cache is taken then.
The engine counts the text before it is asked (``/tokenize``), and its answer says again how many tokens it read (``usage.prompt_tokens``).
"""

from __future__ import annotations

import json
import random
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils import _http
from ansible_collections.gb10.cluster.plugins.module_utils._engine import questions
from ansible_collections.gb10.cluster.plugins.module_utils._engine.api_key import ApiKey
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding

#: Ids of findings that are made here.
IDS = ("ladder.prompt",)

TOKENIZE_PATH = "/tokenize"
#: Seconds for one count, and bytes of its answer, which lists every token.
COUNT_SECONDS, COUNT_LIMIT = 120.0, 128 * 1024 * 1024
#: A text counts as long enough from this share of what is wanted, and is sought at most so often.
ENOUGH, ATTEMPTS = 0.98, 8
#: Characters that a token stands for at most: a count by which they were more is none, and its text would grow without end.
MOST_CHARACTERS = 16
#: Tokens of the answer that are kept free at least.
LEAST_ANSWER = 8

Count = t.Callable[[str], int]


def messages(text: str) -> list[dict[str, str]]:
    """Return a text as the one message of a chat."""
    return [{"role": "user", "content": text}]


def counter(url: str, key: ApiKey, model: str) -> Count:
    """Return what counts a text's tokens, the chat's own included. It raises :class:`UnknownState` when the engine does not say it."""
    headers = {"Content-Type": "application/json"}

    def count(text: str) -> int:
        body = json.dumps({"model": model, "messages": messages(text)}).encode()
        came = _http.ask(f"{url}{TOKENIZE_PATH}", COUNT_SECONDS, method="POST", body=body, headers=headers, limit=COUNT_LIMIT, key=key)
        said = came.error or (f"HTTP {came.status}" if came.status != 200 else "")
        try:
            found = None if said else json.loads(came.body)["count"]
        except (ValueError, KeyError, TypeError, RecursionError):
            found = None
        if not isinstance(found, int) or isinstance(found, bool) or found < 1:
            raise UnknownState(f"the engine does not count a text of {len(text)} characters: {said or 'no count in its answer'}", raw=repr(came.body[:500]))
        return found

    return count


def fitted(seed: str, wanted: int, count: Count) -> tuple[str, str, int]:
    """Return a text of at most ``wanted`` tokens and hardly fewer, the code that answers its question, and its tokens.

    Raises :class:`UnknownState` when no such text is found: then the engine's counts make no sense.
    """
    characters, tried = wanted * questions.CHARACTERS_A_TOKEN, []
    for _attempt in range(ATTEMPTS):
        text, code = questions.store_log(random.Random(seed), characters)
        tokens = count(text)
        tried.append(f"{len(text)} characters are {tokens} tokens")
        if ENOUGH * wanted <= tokens <= wanted:
            return text, code, tokens
        # Aimed at the middle of what is right.
        characters = min(max(1, int(characters * wanted * (1 + ENOUGH) / 2 / tokens)), MOST_CHARACTERS * wanted)
    raise UnknownState(f"no text of {wanted} tokens was found: {'; '.join(tried)}")


def as_finding(node: str, verdict: str, message: str, measured: t.Any, needed: t.Any) -> dict[str, t.Any]:
    """Return what is said of a prompt."""
    remedy = "" if verdict == "pass" else "see the engine's log and the node's memory at that time"
    return finding("ladder.prompt", node, verdict, message, measured=measured, needed=needed, remedy=remedy)


class Asked(t.NamedTuple):
    """What is asked of whom: the engine, and whether its answer has to be right."""

    url: str
    model: str
    key: ApiKey
    context: int
    percent: int
    max_tokens: int
    timeout: float
    right: bool


def ask(asked: Asked, seed: str) -> dict[str, t.Any]:
    """Ask the prompt. Returns ``verdict``, ``message``, ``wanted_tokens``, ``prompt_tokens``, ``tokens``, ``seconds`` and ``answer``.

    Raises :class:`UnknownState` when no prompt of the length could be made.
    """
    wanted = asked.context * asked.percent // 100
    text, code, counted = fitted(seed, wanted, counter(asked.url, asked.key, asked.model))
    most = max(1, min(asked.max_tokens, asked.context - counted - LEAST_ANSWER))
    body = {"model": asked.model, "messages": messages(text), "max_tokens": most}
    began = time.monotonic()
    came = _http.ask(
        f"{asked.url}{questions.CHAT_PATH}",
        asked.timeout,
        method="POST",
        body=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
        key=asked.key,
    )
    result = {"wanted_tokens": wanted, "counted_tokens": counted, "prompt_tokens": 0, "tokens": 0, "seconds": round(time.monotonic() - began, 1), "answer": ""}
    message = questions.parse_message(came.body) if came.status == 200 and not came.error else None
    if message is None:
        said = questions.shortened(came.body.decode(errors="replace").strip())
        # What the engine refuses is an answer about this length; silence is none.
        verdict = "unknown" if came.status is None or came.error else "block"
        return {**result, "verdict": verdict, "message": came.error or f"HTTP {came.status}", "answer": said}
    result.update(prompt_tokens=message.prompt_tokens, tokens=message.tokens, answer=questions.shortened(message.content))
    verdict, wrong = judged(asked, message, questions.code_question(text, code), wanted)
    return {**result, "verdict": verdict, "message": wrong}


def judged(asked: Asked, message: questions.Message, question: questions.Question, wanted: int) -> tuple[str, str]:
    """Return the verdict about an answer and what is wrong with it. Whether its text is right counts only where the profile has such a question."""
    if message.prompt_tokens < ENOUGH * wanted:
        return "block", f"the engine read {message.prompt_tokens} tokens of a prompt of {wanted}"
    if message.tokens < 1:
        return "block", "no token came back"
    return questions.judge(question, message) if asked.right else ("pass", "")
