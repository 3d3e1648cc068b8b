# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From typed serve arguments to the engine's argv. This module util is PRIVATE to the collection."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError

#: Version of the digest's input. A change of it makes every live engine look changed: only with a release note.
DIGEST_VERSION = 1

NAME = re.compile(r"^[a-z0-9][a-z0-9_.-]*$", re.IGNORECASE)

#: Arguments that have an option of their own, or that must not stand in a command line.
RESERVED = {
    "model": "Give it as the option model.",
    "host": "Give it as the option api_address.",
    "port": "Give it as the option api_port.",
    "api_key": "A command line shows it to everyone: put VLLM_API_KEY into secret_env.",
    "hf_token": "A command line shows it to everyone: put HF_TOKEN into secret_env.",
}

#: Arguments that say where a rank is. An engine that spreads its ranks by itself gets them from the module's own options.
RESERVED_NATIVE = {
    "nnodes": "It follows from the option node_count.",
    "node_rank": "Give it as the option node_rank.",
    "master_addr": "Give it as the option master_address.",
    "master_port": "Give it as the option master_port.",
    "headless": "It follows from the option node_rank.",
}

#: Arguments that vLLM refuses on a rank without API.
API_ONLY = {"api_server_count"}


class Place(t.NamedTuple):
    """Where one node's part of an engine stands that spreads its ranks over ``nodes`` nodes by itself; number 0 has the API."""

    rank: int
    nodes: int
    master_address: str
    master_port: int


#: An engine whose command line runs on one node alone, be it with Ray or without.
ALONE = Place(0, 1, "", 0)


def canonical(value: t.Any) -> str:
    """Return ``value`` as JSON in the one form that digests and argv use: sorted keys, no spaces, no escapes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def flag(name: str) -> str:
    """Return the option string of an argument: ``max_model_len`` gives ``--max-model-len``.

    Only the part before a first dot changes, the rest names keys of a JSON value (``compilation_config.max_size``).
    """
    if not NAME.match(name):
        raise ClusterError(f"serve argument {name!r} is not a name", remedy="Write names like max_model_len, without leading dashes.")
    head, dot, rest = name.partition(".")
    return "--" + head.replace("_", "-") + dot + rest


def scalar(name: str, value: t.Any) -> str:
    """Return one value as one word of argv; dicts and nested lists become compact JSON."""
    if isinstance(value, bool):
        raise ClusterError(f"serve argument {name}: a list cannot hold {value}", remedy="Write booleans as an argument of their own.")
    if isinstance(value, (dict, list)):
        return canonical(value)
    return str(value)


def option(name: str, value: t.Any) -> list[str]:
    """Return the words of argv for one argument.

    ``true`` gives ``--name``, ``false`` gives ``--no-name``, null and an empty list give nothing, a list gives its items as
    words, a dict gives compact JSON. A single value that starts with a dash is joined (``--name=-1``), or argparse would
    take it for the next option.
    """
    word = flag(name)
    if value is None or value == []:
        return []
    if isinstance(value, bool):
        return [word] if value else ["--no-" + word[2:]]
    if isinstance(value, list):
        return [word, *(scalar(name, item) for item in value)]
    text = scalar(name, value)
    return [f"{word}={text}"] if text.startswith("-") else [word, text]


def place_words(place: Place) -> list[str]:
    """Return the words of argv that tell a node's part of the engine from the others'."""
    if place.nodes == 1:
        return []
    words = ["--nnodes", str(place.nodes), "--node-rank", str(place.rank)]
    words += ["--master-addr", place.master_address, "--master-port", str(place.master_port)]
    return [*words, "--headless"] if place.rank else words


def serve_argv(command: list[str], model: str, address: str, port: int, arguments: dict[str, t.Any], place: Place | None = None) -> list[str]:
    """Return the whole argv of the engine, or with ``place`` of one node's part of it.

    Arguments are sorted by name, so that the order in which a profile lists them is no difference between engines.
    Raises :class:`ClusterError` for arguments that belong elsewhere and for names that are none.
    """
    reserved = RESERVED if place is None else {**RESERVED, **RESERVED_NATIVE}
    place = place or ALONE
    words = [*command, model, *place_words(place)] if place.rank else [*command, model, "--host", address, "--port", str(port), *place_words(place)]
    for name in sorted(arguments):
        plain = name.replace("-", "_")
        if plain in reserved:
            raise ClusterError(f"serve argument {name} is not accepted among the arguments", remedy=reserved[plain])
        if not (place.rank and plain in API_ONLY):
            words += option(name, arguments[name])
    return words


def served_name(model: str, arguments: dict[str, t.Any]) -> str:
    """Return the name under which the API serves the model: the first served name, else the model itself."""
    names = arguments.get("served_model_name", arguments.get("served-model-name"))
    if isinstance(names, list):
        names = names[0] if names else None
    return str(names) if names else model


def digest(argv: list[str], secret_env: dict[str, str], no_carry_env: list[str]) -> str:
    """Return ``VERSION:SHA256`` over everything that makes one engine differ from another."""
    text = canonical({"argv": argv, "secret_env": secret_env, "no_carry_env": sorted(no_carry_env)})
    return f"{DIGEST_VERSION}:{hashlib.sha256(text.encode()).hexdigest()}"
