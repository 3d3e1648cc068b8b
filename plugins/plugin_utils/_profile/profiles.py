# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Profiles: finding them, judging them, and what follows from them for a node. This plugin util is PRIVATE to the collection.

A profile is one model's whole recipe as data. Its switches are named overlays that its author documented; the user turns on
any number of them, and what the rest of the collection sees is one profile.
"""

from __future__ import annotations

import copy
import re
import typing as t
from pathlib import Path

import yaml
from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.schema import check, found, near
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging

SCHEMA_VERSION = 1

#: Where the shipped profiles lie, seen from this file, in a clone and in an installed collection alike.
SHIPPED = Path(__file__).resolve().parents[3] / "playbooks" / "profiles"

#: Where a node's hub cache appears inside its container (the default of every image the profiles name).
CONTAINER_HF_HOME = "/root/.cache/huggingface"

#: Serve arguments that the collection sets itself: two places for one value would drift apart.
RESERVED_SERVE = {
    "host": "gb10_api_address",
    "port": "gb10_api_port",
    "api_key": "gb10_api_key (the key travels as a file, never as an argument)",
    "model": "model.repo",
    "served_model_name": "model.served_names",
    "revision": "model.revision",
    "code_revision": "model.revision (remote code of another commit than the weights is code that nobody pinned)",
    "tokenizer_revision": "model.revision",
    "tensor_parallel_size": "parallel.tensor",
    "pipeline_parallel_size": "parallel.pipeline",
    "data_parallel_size": "parallel.data",
    "enable_expert_parallel": "parallel.expert",
    "distributed_executor_backend": "executor",
    "nnodes": "executor",
    "node_rank": "executor",
    "master_addr": "executor",
    "master_port": "executor",
    "headless": "executor",
}

#: How ranks on several nodes find each other: a profile's executor, and what the engine calls it. ``auto`` has to be resolved
#: before there is a command line.
EXECUTOR_BACKENDS = {"ray": "ray", "native": "mp"}

#: What the proof may look at: a completion, where the ranks are, what their environments hold, what their containers may do.
PROOFS = ("completion", "rank_hosts", "env_parity", "container_rights")

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

#: The word for a profile that nobody is known to have run as it is written.
UNTESTED = "untested"

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SWITCH_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_ARGUMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]*\Z")
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_RANGE = re.compile(r"\s*(?:==|!=|<=|>=|<|>|~=)\s*[0-9][0-9A-Za-z.+!*-]*\s*\Z")
_SIDE_FILE = "side_file:"

#: Who measured what, and on which image; or the admission that nobody did.
_EVIDENCE = {
    "type": "list",
    "elements": "dict",
    "default": UNTESTED,
    "literal": UNTESTED,
    "options": {
        "who": {"type": "str", "required": True},
        "image": {"type": "str", "required": True},
        "figures": {"type": "str", "required": True},
        "source": {"type": "str", "default": ""},
    },
}

_SCHEMA: dict[str, t.Any] = {
    "type": "dict",
    "options": {
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
                "tag": {"type": "str"},
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
        "executor": {"type": "str", "choices": [*EXECUTOR_BACKENDS, "auto"], "default": "ray"},
        "env": {
            "type": "dict",
            "options": {
                "shared": {"type": "dict", "default": {}},
                "per_host": {"type": "dict", "default": {}},
            },
        },
        "serve": {"type": "dict", "default": {}},
        "memory": {
            "type": "dict",
            "options": {
                "class_gb": {"type": "int", "choices": [64, 128]},
                "weights_gb": {"type": "float"},
                "config": {"type": "dict", "default": {}},
            },
        },
        "rules": {"type": "dict", "default": {}, "values": {"type": "dict"}},
        "ladder": {"type": "list", "elements": "int", "default": []},
        "checks": {"type": "list", "elements": "str", "choices": list(PROOFS), "default": list(PROOFS)},
        "requires": {"type": "dict", "default": {}},
        "switches": {
            "type": "dict",
            "default": {},
            "values": {
                "type": "dict",
                "options": {
                    "description": {"type": "str", "required": True},
                    "env": {"type": "dict", "options": {"shared": {"type": "dict", "default": {}}}},
                    "serve": {"type": "dict", "default": {}},
                    "ladder": {"type": "list", "elements": "int", "default": []},
                    "requires": {"type": "dict", "default": {}},
                    "evidence": _EVIDENCE,
                    "notes": {"type": "str", "default": ""},
                },
            },
        },
        "evidence": _EVIDENCE,
        "notes": {"type": "str", "default": ""},
    },
}


class ProfileError(Exception):
    """A profile can't be used; the message says which file, which field, and what was expected."""


