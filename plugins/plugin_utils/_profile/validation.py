# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds the problems of a profile. This plugin util is PRIVATE to the collection."""

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
#: An image's digest, alone or after the image's name.
_DIGEST = re.compile(r"^(?:[^\s@]+@)?sha256:[0-9a-f]{64}$")
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_RANGE = re.compile(r"\s*(?:==|!=|<=|>=|<|>|~=)\s*[0-9][0-9A-Za-z.+!*-]*\s*\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
#: A package at one version, as pip accepts it.
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
    for repository in (profile["model"], *profile["repositories"].values()):
        # A plain directory is referred to by its path wherever a repository is referred to by its name.
        repository["repo"] = repository["repo"] or repository["path"]
    problems = _judge(profile, expected_id)
    path = profile["model"]["path"]
    profile["model"]["served_names"] = profile["model"]["served_names"] or [path.rpartition("/")[2] if path else profile["model"]["repo"]]
    if profile["image"]["tag"] is None:
        profile["image"]["tag"] = profile["image"]["base"]
    for part in (profile, *profile["switches"].values()):
        part["evidence"] = part["evidence"] or UNTESTED
    return profile, problems


def _judge(profile: dict[str, t.Any], expected_id: str | None) -> list[Problem]:
    """Return the problems that the types alone do not show."""
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
        problems += _problems_of(
            (not _ENV_NAME.match(name), problem(f"env.per_host.{name}", NO_ENV_NAME, ENV_NAME)),
            (fact not in HOST_FACTS, problem(f"env.per_host.{name}", f"'{fact}' is not a fact of a node", f"one of {', '.join(HOST_FACTS)}")),
        )
    for name, overlay in profile["switches"].items():
        problems += _problems_of(
            (
                not _SWITCH_NAME.match(name),
                problem(f"switches.{name}", "is not a valid name of a switch", "lower case letters, digits and underscores, a letter first"),
            )
        )
        problems += overlay_problems(profile, overlay, f"switches.{name}.") + _evidence_problems(overlay["evidence"], f"switches.{name}.")
    return problems


def _problems_of(*checks: tuple[t.Any, Problem]) -> list[Problem]:
    """Return the problems whose condition holds."""
    return [fault for is_wrong, fault in checks if is_wrong]


def _place_problems(profile: dict[str, t.Any]) -> list[Problem]:
    """Return problems of the places of a model and its further repositories: the hub, or a plain directory on every node."""
    problems = []
    for name, repository in {MODEL: profile["model"], **profile["repositories"]}.items():
        where, path, given = field_of(name), repository["path"] or "", repository["path"] is not None
        is_of_home, is_directory = path.startswith("~"), _DIRECTORY.match(path) and ".." not in path.split("/")
        both, expected = "both given" if given else "missing", "one of them: organization/name at the hub, or a directory on the nodes"
        problems += _problems_of(
            ((repository["repo"] is not None) == given, problem(f"{where}.repo", f"and {where}.path are {both}", expected)),
            (is_of_home, problem(f"{where}.path", f"'{path}' would be root's home", "the whole path on the nodes, such as /home/NAME/models/MODEL")),
            (
                given and not is_of_home and not is_directory,
                problem(f"{where}.path", f"found {found(path)}", "the absolute path of a directory on the nodes, without .. and colons"),
            ),
            *(
                (
                    given and repository[field] is not None,
                    problem(f"{where}.{field}", "is given, and a directory on the nodes has none", remedy=f"remove it, or {where}.path"),
                )
                for field in ("revision", "gated")
            ),
        )
    return problems


def _repository_problems(profile: dict[str, t.Any]) -> list[Problem]:
    """Return problems of the repositories of a profile, each alone and all together."""
    problems = []
    places: dict[str, str] = {}
    used = {named_repository(text) for part in (profile, *profile["switches"].values()) for _path, text in strings(part["serve"], "")}
    for where, repository in ((MODEL, profile["model"]), *((f"repositories.{name}", repository) for name, repository in profile["repositories"].items())):
        name, repo = where.rpartition(".")[2], repository["repo"]
        first = places.setdefault(repo, name)
        problems += _problems_of(
            (
                repository["revision"] is not None and not _COMMIT.match(repository["revision"]),
                problem(f"{where}.revision", f"'{repository['revision']}' is not a commit", "40 hexadecimal digits"),
            ),
            (repository["size_gb"] is not None and repository["size_gb"] <= 0, problem(f"{where}.size_gb", f"is {repository['size_gb']}", "more than 0")),
        )
        problems += _license_problems(repository, where)
        further = _problems_of(
            (
                not _SWITCH_NAME.match(name) or name == MODEL,
                problem(where, "is not a valid name of a repository", f"lower case letters, digits and underscores, a letter first, not {MODEL}"),
            ),
            (repository["path"] is None and not REPO.match(repo), problem(f"{where}.repo", f"'{repo}' is not a repository of the hub", "organization/name")),
            (first != name, problem(f"{where}.repo", f"'{repo}' is that of {first}, too", remedy=f"write {REPOSITORY}{first}/PATH for a part of it")),
            (
                repository.get("purpose") == "files" and not repository["files"],
                problem(f"{where}.files", "is empty, and the purpose is files", "the names of the files"),
            ),
            (
                name not in used,
                problem(
                    where,
                    f"no argument refers to it, so that the engine would look for '{repo}' on the hub, or not use it at all",
                    f"{REPOSITORY}{name} as the value of an argument, such as speculative_config.model or tokenizer",
                ),
            ),
        )
        problems += [] if where == MODEL else further
    return problems


def _license_problems(repository: dict[str, t.Any], where: str) -> list[Problem]:
    """Return problems of the terms of one repository: users have to be able to find and to accept them."""
    id, url, accept = (repository["license"][field] for field in ("id", "url", "accept"))
    consent = "a hub that asks for consent gates the repository: make gated true, or accept false"
    return _problems_of(
        (
            id is None and (url is not None or accept is not None),
            problem(f"{where}.license.id", "is missing", "the license's name, such as apache-2.0"),
        ),
        (
            id is not None and not id.strip(),
            problem(f"{where}.license.id", "is empty", "the license's name, such as apache-2.0; leave license out where it is unknown"),
        ),
        (url is not None and not _PAGE.match(url), problem(f"{where}.license.url", f"found {found(url)}", "an address that begins with https://")),
        (accept and repository["gated"] is False, problem(f"{where}.gated", "is false, and the license has to be accepted at the hub", remedy=consent)),
    )


def _evidence_problems(evidence: list[dict[str, t.Any]] | str, where: str) -> list[Problem]:
    """Return problems of the digests of the images in the evidence."""
    return [
        problem(f"{where}evidence[{index}].digest", f"'{row['digest']}' is not a digest", "sha256: and 64 hexadecimal digits, or base_digest of the report")
        for index, row in enumerate([] if isinstance(evidence, str) else evidence)
        if row["digest"] and not _DIGEST.match(row["digest"])
    ]


def _fork_problems(profile: dict[str, t.Any]) -> list[Problem]:
    """Return problems of the flags that only a fork has: each has to be set and to have a source, and no release can have been measured with it."""
    problems = []
    known = {path for part in (profile, *profile["switches"].values()) for path in (*_paths(snake(part["serve"])), *part["env"]["shared"])}
    for name, entry in profile["fork_flags"].items():
        where = f"fork_flags.{name}"
        what = f"neither serve nor env.shared sets it{near(name, known)}"
        problems += _problems_of(
            (
                name not in known,
                problem(where, what, "an argument with underscores, a key within one (speculative_config.method), or a variable that is set here"),
            ),
            (not entry["why"].strip(), problem(f"{where}.why", "is empty", "what it is for")),
            (not entry["image"].strip(), problem(f"{where}.image", "is empty", "the name of an image that has it")),
            (not _PAGE.match(entry["source"]), problem(f"{where}.source", f"found {found(entry['source'])}", "an address that begins with https://")),
        )
    what = f"has rows, and {', '.join(profile['fork_flags'])} are flags that a fork alone knows"
    return problems + [
        problem(f"{where}evidence", what, f"the word {UNTESTED}", "what others measured with the fork goes into notes")
        for where, part in (("", profile), *((f"switches.{name}.", overlay) for name, overlay in profile["switches"].items()))
        if profile["fork_flags"] and part["evidence"] not in (None, UNTESTED)
    ]


def _paths(value: dict[str, t.Any], above: str = "") -> t.Iterator[str]:
    """Yield the path of every key of a mapping, and of the mappings in it."""
    for key, item in value.items():
        yield f"{above}{key}"
        if isinstance(item, dict):
            yield from _paths(item, f"{above}{key}.")


def _image_problems(image: dict[str, t.Any]) -> list[Problem]:
    """Return problems of an image. With layers it has its own name; without them it is the base itself, and nothing is built."""
    base, layers, tag = image["base"], ", ".join([*image["layers"], *image["mods"]]), image["tag"]
    other, remedy = f"is '{tag}', but without layers the image is the base itself", "remove it, or name the layers"
    return _problems_of(
        (layers and tag is None, problem("image.tag", "is missing", f"the name of {base} with {layers} added, or `layers: []` to use the base as it is")),
        (layers and tag == base, problem("image.tag", f"is the base's own name '{base}'", f"another one, because the layers {layers} make another image")),
        (not layers and tag not in (None, base), problem("image.tag", other, remedy=remedy)),
    )


def _mod_problems(mods: dict[str, t.Any]) -> list[Problem]:
    """Return problems of the changes to an image: each has to be known to the byte before anything is built."""
    problems = []
    for name, mod in mods.items():
        where, expected = f"image.mods.{name}", "lower case letters, digits, '.', '_' and '-', a letter or digit first"
        problems += _problems_of(
            (not _MOD_NAME.match(name), problem(where, "is not a valid name of a mod", expected)),
            (not mod["packages"] and not mod["patches"], problem(where, "changes nothing", "packages or patches")),
            *(
                (not _PINNED.match(package), problem(f"{where}.packages[{index}]", f"'{package}' is not pinned", "NAME==VERSION"))
                for index, package in enumerate(mod["packages"])
            ),
        )
        problems += [fault for index, patch in enumerate(mod["patches"]) for fault in _patch_problems(patch, f"{where}.patches[{index}]")]
    return problems


def _patch_problems(patch: dict[str, str], where: str) -> list[Problem]:
    """Return problems of one patch. A script is not a patch: it could do anything, and differently on each node."""
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
        return [
            problem(f"{where}.sha256", f"{path.name} has the digest {digest}", patch["sha256"], "look at what was changed in it, then write down its digest")
        ]
    return []


def measured_versions(evidence: list[dict[str, t.Any]] | str) -> list[tuple[str, str]]:
    """Return the versions of vLLM and Ray in the evidence, by their fields."""
    rows = enumerate(evidence) if isinstance(evidence, list) else ()
    return [(f"evidence[{index}].{name}", item[name]) for index, item in rows for name in ("vllm", "ray") if item[name]]


def overlay_problems(profile: dict[str, t.Any], part: dict[str, t.Any], where: str) -> list[Problem]:
    """Return problems of the fields that a profile and its switches share; ``where`` begins the fields' paths."""
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
    """Return problems of a mapping of environment variables, which is called ``where``. No value is ever shown: it could be a secret."""
    return [Problem(id, f"{where}.{name}", *wrong, remedy) for name, value in env.items() if (wrong := _wrong_variable(name, value))]


def _wrong_variable(name: str, value: t.Any) -> tuple[str, str] | None:
    """Return the problem of an environment variable, and what was expected."""
    if not _ENV_NAME.match(name):
        return NO_ENV_NAME, ENV_NAME
    if not isinstance(value, (str, int, float)):
        return f"is {kind_of(value)}", "a string, a number or a boolean"
    if isinstance(value, str) and ("\n" in value or "\0" in value):
        return "holds a line break or a zero byte", "one line"
    return None


def serve_problems(profile: dict[str, t.Any], arguments: dict[str, t.Any], where: str, id: str, remedy: str = "") -> list[Problem]:
    """Return problems of serve arguments for this profile; ``where`` is the mapping's name, ``remedy`` the remedy for most of them."""
    dashed = [name for name in arguments if name.startswith("-")]
    names, pinned = snake({name: value for name, value in arguments.items() if name not in dashed}), profile["model"]["revision"] is not None
    known, path = {repository["name"]: repository for repository in repositories(profile)}, profile["model"]["path"]

    def wrong(name: str, what: str, expected: str = "", own_remedy: str = "") -> Problem:
        return Problem(id, f"{where}.{name}", what, expected, own_remedy or remedy)

    problems = [wrong(name, "begins with dashes", own_remedy=f"leave out the dashes: write {name.lstrip('-').replace('-', '_')}") for name in dashed]
    for name, value in names.items():
        unfit = flags.fault(name, value) if value is not None and name not in profile["fork_flags"] else None
        setting, full = RESERVED[name].setting if name in RESERVED else "", short_for(name)
        runs_code = name == "trust_remote_code" and value
        problems += _problems_of(
            (
                sum(name == other.replace("-", "_") for other in arguments) > 1,
                wrong(name, "is given twice, with dashes and with underscores", "one of the two"),
            ),
            (not _ARGUMENT.match(name), wrong(name, "is not the name of an argument", "a name such as max_model_len")),
            (unfit, wrong(name, *(unfit or ("", "")))),
            (setting, wrong(name, f"is set by the collection from {setting}", own_remedy=f"remove it from {where}")),
            (is_refused(name, value), wrong(name, REFUSED.get(name, ""), own_remedy=f"remove it from {where}")),
            (full, wrong(name, f"is the beginning of {full}, which the engine would take it for", own_remedy=f"write {full}")),
            (
                isinstance(value, list) and any(map(is_option, value)),
                wrong(
                    name,
                    "holds a word that begins with a dash, which the engine would take for an argument",
                    own_remedy="write it as a separate argument",
                ),
            ),
            (
                runs_code and path,
                wrong(name, f"runs code from {path}, which no commit pins", own_remedy="name the hub's repository and its revision instead"),
            ),
            (
                runs_code and not path and not pinned,
                wrong(name, "runs code from the model repository", own_remedy="pin model.revision to a commit first"),
            ),
            *(
                (
                    runs_code and not path and pinned and repository["revision"] is None,
                    wrong(name, f"runs code from {repository['repo']}, too", own_remedy=f"pin repositories.{other}.revision to a commit first"),
                )
                for other, repository in known.items()
            ),
        )
        for key, text in strings(value, name):
            other, file = named_repository(text), text.removeprefix(SIDE_FILE)
            is_side_file, is_listed = text.startswith(SIDE_FILE), file in profile["model"]["side_files"]
            repository = known.get(other, {"repo": "", "revision": ""})
            # Without a revision of its own, the engine would look for the model's in a tokenizer's repository.
            needs_commit = repository["revision"] is None and not model_files.is_directory(repository["repo"]) and ("/" in text or key == "tokenizer")
            problems += _problems_of(
                (is_side_file and not is_listed, wrong(key, f"side file '{file}' is not listed in model.side_files")),
                (
                    is_side_file and is_listed and not pinned and not path,
                    wrong(key, "a side file's path needs model.revision pinned to a commit"),
                ),
                (
                    other and other not in known,
                    wrong(key, f"the profile has no repository '{other}'{near(other, known)}", f"one of {', '.join(known)}"),
                ),
                (other and needs_commit, wrong(key, f"needs {repository['repo']} pinned to a commit", own_remedy=f"set {field_of(other)}.revision")),
            )
    return problems
