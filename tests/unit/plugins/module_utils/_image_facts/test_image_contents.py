# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The contents of an image, with an engine that gives set answers."""

from __future__ import annotations

import json
import os
import types
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import ExecResult, NotFound
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import gpu_access
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_contract
from ansible_collections.gb10.cluster.plugins.module_utils._image.engine_probe import MARK as ENGINE_MARK
from ansible_collections.gb10.cluster.plugins.module_utils._image.image_probe import MARK
from ansible_collections.gb10.cluster.plugins.module_utils._image_facts import image_contents

CONTRACT = {
    "python": "3.12.3",
    "architecture": "aarch64",
    "versions": {"vllm": "0.32.0", "ray": None, "torch": "2.13.0"},
    "programs": {"ray": None, "vllm": "/usr/local/bin/vllm"},
    "packages": ["vllm==0.32.0"],
    "packages_digest": "sha256:1b",
}
IMAGE = {"Id": "sha256:abc", "RepoTags": ["e:1"], "RepoDigests": None, "Config": {"Labels": None}, "Created": "now", "Size": 5}
BASE = {"base:1": {"Id": "sha256:base"}}


CONTRACTS = Path(__file__).resolve().parents[3] / "fixtures" / "vllm" / "contracts"
TAKES = json.loads((CONTRACTS / "0.32.0.json").read_text(encoding="utf-8"))
#: What the two probes' answers become.
KNOWN = {
    **CONTRACT,
    "versions": {**CONTRACT["versions"], "cuda": None, "nccl": None},
    "image_env": [],
    "engine": {name: value for name, value in TAKES.items() if name != "versions"},
    "engine_error": "",
    "entrypoint": {"argv": [], "kind": "none"},
}
ANSWER = f"{MARK}{json.dumps(CONTRACT)}\n"


class Engine:
    """In place of EngineApi. ``stdout`` is what the probe of packages prints, ``takes`` that of the engine."""

    def __init__(self, image=None, stdout="", error=None, takes=f"{ENGINE_MARK}{json.dumps(TAKES)}\n"):
        self.answer, self.stdout, self.error, self.takes, self.runs = image, stdout, error, takes, []

    def image(self, reference):
        return self.answer if reference == "e:1" else BASE.get(reference)

    def get(self, path):
        return {"/info": {"DriverStatus": []}}[path]

    def run_throwaway(self, image, argv, *, labels, timeout, env):
        self.runs.append({"image": image, "argv": argv, "labels": labels, "timeout": timeout, "env": env})
        if self.error:
            raise self.error
        if ENGINE_MARK in argv[-1]:
            if isinstance(self.takes, ClusterError):
                raise self.takes
            return ExecResult(0, self.takes, "what the engine logs")
        return ExecResult(0, self.stdout, "")


@pytest.fixture
def call(tmp_path, monkeypatch):
    def call(engine, **params):
        monkeypatch.setattr(image_contents, "EngineApi", lambda socket, timeout: engine)
        warnings = []
        defaults = {"image": "e:1", "base_image": None, "gpus": "none", "state_dir": str(tmp_path), "tool_timeout": 7, "docker_socket": "", "docker_timeout": 1}
        check_mode = params.pop("check_mode", False)
        module = types.SimpleNamespace(params={**defaults, **params}, check_mode=check_mode, warn=warnings.append)
        return image_contents.work(module) | {"warnings": warnings}

    return call


def answering(takes=None, **changes):
    stdout = f"banner of the image\n{MARK}{json.dumps({**CONTRACT, **changes})}\n"
    return Engine(IMAGE, stdout) if takes is None else Engine(IMAGE, stdout, takes=takes)


def test_an_absent_image_is_a_result(call):
    result = call(Engine())
    assert not result["exists"] and result["contract"] is None and result["labels"] == {} and result["verdict"] == "block"


def test_the_image_is_asked_once_and_by_its_id(call, tmp_path):
    engine = answering()
    first, second = call(engine), call(engine)
    assert first["contract"] == second["contract"] == KNOWN
    assert (first["from_cache"], second["from_cache"]) == (False, True)
    assert [ENGINE_MARK in run["argv"][2] for run in engine.runs] == [False, True]
    for run in engine.runs:
        assert run["image"] == "sha256:abc" and run["argv"][:2] == ["python3", "-c"] and run["timeout"] == 7
        assert run["labels"] == {"io.gb10.owner": "gb10.cluster", "io.gb10.role": "probe"} and run["env"] == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert [path.name for path in (tmp_path / "image-contracts").iterdir()] == ["abc.json"]


