# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the stages judge, as pure functions from what nodes answered to findings. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import ipaddress
import typing as t

try:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version
except ImportError:
    # ansible-core requires packaging; only ansible-test's import check runs without it.
    HAS_PACKAGING = False
else:
    HAS_PACKAGING = True

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils import _profile

Finding = dict[str, t.Any]
GIB = 1024**3

#: Ray's program that holds the head's port.
GCS_PROGRAM = "gcs_server"

#: Stands where a finding concerns the whole cluster.
CLUSTER = "cluster"


def on_node(findings: list[Finding], node: str) -> list[Finding]:
    """Findings that a module made on a node, under the name the inventory has for it instead of the machine's own."""
    return [{**found, "node": node} for found in findings]


# --- validate ---------------------------------------------------------------------------------------------------------------


def inputs(settings: dict[str, t.Any]) -> list[Finding]:
    """Judge the inputs of a play. No node is asked.

    ``settings`` has ``profile`` (validated), ``head``, ``workers``, ``play_hosts`` (all hosts of the play), ``batch`` (hosts of
    this batch), ``forks``, ``fabric_addresses`` (host to address), ``ports`` (variable to port), ``ray_gpus``, ``env``,
    ``host_env`` (host to mapping), ``serve_arguments``, ``cluster_group``, ``limit`` (the --limit pattern or empty).
    """
    found: list[Finding] = []

    def block(id: str, message: str, remedy: str, node: str = CLUSTER, **evidence: t.Any) -> None:
        found.append(finding(id, node, "block", message, remedy=remedy, **evidence))

    head, workers, group = settings["head"], settings["workers"], settings["cluster_group"]
    nodes = [*([head] if head else []), *workers]
    if not head or head not in settings["known_hosts"]:
        block(
            "input.head",
            f"gb10_head_host: '{head}' is no host of the inventory; a cluster needs exactly one head.",
            f"put one host into the group gb10_head below {group}, or set gb10_head_host (the lab's inventory is written by `make lab-up`)",
        )
    if len(settings["heads"]) > 1:
        block(
            "input.two_heads",
            f"the group gb10_head holds {len(settings['heads'])} hosts of {group}: {', '.join(settings['heads'])}; a cluster needs exactly one head.",
            "leave one, or set gb10_head_host",
        )
    if head in workers:
        block("input.head_is_worker", f"{head} is the head and a worker.", "take it out of gb10_workers (or gb10_worker_hosts)", node=head)
    missing = [node for node in nodes if node not in settings["play_hosts"]]
    if missing and head in settings["known_hosts"]:
        block(
            "input.limit",
            f"the play leaves out {', '.join(missing)} of the cluster's nodes {', '.join(nodes)}.",
            f"run without --limit (it is '{settings['limit']}')" if settings["limit"] else f"check the hosts in {group}",
        )
    if sorted(settings["batch"]) != sorted(settings["play_hosts"]):
        block(
            "input.serial",
            f"the play handles {len(settings['batch'])} of {len(settings['play_hosts'])} hosts at once; half a cluster can't serve.",
            "remove `serial` from the play",
        )
    if settings["forks"] < len(nodes):
        block(
            "input.forks",
            f"forks is {settings['forks']}, the cluster has {len(nodes)} nodes; head and workers are watched at the same time.",
            f"run with --forks {len(nodes)} or more",
            measured=settings["forks"],
            needed=len(nodes),
        )
    found += _addresses(nodes, settings["fabric_addresses"])
    found += _ports(settings["ports"])
    found += _sizes(settings["profile"], nodes, settings["ray_gpus"])
    for problem in _profile.env_problems(settings["env"]):
        block("input.env", f"gb10_env.{problem}", "correct the variable")
    for node, env in settings["host_env"].items():
        for problem in _profile.env_problems(env):
            block("input.host_env", f"gb10_host_env.{problem}", "correct the variable", node=node)
    for problem in _profile.serve_problems(settings["profile"], settings["serve_arguments"], "gb10_serve_arguments"):
        block("input.serve_arguments", problem, "correct gb10_serve_arguments")
    return found or [finding("input", CLUSTER, "pass", f"{settings['profile']['id']} on {', '.join(nodes)}.")]


