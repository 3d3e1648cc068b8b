# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What uses a model: command lines, open files, engines without an answer, and the collection's runs."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest
import stack_tree

from ansible_collections.gb10.cluster.plugins.module_utils._engine import model_use
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState

COMMIT, OTHER = "0123456789abcdef" * 2 + "01234567", "f" * 40
HUB = "/root/.cache/huggingface/hub/models--org--name"


@pytest.fixture
def tree(tmp_path: Path) -> stack_tree.Tree:
    return stack_tree.Tree(tmp_path / "proc")


def read(tree: stack_tree.Tree, state: str = "/nonexistent") -> model_use.Uses:
    return model_use.read(state, str(tree.root))


@pytest.mark.parametrize(("words", "revision"), [
    (["vllm", "serve", "org/name"], ""),
    (["vllm", "serve", "org/name", "--revision", COMMIT], COMMIT),
    (["vllm", "serve", "org/name", "--revision", COMMIT, "--served-model-name", "org/name"], COMMIT),
    (["python3", "-m", "vllm.entrypoints.openai.api_server", "--model=org/name", f"--revision={COMMIT}"], COMMIT),
    (["vllm", "serve", "org/name", "--revision", "main"], ""),
    (["vllm", "serve", "org/name", "--revision", COMMIT, "--tokenizer", "org/name"], ""),
    (["vllm", "serve", "org/other", "--revision", COMMIT, "--speculative-config", '{"model": "org/name"}'], ""),
    (["vllm", "serve", f"{HUB}/snapshots/{COMMIT}"], COMMIT),
    (["vllm", "serve", f"{HUB}/snapshots/{COMMIT}", "--tokenizer", f"{HUB}/snapshots/{OTHER}"], ""),
    (["vllm", "serve", "org/other", "--reasoning-parser-plugin", f"{HUB}/snapshots/{COMMIT}/parser.py"], COMMIT),
    (["huggingface-cli", "download", "org/name"], ""),
    (["llama-server", "-hf", "org/name:Q4_K_M"], ""),
    (["vllm", "serve", "org/name-2"], None),
    (["vllm", "serve", "org/name.5"], None),
    (["vllm", "serve", "my-org/name"], None),
    (["vllm", "serve", "/models/org/name"], None),
    (["vllm", "serve", "/hub/models--org--name-2/snapshots/x"], None),
    ([], None),
])  # fmt: skip
def test_the_revision_that_a_command_line_names(words: list[str], revision: str | None) -> None:
    assert model_use.named_revision(words, "org/name") == revision


@pytest.mark.parametrize(("words", "named"), [
    (["vllm", "serve", "org/name"], True), (["vllm", "serve", "--config", "x.yml"], False), (["vllm.entrypoints.openai.api_server", "--model", "x"], True),
    (["sglang.launch_server", "--model-path", "x"], True), (["llama-server", "-m", "x.gguf"], True), (["llama-server", "--port", "1"], False),
    (["tritonserver", "--model-repository=/models"], True), (["VLLM::APIServer_0"], False),
])  # fmt: skip
def test_whether_a_server_says_what_it_serves(words: list[str], named: bool) -> None:
    assert model_use.names_a_model(words) is named


def test_a_process_that_names_it_uses_it_and_the_request_itself_does_not(tree: stack_tree.Tree) -> None:
    tree.process(10, 1, ["vllm", "serve", "org/name", "--revision", COMMIT])
    tree.process(11, 1, ["ansible-playbook", "models.yml", "-e", f"gb10_models_remove=org/name@{COMMIT}"])
    tree.process(12, 1, ["hf", "download", "org/drafter"])
    uses = read(tree)
    assert uses.of_repository("org/name", COMMIT, ()) == [f"vllm serve org/name --revision {COMMIT} (pid 10)"]
    assert uses.of_repository("org/name", OTHER, ()) == []
    assert uses.of_repository("org/drafter", OTHER, ()) == ["hf download org/drafter (pid 12)"]


def test_a_file_that_is_open_or_mapped_is_used(tree: stack_tree.Tree) -> None:
    tree.process(10, 1, ["python3", "load.py"], links=[f"{HUB}/blobs/abc", "/dev/null"])
    tree.process(11, 1, ["python3", "map.py"])
    (tree.root / "11/maps").write_text(f"7f00-7f01 r--s 00000000 08:02 1234   {HUB}/blobs/def (deleted)\n7f02-7f03 r-xp 0 08:02 9  /usr/lib/libc.so.6\n")
    tree.process(12, 1, ["cat"], links=[f"{HUB}/snapshots/{COMMIT}/config.json"])
    uses = read(tree)
    assert uses.of_repository("org/name", OTHER, {"abc"}) == ["python3 load.py (pid 10)"]
    assert uses.of_repository("org/name", OTHER, {"def"}) == ["python3 map.py (pid 11)"]
    assert uses.of_repository("org/name", COMMIT, set()) == ["cat (pid 12)"]
    assert uses.of_repository("org/name", OTHER, {"xyz"}) == uses.of_repository("org/other", COMMIT, {"abc"}) == []


