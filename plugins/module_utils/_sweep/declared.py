# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The channels and endpoints of a sweep, as the settings declare them. This module util is PRIVATE to the collection."""

from __future__ import annotations

import ipaddress
import os
import re
import typing as t
import urllib.parse

from ansible_collections.gb10.cluster.plugins.module_utils._companion.declared import Fault
from ansible_collections.gb10.cluster.plugins.module_utils._redact import holds_secret

#: The settings that are judged here.
ALERTS, ENDPOINTS = "gb10_sweep_alerts", "gb10_sweep_endpoints"

WEBHOOK, TELEGRAM, MAIL = "webhook", "telegram", "mail"
TYPES = (WEBHOOK, TELEGRAM, MAIL)
#: What each type of channel needs beside ``type`` and ``name``, and what it may have.
NEEDS = {WEBHOOK: ("url",), TELEGRAM: ("token", "chat_id"), MAIL: ("command",)}
MAY_HAVE = {WEBHOOK: ("allow_http",), TELEGRAM: ("api_url", "allow_http"), MAIL: ("to", "from")}
#: What of a channel is the address that its secret is sent to.
SENT_TO = {WEBHOOK: "url", TELEGRAM: "api_url"}
#: What of a channel is a secret. It travels as a file and is never shown; the address of a webhook often holds a token.
SECRETS = {WEBHOOK: "url", TELEGRAM: "token"}

#: Networks that no router of the internet passes on (RFC 1918, 3927, 4193 and 4291).
PRIVATE = tuple(map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fc00::/7", "fe80::/10")))

#: A name becomes that of the file with the channel's secret.
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?\Z")
#: A bot's number, a colon and its secret (core.telegram.org/bots/api, "Authorizing your bot").
TOKEN = re.compile(r"[0-9]{3,}:[A-Za-z0-9_-]{10,}\Z")
#: A chat's number, or the public name of a channel (the same page, "sendMessage").
CHAT = re.compile(r"(?:-?[0-9]+|@[A-Za-z][A-Za-z0-9_]{3,})\Z")
_LINE = re.compile(r"[^\r\n\0]{1,200}\Z")
#: Words of plain letters: the name begins a line of an alert.
_ENDPOINT_NAME = re.compile(r"[!-~]+(?: [!-~]+)*\Z")


def name_of(channel: t.Mapping[str, t.Any]) -> str:
    """Return the name of a channel, its type where it has none of its own."""
    return str(channel.get("name") or channel["type"])


def is_url(value: t.Any) -> bool:
    """Return whether a value is an address that a sweep can ask: http or https, a host, no user, no fragment and nothing that a request must not hold."""
    if not isinstance(value, str) or not re.fullmatch(r"[!-~]+", value):
        return False
    try:
        parts = urllib.parse.urlsplit(value)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc and "#" not in value
    except ValueError:
        return False


def why_in_clear(url: str, allow_http: bool) -> str:
    """Return why a secret must not be sent to ``url``, empty where it may: over https, to this node itself, and where a person allows it to a private address.

    A name is not an address: who answers to it is decided elsewhere, and may change.
    """
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "" if parts.scheme == "https" or host == "localhost" else "is http, which shows the secret to everybody on the way"
    if parts.scheme == "https" or address.is_loopback:
        return ""
    if not any(address in network for network in PRIVATE if network.version == address.version):
        return "is http to an address that is not private, which shows the secret to everybody on the way"
    return "" if allow_http else "is http to a private address, and nobody said that the secret may go there in clear"


def shown_url(url: str) -> str:
    """Return an address as it may be shown: what stands behind its question mark may be a token."""
    path, question, _query = url.partition("?")
    return f"{path}{question and '?...'}"


def _is_words(value: t.Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) and one != "" and "\0" not in one for one in value)


def _is_line(value: t.Any) -> bool:
    return isinstance(value, str) and bool(_LINE.match(value))


