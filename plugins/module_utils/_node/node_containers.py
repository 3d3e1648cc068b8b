# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One node's container: what is wanted, what is there, and the way from one to the other. This module util is PRIVATE to the collection.

Head and worker, with Ray or with a native engine, are all a :class:`Unit`. A unit knows two things: its ``fields``, which are
what a user sees and sets, and everything derived from them (command, mounts). Only fields are compared, so that a new version
of the collection, which may derive other things from the same fields, never restarts a container by itself.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import stat
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import (
    LABEL_CLUSTER,
    LABEL_FIELDS,
    LABEL_OWNER,
    LABEL_ROLE,
    LABEL_SPEC,
    OWNER,
    node_container_name,
)
from ansible_collections.gb10.cluster.plugins.module_utils._engine import launcher
from ansible_collections.gb10.cluster.plugins.module_utils._engine.engine_state import LAUNCH_TARGET, LOG_TARGET, RUN_TARGET, EnginePaths, boot_seconds
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError

#: Version of the way fields become a digest.
DIGEST_VERSION = 1

#: What a container made before a field existed has. A field that is new in some version of the collection gets its line
#: here; without it, the upgrade would recreate every container.
ABSENT_MEANS: dict[str, t.Any] = {
    "executor": "ray",
    "image": "",
    "image_id": "",
    "env": {},
    "secret_files": {},
    "devices": [],
    "gpus": "none",
    "capabilities": [],
    "ulimits": {},
    "shm_size": "",
    "ipc_host": False,
    "mounts": [],
}

#: Where a unit's secrets lie inside the container.
SECRETS_TARGET = "/run/secrets/gb10"

#: The container's own log is kept bounded: three files of at most 50 MB.
LOG_CONFIG = {"type": "json-file", "config": {"max-size": "50m", "max-file": "3"}}

#: How many characters of a field's value a message shows.
LONGEST_VALUE = 60

#: How many logs of replaced containers are kept.
KEPT_LOGS = 5

Fields = dict[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Unit:
    """A wanted container. ``env`` and ``mounts`` are complete: what the fields say and what the unit needs itself.

    ``absent_means`` is :data:`ABSENT_MEANS` with the fields added that this kind of unit has beyond the common ones.
    """

    cluster: str
    role: str
    fields: Fields
    absent_means: Fields
    entrypoint: list[str]
    command: list[str]
    env: dict[str, str]
    mounts: list[dict[str, t.Any]]

    @property
    def name(self) -> str:
        return node_container_name(self.cluster, self.role)

    @property
    def digest(self) -> str:
        return digest(self.fields, self.absent_means)

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
class Current:
    """A container that is there. ``status`` is Docker's word: created, running, paused, restarting, removing, exited, dead.

    ``readable`` is false when its labels say that it is ours and do not say what it was made of: ``fields`` is empty then.
    ``pid`` is the host's pid of its first process, 0 when none runs.
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

    def uptime(self) -> float:
        """Return the seconds that its first process has been there, by a clock that nobody can set; 0 when there is none."""
        first = launcher.process(self.pid) if self.pid else None
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


def canonical(value: t.Any) -> str:
    """Return JSON that is the same text for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest(fields: Fields, absent_means: Fields) -> str:
    """Return ``VERSION:SHA256`` of the fields. A field that has the value meant by its absence does not count."""
    counted = {name: value for name, value in fields.items() if name not in absent_means or value != absent_means[name]}
    return f"{DIGEST_VERSION}:{hashlib.sha256(canonical(counted).encode()).hexdigest()}"


def flat(fields: Fields) -> Fields:
    """Return the fields with every entry of a dictionary as a field of its own: ``env.NCCL_DEBUG``, ``ulimits.memlock``."""
    result: Fields = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            result.update({f"{name}.{key}": entry for key, entry in value.items()})
        else:
            result[name] = value
    return result


def compare(current: Fields, desired: Fields, absent_means: Fields) -> dict[str, tuple[t.Any, t.Any]]:
    """Return the fields that differ as ``{name: (before, after)}``; entries of dictionaries are named one by one.

    A field that one side lacks has its value of ``absent_means`` there. A field that this version of the collection does not
    know (the container was made by a newer one) is left alone.
    """
    known = {name: value for name, value in current.items() if name in desired or name in absent_means}
    before = flat({**{name: absent_means.get(name) for name in desired}, **known})
    after = flat({**{name: absent_means.get(name) for name in known}, **desired})
    names = sorted({**before, **after})
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def difference_text(changed: dict[str, tuple[t.Any, t.Any]]) -> str:
    """Return the differing fields with what they were and what they are to be, in one line for a message."""
    return ", ".join(f"{name} {_short(before)} -> {_short(after)}" for name, (before, after) in sorted(changed.items()))


def _short(value: t.Any) -> str:
    # An image's id as Docker shows it: its first twelve digits.
    if isinstance(value, str) and re.fullmatch(r"sha256:[0-9a-f]{64}", value):
        value = value[:19]
    text = "nothing" if value is None else canonical(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE - 3]}..."


