# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The packages that pip added to the node image, as files. This module util is PRIVATE to the collection.

With them the layer can be built again without Internet. The image has them already: they are for a newer collection with another recipe for the same
packages, or a lost image.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._bundle import content
from ansible_collections.gb10.cluster.plugins.module_utils._bundle.model_part import Item
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_OWNER, LABEL_ROLE, OWNER, EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import private, untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_identity
from ansible_collections.gb10.cluster.plugins.module_utils._model import copying

#: Directory of a bundle's packages, below that of the collection's state.
DIRECTORY = "wheels"
#: Seconds for pip's download of packages.
DOWNLOAD_SECONDS = 1800
_LINE = re.compile(r"(?P<name>\S+)==(?P<version>\S+) --hash=sha256:(?P<digest>[0-9a-f]{64})\Z")
#: Ending of packages that pip installs without building.
SUFFIX = ".whl"
#: Paths of the directory and of a CA bundle in the container.
TARGET, CA_TARGET = "/run/gb10/wheels", "/run/gb10/ca.crt"
#: Program in the container, with the lines of a lock as arguments: pip accepts hashes only in a file.
DOWNLOAD = f"""
import subprocess, sys, tempfile
with tempfile.NamedTemporaryFile("w", suffix=".txt") as lock:
    lock.write("\\n".join(sys.argv[1:]) + "\\n")
    lock.flush()
    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--only-binary=:all:", "--progress-bar=off"]
    sys.exit(subprocess.run([*argv, "--require-hashes", "--requirement", lock.name, "--dest", "{TARGET}"]).returncode)
"""


def hashes(lock: t.Iterable[str]) -> dict[str, str]:
    """Return the packages of a lock by the sha256 of their files. Raises :class:`ClusterError` for an invalid line."""
    packages = {}
    for line in lock:
        match = _LINE.match(line)
        if not match:
            raise ClusterError(f"the image's lock has the line {line[:100]!r}", expected="NAME==VERSION --hash=sha256:…", reason="input")
        packages[match["digest"]] = f"{match['name']}=={match['version']}"
    return packages


def lost(lock: t.Iterable[str], sums: t.Mapping[str, str]) -> list[str]:
    """Return the lines of a lock whose file a bundle lacks."""
    has = {digest for path, digest in sums.items() if path.startswith(f"{content.WHEELS}/")}
    return [f"{name} --hash=sha256:{digest}" for digest, name in hashes(lock).items() if digest not in has]


def lock_of(labels: t.Mapping[str, str]) -> list[str]:
    """Return the packages that pip added to an image of the collection, none for another one."""
    base = image_identity.base_of(labels)
    return base["lock"] if base else []


@contextlib.contextmanager
def downloaded(api: EngineApi, image: str, lines: t.Sequence[str], params: t.Mapping[str, t.Any]) -> t.Iterator[list[Item]]:
    """Download these packages to a temporary directory, and yield their files. Raises :class:`ClusterError`, OSError."""
    directory = os.path.join(params["state_dir"], f"bundle-{params['cluster_name']}.wheels")
    # Leftovers of a killed run.
    shutil.rmtree(directory, ignore_errors=True)
    private.ensure(directory)
    # The container writes there, and can change the mode of its mount, but not of the directory above.
    below = os.path.join(directory, content.WHEELS)
    os.mkdir(below)
    try:
        _download(api, image, lines, below, params["pip_env"], params["ca_file"])
        yield [
            Item(below, content.WHEELS, entry.path, entry.status.st_size, entry.status.st_mtime_ns)
            for entry in untrusted.walk(below)
            if "/" not in entry.path and entry.path.endswith(SUFFIX) and stat.S_ISREG(entry.status.st_mode)
        ]
    finally:
        shutil.rmtree(directory)


def _download(api: EngineApi, image: str, lock: t.Sequence[str], directory: str, env: t.Mapping[str, str], ca_file: str | None) -> None:
    """Have the image's own pip download these packages into a directory of this node. Raises :class:`ClusterError`."""
    # Bases set a constraint for additional packages; for pip an empty variable sets none.
    variables = {"PIP_CONSTRAINT": "", **{name: str(value) for name, value in env.items()}}
    mounts = [{"Type": "bind", "Source": directory, "Target": TARGET}]
    if ca_file:
        variables["PIP_CERT"] = CA_TARGET
        mounts.append({"Type": "bind", "Source": ca_file, "Target": CA_TARGET, "ReadOnly": True})
    done = api.run_throwaway(
        image,
        ["python3", "-c", DOWNLOAD, *lock],
        labels={LABEL_OWNER: OWNER, LABEL_ROLE: "probe"},
        timeout=DOWNLOAD_SECONDS,
        network="bridge",
        env=variables,
        mounts=mounts,
    )
    if done.rc != 0:
        raise ClusterError(
            f"pip did not download the packages of {image}: {' '.join((done.stdout + done.stderr).split())[-500:]}",
            remedy="Check whether containers here reach the index (gb10_build_ca_file, gb10_build_pip_env), or use -e gb10_bundle=export_without_packages",
            reason="no packages",
            raw=(done.stdout + done.stderr)[-2000:],
        )


def entries_of(lock: t.Iterable[str], seen: content.Seen, items: t.Sequence[Item]) -> list[dict[str, t.Any]]:
    """Return a bundle's description of its packages: those of a lock that it has, and these. They have no time, since equal packages may differ in it."""
    of_lock, folder = hashes(lock), f"{content.WHEELS}/"
    sizes = {path.removeprefix(folder): seen.files[path].st_size for path, digest in seen.sums.items() if path.startswith(folder) and digest in of_lock}
    return copying.rows(copying.Entry(name, "file", size) for name, size in sorted((sizes | {item.name: item.size for item in items}).items()))


def model_of(state_dir: str, about: content.About) -> dict[str, t.Any]:
    """Return the packages of a bundle as a model in a plain directory, as which a node imports them."""
    return {"repo": os.path.join(state_dir, DIRECTORY), "below": content.WHEELS, "entries": about["wheels"]}
