# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A client for a node's Docker engine that needs only Python's standard library. This module util is PRIVATE to the collection.

Every module reads through :class:`EngineApi`. Modules that act on containers use only the Docker SDK (``sdk.py``) for that. The client negotiates
the API version with the engine: the oldest that has all required calls and that the engine still supports.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import time
import typing as t
import urllib.parse

from ansible_collections.gb10.cluster.plugins.module_utils._docker import confinement
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._http import AnswerTooLarge, Connection, read_body
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: The oldest API that has all required calls (engine 20.10). A newer engine with a higher minimum gets that.
OLDEST_API = (1, 41)

LABEL_PREFIX = "io.gb10."
LABEL_OWNER = "io.gb10.owner"
LABEL_CLUSTER = "io.gb10.cluster"
LABEL_ROLE = "io.gb10.role"
LABEL_SPEC = "io.gb10.spec"
#: The name of the container's companion.
LABEL_COMPANION = "io.gb10.companion"
#: JSON of the image's own entrypoint, which precedes every program that the container starts. It is not a field: a container without it is kept.
LABEL_ENTRYPOINT = "io.gb10.entrypoint"
LABEL_FIELDS = "io.gb10.fields"
OWNER = "gb10.cluster"

_NODE_CONTAINER = re.compile(r"gb10-(?P<cluster>.+)-(?P<role>head|worker)")

STDERR_STREAM = 2

#: Most bytes of one answer, and of one answer with a container's log.
ANSWER_LIMIT = 32 * 1024 * 1024
LOG_LIMIT = 4 * 1024 * 1024

#: Seconds between two requests for the exit code of a program in a container.
EXIT_CODE_SLEEP = 0.1

#: An engine's answer to a request in an API version that it no longer supports (Docker 29: below 1.44).
TOO_OLD = re.compile(r"client version (?P<spoken>[\d.]+) is too old\. Minimum supported API version is (?P<minimum>[\d.]+)")


def node_container_name(cluster: str, role: str) -> str:
    """Return the name of a cluster's container for a role."""
    return f"gb10-{cluster}-{role}"


def cluster_and_role(name: str, labels: dict[str, str]) -> tuple[str | None, str | None]:
    """Return a container's cluster and role, by its labels or else by its name; None where neither has them."""
    match = _NODE_CONTAINER.fullmatch(name)
    named = match.groupdict() if match else {}
    return labels.get(LABEL_CLUSTER) or named.get("cluster"), labels.get(LABEL_ROLE) or named.get("role")


def names_image(labels: dict[str, str], image_id: str) -> bool:
    """Return whether a container's labels name its image: no image can contain its own id, so they were set on the container."""
    try:
        return json.loads(labels.get(LABEL_FIELDS, "null"))["image_id"] == image_id
    except (ValueError, TypeError, KeyError):
        return False


def are_given(labels: dict[str, str], image_labels: dict[str, str] | None) -> bool:
    """Return whether the collection's labels were set on a container, rather than inherited from its image.

    ``docker commit`` of a container of the collection makes an image with all its labels. ``image_labels`` is None for a removed image: then it is
    unknown, and the container counts as foreign.
    """
    if image_labels is None:
        return False
    return LABEL_OWNER not in image_labels or any(labels.get(name) != image_labels.get(name) for name in (LABEL_SPEC, LABEL_ROLE))


def name_of(entry: dict[str, t.Any]) -> str:
    """Return the name of a container in the engine's list."""
    return entry["Names"][0].lstrip("/") if entry.get("Names") else ""


class NotFound(ClusterError):
    """The engine has no such container, image or exec."""


class ExecResult(t.NamedTuple):
    """The result of a program in a container. ``rc`` is its exit code, 126 or 127 when it could not be started."""

    rc: int
    stdout: str
    stderr: str


