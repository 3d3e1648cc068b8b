# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the stages judge, as pure functions from what nodes answered to findings. This plugin util is PRIVATE to the collection.

What preflight judges is data, and stands in rules.yml.
"""

from __future__ import annotations

import functools
import os
import typing as t

try:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version
except ImportError:
    # ansible-core requires packaging; only ansible-test's import check runs without it.
    HAS_PACKAGING = False
else:
    HAS_PACKAGING = True

from ansible_collections.gb10.cluster.plugins.module_utils._launcher.protocol import GUARD_DIRECTORY, LAUNCH_TARGET
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.module_utils._node.ray import TOKEN_SINCE, knows_token
from ansible_collections.gb10.cluster.plugins.module_utils._redact import HIDDEN, HIDDEN_START, shown_value
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import executors, profiles, resolver
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.checks import CLUSTER, holder, listed, named_like
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.stack_checks import NOT_SET

Finding = dict[str, t.Any]

#: Ids of findings that are made here. Those of rules stand in rules.yml.
IDS = (
    "companion.seen",
    "engine.answers",
    "engine.flags",
    "image.contract",
    "image.cuda",
    "image.entrypoint",
    "image.gpu",
    "image.id",
    "image.ray",
    "image.requires",
    "proof.auth",
    "proof.capability",
    "proof.completion",
    "proof.device",
    "proof.entrypoint",
    "proof.env",
    "proof.env_same",
    "proof.fabric",
    "proof.fabric_devices",
    "proof.fabric_nccl",
    "proof.halted",
    "proof.hub_token",
    "proof.libcuda",
    "proof.memlock",
    "proof.rank_hosts",
    "proof.secrets",
    "ray.node",
    "ray.stranger",
    "ray.token",
    "teardown.containers",
    "teardown.lost",
    "teardown.ports",
    "teardown.seen",
    "teardown.unit",
)

#: What to do when the ranks do not sit where they should, by the stage that makes the node containers.
SPREAD_REMEDIES = {
    "ray": "every node must run the same number of ranks: tear down and bring up again",
    "native": "every node must run the same number of ranks: run with --tags serve, which starts all of them again when one is missing",
}


#: Where the API's guard lies in a container.
GUARD_PATH = f"{LAUNCH_TARGET}/{GUARD_DIRECTORY}"

#: Characters of a variable's value that a finding shows.
VALUE_SHOWN = 300

#: What is said of versions of Ray.
RAY_WITH_TOKEN = f"{'.'.join(map(str, TOKEN_SINCE))} or newer"


def on_node(findings: list[Finding], node: str) -> list[Finding]:
    """Findings that a module made on a node, under the name the inventory has for it instead of the machine's own."""
    return [{**found, "node": node} for found in findings]


# --- image ------------------------------------------------------------------------------------------------------------------


def images(contracts: dict[str, dict[str, t.Any]], profile: dict[str, t.Any], copy: str = "never", live: bool = False) -> list[Finding]:
    """Judge the node images: each has what the profile needs, and all have the same contents; where they are copied (``copy``), the same id.

    ``contracts`` maps a node to what ``image_contract_info`` answered there. ``live`` is whether an engine serves that keeps the images as they are.
    """
    tag = profile["image"]["tag"]
    seen = {
        node: {"images": {tag: {"id": answer["image_id"], **{part: answer[part] for part in ("labels", "contract")}} if answer["exists"] else None}}
        for node, answer in contracts.items()
    }
    found = judging.judge_after_stage(("image.present", "image.same"), seen, {"image": profile["image"], "offline": False})
    for node, answer in contracts.items():
        if not answer["exists"]:
            continue
        contract = answer["contract"]
        if profile["executor"] == "ray" or "ray" in profile["image"]["layers"]:
            found.append(_ray(node, answer, profile))
        found += [_entrypoint(node, contract["entrypoint"], tag), *_requirements(node, contract, profile)]
        found += _gpu(node, answer["gpu"], tag) if answer["gpu"] else []
    ids = {node: answer["image_id"] for node, answer in contracts.items() if answer["exists"]}
    return [*found, *_other_ids(ids, tag, copy, live), *_unequal({node: answer["contract"] for node, answer in contracts.items() if answer["exists"]})]


