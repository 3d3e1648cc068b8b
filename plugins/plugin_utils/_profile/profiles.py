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
import hashlib
import os
import re
import typing as t
from pathlib import Path

import yaml
from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.gb10.cluster.plugins.module_utils._arguments.env_text import env_text
from ansible_collections.gb10.cluster.plugins.module_utils._arguments.serve_arguments import RESERVED, canonical
from ansible_collections.gb10.cluster.plugins.module_utils._engine import questions
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, Problem
from ansible_collections.gb10.cluster.plugins.module_utils._model import model_files
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import flags
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import tuning
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.schema import ID, check, found, kind_of, near, problem

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
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
#: A package at one version, as pip takes it.
_PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?==[0-9][A-Za-z0-9.!+]*\Z")
_PATCH_SUFFIXES = (".patch", ".diff")
_PACKAGE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_MOD_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*\Z")
_SIDE_FILE = "side_file:"
#: What begins an argument that is a repository of the profile, or with ``/PATH`` a file or directory in it.
_REPOSITORY = "repository:"
#: How a profile calls the repository of its model.
MODEL = "model"
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*\Z")
_DIRECTORY = re.compile(r"/[^\s/:,][^\n\0:,]*[^\s/:,]\Z")
_PAGE = re.compile(r"https://[^\s/]+(/\S*)?\Z")
#: Arguments that may name a repository of their own.
_NAMES_REPOSITORY = ("tokenizer", "hf_config_path", "speculative_config.model", "speculative_config.tokenizer")

#: Who measured what, on which image, with which versions of vLLM and Ray in it, where and when that was published; or the admission that nobody did.
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
        "ray": {"type": "str", "default": ""},
    },
}

#: A change that a recipe makes to an image: packages, and patches of packages that are there. It becomes a layer; nothing of it runs at a start.
_MOD: dict[str, t.Any] = {
    "type": "dict",
    "options": {
        "why": {"type": "str", "required": True},
        "packages": {"type": "list", "elements": "str", "default": []},
        "patches": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "file": {"type": "str", "required": True},
                "sha256": {"type": "str", "required": True},
                "package": {"type": "str", "default": "vllm"},
            },
        },
    },
}

#: Under which terms a repository's files are given: the license's name, where its text is, and whether a person has to accept it at the hub first.
#: What no source says is left out, and is unknown.
_LICENSE: dict[str, t.Any] = {
    "type": "dict",
    "options": {"id": {"type": "str"}, "url": {"type": "str"}, "accept": {"type": "bool"}},
}

#: Where a plain directory of a node appears inside its container, by the profile's name for it, read-only.
CONTAINER_MODELS = "/opt/gb10/models"

#: What is fetched of a repository: at which commit, which files (all without any), how large that is, and whether the hub gives it to
#: accounts alone that were let in (``gated``).
_FETCHED: dict[str, t.Any] = {
    # The hub's repository, or a plain directory on every node in its place: that is served from where it lies.
    "repo": {"type": "str"},
    "path": {"type": "str"},
    "revision": {"type": "str"},
    "files": {"type": "list", "elements": "str", "default": []},
    "size_gb": {"type": "float"},
    "license": _LICENSE,
    "gated": {"type": "bool"},
}

#: An argument or variable, or the value that the profile gives it, which a fork of the engine alone knows: what it is for, which public record says so,
#: and which image has it.
_FORK_FLAG: dict[str, t.Any] = {
    "type": "dict",
    "options": {
        "why": {"type": "str", "required": True},
        "source": {"type": "str", "required": True},
        "image": {"type": "str", "required": True},
    },
}