def test_who_may_not_be_asked_makes_it_unknown(tree: stack_tree.Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.process(10, 1, ["python3"])

    def denied(pid: int, proc: str) -> set[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(model_use, "opened_files", denied)
    uses = read(tree)
    with pytest.raises(UnknownState, match=r"python3 \(pid 10\) may not be asked which files") as caught:
        uses.require_all_asked()
    assert "become" in caught.value.remedy


def test_a_directory_is_recognized_wherever_a_container_has_it(tree: stack_tree.Tree, tmp_path: Path) -> None:
    models = tmp_path / "models/Qwen"
    models.mkdir(parents=True)
    for pid, word in ((10, "/mnt/Qwen"), (11, str(models / "x.gguf")), (12, "--model=/mnt/other"), (13, "/evil")):
        tree.process(pid, 1, ["vllm", "serve", word])
    (tree.root / "10/root/mnt").mkdir()
    (tree.root / "13/root/evil").symlink_to(models)
    root = tree.root / "10/root/mnt/Qwen"
    uses = read(tree)
    real = os.stat

    def same(path: t.Any, **more: t.Any) -> os.stat_result:
        return real(root if path == str(models) else path, **more)

    root.mkdir()
    with pytest.MonkeyPatch.context() as patched:
        # The effect of a bind mount: the same directory at two paths.
        patched.setattr(model_use.os, "stat", same)
        assert uses.of_directory(str(models), str(tree.root)) == ["vllm serve /mnt/Qwen (pid 10)", f"vllm serve {models}/x.gguf (pid 11)"]


def test_ranks_of_ray_use_what_their_server_names_on_whichever_node(tree: stack_tree.Tree) -> None:
    raylet = ["/usr/lib/raylet", "--gcs-address=10.0.0.11:6379"]
    tree.process(20, 1, raylet, cgroup="0::/docker/" + "a" * 64)
    tree.process(21, 20, ["ray::RayWorkerWrapper.execute_method"], cgroup="0::/docker/" + "a" * 64)
    worker = read(tree)
    assert worker.named_stacks() == []
    assert [(holder.text, holder.stack) for holder in worker.unnamed()] == [("ray::RayWorkerWrapper.execute_method (pid 21)", "ray 10.0.0.11:6379")]
    assert worker.unnamed(["ray 10.0.0.11:6379"]) == [] and len(worker.unnamed(["ray 10.0.0.99:6379"])) == 1
    tree.process(30, 1, ["vllm", "serve", "org/name", "--distributed-executor-backend", "ray"], cgroup="0::/docker/" + "a" * 64)
    head = read(tree)
    assert head.named_stacks() == ["ray 10.0.0.11:6379"] and head.unnamed() == []


def test_the_recorded_nodes_of_a_lab_are_understood(tmp_path: Path) -> None:
    """Seen on two nodes with vLLM 0.32 over Ray: the head's command line names the model, the worker's does not."""
    head, worker = (read(stack_tree.Tree(tmp_path / name).replay(stack_tree.recorded(f"ray_tp2_{name}"))) for name in ("spark-1", "spark-2"))
    assert len(head.of_repository("gb10-lab/tiny-llama", COMMIT, ())) == 1 and head.of_repository("gb10-lab/tiny-llama", OTHER, ()) == []
    assert head.unnamed() == [] and worker.of_repository("gb10-lab/tiny-llama", COMMIT, ()) == []
    assert len(worker.unnamed()) == 1 and worker.unnamed(head.shared_stacks()) == []


@pytest.mark.parametrize(("stack", "shared"), [
    ("ray 10.0.0.11:6379", True), ("native 192.168.100.11:29501", True), ("local 10", False), ("native 127.0.0.1:29501", False), ("ray localhost:6379", False),
])  # fmt: skip
def test_a_stack_that_other_nodes_may_have_under_the_same_name_explains_nothing_there(stack: str, shared: bool) -> None:
    uses = model_use.Uses([], {}, [model_use.Holder("vllm serve org/name (pid 10)", stack, True)], [], [])
    assert uses.named_stacks() == [stack] and bool(uses.shared_stacks()) is shared


def test_an_engine_that_names_no_model_may_use_any(tree: stack_tree.Tree) -> None:
    tree.process(10, 1, ["vllm", "serve", "--config", "/etc/engine.yml"])
    tree.process(11, 10, ["VLLM::EngineCore"])
    assert [holder.text for holder in read(tree).unnamed()] == ["vllm serve --config /etc/engine.yml (pid 10)", "VLLM::EngineCore (pid 11)"]


@pytest.mark.parametrize("live", [True, False])
def test_the_last_run_is_known_by_its_order(tree: stack_tree.Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: bool) -> None:
    state = tmp_path / "state"
    for cluster in ("a", "b"):
        (state / cluster / "run").mkdir(parents=True)
        (state / cluster / "run/run.json").write_text("{}")
    runs = {
        "a": {"run_id": "20261101T000000Z-aaaa", "argv": ["vllm", "serve", "org/name", "--revision", COMMIT], "started_at": 1000.0, "live": live},
        "b": {"run_id": "20261102T000000Z-bbbb", "argv": ["vllm", "serve", "org/name", "--revision", COMMIT], "started_at": 2000.0, "live": False},
    }
    monkeypatch.setattr(model_use.engine_state, "engine_state", lambda paths, proc: runs[Path(paths.run).parent.name])
    uses = read(tree, str(state))
    last = uses.last_run("org/name", COMMIT)
    assert last is not None and last.cluster == ("a" if live else "b")
    expected = {"cluster": "a", "run_id": "20261101T000000Z-aaaa", "started_at": "1970-01-01T00:16:40Z", "live": True} if live else {}
    assert expected.items() <= last.view().items()
    assert uses.last_run("org/name", OTHER) is None
    assert uses.of_repository("org/name", COMMIT, ()) == (["the engine of cluster a (run 20261101T000000Z-aaaa)"] if live else [])