def _addresses(nodes: list[str], addresses: dict[str, str]) -> list[Finding]:
    """Every node needs a fabric address of its own."""
    found = []
    seen: dict[str, str] = {}
    for node in nodes:
        address = addresses.get(node) or ""
        try:
            ipaddress.ip_address(address)
        except ValueError:
            found.append(
                finding(
                    "input.fabric_address",
                    node,
                    "block",
                    f"gb10_fabric_address: '{address}' is no IP address.",
                    needed="the node's address on the ConnectX-7 link",
                    remedy="set gb10_fabric_address for this host in the inventory",
                )
            )
            continue
        if address in seen:
            found.append(
                finding(
                    "input.same_address",
                    node,
                    "block",
                    f"gb10_fabric_address: {address} is also the address of {seen[address]}.",
                    remedy="give every node its own",
                )
            )
        seen[address] = node
    return found


def _ports(ports: dict[str, int]) -> list[Finding]:
    """Ports lie in the range an ordinary service uses, and no two are equal."""
    found = []
    for name, port in ports.items():
        if not 1024 <= port <= 65535:
            found.append(
                finding("input.port", CLUSTER, "block", f"{name}: {port} is out of range.", measured=port, needed="1024 to 65535", remedy=f"set {name}")
            )
        twin = next((other for other, value in ports.items() if value == port and other != name), None)
        if twin and twin < name:
            found.append(finding("input.same_port", CLUSTER, "block", f"{name} and {twin} are both {port}.", remedy="choose another for one of them"))
    return found


def _sizes(profile: dict[str, t.Any], nodes: list[str], ray_gpus: int) -> list[Finding]:
    """The ranks a profile asks for must be the GPUs that the nodes have, and tensor parallel must divide the heads."""
    parallel = profile["parallel"]
    ranks = parallel["tensor"] * parallel["pipeline"] * parallel["data"]
    gpus = len(nodes) * ray_gpus
    found = []
    if ranks != gpus:
        found.append(
            finding(
                "input.parallel",
                CLUSTER,
                "block",
                f"profile {profile['id']} asks for {ranks} ranks (tensor {parallel['tensor']} x pipeline {parallel['pipeline']} x data {parallel['data']}), "
                f"the cluster has {gpus} GPUs ({len(nodes)} nodes, gb10_ray_gpus {ray_gpus}).",
                measured=gpus,
                needed=ranks,
                remedy="add or remove workers, or choose another profile",
            )
        )
    heads = profile["memory"]["config"].get("num_attention_heads")
    if heads and heads % parallel["tensor"]:
        found.append(
            finding(
                "input.tensor_heads",
                CLUSTER,
                "block",
                f"profile {profile['id']}: tensor {parallel['tensor']} does not divide the model's {heads} attention heads.",
                measured=parallel["tensor"],
                needed=f"a divisor of {heads}",
                remedy="change parallel.tensor in the profile",
            )
        )
    return found


# --- preflight --------------------------------------------------------------------------------------------------------------


def preflight(info: dict[str, t.Any], node: str, zombies: dict[str, t.Any], needs: dict[str, t.Any]) -> list[Finding]:
    """Judge one node by what ``node_info`` and ``cuda_zombie_check`` answered.

    ``needs`` has ``address``, ``devices`` (paths), ``ports`` (variable to port this node must have free), ``cluster``,
    ``disk_gib`` (GiB that must be free wherever images and models lie), ``replace_stale`` (consent to remove another run's head).
    """
    unseen = {error["section"]: error for error in info["errors"]}
    return [
        *_docker(node, info["docker"], unseen, needs["disk_gib"]),
        *_devices(node, info["devices"], needs["devices"]),
        _not_seen("fabric.address", node, unseen["interfaces"]) if "interfaces" in unseen else _address(node, info["interfaces"], needs["address"]),
        *([_not_seen("port.free", node, unseen["listeners"])] if "listeners" in unseen else _listeners(node, info, needs)),
        *(_space(node, path, disk and disk["free_bytes"], needs["disk_gib"]) for path, disk in info["disk"].items()),
        *on_node(zombies["findings"], node),
    ]


def _not_seen(id: str, node: str, error: dict[str, t.Any]) -> Finding:
    """A section that could not be read stops what depends on it."""
    return finding(id, node, "unknown", f"{error['section']}: {error['error']}", remedy=error.get("remedy") or "look at the node")


