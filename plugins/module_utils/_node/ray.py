# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's container with Ray: its command, its requirements, and Ray's view of the cluster. This module util is PRIVATE to the collection.

The functions that :func:`apply.apply` uses have the names of those in ``native.py``.
"""

from __future__ import annotations

import inspect
import json
import re
import signal
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import seconds_of
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi, ExecResult
from ansible_collections.gb10.cluster.plugins.module_utils._engine import at_work
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._network import listeners
from ansible_collections.gb10.cluster.plugins.module_utils._node import container, obstacles, ray_probe
from ansible_collections.gb10.cluster.plugins.module_utils._node import fields as field_table
from ansible_collections.gb10.cluster.plugins.module_utils._node.container import ExistingContainer, WantedContainer
from ansible_collections.gb10.cluster.plugins.module_utils._node.fields import Changes, Fields, Params
from ansible_collections.gb10.cluster.plugins.module_utils._node.obstacles import StaleHead
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify
from ansible_collections.gb10.cluster.plugins.module_utils._process.command_line import options, ranks, run_words
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

if t.TYPE_CHECKING:
    from ansible_collections.gb10.cluster.plugins.module_utils._docker.sdk import Docker

#: Value of the field ``executor``, which containers with Ray leave out.
EXECUTOR = "ray"

#: The secret of this name is Ray's token.
TOKEN_SECRET = "ray_token"

#: The first version that requires the token. Earlier ones ignore the setting, and run programs for every client that reaches them.
TOKEN_SINCE = (2, 52)

#: Ray's services on one node, in the order in which they take the first ports of the range. The last two have no option of
#: ``ray start``: their ports are set in the environment.
SERVICE_OPTIONS = (
    "node-manager-port",
    "object-manager-port",
    "runtime-env-agent-port",
    "dashboard-agent-grpc-port",
    "dashboard-agent-listen-port",
    "metrics-export-port",
)
CLIENT_SERVER_OPTION = "ray-client-server-port"
SERVICE_VARIABLES = ("AUTOSCALER_METRIC_PORT", "DASHBOARD_METRIC_PORT")

#: The first ports of the range are the services'; Ray's worker processes get the rest, and each needs one.
SERVICE_PORTS = 10
FEWEST_WORKER_PORTS = 40

#: Seconds after which a head no longer lists a node that it cannot reach: its first check comes after 5 s, and then five in a row must fail, which
#: each take up to 3 and 10 s.
FORGET_SECONDS = 90.0

#: An exit code above this number means that a signal ended the program (the shell's convention).
_SIGNALLED = 128


class PortRange(t.NamedTuple):
    """The ports of one node that Ray may use in addition to the head's own, both ends included."""

    first: int
    last: int

    @property
    def services(self) -> dict[str, int]:
        """Option or variable → port."""
        return {name: self.first + at for at, name in enumerate((*SERVICE_OPTIONS, CLIENT_SERVER_OPTION, *SERVICE_VARIABLES))}

    @property
    def workers(self) -> tuple[int, int]:
        return self.first + SERVICE_PORTS, self.last


def parse_port_range(text: str, port: int) -> PortRange:
    """Return the range written as ``FIRST-LAST``. Raises :class:`ClusterError` when it has too few ports for Ray."""
    match = re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", text)
    if not match:
        raise ClusterError(f"is {text!r}", where="port_range", remedy="Write it as FIRST-LAST, for example 20100-20299.", reason="input")
    ports = PortRange(int(match[1]), int(match[2]))
    size, needed = ports.last - ports.first + 1, SERVICE_PORTS + FEWEST_WORKER_PORTS
    if ports.first < 1024 or ports.last > 65535 or size < needed:
        raise ClusterError(
            f"{text} has {max(size, 0)} ports",
            where="port_range",
            expected=f"{needed} or more between 1024 and 65535",
            remedy="Give a longer range, for example 20100-20299.",
            reason="input",
        )
    if ports.first <= port <= ports.last:
        raise ClusterError(f"port {port} is inside port_range {text}", remedy="Choose a port outside the range.", reason="input")
    return ports


def knows_token(version: str | None) -> bool:
    """Return whether a version of Ray requires the token; an unreadable version does not."""
    numbers = re.match(r"(\d+)\.(\d+)\b", version or "")
    return bool(numbers) and (int(numbers[1]), int(numbers[2])) >= TOKEN_SINCE


