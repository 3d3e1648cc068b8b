# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Models from several repositories (with a drafter and a tokenizer), from a recipe, from a directory, and on single nodes, also two side by side."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
import yaml

from .lab import HEAD, INVENTORY, ROOT, WORKER, Lab, Play

CACHE = "/home/spark/.cache/huggingface/hub"
DRAFTED = {"gb10_profile": "lab_tiny_drafted_tp2"}
#: The commit of each repository, and the files of the lab's model in it, as patterns. As with a hub's client, a pinned commit has no ref.
PARTS = {
    "drafter": ("d" * 40, ("config.json", "generation_config.json", "model*")),
    "words": ("e" * 40, ("config.json", "*token*", "*.jinja")),
    "other": ("f" * 40, ("*",)),
}

#: Lay out part of a repository as a separate one, with the hub's links to blobs. Arguments: cache, name, commit, patterns.
LAY = """
import fnmatch, os, pathlib, shutil, sys
cache, name, commit, *patterns = sys.argv[1:]
(source,) = pathlib.Path(cache, "models--gb10-lab--tiny-llama/snapshots").iterdir()
target = pathlib.Path(cache, "models--gb10-lab--tiny-" + name)
shutil.rmtree(target, ignore_errors=True)
for folder in (target / "blobs", target / "snapshots" / commit):
    folder.mkdir(parents=True)
for path in source.iterdir():
    if any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns):
        blob = path.resolve()
        shutil.copy(blob, target / "blobs" / blob.name)
        (target / "snapshots" / commit / path.name).symlink_to("../../blobs/" + blob.name)
for path in (target, *target.rglob("*")):
    os.chown(path, 1000, 1000, follow_symlinks=False)
"""

#: Ask an engine on its own node. Arguments: URL, file with the key, body (empty for a GET).
ASK = """
import pathlib, sys, urllib.request as request
url, key, body = sys.argv[1:]
headers = {"Content-Type": "application/json", "Authorization": "Bearer " + pathlib.Path(key).read_text().strip()}
with request.urlopen(request.Request(url, body.encode() or None, headers), timeout=60) as answer:
    print(answer.read().decode())
"""


def ask(lab: Lab, host: str, cluster: str, path: str, body: dict[str, t.Any] | None = None) -> str:
    run = lab.json(host, f"/var/lib/gb10/{cluster}/run/run.json")
    url = f"http://{run['api_address']}:{run['api_port']}{path}"
    return lab.run(host, "python3", "-c", ASK, url, f"/etc/gb10/secrets/{cluster}/api_key", json.dumps(body) if body else "")


def says(lab: Lab, host: str, cluster: str, model: str) -> str:
    """Return a model's answer."""
    body = {"model": model, "messages": [{"role": "user", "content": "Are you there?"}], "max_tokens": 120, "temperature": 0}
    return json.loads(ask(lab, host, cluster, "/v1/chat/completions", body))["choices"][0]["message"]["content"]


def hub(lab: Lab, host: str) -> set[str]:
    """All paths below a node's hub cache. A second run and an engine do not change them."""
    return set(lab.run(host, "find", CACHE, "-not", "-name", "*.pyc", "-not", "-name", "__pycache__").splitlines())


@pytest.fixture(scope="module", autouse=True)
def repositories(lab: Lab) -> t.Iterator[None]:
    """Parts of the lab's model as separate repositories."""
    for host in (HEAD, WORKER):
        for name, (commit, patterns) in PARTS.items():
            lab.run(host, "python3", "-c", LAY, CACHE, name, commit, *patterns)
    yield
    for host in (HEAD, WORKER):
        lab.run(host, "rm", "-rf", *(f"{CACHE}/models--gb10-lab--tiny-{name}" for name in PARTS), "/var/lib/gb10/model-code")


@pytest.fixture(scope="module")
def drafted(lab: Lab) -> t.Iterator[Play]:
    """A run that serves with a separate drafter and tokenizer on both nodes."""
    lab.down()
    played = lab.play(**DRAFTED)
    assert played.rc == 0, played.failures
    yield played
    lab.down()


def test_a_drafter_that_lacks_weights_on_one_node_stops_before_anything_starts(lab: Lab, no_cluster: None) -> None:
    shard = f"{CACHE}/models--gb10-lab--tiny-drafter/snapshots/{'d' * 40}/model-00001-of-00002.safetensors"
    lab.run(WORKER, "mv", shard, "/var/tmp/shard")
    try:
        failed = lab.play(**DRAFTED, gb10_offline=True, gb10_model_copy="never")
    finally:
        lab.run(WORKER, "mv", "/var/tmp/shard", shard)
    assert failed.rc != 0 and "gb10-lab/tiny-drafter lacks 1 file(s)" in failed.failures and WORKER in failed.failures
    assert lab.containers(HEAD) == lab.containers(WORKER) == {}