def _docker(node: str, docker: dict[str, t.Any], unseen: dict[str, dict[str, t.Any]], floor: float) -> list[Finding]:
    if not docker["reachable"]:
        error = unseen.get("docker", {})
        return [
            finding(
                "docker.reachable",
                node,
                "block",
                f"the Docker engine does not answer: {error.get('error', 'no answer')}",
                remedy=error.get("remedy") or "systemctl start docker; the account that Ansible becomes needs rights on its socket",
            )
        ]
    sdk = docker["python_docker"]
    return [
        finding("docker.reachable", node, "pass", f"Docker {docker['version']} answers (API {docker['api_version']}).", measured=docker["version"]),
        finding(
            "docker.sdk",
            node,
            "pass" if sdk else "block",
            f"the Docker SDK for Python is there ({sdk})." if sdk else "the Docker SDK for Python is missing.",
            measured=sdk,
            remedy="" if sdk else "apt-get install python3-docker",
        ),
        _space(node, docker["root_dir"], docker["root_free_bytes"], floor),
    ]


def _devices(node: str, devices: dict[str, bool | None], needed: list[str]) -> list[Finding]:
    """Without the InfiniBand devices in its container NCCL falls back to TCP without a word."""
    return [
        finding(
            "device.present",
            node,
            "pass" if devices.get(path) else "block",
            f"{path} is there." if devices.get(path) else f"{path} is missing; without it NCCL would fall back to TCP without a word.",
            needed=path,
            remedy="" if devices.get(path) else "load the mlx5_ib and ib_uverbs modules (DGX OS does), or correct gb10_container_devices",
        )
        for path in needed
    ]


def _address(node: str, interfaces: list[dict[str, t.Any]], address: str) -> Finding:
    """The fabric address must sit on an interface with carrier."""
    holder = next((interface for interface in interfaces if address in interface["addresses"]), None)
    if holder is None:
        held = {interface["name"]: interface["addresses"] for interface in interfaces}
        found = ", ".join(f"{name} {'/'.join(addresses) or 'none'}" for name, addresses in held.items())
        return finding(
            "fabric.address",
            node,
            "block",
            f"gb10_fabric_address {address} is on no interface of this node.",
            measured=held,
            needed=address,
            remedy=f"configure it, or correct gb10_fabric_address; found: {found}",
        )
    return finding(
        "fabric.address",
        node,
        "pass" if holder["carrier"] else "block",
        f"{address} is on {holder['name']}, which has {'carrier' if holder['carrier'] else 'no carrier'}.",
        measured=holder["name"],
        remedy="" if holder["carrier"] else f"check the cable and the peer of {holder['name']}",
    )


def _listeners(node: str, info: dict[str, t.Any], needs: dict[str, t.Any]) -> list[Finding]:
    """A port is free, or held by a container of this cluster. The Ray head of another run goes with consent, in stage ray."""
    ours = {container["name"] for container in info["containers"] if container["cluster"] == needs["cluster"]}
    found = []
    for name, port in needs["ports"].items():
        holders = [listener for listener in info["listeners"] if listener["port"] == port]
        foreign = [listener for listener in holders if listener["container"] not in ours]
        who = "; ".join(_holder(listener) for listener in foreign)
        stale = all(listener["process"] == GCS_PROGRAM and listener["container"] for listener in foreign)
        if not foreign:
            verdict, message, remedy = "pass", f"port {port} ({name}) is {'ours' if holders else 'free'}.", ""
        elif stale and needs["replace_stale"]:
            verdict, message, remedy = "warn", f"port {port} ({name}) is taken by the Ray head of another run: {who}.", "stage ray will stop and remove it"
        elif stale:
            verdict, message = "block", f"port {port} ({name}) is taken by the Ray head of another run: {who}."
            remedy = "did that run finish? Then -e gb10_replace_stale=true stops and removes its container"
        else:
            verdict, message, remedy = "block", f"port {port} ({name}) is taken by {who}.", f"stop it, or choose another port with {name}"
        found.append(finding("port.free", node, verdict, message, measured=who or None, needed=f"port {port} free", remedy=remedy))
    return found


