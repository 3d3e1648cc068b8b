# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each channel against a real server on the loopback or a real program: what it gets, when a note counts as delivered, and that no secret leaves the node."""

from __future__ import annotations

import email
import email.policy
import socket
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import channels

from listener import certificate, listening

TOKEN = "123456789:AAE-planted_token_of_a_bot"
NOTE = channels.Note(
    "alert", "gb10 on spark-1: 1 problem",
    ["companion asr: Connection refused — ö (since 2026-11-24T06:00:00Z)"], {"companion asr": "Connection refused"}, "gb10",
    "spark-1",
)  # fmt: skip
#: A fake mail program: records its input and its arguments.
MAILER = "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read()); open(sys.argv[1] + '.argv', 'w').write(repr(sys.argv))"


def send(tmp_path: Path, channel: dict[str, t.Any], secret: str = "", ca_file: str = "", note: channels.Note = NOTE) -> str:
    """Send a note through a channel whose secret is where the role puts it."""
    channel = {"name": channel["type"], **channel}
    if secret:
        path = Path(channels.secret_path(str(tmp_path), channel["name"]))
        path.parent.mkdir(exist_ok=True)
        path.write_text(secret, encoding="utf-8")
    return channels.send(channel, note, str(tmp_path), ca_file)


# --- webhook ------------------------------------------------------------------------------------------------------------


def test_a_webhook_gets_all_of_it_as_json(tmp_path: Path):
    with listening() as server:
        server.status, server.body = 204, b""
        assert send(tmp_path, {"type": "webhook"}, f"{server.url}/hook?key=planted-key-1") == ""
    ((method, path, content),) = server.came
    assert (method, path) == ("POST", "/hook?key=planted-key-1")
    assert content == {
        "schema": 1, "kind": "alert", "cluster": "gb10", "node": "spark-1", "subject": NOTE.subject, "lines": NOTE.lines, "problems": NOTE.problems,
        "text": f"{NOTE.subject}\n{NOTE.lines[0]}",
    }  # fmt: skip


@pytest.mark.parametrize(("status", "says"), [(500, "status 500: no planted way"), (404, "status 404"), (302, "status 302, a redirect, which is not followed")])
def test_a_webhook_that_refuses_was_not_notified_and_a_redirect_is_not_followed(tmp_path: Path, status: int, says: str):
    with listening() as server, listening() as elsewhere:
        server.status, server.body, server.headers = status, b"no planted\nway", {"Location": f"{elsewhere.url}/stolen"}
        assert says in send(tmp_path, {"type": "webhook"}, f"{server.url}/hook")
    assert len(server.came) == 1 and elsewhere.came == []


def test_a_missing_and_a_silent_listener_are_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(channels, "SEND_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        assert send(tmp_path, {"type": "webhook"}, f"http://127.0.0.1:{port}/") == "no answer within 0.3 s"
    assert send(tmp_path, {"type": "webhook"}, f"http://127.0.0.1:{port}/") == "Connection refused"


def test_no_part_of_a_secret_is_shown_where_an_answer_is_cut(tmp_path: Path):
    with listening() as server:
        secret = f"{server.url}/planted-secret-of-a-hook"
        server.status, server.body = 500, f"{'x' * (channels.SHOWN - len(secret) + 4)} {secret}".encode()
        answer = send(tmp_path, {"type": "webhook"}, secret)
    assert "status 500" in answer and "plant" not in answer


@pytest.mark.parametrize("channel", [{"type": "webhook"}, {"type": "telegram", "chat_id": "1", "api_url": "http://10.255.255.1"}])
def test_a_secret_does_not_leave_the_node_in_clear_without_consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, channel: dict[str, t.Any]):
    urls: list[str] = []

    def ask(url: str, *_words: t.Any, **_options: t.Any) -> channels._http.Answer:
        urls.append(url)
        return channels._http.Answer(200, b'{"ok": true}')

    monkeypatch.setattr(channels._http, "ask", ask)
    secret = "http://10.255.255.1/planted" if channel["type"] == "webhook" else TOKEN
    assert send(tmp_path, channel, secret) == "its address is http to a private address without allow_http: true; expected https"
    assert urls == []
    assert send(tmp_path, {**channel, "allow_http": True}, secret) == "" and len(urls) == 1
    assert "exposes the secret" in send(tmp_path, {"type": "webhook", "name": "b", "allow_http": True}, "http://hooks.example.com/planted")
    assert len(urls) == 1


def test_what_a_server_sends_back_is_shown_without_the_secret(tmp_path: Path):
    with listening() as server:
        secret = f"{server.url}/services/T000/planted-part-of-a-path"
        server.status, server.body = 403, f"you asked {secret}".encode()
        answer = send(tmp_path, {"type": "webhook"}, secret)
    assert "status 403: you asked <secret" in answer and "planted" not in answer


