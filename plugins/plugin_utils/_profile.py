# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Profiles: finding them, judging them, and what follows from them for a node. This plugin util is PRIVATE to the collection.

A profile is one model's whole recipe as data. Its schema is an Ansible argument spec, so the messages are the ones every
Ansible user knows, with the path of the field in them.
"""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

import yaml

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

SCHEMA_VERSION = 1

#: Where the shipped profiles lie, seen from this file, in a clone and in an installed collection alike.
SHIPPED = Path(__file__).resolve().parents[2] / "playbooks" / "profiles"

#: Where a node's hub cache appears inside its container (the default of every image the profiles name).
CONTAINER_HF_HOME = "/root/.cache/huggingface"

#: Serve arguments that the collection sets itself: two places for one value would drift apart.
RESERVED_SERVE = {
    "host": "gb10_api_address",
    "port": "gb10_api_port",
    "api_key": "gb10_api_key (the key travels as a file, never as an argument)",
    "model": "model.repo",
    "revision": "model.revision",
    "tensor_parallel_size": "parallel.tensor",
    "pipeline_parallel_size": "parallel.pipeline",
    "data_parallel_size": "parallel.data",
    "enable_expert_parallel": "parallel.expert",
    "distributed_executor_backend": "executor",
}

#: Facts of a node that a per-host variable may take its value from (a profile's env.per_host and :data:`PER_HOST_ENV`).
HOST_FACTS = ("fabric_address", "fabric_interfaces", "control_interface", "rdma_devices", "ucx_devices")

#: Variables that every node gets with its own value. Sources: vLLM's multi-node guide (VLLM_HOST_IP), and the field's
#: launchers, which all name the interfaces for NCCL, Gloo, TensorPipe, Open MPI and UCX.
PER_HOST_ENV = {
    "VLLM_HOST_IP": "fabric_address",
    "NCCL_SOCKET_IFNAME": "fabric_interfaces",
    "GLOO_SOCKET_IFNAME": "control_interface",
    "TP_SOCKET_IFNAME": "control_interface",
    "OMPI_MCA_btl_tcp_if_include": "fabric_interfaces",
    "NCCL_IB_HCA": "rdma_devices",
    "UCX_NET_DEVICES": "ucx_devices",
}

#: Variables that every node gets with one value. Ray's memory monitor kills at 95 % of node memory, which a weight load on
#: unified memory reaches (NVIDIA's playbook turns it off too); nothing leaves the cluster unasked.
SHARED_ENV = {
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_SIDE_FILE = "side_file:"

_SCHEMA: dict[str, t.Any] = {
    "schema": {"type": "int", "required": True, "choices": [SCHEMA_VERSION]},
    "id": {"type": "str", "required": True},
    "model": {
        "type": "dict",
        "required": True,
        "options": {
            "repo": {"type": "str", "required": True},
            "revision": {"type": "str"},
            "side_files": {"type": "list", "elements": "str", "default": []},
            "served_names": {"type": "list", "elements": "str", "default": []},
        },
    },
    "image": {
        "type": "dict",
        "required": True,
        "options": {
            "base": {"type": "str", "required": True},
            "layers": {"type": "list", "elements": "str", "choices": ["ray"], "default": ["ray"]},
            "tag": {"type": "str", "required": True},
        },
    },
    "parallel": {
        "type": "dict",
        "required": True,
        "options": {
            "tensor": {"type": "int", "required": True},
            "pipeline": {"type": "int", "default": 1},
            "data": {"type": "int", "default": 1},
            "expert": {"type": "bool", "default": False},
        },
    },
    "executor": {"type": "str", "choices": ["ray"], "default": "ray"},
    "env": {
        "type": "dict",
        "apply_defaults": True,
        "options": {
            "shared": {"type": "dict", "default": {}},
            "per_host": {"type": "dict", "default": {}},
        },
    },
    "serve": {"type": "dict", "default": {}},
    "memory": {
        "type": "dict",
        "apply_defaults": True,
        "options": {
            "class_gb": {"type": "int", "choices": [64, 128]},
            "weights_gb": {"type": "float"},
            "config": {"type": "dict", "default": {}},
        },
    },
    "ladder": {"type": "list", "elements": "int", "default": []},
    "checks": {"type": "list", "elements": "str", "default": []},
    "requires": {"type": "dict", "default": {}},
    "evidence": {"type": "list", "elements": "dict", "default": []},
    "notes": {"type": "str", "default": ""},
}


class ProfileError(Exception):
    """A profile can't be used; the message says which file, which field, and what was expected."""


