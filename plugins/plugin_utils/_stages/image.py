# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node images: each contains what the profile needs, and all have the same contents. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.module_utils._node.ray import TOKEN_SINCE, knows_token
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import executors
from ansible_collections.gb10.cluster.plugins.plugin_utils._report import image_copies, model_copies
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import Finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.versions import HAS_PACKAGING, InvalidSpecifier, InvalidVersion, SpecifierSet, Version

#: Ids of findings that are made here.
IDS = (
    "image.contract",
    "image.cuda",
    "image.entrypoint",
    "image.gpu",
    "image.id",
    "image.ray",
    "image.requires",
)
#: Only the answers that the task names.
READS: dict[str, str] = {}
#: The versions of Ray that require the token, as text.
RAY_WITH_TOKEN = f"{'.'.join(map(str, TOKEN_SINCE))} or newer"


def images(contracts: dict[str, dict[str, t.Any]], profile: dict[str, t.Any], copy: str = "never", live: bool = False) -> list[Finding]:
    """Judge the node images: each has what the profile needs, and all have the same contents. If they are copied (``copy``), they have the same id.

    ``contracts`` maps a node to its answer of ``image_info``. ``live`` is true while an engine serves, which keeps the images unchanged.
    """
    tag = profile["image"]["tag"]
    findings = judging.judge_after_stage(
        ("image.present", "image.same"),
        {
            node: {"images": {tag: {"id": answer["image_id"], **{part: answer[part] for part in ("labels", "contract")}} if answer["exists"] else None}}
            for node, answer in contracts.items()
        },
        {"image": profile["image"], "offline": False},
    )
    there = {node: answer for node, answer in contracts.items() if answer["exists"]}
    for node, answer in there.items():
        contract = answer["contract"]
        if profile["executor"] == "ray" or "ray" in profile["image"]["layers"]:
            findings.append(_ray(node, answer, profile))
        findings += [_entrypoint(node, contract["entrypoint"], tag), *_requirements(node, contract, profile)]
        findings += _gpu(node, answer["gpu"], tag) if answer["gpu"] else []
    ids = {node: answer["image_id"] for node, answer in there.items()}
    return [*findings, *_other_ids(ids, tag, copy, live), *_unequal({node: answer["contract"] for node, answer in there.items()})]


def _other_ids(ids: dict[str, str], tag: str, copy: str, live: bool) -> list[Finding]:
    """Compare the id of each node's image with the first node's. Images that each node built itself have different ids."""
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
            remedy="run with --tags image -e gb10_allow=restart: one image is copied to the others, over the fabric",
        )
        for node in others
    ]


def _unequal(contracts: dict[str, dict[str, t.Any]]) -> list[Finding]:
    """Compare each node's contract with the first node's, field by field."""
    by_node = {node: _fields(contract) for node, contract in contracts.items()}
    first = next(iter(by_node), "")
    reference, findings = by_node.pop(first, {}), []
    for node, fields in by_node.items():
        differing = [name for name in sorted(reference.keys() | fields.keys()) if reference.get(name) != fields.get(name)]
        detail = [f"{name} is {fields.get(name, 'absent')} here and {reference.get(name, 'absent')} on {first}" for name in differing]
        findings.append(
            finding(
                "image.contract",
                node,
                "block" if differing else "pass",
                f"{len(differing)} field(s) differ: {table.some(detail, '; ')}." if differing else f"the image holds and takes what that of {first} does.",
                measured={name: fields.get(name) for name in differing},
                needed={name: reference.get(name) for name in differing},
                remedy="run with --tags image -e gb10_allow=rebuild, or take the same image.base on every node" if differing else "",
            )
        )
    return findings


def _fields(value: t.Any, name: str = "") -> dict[str, t.Any]:
    """Return every field of a contract by its path.

    The items of a list are fields of their own, so an additional item is a single difference. A package is a field with its name.
    """
    if name == "packages":
        return {f"{name}.{package}": version for package, _equals, version in (item.partition("==") for item in value)}
    if isinstance(value, dict):
        return {path: item for key, below in value.items() for path, item in _fields(below, f"{name}.{key}" if name else key).items()}
    if isinstance(value, list):
        return {f"{name}.{item}": True for item in value}
    return {} if name in ("packages_digest", "engine_error") else {name: value}


