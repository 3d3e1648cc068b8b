# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What this machine has and can do, and a Docker engine on it."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import urllib.parse

from .common import LAB_DIR, LABEL, REPOSITORY, LabError, docker, run, step, succeeds, wait_until
from .labs import Lab

GIB = 1024**3
# Measured on the first run: 9 GiB at the peak of the image build, 5 GiB afterwards, 2 nodes with 1.2 GiB of engine each.
DISK_NEEDED = 15 * GIB
DISK_NEEDED_WITH_CACHE = 4 * GIB
MEMORY_NEEDED = 8 * GIB

SYSTEM_BUNDLE = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
# A bundle named here, or a certificate that was added to the system's, means that TLS is re-signed on this network.
BUNDLE_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
ADDED_CERTIFICATES = pathlib.Path("/usr/local/share/ca-certificates")
PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
PIP_URL_VARIABLES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")


@dataclasses.dataclass(frozen=True)
class Abilities:
    """What the engine lets a container have. ``memlock`` is the hard limit in bytes, -1 for unlimited."""

    privileged: bool
    memlock: int
    cgroup_version: int


def engine_answers() -> bool:
    """Whether a Docker engine answers this user."""
    return succeeds(["docker", "info", "--format", "{{.ID}}"], timeout=20)


def free_disk() -> tuple[str, int]:
    """Where the engine keeps its data (or would), and the bytes free there."""
    root = docker("info", "--format", "{{.DockerRootDir}}") if engine_answers() else "/var/lib"
    place = pathlib.Path(root)
    # This user may not be allowed to enter the directory; its nearest visible parent is on the same disk in nearly all layouts.
    while not os.access(place, os.X_OK):
        place = place.parent
    return root, shutil.disk_usage(place).free


def available_memory() -> int:
    """Bytes of memory that could be used without swapping (MemAvailable)."""
    for line in pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise LabError("/proc/meminfo has no MemAvailable")


def ca_bundle() -> pathlib.Path | None:
    """The CA bundle that containers need in order to reach package indexes from here; None on an ordinary network."""
    for variable in BUNDLE_VARIABLES:
        value = os.environ.get(variable)
        if value and pathlib.Path(value).is_file():
            return pathlib.Path(value)
    if SYSTEM_BUNDLE.is_file() and any(ADDED_CERTIFICATES.glob("**/*.crt")):
        return SYSTEM_BUNDLE
    return None


def is_remote(url: str) -> bool:
    """Whether a URL means the same from inside a container: neither a file nor this machine's loopback."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme in ("http", "https") and parts.hostname not in ("localhost", "127.0.0.1", "::1")


def pip_environment() -> dict[str, str]:
    """pip's index variables of this environment, as far as they can be reached from a container."""
    environment = {}
    for variable in PIP_URL_VARIABLES:
        urls = [url for url in os.environ.get(variable, "").split() if is_remote(url)]
        if urls:
            environment[variable] = " ".join(urls)
    return environment


def local_wheels() -> list[pathlib.Path]:
    """The wheels in local directories of PIP_FIND_LINKS."""
    wheels: list[pathlib.Path] = []
    for entry in os.environ.get("PIP_FIND_LINKS", "").split():
        wheels.extend(sorted(pathlib.Path(entry.removeprefix("file://")).glob("*.whl")))
    return wheels


def proxies() -> dict[str, str]:
    """The proxy variables that are set here."""
    return {name: os.environ[name] for name in PROXY_VARIABLES if os.environ.get(name)}


def nameservers() -> list[str]:
    """The machine's name servers without those on loopback, which no container could reach."""
    for path in (pathlib.Path("/run/systemd/resolve/resolv.conf"), pathlib.Path("/etc/resolv.conf")):
        if path.is_file():
            words = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
            servers = [entry[1] for entry in words if len(entry) > 1 and entry[0] == "nameserver"]
            return [server for server in servers if not server.startswith("127.") and server != "::1"]
    return []


def probe(image: str) -> Abilities:
    """Ask the engine, with throw-away containers of an image, what it lets a container have."""

    def try_run(*options: str, command: tuple[str, ...] = ("true",)) -> list[str]:
        return ["docker", "run", "--rm", "--label", LABEL, "--network", "none", *options, image, *command]

    if succeeds(try_run("--ulimit", "memlock=-1:-1")):
        memlock = -1
    else:
        limit = run(try_run(command=("sh", "-c", "ulimit -H -l")))
        memlock = -1 if limit == "unlimited" else int(limit) * 1024
    return Abilities(
        privileged=succeeds(try_run("--privileged")),
        memlock=memlock,
        cgroup_version=int(docker("info", "--format", "{{.CgroupVersion}}")),
    )