def _other_ids(ids: dict[str, str], tag: str, copy: str, live: bool) -> list[Finding]:
    """Each node's image against the first node's by its id. Images that every node built by itself have ids of their own."""
    if copy == "never" or len(ids) < 2:
        return []
    first, wanted = next(iter(ids.items()))
    others = [node for node, image_id in ids.items() if image_id != wanted]
    if not others:
        return [finding("image.id", "cluster", "pass", f"{tag} is {wanted[:19]} on all nodes.", measured=wanted, needed=wanted)]
    return [
        finding(
            "image.id",
            node,
            "block" if copy == "required" and not live else "warn",
            f"{tag} is {ids[node][:19]} here and {wanted[:19]} on {first}: it was made on each"
            + (", and stays while its engine serves; what it contains is compared instead." if live else "."),
            measured=ids[node],
            needed=wanted,
            remedy="run with --tags image -e gb10_allow_restart=true: one image is copied to the others, over the fabric",
        )
        for node in others
    ]


def _unequal(contracts: dict[str, dict[str, t.Any]]) -> list[Finding]:
    """Each node's contract against the first node's, field by field."""
    by_node = {node: _fields(contract) for node, contract in contracts.items()}
    first = next(iter(by_node), "")
    reference, found = by_node.pop(first, {}), []
    for node, fields in by_node.items():
        differing = [name for name in sorted(reference.keys() | fields.keys()) if reference.get(name) != fields.get(name)]
        detail = [f"{name} is {fields.get(name, 'absent')} here and {reference.get(name, 'absent')} on {first}" for name in differing]
        found.append(
            finding(
                "image.contract",
                node,
                "block" if differing else "pass",
                f"{len(differing)} field(s) differ: {_some(detail, '; ')}." if differing else f"the image holds and takes what that of {first} does.",
                measured={name: fields.get(name) for name in differing},
                needed={name: reference.get(name) for name in differing},
                remedy="run with --tags image -e gb10_rebuild_image=true, or take the same image.base on every node" if differing else "",
            )
        )
    return found


def _fields(value: t.Any, name: str = "") -> dict[str, t.Any]:
    """Return every field of a contract by its path. A list's items are fields, so that one more or less is one difference; a package is one by its name."""
    if name == "packages":
        return {f"{name}.{package}": version for package, _equals, version in (item.partition("==") for item in value)}
    if isinstance(value, dict):
        return {path: item for key, below in value.items() for path, item in _fields(below, f"{name}.{key}" if name else key).items()}
    if isinstance(value, list):
        return {f"{name}.{item}": True for item in value}
    return {} if name in ("packages_digest", "engine_error") else {name: value}


def _ray(node: str, answer: dict[str, t.Any], profile: dict[str, t.Any]) -> Finding:
    """Ray must be there, and when it is used, ask for its token. One in the place of another, which the base keeps out, is told of."""
    tag, contract, wanted = profile["image"]["tag"], answer["contract"], (answer["base"] or {}).get("ray_wanted")
    version = contract["versions"].get("ray") if contract["programs"].get("ray") else None
    judged = functools.partial(finding, "image.ray", node, measured=version)
    if not version:
        remedy = "put `ray` into the profile's image.layers and run with --tags image"
        return judged("block", f"image {tag} holds no Ray; vLLM dropped it from its requirements in 0.18.", remedy=remedy)
    if profile["executor"] == "ray" and not knows_token(version):
        message = f"image {tag} holds Ray {version}, which ignores the token: whoever reaches it runs programs on every node."
        return judged("block", message, needed=RAY_WITH_TOKEN, remedy=f"take an image.base with Ray {RAY_WITH_TOKEN}, or put `ray` into the image.layers")
    words = executors.ray_words(profile, answer)
    if wanted:
        remedy = f"set gb10_ray_version: {version} to keep it, or take an image.base that {wanted['version']} goes with"
        return judged("warn", f"{words}.", needed=wanted["version"], remedy=remedy)
    return judged("pass", f"{words}; on Python {contract['python']}.")


def _entrypoint(node: str, entrypoint: dict[str, t.Any], tag: str) -> Finding:
    """What the image's own entrypoint does with a command must be known: one that sets up CUDA has to stay, a program has to go."""
    argv, known = " ".join(entrypoint["argv"]), entrypoint["kind"] != "unknown"
    does = {"none": "there is none", "wrapper": f"{argv} stays before every program", "program": f"{argv} is replaced"}
    return finding(
        "image.entrypoint",
        node,
        "pass" if known else "block",
        f"{does[entrypoint['kind']]}." if known else f"image {tag} starts with {argv}, which does not run a command that it is given.",
        measured=argv,
        needed="an entrypoint that runs what it is given, or none",
        remedy="" if known else 'take an image.base whose entrypoint ends in exec "$@", or clear it in one of your own: FROM it, ENTRYPOINT []',
    )