def _ray(node: str, answer: dict[str, t.Any], profile: dict[str, t.Any]) -> Finding:
    """Ray must be installed and, if it is used, require its token. A version other than the one that the base image needs is reported."""
    tag, contract, wanted = profile["image"]["tag"], answer["contract"], (answer["base"] or {}).get("ray_wanted")
    version = contract["versions"].get("ray") if contract["programs"].get("ray") else None
    judged = functools.partial(finding, "image.ray", node, measured=version)
    if not version:
        return judged(
            "block",
            f"image {tag} holds no Ray; vLLM dropped it from its requirements in 0.18.",
            remedy="put `ray` into the profile's image.layers and run with --tags image",
        )
    if profile["executor"] == "ray" and not knows_token(version):
        return judged(
            "block",
            f"image {tag} holds Ray {version}, which ignores the token: anyone who reaches it can run programs on every node.",
            needed=RAY_WITH_TOKEN,
            remedy=f"take an image.base with Ray {RAY_WITH_TOKEN}, or put `ray` into the image.layers",
        )
    words = executors.ray_words(profile, answer)
    if wanted:
        return judged(
            "warn",
            f"{words}.",
            needed=wanted["version"],
            remedy=f"set gb10_ray_version: {version} to keep it, or take an image.base that {wanted['version']} goes with",
        )
    return judged("pass", f"{words}; on Python {contract['python']}.")


def _entrypoint(node: str, entrypoint: dict[str, t.Any], tag: str) -> Finding:
    """The image's own entrypoint must be of a known kind: a wrapper that sets up CUDA has to stay, a program has to be replaced."""
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
    """A container of the image must reach the GPU, through a libcuda that supports the image's CUDA."""
    if reached["error"] or not reached["gpus"]:
        error = reached["error"] or "the driver in it lists no GPU"
        why = f": {reached['why']} ({error})" if reached["why"] else f": {error}"
        return [
            finding(
                "image.gpu",
                node,
                "block",
                f'a container of image {tag} does not reach the GPU{why}; an engine in it ends with "current platform None does not support ray" or the like.',
                measured=error,
                needed="a GPU",
                remedy=reached["remedy"] or "compare on the node: docker run --rm --gpus all IMAGE nvidia-smi, and nvidia-smi without a container",
            )
        ]
    return [
        finding(
            "image.gpu",
            node,
            "pass",
            f"a container reaches {reached['gpus']} GPU(s) by driver {reached['driver']}; its libcuda knows CUDA {reached['cuda']}.",
            measured=reached["gpus"],
        ),
        _cuda(node, reached, tag),
    ]


def _cuda(node: str, reached: dict[str, t.Any], tag: str) -> Finding:
    """Compare the libcuda in a container with the CUDA of its image.

    NVIDIA's documentation of CUDA compatibility: within a major version, compiled kernels run on an older libcuda, and PTX does not. Across major
    versions, nothing runs without a newer libcuda (the one for forward compatibility).
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
    jit = 'kernels run, and those that are compiled on the node fail: "the provided PTX was compiled with an unsupported toolchain"'
    return judged("warn", f"{known}: its own {jit}.", remedy=remedy)


def _requirements(node: str, contract: dict[str, t.Any], profile: dict[str, t.Any]) -> list[Finding]:
    """Compare the profile's version ranges with the contents of the image."""
    findings: list[Finding] = []
    if not HAS_PACKAGING:
        return [finding("image.requires", node, "unknown", "the Python package `packaging` is missing on the controller.", remedy="pip install packaging")]
    for name, wanted in profile["requires"].items():
        have = contract["python"] if name == "python" else contract["versions"].get(name)
        try:
            fits = have is not None and Version(have) in SpecifierSet(str(wanted), prereleases=True)
        except (InvalidVersion, InvalidSpecifier) as error:
            findings.append(
                finding("image.requires", node, "unknown", f"{name}: {error}", measured=have, needed=wanted, remedy="correct requires in the profile")
            )
            continue
        findings.append(
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
    return findings


def judge(answers: Answers, run: Run) -> Outcome:
    """Judge the node images. ``settings`` has ``profile`` and ``copy``. Check mode judges nothing if a node has no image yet."""
    contracts = {node: answer["contract"] for node, answer in answers.items()}
    copies = model_copies.copies_of(answers, "image_copied")
    if run.check_mode and not all(contract["exists"] for contract in contracts.values()):
        built = not any(contract["exists"] for contract in contracts.values()) or not copies
        return Outcome(f"Image (as it is; would be {'built' if built else 'copied'})", [], lines=image_copies.lines(copies))
    return Outcome(
        "Image",
        images(contracts, run.settings["profile"], run.settings.get("copy") or "never", bool(run.settings.get("live"))),
        lines=image_copies.lines(copies),
    )
