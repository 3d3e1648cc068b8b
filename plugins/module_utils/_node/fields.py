# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fields of a node's container and the options of its modules, in one table. This module util is PRIVATE to the collection.

The modules' argument specifications, the digest that decides whether a container stays, the diff and what Docker gets to create
the container all follow from :data:`FIELDS`. The documentation of the options is static text; a test compares it with the table.
"""

from __future__ import annotations

import hashlib
import json
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._arguments.env_text import env_text
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError

#: The executors that may spread an engine's ranks over the nodes: Ray, or the engine's own executor.
EXECUTORS = ("ray", "native")

#: Version of the fields, the first part of every digest. Fields of several changes are added in one step, under the next version: a
#: container is recreated at most once then, by consent.
DIGEST_VERSION = 2

#: The directory of the secrets inside a container.
SECRETS_TARGET = "/run/secrets/gb10"

#: Where the hub cache appears inside a container.
HF_HOME_TARGET = "/root/.cache/huggingface"

#: Capabilities that make root of a container root of the node, even without any other one: the first stands for all capabilities.
UNCONFINED = ("ALL", "DAC_READ_SEARCH", "SYS_ADMIN", "SYS_MODULE", "SYS_RAWIO")

#: For ``absent``: every container has had this field since the first version.
NEVER_ABSENT = object()

Fields = dict[str, t.Any]
Params = dict[str, t.Any]
Changes = dict[str, tuple[t.Any, t.Any]]


# -- from an option to its field, and from a field to Docker's payload ---------------------------------------------------


def environment(env: dict[str, t.Any]) -> dict[str, str]:
    """Return the variables as text, sorted. Raises :class:`ClusterError` for values that can be written in more than one way."""
    return {name: env_text(name, value) for name, value in sorted(env.items())}


def checked_gpus(gpus: t.Any) -> t.Any:
    """Return the value unchanged. Raises :class:`ClusterError` when it has none of the three forms."""
    if gpus not in ("all", "none") and not (isinstance(gpus, list) and all(isinstance(gpu, (str, int)) for gpu in gpus)):
        raise ClusterError(f"gpus is {gpus!r}", remedy="Give all, none, or a list of GPU indexes or UUIDs.", reason="input")
    return gpus


def is_confined(capability: str) -> bool:
    """Return whether root of a container with this capability is not root of the node."""
    return capability.upper().removeprefix("CAP_") not in UNCONFINED


def checked_capabilities(capabilities: list[str]) -> list[str]:
    """Return the capabilities unchanged. Raises :class:`ClusterError` for one by which a container is not confined."""
    for capability in capabilities:
        if not is_confined(capability):
            raise ClusterError(f"capabilities has {capability}, by which root of the container is root of the node", remedy="Leave it out.", reason="input")
    return capabilities


def checked_limits(limits: dict[str, t.Any]) -> dict[str, int]:
    """Return the limits unchanged. Raises :class:`ClusterError` when one is not a number."""
    for name, limit in limits.items():
        if isinstance(limit, bool) or not isinstance(limit, int):
            raise ClusterError(f"ulimits.{name} is {limit!r}, which is not a number", remedy="Give a number; -1 means unlimited.", reason="input")
    return limits


def bind(source: str, target: str, read_only: bool) -> dict[str, t.Any]:
    """Return a mount of the node's file or directory in Docker's form."""
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}


# -- the table ----------------------------------------------------------------------------------------------------------


class Protection(t.NamedTuple):
    """The protection by a field. Its absence alone recreates no container without consent, but causes a warning.

    ``what`` is its name in that warning; ``instead`` returns the fields that a container had in its place before the protection existed.
    """

    what: str
    instead: t.Callable[[t.Any], Fields] = lambda value: {}


class Field(t.NamedTuple):
    """One row.

    ``option`` is its entry in an argument specification, None for a field that no user sets. A field that counts (``counts``) is part of the
    digest and of the diff; the other options only control how the module works. ``absent`` is the value for a container that was created
    before the field existed: without it, the upgrade would recreate every container. ``protection`` describes what a field protects, None for one
    that protects nothing. ``convert`` returns the field's value for the option's, or raises for a wrong form; ``payload`` returns the value's part
    of Docker's payload.
    """

    name: str
    option: dict[str, t.Any] | None
    counts: bool = False
    absent: t.Any = NEVER_ABSENT
    convert: t.Callable[[t.Any], t.Any] = lambda value: value
    payload: t.Callable[[t.Any], dict[str, t.Any]] = lambda value: {}
    executors: tuple[str, ...] = EXECUTORS
    protection: Protection | None = None


_MOUNT = {"source": {"type": "path", "required": True}, "target": {"type": "str", "required": True}, "read_only": {"type": "bool", "default": False}}

FIELDS = (
    Field("state", {"type": "str", "choices": ["started", "stopped", "absent"], "default": "started"}),
    Field("node_role", {"type": "str", "choices": ["head", "worker"], "required": True}, counts=True),
    Field("cluster_name", {"type": "str", "default": "gb10"}),
    Field("executor", None, absent="ray"),
    Field("image", {"type": "str"}, counts=True, absent="", payload=lambda image: {"image": image}),
    Field("image_id", None, absent=""),
    Field("node_address", {"type": "str"}, counts=True),
    Field("env", {"type": "dict", "default": {}}, counts=True, absent={}, convert=environment, payload=lambda env: {"environment": env}),
    Field(
        "secret_files",
        {"type": "dict", "default": {}, "no_log": False},
        counts=True,
        absent={},
        payload=lambda files: {"mounts": [bind(path, f"{SECRETS_TARGET}/{name}", True) for name, path in sorted(files.items())]},
    ),
    Field(
        "devices",
        {"type": "list", "elements": "str", "default": ["/dev/infiniband"]},
        counts=True,
        absent=[],
        payload=lambda devices: {"devices": [device if ":" in device else f"{device}:{device}:rwm" for device in devices]},
    ),
    # The form of the request depends on the node's Docker, and is not part of the field.
    Field("gpus", {"type": "raw", "default": "all"}, counts=True, absent="none", convert=checked_gpus),
    Field(
        "capabilities",
        {"type": "list", "elements": "str", "default": ["IPC_LOCK"]},
        counts=True,
        absent=[],
        convert=checked_capabilities,
        payload=lambda capabilities: {"cap_add": capabilities},
    ),
    Field(
        "drop_capabilities",
        {"type": "list", "elements": "str", "default": ["ALL"]},
        counts=True,
        absent=[],
        payload=lambda capabilities: {"cap_drop": capabilities},
        protection=Protection("only the capabilities that serving needs"),
    ),
    Field(
        "no_new_privileges",
        {"type": "bool", "default": True},
        counts=True,
        absent=False,
        payload=lambda wanted: {"security_opt": ["no-new-privileges:true"]} if wanted else {},
        protection=Protection("no new privileges for its programs"),
    ),
    Field(
        "ulimits",
        {"type": "dict", "default": {"memlock": -1, "stack": 67108864}},
        counts=True,
        absent={},
        convert=checked_limits,
        payload=lambda limits: {"ulimits": [{"Name": name, "Soft": limit, "Hard": limit} for name, limit in sorted(limits.items())]},
    ),
    Field("shm_size", {"type": "str", "default": "10g"}, counts=True, absent="", payload=lambda size: {"shm_size": size} if size else {}),
    Field("ipc_host", {"type": "bool", "default": False}, counts=True, absent=False, payload=lambda shared: {"ipc_mode": "host"} if shared else {}),
    Field(
        "mounts",
        {"type": "list", "elements": "dict", "default": [], "options": _MOUNT},
        counts=True,
        absent=[],
        payload=lambda mounts: {"mounts": [bind(mount["source"], mount["target"], mount["read_only"]) for mount in mounts]},
    ),
    Field(
        "hf_home",
        {"type": "path"},
        counts=True,
        absent=None,
        payload=lambda hf_home: {"mounts": [bind(f"{hf_home}/hub", f"{HF_HOME_TARGET}/hub", True)]} if hf_home else {},
        protection=Protection(
            "a hub cache that it can only read, without the tokens next to it",
            lambda hf_home: {"mounts": [{"source": hf_home, "target": HF_HOME_TARGET, "read_only": False}]},
        ),
    ),
    Field("state_dir", {"type": "path", "default": "/var/lib/gb10"}, counts=True),
    Field("log_dir", {"type": "path", "default": "/var/log/gb10"}, counts=True),
    Field("allow_restart", {"type": "bool", "default": False}),
    Field("interrupt_requests", {"type": "bool", "default": False}),
    Field("unready_runs", {"type": "list", "elements": "str", "default": []}),
    Field("lacks_rank", {"type": "bool", "default": False}),
    Field("lock_id", {"type": "str", "default": ""}),
    Field("stop_timeout", {"type": "int", "default": 120}),
    Field("connect_timeout", {"type": "int", "default": 5}),
    Field("wait", {"type": "bool", "default": True}),
    Field("wait_timeout", {"type": "int", "default": 180}),
    Field("wait_sleep", {"type": "int", "default": 2}),
    Field("docker_socket", {"type": "path", "default": "/var/run/docker.sock"}),
    Field("docker_timeout", {"type": "int", "default": 60}),
    Field("head_address", {"type": "str"}, counts=True, executors=("ray",)),
    Field("head_session", {"type": "str"}, counts=True, absent="", executors=("ray",)),
    Field("port", {"type": "int", "default": 6379}, counts=True, executors=("ray",)),
    Field("port_range", {"type": "str", "default": "20100-20299"}, counts=True, executors=("ray",)),
    Field("ray_gpus", {"type": "int", "default": 1}, counts=True, absent=1, executors=("ray",)),
    Field("object_store_memory", {"type": "int"}, counts=True, absent=None, executors=("ray",)),
    Field("ray_arguments", {"type": "list", "elements": "str", "default": []}, counts=True, absent=[], executors=("ray",)),
    Field("replace_stale", {"type": "bool", "default": False}, executors=("ray",)),
    Field("ray_nodes", {"type": "list", "elements": "dict", "default": []}, executors=("ray",)),
    Field("ports", {"type": "list", "elements": "int", "default": []}, executors=("native",)),
)


# -- derived from the table ---------------------------------------------------------------------------------------------


def of(executor: str) -> list[Field]:
    """Return the rows that containers of this executor have."""
    return [field for field in FIELDS if executor in field.executors]


def argument_spec(executor: str) -> dict[str, t.Any]:
    """Return the options of the module that runs containers of this executor."""
    return {field.name: field.option for field in of(executor) if field.option}


def wanted(params: Params, executor: str, image_id: str) -> Fields:
    """Return the fields that the options ask for. Raises :class:`ClusterError` for a value of the wrong form."""
    fields = {field.name: field.convert(params[field.name]) for field in of(executor) if field.option and field.counts}
    return {**fields, "image_id": image_id, "shm_size": "" if fields["ipc_host"] else fields["shm_size"]}


def absent_means(executor: str) -> Fields:
    """Return the values of the fields that a container of this executor may lack."""
    return {field.name: field.absent for field in of(executor) if field.absent is not NEVER_ABSENT}


def payload(fields: Fields, own: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the ``own`` payload with the fields': their lists are appended, their other values replace earlier ones, in dictionaries key by key."""
    result = dict(own)
    for field in FIELDS:
        for name, value in field.payload(fields[field.name]).items() if field.name in fields else ():
            before = result.get(name)
            result[name] = before + value if isinstance(before, list) else {**before, **value} if isinstance(before, dict) else value
    return result


