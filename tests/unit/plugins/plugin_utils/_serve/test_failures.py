# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From log lines to the cause of a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve import failures

RECORDED = Path(__file__).resolve().parents[3] / "fixtures" / "vllm"



def diagnosis(*lines):
    made = failures.Diagnosis()
    made.feed(lines)
    return made


@pytest.mark.parametrize(
    ("name", "id", "words"),
    [
        ("unknown_argument", "engine-unknown-argument", "unrecognized arguments: --no-such-flag"),
        ("bad_value", "engine-bad-argument", "argument --dtype: invalid choice: 'fp3'"),
        ("context_too_long", "context-too-long", "User-specified max_model_len (4096)"),
        ("reasoning_parser", "engine-bad-reasoning-parser", "Reasoning parser 'super_v3' not found"),
        ("port_taken", "port-taken", "Address already in use"),
        ("no_gpus", "ray-no-gpus", "for 30 seconds"),
        ("node_died", "ray-node-dead", "ActorDiedError"),
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


# -- logs of several nodes -----------------------------------------------------------------------------------------------


def at(seconds, text, node="spark-1", source="engine.log"):
    return failures.Line(text, node, None if seconds is None else float(seconds), source)


def test_the_first_cause_of_all_nodes_is_named_first():
    found = failures.diagnose(
        [
            at(30, "torch.distributed.DistBackendError: NCCL error in: x, unhandled system error"),
            at(40, "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."),
            at(20, "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "spark-2"),
        ]
    )
    assert [(one["id"], one["node"], one["rank"], one["certainty"]) for one in found] == [
        ("memory-out", "spark-2", 1, "known"),
        ("rank-not-joined", "spark-1", None, "known"),
        ("nccl-error", "spark-1", None, "suspected"),
    ]
    assert found[0]["lines"][-1].startswith("[rank1]: torch.OutOfMemoryError") and found[0]["time"] == 20.0
    assert all(found[0][field] for field in ("cause", "consequence", "remedy", "source")) and found[0]["needs_reboot"] is False


def test_a_line_that_ray_forwards_belongs_to_the_node_that_wrote_it():
    forwarded = at(1, "(RayWorkerProc pid=2158, ip=192.168.10.254) double free or corruption (fasttop)")
    (one,) = failures.diagnose([forwarded], addresses={"192.168.10.254": "spark-2"})
    assert (one["node"], one["id"]) == ("spark-2", "rank-heap-corrupted")


def test_an_error_that_no_signature_knows_is_unknown_and_stands_before_what_repeats_it():
    found = failures.diagnose(
        [
            at(1, "(EngineCore pid=1) ERROR 11-21 02:00:00 [core.py:1501] EngineCore failed to start."),
            at(1, "(EngineCore pid=1) ERROR 11-21 02:00:00 [core.py:1501] KeyError: 'layer.3.weight'"),
            at(2, "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"),
        ]
    )
    assert [(one["id"], one["certainty"], one["verdict"]) for one in found] == [
        ("unknown", "unknown", "unknown"),
        ("engine-core-failed", "suspected", "block"),
    ]
    assert found[0]["lines"][0].endswith("KeyError: 'layer.3.weight'") and found[0]["lines"][-1].startswith("RuntimeError")


def test_lines_of_one_log_do_not_interrupt_a_report_in_another():
    found = failures.diagnose(
        [
            at(1, "(APIServer pid=1) ERROR:    Exception in ASGI application"),
            at(1, "OSError: [Errno 98] Address already in use", source="other.log"),
            at(1, "(APIServer pid=1) Traceback (most recent call last):"),
            at(1, "(APIServer pid=1) ValueError: No available memory for the cache blocks"),
        ]
    )
    assert [(one["id"], one["log"]) for one in found] == [("port-taken", "other.log")]


def test_warnings_stand_last():
    found = failures.diagnose(
        [
            at(1, "WARNING 11-21 02:07:58 [interface.py:1458] Unknown vLLM environment variable detected: VLLM_X"),
            at(9, "vllm: error: unrecognized arguments: --x"),
        ]
    )
    assert [one["verdict"] for one in found] == ["block", "warn"]


def test_a_healthy_log_has_no_findings():
    lines = engine_state.plain_lines((RECORDED / "ready_ray_tp2.log").read_text())
    assert failures.diagnose(failures.Line(line) for line in lines) == []
