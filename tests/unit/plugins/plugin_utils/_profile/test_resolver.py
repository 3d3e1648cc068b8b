# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arguments and variables of a profile that engines of several releases get, by their recorded contracts and by the history."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import derived, profiles, resolver
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.resolver import Engine, history, resolve
from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import image

ROOT = Path(__file__).resolve().parents[5]
CONTRACTS = ROOT / "tests" / "unit" / "fixtures" / "vllm" / "contracts"
RECORDED = sorted((path.stem for path in CONTRACTS.glob("*.json")), key=Version)
SHIPPED = sorted(path.stem for path in profiles.SHIPPED.glob("*.yml"))


@functools.cache
def takes(version):
    return json.loads((CONTRACTS / f"{version}.json").read_text(encoding="utf-8"))


def real(version, known_env=()):
    return Engine(version, takes(version), known_env)


def wanted(name, switches=(), executor=None):
    profile = profiles.load(name, switches=switches)
    return derived.serve_arguments(profile, executor=executor), derived.node_env(profile, {"fabric_address": "192.0.2.1"}, fabric_fallback="none", nodes=2)


def blocks(result):
    return [step for step in result.steps if step.verdict == "block"]


# -- the table in docs/flags.md ------------------------------------------------------------------------------------------


def documented():
    """Return the table of docs/flags.md: release to name to cell."""
    lines = [line for line in (ROOT / "docs" / "flags.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    start = next(index for index, line in enumerate(lines) if line.startswith("| Wanted"))
    head, _rule, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:]]
    return {release: {row[0].strip("`"): row[head.index(release)].replace("`", "") for row in rows} for release in head[2:]}


TABLE = documented()


def cell(name, arguments, env, result):
    """Return the result for one name, in the wording of the table."""
    value, given = {**arguments, **env}[name], {**result.arguments, **result.env}
    steps = [step for step in result.steps if step.name == name]
    if not steps:
        assert given[name] == value
        return "kept"
    (step,) = steps
    if step.verdict == "block":
        return f"refused, {re.search('the first release with it is ([0-9.]+[0-9])', step.message)[1]}"
    new = {other: value for other, value in given.items() if other not in {**arguments, **env}}
    return ", ".join(f"{other}={value}" for other, value in new.items()) if "becomes" in step.message else "left out"


@pytest.mark.parametrize(
    ("release", "contract"),
    [(release, None) for release in TABLE] + [(release, takes(release)) for release in TABLE if release in RECORDED],
    ids=lambda value: value if isinstance(value, str) else "history" if value is None else "contract",
)
def test_the_nemotron_profile_is_resolved_as_documented(release, contract):
    arguments, env = wanted("nemotron_3_super_tp2")
    result = resolve(Engine(release, contract), arguments, env)
    ours = [*arguments, *(name for name in env if name.startswith("VLLM_") and name != "VLLM_HOST_IP")]
    assert {name: cell(name, arguments, env, result) for name in ours} == TABLE[release]
    assert {name: result.env[name] for name in env if name not in ours} == {name: value for name, value in env.items() if name not in ours}


def test_six_of_the_seven_releases_were_asked_themselves():
    assert list(TABLE) == ["0.11.0", "0.19.1", "0.20.1", "0.22.0", "0.24.0", "0.29.0", "0.33.0"]
    assert set(TABLE) - set(RECORDED) == {"0.11.0"}


# -- shipped profiles ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.19.1", "0.24.0", "0.32.0"])
@pytest.mark.parametrize("name", SHIPPED)
def test_a_real_contract_resolves_every_shipped_profile_or_its_requires_refuse(name, version):
    profile = profiles.load(name)
    if Version(version) not in SpecifierSet(profile["requires"]["vllm"]):
        contract = {"python": "3.12.3", "versions": {"vllm": version}}
        assert {"image.requires"} == {finding["id"] for finding in image._requirements("node", contract, profile) if finding["verdict"] == "block"}
        return
    for switches in [(), *((switch,) for switch in profile["switches"])]:
        if Version(version) in SpecifierSet(profiles.load(name, switches=switches)["requires"]["vllm"]):
            for executor in ("ray", "native"):
                result = resolve(real(version), *wanted(name, switches, executor), executor, places=executor == "native")
                assert blocks(result) == [] and [step for step in result.steps if step.verdict == "warn"] == []


