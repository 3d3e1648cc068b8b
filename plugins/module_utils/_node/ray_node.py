# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Ray adds to a node's container. This module util is PRIVATE to the collection."""

from __future__ import annotations

import inspect
import json
import re
import signal
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi, ExecResult
from ansible_collections.gb10.cluster.plugins.module_utils._engine.engine_state import EnginePaths
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._node import node_containers, ray_probe

#: The fields that Ray adds to those of every node container, with what their absence from an older container means.
#: Addresses, port and port range exist since the first version and have no such value.
ABSENT_MEANS: dict[str, t.Any] = {
    **node_containers.ABSENT_MEANS,
    "head_session": "",
    "object_store_memory": None,
    "ray_arguments": [],
    "ray_gpus": 1,
}

#: The secret of this name is Ray's token.
TOKEN_SECRET = "ray_token"

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

#: Seconds after which a head lists no node any more that it cannot reach: its first look comes after 5 s, five in a row that
#: each take up to 3 and 10 s must fail.
FORGET_SECONDS = 90.0

#: Signals a program in a container was ended by: the shell's convention.
_SIGNALLED = 128


class PortRange(t.NamedTuple):
    """The ports of one node that Ray may use beside the head's own, both ends included."""

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
    """Return the range written as ``FIRST-LAST``. Raises :class:`ClusterError` when it cannot hold what Ray needs."""
    match = re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", text)
    if not match:
        raise ClusterError(f"is {text!r}", where="port_range", remedy="Write it as FIRST-LAST, for example 20100-20299.", reason="input")
    found = PortRange(int(match[1]), int(match[2]))
    size, needed = found.last - found.first + 1, SERVICE_PORTS + FEWEST_WORKER_PORTS
    if found.first < 1024 or found.last > 65535 or size < needed:
        raise ClusterError(
            f"{text} has {max(size, 0)} ports",
            where="port_range",
            expected=f"{needed} or more between 1024 and 65535",
            remedy="Give a longer range, for example 20100-20299.",
            reason="input",
        )
    if found.first <= port <= found.last:
        raise ClusterError(f"port {port} lies inside port_range {text}", remedy="Choose a port outside the range.", reason="input")
    return found


def host_port(address: str, port: int) -> str:
    """Return ``HOST:PORT``, an IPv6 address in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def start_arguments(fields: dict[str, t.Any]) -> list[str]:
    """Return the arguments of ``ray`` for a unit's fields: ``start --block`` and all that follows."""
    ports = parse_port_range(fields["port_range"], fields["port"])
    first, last = ports.workers
    arguments = ["start", "--block", "--disable-usage-stats", "--log-color=false", f"--node-ip-address={fields['node_address']}"]
    if fields["node_role"] == "head":
        client = f"--{CLIENT_SERVER_OPTION}={ports.services[CLIENT_SERVER_OPTION]}"
        arguments += ["--head", f"--port={fields['port']}", "--include-dashboard=false", client]
    else:
        arguments += [f"--address={host_port(fields['head_address'], fields['port'])}"]
    arguments += [f"--num-gpus={fields['ray_gpus']}"]
    arguments += [f"--{option}={ports.services[option]}" for option in SERVICE_OPTIONS]
    arguments += [f"--min-worker-port={first}", f"--max-worker-port={last}"]
    if fields["object_store_memory"] is not None:
        arguments += [f"--object-store-memory={fields['object_store_memory']}"]
    return arguments + fields["ray_arguments"]


def ray_environment(fields: dict[str, t.Any]) -> dict[str, str]:
    """Return the variables that Ray needs beyond the user's own, which win. They are the same on head and workers."""
    services = parse_port_range(fields["port_range"], fields["port"]).services
    own = {name: str(services[name]) for name in SERVICE_VARIABLES}
    if TOKEN_SECRET in fields["secret_files"]:
        own.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=f"{node_containers.SECRETS_TARGET}/{TOKEN_SECRET}")
    return {**own, **fields["env"]}


