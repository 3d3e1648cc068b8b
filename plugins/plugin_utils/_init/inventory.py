# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Builds an inventory from the nodes' answers: the link, the head, the profile, and the texts. This plugin util is PRIVATE to the collection.

Nothing here contacts a node or writes a file. Addresses that nodes have are kept; where some are missing, the text of a
configuration is written for the user to apply.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import typing as t
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.module_utils._network import rdma
from ansible_collections.gb10.cluster.plugins.plugin_utils._init import texts
from ansible_collections.gb10.cluster.plugins.plugin_utils._init.links import Answer, LinkEnd, Wanted, fabric_links, link_ends, twins_together, wanted_addresses
from ansible_collections.gb10.cluster.plugins.plugin_utils._init.node_facts import MIB_IN_GIB, api_address, hub_cache, limit, memory_class, on_disk
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs import settings
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import profiles
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.groups import grouped

Finding = dict[str, t.Any]
Findings = t.Iterator[Finding]

#: The node of a finding about the whole cluster.
CLUSTER = "cluster"
#: The node of a finding about the files.
CONTROLLER = "controller"


_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@%-]{0,254}\Z")


def row(id: str, node: str, verdict: str, message: str, remedy: str = "", **more: t.Any) -> Finding:
    """Return one line of the table."""
    return finding(f"init.{id}", node, verdict, message, remedy=remedy, **more)


def listed(values: t.Mapping[str, t.Any]) -> str:
    """Return a text like ``spark-1 A; spark-2 B``."""
    return "; ".join(f"{name} {value}" for name, value in values.items())


#: The file that NVIDIA Sync's Cluster Assistant writes (file index ids 55743631702, 60237038967, 58226249074). It renames other files for these interfaces
#: to ``.sync-disabled-*``, and may assign other addresses later.
SYNC_FILE = "99-nvidia-sync-cluster.yaml"


# --- the cluster ----------------------------------------------------------------------------------------------------------------


