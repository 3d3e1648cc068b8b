# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Up to where a start goes as expected: never above where a healthy one would end."""

from __future__ import annotations

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._memory import components, ending, plan, recipe

GIB = 1024
NOW = 110 * GIB


def start(lowest_gib=20, steady_gib=22, before_gib=110, **changes):
    record = {"image_id": "sha256:1", "start_digest": "s", "recorded_at": "2026-11-20T10:00:00Z", "before_mb": before_gib * GIB}
    return {**record, "lowest_mb": lowest_gib * GIB, "steady_mb": steady_gib * GIB, **changes}


def test_a_start_like_the_last_one_ends_a_gib_lower_at_most():
    assert ending.of_starts([start()], "sha256:1", "s", NOW) == (19 * GIB, "the start of 2026-11-20 took 90.0 GiB, less 1")
    assert ending.of_starts([start(25, 22)], "sha256:1", "s", NOW).mb == 21 * GIB


@pytest.mark.parametrize(
    ("known", "available_gib", "level_gib"),
    [
        ([start()], 100, 9),  # others hold 10 GiB more by now
        ([start()], 121, 19),  # and 11 less
        ([start(before_gib=60)], 110, 19),  # what an end before it gave back came after its note: it took 90 GiB, not 40
        ([start(), start(15, 16)], 110, 14),
        ([start(), start(30, 30, before_gib=125)], 110, 14),  # the first start took the most memory, the second saw the lowest level
        ([start()], 80, -11),
    ],
)
def test_the_lower_of_what_was_seen_and_what_would_be_left_counts(known, available_gib, level_gib):
    assert ending.of_starts(known, "sha256:1", "s", available_gib * GIB).mb == level_gib * GIB


@pytest.mark.parametrize(
    "changes", [{"image_id": "sha256:2"}, {"start_digest": "other"}, {"start_digest": ""}, {"start_digest": None}]
)
def test_starts_of_another_image_or_specification_are_ignored(changes):
    assert ending.of_starts([start(**changes)], "sha256:1", "s", NOW) is None
    assert ending.of_starts([start(**changes), start()], "sha256:1", "s", NOW).mb == 19 * GIB


def test_what_is_not_known_is_like_no_record():
    older = {name: value for name, value in start().items() if name != "start_digest"}
    assert ending.of_starts([], "sha256:1", "s", NOW) is None is ending.of_starts([older], "sha256:1", "s", NOW)
    assert ending.of_starts([start(image_id="")], "", "s", NOW) is None is ending.of_starts([start(start_digest="")], "sha256:1", "", NOW)


FACTS = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "head_dim": 128, "max_position_embeddings": 8192}
SERVE = {"gpu_memory_utilization": 0.7, "max_model_len": 8192, "max_num_seqs": 8}


def expectation(claims=0.0, lacks=(), **serve):
    use = recipe.settings_of({**SERVE, **serve}, {"tensor": 1}, FACTS)
    return {"facts": FACTS, "use": use._asdict(), "declared_gib": 15.0, "claims_gib": claims, "lacks": list(lacks)}


def node(tenants=0.0, **serve):
    expected = expectation(**serve)
    return plan.node_plan(FACTS, recipe.Settings(**expected["use"]), components.Node("", 121.0, tenants, available=110.0), 15.0, 1)


def test_the_plans_worst_case_counts_less_a_gib():
    figures = node()["serving"]
    level = ending.of_plan(expectation(), 121 * GIB, NOW)
    worst = figures["available_gib"] - figures["within_gib"]
    assert figures["within_gib"] > 1 and level.mb == int((worst - 1) * 1024)
    assert level.why == f"the memory plan leaves {figures['available_gib']:.1f} +/- {figures['within_gib']:.1f} GiB, less 1"


def test_the_lower_of_its_two_figures_counts(monkeypatch):
    for loading, serving, level in (((30, 2), (28, 1), 26), ((30, 5), (28, 1), 24)):
        figures = {"loading": dict(zip(("available_gib", "within_gib"), loading)), "serving": dict(zip(("available_gib", "within_gib"), serving))}
        monkeypatch.setattr(plan, "node_plan", lambda *_arguments, figures=figures: figures)
        assert ending.of_plan(expectation(), 121 * GIB, NOW).mb == level * GIB


def test_what_others_have_yet_to_take_comes_off():
    assert ending.of_plan(expectation(10.0), 121 * GIB, NOW).mb == pytest.approx(ending.of_plan(expectation(), 121 * GIB, NOW).mb - 10 * GIB, abs=11)


def test_without_its_facts_there_is_no_level():
    assert ending.of_plan(expectation(lacks=["num_key_value_heads"]), 121 * GIB, NOW) == (
        None, "no such start is recorded, and there is no memory plan without num_key_value_heads",
    )  # fmt: skip


def test_the_margin_covers_what_was_reported_to_be_missing_after_a_load():
    assert ending.MARGIN >= 0.87