def ray_unit(cluster: str, fields: dict[str, t.Any]) -> node_containers.Unit:
    """Return the node container that runs Ray as these fields say."""
    paths = EnginePaths.of(fields["state_dir"], fields["log_dir"], cluster)
    return node_containers.Unit(
        cluster=cluster,
        role=fields["node_role"],
        fields=fields,
        absent_means=ABSENT_MEANS,
        entrypoint=["ray"],
        command=start_arguments(fields),
        env=ray_environment(fields),
        mounts=[
            *node_containers.state_mounts(paths),
            *node_containers.secret_mounts(fields["secret_files"]),
            *fields["mounts"],
        ],
    )


def needed_ports(fields: dict[str, t.Any]) -> list[int]:
    """Return the ports of the node that nobody else may listen on: Ray's services', and on the head its own port."""
    services = parse_port_range(fields["port_range"], fields["port"]).services
    head = fields["node_role"] == "head"
    return [fields["port"], *services.values()] if head else [services[option] for option in SERVICE_OPTIONS]


# -- asking Ray ------------------------------------------------------------------------------------------------------


class RayTable(t.NamedTuple):
    """What the head told: ``error`` is empty when it answered; ``kind`` is then empty too, else import, token, head or time."""

    ray_version: str
    python_version: str
    nodes: list[dict[str, t.Any]]
    error: str
    kind: str


def ask(api: EngineApi, container_id: str, address: str, timeout: float) -> RayTable:
    """Ask the head at ``address`` (HOST:PORT) for its nodes from inside a container, within about ``timeout`` seconds."""
    argv = ["python3", "-c", inspect.getsource(ray_probe), address, f"{timeout:g}"]
    # The probe ends itself one second after its time; two more are for starting it.
    return parse_table(api.exec(container_id, argv, timeout=timeout + 3), timeout)


def parse_table(result: ExecResult, timeout: float) -> RayTable:
    """Return what the probe printed. Raises :class:`UnknownState` with its raw output when that cannot be read."""
    if result.rc == _SIGNALLED + signal.SIGALRM:
        return RayTable("", "", [], f"no answer within {timeout:g} s", "time")
    try:
        answer = json.loads(result.stdout.strip().splitlines()[-1])
        return RayTable(answer["ray_version"], answer["python_version"], newest(answer["nodes"]), answer["error"], answer["kind"])
    except (IndexError, KeyError, TypeError, ValueError):
        raise UnknownState(
            f"the probe that asks Ray for its nodes ended with code {result.rc} and printed what cannot be read",
            remedy="Is there a python3 with the package ray in the image?",
            raw=f"{result.stdout}\n{result.stderr}".strip()[-4000:],
        ) from None


def newest(nodes: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Return every living node, and of the dead ones those whose address has neither a living nor a later entry."""
    latest = {node["address"]: node["node_id"] for node in nodes if not node["alive"]}
    latest.update({node["address"]: "" for node in nodes if node["alive"]})
    return [node for node in nodes if node["alive"] or latest[node["address"]] == node["node_id"]]


def registered(nodes: list[dict[str, t.Any]], address: str, since_ms: int, uptime: float = 0.0) -> bool:
    """Say whether the node at ``address`` is alive, once, in an incarnation that began at ``since_ms`` (its own clock) or later.

    The head goes on listing a container that was killed for some seconds. Such an entry must not count for its successor, and
    while it is there, the engine's ranks could still be placed on it. ``uptime`` are the seconds that the container has been
    running by a clock that nobody can set: after :data:`FORGET_SECONDS` of them no entry is that of a predecessor, whatever
    a wall clock says that was set back meanwhile.
    """
    alive = [node for node in nodes if node["alive"] and node["address"] == address]
    return len(alive) == 1 and (alive[0]["started_ms"] >= since_ms or uptime >= FORGET_SECONDS)


def check_hope(table: RayTable, image: str, address: str, node: str) -> None:
    """Raise :class:`ClusterError` when what the head told will not change by waiting."""
    if table.kind == "import":
        raise ClusterError(
            f"the python3 of image {image} has no Ray: {table.error}",
            remedy="Install Ray for the python3 that comes first on the image's PATH.",
            reason="program missing",
        )
    if table.kind == "token":
        raise ClusterError(
            f"the Ray head at {address} refuses the token of {node}",
            remedy="Give every node the same Ray token file, then make the containers anew: --tags ray -e gb10_allow_restart=true.",
            reason="token refused",
            detail=table.error,
        )