def apt_install(*packages: str) -> None:
    """Install Debian or Ubuntu packages. Raises LabError without root or apt-get."""
    if os.geteuid() != 0:
        raise LabError(f"not installed: {', '.join(packages)}. Install them, or run this once as root")
    if shutil.which("apt-get") is None:
        raise LabError(f"not installed: {', '.join(packages)}, and this machine has no apt-get. Install them by hand")
    with step(f"installing {', '.join(packages)}"):
        run(["apt-get", "update"], timeout=300)
        run(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", "--no-install-recommends", *packages], timeout=900)


def ensure_engine() -> None:
    """See to it that a Docker engine answers: the one that runs, else the one installed, else Debian's.

    Raises LabError when this user may not use it or may not install it.
    """
    if engine_answers():
        return
    if os.geteuid() != 0:
        raise LabError("no Docker engine answers this user. Join the group `docker` (then log in again), or run this as root")
    if shutil.which("dockerd") is None:
        apt_install("docker.io", "iptables")
    if shutil.which("docker") is None:
        # Debian 13 and later ship the client on its own.
        apt_install("docker-cli")
    with step("starting the Docker engine"):
        if pathlib.Path("/run/systemd/system").is_dir():
            run(["systemctl", "start", "docker"], timeout=120)
        elif not engine_answers():
            start_engine_detached()
        wait_until(engine_answers, "the Docker engine to answer", timeout=60)


def start_engine_detached() -> None:
    """Start dockerd without an init system: its own session, log and pid file in .lab/."""
    LAB_DIR.mkdir(mode=0o700, exist_ok=True)
    with (LAB_DIR / "dockerd.log").open("ab") as log:
        subprocess.Popen(
            ["dockerd", "--pidfile", str(LAB_DIR / "dockerd.pid")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def plan(lab: Lab, cached: bool) -> list[str]:
    """What `up` of a lab will install and make on this machine, in words."""
    if engine_answers():
        todo = ["use the Docker engine that runs (" + docker("version", "--format", "{{.Server.Version}}") + ")"]
    elif shutil.which("dockerd"):
        todo = ["start the Docker engine that is installed"]
    else:
        todo = ["install the Docker engine of the distribution: docker.io, iptables (apt-get)"]
    if shutil.which("ssh-keygen") is None:
        todo.append("install openssh-client (apt-get)")
    if not cached:
        todo.append("make the images gb10-lab/base, node and engine from Debian and Python packages: 0.7 GB of downloads, 4 to 8 minutes, once")
    todo += [
        f"make the volume gb10-lab-store, the networks {lab.management} and {lab.fabric}, "
        f"the containers {' and '.join(node.container for node in lab.nodes)}",
        f"write .lab/ (ssh key) and {lab.inventory.relative_to(REPOSITORY)}/hosts.yml in this clone",
    ]
    return todo


def check(lab: Lab, cached: bool) -> None:
    """Print needed against found and the plan. Raises LabError when something is short. ``cached``: the images are already made."""
    root, disk = free_disk()
    disk_needed = DISK_NEEDED_WITH_CACHE if cached else DISK_NEEDED
    memory = available_memory()
    reachable = engine_answers()
    rows = [
        (f"disk at {root}", f"{disk_needed / GIB:.0f} GiB free", f"{disk / GIB:.1f} GiB", disk >= disk_needed),
        ("memory", f"{MEMORY_NEEDED / GIB:.0f} GiB available", f"{memory / GIB:.1f} GiB", memory >= MEMORY_NEEDED or cached),
        ("rights", "Docker or root", "Docker answers" if reachable else f"uid {os.geteuid()}", reachable or os.geteuid() == 0),
    ]
    print(f"  {'':32}{'needed':24}{'found':18}")
    for name, needed, actual, enough in rows:
        print(f"  {name:32}{needed:24}{actual:18}{'ok' if enough else 'NOT ENOUGH'}")
    bundle = ca_bundle()
    print(f"  CA bundle for the nodes: {bundle or 'not needed'}; pip: {json.dumps(pip_environment())}; local wheels: {len(local_wheels())}")
    print("  It will:")
    for line in plan(lab, cached):
        print(f"    - {line}")
    short = [name for name, _needed, _actual, enough in rows if not enough]
    if short:
        raise LabError(f"not enough: {', '.join(short)}")
