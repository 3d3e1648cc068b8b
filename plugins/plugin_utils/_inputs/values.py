# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of one host, judged as they were evaluated for it. This plugin util is PRIVATE to the collection.

What one value has to be stands in :data:`FORMS`; what values mean to each other, and to the profile, is in the functions below.
"""

from __future__ import annotations

import functools
import ipaddress
import itertools
import math
import os
import re
import stat
import typing as t
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.module_utils._arguments.serve_arguments import TRUST
from ansible_collections.gb10.cluster.plugins.module_utils._companion import declared
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, Problem
from ansible_collections.gb10.cluster.plugins.module_utils._model import inventory
from ansible_collections.gb10.cluster.plugins.module_utils._node import fields, ray
from ansible_collections.gb10.cluster.plugins.module_utils._protect import measures
from ansible_collections.gb10.cluster.plugins.module_utils._redact import SHORTEST_SECRET, holds_secret
from ansible_collections.gb10.cluster.plugins.module_utils._service import table
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import declared as sweep
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs.settings import Problems, Values, only_if, options, settings, short
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import cached, declared_claims, planning
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import derived, flags, repositories, validation
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.form import snake
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import tuning

#: Ids of findings that are made here.
IDS = (
    "input.cluster_name",
    "input.companions",
    "input.confirm",
    "input.control_interface",
    "input.credential",
    "input.env",
    "input.env_per_host",
    "input.env_secret",
    "input.fabric_address",
    "input.fabric_fallback",
    "input.format",
    "input.host_env",
    "input.offline",
    "input.path",
    "input.placeholder",
    "input.plan",
    "input.port",
    "input.port_range",
    "input.range",
    "input.rules",
    "input.same_path",
    "input.same_port",
    "input.secret_file",
    "input.serve_arguments",
    "input.stop_grace",
    "input.sweep",
    "input.tenants",
)

#: Settings that must have one value for the whole cluster: nodes that disagree would build half of two clusters.
CLUSTER_WIDE = (
    "gb10_api_key",
    "gb10_api_port",
    "gb10_cluster_group",
    "gb10_cluster_name",
    "gb10_copy_port",
    "gb10_env",
    "gb10_fabric_fallback",
    "gb10_head_host",
    "gb10_image_copy",
    "gb10_image_port",
    "gb10_kv_cache",
    "gb10_lease",
    "gb10_lease_lost_seconds",
    "gb10_lease_seconds",
    "gb10_master_port",
    "gb10_mode",
    "gb10_model_copy",
    "gb10_profile",
    "gb10_profile_dirs",
    "gb10_profile_switches",
    "gb10_ray_gpus",
    "gb10_ray_port",
    "gb10_ray_port_range",
    "gb10_ray_version",
    "gb10_serve_arguments",
    "gb10_signature_dirs",
    "gb10_tenants",
    "gb10_worker_hosts",
)

#: The range in which Linux picks ports for outgoing connections (its default).
EPHEMERAL = (32768, 60999)

#: Variables that hold secrets, and how the collection hands them over instead.
SECRET_ENV = {
    "HF_HUB_TOKEN": "put the token into gb10_hf_token",
    "HF_TOKEN": "put the token into gb10_hf_token",
    "HUGGING_FACE_HUB_TOKEN": "put the token into gb10_hf_token",
    "RAY_AUTH_TOKEN": "remove it; the collection makes Ray's token",
    "VLLM_API_KEY": "remove it; gb10_api_key: generate makes a key and hands it over as a file",
}
#: Variables whose meaning is fixed by another setting.
OWNED_ENV = {
    "HF_HOME": "gb10_hf_home",
    "HF_HUB_CACHE": "gb10_hf_home",
    "RAY_AUTH_MODE": "the collection",
    "RAY_AUTH_TOKEN_PATH": "the collection",
}
_SECRET_LIKE = re.compile(r"(?i)(\A|_)(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|API_KEY|ACCESS_KEY|CREDENTIALS)(_|\Z)(?!(\w*_)?(FILE|PATH|DIR)\Z)")

#: Devices by which root of a container reads the memory of the node.
MEMORY = ("/dev/mem", "/dev/kmem", "/dev/port")

#: Files on the controller that hold one secret each, and nothing else.
SECRET_FILES = ("gb10_api_key_file", "gb10_hf_token_file")
#: Bytes of such a file that are looked at: no key and no token is longer.
SECRET_BYTES = 4096
#: What Ansible logs in with.
KEY_FILES = ("ansible_private_key_file", "ansible_ssh_private_key_file")

#: Directories on the nodes. Those that hold others' files beside the collection's would get its owner and mode.
DIRECTORIES = ("gb10_state_dir", "gb10_log_dir", "gb10_secrets_dir", "gb10_hf_home")
#: No other directory may lie in these: what is in them is shown, pruned, or protected as a whole.
UNSHARED_DIRECTORIES = ("gb10_log_dir", "gb10_secrets_dir", "gb10_hf_home")
SYSTEM_DIRECTORIES = frozenset(
    "/ /bin /boot /dev /etc /home /lib /media /mnt /opt /proc /root /run /sbin /srv /sys /tmp /usr /usr/local /var /var/lib /var/log /var/run /var/tmp".split()
)

#: Names of hosts that only an example has (RFC 2606, and the ones of inventories/example).
_PLACEHOLDER = re.compile(r"(\A|\.)(example\.(lan|com|net|org)|example|invalid)\Z")
#: The addresses of the example inventory.
EXAMPLE_API, EXAMPLE_FABRIC = "10.0.0.11", ("192.168.100.1", "192.168.100.2")


# --- what one value has to be -------------------------------------------------------------------------------------------------


class Form(t.NamedTuple):
    """What a value has to be: the id of its finding, whether a value is that, and how to say it. With ``each`` every entry of a list."""

    id: str
    fits: t.Callable[[t.Any], t.Any]
    expected: str
    remedy: str = ""
    each: bool = False


def _whole(low: int, high: int | None = None, id: str = "input.range") -> Form:
    return Form(id, lambda value: low <= value and (high is None or value <= high), f"{low} or more" if high is None else f"{low} to {high}")


def _like(pattern: str) -> t.Callable[[str], re.Match[str] | None]:
    return re.compile(pattern).match


def _is_gpu_choice(gpus: t.Any) -> bool:
    if isinstance(gpus, list):
        return bool(gpus) and all(isinstance(gpu, (str, int)) and not isinstance(gpu, bool) for gpu in gpus)
    return gpus in ("all", "none")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_ray_version(text: str) -> bool:
    return bool(re.fullmatch(r"\d+\.\d+\.\d+", text)) and ray.knows_token(text)


def _is_node_address(text: str) -> bool:
    found = _address(text)
    # One of IPv6's link-local addresses means something only together with an interface, which no variable of an engine takes.
    of_a_link = isinstance(found, ipaddress.IPv6Address) and found.is_link_local
    return found is not None and not (found.is_unspecified or found.is_loopback or found.is_multicast or of_a_link)


def _is_absolute(path: str) -> bool:
    return path.startswith("/") and ".." not in path.split("/") and not re.search(r"[\s:\0]", path)


def _is_own_directory(path: str) -> bool:
    return _is_absolute(path) and os.path.normpath(path) not in SYSTEM_DIRECTORIES and not path.startswith(("/proc/", "/sys/", "/dev/"))


def _is_file_path(path: str) -> bool:
    return path.startswith(("/", "~")) and not os.path.isdir(os.path.expanduser(path))


def _removable(text: str) -> bool:
    try:
        for word in filter(str.strip, text.split(",")):
            inventory.parse_request(word)
    except ClusterError:
        return False
    return True


def _measures(text: str) -> bool:
    words = [word.strip() for word in text.split(",") if word.strip()]
    return bool(words) and set(words) <= set(measures.BY_ID)


def _is_device(text: str) -> bool:
    # However it is spelled: Docker takes //dev/./mem for /dev/mem.
    path = os.path.normpath(text.partition(":")[0])
    return path.startswith("/dev/") and path not in MEMORY and not re.search(r"\s", text)


def _rungs(text: str) -> bool:
    words = [word.strip() for word in text.split(",")] if text else []
    numbers = [int(word) if word.isdecimal() else 0 for word in words]
    return 0 not in numbers and numbers == sorted(set(numbers))


def _concurrencies(text: str) -> bool:
    words = [word.strip() for word in text.split(",")]
    return all(word.isdecimal() and 1 <= int(word) <= 1024 for word in words)


def _is_port_or_none(value: t.Any) -> bool:
    return not isinstance(value, bool) and str(value).isdecimal() and int(value) <= 65535


ABSOLUTE = "an absolute path without '..', spaces and colons"
OWN_DIRECTORY = Form("input.path", _is_own_directory, f"{ABSOLUTE} that is not one of the system's directories")
FILE_PATH = Form("input.path", _is_file_path, "the absolute path of a file")
SECRET_PATH = Form(
    "input.path", lambda path: not path or os.path.isabs(os.path.expanduser(path)), "the absolute path of a file on the controller"
)
PORT = _whole(1024, 65535, "input.port")

#: Directories of a node below gb10_state_dir and gb10_log_dir that belong to no cluster.
RESERVED = sorted({*table.folders(), "image-contracts", "model-code", "wheels"})


def _is_cluster_name(value: t.Any) -> bool:
    return bool(re.match(r"[a-z0-9][a-z0-9_.-]{0,31}\Z", value)) and value not in RESERVED


#: Setting → what its value has to be. Ports and other whole numbers that are not here: :func:`form_of`.
FORMS: dict[str, Form] = {
    "gb10_bundle_dir": Form("input.path", lambda path: not path or _is_absolute(path), ABSOLUTE),
    "gb10_build_ca_file": Form("input.path", lambda path: not path or _is_absolute(path), ABSOLUTE),
    "gb10_cluster_name": Form(
        "input.cluster_name",
        _is_cluster_name,
        "1 to 32 of a-z, 0-9, '_', '.' and '-', a letter or digit first: it becomes part of a container's name and of directories; "
        f"not one of {', '.join(RESERVED)}",
        "choose another gb10_cluster_name",
    ),
    "gb10_confirmed": Form(
        "input.confirm", bool, "true: without it nobody wants this run", "answer the survey's question with true, or run with -e gb10_confirmed=true"
    ),
    "gb10_bench_concurrency": Form("input.format", _concurrencies, "whole numbers from 1 to 1024, with commas between them"),
    "gb10_bench_input": _whole(1),
    "gb10_bench_minutes": _whole(1, 480),
    "gb10_bench_output": _whole(2),
    "gb10_container_capabilities": Form(
        "input.format",
        fields.is_confined,
        f"one by which a container stays confined: not {', '.join(fields.UNCONFINED)}",
        "leave it out of gb10_container_capabilities",
        each=True,
    ),
    "gb10_container_devices": Form("input.format", _is_device, "a path below /dev, not the memory's", each=True),
    "gb10_container_gpus": Form("input.format", _is_gpu_choice, "all, none, or a list of GPU ids"),
    "gb10_copy_streams": _whole(1, 32),
    "gb10_fabric_address": Form(
        "input.fabric_address",
        _is_node_address,
        "the node's IP address on the ConnectX-7 link, or any other of a node alone",
        "set gb10_fabric_address for this host in the inventory",
    ),
    "gb10_fabric_interfaces": Form("input.format", _like(r"[^\s/:,=^]{1,15}\Z"), "the name of one interface", each=True),
    "gb10_fabric_path": FILE_PATH,
    "gb10_hf_endpoint": Form("input.format", _like(r"\Z|https?://[^\s/]+\S*\Z"), "an address that begins with https:// or http://, or nothing"),
    "gb10_hf_token": Form(
        "input.format",
        _like(rf"(\S{{{SHORTEST_SECRET},}})?\Z"),
        f"one word of {SHORTEST_SECRET} characters or more without spaces and line breaks (`| trim` takes them off)",
    ),
    "gb10_ladder_floor_gib": _whole(1, 1024),
    "gb10_ladder_prompt_seconds": _whole(1, 28800),
    "gb10_ladder_rungs": Form("input.format", _rungs, "whole numbers that grow, with commas between them, or nothing"),
    "gb10_ladder_sshd_ms": _whole(1, 600000),
    "gb10_lease_lost_seconds": _whole(20, 86400),
    "gb10_memlock": Form("input.range", lambda limit: limit == -1 or limit >= 65536, "-1 (unlimited) or 65536 and more, in bytes"),
    "gb10_model_directories": Form("input.path", _is_absolute, ABSOLUTE, each=True),
    "gb10_models_remove": Form(
        "input.format", _removable, "REPO@REVISION, the revision as 40 hexadecimal digits or 'leftovers', several with commas between them",
        "copy it from the list that the playbook models prints without it",
    ),
    "gb10_mode": Form("input.format", _like(r"(cluster|singles|off)?\Z"), "cluster, singles or off"),
    # Ray refuses less.
    "gb10_object_store_memory": _whole(75 * 1024**2),
    "gb10_plan_concurrency": _whole(1),
    "gb10_plan_ranks": _whole(1, cached.MOST_RANKS),
    "gb10_preflight_path": FILE_PATH,
    "gb10_ray_gpus": _whole(1, 16),
    "gb10_ray_version": Form("input.format", _is_ray_version, "a version of three numbers from 2.52 on, such as 2.60.0: those before ignore the token"),
    "gb10_protect_measures": Form("input.format", _measures, f"some of {', '.join(measures.BY_ID)}, with commas between them"),
    "gb10_rdma_devices": Form("input.format", _like(r"[^\s/:,=^]+\Z"), "the name of one RDMA device, without a port", each=True),
    "gb10_report_path": FILE_PATH,
    "gb10_serve_timeout": _whole(30),
    "gb10_silent_seconds": _whole(1),
    "gb10_status_seconds": _whole(1),
    "gb10_sweep_ca_file": Form("input.path", lambda path: not path or _is_absolute(path), ABSOLUTE),
    "gb10_sweep_floor_gib": _whole(0, 1024),
    "gb10_sweep_minutes": _whole(1, 1440),
    "gb10_sweep_quiet_minutes": _whole(1, 10080),
    "gb10_sweep_repeat_hours": _whole(0, 8760),
    "gb10_sweep_sshd": Form("input.range", _is_port_or_none, "0 to 65535"),
    "gb10_first_token_timeout": _whole(1),
    "gb10_answer_timeout": _whole(1),
    "gb10_answer_tokens": _whole(1),
    "gb10_needle_percent": _whole(1, 90),
    "gb10_shm_size": Form("input.format", _like(r"(?i)[1-9]\d*(\.\d+)?[bkmgt]?b?\Z"), "a size as Docker takes it, such as 16g"),
    **dict.fromkeys(DIRECTORIES, OWN_DIRECTORY),
    **dict.fromkeys(SECRET_FILES, SECRET_PATH),
}


def form_of(name: str, option: dict[str, t.Any] | None = None) -> Form | None:
    """What the value of a setting has to be, None where its type says all."""
    if name in FORMS or (option or settings()[name])["type"] != "int":
        return FORMS.get(name)
    if name.endswith("_port"):
        return PORT
    return _whole(1 if name.endswith(("_timeout", "_grace")) else 0)


def wrong_forms(values: Values, spec: dict[str, dict[str, t.Any]] | None = None) -> Problems:
    """Values that are not what they have to be. ``spec`` is that of all settings."""
    for name, value in values.items():
        option = (spec or settings())[name]
        form = form_of(name, option)
        for entry in value if form and form.each else [value]:
            if form and not form.fits(entry):
                own_place = f"give {name} a directory of its own, such as {option.get('default')}" if form is OWN_DIRECTORY else ""
                shown = "has another form" if option.get("no_log") else f"{'holds' if form.each else 'is'} {_quoted(entry)}"
                measured = None if option.get("no_log") else entry
                yield Problem(form.id, name, shown, form.expected, own_place or form.remedy or f"set {name} to {form.expected}", measured=measured)


def _quoted(value: t.Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{short(value)}'" if isinstance(value, str) else short(value)


# --- what values mean to each other -------------------------------------------------------------------------------------------


def _ports(values: Values) -> Problems:
    """No two ports are equal, and none lies inside Ray's range."""
    ports = {name: value for name, value in values.items() if form_of(name) is PORT}
    for (name, port), (other, value) in itertools.combinations(sorted(ports.items(), reverse=True), 2):
        if port == value:
            yield Problem("input.same_port", name, f"is {port}, and so is {other}", "a port of its own", f"choose another {name} or {other}", measured=port)
    asked = values.get("gb10_ray_port_range")
    wrong = functools.partial(Problem, "input.port_range")
    try:
        # No port is 0: those that lie inside are named below, each with its variable.
        span = ray.parse_port_range(asked, 0) if asked is not None else None
    except ClusterError as error:
        yield wrong("gb10_ray_port_range", error.what, error.expected, error.remedy, measured=asked)
        return
    if span:
        inside = f"lies inside gb10_ray_port_range {span.first}-{span.last}, which Ray's own processes use"
        overlap = f"overlaps {EPHEMERAL[0]}-{EPHEMERAL[1]}, from which Linux takes ports for outgoing connections"
        lower = {"remedy": "choose a range below, such as 20100-20299", "verdict": "warn", "measured": asked}
        yield from only_if(
            *(
                (
                    span.first <= port <= span.last,
                    wrong(name, f"{port} {inside}", remedy=f"choose a port outside the range for {name}, or move gb10_ray_port_range", measured=port),
                )
                for name, port in ports.items()
            ),
            (
                span.first <= EPHEMERAL[1] and span.last >= EPHEMERAL[0],
                wrong("gb10_ray_port_range", f"{span.first}-{span.last} {overlap}", **lower),
            ),
        )