def _gpu(node: str, reached: dict[str, t.Any], tag: str) -> list[Finding]:
    """A container of the image must reach the GPU, by a libcuda that knows the image's CUDA."""
    if reached["error"] or not reached["gpus"]:
        said = reached["error"] or "the driver in it lists no GPU"
        why = f": {reached['why']} ({said})" if reached["why"] else f": {said}"
        return [
            finding(
                "image.gpu",
                node,
                "block",
                f'a container of image {tag} does not reach the GPU{why}; an engine in it ends with "current platform None does not support ray" or the like.',
                measured=said,
                needed="a GPU",
                remedy=reached["remedy"] or "compare on the node: docker run --rm --gpus all IMAGE nvidia-smi, and nvidia-smi without a container",
            )
        ]
    message = f"a container reaches {reached['gpus']} GPU(s) by driver {reached['driver']}; its libcuda knows CUDA {reached['cuda']}."
    return [finding("image.gpu", node, "pass", message, measured=reached["gpus"]), _cuda(node, reached, tag)]


def _cuda(node: str, reached: dict[str, t.Any], tag: str) -> Finding:
    """The libcuda that a container gets against the CUDA of its image.

    NVIDIA's documentation of CUDA compatibility: within a major version compiled kernels run on an older libcuda and PTX does not; across major
    versions nothing runs without a newer libcuda, the one of forward compatibility.
    """
    judged = functools.partial(finding, "image.cuda", node, measured=reached["cuda"], needed=reached["image_cuda"])
    if not reached["image_cuda"]:
        remedy = "set ENV CUDA_VERSION in the image when you build it yourself"
        return judged("warn", f"neither CUDA_VERSION nor PyTorch says which CUDA image {tag} was built with; libcuda knows {reached['cuda']}.", remedy=remedy)
    have, want = ([int(part) for part in version.split(".")] for version in (reached["cuda"], reached["image_cuda"]))
    known = f"image {tag} was built with CUDA {reached['image_cuda']}, and libcuda in its container ({', '.join(reached['libcuda'])}) knows {reached['cuda']}"
    remedy = (
        "take an image.base that brings its own libcuda and switches it on in its entrypoint, as NVIDIA's do; or one for the CUDA that nvidia-smi names; "
        "or update the driver"
    )
    if have >= want:
        return judged("pass", f"{known}.")
    if have[0] < want[0]:
        return judged("block", f"{known}: nothing of it runs.", remedy=remedy)
    jit = 'kernels run, and what is compiled on the node fails: "the provided PTX was compiled with an unsupported toolchain"'
    return judged("warn", f"{known}: its own {jit}.", remedy=remedy)


def _requirements(node: str, contract: dict[str, t.Any], profile: dict[str, t.Any]) -> list[Finding]:
    """The profile's version ranges against the image's contents."""
    found: list[Finding] = []
    if not HAS_PACKAGING:
        return [finding("image.requires", node, "unknown", "the Python package `packaging` is missing on the controller.", remedy="pip install packaging")]
    for name, wanted in profile["requires"].items():
        have = contract["python"] if name == "python" else contract["versions"].get(name)
        try:
            fits = have is not None and Version(have) in SpecifierSet(str(wanted), prereleases=True)
        except (InvalidVersion, InvalidSpecifier) as error:
            found.append(finding("image.requires", node, "unknown", f"{name}: {error}", measured=have, needed=wanted, remedy="correct requires in the profile"))
            continue
        found.append(
            finding(
                "image.requires",
                node,
                "pass" if fits else "block",
                f"{name} {have or 'is missing'}, profile {profile['id']} needs {wanted}.",
                measured=have,
                needed=wanted,
                remedy="" if fits else "choose another image.base, or correct requires in the profile",
            )
        )
    return found


# --- engine -----------------------------------------------------------------------------------------------------------------


def resolved(
    image: dict[str, t.Any], profile: dict[str, t.Any], arguments: dict[str, t.Any], env: dict[str, str], executor: str, nodes: int
) -> tuple[dict[str, t.Any], list[Finding]]:
    """Return what is changed of the wanted arguments and variables for the engine in an image, and a finding for each change and refusal.

    ``image`` is what ``image_contract_info`` answered. The changes are ``without`` (names), ``arguments`` and ``env`` (new values).
    """
    tag = profile["image"]["tag"]
    judged = functools.partial(finding, "engine.answers", CLUSTER)
    if not image["exists"]:
        return {}, [judged("unknown", f"image {tag} is not on the head, so nobody knows what its engine takes.", remedy="run with --tags image")]
    contract = image["contract"]
    version, takes = contract["versions"].get("vllm"), contract["engine"]
    if not version:
        return {}, [judged("block", f"image {tag} holds no vLLM.", remedy="choose another image.base")]
    try:
        engine = resolver.Engine(version, takes, [*contract["image_env"], *profile["env"]["declared"]], profile["fork_flags"])
    except ValueError as error:
        return {}, [judged("unknown", f"{error}.", remedy="choose another image.base")]
    found = []
    if not takes:
        message = f"vLLM {version} does not say what it takes ({contract['engine_error']}), so the history of releases alone is asked."
        found.append(judged("warn", message, remedy="see docs/flags.md; an argument that it does not know ends its start"))
    result = resolver.resolve(engine, arguments, env, executor, places=executor == "native" and nodes > 1)
    for step in result.steps:
        found.append(finding("engine.flags", CLUSTER, step.verdict, step.message, remedy=step.remedy, source=step.source))
    given = {**result.arguments, **result.env}
    changes = {
        "without": [name for name in (*arguments, *env) if name not in given],
        "arguments": {name: value for name, value in result.arguments.items() if name not in arguments},
        "env": {name: value for name, value in result.env.items() if name not in env},
    }
    return changes, found


