# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory that a model needs on each node, while it loads and while it serves. This module util is PRIVATE to the collection.

One pure formula that needs only Python's standard library, so that a node and the controller get the same result. Everything is in GiB a node
unless a name says otherwise. A node runs one rank of the engine. Every figure has an error, as plus or minus; the errors of independent
parts add up as the root of their squares.

What the engine does with its two settings for memory (vLLM, gpu_worker.py):

- ``gpu_memory_utilization``: the engine measures weights, activations and graphs in a profiling run and gives the KV cache the rest of that share
  of the whole memory. It refuses to start when less than the share is free at the start, or when one sequence of ``max_model_len`` does not fit the cache.
- ``kv_cache_memory_bytes``: the cache gets exactly this size. The share is then only a check at the start and no longer a budget, profiling is skipped, and
  nothing limits the additional memory of weights, activations and the rest. Starts with it were reported to die in the middle of a request
  (eugr/spark-vllm-docker, recipe copies of 2026-09-22), so it is never more than ``tight`` until a start of the same image, profile and driver is recorded.

A node that runs out of unified memory freezes and accepts no login. So the verdict is ``no`` where the worst case exceeds the memory, unless a
start is recorded: the node's own, or a recipe that was reported to run and needs no less (:class:`Report`).
"""

from __future__ import annotations

import collections
import math
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._memory import components, model_facts, recipe

FITS, TIGHT, NO, UNKNOWN = "fits", "tight", "no", "unknown"
#: From best to worst; of several nodes the worst counts.
ORDER = (FITS, TIGHT, UNKNOWN, NO)

#: MemTotal in GiB by memory class. 128: 127600748 kB, the usual value (119.6 to 121.7 were reported). 64: in proportion, none was found.
CLASS_TOTAL = {128: 121.69, 64: 60.84}
#: By how much the MemTotal of equal Sparks differs: 119.6 to 121.7 GiB were reported.
ALIKE = 0.97


# -- one node ----------------------------------------------------------------------------------------------------------


def node_plan(
    facts: t.Mapping[str, t.Any], use: recipe.Settings, node: components.Node, declared: float | None, concurrency: int, reports: t.Sequence[recipe.Report] = ()
) -> dict[str, t.Any]:
    """Return the plan of one node: components, the two figures, verdict and reasons. The cache should hold ``concurrency`` whole sequences at once."""
    beside, own = components.outside(use, node), components.fixed(facts, use, declared)
    out, out_within = components.total_of(beside)
    inner, inner_within = components.total_of(part for part in own if "serving" in part.when)
    kv, states, paged_within = components.paged_bytes(facts, use)
    sequence, state = kv / components.GIB, states / components.GIB
    seqs = use.sequences
    # One whole sequence has to fit, and each sequence needs a block of state; the two share the blocks, so the larger is the least.
    least = max(sequence + state, (use.seqs or 1) * state / (1 + use.drafts))
    easy = sequence + seqs * state
    pinned = None if use.kv_bytes is None else use.kv_bytes / components.GIB
    pool, pool_within = (use.share * node.total - inner, inner_within) if pinned is None else (pinned, 0.1 * least)
    taken = max(pool, least, 0.0)
    serving = out + inner + taken
    within = components.root_of_squares(out_within, inner_within) if use.kv_bytes is not None or pool < least else out_within
    load, load_within = components.total_of(part for part in [*beside, *own] if "loading" in part.when)
    staging = components.CONSTANTS["staging_files" if use.loader == "fastsafetensors" else "staging"]
    load, load_within = load + staging.value, components.root_of_squares(load_within, staging.within)
    recorded = []
    more, serving, within = _recorded(node, node.took, serving, within)
    if more:
        recorded.append(_more(node.took or 0.0, more, "recorded", components.SERVING))
    more, load, load_within = _recorded(node, node.peak, load, load_within)
    if more:
        recorded.append(_more(node.peak or 0.0, more, "recorded_peak", components.LOADING))
    files = model_facts.weights_bytes(facts)
    cache = max(0.0, min((files[0] / components.GIB if files else load), node.total - load))
    result: dict[str, t.Any] = {
        "node": node.name,
        "total_gib": node.total,
        "loading": _figure(node, load, load_within, page_cache_gib=round(cache, 2), driver_sees_gib=round(min(node.total, load + cache), 2)),
        "serving": _figure(node, serving, within),
        "pool_gib": round(pool, 2),
        "one_sequence_gib": round(sequence + state, 3),
        "sequences": max(0, int(pool / (sequence + state))) if sequence + state > 0 else None,
        "at_start": _at_start(use, node),
        "reported": reported(use, weights_gib(facts, use, declared), node, reports),
    }
    of = _Parts(own[0].gib, out, out_within, inner, pool, pool_within, least, easy, sequence, state, load, load_within)
    verdict, reasons = _judged(facts, use, node, of, result)
    title = f"KV cache of {concurrency} x {use.context} tokens"
    if concurrency > 1 and pool < concurrency * (sequence + state):
        verdict = max(verdict, TIGHT, key=ORDER.index)
        title = f"KV cache, part of {concurrency} x {use.context} tokens"
        held = f"{max(0.0, pool / (sequence + state)):.1f} of {concurrency} sequences of {use.context} tokens"
        reasons.append(f"the cache holds {held} at once; others wait or are computed again")
    kept = min(max(taken, 0.0), concurrency * sequence)
    states = min(max(taken - kept, 0.0), seqs * state)
    words = "; ".join(arithmetic for _kind, _size, arithmetic in components.kv_parts(facts, use))
    source = facts.get("source") or "the facts of the model"
    per, rest = f"{seqs} sequences x {state:.4f}", max(0.0, taken - kept - states)
    why = f"{use.kv_bytes} B" if use.kv_bytes is not None else f"{use.share:g} x {node.total:g} - {inner:.2f} of all the engine's own"
    cache_parts = [
        components.Component("kv", title, kept, kept * paged_within, components.SERVING, True, words or "none", source),
        *([components.Component("state", "constant state", states, states * paged_within, components.SERVING, True, per, source)] if state else []),
        components.Component("pool", "rest of the KV cache", rest, 0.0, components.SERVING, True, why, "as the engine is configured"),
    ]
    loader = components.Component("staging", "loader", staging.value, staging.within, components.LOADING, True, f"{staging.value:g}", staging.source)
    title, arithmetic = "page cache, given back when it is needed", "the files, as far as there is room"
    seen = components.Component("page_cache", title, cache, 0.0, components.LOADING, False, arithmetic, "Linux")
    result["components"] = [_shown(part) for part in (*beside, *own, *cache_parts, *recorded, loader, seen) if part.gib > 0]
    room = node.total - components.CONSTANTS["reserve"].value - components.root_of_squares(out_within, inner_within) - out - inner
    room -= 0 if use.kv_bytes is not None else components.CONSTANTS["unprofiled"].value
    # Rounded up to a quarter of a GiB, with the margin for a cache in bytes: a smaller one would be tight by this same plan.
    wanted = max(easy, concurrency * sequence + seqs * state) + 0.1 * least
    quarters = min(math.floor(room * 4), max(1, math.ceil(wanted * 4)))
    result["propose_kv_cache_memory_bytes"] = quarters * components.GIB // 4 if room >= least and quarters > 0 else None
    return {**result, "verdict": verdict, "reasons": reasons}


def _recorded(node: components.Node, took: float | None, planned: float, within: float) -> tuple[float, float, float]:
    """Return (GiB more than planned, GiB in use, its error): the larger of plan and record, with the worse of their worst cases."""
    if took is None:
        return 0.0, planned, within
    before = node.total - node.available if node.available is not None else components.CONSTANTS["os"].value
    used = before + node.tenants + took
    if used <= planned:
        return 0.0, planned, within
    return used - planned, used, max(components.CONSTANTS["recorded"].within, planned + within - used)


def _more(took: float, more: float, name: str, when: tuple[str, ...]) -> components.Component:
    source = components.CONSTANTS["recorded"]
    return components.Component(name, "more than planned, by the record", more, source.within, when, False, f"a recorded start took {took:.2f}", source.source)


#: The figures that a verdict follows from; see :func:`node_plan`.
_Parts = collections.namedtuple("_Parts", "weights out out_within inner pool pool_within least easy one state load load_within")


def _figure(node: components.Node, used: float, within: float, **more: float) -> dict[str, float]:
    return {"used_gib": round(used, 2), "within_gib": round(within, 2), "available_gib": round(node.total - used, 2), **more}


def _shown(part: components.Component) -> dict[str, t.Any]:
    return {**part._asdict(), "gib": round(part.gib, 3), "within": round(part.within, 3), "when": list(part.when)}


def _judged(facts: t.Mapping[str, t.Any], use: recipe.Settings, node: components.Node, of: _Parts, result: t.Mapping[str, t.Any]) -> tuple[str, list[str]]:
    """Return the verdict of a node with its reasons.

    ``no`` where even the best case fails, and while no start is recorded also where the worst case exceeds the memory or the share is left to the
    engine. ``fits`` where the worst case leaves the margin; with a recorded start of its own, where it leaves anything at all.
    """
    floor = components.CONSTANTS["floor"].value
    noes, risks, doubts = [], [], []
    serving, loading, start = result["serving"], result["loading"], result["at_start"]
    left = f"{serving['available_gib']:.1f} +/- {serving['within_gib']:.1f}"
    worst = node.total - serving["used_gib"] - serving["within_gib"]
    # The budget alone, and with the additional need of one sequence: either may exceed the memory.
    budgets = [(of.out + of.inner + max(of.pool, 0.0), of.out_within), (serving["used_gib"], serving["within_gib"])]
    text = f"{serving['used_gib']:.1f} GiB would be in use while it serves, {left} left of {node.total:g}"
    if any(node.total - used + within < floor for used, within in budgets):
        noes.append(text)
    elif worst < floor:
        risks.append(text)
    elif worst < components.CONSTANTS["unproven"].value and not use.recorded:
        doubts.append(f"{left} GiB stay available while it serves, expected {components.CONSTANTS['unproven'].value:g} until a start is recorded")
    text = f"{loading['available_gib']:.1f} +/- {of.load_within:.1f} GiB are left of {node.total:g} once the weights are loaded"
    if node.total - of.load + of.load_within < floor:
        noes.append(text)
    elif node.total - of.load - of.load_within < floor:
        risks.append(text)
    elif node.total - of.load - of.load_within < components.CONSTANTS["reserve"].value / 2 and not use.recorded:
        doubts.append(text)
    wanted = f"at its start the engine wants {start['wanted_gib']:.1f} GiB free ({use.share:g} of {node.total:g})"
    text = f"{wanted} and would find {start['free_gib']:.1f} +/- {start['within_gib']:.1f}"
    if start["wanted_gib"] > start["free_gib"] + start["within_gib"]:
        noes.append(text)
    elif start["wanted_gib"] > start["free_gib"] - start["within_gib"] and not use.recorded:
        doubts.append(text)
    elif start["cuda_gib"] is not None and start["wanted_gib"] > start["cuda_gib"] and not use.recorded:
        doubts.append(f"{wanted}, and CUDA's own free memory was reported to end near {start['cuda_gib']:.0f}, whatever MemAvailable says")
    what = f"one sequence of {use.context} tokens takes {of.one + of.state:.2f} GiB"
    if use.seqs and of.least > of.one + of.state:
        what = f"the state of {use.seqs} sequences takes {of.least:.2f} GiB"
    if of.pool + of.pool_within < of.least:
        noes.append(f"the engine would refuse: {what} and the KV cache has {of.pool:.2f} +/- {of.pool_within:.2f}{_left(use, node, of)}")
    elif of.pool - of.pool_within < of.easy:
        left = "" if use.seqs else " (max_num_seqs is left to the engine)"
        text = what if of.pool - of.pool_within < of.least else f"one sequence and the state of {use.sequences} sequences{left} take {of.easy:.2f} GiB"
        doubts.append(f"{text} and the KV cache has {of.pool:.2f} +/- {of.pool_within:.2f} GiB")
    mapped = facts.get("file_backed_gib") or 0
    more = (
        (
            mapped and serving["available_gib"] < mapped,
            f"{mapped:g} GiB of tables are read from a mapped file, and only {serving['available_gib']:.1f} GiB are left for its pages",
        ),
        (
            use.kv_bytes is not None and not use.recorded,
            "kv_cache_memory_bytes skips profiling, so nothing bounds what comes on top: it takes a recorded start of this image, profile and driver",
        ),
        (use.unsized_draft and not use.recorded, "the size of the drafter is not known: give its repository a size_gb"),
    )
    doubts += [text for applies, text in more if applies]
    shared = f"gpu_memory_utilization is left to the engine, and its {use.default_share:g} is made for memory that the system does not share"
    unbounded = [shared] if use.left_to_engine else []
    if noes or ((risks or unbounded) and not (use.recorded or result["reported"])):
        could = max(0.0, node.total - of.out - of.inner)
        rest = (
            f"the weights take {of.weights:.1f} GiB and leave {node.total - of.weights:.1f}, of which the KV cache could have {could:.1f} "
            f"+/- {serving['within_gib']:.1f}"
        )
        return NO, [*noes, *risks, *unbounded, *([rest] if noes or risks else []), *doubts]
    doubts = [*risks, *unbounded, *doubts]
    if doubts and result["reported"]:
        doubts.append(f"it is reported to run: {result['reported']}")
    return (TIGHT, doubts) if doubts else (FITS, [])


def _left(use: recipe.Settings, node: components.Node, of: _Parts) -> str:
    """Return the rest of a message about the KV cache: the pinned size, or the share and the engine's own parts that are subtracted from it."""
    if use.kv_bytes is not None:
        return " GiB, as pinned"
    return f" GiB: {use.share:g} of {node.total:g} GiB less {of.inner:.1f} for weights, activations and graphs"