def search_path(directories: t.Sequence[str]) -> list[Path]:
    """The directories in which a profile id is looked up: the user's own first, then the shipped one."""
    return [Path(directory).expanduser() for directory in directories] + [SHIPPED]


def find(name: str, directories: t.Sequence[str] = ()) -> Path:
    """The file of profile ``name``, which is an id or a path ending in ``.yml`` or ``.yaml``.

    Raises :class:`ProfileError` naming the known ids when there is none.
    """
    if name.endswith((".yml", ".yaml")):
        path = Path(name).expanduser()
        if not path.is_file():
            raise ProfileError(f"gb10_profile: no file {path} on the controller. Give an existing one, or one of: {', '.join(known(directories))}")
        return path
    for directory in search_path(directories):
        for suffix in (".yml", ".yaml"):
            if (directory / f"{name}{suffix}").is_file():
                return directory / f"{name}{suffix}"
    raise ProfileError(
        f"gb10_profile: unknown profile '{name}'. Known: {', '.join(known(directories))}. "
        "Choose one with -e gb10_profile=ID, or add a directory of your own to gb10_profile_dirs"
    )


def known(directories: t.Sequence[str] = ()) -> list[str]:
    """The ids that :func:`find` accepts, sorted."""
    return sorted({path.stem for directory in search_path(directories) for path in directory.glob("*.y*ml")})


def load(name: str, directories: t.Sequence[str] = ()) -> dict[str, t.Any]:
    """Find, read and judge profile ``name``; return it with every default filled in.

    Raises :class:`ProfileError` with all problems of the file at once.
    """
    path = find(name, directories)
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ProfileError(f"{path}: can't be read as YAML: {error}") from error
    if not isinstance(raw, dict):
        raise ProfileError(f"{path}: expected a mapping at the top, found {type(raw).__name__}")
    profile, problems = validate(raw, expected_id=path.stem)
    if problems:
        raise ProfileError("\n".join(f"{path}: {problem}" for problem in problems))
    return {**profile, "path": str(path)}


def validate(raw: dict[str, t.Any], expected_id: str | None = None) -> tuple[dict[str, t.Any], list[str]]:
    """Judge a profile read from YAML. Returns it with defaults filled in, and the problems (each with the field's path)."""
    result = ArgumentSpecValidator(_SCHEMA).validate(json.loads(json.dumps(raw)))
    if result.error_messages:
        return raw, list(result.error_messages)
    profile = result.validated_parameters
    return profile, _judge(profile, expected_id)


def _judge(profile: dict[str, t.Any], expected_id: str | None) -> list[str]:
    """What the types alone can't say."""
    problems = []
    if expected_id is not None and profile["id"] != expected_id:
        problems.append(f"id: is '{profile['id']}', but the file is named '{expected_id}'")
    model = profile["model"]
    if model["revision"] is not None and not _COMMIT.match(model["revision"]):
        problems.append(f"model.revision: '{model['revision']}' is no commit; expected 40 hexadecimal digits")
    for size in ("tensor", "pipeline", "data"):
        if profile["parallel"][size] < 1:
            problems.append(f"parallel.{size}: is {profile['parallel'][size]}; expected 1 or more")
    problems += [f"env.shared.{problem}" for problem in env_problems(profile["env"]["shared"])]
    for name, fact in profile["env"]["per_host"].items():
        if not _ENV_NAME.match(name):
            problems.append(f"env.per_host.{name}: is no valid variable name")
        if fact not in HOST_FACTS:
            problems.append(f"env.per_host.{name}: '{fact}' is no fact of a node; expected one of {', '.join(HOST_FACTS)}")
    problems += serve_problems(profile, profile["serve"], "serve")
    return problems


def env_problems(env: dict[str, t.Any]) -> list[str]:
    """What is wrong with a mapping of environment variables: ``NAME: reason`` each."""
    problems = []
    for name, value in env.items():
        if not _ENV_NAME.match(name):
            problems.append(f"{name}: is no valid variable name")
        elif isinstance(value, (dict, list)) or value is None:
            problems.append(f"{name}: expected a string, a number or a boolean, found {type(value).__name__}")
        elif isinstance(value, str) and ("\n" in value or "\0" in value):
            problems.append(f"{name}: holds a line break or a zero byte; expected one line")
    return problems