# --- model ------------------------------------------------------------------------------------------------------------------


def models(answers: dict[str, dict[str, t.Any]], profile: dict[str, t.Any]) -> list[Finding]:
    """Judge the model on all nodes, each alone and against the others; ``answers`` maps a node to what ``model_info`` answered there."""
    found = [one for node, answer in answers.items() for one in on_node(answer["findings"], node)]
    # Each node was asked for the one revision that it would serve, so it stands for main here; whether it is whole for its purpose was judged there.
    seen = {
        node: {
            "models": [
                {
                    "refs": ["main"],
                    "bytes": row["size_bytes"],
                    "missing": [],
                    # A plain directory has no commit: the names and sizes of its files take its place.
                    "revision": row["revision"] or row.get("listing"),
                    **{part: row[part] for part in ("repo", "complete")},
                }
                for row in answer["repositories"]
                if row["complete"]
            ]
        }
        for node, answer in answers.items()
    }
    wanted = [judging.fetched({**row, "revision": None}, row["purpose"]) for row in profiles.repositories(profile)]
    return found + judging.judge_after_stage(("model.same",), seen, {"repositories": wanted})


#: The rules by which a download is judged before its first byte.
BEFORE_A_DOWNLOAD = ("model.disk", "model.gated", "model.license")


def download(answers: dict[str, dict[str, t.Any]], wanted: t.Iterable[dict[str, t.Any]], own: t.Mapping[str, dict[str, t.Any]]) -> list[Finding]:
    """Judge what nodes are about to fetch: whether it fits on their disks, and whether the hub will give it.

    ``answers`` maps a node to what ``model_info`` answered there, ``own`` to its ``model_root`` and ``hub_token``; ``wanted`` is what
    :func:`judging.wanted` says of the profile. These are rules of the preflight; a play with the tag ``model`` alone comes here without it.
    """
    # Each node was asked for the one revision that it would serve, so it stands for main here; whether it is whole for its purpose was judged there.
    seen = {
        node: {
            "models": [
                {"refs": ["main"], "bytes": row["size_bytes"], **{part: row[part] for part in ("repo", "revision", "complete", "missing", "unfinished_bytes")}}
                for row in answer["repositories"]
            ],
            "disk": {own[node]["model_root"]: {"free_bytes": answer["free_bytes"]}},
        }
        for node, answer in answers.items()
    }
    asked = [{**one, "revision": None, "purpose": "model"} for one in wanted]
    needs = {"repositories": asked, "model_size_known": any(one["gib"] is not None for one in asked)}
    return judging.judge_after_stage(BEFORE_A_DOWNLOAD, seen, needs, own)


# --- ray --------------------------------------------------------------------------------------------------------------------


def gate(answer: dict[str, t.Any], addresses: dict[str, str], gpus_per_node: int) -> list[Finding]:
    """Ray must see every node, alive, under its own address, with its GPUs; anything else costs half an hour later.

    ``answer`` is what ``node_container_info`` said on the head; ``addresses`` maps the nodes to their fabric addresses.
    """
    if answer["ray_error"]:
        remedy = "look at the head's container (docker logs), then run with --tags ray"
        return [finding("ray.node", CLUSTER, "unknown", f"Ray's head does not say which nodes it has: {answer['ray_error']}", remedy=remedy)]
    alive = {node["address"]: node for node in answer["nodes"] if node["alive"]}
    found = [_token(answer["ray_without_token"], answer["ray_version"])]
    for name, address in addresses.items():
        node = alive.get(address)
        gpus = node["gpus"] if node else None
        fits = gpus == gpus_per_node
        if node is None:
            message, remedy = f"{address} is not registered with Ray (alive: {', '.join(sorted(alive)) or 'none'}).", "run with --tags ray"
        elif not fits:
            message, remedy = f"Ray sees {gpus:g} GPU(s) on {address}, {gpus_per_node} needed.", "check gb10_ray_gpus and gb10_container_gpus, then --tags ray"
        else:
            message, remedy = f"{address} is alive with {gpus:g} GPU(s).", ""
        found.append(finding("ray.node", name, "pass" if fits else "block", message, measured=gpus, needed=gpus_per_node, remedy=remedy))
    for address in sorted(set(alive) - set(addresses.values())):
        found.append(
            finding(
                "ray.stranger",
                CLUSTER,
                "block",
                f"{address} is registered with this Ray cluster and is no node of it; ranks could land there.",
                measured=address,
                remedy="stop Ray on that machine, or add it to gb10_workers",
            )
        )
    return found