def _at_start(use: recipe.Settings, node: components.Node) -> dict[str, float | None]:
    """Return the free memory that the engine's own check at its start requires and would find, and the free memory that CUDA was reported to find.

    The latter is None for a node of another size than the reported ones, and for one whose engine reported its own value.
    """
    system, engine, end = components.CONSTANTS["os"], components.CONSTANTS["engine_start"], components.CONSTANTS["cuda_end"]
    if node.free_at_start is not None:
        free, within = node.free_at_start, 0.3
    elif node.available is not None:
        free, within = node.available - engine.value - node.tenants, engine.within
    else:
        free, within = node.total - system.value - engine.value - node.tenants, components.root_of_squares(system.within, engine.within)
    alike = ALIKE <= node.total / CLASS_TOTAL[128] <= 1 / ALIKE and node.free_at_start is None
    cuda = round(min(free, end.value * node.total / CLASS_TOTAL[128]), 2) if alike else None
    return {"wanted_gib": round(use.share * node.total, 2), "free_gib": round(free, 2), "within_gib": round(within, 2), "cuda_gib": cuda}


# -- recipes that run --------------------------------------------------------------------------------------------------


def weights_gib(facts: t.Mapping[str, t.Any], use: recipe.Settings, declared: float | None) -> float:
    """Return the GiB that one rank loads, including the drafter and memory that becomes free afterwards."""
    return sum(part.gib for part in components.weights(facts, use, declared))


