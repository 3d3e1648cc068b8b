# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads a file of unknown origin, and determines its kind of recipe. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import hashlib
import re
import stat
import typing as t
from pathlib import Path

import yaml

from ansible_collections.gb10.cluster.plugins.plugin_utils._import.ledger import RecipeError

#: Bytes of a file that are read: the longest recipe known, with its guide, has 60 KiB.
MOST_BYTES = 256 * 1024
#: The largest number of values in a file, each alias counted as often as it is used: a few lines of YAML can expand to billions.
MOST_VALUES = 50_000

#: The kinds of recipes.
EUGR, SPARKRUN, VLLM_RECIPES = "eugr/spark-vllm-docker", "sparkrun", "vllm-project/recipes"

#: Keys that only sparkrun's own version of the format has.
_SPARKRUN_KEYS = {
    "sparkrun_version", "runtime", "runtime_config", "runtime_version", "model_revision", "min_nodes", "max_nodes", "mode", "executor", "executor_config",
    "builder", "builder_config", "pre_exec", "post_exec", "post_commands", "stop_after_post", "metadata", "containers", "mmproj",
}  # fmt: skip
_RECIPE_KEYS = {"model", "command", "container", "containers", "defaults", "recipe_version", "runtime"}

_REMEDY = "Give a recipe of eugr/spark-vllm-docker, sparkrun or vllm-project/recipes."
#: Characters that no recipe has: control characters, and those that mark other characters while a command is parsed.
_UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ue000-\ue00f]")


class Recipe(t.NamedTuple):
    """A recipe as it was read."""

    kind: str
    data: dict[str, t.Any]
    path: Path
    sha256: str


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, which refuses a key with two different values, of which the recipe's own engine may take either. Dates stay texts."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[t.Any, t.Any]:
        keys: dict[tuple[str, str], tuple[str, t.Any]] = {}
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            name, content = (key.tag, str(key.value)), (value.tag, value.value)
            same = isinstance(value, yaml.ScalarNode) and keys.get(name) == content
            if name in keys and not same and key.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(None, None, f"the key {key.value!r} is given twice", key.start_mark)
            keys[name] = content
        return super().construct_mapping(node, deep)


def read(path: str) -> Recipe:
    """Read a recipe. Raises :class:`RecipeError` for anything else."""
    _refuse_elsewhere(path)
    place = Path(path)
    try:
        if not stat.S_ISREG(place.stat().st_mode):
            raise RecipeError("is not a file", where=path, expected="a recipe", remedy=_REMEDY)
        with place.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise RecipeError(f"cannot be read: {error.strerror}", where=path, expected="a recipe", remedy="Correct gb10_import.") from error
    if len(content) > MOST_BYTES:
        raise RecipeError(f"is larger than {MOST_BYTES // 1024} KiB", where=path, expected="a recipe", remedy=_REMEDY)
    data = parse(content, path)
    return Recipe(kind_of(data, path), data, place, hashlib.sha256(content).hexdigest())


def _refuse_elsewhere(path: str) -> None:
    """Raise :class:`RecipeError` for the address or the bare name of a recipe: nothing is downloaded, so that a recipe can be read before its import."""
    address = re.match(r"https?://", path)
    if address:
        raw = re.sub(r"https?://github\.com/([^/]+/[^/]+)/(?:blob|raw)/", r"https://raw.githubusercontent.com/\1/", path)
        name = raw.rpartition("/")[2]
        raise RecipeError(
            "is an address, which is not fetched", where=path, expected="a file", remedy=f"curl -LO {raw}, look at it, then -e gb10_import=./{name}"
        )
    if not Path(path).exists() and ("/" not in path or path.startswith("@")) and not path.endswith((".yaml", ".yml")):
        raise RecipeError(
            "is the name of a recipe, which is not fetched",
            where=path,
            expected="a file",
            remedy=f"curl -LO the address of its raw file in its launcher's repository, then -e gb10_import=./{path.rpartition('/')[2]}.yaml",
        )


def parse(content: bytes, where: str) -> dict[str, t.Any]:
    """Return a file's content as a mapping. Raises :class:`RecipeError`."""
    try:
        text = content.decode("utf-8")
        _check_text(text, 1, where)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            _check_values(node, where)
            data = loader.construct_document(node) if node else None
        finally:
            loader.dispose()
    except UnicodeDecodeError as error:
        raise RecipeError("is not UTF-8 text", where=where, expected="a recipe", remedy=_REMEDY) from error
    except yaml.YAMLError as error:
        raise RecipeError(f"cannot be read as YAML: {' '.join(str(error).split())}", where=where, remedy="Correct the file.") from error
    except (RecursionError, ValueError) as error:
        # ValueError: a number or a date outside Python's range.
        raise RecipeError(f"cannot be read as YAML: {type(error).__name__}", where=where, remedy="Correct the file.") from error
    if not isinstance(data, dict):
        raise RecipeError(f"holds {type(data).__name__}", where=where, expected="a mapping", remedy=_REMEDY)
    return data


def _check_text(text: str, line: int, where: str) -> None:
    """Raise :class:`RecipeError` for a text with characters that no recipe has; ``line`` is its first line."""
    match = _UNREADABLE.search(text)
    if match:
        line += text.count("\n", 0, match.start())
        raise RecipeError(f"line {line} holds the character U+{ord(match[0]):04X}", where=where, expected="text", remedy=_REMEDY)


def _check_values(node: yaml.Node | None, where: str) -> None:
    """Raise :class:`RecipeError` for more values than :data:`MOST_VALUES`, a document that contains itself, and escaped characters that no recipe has."""
    pending, number = [node] if node else [], 0
    while pending:
        number += 1
        if number > MOST_VALUES:
            raise RecipeError(f"holds more than {MOST_VALUES} values, or refers to itself", where=where, expected="a recipe", remedy=_REMEDY)
        current = pending.pop()
        if isinstance(current, yaml.MappingNode):
            pending += [part for pair in current.value for part in pair]
        elif isinstance(current, yaml.SequenceNode):
            pending += current.value
        elif isinstance(current, yaml.ScalarNode):
            _check_text(current.value, current.start_mark.line + 1, where)


def kind_of(data: dict[str, t.Any], where: str) -> str:
    """Return the kind of a recipe. Raises :class:`RecipeError` for an unknown kind."""
    if isinstance(data.get("model"), dict) and "model_id" in data["model"]:
        return VLLM_RECIPES
    if "schema" in data and "image" in data and "parallel" in data:
        raise RecipeError("is a profile of this collection already", where=where, remedy=f"Use it: -e gb10_profile={where}")
    if "schema_version" in data and ("serve" in data or "backend" in data):
        raise RecipeError(
            "is a recipe of NVIDIA/local-ai-inference-recipes, whose commands are shell with the values of one machine",
            where=where,
            remedy="Import the recipe of eugr/spark-vllm-docker or sparkrun for this model, or write a profile.",
        )
    if not _RECIPE_KEYS & set(map(str, data)):
        keys = ", ".join(str(key) for key in list(data)[:8]) or "nothing"
        raise RecipeError(f"is not a known kind of recipe (it has {keys})", where=where, expected="model, container, command, defaults", remedy=_REMEDY)
    own = str(data.get("recipe_version", "")) == "1" or "recipe_version" not in data and "name" in data and "container" in data and "command" in data
    return EUGR if own and not _SPARKRUN_KEYS & set(data) else SPARKRUN
