# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists the repositories that a profile needs, and their paths in its containers. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._model import model_files
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.form import MODEL, REPO, REPOSITORY, snake

#: The path of a node's hub cache inside its container (the default of every image that the profiles name).
CONTAINER_HF_HOME = "/root/.cache/huggingface"
#: Arguments that may name another repository.
_NAMES_REPOSITORY = ("tokenizer", "hf_config_path", "speculative_config.model", "speculative_config.tokenizer")

#: The parent of a node's plain directories inside its container, each by the profile's name for it, read-only.
CONTAINER_MODELS = "/opt/gb10/models"


def strings(value: t.Any, path: str) -> list[tuple[str, str]]:
    """Return every string inside a value, each with its path."""
    if isinstance(value, dict):
        return [pair for key, item in value.items() for pair in strings(item, f"{path}.{key}" if path else str(key))]
    if isinstance(value, list):
        return [pair for item in value for pair in strings(item, path)]
    return [(path, value)] if isinstance(value, str) else []


def named_repository(text: str) -> str:
    """Return the repository that an argument's text refers to, empty when it refers to none."""
    return text[len(REPOSITORY):].partition("/")[0] if text.startswith(REPOSITORY) else ""


def not_listed(profile: dict[str, t.Any], arguments: dict[str, t.Any]) -> dict[str, str]:
    """Return repositories of the hub that arguments name and the profile does not list, by argument. The collection does not download them."""
    return {
        name: text
        for name, text in strings(snake(arguments), "")
        if name in _NAMES_REPOSITORY and REPO.match(text) and text != profile["model"]["repo"]
    }


def field_of(repository: str) -> str:
    """Return the field of a profile that describes a repository."""
    return MODEL if repository == MODEL else f"repositories.{repository}"


def repositories(profile: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    """Return all repositories of a profile, the model's first, in the form that modules accept."""
    model = profile["model"]
    first = {"name": MODEL, "purpose": MODEL, "side_files": model["side_files"], **{key: model[key] for key in ("repo", "revision", "files")}}
    return [
        first,
        *(
            [
                {
                    "name": name,
                    "side_files": [],
                    **{key: repository[key] for key in ("repo", "revision", "purpose")},
                    "files": repository["files"] or list(model_files.DEFAULT_FILES.get(repository["purpose"], ())),
                }
                for name, repository in profile["repositories"].items()
            ]
        ),
    ]


def downloads(repositories: t.Iterable[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Return the arguments of the hub client's function ``snapshot_download`` for each of these repositories."""
    return [
        {
            "repo_id": repository["repo"],
            "revision": repository["revision"],
            "allow_patterns": [name for name in repository["files"] if not name.startswith("!")] or None,
            "ignore_patterns": [name[1:] for name in repository["files"] if name.startswith("!")] or None,
        }
        for repository in repositories
        if not model_files.is_directory(repository["repo"])
    ]


def model_mounts(profile: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    """Return the plain directories of the nodes that a profile names, as read-only mounts of a node's container."""
    named = {MODEL: profile["model"], **profile["repositories"]}
    paths = {name: repository["path"] for name, repository in named.items() if repository["path"]}
    return [{"source": path, "target": f"{CONTAINER_MODELS}/{name}", "read_only": True} for name, path in paths.items()]


def model_argument(profile: dict[str, t.Any]) -> str:
    """Return what the engine serves: the model's repository, or the path of its plain directory in the container."""
    return f"{CONTAINER_MODELS}/{MODEL}" if profile["model"]["path"] else profile["model"]["repo"]


def snapshot_path(profile: dict[str, t.Any], hf_home: str = CONTAINER_HF_HOME, repository: str = MODEL) -> str:
    """Return the directory of a pinned repository of the profile in a hub cache (the layout that every Hugging Face client writes).

    A plain directory has its own path on the nodes, and another one in a container, which is returned for the default of ``hf_home``.
    """
    entry = profile["model"] if repository == MODEL else profile["repositories"][repository]
    if entry["path"]:
        return f"{CONTAINER_MODELS}/{repository}" if hf_home == CONTAINER_HF_HOME else entry["path"]
    return f"{hf_home}/hub/{model_files.repo_directory(entry['repo'])}/snapshots/{entry['revision']}"