def host_port(address: str, port: int) -> str:
    """Return ``HOST:PORT``, an IPv6 address in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def start_arguments(fields: Fields) -> list[str]:
    """Return the arguments of ``ray`` for a container's fields: ``start --block`` and all that follows."""
    ports = parse_port_range(fields["port_range"], fields["port"])
    first, last = ports.workers
    client = f"--{CLIENT_SERVER_OPTION}={ports.services[CLIENT_SERVER_OPTION]}"
    head = ["--head", f"--port={fields['port']}", "--include-dashboard=false", client]
    store = fields["object_store_memory"]
    return [
        *("start", "--block", "--disable-usage-stats", "--log-color=false", f"--node-ip-address={fields['node_address']}"),
        *(head if fields["node_role"] == "head" else [f"--address={host_port(fields['head_address'], fields['port'])}"]),
        f"--num-gpus={fields['ray_gpus']}",
        *(f"--{option}={ports.services[option]}" for option in SERVICE_OPTIONS),
        *(f"--min-worker-port={first}", f"--max-worker-port={last}"),
        *([] if store is None else [f"--object-store-memory={store}"]),
        *fields["ray_arguments"],
    ]


def ray_environment(fields: Fields) -> dict[str, str]:
    """Return the variables that Ray needs beyond the user's own. They are the same on head and workers."""
    services = parse_port_range(fields["port_range"], fields["port"]).services
    own = {name: str(services[name]) for name in SERVICE_VARIABLES}
    if TOKEN_SECRET in fields["secret_files"]:
        own.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=f"{field_table.SECRETS_TARGET}/{TOKEN_SECRET}")
    return own


def wanted(params: Params, image_id: str, current: ExistingContainer | None) -> WantedContainer:
    """Return the wanted container. Raises :class:`ClusterError` for options that do not fit together.

    A value that was not requested for a worker (the head's session) stays as it is.
    """
    head = params["node_role"] == "head"
    if not head and not params["head_address"]:
        raise ClusterError("a worker needs head_address", remedy="Set head_address to the address of the head's node.", reason="input")
    kept_session = current.fields.get("head_session", "") if current else ""
    asked_session = params["head_session"]
    # A node that the head lists is in its session, whatever session its container was created with: a unit creates it without one.
    if current and current.running and registered(params["ray_nodes"], params["node_address"], 1000 * int(seconds_of(current.started_at)), current.uptime()):
        asked_session = kept_session
    fields = {
        **field_table.wanted(params, EXECUTOR, image_id),
        "head_address": params["node_address"] if head else params["head_address"],
        "head_session": "" if head else asked_session or kept_session,
    }
    return WantedContainer(params["cluster_name"], EXECUTOR, fields, ["ray", *start_arguments(fields)], ray_environment(fields))


def needed_ports(fields: Fields) -> list[int]:
    """Return the ports of the node that no other program may listen on: those of Ray's services, and on the head its own port."""
    services = parse_port_range(fields["port_range"], fields["port"]).services
    return [fields["port"], *services.values()] if fields["node_role"] == "head" else [services[option] for option in SERVICE_OPTIONS]


# -- asking Ray ------------------------------------------------------------------------------------------------------


class RayTable(t.NamedTuple):
    """The head's answer: ``error`` is empty when it answered; ``kind`` is then empty too, else import, token, head or time.

    ``without_token`` is the result of the same question without the token: ``refused``, ``answered``, or the reason why it is unknown.
    """

    ray_version: str
    python_version: str
    nodes: list[dict[str, t.Any]]
    error: str
    kind: str
    without_token: str = ""


def ask(api: EngineApi | Docker, container_id: str, address: str, timeout: float) -> RayTable:
    """Ask the head at ``address`` (HOST:PORT) for its nodes from inside a container, within about ``timeout`` seconds."""
    argv = ["python3", "-c", inspect.getsource(ray_probe), address, f"{timeout:g}"]
    # The probe ends itself one second after its time; two more are for starting it.
    return parse_table(api.exec(container_id, argv, timeout=timeout + 3), timeout)


def lacks_rank(api: EngineApi | Docker, current: ExistingContainer, argv: t.Sequence[str], timeout: float) -> bool:
    """Return whether an engine on Ray's head lost a rank for certain: the living nodes have fewer GPUs than it has ranks. False when Ray does not answer."""
    words = options(run_words(argv))
    if words.get("distributed-executor-backend") != EXECUTOR or not current.running or "port" not in current.fields:
        return False
    try:
        table = ask(api, current.id, host_port(current.fields["node_address"], current.fields["port"]), timeout)
    except ClusterError:
        return False
    return not table.error and sum(node["gpus"] for node in table.nodes if node["alive"]) < ranks(argv)


