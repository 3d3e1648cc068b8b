# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names and facts of images, without starting them. This module util is PRIVATE to the collection."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState

#: The registry of an image whose name has none.
DOCKER_HUB = "docker.io"


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
    """Return the repository of an image's reference, which precedes its tag and digest."""
    head, slash, last = reference.partition("@")[0].rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def familiar(name: str) -> str:
    """Return a name as Docker lists it, without the default registry."""
    return name.removeprefix(f"{DOCKER_HUB}/").removeprefix("library/")


def registry_of(reference: str) -> str:
    """Return the registry of an image's reference, Docker Hub's if it names none."""
    first, slash, _rest = reference.partition("/")
    return first if slash and (re.search(r"[.:]", first) or first == "localhost") else DOCKER_HUB


def full_name(reference: str) -> str:
    """Return a reference with its registry and tag, as containerd stores it."""
    if reference.startswith(f"{registry_of(reference)}/"):
        return with_tag(reference)
    return with_tag(f"{DOCKER_HUB}/{reference if '/' in reference else f'library/{reference}'}")


def with_tag(reference: str) -> str:
    """Return a reference with its tag: an engine lists ``name`` as ``name:latest``. An id, and a reference with a digest, are not changed."""
    return reference if ":" in reference.rpartition("/")[2] else f"{reference}:latest"


def by_digest(reference: str, repo_digests: t.Iterable[str]) -> str | None:
    """Return the image's reference with its digest in its own repository, None for an image that was built or loaded on the node."""
    wanted = familiar(repository(reference))
    return next((name for name in sorted(repo_digests) if familiar(repository(name)) == wanted), None)


def images(api: EngineApi, names: t.Iterable[str]) -> dict[str, dict[str, t.Any] | None]:
    """Return each image by its name, None for an absent one. Raises :class:`ClusterError` if the engine does not answer."""
    answers = {name: api.image(name) for name in dict.fromkeys(names)}
    return {name: answer and summary(name, answer) for name, answer in answers.items()}


def named_image(api: EngineApi, reference: str, doing: str, remedy: str) -> dict[str, t.Any]:
    """Return the engine's description of an image that can move to another engine under its name. Raises :class:`ClusterError`; ``doing`` is a verb."""
    if "@" in reference:
        raise ClusterError(
            f"cannot {doing} {reference}, which is named by its digest: an engine accepts such a name only with a pull", remedy=remedy, reason="no name"
        )
    answer = api.image(reference)
    if answer is None:
        raise ClusterError(f"no image {reference} is here to {doing}", remedy="Run the play with --tags image, which builds it.", reason="absent")
    return answer
