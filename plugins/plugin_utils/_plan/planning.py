# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory plan of a profile: its facts, its settings, its nodes, and the plan in words. This plugin util is PRIVATE to the collection.

The formula is in :mod:`plan` of the module utils, for nodes and the controller.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import typing as t
from pathlib import Path

from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.gb10.cluster.plugins.module_utils._arguments import argument_values
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, sentence
from ansible_collections.gb10.cluster.plugins.module_utils._memory import components, model_facts, plan, recipe
from ansible_collections.gb10.cluster.plugins.module_utils._records import starts
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import declared_claims, wording

KIND = "gb10.cluster.plan"
#: Ids of the findings of this file.
IDS = ("plan.profile",)

_TABLE, _RECIPES = Path(__file__).with_name("models.yml"), Path(__file__).with_name("recipes.yml")
_GB = 1e9
#: Variables that leave a model's table in a file, with the values that have this effect.
_MAPPED = {"VLLM_PLE_TABLE_MEMORY": ("disk",), "VLLM_PLE_MMAP": ("1",)}
_REPOSITORY = "repository:"
#: Words in a repository's name for the storage format of its weights; the words before them name the model.
_STORED = re.compile(r"[-_.](?:nvfp4(?:a16)?|mxfp[48]|fp[48]|w\d+a\d+|int[48]|gptq|awq|exl3|autoround|bf16|[348]-?bit)(?=[-_.]|$)", re.IGNORECASE)
#: The lowest version of vLLM here. Lower versions are those of forks with their own numbers, which count as the newest.
_OLDEST = (0, 10)


@functools.cache
def table() -> dict[str, t.Any]:
    """Return the collection's own table of models."""
    return yaml_load(_TABLE.read_text(encoding="utf-8"))


@functools.cache
def recipes() -> list[dict[str, t.Any]]:
    """Return the recorded recipes, those that were reported to run and those that failed."""
    return yaml_load(_RECIPES.read_text(encoding="utf-8"))["records"]


def model_of(repo: str) -> str:
    """Return the model name of a repository, without the owner and the storage format of the weights: ``a/Qwen3.6-27B-NVFP4`` gives ``qwen3.6-27b``."""
    return _STORED.split(repo.rsplit("/", maxsplit=1)[-1], maxsplit=1)[0].lower()


@functools.cache
def _shapes() -> dict[str, str]:
    """Return the architectures of the table by model name."""
    return {model_of(repo): listed["is"] for repo, listed in table()["repositories"].items()}


def facts_of(profile: t.Mapping[str, t.Any], config: t.Mapping[str, t.Any] | None = None) -> dict[str, t.Any]:
    """Return the facts of a profile's model from the table, ``config`` (a parsed config.json or its facts) and the profile; the last wins.

    A repository that is not in the table has the architecture that its name indicates, and the file size that the profile states.
    """
    repo = profile["model"]["repo"]
    listed = dict(table()["repositories"].get(repo) or {})
    name = listed.pop("is", "")
    shape = table()["architectures"].get(name or _shapes().get(model_of(repo), ""), {})
    if not name and shape and profile["model"].get("size_gb"):
        listed["checkpoint_gb"] = profile["model"]["size_gb"]
    read = {} if config is None else (model_facts.from_config(config) if {"architectures", "model_type"} & set(config) else dict(config))
    own = {name: value for name, value in profile["memory"]["config"].items() if value is not None}
    facts = {**shape.get("facts", {}), **listed, **read, **own}
    sources = [own.get("source") or ("the profile" if own else ""), "config.json in the cache" if read else "", shape.get("source", "")]
    if shape and not name:
        sources.append(f"of which {repo} is a quantization by its name")
    facts["source"] = ", ".join(dict.fromkeys(source for source in sources if source))
    env = profile["env"]["shared"]
    if facts.get("table_gib") and any(str(env.get(name)) in values for name, values in _MAPPED.items()):
        facts.setdefault("file_backed_gib", facts["table_gib"])
    return facts


def growth_of(repo: str) -> list[dict[str, t.Any]]:
    """Return the reported growth of a model's memory between two lengths that has no explanation."""
    listed = table()["repositories"].get(repo) or {}
    return table()["architectures"].get(listed.get("is", ""), {}).get("growth", [])


