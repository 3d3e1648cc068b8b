# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of serve arguments compared with the recorded parsers, and the problems that it finds in the arguments of a profile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import flags, profiles, resolver

CONTRACTS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in (Path(__file__).resolve().parents[3] / "fixtures" / "vllm" / "contracts").glob("*.json")
}


def arguments(version):
    """Return the arguments of a recorded parser, without negations."""
    listed = CONTRACTS[version]["flags"]
    plain = {option for option in listed if not (option.startswith("--no-") and f"--{option[5:]}" in listed)}
    return {option[2:].replace("-", "_") for option in plain} - {"help"}


def test_the_table_has_the_arguments_of_each_recorded_parser():
    recorded = flags.table().recorded
    assert sorted(recorded) == sorted(CONTRACTS)
    for at, version in enumerate(recorded):
        spans = {name: (after, before) for name, (after, before) in flags.table().names.items()}
        held = {name for name, (after, before) in spans.items() if (not after or recorded.index(after) < at) and (not before or at < recorded.index(before))}
        assert held == arguments(version), version


def test_every_recorded_default_and_choice_is_one_that_passes():
    for contract in CONTRACTS.values():
        for option, row in contract["flags"].items():
            name, default = option[2:].replace("-", "_"), row.get("default")
            # Some defaults that the engine fills in are not accepted on its command line.
            if name.startswith("no_") or default is None or isinstance(default, str) and default[:1] in ("<", "="):
                continue
            assert flags.fault(name, default) is None, (name, default)
            assert all(flags.fault(name, choice) is None for choice in row.get("choices", ())), name


@pytest.mark.parametrize("name", profiles.known())
def test_shipped_profiles_pass_with_each_of_their_switches(name):
    plain = profiles.load(name)
    for switches in ([], *([switch] for switch in plain["switches"])):
        profile = profiles.load(name, switches=switches)
        assert list(flags.problems(profile, profile["serve"], "serve")) == []


def profile(requires=None, serve=None, fork_flags=None):
    return {"requires": {"vllm": requires} if requires else {}, "serve": serve or {}, "fork_flags": fork_flags or {}}


def problems(profile, **given):
    return [(problem.verdict, problem.where, problem.what) for problem in flags.problems(profile, given, "serve")]


def test_a_release_between_two_that_were_recorded_may_have_what_the_later_one_has():
    assert problems(profile(">=0.24.0,<0.29.0"), jit_monitor_mode="warn") == []
    [(verdict, where, what)] = problems(profile(">=0.20.0,<=0.24.0"), jit_monitor_mode="warn")
    assert (verdict, where) == ("block", "serve.jit_monitor_mode") and what.endswith("it came after 0.24.0")
    [(verdict, where, what)] = problems(profile(">=0.29.0"), max_num_partial_prefills=2)
    assert what == "is an argument of no release that the profile allows (0.29.0 to 0.33.0): it was removed in 0.29.0"
    assert problems(profile(">=0.25.0"), max_num_partial_prefills=2) == []


def test_an_older_name_of_an_argument_is_not_refused():
    assert problems(profile("<0.24.0"), device_memory_utilization=0.8) == []
    [(_verdict, _where, what)] = problems(profile("<0.20.0"), kernel_config={}, moe_backend="flashinfer_b12x")
    assert what.startswith("vLLM 0.19.1 does not take --moe-backend flashinfer_b12x; the first release with it is 0.22.0")


def test_what_a_fork_alone_has_is_its_profiles_matter():
    fork = {"engram_config": {"why": "w", "source": "https://x", "image": "i"}}
    assert problems(profile(fork_flags=fork), engram_mode=1)[0][0] == "block"
    assert problems(profile(fork_flags=fork), engram_config={}) == [] == problems(profile(fork_flags=fork), **{"engram_config.size": 1})
    # A fork with version numbers of its own corresponds to no release, so only a probable typo blocks.
    fork_range = ">=0.1.dev21553,<0.2"
    assert flags.releases(profile(fork_range)) == []
    assert [row[0] for row in problems(profile(fork_range), quantum_mode=1, max_model_length=4)] == ["warn", "block"]
    assert problems(profile(fork_range), swap_space=1) == []


def test_a_file_that_registers_more_parsers_makes_any_name_right():
    assert problems(profile(), reasoning_parser="qwen33")[0][0] == "warn"
    assert problems(profile(serve={"reasoning_parser_plugin": "side_file:x.py"}), reasoning_parser="qwen33") == []


def test_a_policy_is_not_a_release():
    """A user who silences `engine.flags` leaves the decision to the engine."""
    assert resolver.lacks(resolver.Engine("0.33.0"), "enable_sleep_mode", True, {}) is None
    assert problems(profile(), enable_sleep_mode=True) == []
