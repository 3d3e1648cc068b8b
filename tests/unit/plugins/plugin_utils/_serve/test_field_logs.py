# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Logs of engines on real Sparks: a healthy start has no failure at any line, and a failed one gets its own cause."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import yaml

from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_log
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve import failures, signature

LOGS = Path(__file__).resolve().parents[3] / "fixtures" / "field" / "logs"

HEALTHY = yaml.safe_load((LOGS / "healthy.yml").read_text())
HARMLESS = yaml.safe_load((LOGS / "harmless.yml").read_text())
FATAL = yaml.safe_load((LOGS / "fatal.yml").read_text())
KERNEL = yaml.safe_load((LOGS.parent / "kernel_log.yml").read_text())

#: Lines of the same and of other failures, collected after the signatures were written.
VARIANTS = yaml.safe_load((LOGS / "variants.yml").read_text())
HARMLESS_VARIANTS = yaml.safe_load((LOGS / "harmless_variants.yml").read_text())
KERNEL_VARIANTS = yaml.safe_load((LOGS.parent / "kernel_variants.yml").read_text())

#: Kernel lines that need arithmetic; the rule log.reserved judges them.
COUNTED_BY_A_RULE = ("kho-reserved-memory",)

#: Records without a detectable cause, and why.
UNANSWERED = {
    "engine-dead-chat": "the record holds only the front end's echo of a core that died; its signature engine-dead says where the cause stands",
    "flashinfer-no-sm12": "the line alone ends nothing, engines with other kernels serve after it: it warns, and the error that follows is fatal",
    "ready-nul-record-host-lost": "the host was lost, and the log stops in the middle of serving without a line about it",
}


def lines_of(item):
    """Yield the recorded lines, and the whole log if there is one."""
    if "lines" in item:
        yield engine_log.plain_lines(item["lines"])
    if "log" in item:
        yield engine_log.plain_lines((LOGS / item["log"]).read_text())


def diagnosis(lines):
    made = failures.Diagnosis()
    made.feed(lines)
    return made


def named(result):
    """Return the id of the cause that a diagnosis names, or None."""
    match = result.fatal
    return match.signature.id if match and match.signature.rank_scope == "cause" else None


@pytest.mark.parametrize("item", HEALTHY, ids=lambda item: item["file"])
def test_a_healthy_start_is_clean_at_every_line(item):
    result = failures.Diagnosis()
    for line in engine_log.plain_lines((LOGS / item["file"]).read_text()):
        result.feed([line])
        assert (result.fatal, result.first_error, result.warnings) == (None, "", []), line


@pytest.mark.parametrize("item", HEALTHY, ids=lambda item: item["file"])
def test_a_healthy_start_shows_its_stages_in_order(item):
    seen = []
    for line in engine_log.plain_lines((LOGS / item["file"]).read_text()):
        stage = engine_log.stage_of([line])
        if stage and seen[-1:] != [stage.name]:
            seen.append(stage.name)
    assert seen == item["stages"] and seen[0] == "initializing engine" and seen[-1] == "API is up"


@pytest.mark.parametrize("item", HARMLESS, ids=lambda item: item["id"])
def test_a_harmless_line_stays_harmless(item):
    result = diagnosis(engine_log.plain_lines(item["line"]))
    assert (result.fatal, result.first_error, result.warnings) == (None, "", [])


@pytest.mark.parametrize("item", [item for item in FATAL if "answer" in item], ids=lambda item: item["id"])
def test_a_fatal_line_is_answered_by_its_own_cause(item):
    for lines in lines_of(item):
        assert named(diagnosis(lines)) == item["answer"]


@pytest.mark.parametrize("id", UNANSWERED)
def test_what_is_said_of_a_record_without_a_cause(id):
    (item,) = (item for item in FATAL if item["id"] == id)
    (lines,) = lines_of(item)
    result = diagnosis(lines)
    outcome = [result.fatal.signature.id if result.fatal else None, [match.signature.id for match in result.warnings]]
    assert outcome == {
        "engine-dead-chat": ["engine-dead", []],
        "flashinfer-no-sm12": [None, ["flashinfer-cuda-too-old"]],
        "ready-nul-record-host-lost": [None, []],
    }[id]


