# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One node's container: the wanted one, the current one, and the steps from one to the other. This module util is PRIVATE to the collection.

A wanted container has its ``fields``, which a user sees and sets, and the command and environment that its executor derives from them.
Only fields are compared: a new version of the collection may derive other values from the same fields, and must not restart a container
for that.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._clock import boot_seconds
from ansible_collections.gb10.cluster.plugins.module_utils._docker import confinement
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import (
    LABEL_CLUSTER,
    LABEL_ENTRYPOINT,
    LABEL_FIELDS,
    LABEL_OWNER,
    LABEL_ROLE,
    LABEL_SPEC,
    OWNER,
    find_node_container,
    node_container_name,
)
from ansible_collections.gb10.cluster.plugins.module_utils._engine.engine_state import EnginePaths
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import gpu_access
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.protocol import CACHE_TARGET, ENGINE_LOGS, LAUNCH_TARGET, LOG_TARGET, RUN_TARGET
from ansible_collections.gb10.cluster.plugins.module_utils._node.fields import (
    Changes,
    Fields,
    absent_means,
    bind,
    canonical,
    compare,
    digest,
    flat,
    missing_protections,
    payload,
    without,
)
from ansible_collections.gb10.cluster.plugins.module_utils._process.process_table import read_stat

if t.TYPE_CHECKING:
    from ansible_collections.gb10.cluster.plugins.module_utils._docker.sdk import Docker

#: The container's own log is kept bounded: three files of at most 50 MB.
LOG_CONFIG = {"type": "json-file", "config": {"max-size": "50m", "max-file": "3"}}

#: The directories of compiled code and of the model's own code: on the node, since the hub cache can only be read and a container is
#: recreated. The user's own variables win.
CACHES = confinement.cache_variables(CACHE_TARGET)

#: How many characters of a field's value a message shows.
LONGEST_VALUE = 60

#: How many logs of replaced containers are kept.
KEPT_LOGS = 5


@dataclasses.dataclass(frozen=True)
class WantedContainer:
    """A wanted container. ``environment`` is that of its executor; the user's own, a field, wins over it."""

    cluster: str
    executor: str
    fields: Fields
    command: list[str]
    environment: dict[str, str]

    @property
    def role(self) -> str:
        return self.fields["node_role"]

    @property
    def name(self) -> str:
        return node_container_name(self.cluster, self.role)

    @property
    def paths(self) -> EnginePaths:
        return EnginePaths.of(self.fields["state_dir"], self.fields["log_dir"], self.cluster)

    @property
    def digest(self) -> str:
        return digest(self.fields, absent_means(self.executor))

    @property
    def labels(self) -> dict[str, str]:
        return {
            LABEL_OWNER: OWNER,
            LABEL_CLUSTER: self.cluster,
            LABEL_ROLE: self.role,
            LABEL_SPEC: self.digest,
            LABEL_FIELDS: canonical(self.fields),
        }


@dataclasses.dataclass(frozen=True)
class ExistingContainer:
    """An existing container. ``status`` is its state according to Docker: created, running, paused, restarting, removing, exited, dead.

    ``readable`` is false when its labels show that it is ours but not how it was created: ``fields`` is empty then.
    ``pid`` is the host's pid of its first process, 0 when none runs. ``by_cdi`` is whether it was created with its GPU by CDI.
    """

    id: str
    name: str
    status: str
    exit_code: int
    oom_killed: bool
    started_at: str
    digest: str
    fields: Fields
    readable: bool = True
    pid: int = 0
    by_cdi: bool = False

    def uptime(self) -> float:
        """Return the age of its first process in seconds, by a clock that cannot be set; 0 without one."""
        first = read_stat(self.pid) if self.pid else None
        return max(0.0, boot_seconds() - first.start_ticks / os.sysconf("SC_CLK_TCK")) if first else 0.0

    @property
    def running(self) -> bool:
        return self.status == "running"

    @property
    def holds_processes(self) -> bool:
        return self.status in ("running", "paused", "restarting")


