# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a completion's traffic went. Names and states of the devices are those that two Sparks with one cable showed (rdma link); no one has published
their counters before and after a completion, so those figures are composed. The lab's are recorded."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import fabric_traffic
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.evidence import Unseen

#: config.json of nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4, in short: 40 Mamba, 40 expert and 8 attention layers, with one all-reduce each.
NEMOTRON = {"architectures": ["NemotronHForCausalLM"], "num_hidden_layers": 88, "hidden_size": 4096, "dtype": "bfloat16"}
QWEN = {"architectures": ["Qwen3MoeForCausalLM"], "num_hidden_layers": 94, "hidden_size": 4096, "dtype": "bfloat16"}
LAB = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 256, "dtype": "float32"}
TP2 = {"tensor": 2, "pipeline": 1, "data": 1, "expert": False}
ASKED = {"prompt_tokens": 500, "tokens": 1, "seconds": 0.9}
NEEDED = 500 * 89 * 4096 * 2


def needed(facts=None, dtype="auto", parallel=None, nodes=2, completion=None):
    return fabric_traffic.needed_bytes(NEMOTRON if facts is None else facts, dtype, parallel or TP2, nodes, completion or ASKED)


# --- what is needed -------------------------------------------------------------------------------------------------------


def test_bytes_that_a_completion_needs():
    assert needed() == NEEDED == 364_544_000
    assert needed(QWEN) == 500 * (94 * 2 + 1) * 4096 * 2
    assert needed(LAB, "bfloat16", completion={"prompt_tokens": 1001, "tokens": 3}) == 1003 * 5 * 256 * 2
    # In a ring of four, each node sends the data of every all-reduce 1.5 times.
    assert needed(parallel={**TP2, "tensor": 4}, nodes=4) == NEEDED * 1.5


@pytest.mark.parametrize(("dtype", "own", "size"), [("auto", "bfloat16", 2), ("auto", "float32", 2), ("float32", "bfloat16", 4), ("half", None, 2)])
def test_bytes_of_a_value(dtype, own, size):
    assert fabric_traffic.value_bytes(dtype, {"dtype": own}) == size


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parallel": {**TP2, "tensor": 1, "pipeline": 2}}, "a formula for this layout"),
        ({"parallel": {**TP2, "data": 2}}, "a formula for this layout"),
        ({"parallel": {**TP2, "tensor": 4}}, "tensor 4, pipeline 1, data 1 on 2 nodes"),
        ({"facts": {**NEMOTRON, "architectures": ["GptOssForCausalLM"]}}, "all-reduce volume is unknown for GptOssForCausalLM"),
        ({"facts": {}}, "an architecture that config.json does not name"),
        ({"facts": {**NEMOTRON, "num_hidden_layers": None}}, "num_hidden_layers"),
        ({"facts": {**NEMOTRON, "dtype": None}}, "type of the values"),
        ({"facts": {**NEMOTRON, "dtype": "float8_e4m3fn"}}, "float8_e4m3fn"),
        ({"completion": {"error": "it was not asked for"}}, "it was not asked for"),
    ],
)
def test_what_has_no_formula_is_unknown(change, words):
    with pytest.raises(Unseen, match=words):
        needed(**change)


# --- where it went --------------------------------------------------------------------------------------------------------

#: The cable is in the first cage: the two twins there are up, the others are down.
SPARK = {"rocep1s0f0": "enp1s0f0np0", "roceP2p1s0f0": "enP2p1s0f0np0", "rocep1s0f1": "enp1s0f1np1", "roceP2p1s0f1": "enP2p1s0f1np1"}
ADDRESS = {"enp1s0f0np0": "192.168.100.10", "enP2p1s0f0np0": "192.168.101.10", "enP7s7": "10.0.0.10"}
SETTINGS = {
    "address": "192.168.100.10",
    "fabric_fallback": "none",
    "fabric_interfaces": [],
    "rdma_devices": ["rocep1s0f0", "roceP2p1s0f0"],
}


def sample(at, sent, uncounted=()):
    """Return a node's counters at a time; ``sent`` is the number of bytes above their start."""
    devices = {name: {"netdevs": [netdev], "sent": None if name in uncounted else 4 * 88210 + sent.get(name, 0)} for name, netdev in SPARK.items()}
    interfaces = {
        name: {"addresses": [ADDRESS[name]] if name in ADDRESS else [], "sent": 10_000 + sent.get(name, 0)} for name in (*SPARK.values(), "enP7s7", "lo")
    }
    return {"at": at, "devices": devices, "interfaces": interfaces}