def drafter(profile: t.Mapping[str, t.Any], serve: t.Mapping[str, t.Any]) -> float:
    """Return the GiB on disk of a drafter with its own repository, 0.0 for none or one of unknown size."""
    spec = serve.get("speculative_config")
    name = str(spec.get("model") or "") if isinstance(spec, dict) else ""
    known = profile["repositories"].get(name[len(_REPOSITORY) :].split("/", maxsplit=1)[0], {}) if name.startswith(_REPOSITORY) else {"repo": name}
    listed = table()["drafters"].get(known.get("repo"), {})
    return (known.get("size_gb") or listed.get("size_gb") or 0.0) * _GB / components.GIB


def uses_ray(profile: t.Mapping[str, t.Any]) -> bool:
    """Return whether Ray would start the ranks. A single rank does not need it; ``auto`` is Ray if an image layer contains it."""
    parallel = profile["parallel"]
    if parallel["tensor"] * parallel["pipeline"] * parallel["data"] == 1:
        return False
    return profile["executor"] == "ray" or (profile["executor"] == "auto" and "ray" in profile["image"]["layers"])


def default_share(profile: t.Mapping[str, t.Any]) -> float:
    """Return the engine's default share of the memory: that of the newest vLLM that the profile allows."""
    wanted = profile.get("requires", {}).get("vllm", "").replace(" ", "").split(",")
    # 0.20.0 equals 0.20, and is not later.
    matches = [re.fullmatch(r"(<=|<|===?)([0-9]+(?:\.[0-9]+)*?)(?:\.0)*(?:\.\*)?(?![0-9.]).*", specifier) for specifier in wanted]
    ends = [(tuple(int(part) for part in match[2].split(".")), match[1] == "<") for match in matches if match]
    newest = [(end, below) for end, below in ends if end >= _OLDEST]
    shares = reversed(recipe.DEFAULT_SHARES.items())
    return next(share for since, share in shares if all(since < end if below else since <= end for end, below in newest))


class Claim(t.NamedTuple):
    """What a profile claims of each node's memory: facts of its model, its settings, and the GiB that it declares. ``missing``: facts without which
    there is no plan. ``reports``: recipes of the model that were reported to run. ``given``: arguments that override those of the profile."""

    facts: dict[str, t.Any]
    use: recipe.Settings
    declared_gib: float | None
    missing: list[str]
    reports: tuple[recipe.Report, ...]
    given: dict[str, t.Any]


def claim(
    profile: t.Mapping[str, t.Any],
    serve: t.Mapping[str, t.Any] | None = None,
    *,
    context: int | None = None,
    concurrency: int | None = None,
    config: t.Mapping[str, t.Any] | None = None,
    recorded: bool = False,
) -> Claim:
    """Return what a profile claims of each node's memory. The arguments are those of :func:`memory_plan`."""
    over = {name.replace("-", "_"): value for name, value in (serve or {}).items()}
    facts, use, declared_gib = _asked(profile, over, context=context, concurrency=concurrency, config=config, recorded=recorded)
    return Claim(
        facts,
        use,
        declared_gib,
        plan.lacking(facts, declared_gib),
        reports_of(profile["model"]["repo"]),
        {**over, **({"max_model_len": use.context} if context else {}), **({"max_num_seqs": use.seqs} if concurrency and use.seqs == concurrency else {})},
    )


def _asked(
    profile: t.Mapping[str, t.Any],
    serve: t.Mapping[str, t.Any],
    *,
    context: int | None = None,
    concurrency: int | None = None,
    config: t.Mapping[str, t.Any] | None = None,
    recorded: bool = False,
) -> tuple[dict[str, t.Any], recipe.Settings, float | None]:
    """Return the facts of a profile's model, its settings, and the GiB that it declares."""
    arguments = {name: value for name, value in {**profile["serve"], **serve}.items() if value is not None}
    facts = facts_of(profile, config)
    declared_gb = profile["memory"]["weights_gb"]
    from_facts = model_facts.weights_bytes(facts) is not None
    use = recipe.settings_of(
        arguments,
        profile["parallel"],
        facts,
        ray=uses_ray(profile),
        draft_gib=drafter(profile, arguments) if from_facts else 0.0,
        draft_in_weights=not from_facts,
        context=context,
        recorded=recorded,
        default_share=default_share(profile),
    )
    if concurrency and use.seqs and concurrency > use.seqs:
        use = use._replace(seqs=concurrency)
    return facts, use, declared_gb * _GB / components.GIB if declared_gb else None


