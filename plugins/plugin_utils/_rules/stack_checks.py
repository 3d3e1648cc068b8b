# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The checks of the doctor's own rules (doctor.yml) on results of ``stack_info``. This plugin util is PRIVATE to the collection.

They are called like those of ``checks``. Many compare the ranks of one stack on several nodes, and thus need all nodes together.
"""

from __future__ import annotations

import collections
import dataclasses
import ipaddress
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._engine import health
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify, command_line
from ansible_collections.gb10.cluster.plugins.module_utils._redact import HIDDEN
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.checks import Arguments, Faults, check, comparison, derived, differing, gib
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.checks import listed, named_like
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.evidence import Entry, Fault, Node, Unseen
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.tenant_checks import inside, together
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.groups import grouped

#: Engines whose ranks share one model; the others are recognized by name alone.
CLUSTER_ENGINES = ("vllm", "sglang", "tensorrt_llm")

NOT_SET = "(not set)"

#: A part of a stack: its node, and its process.
Part = tuple[Node, Entry]


# --- stacks and their parts -------------------------------------------------------------------------------------------------


def title(process: Entry) -> str:
    """Return ``VLLM::EngineCore (pid 855) in container vllm_node``."""
    words = command_line.run_words(process["argv"]) or [process["kind"]]
    name = " ".join([words[0].rpartition("/")[2], *(word for word in words[1:2] if word == "serve")])
    return f"{name} (pid {process['pid']}){inside(process)}"


def parts(node: Node, *kinds: str, engines: t.Collection[str] = ()) -> list[Entry]:
    """Return the parts of these kinds on a node. Raises :class:`Unseen` when they are unknown."""
    return [process for process in node.get("stack.processes") if (not kinds or process["kind"] in kinds) and (not engines or process["engine"] in engines)]


@derived("stack.processes")
def stack_parts(node: Node) -> list[Entry]:
    """Return the parts of all stacks on a node, each with its title under ``who``."""
    return [{**process, "who": title(process)} for process in parts(node)]


def field_of(node: Node, process: Entry, field: str) -> t.Any:
    """Return a field of a part. Raises :class:`Unseen` with the reason that the node reported when it is null."""
    value = process[field]
    if value is None:
        error = node.error(f"stack.{field}") or {}
        raise Unseen(f"stack.processes[{process['pid']}].{field}", error.get("error", ""), error.get("remedy", ""))
    return value


def _key(node: Node, process: Entry) -> str | None:
    """Return the name of a stack among all nodes; None for a part of an unknown stack."""
    name = process["stack"]
    kind, _blank, place = (name or "").partition(" ")
    if not name:
        return None
    host = place.rpartition(":")[0].strip("[]") if kind != "local" else ""
    try:
        alone = kind == "local" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        alone = False
    return f"{name} on {node.name}" if alone else name


def stacks(nodes: t.Iterable[Node]) -> dict[str, list[Part]]:
    """Return all parts of each stack."""
    return grouped((key, (node, process)) for node in nodes for process in parts(node) if (key := _key(node, process)) is not None)


def spread_ranks(nodes: t.Sequence[Node]) -> t.Iterator[tuple[str, list[Part]]]:
    """Yield the ranks of each stack that has ranks on several nodes."""
    for key, members in stacks(nodes).items():
        ranks = [(node, process) for node, process in members if process["kind"] == classify.RANK and process["engine"] in CLUSTER_ENGINES]
        if len({node.name for node, _process in ranks}) > 1:
            yield key, ranks


def each_spread_rank(nodes: t.Sequence[Node]) -> t.Iterator[Part]:
    """Yield each rank of a stack that has ranks on several nodes."""
    return (rank for _key_of, ranks in spread_ranks(nodes) for rank in ranks)


def roots(node: Node, engines: t.Collection[str] = CLUSTER_ENGINES) -> list[Entry]:
    """Return the servers on a node, without those that another server started; without ``engines`` those of all engines."""
    servers = parts(node, *classify.SERVERS, engines=engines)
    own = {server["pid"] for server in servers}
    return [server for server in servers if server["ppid"] not in own]


def arguments_of(process: Entry) -> dict[str, str]:
    """Return the options of a part's command line by name."""
    return command_line.options(command_line.run_words(process["argv"]))


