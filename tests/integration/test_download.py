# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A model that no node has is downloaded from a hub: once, by one node, with resume after an interruption. Each refusal of a hub has a clear message."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import typing as t

import pytest
import yaml

from .hub import Hub, commit_of, hub, lay
from .lab import HEAD, ROOT, WORKER, Lab, Play, secret_file

CACHE = "/home/spark/.cache/huggingface/hub"
MODEL, DRAFTER, WORDS = "gb10-hub-test/model", "gb10-hub-test/drafter", "gb10-hub-test/words"
#: Bytes of a shard, and the most bytes that an interruption loses.
SHARD, PART = 12_000_000, 1 << 20
SMALL = {"config.json": b'{"architectures": ["LlamaForCausalLM"]}', "tokenizer.json": b"{}", "tokenizer_config.json": b"{}"}
TOKEN = "hf_planted" + "0123456789" * 3


class Source(t.NamedTuple):
    """The hub, its files of each repository, and the settings that need them."""

    hub: Hub
    files: dict[str, dict[str, bytes]]
    settings: dict[str, t.Any]


def base(repo: str) -> str:
    return f"{CACHE}/models--{repo.replace('/', '--')}"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def model(lab: Lab, source: Source, **more: t.Any) -> Play:
    return lab.play("serve", tags="model", **{**source.settings, **more})


def refusals(played: Play) -> list[str]:
    """Return the message and the remedy of each failure."""
    results = [event["event_data"]["res"] for event in played.events if event["event"] == "runner_on_failed"]
    return [f"{result['msg']} Remedy: {result.get('remedy', '')}" for result in results]


def blobs(lab: Lab, host: str, repo: str = MODEL) -> dict[str, int]:
    """Names and sizes of a node's blobs of a repository, finished or not."""
    listed = lab.run(host, "sh", "-c", f"cd {base(repo)}/blobs 2>/dev/null && find . -type f -printf '%P %s\\n'", check=False)
    return {name: int(size) for name, size in (line.split() for line in listed.splitlines())}


def assert_nothing_false(lab: Lab, source: Source, host: str) -> None:
    """Assert that files with final names are complete, and that the download left nothing else."""
    whole = {sha256(data): len(data) for files in source.files.values() for name, data in files.items() if name.endswith(".safetensors")}
    for repo in source.files:
        for name, size in blobs(lab, host, repo).items():
            assert name.endswith(".incomplete") or whole.get(name, size) == size, (repo, name, size)
    assert lab.run(host, "docker", "ps", "--all", "--quiet", "--filter", "label=io.gb10.role=download") == ""
    assert lab.run(host, "sh", "-c", "ls /etc/gb10/secrets/gb10/hf_token 2>/dev/null", check=False) == ""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[tuple[Hub, dict[str, dict[str, bytes]]]]:
    """A hub with a model of three shards, a drafter, and a tokenizer in the repository of a whole model."""
    directory = tmp_path_factory.mktemp("hub")
    files = {
        MODEL: lay(directory, MODEL, SMALL, [SHARD] * 3),
        DRAFTER: lay(directory, DRAFTER, {"config.json": b"{}"}, [2_000_000]),
        WORDS: lay(directory, WORDS, SMALL, [3_000_000]),
    }
    about = {f"gb10-hub-test/{word}": {word: True} for word in ("gated", "private")}
    for repo in about:
        lay(directory, repo, SMALL, [2_000_000])
    (directory / "repos.json").write_text(json.dumps(about), encoding="utf-8")
    with hub(directory) as made:
        yield made, files


@pytest.fixture
def source(lab: Lab, no_cluster: None, served: tuple[Hub, dict[str, dict[str, bytes]]]) -> t.Iterator[Source]:
    """Nodes without any file of these repositories, and the hub."""

    def clear() -> None:
        for host in (HEAD, WORKER):
            lab.run(host, "sh", "-c", f"rm -rf {CACHE}/models--gb10-hub-test--* {CACHE}/.locks {CACHE}/.gb10-copy /var/lib/gb10/model-code")

    made, files = served
    made.control(reset=True)
    clear()
    yield Source(made, files, {"gb10_profile": profile(lab, MODEL), "gb10_hf_endpoint": made.url})
    clear()


def profile(lab: Lab, repo: str, revision: str = "", beside: bool = True) -> str:
    """Write a profile that needs a repository, and by default also the drafter and the tokenizer. Return its path."""
    content = yaml.safe_load((ROOT / "tests/lab/profiles/lab_tiny_native_tp2.yml").read_text(encoding="utf-8"))
    content["id"] = "hub_" + repo.rpartition("/")[2]
    content["model"] = {"repo": repo, "revision": revision or commit_of(repo), "served_names": ["gb10-lab/hub"]}
    for name in ("reasoning_parser", "reasoning_parser_plugin"):
        content["serve"].pop(name, None)
    if beside:
        content["repositories"] = {
            "drafter": {"repo": DRAFTER, "revision": commit_of(DRAFTER), "purpose": "drafter", "size_gb": 0.01},
            "words": {"repo": WORDS, "revision": commit_of(WORDS), "purpose": "tokenizer", "size_gb": 0.01},
        }
        content["serve"]["tokenizer"] = "repository:words"
        content["serve"]["speculative_config"] = {"method": "draft_model", "model": "repository:drafter", "num_speculative_tokens": 2}
    path = lab.scratch / f"{content['id']}.yml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return str(path)


