# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab: two nodes, two networks, ssh, and the inventory that describes them."""

from __future__ import annotations

import ipaddress
import json
import pathlib
import shutil
import typing as t

from . import hosts, images, store
from .common import LAB_DIR, LABEL, REPOSITORY, LabError, docker, fingerprint, run, step, succeeds
from .labs import LABS, Lab, Node
from .machine import Abilities, apt_install, ca_bundle, pip_environment, probe

KEY = LAB_DIR / "id_ed25519"
KNOWN_HOSTS = LAB_DIR / "known_hosts"
CANDIDATES = ("10.77.0.0/16", "192.168.0.0/16", "172.16.0.0/12")


def subnets_in_use() -> list[ipaddress.IPv4Network]:
    """Every IPv4 network that the machine routes to or that a Docker network has, default routes left out."""
    networks = []
    for route in json.loads(run(["ip", "-json", "-4", "route", "show", "table", "all"])):
        destination = route.get("dst", "default")
        if destination != "default":
            networks.append(ipaddress.ip_network(destination, strict=False))
    identifiers = docker("network", "ls", "--quiet").split()
    for network in json.loads(docker("network", "inspect", *identifiers)):
        for configuration in network["IPAM"]["Config"] or []:
            networks.append(ipaddress.ip_network(configuration["Subnet"]))
    return [network for network in networks if isinstance(network, ipaddress.IPv4Network)]