def _directories(values: Values) -> Problems:
    """Directories on the nodes are apart from each other where that matters."""
    wrong = functools.partial(Problem, "input.same_path", expected="a directory of its own")
    paths = {name: os.path.normpath(values[name]) for name in DIRECTORIES if name in values}
    for (name, path), (other, inner) in itertools.permutations(paths.items(), 2):
        if path == inner and name < other:
            yield wrong(name, f"is {path}, and so is {other}", remedy="give each a directory of its own", measured=path)
        elif name in UNSHARED_DIRECTORIES and path != inner and Path(path) in Path(inner).parents:
            yield wrong(other, f"{inner} lies inside {name} ({path})", remedy="give each a directory of its own", measured=inner)
    if {"gb10_state_dir", "gb10_hf_home"} <= set(paths) and "gb10_cluster_name" in values:
        state, hub = Path(paths["gb10_state_dir"], values["gb10_cluster_name"]), Path(paths["gb10_hf_home"])
        if state in (hub, *hub.parents):
            what = f"{hub} lies in the state of the cluster {values['gb10_cluster_name']} ({state})"
            yield wrong("gb10_hf_home", what, remedy="choose another gb10_cluster_name or gb10_hf_home", measured=str(state))


def _unused_key(api_key: str, path: str) -> Problems:
    if api_key == "none" and path:
        what = f"{short(path)} is not read, since gb10_api_key is none: the API serves without a key"
        yield Problem("input.secret_file", "gb10_api_key_file", what, remedy="leave the file out, or set gb10_api_key to generate", verdict="warn")