def parse_table(result: ExecResult, timeout: float) -> RayTable:
    """Return the probe's answer. Raises :class:`UnknownState` with its raw output when that cannot be read."""
    if result.rc == _SIGNALLED + signal.SIGALRM:
        return RayTable("", "", [], f"no answer within {timeout:g} s", "time")
    try:
        answer = json.loads(result.stdout.strip().splitlines()[-1])
        nodes = newest([node_of(entry) for entry in answer["nodes"]])
        return RayTable(answer["ray_version"], answer["python_version"], nodes, answer["error"], answer["kind"], answer["without_token"])
    except (IndexError, KeyError, TypeError, ValueError, OverflowError, RecursionError):
        raise UnknownState(
            f"the probe that asks Ray for its nodes ended with code {result.rc} and unreadable output",
            remedy="Check that the image has a python3 with the package ray.",
            raw=f"{result.stdout}\n{result.stderr}".strip()[-4000:],
        ) from None


def answer(table: RayTable) -> dict[str, t.Any]:
    """Return the keys of a result from the head's answer."""
    return {
        "ray_version": table.ray_version,
        "python_version": table.python_version,
        "nodes": table.nodes,
        "gpus_total": sum(node["gpus"] for node in table.nodes if node["alive"]),
        "ray_error": table.error,
        "ray_without_token": table.without_token,
    }


