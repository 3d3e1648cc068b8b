# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A simulator of an engine's API: an OpenAI-compatible server that answers as a sound model does, or misbehaves in one way.

The shape of its answers is that of vLLM 0.32.0's (recorded in the lab). It replaces a trained model, which the lab does not have: the lab's models have
random weights, so no answer of theirs is right.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import threading
import typing as t

SKY = (
    "The sky is blue because of the way sunlight meets the air. Light of the sun holds all colors, and the gases of the atmosphere scatter the short, "
    "blue waves far more than the long, red ones. So blue light reaches the eye from every direction, while the rest goes straight on. At sunset the way "
    "through the air is longer, most of the blue is lost on it, and red and orange remain."
)


class Reply(t.NamedTuple):
    """The engine's answer to one question."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[dict[str, t.Any], ...] = ()
    finish_reason: str = "stop"


def sound(body: dict[str, t.Any]) -> Reply:
    """Answer as a correct model does."""
    text = body["messages"][0]["content"]
    if "tools" in body:
        call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
        return Reply(tool_calls=(call,), finish_reason="tool_calls")
    if "response_format" in body:
        return Reply('{"capital": "Paris", "in_europe": true}')
    if total := re.search(r"What is (\d+) \+ (\d+)", text):
        return Reply(str(int(total[1]) + int(total[2])))
    if "Repeat the following line" in text:
        return Reply(text.splitlines()[1])
    if code := re.search(r"the code of the safe is (\S+)\.", text):
        return Reply(code[1])
    if weeks := re.search(r"are (\d+) weeks", text):
        return Reply(f"{7 * int(weeks[1])}", reasoning=f"A week has 7 days, so {weeks[1]} weeks have {7 * int(weeks[1])}.")
    return Reply(SKY)


@contextlib.contextmanager
def serving(
    reply: t.Callable[[dict[str, t.Any]], Reply | int], context: int = 32768, *, counts: bool = False
) -> t.Iterator[tuple[int, list[dict[str, t.Any]]]]:
    """Serve on the loopback; yields the port and the questions that came. A reply that is a number is an HTTP status.

    With ``counts`` it counts the words of a chat as its tokens, for ``/tokenize`` and in the usage of an answer.
    """
    questions: list[dict[str, t.Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.say(200, {"object": "list", "data": [{"id": "lab/tiny", "object": "model", "max_model_len": context}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            words = sum(len(message["content"].split()) for message in body["messages"])
            if self.path == "/tokenize":
                self.say(*((200, {"count": words, "max_model_len": context, "tokens": [7] * words}) if counts else (404, {"detail": "Not Found"})))
                return
            questions.append(body)
            answer = reply(body)
            if isinstance(answer, int):
                self.say(answer, {"error": {"message": "refused by the script"}})
                return
            message = {"role": "assistant", "content": answer.content, "reasoning": answer.reasoning or None, "tool_calls": list(answer.tool_calls)}
            usage = {"prompt_tokens": words if counts else 20, "completion_tokens": 5}
            self.say(200, {"choices": [{"index": 0, "message": message, "finish_reason": answer.finish_reason}], "usage": usage})

        def say(self, status: int, content: dict[str, t.Any]) -> None:
            raw = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_args: t.Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port, questions
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