class Cluster:
    """The nodes, the head first, and the results from their answers."""

    def __init__(self, answers: dict[str, Answer], run: Answer) -> None:
        self.run = run
        head = run["head"] or next(iter(answers))
        self.nodes = {name: answers[name] for name in sorted(answers, key=lambda name: name != head)}
        self.head = head
        self.tcp = run["fallback"] == "tcp" or len(answers) == 1
        self.ends = {name: link_ends(answer["info"], self.tcp) for name, answer in self.nodes.items()}
        links = fabric_links(self.ends, answers[head]["reached"] if self.tcp else "") if head in answers else []
        rdma = [fabric_link for fabric_link in links if all(end.devices for end, _address in fabric_link.ends.values())]
        self.fabric_links = (rdma or links[:1]) if self.tcp else links
        self.gpus = {name: len(answer["info"]["gpus"] or []) for name, answer in self.nodes.items()}
        self.totals = {name: answer["info"]["memory"]["total_mb"] for name, answer in self.nodes.items() if answer["info"]["memory"]}
        self.missing: dict[str, list[Wanted]] = {}

    def info(self, node: str) -> Answer:
        """Return the answer of ``node_info``."""
        return t.cast(Answer, self.nodes[node]["info"])

    # --- whether the nodes could be seen ------------------------------------------------------------------------------------

    def seen(self) -> Findings:
        """Yield findings about lost nodes, names that cannot be written, and sections that could not be read."""
        for name in self.run["lost"]:
            answer = self.run.get("reach", {}).get(name) or {"what": "see the task that failed above", "remedy": "correct that"}
            yield row("reach", name, "block", f"could not be looked at: {answer['what'] or 'see the task that failed above'}.", answer["remedy"])
        for name, answer in self.nodes.items():
            if not _HOST.match(name):
                yield row("name", CLUSTER, "block", f"{name!r} can't be a host's name in an inventory.", "name the host by its name or address alone")
            yield from self._sight(name, answer)
        choices = settings.settings()["gb10_fabric_fallback"]["choices"]
        if self.run["fallback"] not in choices:
            yield row(
                "fallback",
                CLUSTER,
                "block",
                f"gb10_fabric_fallback: is {self.run['fallback']!r}; expected {' or '.join(choices)}.",
                f"set gb10_fabric_fallback to {' or '.join(choices)}",
            )
        if self.head not in self.nodes:
            yield row("head", CLUSTER, "block", f"gb10_head_host: {self.head} is none of {', '.join(self.nodes)}.", "name one of them")

    @staticmethod
    def _sight(name: str, answer: Answer) -> Findings:
        info, refused = answer["info"], answer["refused"]
        errors = info["errors"]
        for section in ("memory", "interfaces", "fabric"):
            error = next((entry for entry in errors if entry["section"] == section), None)
            if error and not info[section]:
                yield row("seen", name, "unknown", f"{section} could not be read: {error['error']}", error.get("remedy", ""))
        if refused:
            why = texts.one_line(refused.strip().splitlines()[-1])[:160]
            yield row(
                "sudo",
                name,
                "warn",
                f"looked without sudo, which was refused ({why}).",
                "run with --ask-become-pass, or give the account a rule without password; every other playbook needs sudo",
            )
        if errors:
            blind = ", ".join(sorted({error["section"] for error in errors}))
            reasons = "; ".join(dict.fromkeys(texts.one_line(error["error"]) for error in errors))
            yield row("seen", name, "warn", f"could not see {blind}: {reasons[:300]}", next((error["remedy"] for error in errors if error.get("remedy")), ""))

    # --- memory and GPUs ------------------------------------------------------------------------------------------------------

    def machines(self) -> Findings:
        """Yield findings about memory and GPUs of each node, and about differences between nodes."""
        for name, total in self.totals.items():
            size, gib = memory_class(total), round(total / MIB_IN_GIB, 1)
            kinds = ", ".join(sorted({texts.one_line(gpu["name"]) for gpu in self.info(name)["gpus"] or []}))
            text = f"{gib} GiB of memory{f', a Spark of {size} GB' if size else ''}; {self.gpus[name]} GPU(s){f': {kinds}' if kinds else ''}."
            yield row("machine", name, "pass", text, measured={"total_gib": gib, "class_gb": size, "gpus": self.gpus[name]})
            if size is None:
                yield row("memory", name, "warn", f"{gib} GiB is less than the smallest Spark shows.", "see whether the kernel is limited to less (mem=)")
            if not self.gpus[name] and not any(error["section"] == "gpus" for error in self.info(name)["errors"]):
                yield row("gpu", name, "warn", "the driver lists no GPU; one is assumed.", "look at nvidia-smi on the node")
        sizes = {name: f"{round(total / MIB_IN_GIB, 1)} GiB" for name, total in self.totals.items()}
        if self.totals and max(self.totals.values()) - min(self.totals.values()) > limit("memory.alike", "part") * max(self.totals.values()):
            yield row("memory", CLUSTER, "block", f"the nodes differ in memory: {listed(sizes)}; the smallest would fill up first.", "name nodes of one size")
        counted = {name: count for name, count in self.gpus.items() if count}
        if len(set(counted.values())) > 1:
            yield row("gpu", CLUSTER, "block", f"the nodes differ in GPUs: {listed(counted)}.", "name nodes that are alike")

    @property
    def gpus_each(self) -> int:
        """Return the number of GPUs of a node; one where none could be seen."""
        return max(self.gpus.values(), default=0) or 1

    # --- the link -------------------------------------------------------------------------------------------------------------

    def link(self) -> Findings:
        """Yield findings about the links of the cluster, or the one reason why there are none."""
        if not self.fabric_links:
            yield from self._no_link()
            return
        if self.synced:
            yield row(
                "sync", CLUSTER, "pass",
                f"NVIDIA Sync gave the link its addresses on {', '.join(self.synced)}: they are taken as they are. Once its Cluster Assistant gives others, "
                "move this inventory away and run init again.",
            )
        yield from self._same_addresses() if len(self.nodes) > 1 else ()
        for name in self.nodes:
            mine = [fabric_link.ends[name] for fabric_link in self.fabric_links]
            text = "; ".join(f"{end.name} {address} ({end.describe()})" for end, address in mine)
            yield row("link", name, "pass", f"{text}{self._left_out(name)}", measured=[end.name for end, _address in mine])
        yield from self._halves() if len(self.nodes) > 1 else ()

    def _same_addresses(self) -> Findings:
        for fabric_link in self.fabric_links:
            for address, names in grouped((str(address.ip), name) for name, (_end, address) in fabric_link.ends.items()).items():
                if len(names) > 1:
                    yield row(
                        "same_address", CLUSTER, "block", f"{' and '.join(names)} have the same address, {address}: one machine under two names, or a mistake.",
                        "name every machine once, and give each its own address",
                    )

    def _left_out(self, node: str) -> str:
        used = [fabric_link.ends[node][0].name for fabric_link in self.fabric_links]
        left = [f"{end.name} ({end.address_text()})" for end in self.ends[node] if end.carrier and end.addresses and end.name not in used]
        return f". Left alone: {', '.join(left)}" if left else ""

    def _halves(self) -> Findings:
        """Yield findings about halves of a cage that could add bandwidth, or that conflict with each other."""
        self.missing = {} if self.tcp or self.synced else wanted_addresses(self.ends, self.fabric_links, self._networks())
        advice = f"give it an address in its own subnet on every node, {self._by_hand()}"
        for name, ends in self.ends.items():
            used = {fabric_link.ends[name][0].name for fabric_link in self.fabric_links}
            together = [pair for pair in twins_together(ends) if {pair[0].name, pair[1].name} & used]
            for first, other, network in together:
                yield row(
                    "twins_apart",
                    name,
                    "warn",
                    f"{first.name} and {other.name} are both in {network}: answers may leave through the wrong one.",
                    advice.replace("it", other.name, 1),
                )
            crowded = {end.name for pair in together for end in pair[:2]}
            for end in ends:
                if end.carrier and not end.addresses and end.name not in crowded and not self.tcp:
                    half = f", the twin of {end.twin}," if end.twin in used else ""
                    yield row(
                        "twin",
                        name,
                        "warn",
                        f"{end.name}{half} has a link and no address that lasts: its bandwidth stays unused.",
                        f"{advice}; then name it in gb10_fabric_interfaces, and its device in gb10_rdma_devices",
                    )
            for fabric_link in self.fabric_links:
                end = fabric_link.ends[name][0]
                if not end.devices and not self.tcp:
                    yield row(
                        "rdma",
                        name,
                        "warn",
                        f"{end.name} has no RDMA device; NCCL would have to use TCP, and the preflight will refuse that.",
                        f"{rdma.CABLE_IN}; where TCP is enough: -e gb10_fabric_fallback=tcp",
                    )

    @property
    def synced(self) -> list[str]:
        """The nodes whose link NVIDIA Sync manages."""
        return [name for name in self.nodes if SYNC_FILE in (self.info(name).get("netplan") or [])]

    def _by_hand(self) -> str:
        """Return the place where the user sets the addresses of the link."""
        if self.synced:
            return f"in NVIDIA Sync's Cluster Assistant, which manages these interfaces on {', '.join(self.synced)} and would move a file of yours away"
        return f"as {self.run['directory']}/netplan.md shows"

    def _networks(self) -> list[ipaddress.IPv4Network]:
        """Return all subnets in which a node has an address on any interface."""
        return [
            ipaddress.IPv4Interface(f"{network['address']}/{network['prefix']}").network
            for name in self.nodes
            for interface in self.info(name)["interfaces"]
            for network in interface["networks"]
            if network["family"] == "ipv4"
        ]

    def _no_link(self) -> Findings:
        dark = {name: ends for name, ends in self.ends.items() if not any(end.carrier for end in ends)}
        for name, ends in dark.items():
            tcp = "where TCP over another network is enough: -e gb10_fabric_fallback=tcp"
            up = f"where the cable is in: sudo ip link set {ends[0].name} up; " if ends else ""
            names = ", ".join(end.name for end in ends)
            yield row(
                "link",
                name,
                "block",
                f"no interface of the fabric has carrier: {names}." if ends else "has no RDMA device and no ConnectX interface.",
                f"{rdma.CABLE_IN}; {up}{tcp}",
            )
        if dark:
            return
        live = {name: [end for end in ends if end.carrier] for name, ends in self.ends.items()}
        held = listed({name: ", ".join(f"{end.name} {end.address_text()}" for end in ends) for name, ends in live.items()})
        ring = self._ring(live)
        again = f"run init again: ansible-playbook gb10.cluster.init -i {','.join(self.nodes)},"
        if ring:
            yield row(
                "address",
                CLUSTER,
                "block",
                f"no subnet is common to all nodes, though each shares one with some ({ring}): {held}.",
                "connect all nodes through a switch, in one subnet; rings are beyond this collection",
            )
            return
        self.missing = {} if self.tcp or self.synced else wanted_addresses(live, [], self._networks())
        what = "no subnet is common to all nodes"
        if not any(end.addresses for ends in live.values() for end in ends):
            changing = any(end.link_local for ends in live.values() for end in ends)
            what = "the link has only addresses that change at every boot (169.254.x.x)" if changing else "the link has carrier but no addresses"
        start = f"give the nodes addresses that last, {self._by_hand()}" if self.missing or self.synced else "correct the addresses"
        yield row("address", CLUSTER, "block", f"{what}: {held}.", f"{start}, then {again}")

    @staticmethod
    def _ring(live: t.Mapping[str, list[LinkEnd]]) -> str:
        """Return the subnets that some but not all of three or more nodes share, if each node is in one; else an empty text."""
        members = grouped((address.network, name) for name, ends in live.items() for end in ends for address in end.addresses)
        shared = {network: set(names) for network, names in members.items() if len(set(names)) > 1}
        is_ring = len(live) > 2 and set().union(*shared.values()) == set(live)
        return "; ".join(f"{network} {' and '.join(sorted(names))}" for network, names in sorted(shared.items())) if is_ring else ""

    # --- profiles and models -----------------------------------------------------------------------------------------------------

    def fits(self, profile: Answer) -> str:
        """Return why a profile does not fit these nodes; empty when it does."""
        parallel, size = profile["parallel"], profile["memory"]["class_gb"]
        ranks, gpus = parallel["tensor"] * parallel["pipeline"] * parallel["data"], len(self.nodes) * self.gpus_each
        if ranks != gpus:
            return f"it is for {ranks} GPU(s), and there are {gpus}"
        least = min(self.totals.values(), default=0) / MIB_IN_GIB
        if size and least < size * limit("memory.class", "shown"):
            return f"it is for nodes of {size} GB, and the smallest shows {least:.1f} GiB"
        return ""

    def fitting(self) -> list[Answer]:
        """Return the profiles that fit, sorted by the number of nodes with the model, then the collection's default first, then by name."""
        default = settings.settings()["gb10_profile"]["default"]
        usable = [entry for entry in self.run["catalogue"] if not entry["problems"] and not self.fits(entry["profile"])]
        return sorted(usable, key=lambda entry: (-len(self.holders(entry["profile"])), entry["id"] != default, entry["id"]))

    def holders(self, profile: Answer) -> dict[str, str]:
        """Return the nodes that have a profile's model, each with the cache that contains it."""
        return {name: cache for name in self.nodes if (cache := on_disk(profile, self.info(name)))}

    def chosen(self) -> Answer | None:
        """Return the profile that the inventory names."""
        return t.cast("Answer | None", next(iter(self.run["chosen"] or self.fitting()), None))

    def profiles(self) -> Findings:
        """Yield findings about the profile, and about models that are already on disk."""
        entry = self.chosen()
        if self.run["chosen"] and entry:
            why = "; ".join(entry["problems"]) or self.fits(entry["profile"])
            if why:
                yield row(
                    "profile", CLUSTER, "block", f"{entry['id']} can't be used here: {why}.", "choose another with -e gb10_profile=ID, or name other hosts"
                )
                return
        others = [candidate["id"] for candidate in self.fitting() if not entry or candidate["id"] != entry["id"]]
        if entry:
            also = f"; also fit: {', '.join(others)}" if others else ""
            yield row("profile", CLUSTER, "pass", f"{entry['id']}{also}.", measured=[entry["id"], *others])
        else:
            least = min(self.totals.values(), default=0) / MIB_IN_GIB
            these = f"{len(self.nodes)} node(s) with {self.gpus_each} GPU(s) and {least:.1f} GiB of memory each"
            yield row(
                "profile",
                CLUSTER,
                "warn",
                f"no profile fits {these}; the inventory is written without one.",
                "name as many hosts as a profile is for (docs/profiles.md), or run with -e gb10_profile=FILE and a profile of your own",
            )
        for name in self.nodes:
            yield from self._models(name)

    def _models(self, name: str) -> Findings:
        info = self.info(name)
        valid = [entry for entry in self.run["catalogue"] if not entry["problems"]]
        whole = {entry["id"]: cache for entry in valid if (cache := on_disk(entry["profile"], info))}
        if whole:
            yield row("model", name, "pass", f"has the model of {', '.join(f'{id} (whole, in {cache})' for id, cache in whole.items())}.", measured=whole)
        elif info["models"]:
            yield row("model", name, "pass", f"has {len(info['models'])} model(s) on disk, none of them whole and of a profile in its revision.")

    # --- where things are --------------------------------------------------------------------------------------------------------

    def api(self) -> tuple[str, str, bool] | None:
        """Return the place where the API listens; None for the default, the head's fabric address."""
        place = api_address(self.info(self.head), self.nodes[self.head]["reached"], [fabric_link.ends[self.head][0].name for fabric_link in self.fabric_links])
        return None if place and place[0] == str(self.fabric_links[0].ends[self.head][1].ip) else place

    def places(self) -> Findings:
        """Yield the finding about the API's address."""
        place = self.api()
        fabric = f"the fabric address {self.fabric_links[0].ends[self.head][1].ip}; no other was found"
        address = f"{place[0]} ({place[1]}{', where Ansible came in' if place[2] else ''})" if place else fabric
        yield row("api", self.head, "pass", f"the API would listen on {address}.")

    def found(self) -> Answer:
        """Return the inventory's content in the form for the texts."""
        entry = self.chosen()
        profile = entry["profile"] if entry else None
        own = entry and Path(entry["path"]).parent != profiles.SHIPPED
        hosts = {}
        for name, answer in self.nodes.items():
            mine = [fabric_link.ends[name] for fabric_link in self.fabric_links]
            cache = hub_cache(profile, answer["info"])
            hosts[name] = {
                "login": answer["login"],
                "gb10_fabric_address": str(mine[0][1].ip),
                "total_mb": self.totals.get(name, 0),
                "settings": {
                    "gb10_fabric_interfaces": [end.name for end, _address in mine],
                    "gb10_control_interface": mine[0][0].name,
                    "gb10_rdma_devices": list(dict.fromkeys(device for end, _address in mine for device in end.devices)),
                    "gb10_hf_home": cache[0] if cache else None,
                },
                "link": "; ".join(f"{end.name} {address} ({end.describe()})" for end, address in mine),
                "cache": cache[1] if cache else "",
            }
        return {
            "head": self.head,
            "hosts": hosts,
            "profile": (entry["path"] if own else entry["id"]) if entry else None,
            "fitting": [
                {"id": candidate["id"], "repo": candidate["profile"]["model"]["repo"], "holders": self.holders(candidate["profile"])}
                for candidate in self.fitting()
            ],
            "class_gb": memory_class(min(self.totals.values())) if self.totals else None,
            "gpus": self.gpus_each,
            "api": self.api(),
            "fallback": self.run["fallback"],
            "directory": self.run["directory"],
        }