def negotiated_version(version: dict[str, t.Any]) -> str:
    """Return the API version to use (``1.41``), given the engine's answer to ``GET /version``.

    Raises :class:`UnknownState` when the answer has no version, :class:`ClusterError` when the engine is too old.
    """
    try:
        newest = tuple(int(part) for part in version["ApiVersion"].split("."))
        oldest = tuple(int(part) for part in version.get("MinAPIVersion", "1.12").split("."))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UnknownState("the Docker engine does not report its API version", raw=str(version)[:2000]) from None
    if newest < OLDEST_API:
        raise ClusterError(
            f"the Docker engine speaks API {version['ApiVersion']}; expected {'.'.join(map(str, OLDEST_API))} or newer",
            remedy="Install Docker Engine 20.10 or newer.",
        )
    return ".".join(map(str, max(OLDEST_API, oldest)))


def frames(raw: bytes) -> t.Iterator[tuple[int, bytes]]:
    """Split the engine's multiplexed stream into (stream number, payload): 1 is standard output, 2 standard error.

    An incomplete last frame is yielded as it is. Raises :class:`UnknownState` for anything but such a stream.
    """
    position = 0
    while position < len(raw):
        header = raw[position:position + 8]
        if len(header) < 8 or header[0] > STDERR_STREAM or header[1:4] != b"\0\0\0":
            raise UnknownState("the Docker engine sent output that is not a multiplexed stream", raw=repr(raw[position:position + 200]))
        size = int.from_bytes(header[4:8], "big")
        yield header[0], raw[position + 8:position + 8 + size]
        position += 8 + size


def demultiplex(raw: bytes) -> tuple[str, str]:
    """Return (standard output, standard error) of the engine's multiplexed stream as text."""
    parts = list(frames(raw))
    stdout, stderr = (b"".join(payload for stream, payload in parts if (stream == STDERR_STREAM) is is_error) for is_error in (False, True))
    return stdout.decode(errors="replace"), stderr.decode(errors="replace")


def engine_message(body: bytes) -> str:
    """Return the engine's message from the body of an error answer."""
    try:
        return str(json.loads(body)["message"]).strip()
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace").strip()[:2000]


def accepted(method: str, path: str, status: int, content: bytes) -> bytes:
    """Return the body of a successful answer. Raises :class:`NotFound` or :class:`ClusterError` with the engine's message for any other."""
    if status < 400:
        return content
    words = engine_message(content)
    if status == 404:
        raise NotFound(words, reason="not found")
    raise ClusterError(
        f"the Docker engine refused {method} {path}: {words}",
        # The version was negotiated with this engine, or with its predecessor.
        remedy="Run this again: the Docker engine was replaced by a newer one meanwhile." if TOO_OLD.search(words) else "",
        status=status,
        raw=words,
    )


