# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real starts of an engine on a GPU, recorded by tests/tools/record_engine.py, with the memory plan's figures. Run it to print the table of docs/plan.md."""

from __future__ import annotations

import functools
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.gb10.cluster.plugins.module_utils._memory import components, model_facts, plan, recipe  # noqa: E402

GPU = Path(__file__).resolve().parent / "fixtures" / "gpu"
SHAPES: dict[str, dict[str, Any]] = {shape["name"]: shape for shape in json.loads((GPU / "shapes.json").read_text())}
GIB = components.GIB
#: What the collection's own readers returned of a live engine (tests/tools/look_engine.py).
LOOK = GPU / "h100-vllm-0.26.0-2026-11-26" / "qwen3-small.look.json"

#: Patterns of the figures in an engine's log, by name.
SAID = {
    "weights": r"Model loading took ([\d.]+) GiB",
    "available": r"Available KV cache memory: ([\d.]+) GiB",
    "tokens": r"GPU KV cache size: ([\d,]+) tokens",
    "graphs": r"Graph capturing finished in \d+ secs?, took (-?[\d.]+) GiB",
    "free": r"Free memory on device \(([\d.]+)/[\d.]+ GiB\) on startup",
    "total": r"Free memory on device \([\d.]+/([\d.]+) GiB\) on startup",
    "peak": r"([\d.]+) GiB for peak activation",
    "other": r"([\d.]+) GiB for non-torch memory",
    "init_seconds": r"init engine \(profile, create kv cache, warmup model\) took ([\d.]+) s",
    "compile_seconds": r"torch\.compile took ([\d.]+) s in total",
}


def figures(log: str) -> dict[str, float]:
    """Return the figures that the engine reported in its log."""
    matches = {name: re.search(pattern, log) for name, pattern in SAID.items()}
    return {name: float(match[1].replace(",", "")) for name, match in matches.items() if match}


# -- the size of a checkpoint of such a shape -----------------------------------------------------------------------------


def _attention(c: dict[str, Any], more: int = 1) -> int:
    """Values of the projections of keys, values, queries (``more`` times: a gate) and of the output."""
    heads, kv, width = c["num_attention_heads"], c["num_key_value_heads"], c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    return c["hidden_size"] * width * (heads * (more + 1) + 2 * kv)


def _experts(c: dict[str, Any], matrices: int = 3) -> int:
    many = c.get("num_experts") or c.get("n_routed_experts") or c.get("num_local_experts")
    return many * matrices * c["hidden_size"] * c.get("moe_intermediate_size", c["intermediate_size"])


def _qwen3(c: dict[str, Any]) -> tuple[int, int]:
    return c["num_hidden_layers"] * (_attention(c) + 3 * c["hidden_size"] * c["intermediate_size"]), 0


def _qwen3_moe(c: dict[str, Any]) -> tuple[int, int]:
    return 0, c["num_hidden_layers"] * (_attention(c) + _experts(c) + c["hidden_size"] * c["num_experts"])


def _deepseek_v2(c: dict[str, Any]) -> tuple[int, int]:
    width, heads, rank = c["hidden_size"], c["num_attention_heads"], c["kv_lora_rank"]
    attention = width * heads * (c["qk_nope_head_dim"] + c["qk_rope_head_dim"]) + width * (rank + c["qk_rope_head_dim"])
    attention += rank * heads * (c["qk_nope_head_dim"] + c["v_head_dim"]) + heads * c["v_head_dim"] * width
    dense = c["first_k_dense_replace"]
    shared = 3 * width * c["moe_intermediate_size"] * c["n_shared_experts"]
    moe = _experts(c) + shared + width * c["n_routed_experts"]
    return 0, c["num_hidden_layers"] * attention + dense * 3 * width * c["intermediate_size"] + (c["num_hidden_layers"] - dense) * moe


def _gpt_oss(c: dict[str, Any]) -> tuple[int, int]:
    """Experts are 4.25 bits a value; they are given as so many values of 16 bits."""
    many, width, inner = c["num_local_experts"], c["hidden_size"], c["intermediate_size"]
    experts = int(_experts(c) * 4.25 / 16) + many * (2 * inner + width)
    return 0, c["num_hidden_layers"] * (_attention(c) + experts + width * many)


def _nemotron_h(c: dict[str, Any]) -> tuple[int, int]:
    width, inner, groups = c["hidden_size"], c["mamba_num_heads"] * c["mamba_head_dim"], 2 * c["n_groups"] * c["ssm_state_size"]
    mamba = width * (2 * inner + groups + c["mamba_num_heads"]) + (inner + groups) * (c["conv_kernel"] + 1) + inner * width
    moe = _experts(c, 2) + 2 * width * c["moe_shared_expert_intermediate_size"] + width * c["n_routed_experts"]
    pattern = c["hybrid_override_pattern"]
    return 0, pattern.count("M") * mamba + pattern.count("E") * moe + pattern.count("*") * _attention(c)


def _qwen3_next(c: dict[str, Any]) -> tuple[int, int]:
    width, keys, values = c["hidden_size"], c["linear_num_key_heads"] * c["linear_key_head_dim"], c["linear_num_value_heads"] * c["linear_value_head_dim"]
    linear = width * (2 * keys + 2 * values + 2 * c["linear_num_value_heads"]) + (2 * keys + values) * c["linear_conv_kernel_dim"] + values * width
    full = c["layer_types"].count("full_attention")
    moe = _experts(c) + 3 * width * c["shared_expert_intermediate_size"] + width * (c["num_experts"] + 1)
    return 0, (c["num_hidden_layers"] - full) * linear + full * _attention(c, 2) + c["num_hidden_layers"] * moe


