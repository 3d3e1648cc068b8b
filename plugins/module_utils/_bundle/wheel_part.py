# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The packages that pip added to the node image, as files. This module util is PRIVATE to the collection.

With them the layer can be built again without Internet. The image has them already. They are for the day when a newer collection has another recipe for
the same packages, or the image is lost.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._bundle import content
from ansible_collections.gb10.cluster.plugins.module_utils._bundle.content import Row
from ansible_collections.gb10.cluster.plugins.module_utils._bundle.place import Item, Place, chunks_of, written
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_OWNER, LABEL_ROLE, OWNER, EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted

_LINE = re.compile(r"(?P<name>\S+)==(?P<version>\S+) --hash=sha256:(?P<digest>[0-9a-f]{64})\Z")
#: What pip installs without building anything.
SUFFIX = ".whl"
#: Where the container has the directory, and a CA bundle.
TARGET, CA_TARGET = "/run/gb10/wheels", "/run/gb10/ca.crt"
#: Run in a container with the lines of a lock as arguments: pip takes hashes from a file alone.
DOWNLOAD = f"""
import subprocess, sys, tempfile
with tempfile.NamedTemporaryFile("w", suffix=".txt") as lock:
    lock.write("\\n".join(sys.argv[1:]) + "\\n")
    lock.flush()
    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--only-binary=:all:", "--progress-bar=off"]
    sys.exit(subprocess.run([*argv, "--require-hashes", "--requirement", lock.name, "--dest", "{TARGET}"]).returncode)
"""


def hashes(lock: t.Iterable[str]) -> dict[str, str]:
    """Return the packages of a lock by the sha256 of their files. Raises :class:`ClusterError` for a line that names none."""
    found = {}
    for line in lock:
        match = _LINE.match(line)
        if not match:
            raise ClusterError(f"the image's lock has the line {line[:100]!r}", expected="NAME==VERSION --hash=sha256:…", reason="input")
        found[match["digest"]] = f"{match['name']}=={match['version']}"
    return found


def there(directory: str) -> dict[str, str]:
    """Return the names of the wheels in a directory by their sha256; none when it is absent. Raises OSError."""
    found = {}
    try:
        entries = list(untrusted.walk(directory))
    except FileNotFoundError:
        return {}
    for entry in entries:
        if "/" not in entry.path and entry.path.endswith(SUFFIX):
            with contextlib.suppress(untrusted.Tampered), untrusted.reader(directory, entry.path, own=False) as stream:
                digest = hashlib.sha256()
                for chunk in chunks_of(stream):
                    digest.update(chunk)
                found[digest.hexdigest()] = entry.path
    return found


def exported(lock: t.Iterable[str], place: Place, directory: str | None) -> tuple[list[Item], list[str]]:
    """Return the files of a bundle for these packages, and the lines of the lock whose file is neither in it nor in a directory. Raises OSError."""
    known = {row.sha256: row for row in place.seen.files.values() if row.path.startswith(f"{content.WHEELS}/")}
    names = there(directory) if directory else {}
    items, lost = [], []
    for digest, name in hashes(lock).items():
        if digest in names and directory:
            size = os.path.getsize(os.path.join(directory, names[digest]))
            items.append(Item(f"{content.WHEELS}/{names[digest]}", size, _chunks(directory, names[digest]), digest))
        elif digest in known and place.has(item := Item(known[digest].path, known[digest].size, lambda: iter(()), digest)):
            items.append(item)
        else:
            lost.append(f"{name} --hash=sha256:{digest}")
    return items, lost


def fetch(api: EngineApi, image: str, lock: t.Sequence[str], directory: str, env: t.Mapping[str, str], ca_file: str | None, timeout: float) -> None:
    """Have the image's own pip download these packages into a directory of this node. Raises :class:`ClusterError`."""
    # Bases set a constraint for what users add; an empty variable is none for pip.
    variables = {"PIP_CONSTRAINT": "", **{name: str(value) for name, value in env.items()}}
    mounts = [{"Type": "bind", "Source": directory, "Target": TARGET}]
    if ca_file:
        variables["PIP_CERT"] = CA_TARGET
        mounts.append({"Type": "bind", "Source": ca_file, "Target": CA_TARGET, "ReadOnly": True})
    argv = ["python3", "-c", DOWNLOAD, *lock]
    done = api.run_throwaway(
        image, argv, labels={LABEL_OWNER: OWNER, LABEL_ROLE: "probe"}, timeout=timeout, network="bridge", env=variables, mounts=mounts
    )
    if done.rc != 0:
        words = " ".join((done.stdout + done.stderr).split())[-500:]
        raise ClusterError(
            f"pip did not download the packages of {image}: {words}",
            remedy="See whether containers here reach the index (gb10_build_ca_file, gb10_build_pip_env), or leave them out: -e gb10_bundle_wheels=false",
            reason="no packages",
            raw=(done.stdout + done.stderr)[-2000:],
        )


def _chunks(directory: str, name: str) -> t.Callable[[], t.Iterator[memoryview]]:
    def chunks() -> t.Iterator[memoryview]:
        with untrusted.reader(directory, name, own=False) as stream:
            yield from chunks_of(stream)

    return chunks


def wanted(directory: str | None, rows: t.Iterable[Row]) -> list[Row]:
    """Return the wheels of a bundle that a directory lacks, by name and size. Raises :class:`ClusterError` for one of that name and another size."""
    found, other = [], []
    for row in rows if directory else []:
        folder, _slash, name = row.path.rpartition("/")
        if folder != content.WHEELS or not name.endswith(SUFFIX):
            continue
        try:
            size = os.lstat(os.path.join(directory or "", name)).st_size
        except FileNotFoundError:
            found.append(row)
            continue
        if size != row.size:
            other.append(os.path.join(directory or "", name))
    if other:
        raise ClusterError(
            f"{len(other)} file(s) here have the name of a package of the bundle, and other content: {content.named(other)}; nothing was replaced",
            remedy="Move them away, and import again.",
            reason="other content",
            files=other,
        )
    return found


def imported(directory: str | None, place: Place, rows: t.Sequence[Row], tick: t.Callable[[int], None]) -> None:
    """Bring wheels from a bundle into a directory of root's. Raises :class:`ClusterError`, OSError."""
    for row in rows:
        os.makedirs(str(directory), mode=0o755, exist_ok=True)
        part = os.path.join(str(directory), content.PART)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            written(descriptor, place.chunks(row), tick)
        finally:
            os.close(descriptor)
        os.rename(part, os.path.join(str(directory), row.path.rpartition("/")[2]))
