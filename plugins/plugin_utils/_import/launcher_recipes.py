# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads recipes of eugr/spark-vllm-docker and of sparkrun, whose format is based on it. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import re
import shlex
import typing as t

from ansible_collections.gb10.cluster.plugins.plugin_utils._import import arguments, mods, places, shell, template
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.draft import Choices, Draft
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.ledger import Ledger, RecipeError
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.reading import EUGR, Recipe

#: The types of the fields that are used here; any other field is reported as unknown.
_SPEC: dict[str, t.Any] = {
    "model": {"type": "str"},
    "model_revision": {"type": "str"},
    "runtime": {"type": "str"},
    "container": {"type": "str"},
    "containers": {"type": "list", "elements": "dict"},
    "command": {"type": "str"},
    "defaults": {"type": "dict", "default": {}},
    "env": {"type": "dict", "default": {}},
    "mods": {"type": "list", "elements": "str", "default": []},
    "build_args": {"type": "list", "elements": "str", "default": []},
    "cluster_only": {"type": "bool", "default": False},
    "solo_only": {"type": "bool", "default": False},
    "mode": {"type": "str", "choices": ["auto", "solo", "cluster"], "default": "auto"},
    "min_nodes": {"type": "int"},
    "max_nodes": {"type": "int"},
    "executor": {"type": "str"},
    "executor_config": {"type": "dict", "default": {}},
    "runtime_config": {"type": "dict", "default": {}},
    "volumes": {"type": "list", "elements": "str", "default": []},
    "metadata": {"type": "dict", "default": {}},
}
#: Fields that describe the recipe, and do not affect the engine.
_TEXT_FIELDS = {
    "name", "description", "recipe_version", "sparkrun_version", "runtime_version", "maintainer", "benchmark", "builder", "builder_config",
    "distribution_config", "runtime_cache", "stop_after_post",
}  # fmt: skip
#: Commands that run before and after the engine.
_HOOKS_BEFORE = ("pre_exec", "patches")
_HOOKS_AFTER = ("post_exec", "post_commands")

#: The launchers' names for images that others publish. Their tags move, so the digest on the day of the import replaces them.
_PUBLISHED = {
    EUGR: {"vllm-node": "eugr/spark-vllm:latest", "vllm-node-b12x": "eugr/spark-vllm-b12x:latest"},
    "": {
        "vllm-node": "ghcr.io/spark-arena/dgx-vllm-eugr-nightly:latest",
        "vllm-node-b12x": "ghcr.io/spark-arena/dgx-vllm-eugr-nightly-b12x:latest",
        "vllm-node-tf5": "ghcr.io/spark-arena/dgx-vllm-eugr-nightly-tf5:latest",
    },
}
#: Arguments of the build script that only choose between these images.
_CHOOSING_ARGS = {"--exp-b12x", "--no-build", "--tf5", "--pre-tf", "--pre-transformers"}