def recorded_profile(record: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return a recorded recipe as a profile, with the fields that a memory plan needs."""
    return {
        "id": record["id"],
        "model": {"repo": record["repo"]},
        "memory": {"class_gb": record.get("class_gb", 128), "weights_gb": None, "config": record.get("facts", {})},
        "parallel": {"tensor": record["nodes"], "pipeline": 1, "data": 1, "expert": record.get("expert", False)},
        "executor": "ray" if record.get("ray") else "native",
        "image": {"layers": []},
        "env": {"shared": record.get("env", {})},
        "serve": record["serve"],
        "repositories": {"drafter": {"size_gb": record["drafter_gb"]}} if "drafter_gb" in record else {},
        "ladder": [],
    }


@functools.cache
def reports_of(repo: str) -> tuple[recipe.Report, ...]:
    """Return the recipes of a repository that were reported to run, as a plan compares them."""
    reports = []
    for record in [record for record in recipes() if record["repo"] == repo and record["runs"]]:
        profile, node = recorded_profile(record), record.get("node", {})
        facts, use, declared_gib = _asked(profile, {})
        total = node.get("total_gib", plan.CLASS_TOTAL[profile["memory"]["class_gb"]])
        reports.append(recipe.Report(use, plan.weights_gib(facts, use, declared_gib), total, node.get("tenants_gib", 0.0), record["source"]))
    return tuple(reports)


def _with_claims(nodes: list[components.Node], tenants: t.Any) -> list[components.Node]:
    """Return nodes with the claims of declared tenants. Raises :class:`ClusterError` for an invalid claim, or one on a node outside the plan."""
    wrong = [f"{where}: {what}, expected {expected}" for where, what, expected in declared_claims.tenant_faults(tenants)]
    names = [node.name for node in nodes]
    if not wrong:
        strangers = [tenant for tenant in tenants if tenant.get("node") not in (None, *names)]
        wrong = [f"gb10_tenants: {tenant['name']} is on {tenant['node']}, expected one of the plan's nodes ({', '.join(names)})" for tenant in strangers]
    if wrong:
        raise ClusterError(
            "; ".join(wrong),
            where="tenants of the plan",
            remedy='Correct them; gb10_plan_nodes names the nodes: [{"node": "spark-1"}, {"node": "spark-2"}].',
            reason="input",
        )
    result = []
    for node in nodes:
        claimed = declared_claims.claimed(tenants, node.name)
        result.append(
            node._replace(
                tenants=node.tenants + sum(claimed.values()),
                who=declared_claims.who({"others": node.tenants, **claimed} if node.tenants and claimed else claimed),
            )
        )
    return result


def nodes_of(given: t.Any, number: int, class_gb: int | None) -> list[components.Node]:
    """Return the nodes to plan for: those ``given``, or else ``number`` typical nodes of the profile's class.

    ``given`` is the number of nodes, a size in GiB for each node, a list of sizes (also with commas between them), or a list of mappings with ``node``,
    ``total_gib`` and maybe ``tenants_gib``, ``available_gib`` and ``free_at_start_gib``. Raises :class:`ClusterError` with all faults.
    """
    nodes, wrong = _nodes(given, number, class_gb)
    _refuse(wrong, "Correct them, or leave them out for what the inventory has, or else for both classes of Sparks.")
    return nodes


def _nodes(given: t.Any, number: int, class_gb: int | None) -> tuple[list[components.Node], list[declared_claims.Fault]]:
    """Return the nodes as :func:`nodes_of` does, and the faults of those given."""
    usual = plan.CLASS_TOTAL[class_gb or 128]
    if given in (None, [], "") or declared_claims.counted(given):
        given = [usual] * (declared_claims.counted(given) or number)
    elif isinstance(given, str) and "," in given:
        given = [text.strip() for text in given.split(",")]
    elif not isinstance(given, list):
        given = [given] * number
    wrong, nodes, known = [], [], ("node", *declared_claims.NODE_RANGES)
    for index, entry in enumerate(given):
        row = entry if isinstance(entry, dict) else {"total_gib": entry}
        wrong += [(f"nodes[{index}].{name}", "is not a known field", f"one of {', '.join(known)}") for name in row if name not in known]
        sizes = {name: declared_claims.gib(row.get(name)) for name in declared_claims.NODE_RANGES}
        for name, (least, most) in declared_claims.NODE_RANGES.items():
            size = sizes[name]
            if row.get(name) is not None and (size is None or not least <= size <= most):
                wrong.append((f"nodes[{index}].{name}", f"is {row[name]!r}", f"GiB from {least} to {most}"))
        name = str(row.get("node") or f"node-{index + 1}")
        nodes.append(components.Node(name, sizes["total_gib"] or usual, sizes["tenants_gib"] or 0.0, sizes["available_gib"], sizes["free_at_start_gib"]))
    twice = sorted({node.name for node in nodes if [other.name for other in nodes].count(node.name) > 1})
    if twice:
        wrong.append(("nodes", f"names {', '.join(twice)} more than once", "each node once"))
    if len(given) != number:
        wrong.append(("nodes", f"names {len(given)}", f"{number}, as many as the profile has ranks"))
    return nodes, wrong


def _numbers(context: t.Any, concurrency: t.Any, lengths: t.Any) -> tuple[int | None, int | None, list[int], list[declared_claims.Fault]]:
    """Return context, concurrency and lengths as numbers, and their faults."""
    wrong: list[declared_claims.Fault] = []
    listed = [] if lengths in (None, "") else lengths if isinstance(lengths, list) else str(lengths).split(",")
    steps = [step for step in (_whole("lengths", str(rung).strip(), wrong) for rung in listed) if step]
    return _whole("context", context, wrong), _whole("concurrency", concurrency, wrong, int), steps, wrong


def _whole(name: str, value: t.Any, wrong: list[declared_claims.Fault], read: t.Callable[[str], int] = argument_values.size) -> int | None:
    """Return a whole number of 1 or more, also from text; None for no value. Any other value is added to ``wrong``."""
    if value is None or value == "":
        return None
    try:
        number = read(str(value))
    except ValueError:
        number = 0
    if number < 1 or isinstance(value, bool):
        wrong.append((name, f"is {value!r}", "a whole number of 1 or more"))
        return None
    return number


def _refuse(wrong: t.Sequence[declared_claims.Fault], remedy: str) -> None:
    if wrong:
        raise ClusterError("; ".join(sentence(*fault) for fault in wrong), where="the plan", remedy=remedy, reason="input")


def setting_faults(given: t.Mapping[str, t.Any], number: int) -> list[declared_claims.Fault]:
    """Return the faults in the settings of the playbook ``plan`` for ``number`` ranks, each with the setting's name."""
    context, *lengths = str(given.get("gb10_plan_context") or 0).split(",")
    *_read, wrong = _numbers(None if context.strip() == "0" else context, given.get("gb10_plan_concurrency"), lengths)
    wrong += _nodes(given.get("gb10_plan_nodes"), number, None)[1]
    named = [(f"gb10_plan_{where.replace('lengths', 'context')}", what, expected) for where, what, expected in wrong]
    return [*named, *declared_claims.tenant_faults(given.get("gb10_tenants") or [])]


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
    inventory: t.Mapping[str, t.Any] | None = None,
) -> dict[str, t.Any]:
    """Return the memory plan of a profile (as the lookup ``profile`` returns it). Raises :class:`ClusterError` for invalid arguments.

    ``serve`` overrides the profile's arguments; null removes one. ``context`` is in tokens; ``concurrency`` sequences of that length should fit at once (and
    are the minimum of ``max_num_seqs``). ``lengths`` are others to compare (by default the profile's ladder), ``tenants`` others' claims, as ``gb10_tenants``.
    """
    tokens, wanted, steps, wrong = _numbers(context, concurrency, lengths or profile["ladder"])
    _refuse(wrong, "Correct them.")
    profile_claim = claim(profile, serve, context=tokens, concurrency=wanted, config=config, recorded=recorded)
    facts, use, declared_gib = profile_claim.facts, profile_claim.use, profile_claim.declared_gib
    number, class_gb = use.tensor * use.pipeline * use.data, profile["memory"]["class_gb"] or max(plan.CLASS_TOTAL)
    # A number of nodes alone leaves their sizes to the inventory or to the classes. One that differs from the number of ranks is refused.
    if declared_claims.counted(nodes) and nodes_of(nodes, number, class_gb):
        nodes = None
    nodes = nodes or declared_claims.of_inventory(inventory or {}, number)

    def planned(on: list[components.Node], search: bool = True) -> dict[str, t.Any]:
        return plan.plan(facts, use, on, declared_gib=declared_gib, concurrency=wanted or 1, search=search, reports=profile_claim.reports)

    on = _with_claims(nodes_of(nodes, number, class_gb), list(tenants or []))
    result = planned(on)
    classes = []
    for size in () if nodes or result["missing"] else sorted(plan.CLASS_TOTAL):
        class_plan = result if size == class_gb else planned(_with_claims(nodes_of(None, number, size), list(tenants or [])), search=False)
        classes.append({"class_gb": size, "total_gib": plan.CLASS_TOTAL[size], "verdict": class_plan["verdict"], "nodes": class_plan["nodes"]})
    single = None
    if use.tensor > 1 and not result["missing"]:
        single = plan.plan(
            facts,
            use._replace(tensor=1, pipeline=1, data=1, ray=False),
            on[:1],
            declared_gib=declared_gib and declared_gib * use.tensor,
            search=False,
            reports=profile_claim.reports,
        )["verdict"]
    return {
        "schema": 1,
        "kind": KIND,
        "profile": profile["id"],
        "repo": profile["model"]["repo"],
        **result,
        "class_gb": None if nodes else class_gb,
        "classes": classes,
        "given": profile_claim.given,
        "settings": use._asdict(),
        "facts": facts,
        "lengths": [] if result["missing"] else _lengths(profile_claim, on, steps, profile["model"]["repo"]),
        "one_node": single,
        "advice": [] if result["missing"] else plan.advice(facts, use, single),
        "declared_weights_gib": declared_gib and round(declared_gib, 2),
    }


