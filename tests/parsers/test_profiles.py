# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every shipped profile's argv is accepted by the real engine's own parser, for the engine versions that the profile claims.

The first and the last release that a profile claims are asked, the one in its image, and those of which the unit tests have a contract; with
each of its switches, with every pair of them, and for each executor as head and worker start it. With GB10_ENGINES=all every claimed
release is asked. What is asked is what the play would start there: resolved against the release's own contract.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import os
import tempfile
import typing as t
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from ansible_collections.gb10.cluster.plugins.filter import profile as filters
from ansible_collections.gb10.cluster.plugins.module_utils._arguments import serve_arguments
from ansible_collections.gb10.cluster.plugins.module_utils._image import engine_probe, image_contract
from ansible_collections.gb10.cluster.plugins.plugin_utils._import import imported, reading
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.draft import Choices
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import derived, executors, form, profiles, resolver, validation

HERE = Path(__file__).resolve().parent

#: The engine in each image that a shipped profile starts from: from the images' release notes, and for 26.05.post1 from a Spark's log.
IMAGES = {
    # A fork counts its own builds.
    "eugr/spark-vllm-b12x@sha256:66147fc1420dbd59a7bb1411697d81a8231c298105b61c5962179cd146b4a41b": "0.1.dev21553",
    # A build of a release for this chip.
    "ghcr.io/bjk110/vllm-spark:v019-ngc2603": "0.19.1",
    # Nightlies: the release before them.
    "eugr/spark-vllm:nightly-20260704": "0.23.0",
    "eugr/spark-vllm@sha256:2c2aa4062f3fa74a5917db55fe4bde29cfd8ddd4e90722165b6b22b1867d7066": "0.28.0",
    "nvcr.io/nvidia/vllm:26.04-py3": "0.19.0",
    "nvcr.io/nvidia/vllm:26.05.post1-py3": "0.21.0",
    # A preview, which is not a release.
    "vllm/vllm-openai:gemma4-0505-arm64-cu130": "0.20.2rc1.dev49",
    "vllm/vllm-openai:v0.24.0-ubuntu2404": "0.24.0",
    "vllm/vllm-openai:v0.28.0": "0.28.0",
}

#: Contracts that the unit tests resolve profiles against.
CONTRACTS = HERE.parent / "unit" / "fixtures" / "vllm" / "contracts"

SHIPPED = sorted(path.stem for path in profiles.SHIPPED.glob("*.yml"))

FACTS = {
    "fabric_address": "192.168.100.1",
    "fabric_interfaces": "enp1s0f1np1,enP2p1s0f1np1",
    "control_interface": "enp1s0f1np1",
    "rdma_devices": "rocep1s0f1,roceP2p1s0f1",
    "ucx_devices": "rocep1s0f1:1,roceP2p1s0f1:1",
}


