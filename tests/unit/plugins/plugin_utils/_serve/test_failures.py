# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From log lines to the cause of a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_log
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
    result = diagnosis(*engine_log.plain_lines(log))
    assert words in result.line
    assert (result.fatal.signature.id if result.fatal else None) == id


def test_a_good_start_has_no_failure():
    result = diagnosis(*engine_log.plain_lines((RECORDED / "ready_ray_tp2.log").read_text()))
    assert (result.fatal, result.first_error, result.warnings) == (None, "", [])


def test_a_short_wait_for_gpus_is_no_failure():
    assert diagnosis("Waiting for creating a placement group of specs for 10 seconds. specs=[]").fatal is None


def test_a_cause_wins_over_an_echo_before_it():
    result = diagnosis(
        "(EngineCore pid=217) ERROR 11-21 02:08:44 [core.py:1501] EngineCore failed to start.",
        "(EngineCore pid=217) ERROR 11-21 02:08:44 [core.py:1501] Traceback (most recent call last):",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    )
    assert result.fatal.signature.id == "memory-out"
    assert result.line.startswith("torch.OutOfMemoryError")


def test_the_first_of_two_causes_wins():
    result = diagnosis("OSError: [Errno 98] Address already in use", "ValueError: No available memory for the cache blocks.")
    assert result.fatal.signature.id == "port-taken"


def test_an_unknown_failure_is_its_first_exception_not_the_last():
    result = diagnosis(
        "INFO 11-21 02:00:00 [x.py:1] hello",
        "(EngineCore pid=1) ERROR 11-21 02:00:00 [core.py:1501] EngineCore failed to start.",
        "(EngineCore pid=1) ERROR 11-21 02:00:00 [core.py:1501] Traceback (most recent call last):",
        "(EngineCore pid=1) ERROR 11-21 02:00:00 [core.py:1501]     raise KeyError('x')",
        "(EngineCore pid=1) ERROR 11-21 02:00:00 [core.py:1501] KeyError: 'layer.3.weight'",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    )
    assert result.line.endswith("KeyError: 'layer.3.weight'")
    assert result.fatal.signature.rank_scope == "echo"


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
    result = diagnosis(*(str(n) for n in range(1000)))
    assert list(result.tail)[-1] == "999"
    assert len(result.tail) == failures.TAIL_LINES


# -- logs of several nodes -----------------------------------------------------------------------------------------------


def at(seconds, text, node="spark-1", source="engine.log"):
    return failures.Line(text, node, None if seconds is None else float(seconds), source)


