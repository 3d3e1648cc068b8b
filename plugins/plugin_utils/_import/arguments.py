# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Converts the words after ``vllm serve`` to typed arguments. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._arguments import argument_values
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.ledger import Ledger, RecipeError
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.template import CLOSE, OPEN, as_written, missing_names, spellings
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import flags

#: vLLM's short options, and names that launchers and people write for the long ones.
_SHORT = {
    "tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size", "ep": "enable_expert_parallel",
    "dcp": "decode_context_parallel_size", "pcp": "prefill_context_parallel_size", "n": "nnodes", "r": "node_rank", "q": "quantization",
    "dpn": "data_parallel_rank", "dpr": "data_parallel_start_rank", "dpl": "data_parallel_size_local", "dpa": "data_parallel_address",
    "dpp": "data_parallel_rpc_port", "dpb": "data_parallel_backend", "dph": "data_parallel_hybrid_lb", "dpe": "data_parallel_external_lb",
    "asc": "api_server_count", "cc": "compilation_config", "ac": "attention_config", "sc": "speculative_config", "O": "optimization_level",
}  # fmt: skip
_ALSO = {
    "tensor_parallel": "tensor_parallel_size", "pipeline_parallel": "pipeline_parallel_size", "data_parallel": "data_parallel_size",
    "tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "tp_size": "tensor_parallel_size", "pp_size": "pipeline_parallel_size",
    "decode_context_parallel": "decode_context_parallel_size",
}  # fmt: skip

#: The beginnings of switches that no release of the engine has, but a fork may have.
_SWITCH_START = ("enable_", "disable_", "return_")
#: Arguments whose values are text, also where they look like numbers.
_TEXTS = {"served_model_name", "model", "tokenizer", "revision", "tokenizer_revision", "code_revision", "chat_template", "api_key", "hf_token", "host"}

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})\Z")
_NUMBER = re.compile(r"-?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?:\.[0-9]+)?[eE][-+]?[0-9]{1,2})\Z")
#: Remains of a template.
_BRACES = re.compile(r"\{\{|\}\}|\{[%#]|[%#]\}|\{[ \t]*[A-Za-z_][\w.!:]*[ \t]*\}")
_OPTION = re.compile(r"--?[A-Za-z]")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]*(?:\.[A-Za-z0-9_+-]+)*\Z")

_CORRECT = "correct the recipe"


class Parsed(t.NamedTuple):
    """The words after ``vllm serve``."""

    model: str
    arguments: dict[str, t.Any]
    #: Arguments without a value, by the placeholder or variable that lacks it.
    missing: dict[str, str]