class Action(t.NamedTuple):
    """One step of a plan: ``verb`` is stop, remove, create or start."""

    verb: str
    target: str
    reason: str

    def __str__(self) -> str:
        return f"{self.verb} {self.target} ({self.reason})" if self.reason else f"{self.verb} {self.target}"


def difference_text(changed: Changes) -> str:
    """Return the differing fields with their old and new values, in one line for a message."""
    return ", ".join(f"{name} {_short(before)} -> {_short(after)}" for name, (before, after) in sorted(changed.items()))


def _short(value: t.Any) -> str:
    # An image's id as Docker shows it: its first twelve digits.
    if isinstance(value, str) and re.fullmatch(r"sha256:[0-9a-f]{64}", value):
        value = value[:19]
    text = "nothing" if value is None else canonical(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE - 3]}..."


def created_with(labels: dict[str, str]) -> Fields | None:
    """Return the fields that a container was created with, None when its labels do not have them."""
    try:
        fields = json.loads(labels.get(LABEL_FIELDS, ""))
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def existing(inspected: dict[str, t.Any]) -> ExistingContainer:
    """Return the container that the engine described."""
    state, labels = inspected["State"], inspected["Config"].get("Labels") or {}
    fields = created_with(labels)
    readable = fields is not None
    return ExistingContainer(
        id=inspected["Id"],
        name=inspected["Name"].lstrip("/"),
        status=state["Status"],
        exit_code=state["ExitCode"],
        oom_killed=state["OOMKilled"],
        started_at=state["StartedAt"],
        digest=labels.get(LABEL_SPEC, "") if readable else "",
        fields=fields or {},
        readable=readable,
        pid=state.get("Pid", 0),
        by_cdi=gpu_access.given_by_cdi(inspected),
    )


def changes(current: ExistingContainer, wanted: WantedContainer, protect: bool = False) -> Changes:
    """Return the fields in which the container differs from the wanted one.

    Protections that did not exist when it was created count with ``protect``, and when it differs anyway.
    """
    if current.digest == wanted.digest:
        return {}
    absent = absent_means(wanted.executor)
    older = without(missing_protections(current.fields, wanted.fields), wanted.fields)
    return compare(current.fields, wanted.fields, absent) if protect or compare(current.fields, older, absent) else {}


def waiting_protections(current: ExistingContainer, wanted: WantedContainer) -> list[str]:
    """Return the effect of each protection that the container lacks because it did not exist when the container was created."""
    return [field.protection.what for field in missing_protections(current.fields, wanted.fields) if field.protection]


def replacement_reason(current: ExistingContainer, changed: t.Collection[str]) -> str:
    """Return why a container has to be replaced, empty when it can stay as it is. The first reason that applies counts."""
    memory = ", out of memory" if current.oom_killed else ""
    reasons = (
        (current.status == "created", "container of this collection was created but never started"),
        (current.status == "exited", f"container of this collection had exited with code {current.exit_code}{memory}"),
        (not current.running, f"container of this collection was {current.status}"),
        (not current.readable, "container of this collection has labels without its fields"),
        (changed, f"changed: {', '.join(sorted(changed))}"),
    )
    return next((reason for applies, reason in reasons if applies), "")


def plan(state: str, name: str, current: ExistingContainer | None, changed: t.Collection[str] = ()) -> list[Action]:
    """Return the steps from ``current`` to ``state`` (started, stopped or absent); none when it has that state already.

    ``changed`` names the fields in which a running container differs from the wanted one. A container is never started a second
    time: its earlier programs (a Ray session, an engine) cannot be continued.
    """
    if state == "started":
        reason = replacement_reason(current, changed) if current else "no container"
        steps = [*(_removal(current, reason) if current else []), Action("create", name, reason), Action("start", name, "")]
        return steps if reason else []
    if current and state == "absent":
        return _removal(current, "state absent")
    return [Action("stop", current.name, "state stopped")] if current and current.holds_processes else []


def _removal(current: ExistingContainer, reason: str) -> list[Action]:
    stop = [Action("stop", current.name, reason)] if current.holds_processes else []
    return [*stop, Action("remove", current.name, reason)]