def _is_number(value: t.Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_status(value: t.Any) -> bool:
    given = value if isinstance(value, list) else [value]
    return bool(given) and all(_is_number(one) and 100 <= one <= 599 for one in given)


#: What each word has to be: whether a value is that, and how to say it.
_FORMS: dict[str, tuple[t.Callable[[t.Any], t.Any], str]] = {
    "name": (lambda value: isinstance(value, str) and NAME.match(value), "1 to 32 of a-z, 0-9 and '-', a letter or digit first and last"),
    "url": (is_url, "an address that begins with https:// or http://, without a user and without spaces"),
    "api_url": (is_url, "an address that begins with https:// or http://, such as that of a Bot API server of your own"),
    "allow_http": (lambda value: isinstance(value, bool), "true or false"),
    "token": (lambda value: isinstance(value, str) and TOKEN.match(value), "the bot's token as BotFather gave it, a number, a colon and its secret"),
    "chat_id": (lambda value: (_is_number(value) or isinstance(value, str)) and CHAT.match(str(value)), "the number of a chat, or @ and the name of a channel"),
    "command": (_is_words, 'a list of words, such as ["/usr/sbin/sendmail", "-t"]'),
    "to": (_is_line, "addresses in one line"),
    "from": (_is_line, "an address in one line"),
}


def _of_fields(where: str, one: t.Mapping[str, t.Any], needs: t.Sequence[str], known: t.Sequence[str], remedy: str) -> t.Iterator[Fault]:
    for word in one:
        if word not in known:
            yield Fault(f"{where}.{word}", "is not a known field", f"one of {', '.join(known)}", remedy)
    for word in known:
        if word not in _FORMS or (word not in one and word not in needs):
            continue
        fits, expected = _FORMS[word]
        if not fits(one.get(word)):
            # What a person took for an address or a token may hold a secret all the same.
            yield Fault(f"{where}.{word}", "is missing" if one.get(word) in (None, "") else "is of another form", expected, remedy)


def _of_mail(where: str, one: t.Mapping[str, t.Any], remedy: str) -> t.Iterator[Fault]:
    command = one.get("command")
    if not _is_words(command):
        return
    if any(holds_secret(word) for word in command) or holds_secret(" ".join(command)):
        what = "holds what looks like a password or a token; everybody on the node could read it while the command runs"
        yield Fault(f"{where}.command", what, "a command that reads it from a file of its own", remedy)
    if os.path.basename(command[0]) == "sendmail" and "-t" in command and not one.get("to"):
        yield Fault(f"{where}.to", "is missing, and sendmail -t takes the recipients from the message", "addresses in one line", remedy)


def _channel(where: str, one: t.Any) -> t.Iterator[Fault]:
    remedy = f"correct {ALERTS}"
    if not isinstance(one, dict):
        yield Fault(where, "is of another form", "a mapping with a type", remedy)
        return
    kind = one.get("type")
    if kind not in TYPES:
        what = "is missing" if kind in (None, "") else f"is {str(kind)[:40]!r}"
        yield Fault(f"{where}.type", what, "webhook, telegram or mail", remedy)
        return
    yield from _of_fields(where, one, NEEDS[kind], ("type", "name", *NEEDS[kind], *MAY_HAVE[kind]), remedy)
    word = SENT_TO.get(kind, "")
    if is_url(one.get(word)) and (what := why_in_clear(one[word], one.get("allow_http") is True)):
        yield Fault(f"{where}.{word}", what, "https", f"give an address with https; in a network of your own a private one with allow_http: true in {ALERTS}")
    if kind == MAIL:
        yield from _of_mail(where, one, remedy)


def _twice(setting: str, names: t.Iterable[tuple[int, str]]) -> t.Iterator[Fault]:
    seen: dict[str, int] = {}
    for index, name in names:
        first = seen.setdefault(name, index)
        if first != index:
            yield Fault(f"{setting}[{index}].name", f"is {name}, as of {setting}[{first}]", "a name of its own", f"give each of {setting} a name of its own")


def channel_faults(channels: t.Sequence[t.Any]) -> list[Fault]:
    """Return all that is wrong with the channels. No value that may be a secret is in it."""
    found = [fault for index, one in enumerate(channels) for fault in _channel(f"{ALERTS}[{index}]", one)]
    named = [(index, name_of(one)) for index, one in enumerate(channels) if isinstance(one, dict) and one.get("type") in TYPES]
    return [*found, *_twice(ALERTS, named)]


def endpoint_faults(endpoints: t.Sequence[t.Any]) -> list[Fault]:
    """Return all that is wrong with the endpoints."""
    found, named = [], []
    remedy = f"correct {ENDPOINTS}"
    for index, one in enumerate(endpoints):
        where = f"{ENDPOINTS}[{index}]"
        if not isinstance(one, dict):
            found.append(Fault(where, "is of another form", "a mapping of name, url and status", remedy))
            continue
        name = one.get("name")
        if not isinstance(name, str) or not _ENDPOINT_NAME.match(name) or len(name) > 64:
            what = "is missing" if name in (None, "") else "is of another form"
            found.append(Fault(f"{where}.name", what, "1 to 64 characters in one line, by which alerts name it", remedy))
        else:
            named.append((index, name))
        found += _of_fields(where, {word: value for word, value in one.items() if word not in ("name", "status")}, ("url",), ("url",), remedy)
        if "status" in one and not _is_status(one["status"]):
            found.append(Fault(f"{where}.status", "is of another form", "a status from 100 to 599, or a list of some", remedy))
    return [*found, *_twice(ENDPOINTS, named)]


def status_text(wanted: t.Any) -> str:
    """Return which status an endpoint shall answer with, in words."""
    return "200 to 299" if not wanted else " or ".join(map(str, wanted if isinstance(wanted, list) else [wanted]))


def is_wanted(status: int, wanted: t.Any) -> bool:
    """Return whether an endpoint's status is the one that is declared; any of 200 to 299 where none is."""
    return status in (wanted if isinstance(wanted, list) else [wanted]) if wanted else 200 <= status < 300