def node_of(entry: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return a node of the probe's answer. Raises TypeError, ValueError or KeyError for another form: the container's own python3 wrote it."""
    return {
        "node_id": str(entry["node_id"]),
        "address": str(entry["address"]),
        "alive": bool(entry["alive"]),
        "head": bool(entry["head"]),
        "started_ms": int(entry["started_ms"]),
        "gpus": float(entry["gpus"]),
        "resources": dict(entry["resources"]),
    }


def newest(nodes: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Return every living node, and of the dead ones those whose address has neither a living nor a later entry."""
    latest = {node["address"]: node["node_id"] for node in nodes if not node["alive"]}
    latest.update({node["address"]: "" for node in nodes if node["alive"]})
    return [node for node in nodes if node["alive"] or latest[node["address"]] == node["node_id"]]


def registered(nodes: list[dict[str, t.Any]], address: str, since_ms: int, uptime: float = 0.0) -> bool:
    """Return whether the node at ``address`` is alive, once, in an incarnation that began at ``since_ms`` (its own clock) or later.

    The head lists a killed container for some more seconds. Such an entry must not count for its successor, and
    while it exists, the engine's ranks could still be placed on it. ``uptime`` are the seconds that the container has been
    running by a clock that cannot be set: after :data:`FORGET_SECONDS` no entry can belong to a predecessor, even if
    a wall clock was set back meanwhile.
    """
    alive = [node for node in nodes if node["alive"] and node["address"] == address]
    return len(alive) == 1 and (alive[0]["started_ms"] >= since_ms or uptime >= FORGET_SECONDS)


def check_waiting_helps(table: RayTable, image: str, address: str, node: str) -> None:
    """Raise :class:`ClusterError` when the head's answer will not change by waiting."""
    if table.kind == "import":
        raise ClusterError(
            f"the python3 of image {image} has no Ray: {table.error}",
            remedy="Install Ray for the python3 that comes first on the image's PATH.",
            reason="program missing",
        )
    if table.kind == "token":
        raise ClusterError(
            f"the Ray head at {address} refuses the token of {node}",
            remedy="Give every node the same Ray token file, then recreate the containers: --tags ray -e gb10_allow=restart.",
            reason="token refused",
            detail=table.error,
        )


def engine_is_gone(changed: Changes) -> bool:
    """Return whether a worker's ranks are leftovers of an engine that ended with its head: that head began another session, or now runs Ray."""
    joined, now = changed.get("head_session", ("", ""))
    was, _wanted = changed.get("executor", ("", ""))
    return bool(joined) or (was == "native" and bool(now))


# -- obstacles ------------------------------------------------------------------------------------------------------


def check_head(params: Params, node: str) -> None:
    """Raise :class:`ClusterError` unless a program answers at the head's address."""
    address = host_port(params["head_address"], params["port"])
    why = listeners.answers(params["head_address"], params["port"], params["connect_timeout"])
    if why:
        raise ClusterError(
            f"no Ray head answers at {address} from {node} ({why})",
            remedy="Start the head first (--tags ray), or correct head_address and port; a firewall on the way shows as a time-out.",
            reason="no head",
        )


def is_ray_head(inspected: dict[str, t.Any], listener: dict[str, t.Any]) -> bool:
    """Return whether a container runs a Ray head: by its command, or because the listening process is Ray's GCS."""
    return classify.is_gcs(listener["process"]) or classify.starts_ray_head([inspected["Path"], *inspected["Args"]])


def stale_heads(docker: Docker, foreign: list[dict[str, t.Any]]) -> list[StaleHead]:
    """Return the containers among the foreign listeners that run a Ray head."""
    pairs = [(listener, docker.inspect(listener["container"])) for listener in foreign if listener["container"]]
    heads = [(listener, inspected) for listener, inspected in pairs if is_ray_head(inspected, listener)]
    by_container = {
        listener["container"]: StaleHead(listener["container"], listener["container_name"], obstacles.container_text(inspected))
        for listener, inspected in heads
    }
    return list(by_container.values())


def check_unused(params: Params, node: str, stale: list[StaleHead]) -> None:
    """Raise :class:`ClusterError` when an engine or one of Ray's workers is at work in a container that would be removed: it may be answering requests.

    The number of its requests is not read: its address and key are unknown.
    """
    if params["interrupt_requests"]:
        return
    working = at_work.within({entry.id for entry in stale})
    if working:
        raise ClusterError(
            f"the Ray head of another run on {node} would be removed, but it is at work: {'; '.join(working)}",
            remedy="End that work first, or have it cut off with -e gb10_allow=interrupt.",
            reason="stale head in use",
            node=node,
        )


def check_ports(docker: Docker, params: Params, node: str, fields: dict[str, t.Any], current: ExistingContainer | None) -> list[StaleHead]:
    """Return the stale heads that may be removed. Raises :class:`ClusterError` when anything else uses one of the needed ports."""
    foreign = obstacles.foreign_on(docker, needed_ports(fields), current)
    stale = stale_heads(docker, foreign)
    others = [listener for listener in foreign if listener["container"] not in [entry.id for entry in stale]]
    if stale and not params["replace_stale"]:
        raise ClusterError(
            f"a Ray head of another run is on {node}: {'; '.join(entry.description for entry in stale)}",
            remedy="When that run is over, repeat with -e gb10_allow=stale_head to have it stopped and removed. "
            "To keep it, choose another gb10_ray_port and gb10_ray_port_range.",
            reason="stale head",
            node=node,
        )
    if others:
        raise obstacles.ports_taken("Ray", node, others, "gb10_ray_port or gb10_ray_port_range")
    if stale:
        check_unused(params, node, stale)
    return stale


def to_remove_first(
    docker: Docker, params: Params, node: str, wanted: WantedContainer, current: ExistingContainer | None, check_mode: bool
) -> list[StaleHead]:
    """Return the stale heads that have to go first. Raises :class:`ClusterError` for a taken port or a missing head; in check mode it may still come."""
    stale = check_ports(docker, params, node, wanted.fields, current)
    if params["node_role"] == "worker" and not check_mode:
        check_head(params, node)
    return stale


# -- waiting -----------------------------------------------------------------------------------------------------------


def wait(docker: Docker, params: Params, node: str, wanted: WantedContainer) -> dict[str, t.Any]:
    """Wait until Ray lists this node, and return the head's answer for the result.

    The head is not asked when it just listed this node as ready (``ray_nodes``). Raises :class:`ClusterError` as soon as the container
    ends, :class:`WaitTimeout` when the time is over.
    """
    address = host_port(wanted.fields["head_address"], wanted.fields["port"])
    last = "nothing was asked yet"
    for _elapsed in clock(params["wait_timeout"], params["wait_sleep"]):
        current = container.running(docker, node, wanted)
        since = 1000 * int(seconds_of(current.started_at))
        if registered(params["ray_nodes"], wanted.fields["node_address"], since, current.uptime()):
            return {"nodes": params["ray_nodes"]}
        try:
            table = ask(docker, current.id, address, params["connect_timeout"])
        except ClusterError as error:
            # The container may have ended before the question: the next iteration shows how.
            last = f"{error} {error.details.get('raw', '')}".strip()
            continue
        check_waiting_helps(table, wanted.fields["image"], address, node)
        if not table.error and registered(table.nodes, wanted.fields["node_address"], since, current.uptime()):
            return answer(table)
        last = table.error or f"the head knows {', '.join(entry['address'] for entry in table.nodes if entry['alive']) or 'no node'}"
    what = "the head" if wanted.role == "head" else f"the worker {wanted.fields['node_address']}"
    raise WaitTimeout(
        f"{what} was not ready at {address} within {params['wait_timeout']} s; last seen on {node}: {last}",
        remedy=f"Read the container's log: docker logs {wanted.name}. A slow node needs a longer wait_timeout.",
        reason="not ready in time",
        node=node,
        log=container.last_log(docker, wanted),
    )