def plan(answers: dict[str, Answer], run: Answer) -> Answer:
    """Return findings and the files of an inventory for the nodes' answers. This contacts no node and writes nothing.

    ``answers`` has for each node, in the order of the play, ``info`` (the answer of ``node_info``), ``reached`` (its address that Ansible
    used, empty when not known), ``refused`` (sudo's error, empty when it worked) and ``login`` (connection variables to write, by name).
    ``run`` has ``lost`` (hosts that could not be looked at), ``reach`` (the answer of ``node_state_info`` about them),
    ``head`` (a name, or empty for the first host), ``catalogue`` (the profiles, as
    :func:`_catalogue.catalogue` returns them), ``chosen`` (the same for the requested profile, or empty), ``fallback`` (``none`` or
    ``tcp``) and ``directory``.

    Returns ``findings``; ``files``, each with ``path`` below the directory, ``mode`` and ``content``, empty when a finding stops the run; ``advice`` in
    the same form, with the missing addresses; ``found``, the content of the files as data; ``note``, the next steps.
    """
    cluster = Cluster(answers, run)
    findings = list(cluster.seen())
    if table.worst(findings) not in table.STOPPING:
        findings += [*cluster.machines(), *cluster.link()]
        if cluster.fabric_links:
            findings += [*cluster.profiles(), *cluster.places()]
    data = {} if table.worst(findings) in table.STOPPING else cluster.found()
    asks = " --ask-become-pass" if any(answer["refused"] for answer in answers.values()) else ""
    notes = [texts.advice_note(cluster.missing)] if cluster.missing else []
    notes += [f"Next: ansible-playbook -i {run['directory']} gb10.cluster.doctor{asks}"] if data else []
    return {
        "findings": findings,
        "files": texts.files(data) if data else [],
        "advice": [texts.advice(cluster.missing)] if cluster.missing else [],
        "found": data,
        "note": "\n".join(notes),
    }


