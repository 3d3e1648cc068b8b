# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judges the inputs of all hosts together, for problems that only show between hosts. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import functools
import ipaddress
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import Problem
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding, problem_finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs.settings import Failure, Problems, only_if, short
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs.values import CLUSTER_WIDE
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.checks import CLUSTER

Finding = dict[str, t.Any]
Answers = dict[str, dict[str, t.Any]]

#: Ids of findings that are made here.
IDS = (
    "input.address",
    "input.address_family",
    "input.cluster_group",
    "input.confirm",
    "input.differs",
    "input.forks",
    "input.head",
    "input.head_is_worker",
    "input.limit",
    "input.no_role",
    "input.nodes",
    "input.parallel",
    "input.same_address",
    "input.same_host",
    "input.serial",
    "input.tensor_heads",
    "input.two_heads",
    "input.worker",
)

#: The largest number of nodes with which a cluster was seen to work.
TRIED = 2

#: Variables with the passwords for Ansible's login. Ansible evaluates them before any task, and its error names no variable, so the
#: playbooks judge them first.
PASSWORDS = (
    "ansible_become_pass",
    "ansible_become_password",
    "ansible_password",
    "ansible_ssh_pass",
    "ansible_ssh_password",
    "ansible_ssh_private_key_passphrase",
    "ansible_sudo_pass",
)


def judge_cluster(answers: Answers, play: dict[str, t.Any]) -> list[Finding]:
    """Judge the inputs of a play from the answers of ``inputs_info`` for its hosts. This contacts no node.

    ``play`` has ``groups`` (name to hosts), ``hosts`` (all hosts of the play), ``batch`` (hosts of this batch), ``limit`` (the
    --limit pattern or empty), ``forks``, ``consent`` (the word of gb10_allow that a job needs, or empty), and
    ``of_mode``, whether this is one cluster of a mode.
    """
    problems = list(_differences(answers))
    first = next(iter(answers.values()))
    values, profile = first["settings"], first["profile"]
    nodes: list[str] = []
    if play["consent"] and play["consent"] not in values.get("gb10_allow", [play["consent"]]):
        remedy = f"choose {play['consent']} in the survey, or run with -e gb10_allow={play['consent']}"
        problems.append(Problem("input.confirm", "gb10_allow", f"lacks {play['consent']}, which this job needs", remedy=remedy))
    if {"gb10_cluster_group", "gb10_head_host", "gb10_worker_hosts"} <= set(values):
        head, workers = values["gb10_head_host"], values["gb10_worker_hosts"]
        nodes = [*([head] if head else []), *workers]
        present = {node: answers[node] for node in dict.fromkeys(nodes) if node in answers}
        problems += [*_members(values["gb10_cluster_group"], head, workers, play), *_reach(nodes, play), *_between(present)]
        if head in present:
            problems += _api(present, head)
        if profile is not None and "gb10_ray_gpus" in values:
            problems += _sizes(profile, nodes, values["gb10_ray_gpus"], play.get("of_mode", False))
    findings = gathered({host: answer["findings"] for host, answer in answers.items()}) + [problem_finding(problem, CLUSTER) for problem in problems]
    return findings or [finding("input", CLUSTER, "pass", f"{profile['id'] if profile else first['settings']['gb10_cluster_name']} on {', '.join(nodes)}.")]


def judge_passwords(failures: t.Mapping[str, t.Mapping[str, Failure]]) -> list[Finding]:
    """Judge the passwords that could not be evaluated, by host and variable; one that fails on all of several hosts is a finding of the cluster."""
    return gathered({host: [problem_finding(failure.problem(name), host) for name, failure in failed.items()] for host, failed in failures.items()})


def gathered(findings: dict[str, list[Finding]]) -> list[Finding]:
    """Return the findings of all hosts; one that every host has becomes a finding of the cluster."""
    result: list[Finding] = []
    for entry in (entry for of_host in findings.values() for entry in of_host):
        shared = {**entry, "node": CLUSTER}
        everywhere = len(findings) > 1 and all(shared in [{**other, "node": CLUSTER} for other in others] for others in findings.values())
        named = shared if everywhere else entry
        if named not in result:
            result.append(named)
    return result


