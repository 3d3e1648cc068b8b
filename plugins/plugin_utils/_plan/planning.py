# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory plan of a profile: its facts, its settings, its nodes, and the plan in words. This plugin util is PRIVATE to the collection.

The formula is :mod:`plan` of the module utils, the same on a node and here.
"""

from __future__ import annotations

import functools
import hashlib
import json
import typing as t
from pathlib import Path

import yaml

from ansible_collections.gb10.cluster.plugins.module_utils._companion import declared
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._memory import model_facts, plan, starts
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding

KIND = "gb10.cluster.plan"
#: Ids of findings that are made here.
IDS = ("plan.profile",)

_TABLE = Path(__file__).with_name("models.yml")
_GB = 1e9
#: How a finding says what a plan does.
_VERDICTS = {plan.FITS: "pass", plan.TIGHT: "warn", plan.NO: "block", plan.UNKNOWN: "unknown"}
#: Variables that leave a model's table in a file, with the values that do.
_MAPPED = {"VLLM_PLE_TABLE_MEMORY": ("disk",), "VLLM_PLE_MMAP": ("1",)}
_REPOSITORY = "repository:"
#: What is said of a tenant.
_TENANT = ("name", "node", "gib")
#: What a node may say of itself, with the least and the most of each, in GiB.
_NODE = {"total_gib": (8, 4096), "tenants_gib": (0, 4096), "available_gib": (0, 4096), "free_at_start_gib": (0, 4096)}


@functools.cache
def table() -> dict[str, t.Any]:
    """Return the collection's own table of models."""
    return yaml.safe_load(_TABLE.read_text(encoding="utf-8"))


def facts_of(profile: t.Mapping[str, t.Any], config: t.Mapping[str, t.Any] | None = None) -> dict[str, t.Any]:
    """Return the facts of a profile's model: those of the table, of ``config`` (a parsed config.json or facts of one) and of the profile, the last winning."""
    repo = profile["model"]["repo"]
    listed = dict(table()["repositories"].get(repo) or {})
    shape = table()["architectures"].get(listed.pop("is", ""), {})
    read = {} if config is None else (model_facts.from_config(config) if {"architectures", "model_type"} & set(config) else dict(config))
    own = {name: value for name, value in profile["memory"]["config"].items() if value is not None}
    facts = {**shape.get("facts", {}), **listed, **read, **own}
    sources = [own.get("source") or ("the profile" if own else ""), "config.json in the cache" if read else "", shape.get("source", "")]
    facts["source"] = ", ".join(dict.fromkeys(one for one in sources if one))
    env = profile["env"]["shared"]
    if facts.get("table_gib") and any(str(env.get(name)) in values for name, values in _MAPPED.items()):
        facts.setdefault("file_backed_gib", facts["table_gib"])
    return facts


def growth_of(repo: str) -> list[dict[str, t.Any]]:
    """Return what was reported of a model's memory between two lengths, and not explained."""
    listed = table()["repositories"].get(repo) or {}
    return table()["architectures"].get(listed.get("is", ""), {}).get("growth", [])


def drafter(profile: t.Mapping[str, t.Any], serve: t.Mapping[str, t.Any]) -> float:
    """Return the GiB on disk of a drafter that is a repository of its own, 0.0 for none or one of unknown size."""
    spec = serve.get("speculative_config")
    name = str(spec.get("model") or "") if isinstance(spec, dict) else ""
    known = profile["repositories"].get(name[len(_REPOSITORY) :].split("/", maxsplit=1)[0], {}) if name.startswith(_REPOSITORY) else {}
    return (known.get("size_gb") or 0.0) * _GB / plan.GIB


def uses_ray(profile: t.Mapping[str, t.Any]) -> bool:
    """Return whether Ray would spread the ranks. One rank needs nothing to spread it; ``auto`` is Ray where a layer brings it."""
    parallel = profile["parallel"]
    if parallel["tensor"] * parallel["pipeline"] * parallel["data"] == 1:
        return False
    return profile["executor"] == "ray" or (profile["executor"] == "auto" and "ray" in profile["image"]["layers"])


