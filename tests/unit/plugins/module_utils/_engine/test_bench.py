# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The client's own result, as vLLM 0.32.0 wrote it in the lab, and the client's arguments."""

from __future__ import annotations

import json
import os
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils import _http
from ansible_collections.gb10.cluster.plugins.module_utils._engine import bench, bench_client
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_contract

RECORDED = Path(__file__).resolve().parents[3] / "fixtures" / "bench"
CASE = {"workload": "random", "concurrency": 2, "prompts": 4, "input_len": 256, "output_len": 32, "texts": []}
ENGINE = {"url": "http://192.0.2.1:8000", "model": "gb10-lab/tiny", "tokenizer": "/t", "trust_remote_code": False, "seed": 77}


def result(name: str = "random") -> t.Any:
    return image_contract.marked_json((RECORDED / f"{name}.txt").read_text(encoding="utf-8"), bench_client.MARK)


@pytest.mark.parametrize("name", ["random", "custom"])
def test_the_recorded_results_are_read(name: str) -> None:
    figures = bench.figures(result(name), CASE)
    assert set(figures) == set(bench.FIGURES) and figures["output_tokens"] == 128
    if name == "random":
        assert (figures["output_tok_s"], figures["ttft_p50_ms"], figures["tpot_p99_ms"], figures["itl_p90_ms"]) == (109.524, 46.317, 17.99, 24.192)


@pytest.mark.parametrize(
    "spoiled", [{"output_throughput": None}, {"p50_ttft_ms": "fast"}, {"p99_itl_ms": float("nan")}, {"completed": None}, {"duration": True}]
)
def test_a_result_that_lacks_a_figure_is_unknown(spoiled: dict[str, t.Any]) -> None:
    with pytest.raises(UnknownState):
        bench.figures({**result(), **spoiled}, CASE)


def test_requests_that_were_not_answered_fail() -> None:
    with pytest.raises(ClusterError, match="1 of 4 requests were not answered"):
        bench.figures({**result(), "completed": 3}, CASE)


def test_the_client_gets_lengths_and_a_seed_of_this_run() -> None:
    words = bench.arguments(CASE, ENGINE)
    assert words[words.index("--seed") + 1] == "77" and words[words.index("--random-input-len") + 1] == "256" and "--ignore-eos" in words
    assert "--trust-remote-code" not in words and "--trust-remote-code" in bench.arguments(CASE, {**ENGINE, "trust_remote_code": True})
    custom = bench.arguments({**CASE, "texts": ["a"]}, ENGINE)
    assert custom[custom.index("--dataset-name") + 1] == "custom" and "--random-input-len" not in custom


def test_no_prompt_is_the_same_in_two_runs() -> None:
    case = {**CASE, "texts": ["one", "two"]}
    first, second = bench.texts(case, 1), bench.texts(case, 2)
    assert len(first) == 4 and not set(first) & set(second) and first[0].endswith("one") and first[3].endswith("two")
    assert bench.texts(CASE, 1) == []


def test_acceptance_and_requests_of_others() -> None:
    before, after = bench.Counters(10.0, 100.0, 50.0), bench.Counters(17.0, 300.0, 310.0)
    assert bench.acceptance(before, after) == 2.3 and bench.foreign(before, after, 6) == 1
    assert bench.acceptance(bench.Counters(1, None, None), after) is None and bench.acceptance(before, before) is None
    assert bench.foreign(bench.Counters(None, 1, 1), after, 6) is None


METRICS = "vllm:num_requests_running{engine=\"0\"} %s\nvllm:num_requests_waiting{engine=\"0\"} 0.0\nvllm:request_success_total{finished_reason=\"stop\"} 3.0\n"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (_http.Answer(200, (METRICS % "0.0").encode()), None),
        (_http.Answer(200, (METRICS % "1.0").encode()), ClusterError),
        (_http.Answer(200, b"something"), UnknownState),
        (_http.Answer(None, b"", "refused", True), UnknownState),
        (_http.Answer(401, b""), UnknownState),
    ],
)
def test_an_engine_that_is_not_known_to_be_idle_is_left_alone(monkeypatch: pytest.MonkeyPatch, answer: _http.Answer, error: type[ClusterError] | None) -> None:
    calls: list[dict[str, t.Any]] = []
    monkeypatch.setattr(bench._http, "ask", lambda url, timeout, **more: calls.append(more) or answer)
    if error is None:
        bench.require_idle("http://192.0.2.1:8000", "secret", 1)
        assert bench.counters("http://192.0.2.1:8000", "secret", 1) == bench.Counters(3.0, None, None) and not any(calls)
    else:
        with pytest.raises(error) as raised:
            bench.require_idle("http://192.0.2.1:8000", "secret", 1)
        assert raised.type is error and "secret" not in str(raised.value)