class EngineApi:
    """A Docker engine's HTTP API over its Unix socket, with nothing but Python's standard library.

    ``timeout`` is in seconds, for one complete answer. Calls raise :class:`NotFound` on 404, :class:`UnknownState` when the engine hangs,
    or its answer cannot be parsed or is too large, and :class:`ClusterError` when it refuses in another way.
    """

    def __init__(self, socket_path: str = "/var/run/docker.sock", timeout: float = 60) -> None:
        self.socket_path, self.timeout = socket_path, timeout
        self._version: str | None = None

    # -- one call ----------------------------------------------------------------------------------------------------

    def _call(
        self, method: str, path: str, query: dict[str, t.Any] | None = None, body: t.Any = None, timeout: float | None = None, enough: int | None = None,
        *, has_version: bool = True,
    ) -> bytes:
        """Send one request and return the body of a successful answer, of which ``enough`` bytes or a little more are read."""
        path, timeout = f"/v{self.version}{path}" if has_version else path, timeout or self.timeout
        connection = Connection(self._connect, "localhost", timeout, ANSWER_LIMIT if enough is None else enough + ANSWER_LIMIT)
        url = f"{path}?{urllib.parse.urlencode(query)}" if query else path
        payload, headers = (None, {}) if body is None else (json.dumps(body), {"Content-Type": "application/json"})
        content = bytearray()
        try:
            with contextlib.closing(connection):
                connection.request(method, url, payload, headers)
                with connection.getresponse() as answer:
                    read_body(answer, content, enough)
        except TimeoutError:
            raise UnknownState(
                f"the Docker engine at {self.socket_path} did not answer {method} {path} within {timeout:g} s",
                remedy="Run journalctl -u docker --since -10min to see what the engine does.",
            ) from None
        except PermissionError:
            raise ClusterError(
                f"no permission to talk to the Docker engine at {self.socket_path}",
                remedy="Run the task with become: true, or add the user to the group docker.",
            ) from None
        except (FileNotFoundError, ConnectionRefusedError):
            raise ClusterError(
                f"no Docker engine listens at {self.socket_path}",
                remedy="Run systemctl start docker. The playbooks expect it at this socket; only modules have the option docker_socket.",
            ) from None
        except AnswerTooLarge as error:
            raise UnknownState(f"{method} {path} of the Docker engine at {self.socket_path}: {error}", raw=content[:2000].decode(errors="replace")) from None
        except (OSError, http.client.HTTPException) as error:
            raise UnknownState(f"the Docker engine at {self.socket_path} closed the connection during {method} {path}: {error!r}") from error
        return accepted(method, path, answer.status, bytes(content))

    def _connect(self, timeout: float) -> socket.socket:
        with contextlib.ExitStack() as unless_connected:
            sock = unless_connected.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            sock.settimeout(timeout)
            sock.connect(self.socket_path)
            unless_connected.pop_all()
        return sock

    @property
    def version(self) -> str:
        """The API version negotiated with this engine, once."""
        if self._version is None:
            self._version = negotiated_version(_parsed(self._call("GET", "/version", has_version=False)))
        return self._version

    # -- reading -----------------------------------------------------------------------------------------------------

    def get(self, path: str, **query: t.Any) -> t.Any:
        """Return the parsed JSON answer to ``GET path``; keyword arguments become the query, dicts and lists as JSON."""
        return _parsed(self._call("GET", path, {key: json.dumps(value) if isinstance(value, (dict, list)) else value for key, value in query.items()}))

    def containers(self, labels: dict[str, str], statuses: t.Sequence[str] = (), size: bool = False) -> list[dict[str, t.Any]]:
        """Return the engine's list of containers that have all ``labels`` and one of the ``statuses``, with their sizes on request.

        The collection's labels that a container only inherits from its image are in ``InheritedLabels``, not in its ``Labels``.
        """
        listed = self.get(
            "/containers/json",
            all=1,
            size=int(size),
            filters={"label": [f"{key}={value}" for key, value in labels.items()], **({"status": list(statuses)} if statuses else {})},
        )
        if not isinstance(listed, list):
            return listed
        entries = [{**entry, **self._split(entry.get("Labels"), entry.get("ImageID"))} if isinstance(entry, dict) else entry for entry in listed]
        return [entry for entry in entries if not isinstance(entry, dict) or not entry.get("InheritedLabels") or not labels]

    def inspect(self, container_id: str) -> dict[str, t.Any]:
        """Return the engine's description of one container, with its labels as in :meth:`containers`."""
        details = self.get(f"/containers/{_quoted(container_id)}/json")
        config = details.get("Config") if isinstance(details, dict) else None
        split = self._split(config.get("Labels"), details.get("Image")) if isinstance(config, dict) else {}
        return {**details, "Config": {**config, **split}} if split else details

    def _split(self, labels: t.Any, image_id: t.Any) -> dict[str, t.Any]:
        """Return the labels that were set on a container and those of the collection that it inherited; empty if none is inherited."""
        if not isinstance(labels, dict) or labels.get(LABEL_OWNER) != OWNER or not isinstance(image_id, str) or names_image(labels, image_id):
            return {}
        image = self.image(image_id)
        if are_given(labels, (image["Config"].get("Labels") or {}) if image else None):
            return {}
        inherited = {name: value for name, value in labels.items() if name.startswith(LABEL_PREFIX)}
        return {"Labels": {name: value for name, value in labels.items() if name not in inherited}, "InheritedLabels": inherited}

    def logs(self, container_id: str, tail: int = 50) -> str:
        """Return the last ``tail`` lines of a container's log, both streams in their order; fewer if they exceed ``LOG_LIMIT`` bytes."""
        while True:
            raw = self._call("GET", f"/containers/{_quoted(container_id)}/logs", {"stdout": 1, "stderr": 1, "tail": tail}, enough=LOG_LIMIT)
            if len(raw) < LOG_LIMIT or tail <= 1:
                return b"".join(payload for _stream, payload in frames(raw)).decode(errors="replace")
            tail //= 2

    def top(self, container_id: str) -> list[int]:
        """Return the host's process ids of a container's processes, sorted; empty if it does not run."""
        try:
            table = self.get(f"/containers/{_quoted(container_id)}/top", ps_args="-eo pid,comm")
        except ClusterError as error:
            if error.details.get("status") == 409 or "is not running" in error.details.get("raw", ""):
                return []
            raise
        try:
            return sorted(int(dict(zip(table["Titles"], row))["PID"]) for row in table["Processes"])
        except (KeyError, TypeError, ValueError, IndexError):
            raise UnknownState("the Docker engine's list of a container's processes has no process ids", raw=str(table)[:2000]) from None

    def exec(self, container_id: str, argv: list[str], *, timeout: float) -> ExecResult:
        """Run ``argv`` inside a running container and return its result.

        Raises :class:`UnknownState` after ``timeout`` seconds. The engine cannot stop the program then, so one that might hang needs its own limit.
        """
        began = time.monotonic()
        answer = self._call("POST", f"/containers/{_quoted(container_id)}/exec", body={"AttachStdout": True, "AttachStderr": True, "Cmd": argv})
        exec_id = _parsed(answer)["Id"]
        stdout, stderr = demultiplex(self._call("POST", f"/exec/{exec_id}/start", body={"Detach": False, "Tty": False}, timeout=timeout))
        # The engine stores the exit code shortly after the end of the output.
        for _elapsed in clock(began + timeout - time.monotonic(), EXIT_CODE_SLEEP):
            state = self.get(f"/exec/{exec_id}/json")
            if not state["Running"] and state["ExitCode"] is not None:
                return ExecResult(state["ExitCode"], stdout, stderr)
        raise UnknownState(f"{argv[0]} in container {container_id[:12]} closed its output but did not end within {timeout:g} s")

    def images(self, labels: t.Sequence[str] = ()) -> list[dict[str, t.Any]]:
        """Return the engine's list of images that have all ``labels``; without ``labels`` all images, including intermediate ones."""
        return self.get("/images/json", all=int(not labels), filters={"label": list(labels)})

    def history(self, image_id: str) -> list[dict[str, t.Any]]:
        """Return the layers of an image."""
        return self.get(f"/images/{_quoted(image_id)}/history")

    def image(self, reference: str) -> dict[str, t.Any] | None:
        """Return the engine's description of an image, None if it has no such image."""
        try:
            return self.get(f"/images/{_quoted(reference)}/json")
        except NotFound:
            return None

    def archive(self, container_id: str, path: str, limit: int) -> bytes:
        """Return a directory of a container, running or not, as a tar stream that ends after about ``limit`` bytes, complete or not.

        Raises :class:`NotFound` when the container has no such path.
        """
        return self._call("GET", f"/containers/{_quoted(container_id)}/archive", {"path": path}, enough=limit)

    def run_throwaway(
        self,
        image: str,
        argv: list[str],
        *,
        labels: dict[str, str],
        timeout: float,
        network: str = "none",
        env: t.Mapping[str, str] | None = None,
        mounts: t.Sequence[dict[str, t.Any]] = (),
        host: t.Mapping[str, t.Any] | None = None,
    ) -> ExecResult:
        """Run ``argv`` in a new container of ``image``, remove the container, and return the result.

        It is confined as all helpers are. ``labels`` identify it if it cannot be removed. ``host`` has further keys of its HostConfig.
        Raises :class:`NotFound` if the image is absent and :class:`UnknownState` after ``timeout`` seconds.
        """
        request = {
            "Image": image,
            "Entrypoint": argv[:1],
            "Cmd": argv[1:],
            "Labels": labels,
            "Env": [f"{name}={value}" for name, value in {**confinement.ENVIRONMENT, **(env or {})}.items()],
            "Volumes": {confinement.SCRATCH: {}},
            "HostConfig": {"NetworkMode": network, "Init": True, "Mounts": list(mounts), **confinement.CONFINED, **(host or {})},
        }
        container_id = _parsed(self._call("POST", "/containers/create", body=request))["Id"]
        try:
            self._call("POST", f"/containers/{container_id}/start")
            code = _parsed(self._call("POST", f"/containers/{container_id}/wait", timeout=timeout))["StatusCode"]
            raw = self._call("GET", f"/containers/{container_id}/logs", {"stdout": 1, "stderr": 1})
        finally:
            self._call("DELETE", f"/containers/{container_id}", {"force": 1, "v": 1})
        return ExecResult(code, *demultiplex(raw))

    def try_image(self, image: str, labels: dict[str, str], timeout: float) -> None:
        """Create a container of an image, which needs all its layers, and remove it without starting it.

        Raises :class:`ClusterError` with the engine's message if it fails.
        """
        request = {"Image": image, "Entrypoint": ["/"], "Labels": labels, "HostConfig": {"NetworkMode": "none"}}
        answer = self._call("POST", "/containers/create", body=request, timeout=timeout)
        self._call("DELETE", f"/containers/{_parsed(answer)['Id']}", {"force": 1, "v": 1})

    def untag(self, name: str) -> None:
        """Remove a name of an image, and with its last name the image."""
        self._call("DELETE", f"/images/{_quoted(name)}")