_RUNTIMES = {"", "vllm", "vllm-distributed", "vllm-ray", "eugr-vllm", "eugr-vllm-ray"}
#: Defaults from which sparkrun makes a command where a recipe has none, and the options where they have other names: VLLM_FLAG_MAP of
#: src/sparkrun/runtimes/_vllm_common.py in spark-arena/sparkrun, of autumn 2026 (0.2.40 had a third of them, and left out the others).
_GENERATED = {
    "tensor_parallel": "-tp", "pipeline_parallel": "-pp", "data_parallel": "--data-parallel-size",
    **{
        name: f"--{name.replace('_', '-')}"
        for name in (
            "port", "host", "gpu_memory_utilization", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "served_model_name", "dtype",
            "quantization", "kv_cache_dtype", "enforce_eager", "enable_prefix_caching", "trust_remote_code", "enable_auto_tool_choice",
            "distributed_executor_backend", "otlp_traces_endpoint", "api_key", "attention_backend", "load_format", "reasoning_parser",
            "tool_call_parser", "chat_template", "speculative_config", "tokenizer_mode", "mm_encoder_tp_mode", "block_size", "seed",
            "enable_chunked_prefill", "async_scheduling", "generation_config", "hf_overrides", "compilation_config", "attention_config",
            "model_loader_extra_config", "default_chat_template_kwargs", "limit_mm_per_prompt", "mm_processor_cache_gb", "kv_cache_memory_bytes",
            "max_cudagraph_capture_size", "long_prefill_token_threshold", "mamba_cache_mode", "safetensors_load_strategy", "moe_backend",
            "enable_prompt_tokens_details", "enable_force_include_usage", "enable_request_id_headers", "enable_flashinfer_autotune",
            "linear_backend", "gdn_prefill_backend", "gdn_decode_kernel", "kda_prefill_backend", "mamba_backend", "recurrent_checkpoint_policy",
            "prefix_cache_retention_interval", "engram_config", "dcp_comm_backend", "prefill_policy", "prefill_compute_share",
            "prefill_compute_half_life", "prefill_schedule_interval", "max_parallel_prefills", "decode_refill_target",
            "scheduler_reserve_full_isl", "jit_monitor_mode", "disable_custom_all_reduce",
        )
    },
}  # fmt: skip
#: Switches that are on by default, for which false is passed (VLLM_NEGATABLE_BOOL_FLAGS there). For the others, false is left out.
_SAID_WHEN_OFF = {"enable_prefix_caching", "enable_chunked_prefill", "async_scheduling", "enable_flashinfer_autotune", "scheduler_reserve_full_isl"}

#: Facts of a model that sparkrun's metadata may have, and their names in a profile.
_CONFIG = {"num_layers": "num_hidden_layers", "num_kv_heads": "num_key_value_heads", "head_dim": "head_dim", "kv_lora_rank": "kv_lora_rank"}
_GGUF = re.compile(r"[^/\s]+/[^/\s:]+:[A-Za-z0-9_.-]+\Z")


def draft(recipe: Recipe, choices: Choices, ledger: Ledger) -> Draft | None:
    """Return the facts of a recipe, None when they cannot be found; refusals are in the ledger."""
    fields = ledger.checked(recipe.data, _SPEC)
    if fields is None:
        return None
    ledger.unknown(recipe.data, {*_SPEC, *_HOOKS_BEFORE, *_HOOKS_AFTER, *_TEXT_FIELDS})
    for key in sorted(_TEXT_FIELDS.intersection(recipe.data)):
        ledger.dropped(key, recipe.data[key], "it does not affect the engine", differs=False)
    _engine(fields, ledger)
    links = _hooks(recipe.data, fields, ledger)
    changes = mods.read(fields["mods"], recipe.path.parent, fields["model"] or "", choices.without_mods, ledger)
    _executor_config(fields["executor_config"], ledger)
    values = {**fields["defaults"], **choices.values, "model": fields["model"]}
    if choices.variant or choices.features:
        given = ", ".join(filter(None, (choices.variant, *choices.features)))
        ledger.refused("gb10_import_choices.variant, .features", given, "recipes of this kind have none", "leave them out")
    least, most = _nodes(fields)
    if most == 1 and str(values.get("tensor_parallel", 1)) != "1" and "tensor_parallel" not in choices.values:
        ledger.changed("defaults.tensor_parallel", values["tensor_parallel"], "1", "the recipe is for one node alone", differs=False)
        values["tensor_parallel"] = 1
    parsed, command = _command(fields, values, choices.values, recipe.kind == EUGR, ledger)
    if parsed is None or command is None:
        return None
    directories = _places(fields["volumes"], {**links, **command.links}, parsed, fields["model"] or "", ledger)
    model, revision = _model(fields, parsed.model, directories, ledger)
    return Draft(
        name=recipe.path.stem,
        model=model,
        image=_image(fields, choices, recipe.kind, ledger),
        parsed=parsed,
        env={**fields["env"], **command.env},
        places=directories,
        revision=fields["model_revision"] or revision,
        least_nodes=least,
        most_nodes=most,
        memory=_memory(fields["metadata"], ledger),
        mods=changes,
        executor="ray" if fields["runtime"] in ("vllm-ray", "eugr-vllm-ray") else "",
        description=str(recipe.data.get("description") or fields["metadata"].get("description") or ""),
    )