class Claim(t.NamedTuple):
    """What a profile asks of each node's memory: facts of its model, settings, GiB that it declares, and the facts without which there is no plan."""

    facts: dict[str, t.Any]
    use: plan.Settings
    declared_gib: float | None
    missing: list[str]


def claim(
    profile: t.Mapping[str, t.Any],
    serve: t.Mapping[str, t.Any] | None = None,
    *,
    context: int | None = None,
    concurrency: int | None = None,
    config: t.Mapping[str, t.Any] | None = None,
    recorded: bool = False,
) -> Claim:
    """Return what a profile asks of each node's memory. The arguments are those of :func:`memory_plan`."""
    arguments = {name: value for name, value in {**profile["serve"], **(serve or {})}.items() if value is not None}
    facts = facts_of(profile, config)
    declared = profile["memory"]["weights_gb"]
    from_facts = model_facts.weights_bytes(facts) is not None
    seqs = arguments.get("max_num_seqs")
    use = plan.settings_of(
        arguments,
        profile["parallel"],
        facts,
        ray=uses_ray(profile),
        draft_gib=drafter(profile, arguments) if from_facts else 0.0,
        draft_in_weights=not from_facts,
        context=context,
        seqs=concurrency if concurrency and isinstance(seqs, int) and concurrency > seqs else None,
        recorded=recorded,
    )
    return Claim(facts, use, declared * _GB / plan.GIB if declared else None, plan.lacking(facts, declared))


def tenant_faults(tenants: t.Any) -> list[tuple[str, str, str]]:
    """Return what is wrong with declared tenants (``gb10_tenants``), as where, what, and what is expected."""
    if not isinstance(tenants, list):
        return [("gb10_tenants", f"is {tenants!r}", "a list of {name, node, gib}")]
    found = []
    for index, one in enumerate(tenants):
        where = f"gb10_tenants[{index}]"
        if not isinstance(one, dict):
            found.append((where, f"is {one!r}", "{name, node, gib}"))
            continue
        name, on, size = one.get("name"), one.get("node"), one.get("gib")
        found += [(f"{where}.{word}", "is not a known field", "name, node and gib") for word in one if word not in _TENANT]
        if not isinstance(name, str) or not name.strip():
            found.append((f"{where}.name", f"is {name!r}", "who it is, by the name of its container or program"))
        if on is not None and (not isinstance(on, str) or not on):
            found.append((f"{where}.node", f"is {on!r}", "the inventory's name of a node, or no node for one on each"))
        if isinstance(size, bool) or not isinstance(size, (int, float)) or not 0 < size <= _NODE["tenants_gib"][1]:
            found.append((f"{where}.gib", f"is {size!r}", f"GiB above 0, up to {_NODE['tenants_gib'][1]}"))
    return found


def claimed(tenants: t.Iterable[t.Mapping[str, t.Any]], node: str) -> dict[str, float]:
    """Return what declared tenants claim of a node in GiB, by their names. One without a node claims it of every node."""
    found: dict[str, float] = {}
    for one in tenants:
        if one.get("node") in (None, node):
            found[one["name"]] = found.get(one["name"], 0.0) + one["gib"]
    return found


def companion_claims(companions: t.Iterable[t.Mapping[str, t.Any]], mode: str) -> dict[str, float]:
    """Return what the companions of a node that are up in a mode claim of it in GiB, by name (``gb10_companions``)."""
    return {one["name"]: one["memory_gib"] for one in declared.up_in(companions, mode)}


def who(claims: t.Mapping[str, float], now: t.Mapping[str, float] | None = None) -> str:
    """Return who holds what in words: what each claims, and what of that it holds ``now`` where that was measured."""
    texts = []
    for name, size in claims.items():
        seen = (now or {}).get(name)
        texts.append(f"{name} {size:g} GiB declared" + (f" ({seen:.1f} held now)" if seen else ""))
    return ", ".join(texts)