def current_of(inspected: dict[str, t.Any]) -> Current:
    """Return the container that the engine described."""
    state, labels = inspected["State"], inspected["Config"].get("Labels") or {}
    try:
        fields = json.loads(labels.get(LABEL_FIELDS, ""))
    except ValueError:
        fields = None
    readable = isinstance(fields, dict)
    return Current(
        id=inspected["Id"],
        name=inspected["Name"].lstrip("/"),
        status=state["Status"],
        exit_code=state["ExitCode"],
        oom_killed=state["OOMKilled"],
        started_at=state["StartedAt"],
        digest=labels.get(LABEL_SPEC, "") if readable else "",
        fields=fields if readable else {},
        readable=readable,
        pid=state.get("Pid", 0),
    )


def changes(current: Current, desired: Unit) -> dict[str, tuple[t.Any, t.Any]]:
    """Return the fields in which the container differs from the wanted unit, as :func:`compare` does."""
    return {} if current.digest == desired.digest else compare(current.fields, desired.fields, desired.absent_means)


def replacement_reason(current: Current, changed: t.Collection[str]) -> str:
    """Return why a container has to be replaced, empty when it can stay as it is."""
    if current.status == "created":
        return "container of ours was created but never started"
    if current.status == "exited":
        memory = ", out of memory" if current.oom_killed else ""
        return f"container of ours had exited with code {current.exit_code}{memory}"
    if not current.running:
        return f"container of ours was {current.status}"
    if not current.readable:
        return "container of ours has labels that do not tell what it was made of"
    return f"changed: {', '.join(sorted(changed))}" if changed else ""


def plan(state: str, name: str, current: Current | None, changed: t.Collection[str] = ()) -> list[Action]:
    """Return what leads from ``current`` to ``state`` (started, stopped or absent); nothing when it is there already.

    ``changed`` names the fields in which a running container differs from what is wanted. A container is never started a second
    time: what ran in it (a Ray session, an engine) cannot be taken up again.
    """
    if state == "started":
        reason = replacement_reason(current, changed) if current else "no container"
        if not reason:
            return []
        return [*(_removal(current, reason) if current else []), Action("create", name, reason), Action("start", name, "")]
    if current is None:
        return []
    if state == "absent":
        return _removal(current, "state absent")
    return [Action("stop", current.name, "state stopped")] if current.holds_processes else []


def _removal(current: Current, reason: str) -> list[Action]:
    stop = [Action("stop", current.name, reason)] if current.holds_processes else []
    return [*stop, Action("remove", current.name, reason)]


def session(container_id: str, started_at: str) -> str:
    """Return a short id of one run of a container: another start, or another container, has another one."""
    return hashlib.sha256(f"{container_id} {started_at}".encode()).hexdigest()[:16]


def snapshot(status: str, fields: Fields) -> dict[str, t.Any]:
    """Return one side of a diff: what Docker calls the container's state (absent when there is none) and its fields."""
    return {"state": status, "fields": flat(fields)}


# -- what the unit is made of ----------------------------------------------------------------------------------------


def environment(env: dict[str, t.Any]) -> dict[str, str]:
    """Return the variables as text. Raises :class:`ClusterError` for values whose text is a guess (booleans, null, lists)."""
    for name, value in env.items():
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ClusterError(
                f"env {name} is {value!r}, which has no one spelling as text", remedy=f"Quote the value of {name} as the program expects it.", reason="input"
            )
    return {name: str(value) for name, value in sorted(env.items())}


def state_mounts(paths: EnginePaths) -> list[dict[str, t.Any]]:
    """Return the mounts of the directories that a node's container shares with its host."""
    return [
        {"source": paths.launch, "target": LAUNCH_TARGET, "read_only": True},
        {"source": paths.run, "target": RUN_TARGET, "read_only": False},
        {"source": paths.log, "target": LOG_TARGET, "read_only": False},
    ]