def _engine(fields: dict[str, t.Any], ledger: Ledger) -> None:
    """Refuse recipes of other engines."""
    runtime = (fields["runtime"] or "").lower()
    if runtime not in _RUNTIMES:
        engine = shell.engine_named(runtime) or f"the runtime {runtime}"
        ledger.refused("runtime", runtime, f"it starts {engine}, and not vLLM", shell.OTHER_ENGINE_REMEDY)
    elif runtime:
        ledger.dropped("runtime", runtime, "vLLM is what this collection starts", differs=False)
    if fields["executor"] not in (None, "docker"):
        ledger.refused("executor", fields["executor"], "this collection starts engines in Docker's containers alone", "choose a recipe for Docker")


def _hooks(data: dict[t.Any, t.Any], fields: dict[str, t.Any], ledger: Ledger) -> dict[str, str]:
    """Return the links that commands before the engine's make. Other commands there are refused, and commands after the start are left out."""
    remedy = "put what it does into an image of your own, give that as gb10_import_image, and remove it from the recipe"
    links: dict[str, str] = {}
    for name in _HOOKS_BEFORE:
        entries = data.get(name) or []
        for entry in entries if isinstance(entries, list) else [entries]:
            if isinstance(entry, dict) and places.is_cache(str(entry.get("dest"))):
                ledger.dropped(name, entry, "it is about a cache, and this collection's containers keep their own from start to start", differs=False)
            elif isinstance(entry, dict):
                ledger.refused(name, entry, "it is copied into the container", remedy)
            else:
                try:
                    links |= shell.links_of(str(entry), _variables(fields), ledger)
                except RecipeError:
                    ledger.refused(name, entry, "it is a command that runs before the engine, and no command of a recipe is executed", remedy)
    for name in _HOOKS_AFTER:
        if data.get(name):
            ledger.dropped(name, data[name], "it runs after the engine has started, and nothing of a recipe is executed")
    return links


def _variables(fields: dict[str, t.Any]) -> dict[str, str]:
    """Return the recipe's variables, as far as commands can use them."""
    return {name: str(value) for name, value in fields["env"].items() if isinstance(value, (str, int, float))}


def _executor_config(config: dict[str, t.Any], ledger: Ledger) -> None:
    """Leave out the options of the container: this collection has its own, and none is weakened silently."""
    weakens = {"privileged", "security_opt", "cap_add", "devices", "user"}
    for name, value in config.items():
        is_weaker = name in weakens and value not in (None, False, "", [], "root")
        ledger.dropped(
            f"executor_config.{name}",
            value,
            "it would give the container more rights than this collection's have" if is_weaker else "this collection's containers have options of their own",
            differs=is_weaker,
        )


def _nodes(fields: dict[str, t.Any]) -> tuple[int, int]:
    """Return the fewest and the most nodes that a recipe is for; 0 for no limit."""
    least = fields["min_nodes"] or (2 if fields["cluster_only"] or fields["mode"] == "cluster" else 1)
    return least, fields["max_nodes"] or (1 if fields["solo_only"] or fields["mode"] == "solo" else 0)