@pytest.mark.parametrize("version", RECORDED)
def test_the_history_says_what_the_real_engines_say(version):
    """For every name of the table, the history and the recorded engine agree."""
    for name in history():
        assert Engine(version).has(name) == real(version).has(name), name


# -- one name ------------------------------------------------------------------------------------------------------------


def resolved(version, arguments=None, env=None, executor="ray", known_env=()):
    result = resolve(real(version, known_env), arguments or {}, env or {}, executor)
    return result.arguments, result.env, [(step.verdict, step.message) for step in result.steps]


@pytest.mark.parametrize(
    ("version", "arguments", "message"),
    [
        (
            "0.19.1", {"swap_space": 4},
            "vLLM 0.19.1 knows no --swap-space; it was removed in 0.18.0; instead: nothing, since the engine no longer swaps to the CPU.",
        ),
        ("0.24.0", {"max_modle_len": 4}, "vLLM 0.24.0 knows no --max-modle-len (did you mean 'max_model_len'?)."),
        ("0.19.1", {"kv_cache_dtype": "nvfp4"}, "vLLM 0.19.1 does not take --kv-cache-dtype nvfp4; the first release with it is 0.20.0."),
        ("0.32.0", {"mamba_cache_mode": "all"}, "vLLM 0.32.0 does not take --mamba-cache-mode all; it was removed in 0.32.0."),
        ("0.24.0", {"quantization": "gguf"}, "vLLM 0.24.0 does not take --quantization gguf; it was removed in 0.24.0."),
        ("0.24.0", {"dtype": "bfloat17"}, "does not take --dtype bfloat17, but auto, bfloat16, float, float16, float32, half (did you mean 'bfloat16'?)."),
        ("0.24.0", {"reasoning_parser": "qwen4"}, "vLLM 0.24.0 does not take --reasoning-parser qwen4, but "),
        ("0.19.1", {"linear_backend": "torch"}, "vLLM 0.19.1 knows no --linear-backend; the first release with it is 0.22.0."),
        ("0.32.0", {"enable_sleep_mode": True}, "--enable-sleep-mode true is refused: at the wake-up it took the whole host of a GB10 down, twice"),
        ("0.19.1", {"async_scheduling": True}, "--async-scheduling true is refused: the first executor for Ray rejects it"),
    ],
)
def test_what_cannot_be_had_is_refused(version, arguments, message):
    given, _env, ((verdict, text),) = resolved(version, arguments)
    assert verdict == "block" and message in text and given == arguments, "who silences the finding leaves it to the engine"


@pytest.mark.parametrize(
    ("version", "arguments", "executor", "env"),
    [
        ("0.32.0", {"enable_sleep_mode": False}, "ray", {}),
        ("0.24.0", {"async_scheduling": True}, "ray", {}),
        ("0.19.1", {"async_scheduling": True}, "native", {}),
        ("0.20.1", {"async_scheduling": True}, "ray", {"VLLM_USE_RAY_V2_EXECUTOR_BACKEND": "1"}),
        ("0.24.0", {"reasoning_parser": "mine", "reasoning_parser_plugin": "/x.py"}, "ray", {}),
        ("0.24.0", {"compilation_config.cudagraph_mode": "NONE", "hf_overrides": {"a": 1}}, "ray", {}),
        ("0.24.0", {"enable_prefix_caching": False}, "ray", {"NCCL_X": "1", "http_proxy": "p"}),
    ],
)
def test_what_the_engine_takes_is_passed_on(version, arguments, executor, env):
    assert resolved(version, arguments, env, executor) == (arguments, env, [])


def test_a_switch_without_an_opposite_is_left_out_when_it_is_off():
    assert resolved("0.24.0", {"headless": False})[0] == {} and resolved("0.24.0", {"headless": True})[0] == {"headless": True}


