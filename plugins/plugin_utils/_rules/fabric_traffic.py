# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether traffic between ranks leaves a node over the fabric: compares the bytes sent for one completion with those that the model needs.

This plugin util is PRIVATE to the collection.

Every rank of a tensor parallel engine computes a part of each layer, and an all-reduce adds up the parts. In a ring of n nodes, each node sends the values of
one token between two layers 2 (n - 1) / n times for each of these sums. That is the minimum; protocols, logits and drafts add to it.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.checks import CLUSTER
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.evidence import Entry, Unseen

Finding = dict[str, t.Any]

#: Sums (all-reduces) of one layer by architecture, from the sources of vLLM 0.20 to 0.32 (vllm/model_executor/models): one after attention or Mamba
#: (RowParallelLinear), one after the MLP or the experts. A layer of Nemotron-H has only one of these.
SUMS_OF_A_LAYER = {
    "LlamaForCausalLM": 2,
    "MiniMaxM2ForCausalLM": 2,
    "MistralForCausalLM": 2,
    "NemotronHForCausalLM": 1,
    "Qwen2ForCausalLM": 2,
    "Qwen3ForCausalLM": 2,
    "Qwen3MoeForCausalLM": 2,
    "Qwen3NextForCausalLM": 2,
    "Qwen3_5ForConditionalGeneration": 2,
    "Qwen3_5MoeForConditionalGeneration": 2,
}
#: The embeddings are divided by vocabulary (VocabParallelEmbedding), which needs one more sum.
SUMS_OF_EMBEDDING = 1

BYTES_OF = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "float": 4}

#: Minimum share of the needed bytes that must be measured.
LEAST_SHARE = 0.5
#: A device is silent if it sent less than this share of an equal part of the traffic.
SILENT_SHARE = 0.1

#: Remedies for traffic over the wrong devices.
NO_RDMA = (
    "see which variable of the ranks keeps NCCL from InfiniBand (NCCL_NET, NCCL_IB_DISABLE), and what NCCL_DEBUG=INFO in gb10_env makes it say in the log"
)
OUTSIDE = (
    "keep {} out of what names interfaces (gb10_control_interface, gb10_fabric_interfaces; GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME in gb10_host_env), "
    "then run with -e gb10_allow=restart"
)

#: The interface that leads to no other machine.
LOOPBACK = "lo"


def value_bytes(dtype: str, facts: Entry) -> int:
    """Return the bytes of one value between layers, given the engine's ``--dtype``. Raises :class:`Unseen` when that is unknown.

    vLLM computes a float32 checkpoint with 16 bits unless ``--dtype`` changes that.
    """
    value_type = dtype if dtype != "auto" else "bfloat16" if facts.get("dtype") == "float32" else facts.get("dtype")
    if value_type not in BYTES_OF:
        raise Unseen("the type of the values between layers", f"config.json says {value_type!r}")
    return BYTES_OF[value_type]


def needed_bytes(facts: Entry, dtype: str, parallel: Entry, nodes: int, completion: Entry) -> int:
    """Return the bytes that each of ``nodes`` has to send for a completion. Raises :class:`Unseen` if no formula is known.

    ``facts`` are those of ``model_info``, ``parallel`` the profile's sizes, ``completion`` has ``prompt_tokens`` and ``tokens``.
    """
    if parallel["pipeline"] != 1 or parallel["data"] != 1 or parallel["tensor"] != nodes:
        sizes = ", ".join(f"{name} {parallel[name]}" for name in ("tensor", "pipeline", "data"))
        raise Unseen("a formula for this layout", f"only tensor parallel with one rank per node is supported; this is {sizes} on {nodes} nodes")
    architecture = next(iter(facts.get("architectures") or []), None)
    if architecture not in SUMS_OF_A_LAYER:
        raise Unseen("a formula for this model", f"all-reduce volume is unknown for {architecture or 'an architecture that config.json does not name'}")
    missing = [name for name in ("num_hidden_layers", "hidden_size") if not isinstance(facts.get(name), int)]
    if missing:
        raise Unseen(" and ".join(missing), "config.json does not say")
    if not completion.get("prompt_tokens"):
        raise Unseen("a completion whose prompt was counted", completion.get("error", ""))
    tokens = completion["prompt_tokens"] + completion["tokens"] - 1
    sums = facts["num_hidden_layers"] * SUMS_OF_A_LAYER[architecture] + SUMS_OF_EMBEDDING
    return round(tokens * sums * facts["hidden_size"] * value_bytes(dtype, facts) * 2 * (nodes - 1) / nodes)


