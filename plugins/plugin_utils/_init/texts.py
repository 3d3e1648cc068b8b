# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The texts of an inventory, with a comment for every value. This plugin util is PRIVATE to the collection.

Nothing in them changes from one run to the next unless a node does: a second run must find its own files as they are.
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
#: What Ansible would evaluate when it reads a value.
_TEMPLATE = re.compile(r"\{\{|\{%|\{#")

#: Settings that go into the group's file where all nodes agree, and into a node's own file otherwise, each with its comment.
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

_SECRETS = """\
---
# Secrets. Encrypt this file before it leaves this directory: ansible-vault encrypt {directory}/{group}/secrets.yml
# (then run with --ask-vault-pass, and take it out of .gitignore if you like).
#
# The API's key and Ray's token are not here: the first bring-up makes them and keeps them on the nodes, in /etc/gb10/secrets.

# A token of huggingface.co, for gated models; needed while one is downloaded, and held by no serving container.
gb10_hf_token: ""
"""

_GITIGNORE = """\
# Secrets that are not encrypted stay out of version control.
secrets.yml
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
    """Return a node's text for use in a line: no line breaks, nothing that can't be printed."""
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
    """Return the lines of one variable; a list takes a line for each entry."""
    start = " " * indent
    if isinstance(value, list) and value:
        return [f"{start}{name}:", *(f"{start}  - {scalar(one)}" for one in value)]
    return [f"{start}{name}: {scalar(value)}"]


def text(lines: t.Iterable[str]) -> str:
    """Return lines as a file's text."""
    return "".join(f"{line}\n" for line in lines)


def common(hosts: Text, name: str) -> bool:
    """Return whether all hosts have the same value of a setting."""
    first, *others = (host["settings"][name] for host in hosts.values())
    return all(value == first for value in others)


def hosts_text(found: Text) -> str:
    """Return the hosts, how Ansible reaches them, and their addresses on the link."""
    hosts, head = found["hosts"], found["head"]
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


def profile_lines(found: Text) -> Lines:
    """Return the profile, and which others fit."""
    many = len(found["hosts"])
    size = f" of {found['class_gb']} GB" if found["class_gb"] else ""
    lines = comment("What is served. `ansible-playbook gb10.cluster.plan --tags profiles` shows more.")
    lines += comment(f"Those that fit {many} node(s){size}, and where their models are whole on disk:")
    for one in found["fitting"]:
        where = ", ".join(f"{name} in {cache}" for name, cache in one["holders"].items()) or "on no node"
        lines += comment(f"{one['id']}: {one['repo']}, {where}", item=True)
    if not found["fitting"]:
        lines += comment("none that is shipped", item=True)
    return [*lines, *(["# gb10_profile: /path/of/your/own.yml"] if found["profile"] is None else setting("gb10_profile", found["profile"]))]


def host_settings(found: Text, name: str) -> Lines:
    """Return the settings that one node has for itself, with comments."""
    host = found["hosts"][name]
    lines: Lines = []
    for key in PER_HOST:
        value = host["settings"][key]
        if not common(found["hosts"], key) and value is not None:
            lines += ["", *comment(PER_HOST[key]), *(comment(f"Found: {host['cache']}.") if key == "gb10_hf_home" else []), *setting(key, value)]
    return lines


def settings_text(found: Text) -> str:
    """Return the settings of the whole cluster."""
    hosts = found["hosts"]
    first = hosts[found["head"]]
    lines = [
        "---",
        *comment("Every variable you are likely to change. `ansible-doc -t role gb10.cluster.gb10` explains all of them."),
        *comment("Written once by gb10.cluster.init from what the nodes reported. It is yours now: init never overwrites a file."),
        "",
        *profile_lines(found),
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
                *comment("No models were found in the directories that were searched (gb10_init_model_roots)."),
                f"# {key}: /var/lib/gb10/huggingface",
            ]
    if found["gpus"] != 1:
        lines += ["", *comment("GPUs that the driver lists on each node."), *setting("gb10_ray_gpus", found["gpus"])]
    if found["fallback"] != "none":
        lines += [
            "",
            *comment("Asked for when this was written: NCCL may use TCP, which is many times slower than InfiniBand."),
            *setting("gb10_fabric_fallback", found["fallback"]),
        ]
    lines += ["", *api_lines(found)]
    return text(lines) + "# gb10_api_port: 8000\n\n" + _SETTINGS_END.format(head=found["head"])


def api_lines(found: Text) -> Lines:
    """Return the settings of the API's address."""
    lines = comment("Where the API listens: an address of the head. The default is its fabric address, which only the nodes reach.")
    if not found["api"]:
        return [*lines, "# gb10_api_address: 10.0.0.11"]
    address, interface, came = found["api"]
    where = "where Ansible reached the head" if came else "which is not part of the link"
    lines += comment(f"This one is on {interface}, {where}. Where DHCP gave it, see that it lasts.")
    return [*lines, *setting("gb10_api_address", address)]


def files(found: Text) -> list[Text]:
    """Return all files of the inventory: ``path`` below its directory, ``mode``, ``content``."""
    made = [
        (".gitignore", "0644", _GITIGNORE),
        ("hosts.yml", "0644", hosts_text(found)),
        (f"{GROUP_VARS}/settings.yml", "0644", settings_text(found)),
        (f"{GROUP_VARS}/secrets.yml", "0600", _SECRETS.format(directory=found["directory"], group=GROUP_VARS)),
    ]
    made += [
        (f"host_vars/{name}.yml", "0644", text(["---", *comment(f"What {name} has and other nodes do not."), *own]))
        for name in found["hosts"]
        if (own := host_settings(found, name))
    ]
    return [{"path": path, "mode": mode, "content": content} for path, mode, content in made]


def netplan(wanted: t.Sequence[t.Any]) -> str:
    """Return the netplan configuration that gives one node its missing addresses."""
    tree: Text = {"network": {"version": 2}}
    for one in wanted:
        kind = tree["network"].setdefault("bonds" if one.end.bond else "ethernets", {})
        kind[one.end.name] = {"dhcp4": False, "dhcp6": False, "link-local": [], "mtu": one.mtu, "addresses": [str(one.address)]}
    return str(yaml.safe_dump(tree, sort_keys=False))


def advice(missing: t.Mapping[str, t.Sequence[t.Any]]) -> Text:
    """Return the file with the missing addresses, a netplan text a node. Ansible does not read a file of this name as an inventory."""
    return {
        "path": "netplan.md",
        "mode": "0644",
        "content": "".join([_SUGGESTED_ADDRESSES, *(f"\n## {name}\n\n```yaml\n{netplan(wanted)}```\n" for name, wanted in missing.items())]),
    }


def advice_note(missing: t.Mapping[str, t.Sequence[t.Any]]) -> str:
    """Return the same for printing."""
    start = "Addresses that the link lacks, as an example that has not been applied: /etc/netplan/60-gb10-fabric.yaml (mode 600), then `netplan try`.\n"
    return start + "".join(f"\n# {name}\n{netplan(wanted)}" for name, wanted in missing.items())