def typed(name: str, text: str) -> t.Any:
    """Return a value in its type. Raises :class:`RecipeError` for broken JSON."""
    stripped = text.strip()
    if stripped[:1] == "{" or stripped[:1] == "[" and stripped[-1:] == "]":
        try:
            return json.loads(stripped, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            if stripped[:1] == "[":
                return text
            raise RecipeError("is not JSON", where=text, remedy=_CORRECT) from None
    if name in _TEXTS:
        return text
    if name in argument_values.SIZES:
        try:
            return argument_values.size(stripped)
        except ValueError:
            return text
    if _INTEGER.match(stripped):
        return int(stripped)
    if _NUMBER.match(stripped):
        return float(stripped)
    return text


def _refuse_constant(name: str) -> t.NoReturn:
    raise ValueError(f"{name} is not JSON")


def is_switch(name: str) -> bool:
    """Return whether an argument takes no value."""
    return flags.is_switch(name) or not flags.is_known(name) and name.startswith(_SWITCH_START)


def _value(name: str, word: str, doubled_first: bool) -> t.Any:
    """Return one word in its type. Raises :class:`RecipeError` for braces that are neither JSON nor a placeholder."""
    for spelling in spellings(word, doubled_first):
        try:
            value = typed(name, spelling)
        except RecipeError:
            continue
        if not isinstance(value, str) or not (OPEN in word or CLOSE in word or _BRACES.search(value)):
            return value
    raise RecipeError(
        "holds braces that are neither JSON nor a placeholder ({name}); Jinja templates are not filled in",
        where=as_written(word),
        remedy="write the value itself, or a placeholder that defaults has",
    )


def _option_name(word: str) -> tuple[str, str | None]:
    """Return an option's name with underscores, and the value that is joined to it. The keys after a dot stay unchanged."""
    body, equals, value = word.lstrip("-").partition("=")
    if not word.startswith("--"):
        head, dot, rest = body.partition(".")
        if head[:1] == "O" and head[1:].isdigit():
            return "optimization_level", head[1:]
        if head == "O" and dot:
            head = "cc"
        body = _SHORT.get(head, head) + dot + rest
    head, dot, rest = body.partition(".")
    head = head.replace("-", "_")
    return _ALSO.get(head, head) + dot + rest, value if equals else None


class _Reader:
    """Collects arguments in their order; the last one of a name wins."""

    def __init__(self, doubled_first: bool, ledger: Ledger) -> None:
        self.doubled_first = doubled_first
        self.ledger = ledger
        self.arguments: dict[str, t.Any] = {}
        self.missing: dict[str, str] = {}

    def add(self, word: str, name: str, words: list[str]) -> None:
        """Take one option with its values. Raises :class:`RecipeError`."""
        if not _NAME.match(name):
            raise RecipeError("is not the name of an argument", where=as_written(word), remedy=_CORRECT)
        head, _dot, keys = name.partition(".")
        unknown = [placeholder for value in words for placeholder in missing_names(value)]
        if unknown:
            self.missing[head] = ", ".join(unknown)
            return
        self.missing.pop(head, None)
        value = self._joined(name, words)
        if keys:
            self._set_key(head, keys.split("."), value)
            return
        if head.startswith("no_") and value is True:
            head, value = head[3:], False
        if head in self.arguments and self.arguments[head] != value:
            if isinstance(self.arguments[head], dict) and isinstance(value, dict):
                value = {**self.arguments[head], **value}
            self.ledger.changed(f"--{head.replace('_', '-')}", self.arguments[head], f"{value}", "it is given twice, and the last one wins", differs=False)
        self.arguments[head] = value

    def _joined(self, name: str, words: list[str]) -> t.Any:
        """Return the value of an option's words."""
        head, _dot, keys = name.partition(".")
        if not words:
            return True
        if (keys or is_switch(head) or head.startswith("no_")) and len(words) == 1 and words[0].lower() in ("true", "false"):
            return words[0].lower() == "true"
        if is_switch(head):
            raise RecipeError(f"follows {name.replace('_', '-')}, which takes no value", where=" ".join(words), remedy=_CORRECT)
        values = [_value(head, word, self.doubled_first) for word in words]
        return values if len(values) > 1 else values[0]

    def _set_key(self, head: str, keys: list[str], value: t.Any) -> None:
        """Set a key of a JSON value (``--speculative-config.method mtp``); ``+`` at its end makes it a list's next entry."""
        place = self.arguments.setdefault(head, {})
        for key in keys[:-1]:
            place = place.setdefault(key.replace("-", "_"), {}) if isinstance(place, dict) else place
        if not isinstance(place, dict):
            raise RecipeError(f"sets keys of --{head.replace('_', '-')}, whose value is not a mapping", where=".".join(keys), remedy=_CORRECT)
        last = keys[-1].replace("-", "_")
        if last.endswith("+"):
            known = place.setdefault(last[:-1], [])
            if not isinstance(known, list):
                raise RecipeError("adds to what is not a list", where=".".join(keys), remedy=_CORRECT)
            known.append(value)
        else:
            place[last] = value


def parse(words: list[str], model: str, doubled_first: bool, ledger: Ledger) -> Parsed:
    """Return the model and the typed arguments. ``model`` is the recipe's name for its model. Raises :class:`RecipeError`."""
    reader = _Reader(doubled_first, ledger)
    positional: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            positional += words[at:]
            break
        if not _OPTION.match(word):
            positional.append(word)
            continue
        name, joined = _option_name(word)
        values = [] if joined is None else [joined]
        while joined is None and at < len(words) and words[at] != "--" and not _OPTION.match(words[at]):
            first = not values and not positional
            if is_switch(name.partition(".")[0]) and words[at].lower() not in ("true", "false") or first and model and words[at] == model and name != "model":
                break
            values.append(words[at])
            at += 1
        reader.add(word, name, values)
    named = reader.arguments.pop("model", None)
    models = positional[:1] or ([str(named)] if named is not None else [])
    if len(positional) > 1:
        raise RecipeError("is a value where none is expected", where=as_written(positional[1]), remedy=_CORRECT)
    return Parsed(as_written(models[0]) if models else "", reader.arguments, reader.missing)
