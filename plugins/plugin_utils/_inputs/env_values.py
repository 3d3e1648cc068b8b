# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judges the settings for variables of the containers. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import Problem
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs.settings import Problems
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import derived, validation

#: Variables for secrets, and the setting to use instead.
SECRET_ENV = {
    "HF_HUB_TOKEN": "put the token into a file, and name it in gb10_hf_token_file",
    "HF_TOKEN": "put the token into a file, and name it in gb10_hf_token_file",
    "HUGGING_FACE_HUB_TOKEN": "put the token into a file, and name it in gb10_hf_token_file",
    "RAY_AUTH_TOKEN": "remove it; the collection makes Ray's token",
    "VLLM_API_KEY": "remove it; gb10_api_key: generate makes a key and hands it over as a file",
}
#: Variables that another setting determines.
OWNED_ENV = {
    "HF_HOME": "gb10_hf_home",
    "HF_HUB_CACHE": "gb10_hf_home",
    "RAY_AUTH_MODE": "the collection",
    "RAY_AUTH_TOKEN_PATH": "the collection",
}
SECRET_LIKE = re.compile(r"(?i)(\A|_)(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|API_KEY|ACCESS_KEY|CREDENTIALS)(_|\Z)(?!(\w*_)?(FILE|PATH|DIR)\Z)")


#: The id of the finding about a variable of a setting or a profile.
ENV = "input.env"


def looks_secret(place: str) -> Problem:
    """Return the finding about a variable of a container that looks like a secret."""
    remedy = "if it is one, hand it over as a file; otherwise add input.env_secret to gb10_silenced"
    what = "looks like a secret; variables of containers can be read in their configuration"
    return Problem("input.env_secret", place, what, remedy=remedy)


def per_host_env(env: dict[str, t.Any]) -> Problems:
    for name in env:
        if name in derived.PER_HOST_ENV:
            fact = f"gb10_{derived.PER_HOST_ENV[name].replace('ucx_devices', 'rdma_devices')}"
            remedy = f"remove it, it follows from {fact}; a value of your own goes into gb10_host_env of each host"
            yield Problem("input.env_per_host", f"gb10_env.{name}", "differs from node to node; one value for all of them can't be right", remedy=remedy)


def build_env(env: dict[str, t.Any]) -> Problems:
    yield from validation.env_problems(env, "gb10_build_pip_env", ENV, "correct the variable in gb10_build_pip_env")
    for name in map(str, env):
        if SECRET_LIKE.search(name):
            what = "looks like a secret, which would stay readable in the image's history"
            yield Problem("input.env_secret", f"gb10_build_pip_env.{name}", what, remedy="use an index that needs none for the build")


def env_of(where: str, id: str, env: dict[str, t.Any]) -> Problems:
    """Yield problems of variables of all containers. No value is ever shown: it could be a secret."""
    yield from validation.env_problems(env, where, id, f"correct the variable in {where}")
    for name, value in env.items():
        name, place = str(name), f"{where}.{name}"
        if name in SECRET_ENV:
            what = "is a secret; anybody who may ask Docker could read it in the container's configuration"
            yield Problem("input.env_secret", place, what, remedy=SECRET_ENV[name])
        elif name in OWNED_ENV:
            yield Problem(id, place, f"is set by the collection from {OWNED_ENV[name]}", remedy=f"remove it from {where}")
        elif SECRET_LIKE.search(name) and not (name.upper().endswith("CREDENTIALS") and str(value).startswith("/")):
            yield looks_secret(place)


def off_fabric(where: str, env: dict[str, t.Any], fallback: str) -> Problems:
    around = [name for name, value in (("NCCL_NET", "socket"), ("NCCL_IB_DISABLE", "1")) if str(env.get(name, "")).lower() in (value, "true")]
    if fallback == "none" and around:
        remedy = f"remove {around[0]}, or set gb10_fabric_fallback to tcp if that is what you want"
        yield Problem("input.fabric_fallback", f"{where}.{around[0]}", "takes NCCL off InfiniBand, and gb10_fabric_fallback is none", remedy=remedy)


def around_guard(where: str, id: str, env: dict[str, t.Any], api_key: str) -> Problems:
    """Yield a problem of the engine's front end in Rust, which does not run the collection's guard that asks for the key on every path."""
    if api_key != "none" and str(env.get("VLLM_USE_RUST_FRONTEND", "0")).lower() not in ("", "0", "false"):
        what = "takes the front end that runs no guard, so the API would answer on some paths without its key"
        yield Problem(id, f"{where}.VLLM_USE_RUST_FRONTEND", what, remedy=f"remove it from {where}, or serve without a key: gb10_api_key: none")
