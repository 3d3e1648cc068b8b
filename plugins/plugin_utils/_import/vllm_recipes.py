# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads recipes of vllm-project/recipes: a model with variants, features and hardware, combined for a Spark. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._arguments.serve_arguments import canonical
from ansible_collections.gb10.cluster.plugins.plugin_utils._import import arguments, mods, shell, template
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.draft import Choices, Draft
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.ledger import Ledger, RecipeError
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.reading import Recipe
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import schema

#: The recipes' names for this machine, its generation, and its maker, which counts where the generation has no entry.
_SPARK, _GENERATION, _MAKER = "dgx_spark_gb10", "blackwell", "nvidia"
#: The strategies for one node, and for several.
_STRATEGIES = ("single_node_tp", "multi_node_tp")
#: GB of one Spark that a model may use, by the recipes' own figures (which are a fifth more than the weights).
_NODE_GB = 120
#: Numbers of nodes over which tensor ranks can be spread.
_NODES = (1, 2, 4, 8)

#: Images whose engine has the version of its release.
_RELEASES = ("vllm/vllm-openai", "docker.io/vllm/vllm-openai", "nvcr.io/nvidia/vllm")

#: An image of a release, wherever a recipe's file names it.
_PINNED = re.compile(r"(?:docker\.io/)?(?:vllm/vllm-openai:v[0-9]|nvcr\.io/nvidia/vllm:[0-9])[\w.-]*[0-9a-z]")
#: A guide's names for this machine.
_NAMES_SPARK = re.compile(r"(?i)DGX.?Spark|\bGB10\b")
_HEADING = re.compile(r"(#{1,6})\s")
#: Lines of a guide that are shown.
_MOST_LINES = 6

_ARGS = {"type": "list", "elements": "str", "default": []}
_PART: dict[str, t.Any] = {"extra_args": _ARGS, "extra_env": {"type": "dict", "default": {}}}
#: The parts of a recipe that are read; the rest describes other machines, or is text.
_SPEC: dict[str, t.Any] = {
    "meta": {"type": "dict", "default": {}},
    "model": {"type": "dict", "required": True},
    "features": {"type": "dict", "default": {}, "values": {"type": "dict"}},
    "opt_in_features": {"type": "list", "elements": "str", "default": []},
    "variants": {"type": "dict", "default": {}, "values": {"type": "dict"}},
    "hardware_overrides": {"type": "dict", "default": {}},
    "strategy_overrides": {"type": "dict", "default": {}},
    "hardware_opt_in_features": {"type": "dict", "default": {}},
    "dependencies": {"type": "list", "elements": "dict", "default": []},
}
_MODEL: dict[str, t.Any] = {
    "model_id": {"type": "str", "required": True},
    "base_args": _ARGS,
    "base_env": {"type": "dict", "default": {}},
}
#: Parts of a recipe that do not affect an engine on a Spark.
_OTHER = {
    "guide", "compatible_strategies", "default_strategy", "strategy_hardware", "strategy_min_gpus", "kv_offload_support", "hardware_notes", "omni",
}  # fmt: skip
_MODEL_OTHER = {
    "architecture", "parameter_count", "active_parameters", "context_length", "install", "nightly_required", "docker_image", "docker_source",
    "min_vllm_version", "default_frontend", "flashinfer_autotune", "supports_dcp",
}  # fmt: skip
_VARIANT_OTHER = {
    "model_id", "precision", "precision_hardware", "label", "description", "vram_minimum_gb", "min_vllm_version", "docker_image", "tp", "default_modes",
    "supported_hardware", "hardware_overrides",
}  # fmt: skip


class _Parts:
    """Arguments and variables, combined in the same order as on the recipes' own site."""

    def __init__(self, ledger: Ledger) -> None:
        self.words: list[str] = []
        self.env: dict[str, t.Any] = {}
        self.ledger = ledger

    def add(self, where: str, part: t.Any, args: str = "extra_args", env: str = "extra_env") -> None:
        """Add the arguments and variables of a part, once they are checked."""
        if part is not None and not isinstance(part, dict):
            self.ledger.refused(where, part, f"found {schema.found(part)}; expected a mapping", "correct the recipe")
        elif part is not None and (fields := self.ledger.checked(part, {args: _PART["extra_args"], env: _PART["extra_env"]}, where)):
            self.words += fields[args]
            self.env.update(fields[env])