def _token(came: str, version: str) -> Finding:
    """Ray must refuse whoever has no token: who may ask it may run programs on every node."""
    wrong = functools.partial(finding, "ray.token", CLUSTER, measured=came, needed="refused")
    if came == "refused":
        return wrong("pass", "Ray refuses a question without the token.")
    if came == "answered":
        remedy = f"use Ray {RAY_WITH_TOKEN} (gb10_ray_version, or another image.base), then --tags image,ray -e gb10_allow_restart=true"
        return wrong("block", f"Ray {version} answers a question without the token: whoever reaches it runs programs on every node.", remedy=remedy)
    remedy = "run with --tags ray again; when it stays so, see docker logs of the head's container"
    return wrong("unknown", f"whether Ray refuses a question without the token is unknown: {came or 'it was not asked'}.", remedy=remedy)


# --- proof ------------------------------------------------------------------------------------------------------------------


#: Finding → what of a profile's ``checks`` asks for it.
PROOF_OF = {
    "proof.completion": "completion",
    "proof.rank_hosts": "rank_hosts",
    "proof.halted": "rank_hosts",
    "proof.env": "env_parity",
    "proof.env_same": "env_parity",
    "proof.device": "container_rights",
    "proof.capability": "container_rights",
    "proof.memlock": "container_rights",
    "proof.entrypoint": "container_rights",
    "proof.libcuda": "container_rights",
}


def proof(
    ranks: dict[str, dict[str, t.Any]],
    completion: dict[str, t.Any],
    expected_env: dict[str, dict[str, str]],
    needs: dict[str, t.Any],
) -> list[Finding]:
    """Judge a live engine: a token came back, ranks sit on distinct hosts, both carry the forwarded env, containers have their rights.

    ``ranks`` maps a node to what ``rank_info`` answered; ``completion`` is what ``vllm_serve_info`` measured on the head,
    or ``error``, why there is none, with its ``verdict``;
    ``expected_env`` maps a node to its container's environment; ``needs`` has ``ranks`` (their number), ``secrets`` (names no
    other node's ranks may carry), ``own_names`` (patterns of variables that may differ from rank to rank), ``head``, ``devices``,
    ``capabilities``, ``memlock`` (bytes, -1 for unlimited), ``stage`` (the one
    that makes the node containers, ``ray`` or ``native``), ``gpus`` (whether the containers ask for any), ``api_secrets`` (those of ``secrets``
    that the head's own ranks have from the API's process, whose children they are), ``checks`` (which of ``_profile.PROOFS`` are asked for; secrets
    and tokens are looked for in any case).
    """
    tokens = completion.get("tokens") or 0
    found = [
        finding(
            "proof.completion",
            needs["head"],
            "pass" if tokens >= 1 else completion.get("verdict", "block"),
            f"a completion of {tokens} token(s) in {completion.get('seconds')} s." if tokens else f"no completion: {completion.get('error', 'no answer')}",
            measured=tokens,
            needed=1,
            remedy="" if tokens else "run with --tags serve and look at the engine's log",
        )
    ]
    per_node = {node: len(answer["ranks"]) for node, answer in ranks.items()}
    spread = sum(per_node.values()) == needs["ranks"] and len(set(per_node.values())) == 1
    found.append(
        finding(
            "proof.rank_hosts",
            CLUSTER,
            "pass" if spread else "block",
            f"{sum(per_node.values())} rank(s): " + ", ".join(f"{count} on {node}" for node, count in per_node.items()) + ".",
            measured=per_node,
            needed=needs["ranks"],
            remedy="" if spread else SPREAD_REMEDIES[needs["stage"]],
        )
    )
    halted = {node: [rank["pid"] for rank in answer["ranks"] if rank["halted"]] for node, answer in ranks.items()}
    for node, pids in halted.items():
        named = ", ".join(map(str, pids))
        found.append(
            finding(
                "proof.halted",
                node,
                "block" if pids else "pass",
                f"rank {named} was stopped by a signal or a debugger: the engine hangs." if pids else "every rank here runs on.",
                measured=pids,
                needed=[],
                remedy=f"find out who did it; kill -CONT {named} lets it go on" if pids else "",
            )
        )
    for node, answer in ranks.items():
        found += _rank_env(node, answer["ranks"], expected_env[node], needs)
        found += _rights(node, answer["container"], needs)
        found += [_libcuda(node, rank, answer["container"], needs) for rank in answer["ranks"]] if needs["gpus"] else []
        found.append(_hub_token(node, answer["container"], needs))
    found += _env_same(ranks, needs)
    return [one for one in found if PROOF_OF.get(one["id"]) in (None, *needs["checks"])]