_SCHEMA: dict[str, t.Any] = {
    "type": "dict",
    "options": {
        "schema": {"type": "int", "required": True, "choices": [SCHEMA_VERSION]},
        "id": {"type": "str", "required": True},
        "extends": {"type": "str"},
        "model": {
            "type": "dict",
            "required": True,
            "options": {
                **_FETCHED,
                "side_files": {"type": "list", "elements": "str", "default": []},
                "served_names": {"type": "list", "elements": "str", "default": []},
            },
        },
        "repositories": {
            "type": "dict",
            "default": {},
            "values": {
                "type": "dict",
                "options": {
                    "purpose": {"type": "str", "required": True, "choices": [one for one in model_files.PURPOSES if one != MODEL]},
                    **_FETCHED,
                },
            },
        },
        "image": {
            "type": "dict",
            "required": True,
            "options": {
                "base": {"type": "str", "required": True},
                "layers": {"type": "list", "elements": "str", "choices": ["ray"], "default": ["ray"]},
                "mods": {"type": "dict", "default": {}, "values": _MOD},
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
        "executor_reason": {"type": "str", "default": ""},
        "env": {
            "type": "dict",
            "options": {
                "shared": {"type": "dict", "default": {}},
                "per_host": {"type": "dict", "default": {}},
                "declared": {"type": "list", "elements": "str", "default": []},
            },
        },
        "serve": {"type": "dict", "default": {}},
        "fork_flags": {"type": "dict", "default": {}, "values": _FORK_FLAG},
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
        "answers": {"type": "list", "elements": "str", "choices": list(questions.CHECKS), "default": []},
        "requires": {"type": "dict", "default": {}},
        # What the inventory has to grant on purpose: nothing of it is set by a profile.
        "needs": {"type": "dict", "options": {"capabilities": {"type": "list", "elements": "str", "default": []}}},
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
        raw = _with_extended(path)
    except ProfileError as error:
        return {}, list(error.problems)
    return validate(raw, expected_id=path.stem)


def _raw(path: Path) -> t.Any:
    """Return what a file holds. Raises :class:`ProfileError` when it is no YAML."""
    try:
        return yaml_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ProfileError(problem("the file", f"can't be read as YAML: {' '.join(str(error).split())}")) from error


def _with_extended(path: Path, above: tuple[Path, ...] = ()) -> t.Any:
    """Return what a file holds, laid over the profile that it extends: one next to it, else a shipped one. Raises :class:`ProfileError`."""
    raw = _anchored(_raw(path), path.parent)
    name = raw.get("extends") if isinstance(raw, dict) else None
    if not isinstance(name, str):
        return raw
    there = {file.stem: file for folder in (SHIPPED, path.parent) for file in (*folder.glob("*.yaml"), *folder.glob("*.yml"))}
    there = {stem: file for stem, file in there.items() if file not in (*above, path)}
    if name not in there:
        again = name in {file.stem for file in (*above, path)}
        what = f"'{name}' extends this profile itself" if again else f"there is no profile '{name}'{near(name, there)}"
        raise ProfileError(problem("extends", what, "the id of a profile next to this file, or of a shipped one"))
    extended = _with_extended(there[name], (*above, path))
    if not isinstance(extended, dict):
        raise ProfileError(problem("extends", f"{there[name]} is not a profile", "a mapping"))
    return _overlaid(_without_terms(_without_evidence(extended), raw), raw, _SCHEMA)


def _anchored(raw: t.Any, directory: Path) -> t.Any:
    """Return what a file holds with the files of its patches seen from where it lies, whichever profile extends it."""
    mods = _within(raw, "image", "mods")
    for patch in [patch for name in mods if isinstance(mods, dict) for patch in _within(mods, name, "patches") or () if isinstance(patch, dict)]:
        if isinstance(patch.get("file"), str):
            patch["file"] = str(directory / os.path.expanduser(patch["file"]))
    return raw


def _within(value: t.Any, *keys: str) -> t.Any:
    """What lies below these keys, an empty mapping where something else is on the way."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, (dict, list)) else {}


def _without_evidence(raw: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return a profile without who measured it: what was measured with one variant is not known of another."""
    switches = raw.get("switches")
    kept = {key: value for key, value in raw.items() if key not in ("evidence", "extends")}
    if isinstance(switches, dict):
        kept["switches"] = {name: {**one, "evidence": UNTESTED} if isinstance(one, dict) else one for name, one in switches.items()}
    return kept


def _without_terms(under: dict[str, t.Any], over: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return a profile without the terms of repositories in whose place a variant puts others: each has its own."""
    result = copy.deepcopy(under)
    for *above, name in ((MODEL,), *(("repositories", name) for name in _within(over, "repositories"))):
        old, new = _within(result, *above, name), _within(over, *above, name)
        if isinstance(old, dict) and isinstance(new, dict) and new.get("repo", old.get("repo")) != old.get("repo"):
            for field in ("license", "gated"):
                old.pop(field, None)
    return result


def _overlaid(under: t.Any, over: t.Any, spec: dict[str, t.Any]) -> t.Any:
    """Return ``over`` laid over ``under``: fields of mappings one by one, null removes one; an argument's own value is replaced as a whole."""
    if not isinstance(under, dict) or not isinstance(over, dict):
        return over
    options = spec.get("options")
    result = dict(under)
    for key, value in over.items():
        inner = options.get(key) if options is not None else spec.get("values")
        if value is None and key in under:
            del result[key]
        else:
            result[key] = _overlaid(under.get(key), value, inner) if inner and inner["type"] == "dict" else value
    return result


def validate(raw: t.Any, expected_id: str | None = None) -> tuple[dict[str, t.Any], list[Problem]]:
    """Judge a profile read from YAML. Returns it with defaults filled in, and the problems."""
    if not isinstance(raw, dict):
        return {}, [problem("the file", f"found {found(raw)}", "a mapping")]
    profile, problems = check(raw, _SCHEMA)
    problems = problems or _place_problems(profile)
    if problems:
        return raw, problems
    for one in (profile["model"], *profile["repositories"].values()):
        # A plain directory is called by its path wherever a repository is called by its name.
        one["repo"] = one["repo"] or one["path"]
    problems = _judge(profile, expected_id)
    path = profile["model"]["path"]
    profile["model"]["served_names"] = profile["model"]["served_names"] or [path.rpartition("/")[2] if path else profile["model"]["repo"]]
    if profile["image"]["tag"] is None:
        profile["image"]["tag"] = profile["image"]["base"]
    for part in (profile, *profile["switches"].values()):
        part["evidence"] = part["evidence"] or UNTESTED
    return profile, problems


def _judge(profile: dict[str, t.Any], expected_id: str | None) -> list[Problem]:
    """What the types alone can't say."""
    sizes, named = profile["parallel"], expected_id in (None, profile["id"])
    problems = [
        *([] if named else [problem("id", f"is '{profile['id']}', but the file is named '{expected_id}'")]),
        *_image_problems(profile["image"]),
        *_mod_problems(profile["image"]["mods"]),
        *(problem(f"parallel.{size}", f"is {sizes[size]}", "1 or more") for size in ("tensor", "pipeline", "data") if sizes[size] < 1),
        *_repository_problems(profile),
        *tuning.tuning_problems(profile["rules"], "rules", ID),
        *_evidence_problems(profile["evidence"], ""),
        *_overlay_problems(profile, profile, ""),
        *_fork_problems(profile),
        *(
            problem("answers", f"'{name}' is asked for without serve.{needed}", remedy="set it, or leave the check out")
            for name, needed in ((name, questions.CHECKS[name].needs) for name in profile["answers"])
            if needed and not profile["serve"].get(needed)
        ),
    ]
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


def _place_problems(profile: dict[str, t.Any]) -> list[Problem]:
    """What is wrong with where the files of a model, and of what lies beside it, are: at the hub, or in a plain directory on every node."""
    problems = []
    for name, one in {MODEL: profile["model"], **profile["repositories"]}.items():
        where, path = _field(name), one["path"]
        if (one["repo"] is None) == (path is None):
            both = "both given" if path is not None else "missing"
            problems.append(problem(f"{where}.repo", f"and {where}.path are {both}", "one of them: organization/name at the hub, or a directory on the nodes"))
        if path is None:
            continue
        if path.startswith("~"):
            problems.append(problem(f"{where}.path", f"'{path}' would be root's home", "the whole path on the nodes, such as /home/NAME/models/MODEL"))
        elif not _DIRECTORY.match(path) or ".." in path.split("/"):
            problems.append(problem(f"{where}.path", f"found {found(path)}", "the absolute path of a directory on the nodes, without .. and colons"))
        for field in ("revision", "gated"):
            if one[field] is not None:
                problems.append(problem(f"{where}.{field}", "is given, and a directory on the nodes has none", remedy=f"remove it, or {where}.path"))
    return problems


def _repository_problems(profile: dict[str, t.Any]) -> list[Problem]:
    """What is wrong with the repositories of a profile, each alone and all together."""
    problems = []
    places: dict[str, str] = {}
    used = {_named_repository(text) for part in (profile, *profile["switches"].values()) for _path, text in _strings(part["serve"], "")}
    for where, one in ((MODEL, profile["model"]), *((f"repositories.{name}", one) for name, one in profile["repositories"].items())):
        name = where.rpartition(".")[2]
        first = places.setdefault(one["repo"], name)
        if one["revision"] is not None and not _COMMIT.match(one["revision"]):
            problems.append(problem(f"{where}.revision", f"'{one['revision']}' is not a commit", "40 hexadecimal digits"))
        if one["size_gb"] is not None and one["size_gb"] <= 0:
            problems.append(problem(f"{where}.size_gb", f"is {one['size_gb']}", "more than 0"))
        problems += _license_problems(one, where)
        if where == MODEL:
            continue
        if not _SWITCH_NAME.match(name) or name == MODEL:
            problems.append(problem(where, "is not a valid name of a repository", f"lower case letters, digits and underscores, a letter first, not {MODEL}"))
        if one["path"] is None and not _REPO.match(one["repo"]):
            problems.append(problem(f"{where}.repo", f"'{one['repo']}' is not a repository of the hub", "organization/name"))
        if first != name:
            problems.append(problem(f"{where}.repo", f"'{one['repo']}' is that of {first}, too", remedy=f"write {_REPOSITORY}{first}/PATH for a part of it"))
        if one["purpose"] == "files" and not one["files"]:
            problems.append(problem(f"{where}.files", "is empty, and the purpose is files", "the names of the files"))
        if name not in used:
            what = f"no argument refers to it, so that the engine would look for '{one['repo']}' on the hub, or not use it at all"
            problems.append(problem(where, what, f"{_REPOSITORY}{name} as the value of an argument, such as speculative_config.model or tokenizer"))
    return problems


def _license_problems(one: dict[str, t.Any], where: str) -> list[Problem]:
    """What is wrong with the terms of one repository: a person has to be able to find and to accept them."""
    id, url, accept = (one["license"][field] for field in ("id", "url", "accept"))
    problems = []
    if id is None and (url is not None or accept is not None):
        problems.append(problem(f"{where}.license.id", "is missing", "the license's name, such as apache-2.0"))
    if id is not None and not id.strip():
        problems.append(problem(f"{where}.license.id", "is empty", "the license's name, such as apache-2.0; leave license out where it is unknown"))
    if url is not None and not _PAGE.match(url):
        problems.append(problem(f"{where}.license.url", f"found {found(url)}", "an address that begins with https://"))
    if accept and one["gated"] is False:
        what = "is false, and the license has to be accepted at the hub"
        problems.append(problem(f"{where}.gated", what, remedy="a hub that asks for consent gates the repository: make gated true, or accept false"))
    return problems


def _strings(value: t.Any, path: str) -> list[tuple[str, str]]:
    """Every string inside a value, each with the path at which it stands."""
    if isinstance(value, dict):
        return [one for key, item in value.items() for one in _strings(item, f"{path}.{key}" if path else str(key))]
    if isinstance(value, list):
        return [one for item in value for one in _strings(item, path)]
    return [(path, value)] if isinstance(value, str) else []


def _named_repository(text: str) -> str:
    """The repository that an argument's text refers to, empty when it refers to none."""
    return text[len(_REPOSITORY):].partition("/")[0] if text.startswith(_REPOSITORY) else ""


def not_listed(profile: dict[str, t.Any], arguments: dict[str, t.Any]) -> dict[str, str]:
    """Repositories of the hub that arguments name and the profile does not list, by the arguments. Only a person can have fetched them."""
    return {
        name: text
        for name, text in _strings(_snake(arguments), "")
        if name in _NAMES_REPOSITORY and _REPO.match(text) and text != profile["model"]["repo"]
    }


def _evidence_problems(evidence: list[dict[str, t.Any]] | str, where: str) -> list[Problem]:
    """What is wrong with the digests of the images on which somebody measured."""
    rows = [] if isinstance(evidence, str) else list(enumerate(evidence))
    return [
        problem(f"{where}evidence[{index}].digest", f"'{row['digest']}' is not a digest", "sha256: and 64 hexadecimal digits, or base_digest of the report")
        for index, row in rows
        if row["digest"] and not _DIGEST.match(row["digest"])
    ]


def _fork_problems(profile: dict[str, t.Any]) -> list[Problem]:
    """What is wrong with the flags that a fork alone knows: each is set somewhere, can be looked up, and no release was measured with it."""
    problems = []
    parts = (profile, *profile["switches"].values())
    known = {path for part in parts for path in (*_paths(_snake(part["serve"])), *part["env"]["shared"])}
    for name, one in profile["fork_flags"].items():
        where = f"fork_flags.{name}"
        if name not in known:
            what = f"neither serve nor env.shared sets it{near(name, known)}"
            problems.append(problem(where, what, "an argument with underscores, a key within one (speculative_config.method), or a variable that is set here"))
        for field in ("why", "image"):
            if not one[field].strip():
                problems.append(problem(f"{where}.{field}", "is empty", {"why": "what it is for", "image": "the name of an image that has it"}[field]))
        if not _PAGE.match(one["source"]):
            problems.append(problem(f"{where}.source", f"found {found(one['source'])}", "an address that begins with https://"))
    if profile["fork_flags"]:
        for where, part in (("", profile), *((f"switches.{name}.", overlay) for name, overlay in profile["switches"].items())):
            if part["evidence"] not in (None, UNTESTED):
                what = f"has rows, and {', '.join(profile['fork_flags'])} are flags that a fork alone knows"
                problems.append(problem(f"{where}evidence", what, f"the word {UNTESTED}", "what others measured with the fork goes into notes"))
    return problems


def _paths(value: dict[str, t.Any], above: str = "") -> t.Iterator[str]:
    """The path of every key of a mapping, and of the mappings in it."""
    for key, item in value.items():
        yield f"{above}{key}"
        if isinstance(item, dict):
            yield from _paths(item, f"{above}{key}.")


def _image_problems(image: dict[str, t.Any]) -> list[Problem]:
    """An image with layers has a name of its own; an image without is the base itself, and nothing is built."""
    base, layers, tag = image["base"], ", ".join([*image["layers"], *image["mods"]]), image["tag"]
    if layers and tag is None:
        return [problem("image.tag", "is missing", f"the name of {base} with {layers} added, or `layers: []` to use the base as it is")]
    if layers and tag == base:
        return [problem("image.tag", f"is the base's own name '{base}'", f"another one, because the layers {layers} make another image")]
    if not layers and tag not in (None, base):
        return [problem("image.tag", f"is '{tag}', but without layers the image is the base itself", remedy="remove it, or name the layers")]
    return []


def _mod_problems(mods: dict[str, t.Any]) -> list[Problem]:
    """What is wrong with changes of an image: each has to be known to the byte before anything is built."""
    problems = []
    for name, mod in mods.items():
        where = f"image.mods.{name}"
        if not _MOD_NAME.match(name):
            problems.append(problem(where, "is not a valid name of a mod", "lower case letters, digits, '.', '_' and '-', a letter or digit first"))
        if not mod["packages"] and not mod["patches"]:
            problems.append(problem(where, "changes nothing", "packages or patches"))
        for index, package in enumerate(mod["packages"]):
            if not _PINNED.match(package):
                problems.append(problem(f"{where}.packages[{index}]", f"'{package}' is not pinned", "NAME==VERSION"))
        for index, patch in enumerate(mod["patches"]):
            problems += _patch_problems(patch, f"{where}.patches[{index}]")
    return problems


def _patch_problems(patch: dict[str, str], where: str) -> list[Problem]:
    """What is wrong with one patch. A script is none: it could do anything, and differently on each node."""
    path = Path(patch["file"])
    if not _PACKAGE.match(patch["package"]):
        return [problem(f"{where}.package", f"'{patch['package']}' is not the name of a Python package", "a name such as vllm")]
    if path.suffix not in _PATCH_SUFFIXES:
        return [problem(f"{where}.file", f"{path.name} is not a patch", f"a unified diff that ends in {' or '.join(_PATCH_SUFFIXES)}; scripts are not run")]
    if not _SHA256.match(patch["sha256"]):
        return [problem(f"{where}.sha256", f"'{patch['sha256']}' is not a digest", "64 hexadecimal digits, as sha256sum prints them")]
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        return [problem(f"{where}.file", f"{path} can't be read: {error.strerror}", "a file next to the profile")]
    if digest != patch["sha256"]:
        remedy = "look at what was changed in it, then write down its digest"
        return [problem(f"{where}.sha256", f"{path.name} has the digest {digest}", patch["sha256"], remedy)]
    return []


def mod_digests(profile: dict[str, t.Any]) -> dict[str, str]:
    """The digest of each change of a profile's image: the same digest is the same change."""
    return {
        name: hashlib.sha256(canonical([mod["packages"], [[patch["sha256"], patch["package"]] for patch in mod["patches"]]]).encode()).hexdigest()
        for name, mod in profile["image"]["mods"].items()
    }


def _measured_versions(evidence: list[dict[str, t.Any]] | str) -> list[tuple[str, str]]:
    """The versions of vLLM and Ray that evidence speaks of, by their fields."""
    rows = enumerate(evidence) if isinstance(evidence, list) else ()
    return [(f"evidence[{index}].{name}", item[name]) for index, item in rows for name in ("vllm", "ray") if item[name]]


def _overlay_problems(profile: dict[str, t.Any], part: dict[str, t.Any], where: str) -> list[Problem]:
    """Problems of what a profile and its switches have in common; ``where`` begins the fields' paths."""
    return [
        *env_problems(part["env"]["shared"], f"{where}env.shared", ID),
        *serve_problems(profile, part["serve"], f"{where}serve", ID),
        *(problem(f"{where}ladder[{index}]", f"is {tokens}", "1 token or more") for index, tokens in enumerate(part["ladder"]) if tokens < 1),
        *(
            problem(f"{where}ladder[{index}]", f"is {tokens} after {before}", "more than the length before it")
            for index, (before, tokens) in enumerate(zip(part["ladder"], part["ladder"][1:]), 1)
            if tokens <= before
        ),
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
    dashed = [name for name in arguments if name.startswith("-")]
    names, pinned = _snake({name: value for name, value in arguments.items() if name not in dashed}), profile["model"]["revision"] is not None
    known = {one["name"]: one for one in repositories(profile)}
    problems = []

    def wrong(name: str, what: str, expected: str = "", own_remedy: str = "") -> None:
        problems.append(Problem(id, f"{where}.{name}", what, expected, own_remedy or remedy))

    for name in dashed:
        wrong(name, "begins with dashes", own_remedy=f"leave out the dashes: write {name.lstrip('-').replace('-', '_')}")
    for name, value in names.items():
        if sum(name == other.replace("-", "_") for other in arguments) > 1:
            wrong(name, "is given twice, with dashes and with underscores", "one of the two")
        if not _ARGUMENT.match(name):
            wrong(name, "is not the name of an argument", "a name such as max_model_len")
        unfit = flags.fault(name, value) if value is not None and name not in profile["fork_flags"] else None
        if unfit:
            wrong(name, *unfit)
        if name in RESERVED and RESERVED[name].setting:
            wrong(name, f"is set by the collection from {RESERVED[name].setting}", own_remedy=f"remove it from {where}")
        if name == "trust_remote_code" and value and profile["model"]["path"]:
            wrong(name, f"runs code from {profile['model']['path']}, which no commit pins", own_remedy="name the hub's repository and its revision instead")
        elif name == "trust_remote_code" and value and not pinned:
            wrong(name, "runs code from the model repository", own_remedy="pin model.revision to a commit first")
        elif name == "trust_remote_code" and value:
            for other in (other for other, one in known.items() if one["revision"] is None):
                wrong(name, f"runs code from {known[other]['repo']}, too", own_remedy=f"pin repositories.{other}.revision to a commit first")
        for path, text in _strings(value, name):
            other = _named_repository(text)
            if text.startswith(_SIDE_FILE):
                file = text[len(_SIDE_FILE):]
                if file not in profile["model"]["side_files"]:
                    wrong(path, f"side file '{file}' is not listed in model.side_files")
                elif not pinned and not profile["model"]["path"]:
                    wrong(path, "a side file's path needs model.revision pinned to a commit")
            elif other and other not in known:
                wrong(path, f"the profile has no repository '{other}'{near(other, known)}", f"one of {', '.join(known)}")
            elif other and known[other]["revision"] is None and not model_files.is_directory(known[other]["repo"]) and ("/" in text or path == "tokenizer"):
                # Without a revision of its own, the engine would look for the model's in a tokenizer's repository.
                wrong(path, f"needs {known[other]['repo']} pinned to a commit", own_remedy=f"set {_field(other)}.revision")
    return problems


def _field(repository: str) -> str:
    """The field of a profile that describes a repository."""
    return MODEL if repository == MODEL else f"repositories.{repository}"


def repositories(profile: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    """All repositories of a profile, the model's first, in the form that modules take."""
    model = profile["model"]
    first = {"name": MODEL, "purpose": MODEL, "side_files": model["side_files"], **{key: model[key] for key in ("repo", "revision", "files")}}
    further = [
        {
            "name": name,
            "side_files": [],
            **{key: one[key] for key in ("repo", "revision", "purpose")},
            "files": one["files"] or list(model_files.DEFAULT_FILES.get(one["purpose"], ())),
        }
        for name, one in profile["repositories"].items()
    ]
    return [first, *further]


def downloads(repositories: t.Iterable[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """What the hub's client is asked for each of these repositories: the arguments of its function ``snapshot_download``."""
    return [
        {
            "repo_id": one["repo"],
            "revision": one["revision"],
            "allow_patterns": [name for name in one["files"] if not name.startswith("!")] or None,
            "ignore_patterns": [name[1:] for name in one["files"] if name.startswith("!")] or None,
        }
        for one in repositories
        if not model_files.is_directory(one["repo"])
    ]


def model_mounts(profile: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    """The plain directories of the nodes that a profile names, as mounts of a node's container: each can only be read there."""
    named = {MODEL: profile["model"], **profile["repositories"]}
    return [{"source": one["path"], "target": f"{CONTAINER_MODELS}/{name}", "read_only": True} for name, one in named.items() if one["path"]]


def model_argument(profile: dict[str, t.Any]) -> str:
    """What the engine is told to serve: the model's repository, or its plain directory as the container has it."""
    return f"{CONTAINER_MODELS}/{MODEL}" if profile["model"]["path"] else profile["model"]["repo"]


def snapshot_path(profile: dict[str, t.Any], hf_home: str = CONTAINER_HF_HOME, repository: str = MODEL) -> str:
    """Directory of a pinned repository of the profile in a hub cache (the layout every Hugging Face client writes).

    A plain directory has its own path on the nodes, and another one in a container: with the default of ``hf_home`` it is that.
    """
    one = profile["model"] if repository == MODEL else profile["repositories"][repository]
    if one["path"]:
        return f"{CONTAINER_MODELS}/{repository}" if hf_home == CONTAINER_HF_HOME else one["path"]
    return f"{hf_home}/hub/{model_files.repo_directory(one['repo'])}/snapshots/{one['revision']}"


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
    """Replace ``side_file:NAME`` and ``repository:NAME[/PATH]``, wherever they stand, by paths inside the container.

    A repository that is not pinned is given by its own name: the engine finds it in the cache as ``main``.
    """
    if isinstance(value, dict):
        return {key: _resolve(profile, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(profile, item) for item in value]
    if isinstance(value, str) and value.startswith(_SIDE_FILE):
        value = f"{_REPOSITORY}{MODEL}/{value[len(_SIDE_FILE):]}"
    if isinstance(value, str) and value.startswith(_REPOSITORY):
        name, slash, path = value[len(_REPOSITORY):].partition("/")
        one = profile["model"] if name == MODEL else profile["repositories"][name]
        return f"{snapshot_path(profile, repository=name)}{slash}{path}" if one["revision"] or one["path"] else one["repo"]
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
