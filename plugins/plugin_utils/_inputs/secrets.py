# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judges secrets in the settings, and the files that contain them. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import functools
import os
import stat
import typing as t
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.module_utils._errors import Problem
from ansible_collections.gb10.cluster.plugins.module_utils._redact import SHORTEST_SECRET, holds_secret
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs.settings import Problems, Values, settings, short

#: Files on the controller that contain one secret each, and nothing else.
SECRET_FILES = ("gb10_api_key_file", "gb10_hf_token_file")
#: Bytes of such a file that are read: no key and no token is longer.
SECRET_BYTES = 4096
#: The private keys for Ansible's login.
KEY_FILES = ("ansible_private_key_file", "ansible_ssh_private_key_file")


def texts(content: t.Any, where: str) -> t.Iterator[tuple[str, str]]:
    """Yield the place of each text in data of any depth, and the text."""
    if isinstance(content, str):
        yield where, content
    elif isinstance(content, dict):
        for name, value in content.items():
            yield from texts(value, f"{where}.{name}")
    elif isinstance(content, list):
        for entry in content:
            yield from texts(entry, where)


def credentials(content: t.Any, where: str) -> Problems:
    """Yield problems of texts that contain a password, a token or a key, such as the address of a proxy or an index. They are never shown."""
    for place, text in texts(content, where):
        if holds_secret(text):
            what = "holds what looks like a password, a token or a key; it would be readable in a container's configuration, an image or a command line"
            remedy = f"take it out of {where}: the hub's token goes into gb10_hf_token_file, proxies and mirrors must not ask"
            yield Problem("input.credential", place, what, remedy=remedy)


def credentials_of(values: Values) -> Problems:
    """Yield the problems of :func:`credentials` for all settings except those for secrets."""
    for name, value in values.items():
        if not settings()[name].get("no_log"):
            yield from credentials(value, name)


def secret_files(values: Values) -> Problems:
    """Yield problems of the files for secrets, which contain one word each. The word is never shown."""
    for name in SECRET_FILES:
        if values.get(name):
            yield from _secret_file(name, Path(os.path.expanduser(values[name])), f"correct {name}, or the credential that it comes from", one_word=True)


def login(variables: Values) -> Problems:
    """Yield problems of private keys: ssh refuses one that others can read, at the first contact and with a long message."""
    for name in KEY_FILES:
        if variables.get(name):
            yield from _secret_file(name, Path(os.path.expanduser(str(variables[name]))), f"correct {name}")


def _secret_file(name: str, path: Path, remedy: str, one_word: bool = False) -> Problems:
    wrong = functools.partial(Problem, "input.secret_file", name)
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if one_word:
            with path.open("rb") as file:
                words = file.read(SECRET_BYTES).split()
    except OSError as error:
        yield wrong(f"{path} can't be used: {error.strerror}", remedy=remedy)
        return
    if one_word and len(words) != 1:
        yield wrong(f"{path} holds {f'{len(words)} words' if words else 'nothing'}", "one word", f"put the secret alone into {path}")
    elif one_word and (length := len(words[0].decode("utf-8", "replace"))) < SHORTEST_SECRET:
        # A text this short is not removed from logs, where it may occur by chance.
        least = f"{SHORTEST_SECRET} or more"
        yield wrong(f"{path} holds {length} characters", least, f"put a longer secret into {path}", measured=length, needed=SHORTEST_SECRET)
    elif mode & 0o077:
        yield wrong(f"{path} can be read by others (mode {mode:04o})", remedy=f"chmod 0600 {path}", measured=f"{mode:04o}", needed="0600")


def unused_key(api_key: str, path: str) -> Problems:
    if api_key == "none" and path:
        what = f"{short(path)} is not read, since gb10_api_key is none: the API serves without a key"
        yield Problem("input.secret_file", "gb10_api_key_file", what, remedy="leave the file out, or set gb10_api_key to generate", verdict="warn")