def _holder(listener: dict[str, t.Any]) -> str:
    """Who listens, as far as it could be seen."""
    where = f" in container {listener['container']}" if listener["container"] else ""
    since = f" since {listener['since']}" if listener["since"] else ""
    return f"{listener['process'] or 'a process that may not be seen'} (pid {listener['pid'] or 'unknown'}){where}{since}"


def _space(node: str, path: str, free_bytes: int | None, floor: float) -> Finding:
    if free_bytes is None:
        return finding("disk.free", node, "unknown", f"the free space under {path} could not be read.", needed=floor, remedy=f"look at {path}")
    free = round(free_bytes / GIB, 1)
    return finding(
        "disk.free",
        node,
        "pass" if free >= floor else "block",
        f"{free} GiB free under {path}" + ("." if free >= floor else f", {floor} GiB needed."),
        measured=free,
        needed=floor,
        remedy="" if free >= floor else f"free space under {path}, or lower gb10_disk_floor_gib",
    )


# --- image ------------------------------------------------------------------------------------------------------------------


def images(contracts: dict[str, dict[str, t.Any]], profile: dict[str, t.Any]) -> list[Finding]:
    """Judge the node images: each has what the profile needs, and all have the same contents.

    ``contracts`` maps a node to what ``image_contract_info`` answered there.
    """
    found = []
    for node, answer in contracts.items():
        if not answer["exists"]:
            found.append(finding("image.present", node, "block", f"image {profile['image']['tag']} is missing.", remedy="run with --tags image"))
            continue
        found.append(finding("image.present", node, "pass", f"{profile['image']['tag']} is there.", measured=answer["image_id"]))
        contract = answer["contract"]
        if profile["executor"] == "ray":
            ray = contract["versions"].get("ray") if contract["programs"].get("ray") else None
            without = f"image {profile['image']['tag']} holds no Ray; vLLM dropped it from its requirements in 0.18."
            found.append(
                finding(
                    "image.ray",
                    node,
                    "pass" if ray else "block",
                    f"Ray {ray} on Python {contract['python']}." if ray else without,
                    measured=ray,
                    remedy="" if ray else "put `ray` into the profile's image.layers and run with --tags image",
                )
            )
        found += _requirements(node, contract, profile)
    return found + _same_contents({node: answer for node, answer in contracts.items() if answer["exists"]})


def _requirements(node: str, contract: dict[str, t.Any], profile: dict[str, t.Any]) -> list[Finding]:
    """The profile's version ranges against the image's contents."""
    found: list[Finding] = []
    if not HAS_PACKAGING:
        return [finding("image.requires", node, "unknown", "the Python package `packaging` is missing on the controller.", remedy="pip install packaging")]
    for name, wanted in profile["requires"].items():
        have = contract["python"] if name == "python" else contract["versions"].get(name)
        try:
            fits = have is not None and Version(have) in SpecifierSet(str(wanted), prereleases=True)
        except (InvalidVersion, InvalidSpecifier) as error:
            found.append(finding("image.requires", node, "unknown", f"{name}: {error}", measured=have, needed=wanted, remedy="correct requires in the profile"))
            continue
        found.append(
            finding(
                "image.requires",
                node,
                "pass" if fits else "block",
                f"{name} {have or 'is missing'}, profile {profile['id']} needs {wanted}.",
                measured=have,
                needed=wanted,
                remedy="" if fits else "choose another image.base, or correct requires in the profile",
            )
        )
    return found


def _same_contents(contracts: dict[str, dict[str, t.Any]]) -> list[Finding]:
    """Images built on every node differ in their ids; what they were built from and what they hold must not."""
    found = []
    for what, read in (
        ("base image", lambda answer: answer["labels"].get("io.gb10.base")),
        ("recipe", lambda answer: answer["labels"].get("io.gb10.recipe")),
        ("Python", lambda answer: answer["contract"]["python"]),
        ("Ray", lambda answer: answer["contract"]["versions"].get("ray")),
        ("packages", lambda answer: answer["contract"]["packages_digest"]),
    ):
        values = {node: read(answer) for node, answer in contracts.items()}
        if len(set(values.values())) > 1:
            different = ", ".join(f"{node} {value}" for node, value in values.items())
            found.append(
                finding(
                    "image.same",
                    CLUSTER,
                    "block",
                    f"{what} of the image differs between nodes: {different}.",
                    measured=values,
                    needed="the same on every node",
                    remedy="bring the same base image to every node and run with --tags image -e gb10_rebuild_image=true",
                )
            )
    return found or [finding("image.same", CLUSTER, "pass", f"same contents on {len(contracts)} node(s).")]