def draft(recipe: Recipe, choices: Choices, ledger: Ledger) -> Draft | None:
    """Return the facts of a recipe for one variant on Sparks, None when they cannot be found; refusals are in the ledger."""
    fields = ledger.checked(recipe.data, _SPEC)
    model = fields and ledger.checked(fields["model"], _MODEL, "model")
    if not fields or not model:
        return None
    whole_model = fields["model"]
    ledger.unknown(recipe.data, {*_SPEC, *_OTHER})
    ledger.unknown(whole_model, {*_MODEL, *_MODEL_OTHER}, "model.")
    if "omni" in recipe.data or "omni" in str(fields["meta"].get("tasks")):
        ledger.refused("omni", recipe.data.get("omni") or "tasks", "it is served by vLLM-Omni, and not vLLM", shell.OTHER_ENGINE_REMEDY)
    # Recipes of this kind have no mods, so that none can be left out.
    mods.read([], recipe.path.parent, "", choices.without_mods, ledger)
    _hardware(fields["meta"].get("hardware") or {}, ledger)
    name = choices.variant or "default"
    variant = _variant(fields["variants"], name, bool(choices.variant), ledger)
    if variant is None:
        return None
    ledger.unknown(variant, {*_PART, *_VARIANT_OTHER}, f"variants.{name}.")
    supported = variant.get("supported_hardware")
    if isinstance(supported, list) and not {_SPARK, _GENERATION, _MAKER} & set(map(str, supported)):
        ledger.refused(f"variants.{name}.supported_hardware", supported, "it names no Spark", _others(fields["variants"], name))

    for value in choices.values:
        if value != "tensor_parallel":
            ledger.refused("gb10_import_choices.values", value, "recipes of this kind have no placeholders", "give tensor_parallel alone")
    nodes = _nodes(name, variant, choices, ledger)
    strategy = _STRATEGIES[nodes > 1]
    parts = _Parts(ledger)
    parts.add("model", model, "base_args", "base_env")
    parts.add(f"variants.{name}", variant)
    of_variant = _mapping(variant.get("hardware_overrides"))
    parts.add(f"variants.{name}.hardware_overrides.{_SPARK}", of_variant.get(_SPARK))
    _of_generation(fields, strategy, f"variants.{name}", of_variant, parts)
    _features(fields, name, variant, strategy, choices.features, parts)
    for dependency in fields["dependencies"]:
        why = "it is a command that installs something, and no command of a recipe is executed"
        ledger.dropped("dependencies", dependency, why, remedy="check that the image has it")

    try:
        parsed = arguments.parse([template.fill(word, {}).text for item in parts.words for word in _words(item)], "", False, ledger)
    except RecipeError as error:
        ledger.refused("args", template.as_written(error.where), f"it {error.what}", error.remedy)
        return None
    parsed.arguments.setdefault("tensor_parallel_size", nodes)
    advice = _advice(str(recipe.data.get("guide") or ""))
    for about, text in advice[:_MOST_LINES]:
        ledger.dropped(
            "guide",
            about,
            f"the guide says of a Spark: {text}" if text else "the guide says this of a Spark",
            remedy="compare it with the profile: flags and image that it names for a Spark are not read",
        )
    vllm = str(variant.get("min_vllm_version") or whole_model.get("min_vllm_version") or "")
    pinned = _PINNED.search(" ".join(text for _about, text in advice)) or _PINNED.search(canonical(recipe.data))
    image = _image(whole_model, variant, choices, pinned[0] if pinned else "", ledger)
    requires = {"vllm": f">={vllm}"} if vllm[:1].isdigit() and image.startswith(_RELEASES) else {}
    if requires:
        ledger.taken("min_vllm_version", vllm, "requires.vllm")
    elif vllm:
        ledger.dropped("min_vllm_version", vllm, "an image of others may count its releases in another way", differs=False)
    slug = str(fields["meta"].get("slug") or recipe.path.stem)
    return Draft(
        name=slug if name == "default" else f"{slug}-{name}",
        model=str(variant.get("model_id") or model["model_id"]),
        image=image,
        image_field="docker_image",
        parsed=parsed,
        env=parts.env,
        memory={"class_gb": 128},
        requires=requires,
        description=str(variant.get("description") or fields["meta"].get("description") or ""),
    )


def _advice(guide: str) -> list[tuple[str, str]]:
    """Return a guide's text about Sparks: each section about them with its text, and each other line that names one."""
    advice: list[tuple[str, str]] = []
    section, fenced = 0, False
    for line in guide.splitlines():
        fenced ^= line.strip().startswith("```")
        heading = None if fenced else _HEADING.match(line.strip())
        if heading and section and len(heading[1]) <= section:
            section = 0
        if heading and not section and _NAMES_SPARK.search(line):
            section = len(heading[1])
            advice.append((line.strip("# "), ""))
        elif section and not line.strip().startswith("```"):
            advice[-1] = (advice[-1][0], f"{advice[-1][1]} {line.strip().removesuffix(chr(92))}".strip())
        elif _NAMES_SPARK.search(line):
            advice.append((line.strip(), ""))
    return advice


