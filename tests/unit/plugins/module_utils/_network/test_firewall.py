# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whom a firewall lets in. The rulesets are composed after nft's documentation of its JSON (libnftables-json)."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._network import firewall


def chain(name="input", **more):
    return {"chain": {"family": "inet", "table": "filter", "name": name, "handle": 1, **more}}


def hooked(policy="drop"):
    return chain(type="filter", hook="input", prio=0, policy=policy)


def rule(*expressions, chain="input"):
    return {"rule": {"family": "inet", "table": "filter", "chain": chain, "handle": 2, "expr": list(expressions)}}


def match(left, right, op="=="):
    return {"match": {"op": op, "left": left, "right": right}}


COUNTER, ACCEPT = {"counter": {"packets": 0, "bytes": 0}}, {"accept": None}
IIFNAME = {"meta": {"key": "iifname"}}
SADDR = {"payload": {"protocol": "ip", "field": "saddr"}}
DPORT = {"payload": {"protocol": "tcp", "field": "dport"}}


def text(*items):
    return json.dumps({"nftables": [{"metainfo": {"version": "1.0.6", "json_schema_version": 1}}, *items]})


def read(*items):
    return firewall.parse_ruleset(text(*items))


@pytest.mark.parametrize(
    ("items", "denies"),
    [
        ([], False),
        ([hooked("accept")], False),
        ([hooked("drop")], True),
        ([hooked("accept"), rule(COUNTER, {"drop": None})], True),
        ([hooked("accept"), rule({"reject": {"type": "icmpx", "expr": "admin-prohibited"}})], True),
        ([hooked("accept"), rule(match(DPORT, 22), {"drop": None})], False),
        ([chain(type="filter", hook="forward", policy="drop")], False),
    ],
)
def test_what_refuses_by_default(items, denies):
    assert read(*items)["default_deny"] is denies


def test_whom_it_lets_in_whole():
    rules = read(
        hooked(),
        chain("user"),
        rule(match(IIFNAME, "lo"), ACCEPT),
        rule(match(DPORT, 22), ACCEPT),
        rule(match(IIFNAME, "enp1s0f0np0"), match(DPORT, 8000), ACCEPT),
        rule(COUNTER, {"jump": {"target": "user"}}),
        rule(match(IIFNAME, {"set": ["enp1s0f0np0", "enP2*"]}), COUNTER, ACCEPT, chain="user"),
        rule(match(SADDR, {"prefix": {"addr": "192.168.100.0", "len": 24}}), ACCEPT, chain="user"),
        rule(match(SADDR, "10.0.0.5"), ACCEPT, chain="user"),
        rule(match(SADDR, "@peers"), ACCEPT, chain="user"),
        rule(match(SADDR, "10.0.0.6", op="!="), ACCEPT, chain="user"),
        rule({"jump": {"target": "user"}}, chain="user"),
    )
    assert rules["interfaces"] == ["lo", "enp1s0f0np0", "enP2*"]
    assert rules["networks"] == ["192.168.100.0/24", "10.0.0.5/32"]


def test_mutilated_answers_are_unknown_and_nothing_else():
    whole = text(hooked(), rule(match(SADDR, {"prefix": {"addr": "192.168.100.0", "len": 24}}), ACCEPT), rule({"jump": {"target": "user"}}))
    dice = random.Random(4)
    for _run in range(3000):
        broken = list(whole)
        for _change in range(dice.randint(1, 4)):
            at = dice.randrange(len(broken))
            broken[at : at + dice.randint(0, 3)] = dice.choice(["", "null", "[]", "{}", "7", '"', "\x00", "ä"])
        try:
            rules = firewall.parse_ruleset("".join(broken))
        except UnknownState as error:
            assert error.details["raw"]
        else:
            assert isinstance(rules["default_deny"], bool)


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "7", '{"nftables": 7}', '{"nftables": [7]}', '{"nftables": [{"chain": 7}]}', '{"nftables": [{"rule": {}}]}']
)
def test_anything_else_is_unknown(text):
    with pytest.raises(UnknownState):
        firewall.parse_ruleset(text)


@pytest.mark.parametrize(
    ("conf", "defaults", "denies"),
    [
        ("", "", False),
        ("ENABLED=no\n", 'DEFAULT_INPUT_POLICY="DROP"\n', False),
        ("# ENABLED=no\nENABLED=yes\n", 'DEFAULT_INPUT_POLICY="DROP"\n', True),
        ("ENABLED=yes", 'DEFAULT_INPUT_POLICY="ACCEPT"', False),
        ("ENABLED=yes", "", True),
    ],
)
def test_ufw(conf, defaults, denies):
    assert firewall.parse_ufw(conf, defaults) is denies


def tool(place: Path, script: str) -> str:
    path = place / "nft"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_the_tool_is_asked(tmp_path):
    answer = tmp_path / "answer.json"
    answer.write_text(text(hooked()), encoding="utf-8")
    assert firewall.firewall(tool(tmp_path, f'test "$*" = "-j list ruleset" && cat {answer}'), 30, str(tmp_path))["default_deny"] is True


@pytest.mark.parametrize(
    ("script", "words"),
    [("echo 'Operation not permitted' >&2; exit 1", "ended with 1"), ("echo Grüezi", "cannot be parsed"), ("echo '{\"nftables\": ['", "cannot be parsed")],
)
def test_a_tool_that_fails_is_unknown(tmp_path, script, words):
    with pytest.raises(UnknownState, match=words):
        firewall.firewall(tool(tmp_path, script), 30, str(tmp_path))


def test_without_the_tool_there_is_no_firewall_unless_ufw_says_so(tmp_path):
    missing = str(tmp_path / "no-nft")
    assert firewall.firewall(missing, 30, str(tmp_path)) == firewall.OPEN
    (tmp_path / "ufw").mkdir()
    (tmp_path / "ufw" / "ufw.conf").write_text("ENABLED=yes\n", encoding="utf-8")
    with pytest.raises(UnknownState, match="without nft"):
        firewall.firewall(missing, 30, str(tmp_path))
    answer = tmp_path / "answer.json"
    answer.write_text(text(), encoding="utf-8")
    with pytest.raises(UnknownState, match="does not show its rules"):
        firewall.firewall(tool(tmp_path, f"cat {answer}"), 30, str(tmp_path))