def _parsed(body: bytes) -> t.Any:
    try:
        return json.loads(body)
    except ValueError:
        raise UnknownState("the Docker engine returned invalid JSON", raw=body.decode(errors="replace")[:2000]) from None


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="/:@")


def lookalikes(api: EngineApi, cluster: str, role: str = "") -> list[str]:
    """Return, in words, the containers that inherit the labels of this cluster (and role, if given) from their image."""
    wanted = {LABEL_CLUSTER: cluster, **({LABEL_ROLE: role} if role else {})}.items()
    return sorted(f"{name_of(entry)} (of image {entry['Image']})" for entry in api.containers({}) if wanted <= entry.get("InheritedLabels", {}).items())


def find_node_container(api: EngineApi, cluster: str, role: str) -> dict[str, t.Any] | None:
    """Return the engine's description of this node's container of one cluster and role, None without one.

    It is found by its labels, not by its name. Raises :class:`ClusterError` if there are two.
    """
    entries = api.containers({LABEL_OWNER: OWNER, LABEL_CLUSTER: cluster, LABEL_ROLE: role})
    if len(entries) > 1:
        names = ", ".join(sorted(f"{name_of(entry)} ({entry['Id'][:12]}, {entry['State']})" for entry in entries))
        raise ClusterError(
            f"this node has {len(entries)} containers labeled as the {role} of cluster {cluster}: {names}",
            remedy="Run docker rm CONTAINER for all but one.",
        )
    try:
        return api.inspect(entries[0]["Id"]) if entries else None
    except NotFound:
        return None