def roots(variables: t.Mapping[str, t.Any]) -> list[Path]:
    """What relative paths are seen from, given a host's variables: the current directory, the inventory's, the playbook's."""
    return [Path.cwd(), *(Path(str(variables[name])) for name in ("inventory_dir", "playbook_dir") if variables.get(name))]


def search_path(directories: t.Sequence[str], roots: t.Sequence[Path] = ()) -> list[Path]:
    """The directories in which a profile id is looked up: the user's own first, then the shipped one.

    ``roots`` is what relative directories are seen from, the first that has one; without any it is the current directory.
    Raises :class:`ProfileError` for a directory of the user that does not exist.
    """
    return [_existing(directory, roots, Path.is_dir, "gb10_profile_dirs: no directory") for directory in directories] + [SHIPPED]


def _existing(name: str, roots: t.Sequence[Path], exists: t.Callable[[Path], bool], complaint: str) -> Path:
    """The path ``name`` means, seen from the first of ``roots`` where it exists. Raises :class:`ProfileError` naming all places."""
    path = Path(name).expanduser()
    places = [path] if path.is_absolute() else list(dict.fromkeys((root / path).resolve() for root in roots or [Path.cwd()]))
    for place in places:
        if exists(place):
            return place
    raise ProfileError(f"{complaint} {' or '.join(map(str, places))} on the controller")


def find(name: str, directories: t.Sequence[str] = (), roots: t.Sequence[Path] = ()) -> Path:
    """The file of profile ``name``, which is an id or a path ending in ``.yml`` or ``.yaml``.

    Raises :class:`ProfileError` naming the known ids when there is none.
    """
    if name.endswith((".yml", ".yaml")):
        try:
            return _existing(name, roots, Path.is_file, "gb10_profile: no file")
        except ProfileError as error:
            raise ProfileError(f"{error}. Give an existing one, or one of: {', '.join(known(directories, roots))}") from error
    path = files(directories, roots).get(name)
    if path is not None:
        return path
    ids = known(directories, roots)
    raise ProfileError(
        f"gb10_profile: unknown profile '{name}'{near(name, ids)}. Known: {', '.join(ids)}. "
        "Choose one with -e gb10_profile=ID, or add a directory of your own to gb10_profile_dirs"
    )


def files(directories: t.Sequence[str] = (), roots: t.Sequence[Path] = ()) -> dict[str, Path]:
    """Every id with its file, sorted by id. Where two directories hold the same id, the first one's counts."""
    found_files: dict[str, Path] = {}
    for directory in search_path(directories, roots):
        for path in sorted([*directory.glob("*.yml"), *directory.glob("*.yaml")], key=lambda file: (file.stem, file.suffix != ".yml")):
            found_files.setdefault(path.stem, path)
    return dict(sorted(found_files.items()))


def known(directories: t.Sequence[str] = (), roots: t.Sequence[Path] = ()) -> list[str]:
    """The ids that :func:`find` accepts, sorted."""
    return list(files(directories, roots))


def load(name: str, directories: t.Sequence[str] = (), switches: t.Sequence[str] = (), roots: t.Sequence[Path] = ()) -> dict[str, t.Any]:
    """Find, read and judge profile ``name``; return it with every default filled in and ``switches`` turned on.

    Raises :class:`ProfileError` with the file's problems, a line each.
    """
    path = find(name, directories, roots)
    profile, problems = read(path)
    if problems:
        raise ProfileError("\n".join(f"{path}: {problem}" for problem in problems))
    return {**switch(profile, switches), "path": str(path)}


