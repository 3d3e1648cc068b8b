# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Docker SDK's client, for modules that act on containers. This module util is PRIVATE to the collection.

It is apart from ``_docker.py`` since importing the SDK takes longer than a whole look at a node. The SDK knows no range of API versions and
speaks the engine's newest.
"""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import TOO_OLD, NotFound
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState

try:
    import docker
    import docker.errors
    import requests.exceptions
except ImportError as missing:
    SDK_MISSING: ImportError | None = missing
else:
    SDK_MISSING = None


def sdk_client(socket_path: str, timeout: float) -> docker.DockerClient:
    """Return the Docker SDK's client for the engine at ``socket_path``; ``timeout`` (seconds) holds for one answer."""
    if SDK_MISSING is not None:
        raise ClusterError(
            f"the node's Python lacks the Docker SDK: {SDK_MISSING}",
            remedy="Install the distribution's package: apt-get install python3-docker",
        )
    with sdk_errors(f"connecting to the Docker engine at {socket_path}"):
        return docker.DockerClient(base_url=f"unix://{socket_path}", version="auto", timeout=timeout)


@contextlib.contextmanager
def sdk_errors(doing: str) -> t.Iterator[None]:
    """Turn the Docker SDK's exceptions into the collection's; ``doing`` says what was tried (``creating container X``)."""
    try:
        yield
    except docker.errors.NotFound as error:
        raise NotFound(f"{doing}: {error.explanation or error}", detail=str(error.explanation or error)) from error
    except requests.exceptions.Timeout as error:
        raise UnknownState(f"{doing}: the Docker engine did not answer in time", raw=str(error)) from error
    except docker.errors.APIError as error:
        words = str(error.explanation or error)
        raise ClusterError(f"{doing}: {words}", remedy=_version_remedy(words), detail=words, status=error.status_code) from error
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise ClusterError(f"{doing}: {error}", remedy=_sdk_remedy(str(error)), detail=str(error)) from error


def _version_remedy(words: str) -> str:
    """Return what to upgrade when an engine refuses the SDK for its age, nothing for other refusals."""
    refusal = TOO_OLD.search(words)
    if refusal is None:
        return ""
    return (
        f"This node's Docker SDK {docker.__version__} spoke API {refusal['spoken']}, its engine wants {refusal['minimum']} or newer: "
        "upgrade the distribution's python3-docker, or install docker 7.1 or newer with pip."
    )


def _sdk_remedy(message: str) -> str:
    if "http+docker" in message:
        return "This Docker SDK does not fit the installed requests library: install the distribution's python3-docker, or docker 7.1 or newer with pip."
    if "Permission denied" in message:
        return "Run the task with become: true, or put the user into the group docker."
    return "Start the Docker engine: systemctl start docker. The playbooks expect it at its usual socket; modules alone take docker_socket."