def looks(sent, idle=None, uncounted=()):
    """Return two measurements of 0.1 s, 2 s apart. Between them ``sent`` bytes were sent in addition to ``idle`` bytes per second."""
    times = (100.0, 100.1, 102.1, 102.2)
    rates = idle or {}
    samples = [sample(at, {name: rate * (at - times[0]) for name, rate in rates.items()}, uncounted) for at in times]
    for counts in samples[2:]:
        for kind in ("devices", "interfaces"):
            for name, count in counts[kind].items():
                if count["sent"] is not None:
                    count["sent"] += sent.get(name, 0)
    return samples[:2], samples[2:]


def judged(sent, settings=None, **traffic):
    """Return id, verdict and message of each finding about spark-1."""
    inputs = {"facts": NEMOTRON, "dtype": "auto", "parallel": TP2, "completion": ASKED}
    own = {**SETTINGS, **(settings or {})}
    good = looks({"rocep1s0f0": NEEDED // 2, "roceP2p1s0f0": NEEDED // 2})
    findings = fabric_traffic.judge({"spark-1": looks(sent, **traffic), "spark-2": good}, inputs, {"spark-1": own, "spark-2": SETTINGS}, {})
    assert {finding["verdict"] for finding in findings if finding["node"] == "spark-2"} == {"pass"}
    return [(finding["id"], finding["verdict"], finding["message"]) for finding in findings if finding["node"] == "spark-1"]


def test_traffic_by_rdma_over_both_twins_passes():
    fabric, devices = judged({"rocep1s0f0": 190e6, "roceP2p1s0f0": 180e6, "enP7s7": 90_000})
    assert fabric[:2] == ("proof.fabric", "pass")
    assert "370.0 MB by RDMA over rocep1s0f0, roceP2p1s0f0" in fabric[2] and "need 364.5 MB" in fabric[2]
    assert devices[:2] == ("proof.fabric_devices", "pass")


def test_a_twin_that_sends_next_to_nothing_warns():
    fabric, devices = judged({"rocep1s0f0": 400e6, "roceP2p1s0f0": 1e6})
    assert fabric[1] == "pass" and devices[:2] == ("proof.fabric_devices", "warn")
    assert devices[2] == "roceP2p1s0f0 sent next to nothing: rocep1s0f0 400.0 MB, roceP2p1s0f0 1.0 MB."
    # A device that is not in the inventory may be idle, and a single device has nothing to share.
    assert [finding[0] for finding in judged({"rocep1s0f0": 400e6}, {"rdma_devices": ["rocep1s0f0"]})] == ["proof.fabric"]
    assert [finding[0] for finding in judged({"rocep1s0f0": 400e6}, {"rdma_devices": []})] == ["proof.fabric"]


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"enp1s0f0np0": 380e6, "rocep1s0f0": 20_000}, "380.0 MB by TCP over enp1s0f0np0"),
        ({"enP7s7": 380e6, "rocep1s0f0": 20_000}, "380.0 MB outside the fabric over enP7s7"),
    ],
    ids=["TCP over the fabric", "the management network"],
)
def test_traffic_that_is_not_where_it_belongs_blocks(sent, words):
    ((id, verdict, message),) = judged(sent)
    assert (id, verdict) == ("proof.fabric", "block") and words in message


def test_tcp_over_the_fabric_is_fine_where_the_inventory_allows_it():
    ((_id, verdict, message),) = judged({"enp1s0f0np0": 380e6}, {"fabric_fallback": "tcp"})
    assert verdict == "pass" and "380.0 MB by TCP over enp1s0f0np0" in message
    ((_id, verdict, _message),) = judged({"enP7s7": 380e6}, {"fabric_fallback": "tcp"})
    assert verdict == "block"
    # If interfaces are listed, only they are the fabric.
    ((_id, verdict, _message),) = judged({"enp1s0f0np0": 380e6}, {"fabric_fallback": "tcp", "fabric_interfaces": ["enp1s0f1np1"]})
    assert verdict == "block"