class Sent(t.NamedTuple):
    """Bytes that were sent between two measurements: all of them, and those above the idle traffic."""

    all: float
    above_idle: float


def sent_between(before: t.Sequence[Entry], after: t.Sequence[Entry], kind: str) -> dict[str, Sent | None]:
    """Return by name the bytes that a node's ``devices`` or ``interfaces`` (``kind``) sent from the end of one measurement to the beginning of the next.

    The bytes sent during the two measurements, while the engine had no request, are the idle traffic. A name without a counter has None. Raises
    :class:`Unseen` when a count went backwards.
    """
    seconds = after[0]["at"] - before[-1]["at"]
    idle_seconds = sum(look[-1]["at"] - look[0]["at"] for look in (before, after))
    sent: dict[str, Sent | None] = {}
    for name in after[0][kind]:
        counts = [sample[kind].get(name, {}).get("sent") for sample in (before[0], before[-1], after[0], after[-1])]
        if None in counts:
            sent[name] = None
            continue
        if counts != sorted(counts):
            raise Unseen(f"what {name} sent", "its count went backwards meanwhile: the device was reset, or another has its name")
        idle = counts[1] - counts[0] + counts[3] - counts[2]
        rate = idle / idle_seconds if idle_seconds > 0 else 0.0
        sent[name] = Sent(counts[2] - counts[1], max(0.0, counts[2] - counts[1] - rate * seconds))
    return sent


def fabric_interfaces(sample: Entry, settings: Entry) -> list[str]:
    """Return the interfaces of the fabric: those that the inventory names, or else those with the fabric address or an RDMA device."""
    beneath = {netdev for device in sample["devices"].values() for netdev in device["netdevs"]}
    mine = [name for name, interface in sample["interfaces"].items() if name in beneath or settings["address"] in interface["addresses"]]
    return list(settings["fabric_interfaces"]) or mine


def megabytes(count: float) -> str:
    """``2.6 MB``"""
    return f"{count / 1e6:.1f} MB"


def judge_node(node: str, looks: t.Sequence[t.Sequence[Entry] | None], needed: int, settings: Entry) -> list[Finding]:
    """Judge the bytes that a node sent between two measurements (``traffic`` of ``rank_info``), of which ``needed`` bytes went from rank to rank.

    ``settings`` has ``fabric_fallback``, ``address``, ``fabric_interfaces`` and ``rdma_devices``. Raises :class:`Unseen` when the result is unknown.
    """
    before, after = looks
    if not before or not after:
        raise Unseen("what this node sent", "it was not measured twice", "run with --tags proof")
    devices, interfaces = (sent_between(before, after, kind) for kind in ("devices", "interfaces"))
    fabric = fabric_interfaces(after[0], settings)
    rdma = {name: sent for name, sent in devices.items() if sent}
    tcp = {name: sent for name, sent in interfaces.items() if sent and name in fabric}
    others = {name: sent for name, sent in interfaces.items() if sent and name not in (*fabric, LOOPBACK)}
    other = max(others, key=lambda name: others[name].above_idle, default="")
    least, may_be_tcp = LEAST_SHARE * needed, settings["fabric_fallback"] == "tcp"
    measured = {name: round(sent.above_idle) for name, sent in {**rdma, **tcp, **others}.items()}

    def judged(verdict: str, sent: t.Mapping[str, Sent], how: str, remedy: str = "") -> Finding:
        return finding(
            "proof.fabric",
            node,
            verdict,
            f"one completion sent {megabytes(_total(sent).above_idle)} {how} over {', '.join(sent)}; the ranks need {megabytes(needed)} of each other.",
            measured=measured,
            needed=needed,
            remedy=remedy,
        )

    if _total(rdma).above_idle >= least:
        return [judged("pass", rdma, "by RDMA"), *_silent(node, rdma, settings["rdma_devices"], least)]
    if _total(tcp).above_idle >= least:
        return [judged("pass" if may_be_tcp else "block", tcp, "by TCP", "" if may_be_tcp else NO_RDMA)]
    if other and others[other].above_idle >= least:
        return [judged("block", {other: others[other]}, "outside the fabric", OUTSIDE.format(other))]
    # On a busy node the idle traffic may exceed that of a completion. If no other device sent as much, the completion used the right ones.
    allowed, elsewhere = ({**rdma, **tcp}, others) if may_be_tcp else (rdma, {**tcp, **others})
    if _total(allowed).all >= least > _total(elsewhere).all:
        message = f"{megabytes(_total(allowed).all)} went over {', '.join(allowed)} during one completion, next to other traffic, and no more than "
        message += f"{megabytes(_total(elsewhere).all)} elsewhere; the ranks need {megabytes(needed)} of each other."
        return [finding("proof.fabric", node, "pass", message, measured=measured, needed=needed)]
    if not may_be_tcp and not rdma:
        raise Unseen("what this node sent by RDMA", f"no RDMA device counts it ({', '.join(devices) or 'there is none'})")
    most = ", ".join(f"{name} {megabytes(count)}" for name, count in measured.items() if count) or "nothing"
    raise Unseen("where a completion's traffic went", f"the ranks need {megabytes(needed)} of each other, and this node sent {most}")