# --- model ------------------------------------------------------------------------------------------------------------------


def models(answers: dict[str, dict[str, t.Any]]) -> list[Finding]:
    """Judge the model on all nodes; ``answers`` maps a node to what ``model_info`` answered there."""
    return [found for node, answer in answers.items() for found in on_node(answer["findings"], node)]


# --- ray --------------------------------------------------------------------------------------------------------------------


def gate(answer: dict[str, t.Any], addresses: dict[str, str], gpus_per_node: int) -> list[Finding]:
    """Ray must see every node, alive, under its own address, with its GPUs; anything else costs half an hour later.

    ``answer`` is what ``ray_cluster_info`` said on the head; ``addresses`` maps the nodes to their fabric addresses.
    """
    alive = {node["address"]: node for node in answer["nodes"] if node["alive"]}
    found = []
    for name, address in addresses.items():
        node = alive.get(address)
        gpus = node["gpus"] if node else None
        fits = gpus == gpus_per_node
        if node is None:
            message, remedy = f"{address} is not registered with Ray (alive: {', '.join(sorted(alive)) or 'none'}).", "run with --tags ray"
        elif not fits:
            message, remedy = f"Ray sees {gpus:g} GPU(s) on {address}, {gpus_per_node} needed.", "check gb10_ray_gpus and gb10_container_gpus, then --tags ray"
        else:
            message, remedy = f"{address} is alive with {gpus:g} GPU(s).", ""
        found.append(finding("ray.node", name, "pass" if fits else "block", message, measured=gpus, needed=gpus_per_node, remedy=remedy))
    for address in sorted(set(alive) - set(addresses.values())):
        found.append(
            finding(
                "ray.stranger",
                CLUSTER,
                "block",
                f"{address} is registered with this Ray cluster and is no node of it; ranks could land there.",
                measured=address,
                remedy="stop Ray on that machine, or add it to gb10_workers",
            )
        )
    return found


# --- proof ------------------------------------------------------------------------------------------------------------------


def proof(
    ranks: dict[str, dict[str, t.Any]],
    completion: dict[str, t.Any],
    expected_env: dict[str, dict[str, str]],
    needs: dict[str, t.Any],
) -> list[Finding]:
    """Judge a live engine: a token came back, ranks sit on distinct hosts, both carry the forwarded env, containers have their rights.

    ``ranks`` maps a node to what ``rank_info`` answered; ``completion`` is what ``vllm_serve_info`` measured on the head;
    ``expected_env`` maps a node to its container's environment; ``needs`` has ``ranks`` (their number), ``secrets`` (names no
    other node's ranks may carry), ``head``, ``devices``, ``capabilities``, ``memlock`` (bytes, -1 for unlimited).
    """
    tokens = completion.get("tokens") or 0
    found = [
        finding(
            "proof.completion",
            needs["head"],
            "pass" if tokens >= 1 else "block",
            f"a completion of {tokens} token(s) in {completion.get('seconds')} s." if tokens else f"no completion: {completion.get('error', 'no answer')}",
            measured=tokens,
            needed=1,
            remedy="" if tokens else "run with --tags serve and look at the engine's log",
        )
    ]
    per_node = {node: len(answer["ranks"]) for node, answer in ranks.items()}
    spread = sum(per_node.values()) == needs["ranks"] and len(set(per_node.values())) == 1
    found.append(
        finding(
            "proof.rank_hosts",
            CLUSTER,
            "pass" if spread else "block",
            f"{sum(per_node.values())} rank(s): " + ", ".join(f"{count} on {node}" for node, count in per_node.items()) + ".",
            measured=per_node,
            needed=needs["ranks"],
            remedy="" if spread else "every node must run the same number of ranks: tear down and bring up again",
        )
    )
    for node, answer in ranks.items():
        found += _rank_env(node, answer["ranks"], expected_env[node], needs)
        found += _rights(node, answer["container"], needs)
    return found