def reported(use: recipe.Settings, loads: float, node: components.Node, reports: t.Iterable[recipe.Report]) -> str:
    """Return the source of a report that a recipe with at least these needs ran on a node with no more memory, empty without one. ``loads`` as
    :func:`weights_gib`.

    On a node with more in use than an idle one a report does not count, unless that is the memory of others, which the reported node had, too.
    """
    idle = components.CONSTANTS["os"]
    if node.free_at_start is not None or (node.available is not None and node.total - node.available > idle.value + idle.within):
        return ""
    fits = (report for report in reports if node.total >= ALIKE * report.total and node.tenants <= report.tenants and loads <= report.weights / ALIKE)
    return next((report.source for report in fits if _takes_no_more(use, report.use)), "")


def _takes_no_more(use: recipe.Settings, than: recipe.Settings) -> bool:
    """Return whether settings need no more memory than others, judged setting by setting."""
    same = ("tensor", "pipeline", "data", "context_ranks", "own_draft", "one_layer_draft", "draft_split")
    most = ("context", "sequences", "batched", "kv_value", "drafts", "graphs", "vision", "ray", "online_fp8", "pinned_gib", "unsized_draft")
    if any(getattr(use, name) != getattr(than, name) for name in same) or any(getattr(use, name) > getattr(than, name) for name in most):
        return False
    if use.loader == "fastsafetensors" != than.loader or (use.kv_bytes is None) != (than.kv_bytes is None):
        return False
    return use.share <= than.share if use.kv_bytes is None else use.kv_bytes <= than.kv_bytes