def test_an_image_without_vllm_has_no_engine_to_ask(call):
    engine = answering(versions={"vllm": None})
    assert call(engine)["contract"]["engine"] is None and len(engine.runs) == 1


@pytest.mark.parametrize(
    ("takes", "why"),
    [
        ("Traceback: no module named vllm", "no answer in its output: Traceback: no module named vllm"),
        (ENGINE_MARK + "{}", "lacks required keys"),
        (ENGINE_MARK + json.dumps({**TAKES, "env": [1]}), "lacks required keys"),
        (ENGINE_MARK + json.dumps({**TAKES, "flags": {"--x": {"choices": "abc"}}}), "lacks required keys"),
        (ENGINE_MARK + "[" * 100000, "nested too deep"),
        (ENGINE_MARK + " " * image_contract.LONGEST, "an answer of"),
        (UnknownState("no answer within 7 s"), "no answer within 7 s"),
    ],
)
def test_an_engine_that_does_not_answer_is_asked_again_next_time(call, takes, why):
    result = call(answering(takes))
    assert result["contract"]["engine"] is None and why in result["contract"]["engine_error"] and result["contract"]["versions"]["cuda"] is None
    assert "asked again" in result["warnings"][0] and result["contract"]["python"] == "3.12.3"
    assert not call(answering())["from_cache"]


def test_the_contract_has_the_images_variables(call):
    image = {**IMAGE, "Config": {"Env": ["VLLM_VERSION=0.20.1+nv", "PATH=/bin"]}}
    assert call(Engine(image, ANSWER))["contract"]["image_env"] == ["PATH", "VLLM_VERSION"]


def spoil(path, how):
    """Change a note as another program would."""
    note = json.loads(path.read_text())
    if how == "link":
        path.rename(path.with_name("elsewhere"))
        path.symlink_to("elsewhere")
    elif how == "writable":
        path.chmod(0o666)
    elif how == "directory":
        path.unlink()
        path.mkdir()
    elif how == "pipe":
        path.unlink()
        os.mkfifo(path)
    elif how == "endless":
        path.write_text(json.dumps({**note, "more": "x" * image_contract.LONGEST}))
    elif how == "deep":
        path.write_text("[" * 100000)
    else:
        note["contract"].update(how)
        path.write_text(json.dumps(note))


@pytest.mark.parametrize(
    "how", ["link", "writable", "directory", "pipe", "endless", "deep", {"engine": {}}, {"engine": 7}, {"versions": []}, {"entrypoint": {"argv": "x"}}], ids=str
)
def test_a_cache_that_another_account_could_write_is_not_used(call, tmp_path, how):
    call(answering())
    path = tmp_path / "image-contracts" / "abc.json"
    assert image_contract.read_cache(str(path)) == KNOWN
    spoil(path, how)
    assert image_contract.read_cache(str(path)) is None


@pytest.mark.parametrize("content", ["garble", "[]", "{}", '{"probe": "old", "contract": {}}', '{"contract": null, "probe": "x"}'])
def test_a_cache_of_another_probe_is_not_used(call, tmp_path, content):
    (tmp_path / "image-contracts").mkdir()
    (tmp_path / "image-contracts/abc.json").write_text(content)
    assert not call(answering())["from_cache"]
    assert call(answering())["from_cache"]


def test_a_cache_that_cannot_be_written_only_warns(call, tmp_path):
    (tmp_path / "image-contracts").write_text("a file")
    result = call(answering())
    assert result["contract"]["python"] == "3.12.3" and len(result["warnings"]) == 1


def test_labels_tell_the_base(call):
    image = {**IMAGE, "Config": {"Labels": {"io.gb10.base": "sha256:base", "io.gb10.recipe": "r1", "other": "x"}}}
    result = call(Engine(image, MARK + json.dumps(CONTRACT)))
    assert result["base"] == {"image_id": "sha256:base", "recipe": "r1", "lock": [], "ray_wanted": None} and result["labels"]["other"] == "x"
    assert call(answering())["base"] is None