def _per_host_env(env: dict[str, t.Any]) -> Problems:
    for name in env:
        if name in derived.PER_HOST_ENV:
            fact = f"gb10_{derived.PER_HOST_ENV[name].replace('ucx_devices', 'rdma_devices')}"
            remedy = f"remove it, it follows from {fact}; a value of your own goes into gb10_host_env of each host"
            yield Problem("input.env_per_host", f"gb10_env.{name}", "differs from node to node; one value for all of them can't be right", remedy=remedy)


def _build_env(env: dict[str, t.Any]) -> Problems:
    yield from validation.env_problems(env, "gb10_build_pip_env", "input.env", "correct the variable in gb10_build_pip_env")
    for name in map(str, env):
        if _SECRET_LIKE.search(name):
            what = "looks like a secret, which would stay readable in the image's history"
            yield Problem("input.env_secret", f"gb10_build_pip_env.{name}", what, remedy="use an index that needs none for the build")


def _env_of(where: str, id: str, env: dict[str, t.Any]) -> Problems:
    """What holds for variables of containers, whoever's they are. No value is ever shown: it could be a secret."""
    yield from validation.env_problems(env, where, id, f"correct the variable in {where}")
    for name, value in env.items():
        name, place = str(name), f"{where}.{name}"
        if name in SECRET_ENV:
            what = "is a secret; anybody who may ask Docker could read it in the container's configuration"
            yield Problem("input.env_secret", place, what, remedy=SECRET_ENV[name])
        elif name in OWNED_ENV:
            yield Problem(id, place, f"is set by the collection from {OWNED_ENV[name]}", remedy=f"remove it from {where}")
        elif _SECRET_LIKE.search(name) and not (name.upper().endswith("CREDENTIALS") and str(value).startswith("/")):
            remedy = "if it is one, hand it over as a file; otherwise add input.env_secret to gb10_silenced"
            what = "looks like a secret; variables of containers can be read in their configuration"
            yield Problem("input.env_secret", place, what, remedy=remedy)


