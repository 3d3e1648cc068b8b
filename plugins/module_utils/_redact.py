# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Removes secrets from text that leaves a node. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError

#: A shorter value would match harmless text, and is not a secret either.
SHORTEST_SECRET = 8

#: Patterns of secrets whose value is not known here: a hub token, a header, a variable with a telling name.
_PATTERNS = (
    re.compile(r"\b(?P<kept>hf_)[A-Za-z0-9]{16,}"),
    re.compile(r"\b(?P<kept>nvapi-|sk-)[A-Za-z0-9_-]{16,}"),
    re.compile(r"(?i)(?P<kept>\bbearer\s+)[^\s\"',]{8,}"),
    re.compile(r"(?P<kept>\b[A-Z0-9_]*(?:TOKEN|API_KEY|SECRET|PASSWORD)=)[^\s\"',]+"),
    # An option of a command line (--api-key VALUE), and the password within an address.
    re.compile(r"(?i)(?P<kept>(?<![\w-])--?[a-z0-9_-]*(?:token|api[_-]?key|secret|password)(?:=|\s+|[\"'],\s*[\"']))[^\s\"',-][^\s\"',]*"),
    re.compile(r"(?P<kept>\b[a-z][a-z0-9+.-]*://[^\s/:@]+:)[^\s/@]+(?=@)"),
)

#: How the name of a variable that holds a secret ends.
_SECRET_NAME = re.compile(r"(?i)(?:TOKEN|API_?KEY|SECRET|SECRET_KEY|ACCESS_KEY|PASSWORD|PASSWD|CREDENTIALS?)$")

#: How an option of a command line ends that is followed by a secret.
_SECRET_OPTION = re.compile(r"(?i)(?:token|api[_-]?key|secret|password)$")

#: The text that replaces a secret.
HIDDEN = "<secret>"


def known_secrets(directory: str) -> dict[str, str]:
    """Return name → value of the secret files in ``directory``, empty when there is no such directory.

    Raises :class:`ClusterError` when one exists but cannot be read: then nothing may leave the node.
    """
    found = {}
    try:
        for name in sorted(os.listdir(directory)):
            path = os.path.join(directory, name)
            if os.path.isfile(path):
                with open(path, encoding="utf-8", errors="replace") as handle:
                    found[name] = handle.read().strip()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ClusterError(
            f"{error.filename} cannot be read, so its content cannot be taken out of the logs: {error.strerror}", remedy="Run the task with become: true."
        ) from error
    return {name: value for name, value in found.items() if len(value) >= SHORTEST_SECRET}


def redacted(text: str, secrets: dict[str, str]) -> str:
    """Return ``text`` without the values of ``secrets`` and without anything else that looks like a secret."""
    for name, value in sorted(secrets.items(), key=lambda item: -len(item[1])):
        text = text.replace(value, f"<secret {name}>")
    for pattern in _PATTERNS:
        text = pattern.sub(r"\g<kept><secret>", text)
    return text


def shown_argv(argv: t.Iterable[str]) -> list[str]:
    """Return the words of a command line as they may leave a node: without the values of secret options, and without what looks like a secret.

    Some of these options take several values (``--api-key A B``), so all words up to the next option go.
    """
    found: list[str] = []
    hiding = False
    for word in argv:
        if word.startswith("-"):
            option, equals, _value = word.partition("=")
            hiding = bool(_SECRET_OPTION.search(option)) and not equals
            found.append(f"{option}={HIDDEN}" if equals and _SECRET_OPTION.search(option) else redacted(word, {}))
        else:
            found.append(HIDDEN if hiding else redacted(word, {}))
    return found


def shown_value(name: str, value: str) -> str:
    """Return the value of a variable as it may leave a node: :data:`HIDDEN` for the name of a secret, else without what looks like one."""
    return HIDDEN if value and _SECRET_NAME.search(name) else redacted(value, {})
