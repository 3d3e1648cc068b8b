# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of vllm_serve, for the module and its action plugin. This module util is PRIVATE to the collection."""

from __future__ import annotations

import ipaddress
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._model.model_files import REPOSITORIES
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least

ARGUMENT_SPEC: dict[str, t.Any] = {
    "state": {"type": "str", "choices": ["started", "stopped"], "default": "started"},
    "node_role": {"type": "str", "choices": ["head", "worker"], "default": "head"},
    "cluster_name": {"type": "str", "default": "gb10"},
    "profile": {"type": "str", "default": ""},
    "image_seconds": {"type": "float"},
    "reported_start": {"type": "dict", "default": {}},
    "executor": {"type": "str", "choices": ["ray", "native"], "default": "ray"},
    "node_rank": {"type": "int"},
    "node_count": {"type": "int", "default": 1},
    "master_address": {"type": "str"},
    "master_port": {"type": "int", "default": 29501},
    "model": {"type": "str"},
    "hf_home": {"type": "path"},
    "repositories": REPOSITORIES,
    "arguments": {"type": "dict", "default": {}},
    "same_arguments": {"type": "dict"},
    "command": {"type": "list", "elements": "str", "default": ["vllm", "serve"]},
    "fabric_address": {"type": "str"},
    "api_address": {"type": "str"},
    "api_port": {"type": "int", "default": 8000},
    "api_key_file": {"type": "path", "no_log": False},
    "secret_env": {"type": "dict", "default": {}, "no_log": False},
    "no_carry_env": {"type": "list", "elements": "str", "default": []},
    "allow_restart": {"type": "bool", "default": False},
    "interrupt_requests": {"type": "bool", "default": False},
    "drain_timeout": {"type": "int", "default": 0},
    "unready_runs": {"type": "list", "elements": "str", "default": []},
    "lacks_rank": {"type": "bool", "default": False},
    "lock_id": {"type": "str", "default": ""},
    "wait": {"type": "bool", "default": True},
    "begun": {"type": "dict", "default": {}},
    "wait_timeout": {"type": "int", "default": 3600},
    "wait_sleep": {"type": "int", "default": 2},
    "first_token_timeout": {"type": "int", "default": 600},
    "silent_timeout": {"type": "int", "default": 600},
    "stall_timeout": {"type": "int", "default": 600},
    "prompt_letters": {"type": "int", "default": 0},
    "stop_grace": {"type": "int", "default": 120},
    "keep_logs": {"type": "int", "default": 5},
    "log_max_bytes": {"type": "int", "default": 67108864},
    "state_dir": {"type": "path", "default": "/var/lib/gb10"},
    "log_dir": {"type": "path", "default": "/var/log/gb10"},
    "signature_dirs": {"type": "list", "elements": "str", "default": []},
    "roots": ROOTS,
    "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
    "docker_timeout": {"type": "int", "default": 60},
}

#: The minimum of each of these numbers.
MINIMUM = {
    "node_count": 1,
    "drain_timeout": 0,
    "wait_timeout": 1,
    "wait_sleep": 1,
    "first_token_timeout": 1,
    "silent_timeout": 1,
    "stall_timeout": 1,
    "stop_grace": 1,
    "keep_logs": 1,
    "log_max_bytes": 4096,
    "docker_timeout": 1,
}


def has_engine(params: dict[str, t.Any]) -> bool:
    """Return whether the module starts a process of the engine on this node: on the head always, on a worker if Ray does not start it."""
    return params["node_role"] == "head" or params["executor"] == "native"


def check(params: dict[str, t.Any]) -> None:
    """Raise :class:`ClusterError` for options that do not fit together or are out of range."""
    if params["state"] == "started" and has_engine(params):
        missing = [name for name in ("model", "api_address") if not params[name] and (name == "model" or params["node_role"] == "head")]
        if missing:
            raise ClusterError(f"a started engine on the {params['node_role']} needs the options {' and '.join(missing)}")
        if not params["command"]:
            raise ClusterError("the option command is empty", remedy="Leave it out for: [vllm, serve]")
    require_least(params, MINIMUM)
    check_address("fabric_address", params["fabric_address"])
    if params["state"] == "started" and params["executor"] == "native":
        check_place(params)


def check_address(name: str, value: str | None) -> None:
    """Raise :class:`ClusterError` unless an option is unset or an IP address."""
    try:
        ipaddress.ip_address(value or "0.0.0.0")
    except ValueError as error:
        raise ClusterError(f"{name} is {value}, expected an IP address", remedy=f"Correct {name}, or leave it out.") from error


def check_place(params: dict[str, t.Any]) -> None:
    """Raise :class:`ClusterError` unless a node's part of an engine without Ray has a valid place."""
    rank, count = params["node_rank"], params["node_count"]
    if rank is None or (count > 1 and not params["master_address"]):
        raise ClusterError(
            "executor native needs node_rank, and on several nodes master_address",
            remedy="The head has node_rank 0 and its address is the master_address; the workers count from 1.",
        )
    if not 0 <= rank < count:
        raise ClusterError(f"node_rank is {rank}, expected 0 to {count - 1}", remedy="Correct node_rank, or node_count.")
    if (rank == 0) != (params["node_role"] == "head"):
        raise ClusterError(f"a {params['node_role']} cannot have node_rank {rank}", remedy="The head has node_rank 0, the workers count from 1.")
    backend = params["arguments"].get("distributed_executor_backend", params["arguments"].get("distributed-executor-backend"))
    if backend not in (None, "mp"):
        raise ClusterError(f"serve argument distributed_executor_backend is {backend}, executor native needs mp", remedy="Set it to mp, or leave it out.")
