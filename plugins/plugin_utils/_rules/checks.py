# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The checks that rules.yml names. Each looks and says what is wrong; what that means stands in the rule. This plugin util is PRIVATE to the collection.

A check of one node is called with the node, the rule's arguments (``with``) and its limits; a check between nodes with all nodes
that have the evidence, and the same. Both yield one :class:`Fault` for each thing that is wrong, and raise :class:`Unseen` when
that is unknown.
"""

from __future__ import annotations

import collections
import fnmatch
import ipaddress
import itertools
import operator
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._memory import plan
from ansible_collections.gb10.cluster.plugins.module_utils._model import model_files
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify
from ansible_collections.gb10.cluster.plugins.module_utils._records import starts
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import planning
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.evidence import Entry, Fault, Node, Unseen, of_entry

Arguments = dict[str, t.Any]
Faults = t.Iterator[Fault]
OfNode = t.Callable[[Node, Arguments, Arguments], Faults]
BetweenNodes = t.Callable[[list[Node], Arguments, Arguments], Faults]

GIB = 1024**3
MIB_IN_GIB = 1024
GB = 10**9

#: Stands where a finding concerns the whole cluster.
CLUSTER = "cluster"

#: Characters of a container's full id, and how many of them are shown.
ID_LENGTH, ID_SHOWN = 64, 12

#: The value of gb10_kv_cache that takes the size of the cache from the plan and the record.
RECORDED = "recorded"

#: The kind of a tenant that draws on the screen.
DESKTOP = "desktop"

#: Engines whose ranks wait for each other, and what spreads them.
SPREAD_ENGINES = ("vllm", "sglang", "tensorrt_llm", "ray")
#: What a Spark is, as the kernel says it.
SPARK_ARCHITECTURE = "aarch64"
#: How Docker calls the machines that the kernel calls otherwise.
ARCHITECTURES = {"aarch64": "arm64", "x86_64": "amd64"}

#: ``NVRM: Xid (PCI:000f:01:00): 79, ...``
_XID = re.compile(r"Xid \([^)]*\): (\d+)")
_RESERVED = re.compile(r"/(?P<total>[1-9]\d*)K available \(.*?\b(?P<reserved>\d+)K reserved")

#: What may stand between a field and an operand in ``where``. ``has``: the list or text holds one of the operands; ``mentions``: an
#: entry of the list does.
RELATIONS: dict[str, t.Callable[[t.Any, t.Any], bool]] = {
    "is": operator.eq,
    "is_not": operator.ne,
    "above": operator.gt,
    "below": operator.lt,
    "at_least": operator.ge,
    "at_most": operator.le,
    "one_of": lambda have, wanted: have in wanted,
    "none_of": lambda have, wanted: have not in wanted,
    "has": lambda have, wanted: any(one in have for one in wanted),
    "lacks": lambda have, wanted: not any(one in have for one in wanted),
    "mentions": lambda have, wanted: any(one in item for item in have for one in wanted),
}

CHECKS: dict[str, OfNode] = {}
COMPARISONS: dict[str, BetweenNodes] = {}


def check(function: OfNode) -> OfNode:
    """Make a function known to rules under its name, as a check of one node."""
    CHECKS[function.__name__] = function
    return function


def comparison(function: BetweenNodes) -> BetweenNodes:
    """Make a function known to rules under its name, as a check between nodes."""
    COMPARISONS[function.__name__] = function
    return function


def operand(value: t.Any, node: Node, limits: Arguments) -> t.Any:
    """Return what stands on the right of a relation: ``{limit: NAME}``, ``{need: NAME}``, or the value itself."""
    if isinstance(value, dict):
        return limits[value["limit"]] if "limit" in value else node.needs[value["need"]]
    return value


def holds(entry: Entry, where: t.Iterable[list[t.Any]], node: Node, limits: Arguments, name: str) -> bool:
    """Return whether all conditions hold for an entry. Raises :class:`Unseen` when none fails, but one is unknown because of a null."""
    missing: Unseen | None = None
    for field, relation, wanted in where:
        try:
            have = of_entry(entry, field, name)
        except Unseen as unseen:
            missing = missing or unseen
            continue
        if not RELATIONS[relation](have, operand(wanted, node, limits)):
            return False
    if missing:
        raise missing
    return True


def gib(mib: float) -> float:
    """MiB as GiB, to one decimal."""
    return round(mib / MIB_IN_GIB, 1)


def listed(values: t.Mapping[str, t.Any], unit: str = "") -> str:
    """``spark-1 121.7 GiB, spark-2 60.1 GiB``."""
    return ", ".join(f"{name} {value}{unit}" for name, value in values.items())


def named_like(name: str, patterns: t.Iterable[str]) -> bool:
    """Return whether a name matches one of the patterns."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


# --- of any value -----------------------------------------------------------------------------------------------------------


