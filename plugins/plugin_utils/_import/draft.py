# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The common form of all kinds of recipes, from which a profile is made. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gb10.cluster.plugins.plugin_utils._import.arguments import Parsed
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.mods import Mods


@dataclasses.dataclass(frozen=True)
class Choices:
    """The user's choices for this import; each wins over the recipe."""

    image: str = ""
    #: Repository to commit.
    revisions: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: Placeholder to value, as on the command line of the recipe's own launcher.
    values: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    variant: str = ""
    features: t.Sequence[str] = ()
    #: Mods that are left out.
    without_mods: t.Sequence[str] = ()


@dataclasses.dataclass
class Draft:
    """A recipe's facts, independent of its kind."""

    name: str
    model: str
    image: str
    parsed: Parsed
    env: dict[str, t.Any]
    #: The field that names the image, for messages.
    image_field: str = "container"
    revision: str = ""
    #: The targets of the container's paths: links, and directories of the nodes.
    places: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    least_nodes: int = 1
    most_nodes: int = 0
    memory: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    requires: dict[str, str] = dataclasses.field(default_factory=dict)
    mods: Mods = dataclasses.field(default_factory=lambda: Mods({}, {}, {}))
    executor: str = ""
    description: str = ""
