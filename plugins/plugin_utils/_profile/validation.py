# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with a profile. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import hashlib
import re
import typing as t
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.module_utils._arguments.serve_arguments import REFUSED, RESERVED, is_option, is_refused, short_for
from ansible_collections.gb10.cluster.plugins.module_utils._engine import questions
from ansible_collections.gb10.cluster.plugins.module_utils._errors import Problem
from ansible_collections.gb10.cluster.plugins.module_utils._model import model_files
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import flags
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.form import FORM, HOST_FACTS, MODEL, REPO, REPOSITORY, SIDE_FILE, UNTESTED, snake
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.repositories import field_of, named_repository, repositories, strings
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import tuning
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.schema import ID, check, found, kind_of, near, problem

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
_DIRECTORY = re.compile(r"/[^\s/:,][^\n\0:,]*[^\s/:,]\Z")
_PAGE = re.compile(r"https://[^\s/]+(/\S*)?\Z")


def validate(raw: t.Any, expected_id: str | None = None) -> tuple[dict[str, t.Any], list[Problem]]:
    """Judge a profile read from YAML. Returns it with defaults filled in, and the problems."""
    if not isinstance(raw, dict):
        return {}, [problem("the file", f"found {found(raw)}", "a mapping")]
    profile, problems = check(raw, FORM)
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
        *overlay_problems(profile, profile, ""),
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
        problems += overlay_problems(profile, overlay, f"switches.{name}.") + _evidence_problems(overlay["evidence"], f"switches.{name}.")
    return problems


def _place_problems(profile: dict[str, t.Any]) -> list[Problem]:
    """What is wrong with where the files of a model, and of what lies beside it, are: at the hub, or in a plain directory on every node."""
    problems = []
    for name, one in {MODEL: profile["model"], **profile["repositories"]}.items():
        where, path = field_of(name), one["path"]
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
    used = {named_repository(text) for part in (profile, *profile["switches"].values()) for _path, text in strings(part["serve"], "")}
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
        if one["path"] is None and not REPO.match(one["repo"]):
            problems.append(problem(f"{where}.repo", f"'{one['repo']}' is not a repository of the hub", "organization/name"))
        if first != name:
            problems.append(problem(f"{where}.repo", f"'{one['repo']}' is that of {first}, too", remedy=f"write {REPOSITORY}{first}/PATH for a part of it"))
        if one["purpose"] == "files" and not one["files"]:
            problems.append(problem(f"{where}.files", "is empty, and the purpose is files", "the names of the files"))
        if name not in used:
            what = f"no argument refers to it, so that the engine would look for '{one['repo']}' on the hub, or not use it at all"
            problems.append(problem(where, what, f"{REPOSITORY}{name} as the value of an argument, such as speculative_config.model or tokenizer"))
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
    known = {path for part in parts for path in (*_paths(snake(part["serve"])), *part["env"]["shared"])}
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


def measured_versions(evidence: list[dict[str, t.Any]] | str) -> list[tuple[str, str]]:
    """The versions of vLLM and Ray that evidence speaks of, by their fields."""
    rows = enumerate(evidence) if isinstance(evidence, list) else ()
    return [(f"evidence[{index}].{name}", item[name]) for index, item in rows for name in ("vllm", "ray") if item[name]]


def overlay_problems(profile: dict[str, t.Any], part: dict[str, t.Any], where: str) -> list[Problem]:
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
            for name, wanted in [*((f"requires.{name}", wanted) for name, wanted in part["requires"].items()), *measured_versions(part["evidence"])]
            if not isinstance(wanted, str) or not all(_RANGE.match(piece) for piece in wanted.split(","))
        ),
    ]


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
    names, pinned = snake({name: value for name, value in arguments.items() if name not in dashed}), profile["model"]["revision"] is not None
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
        if is_refused(name, value):
            wrong(name, REFUSED[name], own_remedy=f"remove it from {where}")
        if full := short_for(name):
            wrong(name, f"is the beginning of {full}, which the engine would take it for", own_remedy=f"write {full}")
        if isinstance(value, list) and any(map(is_option, value)):
            wrong(name, "holds a word that begins with a dash, which the engine would take for an argument", own_remedy="write it as an argument of its own")
        if name == "trust_remote_code" and value and profile["model"]["path"]:
            wrong(name, f"runs code from {profile['model']['path']}, which no commit pins", own_remedy="name the hub's repository and its revision instead")
        elif name == "trust_remote_code" and value and not pinned:
            wrong(name, "runs code from the model repository", own_remedy="pin model.revision to a commit first")
        elif name == "trust_remote_code" and value:
            for other in (other for other, one in known.items() if one["revision"] is None):
                wrong(name, f"runs code from {known[other]['repo']}, too", own_remedy=f"pin repositories.{other}.revision to a commit first")
        for path, text in strings(value, name):
            other = named_repository(text)
            if text.startswith(SIDE_FILE):
                file = text[len(SIDE_FILE):]
                if file not in profile["model"]["side_files"]:
                    wrong(path, f"side file '{file}' is not listed in model.side_files")
                elif not pinned and not profile["model"]["path"]:
                    wrong(path, "a side file's path needs model.revision pinned to a commit")
            elif other and other not in known:
                wrong(path, f"the profile has no repository '{other}'{near(other, known)}", f"one of {', '.join(known)}")
            elif other and known[other]["revision"] is None and not model_files.is_directory(known[other]["repo"]) and ("/" in text or path == "tokenizer"):
                # Without a revision of its own, the engine would look for the model's in a tokenizer's repository.
                wrong(path, f"needs {known[other]['repo']} pinned to a commit", own_remedy=f"set {field_of(other)}.revision")
    return problems
