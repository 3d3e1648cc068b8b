# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Docker SDK's client, for modules that act on containers, and for them alone. This module util is PRIVATE to the collection.

It is apart from ``engine_api.py`` since importing the SDK takes longer than a whole look at a node. The SDK knows no range of API versions
and speaks the engine's newest.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import (
    EXIT_CODE_SLEEP,
    TOO_OLD,
    ExecResult,
    NotFound,
    container_filters,
    is_not_running,
    process_ids,
)
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

try:
    import docker
    import docker.errors
    import requests.exceptions
except ImportError as missing:
    SDK_MISSING: ImportError | None = missing
else:
    SDK_MISSING = None


class Docker:
    """A node's Docker engine, for modules that act. What it reads has the names and the shapes of :class:`engine_api.EngineApi`.

    ``timeout`` is in seconds and holds for one answer. Calls raise :class:`NotFound`, :class:`UnknownState` when the engine hangs, and
    :class:`ClusterError` on everything else it refuses.
    """

    def __init__(self, socket_path: str, timeout: float) -> None:
        if SDK_MISSING is not None:
            raise ClusterError(
                f"the node's Python lacks the Docker SDK: {SDK_MISSING}",
                remedy="Install the distribution's package: apt-get install python3-docker",
            )
        self.timeout = timeout
        with sdk_errors(f"connecting to the Docker engine at {socket_path}"):
            self._client = docker.DockerClient(base_url=f"unix://{socket_path}", version="auto", timeout=timeout)
            self._api = self._client.api

    # -- reading -----------------------------------------------------------------------------------------------------

    def containers(self, labels: dict[str, str], statuses: t.Sequence[str] = (), size: bool = False) -> list[dict[str, t.Any]]:
        """Return the engine's list of containers that carry all ``labels`` and have one of the ``statuses``, with their sizes if wanted."""
        with sdk_errors("listing containers"):
            return self._api.containers(all=True, size=size, filters=container_filters(labels, statuses))

    def inspect(self, container_id: str) -> dict[str, t.Any]:
        """Return everything the engine knows about one container."""
        with sdk_errors(f"asking about container {container_id[:64]}"):
            return self._api.inspect_container(container_id)

    def image(self, reference: str) -> dict[str, t.Any] | None:
        """Return everything the engine knows about an image, None when it has no such image."""
        with contextlib.suppress(NotFound), sdk_errors(f"asking about image {reference}"):
            return self._api.inspect_image(reference)
        return None

    def images(self, labels: t.Sequence[str] = ()) -> list[dict[str, t.Any]]:
        """Return the engine's list of images, parts of others included, that have all ``labels``."""
        with sdk_errors("listing images"):
            return self._api.images(all=not labels, filters={"label": list(labels)})

    def history(self, image_id: str) -> list[dict[str, t.Any]]:
        """Return the layers of an image."""
        with sdk_errors(f"asking about image {image_id}"):
            return self._api.history(image_id)

    def logs(self, container_id: str, tail: int = 50) -> str:
        """Return the last ``tail`` lines of a container's log."""
        with sdk_errors(f"reading the log of container {container_id[:12]}"):
            return self._api.logs(container_id, tail=tail).decode(errors="replace")

    def whole_log(self, container_id: str) -> t.Iterator[bytes]:
        """Yield a container's log, each line with its time."""
        with sdk_errors(f"reading the log of container {container_id[:12]}"):
            yield from self._api.logs(container_id, stream=True, follow=False, timestamps=True)

    def top(self, container_id: str) -> list[int]:
        """Return the host's process ids of a container's processes, sorted; empty when it does not run."""
        try:
            with sdk_errors(f"listing the processes of container {container_id[:12]}"):
                table = self._api.top(container_id, ps_args="-eo pid,comm")
        except ClusterError as error:
            if is_not_running(error):
                return []
            raise
        return process_ids(table)

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

    def remove(self, container_id: str) -> None:
        """Remove a container and its anonymous volumes. Without force: the engine itself refuses one that runs."""
        with sdk_errors(f"removing container {container_id[:12]}"):
            self._api.remove_container(container_id, v=True)

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

    def exec(self, container_id: str, argv: list[str], *, timeout: float) -> ExecResult:
        """Run ``argv`` inside a running container and return what it left behind.

        ``timeout`` (seconds) bounds the whole call and raises :class:`UnknownState`. The engine has no way to stop the program then, so
        a program that might hang should carry a limit of its own.
        """
        doing = f"running {argv[0]} in container {container_id[:12]}"
        with sdk_errors(doing):
            program = self._api.exec_create(container_id, argv)["Id"]
        stdout, stderr = _within(timeout, lambda: self._api.exec_start(program, demux=True), doing)
        for _elapsed in clock(timeout, EXIT_CODE_SLEEP):
            code = self.exit_code(program)
            if code is not None:
                return ExecResult(code, (stdout or b"").decode(errors="replace"), (stderr or b"").decode(errors="replace"))
        raise UnknownState(f"{doing}: it closed its output but did not end within {timeout:g} s")


def _within(seconds: float, call: t.Callable[[], t.Any], doing: str) -> t.Any:
    """Return what ``call`` returns. The SDK waits for a program's output without a limit, so it waits in a thread that dies with this module."""
    answer: concurrent.futures.Future[t.Any] = concurrent.futures.Future()

    def ask() -> None:
        try:
            with sdk_errors(doing):
                answer.set_result(call())
        except (ClusterError, OSError) as error:
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        return answer.result(seconds)
    except concurrent.futures.TimeoutError:
        raise UnknownState(f"{doing}: it did not end within {seconds:g} s") from None


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