def read(path: Path) -> tuple[dict[str, t.Any], list[str]]:
    """Read and judge one file. Returns the profile with its defaults, and its problems (without the file's name)."""
    try:
        raw = yaml_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        return {}, [f"can't be read as YAML: {' '.join(str(error).split())}"]
    return validate(raw, expected_id=path.stem)


def validate(raw: t.Any, expected_id: str | None = None) -> tuple[dict[str, t.Any], list[str]]:
    """Judge a profile read from YAML. Returns it with defaults filled in, and the problems (each with the field's path)."""
    if not isinstance(raw, dict):
        return {}, [f"the file: found {found(raw)}; expected a mapping"]
    profile, problems = check(raw, _SCHEMA)
    if problems:
        return raw, problems
    problems = _judge(profile, expected_id)
    if profile["image"]["tag"] is None:
        profile["image"]["tag"] = profile["image"]["base"]
    for part in (profile, *profile["switches"].values()):
        part["evidence"] = part["evidence"] or UNTESTED
    return profile, problems


def _judge(profile: dict[str, t.Any], expected_id: str | None) -> list[str]:
    """What the types alone can't say."""
    problems = []
    if expected_id is not None and profile["id"] != expected_id:
        problems.append(f"id: is '{profile['id']}', but the file is named '{expected_id}'")
    model = profile["model"]
    if model["revision"] is not None and not _COMMIT.match(model["revision"]):
        problems.append(f"model.revision: '{model['revision']}' is no commit; expected 40 hexadecimal digits")
    problems += _image_problems(profile["image"])
    for size in ("tensor", "pipeline", "data"):
        if profile["parallel"][size] < 1:
            problems.append(f"parallel.{size}: is {profile['parallel'][size]}; expected 1 or more")
    for name, fact in profile["env"]["per_host"].items():
        if not _ENV_NAME.match(name):
            problems.append(f"env.per_host.{name}: is no valid variable name")
        if fact not in HOST_FACTS:
            problems.append(f"env.per_host.{name}: '{fact}' is no fact of a node; expected one of {', '.join(HOST_FACTS)}")
    problems += judging.tuning_problems(profile["rules"], "rules")
    problems += _overlay_problems(profile, profile, "")
    for name, overlay in profile["switches"].items():
        if not _SWITCH_NAME.match(name):
            problems.append(f"switches.{name}: is no name of a switch; expected lower case letters, digits and underscores, a letter first")
        problems += _overlay_problems(profile, overlay, f"switches.{name}.")
    return problems


def _image_problems(image: dict[str, t.Any]) -> list[str]:
    """An image with layers has a name of its own; an image without is the base itself, and nothing is built."""
    base, layers, tag = image["base"], image["layers"], image["tag"]
    if layers and tag is None:
        return [f"image.tag: is missing; expected the name of {base} with {', '.join(layers)} added, or `layers: []` to use the base as it is"]
    if layers and tag == base:
        return [f"image.tag: is the base's own name '{base}'; expected another one, because the layers {', '.join(layers)} make another image"]
    if not layers and tag not in (None, base):
        return [f"image.tag: is '{tag}', but without layers the image is the base itself; remove it, or name the layers"]
    return []


def _overlay_problems(profile: dict[str, t.Any], part: dict[str, t.Any], where: str) -> list[str]:
    """Problems of what a profile and its switches have in common; ``where`` begins the fields' paths."""
    problems = [f"{where}env.shared.{problem}" for problem in env_problems(part["env"]["shared"])]
    problems += serve_problems(profile, part["serve"], f"{where}serve")
    problems += [f"{where}ladder[{index}]: is {tokens}; expected 1 token or more" for index, tokens in enumerate(part["ladder"]) if tokens < 1]
    for name, wanted in part["requires"].items():
        if not isinstance(wanted, str) or not all(_RANGE.match(piece) for piece in wanted.split(",")):
            problems.append(f'{where}requires.{name}: found {found(wanted)}; expected versions like ">=0.18.0,<0.24.0"')
    return problems


