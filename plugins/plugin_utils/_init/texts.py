# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes the texts of an inventory, with a comment for every value. This plugin util is PRIVATE to the collection.

They are the same in each run unless a node changes: a second run must find its own files unchanged.
"""

from __future__ import annotations

import json
import re
import textwrap
import typing as t

import yaml

Text = dict[str, t.Any]
Lines = list[str]

#: Columns of a comment.
WIDTH = 118

_WORD = re.compile(r"[A-Za-z0-9/][A-Za-z0-9_./@+-]*\Z")
#: Text that Ansible would evaluate when it reads a value.
_TEMPLATE = re.compile(r"\{\{|\{%|\{#")

#: Settings that are in the group's file where all nodes agree, and in a node's own file otherwise, each with its comment.
PER_HOST = {
    "gb10_fabric_interfaces": "Interfaces of the link: with carrier, and in a subnet that every node is in. NCCL's sockets use them.",
    "gb10_control_interface": "The one with gb10_fabric_address; Gloo and the rendezvous use it.",
    "gb10_rdma_devices": "The RDMA devices below them, for NCCL and UCX.",
    "gb10_hf_home": "The nodes' directory for models; one cache for all, so that nothing is downloaded twice.",
}

GROUP_VARS = "group_vars/gb10_cluster"

_SETTINGS_END = """\
# A key is made on the head, for root alone, at the first bring-up. `none` serves without one. To read it:
#   ssh {head} sudo cat /etc/gb10/secrets/gb10/api_key
# gb10_api_key: generate

# Context in steps: the profile says which (docs/profiles.md).
# gb10_serve_arguments:
#   max_model_len: 524288

# A file on this machine, mode 0600, with a token of huggingface.co, for gated models.
# gb10_hf_token_file: ~/.config/gb10/hf_token

# Your own variables in all containers, and in one node's (put the latter into host_vars).
# gb10_env:
#   NCCL_DEBUG: INFO
# gb10_host_env: {{}}

# Rules of the preflight that do not fit this cluster, with the reason; docs/rules.md lists all rules and their limits.
# gb10_rules:
#   fabric.mtu:
#     verdict: silenced
#     why: the switch between the nodes carries 1500 bytes
"""

_SUGGESTED_ADDRESSES = """\
# Addresses for the link

An example, written by `gb10.cluster.init`: nothing of it was applied. It gives an address that lasts to each interface that has a link and none,
on every pair of interfaces another subnet, as two halves of one cage need it. Addresses that are there already are kept and not repeated here.
Ends are paired by their order: where both cages of a node have a cable, see first which cable goes where.

On each node, as root: save the text as `/etc/netplan/60-gb10-fabric.yaml`, `chmod 600` it, and run `netplan try`, which takes everything back when you
do not confirm it. Where `/etc/netplan/40-cx7.yaml` of NVIDIA's guide is there for the same interfaces, move it away first. Then run init again.
"""


def one_line(text: str) -> str:
    """Return a node's text for use in a line: without line breaks and unprintable characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(str(text).split()))


def comment(text: str, indent: int = 0, item: bool = False) -> Lines:
    """Return the lines of a comment; with ``item`` those of an entry in a list."""
    start = " " * indent + "# "
    first, later = (f"{start}- ", f"{start}  ") if item else (start, start)
    return textwrap.wrap(one_line(text), WIDTH, initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False)


def scalar(value: t.Any) -> str:
    """Return a value as YAML that Ansible takes literally."""
    if isinstance(value, str) and _WORD.match(value) and yaml.safe_load(value) == value:
        return value
    literal = isinstance(value, str) and _TEMPLATE.search(value)
    return ("!unsafe " if literal else "") + json.dumps(value, ensure_ascii=False)


def setting(name: str, value: t.Any, indent: int = 0) -> Lines:
    """Return the lines of one variable; a list has one line for each entry."""
    start = " " * indent
    if isinstance(value, list) and value:
        return [f"{start}{name}:", *(f"{start}  - {scalar(entry)}" for entry in value)]
    return [f"{start}{name}: {scalar(value)}"]