def test_one_node_downloads_all_repositories_once_and_the_other_copies(lab: Lab, source: Source) -> None:
    source.hub.control(tokens={TOKEN: []})
    played = model(lab, source, gb10_hf_token_file=secret_file(lab, TOKEN))
    assert played.rc == 0, played.failures
    seen = source.hub.seen()
    (client,) = {request["client"] for request in seen}
    sent = source.hub.sent()
    for repo, files in source.files.items():
        for name, data in files.items():
            if not name.endswith(".safetensors"):
                continue
            # The weights in the tokenizer's repository are not needed.
            assert sent.get((client, f"/repos/{repo}/{sha256(data)}"), 0) == (0 if repo == WORDS else len(data)), (repo, name)
    # The token goes only to the hub, not to the server to which it redirects the client.
    assert {request["token"] for request in seen if request["path"].startswith("/repos/")} == {False}
    assert all(request["token"] for request in seen if "/resolve/" in request["path"])
    assert TOKEN not in played.stdout + json.dumps(played.events)
    for repo in source.files:
        assert blobs(lab, HEAD, repo) == blobs(lab, WORKER, repo) and blobs(lab, HEAD, repo)
        assert lab.run(HEAD, "sh", "-c", f"find {base(repo)} -not -user spark") == ""
    for host in (HEAD, WORKER):
        assert_nothing_false(lab, source, host)

    source.hub.control(reset=True)
    lab.run(HEAD, "sh", "-c", "sync; echo 1 > /proc/sys/vm/drop_caches")
    again = model(lab, source)
    assert again.rc == 0 and again.changed == {}
    assert source.hub.seen() == []
    for host in (HEAD, WORKER):
        shards = [f"{base(MODEL)}/blobs/{sha256(data)}" for name, data in source.files[MODEL].items() if name.endswith(".safetensors")]
        resident = [int(line) for line in lab.run(host, "fincore", "--bytes", "--noheadings", "--output", "RES", *shards).splitlines()]
        assert max(resident) < SHARD // 4, "the second run read the weights"
    verified = model(lab, source, gb10_model_verify="full")
    assert verified.rc == 0 and verified.changed == {}, verified.failures