def serve_problems(profile: dict[str, t.Any], arguments: dict[str, t.Any], where: str) -> list[str]:
    """What is wrong with serve arguments for this profile; ``where`` names the mapping in the messages."""
    problems = []
    names = {name.replace("-", "_"): value for name, value in arguments.items()}
    for name, instead in RESERVED_SERVE.items():
        if name in names:
            problems.append(f"{where}.{name}: is set by the collection from {instead}; remove it here")
    if names.get("trust_remote_code") and profile["model"]["revision"] is None:
        problems.append(f"{where}.trust_remote_code: runs code from the model repository; pin model.revision to a commit first")
    for name, value in names.items():
        if isinstance(value, str) and value.startswith(_SIDE_FILE):
            file = value[len(_SIDE_FILE):]
            if file not in profile["model"]["side_files"]:
                problems.append(f"{where}.{name}: side file '{file}' is not listed in model.side_files")
            elif profile["model"]["revision"] is None:
                problems.append(f"{where}.{name}: a side file's path needs model.revision pinned to a commit")
    return problems


def snapshot_path(profile: dict[str, t.Any], hf_home: str = CONTAINER_HF_HOME) -> str:
    """Directory of the profile's pinned revision in a hub cache (the layout every Hugging Face client writes)."""
    model = profile["model"]
    return f"{hf_home}/hub/models--{model['repo'].replace('/', '--')}/snapshots/{model['revision']}"


def serve_arguments(profile: dict[str, t.Any], overrides: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
    """Everything behind ``vllm serve MODEL`` but the address, as typed data; ``overrides`` win, and null removes.

    Raises :class:`ProfileError` when an override names what the collection sets itself.
    """
    problems = serve_problems(profile, overrides or {}, "gb10_serve_arguments")
    if problems:
        raise ProfileError("; ".join(problems))
    parallel, model = profile["parallel"], profile["model"]
    arguments: dict[str, t.Any] = {
        "revision": model["revision"],
        "served_model_name": model["served_names"] or [model["repo"]],
        "tensor_parallel_size": parallel["tensor"],
        "pipeline_parallel_size": parallel["pipeline"],
        "data_parallel_size": parallel["data"] if parallel["data"] > 1 else None,
        "enable_expert_parallel": parallel["expert"] or None,
        "distributed_executor_backend": profile["executor"],
    }
    for source in (profile["serve"], overrides or {}):
        arguments.update({name.replace("-", "_"): value for name, value in source.items()})
    return {name: _resolve(profile, value) for name, value in arguments.items() if value is not None}


def _resolve(profile: dict[str, t.Any], value: t.Any) -> t.Any:
    """Replace ``side_file:NAME`` by the file's path inside the container."""
    if isinstance(value, str) and value.startswith(_SIDE_FILE):
        return f"{snapshot_path(profile)}/{value[len(_SIDE_FILE):]}"
    return value


def node_env(
    profile: dict[str, t.Any],
    facts: dict[str, str],
    *,
    fabric_fallback: str,
    nodes: int,
    shared: dict[str, t.Any] | None = None,
    host: dict[str, t.Any] | None = None,
) -> dict[str, str]:
    """The environment of one node's container.

    ``facts`` holds the node's value of each of :data:`HOST_FACTS`; an empty one leaves its variables out. Several ``nodes`` talk
    InfiniBand or fail (``NCCL_NET=IB``), unless ``fabric_fallback`` is ``tcp``. ``shared`` and ``host`` are the user's own variables.
    """
    env: dict[str, t.Any] = dict(SHARED_ENV)
    if nodes > 1 and fabric_fallback != "tcp":
        env["NCCL_NET"] = "IB"
    env.update(profile["env"]["shared"])
    env.update(shared or {})
    for name, fact in {**PER_HOST_ENV, **profile["env"]["per_host"]}.items():
        if facts.get(fact):
            env[name] = facts[fact]
    env.update(host or {})
    return {name: _text(value) for name, value in sorted(env.items())}


def per_host_names(profile: dict[str, t.Any], host: t.Iterable[str] = ()) -> list[str]:
    """Names whose values differ from node to node: left out of the env comparison, and never copied by the engine."""
    return sorted({*PER_HOST_ENV, *profile["env"]["per_host"], *host})


def _text(value: t.Any) -> str:
    """An environment variable's value; booleans as 1 and 0, the way every variable of these engines is read."""
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)