def _rank_env(node: str, ranks: list[dict[str, t.Any]], expected: dict[str, str], needs: dict[str, t.Any]) -> list[Finding]:
    """The forwarded variables in each live rank against what its node's container was given; secrets only where they belong."""
    found = []
    for rank in ranks:
        wrong = {name: rank["env"].get(name) for name, value in expected.items() if rank["env"].get(name) != value}
        detail = ", ".join(f"{name}={have!r} instead of {expected[name]!r}" for name, have in wrong.items())
        found.append(
            finding(
                "proof.env",
                node,
                "block" if wrong else "pass",
                f"rank {rank['pid']}: {detail}." if wrong else f"rank {rank['pid']} carries all {len(expected)} forwarded variables.",
                measured=wrong,
                needed={name: expected[name] for name in wrong},
                remedy="recreate the node containers: --tags ray,serve -e gb10_allow_restart=true" if wrong else "",
            )
        )
        leaked = sorted(name for name in needs["secrets"] if name in rank["present"])
        found.append(
            finding(
                "proof.secrets",
                node,
                "block" if leaked else "pass",
                f"rank {rank['pid']} holds {', '.join(leaked)}." if leaked else f"rank {rank['pid']} holds no secret.",
                measured=leaked,
                needed=[],
                remedy="the engine copied its environment: report this with the engine's version" if leaked else "",
            )
        )
    return found


def _rights(node: str, container: dict[str, t.Any], needs: dict[str, t.Any]) -> list[Finding]:
    """Devices, capabilities and memlock as they are in force in the container."""
    found = []
    for device in needs["devices"]:
        there = device in container["devices"]
        found.append(
            finding(
                "proof.device",
                node,
                "pass" if there else "block",
                f"{device} is {'' if there else 'not '}in the container.",
                needed=device,
                remedy="" if there else "the container was made without it: --tags ray -e gb10_allow_restart=true",
            )
        )
    for capability in needs["capabilities"]:
        there = capability in container["capabilities"]
        found.append(
            finding(
                "proof.capability",
                node,
                "pass" if there else "block",
                f"{capability} is {'' if there else 'not '}in force in the container.",
                needed=capability,
                remedy="" if there else "the container was made without it: --tags ray -e gb10_allow_restart=true",
            )
        )
    have, want = container["memlock_bytes"], needs["memlock"]
    fits = have == -1 or (want != -1 and have >= want)
    found.append(
        finding(
            "proof.memlock",
            node,
            "pass" if fits else "block",
            f"memlock is {'unlimited' if have == -1 else f'{have} bytes'} in the container.",
            measured=have,
            needed=want,
            remedy="" if fits else "raise the Docker daemon's LimitMEMLOCK, or set gb10_memlock to what this machine allows",
        )
    )
    return found


# --- teardown and report ------------------------------------------------------------------------------------------------------


def teardown(info: dict[str, t.Any], node: str, cluster: str) -> list[Finding]:
    """Judge that nothing of ``cluster`` is left on a node: no container, no listener on the ports that were asked for."""
    errors = [error for error in info["errors"] if error["section"] in ("docker", "containers", "listeners")]
    if errors:
        return [finding("teardown.seen", node, "unknown", f"{error['section']}: {error['error']}", remedy="look at the node") for error in errors]
    left = [container["name"] for container in info["containers"] if container["cluster"] == cluster]
    found = [
        finding(
            "teardown.containers",
            node,
            "block" if left else "pass",
            f"left: {', '.join(left)}." if left else f"no container of {cluster}.",
            measured=left,
            needed=[],
            remedy="run teardown.yml again" if left else "",
        )
    ]
    held = "; ".join(f"port {listener['port']} is held by {_holder(listener)}" for listener in info["listeners"])
    found.append(
        finding(
            "teardown.ports",
            node,
            "warn" if held else "pass",
            f"{held}." if held else "nobody listens on its ports.",
            remedy="it is not ours; stop it if it shall not be there" if held else "",
        )
    )
    return found


def stage_seconds(marks: dict[str, float | None]) -> dict[str, float]:
    """Seconds of each stage, from the times (seconds since the epoch) at which the stages began; the last mark only ends."""
    began = [(stage, float(mark)) for stage, mark in marks.items() if mark is not None]
    return {stage: round(following - mark, 1) for (stage, mark), (_next, following) in zip(began, began[1:])}
