# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Commands of recipes, split without a shell."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._import import shell, template
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.ledger import Ledger


def taken_apart(text, variables=None):
    command = shell.take_apart(text, variables or {}, Ledger())
    return [template.as_written(word) for word in command.words], command.env


@pytest.mark.parametrize(
    ("text", "words", "env"),
    [
        ("vllm serve m", ["m"], {}),
        ("vllm serve m \\\n  --a 1 \\ \n --b 2\n", ["m", "--a", "1", "--b", "2"], {}),
        ("# first\nvllm serve m --a '#1' # last\n# after", ["m", "--a", "#1"], {}),
        ("export A=1 B='x y'\nvllm serve m", ["m"], {"A": "1", "B": "x y"}),
        ("A=1 B=2 exec vllm serve m", ["m"], {"A": "1", "B": "2"}),
        ("env A=1 vllm serve m", ["m"], {"A": "1"}),
        ("M=org/m; export A=$M\nvllm serve $M", ["org/m"], {"A": "org/m"}),
        ("ARGS='--a 1 --b'; vllm serve m $ARGS", ["m", "--a", "1", "--b"], {}),
        ("ARGS='--a 1'; vllm serve m \"$ARGS\"", ["m", "--a 1"], {}),
        ("vllm serve m --a ${X:-8} --b ${Y-z} --c ${HOST}", ["m", "--a", "8", "--b", "z", "--c", "here"], {}),
        ("vllm serve m --rank $NODE_RANK", ["m", "--rank", "$NODE_RANK"], {}),
        ("vllm serve m '$HOST' \"\\$HOST\" \\$HOST '`id`'", ["m", "$HOST", "$HOST", "$HOST", "`id`"], {}),
        ("vllm serve m --c '{\"a\": \"it;s | & > $5\"}'", ["m", "--c", '{"a": "it;s | & > $5"}'], {}),
        ("set -ex && cd /x || true", None, None),
        ("set -ex\nulimit=1\necho ok; sleep 3\nvllm serve m \"$@\"", ["m"], {}),
        ("bash -lc 'export A=1 && vllm serve m --b \"x y\"'", ["m", "--b", "x y"], {"A": "1"}),
        ("/usr/local/bin/vllm serve m", ["m"], {}),
        ("python3 -m vllm.entrypoints.openai.api_server --model m", ["--model", "m"], {}),
        ("export A=1; unset A; vllm serve m", ["m"], {}),
    ],
)
def test_words_and_variables(text, words, env):
    if words is None:
        with pytest.raises(shell.Refused):
            taken_apart(text)
    else:
        assert taken_apart(text, {"HOST": "here"}) == (words, env)


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("vllm serve m | tee log", "|", "a pipe"),
        ("vllm serve m > log 2>&1", ">", "a redirection"),
        ("vllm serve m &", "&", "a command in the background"),
        ("test -f x || vllm serve m", "||", "a command that runs when another one fails"),
        ("(vllm serve m)", "(", "a subshell"),
        ("vllm serve $(cat model)", "$(cat model)", "what another command prints"),
        ("vllm serve `cat model`", "`cat model`", "what another command prints"),
        ("vllm serve ${M#x}", "${M#x}", "only a shell can work out"),
        ("vllm serve ${M:?no model}", "${M:?no", "only a shell can work out"),
        ("if true; then vllm serve m; fi", "if true", "needs a shell"),
        ("for i in 1 2; do vllm serve m; done", "for i in 1 2", "needs a shell"),
        ("vllm serve m 'open", "'", "a quote that is not closed"),
        ("bash start.sh", "bash start.sh", "starts a script"),
        ("bash -c \"bash -c 'bash -c \\\"bash -c x\\\"'\"", "bash -c x", "starts a script"),
        ("source env.sh && vllm serve m", "source env.sh", "is a command, and no command of a recipe is executed"),
        ("curl -O https://x/y; vllm serve m", "curl -O https://x/y", "is a command, and no command of a recipe is executed"),
        ("vllm serve a; vllm serve b", "vllm serve b", "starts a second engine"),
        ("vllm serve m \\\n\n  --a 1", "--a 1", "comes after the end of the command"),
        ("vllm serve m \\\n  # more\n  --a 1", "--a 1", "comes after the end of the command"),
        ("vllm bench m", "vllm bench m", "is a command, and no command of a recipe is executed"),
        ("echo hello", "the command", "holds no `vllm serve`"),
        ("", "the command", "holds no `vllm serve`"),
        ("vllm serve m --omni", "vllm serve m --omni", "starts vLLM-Omni, and not vLLM"),
        ("sglang serve m", "sglang serve m", "starts SGLang, and not vLLM"),
        ("python -m sglang.launch_server", "python -m sglang.launch_server", "starts SGLang, and not vLLM"),
        ("/opt/llama.cpp/build/bin/llama-server -m x", "/opt/llama.cpp/build/bin/llama-server -m x", "starts llama.cpp, and not vLLM"),
        ("trtllm-serve m", "trtllm-serve m", "starts TensorRT-LLM, and not vLLM"),
        ("tensorfold serve m", "tensorfold serve m", "starts TensorFold, and not vLLM"),
        ("TensorFold-server m", "TensorFold-server m", "starts TensorFold, and not vLLM"),
        ("ollama serve", "ollama serve", "starts Ollama, and not vLLM"),
    ],
)
def test_what_only_a_shell_can_do_is_refused_by_its_name(text, where, what):
    with pytest.raises(shell.Refused) as refused:
        taken_apart(text, {"M": "m"})
    assert refused.value.where == where and what in refused.value.what and refused.value.remedy


def test_nothing_is_executed(tmp_path):
    for text in (f"touch {tmp_path}/x; vllm serve m", f"vllm serve $(touch {tmp_path}/x)", f"vllm serve `touch {tmp_path}/x`", f"bash -c 'touch {tmp_path}/x'"):
        with pytest.raises(shell.Refused):
            taken_apart(text)
    assert list(tmp_path.iterdir()) == []