def session(container_id: str, started_at: str) -> str:
    """Return a short id of one run of a container: another start, or another container, has another one."""
    return hashlib.sha256(f"{container_id} {started_at}".encode()).hexdigest()[:16]


def snapshot(status: str, fields: Fields) -> dict[str, t.Any]:
    """Return one side of a diff: Docker's state of the container (absent when there is none) and its fields."""
    return {"state": status, "fields": flat(fields)}


def creation_payload(
    wanted: WantedContainer, cache: str, wrapper: t.Sequence[str] = (), cdi_devices: t.Collection[str] = ()
) -> dict[str, t.Any]:
    """Return the keyword arguments of the Docker SDK's ``containers.create``.

    ``cache`` is the node's directory for code that this image's engine compiles. It follows from the image, so it is not compared: another image recreates a
    container anyway. ``wrapper`` is the image's own entrypoint, empty where it does not stay; ``cdi_devices`` are those that the engine provides.
    Never privileged; no restart policy, since blind retries of an engine that dies are reported to leak memory; never removed by
    itself, since its log is needed then.
    """
    argv = [*wrapper, *wanted.command]
    # The memory of an engine that crashes would fill the disk, and contains its secrets.
    no_core = [] if "core" in wanted.fields["ulimits"] else [{"Name": "core", "Soft": 0, "Hard": 0}]
    own = {
        "name": wanted.name,
        "entrypoint": argv[:1],
        "command": argv[1:],
        "labels": {**wanted.labels, **({LABEL_ENTRYPOINT: canonical(wrapper)} if wrapper else {})},
        "network_mode": "host",
        "init": True,
        "log_config": LOG_CONFIG,
        "environment": {**CACHES, **wanted.environment},
        "device_requests": gpu_access.device_requests(wanted.fields["gpus"], cdi_devices),
        "ulimits": no_core,
        "mounts": [
            bind(wanted.paths.launch, LAUNCH_TARGET, True),
            bind(wanted.paths.run, RUN_TARGET, False),
            bind(cache, CACHE_TARGET, False),
            # The logs that the host keeps are next to it, out of the container's reach.
            bind(wanted.paths.engine_log, f"{LOG_TARGET}/{ENGINE_LOGS}", False),
        ],
    }
    return payload(wanted.fields, own)


def running(docker: Docker, node: str, wanted: WantedContainer) -> ExistingContainer:
    """Return our container as it is now. Raises :class:`ClusterError` with the end of its log when it does not run."""
    inspected = find_node_container(docker, wanted.cluster, wanted.role)
    if inspected is None:
        raise ClusterError(f"container {wanted.name} on {node} was removed while it was waited for", remedy="Find out who did: docker events.")
    current = existing(inspected)
    if not current.running:
        raise died(current, node, wanted.fields["image"], docker.logs(current.id))
    return current


def last_log(docker: Docker, wanted: WantedContainer) -> str:
    """Return the last lines of our container's log, empty when it is gone."""
    inspected = find_node_container(docker, wanted.cluster, wanted.role)
    return docker.logs(inspected["Id"]) if inspected else ""


# -- errors ----------------------------------------------------------------------------------------------------------

#: Docker's errors when a container cannot be created or started: pattern, the message, remedy.
_REFUSALS: list[tuple[str, str, str]] = [
    *gpu_access.FAILURES,
    (
        r"error setting rlimit|rlimit.*operation not permitted",
        "the Docker engine may not grant the container's ulimits",
        "Lower them to what this machine allows: gb10_memlock, or the module's option ulimits.",
    ),
    (
        r"error gathering device information",
        "a device of the container is missing",
        "See gb10_container_devices.",
    ),
    (
        r"bind source path does not exist",
        "a directory or file to mount into the container is missing",
        "Create it, or remove it from mounts and secret_files.",
    ),
    (
        r"container name .* is already in use",
        "a foreign container has the name of this node's container",
        "Rename or remove that container, or choose another gb10_cluster_name.",
    ),
]


