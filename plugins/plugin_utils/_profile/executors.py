# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Chooses what spreads an engine's ranks over the nodes: Ray, or the engine itself. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import math
import typing as t

from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.form import ProfileError
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.resolver import Engine, history
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.schema import problem
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.versions import HAS_PACKAGING, InvalidVersion, SpecifierSet


def is_asked(profile: dict[str, t.Any]) -> bool:
    """Return whether the image has to be inspected: the profile leaves the choice open, has several ranks, and adds no Ray to the image."""
    return profile["executor"] == "auto" and ranks(profile) > 1 and "ray" not in profile["image"]["layers"]


def ranks(profile: t.Mapping[str, t.Any]) -> int:
    """Return the number of ranks of a profile's engine, one for each GPU."""
    return math.prod(profile["parallel"][size] for size in ("tensor", "pipeline", "data"))


def choose(profile: dict[str, t.Any], image: dict[str, t.Any] | None = None, predict: bool = False) -> dict[str, str]:
    """Return ``executor`` (``ray`` or ``native``) and ``reason``.

    ``image`` is the answer of ``image_info`` about the profile's image, only needed when :func:`is_asked`. With
    ``predict``, an image that does not exist yet is assumed to contain no Ray. Raises :class:`ProfileError` when neither executor fits.
    """
    if ranks(profile) == 1:
        return {"executor": "native", "reason": "one rank: there is nothing to spread"}
    if profile["executor"] != "auto":
        return {"executor": profile["executor"], "reason": f"the profile says so{': ' if profile['executor_reason'] else ''}{profile['executor_reason']}"}
    if not is_asked(profile):
        return {"executor": "ray", "reason": "auto: the profile adds Ray to the image"}
    tag = profile["image"]["tag"]
    if not image:
        raise _refused(f"image {tag} was not checked", "include the role gb10.cluster.gb10 with tasks_from: engine before the others")
    if not image["exists"] and predict:
        return {"executor": "native", "reason": f"auto: {tag} is not there yet, and is taken to hold no Ray"}
    if not image["exists"]:
        raise _refused(f"image {tag} is not on the head, so it cannot be asked", "run with --tags image")
    contract = image["contract"]
    if contract["versions"].get("ray") and contract["programs"].get("ray"):
        return {"executor": "ray", "reason": f"auto: {tag} holds Ray {contract['versions']['ray']}"}
    engine = contract["versions"].get("vllm")
    if profile["parallel"]["data"] > 1:
        without = f"image {tag} holds no Ray, and without it only tensor and pipeline ranks are spread"
        raise _refused(f"{without}, but parallel.data is {profile['parallel']['data']}", "add `ray` to the profile's image.layers")
    if engine and spreads_ranks(engine):
        return {"executor": "native", "reason": f"auto: {tag} holds no Ray, and vLLM {engine} spreads its own ranks"}
    first, has = history()["nnodes"]["added"], f"vLLM {engine}" if engine else "no vLLM"
    raise _refused(
        f"image {tag} holds no Ray, and {has}, which spreads its own ranks from {first} on",
        "add `ray` to the profile's image.layers, or choose another image.base",
    )


def _refused(what: str, remedy: str) -> ProfileError:
    return ProfileError(problem("executor auto", what, remedy=remedy))


def spreads_ranks(version: str) -> bool:
    """Return whether this version of vLLM has --nnodes. Raises :class:`ProfileError` when the version cannot be read."""
    try:
        return Engine(version).has("nnodes")
    except ValueError as error:
        raise _refused(str(error), "set executor in the profile") from None


def ray_words(profile: dict[str, t.Any], image: dict[str, t.Any]) -> str:
    """Return a text: the image's Ray, which one it replaces and why, and whether the profile's evidence has it together with the image's vLLM.

    ``image`` is the answer of ``image_info`` about an image that exists.
    """
    versions, wanted = image["contract"]["versions"], (image["base"] or {}).get("ray_wanted")
    kept_out = f" in place of {wanted['version']}: {wanted['why']}" if wanted else ""
    return f"Ray {versions['ray']}{kept_out}; {_recorded(profile, versions)}"


def _recorded(profile: dict[str, t.Any], versions: dict[str, t.Any]) -> str:
    rows = profile["evidence"] if isinstance(profile["evidence"], list) else []
    beside = [row["ray"] for row in rows if row["ray"] and row["vllm"] and _within(versions.get("vllm"), row["vllm"])]
    if any(_within(versions["ray"], wanted) for wanted in beside):
        return f"measured together with vLLM {versions['vllm']}"
    recorded = f", where Ray {' and '.join(dict.fromkeys(beside))} was measured (gb10_ray_version)" if beside else ""
    return f"untested together with vLLM {versions.get('vllm') or 'none'}{recorded}"


def _within(version: str | None, wanted: str) -> bool:
    try:
        return bool(HAS_PACKAGING and version) and SpecifierSet(wanted, prereleases=True).contains(version)
    except InvalidVersion:
        # A fork's own name for its build.
        return False