def test_certificates_are_verified(tmp_path: Path):
    pem = certificate(tmp_path)
    with listening(pem) as server:
        assert "certificate" in send(tmp_path, {"type": "webhook"}, f"{server.url}/hook").lower()
        assert server.came == []
        assert send(tmp_path, {"type": "webhook"}, f"{server.url}/hook", str(tmp_path / "ca.pem")) == ""
        wrong_name = server.url.replace("127.0.0.1", "localhost")
        assert "certificate" in send(tmp_path, {"type": "webhook"}, f"{wrong_name}/hook", str(tmp_path / "ca.pem")).lower()
    assert len(server.came) == 1


def test_authorities_that_are_not_there_keep_a_mail_from_nothing(tmp_path: Path):
    assert "No such file or directory" in send(tmp_path, {"type": "webhook"}, "https://127.0.0.1/", str(tmp_path / "none.pem"))
    assert send(tmp_path, {"type": "mail", "command": ["cat"]}, ca_file=str(tmp_path / "none.pem")) == ""


def test_a_secret_that_is_not_there_or_empty_is_said(tmp_path: Path):
    assert "No such file or directory" in send(tmp_path, {"type": "webhook"})
    assert "is empty" in send(tmp_path, {"type": "webhook"}, "\n")


# --- telegram -----------------------------------------------------------------------------------------------------------


def test_a_bot_writes_to_its_chat(tmp_path: Path):
    with listening() as server:
        assert send(tmp_path, {"type": "telegram", "chat_id": "-1001234567890", "api_url": f"{server.url}/"}, TOKEN) == ""
    assert server.came == [("POST", f"/bot{TOKEN}/sendMessage", {"chat_id": "-1001234567890", "text": NOTE.text})]


@pytest.mark.parametrize(
    ("status", "body"),
    [(401, b'{"ok":false,"error_code":401,"description":"Unauthorized"}'),
     (200, b'{"ok":false,"description":"chat not found"}'), (200, b"<html>"), (200, b"[]")],
)
def test_a_bot_that_does_not_say_ok_did_not_write(tmp_path: Path, status: int, body: bytes):
    with listening() as server:
        server.status, server.body = status, body
        answer = send(tmp_path, {"type": "telegram", "chat_id": "1", "api_url": server.url}, TOKEN)
    assert answer == f"status {status}: {body.decode()}"


def test_a_bot_without_an_answer_does_not_show_its_token(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for base in (f"http://127.0.0.1:{port}", "http://127.0.0.1:1/x y"):
        answer = send(tmp_path, {"type": "telegram", "chat_id": "1", "api_url": base}, TOKEN)
        assert answer and "planted" not in answer


def test_a_text_too_long_for_a_chat_is_cut(tmp_path: Path):
    with listening() as server:
        send(tmp_path, {"type": "telegram", "chat_id": "1", "api_url": server.url}, TOKEN, note=NOTE._replace(lines=["x" * 9000]))
    assert len(server.came[0][2]["text"]) == channels.TELEGRAM_MOST


# --- mail ---------------------------------------------------------------------------------------------------------------


def test_a_mail_program_reads_a_whole_message_where_there_are_recipients(tmp_path: Path):
    path = tmp_path / "mail"
    command = [sys.executable, "-c", MAILER, str(path), "; touch not-a-shell"]
    assert send(tmp_path, {"type": "mail", "command": command, "to": "ops@example.lan, root", "from": "gb10@example.lan"}) == ""
    mail = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
    assert (mail["To"], mail["From"], mail["Subject"], mail["Auto-Submitted"]) == ("ops@example.lan, root", "gb10@example.lan", NOTE.subject, "auto-generated")
    assert mail.get_content().splitlines() == list(NOTE.lines)
    assert "; touch not-a-shell" in (tmp_path / "mail.argv").read_text(encoding="utf-8")


def test_a_mail_program_with_recipients_of_its_own_reads_plain_text(tmp_path: Path):
    path = tmp_path / "mail"
    assert send(tmp_path, {"type": "mail", "command": [sys.executable, "-c", MAILER, str(path)]}) == ""
    assert path.read_text(encoding="utf-8") == f"{NOTE.text}\n"


def test_a_mail_program_that_fails_hangs_or_is_missing_did_not_notify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fails = [sys.executable, "-c", "import sys; sys.exit('no such user')"]
    assert send(tmp_path, {"type": "mail", "command": fails}) == f"{sys.executable} ended with 1: no such user"
    assert "cannot be run: No such file or directory" in send(tmp_path, {"type": "mail", "command": ["/nowhere/sendmail"]})
    monkeypatch.setattr(channels, "SEND_SECONDS", 0.5)
    assert "did not answer within 0.5 s" in send(tmp_path, {"type": "mail", "command": ["sleep", "60"]})
