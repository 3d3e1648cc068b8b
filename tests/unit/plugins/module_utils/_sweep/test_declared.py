# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Declared channels and endpoints: each error is reported once, with its place and without any secret."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import declared

TOKEN = "123456789:AAE-planted_token_of_a_bot"
HOOK = {"type": "webhook", "url": "https://hooks.example.lan/services/planted"}
BOT = {"type": "telegram", "token": TOKEN, "chat_id": -1001234567890}
MAIL = {"type": "mail", "command": ["/usr/sbin/sendmail", "-t"], "to": "ops@example.lan"}


def test_sound_ones_have_no_faults():
    channels = [
        HOOK, {**HOOK, "name": "second", "url": "http://10.0.0.9:8080/x?y=1", "allow_http": True}, BOT,
        {**BOT, "name": "channel", "chat_id": "@gb10_alerts", "api_url": "http://10.0.0.9", "allow_http": True},
        {**HOOK, "name": "here", "url": "http://127.0.0.1:9000/x"}, {**BOT, "name": "own", "api_url": "http://[::1]:8081"},
        MAIL, {"type": "mail", "name": "local", "command": ["mail", "-s", "gb10 sweep", "root"]},
    ]  # fmt: skip
    assert declared.channel_faults(channels) == []
    endpoints = [{"name": "alias fast", "url": "https://[2001:db8::1]:4000/v1/models", "status": [200, 401]}, {"name": "b", "url": "http://x", "status": 401}]
    assert declared.endpoint_faults(endpoints) == [] and declared.channel_faults([]) == declared.endpoint_faults([]) == []


@pytest.mark.parametrize(
    ("channel", "where", "what"),
    [
        ("telegram", "", "has another form"),
        ({"url": "https://x"}, ".type", "is missing"),
        ({"type": "slack", "url": "https://x"}, ".type", "is 'slack'"),
        ({"type": "webhook"}, ".url", "is missing"),
        ({**HOOK, "url": "ftp://planted.example.lan/x"}, ".url", "has another form"),
        ({**HOOK, "url": "https://me:planted@example.lan/x"}, ".url", "has another form"),
        ({**HOOK, "url": "https://example.lan/planted x"}, ".url", "has another form"),
        ({**HOOK, "url": "https://example.lan:99999/planted"}, ".url", "has another form"),
        ({**HOOK, "url": ["planted"]}, ".url", "has another form"),
        ({**HOOK, "chat": 1}, ".chat", "is not a known field"),
        ({**HOOK, "name": "Ops Team"}, ".name", "has another form"),
        ({**BOT, "token": "planted"}, ".token", "has another form"),
        ({"type": "telegram", "chat_id": 1}, ".token", "is missing"),
        ({"type": "telegram", "token": TOKEN}, ".chat_id", "is missing"),
        ({**BOT, "chat_id": "gb10"}, ".chat_id", "has another form"),
        ({**BOT, "chat_id": True}, ".chat_id", "has another form"),
        ({**BOT, "api_url": "api.telegram.org"}, ".api_url", "has another form"),
        ({**HOOK, "url": "http://example.lan/planted"}, ".url", "is http, which exposes the secret"),
        ({**HOOK, "url": "http://example.lan/planted", "allow_http": True}, ".url", "is http, which exposes the secret"),
        ({**HOOK, "url": "HTTP://203.0.113.9/planted", "allow_http": True}, ".url", "is http to an address that is not private"),
        ({**HOOK, "url": "http://10.0.0.9/planted"}, ".url", "is http to a private address"),
        ({**HOOK, "url": "http://10.0.0.9/planted", "allow_http": False}, ".url", "is http to a private address"),
        ({**HOOK, "allow_http": "yes"}, ".allow_http", "has another form"),
        ({**BOT, "api_url": "http://10.0.0.9"}, ".api_url", "is http to a private address"),
        ({**MAIL, "allow_http": True}, ".allow_http", "is not a known field"),
        ({"type": "mail"}, ".command", "is missing"),
        ({**MAIL, "command": "sendmail -t"}, ".command", "has another form"),
        ({**MAIL, "command": ["sendmail", 1]}, ".command", "has another form"),
        ({**MAIL, "command": ["curl", "--password", "planted-password"]}, ".command", "holds what looks like a password or a token"),
        ({"type": "mail", "command": ["/usr/sbin/sendmail", "-t"]}, ".to", "is missing, and sendmail -t"),
        ({**MAIL, "to": "a@b\nBcc: c@d"}, ".to", "has another form"),
    ],
)
def test_one_fault_one_message_and_no_secret(channel: t.Any, where: str, what: str):
    (fault,) = declared.channel_faults([channel])
    assert fault.where == f"gb10_sweep_alerts[0]{where}" and fault.what.startswith(what) and fault.remedy
    assert "planted" not in f"{fault.what} {fault.expected} {fault.remedy}"