# --- the program in the container -------------------------------------------------------------------------------------------


CLI = """
import json, os, sys
def main():
    at = sys.argv.index
    place = os.path.join(sys.argv[at("--result-dir") + 1], sys.argv[at("--result-filename") + 1])
    prompts = open(sys.argv[at("--dataset-path") + 1]).read().splitlines() if "--dataset-path" in sys.argv else []
    json.dump({"argv": sys.argv, "key": os.environ.get("OPENAI_API_KEY"), "prompts": prompts}, open(place, "w"))
"""
SERVE = """
def add_cli_args(parser):
    parser.add_argument("--num-warmups")
"""
DATASETS = """
class CustomDataset:
    def load_data(self):
        raise ImportError("pandas")
"""


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Path]:
    """A vLLM whose client writes its input."""
    files = {"entrypoints/cli/main.py": CLI, "benchmarks/serve.py": SERVE, "benchmarks/datasets/datasets.py": DATASETS}
    for name, text in files.items():
        path = tmp_path / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["-c"])
    monkeypatch.delenv(bench_client.KEY_VARIABLE, raising=False)
    yield tmp_path
    os.environ.pop(bench_client.KEY_VARIABLE, None)
    for name in [name for name in sys.modules if name == "vllm" or name.startswith("vllm.")]:
        del sys.modules[name]


def test_the_key_goes_from_its_file_into_the_process_alone(client: Path) -> None:
    (client / "key").write_text("s3cret\n", encoding="utf-8")
    bench_client.take_key(str(client / "none"))
    assert bench_client.KEY_VARIABLE not in os.environ
    bench_client.take_key(str(client / "key"))
    outcome = bench_client.run({"arguments": ["--seed", "1"], "optional": {"--num-warmups": 2, "--new": 1}, "texts": ["a", "b"]})
    assert outcome["key"] == "s3cret" and "s3cret" not in " ".join(outcome["argv"])
    assert outcome["argv"][:7] == ["vllm", "bench", "serve", "--seed", "1", "--num-warmups", "2"] and "--new" not in outcome["argv"]
    assert [json.loads(line) for line in outcome["prompts"]] == [{"prompt": "a"}, {"prompt": "b"}]


def test_nothing_runs_in_a_container_that_got_another_directory_than_the_hub_cache(client: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (client / "hub").mkdir()
    (client / "other").mkdir()
    monkeypatch.setenv("HF_HOME", str(client))
    monkeypatch.setattr(bench_client.signal, "alarm", lambda _seconds: None)
    ran: list[t.Any] = []
    monkeypatch.setattr(bench_client, "run", ran.append)
    order = {"seconds": 1, "hub": [(client / "hub").stat().st_dev, (client / "hub").stat().st_ino]}
    monkeypatch.setattr(sys, "argv", ["-c", json.dumps(order)])
    bench_client.main()
    assert ran == [order]
    (client / "hub").rename(client / "gone")
    (client / "hub").symlink_to("other")
    with pytest.raises(SystemExit, match="the hub cache was replaced"):
        bench_client.main()
    assert ran == [order]


def test_prompts_are_read_where_the_image_lacks_pandas(client: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_client.importlib.util, "find_spec", lambda name: None)
    bench_client.read_prompts_without_pandas()
    from vllm.benchmarks.datasets.datasets import CustomDataset  # type: ignore[import-not-found]

    dataset = CustomDataset()
    dataset.dataset_path = bench_client.prompts_file(["a"], str(client))
    dataset.load_data()
    assert dataset.data == [{"prompt": "a"}]
