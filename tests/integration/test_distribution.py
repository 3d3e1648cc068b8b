# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One node has the model, and the other node copies it over the fabric: completely, once, and again after an interruption or damage."""

from __future__ import annotations

import threading
import typing as t

import pytest
import yaml

from .lab import HEAD, ROOT, WORKER, Lab, Play

HUB = "/home/spark/.cache/huggingface/hub"
TINY = f"{HUB}/models--gb10-lab--tiny-llama"
BIG, COMMIT = "gb10-copy-test/big", "c" * 40
BASE = f"{HUB}/models--gb10-copy-test--big"
STAGE = f"{HUB}/.gb10-copy"
#: The process that copies on a node, but not the process that waits for it.
COPYING = "^[^ ]*python[^ ]* [^ ]*AnsiballZ_model_cop[y]"
#: Bytes of each of the three shards of the larger model.
SHARD = 300_000_000

#: Make a model of three shards as the hub's client lays one out. Arguments: the repository's directory, the commit, bytes of a shard.
MAKE = """
import hashlib, json, os, pathlib, struct, sys
base, commit, size = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for folder in ("blobs", "refs", "snapshots/" + commit):
    (base / folder).mkdir(parents=True, exist_ok=True)
def put(name, data):
    large = name.endswith(".safetensors")
    digest = hashlib.sha256(data) if large else hashlib.sha1(b"blob %d\\0" % len(data) + data)
    (base / "blobs" / digest.hexdigest()).write_bytes(data)
    (base / "snapshots" / commit / name).symlink_to("../../blobs/" + digest.hexdigest())
names = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
for name in names:
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    put(name, struct.pack("<Q", len(header)) + header + os.urandom(1 << 20) * (size >> 20) + bytes(size % (1 << 20)))
put("model.safetensors.index.json", json.dumps({"weight_map": {name: name for name in names}}).encode())
put("config.json", b"{}")
put("tokenizer.json", b"{}")
(base / "refs/main").write_text(commit)
for path in (base, *base.rglob("*")):
    os.chown(path, 1000, 1000, follow_symlinks=False)
"""

#: Change one byte of a file and keep its size and times.
FLIP = """
import os, sys
status = os.stat(sys.argv[1])
with open(sys.argv[1], "r+b") as stream:
    stream.seek(status.st_size // 2)
    byte = stream.read(1)[0]
    stream.seek(-1, 1)
    stream.write(bytes([byte ^ 1]))
os.utime(sys.argv[1], ns=(status.st_atime_ns, status.st_mtime_ns))
"""


def tree(lab: Lab, host: str, base: str) -> list[str]:
    """Return the content of a repository: names, types, sizes, modes, owners and link targets, without Python's caches."""
    directories = lab.run(host, "find", base, "-not", "-path", "*__pycache__*", "-type", "d", "-printf", "%P %y %m %u\n")
    files = lab.run(host, "find", base, "-not", "-path", "*__pycache__*", "-not", "-type", "d", "-printf", "%P %y %s %m %u %l\n")
    return sorted([*directories.splitlines(), *files.splitlines()])


def leavings(lab: Lab, host: str) -> str:
    """Return what a copy left on a node: its unit, its files, its stage, its processes."""
    units = lab.run(host, "systemctl", "list-units", "--all", "--no-legend", "--plain", "gb10-copy*")
    files = lab.run(host, "sh", "-c", f"ls -d /run/gb10-copy/* {STAGE} /var/lib/gb10/model-copy-*.json 2>/dev/null", check=False)
    return units + files + lab.run(host, "sh", "-c", f"pgrep -af 'serve.[p]y|{COPYING}'", check=False)


@pytest.fixture
def big(lab: Lab, no_cluster: None) -> t.Iterator[dict[str, t.Any]]:
    """A larger model only on the head, and the settings that need it."""
    profile = yaml.safe_load((ROOT / "tests/lab/profiles/lab_tiny_tp2.yml").read_text(encoding="utf-8"))
    profile["id"] = "copied_tp2"
    profile["model"] = {"repo": BIG, "revision": COMMIT, "side_files": [], "served_names": ["gb10-lab/big"]}
    for name in ("reasoning_parser", "reasoning_parser_plugin"):
        profile["serve"].pop(name)
    path = lab.scratch / "copied_tp2.yml"
    path.write_text(yaml.safe_dump(profile), encoding="utf-8")
    for host in (HEAD, WORKER):
        lab.run(host, "rm", "-rf", BASE, STAGE)
    lab.run(HEAD, "python3", "-c", MAKE, BASE, COMMIT, str(SHARD))
    yield {"gb10_profile": str(path), "gb10_offline": True}
    for host in (HEAD, WORKER):
        lab.run(host, "rm", "-rf", BASE, STAGE)


def model(lab: Lab, big: dict[str, t.Any], **more: t.Any) -> Play:
    return lab.play("serve", tags="model", **big, **more)