# -- the plan ----------------------------------------------------------------------------------------------------------


def lacking(facts: t.Mapping[str, t.Any], declared: float | None) -> list[str]:
    """Return the problems of the facts, or the facts that a plan lacks; ``declared`` is a profile's size of the weights, None without one."""
    return model_facts.faults(facts) or model_facts.missing(facts, declared is not None or bool(facts.get("weights_gib_per_rank")))


def plan(
    facts: t.Mapping[str, t.Any],
    use: recipe.Settings,
    nodes: t.Sequence[components.Node],
    *,
    declared_gib: float | None = None,
    concurrency: int = 1,
    search: bool = True,
    reports: t.Sequence[recipe.Report] = (),
) -> dict[str, t.Any]:
    """Return the plan of a recipe on its nodes: verdict (that of the worst node), each node's figures, and with ``no`` or ``tight`` what would fit.

    ``facts`` as of :mod:`model_facts`; ``declared_gib`` is a profile's size of what one node loads. Where facts are missing the verdict is ``unknown``, and
    ``missing`` names them and the values of arguments that the engine would not read; nothing is guessed. Without ``search`` no changes that would fit are
    returned. ``reports`` are recipes of the model that were reported to run.
    """
    without = [*use.unread, *lacking(facts, declared_gib)] or ([] if nodes else ["nodes"])
    if without:
        return {"verdict": UNKNOWN, "missing": without, "nodes": [], "would_fit": [], "kv": {}, "reasons": [f"unknown without {', '.join(without)}"]}
    plans = [node_plan(facts, use, node, declared_gib, concurrency, reports) for node in nodes]
    verdict = max((entry["verdict"] for entry in plans), key=ORDER.index)
    proposals = [entry["propose_kv_cache_memory_bytes"] for entry in plans]
    return {
        "verdict": verdict,
        "missing": [],
        "nodes": plans,
        "reasons": [f"{entry['node']}: {reason}" for entry in plans for reason in entry["reasons"]],
        "kv": {
            "context": use.context,
            "bytes_a_token": round((components.kv_bytes(facts, use) - components.kv_bytes(facts, use._replace(context=max(1, use.context - 1)))), 1),
            "one_sequence_gib": round(components.kv_bytes(facts, use) / components.GIB, 3),
            "state_bytes_a_sequence": round(components.state_bytes(facts, use)),
        },
        "propose_kv_cache_memory_bytes": min(proposals) if proposals and all(proposals) else None,
        "would_fit": would_fit(facts, use, nodes, declared_gib, concurrency, reports) if search and verdict != FITS else [],
    }