def texts(content: t.Any, where: str) -> t.Iterator[tuple[str, str]]:
    """Yield where each text stands in data of any depth, and the text."""
    if isinstance(content, str):
        yield where, content
    elif isinstance(content, dict):
        for name, value in content.items():
            yield from texts(value, f"{where}.{name}")
    elif isinstance(content, list):
        for entry in content:
            yield from texts(entry, where)


def credentials(content: t.Any, where: str) -> Problems:
    """Texts that hold a password, a token or a key, as the address of a proxy or an index does. They are never shown."""
    for place, text in texts(content, where):
        if holds_secret(text):
            what = "holds what looks like a password, a token or a key; it would be readable in a container's configuration, an image or a command line"
            remedy = f"take it out of {where}: the hub's token goes into gb10_hf_token, proxies and mirrors must not ask"
            yield Problem("input.credential", place, what, remedy=remedy)


def credentials_of(values: Values) -> Problems:
    """What :func:`credentials` finds in all settings but those for secrets."""
    for name, value in values.items():
        if not settings()[name].get("no_log"):
            yield from credentials(value, name)


def _off_fabric(where: str, env: dict[str, t.Any], fallback: str) -> Problems:
    around = [name for name, value in (("NCCL_NET", "socket"), ("NCCL_IB_DISABLE", "1")) if str(env.get(name, "")).lower() in (value, "true")]
    if fallback == "none" and around:
        remedy = f"remove {around[0]}, or set gb10_fabric_fallback to tcp if that is what you want"
        yield Problem("input.fabric_fallback", f"{where}.{around[0]}", "takes NCCL off InfiniBand, and gb10_fabric_fallback is none", remedy=remedy)


