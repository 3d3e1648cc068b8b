# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decides whether an engine needs code of a model's repository. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import functools
import re
import typing as t
from pathlib import Path

from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.resolver import Engine

_TABLE = Path(__file__).with_name("architectures.yml")
#: An image whose tag is a release of the engine.
_RELEASE = re.compile(r"(?:docker\.io/)?vllm/vllm-openai:v?([0-9]+\.[0-9]+\.[0-9]+)(?![0-9.])")
#: The least release that a recipe asks for.
_LEAST = re.compile(r">=\s*([0-9]+\.[0-9]+\.[0-9]+)")


class Known(t.NamedTuple):
    """An architecture of the engine's registry. ``has``: whether the image's engine has it, None where its release is unknown."""

    architecture: str
    since: str
    has: bool | None


@functools.cache
def _table() -> list[dict[str, str]]:
    return yaml_load(_TABLE.read_text(encoding="utf-8"))


def known(model: str, image: str, requires: str = "") -> Known | None:
    """Return the architecture of a model by its name, None for a model whose code may have to come from its repository.

    ``requires`` are the releases of the engine that the recipe asks for.
    """
    name = model.rstrip("/").rpartition("/")[2].lower()
    row = next((row for row in _table() if re.fullmatch(row["names"], name)), None)
    if row is None:
        return None
    release, least = _RELEASE.match(image), _LEAST.match(requires)
    if release:
        return Known(row["architecture"], row["since"], Engine(release[1]).within(row["since"], None))
    return Known(row["architecture"], row["since"], True if least and Engine(least[1]).within(row["since"], None) else None)