def test_the_corpus_is_whole_and_the_goals_are_met():
    assert (len(HEALTHY), len(HARMLESS), len(FATAL)) == (10, 40, 35)
    answered = [item["id"] for item in FATAL if "answer" in item and all(named(diagnosis(lines)) == item["answer"] for lines in lines_of(item))]
    assert len(answered) >= 32
    assert {item["id"] for item in FATAL} - set(answered) == set(UNANSWERED)


@pytest.mark.parametrize("item", [item for item in KERNEL if item["id"] not in COUNTED_BY_A_RULE], ids=lambda item: item["id"])
def test_what_a_kernel_wrote_is_explained_as_its_owners_met_it(item):
    findings = failures.diagnose(failures.Line(line) for line in engine_log.plain_lines(item["lines"]))
    verdicts = {finding["verdict"] for finding in findings}
    assert verdicts <= {"harmless": set(), "trouble": {"warn"}, "fatal": {"block", "warn"}}[item["judge"]], findings
    assert item["judge"] == "harmless" or {"trouble": "warn", "fatal": "block"}[item["judge"]] in verdicts


@pytest.mark.parametrize("item", KERNEL_VARIANTS, ids=[f"{number}-{item['judge']}" for number, item in enumerate(KERNEL_VARIANTS)])
def test_what_a_kernel_wrote_is_explained_in_other_words_too(item):
    test_what_a_kernel_wrote_is_explained_as_its_owners_met_it({**item, "judge": item.get("explain", item["judge"])})


def test_the_rust_front_end_is_reported_long_before_the_engine_ends():
    lines = engine_log.plain_lines((LOGS / "fatal/nightly-0.22-rust-frontend-died.log").read_text())
    known_at = next(number for number, _line in enumerate(lines) if diagnosis(lines[:number]).fatal)
    assert "Loading safetensors checkpoint shards" in "".join(lines[known_at:])


# -- the same failures in other words, and through other hands -------------------------------------------------------------


@pytest.mark.parametrize("item", VARIANTS, ids=[f"{item['answer']}-{number}" for number, item in enumerate(VARIANTS)])
def test_a_failure_is_answered_in_other_words_too(item):
    result = diagnosis(engine_log.plain_lines(item["lines"]))
    assert result.fatal and result.fatal.signature.id == item["answer"]


@pytest.mark.parametrize("item", HARMLESS_VARIANTS, ids=map(str, range(len(HARMLESS_VARIANTS))))
def test_what_is_harmless_in_other_words_stays_harmless(item):
    test_a_harmless_line_stays_harmless({"line": item["lines"]})


#: Prefixes that different programs put in front of a line.
HEADS = [
    "2026-11-22T10:00:00.123456789Z ",
    "Nov 22 10:00:00 spark-a vllm[812]: ",
    "2026-11-22T10:00:00+0000 spark-a docker[1213]: ",
    "Sun 2026-11-22 10:00:00 UTC spark-a vllm[812]: ",
    "[ 5012.123456] spark-a vllm[812]: ",
    "vllm-1  | ",
    "2026-11-22T10:00:00.123456789Z (APIServer pid=1) ",
    "(Worker_TP1 pid=97) ",
    "[rank1]: ",
    "\x1b[36m(RayWorkerProc pid=918, ip=192.168.100.11)\x1b[0m ",
    "(EngineCore_DP0 pid=2557) (RayWorkerWrapper pid=4194, ip=192.168.100.11) ERROR 11-22 10:00:00 [worker_base.py:301] ",
]


@pytest.mark.parametrize("head", HEADS)
def test_a_signature_matches_the_line_from_any_source(head):
    for row in signature.shipped():
        for example in row.examples:
            result = diagnosis(engine_log.plain_lines("".join(f"{head}{line}\n" for line in example.splitlines())))
            assert row.id in {match.signature.id for match in [*result.warnings, result.fatal] if match}, example