def _around_guard(where: str, id: str, env: dict[str, t.Any], api_key: str) -> Problems:
    """The engine's front end in Rust runs no guard of the collection's, which asks for the key on every path."""
    if api_key != "none" and str(env.get("VLLM_USE_RUST_FRONTEND", "0")).lower() not in ("", "0", "false"):
        what = "takes the front end that runs no guard, so the API would answer on some paths without its key"
        yield Problem(id, f"{where}.VLLM_USE_RUST_FRONTEND", what, remedy=f"remove it from {where}, or serve without a key: gb10_api_key: none")


def _control(control: str, interfaces: list[str]) -> Problems:
    """Rendezvous over another link than the fabric works where both nodes have it, and is mostly a slip."""
    if control and interfaces and control not in interfaces:
        what = f"is {short(control)}, which is none of gb10_fabric_interfaces ({', '.join(interfaces)})"
        remedy = "leave it out for the first of them, unless rendezvous is meant to go another way"
        yield Problem("input.control_interface", "gb10_control_interface", what, remedy=remedy, verdict="warn", measured=control)


def _one_cache(kv_cache: str, arguments: dict[str, t.Any]) -> Problems:
    """A size of the cache that is written down leaves nothing to take from a record."""
    stated = next((name for name in arguments if name.replace("-", "_") == "kv_cache_memory_bytes" and arguments[name] is not None), "")
    if kv_cache == "recorded" and stated:
        what = "states the size of the KV cache, and gb10_kv_cache is recorded, which takes it from the memory plan"
        yield Problem("input.serve_arguments", f"gb10_serve_arguments.{stated}", what, remedy="remove it, or set gb10_kv_cache to profile")


