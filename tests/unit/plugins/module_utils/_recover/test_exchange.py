# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The signed answers between nodes: only one to the question that was just asked, of the node that was asked, counts."""

from __future__ import annotations

import hashlib
import hmac
import socket
import threading
import typing as t

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._recover import exchange

KEY = "k" * 43
STATE = {**dict.fromkeys(exchange.SHARED, ""), "phase": "locked", "own": {"unit": "running"}}
SAID = {"cluster": "gb10", "node": "spark-2", "age_s": 12.5, "state": STATE}


class Peer:
    """Another node: answers each connection with what ``reply`` returns for the first line of the question."""

    def __init__(self) -> None:
        self.reply: t.Callable[[bytes], bytes] = lambda line: exchange.answered(line, KEY, SAID)
        self.lines: list[bytes] = []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def end(self) -> None:
        """Stop listening. The thread ends first: it could accept a connection of whatever has the socket's number next."""
        if self.thread.is_alive():
            self.server.shutdown(socket.SHUT_RDWR)
            self.thread.join()
        self.server.close()

    def serve(self) -> None:
        while True:
            try:
                connection, _address = self.server.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                line = stream.readline()
                while stream.readline().strip():
                    pass
                self.lines.append(line)
                connection.sendall(self.reply(line))

    def ask(self, key: str = KEY, cluster: str = "gb10", node: str = "spark-2") -> dict[str, t.Any]:
        return exchange.ask("127.0.0.1", self.port, key, cluster, node)


@pytest.fixture
def peer() -> t.Iterator[Peer]:
    made = Peer()
    yield made
    made.end()


def test_an_answer_comes_back_as_it_was_given_and_each_question_is_another(peer: Peer) -> None:
    assert peer.ask() == SAID and peer.ask() == SAID
    assert len(set(peer.lines)) == 2 and all(exchange.QUESTION.match(line) for line in peer.lines)


def test_an_older_answer_is_refused(peer: Peer) -> None:
    recorded: list[bytes] = []
    peer.reply = lambda line: recorded.append(exchange.answered(line, KEY, SAID)) or recorded[0]
    assert peer.ask() == SAID
    with pytest.raises(UnknownState, match="not signed with the key of this cluster for this question"):
        peer.ask()


def test_a_forged_answer_is_refused(peer: Peer) -> None:
    whole = exchange.answered
    forged = {
        "another key": lambda line: whole(line, "x" * 43, SAID),
        "changed": lambda line: whole(line, KEY, SAID).replace(b"locked", b"downed"),
        "no signature": lambda line: b"HTTP/1.0 200 OK\r\n\r\n\n" + whole(line, KEY, SAID).partition(b"\r\n\r\n")[2].partition(b"\n")[2],
        "empty": lambda line: b"HTTP/1.0 200 OK\r\n\r\n",
        "not ASCII": lambda line: b"HTTP/1.0 200 OK\r\n\r\n\xff\xfe\n{}",
        "no HTTP": lambda line: b"{}\n",
        "a refusal": lambda line: whole(line, KEY, SAID).replace(b"200 OK", b"500 No"),
    }
    for name, reply in forged.items():
        peer.reply = reply
        with pytest.raises(UnknownState, match=f"no answer from 127.0.0.1 port {peer.port}: .+"):
            assert not peer.ask(), name
    peer.reply = lambda line: whole(line, KEY, SAID)
    assert peer.ask() == SAID


def test_the_answer_of_another_node_or_cluster_is_refused(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relay cannot present a node's own answer, or that of a third one, as that of the node that was asked."""
    for asked in ({"node": "spark-1"}, {"cluster": "other"}):
        with pytest.raises(UnknownState, match="answers as spark-2 of cluster gb10"):
            peer.ask(**asked)
    for body in ("", "[]", "{}", "1", '{"cluster": "gb10", "node": "spark-2", "state": 1}'):
        monkeypatch.setattr(exchange.json, "dumps", lambda answer, body=body: body)
        with pytest.raises(UnknownState, match="answers as another version"):
            peer.ask()
    monkeypatch.undo()
    for state in ({**STATE, "more": 1}, {"phase": "locked"}):
        peer.reply = lambda line, state=state: exchange.answered(line, KEY, {**SAID, "state": state})
        with pytest.raises(UnknownState, match="or as another version"):
            peer.ask()


def test_a_long_answer_a_slow_one_and_none_are_refused_in_time(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    peer.reply = lambda line: exchange.answered(line, KEY, {**SAID, "state": {**STATE, "own": "x" * exchange.LIMIT}})
    with pytest.raises(UnknownState, match="no answer from"):
        peer.ask()
    monkeypatch.setattr(exchange, "SECONDS", 0.2)
    ended = threading.Event()
    peer.reply = lambda line: (ended.wait(5), b"")[1]
    with pytest.raises(UnknownState, match="no answer from"):
        peer.ask()
    ended.set()
    peer.end()
    with pytest.raises(UnknownState, match="no answer from"):
        peer.ask()


@pytest.mark.parametrize("line", [b"", b"\n", b"GET / HTTP/1.1\r\n", b"GET /" + b"a" * 63 + b" HTTP/1.1\r\n", b"GET /" + b"A" * 64 + b" HTTP/1.1\r\n",
                                  b"POST /" + b"a" * 64 + b" HTTP/1.1\r\n", b"GET /" + b"a" * 64 + b" HTTP/2\r\n", b"x GET /" + b"a" * 64 + b" HTTP/1.1\r\n"])
def test_nothing_else_is_answered(line: bytes) -> None:
    with pytest.raises(UnknownState, match="this is not a question"):
        exchange.answered(line, KEY, SAID)


def test_a_signature_is_of_key_question_and_answer() -> None:
    made = exchange.signature("key", "nonce", "body")
    assert made != exchange.signature("kez", "nonce", "body") != exchange.signature("key", "nonces", "body")
    others = {exchange.signature("key", *words) for words in (("nonce", "bodz"), ("noncebody", ""), ("", "nonce\nbody"))}
    assert len(others) == 3 and made not in others
    # HMAC-SHA256 (RFC 2104).
    assert made == hmac.new(b"key", b"gb10.cluster recovery 1\nnonce\nbody", hashlib.sha256).hexdigest()
