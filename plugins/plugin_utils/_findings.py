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

Finding = dict[str, t.Any]
GIB = 1024**3
GIB_IN_MIB = 1024

#: Least part of a memory class that a node's kernel shows: a Spark of 128 GB shows about 121.7 GiB, firmware and GPU keep the rest.
CLASS_SHOWN = 0.85
#: By how much the memory of nodes of one kind may differ, as a part of the largest.
ALIKE_WITHIN = 0.03

#: Ray's program that holds the head's port.
GCS_PROGRAM = "gcs_server"

#: What to do when the ranks do not sit where they should, by the stage that makes the node containers.
SPREAD_REMEDIES = {
    "ray": "every node must run the same number of ranks: tear down and bring up again",
    "native": "every node must run the same number of ranks: run with --tags serve, which starts all of them again when one is missing",
}

#: Stands where a finding concerns the whole cluster.
CLUSTER = "cluster"


def on_node(findings: list[Finding], node: str) -> list[Finding]:
    """Findings that a module made on a node, under the name the inventory has for it instead of the machine's own."""
    return [{**found, "node": node} for found in findings]


# --- preflight --------------------------------------------------------------------------------------------------------------


def preflight(info: dict[str, t.Any], node: str, zombies: dict[str, t.Any], needs: dict[str, t.Any]) -> list[Finding]:
    """Judge one node by what ``node_info`` and ``cuda_zombie_check`` answered.

    ``needs`` has ``address``, ``devices`` (paths), ``ports`` (variable to port this node must have free), ``cluster``,
    ``disk_gib`` (GiB that must be free wherever images and models lie), ``replace_stale`` (consent to remove another run's head),
    ``api_address`` (what the API shall listen on; empty on nodes without it), ``memory_class_gb`` (what the profile was made for;
    None when it does not say).
    """
    unseen = {error["section"]: error for error in info["errors"]}
    return [
        *_docker(node, info["docker"], unseen, needs["disk_gib"]),
        *_devices(node, info["devices"], needs["devices"]),
        _not_seen("fabric.address", node, unseen["interfaces"]) if "interfaces" in unseen else _address(node, info["interfaces"], needs["address"]),
        *_api_address(node, info["interfaces"], needs["api_address"]),
        *_memory_class(node, info["memory"], needs["memory_class_gb"]),
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


def _api_address(node: str, interfaces: list[dict[str, t.Any]], address: str) -> list[Finding]:
    """The API can only listen on an address that the head has. Interfaces that could not be read are told with the fabric address."""
    if not address or not interfaces:
        return []
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError:
        message = f"gb10_api_address: '{address}' is no IP address."
        return [finding("api.address", node, "block", message, measured=address, remedy="set gb10_api_address to an IP address of the head")]
    held = {interface["name"]: interface["addresses"] for interface in interfaces}
    # A link-local address of IPv6 comes with its interface's name.
    here = any(ipaddress.ip_address(one.partition("%")[0]) == wanted for addresses in held.values() for one in addresses)
    if here or wanted.is_unspecified or wanted.is_loopback:
        return [finding("api.address", node, "pass", f"the API can listen on {address}.", measured=address)]
    found = ", ".join(f"{name} {'/'.join(addresses)}" for name, addresses in held.items() if addresses)
    return [
        finding(
            "api.address",
            node,
            "block",
            f"gb10_api_address {address} is on no interface of the head.",
            measured=held,
            needed=address,
            remedy=f"set gb10_api_address to one of the head's; found: {found}",
        )
    ]


def _memory_class(node: str, memory: dict[str, t.Any] | None, class_gb: int | None) -> list[Finding]:
    """A profile made for Sparks of one size fills those of the other to the last byte, and a full machine is lost."""
    if class_gb is None:
        return []
    if memory is None:
        return [finding("memory.class", node, "unknown", "the size of the node's memory could not be read.", needed=class_gb, remedy="look at /proc/meminfo")]
    total, floor = round(memory["total_mb"] / GIB_IN_MIB, 1), round(class_gb * CLASS_SHOWN, 1)
    fits = total >= floor
    return [
        finding(
            "memory.class",
            node,
            "pass" if fits else "block",
            f"{total} GiB of memory; the profile is for Sparks of {class_gb} GB" + ("." if fits else f", which show {floor} GiB or more."),
            measured=total,
            needed=floor,
            remedy="" if fits else f"choose a profile for this size, or use Sparks of {class_gb} GB",
        )
    ]


def memory_alike(answers: dict[str, dict[str, t.Any]]) -> list[Finding]:
    """Judge that all nodes have the same memory: ranks get equal parts of a model, so the smallest node would fill up first.

    ``answers`` maps a node to what ``node_info`` answered there.
    """
    unseen = [node for node, answer in answers.items() if answer["memory"] is None]
    if unseen:
        return [
            finding("memory.alike", node, "unknown", "the size of the node's memory could not be read.", remedy="look at /proc/meminfo") for node in unseen
        ]
    totals = {node: round(answer["memory"]["total_mb"] / GIB_IN_MIB, 1) for node, answer in answers.items()}
    if len(totals) < 2:
        return []
    alike = max(totals.values()) - min(totals.values()) <= ALIKE_WITHIN * max(totals.values())
    listed = ", ".join(f"{node} {total} GiB" for node, total in totals.items())
    return [
        finding(
            "memory.alike",
            CLUSTER,
            "pass" if alike else "block",
            f"all nodes have the same memory: {listed}." if alike else f"the nodes differ in memory: {listed}; the smallest would fill up first.",
            measured=totals,
            needed="the same on every node",
            remedy="" if alike else "take nodes of one size",
        )
    ]


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
        if profile["executor"] == "ray" or "ray" in profile["image"]["layers"]:
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
    other node's ranks may carry), ``head``, ``devices``, ``capabilities``, ``memlock`` (bytes, -1 for unlimited), ``stage`` (the one
    that makes the node containers, ``ray`` or ``native``), ``api_secrets`` (those of ``secrets`` that the head's own ranks have from
    the API's process, whose children they are).
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
            remedy="" if spread else SPREAD_REMEDIES[needs["stage"]],
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
                remedy=f"recreate the node containers: --tags {needs['stage']},serve -e gb10_allow_restart=true" if wrong else "",
            )
        )
        own = needs["api_secrets"] if node == needs["head"] else []
        but_own = f" but {', '.join(own)} of its API" if own else ""
        leaked = sorted(name for name in needs["secrets"] if name in rank["present"] and name not in own)
        found.append(
            finding(
                "proof.secrets",
                node,
                "block" if leaked else "pass",
                f"rank {rank['pid']} holds {', '.join(leaked)}." if leaked else f"rank {rank['pid']} holds no secret{but_own}.",
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
                remedy="" if there else f"the container was made without it: --tags {needs['stage']} -e gb10_allow_restart=true",
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
                remedy="" if there else f"the container was made without it: --tags {needs['stage']} -e gb10_allow_restart=true",
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


def teardown(info: dict[str, t.Any], node: str, cluster: str, memory: dict[str, t.Any]) -> list[Finding]:
    """Judge that nothing of ``cluster`` is left on a node: no container, no listener on the ports that were asked for, no memory.

    ``memory`` is what ``memory_watch`` answered.
    """
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
    return [*found, *on_node(memory["findings"], node)]


#: How the message of a node begins that only ended because another one failed (the action plugin of vllm_serve).
ECHO = "ended because "


def failure_lines(results: dict[str, dict[str, t.Any]]) -> list[str]:
    """Say for each node what failed there and what to do, from the results of the failed tasks.

    A node that was lost has no result, and one that only ended because of another says nothing new: both are left out.
    """
    said = {node: result for node, result in results.items() if result.get("msg")}
    causes = {node: result for node, result in said.items() if not str(result["msg"]).startswith(ECHO)}
    return [f"{node}: {result['msg']}" + (f" Remedy: {result['remedy']}" if result.get("remedy") else "") for node, result in (causes or said).items()]


def stage_seconds(marks: dict[str, float | None]) -> dict[str, float]:
    """Seconds of each stage, from the times (seconds since the epoch) at which the stages began; the last mark only ends."""
    began = [(stage, float(mark)) for stage, mark in marks.items() if mark is not None]
    return {stage: round(following - mark, 1) for (stage, mark), (_next, following) in zip(began, began[1:])}
