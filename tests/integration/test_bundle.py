# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A bundle from one lab brings the other lab to a token, although its nodes have no image, no model and no route to the outside.

The first lab uses Docker's classic image store, the second one uses containerd's.
"""

from __future__ import annotations

import concurrent.futures
import functools
import subprocess
import typing as t
from pathlib import Path

import pytest

from .lab import LABS, ROOT, Lab, Play

SOURCE, SOURCE_WORKER = LABS["lab"]
HEAD, WORKER = LABS["lab_next"]
NODE_IMAGE, BASE = "gb10-lab/engine-ray:0.32.0", "gb10-lab/engine:0.32.0"
CACHE = "/home/spark/.cache/huggingface/hub"
MODEL, AWAY = f"{CACHE}/models--gb10-lab--tiny-llama", "/home/spark/.cache/huggingface/away"
#: More free space than any lab has.
FULL = {"disk.free": {"least_gib": 100_000, "why": "a test"}}
WRITTEN, CARRIED, KEPT = "/var/lib/gb10-bundle", "/home/spark/bundle", "/var/lib/gb10-kept.tar"
#: Kills the module on a node when a file exists, but not this shell or the process that waits for the module. Systemd would expand a dollar sign.
KILL = (
    "until ls {pattern} >/dev/null 2>&1; do sleep 0.1; done; "
    "until pkill --signal KILL --full 'python[^ ]* [^ ]*/[A]nsiballZ_bundle.py'; do sleep 0.1; done"
)


class Labs(t.NamedTuple):
    """The lab that exports, and the one that imports."""

    source: Lab
    target: Lab


def on_each(hosts: t.Sequence[str], act: t.Callable[[str], t.Any]) -> dict[str, t.Any]:
    with concurrent.futures.ThreadPoolExecutor(len(hosts)) as pool:
        return dict(zip(hosts, pool.map(act, hosts)))


def image_id(lab: Lab, host: str, name: str = NODE_IMAGE) -> str:
    """Return an image's id on a node, empty when it is absent."""
    return lab.run(host, "sh", "-c", 'docker image inspect --format "{{.Id}}" "$1" 2>/dev/null || true', "sh", name).strip()


def bundle(lab: Lab, verb: str, directory: str, **more: t.Any) -> Play:
    return lab.play("bundle", gb10_bundle=verb, gb10_bundle_dir=directory, **more)


def result(played: Play) -> dict[str, t.Any]:
    """Return the play's result for the only node that it worked on."""
    (report,) = played.stat("gb10_bundled")["nodes"].values()
    return report


def killed(lab: Lab, host: str, pattern: str, verb: str, directory: str) -> Play:
    """Run a play, and kill the module on its node as soon as a file exists."""
    lab.run(host, "systemd-run", "--quiet", "--unit=gb10-test-kill", "--collect", "sh", "-c", KILL.format(pattern=pattern))
    try:
        return bundle(lab, verb, directory)
    finally:
        lab.run(host, "systemctl", "stop", "gb10-test-kill", check=False)