_SIZES = {
    "qwen3": _qwen3,
    "gemma3_text": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v2": _deepseek_v2,
    "gpt_oss": _gpt_oss,
    "nemotron_h": _nemotron_h,
    "qwen3_next": _qwen3_next,
}


def checkpoint_bytes(config: dict[str, Any]) -> float:
    """Return how large a checkpoint of a shape is, from its projections and embeddings; norms and biases are left out."""
    linear, others = _SIZES[config["model_type"]](config)
    embeddings = config["vocab_size"] * config["hidden_size"] * (1 if config.get("tie_word_embeddings") else 2)
    quantized = (config.get("quantization_config") or {}).get("quant_method") == "fp8"
    return linear * (1 + 4 / 128**2 if quantized else 2) + (others + embeddings) * 2


def draft_bytes(config: dict[str, Any]) -> float:
    """Return the size of an EAGLE-3 drafter whose head is the model's: one layer with queries of twice the width, and three hidden states made one."""
    width = config["hidden_size"]
    attention = _attention(config) + width * config["head_dim"] * (config["num_attention_heads"] + 2 * config["num_key_value_heads"])
    return 2 * (attention + 3 * width * config["intermediate_size"] + 3 * width * width)


# -- beside the plan ------------------------------------------------------------------------------------------------------


def arguments(words: list[str]) -> dict[str, Any]:
    """Return the arguments of a start in snake case."""
    options: dict[str, Any] = {}
    for name, value in zip(words[::2], words[1::2]):
        try:
            options[name[2:].replace("-", "_")] = json.loads(value)
        except ValueError:
            options[name[2:].replace("-", "_")] = value
    return options


class Record:
    """One start: its shape, the engine's reported figures, and the plan for it."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory, self.name = directory, name
        self.found = json.loads((directory / f"{name}.json").read_text())
        self.shape = SHAPES[name]
        log = directory / f"{name}.log"
        self.log = log.read_text(encoding="utf-8") if log.exists() else ""
        self.said = figures(self.log)

    @property
    def healthy(self) -> bool:
        return "inject" not in self.found and "ready_seconds" in self.found

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        return {**model_facts.from_config(self.shape["config"]), "checkpoint_gb": checkpoint_bytes(self.shape["config"]) / 1e9}

    @functools.cached_property
    def use(self) -> recipe.Settings:
        serve = arguments(self.shape["serve"])
        if "speculative" in self.shape:
            serve["speculative_config"] = {**self.shape["speculative"], "model": "drafter"}
        draft = draft_bytes(self.shape["draft"]) / GIB if "draft" in self.shape else 0.0
        return recipe.settings_of(serve, {"tensor": 1}, self.facts, draft_gib=draft)

    @functools.cached_property
    def plan(self) -> dict[str, Any]:
        total = self.said.get("total", 79.18)
        node = components.Node("gpu", total, free_at_start=self.said.get("free", total))
        return plan.node_plan(self.facts, self.use, node, None, 1)

    def part(self, name: str) -> tuple[float, float]:
        """Return a component's GiB and by how much it may be wrong."""
        return next(((component["gib"], component["within"]) for component in self.plan["components"] if component["id"] == name), (0.0, 0.0))

    def tokens(self, gib: float) -> float:
        """Return how many tokens a cache of so many GiB holds by the plan's arithmetic: whole sequences, times their length."""
        return gib * GIB / sum(components.paged_bytes(self.facts, self.use)[:2]) * self.use.context

    @property
    def gpu(self) -> str:
        return self.directory.name.split("-")[0].upper()


def records() -> list[Record]:
    paths = sorted(path for path in GPU.glob("*/*.json") if path.stem != "machine" and path.suffixes != LOOK.suffixes)
    return [Record(path.parent, path.stem) for path in paths]


def markdown() -> list[str]:
    """The rows of the table in docs/plan.md: measured beside planned."""
    rows = ["| Start | Weights | Peak of activations | Not torch's | Graphs | Cache | Tokens, of the cache measured | Ready after |"]
    rows.append("|---|---|---|---|---|---|---|---|")
    for record in records():
        if "peak" not in record.said:
            continue
        planned = {part: record.part(part) for part in ("weights", "activation", "workspaces", "graphs")}
        cells = [f"{record.said['weights']:.2f} / {planned['weights'][0]:.2f}"]
        for measured, part in {"peak": "activation", "other": "workspaces", "graphs": "graphs"}.items():
            cells.append(f"{record.said[measured]:.2f} / {planned[part][0]:.2f} ± {planned[part][1]:.2f}")
        cells.append(f"{record.said['available']:.2f} / {record.plan['pool_gib']:.2f}")
        cells.append(f"{record.said['tokens']:.0f} / {record.tokens(record.said['available']):.0f}")
        cut = f", {record.shape['cut']}" if "cut" in record.shape else ""
        rows.append(f"| {record.name}{cut} ({record.gpu}) | {' | '.join(cells)} | {record.found['ready_seconds']:.0f} s |")
    return rows


if __name__ == "__main__":
    print("\n".join(markdown()))