def _with_claims(nodes: list[plan.Node], tenants: t.Any) -> list[plan.Node]:
    """Return nodes with what declared tenants claim of them. Raises :class:`ClusterError` for a claim that cannot be, or of a node that is not planned for."""
    wrong = [f"{where}: {what}, expected {expected}" for where, what, expected in tenant_faults(tenants)]
    names = [node.name for node in nodes]
    if not wrong:
        strangers = [one for one in tenants if one.get("node") not in (None, *names)]
        wrong = [f"gb10_tenants: {one['name']} is on {one['node']}, expected one of the plan's nodes ({', '.join(names)})" for one in strangers]
    if wrong:
        remedy = 'Correct them; gb10_plan_nodes names the nodes: [{"node": "spark-1"}, {"node": "spark-2"}].'
        raise ClusterError("; ".join(wrong), where="tenants of the plan", remedy=remedy, reason="input")
    found = []
    for node in nodes:
        claims = claimed(tenants, node.name)
        mine = {"others": node.tenants, **claims} if node.tenants and claims else claims
        found.append(node._replace(tenants=node.tenants + sum(claims.values()), who=who(mine)))
    return found


def nodes_of(given: t.Any, number: int, class_gb: int | None) -> list[plan.Node]:
    """Return the nodes to plan for: ``number`` usual ones of the profile's class without ``given``, else those given.

    ``given`` is a size in GiB for each node, a list of sizes, or a list of mappings with ``node``, ``total_gib`` and maybe ``tenants_gib``, ``available_gib``
    and ``free_at_start_gib``. Raises :class:`ClusterError` with all that is wrong.
    """
    usual = plan.CLASS_TOTAL[class_gb or 128]
    if given is None or given == [] or given == "":
        given = [usual] * number
    elif not isinstance(given, list):
        given = [given] * number
    wrong, found = [], []
    for index, one in enumerate(given):
        row = one if isinstance(one, dict) else {"total_gib": one}
        where = f"nodes[{index}]"
        wrong += [f"{where}.{name}: is not a known field, expected one of node, {', '.join(_NODE)}" for name in row if name not in ("node", *_NODE)]
        values: dict[str, float | None] = {}
        for name, (least, most) in _NODE.items():
            value = row.get(name, usual if name == "total_gib" else None)
            try:
                number_of = None if value is None or isinstance(value, bool) else float(value)
            except (TypeError, ValueError):
                number_of = None
            if (value is not None and number_of is None) or (number_of is not None and not least <= number_of <= most):
                wrong.append(f"{where}.{name}: found {value!r}, expected GiB from {least} to {most}")
            values[name] = number_of
        name = str(row.get("node") or f"node-{index + 1}")
        found.append(plan.Node(name, values["total_gib"] or usual, values["tenants_gib"] or 0.0, values["available_gib"], values["free_at_start_gib"]))
    if len(given) != number:
        wrong.append(f"nodes: found {len(given)}, expected {number}, as many as the profile has ranks")
    if wrong:
        remedy = "Correct them, or leave them out for Sparks of the profile's class."
        raise ClusterError("; ".join(wrong), where="nodes of the plan", remedy=remedy, reason="input")
    return found


def _whole(name: str, value: t.Any, wrong: list[str]) -> int | None:
    """Return a whole number of 1 or more, also from a text, None for nothing; what is neither is noted in ``wrong``."""
    if value is None or value == "":
        return None
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if number < 1 or isinstance(value, bool):
        wrong.append(f"{name}: found {value!r}, expected a whole number of 1 or more")
        return None
    return number