def carry() -> None:
    """Copy the bundle as a person without root does, so owners and times are lost."""
    argv = ["docker", "exec", f"gb10-lab-{SOURCE}", "tar", "-C", WRITTEN, "-c", "."]
    into = ["docker", "exec", "-i", "--user", "spark", f"gb10-lab-{HEAD}", "sh", "-c", f"mkdir -p {CARRIED} && tar -C {CARRIED} -x -m"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as packing:
        subprocess.run(into, stdin=packing.stdout, timeout=600, check=True)
    assert packing.returncode == 0


def forget_images(lab: Lab, host: str) -> None:
    names = lab.run(host, "docker", "images", "--format", "{{.Repository}}:{{.Tag}}", "gb10-lab/*").split()
    if names:
        lab.run(host, "docker", "rmi", "--force", *names, timeout=300)
    lab.run(host, "docker", "image", "prune", "--all", "--force", timeout=300)


def down(lab: Lab, hosts: t.Sequence[str]) -> None:
    if any(lab.containers(host) for host in hosts):
        played = lab.play("teardown", gb10_allow="interrupt")
        assert played.rc == 0, played.failures


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Labs]:
    """A lab with image and model, and one with neither and without a route to the outside. Both are restored afterwards."""
    for name in LABS:
        if not (ROOT / "inventories" / name / "hosts.yml").exists():
            pytest.fail(f"the lab {name} is not up; run `make lab-up` and `python tests/lab/lab.py --lab next up` first")
    made = Labs(*(Lab(tmp_path_factory.mktemp(name), (ROOT / "inventories" / name,)) for name in LABS))
    source, target = made
    routes: dict[str, list[str]] = {}
    down(source, (SOURCE, SOURCE_WORKER))
    down(target, (HEAD, WORKER))
    played = source.play("serve", tags="image,model")
    assert played.rc == 0, played.failures
    on_each((HEAD, WORKER), lambda host: target.run(host, "docker", "save", "--output", KEPT, BASE, timeout=600))
    try:
        for host in (HEAD, WORKER):
            forget_images(target, host)
            target.run(host, "mv", MODEL, AWAY)
            routes[host] = target.run(host, "ip", "route", "show", "default").splitlines()
            for route in routes[host]:
                target.run(host, "ip", "route", "del", *route.split())
        yield made
    finally:
        down(target, (HEAD, WORKER))
        for host, node_routes in routes.items():
            for route in node_routes:
                target.run(host, "ip", "route", "add", *route.split())
        source.run(SOURCE, "rm", "-rf", WRITTEN)
        target.run(HEAD, "rm", "-rf", CARRIED)

        def put_back(host: str) -> None:
            target.run(host, "sh", "-c", f"if [ -d {AWAY} ]; then rm -rf {MODEL} {CACHE}/.gb10-copy; mv {AWAY} {MODEL}; fi")
            target.run(host, "rm", "-rf", "/var/lib/gb10/wheels", "/var/lib/gb10/model-code")
            forget_images(target, host)
            target.run(host, "docker", "load", "--quiet", "--input", KEPT, timeout=600)
            target.run(host, "rm", KEPT)

        on_each((HEAD, WORKER), put_back)


def sign(lab: Lab, place: Path) -> Path:
    """Sign the copied bundle as its maker does, and return the file of allowed signers."""
    run = functools.partial(subprocess.run, check=True, timeout=60)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / "key"])
    (place / "SHA256SUMS").write_text(lab.run(HEAD, "cat", f"{CARRIED}/SHA256SUMS"))
    run(["ssh-keygen", "-q", "-Y", "sign", "-f", place / "key", "-n", "file", place / "SHA256SUMS"])
    lab.run(HEAD, "sh", "-c", 'printf "%s" "$1" > "$2"', "sh", (place / "SHA256SUMS.sig").read_text(), f"{CARRIED}/SHA256SUMS.sig")
    signers = place / "signers"
    signers.write_text(f"maker@example.org {(place / 'key.pub').read_text()}")
    return signers