def _old_enough(node: Node, process: Entry, seconds: float) -> bool:
    return field_of(node, process, "age_s") >= seconds


def _labels(ranks: t.Sequence[Part]) -> dict[str, Part]:
    """Return ranks by label: the node, with the process if a node has several."""
    several = collections.Counter(node.name for node, _process in ranks)
    return {node.name if several[node.name] == 1 else f"{node.name} (pid {process['pid']})": (node, process) for node, process in ranks}


def _by_node(values: t.Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the values of each node as one text."""
    return {node: "/".join(sorted(set(several))) for node, several in grouped(values).items()}


# --- ranks against ranks ----------------------------------------------------------------------------------------------------


@comparison
def ranks_env(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """The ranks of a stack have the same variables, except those of a host or of a single process."""
    for key, ranks in spread_ranks(nodes):
        labels = _labels(ranks)
        envs = {label: field_of(node, process, "env") for label, (node, process) in labels.items()}
        sources = {label: process["env_source"] for label, (_node, process) in labels.items()}
        if len(set(sources.values())) > 1:
            raise Unseen("stack.processes.env", f"the variables of {key} are known as they are now on some nodes, and as they were at the start on others")
        for name in sorted({name for env in envs.values() for name in env}):
            if not named_like(name, (*limits["per_host"], *limits["per_process"])):
                for fault in differing({label: env.get(name, NOT_SET) for label, env in envs.items()}, name=name, stack=key):
                    yield dataclasses.replace(fault, node=labels[fault.node][0].name if fault.node in labels else fault.node)


@comparison
def ranks_arguments(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """Ranks that connect without Ray were started with the same arguments, except those of a single rank."""
    for key, members in stacks(nodes).items():
        servers = {node.name: arguments_of(process) for node, process in members if process["kind"] in classify.SERVERS}
        names = sorted({name for options in servers.values() for name in options}) if key.startswith("native ") and len(servers) > 1 else []
        for name in names:
            if not named_like(name, limits["per_rank"]):
                values = {node: _shown(options.get(name)) for node, options in servers.items()}
                yield from differing(values, option=f"--{name}" if name else "the model", stack=key)


def _shown(value: str | None) -> str:
    return NOT_SET if value is None else value or "(set)"


@comparison
def ranks_images(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """The ranks of a stack run in containers of the same image: its id, or the base that this collection built it on."""
    for key, ranks in spread_ranks(nodes):
        yield from differing(_by_node((node.name, _image(node, process)) for node, process in ranks), stack=key)


def _image(node: Node, process: Entry) -> str:
    if not process["container_id"]:
        return "no container"
    for container in node.get("stack.containers"):
        if container["id"] == process["container_id"]:
            return f"{container['image']} ({container['image_base'] or container['image_id'][:19]})"
    error = node.error("stack.containers") or {}
    raise Unseen(f"stack.containers[{process['container']}]", error.get("error", ""), error.get("remedy", ""))


@comparison
def ranks_versions(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """The ranks of a stack have the same versions of the relevant packages."""
    for key, ranks in spread_ranks(nodes):
        versions = [(node.name, field_of(node, process, "versions")) for node, process in ranks]
        for package in sorted({package for _node, installed in versions for package in installed}):
            yield from differing(_by_node((node, installed.get(package, "none")) for node, installed in versions), package=package, stack=key)


@comparison
def ranks_complete(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """There are as many ranks as the server's arguments request, once there was time to start them."""
    by_stack = stacks(nodes)
    for node in nodes:
        for server in roots(node):
            key, given = _key(node, server), arguments_of(server)
            tensor, pipeline, data = (command_line.whole_number(given.get(f"{name}-parallel-size")) or 1 for name in ("tensor", "pipeline", "data"))
            if server["kind"] != classify.FRONT_END or tensor * pipeline < 2 or data > 1 or not _old_enough(node, server, limits["young_s"]):
                continue
            ranks = [(where, process) for where, process in by_stack.get(key or "", []) if process["kind"] == classify.RANK]
            if len(ranks) < tensor * pipeline:
                places = listed(collections.Counter(where.name for where, _process in ranks)) or "none"
                yield Fault(
                    len(ranks), tensor * pipeline, {"server": title(server), "wanted": tensor * pipeline, "found": len(ranks), "places": places}, node=node.name
                )


# --- the fabric -------------------------------------------------------------------------------------------------------------


@comparison
def rdma_used(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """Ranks on several nodes have RDMA devices open, if their node has an active one."""
    for node, rank in each_spread_rank(nodes):
        up = [link["device"] for link in node.get("fabric") if link["device"] and link["port_state"] == "ACTIVE"]
        if up and not field_of(node, rank, "rdma") and _old_enough(node, rank, limits["young_s"]):
            yield Fault([], up, {"who": title(rank), "devices": ", ".join(up)}, node=node.name)


@comparison
def rdma_allowed(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """No variable prevents the NCCL of ranks on several nodes from using InfiniBand."""
    for node, rank in each_spread_rank(nodes):
        env = field_of(node, rank, "env")
        set_so = [f"{name}={env[name]}" for name, value in limits["off"].items() if env.get(name, "").lower() == str(value).lower()]
        if set_so:
            yield Fault(set_so, [], {"who": title(rank), "variables": ", ".join(set_so)}, node=node.name)


@comparison
def ranks_memlock(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """Ranks on several nodes have no memlock limit, if their node has an RDMA device."""
    for node, rank in each_spread_rank(nodes):
        if any(link["device"] for link in node.get("fabric")) and field_of(node, rank, "memlock_bytes") != -1:
            yield Fault(rank["memlock_bytes"], -1, {"who": title(rank)}, node=node.name)


# --- Ray --------------------------------------------------------------------------------------------------------------------


@check
def raylet_there(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """A node with parts of Ray also runs their raylet."""
    raylets = {raylet["stack"] for raylet in parts(node, classify.RAYLET)}
    members = parts(node, classify.RAY_START, classify.GCS_SERVER, classify.RANK, classify.RAY_WORKER, classify.RAY_IDLE)
    of_ray = [process for process in members if (process["stack"] or "").startswith("ray ") or process["engine"] == "ray"]
    for stack, left in grouped((process["stack"], process) for process in of_ray if process["stack"] not in raylets).items():
        if any(_old_enough(node, process, limits["young_s"]) for process in left):
            yield Fault([], "a raylet", {"stack": stack or "Ray", "left": ", ".join(title(process) for process in left[:5])})


@check
def ray_closed(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Ray's head, dashboard and client server listen on specific addresses, or require a token."""
    for process in parts(node, classify.GCS_SERVER, classify.RAY_DASHBOARD, classify.RAY_CLIENT):
        open_ports = [entry["port"] for entry in field_of(node, process, "listens") if ipaddress.ip_address(entry["address"]).is_unspecified]
        if process["kind"] == classify.RAY_DASHBOARD:
            # The process has another port for its own metrics.
            dashboard_port = command_line.whole_number(arguments_of(process).get("port"))
            open_ports = [port for port in open_ports if port == dashboard_port]
        if open_ports and field_of(node, process, "env").get("RAY_AUTH_MODE") != "token":
            yield Fault(open_ports, "a named address, or a token", {"who": title(process), "ports": ", ".join(map(str, open_ports))})


@check
def memory_monitor_off(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Ray does not end processes because of the node's memory use."""
    for raylet in parts(node, classify.RAYLET):
        value = field_of(node, raylet, "env").get("RAY_memory_monitor_refresh_ms", NOT_SET)
        if value != "0":
            yield Fault(value, "0", {"who": title(raylet)})


# --- APIs -------------------------------------------------------------------------------------------------------------------


@check
def apis_closed(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No API that other machines can reach lists its models without a key."""
    for api in node.get("stack.apis"):
        if api["open"] and api["world"] is None:
            raise Unseen(
                f"stack.apis[{api['port']}].world", "who reaches it depends on its container's network", "look at the ports that its container publishes"
            )
        if api["open"] and api["world"]:
            yield Fault(api["models_status"], 401, {**api, "models": ", ".join(model["id"] for model in api["models"] or []) or "no model", "where": _at(api)})


@check
def apis_answer(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Every API answers and reports that it is healthy. One that is still starting only causes a warning."""
    ages = {process["pid"]: process["age_s"] for process in node.get("stack.processes")}
    for api in node.get("stack.apis"):
        words = {**api, "where": _at(api)}
        if api["state"] == "not_listening":
            age = ages.get(api["pid"])
            early = age is not None and age < limits["start_s"]
            since = "" if age is None else f", {age} s after its start"
            yield Fault(None, "an answer", {**words, "what": f"does not listen yet{since}"}, verdict="warn" if early else "")
        elif api["state"] == "silent":
            yield Fault(api["error"], "an answer", {**words, "what": f"listens and does not answer ({api['error']})"})
        elif api["state"] != "answers":
            raise Unseen(
                f"stack.apis[{api['port']}].health",
                api["error"] or "APIs were not asked",
                f"ask it by hand on the node: curl -si http://127.0.0.1:{api['port']}/health",
            )
        elif api["health"] >= 500:
            yield Fault(api["health"], 200, {**words, "what": f"answers {api['health']} to /health"})


@comparison
def tokens_given(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """Every API that was asked for a token generates one, or is busy with other requests."""
    for node in nodes:
        for api in [api for api in node.get("stack.apis") if api["token"] is not None]:
            around = grouped((place.name, {**process, "text": title(process)}) for place, process in stacks(nodes).get(_key(node, api) or "", []))
            token = api["token"]
            result = health.verdict(health.Probe(token["api"], bool(token["completion"]), **(token["progress"] or {})), around)
            if result.state not in (health.SERVING, health.BUSY):
                judged = "unknown" if result.state == health.UNKNOWN else ""
                yield Fault(result.state, health.SERVING, {"where": _at(api), "health": result.text}, node=node.name, verdict=judged)


def _at(api: Entry) -> str:
    address = f"[{api['address']}]" if ":" in (api["address"] or "") else api["address"] or "port"
    return f"{address}:{api['port']} (pid {api['pid']}{inside(api)})"


@check
def secrets_hidden(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No secret is in a command line, which every account of the node can read."""
    for process in parts(node):
        followed = zip(process["argv"], [*process["argv"][1:], ""])
        options = [word.partition("=")[0] for word, after in followed if word != HIDDEN and (after == HIDDEN or word.endswith(f"={HIDDEN}"))]
        if options:
            names = ", ".join(dict.fromkeys(options))
            yield Fault(names, "a file or a variable", {"who": title(process), "options": names})


# --- progress and memory ----------------------------------------------------------------------------------------------------


@comparison
def stacks_progress(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """No stack uses processor time for requests that get no token; with ``idle`` no stack does so while no request runs."""
    apis = grouped((_key(node, api), api) for node in nodes for api in node.get("stack.apis"))
    for key, members in stacks(nodes).items():
        engines = [(node, process) for node, process in members if process["engine"] == "vllm" and process["kind"] in (classify.RANK, classify.ENGINE_CORE)]
        is_starting = any(api["state"] == "not_listening" for api in apis[key])
        busy = [] if is_starting else [(node, process) for node, process in engines if field_of(node, process, "cpu_percent") >= limits["busy_percent"]]
        if not busy:
            continue
        running, tokens = ([api[word] for api in apis[key] if api[word] is not None] for word in ("running", "tokens"))
        if not running or not tokens:
            raise Unseen(f"progress of {key}", "its metrics do not say it; the API may run on a node that was not checked", "check the node with the API, too")
        if not sum(tokens) and (not sum(running)) is arguments["idle"]:
            for name, burning in grouped((node.name, f"{title(process)} {process['cpu_percent']:g} %") for node, process in busy).items():
                yield Fault(burning, "rest" if arguments["idle"] else "progress", {"who": ", ".join(burning), "running": f"{sum(running):g}"}, node=name)


@check
def memory_left(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Memory is left next to a running engine."""
    if parts(node, classify.RANK, classify.ENGINE_CORE, *classify.SERVERS):
        available = gib(node.get("memory.available_mb"))
        if available < limits["least_gib"]:
            yield Fault(available, limits["least_gib"], {"available": available}, verdict="block" if available < limits["stop_gib"] else "")


@check
def engine_alone(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No other program uses the GPU next to an engine, except known ones. Processes of one kind in one container share a finding."""
    own = {process["pid"] for process in parts(node, engines=(*CLUSTER_ENGINES, "ray"))}
    if not parts(node, classify.RANK, classify.ENGINE_CORE, *classify.SERVERS, engines=CLUSTER_ENGINES):
        return
    others = [tenant for tenant in node.get("tenants") if tenant["pid"] not in own and tenant["kind"] not in (*CLUSTER_ENGINES, "ray")]
    yield from together(others)
    if not others:
        node.require_whole("tenants")


@check
def one_engine(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """At most one engine serves on a node."""
    servers = {server["stack"] or server["pid"]: server for server in roots(node)}
    if len(servers) > 1:
        yield Fault(len(servers), 1, {"who": ", ".join(title(server) for server in servers.values())})


# --- as text ----------------------------------------------------------------------------------------------------------------


def lines(node: Node) -> list[str]:
    """Return a few lines about what runs on a node."""
    if node.needs["failure"]:
        return [f"{node.name}: could not be looked at"]
    try:
        processes = parts(node)
    except Unseen as unseen:
        return [f"{node.name}: what runs is unknown ({unseen.why or unseen.what})"]
    if not processes:
        return [f"{node.name}: no engine and no Ray runs"]
    apis = node.get("stack").get("apis") or []
    servers = [_server_line(server, [api for api in apis if api["pid"] == server["pid"]]) for server in roots(node, engines=())]
    shown = [process for process in processes if process["kind"] in (classify.RANK, classify.RAYLET, classify.GCS_SERVER)]
    by_kind = grouped(((process["kind"], process["container"], process["stack"]), str(process["pid"])) for process in shown)
    others = [
        f"{len(pids)} {kind} (pid {', '.join(pids)}){inside({'container': container})}, stack {stack or 'unknown'}"
        for (kind, container, stack), pids in by_kind.items()
    ]
    engines = ", ".join(sorted({process["engine"] for process in processes}))
    return [f"{node.name}: {line}" for line in [*servers, *others] or [f"{len(processes)} process(es) of {engines}"]]


def _server_line(server: Entry, apis: t.Sequence[Entry]) -> str:
    started = f" since {server['started']}" if server["started"] else ""
    text = f"{server['engine']} {server['kind']}, {title(server)}{started}, stack {server['stack'] or 'unknown'}"
    for api in apis:
        models = ", ".join(f"{model['id']} ({model['max_model_len'] or '?'} tokens)" for model in api["models"] or [])
        text += f"; {_at(api).split(' (pid', maxsplit=1)[0]} {api['state']}{f', {models}' if models else ''}"
    return text
