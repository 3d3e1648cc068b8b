# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The repositories that a profile needs, and where its containers find them. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._model import model_files
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.form import MODEL, REPO, REPOSITORY, snake

#: Where a node's hub cache appears inside its container (the default of every image the profiles name).
CONTAINER_HF_HOME = "/root/.cache/huggingface"
#: Arguments that may name a repository of their own.
_NAMES_REPOSITORY = ("tokenizer", "hf_config_path", "speculative_config.model", "speculative_config.tokenizer")

#: Where a plain directory of a node appears inside its container, by the profile's name for it, read-only.
CONTAINER_MODELS = "/opt/gb10/models"


def strings(value: t.Any, path: str) -> list[tuple[str, str]]:
    """Every string inside a value, each with its path."""
    if isinstance(value, dict):
        return [one for key, item in value.items() for one in strings(item, f"{path}.{key}" if path else str(key))]
    if isinstance(value, list):
        return [one for item in value for one in strings(item, path)]
    return [(path, value)] if isinstance(value, str) else []


def named_repository(text: str) -> str:
    """The repository that an argument's text refers to, empty when it refers to none."""
    return text[len(REPOSITORY):].partition("/")[0] if text.startswith(REPOSITORY) else ""


def not_listed(profile: dict[str, t.Any], arguments: dict[str, t.Any]) -> dict[str, str]:
    """Repositories of the hub that arguments name and the profile does not list, by the arguments. The collection does not fetch them."""
    return {
        name: text
        for name, text in strings(snake(arguments), "")
        if name in _NAMES_REPOSITORY and REPO.match(text) and text != profile["model"]["repo"]
    }


def field_of(repository: str) -> str:
    """The field of a profile that describes a repository."""
    return MODEL if repository == MODEL else f"repositories.{repository}"


def repositories(profile: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    """All repositories of a profile, the model's first, in the form that modules take."""
    model = profile["model"]
    first = {"name": MODEL, "purpose": MODEL, "side_files": model["side_files"], **{key: model[key] for key in ("repo", "revision", "files")}}
    return [
        first,
        *(
            [
                {
                    "name": name,
                    "side_files": [],
                    **{key: one[key] for key in ("repo", "revision", "purpose")},
                    "files": one["files"] or list(model_files.DEFAULT_FILES.get(one["purpose"], ())),
                }
                for name, one in profile["repositories"].items()
            ]
        ),
    ]


def downloads(repositories: t.Iterable[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """What the hub's client is asked for each of these repositories: the arguments of its function ``snapshot_download``."""
    return [
        {
            "repo_id": one["repo"],
            "revision": one["revision"],
            "allow_patterns": [name for name in one["files"] if not name.startswith("!")] or None,
            "ignore_patterns": [name[1:] for name in one["files"] if name.startswith("!")] or None,
        }
        for one in repositories
        if not model_files.is_directory(one["repo"])
    ]


def model_mounts(profile: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    """The plain directories of the nodes that a profile names, as mounts of a node's container: each can only be read there."""
    named = {MODEL: profile["model"], **profile["repositories"]}
    return [{"source": one["path"], "target": f"{CONTAINER_MODELS}/{name}", "read_only": True} for name, one in named.items() if one["path"]]


def model_argument(profile: dict[str, t.Any]) -> str:
    """What the engine serves: the model's repository, or its plain directory as the container has it."""
    return f"{CONTAINER_MODELS}/{MODEL}" if profile["model"]["path"] else profile["model"]["repo"]


def snapshot_path(profile: dict[str, t.Any], hf_home: str = CONTAINER_HF_HOME, repository: str = MODEL) -> str:
    """Directory of a pinned repository of the profile in a hub cache (the layout every Hugging Face client writes).

    A plain directory has its own path on the nodes, and another one in a container: with the default of ``hf_home`` it is that.
    """
    one = profile["model"] if repository == MODEL else profile["repositories"][repository]
    if one["path"]:
        return f"{CONTAINER_MODELS}/{repository}" if hf_home == CONTAINER_HF_HOME else one["path"]
    return f"{hf_home}/hub/{model_files.repo_directory(one['repo'])}/snapshots/{one['revision']}"