def _words(item: str) -> list[str]:
    """Return the words of an item: some contain an option together with its value."""
    option, blank, value = item.partition(" ")
    return [option, value.strip().strip("'")] if blank and option.startswith("--") and "=" not in option else [item]


def _hardware(hardware: t.Any, ledger: Ledger) -> None:
    level = hardware.get(_SPARK) if isinstance(hardware, dict) else None
    if level == "unsupported":
        ledger.refused(f"meta.hardware.{_SPARK}", level, "the recipe says that a Spark does not run it", "choose another recipe")
    elif level is None:
        ledger.dropped("meta.hardware", hardware, "it does not name a Spark, so it is not known to run on one")
    else:
        ledger.dropped(f"meta.hardware.{_SPARK}", level, "it is of the recipe; as a profile it is untested", differs=False)


def _others(variants: dict[str, t.Any], name: str) -> str:
    others = ", ".join(variant for variant in variants if variant != name)
    return f"choose another variant in gb10_import_choices: {others}" if others else "choose another recipe"


def _variant(variants: dict[str, t.Any], name: str, is_chosen: bool, ledger: Ledger) -> dict[str, t.Any] | None:
    """Return a variant, an empty one for a recipe without any, None for a name that the recipe does not have."""
    if not variants and not is_chosen:
        return {}
    if name not in variants:
        ledger.refused(
            "variants",
            name,
            f"it is not a variant of the recipe{schema.near(name, variants)}",
            f"choose one in gb10_import_choices (variant): {', '.join(map(str, variants)) or 'it has none'}",
        )
        return None
    others = [variant for variant in variants if variant != name]
    if others:
        ledger.dropped("variants", ", ".join(others), f"the variant {name} is taken", remedy=_others(variants, name), differs=not is_chosen)
    return variants[name]


def _mapping(value: t.Any) -> dict[t.Any, t.Any]:
    return value if isinstance(value, dict) else {}


def _for_generation(overrides: t.Any) -> t.Any:
    """Return the overrides for a Spark's generation, else those for its maker."""
    return _mapping(overrides).get(_GENERATION) or _mapping(overrides).get(_MAKER)


def _of_generation(fields: dict[str, t.Any], strategy: str, where: str, of_variant: dict[t.Any, t.Any], parts: _Parts) -> None:
    """Add the parts for the strategy and the generation. The strategy's own overrides replace those of the recipe and of its variant."""
    of_strategy = fields["strategy_overrides"].get(strategy) or {}
    # A recipe may use the words of the site's own strategies for either.
    parts.add(f"strategy_overrides.{strategy}", of_strategy, env="env")
    parts.add(f"strategy_overrides.{strategy}", of_strategy, args="vllm_args")
    overrides = _mapping(_mapping(of_strategy).get("hardware_overrides"))
    if _for_generation(overrides):
        parts.add(f"strategy_overrides.{strategy}.hardware_overrides", _for_generation(overrides))
    else:
        parts.add("hardware_overrides", _for_generation(fields["hardware_overrides"]))
        parts.add(f"{where}.hardware_overrides", _for_generation(of_variant))
    parts.add(f"strategy_overrides.{strategy}.hardware_overrides.{_SPARK}", overrides.get(_SPARK))


def _features(fields: dict[str, t.Any], name: str, variant: dict[str, t.Any], strategy: str, wanted: t.Sequence[str], parts: _Parts) -> None:
    """Add the features that are on by default, or that were requested."""
    ledger, modes = parts.ledger, _mapping(variant.get("default_modes"))
    off = {*fields["opt_in_features"], *map(str, fields["hardware_opt_in_features"].get(_SPARK) or ())} - set(modes) - set(wanted)
    for feature in wanted:
        if feature not in fields["features"]:
            known = ", ".join(fields["features"]) or "it has none"
            ledger.refused("features", feature, "it is not a feature of the recipe", f"choose among those of the recipe: {known}")
    for feature, content in fields["features"].items():
        where, description = f"features.{feature}", content.get("description", "")
        if feature in off:
            ledger.dropped(where, description, "it is off by default", remedy="add its name to the features in gb10_import_choices to have it", differs=False)
        elif isinstance(content.get("strategies"), list) and strategy not in content["strategies"]:
            ledger.dropped(where, description, f"it is not for {strategy}", differs=False)
        elif "companion" in content:
            ledger.dropped(where, description, "it starts a program next to the engine, and no program of a recipe is executed")
        else:
            mode = _mode(content, name, str(modes.get(feature) or content.get("default_mode") or "")) if "modes" in content else ""
            if mode is None:
                ledger.dropped(where, description, f"none of its modes is for the variant {name} on a Spark")
                continue
            chosen = content["modes"][mode] if mode else content
            where = f"{where}.modes.{mode}" if mode else where
            overrides = _mapping(chosen.get("hardware_overrides"))
            own = overrides.get(_SPARK) or _for_generation(overrides)
            ledger.taken(where, description, "part of the profile")
            parts.add(where, {**chosen, **_mapping(own)}, "args", "env")


