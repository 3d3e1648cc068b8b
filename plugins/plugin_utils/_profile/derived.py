# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Derives from a profile the arguments of its engine and the variables of its containers. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import hashlib
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._arguments.env_text import env_text
from ansible_collections.gb10.cluster.plugins.module_utils._arguments.serve_arguments import canonical
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.form import EXECUTOR_BACKENDS, MODEL, REPOSITORY, SIDE_FILE, ProfileError, snake
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.repositories import snapshot_path
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.validation import serve_problems
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.schema import ID, problem

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


def mod_digests(profile: dict[str, t.Any]) -> dict[str, str]:
    """Return the digest of each change to a profile's image: the same digest means the same change."""
    return {
        name: hashlib.sha256(canonical([mod["packages"], [[patch["sha256"], patch["package"]] for patch in mod["patches"]]]).encode()).hexdigest()
        for name, mod in profile["image"]["mods"].items()
    }


def serve_arguments(profile: dict[str, t.Any], overrides: dict[str, t.Any] | None = None, executor: str | None = None) -> dict[str, t.Any]:
    """Return all arguments after ``vllm serve MODEL`` except the address and the values that differ between nodes, as typed data.

    ``overrides`` win, and null removes. ``executor`` is ``ray`` or ``native``; the default is the profile's.
    Raises :class:`ProfileError` for an override of an argument that the collection sets itself, and for any other executor.
    """
    chosen = executor or profile["executor"]
    if chosen not in EXECUTOR_BACKENDS:
        ways = ", ".join(EXECUTOR_BACKENDS)
        raise ProfileError(problem("executor", f"'{chosen}' is not a way to start ranks", f"one of {ways}, resolved before the engine starts"))
    problems = serve_problems(profile, overrides or {}, "gb10_serve_arguments", ID)
    if problems:
        raise ProfileError(*problems)
    parallel, model = profile["parallel"], profile["model"]
    arguments: dict[str, t.Any] = {
        "revision": model["revision"],
        "served_model_name": model["served_names"],
        "tensor_parallel_size": parallel["tensor"],
        "pipeline_parallel_size": parallel["pipeline"],
        "data_parallel_size": parallel["data"] if parallel["data"] > 1 else None,
        "enable_expert_parallel": parallel["expert"] or None,
        "distributed_executor_backend": EXECUTOR_BACKENDS[chosen],
        **snake(profile["serve"]),
        **snake(overrides or {}),
    }
    return {name: _resolve(profile, value) for name, value in arguments.items() if value is not None}


def _resolve(profile: dict[str, t.Any], value: t.Any) -> t.Any:
    """Replace ``side_file:NAME`` and ``repository:NAME[/PATH]`` anywhere in a value by paths inside the container.

    A repository that is not pinned is passed by its own name: the engine finds it in the cache as ``main``.
    """
    if isinstance(value, dict):
        return {key: _resolve(profile, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(profile, item) for item in value]
    if isinstance(value, str) and value.startswith(SIDE_FILE):
        value = f"{REPOSITORY}{MODEL}/{value[len(SIDE_FILE):]}"
    if isinstance(value, str) and value.startswith(REPOSITORY):
        name, slash, path = value[len(REPOSITORY):].partition("/")
        repository = profile["model"] if name == MODEL else profile["repositories"][name]
        return f"{snapshot_path(profile, repository=name)}{slash}{path}" if repository["revision"] or repository["path"] else repository["repo"]
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
    """Return the environment of one node's container.

    ``facts`` has the node's value for each of :data:`HOST_FACTS`; an empty one leaves its variables out. Several ``nodes`` use
    InfiniBand or fail (``NCCL_NET=IB``), unless ``fabric_fallback`` is ``tcp``. ``shared`` and ``host`` are the user's own variables.
    """
    env = {
        **SHARED_ENV,
        **({"NCCL_NET": "IB"} if nodes > 1 and fabric_fallback != "tcp" else {}),
        **profile["env"]["shared"],
        **(shared or {}),
        **{name: facts[fact] for name, fact in {**PER_HOST_ENV, **profile["env"]["per_host"]}.items() if facts.get(fact)},
        **(host or {}),
    }
    return {name: env_text(name, value) for name, value in sorted(env.items())}


def per_host_names(profile: dict[str, t.Any], host: t.Iterable[str] = ()) -> list[str]:
    """Return the names of variables that differ between nodes: they are left out of the env comparison, and the engine never copies them."""
    return sorted({*PER_HOST_ENV, *profile["env"]["per_host"], *host})