def _carries(name: str, have: str | None, wanted: str) -> bool:
    """Return whether a rank has a variable of its node's container; the launcher adds the guard's directory to Python's path.

    Of a secret it is seen that it is there; whether all ranks have the same one is compared by digests.
    """
    return have in (wanted, shown_value(name, wanted)) or (name == "PYTHONPATH" and have is not None and have.startswith(f"{wanted}:"))


def auth(node: str, routes: dict[str, t.Any] | None, guarded: bool) -> list[Finding]:
    """Judge that no route of the API answers without its key.

    ``routes`` is what ``vllm_serve_info`` found; ``guarded``: the engine was started with the collection's guard.
    """
    if routes is None:
        return [finding("proof.auth", node, "unknown", "nobody asked the API's routes without the key.", remedy="run with --tags proof")]
    asked, unknown = f"{routes['asked']} routes asked without the API's key", routes["unknown"]
    if routes["open"] and not guarded:
        verdict = "warn"
        message = f"{asked}, {len(routes['open'])} answer: {_some(routes['open'])}. The engine was started before the collection guarded them."
        remedy = "restart it when nobody uses it: --tags serve -e gb10_allow_restart=true; until then keep gb10_api_port behind a firewall"
    elif routes["open"]:
        verdict, message = "block", f"{asked}, {len(routes['open'])} answer: {_some(routes['open'])}."
        remedy = "this front end of the engine ignores --middleware (VLLM_USE_RUST_FRONTEND?): use another, or keep gb10_api_port behind a firewall"
    elif unknown:
        verdict, message, remedy = "unknown", f"{asked}, {len(unknown)} do not answer: {_some(unknown)}.", "run again; a route that hangs is the engine's"
    else:
        verdict, remedy = "pass", ""
        message = f"{asked}, none answers" + ("" if routes["listed"] else "; the engine does not list its own") + "."
    return [finding("proof.auth", node, verdict, message, measured=routes["open"] or unknown, needed=[], remedy=remedy)]


def _some(texts: list[str], between: str = ", ") -> str:
    return between.join(texts[:5]) + (f" and {len(texts) - 5} more" if len(texts) > 5 else "")


def _rank_env(node: str, ranks: list[dict[str, t.Any]], expected: dict[str, str], needs: dict[str, t.Any]) -> list[Finding]:
    """The forwarded variables in each live rank against what its node's container was given; secrets only where they belong."""
    found = []
    for rank in ranks:
        wrong = {name: rank["env"].get(name) for name, value in expected.items() if not _carries(name, rank["env"].get(name), value)}
        shown = {name: shown_value(name, expected[name]) for name in wrong}
        detail = ", ".join(f"{name}={have!r} instead of {shown[name]!r}" for name, have in wrong.items())
        own = needs["api_secrets"] if node == needs["head"] else []
        but_own = f" but {', '.join(own)} of its API" if own else ""
        leaked = sorted(name for name in needs["secrets"] if name in rank["present"] and name not in own)
        # The environment of a start proves a secret that stands in it, and nothing else.
        blind = rank["source"] != "live"
        found.append(
            _blind("proof.env", node, rank)
            if blind
            else finding(
                "proof.env",
                node,
                "block" if wrong else "pass",
                f"rank {rank['pid']}: {detail}." if wrong else f"rank {rank['pid']} carries all {len(expected)} forwarded variables.",
                measured=wrong,
                needed=shown,
                remedy=f"recreate the node containers: --tags {needs['stage']},serve -e gb10_allow_restart=true" if wrong else "",
            )
        )
        found.append(
            _blind("proof.secrets", node, rank)
            if blind and not leaked
            else finding(
                "proof.secrets",
                node,
                "block" if leaked else "pass",
                f"rank {rank['pid']} holds {', '.join(leaked)}." if leaked else f"rank {rank['pid']} holds no secret{but_own}.",
                measured=leaked,
                needed=[],
                remedy="the engine copied its environment: report this with the engine's version" if leaked else "",
            )
        )
    return found