def test_the_first_cause_of_all_nodes_is_named_first():
    findings = failures.diagnose(
        [
            at(30, "torch.distributed.DistBackendError: NCCL error in: x, unhandled system error"),
            at(40, "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."),
            at(20, "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "spark-2"),
        ]
    )
    assert [(finding["id"], finding["node"], finding["rank"], finding["certainty"]) for finding in findings] == [
        ("memory-out", "spark-2", 1, "known"),
        ("rank-not-joined", "spark-1", None, "known"),
        ("nccl-error", "spark-1", None, "suspected"),
    ]
    assert findings[0]["lines"][-1].startswith("[rank1]: torch.OutOfMemoryError") and findings[0]["time"] == 20.0
    assert all(findings[0][field] for field in ("cause", "consequence", "remedy", "source")) and findings[0]["needs_reboot"] is False


def test_a_line_that_ray_forwards_belongs_to_the_node_that_wrote_it():
    forwarded = at(1, "(RayWorkerProc pid=2158, ip=192.168.10.254) double free or corruption (fasttop)")
    (finding,) = failures.diagnose([forwarded], addresses={"192.168.10.254": "spark-2"})
    assert (finding["node"], finding["id"]) == ("spark-2", "rank-heap-corrupted")


def test_an_error_that_no_signature_knows_is_unknown_and_stands_before_what_repeats_it():
    findings = failures.diagnose(
        [
            at(1, "(EngineCore pid=1) ERROR 11-21 02:00:00 [core.py:1501] EngineCore failed to start."),
            at(1, "(EngineCore pid=1) ERROR 11-21 02:00:00 [core.py:1501] KeyError: 'layer.3.weight'"),
            at(2, "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"),
        ]
    )
    assert [(finding["id"], finding["certainty"], finding["verdict"]) for finding in findings] == [
        ("unknown", "unknown", "unknown"),
        ("engine-core-failed", "suspected", "block"),
    ]
    assert findings[0]["lines"][0].endswith("KeyError: 'layer.3.weight'") and findings[0]["lines"][-1].startswith("RuntimeError")


def test_lines_of_one_log_do_not_interrupt_a_report_in_another():
    findings = failures.diagnose(
        [
            at(1, "(APIServer pid=1) ERROR:    Exception in ASGI application"),
            at(1, "OSError: [Errno 98] Address already in use", source="other.log"),
            at(1, "(APIServer pid=1) Traceback (most recent call last):"),
            at(1, "(APIServer pid=1) ValueError: No available memory for the cache blocks"),
        ]
    )
    assert [(finding["id"], finding["log"]) for finding in findings] == [("port-taken", "other.log")]


def unknown(seconds, node="spark-1", source="engine.log", number=1):
    return at(seconds, f"KeyError: 'layer.{number}'", node, source)


CAUSE = "torch.OutOfMemoryError: CUDA out of memory."


def test_unknown_errors_after_a_known_cause_are_noise_and_earlier_ones_are_not():
    findings = failures.diagnose([at(10, CAUSE, "spark-2"), unknown(20), unknown(5, source="other.log", number="x"), at(None, "TypeError: x", "spark-3")])
    assert [(finding["id"], finding["log"]) for finding in findings] == [("memory-out", "engine.log"), ("unknown", "other.log")]


def test_an_unknown_error_that_several_logs_of_a_node_have_is_said_once():
    findings = failures.diagnose([unknown(5, source="a"), unknown(6, source="b", number=2), unknown(7, "spark-2")])
    assert [(finding["node"], finding["log"]) for finding in findings] == [("spark-1", "a"), ("spark-2", "engine.log")]


#: Recorded in the lab from clusters that served, with Ray 2.60.0 and without its dashboard.
RAY_NOISE = """\
[state-dump] - num chunks received failed / plasma error: 0
[2026-11-22 19:27:55,793 E 15 15] (gcs_server) gcs_server.cc:1361: Failed to establish connection to the event+metrics exporter agent. Events and metrics
(raylet, ip=10.77.1.12) [2026-11-22 19:57:24,931 E 43 43] (raylet) main.cc:1108: Failed to establish connection to the metrics exporter agent. Metrics will
{"custom_fields":{"job_id":"01000000","node_id":"07722fd09739316435e9a9ae7893f0953097935d86b14fb5378d1e5a"},"event_id":"e88492bc6919db0008b98a22e549b7",
2026-11-22 23:23:53,669 ERROR process_watcher.py:115 -- Raylet is terminated. Termination is unexpected. Possible reasons include: (1) SIGKILL by the user
2026-11-22 19:23:19,513 ERROR event_agent.py:106 -- Report event failed: ['{"custom_fields":{"job_id":"01000000"}}']
Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/aiohappyeyeballs/impl.py", line 87, in start_connection
    raise OSError(err, f'Connect call failed {address}')
ConnectionRefusedError: [Errno 111] Connect call failed ('127.0.0.1', 8265)

During handling of the above exception, another exception occurred:
aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host 127.0.0.1:8265 ssl:default [Connect call failed ('127.0.0.1', 8265)]
"""


def test_what_rays_own_logs_say_of_every_cluster_is_no_failure():
    assert failures.diagnose(at(1, line) for line in RAY_NOISE.splitlines()) == []


def test_warnings_stand_last():
    findings = failures.diagnose(
        [
            at(1, "WARNING 11-21 02:07:58 [interface.py:1458] Unknown vLLM environment variable detected: VLLM_X"),
            at(9, "vllm: error: unrecognized arguments: --x"),
        ]
    )
    assert [finding["verdict"] for finding in findings] == ["block", "warn"]


def test_a_healthy_log_has_no_findings():
    lines = engine_log.plain_lines((RECORDED / "ready_ray_tp2.log").read_text())
    assert failures.diagnose(failures.Line(line) for line in lines) == []
