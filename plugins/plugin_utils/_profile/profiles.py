# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Profiles: finding them, judging them, and what follows from them for a node. This plugin util is PRIVATE to the collection.

A profile is one model's whole recipe as data. Its switches are named overlays that its author documented; the user turns on
any number of them, and what the rest of the collection sees is one profile.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import re
import typing as t
from pathlib import Path

import yaml
from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.gb10.cluster.plugins.module_utils._engine.env_text import env_text
from ansible_collections.gb10.cluster.plugins.module_utils._engine import known_answers
from ansible_collections.gb10.cluster.plugins.module_utils._engine.serve_arguments import RESERVED
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, Problem
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.schema import ID, check, found, kind_of, near, problem
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging

SCHEMA_VERSION = 1

#: Where the shipped profiles lie, seen from this file, in a clone and in an installed collection alike.
SHIPPED = Path(__file__).resolve().parents[3] / "playbooks" / "profiles"

#: Where a node's hub cache appears inside its container (the default of every image the profiles name).
CONTAINER_HF_HOME = "/root/.cache/huggingface"

#: How ranks on several nodes find each other: a profile's executor, and what the engine calls it. ``auto`` has to be resolved
#: before there is a command line.
EXECUTOR_BACKENDS = {"ray": "ray", "native": "mp"}

#: What the proof may look at: a completion, where the ranks are, what their environments hold, what their containers may do, where their traffic goes.
PROOFS = ("completion", "rank_hosts", "env_parity", "container_rights", "fabric")

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

ENV_NAME = "letters, digits and underscores, no digit first"
NO_ENV_NAME = "is not a valid variable name"
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SWITCH_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_ARGUMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.]*\Z")
#: An image's digest, alone or behind the image's name.
_DIGEST = re.compile(r"^(?:[^\s@]+@)?sha256:[0-9a-f]{64}$")
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_RANGE = re.compile(r"\s*(?:==|!=|<=|>=|<|>|~=)\s*[0-9][0-9A-Za-z.+!*-]*\s*\Z")
_SIDE_FILE = "side_file:"