def _env_same(ranks: dict[str, dict[str, t.Any]], needs: dict[str, t.Any]) -> list[Finding]:
    """Every variable of every live rank, on all nodes, is the same, but for those that are expected to differ. Secrets are compared and not shown."""
    several = {node for node, answer in ranks.items() if len(answer["ranks"]) > 1}
    every = {f"{node} (pid {rank['pid']})" if node in several else node: rank for node, answer in ranks.items() for rank in answer["ranks"]}
    blind = [label for label, rank in every.items() if rank["source"] != "live" or rank["environ"] is None]
    if blind:
        remedy = "see what keeps root from reading the memory of that process (ptrace_scope, seccomp)"
        return [finding("proof.env_same", CLUSTER, "unknown", f"the whole live environment of the rank on {', '.join(blind)} is unknown.", remedy=remedy)]
    found = []
    names = sorted({name for rank in every.values() for name in rank["environ"]})
    for name in names:
        values = {label: _comparable(name, rank["environ"].get(name)) for label, rank in every.items()}
        if len(set(values.values())) > 1 and not named_like(name, needs["own_names"]):
            shown = {label: HIDDEN if value.startswith(HIDDEN_START) else value[:VALUE_SHOWN] for label, value in values.items()}
            message = f"{name} differs between the live ranks: {listed(shown)}."
            again = f"--tags {needs['stage']},serve -e gb10_allow_restart=true"
            remedy = f"set it alike for every node (gb10_env; gb10_host_env where it must differ), then {again}"
            found.append(finding("proof.env_same", CLUSTER, "block", message, measured=shown, needed="one value", remedy=remedy))
    same = f"{len(every)} live rank(s) agree in all of {len(names)} variables but those that are expected to differ."
    return found or [finding("proof.env_same", CLUSTER, "pass", same)]


def _comparable(name: str, value: str | None) -> str:
    """Return a variable's value as ranks are compared by it. Where the API is a rank's parent, the launcher added the guard's directory to Python's path."""
    if name == "PYTHONPATH" and value:
        value = os.pathsep.join(entry for entry in value.split(os.pathsep) if entry != GUARD_PATH) or None
    return NOT_SET if value is None else value


def _libcuda(node: str, rank: dict[str, t.Any], container: dict[str, t.Any], needs: dict[str, t.Any]) -> Finding:
    """A live rank holds the libcuda that a container of its image was proven to get: NGC images bring one that is newer than the driver's."""
    have, want = rank["libcuda"], container["libcuda"]
    held = f"rank {rank['pid']} holds {', '.join(have) or 'no libcuda'}"
    judged = functools.partial(finding, "proof.libcuda", node, measured=have, needed=want)
    if want is None:
        return judged("warn", f"{held}; which one belongs there is unknown.", remedy="run with --tags image, which proves it")
    if have == want:
        return judged("pass", f"{held}.")
    # One that was created without the entrypoint waits for its restart, as proof.entrypoint says.
    return judged(
        "warn" if container["entrypoint_bypassed"] else "block",
        f'{held} instead of {", ".join(want)}: what is compiled on the node fails ("the provided PTX was compiled with an unsupported toolchain").',
        remedy=f"recreate the node containers: --tags {needs['stage']},serve -e gb10_allow_restart=true",
    )


def _hub_token(node: str, container: dict[str, t.Any], needs: dict[str, t.Any]) -> Finding:
    """No token of the hub lies where the engine, and the model's own code, can read it."""
    seen = container["hub_tokens"]
    # One that was created with the whole cache waits for its restart, as the stage that made it says.
    verdict = "pass" if not seen else "block" if container["hub_alone"] else "warn"
    return finding(
        "proof.hub_token",
        node,
        verdict,
        f"the container can read {', '.join(seen)}." if seen else "the container sees no token of the hub.",
        measured=seen,
        needed=[],
        remedy=f"recreate the node containers: --tags {needs['stage']},serve -e gb10_allow_restart=true; and revoke that token" if seen else "",
    )


def _blind(id: str, node: str, rank: dict[str, t.Any]) -> Finding:
    message = f"rank {rank['pid']} does not tell its environment, only that of its start."
    return finding(id, node, "unknown", message, remedy="see what keeps root from reading the memory of that process (ptrace_scope, seccomp)")