def _command(
    fields: dict[str, t.Any], values: dict[str, t.Any], chosen: t.Mapping[str, t.Any], doubled_first: bool, ledger: Ledger
) -> tuple[arguments.Parsed, shell.Command] | tuple[None, None]:
    """Return the engine's arguments, and the command that they come from; None for both when it is refused."""
    filled = template.fill(fields["command"] or _generated(values, ledger), values)
    used = filled.used if fields["command"] else set(values) & {*_GENERATED, "model"}
    try:
        command = shell.take_apart(filled.text, _variables(fields), ledger)
        parsed = arguments.parse(command.words, fields["model"] or "", doubled_first, ledger)
    except RecipeError as error:
        ledger.refused("command", template.as_written(error.where), f"it {error.what}", error.remedy)
        return None, None
    for name in values:
        if name in chosen and name not in used:
            known = ", ".join(sorted(used - {"model"})) or "none"
            where, remedy = f"gb10_import_choices.values.{name}", f"its placeholders: {known}; or correct the recipe"
            ledger.refused(where, chosen[name], "the command does not use it", remedy)
        elif name in chosen:
            ledger.changed(f"defaults.{name}", fields["defaults"].get(name, "nothing"), str(chosen[name]), "gb10_import_choices.values says so", differs=False)
        elif name not in used and name != "model" and fields["command"]:
            if name == "served_model_name" and not doubled_first and name not in parsed.arguments:
                parsed.arguments[name] = values[name]
            else:
                used_elsewhere = name in parsed.arguments or name in _GENERATED
                ledger.dropped(f"defaults.{name}", values[name], "the command does not use it", differs=not used_elsewhere)
    return parsed, command


def _generated(values: dict[str, t.Any], ledger: Ledger) -> str:
    """Return the command that sparkrun makes of the defaults, as a template for them."""
    words = ["vllm serve {model}"]
    for name, value in values.items():
        if name == "model":
            continue
        if name not in _GENERATED:
            ledger.dropped(f"defaults.{name}", value, "a command made of defaults has no option for it")
        elif isinstance(value, bool):
            words += [_GENERATED[name]] if value else [f"--no-{_GENERATED[name][2:]}"] if name in _SAID_WHEN_OFF else []
        elif template.text_of(value).lstrip()[:1] in ("{", "["):
            # JSON is one word of the command, whatever it contains.
            words += [_GENERATED[name], shlex.quote(template.text_of(value))]
        else:
            words.append(f"{_GENERATED[name]} {{{name}}}")
    return " ".join(words)


def _model(fields: dict[str, t.Any], served: str, directories: dict[str, str], ledger: Ledger) -> tuple[str, str]:
    """Return the model's repository and its commit where a path names it; or a directory of the nodes."""
    model = fields["model"] or served
    held = places.snapshot(places.behind(served, directories)[0])
    if _GGUF.match(model) or model.lower().endswith(".gguf"):
        ledger.refused("model", model, "it is a GGUF file, which llama.cpp serves, and not vLLM", shell.OTHER_ENGINE_REMEDY)
    elif held and (held.repo == model or places.is_path(model)):
        ledger.changed("command", served, f"{held.repo} at {held.commit}", "this is the commit of those files", differs=False)
        return held.repo, held.commit
    elif places.is_path(model):
        path = places.behind(model, directories)[0]
        ledger.changed("model", model, f"model.path = {path}", "it has to be there on every node, and is served from there")
        return path, ""
    elif served not in ("", model) and not served.startswith(("/", "~", ".")):
        ledger.refused("command", served, f"it is another model than the recipe's {model}", "correct the recipe")
    elif served not in ("", model):
        ledger.changed("command", served, model, "a profile names a repository, and no folder of one machine")
    return model, ""