def _lengths(profile_claim: Claim, nodes: list[components.Node], steps: list[int], repo: str) -> list[dict[str, t.Any]]:
    """Return a row for each length: verdict, GiB of one sequence on a node, the increase from the previous row, and reports about that increase."""
    rows: list[dict[str, t.Any]] = []
    for tokens in sorted({*steps, profile_claim.use.context}):
        changed = profile_claim.use._replace(context=tokens)
        result = plan.plan(profile_claim.facts, changed, nodes, declared_gib=profile_claim.declared_gib, search=False, reports=profile_claim.reports)
        size = components.kv_bytes(profile_claim.facts, changed) / components.GIB
        before = rows[-1] if rows else None
        more = None if before is None else round(size - before["kv_gib"], 3)
        reported = [growth for growth in growth_of(repo) if before and (growth["from"], growth["to"]) == (before["context"], tokens)]
        worst = min((node["serving"]["available_gib"] for node in result["nodes"]), default=None)
        rows.append(
            (
                {
                    "context": tokens,
                    "verdict": result["verdict"],
                    "kv_gib": round(size, 3),
                    "more_gib": more,
                    "available_gib": worst,
                    "reported": "; ".join(f"{growth['reported']} ({growth['source']}), unexplained" for growth in reported),
                }
            )
        )
    return rows


