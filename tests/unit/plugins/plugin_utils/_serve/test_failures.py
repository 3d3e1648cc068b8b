# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From log lines to the cause of a failure."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve import failures

RECORDED = Path(__file__).resolve().parents[3] / "fixtures" / "vllm"

SHIPPED = failures.shipped()
RAW = yaml.safe_load(failures.TABLE.read_text())


def diagnosis(*lines):
    made = failures.Diagnosis()
    made.feed(lines)
    return made


@pytest.mark.parametrize("row", SHIPPED, ids=lambda row: row.id)
def test_each_signature_knows_its_example(row):
    assert row.pattern.search(row.example)
    assert row.verdict in ("block", "warn")
    assert row.rank_scope in ("cause", "echo")
    assert isinstance(row.needs_reboot, bool)
    assert row.cause and row.consequence and row.remedy and row.source and row.where


@pytest.mark.parametrize("row", SHIPPED, ids=lambda row: row.id)
def test_each_example_leads_to_its_own_signature(row):
    found = diagnosis(*row.example.splitlines())
    match = found.fatal if row.verdict == "block" else found.warnings[0]
    assert match.signature.id == row.id


@pytest.mark.parametrize(
    ("name", "id", "words"),
    [
        ("unknown_argument", "engine-unknown-argument", "unrecognized arguments: --no-such-flag"),
        ("bad_value", "engine-bad-argument", "argument --dtype: invalid choice: 'fp3'"),
        ("context_too_long", "context-too-long", "User-specified max_model_len (4096)"),
        ("reasoning_parser", "engine-bad-reasoning-parser", "Reasoning parser 'super_v3' not found"),
        ("port_taken", "port-taken", "Address already in use"),
        ("no_gpus", "ray-no-gpus", "for 30 seconds"),
        ("node_died", "rank-died", "ActorDiedError"),
        ("no_compiler", "compiler-missing", "RuntimeError: Worker failed with error 'InvalidCxxCompiler"),
    ],
)
def test_recorded_failures(name, id, words):
    log = (RECORDED / f"failed_{name}.log").read_text()
    found = diagnosis(*engine_state.plain_lines(log))
    assert words in found.line
    assert (found.fatal.signature.id if found.fatal else None) == id


def test_a_good_start_has_no_failure():
    found = diagnosis(*engine_state.plain_lines((RECORDED / "ready_ray_tp2.log").read_text()))
    assert (found.fatal, found.first_error, found.warnings) == (None, "", [])


def test_ids_are_unique():
    assert len({row["id"] for row in RAW}) == len(RAW)


def test_a_row_that_is_not_complete_is_refused():
    with pytest.raises(TypeError):
        failures.parsed("- {id: a, pattern: b}")


def test_a_short_wait_for_gpus_is_no_failure():
    assert diagnosis("Waiting for creating a placement group of specs for 10 seconds. specs=[]").fatal is None


def test_a_cause_wins_over_an_echo_before_it():
    found = diagnosis(
        "(EngineCore pid=217) ERROR 11-21 02:08:44 [core.py:1501] EngineCore failed to start.",
        "(EngineCore pid=217) ERROR 11-21 02:08:44 [core.py:1501] Traceback (most recent call last):",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    )
    assert found.fatal.signature.id == "memory-out"
    assert found.line.startswith("torch.OutOfMemoryError")


def test_the_first_of_two_causes_wins():
    found = diagnosis("OSError: [Errno 98] Address already in use", "ValueError: No available memory for the cache blocks.")
    assert found.fatal.signature.id == "port-taken"


def test_an_unknown_failure_is_its_first_exception_not_the_last():
    found = diagnosis(
        "INFO 11-21 02:00:00 [x.py:1] hello",
        "(EngineCore pid=1) ERROR 11-21 02:00:00 [core.py:1501] EngineCore failed to start.",
        "(EngineCore pid=1) ERROR 11-21 02:00:00 [core.py:1501] Traceback (most recent call last):",
        "(EngineCore pid=1) ERROR 11-21 02:00:00 [core.py:1501]     raise KeyError('x')",
        "(EngineCore pid=1) ERROR 11-21 02:00:00 [core.py:1501] KeyError: 'layer.3.weight'",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    )
    assert found.line.endswith("KeyError: 'layer.3.weight'")
    assert found.fatal.signature.rank_scope == "echo"


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (["a", "b"], ""),
        ([], ""),
        (["WARNING 11-21 02:00:00 [x.py:1] retry: ValueError: no", "last"], ""),
        (["usage: vllm", "CRITICAL 11-21 no exception here", "last"], "CRITICAL 11-21 no exception here"),
        (["pydantic_core.ValidationError: 1 validation error for ModelConfig", "  Value error, bad [type=value_error]"], "Value error, bad [type=value_error]"),
    ],
)
def test_the_line_for_a_message(lines, line):
    assert diagnosis(*lines).line == line


def test_a_finding_has_the_common_shape():
    row = diagnosis("OSError: [Errno 98] Address already in use").fatal.finding("spark-1")
    assert (row["id"], row["node"], row["verdict"]) == ("port-taken", "spark-1", "block")
    assert "Address already in use" in row["message"]


def test_only_the_end_of_a_long_log_is_kept():
    found = diagnosis(*(str(n) for n in range(1000)))
    assert list(found.tail)[-1] == "999"
    assert len(found.tail) == failures.TAIL_LINES