REFUSALS: dict[str, tuple[dict[str, t.Any], dict[str, t.Any], tuple[str, ...]]] = {
    # The orders for the hub, the options of the play, and the words that the message must contain.
    "unknown token": ({}, {"token": TOKEN}, ("the hub answers 401", "does not know this token", "gb10_hf_token_file")),
    "absent": ({}, {"repo": "gb10-hub-test/absent"}, ("the hub answers 401", "there is no repository gb10-hub-test/absent", "or it is private")),
    "absent, with a token": ({"tokens": {TOKEN: []}}, {"repo": "gb10-hub-test/absent", "token": TOKEN}, ("the hub answers 404", "no repository")),
    "private": ({}, {"repo": "gb10-hub-test/private"}, ("the hub answers 401", "or it is private", "gb10_hf_token_file")),
    "gated": ({}, {"repo": "gb10-hub-test/gated"}, ("the hub answers 401", "is gated, and no token was given", "Accept the terms at")),
    "gated, without access": (
        {"tokens": {TOKEN: []}},
        {"repo": "gb10-hub-test/gated", "token": TOKEN},
        ("the hub answers 403", "was not given access", "Accept the terms at"),
    ),
    "no such revision": ({}, {"revision": "b" * 40}, ("the hub answers 404", f"no revision {'b' * 40}", "Correct revision in the profile")),
    "too many requests": (
        {"faults": [{"match": "^GET /api/models", "status": 429, "headers": {"Retry-After": "3600"}}]},
        {},
        ("the hub answers 429", "too many requests", "in 3600 s"),
    ),
    "too many requests, amid the files": (
        {"faults": [{"match": "^GET .*/resolve/", "status": 429, "headers": {"Retry-After": "1"}}]}, {}, ("the hub answers 429", "too many requests"),
    ),
    "blocked": ({"faults": [{"match": "^GET /api/models", "status": 403, "error": "Blocked"}]}, {}, ("the hub answers 403", "Blocked")),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_what_a_hub_refuses_is_said_once_and_leaves_nothing_false(lab: Lab, source: Source, name: str) -> None:
    order, options, words = REFUSALS[name]
    source.hub.control(**order)
    wanted = profile(lab, options.get("repo", MODEL), options.get("revision", ""), beside=False)
    played = model(lab, source, gb10_profile=wanted, gb10_hf_token_file=secret_file(lab, options["token"]) if "token" in options else "")
    texts = refusals(played)
    assert played.rc != 0 and len(texts) == 1, texts
    assert all(word in texts[0] for word in ("could not be downloaded", "Remedy:", source.hub.url, *words)), texts
    assert TOKEN not in played.stdout + json.dumps(played.events)
    assert {host: blobs(lab, host) for host in (HEAD, WORKER)} == {HEAD: {}, WORKER: {}}
    assert_nothing_false(lab, source, HEAD)


@pytest.mark.parametrize("percent", [10, 50, 90])
def test_a_download_that_was_cut_goes_on(lab: Lab, source: Source, percent: int) -> None:
    data = source.files[MODEL]["model-00002-of-00003.safetensors"]
    path, came = f"/repos/{MODEL}/{sha256(data)}", len(data) * percent // 100
    source.hub.control(faults=[{"match": path, "cut": percent / 100}])
    cut = model(lab, source)
    texts = refusals(cut)
    assert cut.rc != 0 and len(texts) == 1, texts
    assert "the connection was cut" in texts[0] and "it goes on with what came" in texts[0] and MODEL in texts[0] and "?Expires" not in cut.stdout, texts
    kept = blobs(lab, HEAD)[f"{sha256(data)}.incomplete"]
    assert came - PART < kept <= came and sha256(data) not in blobs(lab, HEAD)
    assert_nothing_false(lab, source, HEAD)
    source.hub.control(reset=True)
    done = model(lab, source)
    assert done.rc == 0, done.failures
    assert {size for (_client, of), size in source.hub.sent().items() if of == path} == {len(data) - kept}
    assert blobs(lab, HEAD) == blobs(lab, WORKER) and not [name for name in blobs(lab, HEAD) if name.endswith(".incomplete")]


def test_a_hub_that_recovers_is_waited_for_and_a_byte_that_was_changed_on_the_way_is_found(lab: Lab, source: Source) -> None:
    shards = {name: data for name, data in source.files[MODEL].items() if name.endswith(".safetensors")}
    first, second, third = (f"/repos/{MODEL}/{sha256(data)}" for data in shards.values())
    source.hub.control(faults=[{"match": third, "flip": True, "times": 1}])
    damaged = model(lab, source)
    texts = refusals(damaged)
    assert damaged.rc != 0 and len(texts) == 1 and "model-00003-of-00003.safetensors came with the sha256" in texts[0], texts
    assert not {name for name in blobs(lab, HEAD) if name.startswith(third.rpartition("/")[2])}
    faults = [
        {"match": third, "cut": 0.3, "times": 1},
        {"match": "^GET .*/resolve/", "status": 429, "headers": {"Retry-After": "1"}, "times": 1},
        {"match": "^GET /api/models", "status": 503, "times": 1},
    ]
    source.hub.control(reset=True, faults=faults)
    done = model(lab, source)
    assert done.rc == 0, done.failures
    of = {path: size for (_client, path), size in source.hub.sent().items()}
    assert 0 <= of[third] - len(shards["model-00003-of-00003.safetensors"]) < PART and first not in of and second not in of


def test_a_download_that_is_killed_goes_on(lab: Lab, source: Source) -> None:
    data = source.files[MODEL]["model-00001-of-00003.safetensors"]
    path, half = f"/repos/{MODEL}/{sha256(data)}", len(data) // 2
    source.hub.control(faults=[{"match": "/repos/", "rate": 2_000_000}])
    wait = f"until [ $(stat -c %s {base(MODEL)}/blobs/{sha256(data)}.incomplete 2>/dev/null || echo 0) -ge {half} ]; do sleep 0.1; done"
    with concurrent.futures.ThreadPoolExecutor(1) as beside:
        done = beside.submit(lab.run, HEAD, "timeout", "120", "sh", "-c", f"{wait}; docker kill gb10-gb10-download")
        killed = model(lab, source)
        done.result()
    (text,) = refusals(killed)
    assert killed.rc != 0 and "could not be downloaded" in text and "it goes on with what came" in text
    there = blobs(lab, HEAD)[f"{sha256(data)}.incomplete"]
    # When a current client is killed, it leaves a file under a name that no later client looks for.
    lab.run(HEAD, "sh", "-c", f"echo left > {base(MODEL)}/blobs/{sha256(data)}.0123abcd.incomplete; chown -R spark: {base(MODEL)}")
    source.hub.control(reset=True)
    done = model(lab, source)
    assert done.rc == 0, done.failures
    assert {size for (_client, of), size in source.hub.sent().items() if of == path} == {len(data) - there} and there >= half
    assert not [name for name in blobs(lab, HEAD) if name.endswith(".incomplete")]