@check
def value_is(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The value at ``of`` is ``value``."""
    have, wanted = node.get(arguments["of"]), operand(arguments["value"], node, limits)
    if have != wanted:
        yield Fault(have, wanted)


@check
def value_is_not(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The value at ``of`` is anything but ``value``; where the machine has none, that is fine."""
    have, avoided = node.optional(arguments["of"]), operand(arguments["value"], node, limits)
    if have == avoided:
        yield Fault(have, f"not {avoided}")


@check
def at_most(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The number at ``of`` is at most ``limit``; with ``absolute`` its sign does not count."""
    have, most = node.get(arguments["of"]), operand(arguments["limit"], node, limits)
    if (abs(have) if arguments.get("absolute") else have) > most:
        yield Fault(have, most)


@check
def no_entry(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No entry of the list ``of`` fulfils ``where``. The entry's fields are words, ``name`` is the field that it is called by."""
    missing: Unseen | None = None
    for entry in node.get(arguments["of"]):
        name = f"{arguments['of']}[{entry.get(arguments['name'])}]"
        try:
            if holds(entry, arguments["where"], node, limits, name):
                yield Fault(entry.get(arguments.get("measures", arguments["name"])), words=entry)
        except Unseen as unseen:
            missing = missing or unseen
    if missing:
        raise missing


@check
def some_entry(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """At least one entry of the list ``of`` fulfils ``where``."""
    entries = node.get(arguments["of"])
    names = [entry.get(arguments["name"]) for entry in entries]
    if not any(holds(entry, arguments["where"], node, limits, f"{arguments['of']}[{name}]") for entry, name in zip(entries, names)):
        yield Fault(names, words={"found": ", ".join(str(name) for name in names) or "none"})


@check
def not_known_bad(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The version at ``of``, or in each entry of the list ``in``, matches no pattern of the list ``bad``.

    An entry with ``unless`` does not count on a node whose kernel has that word on its command line, which stands at ``cmdline``.
    """
    words = node.get(arguments["cmdline"]).split() if "cmdline" in arguments else []
    if "in" in arguments:
        versions = [of_entry(entry, arguments["field"], f"{arguments['in']}[{index}]") for index, entry in enumerate(node.get(arguments["in"]))]
    else:
        versions = [node.get(arguments["of"])]
    for version, bad in itertools.product(dict.fromkeys(versions), limits["bad"]):
        if fnmatch.fnmatchcase(version, bad["match"]) and bad["unless"] not in words:
            yield Fault(version, f"not {bad['match']}", bad)


@check
def names_present(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Every name that the inventory gives in ``names`` is the ``field`` of an entry of the list ``of``."""
    there = [entry[arguments["field"]] for entry in node.get(arguments["of"])]
    for name in node.needs[arguments["names"]]:
        if name not in there:
            yield Fault([name for name in there if name], name, {"name": name, "found": ", ".join(str(one) for one in there if one) or "none"})


@check
def reported(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The module whose result is ``in`` reported nothing under the id ``id``. Its findings keep their own verdict and words."""
    for found in node.get(arguments["in"]):
        if found["id"] == arguments["id"] and found["verdict"] != "pass":
            words = {"message": found["message"].rstrip("."), "remedy": found.get("remedy") or "look at the node"}
            yield Fault(found.get("measured"), found.get("needed"), words, verdict=found["verdict"])


# --- Docker, images, models -------------------------------------------------------------------------------------------------


@check
def docker_answers(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The Docker engine answers."""
    if not node.get("docker.reachable"):
        error = node.error("docker") or {}
        remedy = error.get("remedy") or "systemctl start docker; the account that Ansible becomes needs rights on its socket"
        yield Fault(False, True, {"why": error.get("error", "no answer"), "remedy": remedy})


@check
def gpu_kept(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """A reload of systemd does not take the GPU from containers: their cgroups are not systemd's, or they ask by CDI, which comes first."""
    ways = node.get("docker.nvidia")
    if node.get("docker.cgroup_driver") == "systemd" and ways in ("runtime", "hook"):
        yield Fault(ways, "cdi")


@check
def cdi_current(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The specification that the GPU comes from, the last one that names a libcuda, names the one of the driver that runs."""
    for spec in node.get("docker.cdi_libcuda")[-1:]:
        for index, gpu in enumerate(node.get("gpus")):
            driver = of_entry(gpu, "driver_version", f"gpus[{index}]")
            if driver not in spec["libcuda"]:
                yield Fault(spec["libcuda"], driver, {"path": spec["path"], "named": ", ".join(spec["libcuda"])})


@check
def one_specification(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """One specification names the driver's library."""
    paths = [spec["path"] for spec in node.get("docker.cdi_libcuda")]
    if len(paths) > 1:
        yield Fault(paths, paths[-1], {"listed": " and ".join(paths), "first": paths[0]})


@check
def sdk_there(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The node's Python would find the Docker SDK."""
    if not node.get("docker").get("python_docker"):
        yield Fault(None, "any version")


@check
def devices_present(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Every device that the containers get is there."""
    there = node.get("devices")
    for path in node.needs["devices"]:
        if there.get(path) is None:
            raise Unseen(f"devices.{path}")
        if not there[path]:
            yield Fault(False, path, {"path": path})


@check
def daemon_memlock(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The Docker daemon may lock what an ordinary daemon may; a tighter one can't give its containers more."""
    have, asked = node.get("limits.docker_memlock_bytes"), node.needs["memlock"]
    floor = limits["least_bytes"] if asked == -1 else min(asked, limits["least_bytes"])
    if have != -1 and have < floor:
        yield Fault(have, floor, {"asked": "unlimited" if asked == -1 else f"{asked} bytes"})


@check
def container_memlock(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The containers are asked to have unlimited locked memory, which RDMA registration needs."""
    if node.needs["memlock"] != -1:
        yield Fault(node.needs["memlock"], -1)


@check
def capabilities_granted(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The inventory grants each capability that the profile's engine needs."""
    for name in node.needs["needed_capabilities"]:
        if name not in node.needs["capabilities"]:
            granted = [*node.needs["capabilities"], name]
            yield Fault(node.needs["capabilities"], name, {"profile": node.needs["profile"], "name": name, "setting": f"[{', '.join(granted)}]"})


@check
def space(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """There is space where images and models lie: the floor that the inventory asks for."""
    floor = node.needs["disk_gib"]
    places = {node.get("docker.root_dir"): node.get("docker.root_free_bytes")} if node.get("docker.reachable") else {}
    for path, disk in node.get("disk").items():
        if disk is None:
            raise Unseen(f"disk.{path}", f"the free space under {path} could not be read", f"look at {path}")
        places[path] = disk["free_bytes"]
    for path, free_bytes in places.items():
        if free_bytes < floor * GIB:
            free = round(free_bytes / GIB, 1)
            yield Fault(free, floor, {"path": path, "free": free})


@check
def space_for_image(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """A node without the image has space for it."""
    if _image(node) is None:
        free = node.get("docker.root_free_bytes") / GIB
        if free < limits["image_gib"]:
            yield Fault(round(free, 1), limits["image_gib"], {"path": node.get("docker.root_dir"), "image": node.needs["image"]["tag"]})


@check
def space_for_model(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """A node without the whole model, and what it needs beside it, has space for what is missing of it.

    A download that did not end lies there already: the hub's client goes on with its file. What is not said to have a size does not count, so
    that what is needed is the least.
    """
    path = node.needs["model_root"]
    missing = {repo: gib for repo, gib in to_fetch(node).items() if gib is not None}
    if not missing:
        return
    disk = node.get("disk").get(path)
    if disk is None:
        raise Unseen(f"disk.{path}")
    needed = round(sum(missing.values()), 1)
    if disk["free_bytes"] < needed * GIB:
        yield Fault(round(disk["free_bytes"] / GIB, 1), needed, {"path": path, "repo": ", ".join(missing)})


def to_fetch(node: Node) -> dict[str, float | None]:
    """How many GiB a node would fetch of each repository that it has not whole, None where the profile does not say how large that is."""
    return {repository["repo"]: _missing_gib(node, repository) for repository in node.needs["repositories"] if not _ready(node, repository)}


def _missing_gib(node: Node, repository: Entry) -> float | None:
    """What of a repository's size does not lie on the node yet, in GiB."""
    if repository["gib"] is None:
        return None
    entries = _revisions(node, repository)
    there = max((entry["bytes"] for entry in entries if _wanted(repository, entry)), default=0)
    there += max((entry.get("unfinished_bytes", 0) for entry in entries), default=0)
    return max(repository["gib"] - there / GIB, 0.0)


def _image(node: Node) -> Entry | None:
    """The profile's image on the node, None when it is absent."""
    name = node.needs["image"]["tag"]
    images = node.get("images")
    if name not in images:
        raise Unseen(f"images.{name}")
    return images[name]


@check
def image_present(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The profile's image is on the node."""
    image = node.needs["image"]
    if _image(node) is None:
        pulled = image["base"] if node.get("images").get(image["base"]) is None else ""
        lost = node.needs["offline"] and pulled and not node.needs.get("image_given")
        cannot = f"gb10_offline is true, and {pulled} is not on this node either" if lost else ""
        yield Fault(None, image["tag"], {"image": image["tag"]}, cannot=cannot)


@check
def image_architecture(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The profile's images on the node were built for its processor."""
    arch = node.get("kernel.arch")
    wanted = ARCHITECTURES.get(arch, arch)
    for name in dict.fromkeys((node.needs["image"]["base"], node.needs["image"]["tag"])):
        image = node.get("images").get(name)
        if image and of_entry(image, "architecture", f"images.{name}") != wanted:
            yield Fault(image["architecture"], wanted, {"image": name})


def _revisions(node: Node, repository: Entry) -> list[Entry]:
    """What the node has of a repository of the profile, in any revision."""
    return [entry for entry in node.get("models") if entry["repo"] == repository["repo"]]


def _wanted(repository: Entry, entry: Entry) -> bool:
    """Return whether this is what would be served: the pinned revision, or else main; a download that has no revision yet may become it."""
    pinned = repository["revision"]
    return entry["revision"] == pinned if pinned else "main" in entry["refs"] or entry["revision"] is None


def _lacks(repository: Entry, entry: Entry) -> list[str]:
    """What is missing of a repository for its purpose. An adapter and single files are looked at by the stage model, which knows their names."""
    return [name for name in entry["missing"] if model_files.matters(repository["purpose"], name)]


def _whole(repository: Entry, entry: Entry) -> bool:
    """Return whether an entry of the cache has what a repository's purpose needs."""
    if repository["purpose"] == "model" or entry["revision"] is None:
        return bool(entry["complete"])
    return not _lacks(repository, entry)


def _ready(node: Node, repository: Entry) -> bool:
    return any(_wanted(repository, entry) and _whole(repository, entry) for entry in _revisions(node, repository))


def is_given(node: Node, nodes: list[Node]) -> bool:
    """Return whether another node has all of the model and so gives it to this one, without the hub. Where that cannot be seen it is not so.

    Records from before there was this setting lack it, and nothing was copied then.
    """
    try:
        return node.needs.get("model_copy", "never") != "never" and any(
            all(_ready(other, repository) for repository in node.needs["repositories"]) for other in nodes if other is not node
        )
    except Unseen:
        return False


def is_image_given(node: Node, nodes: list[Node]) -> bool:
    """Return whether another node has the profile's image and so gives it to this one. Where that cannot be seen it is not so."""
    tag = node.needs["image"]["tag"]
    try:
        copies = node.needs.get("image_copy", "never") != "never" and "@" not in tag
        return copies and any(other.get("images").get(tag) is not None for other in nodes if other is not node)
    except Unseen:
        return False


@check
def model_ready(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The profile's model, and what it needs beside it, is on the node, whole and in its revision. Other revisions that are there are named."""
    for repository in node.needs["repositories"]:
        if _ready(node, repository):
            continue
        entries = _revisions(node, repository)
        begun = [entry for entry in entries if _wanted(repository, entry)]
        others = ", ".join(
            f"{str(entry['revision'])[:12]}{'' if _whole(repository, entry) else ' (not whole)'}" for entry in entries if not _wanted(repository, entry)
        )
        missing = [name for entry in begun for name in _lacks(repository, entry)]
        what = f"lacks {len(missing)} file(s), such as {missing[0]}" if missing else "is not whole" if begun else "is not on this node"
        what += f"; other revisions are: {others}" if others else ""
        cannot = "gb10_offline is true" if node.needs["offline"] and not node.needs.get("given") else ""
        yield Fault(missing or None, repository["revision"] or "whole", {"repo": repository["repo"], "what": what}, cannot=cannot)


# --- the kernel, its log, the driver ----------------------------------------------------------------------------------------


@check
def driver_loaded(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The NVIDIA modules that are loaded are the installed ones."""
    modules = node.get("kernel.modules")
    for name in arguments["modules"]:
        module = modules.get(name)
        loaded, installed = (module or {}).get("loaded"), (module or {}).get("installed")
        if loaded and installed and loaded != installed:
            yield Fault(loaded, installed, {"module": name, "loaded": loaded, "installed": installed})
        elif module is None and name in arguments["always"]:
            raise Unseen(f"kernel.modules.{name}")
        elif loaded and not installed:
            raise Unseen(f"kernel.modules.{name}.installed")


@check
def of_the_drivers_branch(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The package nvidia-modprobe, where it is installed, is of the branch of the driver that is loaded."""
    package, module = node.optional("kernel.nvidia_modprobe"), node.get("kernel.modules").get("nvidia")
    driver = (module or {}).get("loaded")
    if package and driver and package.partition(".")[0] != driver.partition(".")[0]:
        yield Fault(package, driver)


@check
def pieces_for_devices(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The kernel of a Spark keeps memory in one piece for devices; one that keeps no account of it is not judged."""
    if node.get("kernel.arch") == SPARK_ARCHITECTURE and node.optional("memory.cma_total_mb") == 0:
        yield Fault("0 kB", "more than that")


@check
def xids(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The kernel's log of this boot has no Xid; with ``fatal`` those of the limit ``codes`` count, without it all others do."""
    for event in node.get("kernel_log.events"):
        if event["kind"] != "xid":
            continue
        code = _XID.search(event["text"])
        if code is None:
            raise Unseen(f"the code of the Xid in {event['text'][:120]!r}")
        if (int(code[1]) in limits["codes"]) is arguments["fatal"]:
            yield Fault(int(code[1]), None, {**event, "code": code[1]})


@check
def reserved_at_boot(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The kernel kept at most ``percent`` of the memory for itself when it booted. A log without that line tells nothing."""
    for event in node.get("kernel_log.events"):
        told = _RESERVED.search(event["text"]) if event["kind"] == "memory" else None
        percent = round(100 * int(told["reserved"]) / int(told["total"]), 1) if told else 0
        if percent > limits["percent"]:
            yield Fault(percent, limits["percent"], {"gib": round(int(told["reserved"]) / 1024 / MIB_IN_GIB, 1)})


# --- the fabric -------------------------------------------------------------------------------------------------------------


def _ipv4(link: Entry) -> list[Entry]:
    """The global IPv4 networks of an interface."""
    return [network for network in link["networks"] or [] if network["family"] == "ipv4"]


def _found(interfaces: list[Entry]) -> tuple[Entry, str]:
    """The interfaces with their addresses, as data and as text."""
    held = {interface["name"]: interface["addresses"] for interface in interfaces}
    return held, ", ".join(f"{name} {'/'.join(addresses) or 'none'}" for name, addresses in held.items())


def _holder_of(node: Node, address: str) -> Entry | None:
    return next((interface for interface in node.get("interfaces") if address in interface["addresses"]), None)


@check
def address_held(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The fabric address is on an interface of the node."""
    address = node.needs["address"]
    if _holder_of(node, address) is None:
        held, found = _found(node.get("interfaces"))
        yield Fault(held, address, {"address": address, "found": found})


@check
def address_has_carrier(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The interface that has the fabric address has carrier; whether one has it is another rule's."""
    holder = _holder_of(node, node.needs["address"])
    if holder is not None and not holder["carrier"]:
        yield Fault(holder["name"], "carrier", {"address": node.needs["address"], "interface": holder["name"]})


@check
def api_address_held(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The API can only listen on an address that the head has."""
    address, held = node.needs["api_address"], node.get("interfaces")
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError:
        wanted = None
    # A link-local address of IPv6 comes with its interface's name.
    here = wanted is not None and any(ipaddress.ip_address(one.partition("%")[0]) == wanted for interface in held for one in interface["addresses"])
    if not here and (wanted is None or not (wanted.is_unspecified or wanted.is_loopback)):
        addresses, found = _found([interface for interface in held if interface["addresses"]])
        yield Fault(addresses, address, {"address": address, "found": found})


@check
def named_carrier(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Every interface that the inventory names has carrier; the one with the fabric address is another rule's."""
    for interface in node.get("interfaces"):
        if interface["name"] in node.needs["fabric_interfaces"] and not interface["carrier"] and node.needs["address"] not in interface["addresses"]:
            yield Fault(interface["carrier"], True, {"interface": interface["name"]})


@check
def rdma_there(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """There is at least one RDMA device. Interfaces of the card without one have null there."""
    fabric = node.get("fabric")
    if not any(link["device"] for link in fabric):
        yield Fault([], "an RDMA device", {"found": ", ".join(link["netdev"] for link in fabric) or "none"})


@check
def rdma_named(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Every RDMA device whose link is up is named in the inventory, once it names any."""
    devices = node.needs["rdma_devices"]
    for link in node.get("fabric"):
        if devices and link["device"] and link["carrier"] and link["device"] not in devices:
            yield Fault(link["device"], devices, {"device": link["device"], "netdev": link["netdev"]})


@check
def links_where(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No link that the cluster uses fulfils ``where``; with ``rdma`` only links with an RDMA device count."""
    for link in node.links():
        if arguments.get("rdma") and not link["device"]:
            continue
        name = link["netdev"] or link["device"]
        if holds(link, arguments["where"], node, limits, f"fabric[{name}]"):
            yield Fault(link[arguments["measures"]], words={**link, "link": name})


@check
def twins_apart(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No two interfaces of the fabric share an IPv4 subnet. Members of one bond are one interface."""
    ends = {link["netdev"]: link for link in node.get("fabric") if link["netdev"] and not link["bond"]}
    for one, other in itertools.combinations(ends.values(), 2):
        shared = sorted({network["network"] for network in _ipv4(one)} & {network["network"] for network in _ipv4(other)})
        if shared:
            yield Fault(shared, "a subnet each", {"one": one["netdev"], "other": other["netdev"], "subnet": ", ".join(shared)})


@check
def twins_addressed(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The twin of an interface with an address has one, too, when its link is up. A bond has one address for both."""
    ends = {link["netdev"]: link for link in node.get("fabric") if link["netdev"]}
    for link in node.links():
        twin = ends.get(link["twin"])
        if twin and _ipv4(link) and not link["bond"] and not twin["bond"] and twin["carrier"] and not _ipv4(twin):
            yield Fault(None, "an IPv4 address", {"twin": twin["netdev"], "interface": link["netdev"]})


@check
def pcie_full(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The PCIe link below each link is as wide and as fast as it can be: of the device's own maximum, what this machine wires."""
    for link in node.links():
        if not link["driver"] and not link["pcie"]:
            continue
        pcie, name = of_entry(link, "pcie", f"fabric[{link['netdev']}]"), link["netdev"]
        width = min(limits["width"], of_entry(pcie, "width_max", f"fabric[{name}].pcie"))
        speed = min(limits["speed_gts"], of_entry(pcie, "speed_max_gts", f"fabric[{name}].pcie"))
        have = of_entry(pcie, "width", f"fabric[{name}].pcie"), of_entry(pcie, "speed_gts", f"fabric[{name}].pcie")
        if have[0] < width or have[1] < speed:
            words = {"link": name, "address": pcie["address"], "have": f"x{have[0]} at {have[1]:g} GT/s", "can": f"x{width} at {speed:g} GT/s"}
            yield Fault(words["have"], words["can"], words)


@check
def gid_usable(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Each RDMA device on an interface with IPv4 has a RoCE v2 GID for one of its addresses."""
    for link in node.links():
        addresses = {network["address"] for network in _ipv4(link)}
        if not link["device"] or not addresses:
            continue
        gids = of_entry(link, "gids", f"fabric[{link['device']}]")
        if not any("v2" in str(gid["type"]).lower() and gid["address"] in addresses for gid in gids):
            found = ", ".join(f"{gid['index']} {gid['type']} {gid['address'] or gid['gid']}" for gid in gids) or "none"
            yield Fault(found, "RoCE v2 with IPv4", {"device": link["device"], "found": found, "addresses": ", ".join(sorted(addresses))})


@check
def counters_low(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No error counter of a link is above ``most``."""
    for link in node.links():
        if link["device"]:
            counters = of_entry(link, "counters", f"fabric[{link['device']}]")
            high = {name: counters[name] for name in limits["counters"] if (counters.get(name) or 0) > limits["most"]}
            if high:
                yield Fault(high, limits["most"], {"device": link["device"], "counts": listed(high)})


@check
def firewall_open(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """A firewall that refuses by default lets the fabric through: by its interface, or by a network that holds the other nodes."""
    firewall = node.get("firewall")
    if not of_entry(firewall, "default_deny", "firewall"):
        return
    holder = _holder_of(node, node.needs["address"])
    if holder is not None and named_like(holder["name"], of_entry(firewall, "interfaces", "firewall")):
        return
    trusted = [ipaddress.ip_network(network, strict=False) for network in of_entry(firewall, "networks", "firewall")]
    closed = [peer for peer in node.needs["peers"] if not any(ipaddress.ip_address(peer) in network for network in trusted)]
    if closed:
        yield Fault(firewall["source"], closed, {"source": firewall["source"], "peers": ", ".join(closed), "interface": holder["name"] if holder else "?"})


# --- ports ------------------------------------------------------------------------------------------------------------------


def _foreign_holders(node: Node) -> t.Iterator[tuple[str, int, list[Entry]]]:
    """(variable, port, listeners) of every port that others hold. Processes that may not be seen are no evidence; ``errors`` tells of them."""
    ours = {container["name"] for container in node.our_containers()}
    for name, port in node.needs["ports"].items():
        holders = [listener for listener in node.get("listeners") if listener["port"] == port and listener["pid"] is not None]
        foreign = [listener for listener in holders if listener["container"] not in ours]
        if foreign:
            yield name, port, foreign


def holder(listener: Entry) -> str:
    """Who listens, as far as it could be seen."""
    since = f" since {listener['since']}" if listener["since"] else ""
    return f"{listener['process'] or 'a process that may not be seen'} (pid {listener['pid'] or 'unknown'}){inside(listener)}{since}"


@check
def ports_free(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The ports are free, or held by this cluster. With ``stale_heads`` only the Ray heads of other runs count, without all others do."""
    for name, port, foreign in _foreign_holders(node):
        stale = all(classify.is_gcs(listener["process"]) and listener["container"] for listener in foreign)
        if stale is arguments["stale_heads"]:
            who = "; ".join(holder(listener) for listener in foreign)
            cannot = "gb10_replace_stale is not true" if stale and not node.needs["replace_stale"] else ""
            yield Fault(who, f"port {port} free", {"port": port, "variable": name, "who": who}, cannot=cannot)


# --- memory -----------------------------------------------------------------------------------------------------------------


@check
def memory_of_class(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The node has the memory of the Sparks that the profile was made for, or more."""
    class_gb = node.needs["memory_class_gb"]
    total, floor = gib(node.get("memory.total_mb")), round(class_gb * limits["shown"], 1)
    if total < floor:
        yield Fault(total, floor, {"total": total, "class_gb": class_gb, "floor": floor})


@check
def memory_for_engine(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """What the engine will take is available: its fraction of the whole, or weights, KV cache in bytes and a reserve.

    A live engine of this very cluster takes nothing more. Where it may be restarted, what it holds comes back first.
    """
    if node.engine_live and not node.needs["allow_restart"]:
        return
    readable(node)
    memory, total, available = node.needs["memory"], node.get("memory.total_mb"), available_mb(node)
    kv_bytes, fraction = memory["kv_cache_bytes"], memory["utilization"]
    if kv_bytes is not None:
        weights = memory["weights_gb"]
        if weights is None:
            raise Unseen("memory.weights_gb of the profile")
        needed = (weights * GB + kv_bytes) / GIB + limits["reserve_gib"]
        why = f"{weights} GB of weights, {round(kv_bytes / GIB, 1)} GiB of KV cache and {limits['reserve_gib']} GiB of reserve"
    else:
        needed, why = fraction * total / MIB_IN_GIB, f"{fraction} of {gib(total)} GiB, as gpu_memory_utilization asks"
    if available / MIB_IN_GIB < needed:
        yield Fault(gib(available), round(needed, 1), {"available": gib(available), "missing": round(needed - available / MIB_IN_GIB, 1), "why": why})


def readable(node: Node) -> None:
    """The engine reads every number among its arguments that memory follows from."""
    unread = node.needs["plan"].use.unread
    if unread:
        raise Unseen("what the engine is told", "; ".join(unread), "correct it in gb10_serve_arguments, or in the profile")


def available_mb(node: Node) -> int:
    """What is available for a start, in MiB: what is now, and what the live engine of this cluster holds, which ends first."""
    available = int(node.get("memory.available_mb"))
    if not node.engine_live:
        return available
    held = node.get("held").get(node.needs["cluster"], {"gpu_mib": 0, "anon_mb": 0})
    if held["gpu_mib"] is None:
        what = f"held.{node.needs['cluster']}.gpu_mib"
        raise Unseen(what, "the driver does not say what the live engine holds", "take the cluster down first (the playbook teardown), then bring it up")
    return available + int(held["gpu_mib"]) + int(held["anon_mb"])


def companions(node: Node) -> list[Entry]:
    """What the companions of a node do. Where none is declared, a node need not have been asked, nor have answered."""
    if node.needs["companions"]:
        return node.get("companions")
    return [] if node.error("companions") else node.optional("companions") or []


def companion_pids(node: Node) -> set[int]:
    """The processes of declared companions: what they hold is claimed, and no tenant's."""
    return {pid for one in companions(node) if one["declared"] for pid in one["pids"]}


def held_gib(one: Entry) -> float:
    """What a companion holds in GiB. What the driver does not tell counts as not taken yet."""
    return ((one["gpu_mib"] or 0) + one["anon_mb"]) / MIB_IN_GIB


def companion_claims(node: Node, admitted: bool = False) -> tuple[float, list[str]]:
    """What the companions of the mode have yet to take of a node, in GiB, and who holds what. One that holds more than it claims has taken all of it.

    With ``admitted``, those that run have nothing more to take: they were counted before the engine was started.
    """
    claimed = {f"companion {name}": size for name, size in planning.companion_claims(node.needs["companions"], node.needs["mode"]).items()}
    running = {f"companion {one['name']}": one for one in companions(node) if one["running"]}
    now = {name: held_gib(running[name]) if name in running else 0.0 for name in claimed}
    others = [f"{name} {held_gib(one):.1f} GiB held, not of this mode" for name, one in running.items() if name not in claimed]
    more = sum(max(0.0, size - now[name]) for name, size in claimed.items() if not (admitted and name in running))
    return more, [*filter(None, [planning.who(claimed, now)]), *others]


def claims(node: Node) -> tuple[float, str]:
    """What declared tenants and companions have yet to take of a node, in GiB, and who holds what. What one holds now is not available already."""
    claimed = planning.claimed(node.needs["tenants"], node.name)
    more, who = companion_claims(node)
    told = companion_pids(node)
    now = dict.fromkeys(claimed, 0.0)
    beside = []
    for tenant in node.get("tenants") if claimed or who else ():
        names = {str(tenant[word]).lower() for word in ("container", "name", "kind")}
        known = next((name for name in claimed if name.lower() in names), None)
        if tenant["pid"] in told:
            continue
        if known is not None:
            now[known] += (tenant["gpu_mib"] or 0) / MIB_IN_GIB
        elif tenant["gpu_mib"]:
            beside.append(f"{tenant['name']} {gib(tenant['gpu_mib'])} GiB undeclared")
    more += sum(max(0.0, size - now[name]) for name, size in claimed.items())
    return more, ", ".join(filter(None, (*who, planning.who(claimed, now), *beside)))


@check
def companions_fit(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """What the companions that are to be up have yet to take is available, with a reserve, whatever the engine takes."""
    more, who = companion_claims(node, admitted=node.engine_live)
    left = node.get("memory.available_mb") / MIB_IN_GIB - more
    if more and left < limits["reserve_gib"]:
        yield Fault(round(left, 1), limits["reserve_gib"], {"more": round(more, 1), "available": gib(node.get("memory.available_mb")), "who": ", ".join(who)})


@check
def companion_units(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The unit of each companion that is to be up is there."""
    wanted = planning.companion_claims(node.needs["companions"], node.needs["mode"])
    for one in companions(node) if wanted else ():
        if one["declared"] and one["name"] in wanted and one["state"] == "not-found":
            yield Fault("not found", one["unit"], one)


@check
def companions_declared(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No container of a companion runs that nobody declares."""
    for one in companions(node):
        if one["running"] and not one["declared"]:
            yield Fault(one["container"], "declared", {**one, "held": round(held_gib(one), 1)})


def records(node: Node) -> list[Entry]:
    """The starts on record of this very image, profile and driver. A node without that image has none, and older answers tell of none."""
    images, gpus = node.optional("images") or {}, node.optional("gpus") or []
    image, driver = images.get(node.needs["image"]["tag"]) or {}, next((gpu["driver_version"] for gpu in gpus if gpu["driver_version"]), "")
    known = [one for one in node.optional("starts") or [] if one["cluster"] == node.needs["cluster"]]
    return [one for one in known if starts.same(one, image.get("id", ""), node.needs["plan_digest"], driver)]


@check
def plan_fits(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """What the profile takes by the memory plan goes on this node, beside what is in use there and what others claim.

    A live engine of this very cluster takes nothing more. Where it may be restarted, what it holds comes back first.
    """
    if node.engine_live and not node.needs["allow_restart"]:
        return
    readable(node)
    total, available = node.get("memory.total_mb") / MIB_IN_GIB, available_mb(node) / MIB_IN_GIB
    more, who = claims(node)
    pinned = planning.pinned(node.needs["plan"], node.needs["pin"].size if node.needs["pin"] else None)
    on = plan.Node(node.name, round(total, 2), round(more, 2), available=round(available, 2), who=who)
    found = planning.admission(pinned, on, records(node))
    if found["verdict"] != plan.FITS:
        why = "; ".join([*found["reasons"], *([f"others there: {who}"] if who else [])])
        words = {"says": found["verdict"], "figures": planning.figures(found["node"]), "why": why, "would_go": found["would_go"]}
        verdict = "warn" if found["verdict"] == plan.TIGHT else "block"
        yield Fault(found["node"]["serving"]["available_gib"], plan.CONSTANTS["unproven"].value, words, verdict=verdict)


@check
def start_recorded(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """A start of this very image, profile and driver is on record here, and the plan proposes a size of the KV cache."""
    lacks = node.needs["pin"].lacks.get(node.name)
    if lacks:
        yield Fault(None, "a start on record", {"lacks": lacks})


def pin_of(nodes: t.Sequence[Node]) -> planning.Pin | None:
    """The size of the KV cache that starts on record bear out on all nodes; None where nobody asked for it."""
    if not nodes or nodes[0].needs["kv_cache"] != RECORDED:
        return None
    on, found, unseen = [], {}, {}
    for node in nodes:
        try:
            total = round(node.get("memory.total_mb") / MIB_IN_GIB, 2)
            found[node.name] = records(node)
        except Unseen as missing:
            unseen[node.name] = f"what is on record is unknown: {missing}"
            continue
        claimed = [*planning.claimed(node.needs["tenants"], node.name).values()]
        claimed += planning.companion_claims(node.needs["companions"], node.needs["mode"]).values()
        on.append(plan.Node(node.name, total, sum(claimed)))
    pin = planning.pin(nodes[0].needs["plan"], on, found)
    return pin._replace(size=None, lacks={**pin.lacks, **unseen}) if unseen else pin


@check
def swap_unused(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Hardly anything lies in swap."""
    used = node.get("memory.swap_total_mb") - node.get("memory.swap_free_mb")
    if used > limits["most_mb"]:
        yield Fault(used, limits["most_mb"], {"used": used})


@check
def pressure_low(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Processes hardly wait for memory. A kernel that does not count that is not judged by it."""
    pressure = node.optional("memory.pressure")
    if pressure and pressure["full"]["avg60"] > limits["most_percent"]:
        yield Fault(pressure["full"]["avg60"], limits["most_percent"])


# --- who else is here -------------------------------------------------------------------------------------------------------


def _tenants(node: Node) -> list[Entry]:
    """The tenants, without declared companions and the processes that cuda_zombie_check tells of: an orphan is nobody's, and its remedy is another one."""
    classes = node.optional("zombies.classes") or {}
    told = {pid for kind in ("ghost", "orphan", "defunct") for pid in classes.get(kind, ())} | companion_pids(node)
    return [tenant for tenant in node.get("tenants") if tenant["pid"] not in told]


@check
def tenants_holding(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No process of others holds ``held_mib`` of GPU memory or more; a desktop is judged as a whole."""
    for tenant in _tenants(node):
        if tenant["kind"] != DESKTOP and (tenant["gpu_mib"] or 0) >= limits["held_mib"]:
            yield Fault(tenant["gpu_mib"], f"below {limits['held_mib']} MiB", {**tenant, "where": inside(tenant)})


@check
def ipc_stays(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No engine runs outside of containers as a user whose semaphores go with the last session."""
    for tenant in node.get("tenants"):
        if tenant["kind"] in SPREAD_ENGINES and not tenant["container"] and tenant["user"] in (node.optional("limits.ipc_removed_of") or []):
            yield Fault(tenant["user"], "a user who lingers", tenant)


@check
def kv_cache_stays(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The KV cache is not moved out to the host's memory."""
    if node.needs["kv_offload"]:
        yield Fault(node.needs["kv_offload"], "none of it")


@check
def desktop_session(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """What draws on the screen holds less GPU memory than ``held_mib``, all together."""
    drawing = [tenant for tenant in _tenants(node) if tenant["kind"] == DESKTOP and tenant["gpu_mib"]]
    held = sum(tenant["gpu_mib"] for tenant in drawing)
    if held >= limits["held_mib"]:
        yield Fault(held, f"below {limits['held_mib']} MiB", {"who": ", ".join(f"{tenant['name']} {tenant['gpu_mib']} MiB" for tenant in drawing)})


@check
def tenants_idle(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Nobody else is known to take GPU memory when asked. Processes of one kind in one container are named together."""
    yield from together(tenant for tenant in _tenants(node) if tenant["kind"] != DESKTOP and (tenant["gpu_mib"] or 0) < limits["held_mib"])


def together(tenants: t.Iterable[Entry]) -> Faults:
    """Yield one fault for all tenants of one kind in one container."""
    groups: dict[tuple[str, str], list[Entry]] = collections.defaultdict(list)
    for tenant in tenants:
        groups[tenant["container"], tenant["kind"]].append(tenant)
    for (_container, kind), (first, *others) in groups.items():
        held = sum(tenant["gpu_mib"] or 0 for tenant in (first, *others))
        more = f" and {len(others)} more" if others else ""
        who = f"{first['name']} (pid {first['pid']}, {kind}, user {first['user']}){more}{inside(first)}"
        yield Fault(held, "none", {"who": who, "held": f"{held} MiB" if held else "no memory that the driver lists"})


def inside(one: Entry) -> str:
    """Where something runs; a container whose name nobody told goes by the beginning of its id, as Docker shows it."""
    name = one["container"] or ""
    if len(name) == ID_LENGTH and not name.strip("0123456789abcdef"):
        name = name[:ID_SHOWN]
    return f" in container {name}" if name else ""


@check
def gpu_containers(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No container of others runs with the GPU. One that holds memory is named as a tenant already."""
    named = {tenant["container"] for tenant in node.get("tenants")}
    told = companion_pids(node)
    for container in node.get("foreign_containers"):
        if told.intersection(container["pids"]):
            continue
        if container["gpu"] and container["state"] == "running" and container["name"] not in named:
            yield Fault(container["name"], "none", container)


@check
def other_clusters(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No container of another cluster of this collection runs. One of no cluster is asking an image what it holds, and ends."""
    for container in node.get("containers"):
        if container["cluster"] not in (None, node.needs["cluster"]) and container["state"] == "running":
            yield Fault(container["name"], node.needs["cluster"], container)


@check
def mode_has_it(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The declared mode has this cluster with this profile. Where none was ever declared, and in answers from before there were modes, any may come up."""
    record = node.optional("mode")
    if not record:
        return
    cluster, profile = node.needs["cluster"], node.needs["profile"]
    has = {name: one["profile"] for name, one in record["clusters"].items()}
    if has.get(cluster) != profile:
        told = ", ".join(f"{name} with {one}" for name, one in has.items()) or "nothing"
        yield Fault(told, f"{cluster} with {profile}", {"mode": record["mode"], "has": told, "cluster": cluster, "profile": profile})


@check
def environment_clean(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """No variable of the engine, Ray or NCCL is set for the whole machine, apart from the harmless ones."""
    left: dict[str, list[str]] = collections.defaultdict(list)
    for entry in node.get("environment"):
        if not named_like(entry["name"], limits["harmless"]):
            left[entry["where"]].append(f"{entry['name']}={entry['value']}")
    for where, variables in left.items():
        yield Fault(variables, [], {"where": where, "variables": ", ".join(variables)})


@check
def no_mps(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """CUDA MPS neither runs nor is asked for."""
    asked = [f"{entry['name']} in {entry['where']}" for entry in node.get("environment") if named_like(entry["name"], limits["variables"])]
    running = [f"{process['name']} (pid {process['pid']})" for gpu in node.get("gpus") for process in gpu["processes"] or []]
    running += [f"{tenant['name']} (pid {tenant['pid']})" for tenant in node.get("tenants")]
    seen = dict.fromkeys([*asked, *(one for one in running if limits["program"] in one)])
    if seen:
        yield Fault(list(seen), [], {"seen": ", ".join(seen)})


@check
def sshd_protected(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """The kernel ends sshd last when memory is short."""
    sshd = node.get("limits.sshd")
    if sshd["pid"] is None and node.error("limits.sshd") is None:
        # None runs: whoever reached this node came another way.
        return
    score = of_entry(sshd, "oom_score_adj", "limits.sshd")
    if score > limits["most"]:
        yield Fault(score, limits["most"], {"pid": sshd["pid"], "score": score})


@check
def earlyoom_effective(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """An earlyoom that runs can act before the machine is full. One that does not run is nobody's fault."""
    guard = node.get("limits.earlyoom")
    if of_entry(guard, "running", "limits.earlyoom") and not of_entry(guard, "effective", "limits.earlyoom"):
        yield Fault(guard["args"], "effective", {"why": guard["why"] or "its thresholds are never reached"})


# --- what was probed --------------------------------------------------------------------------------------------------------


@check
def probe_whole(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """All that was to be measured with the node's peers could be."""
    for error in node.get("probe.errors"):
        yield Fault(error["error"], "measured", error, verdict="unknown")


@check
def probe_carries(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """What the node sent, one link alone or several at once (``several``), by ``method``, was at least ``least_gbits`` fast.

    What was not measured is told by :func:`probe_whole`.
    """
    for sent in node.get("probe.sent"):
        if sent["method"] == arguments["method"] and (sent["links"] > 1) is arguments["several"] and sent["gbits"] is not None:
            if sent["gbits"] < limits["least_gbits"]:
                yield Fault(sent["gbits"], limits["least_gbits"], sent)


@check
def probe_mtu(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Packets as large as the links' MTU come through undivided."""
    for ping in node.get("probe.pings"):
        if ping["passes"] is False:
            yield Fault("lost", f"{ping['mtu']} bytes", {**ping, "why": f": something on the way carries {ping['path_mtu']}" if ping["path_mtu"] else ""})


@check
def probe_round_trip(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """A packet is back within ``most_ms`` from every peer; one that did not come back is another rule's."""
    for ping in node.get("probe.pings"):
        if ping["passes"] and ping["rtt_ms"] is None:
            raise Unseen(f"the round trip over {ping['link']}", "ping does not print it")
        if ping["passes"] and ping["rtt_ms"] > limits["most_ms"]:
            yield Fault(ping["rtt_ms"], limits["most_ms"], ping)


@check
def probe_by_rdma(node: Node, arguments: Arguments, limits: Arguments) -> Faults:
    """Bytes were moved by RDMA, as the engine's ranks move them."""
    for method in node.get("probe.methods"):
        if method["method"] != "rdma":
            yield Fault(method["method"], "rdma", method)


# --- between nodes ----------------------------------------------------------------------------------------------------------


def _odd_ones(values: dict[str, t.Any]) -> list[str]:
    """Whom a difference concerns: those that differ from what more than half of the nodes have, else the whole cluster."""
    common, count = collections.Counter(map(str, values.values())).most_common(1)[0]
    return [name for name, value in values.items() if str(value) != common] if count * 2 > len(values) else [CLUSTER]


def differing(values: dict[str, t.Any], unit: str = "", **words: t.Any) -> Faults:
    """Yield one fault for each node whose value differs from what most have, one for the cluster where there is no such majority."""
    if len(set(map(str, values.values()))) > 1:
        for node in _odd_ones(values):
            yield Fault(values, "the same on every node", {"listed": listed(values, unit), **words}, node=node)


@comparison
def same(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """The value at ``of`` is the same on all nodes."""
    yield from differing({node.name: node.get(arguments["of"]) for node in nodes})


@comparison
def each_its_own(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """No two nodes have the same value at ``of``; one that has none has no other's."""
    owners: dict[str, list[str]] = collections.defaultdict(list)
    for node in nodes:
        owners[node.optional(arguments["of"]) or ""].append(node.name)
    for value, names in owners.items():
        if value and len(names) > 1:
            yield Fault(value, "one each", {"listed": " and ".join(names)}, node=CLUSTER)


@comparison
def same_of_gpus(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """The GPUs of all nodes have the same ``field``. With ``if_told`` a node whose driver does not tell it is left out."""
    values = {}
    for node in nodes:
        told = {gpu["index"]: gpu[arguments["field"]] for gpu in node.get("gpus")}
        if None in told.values():
            if arguments.get("if_told"):
                continue
            raise Unseen(f"gpus.{arguments['field']} of {node.name}")
        values[node.name] = "/".join(sorted(set(map(str, told.values()))))
    yield from differing(values)


@comparison
def same_of_links(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """The links that the cluster uses have the same ``field`` on all nodes."""
    values = {}
    for node in nodes:
        of_links = {of_entry(link, arguments["field"], f"fabric[{link['netdev']}]") for link in node.links()}
        if of_links:
            values[node.name] = "/".join(map(str, sorted(of_links)))
    yield from differing(values)


@comparison
def within(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """The figures (MiB) at ``of`` differ by at most ``part`` of the largest, or by ``most_gib``."""
    figures = {node.name: node.get(arguments["of"]) for node in nodes if not (arguments.get("unless_live") and node.engine_live)}
    if len(figures) > 1:
        allowed = limits["part"] * max(figures.values()) if "part" in limits else limits["most_gib"] * MIB_IN_GIB
        spread = max(figures.values()) - min(figures.values())
        if spread > allowed:
            shown = {name: gib(figure) for name, figure in figures.items()}
            words = {"listed": listed(shown, " GiB"), "spread": gib(spread)}
            yield Fault(shown, "the same on every node", words, node=CLUSTER)


@comparison
def one_network(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """The fabric addresses of all nodes are in one subnet."""
    values = {}
    for node in nodes:
        interface = _holder_of(node, node.needs["address"])
        values[node.name] = next((one["network"] for one in (interface or {"networks": []})["networks"] if one["address"] == node.needs["address"]), None)
    yield from differing({name: network for name, network in values.items() if network is not None})


@comparison
def heads_alive(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """Where containers of this cluster run on the workers, the head's runs, too."""
    running = {node.name: [one["name"] for one in node.our_containers() if one["state"] == "running"] for node in nodes}
    heads = [node.name for node in nodes if node.needs["head"]]
    if heads and not any(running[head] for head in heads):
        for name, containers in running.items():
            if containers:
                yield Fault(containers, f"a head on {heads[0]}", {"containers": ", ".join(containers), "head": heads[0]}, node=name)


@comparison
def images_same(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """The images of all nodes were built on the same base by the same recipe; images that nobody built here have one id.

    Where their contents are known, those are the same, too.
    """
    there = {node.name: _contents(image) for node in nodes if (image := _image(node)) is not None}
    for what in dict.fromkeys(what for contents in there.values() for what in contents):
        yield from differing({name: contents.get(what) for name, contents in there.items()}, what=what)


def _contents(image: Entry) -> dict[str, t.Any]:
    """What has to be the same in the images of all nodes. The ids of images that were built on each node differ."""
    labels, contract = image["labels"] or {}, image.get("contract")
    known = {"base image": labels.get("io.gb10.base") or image["id"], "recipe": labels.get("io.gb10.recipe")}
    if contract:
        known |= {"Python": contract["python"], "Ray": contract["versions"].get("ray"), "packages": contract["packages_digest"]}
    return known


@comparison
def models_same(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """All nodes that have the whole model have the same one, by revision and size, and the same of what it needs beside it."""
    for repository in nodes[0].needs["repositories"]:
        values = {}
        for node in nodes:
            whole = [entry for entry in _revisions(node, repository) if _wanted(repository, entry) and _whole(repository, entry)]
            if whole:
                values[node.name] = " ".join(
                    sorted(str(entry["revision"])[:12] + ("" if repository["partial"] else f" ({entry['bytes']} bytes)") for entry in whole)
                )
        yield from differing(values, repo=repository["repo"])


def _lacking(nodes: list[Node], repository: Entry) -> list[str]:
    """The nodes that lack a repository, in whole or in part, and so would fetch it."""
    return [node.name for node in nodes if not _ready(node, repository)]


@comparison
def gates_open(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """What the hub gives to known accounts alone is asked for with a token, or lies on every node already."""
    for repository in nodes[0].needs["repositories"]:
        fetching = [_named(nodes, name) for name in _lacking(nodes, repository)]
        without = [node.name for node in fetching if not node.needs["hub_token"] and not node.needs.get("given")]
        if repository["gated"] and without:
            words = {"repo": repository["repo"], "where": ", ".join(without), "url": f"https://huggingface.co/{repository['repo']}"}
            yield Fault(None, "a token", words, node=CLUSTER)


def _named(nodes: list[Node], name: str) -> Node:
    return next(node for node in nodes if node.name == name)


@comparison
def licenses_named(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """A license that a person has to accept is named before the first byte that it covers is fetched."""
    for repository in nodes[0].needs["repositories"]:
        license, lacking = repository["license"], _lacking(nodes, repository)
        if license.get("accept") and lacking:
            url = license["url"] or f"https://huggingface.co/{repository['repo']}"
            words = {"repo": repository["repo"], "license": license["id"], "url": url, "where": ", ".join(lacking)}
            yield Fault(None, license["id"], words, node=CLUSTER)


@comparison
def revision_pinned(nodes: list[Node], arguments: Arguments, limits: Arguments) -> Faults:
    """A model that brings code of its own is pinned to a commit, and so is what lies beside it."""
    for repository in nodes[0].needs["repositories"] if nodes[0].needs["remote_code"] else ():
        if not repository["revision"]:
            yield Fault(None, "a commit", {"repo": repository["repo"]}, node=CLUSTER)