def test_a_bundle_of_one_lab_carries_another_one_to_a_token(labs: Labs, tmp_path: Path) -> None:
    source, target = labs
    predicted = source.play("bundle", check=True, gb10_bundle="export", gb10_bundle_dir=WRITTEN)
    assert predicted.rc == 0 and list(predicted.changed) == [SOURCE] and "would be written" in predicted.said, predicted.failures
    assert source.run(SOURCE, "sh", "-c", f"ls -d {WRITTEN} 2>/dev/null || true") == ""

    # Killed when the image is complete: it already has its final name, and the next run does not write it again.
    ended = killed(source, SOURCE, f"{WRITTEN}/image/*.tar", "export", WRITTEN)
    assert ended.rc != 0
    names = source.run(SOURCE, "ls", WRITTEN).split()
    assert "bundle.unfinished" in names and "SHA256SUMS" not in names, names
    kept = source.run(SOURCE, "sh", "-c", f"ls {WRITTEN}/image").split()
    assert source.run(SOURCE, "pgrep", "--full", "[d]ocker.* save|[r]sync .*--files-from", check=False) == ""
    exported = bundle(source, "export", WRITTEN)
    assert exported.rc == 0, exported.failures
    about = result(exported)
    assert len(kept) == 1 and not any(path.startswith("image/") for path in about["written"]) and about["bundle"]["wheels"] > 0
    assert about["bundle"]["digest"] in exported.said and "root" in exported.said
    again = bundle(source, "export", WRITTEN)
    assert again.rc == 0 and again.changed == {} and result(again)["bytes"] == 0, again.failures

    carry()
    # Coreutils are enough to check it.
    checked = target.run(HEAD, "sh", "-c", f"cd {CARRIED} && sha256sum --check --strict --quiet SHA256SUMS && sha256sum SHA256SUMS")
    assert checked.split()[0] == about["bundle"]["digest"]
    signers = sign(target, tmp_path)
    assert image_id(target, HEAD) == image_id(target, WORKER) == image_id(target, HEAD, BASE) == ""
    assert target.run(HEAD, "ip", "route", "get", "192.0.2.1", check=False) == ""

    # A disk that is too small is reported before the first byte is written, in check mode too.
    for check in (True, False):
        small = target.play("bundle", check=check, gb10_bundle="import", gb10_bundle_dir=CARRIED, gb10_rules=FULL)
        assert small.rc != 0 and "GiB free; expected" in small.said and image_id(target, HEAD) == ""

    # Killed while the engine loads the image: no part of it has a name.
    ended = killed(target, HEAD, "/var/lib/gb10/bundle-gb10.json", "import", CARRIED)
    assert ended.rc != 0 and image_id(target, HEAD) == "" and MODEL not in target.run(HEAD, "sh", "-c", f"ls -d {CACHE}/* 2>/dev/null || true")

    # Flip a byte of a shard, and keep its size and time.
    listed = target.run(HEAD, "sh", "-c", f"cd {CARRIED} && find hub -type f -printf '%s %p\\n' | sort -n").split()
    shard = listed[-1]
    flip = (
        "import os, sys; path = sys.argv[1]; status = os.stat(path); file = open(path, 'r+b'); file.seek(1000); byte = file.read(1)[0]; file.seek(1000); "
        "file.write(bytes([byte ^ 1])); file.close(); os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))"
    )
    target.run(HEAD, "python3", "-c", flip, f"{CARRIED}/{shard}")
    for verb in ("verify", "import"):
        flipped = bundle(target, verb, CARRIED)
        assert flipped.rc != 0 and "differ from the export" in flipped.said and shard in flipped.said, flipped.said[-2000:]
    assert target.run(HEAD, "sh", "-c", f"ls {MODEL}/blobs {MODEL}/snapshots 2>/dev/null || true") == ""
    loaded = image_id(target, HEAD)
    assert loaded != ""
    target.run(HEAD, "python3", "-c", flip, f"{CARRIED}/{shard}")

    # Complete parts are not read again: the image, and files with their final names.
    imported = bundle(target, "import", CARRIED, gb10_bundle_signers=str(signers))
    assert imported.rc == 0, imported.failures
    about = result(imported)
    assert not any(path.startswith("image/") for path in about["written"]) and about["left_out"] == [] and image_id(target, HEAD) == loaded
    assert about["signed_by"] == "maker@example.org" and "maker@example.org" in imported.said
    assert image_id(target, WORKER) == "" and about["bundle"]["image_config"] == image_id(source, SOURCE)
    owners = set(target.run(HEAD, "find", MODEL, "-printf", "%u\n").split())
    assert owners == {"spark"}
    for check in (True, False):
        again = target.play("bundle", check=check, gb10_bundle="import", gb10_bundle_dir=CARRIED)
        assert again.rc == 0 and again.changed == {} and result(again)["bytes"] == 0, again.failures

    # From here on the ordinary play is used.
    served = target.play(gb10_offline=True)
    assert served.rc == 0, served.failures
    ran = {task for _role, task in served.tasks()}
    assert not ran & {"Pull the base image", "Build the node image", "Ask the registry what the base is now", "Download what is missing from the hub"}
    assert image_id(target, WORKER) == image_id(target, HEAD) == loaded
    report = served.stat("gb10_report")
    assert {proof["verdict"] for proof in report["proofs"]} == {"pass"} and report["endpoint"]
    again = target.play(gb10_offline=True)
    assert again.rc == 0 and again.changed == {}, again.failures
    verified = target.play("serve", tags="model", gb10_model_verify="full", gb10_offline=True)
    assert verified.rc == 0 and verified.changed == {}, verified.failures


def test_the_layer_is_built_again_from_the_packages_of_the_bundle(labs: Labs) -> None:
    _source, target = labs
    before = image_id(target, HEAD)
    assert before, "the test before this one imports the image"
    down(target, (HEAD, WORKER))
    built = target.play("serve", tags="image", gb10_allow="rebuild", gb10_offline=True)
    assert built.rc == 0, built.failures
    after = image_id(target, HEAD)
    assert after not in ("", before) and after == image_id(target, WORKER)
    again = target.play("serve", tags="image", gb10_offline=True)
    assert again.rc == 0 and again.changed == {}, again.failures
