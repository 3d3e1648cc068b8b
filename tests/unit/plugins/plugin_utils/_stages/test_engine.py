# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which arguments and variables the engine gets, as far as its image accepts them."""

from __future__ import annotations

import pytest
from stage_answers import FULL, PROFILE, contract

from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import engine


def resolved(arguments, env=(), profile=None, nodes=2, **changes):
    answer = contract(**changes)
    answer["contract"] = {**FULL, **answer["contract"]} if answer["exists"] else None
    changed, findings = engine.resolved(answer, profile or PROFILE, arguments, dict(env), "ray", nodes)
    return changed, [(finding["id"], finding["verdict"]) for finding in findings]


def test_what_the_engine_takes_is_not_changed():
    assert resolved({"dtype": "half"}, {"VLLM_HOST_IP": "x"}) == ({"without": [], "arguments": {}, "env": {}}, [])


def test_changes_are_names_and_new_values():
    changed, verdicts = resolved({"attention_backend": "A"}, {"VLLM_RPC_TIMEOUT": "9"}, contract__engine=None, contract__versions={"vllm": "0.12.0"})
    assert changed == {"without": ["attention_backend"], "arguments": {}, "env": {"VLLM_ATTENTION_BACKEND": "A"}}
    assert verdicts == [("engine.answers", "warn"), ("engine.flags", "pass")]
    changed, verdicts = resolved({}, {"VLLM_RPC_TIMEOUT": "9"})
    assert changed["without"] == ["VLLM_RPC_TIMEOUT"] and verdicts == [("engine.flags", "warn")]


@pytest.mark.parametrize(
    ("arguments", "changes", "finding"),
    [
        ({"swap_space": 4}, {}, ("engine.flags", "block")),
        ({}, {"exists": False}, ("engine.answers", "unknown")),
        ({}, {"contract__versions": {"vllm": None}}, ("engine.answers", "block")),
        ({}, {"contract__versions": {"vllm": "rubbish!"}}, ("engine.answers", "unknown")),
    ],
)
def test_an_engine_that_cannot_be_given_what_is_wanted_stops(arguments, changes, finding):
    assert resolved(arguments, **changes)[1] == [finding]


def test_a_variable_that_the_profile_declares_is_known():
    assert resolved({}, {"VLLM_MINE": "1"})[1] == [("engine.flags", "block")]
    declaring = {**PROFILE, "env": {**PROFILE["env"], "declared": ["VLLM_MINE"]}}
    assert resolved({}, {"VLLM_MINE": "1"}, declaring)[1] == [] == resolved({}, {"VLLM_MINE": "1"}, contract__image_env=["VLLM_MINE"])[1]
