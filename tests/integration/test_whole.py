# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole play from empty nodes to a token: one pull, one build and one download, which runs during the image copy. A second run contacts no server."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
import typing as t
from pathlib import Path

import pytest

from .hub import Hub, Registry, hub, registry
from .lab import HEAD, WORKER, Lab, utc
from .making import lab_profile

BARE_IMAGE, NODE_IMAGE, BUILT = "gb10-lab/engine:0.32.0", "gb10-lab/engine-ray:0.32.0", "gb10-lab/engine-ray:whole"
REPO, COMMIT = "gb10-lab/tiny-llama", "0123456789abcdef0123456789abcdef01234567"
WORDS, WORDS_COMMIT = "gb10-lab/tiny-words", "e" * 40
CACHE = "/home/spark/.cache/huggingface/hub"
MODEL, AWAY = f"{CACHE}/models--gb10-lab--tiny-llama", "/home/spark/.cache/huggingface/away"
#: The lab's profile with a tokenizer of another repository.
SEVERAL = (
    ("executor: ray\n", f"repositories:\n  words: {{repo: {WORDS}, revision: {WORDS_COMMIT}, purpose: tokenizer, size_gb: 0.01}}\n\nexecutor: ray\n"),
    ("serve:\n", "serve:\n  tokenizer: repository:words\n"),
)
OTHER, NOTES = f"{CACHE}/models--gb10-lab--tiny-words", "/var/lib/gb10/model-code /var/lib/gb10/model-manifest"
NAME = "users/engine:1"


def copy_out(host: str, directory: str, target: Path) -> None:
    """Copy the files of a node's directory to the controller, with links resolved."""
    packed = subprocess.run(["docker", "exec", f"gb10-lab-{host}", "tar", "-C", directory, "-ch", "."], capture_output=True, timeout=60, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(target, filter="data")


@pytest.fixture(scope="module")
def sources(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[tuple[Registry, Hub]]:
    """A registry with the lab's engine, a hub with its model, and nodes with neither."""
    directory = tmp_path_factory.mktemp("hub")
    (directory / REPO).mkdir(parents=True)
    copy_out(HEAD, f"{MODEL}/snapshots/{COMMIT}", directory / REPO)
    (directory / WORDS).mkdir()
    for path in (directory / REPO).iterdir():
        if path.name == "config.json" or "token" in path.name:
            shutil.copy(path, directory / WORDS)
    (directory / "repos.json").write_text(json.dumps({REPO: {"commit": COMMIT}, WORDS: {"commit": WORDS_COMMIT}}), encoding="utf-8")
    lab.down()
    with hub(directory) as made, registry(lab) as images:
        lab.run(HEAD, "docker", "tag", BARE_IMAGE, f"{images.direct}/{NAME}")
        lab.run(HEAD, "docker", "push", "--quiet", f"{images.direct}/{NAME}", timeout=600)
        try:
            for host in (HEAD, WORKER):
                lab.run(host, "docker", "image", "prune", "--all", "--force", timeout=300)
                lab.run(host, "mv", MODEL, AWAY)
            images.gate.control(reset=True)
            made.control(reset=True)
            yield images, made
        finally:
            lab.down()
            for host in (HEAD, WORKER):
                lab.run(host, "sh", "-c", f"if [ -d {AWAY} ]; then rm -rf {MODEL} {CACHE}/.locks; mv {AWAY} {MODEL}; fi; rm -rf {OTHER} {NOTES}")
                lab.run(host, "docker", "pull", "--quiet", f"{images.place}/{NAME}", timeout=600)
                lab.run(host, "docker", "tag", f"{images.place}/{NAME}", BARE_IMAGE)
                names = f"docker images --format '{{{{.Repository}}}}:{{{{.Tag}}}}' | grep -x -e {BUILT} -e '{images.place}/.*' -e '{images.direct}/.*'"
                lab.run(host, "sh", "-c", f"{names} | xargs --no-run-if-empty docker rmi")


def test_empty_nodes_make_one_pull_one_build_and_one_download(lab: Lab, sources: tuple[Registry, Hub]) -> None:
    images, made = sources
    changes = ((f"base: {BARE_IMAGE}", f"base: {images.place}/{NAME}"), (f"tag: {NODE_IMAGE}", f"tag: {BUILT}"))
    wanted = {"gb10_profile": lab_profile(lab, "lab_whole", *changes, *SEVERAL), "gb10_hf_endpoint": made.url}
    played = lab.play(**wanted)
    assert played.rc == 0, played.failures
    read = [request for request in images.gate.seen() if "/blobs/" in request["path"] and request["method"] == "GET"]
    # The image's configuration is also read when the registry is asked for the digest.
    config = lab.run(HEAD, "docker", "image", "inspect", "--format", "{{.Id}}", f"{images.place}/{NAME}").strip()
    layers = [request["path"] for request in read if not request["path"].endswith(config)]
    again = [request for request in read if layers.count(request["path"]) > 1]
    assert len({request["client"] for request in read}) == 1 and layers and not again, json.dumps(again, indent=1)
    ended = [event["event_data"] for event in played.events if event["event"] == "runner_on_ok"]
    built = {data["host"] for data in ended if data["task"] == "Build the node image"}
    assert len(built) == 1, built
    loaded = made.sent()
    assert len({client for client, _path in loaded}) == 1, loaded
    assert all(any(repo in path for _client, path in loaded) for repo in (REPO, WORDS)), loaded
    began = {event["event_data"]["task"]: utc(event["created"]) for event in reversed(played.events) if event["event"] == "playbook_on_task_start"}
    assert began["Download what is missing from the hub"] < began["Copy the image"] < began["Wait until the download has ended"]
    ids = {host: lab.run(host, "docker", "image", "inspect", "--format", "{{.Id}}", BUILT) for host in (HEAD, WORKER)}
    assert ids[HEAD] == ids[WORKER]
    report = played.stat("gb10_report")
    steps = {stage["stage"]: [step["step"] for step in stage["steps"]] for stage in report["critical_path"]}
    assert steps["image"] == ["pull", "copy"] and steps["model"] == ["download", "copy"], report["critical_path"]
    assert {proof["verdict"] for proof in report["proofs"]} == {"pass"} and list(report["downloads"]) == [HEAD]

    for source in (images.gate, made):
        source.control(reset=True)
    again = lab.play(**wanted)
    assert again.rc == 0 and again.changed == {}, again.failures
    assert images.gate.seen() == [] and made.seen() == []
    verified = lab.play(**wanted, gb10_model_verify="full", tags="model")
    assert verified.rc == 0 and verified.changed == {} and "file(s)" in verified.said, verified.failures
