# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Anonymizing removes every spelling of a name or secret, and keeps what rules and parsers read."""

from __future__ import annotations

import ipaddress
import json

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._calibrate.anonymize import Names, anonymized

SECRET = 'Kp"7x\\tüPlanted-Secret'
NAMES = Names(
    nodes=(("spark-1", "dgx-a7.lab.acme.example"), ("spark-10",)),
    hosts=("jennys-laptop",),
    users=("jenny", "nvidia"),
    domains=("lab.acme.example",),
    addresses=("192.168.100.11", "fd12:3456::11"),
    secrets={"api_key": SECRET},
)


def anonymize_text(text: str, name: str = "node/some.log") -> str:
    """Return a text after anonymizing."""
    return next(iter(anonymized({name: text}, NAMES).values()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("spark-1 spark-10 SPARK-1 Spark-10", "node-1 node-2 node-1 node-2"),
        ("spark-10 before spark-1", "node-2 before node-1"),
        ("spark-100 myspark-1", "spark-100 myspark-1"),
        ("DGX-A7.lab.acme.example:8000 dgx-a7.local", "node-1:8000 dgx-a7.local"),
        (r'{"log": "first\nspark-1\tspark-10"}', r'{"log": "first\nnode-1\tnode-2"}'),
        ("\x1b[36mspark-1\x1b[0m", "\x1b[36mnode-1\x1b[0m"),
        ("other.LAB.acme.example", "other.example.net"),
        ("jennys-laptop JENNY jenny@home.example", "controller user-1 someone@example.net"),
        ("/home/jenny/x /home/tom/.cache tom", "/home/user-1/x /home/user-2/.cache user-2"),
        ("/home/nvidia/x nvidia-smi of nvidia", "/home/nvidia/x nvidia-smi of nvidia"),
        ("192.168.100.11 192.168.100.12:6379 10.20.30.40/24", "192.0.2.11 192.0.2.12:6379 198.51.100.40/24"),
        ("node:192.168.100.11,1.0 0B64A8C0 C0A8640B ip-192-168-100-11", "node:192.0.2.11,1.0 0b0200c0 c000020b ip-192-0-2-11"),
        ("11.100.168.192.in-addr.arpa", "198.51.100.192.in-addr.arpa"),
        ("127.0.0.1 0.0.0.0 255.255.255.0 169.254.1.1 224.0.0.1", "127.0.0.1 0.0.0.0 255.255.255.0 169.254.1.1 224.0.0.1"),
        ("nvidia-curand-cu12==10.3.9.90 580.126.09 6.17.0-1008", "nvidia-curand-cu12==10.3.9.90 580.126.09 6.17.0-1008"),
        ("4c:bb:47:2C:11:22 4cbb472c1122 22112C47BB4C", "02:00:00:00:00:01 020000000001 010000000002"),
        ("00:00:00:00:00:00 ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00 ff:ff:ff:ff:ff:ff"),
        ("fc4c:ea03:00f9:4230", "0000:0000:0000:0001"),
        ("GPU-528EEAEB-1b2c-4d5e-8f90-0123456789ab root=UUID=528eeaeb-1b2c-4d5e-8f90-0123456789ab", None),
        ("<serial>1652823055</serial> <serial>N/A</serial> <board_id>0x200</board_id>", "<serial>0</serial> <serial>N/A</serial> <board_id>0</board_id>"),
        ("usb 1-1: SerialNumber: S64XNF0R", "usb 1-1: SerialNumber: 0"),
        ("wlan0: SSID='Jenny at home'", "wlan0: SSID=0"),
        ("0002:01:00.0 10:20:30 std::vector c10::cuda sha256:abcd", "0002:01:00.0 10:20:30 std::vector c10::cuda sha256:abcd"),
        ("c0ffee00c0ffee00c0ffee00c0ffee00", "00000000000000000000000000000001"),
    ],
)
def test_each_kind(text, expected):
    result = anonymize_text(text)
    if expected is None:
        zero = "00000000-0000-0000-0000-000000000001"
        expected = f"GPU-{zero} root=UUID={zero}"
    assert result == expected


@pytest.mark.parametrize("spelling", [SECRET, SECRET.lower(), SECRET.upper(), json.dumps(SECRET), json.dumps(json.dumps(SECRET)), repr(SECRET)])
def test_no_spelling_of_a_secret_is_left(spelling):
    result = anonymize_text(f"key is {spelling} there").lower()
    assert "planted" not in result and "kp" not in result


def test_names_of_files_are_texts_too():
    assert set(anonymized({"spark-1/logs/ray-SPARK-10-192.168.100.11.log": "", "b": ""}, NAMES)) == {"node-1/logs/ray-node-2-192.0.2.11.log", "b"}


def test_the_same_value_gets_the_same_pseudonym_everywhere_and_two_never_share_one():
    texts = {"a": "10.1.1.1 fe80::1 4c:bb:47:2c:11:22", "b": "10.1.2.1 10.1.1.1 fe80::2 4c:bb:47:2c:11:23 4c:bb:47:2c:11:22 fe80::1"}
    result = anonymized(texts, NAMES)
    values = {text: value for name in texts for text, value in zip(texts[name].split(), result[name].split())}
    assert len(set(values.values())) == len(values) == 6
    assert all(result[name].split() == [values[text] for text in texts[name].split()] for name in texts)


def test_the_evidence_of_rules_is_kept():
    gid = "0000:0000:0000:0000:0000:ffff:c0a8:640b"
    words = anonymize_text(f"192.168.100.11 192.168.100.12 192.168.100.0/24 {gid} fe80:0000:0000:0000:4ebb:47ff:fe2c:0001").split()
    network = ipaddress.ip_network(words[2])
    assert ipaddress.ip_address(words[0]) in network and ipaddress.ip_address(words[1]) in network and words[0] != words[1]
    assert str(ipaddress.ip_address(words[3]).ipv4_mapped) == words[0] and len(words[3]) == len(gid)
    assert ipaddress.ip_address(words[4]).is_link_local and "4ebb" not in words[4]


def test_more_networks_than_there_are_for_documentation():
    words = anonymize_text(" ".join(f"10.{number // 256}.{number % 256}.7" for number in range(300))).split()
    assert len(set(words)) == 300 and all(ipaddress.ip_address(text) for text in words) and not any(text.startswith("10.") for text in words)


def test_the_chip_of_twins_remains_one_chip():
    chips = {"a": "b8cef6030055", "b": "b8cef6030055", "c": "b8cef6030056"}
    texts = {f"n/sys/{name}/phys_switch_id": f"{chip}\n" for name, chip in chips.items()}
    first, twin, other, log = anonymized({**texts, "n/kernel.log": "switch b8cef6030055 gone"}, NAMES).values()
    assert first == twin != other and "b8cef6" not in first + other + log


def test_json_remains_json():
    content = {"spark-1": {"path": "/home/jenny/a", "address": "192.168.100.11", "text": f"say {SECRET}\nspark-1"}}
    assert json.loads(anonymize_text(json.dumps(content)))["node-1"]["address"] == "192.0.2.11"


@pytest.mark.parametrize("part", ["a", "a.", "1.", ":", "f:", "aa:", "a-", "serial ", "ssid ", "x@", "/home/", "<serial>", "\\n", "0f"])
def test_an_odd_text_takes_no_longer_than_another(part):
    """If the time grew with the square of the length, this test would not end."""
    assert anonymize_text(part * (1_000_000 // len(part)))