@pytest.mark.parametrize(("label", "lock"), [('["ray==2.60.0 --hash=sha256:e2"]', ["ray==2.60.0 --hash=sha256:e2"]), ("{", []), ("7", [])])
def test_labels_have_the_packages_that_pip_added(call, label, lock):
    image = {**IMAGE, "Config": {"Labels": {"io.gb10.base": "sha256:base", "io.gb10.lock": label}}}
    assert call(Engine(image, MARK + json.dumps(CONTRACT)))["base"]["lock"] == lock


@pytest.mark.parametrize(
    ("digests", "expected"),
    [(None, None), ([], None), (["other@sha256:1"], None), (["other@sha256:1", "base@sha256:2"], "base@sha256:2")],
)
def test_the_base_is_named_by_its_digest_where_a_registry_knows_it(call, monkeypatch, digests, expected):
    monkeypatch.setitem(BASE["base:1"], "RepoDigests", digests)
    assert call(answering(), base_image="base:1")["base_digest"] == expected
    assert call(answering())["base_digest"] is None


@pytest.mark.parametrize(("base", "expected"), [(None, None), ("base:1", "sha256:base"), ("base:2", None)])
@pytest.mark.parametrize("image", [IMAGE, None])
def test_the_base_is_looked_up_and_not_asked(call, image, base, expected):
    engine = Engine(image, MARK + json.dumps(CONTRACT))
    answer = call(engine, base_image=base)
    # In the classic image store the id is the digest of the configuration.
    assert answer["base_image_id"] == answer["base_config"] == expected and answer["on_base"] is False
    assert {run["image"] for run in engine.runs} <= {"sha256:abc"}


def test_labels_prove_that_an_image_was_built_on_the_base(call):
    image = {**IMAGE, "Config": {"Labels": {"io.gb10.base": "sha256:base"}}}
    assert call(Engine(image, MARK + json.dumps(CONTRACT)), base_image="base:1")["on_base"] is True


@pytest.mark.parametrize("stdout", ["", "banner only\n", MARK + "{", MARK + "[]", MARK + '{"python": "3"}'])
def test_an_image_that_does_not_answer_is_unknown_with_its_words(call, stdout):
    with pytest.raises(UnknownState, match="does not report its packages") as caught:
        call(Engine(IMAGE, stdout))
    assert caught.value.details["raw"] == stdout


def test_an_image_without_python_is_unknown(call):
    with pytest.raises(UnknownState, match="does not run python3"):
        call(Engine(IMAGE, error=NotFound("exec: python3: executable file not found")))


# -- what the image's own entrypoint does ------------------------------------------------------------------------------

WRAPPER = ["/opt/nvidia/nvidia_entrypoint.sh"]


class Wrapped(Engine):
    """An engine whose image has an entrypoint. ``wraps``: whether the entrypoint runs its arguments."""

    def __init__(self, entrypoint, wraps=True, failure=None):
        super().__init__({**IMAGE, "Config": {"Labels": None, "Entrypoint": entrypoint}})
        self.entrypoint, self.wraps, self.failure = entrypoint, wraps, failure

    def run_throwaway(self, image, argv, *, labels, timeout, env):
        super().run_throwaway(image, argv, labels=labels, timeout=timeout, env=env)
        if argv[0] == "python3" or self.wraps:
            return ExecResult(0, f"== NVIDIA vLLM ==\n{self.takes if ENGINE_MARK in argv[-1] else ANSWER}", "")
        if self.failure:
            raise self.failure
        return ExecResult(2, "usage: server [-h] model\n", "")


@pytest.mark.parametrize(
    ("engine", "kind", "tried"),
    [
        # NGC images (recorded: nvidia_entrypoint.sh of 26.08), and any other name that does the same.
        (Wrapped(WRAPPER), "wrapper", [WRAPPER[0], WRAPPER[0]]),
        (Wrapped(["/usr/bin/tini", "--"]), "wrapper", ["/usr/bin/tini", "/usr/bin/tini"]),
        # Upstream images start the engine; a shell takes a command line of its own. Nothing is tried with them.
        (Wrapped(["vllm", "serve"], wraps=False), "program", ["python3", "python3"]),
        (Wrapped(["python3", "-m", "vllm.entrypoints.openai.api_server"], wraps=False), "program", ["python3", "python3"]),
        (Wrapped(["/bin/bash", "-c"], wraps=False), "program", ["python3", "python3"]),
        # It printed something else, could not be started, or went on for ever.
        (Wrapped(["/srv/server"], wraps=False), "unknown", ["/srv/server", "python3", "python3"]),
        (Wrapped(["/srv/server"], False, NotFound("exec: no such file")), "unknown", ["/srv/server", "python3", "python3"]),
        (Wrapped(["/srv/server"], False, UnknownState("no answer in time")), "unknown", ["/srv/server", "python3", "python3"]),
    ],
)
def test_an_entrypoint_is_tested(call, engine, kind, tried):
    result = call(engine)
    assert result["contract"]["entrypoint"] == {"argv": engine.entrypoint, "kind": kind}
    assert [run["argv"][0] for run in engine.runs] == tried
    assert result["contract"]["python"] == "3.12.3"


