# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Delivers a message through an alert channel. This module util is PRIVATE to the collection.

A message counts as delivered only when the channel confirms it. A secret is sent only to its channel: redirects are not followed, and errors are redacted.
"""

from __future__ import annotations

import contextlib
import email.message
import email.policy
import email.utils
import json
import os
import time
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils import _http
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._redact import read_secret, redacted
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import declared, sweep_files
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

#: Seconds for one delivery, and bytes of its answer.
SEND_SECONDS, ANSWER_LIMIT = 30.0, 65536
#: The address of Telegram's bot API, and the most characters of a message (core.telegram.org/bots/api, "sendMessage").
TELEGRAM_API, TELEGRAM_MOST = "https://api.telegram.org", 4096
#: Characters of an answer that an error shows.
SHOWN = 300
#: Version of a webhook's content.
SCHEMA = 1


class Note(t.NamedTuple):
    """A message to deliver: its kind, its subject, its lines, its problems by id, and its cluster and node."""

    kind: str
    subject: str
    lines: t.Sequence[str]
    problems: t.Mapping[str, str]
    cluster: str
    node: str

    @property
    def text(self) -> str:
        return "\n".join([self.subject, *self.lines])


def secret_path(secrets_dir: str, name: str) -> str:
    """Return the path of a channel's secret on a node."""
    return os.path.join(secrets_dir, sweep_files.FOLDER, name)


def send(channel: t.Mapping[str, t.Any], note: Note, secrets_dir: str, ca_file: str) -> str:
    """Send a note through a channel. Return the error, empty when it was delivered; it contains no secret."""
    secret, path = "", secret_path(secrets_dir, channel["name"])
    try:
        if channel["type"] in declared.SECRETS and not (secret := read_secret(path)):
            return f"{path} is empty"
        failure = _SENDERS[channel["type"]](channel, note, secret, ca_file)
    except OSError as error:
        failure = f"{error.filename or ca_file}: {error.strerror or error}"
    except ClusterError as error:
        failure = str(error)
    return redacted(failure, {channel["name"]: secret} if secret else {})


def _post(channel: t.Mapping[str, t.Any], url: str, content: dict[str, t.Any], ca_file: str) -> _http.Answer:
    if why := declared.why_in_clear(url, bool(channel.get("allow_http"))):
        return _http.Answer(None, b"", f"its address {why}; expected https", silent=True)
    body, tls = json.dumps(content).encode(), _http.trusting(ca_file)
    return _http.ask(url, SEND_SECONDS, method="POST", body=body, headers={"Content-Type": "application/json"}, limit=ANSWER_LIMIT, tls=tls)


def _refusal(answer: _http.Answer, secrets: t.Mapping[str, str]) -> str:
    """Return the text of a refusal without its address; it is redacted before it is cut."""
    if answer.status is None:
        return answer.error
    redirect = ", a redirect, which is not followed" if 300 <= answer.status < 400 else ""
    body = redacted(" ".join(answer.body.decode("utf-8", "replace").split()), secrets)
    return f"status {answer.status}{redirect}{': ' if body else ''}{body[:SHOWN]}"


def _webhook(channel: t.Mapping[str, t.Any], note: Note, secret: str, ca_file: str) -> str:
    answer = _post(channel, secret, {**note._asdict(), "schema": SCHEMA, "text": note.text}, ca_file)
    return "" if answer.status is not None and 200 <= answer.status < 300 else _refusal(answer, {channel["name"]: secret})


def _telegram(channel: t.Mapping[str, t.Any], note: Note, secret: str, ca_file: str) -> str:
    base = str(channel.get("api_url") or TELEGRAM_API).rstrip("/")
    answer = _post(channel, f"{base}/bot{secret}/sendMessage", {"chat_id": channel["chat_id"], "text": note.text[:TELEGRAM_MOST]}, ca_file)
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        if answer.status == 200 and json.loads(answer.body)["ok"] is True:
            return ""
    return _refusal(answer, {channel["name"]: secret})


def mail_text(channel: t.Mapping[str, t.Any], note: Note) -> bytes:
    """Return the input of a mail command: a complete mail when the channel has recipients, else the plain text."""
    if not channel.get("to"):
        return f"{note.text}\n".encode()
    mail = email.message.EmailMessage(policy=email.policy.SMTP.clone(linesep="\n", max_line_length=998))
    mail["To"] = channel["to"]
    if channel.get("from"):
        mail["From"] = channel["from"]
    mail["Subject"] = note.subject
    mail["Date"] = email.utils.formatdate(time.time())
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content("".join(f"{line}\n" for line in note.lines or [note.subject]))
    return mail.as_bytes()


def _mail(channel: t.Mapping[str, t.Any], note: Note, _secret: str, _ca_file: str) -> str:
    answer = run_tool(channel["command"], SEND_SECONDS, mail_text(channel, note))
    return f"{channel['command'][0]} ended with {answer.rc}: {redacted(' '.join(answer.raw.split()), {})[:SHOWN]}" if answer.rc else ""


_SENDERS: dict[str, t.Callable[[t.Mapping[str, t.Any], Note, str, str], str]] = {
    declared.WEBHOOK: _webhook,
    declared.TELEGRAM: _telegram,
    declared.MAIL: _mail,
}