def switch(profile: dict[str, t.Any], names: t.Sequence[str]) -> dict[str, t.Any]:
    """The profile with the switches ``names`` turned on, and ``switches_used``.

    A switch's arguments, variables and ladder win over the profile's, a null argument removes the profile's, and what both require
    is required. Raises :class:`ProfileError` for a switch the profile does not have, and for two that contradict each other.
    """
    used = list(dict.fromkeys(names))
    result = {**copy.deepcopy(profile), "switches_used": used}
    owner: dict[str, tuple[str, t.Any]] = {}
    for name in used:
        if name not in profile["switches"]:
            has = ", ".join(profile["switches"]) or "none"
            raise ProfileError(f"gb10_profile_switches: profile {profile['id']} has no switch '{name}'{near(name, profile['switches'])}. Its switches: {has}")
        overlay = profile["switches"][name]
        serve = _snake(overlay["serve"])
        settings = {f"serve.{key}": value for key, value in serve.items()} | {f"env.shared.{key}": value for key, value in overlay["env"]["shared"].items()}
        if overlay["ladder"]:
            settings["ladder"] = overlay["ladder"]
        for key, value in settings.items():
            other, earlier = owner.setdefault(key, (name, value))
            if earlier != value:
                raise ProfileError(
                    f"gb10_profile_switches: '{other}' and '{name}' of profile {profile['id']} contradict each other: {key} is {earlier!r} and {value!r}. "
                    "Use one of the two"
                )
        result["serve"] = {**_snake(result["serve"]), **serve}
        result["env"]["shared"] |= overlay["env"]["shared"]
        result["ladder"] = overlay["ladder"] or result["ladder"]
        for package, wanted in overlay["requires"].items():
            result["requires"][package] = ",".join(filter(None, (result["requires"].get(package), wanted)))
    result["serve"] = {name: value for name, value in result["serve"].items() if value is not None}
    return result


def _snake(arguments: dict[str, t.Any]) -> dict[str, t.Any]:
    """Arguments under the one spelling that the collection compares: underscores."""
    return {name.replace("-", "_"): value for name, value in arguments.items()}


def env_problems(env: dict[str, t.Any]) -> list[str]:
    """What is wrong with a mapping of environment variables: ``NAME: reason`` each."""
    problems = []
    for name, value in env.items():
        if not _ENV_NAME.match(name):
            problems.append(f"{name}: is no valid variable name; expected letters, digits and underscores, no digit first")
        elif not isinstance(value, (str, int, float)):
            problems.append(f"{name}: expected a string, a number or a boolean, found {found(value)}")
        elif isinstance(value, str) and ("\n" in value or "\0" in value):
            problems.append(f"{name}: holds a line break or a zero byte; expected one line")
    return problems


def serve_problems(profile: dict[str, t.Any], arguments: dict[str, t.Any], where: str) -> list[str]:
    """What is wrong with serve arguments for this profile; ``where`` names the mapping in the messages."""
    names = _snake(arguments)
    twice = {name for name in names if sum(name == other.replace("-", "_") for other in arguments) > 1}
    problems = [f"{where}.{name}: is given twice, with dashes and with underscores; keep one" for name in sorted(twice)]
    problems += [f"{where}.{name}: is no name of an argument; write it like max_model_len" for name in names if not _ARGUMENT.match(name)]
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


def serve_arguments(profile: dict[str, t.Any], overrides: dict[str, t.Any] | None = None, executor: str | None = None) -> dict[str, t.Any]:
    """Everything behind ``vllm serve MODEL`` but the address and what differs between nodes, as typed data.

    ``overrides`` win, and null removes. ``executor`` is ``ray`` or ``native``; the default is the profile's.
    Raises :class:`ProfileError` when an override names what the collection sets itself, or when the executor is none of the two.
    """
    chosen = executor or profile["executor"]
    if chosen not in EXECUTOR_BACKENDS:
        ways = ", ".join(EXECUTOR_BACKENDS)
        raise ProfileError(f"executor: '{chosen}' names no way to start ranks; expected one of {ways}, resolved before the engine starts")
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
        "distributed_executor_backend": EXECUTOR_BACKENDS[chosen],
    }
    for source in (profile["serve"], overrides or {}):
        arguments.update(_snake(source))
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