def text(lines: t.Iterable[str]) -> str:
    """Return lines as a file's text."""
    return "".join(f"{line}\n" for line in lines)


def common(hosts: Text, name: str) -> bool:
    """Return whether all hosts have the same value of a setting."""
    first, *others = (host["settings"][name] for host in hosts.values())
    return all(value == first for value in others)


def hosts_text(inventory: Text) -> str:
    """Return the hosts, how Ansible reaches them, and their addresses on the link."""
    hosts, head = inventory["hosts"], inventory["head"]
    logins = [host["login"] for host in hosts.values()]
    alike = {name: value for name, value in logins[0].items() if all(login.get(name) == value for login in logins)}
    shared = {name: value for name, value in alike.items() if name not in ("ansible_host", "ansible_port")}

    def of_host(name: str) -> Lines:
        host = hosts[name]
        own = {key: value for key, value in host["login"].items() if key not in shared}
        return [
            f"        {scalar(name)}:",
            *[line for key, value in own.items() for line in setting(key, value, 10)],
            *comment(f"Found on the node and adopted: {host['link']}.", 10),
            *setting("gb10_fabric_address", host["gb10_fabric_address"], 10),
            *(setting("gb10_total_mb", host["total_mb"], 10) if host["total_mb"] else []),
        ]

    workers = [name for name in hosts if name != head]
    lines = [
        "---",
        *comment("Written once by gb10.cluster.init from what the nodes reported. It is yours now: init never overwrites a file."),
        "#",
        *comment("On each node you need: the account below, which may log in by ssh key and use sudo, Docker, and the package python3-docker."),
        "gb10_cluster:",
        "  vars:",
        *comment("How Ansible reached the nodes. Without a passwordless rule for sudo, run the plays with --ask-become-pass.", 4),
        *[line for key, value in shared.items() for line in setting(key, value, 4)],
        *([] if "ansible_user" in shared else ["    # ansible_user: nvidia"]),
        "  children:",
        "    gb10_head:",
        "      hosts:",
        *comment("The head: the first host that init was given. It serves the API.", 8),
        *of_host(head),
    ]
    if workers:
        lines += ["    gb10_workers:", "      hosts:", *[line for name in workers for line in of_host(name)]]
    return text(lines)


def profile_lines(inventory: Text) -> Lines:
    """Return the lines about the profile, and about others that fit."""
    many = len(inventory["hosts"])
    size = f" of {inventory['class_gb']} GB" if inventory["class_gb"] else ""
    lines = comment("What is served. `ansible-playbook gb10.cluster.plan --tags profiles` shows more.")
    lines += comment(f"Those that fit {many} node(s){size}, and where their models are whole on disk:")
    for profile in inventory["fitting"]:
        where = ", ".join(f"{name} in {cache}" for name, cache in profile["holders"].items()) or "on no node"
        lines += comment(f"{profile['id']}: {profile['repo']}, {where}", item=True)
    if not inventory["fitting"]:
        lines += comment("none that is shipped", item=True)
    return [*lines, *(["# gb10_profile: /path/of/your/own.yml"] if inventory["profile"] is None else setting("gb10_profile", inventory["profile"]))]


def host_settings(inventory: Text, name: str) -> Lines:
    """Return the settings of one node alone, with comments."""
    host = inventory["hosts"][name]
    lines: Lines = []
    for key in PER_HOST:
        value = host["settings"][key]
        if not common(inventory["hosts"], key) and value is not None:
            lines += ["", *comment(PER_HOST[key]), *(comment(f"Found: {host['cache']}.") if key == "gb10_hf_home" else []), *setting(key, value)]
    return lines