def secret_mounts(secret_files: dict[str, str]) -> list[dict[str, t.Any]]:
    """Return the read-only mounts of secret files, each under its name."""
    return [{"source": path, "target": f"{SECRETS_TARGET}/{name}", "read_only": True} for name, path in sorted(secret_files.items())]


def check_secret_file(name: str, path: str) -> None:
    """Raise :class:`ClusterError` unless ``path`` is a file that only its owner can read."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise ClusterError(
            f"secret {name}: {path} cannot be used: {error.strerror}", remedy=f"Write the secret to {path} with mode 0600.", reason="secret file"
        ) from error
    if not stat.S_ISREG(mode):
        raise ClusterError(f"secret {name}: {path} is no file", remedy=f"Write the secret to {path} with mode 0600.", reason="secret file")
    if mode & 0o077:
        raise ClusterError(
            f"secret {name}: {path} has mode {stat.S_IMODE(mode):04o}; expected 0600", remedy=f"chmod 0600 {path}", reason="secret file"
        )


def check_devices(devices: list[str]) -> None:
    """Raise :class:`ClusterError` unless every device path exists on this node."""
    for device in devices:
        if not os.path.exists(device.partition(":")[0]):
            raise ClusterError(
                f"this node has no {device}, which its container is to get",
                remedy="Load the driver that makes it (for /dev/infiniband: modprobe ib_uverbs mlx5_ib), or name other devices in gb10_container_devices.",
                reason="device missing",
                device=device,
            )


def device_requests(gpus: str | list[str]) -> list[dict[str, t.Any]]:
    """Return the request to Docker's NVIDIA driver: ``all``, ``none`` or a list of GPU indexes or UUIDs."""
    if gpus in ("none", []):
        return []
    wanted: dict[str, t.Any] = {"count": -1} if gpus == "all" else {"device_ids": [str(gpu) for gpu in gpus]}
    return [{"driver": "nvidia", "capabilities": [["gpu"]], **wanted}]


def create_arguments(unit: Unit) -> dict[str, t.Any]:
    """Return the keyword arguments of the Docker SDK's ``containers.create`` for this unit.

    Never privileged; no restart policy, since blind retries of an engine that dies are reported to leak memory; never removed
    by itself, since its log is wanted then.
    """
    fields = unit.fields
    memory = {"ipc_mode": "host"} if fields["ipc_host"] else {"shm_size": fields["shm_size"]}
    return {
        "image": fields["image"],
        "name": unit.name,
        "entrypoint": unit.entrypoint,
        "command": unit.command,
        "environment": unit.env,
        "labels": unit.labels,
        "network_mode": "host",
        "init": True,
        "devices": [device if ":" in device else f"{device}:{device}:rwm" for device in fields["devices"]],
        "device_requests": device_requests(fields["gpus"]),
        "cap_add": fields["capabilities"],
        "ulimits": [{"Name": name, "Soft": limit, "Hard": limit} for name, limit in sorted(fields["ulimits"].items())],
        "mounts": [
            {"Type": "bind", "Source": mount["source"], "Target": mount["target"], "ReadOnly": mount["read_only"]} for mount in unit.mounts
        ],
        "log_config": LOG_CONFIG,
        **memory,
    }


# -- what went wrong -------------------------------------------------------------------------------------------------

#: What Docker's engine says when a container cannot be made or started: pattern, our message, remedy.
_REFUSALS: list[tuple[str, str, str]] = [
    (
        r"could not select device driver",
        "the Docker engine cannot give GPUs to a container: it knows no NVIDIA runtime",
        "Install the NVIDIA Container Toolkit and restart Docker, or set gb10_container_gpus: none when no GPU is wanted.",
    ),
    (
        r"error setting rlimit|rlimit.*operation not permitted",
        "the Docker engine may not grant the container's ulimits",
        "Lower them to what this machine allows: gb10_memlock, or the module's option ulimits.",
    ),
    (
        r"error gathering device information",
        "a device that the container is to get is not there",
        "See gb10_container_devices.",
    ),
    (
        r"bind source path does not exist",
        "a directory or file that is to be mounted into the container is not there",
        "Create it, or take it out of mounts and secret_files.",
    ),
    (
        r"container name .* is already in use",
        "a container that is not ours has the name that ours is to get",
        "Rename or remove that container, or choose another gb10_cluster_name.",
    ),
]