def test_the_drafter_drafts_and_the_tokenizer_is_its_own(lab: Lab, drafted: Play) -> None:
    assert drafted.stat("gb10_report")["executor"] == "native"
    assert [repository["purpose"] for repository in drafted.stat("gb10_report")["repositories"]] == ["model", "drafter", "tokenizer"]
    assert {proof["verdict"] for proof in drafted.stat("gb10_report")["proofs"]} == {"pass"}
    assert "the cluster works" in says(lab, HEAD, "gb10", "tiny")
    counted = [line for line in ask(lab, HEAD, "gb10", "/metrics").splitlines() if line.startswith("vllm:spec_decode_num_accepted_tokens_total")]
    assert counted and all(float(line.split()[-1]) > 0 for line in counted)
    argv = lab.json(HEAD, "/var/lib/gb10/gb10/run/run.json")["argv"]
    assert f"models--gb10-lab--tiny-words/snapshots/{'e' * 40}" in argv[argv.index("--tokenizer") + 1]


def test_a_second_run_of_several_repositories_changes_nothing(lab: Lab, drafted: Play) -> None:
    before = {host: hub(lab, host) for host in (HEAD, WORKER)}
    again = lab.play(**DRAFTED)
    assert (again.rc, again.changed) == (0, {}), again.stdout
    assert {host: hub(lab, host) for host in (HEAD, WORKER)} == before
    predicted = lab.play(check=True, **DRAFTED)
    assert (predicted.rc, predicted.changed) == (0, {}), predicted.stdout


#: The lab's model as a recipe for another launcher, without Ray and without its commit.
RECIPE = """
recipe_version: "1"
name: Tiny
model: gb10-lab/tiny-llama
container: gb10-lab/engine:0.32.0
cluster_only: true
defaults: {port: 8000, host: 0.0.0.0, tensor_parallel: 2, max_model_len: 2048}
env: {VLLM_ALLOW_LONG_MAX_MODEL_LEN: "1", VLLM_CPU_KVCACHE_SPACE: "1", OMP_NUM_THREADS: "1", VLLM_CPU_OMP_THREADS_BIND: nobind}
command: |
  vllm serve gb10-lab/tiny-llama --served-model-name tiny --host {host} --port {port} -tp {tensor_parallel} \\
      --dtype bfloat16 --max-model-len {max_model_len} --max-num-seqs 8 --enforce-eager --hf-overrides '{{"use_cache": true}}'
"""


def test_an_imported_recipe_serves_once_its_model_is_asked_what_it_can_answer(lab: Lab, tmp_path: Path) -> None:
    lab.down()
    (tmp_path / "tiny.yaml").write_text(RECIPE, encoding="utf-8")
    pinned = {"gb10-lab/tiny-llama": "0123456789abcdef0123456789abcdef01234567"}
    made = lab.play("import", gb10_import=str(tmp_path / "tiny.yaml"), gb10_to=str(tmp_path), gb10_import_revisions=pinned)
    assert made.rc == 0 and made.stat("gb10_imported")["id"] == "tiny", made.failures
    profile = tmp_path / "tiny.yml"
    # The profile is untested, so its model is asked for arithmetic, which the lab's model fails. The engine is left running.
    wrong = lab.play(gb10_profile=str(profile))
    assert wrong.rc != 0 and "answers.arithmetic" in wrong.said, wrong.failures
    assert "the cluster works" in says(lab, HEAD, "gb10", "tiny")
    assert "unproven: it failed answers.arithmetic at " in lab.play("status").said
    run = lab.json(HEAD, "/var/lib/gb10/gb10/run/run.json")["run_id"]
    text = profile.read_text(encoding="utf-8")
    profile.write_text(text.replace("answers:\n  - arithmetic\n  - echo\n  - coherence\n", "answers: []\n"), encoding="utf-8")
    played = lab.play(gb10_profile=str(profile))
    assert (played.rc, played.changed) == (0, {}), played.failures
    assert {proof["verdict"] for proof in played.stat("gb10_report")["proofs"]} == {"pass"}
    assert lab.json(HEAD, "/var/lib/gb10/gb10/run/run.json")["run_id"] == run
    assert lab.play("status").stat("gb10_proof") == "proven"
    lab.down()


#: The lab's model in a plain directory.
FOLDER = "/home/spark/models/tiny"
FOLDER_MODEL = {"path": FOLDER, "side_files": ["lab_reasoning_parser.py"], "served_names": ["tiny"]}


@pytest.fixture
def folder(lab: Lab) -> t.Iterator[None]:
    """The files of the lab's model on both nodes, without a hub's links."""
    snapshot = f"{CACHE}/models--gb10-lab--tiny-llama/snapshots/0123456789abcdef0123456789abcdef01234567"
    for host in (HEAD, WORKER):
        lab.run(host, "mkdir", "--parents", FOLDER)
        lab.run(host, "cp", "--recursive", "--dereference", f"{snapshot}/.", FOLDER)
    yield
    for host in (HEAD, WORKER):
        lab.run(host, "rm", "-rf", FOLDER)