def _rights(node: str, container: dict[str, t.Any], needs: dict[str, t.Any]) -> list[Finding]:
    """Devices, capabilities, entrypoint and memlock as they are in force in the container."""
    again = f"the container was created without it: --tags {needs['stage']} -e gb10_allow_restart=true"
    found = []
    for device in needs["devices"]:
        there = device in container["devices"]
        message = f"{device} is {'' if there else 'not '}in the container."
        found.append(finding("proof.device", node, "pass" if there else "block", message, needed=device, remedy="" if there else again))
    for capability in needs["capabilities"]:
        there = capability in container["capabilities"]
        message = f"{capability} is {'' if there else 'not '}in force in the container."
        found.append(finding("proof.capability", node, "pass" if there else "block", message, needed=capability, remedy="" if there else again))
    bypassed = container["entrypoint_bypassed"]
    without = "the container runs without the image's own entrypoint, which may set up the CUDA that its kernels were compiled for."
    found.append(
        finding(
            "proof.entrypoint",
            node,
            "warn" if bypassed else "pass",
            without if bypassed else "the container runs under the image's own entrypoint, or needs none.",
            remedy=again if bypassed else "",
        )
    )
    have, want = container["memlock_bytes"], needs["memlock"]
    fits = have == -1 or (want != -1 and have >= want)
    found.append(
        finding(
            "proof.memlock",
            node,
            "pass" if fits else "block",
            f"memlock is {'unlimited' if have == -1 else f'{have} bytes'} in the container.",
            measured=have,
            needed=want,
            remedy="" if fits else "raise the Docker daemon's LimitMEMLOCK, or set gb10_memlock to what this machine allows",
        )
    )
    return found


# --- teardown ------------------------------------------------------------------------------------------------------

#: How to clear the nodes that answer when others do not.
WITHOUT_LOST = "-e gb10_ignore_unreachable=true"


def unseen_companions(errors: t.Sequence[dict[str, t.Any]], node: str) -> list[Finding]:
    """Say that companions could not be seen: what is not seen is neither started nor taken for ended."""
    found = [error for error in errors if error["section"].partition(".")[0] == "companions"]
    return [finding("companion.seen", node, "unknown", f"companions: {error['error']}", remedy=error["remedy"] or "look at the node") for error in found]


def lost(reached: dict[str, dict[str, t.Any]], ignore: bool) -> list[Finding]:
    """Judge which nodes cannot be reached, from what Ansible said of a first task on each; with ``ignore`` they stop nothing yet."""
    return [
        finding(
            "teardown.lost",
            node,
            "warn" if ignore else "block",
            f"it cannot be reached, so what runs there is unknown: {' '.join(str(answer.get('msg', '')).split())}",
            remedy="bring it back and run teardown again" if ignore else f"see that ssh answers there; to clear the other nodes without it: {WITHOUT_LOST}",
        )
        for node, answer in reached.items()
        if answer.get("unreachable")
    ]


def left_alone(nodes: t.Iterable[str]) -> list[Finding]:
    """Say at the end which nodes were never looked at: a teardown without them is no whole one."""
    said = "it could not be reached, so its containers were left as they are"
    return [finding("teardown.lost", node, "block", f"{said}.", remedy="bring it back and run teardown again") for node in nodes]


def teardown(info: dict[str, t.Any], node: str, cluster: str, memory: dict[str, t.Any], unit: t.Mapping[str, t.Any] | None = None) -> list[Finding]:
    """Judge that nothing of ``cluster`` is left on a node: no container, no unit, no listener on the ports that were asked for, no memory.

    ``memory`` is what ``memory_watch`` answered, ``unit`` what ``node_container_info`` said of the unit.
    """
    errors = [error for error in info["errors"] if error["section"] in ("docker", "containers", "listeners")]
    if errors:
        return [finding("teardown.seen", node, "unknown", f"{error['section']}: {error['error']}", remedy="look at the node") for error in errors]
    left = [container["name"] for container in info["containers"] if container["cluster"] == cluster]
    found = [
        finding(
            "teardown.containers",
            node,
            "block" if left else "pass",
            f"left: {', '.join(left)}." if left else f"no container of {cluster}.",
            measured=left,
            needed=[],
            remedy="run teardown.yml again" if left else "",
        )
    ]
    if unit and (unit["installed"] or unit["files"]):
        message = f"the unit {unit['name']} is left, or its files are."
        found.append(finding("teardown.unit", node, "block", message, measured=unit["name"], remedy="run teardown.yml again"))
    held = "; ".join(f"port {listener['port']} is held by {holder(listener)}" for listener in info["listeners"])
    found.append(
        finding(
            "teardown.ports",
            node,
            "warn" if held else "pass",
            f"{held}." if held else "nobody listens on its ports.",
            remedy="it is not ours; stop it if it shall not be there" if held else "",
        )
    )
    # Memory that is missing warns and stops nothing, so that it is unknown whether some is missing does so, too.
    lowered = [{**one, "verdict": "warn"} if one["verdict"] == "unknown" else one for one in memory["findings"]]
    return [*found, *on_node(lowered, node)]