def _places(volumes: list[str], links: dict[str, str], parsed: arguments.Parsed, model: str, ledger: Ledger) -> dict[str, str]:
    """Return the targets of links and mounted directories that the engine reads models from. Others are refused, unless they are about caches."""
    drafter, adapters = parsed.arguments.get("speculative_config"), parsed.arguments.get("lora_modules")
    read = [model, parsed.model, parsed.arguments.get("tokenizer"), drafter.get("model") if isinstance(drafter, dict) else None]
    for adapter in adapters if isinstance(adapters, list) else [adapters]:
        read.append(adapter.get("path") if isinstance(adapter, dict) else str(adapter).partition("=")[2])
    targets = dict(links)
    mounted: dict[str, str] = {}
    for volume in volumes:
        source, _colon, target = volume.partition(":")
        mounted[target.partition(":")[0].rstrip("/")] = source
    steps = [place for path in read if places.is_path(path) for place in _behind(path, links, mounted)]
    for volume, (target, source) in zip(volumes, mounted.items()):
        if target in steps and not places.is_cache(target):
            targets[target] = source
        if target in steps or places.is_cache(target):
            ledger.dropped("volumes", volume, "this collection mounts caches and models itself", differs=False)
        else:
            ledger.refused(
                "volumes", volume, "it puts files of one machine into the container", "build an image that holds them, and give that as gb10_import_image"
            )
    for link, target in links.items():
        if link in steps:
            ledger.dropped("command", f"ln -s {target} {link}", "the profile names the target of the link", differs=False)
        else:
            ledger.refused("command", f"ln -s {target} {link}", "no model is read through this link, and no command is executed", "remove it from the recipe")
    # A link may point into a mounted directory.
    return {place: places.behind(there, {name: target for name, target in targets.items() if name != place})[0] for place, there in targets.items()}


def _behind(path: str, links: dict[str, str], mounted: dict[str, str]) -> list[str]:
    """Return the link and the mounted directory through which a path goes."""
    there, link = places.behind(path, links)
    return [link, places.behind(there, mounted)[1]]


def _image(fields: dict[str, t.Any], choices: Choices, kind: str, ledger: Ledger) -> str:
    """Return the image that others can pull; empty when there is none."""
    container, args = fields["container"] or "", fields["build_args"]
    if choices.image:
        ledger.changed("container", container or "nothing", choices.image, "gb10_import_image says so", differs=False)
        return choices.image
    if fields["containers"]:
        ledger.refused(
            "containers", fields["containers"], "it names an image for each machine, and all ranks need the same one", "give one as gb10_import_image"
        )
        return ""
    remedy = "give an image that can be pulled: -e gb10_import_image=REFERENCE"
    if not container:
        ledger.refused("container", "nothing", "the recipe names no image", remedy)
        return ""
    published = _PUBLISHED.get(kind, _PUBLISHED[""])
    name = container.removesuffix(":latest")
    building = [arg for arg in args if arg not in _CHOOSING_ARGS]
    if "/" not in container and (name not in published or building):
        ledger.refused(
            "container",
            container,
            f"it is built on the machine that runs the recipe{' with ' + ' '.join(building) if building else ''}, and not published",
            remedy,
        )
        return ""
    if args:
        ledger.dropped("build_args", " ".join(args), "nothing is built: the published image is taken", differs=bool(building))
    if name in published:
        ledger.changed("container", container, published[name], "this is where the launcher of the recipe has it from", differs=False)
        return published[name]
    return container


def _memory(metadata: dict[str, t.Any], ledger: Ledger) -> dict[str, t.Any]:
    """Return the recipe's facts about the model's memory, under a profile's names."""
    numbers = {name: value for name, value in metadata.items() if isinstance(value, (int, float)) and not isinstance(value, bool)}
    config = {name: value for name, value in numbers.items() if name in _CONFIG and isinstance(value, int)}
    for name, value in config.items():
        ledger.taken(f"metadata.{name}", value, f"memory.config.{_CONFIG[name]}")
    size = {"model_gb": float(numbers["model_vram"])} if "model_vram" in numbers else {}
    rest = [str(name) for name in metadata if name not in config and not (size and name == "model_vram")]
    if rest:
        ledger.dropped("metadata", ", ".join(rest), "it does not affect the engine", differs=False)
    return {**size, **({"config": {_CONFIG[name]: value for name, value in config.items()}} if config else {})}