def admission(profile_claim: Claim, node: components.Node, records: t.Sequence[starts.Start] = ()) -> dict[str, t.Any]:
    """Return the plan's result for one node as it is now: ``verdict``, figures (``node``), ``reasons``, and ``would_go`` in words. No fact may be missing.

    ``records`` are those of the same image, profile and driver. The memory that they took counts where it is more than the plan's.
    """
    use, known = profile_claim.use, starts.taken_gib(records, profile_claim.use.context)
    if known is not None:
        node = node._replace(took=known[0], peak=known[1])
    use = use._replace(recorded=starts.bears(records, use.context))
    result = plan.plan(profile_claim.facts, use, [node], declared_gib=profile_claim.declared_gib, reports=profile_claim.reports)
    return {
        "verdict": result["verdict"],
        "node": result["nodes"][0],
        "reasons": result["nodes"][0]["reasons"],
        "would_go": wording.would_go(result["would_fit"], profile_claim.given, result["nodes"][0]["reported"]),
    }


class Pin(t.NamedTuple):
    """The size of the KV cache in bytes that recorded starts confirm (``size``, or None), those starts by node, and the reasons of the nodes without one."""

    size: int | None
    starts: dict[str, starts.Start]
    lacks: dict[str, str]


def pin(profile_claim: Claim, nodes: t.Sequence[components.Node], records: t.Mapping[str, t.Sequence[starts.Start]]) -> Pin:
    """Return the size that the plan proposes for the KV cache, if every node has a recorded start of the same image, profile and driver.

    ``nodes`` have their MemTotal and the claims of others, and no measured values. The same nodes thus get the same size, whatever runs on them. ``records``
    are those of the same image, profile and driver, by node.
    """
    borne, lacks = {}, {}
    for node in nodes:
        known = [start for start in records[node.name] if starts.bears([start], profile_claim.use.context)]
        if known:
            borne[node.name] = known[-1]
            continue
        most = max((start["context"] for start in records[node.name]), default=0)
        longest = f"; the longest had {most}" if most else ""
        lacks[node.name] = f"no start of this image, profile and driver with {profile_claim.use.context} tokens is recorded{longest}"
    without = [*profile_claim.use.unread, *profile_claim.missing]
    if without:
        lacks.update({node.name: f"nothing is proposed without {', '.join(without)}" for node in nodes})
    if lacks:
        return Pin(None, borne, lacks)
    result = plan.plan(profile_claim.facts, profile_claim.use, nodes, declared_gib=profile_claim.declared_gib, search=False)
    short = [node["node"] for node in result["nodes"] if not node["propose_kv_cache_memory_bytes"]]
    lacks = dict.fromkeys(short, "the plan leaves no room for a fixed cache size with the reserve")
    return Pin(result["propose_kv_cache_memory_bytes"], borne, lacks)