def refusal(doing: str, unit: Unit, error: ClusterError) -> ClusterError:
    """Return what to tell when the engine refused to create or start the unit; Docker's own words stay in ``detail``."""
    detail = str(error.details.get("detail") or error)
    program = missing_program(detail)
    if program:
        return no_program(program, unit.fields["image"], detail)
    for pattern, message, remedy in _REFUSALS:
        if re.search(pattern, detail, re.IGNORECASE):
            return ClusterError(f"{doing}: {message}", remedy=remedy, reason="refused by Docker", detail=detail)
    return ClusterError(str(error), remedy=error.remedy, reason="refused by Docker", detail=detail)


def under_removal(error: ClusterError) -> bool:
    """Say whether Docker refused to remove a container since somebody else's removal of it goes on."""
    return bool(re.search(r"removal of container .* is already in progress", str(error.details.get("detail") or error)))


def missing_program(text: str) -> str:
    """Return the program that the text of Docker or of its init program says is not in the image, empty when there is none."""
    match = re.search(r'exec: "([^"]+)": (?:executable file not found|stat .*no such file)', text)
    match = match or re.search(r"exec (\S+) failed: No such file or directory", text)
    return match[1] if match else ""


def no_program(program: str, image: str, detail: str) -> ClusterError:
    """Return the error for an image that lacks the program its container is to run."""
    if program == "ray":
        return ClusterError(
            f"image {image} holds no `ray` program (NVIDIA's vLLM images have had none since the engine dropped it)",
            remedy="Build the image's Ray layer: give the profile image.layers: [ray], then run the play with --tags image.",
            reason="program missing",
            detail=detail,
        )
    return ClusterError(f"image {image} holds no program {program}", remedy="Choose an image that has it.", reason="program missing", detail=detail)


#: Lines of a container's last words that have one known cause: pattern, remedy.
_LAST_WORDS: list[tuple[str, str]] = [
    (r"Version mismatch: ", "Give every node the same image: run the play with --tags image."),
    (r"InvalidAuthToken|AuthenticationError", "Give every node the same Ray token file: run the play with --tags ray and gb10_allow_restart=true."),
    (r"[Ss]ession.name.*(?:assert|mismatch|does not match)|AssertionError.*session", "Another Ray head uses this address: find it with docker ps, stop it."),
    (r"[Aa]ddress already in use|Failed to bind", "Another program uses one of Ray's ports: choose another gb10_ray_port or gb10_ray_port_range."),
    (r"No space left on device", "Make room on the file systems of /var/lib/docker and /dev/shm."),
]


def died(current: Current, node: str, image: str, log: str) -> ClusterError:
    """Return the error for a container that ended while it was waited for; ``log`` are its last lines."""
    program = missing_program(log) if current.exit_code in (126, 127) else ""
    if program:
        return no_program(program, image, log)
    remedy = next((remedy for pattern, remedy in _LAST_WORDS if re.search(pattern, log)), f"Read its whole log: docker logs {current.name}")
    memory = ", killed for lack of memory" if current.oom_killed else ""
    words = last_words(log)
    return ClusterError(
        f"container {current.name} on {node} ended with exit code {current.exit_code}{memory}; "
        + (f"its log ends:\n{words}" if words else "its log is empty"),
        remedy=remedy,
        reason="container exited",
        node=node,
        container=current.name,
        exit_code=current.exit_code,
        oom_killed=current.oom_killed,
        log=log,
    )


def last_words(log: str, lines: int = 8, length: int = 400) -> str:
    """Return the last lines of a log that say something: without the frames of Python's tracebacks, cut to ``length`` characters."""
    telling, in_frames = [], False
    for line in log.splitlines():
        # Outside of frames indented lines tell something: Ray sets the versions that differ below its complaint.
        in_frames = line.startswith("Traceback ") or (in_frames and line[:1].isspace())
        if line.strip() and not in_frames:
            telling.append(line[:length])
    return "\n".join(telling[-lines:])


def surplus_logs(names: list[tuple[float, str]], keep: int = KEPT_LOGS) -> list[str]:
    """Return which of the (modification time, path) are more than the newest ``keep``."""
    return [path for _time, path in sorted(names, reverse=True)[keep:]]