def memory_plan(
    profile: t.Mapping[str, t.Any],
    nodes: t.Any = None,
    serve: t.Mapping[str, t.Any] | None = None,
    context: t.Any = None,
    concurrency: t.Any = None,
    lengths: t.Any = None,
    config: t.Mapping[str, t.Any] | None = None,
    recorded: bool = False,
    tenants: t.Any = (),
) -> dict[str, t.Any]:
    """Return the memory plan of a profile (as the lookup ``profile`` returns it). Raises :class:`ClusterError` for arguments that cannot be.

    ``serve`` wins over the profile's arguments, null removing one. ``context`` is the length in tokens, ``concurrency`` how many sequences of that length the
    cache shall hold at once (and the least of ``max_num_seqs``), ``lengths`` further lengths to compare (the profile's ladder without any), ``tenants`` what
    others claim of the nodes, as ``gb10_tenants``.
    """
    wrong: list[str] = []
    tokens, wanted = _whole("context", context, wrong), _whole("concurrency", concurrency, wrong)
    rungs = profile["ladder"] if lengths in (None, "", []) else lengths if isinstance(lengths, list) else str(lengths).split(",")
    steps = [one for one in (_whole("lengths", str(rung).strip(), wrong) for rung in rungs) if one]
    if wrong:
        raise ClusterError("; ".join(wrong), where="the plan", remedy="Correct them.", reason="input")
    facts, use, declared_gib, _missing = claim(profile, serve, context=tokens, concurrency=wanted, config=config, recorded=recorded)
    on = _with_claims(nodes_of(nodes, use.tensor * use.pipeline * use.data, profile["memory"]["class_gb"]), list(tenants or []))
    result = plan.plan(facts, use, on, declared_gib=declared_gib, concurrency=wanted or 1)
    single = None
    if use.tensor > 1 and not result["missing"]:
        alone = use._replace(tensor=1, pipeline=1, data=1, ray=False)
        total = declared_gib and declared_gib * use.tensor
        single = plan.plan(facts, alone, on[:1], declared_gib=total, search=False)["verdict"]
    return {
        "schema": 1,
        "kind": KIND,
        "profile": profile["id"],
        "repo": profile["model"]["repo"],
        **result,
        "settings": use._asdict(),
        "facts": facts,
        "lengths": [] if result["missing"] else _lengths(facts, use, on, declared_gib, steps, profile["model"]["repo"]),
        "one_node": single,
        "advice": [] if result["missing"] else plan.advice(facts, use, single),
        "declared_weights_gib": declared_gib and round(declared_gib, 2),
    }


def _lengths(
    facts: t.Mapping[str, t.Any], use: plan.Settings, nodes: list[plan.Node], declared: float | None, steps: list[int], repo: str
) -> list[dict[str, t.Any]]:
    """Return a row for each length: verdict, GiB of one sequence on a node, and how much more that is than the row before, with what was reported of it."""
    rows: list[dict[str, t.Any]] = []
    for tokens in sorted({*steps, use.context}):
        changed = use._replace(context=tokens)
        found = plan.plan(facts, changed, nodes, declared_gib=declared, search=False)
        size = plan.kv_bytes(facts, changed) / plan.GIB
        before = rows[-1] if rows else None
        more = None if before is None else round(size - before["kv_gib"], 3)
        reported = [one for one in growth_of(repo) if before and (one["from"], one["to"]) == (before["context"], tokens)]
        worst = min((one["serving"]["available_gib"] for one in found["nodes"]), default=None)
        unexplained = "; ".join(f"{one['reported']} ({one['source']}), unexplained" for one in reported)
        row = {"context": tokens, "verdict": found["verdict"], "kv_gib": round(size, 3), "more_gib": more, "available_gib": worst, "reported": unexplained}
        rows.append(row)
    return rows


def admission(asked: Claim, node: plan.Node, records: t.Sequence[starts.Start] = ()) -> dict[str, t.Any]:
    """Return what a plan says of one node as it is: ``verdict``, the node's figures (``node``), why, and what would go, in words. The facts must be whole.

    ``records`` are those of the same image, profile and driver: what they took counts where it is more than the plan's.
    """
    use, known = asked.use, starts.taken_gib(records, asked.use.context)
    if known is not None:
        node = node._replace(took=known[0], peak=known[1])
    found = plan.plan(asked.facts, use._replace(recorded=starts.bears(records, use.context)), [node], declared_gib=asked.declared_gib)
    return {"verdict": found["verdict"], "node": found["nodes"][0], "reasons": found["nodes"][0]["reasons"], "would_go": would_go(found)}


class Pin(t.NamedTuple):
    """The size of the KV cache in bytes that starts on record bear out (``size``, None without), those starts by node, and by node what it lacks."""

    size: int | None
    starts: dict[str, starts.Start]
    lacks: dict[str, str]