def free_subnet(used: t.Sequence[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """The first private /24 that overlaps nothing in use."""
    for candidate in CANDIDATES:
        for subnet in ipaddress.IPv4Network(candidate).subnets(new_prefix=24):
            if not any(subnet.overlaps(network) for network in used):
                return subnet
    raise LabError(f"no free /24 in {', '.join(CANDIDATES)}")


#: The fabric carries large packets, as between two Sparks.
JUMBO = ("--opt", "com.docker.network.driver.mtu=9000")


def subnet_of(network: str) -> ipaddress.IPv4Network | None:
    """The subnet of a Docker network; None when there is no such network."""
    subnet = docker("network", "inspect", "--format", "{{(index .IPAM.Config 0).Subnet}}", network, check=False)
    return ipaddress.IPv4Network(subnet) if subnet else None


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


def ensure_node(lab: Lab, node: Node, image: str, abilities: Abilities, subnets: dict[str, ipaddress.IPv4Network]) -> bool:
    """Start one node: create it when absent or outdated, start it when stopped. Returns whether anything was done."""
    spec = fingerprint(image, store.seed_name(lab), ensure_key(), *hosts.flags(abilities), *(node.address(subnet) for subnet in subnets.values()))
    state = hosts.state(node.container)
    if state != "absent" and hosts.spec_of(node.container) != spec:
        hosts.remove(node.container)
        state = "absent"
    if state == "running":
        return False
    if state == "absent":
        place = f"{store.ensure_volume()}/nodes/{node.name}"
        store.clone(image, lab, node.name)
        hosts.create(
            node.container,
            image,
            abilities,
            lab.engine,
            spec=spec,
            mounts=store.mounts(place, lab, "/home/spark/.cache/huggingface"),
            network=("--network", lab.management, "--ip", node.address(subnets[lab.management])),
            files={"home/spark/.ssh/authorized_keys": hosts.File(ensure_key().encode(), 0o600, store.SPARK_UID)},
        )
        # The network named at creation becomes eth0, one connected later eth1.
        docker("network", "connect", "--ip", node.address(subnets[lab.fabric]), lab.fabric, node.container)
    hosts.boot(node.container)
    return True


def write_known_hosts() -> None:
    """Write the host keys of the running nodes of all labs, read from the nodes themselves and not from the network."""
    lines = []
    for lab in LABS.values():
        management = subnet_of(lab.management)
        for node in lab.nodes:
            if management is not None and hosts.state(node.container) == "running":
                key = hosts.inside(node.container, "cat", "/etc/ssh/ssh_host_ed25519_key.pub")
                lines.append(f"{node.address(management)} {key}\n")
    KNOWN_HOSTS.write_text("".join(lines), encoding="utf-8")


def ssh(node: Node, management: ipaddress.IPv4Network) -> list[str]:
    """The argv of ssh into a node as its user."""
    options = ["-i", str(KEY), "-o", f"UserKnownHostsFile={KNOWN_HOSTS}", "-o", "IdentitiesOnly=yes", "-o", "ConnectTimeout=10"]
    return ["ssh", *options, f"spark@{node.address(management)}"]


def inventory(lab: Lab, abilities: Abilities, subnets: dict[str, ipaddress.IPv4Network]) -> dict[str, t.Any]:
    """The inventory: addresses, and what depends on this machine. The rest is committed in group_vars."""
    variables: dict[str, t.Any] = {"gb10_memlock": abilities.memlock}
    if ca_bundle() is not None:
        variables["gb10_build_ca_file"] = "/etc/ssl/certs/ca-certificates.crt"
    if pip_environment():
        variables["gb10_build_pip_env"] = pip_environment()
    groups: dict[str, t.Any] = {}
    for node in lab.nodes:
        addresses = {"ansible_host": node.address(subnets[lab.management]), "gb10_fabric_address": node.address(subnets[lab.fabric])}
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


def up(lab: Lab) -> None:
    """Bring a lab up, whatever of it is there already, and write its inventory."""
    image = images.ensure_node(lab)
    with step("asking the machine what it can do"):
        abilities = probe(image)
    print(f"    privileged: {abilities.privileged}, memlock: {abilities.memlock}, cgroup v{abilities.cgroup_version}")
    store.ensure_volume()
    store.ensure_seed(image, abilities, lab)
    ensure_key()
    subnets = {lab.management: ensure_network(lab.management), lab.fabric: ensure_network(lab.fabric, "--internal", *JUMBO)}
    for node in lab.nodes:
        with step(f"node {node.name} at {node.address(subnets[lab.management])}, fabric {node.address(subnets[lab.fabric])}"):
            ensure_node(lab, node, image, abilities, subnets)
    images.drop_old_nodes()
    store.drop_old_seeds(image)
    write_known_hosts()
    for node in lab.nodes:
        run([*ssh(node, subnets[lab.management]), "sudo", "docker", "image", "inspect", store.ENGINE_IMAGE], timeout=30)
    head = "# Written by tests/lab/lab.py up for this machine. The lab's other variables are in group_vars/.\n---\n"
    hosts_file(lab).write_text(head + to_yaml(inventory(lab, abilities, subnets)), encoding="utf-8")
    print(f"  The lab is up: {lab.inventory.relative_to(REPOSITORY)}. A shell on a node:")
    for node in lab.nodes:
        print(f"    {' '.join(ssh(node, subnets[lab.management]))}")


def hosts_file(lab: Lab) -> pathlib.Path:
    """The part of a lab's inventory that holds for this machine alone."""
    return lab.inventory / "hosts.yml"


def labelled(kind: str, *options: str) -> list[str]:
    """Identifiers of the objects of one kind that any lab made, found by label."""
    return docker(kind, "ls", "--quiet", "--filter", f"label={LABEL}", *options).split()


def down(lab: Lab) -> None:
    """Remove a lab's nodes, their disks, its networks and inventory. Images and the seed stay, so that the next `up` is quick."""
    with step("containers"):
        for container in (lab.builder, *(node.container for node in lab.nodes)):
            if hosts.state(container) != "absent":
                hosts.remove(container)
    with step("networks"):
        for network in (lab.management, lab.fabric):
            if labelled("network", "--filter", f"name=^{network}$"):
                docker("network", "rm", network)
    if labelled("volume") and images.nodes_made():
        with step("disks of the nodes"):
            store.drop_nodes(images.nodes_made()[0], lab)
    hosts_file(lab).unlink(missing_ok=True)
    write_known_hosts()


def clean(lab: Lab) -> None:
    """Remove everything that a lab made, caches included; what both need goes with the last one. The Docker engine stays."""
    down(lab)
    others = [other for other in LABS.values() if other is not lab and is_here(other)]
    if others:
        with step(f"seed, images; the rest is for {', '.join(other.name for other in others)}"):
            if labelled("volume") and images.nodes_made():
                store.drop_seed(images.nodes_made()[0], lab)
            images.drop(lab)
        return
    with step("volume, images, key"):
        for container in labelled("container", "--all"):
            hosts.remove(container)
        for volume in labelled("volume"):
            docker("volume", "rm", volume, timeout=300)
        if images.made():
            docker("rmi", *images.made(), timeout=300)
        for path in (KEY, KEY.with_suffix(".pub"), KNOWN_HOSTS):
            path.unlink(missing_ok=True)


def is_here(lab: Lab) -> bool:
    """Whether this machine has a part of a lab: a node, or the images for the next `up`."""
    return any(hosts.state(node.container) != "absent" for node in lab.nodes) or cached(lab)


def status(lab: Lab) -> bool:
    """Print the state of a lab. Returns whether both nodes run."""
    for node in lab.nodes:
        print(f"  {node.container:24}{hosts.state(node.container)}")
    for network in (lab.management, lab.fabric):
        print(f"  {network:24}{subnet_of(network) or 'absent'}")
    print(f"  {'inventory':24}{lab.inventory if hosts_file(lab).exists() else 'absent'}")
    return all(hosts.state(node.container) == "running" for node in lab.nodes)


def cached(lab: Lab) -> bool:
    """Whether a lab's images are already made, so that `up` needs little disk."""
    image = images.node_tag(lab)
    return succeeds(["docker", "volume", "inspect", store.VOLUME]) and images.exists(image) and store.has_seed(image, lab)
