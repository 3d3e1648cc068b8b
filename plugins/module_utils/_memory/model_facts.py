# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts in a model's config.json from which its memory follows. This module util is PRIVATE to the collection.

Facts are a flat mapping: the values in a profile's ``memory.config``, in the collection's own table of models, or from the config.json in a hub cache.
Names are those of config.json where it has one. Layers are counted by the memory that they keep for a sequence:

- ``attention_layers`` keep keys and values of every token, for each head,
- ``sliding_layers`` those of the last ``sliding_window`` tokens,
- ``latent_layers`` one row of ``width`` values for every token (MLA) or every ``ratio`` tokens, whatever the number of heads, so it is not split over ranks,
- ``linear_layers`` (linear attention) and ``mamba_layers`` a state of constant size,
- the others (such as layers of experts only) nothing.
"""

from __future__ import annotations

import typing as t

Facts = dict[str, t.Any]

_WHOLE = (
    "num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "global_num_key_value_heads", "global_head_dim", "attention_layers", "sliding_layers", "sliding_window", "linear_layers", "mamba_layers",
    "mamba_state_bytes_per_sequence", "recurrent_state_bytes_per_sequence", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "moe_latent_size",
    "draft_layers", "parameters", "parameters_active", "weights_group", "kv_cache_bits", "kv_lora_rank", "qk_rope_head_dim",
    "kv_bytes_per_token", "max_position_embeddings", "rotary_bytes",
)  # fmt: skip
_NUMBERS = ("weights_bits", "checkpoint_gb", "table_gib", "file_backed_gib", "weights_gib_per_rank")

#: Every fact that a plan reads, with its type as a profile's schema names it.
NAMES: dict[str, str] = {
    **dict.fromkeys(_WHOLE, "int"),
    **dict.fromkeys(_NUMBERS, "float"),
    "multimodal": "bool",
    "latent_layers": "list",
    "source": "str",
}

#: The Python types of each type of fact, and its name in a message.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"), "float": ((int, float), "a number"), "bool": ((bool,), "true or false"), "list": ((list,), "a list"),
    "str": ((str,), "a text"),
}  # fmt: skip
#: Least value of a number; a state or a table may be absent, a width may not.
_LEAST = {"num_hidden_layers": 1, "hidden_size": 1, "num_key_value_heads": 1, "head_dim": 1, "num_attention_heads": 1}
#: Values of the rotary part that DeepSeek's MLA keeps next to its latent row, where the config does not say (config.json of DeepSeek-V2 and V3).
_ROPE = 64
#: Bytes of a value of a state in 32 bits, and of the convolution's last inputs in 16.
_STATE, _CONV = 4, 2


def faults(facts: t.Mapping[str, t.Any]) -> list[str]:
    """Return the problems of facts: values of another type, negative numbers. Names that no plan reads are accepted, since older profiles have some."""
    problems = []
    for name, value in ((name, value) for name, value in facts.items() if name in NAMES and value is not None):
        kinds, words = _KINDS[NAMES[name]]
        least = _LEAST.get(name, 0)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            problems.append(f"{name} is {value!r}, expected {words}")
        elif isinstance(value, (int, float)) and value < least:
            problems.append(f"{name} is {value!r}, expected {least} or more")
    for index, row in enumerate(facts["latent_layers"] if isinstance(facts.get("latent_layers"), list) else []):
        whole = isinstance(row, dict) and all(isinstance(row.get(name), int) and row[name] > 0 for name in ("layers", "width"))
        if not whole or any(not isinstance(row.get(name, 1), int) or row.get(name, 1) < 1 for name in ("ratio", "window")):
            problems.append(f"latent_layers[{index}] is {row!r}, expected layers and width, and maybe ratio and window, as whole numbers of 1 or more")
    return problems


def state_bytes(facts: t.Mapping[str, t.Any]) -> int | None:
    """Return the bytes of constant state that the whole model keeps for a sequence, 0 without such layers, None when it has some of unknown size."""
    if not (facts.get("linear_layers") or facts.get("mamba_layers")):
        return 0
    stated = facts.get("mamba_state_bytes_per_sequence") or facts.get("recurrent_state_bytes_per_sequence")
    return int(stated) if stated else None


def latent(facts: t.Mapping[str, t.Any]) -> list[dict[str, int]]:
    """Return the layers that keep one row for all heads; those of an MLA model follow from its ``kv_lora_rank``."""
    rows = facts.get("latent_layers") or []
    if not rows and facts.get("kv_lora_rank"):
        layers = facts.get("attention_layers") or facts.get("num_hidden_layers") or 0
        rope = facts.get("qk_rope_head_dim")
        rows = [{"layers": layers, "width": facts["kv_lora_rank"] + (_ROPE if rope is None else rope)}]
    return [{"layers": row["layers"], "width": row["width"], "ratio": row.get("ratio", 1), "window": row.get("window", 0)} for row in rows]


def plain_layers(facts: t.Mapping[str, t.Any]) -> int:
    """Return the layers that keep keys and values of every token: those named, or all that are nothing else."""
    if latent(facts):
        return 0
    if facts.get("attention_layers") is not None:
        return int(facts["attention_layers"])
    others = sum(facts.get(name) or 0 for name in ("sliding_layers", "linear_layers", "mamba_layers"))
    return max(0, (facts.get("num_hidden_layers") or 0) - others)


def missing(facts: t.Mapping[str, t.Any], weights_known: bool) -> list[str]:
    """Return the missing facts that a plan needs, named as in a profile. ``weights_known``: the profile has the size that a node loads."""
    lacks = {name for name in ("num_hidden_layers", "hidden_size", "num_key_value_heads", "head_dim", "sliding_window") if facts.get(name) is None}
    has_heads = (plain_layers(facts) or facts.get("sliding_layers")) and not facts.get("kv_bytes_per_token")
    needed = ["num_hidden_layers", "hidden_size", *(["num_key_value_heads", "head_dim"] if has_heads else [])]
    needed += ["sliding_window"] if facts.get("sliding_layers") else []
    weights = [] if weights_known or weights_bytes(facts) else ["memory.weights_gb, or memory.config with checkpoint_gb, or with parameters and weights_bits"]
    state = ["memory.config.recurrent_state_bytes_per_sequence"] if state_bytes(facts) is None else []
    return [*weights, *(f"memory.config.{name}" for name in needed if name in lacks), *state]


def weights_bytes(facts: t.Mapping[str, t.Any]) -> tuple[float, str] | None:
    """Return (bytes of the whole model's weights, their calculation as text), None when the facts do not have them.

    The size of the files takes precedence over arithmetic, since only the files show which modules stay unquantised. The arithmetic takes embeddings and
    output head (vocabulary x width, twice) in 16 bits, everything else in ``weights_bits`` with one scale for each group of ``weights_group``: of 16 bits
    for 4-bit integers (GPTQ, AWQ; with a zero of 4 bits), of 8 for groups of 16 or 32 (NVFP4, MXFP4: OCP and NVIDIA's formats).
    """
    if facts.get("checkpoint_gb"):
        table = (facts.get("file_backed_gib") or 0) * 1024**3
        less = f" - {facts['file_backed_gib']:g} GiB that stay in a mapped file" if table else ""
        return facts["checkpoint_gb"] * 1e9 - table, f"{facts['checkpoint_gb']:g} GB of files{less}"
    bits, parameters = facts.get("weights_bits"), facts.get("parameters") or parameters_of(facts)
    if not bits or not parameters:
        return None
    plain = 2 * (facts.get("vocab_size") or 0) * (facts.get("hidden_size") or 0)
    group = facts.get("weights_group") or 0
    scale = 0.0 if not group or bits >= 8 else ((16 + bits) / group if group > 32 else 8 / group)
    size = max(0, parameters - plain) * (bits + scale) / 8 + min(parameters, plain) * 2
    return size, f"({parameters} - {plain}) parameters x {bits + scale:g} bits + {plain} x 16 bits"


def parameters_of(facts: t.Mapping[str, t.Any]) -> int | None:
    """Return the parameters of a model whose layers are attention and a gated MLP or experts, None for others: the facts lack their other parts."""
    inner = "moe_intermediate_size" if facts.get("num_experts") else "intermediate_size"
    names = ("num_hidden_layers", "hidden_size", "vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim", inner)
    if any(facts.get(name) is None for name in names) or any(facts.get(name) for name in ("mamba_layers", "linear_layers", "kv_lora_rank", "latent_layers")):
        return None
    layers, width = facts["num_hidden_layers"], facts["hidden_size"]
    attention = 2 * width * facts["head_dim"] * (facts["num_attention_heads"] + facts["num_key_value_heads"])
    mlp = 3 * width * facts[inner]
    if facts.get("num_experts"):
        mlp = facts["num_experts"] * (mlp + width)
    return int(layers * (attention + mlp + 2 * width) + 2 * facts["vocab_size"] * width)


def read_share(facts: t.Mapping[str, t.Any]) -> float | None:
    """Return the share of its weights that a model reads for a token: all of a dense model, only the active ones of experts; None when it is unknown."""
    if not facts.get("num_experts"):
        return 1.0
    total, active = facts.get("parameters") or parameters_of(facts), facts.get("parameters_active")
    if not active and facts.get("num_experts_per_tok"):
        active = parameters_of({**facts, "num_experts": facts["num_experts_per_tok"]})
    return min(1.0, active / total) if active and total else None


# -- config.json -----------------------------------------------------------------------------------------------------

_LINEAR = ("linear_attention", "mamba", "recurrent", "kda", "gated_deltanet")
_SLIDING = ("sliding_attention", "sliding", "chunked_attention", "local_attention")


def from_config(config: t.Mapping[str, t.Any]) -> Facts:
    """Return the facts in a parsed config.json. Facts that it lacks, or has in an unknown form, are absent.

    Of a multimodal model its text part counts. ``attention_layers`` is absent where layers have unknown kinds: a plan then counts all of them
    as full attention, which errs to the safe side.
    """
    inner = next((config[name] for name in ("text_config", "llm_config", "language_config") if isinstance(config.get(name), dict)), config)
    text = {**{key: value for key, value in config.items() if not isinstance(value, dict)}, **inner}
    spelled = {name: (name, *_ALIASES.get(name, ())) for name in (*_WHOLE, "multimodal")}
    known = {name: [text[other] for other in others if _is_whole(text.get(other))] for name, others in spelled.items()}
    facts: Facts = {name: values[0] for name, values in known.items() if values}
    if heads := facts.get("num_attention_heads"):
        facts.setdefault("num_key_value_heads", heads)
        if facts.get("hidden_size"):
            facts.setdefault("head_dim", facts["hidden_size"] // heads)
    facts.update(_layers(text))
    facts.update(_state(text, facts))
    facts.update(_rotary(text, facts))
    facts.update(_quantization(config.get("quantization_config") or text.get("quantization_config") or text.get("compression_config"), text))
    if any(isinstance(config.get(name), dict) for name in ("vision_config", "audio_config")):
        facts["multimodal"] = True
    if not facts.get("sliding_layers"):
        facts.pop("sliding_window", None)
    return facts


_ALIASES = {
    "num_hidden_layers": ("n_layers", "n_layer", "num_layers"),
    "hidden_size": ("d_model", "n_embd"),
    "num_attention_heads": ("n_head", "n_heads"),
    "num_experts": ("n_routed_experts", "num_local_experts", "moe_num_experts"),
    "num_experts_per_tok": ("num_experts_per_token", "top_k_experts", "experts_per_token", "moe_top_k"),
    "moe_intermediate_size": ("expert_intermediate_size",),
    "global_num_key_value_heads": ("num_global_key_value_heads",),
    "draft_layers": ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers"),
}


def _is_whole(value: t.Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _layers(text: t.Mapping[str, t.Any]) -> Facts:
    """Return how many layers there are of each kind."""
    total = text.get("num_hidden_layers")
    pattern, kinds = text.get("hybrid_override_pattern"), text.get("layer_types") or text.get("layers_block_type")
    if isinstance(pattern, str):
        return {"attention_layers": pattern.count("*"), "mamba_layers": pattern.count("M"), "num_hidden_layers": len(pattern)}
    if isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds):
        linear, sliding = sum(kind in _LINEAR for kind in kinds), sum(kind in _SLIDING for kind in kinds)
        name = "mamba_layers" if "mamba" in kinds else "linear_layers"
        # "moe" and "mlp" keep nothing; a kind that is not known counts as attention.
        nothing = sum(kind in ("moe", "mlp", "ffn") for kind in kinds)
        return {"attention_layers": len(kinds) - linear - sliding - nothing, "sliding_layers": sliding, name: linear}
    intervals = {"linear_layers": text.get("full_attention_interval"), "sliding_layers": text.get("sliding_window") and text.get("sliding_window_pattern")}
    for name, every in intervals.items():
        if _is_whole(total) and _is_whole(every) and every:
            return {"attention_layers": total // every, name: total - total // every}
    if _is_whole(total) and text.get("kv_lora_rank") is None:
        # `sliding_window` without a list of layers and with use_sliding_window (Qwen) false has no effect; else it applies to every layer (Mistral 7B).
        every_layer = _is_whole(text.get("sliding_window")) and text.get("use_sliding_window", True) is True
        return {"attention_layers": 0, "sliding_layers": total} if every_layer else {"attention_layers": total}
    return {}


def _state(text: t.Mapping[str, t.Any], facts: Facts) -> Facts:
    """Return the bytes of constant state of a sequence: Mamba-2 and gated delta rule, as vLLM keeps them: convolution in 16 bits, a state in 32,
    that of the delta rule only where ``mamba_ssm_dtype`` sets it (vllm/model_executor/models/config.py of 0.26.0)."""
    kernel = text.get("conv_kernel") or text.get("mamba_d_conv") or text.get("linear_conv_kernel_dim") or 4
    if facts.get("mamba_layers"):
        heads, size = text.get("mamba_num_heads") or text.get("mamba_n_heads"), text.get("mamba_head_dim") or text.get("mamba_d_head")
        state, groups = text.get("ssm_state_size") or text.get("mamba_d_state"), text.get("n_groups") or text.get("mamba_n_groups") or 1
        if heads and size and state:
            layer = heads * size * state * _STATE + (heads * size + 2 * groups * state) * (kernel - 1) * _CONV
            return {"mamba_state_bytes_per_sequence": facts["mamba_layers"] * layer}
    if facts.get("linear_layers"):
        names = ("linear_num_value_heads", "linear_num_key_heads", "linear_key_head_dim", "linear_value_head_dim")
        if all(_is_whole(text.get(name)) for name in names):
            values, keys, key_dim, value_dim = (text[name] for name in names)
            each = _STATE if text.get("mamba_ssm_dtype") == "float32" else _CONV
            layer = values * key_dim * value_dim * each + (2 * keys * key_dim + values * value_dim) * (kernel - 1) * _CONV
            return {"recurrent_state_bytes_per_sequence": facts["linear_layers"] * layer}
    return {}


def _rotary(text: t.Mapping[str, t.Any], facts: Facts) -> Facts:
    """Return the bytes of the tables of rotary positions, which are in no checkpoint: one row of 16 bits for each position, ``factor`` times as many where the
    scaling is linear, and a second table where sliding layers have a base frequency of their own."""
    scaling, length, width = text.get("rope_scaling") or text.get("rope_parameters") or {}, facts.get("max_position_embeddings"), facts.get("head_dim")
    if not length or not width or not (scaling or text.get("rope_theta")):
        return {}
    linear = (scaling.get("rope_type") or scaling.get("type")) == "linear"
    rows = length * (scaling.get("factor") or 1 if linear else 1) + (length if text.get("rope_local_base_freq") else 0)
    return {"rotary_bytes": int(rows * width * (text.get("partial_rotary_factor") or 1) * 2)}


def _quantization(config: t.Any, text: t.Mapping[str, t.Any]) -> Facts:
    """Return bits and group of the quantised weights, and bits of the KV cache where the checkpoint includes its scales."""
    if not isinstance(config, dict):
        bits = {"bfloat16": 16, "float16": 16, "float32": 32}.get(str(text.get("torch_dtype") or text.get("dtype")))
        return {"weights_bits": bits} if bits else {}
    method, facts = str(config.get("quant_method") or "").lower(), Facts()
    scheme = config.get("kv_cache_scheme")
    if isinstance(scheme, dict) and _is_whole(scheme.get("num_bits")):
        facts["kv_cache_bits"] = scheme["num_bits"]
    algorithm = str(config.get("quant_algo") or "").upper()
    groups = config.get("config_groups")
    if method in ("gptq", "awq") or _is_whole(config.get("bits")):
        facts.update({"weights_bits": config.get("bits"), "weights_group": config.get("group_size")})
    elif method == "mxfp4":
        facts.update({"weights_bits": 4, "weights_group": 32})
    elif isinstance(groups, dict) and len(groups) == 1 and algorithm != "MIXED_PRECISION":
        weights = next(iter(groups.values())).get("weights") or {}
        facts.update({"weights_bits": weights.get("num_bits"), "weights_group": weights.get("group_size")})
    elif algorithm in ("NVFP4", "W4A16_NVFP4"):
        facts.update({"weights_bits": 4, "weights_group": 16})
    elif algorithm == "FP8" or method in ("fp8", "fbgemm_fp8"):
        facts["weights_bits"] = 8
    # For several precisions in one checkpoint only the size of the files is known.
    return {name: value for name, value in facts.items() if _is_whole(value) and value}