def writes(planned: Answer, there: t.Mapping[str, str]) -> Answer:
    """Return which files of a plan get written, given the existing files: path to SHA-1.

    An existing file with the same text stays unchanged. One with another text is never overwritten, and then nothing is written: a mix of
    an old inventory and a new one would be neither. Returns ``findings`` and ``files``.
    """
    findings = list(planned["findings"])
    absent = [file for file in planned["files"] if not there.get(file["path"])]
    other = [file["path"] for file in planned["files"] if there.get(file["path"]) not in (None, "", _sha1(file))]
    if other:
        message = f"{', '.join(other)}: there already, with another text than this run would write. Nothing was written."
        remedy = "keep what you have, or write elsewhere and compare: -e gb10_to=DIRECTORY"
        return {"findings": [*findings, row("files", CONTROLLER, "block", message, remedy)], "files": []}
    for file in planned["advice"]:
        if not there.get(file["path"]):
            absent.append(file)
        elif there[file["path"]] != _sha1(file):
            findings.append(
                row(
                    "files",
                    CONTROLLER,
                    "warn",
                    f"{file['path']} is there already, with another text; it is kept, and what this run would write is below.",
                    f"remove {file['path']} if it is old",
                )
            )
    if planned["files"]:
        names = ", ".join(file["path"] for file in absent)
        findings.append(row("files", CONTROLLER, "pass", f"new: {names}." if names else "all is there already, as this run would write it."))
    return {"findings": findings, "files": absent}


def _sha1(file: Answer) -> str:
    return hashlib.sha1(file["content"].encode(), usedforsecurity=False).hexdigest()