def test_an_empty_worker_gets_the_model_and_serves(lab: Lab, no_cluster: None) -> None:
    lab.run(WORKER, "rm", "-rf", TINY)
    try:
        predicted = lab.play(check=True, tags="model", gb10_offline=True)
        assert predicted.rc == 0, predicted.failures
        assert WORKER in predicted.changed and not lab.run(WORKER, "ls", TINY, check=False)
        played = lab.play(gb10_offline=True)
        assert played.rc == 0, played.failures
        assert f"{WORKER}: " in played.said and "copied and compared" in played.said
        assert tree(lab, WORKER, TINY) == tree(lab, HEAD, TINY)
        assert {host: leavings(lab, host) for host in (HEAD, WORKER)} == {HEAD: "", WORKER: ""}
        assert played.stat("gb10_report")["copies"][WORKER]["left_bytes"] == 0
        assert lab.engine_lives()
        again = lab.play(gb10_offline=True)
        assert again.rc == 0, again.failures
        assert again.changed == {} and not any(task.startswith("Serve the model") or task == "Copy the model" for _role, task in again.tasks())
    finally:
        if lab.run(WORKER, "ls", TINY, check=False) == "":
            lab.play(tags="model", gb10_offline=True)


def test_a_copy_that_is_killed_goes_on_and_a_flipped_byte_is_found(lab: Lab, big: dict[str, t.Any]) -> None:
    killed: list[int] = []

    def kill() -> None:
        """Kill the copy when nearly half has arrived. The fetched part is in the stage."""
        if killed:
            return
        there = 512 * sum(map(int, lab.run(WORKER, "sh", "-c", f"find {STAGE} -type f -printf '%b\\n' 2>/dev/null", check=False).split()))
        if there > 0.4 * 3 * SHARD:
            lab.run(WORKER, "pkill", "-KILL", "-f", COPYING, check=False)
            killed.append(there)

    lab.run(HEAD, "tc", "qdisc", "add", "dev", "eth1", "root", "tbf", "rate", "300mbit", "burst", "256k", "latency", "50ms")
    try:
        with _Every(0.5, kill):
            cut = model(lab, big)
    finally:
        lab.run(HEAD, "tc", "qdisc", "del", "dev", "eth1", "root")
    assert killed and cut.rc != 0 and WORKER in cut.failures, cut.failures
    assert f"{WORKER}: copying " in cut.said
    assert not lab.run(WORKER, "ls", f"{BASE}/snapshots", check=False) and leavings(lab, HEAD) == ""
    status = lab.play("status")
    assert f"of an unfinished copy in {STAGE}" in status.said

    done = model(lab, big)
    assert done.rc == 0, done.failures
    assert tree(lab, WORKER, BASE) == tree(lab, HEAD, BASE)
    assert "of it by an earlier run" in done.said and {leavings(lab, host) for host in (HEAD, WORKER)} == {""}
    second = model(lab, big)
    assert second.rc == 0 and second.changed == {}

    blob = lab.run(WORKER, "readlink", "-f", f"{BASE}/snapshots/{COMMIT}/model-00002-of-00003.safetensors").strip()
    lab.run(WORKER, "python3", "-c", FLIP, blob)
    assert model(lab, big).rc == 0
    damaged = model(lab, big, gb10_model_verify="full")
    assert damaged.rc != 0 and "model.digest" in damaged.failures
    assert f"block model.digest {WORKER} model-00002-of-00003.safetensors was changed" in damaged.said
    lab.run(WORKER, "rm", blob)
    healed = model(lab, big, gb10_model_verify="full")
    assert healed.rc == 0, healed.failures
    assert f"{WORKER}: the digests of 5 file(s)" in healed.said


def test_what_stands_in_the_way_is_named_and_stays(lab: Lab, big: dict[str, t.Any]) -> None:
    blob = lab.run(HEAD, "readlink", f"{BASE}/snapshots/{COMMIT}/config.json").strip().rpartition("/")[2]
    lab.run(WORKER, "sh", "-c", f"mkdir -p {BASE}/blobs; echo mine > {BASE}/blobs/{blob}; chown -R spark: {BASE}")
    refused = model(lab, big)
    assert refused.rc != 0 and f"{BASE}/blobs/{blob}" in refused.said and "nothing was replaced" in refused.said
    assert lab.run(WORKER, "cat", f"{BASE}/blobs/{blob}") == "mine\n" and leavings(lab, HEAD) == ""
    lab.run(WORKER, "rm", "-rf", BASE)
    lab.run(HEAD, "mv", "/usr/bin/systemd-run", "/usr/bin/systemd-run.away")
    try:
        without = model(lab, big, gb10_model_copy="required")
        assert without.rc != 0 and "there is no systemd-run on this node" in without.said and "each node downloads the model" in without.said
        preferred = model(lab, big, gb10_model_copy="preferred")
        assert preferred.rc != 0 and "downloads by itself" in preferred.said and "model.absent" in preferred.said
    finally:
        lab.run(HEAD, "mv", "/usr/bin/systemd-run.away", "/usr/bin/systemd-run")
    assert lab.run(HEAD, "sh", "-c", "ss -Hltn 'sport = :20300'") == "" and leavings(lab, HEAD) == ""


class _Every:
    """Calls a function repeatedly in a thread while its block runs."""

    def __init__(self, seconds: float, act: t.Callable[[], None]) -> None:
        self._stop = threading.Event()

        def work() -> None:
            while not self._stop.wait(seconds):
                act()

        self._thread = threading.Thread(target=work, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_given: object) -> None:
        self._stop.set()
        self._thread.join(30)