def pin(asked: Claim, nodes: t.Sequence[plan.Node], records: t.Mapping[str, t.Sequence[starts.Start]]) -> Pin:
    """Return the size that the plan proposes for the KV cache, where a start of the same image, profile and driver is on record on every node.

    ``nodes`` have their MemTotal and what others claim there, and nothing that was measured: the same nodes get the same size, whatever runs on them.
    ``records`` are those of the same image, profile and driver, by node.
    """
    borne, lacks = {}, {}
    for node in nodes:
        known = [one for one in records[node.name] if starts.bears([one], asked.use.context)]
        if known:
            borne[node.name] = known[-1]
            continue
        most = max((one["context"] for one in records[node.name]), default=0)
        longest = f"; the longest had {most}" if most else ""
        lacks[node.name] = f"no start of this image, profile and driver with {asked.use.context} tokens is on record{longest}"
    if asked.missing:
        lacks.update({node.name: f"nothing is proposed without {', '.join(asked.missing)}" for node in nodes})
    size = None
    if not lacks:
        found = plan.plan(asked.facts, asked.use, nodes, declared_gib=asked.declared_gib, search=False)
        size = found["propose_kv_cache_memory_bytes"]
        short = [one["node"] for one in found["nodes"] if not one["propose_kv_cache_memory_bytes"]]
        lacks.update({name: "the plan leaves no room for a cache of a size of its own, with the reserve" for name in short})
    return Pin(size, borne, lacks)


def pinned(asked: Claim, size: int | None) -> Claim:
    """Return what a profile asks with a cache of this size in place of its own; the same without one."""
    return asked if size is None else asked._replace(use=asked.use._replace(kv_bytes=size))


def _digest(profile: t.Mapping[str, t.Any], serve: t.Mapping[str, t.Any] | None, without: t.Collection[str] = ()) -> str:
    arguments = {name.replace("-", "_"): value for name, value in {**profile["serve"], **(serve or {})}.items() if value is not None}
    model = {name: profile["model"].get(name) for name in ("repo", "revision")}
    kept = {name: value for name, value in arguments.items() if name not in without}
    content = [model, dict(profile["parallel"]), profile["executor"], profile["env"]["shared"], kept]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def digest(profile: t.Mapping[str, t.Any], serve: t.Mapping[str, t.Any] | None = None) -> str:
    """Return the digest of what a profile's memory follows from. Neither the context is in it, which records name beside it, nor the size of the cache in
    bytes: whether that was given is what a record decides about."""
    return _digest(profile, serve, ("max_model_len", "kv_cache_memory_bytes"))


def expected(
    profile: t.Mapping[str, t.Any],
    serve: t.Mapping[str, t.Any] | None = None,
    tenants: t.Iterable[t.Mapping[str, t.Any]] = (),
    companions: t.Iterable[t.Mapping[str, t.Any]] = (),
    node: str = "",
) -> dict[str, t.Any]:
    """Return what a node needs to say up to where a start goes as expected: the digest of this very start, the plan's figures, and what others claim there.

    ``lacks`` names what keeps the plan from saying it. All that others claim counts, in whatever mode and whatever they hold by now: that errs towards a
    lower level, and is the same in each run.
    """
    asked = claim(profile, serve)
    lacks = [*asked.missing, *(["the size of the drafter"] if asked.use.unsized_draft else [])]
    grown = [one["to"] for one in growth_of(profile["model"]["repo"]) if one["to"] <= asked.use.context]
    lacks += [f"an explanation of what {tokens} tokens were reported to take" for tokens in grown]
    claims = sum([*claimed(tenants, node).values(), *(one["memory_gib"] for one in companions)])
    return {
        "start_digest": _digest(profile, serve),
        "facts": asked.facts,
        "use": asked.use._asdict(),
        "declared_gib": asked.declared_gib,
        "claims_gib": claims,
        "lacks": lacks,
    }


# -- in words ----------------------------------------------------------------------------------------------------------