#: Who measured what, on which image, with which versions of vLLM in it, where and when that was published; or the admission that nobody did.
_EVIDENCE = {
    "type": "list",
    "elements": "dict",
    "default": UNTESTED,
    "literal": UNTESTED,
    "options": {
        "who": {"type": "str", "required": True},
        "image": {"type": "str", "required": True},
        "digest": {"type": "str", "default": ""},
        "figures": {"type": "str", "required": True},
        "source": {"type": "str", "default": ""},
        "date": {"type": "str", "default": ""},
        "vllm": {"type": "str", "default": ""},
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
                "declared": {"type": "list", "elements": "str", "default": []},
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
        "answers": {"type": "list", "elements": "str", "choices": list(known_answers.CHECKS), "default": []},
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


class ProfileError(ClusterError):
    """A profile can't be used, for one or more ``problems``."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(f"{one}." for one in problems), remedy="; ".join(dict.fromkeys(one.remedy for one in problems if one.remedy)))
        self.problems = problems


def roots(variables: t.Mapping[str, t.Any]) -> list[Path]:
    """What relative paths are seen from, given a host's variables: the current directory, the inventory's, the playbook's."""
    return [Path.cwd(), *(Path(str(variables[name])) for name in ("inventory_dir", "playbook_dir") if variables.get(name))]


def search_path(directories: t.Sequence[str], roots: t.Sequence[Path] = ()) -> list[Path]:
    """The directories in which a profile id is looked up: the user's own first, then the shipped one.

    ``roots`` is what relative directories are seen from, the first that has one; without any it is the current directory.
    Raises :class:`ProfileError` for a directory of the user that does not exist.
    """
    path = []
    for candidates in (_candidates(directory, roots) for directory in directories):
        place = _first(candidates, Path.is_dir)
        if place is None:
            raise ProfileError(problem("gb10_profile_dirs", f"no directory {_either(candidates)} on the controller", remedy="correct gb10_profile_dirs"))
        path.append(place)
    return [*path, SHIPPED]


def _candidates(name: str, roots: t.Sequence[Path]) -> list[Path]:
    """The paths that ``name`` may mean, seen from each of ``roots``."""
    path = Path(os.path.expanduser(name))
    return [path] if path.is_absolute() else list(dict.fromkeys((root / path).resolve() for root in roots or [Path.cwd()]))


def _first(candidates: t.Sequence[Path], exists: t.Callable[[Path], bool]) -> Path | None:
    return next((path for path in candidates if exists(path)), None)


def _either(candidates: t.Sequence[Path]) -> str:
    return " or ".join(map(str, candidates))


def find(name: str, directories: t.Sequence[str] = (), roots: t.Sequence[Path] = ()) -> Path:
    """The file of profile ``name``, which is an id or a path ending in ``.yml`` or ``.yaml``.

    Raises :class:`ProfileError` naming the known ids when there is none.
    """
    if name.endswith((".yml", ".yaml")):
        candidates = _candidates(name, roots)
        path, what = _first(candidates, Path.is_file), f"no file {_either(candidates)} on the controller"
        remedy = f"give the path of an existing file, or one of: {', '.join(known(directories, roots))}"
    else:
        ids = files(directories, roots)
        path, what = ids.get(name), f"unknown profile '{name}'{near(name, ids)}. Known: {', '.join(ids)}"
        remedy = "choose one with -e gb10_profile=ID, or add a directory of your own to gb10_profile_dirs"
    if path is None:
        raise ProfileError(problem("gb10_profile", what, remedy=remedy))
    return path


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

    Raises :class:`ProfileError` with the file's problems.
    """
    path = find(name, directories, roots)
    profile, problems = read(path)
    if problems:
        remedy = "correct the file, or choose another profile with -e gb10_profile=ID"
        raise ProfileError(*(dataclasses.replace(one, where=f"{path}: {one.where}", remedy=one.remedy or remedy) for one in problems))
    return {**switch(profile, switches), "path": str(path)}


def read(path: Path) -> tuple[dict[str, t.Any], list[Problem]]:
    """Read and judge one file. Returns the profile with its defaults, and its problems (without the file's name)."""
    try:
        raw = yaml_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        return {}, [problem("the file", f"can't be read as YAML: {' '.join(str(error).split())}")]
    return validate(raw, expected_id=path.stem)


def validate(raw: t.Any, expected_id: str | None = None) -> tuple[dict[str, t.Any], list[Problem]]:
    """Judge a profile read from YAML. Returns it with defaults filled in, and the problems."""
    if not isinstance(raw, dict):
        return {}, [problem("the file", f"found {found(raw)}", "a mapping")]
    profile, problems = check(raw, _SCHEMA)
    if problems:
        return raw, problems
    problems = _judge(profile, expected_id)
    profile["model"]["served_names"] = profile["model"]["served_names"] or [profile["model"]["repo"]]
    if profile["image"]["tag"] is None:
        profile["image"]["tag"] = profile["image"]["base"]
    for part in (profile, *profile["switches"].values()):
        part["evidence"] = part["evidence"] or UNTESTED
    return profile, problems


def _judge(profile: dict[str, t.Any], expected_id: str | None) -> list[Problem]:
    """What the types alone can't say."""
    model, sizes, named = profile["model"], profile["parallel"], expected_id in (None, profile["id"])
    problems = [
        *([] if named else [problem("id", f"is '{profile['id']}', but the file is named '{expected_id}'")]),
        *_image_problems(profile["image"]),
        *(problem(f"parallel.{size}", f"is {sizes[size]}", "1 or more") for size in ("tensor", "pipeline", "data") if sizes[size] < 1),
        *judging.tuning_problems(profile["rules"], "rules", ID),
        *_evidence_problems(profile["evidence"], ""),
        *_overlay_problems(profile, profile, ""),
        *(
            problem("answers", f"'{name}' is asked for without serve.{needed}", remedy="set it, or leave the check out")
            for name, needed in ((name, known_answers.CHECKS[name].needs) for name in profile["answers"])
            if needed and not profile["serve"].get(needed)
        ),
    ]
    if model["revision"] is not None and not _COMMIT.match(model["revision"]):
        problems.append(problem("model.revision", f"'{model['revision']}' is not a commit", "40 hexadecimal digits"))
    for name, fact in profile["env"]["per_host"].items():
        if not _ENV_NAME.match(name):
            problems.append(problem(f"env.per_host.{name}", NO_ENV_NAME, ENV_NAME))
        if fact not in HOST_FACTS:
            problems.append(problem(f"env.per_host.{name}", f"'{fact}' is not a fact of a node", f"one of {', '.join(HOST_FACTS)}"))
    for name, overlay in profile["switches"].items():
        if not _SWITCH_NAME.match(name):
            problems.append(problem(f"switches.{name}", "is not a valid name of a switch", "lower case letters, digits and underscores, a letter first"))
        problems += _overlay_problems(profile, overlay, f"switches.{name}.") + _evidence_problems(overlay["evidence"], f"switches.{name}.")
    return problems


def _evidence_problems(evidence: list[dict[str, t.Any]] | str, where: str) -> list[Problem]:
    """What is wrong with the digests of the images on which somebody measured."""
    rows = [] if isinstance(evidence, str) else list(enumerate(evidence))
    return [
        problem(f"{where}evidence[{index}].digest", f"'{row['digest']}' is not a digest", "sha256: and 64 hexadecimal digits, or base_digest of the report")
        for index, row in rows
        if row["digest"] and not _DIGEST.match(row["digest"])
    ]


def _image_problems(image: dict[str, t.Any]) -> list[Problem]:
    """An image with layers has a name of its own; an image without is the base itself, and nothing is built."""
    base, layers, tag = image["base"], ", ".join(image["layers"]), image["tag"]
    if layers and tag is None:
        return [problem("image.tag", "is missing", f"the name of {base} with {layers} added, or `layers: []` to use the base as it is")]
    if layers and tag == base:
        return [problem("image.tag", f"is the base's own name '{base}'", f"another one, because the layers {layers} make another image")]
    if not layers and tag not in (None, base):
        return [problem("image.tag", f"is '{tag}', but without layers the image is the base itself", remedy="remove it, or name the layers")]
    return []


def _measured_versions(evidence: list[dict[str, t.Any]] | str) -> list[tuple[str, str]]:
    """The versions of vLLM that evidence speaks of, by their fields."""
    rows = enumerate(evidence) if isinstance(evidence, list) else ()
    return [(f"evidence[{index}].vllm", item["vllm"]) for index, item in rows if item["vllm"]]


def _overlay_problems(profile: dict[str, t.Any], part: dict[str, t.Any], where: str) -> list[Problem]:
    """Problems of what a profile and its switches have in common; ``where`` begins the fields' paths."""
    return [
        *env_problems(part["env"]["shared"], f"{where}env.shared", ID),
        *serve_problems(profile, part["serve"], f"{where}serve", ID),
        *(problem(f"{where}ladder[{index}]", f"is {tokens}", "1 token or more") for index, tokens in enumerate(part["ladder"]) if tokens < 1),
        *(
            problem(f"{where}{name}", f"found {found(wanted)}", 'versions like ">=0.18.0,<0.24.0"')
            for name, wanted in [*((f"requires.{name}", wanted) for name, wanted in part["requires"].items()), *_measured_versions(part["evidence"])]
            if not isinstance(wanted, str) or not all(_RANGE.match(piece) for piece in wanted.split(","))
        ),
    ]


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
            what = f"profile {profile['id']} has no switch '{name}'{near(name, profile['switches'])}. Its switches: {has}"
            raise ProfileError(problem("gb10_profile_switches", what, remedy="correct gb10_profile_switches"))
        overlay = profile["switches"][name]
        serve = _snake(overlay["serve"])
        settings = {f"serve.{key}": value for key, value in serve.items()} | {f"env.shared.{key}": value for key, value in overlay["env"]["shared"].items()}
        if overlay["ladder"]:
            settings["ladder"] = overlay["ladder"]
        for key, value in settings.items():
            other, earlier = owner.setdefault(key, (name, value))
            if earlier != value:
                what = f"'{other}' and '{name}' of profile {profile['id']} contradict each other: {key} is {earlier!r} and {value!r}"
                raise ProfileError(problem("gb10_profile_switches", what, remedy="use one of the two"))
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


def env_problems(env: dict[str, t.Any], where: str, id: str, remedy: str = "") -> list[Problem]:
    """What is wrong with a mapping of environment variables, which is called ``where``. No value is ever shown: it could be a secret."""
    found = {name: _wrong_variable(name, value) for name, value in env.items()}
    return [Problem(id, f"{where}.{name}", *wrong, remedy) for name, wrong in found.items() if wrong]


def _wrong_variable(name: str, value: t.Any) -> tuple[str, str] | None:
    """What is wrong with an environment variable, and what was expected."""
    if not _ENV_NAME.match(name):
        return NO_ENV_NAME, ENV_NAME
    if not isinstance(value, (str, int, float)):
        return f"is {kind_of(value)}", "a string, a number or a boolean"
    if isinstance(value, str) and ("\n" in value or "\0" in value):
        return "holds a line break or a zero byte", "one line"
    return None


def serve_problems(profile: dict[str, t.Any], arguments: dict[str, t.Any], where: str, id: str, remedy: str = "") -> list[Problem]:
    """What is wrong with serve arguments for this profile; ``where`` is what the mapping is called, ``remedy`` what to do about most."""
    names, pinned = _snake(arguments), profile["model"]["revision"] is not None
    problems = []

    def wrong(name: str, what: str, expected: str = "", own_remedy: str = "") -> None:
        problems.append(Problem(id, f"{where}.{name}", what, expected, own_remedy or remedy))

    for name, value in names.items():
        if sum(name == other.replace("-", "_") for other in arguments) > 1:
            wrong(name, "is given twice, with dashes and with underscores", "one of the two")
        if not _ARGUMENT.match(name):
            wrong(name, "is not the name of an argument", "a name such as max_model_len")
        if name in RESERVED and RESERVED[name].setting:
            wrong(name, f"is set by the collection from {RESERVED[name].setting}", own_remedy=f"remove it from {where}")
        if name == "trust_remote_code" and value and not pinned:
            wrong(name, "runs code from the model repository", own_remedy="pin model.revision to a commit first")
        if isinstance(value, str) and value.startswith(_SIDE_FILE):
            file = value[len(_SIDE_FILE):]
            if file not in profile["model"]["side_files"]:
                wrong(name, f"side file '{file}' is not listed in model.side_files")
            elif not pinned:
                wrong(name, "a side file's path needs model.revision pinned to a commit")
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
    return {name: env_text(name, value) for name, value in sorted(env.items())}


def per_host_names(profile: dict[str, t.Any], host: t.Iterable[str] = ()) -> list[str]:
    """Names whose values differ from node to node: left out of the env comparison, and never copied by the engine."""
    return sorted({*PER_HOST_ENV, *profile["env"]["per_host"], *host})
