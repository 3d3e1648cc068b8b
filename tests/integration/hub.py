# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stand-in for huggingface.co (tests/lab/hub) and a registry (tests/lab/registry), each in a container beside the lab's nodes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import struct
import subprocess
import time
import typing as t
import urllib.request
from pathlib import Path

from .lab import HEAD, INVENTORY, ROOT, WORKER, Lab
from .making import listening, relaying

LAB = ROOT / "tests" / "lab"
CONTAINER, PORT = "gb10-lab-hub", 8080
NETWORK = {"lab": "gb10-lab-mgmt", "lab_next": "gb10-lab-next-mgmt"}[INVENTORY.name]


def docker(*argv: str) -> str:
    return subprocess.run(["docker", *argv], capture_output=True, text=True, timeout=120, check=True).stdout.strip()


class Hub:
    """A running stand-in."""

    def __init__(self, url: str) -> None:
        self.url = url

    def _ask(self, order: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        data = None if order is None else json.dumps(order).encode()
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/_control", data), timeout=10) as answer:
            return json.load(answer)

    def control(self, **order: t.Any) -> None:
        """Configure the stand-in: ``reset``, ``tokens``, ``faults``."""
        self._ask(order)

    def seen(self) -> list[dict[str, t.Any]]:
        """Return all requests since the last reset."""
        return self._ask()["seen"]

    def sent(self) -> dict[tuple[str, str], int]:
        """Return the number of bytes sent, by client and path."""
        totals: dict[tuple[str, str], int] = {}
        for request in self.seen():
            if request["sent"]:
                totals[request["client"], request["path"]] = totals.get((request["client"], request["path"]), 0) + request["sent"]
        return totals


def _ready(url: str) -> Hub:
    """Wait until a stand-in answers."""
    made = Hub(url)
    end = time.monotonic() + 120
    while True:
        try:
            made.seen()
            return made
        except OSError as error:
            assert time.monotonic() < end, f"{url} does not answer: {error}"
            time.sleep(0.2)


@contextlib.contextmanager
def _container(name: str, files: dict[Path, str], *argv: str) -> t.Iterator[str]:
    """Run a program with these files in a container of the nodes' image on the management network. Yields its address."""
    with contextlib.suppress(subprocess.CalledProcessError):
        docker("rm", "--force", name)
    image = docker("inspect", "--format", "{{.Config.Image}}", f"gb10-lab-{HEAD}")
    options = ("--label", "io.gb10.lab=1", "--name", name, "--network", NETWORK, "--entrypoint", argv[0])
    docker("create", *options, image, *argv[1:])
    try:
        for path, place in files.items():
            docker("cp", str(path), f"{name}:{place}")
        docker("start", name)
        yield docker("inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", name)
    finally:
        docker("rm", "--force", "--volumes", name)


@contextlib.contextmanager
def hub(directory: Path) -> t.Iterator[Hub]:
    """Serve the repositories of a directory to both nodes."""
    files = {LAB / "hub" / "stand_in.py": "/srv/stand_in.py", directory: "/srv/hub"}
    with _container(CONTAINER, files, "python3", "/srv/stand_in.py", "/srv/hub", "--port", str(PORT)) as address:
        yield _ready(f"http://{address}:{PORT}")


#: Unpack and start Debian's registry and the gate in front of it. Arguments: the gate's port, the registry's port.
REGISTRY = """
set -e
mkdir /srv/registry && cd /srv/registry
apt-get update -q && apt-get download -q docker-registry && dpkg-deb -x *.deb .
printf 'version: 0.1\nstorage: {filesystem: {rootdirectory: /srv/registry/data}}\nhttp: {addr: ":%s"}\n' "$2" > config.yml
usr/bin/docker-registry serve config.yml &
exec python3 /srv/gate.py "$1" "$2"
"""


class Registry(t.NamedTuple):
    """A registry. Both nodes reach it as ``place``. ``gate`` records all reads. ``direct`` bypasses the gate, for a push from the head."""

    gate: Hub
    place: str
    direct: str


@contextlib.contextmanager
def registry(lab: Lab) -> t.Iterator[Registry]:
    """Run Debian's registry. Both nodes reach it as localhost, the only address that an engine trusts without TLS."""
    files = {LAB / "hub" / "stand_in.py": "/srv/stand_in.py", LAB / "registry" / "gate.py": "/srv/gate.py"}
    gate, direct = 5000, 5001
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(_container("gb10-lab-registry", files, "sh", "-c", REGISTRY, "sh", str(gate), str(direct)))
        made = _ready(f"http://{address}:{gate}")
        for host in (HEAD, WORKER):
            stack.enter_context(listening(lab, host, gate, relaying(address, [gate, direct])))
        yield Registry(made, f"localhost:{gate}", f"localhost:{direct}")


def commit_of(repo: str) -> str:
    """Return the only commit of a repository in the stand-in."""
    return hashlib.sha1(repo.encode()).hexdigest()


def safetensors(size: int, seed: str) -> bytes:
    """Return a weights file with ``size`` bytes of weights. The same seed gives the same file."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + random.Random(seed).randbytes(size)


def lay(directory: Path, repo: str, files: dict[str, bytes], shards: t.Sequence[int] = ()) -> dict[str, bytes]:
    """Lay out a repository for the stand-in, with shards of these sizes and their index; returns its files."""
    names = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    weights = {name: safetensors(size, f"{repo}/{name}") for name, size in zip(names, shards)}
    index = {"model.safetensors.index.json": json.dumps({"weight_map": {name: name for name in names}}).encode()} if shards else {}
    whole = {**files, **index, **weights}
    for name, data in whole.items():
        path = directory / repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return whole