def _tenants(tenants: list[t.Any], head: str, workers: list[str]) -> Problems:
    """Each declared tenant has a name and a size, and is on a node of this cluster."""
    faults = declared_claims.tenant_faults(tenants)
    for where, what, expected in faults:
        yield Problem("input.tenants", where, what, expected, "correct gb10_tenants")
    strange = [] if faults else [(index, one) for index, one in enumerate(tenants) if one.get("node") not in (None, head, *workers)]
    for index, one in strange:
        what = f"{short(one['node'])} is no node of this cluster, so {short(one['name'])} counts nowhere"
        yield Problem("input.tenants", f"gb10_tenants[{index}].node", what, f"one of {', '.join([head, *workers])}", "correct it", verdict="warn")


def _companions(companions: list[t.Any]) -> Problems:
    """Each companion is one, and none has the name, the port or the unit of another."""
    for fault in declared.faults(companions):
        yield Problem("input.companions", *fault)
    for index, one in enumerate(companions):
        env = one.get("env") if isinstance(one, dict) else None
        if not isinstance(env, dict):
            continue
        where = f"gb10_companions[{index}].env"
        yield from validation.env_problems(env, where, "input.companions", f"correct the variable in {where}")
        for name in map(str, env):
            if name in SECRET_ENV or _SECRET_LIKE.search(name):
                what = "looks like a secret; variables of containers can be read in their configuration"
                remedy = "if it is one, hand it over as a file in mounts; otherwise add input.env_secret to gb10_silenced"
                yield Problem("input.env_secret", f"{where}.{name}", what, remedy=remedy)


def _companion_ports(values: Values) -> Problems:
    """No companion has a port that the cluster needs."""
    ports = {name: value for name, value in values.items() if form_of(name) is PORT}
    try:
        found = ray.parse_port_range(values["gb10_ray_port_range"], 0) if "gb10_ray_port_range" in values else None
    except ClusterError:
        found = None  # named by _ports
    for fault in declared.port_faults(values.get("gb10_companions", []), ports, (found.first, found.last) if found else None):
        yield Problem("input.companions", *fault)


def _sweep_alerts(alerts: list[t.Any]) -> Problems:
    """Each channel of the sweep is one. What it keeps secret is never shown."""
    for fault in sweep.channel_faults(alerts):
        yield Problem("input.sweep", *fault)


def _sweep_endpoints(endpoints: list[t.Any]) -> Problems:
    for fault in sweep.endpoint_faults(endpoints):
        yield Problem("input.sweep", *fault)


