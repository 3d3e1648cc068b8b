# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Docker SDK's client, for modules that act on containers, and for them alone. This module util is PRIVATE to the collection.

It is apart from ``engine_api.py`` since importing the SDK takes longer than a whole look at a node. The SDK knows no range of API versions
and speaks the engine's newest.
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
#: Most bytes of a container's log that are kept when it goes.
WHOLE_LOG_LIMIT = 64 * 1024 * 1024


class Docker(EngineApi):
    """A node's Docker engine, for modules that act: all that :class:`EngineApi` reads, and what changes something, which the SDK does."""

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

    def registry_digest(self, image: str) -> str:
        """Return the digest that an image's tag has in its registry now. The SDK knows the logins of this user."""
        with sdk_errors(f"asking the registry for {image}"):
            answer = self._api.inspect_distribution(image)
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
        with sdk_errors(f"starting container {container_id[:12]}"):
            self._api.start(container_id)

    def unpause(self, container_id: str) -> None:
        """Let a paused container go on: only so can what runs in it end by itself."""
        with sdk_errors(f"unpausing container {container_id[:12]}"):
            self._api.unpause(container_id)

    def stop(self, container_id: str, grace: int) -> None:
        """Stop a container; what is left of it after ``grace`` seconds is killed."""
        with sdk_errors(f"stopping container {container_id[:12]}"):
            self._api.stop(container_id, timeout=grace)

    def signal(self, container_id: str, name: str) -> None:
        """Send a signal to the first process of a container, and nothing after it."""
        with sdk_errors(f"sending {name} to container {container_id[:12]}"):
            self._api.kill(container_id, signal=name)

    def remove(self, container_id: str) -> None:
        """Remove a container and its anonymous volumes. Without force: the engine itself refuses one that runs."""
        with sdk_errors(f"removing container {container_id[:12]}"):
            self._api.remove_container(container_id, v=True)

    def pull(self, image: str) -> t.Iterator[dict[str, t.Any]]:
        """Pull an image, and yield what the engine says of it. The SDK waits for the next word without a limit: the caller's job has one."""
        with sdk_errors(f"pulling image {image}"):
            yield from self._api.pull(image, stream=True, decode=True)

    def tag(self, image: str, name: str) -> None:
        """Give an image another name, which includes a tag."""
        repository, _colon, tag = name.rpartition(":")
        with sdk_errors(f"tagging image {image}"):
            self._api.tag(image, repository, tag, force=True)

    def remove_image(self, name: str) -> None:
        with sdk_errors(f"removing image {name}"):
            self._api.remove_image(name)

    # -- programs in a container -------------------------------------------------------------------------------------

    def start_program(self, container_id: str, argv: list[str]) -> str:
        """Start a program in a running container and return its id for :meth:`exit_code`. It outlives this module."""
        with sdk_errors(f"starting {argv[0]} in container {container_id[:12]}"):
            program = self._api.exec_create(container_id, argv, stdout=False, stderr=False)["Id"]
            self._api.exec_start(program, detach=True)
        return program

    def exit_code(self, program: str) -> int | None:
        """Return the exit code of a program, None while it runs."""
        with sdk_errors("asking about a program in a container"):
            state = self._api.exec_inspect(program)
        return None if state["Running"] else state["ExitCode"]


@contextlib.contextmanager
def sdk_errors(doing: str) -> t.Iterator[None]:
    """Turn the Docker SDK's exceptions into the collection's; ``doing`` says what was tried (``creating container X``)."""
    try:
        yield
    except docker.errors.NotFound as error:
        raise NotFound(f"{doing}: {error.explanation or error}", detail=str(error.explanation or error)) from error
    except requests.exceptions.Timeout as error:
        raise UnknownState(
            f"{doing}: the Docker engine did not answer in time",
            remedy="See what the engine does: journalctl -u docker --since -10min",
            raw=str(error),
        ) from error
    except docker.errors.APIError as error:
        words = str(error.explanation or error)
        refusal = TOO_OLD.search(words)
        raise ClusterError(f"{doing}: {words}", remedy=_upgrade(refusal) if refusal else "", detail=words, status=error.status_code) from error
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise ClusterError(f"{doing}: {error}", remedy=_sdk_remedy(str(error)), detail=str(error)) from error


def _upgrade(refusal: re.Match[str]) -> str:
    """Return what to upgrade when an engine refuses the SDK for its age."""
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
