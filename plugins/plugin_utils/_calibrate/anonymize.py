# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replaces names of persons, machines and networks by pseudonyms. This plugin util is PRIVATE to the collection.

The same value gets the same pseudonym in every text of one archive, and relations that rules use are kept: two addresses of one network (/24, /64) stay
in one network, an address in a GID is that of the interface, twins have the GUID of one chip.
"""

from __future__ import annotations

import collections
import dataclasses
import ipaddress
import json
import re
import typing as t
import urllib.parse

from ansible_collections.gb10.cluster.plugins.module_utils._redact import spellings

#: Names that many machines share: they identify no person and no machine.
PUBLIC = frozenset(
    "admin ansible controller dgx docker example gb10 head host local localhost model models nobody node none nvidia ray root runner spark test ubuntu user"
    " users vllm worker workers".split()
)
#: A shorter name would match harmless text.
SHORTEST_NAME = 3

#: Networks for documentation (RFC 5737), then for benchmarks (RFC 2544): the first three numbers of an address.
_DOCUMENTATION = ("192.0.2", "198.51.100", "203.0.113")
_DOMAIN = "example.net"

# A name in a log may follow an escaped line break or the end of a color's code.
_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=\d[mK]))"
_ADDRESS_START = r"(?:(?<![\w.:])|(?<=\\[nrt])|(?<=\d[mK]))"
_OCTET = r"[0-9A-Fa-f]{2}"

#: Values that are recognized by their form, in the order of the search.
_KINDS = {
    "uuid": rf"{_START}[0-9A-Fa-f]{{8}}(?:-[0-9A-Fa-f]{{4}}){{3}}-[0-9A-Fa-f]{{12}}(?![0-9A-Za-z])",
    "hash": rf"{_START}[0-9A-Fa-f]{{32}}(?![0-9A-Za-z])",
    "mac": rf"{_START}{_OCTET}(?::{_OCTET}){{5,19}}(?![\w:])|{_START}{_OCTET}(?:-{_OCTET}){{5}}(?![\w-])",
    "guid": rf"{_ADDRESS_START}[0-9A-Fa-f]{{4}}(?::[0-9A-Fa-f]{{4}}){{3}}(?![\w:])",
    "ipv6": rf"{_ADDRESS_START}(?:[0-9A-Fa-f]{{0,4}}:){{2,7}}(?:(?:\d{{1,3}}\.){{3}}\d{{1,3}}|[0-9A-Fa-f]{{0,4}})(?![\w:])",
    # The versions of NVIDIA's packages have four numbers, too.
    "ipv4": r"(?<!==)(?:(?<![\w.])|(?<=\\[nrt])|(?<=\d[mK]))(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d)",
    "home": r"(?<=/home/)[^/\s\"'\\:,;)\]}]{1,64}|(?<=/Users/)[^/\s\"'\\:,;)\]}]{1,64}",
    "tag": (
        r"<(?P<tagname>serial|pdi|board_id|gpu_part_number|board_part_number|chassis_serial_number|module_id|guid|cluster_uuid|gpu_fabric_guid)>"
        r"(?!N/A)[^<]{0,128}(?=<)"
    ),
    "serial": r"(?i:\b(?P<serialname>serial(?:[ _-]?(?:number|no\.?))?\s{0,4}[:=]\s{0,4}\"?))[A-Za-z0-9._-]{4,64}",
    "ssid": r"(?i:\b(?P<ssidname>ssid\s{0,4}[:=]\s{0,4}))(?:\"[^\"\n]{0,64}\"|'[^'\n]{0,64}'|\S{1,64})",
}
#: Files of sysfs that contain only a name of the chip, without other text by which it could be recognized.
_CHIP_FILES = ("phys_switch_id", "node_guid", "sys_image_guid")


@dataclasses.dataclass(frozen=True)
class Names:
    """The known names: each node's names by its place in the inventory, other hosts, users, domains, addresses, and secrets by name."""

    nodes: tuple[tuple[str, ...], ...] = ()
    hosts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    secrets: t.Mapping[str, str] = dataclasses.field(default_factory=dict)