def _sweep_test(test: bool, state: str, alerts: list[t.Any]) -> Problems:
    """A test needs a sweep, and a channel."""
    wrong = functools.partial(Problem, "input.sweep", "gb10_sweep_test")
    yield from only_if(
        (test and state == "absent", wrong("is true, and gb10_sweep is absent", remedy="leave one of the two out")),
        (test and not alerts, wrong("is true, and gb10_sweep_alerts has no channel", remedy="declare where alerts go in gb10_sweep_alerts")),
    )


#: Which settings a rule needs, in the order of its parameters. It is left out when one of them has no usable value.
RULES: tuple[tuple[tuple[str, ...], t.Callable[..., t.Iterable[Problem]]], ...] = (
    (("gb10_api_key", "gb10_api_key_file"), _unused_key),
    (("gb10_env",), _per_host_env),
    (("gb10_env",), functools.partial(_env_of, "gb10_env", "input.env")),
    (("gb10_host_env",), functools.partial(_env_of, "gb10_host_env", "input.host_env")),
    (("gb10_build_pip_env",), _build_env),
    (("gb10_env", "gb10_fabric_fallback"), functools.partial(_off_fabric, "gb10_env")),
    (("gb10_host_env", "gb10_fabric_fallback"), functools.partial(_off_fabric, "gb10_host_env")),
    (("gb10_env", "gb10_api_key"), functools.partial(_around_guard, "gb10_env", "input.env")),
    (("gb10_host_env", "gb10_api_key"), functools.partial(_around_guard, "gb10_host_env", "input.host_env")),
    (("gb10_control_interface", "gb10_fabric_interfaces"), _control),
    (("gb10_kv_cache", "gb10_serve_arguments"), _one_cache),
    (("gb10_tenants", "gb10_head_host", "gb10_worker_hosts"), _tenants),
    (("gb10_companions",), _companions),
    (("gb10_sweep_alerts",), _sweep_alerts),
    (("gb10_sweep_endpoints",), _sweep_endpoints),
    (("gb10_sweep_test", "gb10_sweep", "gb10_sweep_alerts"), _sweep_test),
    (("gb10_rules",), functools.partial(tuning.tuning_problems, where="gb10_rules", id="input.rules")),
)


def judge(values: Values) -> Problems:
    """What is wrong between values that are right in themselves."""
    for wanted, rule in RULES:
        if all(name in values for name in wanted):
            yield from rule(*(values[name] for name in wanted))
    yield from itertools.chain(_ports(values), _companion_ports(values), _directories(values), _secret_files(values))


def with_profile(profile: dict[str, t.Any], values: Values) -> Problems:
    """What a profile says about the settings over it, and what holds for its own variables as for those of the settings."""
    where = f"profile {profile['id']}: env.shared"
    yield from _env_of(where, "input.env", profile["env"]["shared"])
    yield from credentials(profile, f"profile {profile['id']}")
    yield from _off_fabric(where, profile["env"]["shared"], str(values.get("gb10_fabric_fallback", "")))
    yield from _around_guard(where, "input.env", profile["env"]["shared"], str(values.get("gb10_api_key", "")))
    arguments = values.get("gb10_serve_arguments", {})
    yield from of_engine(profile, arguments)
    readable = "is a secret; a command line can be read by everybody on the node"
    for name, value in arguments.items():
        wrong = functools.partial(Problem, "input.serve_arguments", f"gb10_serve_arguments.{name}")
        yield from only_if(
            (isinstance(value, str) and "\0" in value, wrong("holds a zero byte", remedy="correct the value in gb10_serve_arguments")),
            (name.replace("-", "_") == "hf_token", wrong(readable, remedy="put the token into gb10_hf_token")),
        )
    given = snake({**profile["serve"], **arguments})
    for name, repo in repositories.not_listed(profile, given).items():
        what = f"names {repo}, which the play does not download, and the engine asks no hub"
        remedy = "list it under repositories of the profile, and write repository:NAME here"
        if given.get(TRUST):
            # Whatever revision of it somebody put into the cache would run, and nothing compares it.
            what, remedy = f"{what}; {TRUST} runs code from there, which no commit pins", f"{remedy}, with its revision"
        yield Problem("input.offline", f"profile {profile['id']}: serve.{name}", what, remedy=remedy, verdict="block" if given.get(TRUST) else "warn")
    shutdown, grace = {**profile["serve"], **arguments}.get("shutdown_timeout"), values.get("gb10_stop_grace")
    if isinstance(shutdown, int) and grace is not None and 0 < grace <= shutdown:
        what = f"{grace} s is not more than the engine's own shutdown_timeout of {shutdown} s; it would be killed, and may leak memory"
        remedy = f"set gb10_stop_grace well above {shutdown}"
        yield Problem("input.stop_grace", "gb10_stop_grace", what, remedy=remedy, verdict="warn", measured=grace, needed=shutdown)


