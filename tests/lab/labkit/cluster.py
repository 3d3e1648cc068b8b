# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two nodes, two networks, ssh, and the inventory that describes them."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import shutil
import typing as t

from . import hosts, images, store
from .common import INVENTORY, LAB_DIR, LABEL, LabError, docker, fingerprint, run, step, succeeds
from .machine import Abilities, apt_install, ca_bundle, pip_environment, probe

MANAGEMENT = "gb10-lab-mgmt"
FABRIC = "gb10-lab-fabric"
KEY = LAB_DIR / "id_ed25519"
KNOWN_HOSTS = LAB_DIR / "known_hosts"
CANDIDATES = ("10.77.0.0/16", "192.168.0.0/16", "172.16.0.0/12")


@dataclasses.dataclass(frozen=True)
class Node:
    """One simulated Spark. ``number`` decides its addresses: the tenth plus number of each network."""

    name: str
    group: str
    number: int

    @property
    def container(self) -> str:
        """Name of the container."""
        return f"gb10-lab-{self.name}"

    def address(self, subnet: ipaddress.IPv4Network) -> str:
        """This node's address in a network."""
        return str(subnet[10 + self.number])


NODES = (Node("spark-1", "gb10_head", 1), Node("spark-2", "gb10_workers", 2))


def subnets_in_use() -> list[ipaddress.IPv4Network]:
    """Every IPv4 network that the machine routes to or that a Docker network has, default routes left out."""
    found = []
    for route in json.loads(run(["ip", "-json", "-4", "route", "show", "table", "all"])):
        destination = route.get("dst", "default")
        if destination != "default":
            found.append(ipaddress.ip_network(destination, strict=False))
    identifiers = docker("network", "ls", "--quiet").split()
    for network in json.loads(docker("network", "inspect", *identifiers)):
        for configuration in network["IPAM"]["Config"] or []:
            found.append(ipaddress.ip_network(configuration["Subnet"]))
    return [network for network in found if isinstance(network, ipaddress.IPv4Network)]