def _total(sent: t.Mapping[str, Sent]) -> Sent:
    return Sent(sum(amount.all for amount in sent.values()), sum(amount.above_idle for amount in sent.values()))


def _silent(node: str, rdma: t.Mapping[str, Sent], configured: t.Sequence[str], least: float) -> list[Finding]:
    """Return a finding on whether each of several configured RDMA devices carried its share; none for a single device, or for traffic over other devices."""
    sent = {name: rdma[name].above_idle for name in configured if name in rdma}
    if len(configured) < 2 or sum(sent.values()) < least:
        return []
    silent = [name for name in configured if sent.get(name, 0.0) < SILENT_SHARE * sum(sent.values()) / len(configured)]
    shares = ", ".join(f"{name} {megabytes(sent.get(name, 0.0))}" for name in configured)
    return [
        finding(
            "proof.fabric_devices",
            node,
            "warn" if silent else "pass",
            f"{', '.join(silent)} sent next to nothing: {shares}." if silent else f"every configured device sends: {shares}.",
            measured={name: round(count) for name, count in sent.items()},
            needed=list(configured),
            remedy="look at its port with doctor --tags fabric, and at NCCL_IB_HCA in the ranks; half the devices carry half of what two do" if silent else "",
        )
    ]


def judge(
    traffic: t.Mapping[str, t.Sequence[t.Sequence[Entry] | None]], inputs: Entry, settings: t.Mapping[str, Entry], nets: t.Mapping[str, t.Mapping[str, str]]
) -> list[Finding]:
    """Judge which devices carried one completion's traffic, on every node.

    ``traffic`` maps a node to its two measurements, ``inputs`` has the ``facts``, ``dtype``, ``parallel`` and ``completion`` of :func:`needed_bytes`,
    ``nets`` maps a node to the log lines of NCCL there, by network.
    """
    findings = [entry for node, lines in nets.items() for entry in _nccl(node, lines, settings[node])]
    try:
        needed = needed_bytes(nodes=len(traffic), **inputs)
    except Unseen as unseen:
        return [_unknown(CLUSTER, unseen), *findings]
    for node, looks in traffic.items():
        try:
            findings += judge_node(node, looks, needed, settings[node])
        except Unseen as unseen:
            findings.append(_unknown(node, unseen))
    return findings


def _unknown(node: str, unseen: Unseen) -> Finding:
    return finding(
        "proof.fabric",
        node,
        "unknown",
        f"whether the ranks talk over the fabric is unknown: {unseen}.",
        remedy=unseen.remedy or "look by hand (rdma statistic, ip -s link); a profile whose checks leave `fabric` out is not asked",
    )


def _nccl(node: str, nets: t.Mapping[str, str], settings: Entry) -> list[Finding]:
    """Return a finding on the networks that NCCL names in the engine's log on a node; none if it names none."""
    if not nets:
        return []
    sockets = "Socket" in nets and settings["fabric_fallback"] != "tcp"
    remedy = "see why NCCL found no InfiniBand: --device=/dev/infiniband, memlock, NCCL_IB_HCA; gb10_fabric_fallback: tcp allows sockets" if sockets else ""
    line = nets["Socket"] if sockets else "; ".join(nets.values())
    return [finding("proof.fabric_nccl", node, "block" if sockets else "pass", f"NCCL says: {line}", measured=sorted(nets), remedy=remedy)]
