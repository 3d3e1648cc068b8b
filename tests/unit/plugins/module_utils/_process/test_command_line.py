# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a command line runs, and with which options."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._process import command_line


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], []),
        ([""], []),
        (["vllm", "serve"], ["vllm", "serve"]),
        (["python3", "-u", "-W", "ignore", "-m", "a.b", "--x"], ["a.b", "--x"]),
        (["python3", "-c", "import x"], ["-c", "import x"]),
        (["python3", "-m"], []),
        (["python3 /usr/bin/vllm serve m"], ["/usr/bin/vllm", "serve", "m"]),
        (["/usr/bin/python3", "/usr/bin/uvicorn", "kokoro:app"], ["kokoro:app"]),
        (["grep", "python3"], ["grep", "python3"]),
    ],
)
def test_what_runs(argv, words):
    assert command_line.run_words(argv) == words


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        ("vllm serve m", 1),
        ("vllm serve m -tp 2", 2),
        ("python3 -m vllm.entrypoints.openai.api_server --tensor_parallel_size=2 --pipeline-parallel-size 2", 4),
        ("vllm serve m --tensor-parallel-size many", 1),
    ],
)
def test_ranks(words, ranks):
    assert command_line.ranks(words.split()) == ranks


def test_options():
    words = [
        "vllm",
        "serve",
        "org/m",
        "--tensor_parallel_size=2",
        "-pp",
        "1",
        "--served-model-name",
        "a",
        "b",
        "--enforce-eager",
        "--hf-overrides",
        '{"a": 1}',
        "--x=",
    ]
    assert command_line.options(words) == {
        "": "vllm serve org/m", "tensor-parallel-size": "2", "pipeline-parallel-size": "1", "served-model-name": "a b", "enforce-eager": "",
        "hf-overrides": '{"a": 1}', "x": "",
    }  # fmt: skip


@pytest.mark.parametrize(("text", "number"), [("2", 2), ("", None), (None, None), ("-1", None), ("1e3", None)])
def test_whole_numbers(text, number):
    assert command_line.whole_number(text) == number
