# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which leftovers of a cluster on a node are no longer needed. This module util is PRIVATE to the collection.

This file only decides; it changes nothing. An entry of unknown owner is kept.
"""

from __future__ import annotations

import dataclasses
import os
import re
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import seconds_of
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_CLUSTER, LABEL_COMPANION, LABEL_OWNER, LABEL_ROLE, OWNER
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._image.images import with_tag
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.protocol import ENGINE_LOGS, RUN_ID

#: The label of images that the role image builds; its value is the digest of the recipe.
LABEL_RECIPE = "io.gb10.recipe"
#: The label with the id of the base image.
LABEL_BASE = "io.gb10.base"

#: Docker's states of a container that ended or never started. A restarting or paused container still holds resources.
STOPPED = ("exited", "created", "dead")

#: Role of the container that downloads a model, and the file name of its token.
DOWNLOAD = "download"
TOKEN = "hf_token"

#: Role of the companions' containers. They belong to their node, not to a cluster.
COMPANION = "companion"

#: Role of the short-lived containers that image_info starts. They belong to no cluster.
PROBE = "probe"
#: Seconds after which the files and containers of an image probe are leftovers: a live probe removes them within its own time limit.
PROBE_AGE = 3600

SECONDS_PER_DAY = 86400

#: The image role's build ends with labels: of the recipe, of its mods, or given to the build. An image with another newest layer was built by a user on
#: one of the collection's images.
_LAST_STEP = re.compile(r"\bLABEL\b.*\bio\.gb10\.(?:recipe|mods|base_digest|versions)=")

#: Logs below a cluster's log directory, by their relative path. Group ``run`` is the id of the engine's run.
_ENGINE_LOG = re.compile(rf"^{ENGINE_LOGS}/(?P<run>{RUN_ID.pattern})\.log(?:\.1)?$")
_OTHER_LOG = r"^(?:containers/gb10-{cluster}-[a-z]+-[0-9a-f]{{12}}\.log|recover/\d{{8}}T\d{{6}}Z\.txt)$"

#: The file of one image's contract, or of the proof that its container reaches the GPU, below the state directory's image-contracts. The group ``part``
#: marks a file that was not written completely.
_CONTRACT = re.compile(r"^(?P<id>[0-9a-f]{64})(?:\.gpu)?\.json(?P<part>\.\d+-\d+\.new)?$")


@dataclasses.dataclass(frozen=True)
class Candidate:
    """An entry that may be removed. ``age`` is in seconds, ``size`` in bytes.

    ``ref`` identifies it for the removal: a container's id, an image's references (its id without any), a file's path, and for a
    note also the id of the image that must be gone.
    """

    kind: str
    name: str
    ref: tuple[str, ...]
    age: int
    size: int
    why: str

    def view(self) -> dict[str, t.Any]:
        """Return it as an entry of the module's result."""
        return {"kind": self.kind, "name": self.name, "age_seconds": self.age, "size_bytes": self.size, "why": self.why}


class Left(t.NamedTuple):
    """An entry among this collection's files that is kept."""

    kind: str
    name: str
    why: str


class Judged(t.NamedTuple):
    """The entries that may be removed, and the entries that are kept although they might seem to belong to this collection."""

    candidates: list[Candidate]
    left: list[Left]


def age_of(then: float, now: float) -> int:
    """Return the whole seconds since ``then``; 0 when the clock was set back since."""
    return max(0, int(now - then))


# -- containers ------------------------------------------------------------------------------------------------------


def ended_at(inspected: dict[str, t.Any]) -> float:
    """Return when a stopped container ended, or was created when it never ran."""
    finished = inspected["State"].get("FinishedAt") or ""
    return seconds_of(inspected["Created"] if not finished or finished.startswith("0001-") else finished)


def why_container(inspected: dict[str, t.Any], cluster: str, age: int, companions: t.Collection[str] | None = None) -> str:
    """Return why a container may be removed, empty when it may not: it must carry our labels, belong to this cluster, and not run.

    ``companions`` are the names of those that are declared as containers; None if they are unknown, and then all of them stay.
    """
    labels, status = inspected["Config"].get("Labels") or {}, inspected["State"]["Status"]
    if labels.get(LABEL_OWNER) != OWNER or status not in STOPPED:
        return ""
    # A container of an image that was committed from the collection's container has that container's cluster label, too.
    if labels.get(LABEL_ROLE) == PROBE:
        return "left over from asking an image" if age >= PROBE_AGE else ""
    if labels.get(LABEL_ROLE) == COMPANION:
        return "" if companions is None or labels.get(LABEL_COMPANION) in companions else f"{status}, of a companion that is not declared"
    return status if labels.get(LABEL_CLUSTER) == cluster else ""


def containers(
    inspected: t.Iterable[dict[str, t.Any]],
    sizes: dict[str, int],
    cluster: str,
    now: float,
    at_work: t.Mapping[str, list[str]],
    companions: t.Collection[str] | None = None,
) -> Judged:
    """Judge the stopped containers of Docker's list. By id, ``sizes`` are the bytes that each wrote, ``at_work`` are the processes at work in it.

    ``companions`` are those of :func:`why_container`.
    """
    candidates, left = [], []
    for container in inspected:
        if container["State"]["Status"] in STOPPED:
            age = age_of(ended_at(container), now)
            why = why_container(container, cluster, age, companions)
            name, working = container["Name"].lstrip("/"), at_work.get(container["Id"])
            if why and working:
                left.append(Left("container", name, f"{why}, and yet at work: {'; '.join(working)}"))
            elif why:
                candidates.append(Candidate("container", name, (container["Id"],), age, sizes.get(container["Id"], 0), why))
    return Judged(sorted(candidates, key=lambda candidate: candidate.name), left)