def test_two_channels_of_one_name_are_one_too_many():
    (fault,) = declared.channel_faults([HOOK, BOT, HOOK])
    assert (fault.where, fault.what) == ("gb10_sweep_alerts[2].name", "is webhook, as in gb10_sweep_alerts[0]")


@pytest.mark.parametrize(
    ("endpoint", "where"),
    [
        ("https://x", ""), ({"url": "https://x"}, ".name"), ({"name": "a\nb", "url": "https://x"}, ".name"), ({"name": "x" * 65, "url": "https://x"}, ".name"),
        ({"name": "a"}, ".url"), ({"name": "a", "url": "x.lan/health"}, ".url"), ({"name": "a", "url": "http://x", "status": 99}, ".status"),
        ({"name": "a", "url": "http://x", "status": "200"}, ".status"), ({"name": "a", "url": "http://x", "status": []}, ".status"),
        ({"name": "a", "url": "http://x", "port": 1}, ".port"),
    ],
)  # fmt: skip
def test_faults_of_endpoints(endpoint: t.Any, where: str):
    (fault,) = declared.endpoint_faults([endpoint])
    assert fault.where == f"gb10_sweep_endpoints[0]{where}"


def test_two_endpoints_of_one_name():
    (fault,) = declared.endpoint_faults([{"name": "a", "url": "http://x"}, {"name": "a", "url": "http://y"}])
    assert fault.where == "gb10_sweep_endpoints[1].name"


def test_which_status_is_well():
    assert declared.is_wanted(204, None) and not declared.is_wanted(302, None) and declared.is_wanted(401, [200, 401]) and not declared.is_wanted(200, 401)


@pytest.mark.parametrize(
    ("url", "without", "allowed"),
    [
        ("https://hooks.example.com/x", True, True), ("https://203.0.113.9/x", True, True),
        ("http://127.0.0.1/x", True, True), ("http://127.9.9.9:80/x", True, True), ("http://[::1]/x", True, True), ("http://localhost:9000/x", True, True),
        *((f"http://{host}/x", False, True) for host in ("10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.1.1", "[fd00::1]", "[fe80::1]")),
        *((f"http://{host}/x", False, False) for host in (
            "hooks.example.com", "localhost.example.com", "127.0.0.1.example.com", "8.8.8.8", "172.32.0.1", "11.0.0.1", "100.64.0.1", "192.0.2.1", "0.0.0.0",
            "[2001:db8::1]", "[::ffff:8.8.8.8]", "127.1", "2130706433", "0x7f.0.0.1",
        )),
    ],
)  # fmt: skip
def test_where_a_secret_may_go_in_clear(url: str, without: bool, allowed: bool):
    assert (not declared.why_in_clear(url, False), not declared.why_in_clear(url, True)) == (without, allowed)


def test_a_query_is_not_shown():
    assert declared.shown_url("http://x/y?token=planted&a=b?c") == "http://x/y?..." and declared.shown_url("http://x/y") == "http://x/y"