def settings_text(inventory: Text) -> str:
    """Return the settings of the whole cluster."""
    hosts = inventory["hosts"]
    first = hosts[inventory["head"]]
    lines = [
        "---",
        *comment("Every variable you are likely to change. `ansible-doc -t role gb10.cluster.gb10` explains all of them."),
        *comment("Written once by gb10.cluster.init from what the nodes reported. It is yours now: init never overwrites a file."),
        "",
        *profile_lines(inventory),
    ]
    for key in PER_HOST:
        value = first["settings"][key]
        if not common(hosts, key):
            lines += ["", *comment(f"{key}: the nodes differ, see host_vars.")]
        elif value is not None:
            source = {"gb10_fabric_interfaces": "link", "gb10_hf_home": "cache"}.get(key)
            lines += [
                "",
                *comment(PER_HOST[key]),
                *([line for name, host in hosts.items() for line in comment(f"{name}: {host[source]}", item=True)] if source else []),
                *setting(key, value),
            ]
        else:
            lines += [
                "",
                *comment(PER_HOST[key]),
                *comment("No models were found in the directories that were searched (gb10_model_directories adds others)."),
                f"# {key}: /var/lib/gb10/huggingface",
            ]
    if inventory["gpus"] != 1:
        lines += ["", *comment("GPUs that the driver lists on each node."), *setting("gb10_ray_gpus", inventory["gpus"])]
    if inventory["fallback"] != "none":
        lines += [
            "",
            *comment("Asked for when this was written: NCCL may use TCP, which is many times slower than InfiniBand."),
            *setting("gb10_fabric_fallback", inventory["fallback"]),
        ]
    lines += ["", *api_lines(inventory)]
    return text(lines) + "# gb10_api_port: 8000\n\n" + _SETTINGS_END.format(head=inventory["head"])


def api_lines(inventory: Text) -> Lines:
    """Return the settings of the API's address."""
    lines = comment("Where the API listens: an address of the head. The default is its fabric address, which only the nodes reach.")
    if not inventory["api"]:
        return [*lines, "# gb10_api_address: 10.0.0.11"]
    address, interface, came = inventory["api"]
    where = "where Ansible reached the head" if came else "which is not part of the link"
    lines += comment(f"This one is on {interface}, {where}. Where DHCP gave it, see that it lasts.")
    return [*lines, *setting("gb10_api_address", address)]


def files(inventory: Text) -> list[Text]:
    """Return all files of the inventory: ``path`` below its directory, ``mode``, ``content``."""
    made = [
        ("hosts.yml", "0644", hosts_text(inventory)),
        (f"{GROUP_VARS}/settings.yml", "0644", settings_text(inventory)),
    ]
    made += [
        (f"host_vars/{name}.yml", "0644", text(["---", *comment(f"What {name} has and other nodes do not."), *own]))
        for name in inventory["hosts"]
        if (own := host_settings(inventory, name))
    ]
    return [{"path": path, "mode": mode, "content": content} for path, mode, content in made]


def netplan(wanted: t.Sequence[t.Any]) -> str:
    """Return the netplan configuration that gives one node its missing addresses."""
    tree: Text = {"network": {"version": 2}}
    for entry in wanted:
        kind = tree["network"].setdefault("bonds" if entry.end.bond else "ethernets", {})
        kind[entry.end.name] = {"dhcp4": False, "dhcp6": False, "link-local": [], "mtu": entry.mtu, "addresses": [str(entry.address)]}
    return str(yaml.safe_dump(tree, sort_keys=False))


def advice(missing: t.Mapping[str, t.Sequence[t.Any]]) -> Text:
    """Return the file with the missing addresses, with a netplan text for each node. Ansible does not read a file of this name as an inventory."""
    return {
        "path": "netplan.md",
        "mode": "0644",
        "content": "".join([_SUGGESTED_ADDRESSES, *(f"\n## {name}\n\n```yaml\n{netplan(wanted)}```\n" for name, wanted in missing.items())]),
    }


def advice_note(missing: t.Mapping[str, t.Sequence[t.Any]]) -> str:
    """Return the same for printing."""
    start = "Addresses that the link lacks, as an example that has not been applied: /etc/netplan/60-gb10-fabric.yaml (mode 600), then `netplan try`.\n"
    return start + "".join(f"\n# {name}\n{netplan(wanted)}" for name, wanted in missing.items())