class Pseudonyms:
    """Numbers values by kind, in the order in which they are first seen."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[str, int]] = collections.defaultdict(dict)

    def number(self, kind: str, value: str) -> int:
        """Return the number of a value among those of its kind, from 1."""
        known = self._numbers[kind]
        return known.setdefault(value, len(known) + 1)

    def user(self, name: str) -> str:
        return name if name.lower() in PUBLIC else f"user-{self.number('user', name.lower())}"

    def hexadecimal(self, kind: str, text: str) -> str:
        """Return a pseudonym for a hexadecimal number in the form of ``text``; a number of only zeros or only ones identifies nothing, and is kept."""
        digits = re.sub(r"[^0-9A-Fa-f]", "", text).lower()
        if len(set(digits)) == 1 and digits[0] in "0f":
            return text
        number = self.number("hexadecimal", digits)
        # The second digit of 02 marks an address as locally administered, here as made up.
        made = iter(f"02{number:0{len(digits) - 2}x}" if kind == "mac" else f"{number:0{len(digits)}x}")
        return re.sub(r"[0-9A-Fa-f]", lambda _digit: next(made), text)

    def ipv4(self, text: str) -> str:
        try:
            address = ipaddress.IPv4Address(text)
        except ValueError:
            return text
        if address.is_loopback or address.is_unspecified or address.is_link_local or address.is_multicast or text.startswith("255."):
            return text
        network, _dot, last = text.rpartition(".")
        number = self.number("network", network) - 1
        made = _DOCUMENTATION[number] if number < len(_DOCUMENTATION) else f"198.{18 + number // 256}.{number % 256}"
        return f"{made}.{last}"

    def ipv6(self, text: str) -> str:
        try:
            address = ipaddress.IPv6Address(text)
        except ValueError:
            return text
        if address.is_loopback or address.is_unspecified or address.is_multicast:
            return text
        if address.ipv4_mapped:
            made = ipaddress.IPv6Address(f"::ffff:{self.ipv4(str(address.ipv4_mapped))}")
        else:
            network, own = divmod(int(address), 1 << 64)
            prefix = 0xFE80 << 48 if address.is_link_local else (0x20010DB8 << 32) + self.number("network6", str(network))
            made = ipaddress.IPv6Address((prefix << 64) + (self.number("interface6", f"{own:x}") if own else 0))
        # sysfs writes all 32 digits. Python 3.13's own `exploded` writes the end of a mapped address with dots.
        full = made.packed.hex(":", 2)
        return full if len(text) == len(full) else str(made)


class _Anonymizer:
    """One run over all texts: it first collects names from them, then replaces all of them at once."""

    def __init__(self, names: Names) -> None:
        self.made = Pseudonyms()
        self._words: dict[str, str] = {}
        self._addresses: dict[str, str] = {}
        self._chips: dict[str, str] = {}
        for number, called in enumerate(names.nodes, 1):
            self._word(called, f"node-{number}")
        self._word(names.hosts, "controller")
        for user in names.users:
            self._word([user], self.made.user(user))
        self._word(names.domains, _DOMAIN)
        for address in names.addresses:
            self._address(address)
        self._secrets = {spelling.lower() for value in names.secrets.values() for spelling in spellings(value)}

    def _word(self, names: t.Iterable[str], pseudonym: str) -> None:
        for name in names:
            if len(name) >= SHORTEST_NAME and name.lower() not in PUBLIC:
                for spelling in (name, json.dumps(name)[1:-1], urllib.parse.quote(name)):
                    self._words.setdefault(spelling.lower(), pseudonym)

    def _address(self, text: str) -> None:
        """Add an address of a node in the forms that logs, file names and the kernel's tables use."""
        made = self.made.ipv6(text) if ":" in text else self.made.ipv4(text)
        if made == text:
            return
        self._addresses[text.lower()] = made
        if ":" not in text:
            raw, new = (ipaddress.IPv4Address(address).packed for address in (text, made))
            self._addresses.update({text.replace(".", sign): made.replace(".", sign) for sign in "-_"})
            self._chips.update({raw.hex(): new.hex(), raw[::-1].hex(): new[::-1].hex()})

    def learn(self, name: str, text: str) -> None:
        """Add the names that a text shows, for the places in all texts where their form alone does not show them."""
        for match in re.finditer(_KINDS["home"], text):
            self._word([match[0]], self.made.user(match[0]))
        for match in re.finditer(_KINDS["mac"], text):
            digits, made = (re.sub("[^0-9A-Fa-f]", "", value).lower() for value in (match[0], self.made.hexadecimal("mac", match[0])))
            if digits != made:
                self._chips.update({digits: made, bytes.fromhex(digits)[::-1].hex(): bytes.fromhex(made)[::-1].hex()})
        digits = text.strip().replace(":", "").lower()
        if name.endswith(_CHIP_FILES) and re.fullmatch("[0-9a-f]{8,40}", digits) and digits.strip("0f"):
            self._chips[digits] = self.made.hexadecimal("guid", digits)

    def pattern(self) -> re.Pattern[str]:
        """Return one pattern for everything, so that a replacement is not replaced again."""

        def one_of(known: t.Iterable[str]) -> str:
            return "|".join(map(re.escape, sorted(known, key=lambda word: (-len(word), word)))) or r"(?!)"

        known = {
            "mail": r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}",
            "secret": rf"(?i:{one_of(self._secrets)})",
            "word": rf"{_START}(?i:{one_of(self._words)})(?![A-Za-z0-9])",
            "address": rf"(?<![\d.])(?i:{one_of(self._addresses)})(?!\d|\.\d)",
            "chip": rf"(?<![0-9A-Fa-f])(?i:{one_of(self._chips)})(?![0-9A-Fa-f])",
        }
        return re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in {**known, **_KINDS}.items()))

    def replacement(self, match: re.Match[str]) -> str:
        kind, text = match.lastgroup or "", match[0]
        fixed = {
            "secret": "<secret>",
            "mail": f"someone@{_DOMAIN}",
            "tag": f"<{match['tagname']}>0",
            "serial": f"{match['serialname']}0",
            "ssid": f"{match['ssidname']}0",
            "word": self._words.get(text.lower(), ""),
            "address": self._addresses.get(text.lower(), ""),
            "chip": self._chips.get(text.lower(), ""),
        }
        if kind in fixed:
            return fixed[kind]
        makers = {"home": self.made.user, "ipv4": self.made.ipv4, "ipv6": self.made.ipv6}
        return makers[kind](text) if kind in makers else self.made.hexadecimal(kind, text)


def anonymized(texts: t.Mapping[str, str], names: Names) -> dict[str, str]:
    """Return texts by name without known secrets and names of persons, machines and networks; the texts' own names are treated in the same way."""
    anonymizer = _Anonymizer(names)
    for name, text in texts.items():
        anonymizer.learn(name, text)
    pattern = anonymizer.pattern()
    return {pattern.sub(anonymizer.replacement, name): pattern.sub(anonymizer.replacement, text) for name, text in texts.items()}