def test_a_wrapper_precedes_the_program_of_a_node_container(tmp_path):
    engine = Wrapped(WRAPPER)
    assert image_contract.wrapper_of(engine, engine.answer, "e:1", str(tmp_path), 60) == WRAPPER
    assert image_contract.wrapper_of(Engine(IMAGE), IMAGE, "e:1", str(tmp_path), 60) == []
    assert image_contract.wrapper_of(Engine(), None, "e:1", str(tmp_path), 60) == []
    program = Wrapped(["vllm", "serve"], wraps=False)
    assert image_contract.wrapper_of(program, program.answer, "e:1", str(tmp_path / "program"), 60) == []


def test_a_cached_contract_is_not_read_again(call, tmp_path):
    engine = Wrapped(WRAPPER)
    call(engine)
    assert image_contract.wrapper_of(engine, engine.answer, "e:1", str(tmp_path), 60) == WRAPPER and len(engine.runs) == 2


def test_an_image_that_no_stage_asked_is_asked_once(tmp_path):
    engine = Wrapped(WRAPPER)
    assert [image_contract.wrapper_of(engine, engine.answer, "e:1", str(tmp_path), 60) for _time in range(2)] == [WRAPPER] * 2
    assert len(engine.runs) == 2
    full = tmp_path / "full"
    full.touch()
    assert image_contract.wrapper_of(engine, engine.answer, "e:1", str(full), 60) == WRAPPER and len(engine.runs) == 4


def test_an_entrypoint_that_does_not_run_a_command_stops_before_a_container_is_created(tmp_path):
    engine = Wrapped(["/srv/server"], wraps=False)
    with pytest.raises(ClusterError, match="e:1 starts with /srv/server, which does not run a command") as caught:
        image_contract.wrapper_of(engine, engine.answer, "e:1", str(tmp_path), 60)
    assert "ENTRYPOINT []" in caught.value.remedy


# -- whether its container reaches the GPU ------------------------------------------------------------------------------

REACHED = {**gpu_access.NOT_REACHED, "driver": "580.159.03", "gpus": 1, "cuda": "13.2", "image_cuda": "13.2"}


@pytest.fixture(name="proofs")
def fixture_proofs(monkeypatch):
    """The answers of the proofs, and their calls."""
    proofs = types.SimpleNamespace(answer=REACHED, asked=[])

    def prove(api, image, wrapper, gpus, timeout):
        proofs.asked.append((image["Id"], wrapper, gpus))
        return proofs.answer

    monkeypatch.setattr(gpu_access, "prove", prove)
    return proofs


def test_the_gpu_is_proven_once(call, proofs):
    assert call(answering(), gpus="all")["gpu"] == call(answering(), gpus="all")["gpu"] == REACHED
    assert proofs.asked == [("sha256:abc", [], "all")]


def test_a_gpu_that_was_not_reached_is_asked_for_again(call, proofs):
    proofs.answer = {**gpu_access.NOT_REACHED, "error": "Failed to initialize NVML: Unknown Error"}
    assert [call(answering(), gpus="all")["gpu"]["error"] for _time in range(2)] == [proofs.answer["error"]] * 2 and len(proofs.asked) == 2


@pytest.mark.parametrize("gpus", ["none", []])
def test_a_container_without_gpu_request_proves_none(call, proofs, gpus):
    assert call(answering(), gpus=gpus)["gpu"] is None and not proofs.asked
    assert call(Engine(), gpus="all")["gpu"] is None and not proofs.asked


def test_check_mode_returns_known_facts_and_starts_no_container(call, proofs):
    assert call(answering(), gpus="all", check_mode=True)["gpu"] is None and not proofs.asked
    call(answering(), gpus="all")
    assert call(answering(), gpus="all", check_mode=True)["gpu"] == REACHED and len(proofs.asked) == 1
