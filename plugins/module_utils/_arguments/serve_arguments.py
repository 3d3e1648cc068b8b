# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Converts typed serve arguments to the engine's argv. This module util is PRIVATE to the collection."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError

#: Version of the digest's input. A new version makes every running engine count as changed, so it needs a release note.
DIGEST_VERSION = 1

NAME = re.compile(r"^[a-z0-9][a-z0-9_.-]*$", re.IGNORECASE)


class Reserved(t.NamedTuple):
    """The source of an argument that the collection itself sets, so that its value is set in only one place."""

    #: The field of a profile or the setting of an inventory that sets it; empty where only the module refuses it.
    setting: str
    #: Why the module refuses it among the arguments, and what to do; empty where the roles pass it there.
    remedy: str = ""
    #: Refused only for an engine that spreads its own ranks: there it sets the place of a rank.
    native: bool = False


_SHOWN = "A command line shows it to everyone: put {} into secret_env."

#: By name, with underscores. Profiles and inventories may give none that has a setting; the module refuses those that have an option of their own.
RESERVED = {
    "model": Reserved("model.repo", "Give it as the option model."),
    "host": Reserved("gb10_api_address", "Give it as the option api_address."),
    "port": Reserved("gb10_api_port", "Give it as the option api_port."),
    "api_key": Reserved("gb10_api_key (the key travels as a file, never as an argument)", _SHOWN.format("VLLM_API_KEY")),
    "hf_token": Reserved("", _SHOWN.format("HF_TOKEN")),
    "served_model_name": Reserved("model.served_names"),
    "revision": Reserved("model.revision"),
    "code_revision": Reserved("model.revision (remote code of another commit than the weights is not pinned)"),
    "tokenizer_revision": Reserved("model.revision"),
    "tensor_parallel_size": Reserved("parallel.tensor"),
    "pipeline_parallel_size": Reserved("parallel.pipeline"),
    "data_parallel_size": Reserved("parallel.data"),
    "enable_expert_parallel": Reserved("parallel.expert"),
    "distributed_executor_backend": Reserved("executor"),
    "nnodes": Reserved("executor", "It follows from the option node_count.", native=True),
    "node_rank": Reserved("executor", "Give it as the option node_rank.", native=True),
    "master_addr": Reserved("executor", "Give it as the option master_address.", native=True),
    "master_port": Reserved("executor", "Give it as the option master_port.", native=True),
    "headless": Reserved("executor", "It follows from the option node_rank.", native=True),
}

#: Arguments that are never accepted, and why: their effect is not checked.
REFUSED = {
    "config": "reads more arguments from a file, which is not checked: remote code, another revision or a key could be among them",
    "grpc": "has the engine serve gRPC in place of HTTP, where it asks for no key, and cannot be proven",
    "grpc_port": "has the engine serve gRPC as well, where it asks for no key",
}

#: The argument that lets the engine run a model's code.
TRUST = "trust_remote_code"
#: Names of other engine arguments that are also the beginning of a judged name.
_WHOLE = ("tokenizer",)
#: A negative number as the engine's parser recognizes it, which is not an option.
_NEGATIVE = re.compile(r"-(?:\d+|\d*\.\d+)\Z")

#: Arguments that vLLM refuses on a rank without API.
API_ONLY = {"api_server_count"}


class Place(t.NamedTuple):
    """The place of one node's part of an engine that spreads its own ranks over ``nodes`` nodes; number 0 has the API."""

    rank: int
    nodes: int
    master_address: str
    master_port: int


#: The place of an engine whose command line runs on only one node, with or without Ray.
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
    return canonical(value) if isinstance(value, (dict, list)) else str(value)


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
        if any(map(is_option, value)):
            # It may contain a secret, so it is not shown.
            raise ClusterError(f"serve argument {name}: a list cannot hold a word that begins with a dash", remedy="Write it as an argument of its own.")
        return [word, *(scalar(name, item) for item in value)]
    text = scalar(name, value)
    return [f"{word}={text}"] if text.startswith("-") else [word, text]


def place_words(place: Place) -> list[str]:
    """Return the words of argv that distinguish a node's part of the engine from the others'."""
    where = ("--nnodes", str(place.nodes), "--node-rank", str(place.rank), "--master-addr", place.master_address, "--master-port", str(place.master_port))
    return [] if place.nodes == 1 else [*where, *(["--headless"] if place.rank else [])]


def short_for(name: str) -> str:
    """Return the judged argument that ``name`` (with underscores) abbreviates, empty for none: the engine's parser accepts any beginning of a name."""
    judged = (*RESERVED, *REFUSED, TRUST)
    return "" if name in judged or name in _WHOLE else next((argument for argument in judged if argument.startswith(name)), "")


def is_option(value: t.Any) -> bool:
    """Return whether the engine takes a word for an option, and not for a value."""
    return isinstance(value, str) and value.startswith("-") and not _NEGATIVE.match(value)


def is_refused(name: str, value: t.Any) -> bool:
    """Return whether an argument (with underscores) is in :data:`REFUSED` and is set."""
    return name in REFUSED and value is not None and value is not False


def serve_argv(command: list[str], model: str, address: str, port: int, arguments: dict[str, t.Any], place: Place | None = None) -> list[str]:
    """Return the whole argv of the engine, or with ``place`` of one node's part of it.

    Arguments are sorted by name, so the order in which a profile lists them makes no difference.
    Raises :class:`ClusterError` for arguments that belong elsewhere and for invalid names.
    """
    refused = {name: row.remedy for name, row in RESERVED.items() if row.remedy and (place is not None or not row.native)}
    place = place or ALONE
    if is_option(model):
        raise ClusterError("the model's name begins with a dash, so the engine would read it as an option", remedy="Correct the option model.")
    words = [*command, model, *place_words(place)] if place.rank else [*command, model, "--host", address, "--port", str(port), *place_words(place)]
    for name in sorted(arguments):
        plain = name.replace("-", "_")
        if plain in refused:
            raise ClusterError(f"serve argument {name} is not accepted among the arguments", remedy=refused[plain])
        if is_refused(plain, arguments[name]):
            raise ClusterError(f"serve argument {name} {REFUSED[plain]}", remedy="Leave it out.")
        if full := short_for(plain):
            raise ClusterError(f"serve argument {name} is the beginning of {full}, which the engine would read it as", remedy=f"Write {full}.")
        if not (place.rank and plain in API_ONLY):
            words += option(name, arguments[name])
    return words


def served_name(model: str, arguments: dict[str, t.Any]) -> str:
    """Return the name under which the API serves the model: the first served name, else the model itself."""
    names = arguments.get("served_model_name", arguments.get("served-model-name"))
    first = [*names, None][0] if isinstance(names, list) else names
    return str(first) if first else model


def digest(argv: list[str], secret_env: dict[str, str], no_carry_env: list[str]) -> str:
    """Return ``VERSION:SHA256`` over everything that makes one engine differ from another."""
    text = canonical({"argv": argv, "secret_env": secret_env, "no_carry_env": sorted(no_carry_env)})
    return f"{DIGEST_VERSION}:{hashlib.sha256(text.encode()).hexdigest()}"