@pytest.mark.parametrize("head", HEADS[:6])
def test_a_request_that_failed_is_not_the_engines_failure_from_any_source(head):
    lines = [
        "(APIServer pid=1) ERROR:    Exception in ASGI application",
        "(APIServer pid=1) Traceback (most recent call last):",
        '(APIServer pid=1)   File "x.py", line 1, in y',
        "(APIServer pid=1) anyio.EndOfStream",
        "(APIServer pid=1) RuntimeError: No response returned.",
        '(APIServer pid=1) INFO:     192.168.1.2:50000 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error',
    ]
    result = diagnosis([head + line for line in lines])
    assert (result.fatal, result.first_error, result.warnings) == (None, "", [])


#: Messages of a rank after another one failed: each appears next to the cause, in any order and within one second.
CONSEQUENCES = [
    "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    "(EngineCore pid=9) ERROR 11-22 10:00:00 [core.py:1351] EngineCore encountered a fatal error.",
    "(EngineCore pid=9) ERROR 11-22 10:00:00 [multiproc_executor.py:284] Worker proc VllmWorker-1 died unexpectedly, shutting down executor.",
    "[rank0]:[E1122 10:00:00.131931664 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5730)",
    "spark-a:1:2 [0] NCCL WARN NET/IB: Got completion from peer 10.9.9.6<5> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0)",
    "spark-a:1:2 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.9.9.6<43007> failed : Connection timed out",
    "ray.exceptions.RayActorError: The actor died because of an error raised in its creation task",
    "(raylet) The node with node id: 0f and address: 10.9.9.6 and node name: 10.9.9.6 has been marked dead because the detector has missed too many",
    "(EngineCore pid=9) ERROR 11-22 10:00:00 [core.py:1351] TimeoutError: RPC call to sample_tokens timed out.",
    "(EngineCore pid=9) ERROR 11-22 10:00:00 [core.py:1351] RuntimeError: cancelled",
    "[2026-11-22 10:00:00,798 E 177 178] gcs_rpc_client.h:554: Failed to connect to GCS within 60 seconds. GCS may have been killed.",
]
CAUSES = {
    "memory-out": "(Worker_TP1 pid=97) ERROR 11-22 10:00:00 [multiproc_executor.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "cuda-not-permitted": "(Worker_TP1 pid=97) ERROR 11-22 10:00:00 [multiproc_executor.py:1] RuntimeError: Triton Error [CUDA]: operation not permitted",
    "module-missing": "(EngineCore pid=9) ERROR 11-22 10:00:00 [core.py:866] ModuleNotFoundError: No module named 'fastsafetensors'",
}


@pytest.mark.parametrize(("cause", "consequence"), list(itertools.product(CAUSES, range(len(CONSEQUENCES)))))
def test_the_cause_wins_over_what_follows_from_it_in_any_order(cause, consequence):
    pair = [CAUSES[cause], CONSEQUENCES[consequence]]
    for texts in (pair, pair[::-1]):
        assert named(diagnosis(texts)) == cause
        findings = failures.diagnose(failures.Line(text, node, 100.0) for text, node in zip(texts, ("spark-1", "spark-2")))
        assert findings[0]["id"] == cause
        # The clocks of two nodes always differ a little.
        early = failures.diagnose(failures.Line(text, node, 100.0 + (text == pair[0])) for text, node in zip(texts, ("spark-1", "spark-2")))
        assert early[0]["id"] == cause


def test_what_a_peer_says_long_before_a_cause_is_the_first_failure():
    texts = [(100.0, CONSEQUENCES[4]), (400.0, CAUSES["memory-out"])]
    findings = failures.diagnose(failures.Line(text, "spark-1", at) for at, text in texts)
    assert [finding["id"] for finding in findings] == ["nccl-transfer-failed", "memory-out"]