def refusal(doing: str, image: str, error: ClusterError) -> ClusterError:
    """Return the error for an engine that refused to create or start the container; Docker's own message stays in ``detail``."""
    detail = str(error.details.get("detail") or error)
    program = missing_program(detail)
    if program:
        return no_program(program, image, detail)
    known = ((f"{doing}: {message}", remedy) for pattern, message, remedy in _REFUSALS if re.search(pattern, detail, re.IGNORECASE))
    message, remedy = next(known, (str(error), error.remedy))
    return ClusterError(message, remedy=remedy, reason="refused by Docker", detail=detail)


def under_removal(error: ClusterError) -> bool:
    """Return whether Docker refused to remove a container because another removal of it is in progress."""
    return bool(re.search(r"removal of container .* is already in progress", str(error.details.get("detail") or error)))


def missing_program(text: str) -> str:
    """Return the program that the image lacks according to the text of Docker, its init program or a shell as the image's entrypoint, empty without one."""
    match = re.search(r'exec: "([^"]+)": (?:executable file not found|stat .*no such file)', text)
    match = match or re.search(r"exec (\S+) failed: No such file or directory|exec: ([^\s:]+): not found", text)
    return match[match.lastindex] if match else ""


def no_program(program: str, image: str, detail: str) -> ClusterError:
    """Return the error for an image that lacks the program its container is to run."""
    if program == "ray":
        return ClusterError(
            f"image {image} has no `ray` program (NVIDIA's vLLM images have had none since the engine dropped it)",
            remedy="Build the image's Ray layer: give the profile image.layers: [ray], then run the play with --tags image.",
            reason="program missing",
            detail=detail,
        )
    return ClusterError(f"image {image} has no program {program}", remedy="Choose an image that has it.", reason="program missing", detail=detail)


#: Lines at the end of a container's log that have one known cause: pattern, remedy.
_KNOWN_ENDS: list[tuple[str, str]] = [
    (r"Version mismatch: ", "Give every node the same image: run the play with --tags image."),
    (r"InvalidAuthToken|AuthenticationError", "Give every node the same Ray token file: run the play with --tags ray and gb10_allow=restart."),
    (r"[Ss]ession.name.*(?:assert|mismatch|does not match)|AssertionError.*session", "Another Ray head uses this address: find it with docker ps, stop it."),
    (r"[Aa]ddress already in use|Failed to bind", "Another program uses one of Ray's ports: choose another gb10_ray_port or gb10_ray_port_range."),
    (r"No space left on device", "Make room on the file systems of /var/lib/docker and /dev/shm."),
]


def died(current: ExistingContainer, node: str, image: str, log: str) -> ClusterError:
    """Return the error for a container that ended while it was waited for; ``log`` are its last lines."""
    program = missing_program(log) if current.exit_code in (126, 127) else ""
    if program:
        return no_program(program, image, log)
    remedy = next((remedy for pattern, remedy in _KNOWN_ENDS if re.search(pattern, log)), f"Read its whole log: docker logs {current.name}")
    memory = ", killed for lack of memory" if current.oom_killed else ""
    end = end_of_log(log)
    return ClusterError(
        f"container {current.name} on {node} ended with exit code {current.exit_code}{memory}; "
        + (f"its log ends:\n{end}" if end else "its log is empty"),
        remedy=remedy,
        reason="container exited",
        node=node,
        container=current.name,
        exit_code=current.exit_code,
        oom_killed=current.oom_killed,
        log=log,
    )


def end_of_log(log: str, lines: int = 8, length: int = 400) -> str:
    """Return the last lines of a log that are not empty: without the frames of Python's tracebacks, cut to ``length`` characters."""
    # Indented lines outside of frames matter: Ray prints the versions that differ below its error message.
    without_frames = re.sub(r"^Traceback .*(?:\n[^\S\n].*)*", "", "\n".join(log.splitlines()), flags=re.MULTILINE)
    return "\n".join([line[:length] for line in without_frames.splitlines() if line.strip()][-lines:])


def surplus_logs(names: list[tuple[float, str]], keep: int = KEPT_LOGS) -> list[str]:
    """Return which of the (modification time, path) are more than the newest ``keep``."""
    return [path for _time, path in sorted(names, reverse=True)[keep:]]