def _differences(answers: Answers) -> Problems:
    wrong = functools.partial(Problem, "input.differs")
    for name in CLUSTER_WIDE:
        values = {host: answer["settings"][name] for host, answer in answers.items() if name in answer["settings"]}
        marks = [answer["marks"][name] for answer in answers.values() if name in answer["marks"]]
        keys = sorted({key for mark in marks for key in mark if any(other.get(key) != mark[key] for other in marks)})
        what, remedy = "has one value for the whole cluster, but differs between hosts:", f"set {name} once, for the group of the cluster"
        given = list(values.values())
        if any(value != given[0] for value in given):
            yield wrong(name, f"{what} {', '.join(f'{host} {short(value)}' for host, value in values.items())}", remedy=remedy, measured=values)
        if keys:
            remedy += "; what one host alone needs goes into its gb10_host_env" if name == "gb10_env" else ""
            yield wrong(name, f"{what} {', '.join(keys)}", remedy=remedy, measured=keys)


def _members(group: str, head: str, workers: list[str], play: dict[str, t.Any]) -> Problems:
    """Yield problems of the cluster's members: one head, workers that exist, no node twice, no node without a role."""
    groups, everyone = play["groups"], play["groups"].get("all", [])
    members = groups.get(group, [])
    heads = [host for host in members if host in groups.get("gb10_head", [])]
    of_workers = functools.partial(Problem, "input.worker", "gb10_worker_hosts")
    yield from only_if(
        (
            not members,
            Problem(
                "input.cluster_group",
                "gb10_cluster_group",
                f"the inventory has no hosts in a group {group}",
                remedy="choose it on the command line: -e gb10_cluster_group=NAME",
            ),
        ),
        (
            head not in everyone,
            Problem(
                "input.head",
                "gb10_head_host",
                f"'{head}' is not a host of the inventory",
                "exactly one head",
                f"put one host into the group gb10_head below {group}, or set gb10_head_host to one of its hosts",
            ),
        ),
        (
            len(heads) > 1,
            Problem(
                "input.two_heads",
                "",
                f"the group gb10_head holds {len(heads)} hosts of {group}: {', '.join(heads)}",
                "exactly one head",
                "leave one host in gb10_head and put the others into gb10_workers",
            ),
        ),
        (
            head in workers,
            Problem(
                "input.head_is_worker",
                "gb10_worker_hosts",
                f"{head} is the head and a worker",
                remedy="take it out of gb10_workers (or gb10_worker_hosts)",
                node=head,
            ),
        ),
    )
    for worker in dict.fromkeys(workers):
        times = workers.count(worker)
        yield from only_if(
            (
                worker not in everyone,
                of_workers(f"'{worker}' is not a host of the inventory", remedy="add it to the inventory, or take it out of gb10_worker_hosts"),
            ),
            (worker in everyone and times > 1, of_workers(f"{worker} is listed {times} times", remedy="list every worker once", node=worker)),
        )
    remedy = "put it into the group gb10_workers, or take it out of the cluster's group"
    for host in sorted(set(play["batch"]).difference((head, *workers, *heads))):
        yield Problem("input.no_role", "", f"{host} is in {group} but is neither the head nor a worker", remedy=remedy, node=host)


def _reach(nodes: list[str], play: dict[str, t.Any]) -> Problems:
    """Return problems of a play that does not handle all nodes at once."""
    missing = [node for node in nodes if node in play["groups"].get("all", []) and node not in play["hosts"]]
    without_limit = f"run without --limit (it is '{play['limit']}')"
    return only_if(
        (
            missing,
            Problem(
                "input.limit",
                "",
                f"the play leaves out {', '.join(missing)} of the cluster's nodes {', '.join(nodes)}",
                remedy=without_limit if play["limit"] else "these hosts are in another group: choose it with -e gb10_cluster_group=NAME",
            ),
        ),
        (
            sorted(play["batch"]) != sorted(play["hosts"]),
            Problem(
                "input.serial",
                "",
                f"the play handles {len(play['batch'])} of {len(play['hosts'])} hosts at once; half a cluster can't serve",
                remedy="remove `serial` from the play",
            ),
        ),
        (
            play["forks"] < len(nodes),
            Problem(
                "input.forks",
                "",
                f"forks is {play['forks']}, the cluster has {len(nodes)} nodes; head and workers are watched at the same time",
                remedy=f"run with --forks {len(nodes)} or more",
                measured=play["forks"],
                needed=len(nodes),
            ),
        ),
    )