def test_a_model_in_a_plain_directory_serves_and_is_left_as_it_is(lab: Lab, folder: None, tmp_path: Path) -> None:
    lab.down()
    same = yaml.safe_load((ROOT / "tests" / "lab" / "profiles" / "lab_tiny_native_tp2.yml").read_text(encoding="utf-8"))
    profile = tmp_path / "tiny_folder.yml"
    profile.write_text(yaml.safe_dump({**same, "id": "tiny_folder", "model": FOLDER_MODEL}), encoding="utf-8")
    look = ("find", FOLDER, "-printf", "%p %s %T@ %m\\n")
    before = {host: lab.run(host, *look) for host in (HEAD, WORKER)}
    played = lab.play(gb10_profile=str(profile))
    assert played.rc == 0, played.failures
    assert {proof["verdict"] for proof in played.stat("gb10_report")["proofs"]} == {"pass"}
    assert "the cluster works" in says(lab, HEAD, "gb10", "tiny")
    argv = lab.json(HEAD, "/var/lib/gb10/gb10/run/run.json")["argv"]
    assert "/opt/gb10/models/model" in argv
    again = lab.play(gb10_profile=str(profile))
    assert (again.rc, again.changed) == (0, {}), again.failures
    lab.down()
    assert {host: lab.run(host, *look) for host in (HEAD, WORKER)} == before


#: Each node's own service: its profile in the inventory, and its model. The service has its node's name.
SERVICES = {HEAD: ("lab_tiny_one", "tiny"), WORKER: ("lab_tiny_other_one", "gb10-lab/other")}


class Singles:
    """A service on each node, with the pair's inventory."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def play(self, host: str, playbook: str = "serve", **variables: t.Any) -> Play:
        """Run a playbook for one node, and assert that the other node is not contacted."""
        played = self.lab.play(playbook, gb10_single=host, **variables)
        assert played.rc == 0, played.failures
        assert played.hosts <= {host, "localhost"}
        return played

    def says(self, host: str) -> str:
        return says(self.lab, host, host, SERVICES[host][1])


@pytest.fixture(scope="module")
def singles(tmp_path_factory: pytest.TempPathFactory, lab: Lab) -> t.Iterator[Singles]:
    lab.down()
    directory: Path = tmp_path_factory.mktemp("models")
    hosts = {host: {"gb10_single_profile": profile} for host, (profile, _model) in SERVICES.items()}
    (directory / "services.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}), encoding="utf-8")
    made = Singles(Lab(directory, [INVENTORY, directory / "services.yml"]))
    yield made
    for host in SERVICES:
        made.play(host, "teardown")


def test_one_node_goes_from_cold_to_a_token(singles: Singles) -> None:
    played = singles.play(HEAD)
    report = played.stat("gb10_report")
    assert (report["executor"], report["executor_reason"]) == ("native", "one rank: there is nothing to spread")
    assert (report["cluster"], list(report["nodes"])) == (HEAD, [HEAD]) and {proof["verdict"] for proof in report["proofs"]} == {"pass"}
    assert "the cluster works" in singles.says(HEAD)
    # A single node has no fabric, so the container gets no device of it and no rule judges it.
    assert singles.lab.inspect(HEAD, f"gb10-{HEAD}-head")["HostConfig"]["Devices"] in (None, [])
    matrix = played.stat("gb10_preflight")["matrix"]
    assert {matrix[rule][HEAD] for rule in ("fabric.address", "rdma.present", "device.present")} == {"not_judged"}


def test_a_second_run_on_one_node_changes_nothing(singles: Singles) -> None:
    assert singles.play(HEAD).changed == {}
    assert singles.play(HEAD, check=True).changed == {}


def test_a_second_model_on_the_other_node_leaves_the_first_alone(singles: Singles) -> None:
    before = singles.lab.json(HEAD, f"/var/lib/gb10/{HEAD}/run/run.json")["run_id"]
    singles.play(WORKER)
    assert "the cluster works" in singles.says(WORKER) and "the cluster works" in singles.says(HEAD)
    assert singles.lab.json(HEAD, f"/var/lib/gb10/{HEAD}/run/run.json")["run_id"] == before
    assert singles.play(WORKER).changed == {}


def test_the_pair_does_not_start_beside_them(singles: Singles) -> None:
    refused = singles.lab.play()
    assert refused.rc != 0 and f"gb10-{HEAD}-head" in refused.said, refused.said
    assert singles.lab.run(HEAD, "docker", "ps", "--all", "--quiet", "--filter", "label=io.gb10.cluster=gb10") == ""
    assert "the cluster works" in singles.says(HEAD) and "the cluster works" in singles.says(WORKER)


def test_status_of_one_node_is_about_its_service(singles: Singles) -> None:
    played = singles.play(WORKER, "status")
    assert list(played.stat("gb10_status")) == [WORKER] and played.stat("gb10_health") == "serving", played.said
    assert f"gb10-{WORKER}-head running" in " ".join(played.stat("gb10_status")[WORKER])


def test_one_node_goes_back_to_cold(singles: Singles, lab: Lab) -> None:
    # With an inventory that lacks its profile, as after a bring-up with -e gb10_profile.
    Singles(lab).play(HEAD, "teardown")
    assert singles.lab.run(HEAD, "docker", "ps", "--all", "--quiet", "--filter", f"label=io.gb10.cluster={HEAD}") == ""
    assert "the cluster works" in singles.says(WORKER)
