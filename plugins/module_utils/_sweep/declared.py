# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The channels and endpoints of a sweep, as the settings declare them. This module util is PRIVATE to the collection."""

from __future__ import annotations

import functools
import ipaddress
import os
import re
import typing as t
import urllib.parse

from ansible_collections.gb10.cluster.plugins.module_utils._companion.declared import Fault, Forms, field_faults, is_whole_number
from ansible_collections.gb10.cluster.plugins.module_utils._redact import holds_secret

#: The settings that are checked here.
ALERTS, ENDPOINTS = "gb10_sweep_alerts", "gb10_sweep_endpoints"

WEBHOOK, TELEGRAM, MAIL = "webhook", "telegram", "mail"
TYPES = (WEBHOOK, TELEGRAM, MAIL)
#: The required fields of each type of channel in addition to ``type``, and the optional ones in addition to ``name``.
NEEDS = {WEBHOOK: ("url",), TELEGRAM: ("token", "chat_id"), MAIL: ("command",)}
MAY_HAVE = {WEBHOOK: ("allow_http",), TELEGRAM: ("api_url", "allow_http"), MAIL: ("to", "from")}
#: The field with the address to which a channel's secret is sent.
SENT_TO = {WEBHOOK: "url", TELEGRAM: "api_url"}
#: The secret field of a channel. It is transferred as a file and never shown; a webhook's address often contains a token.
SECRETS = {WEBHOOK: "url", TELEGRAM: "token"}