def free_subnet(used: t.Sequence[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """The first private /24 that overlaps nothing in use."""
    for candidate in CANDIDATES:
        for subnet in ipaddress.IPv4Network(candidate).subnets(new_prefix=24):
            if not any(subnet.overlaps(network) for network in used):
                return subnet
    raise LabError(f"no free /24 in {', '.join(CANDIDATES)}")


def subnet_of(network: str) -> ipaddress.IPv4Network | None:
    """The subnet of a Docker network; None when there is no such network."""
    found = docker("network", "inspect", "--format", "{{(index .IPAM.Config 0).Subnet}}", network, check=False)
    return ipaddress.IPv4Network(found) if found else None


def ensure_network(name: str, *options: str) -> ipaddress.IPv4Network:
    """Make a bridge network on a free subnet unless it is there; return its subnet."""
    subnet = subnet_of(name)
    if subnet is None:
        subnet = free_subnet(subnets_in_use())
        docker("network", "create", "--label", LABEL, "--subnet", str(subnet), *options, name)
    return subnet


def ensure_key() -> str:
    """Make the lab's ssh key if it is missing; return the public half."""
    LAB_DIR.mkdir(mode=0o700, exist_ok=True)
    if not KEY.exists():
        if shutil.which("ssh-keygen") is None:
            apt_install("openssh-client")
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gb10-lab", "-f", str(KEY)])
    return KEY.with_suffix(".pub").read_text(encoding="utf-8")


def ensure_node(node: Node, image: str, abilities: Abilities, subnets: dict[str, ipaddress.IPv4Network]) -> bool:
    """Bring one node up: created when absent or outdated, started when stopped. Returns whether anything was done."""
    spec = fingerprint(image, store.seed_name(), ensure_key(), *hosts.flags(abilities), *(node.address(subnet) for subnet in subnets.values()))
    state = hosts.state(node.container)
    if state != "absent" and hosts.spec_of(node.container) != spec:
        hosts.remove(node.container)
        state = "absent"
    if state == "running":
        return False
    if state == "absent":
        volume = store.ensure_volume()
        store.clone(image, node.name)
        mounts = {
            f"{volume}/nodes/{node.name}/docker": "/var/lib/docker",
            f"{volume}/nodes/{node.name}/huggingface": "/home/spark/.cache/huggingface",
        }
        hosts.create(
            node.container,
            image,
            abilities,
            spec=spec,
            mounts=mounts,
            network=("--network", MANAGEMENT, "--ip", node.address(subnets[MANAGEMENT])),
            files={"home/spark/.ssh/authorized_keys": hosts.File(ensure_key().encode(), 0o600, store.SPARK_UID)},
        )
        # The network named at creation becomes eth0, one connected later eth1.
        docker("network", "connect", "--ip", node.address(subnets[FABRIC]), FABRIC, node.container)
    hosts.boot(node.container)
    return True


def write_known_hosts(management: ipaddress.IPv4Network) -> None:
    """Write the nodes' host keys, read from the nodes themselves and not from the network."""
    lines = [f"{node.address(management)} {hosts.inside(node.container, 'cat', '/etc/ssh/ssh_host_ed25519_key.pub')}\n" for node in NODES]
    KNOWN_HOSTS.write_text("".join(lines), encoding="utf-8")


def ssh(node: Node, management: ipaddress.IPv4Network) -> list[str]:
    """The argv of ssh into a node as its user."""
    options = ["-i", str(KEY), "-o", f"UserKnownHostsFile={KNOWN_HOSTS}", "-o", "IdentitiesOnly=yes", "-o", "ConnectTimeout=10"]
    return ["ssh", *options, f"spark@{node.address(management)}"]


def inventory(abilities: Abilities, subnets: dict[str, ipaddress.IPv4Network]) -> dict[str, t.Any]:
    """The inventory: addresses, and what depends on this machine. The rest is committed in group_vars."""
    variables: dict[str, t.Any] = {"gb10_memlock": abilities.memlock}
    if ca_bundle() is not None:
        variables["gb10_build_ca_file"] = "/etc/ssl/certs/ca-certificates.crt"
    if pip_environment():
        variables["gb10_build_pip_env"] = pip_environment()
    groups: dict[str, t.Any] = {}
    for node in NODES:
        addresses = {"ansible_host": node.address(subnets[MANAGEMENT]), "gb10_fabric_address": node.address(subnets[FABRIC])}
        groups.setdefault(node.group, {"hosts": {}})["hosts"][node.name] = addresses
    return {"gb10_cluster": {"vars": variables, "children": groups}}


def to_yaml(value: dict[str, t.Any], indent: int = 0) -> str:
    """Nested dicts of scalars as YAML; enough for an inventory, and no package needed."""
    lines = []
    for key, item in value.items():
        if isinstance(item, dict):
            lines.append(f"{' ' * indent}{key}:\n{to_yaml(item, indent + 2)}")
        else:
            lines.append(f"{' ' * indent}{key}: {json.dumps(item)}\n")
    return "".join(lines)


def up() -> None:
    """Bring the lab up, whatever of it is there already, and write its inventory."""
    image = images.ensure_node()
    with step("asking the machine what it can do"):
        abilities = probe(image)
    print(f"    privileged: {abilities.privileged}, memlock: {abilities.memlock}, cgroup v{abilities.cgroup_version}")
    store.ensure_volume()
    store.ensure_seed(image, abilities)
    ensure_key()
    subnets = {MANAGEMENT: ensure_network(MANAGEMENT), FABRIC: ensure_network(FABRIC, "--internal")}
    for node in NODES:
        with step(f"node {node.name} at {node.address(subnets[MANAGEMENT])}, fabric {node.address(subnets[FABRIC])}"):
            ensure_node(node, image, abilities, subnets)
    images.drop_old_nodes()
    store.drop_old_seeds(image)
    write_known_hosts(subnets[MANAGEMENT])
    for node in NODES:
        run([*ssh(node, subnets[MANAGEMENT]), "sudo", "docker", "image", "inspect", store.ENGINE_IMAGE], timeout=30)
    head = "# Written by tests/lab/lab.py up for this machine. The lab's other variables are in group_vars/.\n---\n"
    INVENTORY.write_text(head + to_yaml(inventory(abilities, subnets)), encoding="utf-8")
    print("  The lab is up. A shell on a node:")
    for node in NODES:
        print(f"    {' '.join(ssh(node, subnets[MANAGEMENT]))}")


def labelled(kind: str, *options: str) -> list[str]:
    """Identifiers of the lab's objects of one kind, found by label."""
    return docker(kind, "ls", "--quiet", "--filter", f"label={LABEL}", *options).split()


def down() -> None:
    """Remove nodes, their disks, the networks and the inventory. Images and the seed stay, so that the next `up` is quick."""
    with step("containers"):
        for container in labelled("container", "--all"):
            hosts.remove(container)
    with step("networks"):
        for network in labelled("network"):
            docker("network", "rm", network)
    if labelled("volume") and images.exists(images.node_tag()):
        with step("disks of the nodes"):
            store.drop_nodes(images.node_tag())
    INVENTORY.unlink(missing_ok=True)
    KNOWN_HOSTS.unlink(missing_ok=True)


def clean() -> None:
    """Remove everything the lab made, caches included. The Docker engine stays."""
    down()
    with step("volume, images, key"):
        for volume in labelled("volume"):
            docker("volume", "rm", volume, timeout=300)
        tags = docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "--filter", "reference=gb10-lab/*").split()
        if tags:
            docker("rmi", *tags, timeout=300)
        for path in (KEY, KEY.with_suffix(".pub")):
            path.unlink(missing_ok=True)


def status() -> bool:
    """Print what is there. Returns whether both nodes run."""
    for node in NODES:
        print(f"  {node.container:24}{hosts.state(node.container)}")
    for network in (MANAGEMENT, FABRIC):
        print(f"  {network:24}{subnet_of(network) or 'absent'}")
    print(f"  {'inventory':24}{INVENTORY if INVENTORY.exists() else 'absent'}")
    return all(hosts.state(node.container) == "running" for node in NODES)


def cached() -> bool:
    """Whether the images are already made, so that `up` needs little disk."""
    image = images.node_tag()
    return succeeds(["docker", "volume", "inspect", store.VOLUME]) and images.exists(image) and store.has_seed(image)