def test_what_the_node_always_sends_does_not_count():
    """A copy at 200 MB/s over the fabric does not count as traffic of the ranks, nor a download over the management network as a fallback."""
    idle = {"rocep1s0f0": 200e6, "enP7s7": 200e6}
    assert judged({}, idle=idle)[0][1] == "unknown"
    assert judged({"rocep1s0f0": 380e6}, {"rdma_devices": []}, idle=idle)[0][1] == "pass"
    assert judged({"enP7s7": 380e6}, idle=idle)[0][1] == "block"


def burst(*names):
    """Return two measurements. In the first, these devices sent 1 GB for other prompts; the traffic of one completion followed."""
    before, after = looks(dict.fromkeys(names, NEEDED))
    for counts in (before[1], *after):
        for name in names:
            counts["devices" if name in counts["devices"] else "interfaces"][name]["sent"] += 1_000_000_000
    return before, after


@pytest.mark.parametrize(
    ("names", "verdict", "words"),
    [
        (["rocep1s0f0"], "pass", "364.5 MB went over rocep1s0f0, roceP2p1s0f0, rocep1s0f1, roceP2p1s0f1 during one completion"),
        (["rocep1s0f0", "enP7s7"], "unknown", "where a completion's traffic went"),
        (["enP7s7"], "unknown", "where a completion's traffic went"),
    ],
)
def test_on_a_busy_node_only_one_way_that_sent_as_much_is_left(names, verdict, words):
    inputs = {"facts": NEMOTRON, "dtype": "auto", "parallel": TP2, "completion": ASKED}
    findings = fabric_traffic.judge({"spark-1": burst(*names), "spark-2": looks({})}, inputs, dict.fromkeys(("spark-1", "spark-2"), SETTINGS), {})
    assert findings[0]["node"] == "spark-1" and findings[0]["verdict"] == verdict and words in findings[0]["message"]


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (({}, {}, ()), "this node sent nothing"),
        (({"rocep1s0f0": 100e6}, {}, ()), "this node sent rocep1s0f0 100.0 MB"),
        (({}, {}, tuple(SPARK)), "no RDMA device counts it (rocep1s0f0, roceP2p1s0f0, rocep1s0f1, roceP2p1s0f1)"),
        (({"rocep1s0f0": -100_000}, {}, ()), "its count went backwards"),
    ],
    ids=["nothing", "a part", "not counted", "reset"],
)
def test_what_cannot_be_seen_is_unknown(before, words):
    sent, idle, uncounted = before
    ((id, verdict, message),) = judged(sent, idle=idle, uncounted=uncounted)
    assert (id, verdict) == ("proof.fabric", "unknown") and words in message


def test_a_layout_without_a_formula_is_unknown_once():
    inputs = {"facts": {}, "dtype": "auto", "parallel": TP2, "completion": ASKED}
    (finding,) = fabric_traffic.judge({"spark-1": looks({}), "spark-2": looks({})}, inputs, {}, {})
    assert (finding["node"], finding["verdict"]) == ("cluster", "unknown") and "checks" in finding["remedy"]


def test_a_node_that_was_looked_at_once_is_unknown():
    inputs = {"facts": NEMOTRON, "dtype": "auto", "parallel": TP2, "completion": ASKED}
    findings = fabric_traffic.judge({"spark-1": [None, looks({})[1]], "spark-2": [None, None]}, inputs, dict.fromkeys(("spark-1", "spark-2"), SETTINGS), {})
    assert [(finding["node"], finding["verdict"]) for finding in findings] == [("spark-1", "unknown"), ("spark-2", "unknown")]


@pytest.mark.parametrize(
    ("nets", "fallback", "verdict"),
    [
        ({"IB": "NCCL INFO NET/IB : Using [0]rocep1s0f1:1/RoCE"}, "none", "pass"),
        ({"Socket": "NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>"}, "none", "block"),
        ({"Socket": "NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>"}, "tcp", "pass"),
        ({"IB": "NCCL INFO NET/IB : Using [0]rocep1s0f1:1/RoCE", "Socket": "NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>"}, "none", "block"),
        ({}, "none", None),
    ],
)
def test_what_nccl_says_of_itself(nets, fallback, verdict):
    inputs = {"facts": {}, "dtype": "auto", "parallel": TP2, "completion": ASKED}
    findings = fabric_traffic.judge({}, inputs, {"spark-1": {**SETTINGS, "fabric_fallback": fallback}}, {"spark-1": nets})
    assert [finding["verdict"] for finding in findings if finding["id"] == "proof.fabric_nccl"] == ([verdict] if verdict else [])
