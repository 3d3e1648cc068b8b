# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Docker SDK's client, only for modules that act on containers. This module util is PRIVATE to the collection.

It is separate from ``engine_api.py`` because importing the SDK takes longer than reading a node. The SDK always uses the engine's newest API version.
"""

from __future__ import annotations

import contextlib
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import TOO_OLD, EngineApi, NotFound
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState

try:
    import docker
    import docker.errors
    import requests.exceptions
except ImportError as missing:
    SDK_MISSING: ImportError | None = missing
else:
    SDK_MISSING = None


#: The reason of a failure where the SDK is missing.
NO_SDK = "no Docker SDK"
#: Most bytes of a container's log to keep when it is removed.
WHOLE_LOG_LIMIT = 64 * 1024 * 1024


class Docker(EngineApi):
    """A node's Docker engine for modules that act: :class:`EngineApi` reads, and the SDK makes the changes."""

    def __init__(self, socket_path: str, timeout: float) -> None:
        if SDK_MISSING is not None:
            raise ClusterError(
                f"the node's Python lacks the Docker SDK: {SDK_MISSING}",
                remedy="Install the distribution's package: apt-get install python3-docker",
                reason=NO_SDK,
            )
        super().__init__(socket_path, timeout)
        with sdk_errors(f"connecting to the Docker engine at {socket_path}"):
            self._client = docker.DockerClient(base_url=f"unix://{socket_path}", version="auto", timeout=timeout)
            self._api = self._client.api

    def whole_log(self, container_id: str) -> t.Iterator[bytes]:
        """Yield a container's log, each line with its time; the rest of one longer than ``WHOLE_LOG_LIMIT`` bytes is left out."""
        left = WHOLE_LOG_LIMIT
        with sdk_errors(f"reading the log of container {container_id[:12]}"):
            for part in self._api.logs(container_id, stream=True, follow=False, timestamps=True):
                yield part[:left]
                left -= len(part)
                if left <= 0:
                    yield f"\n[the rest is left out: more than {WHOLE_LOG_LIMIT} bytes]\n".encode()
                    return

    def _do(self, doing: str, call: t.Callable[..., t.Any], *arguments: t.Any, **options: t.Any) -> t.Any:
        """Return what a call of the SDK returns. Raises as :func:`sdk_errors` does."""
        with sdk_errors(doing):
            return call(*arguments, **options)

    def registry_digest(self, image: str) -> str:
        """Return the digest that an image's tag has in its registry now. The SDK has this user's registry logins."""
        answer = self._do(f"asking the registry for {image}", self._api.inspect_distribution, image)
        try:
            return str(answer["Descriptor"]["digest"])
        except (KeyError, TypeError):
            raise UnknownState(f"the Docker engine does not report the digest of {image}", raw=str(answer)[:2000]) from None

    # -- acting ------------------------------------------------------------------------------------------------------

    def create(self, payload: dict[str, t.Any]) -> str:
        """Create a container and return its id."""
        with sdk_errors(f"creating container {payload['name']}"):
            return self._client.containers.create(**payload).id

    def start(self, container_id: str) -> None:
        self._do(f"starting container {container_id[:12]}", self._api.start, container_id)

    def unpause(self, container_id: str) -> None:
        """Continue a paused container, without which its programs cannot end."""
        self._do(f"unpausing container {container_id[:12]}", self._api.unpause, container_id)

    def stop(self, container_id: str, grace: int) -> None:
        """Stop a container, and kill its remaining processes after ``grace`` seconds."""
        self._do(f"stopping container {container_id[:12]}", self._api.stop, container_id, timeout=grace)

    def signal(self, container_id: str, name: str) -> None:
        """Send a signal to the first process of a container, and nothing after it."""
        self._do(f"sending {name} to container {container_id[:12]}", self._api.kill, container_id, signal=name)

    def remove(self, container_id: str) -> None:
        """Remove a container and its anonymous volumes. Without force: the engine itself refuses a running one."""
        self._do(f"removing container {container_id[:12]}", self._api.remove_container, container_id, v=True)

    def pull(self, image: str) -> t.Iterator[dict[str, t.Any]]:
        """Pull an image, and yield the engine's events. The SDK waits for each without a limit; the caller's job has one."""
        with sdk_errors(f"pulling image {image}"):
            yield from self._api.pull(image, stream=True, decode=True)

    def tag(self, image: str, name: str) -> None:
        """Give an image another name, which includes a tag."""
        repository, _colon, tag = name.rpartition(":")
        self._do(f"tagging image {image}", self._api.tag, image, repository, tag, force=True)

    def remove_image(self, name: str) -> None:
        self._do(f"removing image {name}", self._api.remove_image, name)

    # -- programs in a container -------------------------------------------------------------------------------------

    def start_program(self, container_id: str, argv: list[str]) -> str:
        """Start a program in a running container and return its id for :meth:`exit_code`. It outlives this module."""
        with sdk_errors(f"starting {argv[0]} in container {container_id[:12]}"):
            program = self._api.exec_create(container_id, argv, stdout=False, stderr=False)["Id"]
            self._api.exec_start(program, detach=True)
        return program

    def exit_code(self, program: str) -> int | None:
        """Return the exit code of a program, None while it runs."""
        state = self._do("reading the state of a program in a container", self._api.exec_inspect, program)
        return None if state["Running"] else state["ExitCode"]


@contextlib.contextmanager
def sdk_errors(doing: str) -> t.Iterator[None]:
    """Turn the Docker SDK's exceptions into the collection's; ``doing`` names the attempted action (``creating container X``)."""
    try:
        yield
    except docker.errors.NotFound as error:
        raise NotFound(f"{doing}: {error.explanation or error}", detail=str(error.explanation or error)) from error
    except requests.exceptions.Timeout as error:
        raise UnknownState(
            f"{doing}: the Docker engine did not answer in time",
            remedy="Run journalctl -u docker --since -10min to see what the engine does.",
            raw=str(error),
        ) from error
    except docker.errors.APIError as error:
        words = str(error.explanation or error)
        refusal = TOO_OLD.search(words)
        raise ClusterError(f"{doing}: {words}", remedy=_upgrade(refusal) if refusal else "", detail=words, status=error.status_code) from error
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise ClusterError(f"{doing}: {error}", remedy=_sdk_remedy(str(error)), detail=str(error)) from error


def _upgrade(refusal: re.Match[str]) -> str:
    """Return the remedy for an engine that refuses an old SDK."""
    return (
        "Upgrade the distribution's python3-docker, or install docker 7.1 or newer with pip: "
        f"this node's Docker SDK {docker.__version__} uses API {refusal['spoken']}, and its engine requires {refusal['minimum']} or newer."
    )


def _sdk_remedy(message: str) -> str:
    if "http+docker" in message:
        return "Install the distribution's python3-docker, or docker 7.1 or newer with pip: this SDK is incompatible with the installed requests library."
    if "Permission denied" in message:
        return "Run the task with become: true, or add the user to the group docker."
    return "Run systemctl start docker. The playbooks expect the Docker engine at its usual socket; only modules have the option docker_socket."
