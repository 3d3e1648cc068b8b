# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of vllm_serve, for the module and its action plugin alike. This module util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError

ARGUMENT_SPEC: dict[str, t.Any] = {
    "state": {"type": "str", "choices": ["started", "stopped"], "default": "started"},
    "node_role": {"type": "str", "choices": ["head", "worker"], "default": "head"},
    "cluster_name": {"type": "str", "default": "gb10"},
    "model": {"type": "str"},
    "arguments": {"type": "dict", "default": {}},
    "command": {"type": "list", "elements": "str", "default": ["vllm", "serve"]},
    "api_address": {"type": "str"},
    "api_port": {"type": "int", "default": 8000},
    "api_key_file": {"type": "path", "no_log": False},
    "secret_env": {"type": "dict", "default": {}, "no_log": False},
    "no_carry_env": {"type": "list", "elements": "str", "default": []},
    "allow_restart": {"type": "bool", "default": False},
    "wait": {"type": "bool", "default": True},
    "wait_timeout": {"type": "int", "default": 3600},
    "wait_sleep": {"type": "int", "default": 2},
    "first_token_timeout": {"type": "int", "default": 120},
    "stop_grace": {"type": "int", "default": 120},
    "keep_logs": {"type": "int", "default": 5},
    "log_max_bytes": {"type": "int", "default": 67108864},
    "state_dir": {"type": "path", "default": "/var/lib/gb10"},
    "log_dir": {"type": "path", "default": "/var/log/gb10"},
    "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
    "docker_timeout": {"type": "int", "default": 60},
}

#: The least that each of these numbers may be.
MINIMUM = {"wait_timeout": 1, "wait_sleep": 1, "first_token_timeout": 1, "stop_grace": 1, "keep_logs": 1, "log_max_bytes": 4096, "docker_timeout": 1}


def check(params: dict[str, t.Any]) -> None:
    """Raise :class:`ClusterError` for options that do not fit together or are out of range."""
    if params["state"] == "started" and params["node_role"] == "head":
        missing = [name for name in ("model", "api_address") if not params[name]]
        if missing:
            raise ClusterError(f"a started engine on the head needs the options {' and '.join(missing)}")
        if not params["command"]:
            raise ClusterError("the option command is empty", remedy="Leave it out for: [vllm, serve]")
    for name, least in MINIMUM.items():
        if params[name] < least:
            raise ClusterError(f"{name} is {params[name]}, needed is {least} or more")