def canonical(value: t.Any) -> str:
    """Return JSON that is the same text for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest(fields: Fields, absent: Fields) -> str:
    """Return ``VERSION:SHA256`` of the fields. A field that has the value meant by its absence does not count."""
    counted = {name: value for name, value in fields.items() if name not in absent or value != absent[name]}
    return f"{DIGEST_VERSION}:{hashlib.sha256(canonical(counted).encode()).hexdigest()}"


def flat(fields: Fields) -> Fields:
    """Return the fields with every entry of a dictionary as a field of its own: ``env.NCCL_DEBUG``, ``ulimits.memlock``."""
    result: Fields = {}
    for name, value in fields.items():
        result.update({f"{name}.{key}": entry for key, entry in value.items()} if isinstance(value, dict) else {name: value})
    return result


def missing_protections(current: Fields, desired: Fields) -> list[Field]:
    """Return the protections that are wanted and that a container was created without, since they did not exist then."""
    return [field for field in FIELDS if field.protection and field.name not in current and desired.get(field.name, field.absent) != field.absent]


def without(protections: t.Iterable[Field], desired: Fields) -> Fields:
    """Return the desired fields as they were before these protections existed."""
    result = dict(desired)
    for field in protections:
        value = result.pop(field.name)
        for name, entry in field.protection.instead(value).items() if field.protection else ():
            result[name] = [*entry, *result.get(name, [])] if isinstance(entry, list) else entry
    return result


def compare(current: Fields, desired: Fields, absent: Fields) -> Changes:
    """Return the fields that differ as ``{name: (before, after)}``; entries of dictionaries are named one by one.

    A field that one side lacks has its value of ``absent`` there. A field that this version of the collection does not support (a newer
    one created the container) is left alone.
    """
    known = {name: value for name, value in current.items() if name in desired or name in absent}
    before = flat({**{name: absent.get(name) for name in desired}, **known})
    after = flat({**{name: absent.get(name) for name in known}, **desired})
    return {name: (before.get(name), after.get(name)) for name in sorted({**before, **after}) if before.get(name) != after.get(name)}