def downloads(inspected: t.Iterable[dict[str, t.Any]], cluster: str, now: float) -> list[Candidate]:
    """Return this cluster's containers that still download a model. The caller has the cluster's lock, so no play waits for one."""
    wanted, why = {LABEL_OWNER: OWNER, LABEL_CLUSTER: cluster, LABEL_ROLE: DOWNLOAD}, "left running by a play that was interrupted, or one that runs now"
    return [
        Candidate("download", entry["Name"].lstrip("/"), (entry["Id"],), age_of(seconds_of(entry["State"].get("StartedAt") or entry["Created"]), now), 0, why)
        for entry in inspected
        if wanted.items() <= (entry["Config"].get("Labels") or {}).items() and entry["State"]["Status"] not in STOPPED
    ]


# -- images ----------------------------------------------------------------------------------------------------------


def references(image: dict[str, t.Any]) -> list[str]:
    """Return the tags of an image of Docker's list; none when it is dangling."""
    return [tag for tag in image.get("RepoTags") or [] if tag != "<none>:<none>"]


def built_by_us(history: list[dict[str, t.Any]]) -> bool:
    """Return whether an image's newest layer is the last step of our recipe: labels alone are inherited by images that others build on it."""
    return bool(history) and bool(_LAST_STEP.search(history[0].get("CreatedBy") or ""))


def images(
    listed: list[dict[str, t.Any]],
    histories: dict[str, list[dict[str, t.Any]]],
    sizes: dict[str, int],
    used: t.Collection[str],
    keep: t.Collection[str],
    days: int,
    now: float,
) -> Judged:
    """Judge the images that carry our label.

    One that no container uses may be removed when it no longer has a name (a rebuild took it), or when it was built more than ``days`` ago and
    none of its names is in ``keep``. ``histories`` and ``sizes`` are by id; the latter include every image, so that layers which a candidate shares
    with its base do not count as freed.
    """
    candidates, left = [], []
    kept = {with_tag(reference) for reference in keep}
    for image in listed:
        tags, age = references(image), age_of(image["Created"], now)
        name = ", ".join(tags) or image["Id"][:19]
        if not built_by_us(histories[image["Id"]]):
            left.append(Left("image", name, "built by a user on an image of the collection"))
        elif image["Id"] not in used and not kept & {*tags, *(image.get("RepoDigests") or []), image["Id"]}:
            why = "its name went to a newer build" if not tags else f"unused, built more than {days} days ago"
            if not tags or age >= days * SECONDS_PER_DAY:
                base = (image.get("Labels") or {}).get(LABEL_BASE, "")
                size = max(0, image["Size"] - sizes.get(base, 0))
                candidates.append(Candidate("image", name, tuple(tags) or (image["Id"],), age, size, why))
    return Judged(candidates, left)


# -- files -----------------------------------------------------------------------------------------------------------


def unreadable(path: str, error: OSError) -> UnknownState:
    """Return the error for a directory that cannot be read."""
    return UnknownState(f"{path} cannot be read: {error.strerror}", remedy="Run the task with become: true.", raw=str(error))


def files_below(root: str) -> list[tuple[str, os.stat_result]]:
    """Return (relative path, status) of every file below a directory, which includes links; links are not followed.

    An absent directory has no files. Raises :class:`UnknownState` when one cannot be read.
    """
    try:
        return [(entry.path, entry.status) for entry in untrusted.walk(root) if not stat.S_ISDIR(entry.status.st_mode)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(os.path.join(root, error.filename) if isinstance(error.filename, str) else root, error) from error


def logs(root: str, files: list[tuple[str, os.stat_result]], cluster: str, runs: t.Collection[str], days: int, now: float) -> Judged:
    """Judge the files below a cluster's log directory.

    A log of the collection may be removed when it was not written to for ``days``, unless it is one of ``runs`` or of the newest run there is.
    """
    of_other = re.compile(_OTHER_LOG.format(cluster=re.escape(cluster)))
    newest = max((match["run"] for match in (_ENGINE_LOG.match(path) for path, _status in files) if match), default="")
    candidates, left = [], []
    for path, status in files:
        of_engine = _ENGINE_LOG.match(path)
        name = os.path.join(root, path)
        if not stat.S_ISREG(status.st_mode) or not (of_engine or of_other.match(path)):
            left.append(Left("file", name, "not ours"))
            continue
        age = age_of(status.st_mtime, now)
        if age >= days * SECONDS_PER_DAY and not (of_engine and of_engine["run"] in {newest, *runs}):
            why = f"not written to for {days} days"
            candidates.append(Candidate("log", name, (name,), age, status.st_blocks * 512, why))
    return Judged(candidates, left)


def contracts(root: str, files: list[tuple[str, os.stat_result]], image_ids: t.Collection[str], now: float) -> Judged:
    """Judge the notes on images (image_info keeps one for each image that it examined): one whose image is gone may be removed."""
    candidates, left = [], []
    for path, status in files:
        match = _CONTRACT.match(path)
        name, age = os.path.join(root, path), age_of(status.st_mtime, now)
        if not match or not stat.S_ISREG(status.st_mode):
            left.append(Left("file", name, "not ours"))
        elif match["part"] and age >= PROBE_AGE:
            candidates.append(Candidate("note", name, (name,), age, status.st_blocks * 512, "half written"))
        elif not match["part"] and f"sha256:{match['id']}" not in image_ids:
            candidates.append(Candidate("note", name, (name, f"sha256:{match['id']}"), age, status.st_blocks * 512, "its image is gone"))
    return Judged(candidates, left)