@pytest.mark.parametrize(
    ("line", "id"),
    [
        ("RuntimeError: CUDA driver error: the provided PTX was compiled with an unsupported toolchain.", "cuda-ptx-too-new"),
        ("tvm.error.InternalError: cuModuleLoadData failed with error: CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "cuda-ptx-too-new"),
        ("torch.AcceleratorError: CUDA error: operation not permitted", "cuda-not-permitted"),
        ("Search for `cudaErrorNotPermitted' in https://docs.nvidia.com/cuda/cuda-runtime-api for more information.", "cuda-not-permitted"),
        ("RuntimeError: CUDA error: operation not permitted when stream is capturing", "cuda-graph-broken"),
        ("torch.AcceleratorError: CUDA error: device-side assert triggered", "cuda-device-assert"),
        ("torch.AcceleratorError: CUDA error: unspecified launch failure", "cuda-kernel-failed"),
        ("RuntimeError: CUDA error: out of memory", "memory-out"),
        ("RuntimeError: Triton Error [CUDA]: out of memory", "memory-out"),
        ("error: unexpected argument '--guided-decoding-backend' found", "engine-unknown-argument"),
        ("triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error", "ptxas-too-old"),
        ("ERROR: The NVIDIA Driver is present, but CUDA drivers failed to initialize.  GPU functionality will not be available.", "gpu-not-seen"),
        ("CUDA driver error (/opt/deepgemm/csrc/jit/handle.hpp:88): 700 (CUDA_ERROR_ILLEGAL_ADDRESS)", "cuda-illegal-access"),
        ("RuntimeError: Plan index 13 is invalid", "kernel-cudnn-failed"),
        ("RuntimeError: [FP4 gemm Runner] Failed to run cutlass FP4 gemm on sm120. Error: Error Internal", "kernel-cutlass-failed"),
        ("ValueError: Failed to find a kernel that can implement the NVFP4 linear layer. Reasons:", "kernel-none-fits"),
        ("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.", "ray-memory-monitor"),
        ("(raylet) [2026-08-28 07:08:06,123 E 88 88] (raylet) node_manager.cc:3041: 1 Workers (tasks / actors) killed due to memory "
         "pressure (OOM)", "ray-memory-monitor"),
        ("Timed out after 1801 seconds waiting for clients. 1/3 clients joined.", "rank-not-joined"),
        ("spark-a:1:2 [0] misc/ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable", "fabric-no-connection"),
        ("Failed to modify QP to RTR: Connection timed out", "fabric-no-connection"),
        ("node-2:5776:5902 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer 10.2.0.5<33092> with error 12, "
         "opcode 0", "nccl-transfer-failed"),
        ("NCCL WARN NET/IB: Got completion from peer 10.9.9.6<51161> with status=4 opcode=32614 len=32614 vendor err 81 (Send)", "nccl-transfer-failed"),
        ("NCCL WARN NET/IB: Got completion from peer 10.9.9.6<51161> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0)", "nccl-transfer-failed"),
        ("malloc(): invalid size (unsorted)", "rank-heap-corrupted"),
        ("(Worker_TP1 pid=97) *** SIGABRT received at time=1784000000 on cpu 7 ***", "rank-aborted"),
        ("TimeoutError: RPC call to execute_model timed out.", "rank-call-timeout"),
        ("RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment", "gpu-not-seen"),
        ("Failed to initialize NVML: Unknown Error", "gpu-not-seen"),
        ("Failed to initialize NVML: Driver/library version mismatch", "driver-mismatch"),
        ("ValueError: current platform None does not support ray.", "gpu-not-seen"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_121a'", "ptxas-too-old"),
        ("OSError: You are trying to access a gated repo. huggingface_hub.errors.GatedRepoError: 403 Client Error.", "hub-refused"),
        ("ModuleNotFoundError: No module named 'ray'", "ray-missing"),
        ("ImportError: libcudart.so.13: cannot open shared object file: No such file or directory", "cuda-library-missing"),
        ("ImportError: libopenblas.so.0: cannot open shared object file: No such file or directory", "module-missing"),
        ("AssertionError: In Mamba cache align mode, block_size (4176) must be <= max_num_batched_tokens (2048).", "batched-tokens-too-few"),
    ],
)
def test_the_same_failure_in_other_words(line, id):
    assert named(diagnosis([line])) == id


@pytest.mark.parametrize(
    "line",
    [
        "(Worker pid=3) NCCL INFO Failed to initialize NET plugin IB",
        "(EngineCore pid=1) WARNING 11-21 02:00:00 [x.py:1] retried: CUDA error: an illegal memory access was encountered",
        "(EngineCore) INFO [x.py:1] CUDA out of memory is what this tests",
        "WARNING 11-21 02:00:00 [config.py:9] ModuleNotFoundError: No module named 'deep_gemm'",
        "2026-06-01 21:42:26,465 - WARNING - autotuner.py:496 - flashinfer.jit: [Autotuner]: Skipping tactic <R> 14, due to failure "
        "while profiling: Error Internal",
        "[Autotuner]: Skipping tactic <cutlass R> 14, due to failure while profiling: [TensorRT-LLM][ERROR] Failed to initialize cutlass TMA WS grouped gemm",
        "[2026-11-21 02:00:00,123 W 12 34] (raylet) memory_monitor.cc:12: CUDA error: no",
        "2026-11-21 02:00:00,123\tINFO worker.py:1832 -- CUDA error: no",
        "[rank0]:[W224 19:04:56.322966893 CUDAGuardImpl.h:122] Warning: CUDA warning: an illegal memory access was encountered (function destroyEvent)",
        "(APIServer pid=1) ERROR 11-21 02:00:00 [serving.py:255] ValueError: CUDA error: said the client",
        "(APIServer pid=1) ERROR 11-21 02:00:00 [hermes_tool_parser.py:137] json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "ERROR 11-21 02:00:00 [repo_utils.py:65] Error retrieving file list: 401 Client Error, retrying 1 of 2",
        "(Worker pid=3) NCCL WARN NET/IB: Got completion from peer 10.9.9.6<5> with status=IBV_WC_WR_FLUSH_ERR(5) opcode=IBV_WC_SEND(0)",
        "ERROR: pip's dependency resolver does not currently take into account all the packages that are installed.",
        "OSError: [Errno 1] Operation not permitted: '/proc/1/oom_score_adj'",
        "WARNING 06-08 03:48:20 [envs.py:2094] Unknown vLLM environment variable detected: VLLM_BASE_DIR",
    ],
)
def test_a_line_that_only_sounds_fatal(line):
    result = diagnosis([line])
    assert (result.fatal, result.warnings) == (None, [])


def test_a_clients_request_is_not_the_cause_of_a_later_death():
    result = diagnosis(
        [
            "(APIServer pid=1) ERROR 03-18 17:43:25 [serving_chat.py:255] ValueError: 'max_tokens' is too large: 16384.",
            '(APIServer pid=1) INFO:     127.0.0.1:50696 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request',
            "(EngineCore pid=9) ERROR 03-18 17:50:00 [core.py:1351] EngineCore encountered a fatal error.",
            "(EngineCore pid=9) ERROR 03-18 17:50:00 [core.py:1351] KeyError: 'layer.3'",
            "(APIServer pid=1) ERROR 03-18 17:50:00 [serving_chat.py:1333] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        ]
    )
    assert result.fatal.signature.id == "engine-dead"
    assert result.line.endswith("KeyError: 'layer.3'")


def test_the_traceback_of_a_request_ends_where_another_line_begins():
    request = [
        "(APIServer pid=1) ERROR:    Exception in ASGI application",
        "(APIServer pid=1) Traceback (most recent call last):",
        "(APIServer pid=1)   File \"x.py\", line 1, in y",
        "(APIServer pid=1) ValueError: No available memory for the cache blocks",
        "(EngineCore pid=9) cudnn_handle created for device_id = 0",
        "(APIServer pid=1) ModuleNotFoundError: No module named 'x'",
    ]
    assert (diagnosis(request).fatal, diagnosis(request).first_error) == (None, "")
    later = ["(APIServer pid=1) INFO 03-18 17:50:00 [x.py:1] on", "(APIServer pid=1) ModuleNotFoundError: No module named 'x'"]
    assert named(diagnosis(request + later)) == "module-missing"
    assert named(diagnosis([*request, "(EngineCore pid=9) torch.OutOfMemoryError: CUDA out of memory."])) == "memory-out"


def test_a_plugin_that_is_left_out_is_not_the_engines_failure():
    tag = "(APIServer pid=1) ERROR 05-04 21:49:48 [__init__.py:79]"
    plugin = [f"{tag} Failed to load plugin x", f"{tag} Traceback (most recent call last):", f"{tag} ModuleNotFoundError: No module named 'x'"]
    assert diagnosis(plugin).fatal is None
    assert named(diagnosis([*plugin, "(APIServer pid=1) ERROR 05-04 21:49:49 [core.py:9] ModuleNotFoundError: No module named 'x'"])) == "module-missing"


def test_what_python_ignores_is_ignored():
    ignored = ["(Worker pid=3) Exception ignored in: <function C.__del__ at 0x7f>", "(Worker pid=3) Traceback (most recent call last):"]
    assert diagnosis([*ignored, "(Worker pid=3) ModuleNotFoundError: No module named 'x'"]).first_error == ""


def test_a_package_that_python_leaves_out_hides_nothing_that_follows():
    left_out = ["Error processing line 1 of /usr/lib/x.pth:", "", "  Traceback (most recent call last):", "  ModuleNotFoundError: No module named 'x'"]
    assert diagnosis([*left_out, "Remainder of file ignored"]).fatal is None
    assert named(diagnosis([*left_out, "vllm: error: unrecognized arguments: --x"])) == "engine-unknown-argument"


def test_a_tactic_that_is_skipped_hides_nothing_that_follows():
    skipped = ["(EngineCore pid=9) Skipping tactic 8, due to failure while profiling:", "(EngineCore pid=9) [TensorRT-LLM][ERROR] Failed to initialize cutlass"]
    assert (diagnosis(skipped).fatal, diagnosis(skipped).first_error) == (None, "")
    assert named(diagnosis([*skipped, "(EngineCore pid=9) Fatal Python error: Aborted"])) == "rank-aborted"


SHM = "(EngineCore pid=222) INFO 08-15 11:20:19 [shm_broadcast.py:705] No available shared memory broadcast block found in 60 seconds."
DEAD = "(EngineCore pid=222) ERROR 08-15 11:21:19 [core.py:1351] EngineCore encountered a fatal error."


@pytest.mark.parametrize(
    ("lines", "id"),
    [
        ([SHM], None),
        ([DEAD, SHM], None),
        ([SHM, DEAD], "rank-hangs"),
        ([SHM, *["serving"] * failures.TAIL_LINES, DEAD], None),
        (["Fatal Python error: Aborted"], "rank-aborted"),
        (["Fatal Python error: Aborted", "torch.distributed.DistBackendError: NCCL error in: x"], "rank-aborted"),
        (["torch.distributed.DistBackendError: NCCL error in: x", "Fatal Python error: Aborted"], None),
        (["Fatal Python error: Aborted", "torch.OutOfMemoryError: CUDA out of memory."], "memory-out"),
        ([SHM, DEAD, "(EngineCore pid=222) ERROR 08-15 11:21:19 [core.py:1351] TimeoutError: RPC call to sample_tokens timed out."], "rank-call-timeout"),
    ],
)
def test_a_weak_cause_gives_way_to_one_that_is_named_and_to_an_earlier_echo(lines, id):
    assert named(diagnosis(lines)) == id


def test_an_unknown_exception_says_more_than_the_context():
    result = diagnosis([SHM, DEAD, "(EngineCore pid=222) ERROR 08-15 11:21:19 [core.py:1351] KeyError: 'layer.3'"])
    assert named(result) == "rank-hangs" and result.line.endswith("KeyError: 'layer.3'")