def would_fit(
    facts: t.Mapping[str, t.Any],
    use: recipe.Settings,
    nodes: t.Sequence[components.Node],
    declared: float | None,
    concurrency: int,
    reports: t.Sequence[recipe.Report] = (),
) -> list[dict[str, t.Any]]:
    """Return single changes that get a better verdict: a shorter context, fewer sequences, another share, more nodes. The first of each kind that does,
    the best verdicts first."""

    def verdict_of(changed: recipe.Settings, loaded: float | None) -> str:
        return str(plan(facts, changed, nodes, declared_gib=loaded, concurrency=concurrency, search=False, reports=reports)["verdict"])

    now = verdict_of(use, declared)
    changes: list[tuple[str, t.Any, recipe.Settings, float | None]] = []
    lengths = [use.context // 2**power // 1024 * 1024 for power in range(1, 8)]
    changes += [("max_model_len", length, use._replace(context=length), declared) for length in lengths if length >= 4096]
    changes += [("max_num_seqs", count, use._replace(seqs=count), declared) for count in (256, 64, 32, 16, 8, 4, 2, 1) if count < use.sequences]
    if use.kv_bytes is None:
        shares = [percent / 100 for percent in (90, 87, 85, 82, 80, 78, 75, 70, 65, 60, 50, 40) if percent / 100 < use.share]
        changes += [("gpu_memory_utilization", share, use._replace(utilization=share), declared) for share in shares]
    else:
        changes += [("kv_cache_memory_bytes", size, use._replace(kv_bytes=size), declared) for size in (use.kv_bytes // 2**power for power in range(1, 4))]
    heads = facts.get("num_attention_heads") or 0
    for factor in (2, 4, 8):
        wider = use.tensor * factor
        if heads and heads % wider == 0 and wider <= 16:
            changes.append(("nodes", wider * use.pipeline * use.data, use._replace(tensor=wider), declared and declared / factor))
    better: dict[tuple[str, str], t.Any] = {}
    for name, value, changed, loaded in changes:
        verdict = FITS if (name, FITS) in better else verdict_of(changed, loaded)
        if ORDER.index(verdict) < ORDER.index(now):
            better.setdefault((name, verdict), value)
    rows = [{"change": name, "to": value, "verdict": verdict} for (name, verdict), value in better.items()]
    return sorted(rows, key=lambda row: ORDER.index(row["verdict"]))


# -- advice ------------------------------------------------------------------------------------------------------------

#: Bytes a second that a Spark reads in practice of its nominal 273 GB/s: 180 to 192 (spark-training-gotchas).
BANDWIDTH = (180e9, 192e9)


def advice(facts: t.Mapping[str, t.Any], use: recipe.Settings, single: str | None) -> list[str]:
    """Return sentences on dense or experts, and on one model over the nodes or a replica on each. ``single`` is the verdict on one node alone, None for one."""
    sentences = []
    read, known = model_facts.read_share(facts), model_facts.weights_bytes(facts)
    if read and known:
        bytes_a_token = known[0] * read
        ends = dict.fromkeys(f"{rate * use.tensor / bytes_a_token:.0f}" for rate in BANDWIDTH)
        kind = "experts" if facts.get("num_experts") else "a dense model"
        makes = f"steps/s for one user, each of up to {1 + use.drafts} tokens with the drafter" if use.drafts else "tokens/s for one user"
        sentences.append(
            f"{kind}: a step reads about {bytes_a_token / 1e9:.1f} GB of weights, so {use.tensor} node(s) make at most {' to '.join(ends)} {makes} "
            "(180 to 192 GB/s of a Spark's memory; spark-training-gotchas)"
        )
    if not facts.get("num_experts"):
        sentences.append(
            "dense models read all weights for each token: a second node or a drafter helps one user most (Qwen3.8-27B 24.27 to 37.35 tokens/s, NVIDIA)"
        )
    if single in (FITS, TIGHT):
        sentences.append(
            "it also fits one node: over two nodes one user gets more, many users hardly (Nemotron-3-Super 22.97 against 16.43 tokens/s alone, 82.77 "
            "against 73.81 at 8, 128.27 against 124.21 at 32; kubis.ai), and two replicas outlive the death of one node"
        )
    elif single == NO:
        sentences.append("it does not fit one node, so there is no choice between one model over the nodes and a replica on each")
    return sentences