def _between(answers: Answers) -> Problems:
    """Yield problems of values that no two nodes may share."""
    addresses: dict[str, str] = {}
    machines: dict[tuple[str, ...], str] = {}
    first_node = next(iter(answers), "")
    for node, answer in answers.items():
        address, login = answer["settings"].get("gb10_fabric_address"), answer["login"]
        first = addresses.setdefault(address, node) if address else node
        if first != node:
            what = f"{address} is also the address of {first}"
            yield Problem("input.same_address", "gb10_fabric_address", what, remedy="give every node its own", measured=address, node=node)
        family, other = _family(address), _family(answers[first_node]["settings"].get("gb10_fabric_address"))
        if family and other and family != other:
            what = f"{address} is an address of {family}, and that of {first_node} one of {other}"
            yield Problem("input.address_family", "gb10_fabric_address", what, remedy="give all nodes addresses of one kind", measured=address, node=node)
        first = machines.setdefault(tuple(str(login[part]) for part in ("connection", "host", "port")), node)
        if first != node:
            what, remedy = f"{login['host']} is also {first}; one machine can't be two nodes", "give every node its own ansible_host"
            yield Problem("input.same_host", "ansible_host", what, remedy=remedy, measured=login["host"], node=node)


def _family(address: str | None) -> str:
    """Return the family of an address, empty for none."""
    try:
        return f"IPv{ipaddress.ip_address(address or '').version}"
    except ValueError:
        return ""


def _api(answers: Answers, head: str) -> Problems:
    """Yield problems of the API's address, which is one of the head. Its default is the head's fabric address, which is judged elsewhere."""
    values = answers[head]["settings"]
    if "gb10_api_address" not in values or values["gb10_api_address"] == values.get("gb10_fabric_address"):
        return
    address = values["gb10_api_address"]
    owner = next((node for node, answer in answers.items() if node != head and answer["settings"].get("gb10_fabric_address") == address), None)
    wrong = functools.partial(Problem, "input.address", "gb10_api_address", measured=address, node=head)
    remedy = f"set gb10_api_address to an IP address of {head}"
    try:
        everywhere = ipaddress.ip_address(address).is_unspecified
    except ValueError:
        yield wrong(f"'{short(address)}' is not an IP address", remedy=remedy)
        return
    if owner:
        yield wrong(f"{address} is the address of {owner}, but the API listens on the head", remedy=remedy)
    elif everywhere and values.get("gb10_api_key") == "none":
        what = f"{address} listens on all networks and gb10_api_key is none: anyone who reaches the head can use the model"
        yield wrong(what, remedy="name one address of the head, or set gb10_api_key to generate", verdict="warn")
    elif everywhere:
        yield wrong(f"{address} listens on all networks of the head", remedy="name the one address that its users come to", verdict="warn")


def _sizes(profile: dict[str, t.Any], nodes: list[str], ray_gpus: int, of_mode: bool) -> Problems:
    """Return problems of the sizes: the profile's ranks must be as many as the nodes' GPUs, and tensor parallel must divide the attention heads."""
    where, sizes = f"profile {profile['id']}", profile["parallel"]
    place = f"{where} on {', '.join(nodes)}" if of_mode else where
    ranks, gpus = sizes["tensor"] * sizes["pipeline"] * sizes["data"], len(nodes) * ray_gpus
    heads = profile["memory"]["config"].get("num_attention_heads")
    alone = f"-e gb10_single={nodes[0]} (or another node) serves it on one node; or " if len(nodes) > 1 and ranks == ray_gpus else ""
    return only_if(
        (
            len(nodes) > TRIED,
            Problem(
                "input.nodes",
                "",
                f"{len(nodes)} nodes: this collection is not known to have run on more than {TRIED}; arguments and places of their ranks alone were tested",
                remedy="report how it went; to leave this out: gb10_silenced: [input.nodes]",
                verdict="warn",
                measured=len(nodes),
                needed=TRIED,
            ),
        ),
        (
            ranks != gpus,
            Problem(
                "input.parallel",
                place,
                f"asks for {ranks} ranks (tensor {sizes['tensor']} x pipeline {sizes['pipeline']} x data {sizes['data']}), "
                f"the cluster has {gpus} GPUs ({len(nodes)} nodes, gb10_ray_gpus {ray_gpus})",
                remedy="choose other nodes for it, or another profile for these" if of_mode else f"{alone}add or remove workers, or choose another profile",
                measured=gpus,
                needed=ranks,
            ),
        ),
        (
            profile["executor"] == "native" and sizes["data"] > 1,
            Problem(
                "input.parallel",
                where,
                f"executor native spreads tensor and pipeline ranks, but data is {sizes['data']}",
                remedy="set parallel.data to 1, or executor to ray",
                measured=sizes["data"],
                needed=1,
            ),
        ),
        (
            heads and heads % sizes["tensor"],
            Problem(
                "input.tensor_heads",
                where,
                f"tensor {sizes['tensor']} does not divide the model's {heads} attention heads",
                remedy="change parallel.tensor in the profile",
                measured=sizes["tensor"],
                needed=f"a divisor of {heads}",
            ),
        ),
    )
