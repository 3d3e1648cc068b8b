# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the Docker engine knows of an image without starting it. This module util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState


def summary(name: str, answer: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the facts of the engine's answer about an image; sizes are bytes. Raises :class:`UnknownState` when required keys are missing."""
    try:
        return {
            "id": answer["Id"],
            "architecture": answer["Architecture"],
            "os": answer.get("Os"),
            "created": answer.get("Created"),
            "size_bytes": answer.get("Size"),
            "repo_digests": answer.get("RepoDigests") or [],
            "labels": (answer.get("Config") or {}).get("Labels") or {},
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise UnknownState(f"the Docker engine does not report {error} of image {name}", raw=str(answer)[:2000]) from error


def repository(reference: str) -> str:
    """Return the repository of an image's reference: what stands before its tag and digest."""
    name = reference.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def familiar(name: str) -> str:
    """Return a name as Docker lists it: its default registry is left out."""
    return name.removeprefix("docker.io/").removeprefix("library/")


def with_tag(reference: str) -> str:
    """Return a reference with its tag: an engine lists ``name`` as ``name:latest``. An id, and what has a digest, stay as they are."""
    return reference if ":" in reference.rpartition("/")[2] else f"{reference}:latest"


def by_digest(reference: str, repo_digests: t.Iterable[str]) -> str | None:
    """Return the image by the digest under which its repository knows it, None for an image that was built or loaded here."""
    wanted = familiar(repository(reference))
    return next((one for one in sorted(repo_digests) if familiar(repository(one)) == wanted), None)


def images(api: EngineApi, names: t.Iterable[str]) -> dict[str, dict[str, t.Any] | None]:
    """Return each image by its name, null for one that the node does not have. Raises :class:`ClusterError` when the engine does not answer."""
    found = {name: api.image(name) for name in dict.fromkeys(names)}
    return {name: answer and summary(name, answer) for name, answer in found.items()}