def findings(found: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """Return one finding for each node of a plan, or one for a plan that could not be made."""
    if found["missing"]:
        remedy = "Put the facts of the model's config.json into memory.config of the profile, or name a repository whose config.json lies in a cache."
        text = f"{found['profile']}: {'; '.join(found['reasons'])}"
        return [finding("plan.profile", "controller", "unknown", text, measured=found["missing"], remedy=remedy)]
    rows = []
    for node in found["nodes"]:
        serving = node["serving"]
        why = "".join(f"; {reason}" for reason in node["reasons"])
        remedy = "" if node["verdict"] == plan.FITS else f"{would_go(found)}."
        rows.append(
            finding(
                "plan.profile",
                node["node"],
                _VERDICTS[node["verdict"]],
                f"{node['verdict']}: {figures(node)}{why}",
                measured=serving["available_gib"],
                needed=plan.CONSTANTS["reserve"].value,
                remedy=remedy,
                source="docs/plan.md",
            )
        )
    return rows


def figures(node: t.Mapping[str, t.Any]) -> str:
    """Return the two figures of a node in words."""
    serving, loading = node["serving"], node["loading"]
    return (
        f"{serving['used_gib']:.1f} +/- {serving['within_gib']:.1f} GiB in use while it serves, "
        f"{loading['used_gib']:.1f} +/- {loading['within_gib']:.1f} once it is loaded, of {node['total_gib']:g}"
    )


def would_go(found: t.Mapping[str, t.Any]) -> str:
    """Return single changes that get a better verdict, in words."""
    change = "; ".join(f"{one['change']} {one['to']} ({one['verdict']})" for one in found["would_fit"])
    return f"What would go: {change}" if change else "Nothing that was tried goes better: take smaller weights or more nodes"


def lines(found: t.Mapping[str, t.Any]) -> list[str]:
    """Return a plan as a table for people, with its arithmetic."""
    if found["missing"]:
        return [f"{found['profile']} ({found['repo']}): unknown", *(f"missing: {one}" for one in found["missing"])]
    use = found["settings"]
    pinned = f"KV cache of {use['kv_bytes']} bytes" if use["kv_bytes"] else f"utilization {use['utilization'] or 'left to the engine'}"
    ranks = f"{use['tensor']} x {use['pipeline']} x {use['data']}"
    rows = [
        f"{found['profile']} ({found['repo']}): {found['verdict']}",
        f"{use['context']} tokens, {use['seqs'] or 'default'} sequences, {use['batched']} tokens a step, {pinned}, ranks {ranks} (tensor x pipeline x data)",
    ]
    for node in found["nodes"]:
        rows.append(f"{node['node']}: {node['total_gib']:g} GiB, {node['verdict']}")
        for part in node["components"]:
            when = {"loading": "loading", "serving": "serving"}.get("".join(part["when"]), "both")
            rows.append(f"  {part['title']:<44} {part['gib']:8.2f} +/- {part['within']:5.2f}  {when:<8} {part['arithmetic']}")
        for name in ("loading", "serving"):
            one = node[name]
            rows.append(f"  {'= ' + name:<44} {one['used_gib']:8.2f} +/- {one['within_gib']:5.2f}  {one['available_gib']:.2f} left")
        rows.append(f"  the cache holds {node['sequences']} sequence(s) of {use['context']} tokens, {node['one_sequence_gib']:g} GiB each with state")
    rows += [f"why: {reason}" for reason in found["reasons"]]
    rows += [f"would go: {one['change']} {one['to']}: {one['verdict']}" for one in found["would_fit"]]
    for one in found["lengths"]:
        more = "" if one["more_gib"] is None else f", {one['more_gib']:g} more than the length before"
        reported = f"; reported: {one['reported']}" if one["reported"] else ""
        rows.append(f"length {one['context']}: {one['verdict']}, {one['kv_gib']:g} GiB a sequence{more}{reported}")
    if found["propose_kv_cache_memory_bytes"]:
        size = found["propose_kv_cache_memory_bytes"]
        asked = f"--kv-cache-memory-bytes {size} ({size / plan.GIB:.2f} GiB)"
        after = "not proposed until a start of this image, profile and driver is on record (gb10_plan_recorded)"
        rows.append(f"proposed, applied with gb10_kv_cache=recorded: {asked}" if use["recorded"] else f"a figure, {after}: {asked}")
    return [*rows, *(f"advice: {one}" for one in found["advice"])]