#: Private networks, which the internet does not route (RFC 1918, 3927, 4193 and 4291).
PRIVATE = tuple(map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fc00::/7", "fe80::/10")))

#: A channel's name is also the file name of its secret.
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?\Z")
#: A bot's number, a colon and its secret (core.telegram.org/bots/api, "Authorizing your bot").
TOKEN = re.compile(r"[0-9]{3,}:[A-Za-z0-9_-]{10,}\Z")
#: A chat's number, or the public name of a channel (the same page, "sendMessage").
CHAT = re.compile(r"(?:-?[0-9]+|@[A-Za-z][A-Za-z0-9_]{3,})\Z")
_LINE = re.compile(r"[^\r\n\0]{1,200}\Z")
#: Words of printable ASCII: the name is at the start of an alert's line.
_ENDPOINT_NAME = re.compile(r"[!-~]+(?: [!-~]+)*\Z")


def name_of(channel: t.Mapping[str, t.Any]) -> str:
    """Return the name of a channel, by default its type."""
    return str(channel.get("name") or channel["type"])


def is_url(value: t.Any) -> bool:
    """Return whether a value is an address that a sweep can request: http or https, a host, no user, no fragment, and only printable ASCII."""
    if not isinstance(value, str) or not re.fullmatch(r"[!-~]+", value):
        return False
    try:
        parts = urllib.parse.urlsplit(value)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc and "#" not in value
    except ValueError:
        return False


def why_in_clear(url: str, allow_http: bool) -> str:
    """Return why a secret must not be sent to ``url``, empty where it may: over https, to this node, or to a private address where ``allow_http`` is set.

    A host name is not a private address: DNS decides who answers, and may change.
    """
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "" if parts.scheme == "https" or host == "localhost" else "is http, which exposes the secret on the network"
    if parts.scheme == "https" or address.is_loopback:
        return ""
    if not any(address in network for network in PRIVATE if network.version == address.version):
        return "is http to an address that is not private, which exposes the secret on the network"
    return "" if allow_http else "is http to a private address without allow_http: true"


def shown_url(url: str) -> str:
    """Return an address without its query, which may contain a token."""
    path, question, _query = url.partition("?")
    return f"{path}{question and '?...'}"


def _is_words(value: t.Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(word, str) and word != "" and "\0" not in word for word in value)


def _matches(pattern: re.Pattern[str], value: t.Any) -> bool:
    return isinstance(value, str) and bool(pattern.match(value))


def _statuses(value: t.Any) -> list[t.Any]:
    """Return the declared status codes of an endpoint, which are one or a list."""
    return value if isinstance(value, list) else [value]


def _is_status(value: t.Any) -> bool:
    return bool(_statuses(value)) and all(is_whole_number(status, 100, 599) for status in _statuses(value))


_LINE_MEANS = "addresses in one line"
_CHANNEL: Forms = {
    "type": (lambda value: value in TYPES, "webhook, telegram or mail"),
    "name": (functools.partial(_matches, NAME), "1 to 32 of a-z, 0-9 and '-', a letter or digit first and last"),
    "url": (is_url, "an address that begins with https:// or http://, without a user and without spaces"),
    "api_url": (is_url, "an address that begins with https:// or http://, such as your own Bot API server"),
    "allow_http": (lambda value: isinstance(value, bool), "true or false"),
    "token": (functools.partial(_matches, TOKEN), "the bot's token from BotFather, a number, a colon and its secret"),
    "chat_id": (lambda value: not isinstance(value, bool) and CHAT.match(str(value)), "the number of a chat, or @ and the name of a channel"),
    "command": (_is_words, 'a list of words, such as ["/usr/sbin/sendmail", "-t"]'),
    "to": (functools.partial(_matches, _LINE), _LINE_MEANS),
    "from": (functools.partial(_matches, _LINE), "an address in one line"),
}
_ENDPOINT: Forms = {
    "name": (lambda value: _matches(_ENDPOINT_NAME, value) and len(value) <= 64, "1 to 64 characters in one line, by which alerts name it"),
    "url": _CHANNEL["url"],
    "status": (_is_status, "a status from 100 to 599, or a list of some"),
}


def _form(value: t.Any) -> str:
    # A wrong address or token may still be a secret, so it is not shown.
    return "is missing" if value in (None, "") else "has another form"


def _of_mail(where: str, channel: t.Mapping[str, t.Any], remedy: str) -> t.Iterator[Fault]:
    command = channel.get("command")
    if not _is_words(command):
        return
    if any(holds_secret(word) for word in command) or holds_secret(" ".join(command)):
        what = "holds what looks like a password or a token; all accounts of the node could read it while the command runs"
        yield Fault(f"{where}.command", what, "a command that reads it from a file", remedy)
    if os.path.basename(command[0]) == "sendmail" and "-t" in command and not channel.get("to"):
        yield Fault(f"{where}.to", "is missing, and sendmail -t takes the recipients from the message", _LINE_MEANS, remedy)


def _channel(where: str, channel: t.Any) -> t.Iterator[Fault]:
    remedy = f"correct {ALERTS}"
    if not isinstance(channel, dict):
        yield Fault(where, "has another form", "a mapping with a type", remedy)
        return
    kind = channel.get("type")
    if kind not in TYPES:
        yield Fault(f"{where}.type", "is missing" if kind in (None, "") else f"is {str(kind)[:40]!r}", _CHANNEL["type"][1], remedy)
        return
    known = ("type", "name", *NEEDS[kind], *MAY_HAVE[kind])
    yield from field_faults(where, channel, {word: _CHANNEL[word] for word in known}, NEEDS[kind], lambda _word, value: _form(value), remedy)
    word = SENT_TO.get(kind, "")
    if is_url(channel.get(word)) and (what := why_in_clear(channel[word], channel.get("allow_http") is True)):
        yield Fault(f"{where}.{word}", what, "https", f"use an https address; for a private address in your own network set allow_http: true in {ALERTS}")
    if kind == MAIL:
        yield from _of_mail(where, channel, remedy)


def _endpoint(where: str, endpoint: t.Any) -> t.Iterable[Fault]:
    remedy = f"correct {ENDPOINTS}"
    if not isinstance(endpoint, dict):
        return [Fault(where, "has another form", "a mapping of name, url and status", remedy)]
    return field_faults(where, endpoint, _ENDPOINT, ("name", "url"), lambda _word, value: _form(value), remedy)


def _twice(setting: str, names: t.Iterable[tuple[int, str]]) -> t.Iterator[Fault]:
    seen: dict[str, int] = {}
    for index, name in names:
        first = seen.setdefault(name, index)
        if first != index:
            yield Fault(f"{setting}[{index}].name", f"is {name}, as in {setting}[{first}]", "a unique name", f"give each of {setting} a unique name")


def channel_faults(channels: t.Sequence[t.Any]) -> list[Fault]:
    """Return the faults of the channels. They contain no value that may be a secret."""
    named = [(index, name_of(channel)) for index, channel in enumerate(channels) if isinstance(channel, dict) and channel.get("type") in TYPES]
    return [*(fault for index, channel in enumerate(channels) for fault in _channel(f"{ALERTS}[{index}]", channel)), *_twice(ALERTS, named)]


def endpoint_faults(endpoints: t.Sequence[t.Any]) -> list[Fault]:
    """Return the faults of the endpoints."""
    valid = _ENDPOINT["name"][0]
    named = [(index, endpoint["name"]) for index, endpoint in enumerate(endpoints) if isinstance(endpoint, dict) and valid(endpoint.get("name"))]
    return [*(fault for index, endpoint in enumerate(endpoints) for fault in _endpoint(f"{ENDPOINTS}[{index}]", endpoint)), *_twice(ENDPOINTS, named)]


def status_text(wanted: t.Any) -> str:
    """Return the expected status of an endpoint as text."""
    return " or ".join(map(str, _statuses(wanted))) if wanted else "200 to 299"


def is_wanted(status: int, wanted: t.Any) -> bool:
    """Return whether an endpoint's status is the declared one, by default any of 200 to 299."""
    return status in _statuses(wanted) if wanted else 200 <= status < 300