def of_plan(profile: dict[str, t.Any] | None, given: Values) -> Problems:
    """What is wrong with the settings of a memory plan, which needs no cluster. Without a profile it is for a model of a hub cache."""
    spec = options("plan")
    chosen = {name: option.get("default") for name, option in spec.items()} | dict(given)
    wrong = functools.partial(Problem, "input.plan")
    if profile is None:
        try:
            profile = cached.profile_of(chosen["gb10_plan_model"], chosen["gb10_plan_hf_home"], chosen["gb10_plan_revision"], chosen["gb10_plan_ranks"])
        except ClusterError as error:
            yield wrong("gb10_plan_model", error.what, remedy=error.remedy)
            return
    for where, what, expected in planning.setting_faults(chosen, math.prod(profile["parallel"][size] for size in ("tensor", "pipeline", "data"))):
        yield wrong(where, what, expected, f"correct {where.partition('[')[0]}")
    folder = Path(os.path.expanduser(chosen["gb10_plan_to"] or "")).parent
    if folder.is_absolute() and not folder.is_dir():
        yield wrong("gb10_plan_to", f"there is no directory {folder}", remedy=f"mkdir -p {folder}, or name another file")


def of_engine(profile: dict[str, t.Any], arguments: dict[str, t.Any]) -> Problems:
    """What the engine's arguments are, those of the settings and those of the profile under them."""
    yield from validation.serve_problems(profile, arguments, "gb10_serve_arguments", "input.serve_arguments", "correct gb10_serve_arguments")
    yield from flags.problems(profile, arguments, "gb10_serve_arguments")
    yield from flags.problems(profile, {name: value for name, value in profile["serve"].items() if name not in arguments}, f"profile {profile['id']}: serve")


# --- secrets, and what Ansible logs in with -----------------------------------------------------------------------------------


def _secret_files(values: Values) -> Problems:
    """Each holds one word. What it is appears nowhere."""
    for name in SECRET_FILES:
        if values.get(name):
            yield from _secret_file(name, Path(os.path.expanduser(values[name])), f"correct {name}, or the credential that it comes from", one_word=True)


def login(variables: Values) -> Problems:
    """A private key that others can read is refused by ssh, at the first contact and in many words."""
    for name in KEY_FILES:
        if variables.get(name):
            yield from _secret_file(name, Path(os.path.expanduser(str(variables[name]))), f"correct {name}")


def placeholders(node: str, host: str, values: Values) -> Problems:
    """What stands in the example inventory for an owner's own. Its addresses may well be somebody's beside another ``host``."""
    example = bool(_PLACEHOLDER.search(host))
    fabric, api = values.get("gb10_fabric_address"), values.get("gb10_api_address")
    rows = (
        ("ansible_host", host, example, "put in the name or address at which Ansible reaches this node"),
        ("gb10_fabric_address", fabric, example and fabric in EXAMPLE_FABRIC, "put in the node's address on the ConnectX-7 link: ip -br address there"),
        (
            "gb10_api_address",
            api,
            example and api == EXAMPLE_API and values.get("gb10_head_host") == node,
            "put in the address of the head that the API's users come to, or remove the line",
        ),
    )
    for name, value, told, remedy in rows:
        if told:
            what = f"{value} stands in the example inventory for your own"
            yield Problem("input.placeholder", name, what, remedy=remedy, verdict="warn", measured=value)


def _secret_file(name: str, path: Path, remedy: str, one_word: bool = False) -> Problems:
    wrong = functools.partial(Problem, "input.secret_file", name)
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if one_word:
            with path.open("rb") as file:
                words = file.read(SECRET_BYTES).split()
    except OSError as error:
        yield wrong(f"{path} can't be used: {error.strerror}", remedy=remedy)
        return
    if one_word and len(words) != 1:
        yield wrong(f"{path} holds {f'{len(words)} words' if words else 'nothing'}", "one word", f"put the secret alone into {path}")
    elif one_word and (length := len(words[0].decode("utf-8", "replace"))) < SHORTEST_SECRET:
        # So short a text is not taken out of logs, where it may stand by chance.
        least = f"{SHORTEST_SECRET} or more"
        yield wrong(f"{path} holds {length} characters", least, f"put a longer secret into {path}", measured=length, needed=SHORTEST_SECRET)
    elif mode & 0o077:
        yield wrong(f"{path} can be read by others (mode {mode:04o})", remedy=f"chmod 0600 {path}", measured=f"{mode:04o}", needed="0600")