def pinned(profile_claim: Claim, size: int | None) -> Claim:
    """Return the claim with a KV cache of this size; the same claim without a size."""
    return profile_claim if size is None else profile_claim._replace(use=profile_claim.use._replace(kv_bytes=size))


def _digest(profile: t.Mapping[str, t.Any], serve: t.Mapping[str, t.Any] | None, without: t.Collection[str] = ()) -> str:
    arguments = {name.replace("-", "_"): value for name, value in {**profile["serve"], **(serve or {})}.items() if value is not None}
    model = {name: profile["model"].get(name) for name in ("repo", "revision")}
    kept = {name: value for name, value in arguments.items() if name not in without}
    content = [model, dict(profile["parallel"]), profile["executor"], profile["env"]["shared"], kept]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def digest(profile: t.Mapping[str, t.Any], serve: t.Mapping[str, t.Any] | None = None) -> str:
    """Return the digest of the settings that determine a profile's memory. It excludes the context, which records contain separately, and the size of the
    cache in bytes, which is decided by the records."""
    return _digest(profile, serve, ("max_model_len", "kv_cache_memory_bytes"))


def expected(
    profile: t.Mapping[str, t.Any],
    serve: t.Mapping[str, t.Any] | None = None,
    tenants: t.Iterable[t.Mapping[str, t.Any]] = (),
    companions: t.Iterable[t.Mapping[str, t.Any]] = (),
    node: str = "",
) -> dict[str, t.Any]:
    """Return the data from which a node computes the memory level up to which a start is as expected.

    The data are the digest of this start, the plan's figures, and the claims of others there. ``lacks`` names the facts that are missing for it. All claims
    of others count, in any mode and whatever is in use now: that errs towards a lower level, and is the same in each run.
    """
    profile_claim = claim(profile, serve)
    lacks = [*profile_claim.missing, *(["the size of the drafter"] if profile_claim.use.unsized_draft else [])]
    grown = [growth["to"] for growth in growth_of(profile["model"]["repo"]) if growth["to"] <= profile_claim.use.context]
    lacks += [f"an explanation of what {tokens} tokens were reported to take" for tokens in grown]
    return {
        "start_digest": _digest(profile, serve),
        "facts": profile_claim.facts,
        "use": profile_claim.use._asdict(),
        "declared_gib": profile_claim.declared_gib,
        "claims_gib": sum([*declared_claims.claimed(tenants, node).values(), *(companion["memory_gib"] for companion in companions)]),
        "lacks": lacks,
    }