def _load_engines() -> t.Any:
    spec = importlib.util.spec_from_file_location("engines", HERE / "engines.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


engines = _load_engines()


class Case(t.NamedTuple):
    """One start of an engine: a profile with its switches, on one release, by one executor, as one role."""

    version: str
    profile: str
    switches: tuple[str, ...]
    executor: str
    role: str

    def __str__(self) -> str:
        return f"{self.version}-{'+'.join([self.profile, *self.switches])}-{self.executor}-{self.role}"


def combinations(profile: dict[str, t.Any]) -> list[tuple[str, ...]]:
    """No switch, each switch alone, and every pair that does not contradict itself."""
    names = sorted(profile["switches"])
    return [(), *((name,) for name in names), *(pair for pair in itertools.combinations(names, 2) if compatible(profile, pair))]


def compatible(profile: dict[str, t.Any], names: tuple[str, ...]) -> bool:
    """Whether these switches can be on at once."""
    try:
        profiles.switch(profile, names)
    except form.ProfileError:
        return False
    return True


def claimed(profile: dict[str, t.Any]) -> list[str]:
    """The releases to ask: the first and the last one that the profile claims and the one in its image, or all of them.

    No release is a fork: for a profile that needs one, the newest release checks the rest.
    """
    if profile["fork_flags"]:
        return [engines.RELEASES[-1]]
    claim = SpecifierSet(profile["requires"]["vllm"])
    releases = [version for version in engines.RELEASES if version in claim]
    if os.environ.get("GB10_ENGINES") == "all":
        return releases
    recorded = [path.stem for path in CONTRACTS.glob("*.json")]
    also = {version for version in [IMAGES[profile["image"]["base"]], *recorded] if version in claim and version in engines.RELEASES}
    return sorted({releases[0], releases[-1], *also}, key=Version)


def started(profile: dict[str, t.Any]) -> list[tuple[str, str]]:
    """The executors and roles that have their own command line of the engine: one rank needs neither Ray nor a worker."""
    return [("native", "head")] if executors.ranks(profile) == 1 else [("ray", "head"), ("native", "head"), ("native", "worker")]


def all_cases() -> list[Case]:
    """Every case of every shipped profile, release by release."""
    cases = []
    for name in SHIPPED:
        for switches in combinations(profiles.load(name)):
            for version in claimed(profiles.load(name, switches=switches)):
                cases += [Case(version, name, switches, executor, role) for executor, role in started(profiles.load(name))]
    return sorted(cases, key=lambda case: (Version(case.version), case))


CASES = all_cases()


@functools.cache
def contract(version: str) -> dict[str, t.Any]:
    """The answer of the collection's own probe for a release."""
    with tempfile.TemporaryDirectory() as directory:
        stdout = engines.run_beside(version, Path(engine_probe.__file__), directory)
    return image_contract.parse_answer(stdout, engine_probe.MARK, image_contract.ENGINE_FORM)


def resolved(version: str, arguments: dict[str, t.Any], env: dict[str, str], executor: str) -> resolver.Resolved:
    """The part of the wanted arguments that the release supports."""
    return resolver.resolve(resolver.Engine(version, contract(version)), arguments, env, executor, places=executor == "native")


def of_mainline(wanted: dict[str, t.Any], fork_flags: t.Collection[str], above: str = "") -> dict[str, t.Any]:
    """The wanted arguments without those that only a fork supports, also inside values."""
    return {
        name: of_mainline(value, fork_flags, f"{above}{name}.") if isinstance(value, dict) else value
        for name, value in wanted.items()
        if f"{above}{name}" not in fork_flags
    }


def question(case: Case) -> dict[str, t.Any]:
    """A case in the form that ask.py reads: the words that the collection would start the engine with."""
    profile = profiles.load(case.profile, switches=case.switches)
    arguments = of_mainline(filters.serve_arguments(profile, {}, case.executor), profile["fork_flags"])
    ranks = executors.ranks(profile)
    place = serve_arguments.Place(int(case.role == "worker"), ranks, FACTS["fabric_address"], 29501) if case.executor == "native" else None
    wanted = of_mainline(derived.node_env(profile, FACTS, fabric_fallback="none", nodes=ranks), profile["fork_flags"])
    arguments, env, steps = resolved(case.version, arguments, wanted, case.executor)
    assert [step for step in steps if step.verdict == "block"] == []
    argv = serve_arguments.serve_argv(["vllm", "serve"], profile["model"]["repo"], FACTS["fabric_address"], 8000, arguments, place)
    return {
        "id": str(case),
        "argv": argv[1:],
        # The engine's own; the others belong to NCCL, Ray and the hub's client, which would go and look for the model.
        "env": {variable: value for variable, value in env.items() if variable.startswith("VLLM_")},
        "parser": arguments["reasoning_parser"] if "reasoning_parser_plugin" in arguments else None,
    }


@functools.cache
def answers(version: str) -> dict[str, list[str]]:
    """One release's answers for all of its cases, from one process, since importing an engine takes seconds."""
    return engines.ask(version, [question(case) for case in CASES if case.version == version])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_engine_accepts_the_profile(case: Case) -> None:
    assert answers(case.version)[str(case)] == []


@pytest.mark.parametrize("version", sorted({path.stem for path in CONTRACTS.glob("*.json")} & set(engines.RELEASES) & {case.version for case in CASES}))
def test_the_recorded_contracts_are_what_the_engines_say(version: str) -> None:
    assert contract(version) == json.loads((CONTRACTS / f"{version}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", SHIPPED)
def test_claims_are_what_can_be_asked(name: str) -> None:
    """A claim begins and ends at tested releases, and includes the engine of the profile's own image."""
    profile = profiles.load(name)
    claim = SpecifierSet(profile["requires"]["vllm"])
    last = Version(engines.RELEASES[-1])
    assert f"{last.major}.{last.minor + 1}.0" not in claim
    assert "0.17.1" not in claim
    assert IMAGES[profile["image"]["base"]] in claim


BAD = {
    "flag": ({"serve": {"swap_space": 4}}, "swap-space"),
    "choice": ({"serve": {"kv_cache_dtype": "fp7"}}, "fp7"),
    "method": ({"serve": {"quantization": "fp4"}}, "fp4"),
    "parser": ({"serve": {"reasoning_parser": "super_v3"}}, "super_v3"),
    "tools": ({"serve": {"enable_auto_tool_choice": True, "tool_call_parser": "qwen9"}}, "qwen9"),
    "attention": ({"serve": {"attention_backend": "TRITON_ATN"}}, "TRITON_ATN"),
    "graphs": ({"serve": {"compilation_config": {"cudagraph_mode": "NOE"}}}, "NOE"),
    "speculation": ({"serve": {"speculative_config": {"method": "ngram", "tokens": 5}}}, "speculative_config.tokens"),
    "variable": ({"env": {"shared": {"VLLM_NVFP4_GEMM_BACKENT": "marlin"}}}, "VLLM_NVFP4_GEMM_BACKENT"),
    "value": ({"env": {"shared": {"VLLM_FLASHINFER_ALLREDUCE_BACKEND": "nccl"}}}, "VLLM_FLASHINFER_ALLREDUCE_BACKEND"),
}


@functools.cache
def bad_answers() -> dict[str, list[str]]:
    """The oldest tested release's answers for wrong profiles."""
    raw = {"schema": 1, "id": "bad", "model": {"repo": "org/m"}, "image": {"base": "vllm:1", "layers": []}, "parallel": {"tensor": 2}}
    questions = []
    for name, (part, _word) in BAD.items():
        profile, problems = validation.validate({**raw, **part})
        assert problems == []
        argv = serve_arguments.serve_argv(["vllm", "serve"], "org/m", "127.0.0.1", 8000, derived.serve_arguments(profile))
        questions.append({"id": name, "argv": argv[1:], "env": profile["env"]["shared"], "parser": None})
    return engines.ask(CASES[0].version, questions)


@pytest.mark.parametrize("name", BAD)
def test_the_question_can_be_answered_with_no(name: str) -> None:
    """Without this, an engine that is never really asked would pass everything."""
    assert any(BAD[name][1] in problem for problem in bad_answers()[name]), bad_answers()[name]


#: Recipes of other launchers that need no fork of the engine, as profiles. They claim no release: the newest is asked.
RECIPES = HERE.parent / "unit" / "fixtures" / "recipes"
IMPORTED = (
    "eugr/dotted", "eugr/glm-4.7-flash-awq", "eugr/minimax-m2.7-local", "eugr/nemotron-3-super-solo", "eugr/shell-variables",
    "sparkrun/folder-of-a-machine", "sparkrun/made-of-defaults", "sparkrun/nemotron-3-super", "sparkrun/qwen3.6-35b-fp8",
    "vllm-project/gpt-oss-120b", "vllm-project/nemotron-3.5-lightning", "vllm-project/qwen3.6-35b",
)  # fmt: skip


def imported_question(name: str) -> dict[str, t.Any]:
    """A recipe in the form that ask.py reads."""
    choices = yaml.safe_load((RECIPES / "cases.yml").read_text(encoding="utf-8"))[name].get("choices", {})
    recipe = reading.read(str(RECIPES / f"{name}.yaml"))
    profile, problems = validation.validate(imported.convert(recipe, Choices(**choices), lambda _image: ("", "no registry was asked")).profile)
    assert problems == []
    wanted = derived.node_env(profile, FACTS, fabric_fallback="none", nodes=1)
    arguments, env, steps = resolved(engines.RELEASES[-1], derived.serve_arguments(profile, executor="native"), wanted, "native")
    assert [step for step in steps if step.verdict == "block"] == []
    argv = serve_arguments.serve_argv(["vllm", "serve"], profile["model"]["repo"], FACTS["fabric_address"], 8000, arguments)
    return {"id": name, "argv": argv[1:], "env": {key: value for key, value in env.items() if key.startswith("VLLM_")}, "parser": None}


@functools.cache
def imported_answers() -> dict[str, list[str]]:
    """The newest release's answers for all of them."""
    return engines.ask(engines.RELEASES[-1], [imported_question(name) for name in IMPORTED])


@pytest.mark.parametrize("name", IMPORTED)
def test_the_engine_accepts_an_imported_recipe(name: str) -> None:
    assert imported_answers()[name] == []