def _mode(content: dict[str, t.Any], name: str, first: str) -> str | None:
    """Return the mode of a feature: ``first``, or else the first one that is for this variant and a Spark."""
    modes = _mapping(content["modes"])
    for mode in [first, *modes]:
        settings = _mapping(modes.get(mode))
        limits, variants = _mapping(settings.get("hardware")), settings.get("variants")
        fits = not isinstance(variants, list) or name in variants
        if settings and fits and not any(limits.get(hardware) == "unsupported" for hardware in (_SPARK, _GENERATION, _MAKER)):
            return mode
    return None


def _nodes(name: str, variant: dict[str, t.Any], choices: Choices, ledger: Ledger) -> int:
    """Return the number of nodes: the requested one, or as many as the variant's memory needs.

    A variant's ``tp`` is for one machine, and limited to its number of GPUs (``resolveSingleNodeTp`` in src/lib/command-synthesis.js of
    vllm-project/recipes): one on a Spark.
    """
    field, chosen = f"variants.{name}.vram_minimum_gb", choices.values.get("tensor_parallel")
    if "tp" in variant:
        ledger.dropped(f"variants.{name}.tp", variant["tp"], "it counts GPUs of one machine, and a Spark has one", differs=False)
    if chosen is not None:
        if not isinstance(chosen, int) or isinstance(chosen, bool) or chosen < 1:
            where = "gb10_import_choices.values.tensor_parallel"
            raise RecipeError(f"is {chosen!r}", where=where, expected="the number of nodes", remedy="Write a whole number.")
        ledger.changed("tensor_parallel", "nothing", str(chosen), "gb10_import_choices.values says so", differs=False)
        return chosen
    needed = variant.get("vram_minimum_gb")
    if not isinstance(needed, (int, float)) or isinstance(needed, bool):
        return 1
    nodes = next((number for number in _NODES if number * _NODE_GB >= needed), 0)
    if not nodes:
        ledger.refused(field, needed, f"it is more GB than {_NODES[-1]} Sparks have", _others({}, name))
        return 1
    ledger.changed(field, needed, f"parallel.tensor = {nodes}", f"a Spark has room for {_NODE_GB} GB", differs=False)
    return nodes


def _image(model: dict[str, t.Any], variant: dict[str, t.Any], choices: Choices, pinned: str, ledger: Ledger) -> str:
    """Return the image: the requested one, the recipe's, or the one that its site takes where a recipe names none (``computeDockerMeta`` there).

    ``pinned`` is an image of a release that the recipe's file names in another place.
    """
    exact = _mapping(_mapping(variant.get("hardware_overrides")).get(_SPARK)).get("docker_image")
    named = next(filter(None, map(_nvidia_image, (exact, variant.get("docker_image"), model.get("docker_image")))), "")
    if choices.image:
        ledger.changed("docker_image", named or "nothing", choices.image, "gb10_import_image says so", differs=False)
        return choices.image
    own = "take the one that the recipe's file names elsewhere" if pinned else "give an image"
    remedy = f"{own}: -e gb10_import_image={pinned or 'REFERENCE'}"
    if named:
        return named
    if model.get("nightly_required") is True:
        ledger.changed("nightly_required", "true", "vllm/vllm-openai:nightly", "the recipe needs a newer engine than any release of its time", remedy=remedy)
        return "vllm/vllm-openai:nightly"
    # The tag that is looked up: the caller replaces it by today's digest, or reports that no registry answered.
    ledger.changed(
        "docker_image",
        "nothing",
        "vllm/vllm-openai:latest",
        "the recipes' own site takes the newest release where a recipe names none",
        remedy=remedy,
        differs=bool(pinned),
    )
    return "vllm/vllm-openai:latest"


def _nvidia_image(named: t.Any) -> str:
    """Return the image for NVIDIA's machines: a text is that image, a mapping has entries by maker, by version of CUDA, or by both."""
    if isinstance(named, dict):
        named = named.get("nvidia") or named.get("cu130") or named.get("cu129")
        named = named.get("cu130") or named.get("cu129") if isinstance(named, dict) else named
    return named if isinstance(named, str) else ""