@pytest.mark.parametrize(
    ("version", "env", "arguments", "left", "verdict", "message"),
    [
        (
            "0.24.0", {"VLLM_NVFP4_GEMM_BACKEND": "flashinfer-cutlass"}, {"linear_backend": "flashinfer_cutlass"}, {}, "pass",
            "becomes --linear-backend flashinfer",
        ),
        (
            "0.29.0", {"VLLM_TEST_FORCE_FP8_MARLIN": "1"}, {"linear_backend": "marlin", "moe_backend": "marlin"}, {}, "pass",
            "becomes --linear-backend marlin and --moe",
        ),
        ("0.19.1", {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"}, {"attention_backend": "TRITON_ATTN"}, {}, "pass", "becomes --attention-backend TRITON_ATTN"),
        ("0.24.0", {"VLLM_RPC_TIMEOUT": "9"}, {}, {}, "warn", "VLLM_RPC_TIMEOUT=9 is left out: vLLM ignores it since 0.23.0."),
        ("0.24.0", {"VLLM_USE_FLASHINFER_MOE_FP4": "0"}, {}, {}, "warn", "ignores it since 0.24.0. moe_backend says it now."),
        ("0.33.0", {"RAY_CGRAPH_get_timeout": "9"}, {}, {}, "warn", "vLLM ignores it since 0.33.0"),
        ("0.24.0", {"VLLM_USE_RAY_V2_EXECUTOR_BACKEND": "1"}, {}, {}, "pass", "is left out: vLLM 0.24.0 does that by default."),
        ("0.33.0", {"VLLM_USE_RAY_V2_EXECUTOR_BACKEND": "1"}, {}, {}, "pass", "is left out: vLLM 0.33.0 does that by default."),
        ("0.33.0", {"VLLM_USE_RAY_V2_EXECUTOR_BACKEND": "0"}, {}, {}, "warn", "vLLM ignores it since 0.33.0."),
        (
            "0.19.1", {"VLLM_USE_RAY_V2_EXECUTOR_BACKEND": "1"}, {}, {}, "block",
            "knows no VLLM_USE_RAY_V2_EXECUTOR_BACKEND; the first release with it is 0.20.0.",
        ),
        ("0.24.0", {"VLLM_HOST_PI": "1"}, {}, {}, "block", "vLLM 0.24.0 knows no VLLM_HOST_PI, nor does the image set it (did you mean 'VLLM_HOST_IP'?)."),
        (
            "0.19.1", {"VLLM_NVFP4_GEMM_BACKEND": "flashinfer-b12x"}, {}, {}, "block",
            "does not take VLLM_NVFP4_GEMM_BACKEND=flashinfer-b12x; the first release with it is 0.22.0.",
        ),
    ],
)
def test_variables(version, env, arguments, left, verdict, message):
    given, variables, ((actual, text),) = resolved(version, {}, env)
    assert (given, variables, actual) == (arguments, env if verdict == "block" else left, verdict) and message in text


def test_a_variable_of_the_image_or_of_a_plugin_is_known():
    assert resolved("0.24.0", env={"VLLM_MINE": "1"}, known_env=["VLLM_MINE"]) == ({}, {"VLLM_MINE": "1"}, [])


def test_what_is_written_in_todays_words_wins_over_older_ones():
    arguments, env, ((verdict, text),) = resolved("0.24.0", {"linear_backend": "cutlass"}, {"VLLM_NVFP4_GEMM_BACKEND": "marlin"})
    assert (arguments, env, verdict) == ({"linear_backend": "cutlass"}, {}, "pass") and "becomes --linear-backend cutlass (set separately)" in text


def test_ranks_that_spread_by_themselves_need_the_arguments_for_it():
    result = resolve(Engine("0.11.0"), {}, {}, "native", places=True)
    assert {step.name for step in blocks(result)} == {"nnodes", "node_rank", "master_addr", "master_port"}
    assert resolve(real("0.19.1"), {}, {}, "native", places=True).steps == []


@pytest.mark.parametrize("version", ["rubbish", "", "0.x"])
def test_a_version_that_cannot_be_read_is_an_error(version):
    with pytest.raises(ValueError, match="cannot be read"):
        Engine(version)


def test_a_build_of_a_release_is_that_release():
    assert Engine("0.20.1+nv26.05").has("moe_backend") and not Engine("0.17.0rc1").has("shutdown_timeout")


def test_every_row_of_the_history_can_be_read():
    words = {"added", "removed", "ignored", "instead", "defaults", "values", "becomes", "refused", "source"}
    for name, row in history().items():
        assert row.keys() <= words and row["source"], name
        spans = [version for span in row["values"].values() for version in span]
        for version in (row.get("added"), row.get("removed"), row.get("ignored"), *row.get("defaults", {}), *spans):
            assert version is None or Version(version)
        for targets in row.get("becomes", {}).values():
            assert all(target in history() or target == "gpu_memory_utilization" for target in targets), name
    assert resolver.is_variable("VLLM_USE_V1") and not resolver.is_variable("max_model_len")


# -- flags of a fork -----------------------------------------------------------------------------------------------------

FORKED = sorted(name for name in SHIPPED if profiles.load(name)["fork_flags"])
SAID = {"why": "decodes", "source": "https://example.com/recipe", "image": "org/fork"}
GDN = {"gdn_decode_kernel": SAID}


def fork(name, **less):
    """Return an engine that accepts the flags of the newest release, and the flags that the profile declares for its fork."""
    declared = profiles.load(name)["fork_flags"]
    takes_too = json.loads(json.dumps(takes(RECORDED[-1])))
    takes_too["env"] += [flag for flag in declared if resolver.is_variable(flag)]
    takes_too["flags"] |= {resolver.option(flag): {} for flag in declared if not resolver.is_variable(flag)}
    return Engine("0.1.dev21553+g0123abc", takes_too, fork_flags=declared)


def test_some_profiles_need_a_fork():
    assert FORKED == ["glm_5_3_flash_nvfp4_tp2", "qwen3_8_flash_next_nvfp4_one", "qwen3_8_flash_next_nvfp4_tp2"]


@pytest.mark.parametrize("name", FORKED)
def test_a_fork_gets_all_arguments_of_its_profile(name):
    arguments, env = wanted(name)
    result = resolve(fork(name), arguments, env, "native")
    assert blocks(result) == []
    declared = [flag for flag in profiles.load(name)["fork_flags"] if "." not in flag]
    assert declared and all({**result.arguments, **result.env}[flag] == {**arguments, **env}[flag] for flag in declared)
    assert result.arguments["speculative_config"] == arguments["speculative_config"]


@pytest.mark.parametrize("version", RECORDED[-2:])
@pytest.mark.parametrize("name", FORKED)
def test_a_release_is_refused_for_each_flag_of_a_fork_and_for_nothing_else(name, version):
    declared = profiles.load(name)["fork_flags"]
    engine = Engine(version, takes(version), fork_flags=declared)
    steps = blocks(resolve(engine, *wanted(name), "native"))
    assert {step.name for step in steps} == {flag for flag in declared if not engine.has(flag)} != set()
    for step in steps:
        entry = declared[step.name]
        assert entry["image"] in step.message and entry["image"] in step.remedy and step.source == entry["source"] and entry["why"] in step.message


def test_the_refusal_names_the_flag_the_image_and_the_source():
    (step,) = resolve(Engine("0.32.0", takes("0.32.0"), fork_flags=GDN), {"gdn_decode_kernel": "b12x"}, {}).steps
    assert step == ("block", "gdn_decode_kernel", "vLLM 0.32.0 knows no --gdn-decode-kernel: a fork alone does, and org/fork has it (decodes).",
                    "take org/fork as image.base", "https://example.com/recipe")


def test_a_value_that_only_a_fork_takes_is_refused_where_values_are_listed():
    (step,) = resolve(Engine("0.24.0", takes("0.24.0"), fork_flags={"moe_backend": SAID}), {"moe_backend": "b12x"}, {}).steps
    assert step.message == "vLLM 0.24.0 does not take --moe-backend b12x: a fork alone does, and org/fork has it (decodes)."


def test_an_engine_that_was_not_asked_is_left_to_judge():
    assert resolve(Engine("0.1.dev21553", fork_flags=GDN), {"gdn_decode_kernel": "b12x", "quantization": "modelopt_mixed"}, {}).steps == []
    assert blocks(resolve(Engine("0.1.dev21553"), {"quantization": "modelopt_mixed"}, {})) != []
