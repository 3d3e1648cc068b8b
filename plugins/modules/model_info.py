#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model_info
short_description: Show whether a model on a node is complete
version_added: 0.1.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Checks a model in a hub cache, or in a plain directory, without reading its weights unless O(verify=full).
  - C(config.json) must parse. Each file that C(model.safetensors.index.json) names must exist, with the length that its own safetensors
    header declares, so a truncated copy is found in milliseconds. A single C(model.safetensors) is also accepted.
  - There must be a tokenizer, and every one of O(side_files).
  - With O(repositories) it checks several repositories at once, each for the files that its purpose needs. An absolute path is a plain directory on
    the node, whose links may not point out of it.
  - Broken links into the cache and unfinished downloads are reported.
  - In a hub cache the model's own code (Python, and JSON that names it) is read and compared with the hub's ids of its content. A changed file
    gives the verdict V(block). A file without such an id, as in a model that was copied by hand, gives a warning.
  - With O(state_dir), the code is recorded on the node when a revision is first seen complete, and compared from then on. A file that points to
    another blob of the cache, a new file and a missing file also give the verdict V(block). Such a record does not count as a change.
  - With O(verify=full) every file is read. A file with a hub id is compared with it, so that a flipped byte is found. A file without one is compared
    with its record in O(state_dir), where its size, time, inode and sha256 are stored when it is first read. A difference gives the verdict V(block).
    A file without a hub id that was written since gives a warning, which does not require reading it.
  - An absent or incomplete model is a result and not a failure. An existing file that cannot be read gives the verdict V(unknown).
  - RV(facts), RV(shards) and the paths in the result are those of the first of O(repositories).
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._repositories
options:
  repo:
    description:
      - The model's repository, as C(organization/name).
      - Mutually exclusive with O(path) and O(repositories), and one of the three is required.
    type: str
  revision:
    description:
      - The commit, or the name of a ref such as V(main).
      - Without it, the cache's ref C(main) is used.
    type: str
  hf_home:
    description:
      - The directory that contains C(hub/). Required with O(repo) and O(repositories).
    type: path
  path:
    description:
      - A plain directory that contains the model.
    type: path
  side_files:
    description:
      - Further files that the model needs, relative to its directory, such as a reasoning parser.
    type: list
    elements: str
    default: []
  state_dir:
    description:
      - Directory on the node for the state of the collection's clusters. Records of code are in C(model-code) below it, and the results of
        O(verify=full) in C(model-manifest). In check mode none is written.
    type: path
    version_added: 0.2.0
  verify:
    description:
      - V(full) reads all files and computes their digests, of the kind that the hub uses (the sha256 of large ones, git's id of small ones). It
        takes as long as reading does, and drops the files from the page cache afterwards. V(quick) reads names, sizes, headers and code.
    type: str
    choices: [quick, full]
    default: quick
    version_added: 0.2.0
  token_file:
    description:
      - A file that an interrupted download leaves behind. RV(token_left) shows whether it exists.
    type: path
    version_added: 0.2.0
"""

EXAMPLES = r"""
- name: Check the model
  gb10.cluster.model_info:
    repo: nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4
    revision: main
    hf_home: /home/spark/.cache/huggingface
    side_files: [super_v3_reasoning_parser.py]
  register: model

- name: Check a model and its drafter
  gb10.cluster.model_info:
    repositories:
      - repo: nvidia/Qwen3.8-27B-NVFP4
      - name: drafter
        repo: z-lab/Qwen3.8-27B-DFlash2
        purpose: drafter
    hf_home: /home/spark/.cache/huggingface

- name: Stop if it is not complete
  ansible.builtin.assert:
    that: model.complete
    fail_msg: "{{ model.msg }}"
"""

RETURN = r"""
verdict:
  description: V(pass) if everything requested is complete and its code unchanged, V(block) otherwise.
  returned: always
  type: str
  sample: pass
present:
  description: Whether this revision of the model, and of each other repository, exists at all.
  returned: success
  type: bool
  sample: true
complete:
  description: Whether it can be served, with everything that it needs from other repositories.
  returned: success
  type: bool
  sample: true
repositories:
  description: The result for each repository, the model first. Empty for a plain directory.
  returned: success
  type: list
  elements: dict
  version_added: 0.2.0
  contains:
    name:
      description: Its name in the profile.
      type: str
      sample: drafter
    repo:
      description: The repository.
      type: str
      sample: z-lab/Qwen3.8-27B-DFlash2
    purpose:
      description: Its purpose.
      type: str
      sample: drafter
    revision:
      description: The commit. Null if unknown.
      type: str
      sample: 50307d4c4cde6860d4eee73e2547cd786fe8e8a4
    files:
      description: The part of it that is fetched. Empty for all of it.
      type: list
      elements: str
      sample: []
    present:
      description: Whether this revision exists at all.
      type: bool
      sample: true
    complete:
      description: Whether it is complete for its purpose.
      type: bool
      sample: true
    missing:
      description: The files that are absent or unusable.
      type: list
      elements: str
      sample: []
    size_bytes:
      description: The bytes of all its files.
      type: int
      sample: 3840262144
    unfinished_bytes:
      description: Bytes so far of downloads that did not finish, or still run.
      type: int
      sample: 0
    listing:
      description:
        - For a plain directory, a digest of the names and sizes of its files, and of their content with O(verify=full). Null for a hub repository.
      type: str
      sample: null
    snapshot_path:
      description: The directory with its files on this node. Null if it is absent.
      type: str
      sample: /home/spark/.cache/huggingface/hub/models--z-lab--Qwen3.8-27B-DFlash2/snapshots/50307d4c4cde6860d4eee73e2547cd786fe8e8a4
cache_exists:
  description: Whether O(hf_home) exists. True for a plain directory.
  returned: success
  type: bool
  sample: true
free_bytes:
  description: The free disk space at the existing or future O(hf_home). Null for a plain directory.
  returned: success
  type: int
  version_added: 0.2.0
  sample: 851479363584
token_left:
  description: Whether O(token_file) exists.
  returned: success
  type: bool
  sample: false
download_as:
  description:
    - The user and group to run a download into the cache as, the cache's own, or root's if a directory in the path is another user's (C(because)).
    - The module fails if something is missing and the cache is reached through another user's link, or a broken link.
  returned: success
  type: dict
  version_added: 0.2.0
  sample: {"uid": 1000, "gid": 1000, "because": ""}
revision:
  description: The commit. Null if it is unknown or for a plain directory.
  returned: success
  type: str
  sample: 2f9d4a0c3b5e6f708192a3b4c5d6e7f801234567
snapshot_path:
  description: The directory with the model's files on this node. Null if it is absent.
  returned: success
  type: str
  sample: /home/spark/.cache/huggingface/hub/models--org--name/snapshots/2f9d4a0c3b5e6f708192a3b4c5d6e7f801234567
snapshot_relpath:
  description: The same relative to O(hf_home), for use where the cache is mounted elsewhere. Null for a plain directory.
  returned: success
  type: str
  sample: hub/models--org--name/snapshots/2f9d4a0c3b5e6f708192a3b4c5d6e7f801234567
size_bytes:
  description: The bytes of all files of the model and of its additional repositories.
  returned: success
  type: int
  sample: 80371298048
shards:
  description: The files with the weights, relative to RV(snapshot_path), whether they exist or not.
  returned: success
  type: list
  elements: str
  sample: [model-00001-of-00017.safetensors]
missing:
  description: The files that are absent or unusable.
  returned: success
  type: list
  elements: str
  sample: []
incomplete_blobs:
  description: Downloads in the cache that did not finish, or still run.
  returned: success
  type: list
  elements: str
  sample: []
facts:
  description: Values from C(config.json). Null for missing ones.
  returned: success
  type: dict
  contains:
    architectures:
      description: The classes that implement the model.
      type: list
      elements: str
      sample: [NemotronHForCausalLM]
    num_attention_heads:
      description: Attention heads, which tensor parallelism divides.
      type: int
      sample: 32
    num_key_value_heads:
      description: Heads of keys and values.
      type: int
      sample: 2
    max_position_embeddings:
      description: The context length that the model was trained for, in tokens.
      type: int
      sample: 262144
    hidden_size:
      description: Number of values per token between two layers.
      type: int
      sample: 4096
    num_hidden_layers:
      description: Number of its layers, of all kinds.
      type: int
      sample: 88
    dtype:
      description: The type of these values.
      type: str
      sample: bfloat16
verified:
  description: With O(verify=full), the number of files read, their bytes, the seconds it took, and how many could not be compared with anything.
  returned: success
  type: dict
  version_added: 0.2.0
  sample: {"files": 27, "bytes": 80371298048, "seconds": 46.2, "without": 0}
findings:
  description: One finding for each problem, or one that reports no problem.
  returned: success
  type: list
  elements: dict
  sample:
    - id: model.size
      node: spark-2
      verdict: block
      message: model-00003-of-00017.safetensors has 1048576 bytes, its header says 4932307584
      measured: null
      needed: null
      remedy: Run the play with --tags model, which downloads what is missing.
      source: /home/spark/.cache/huggingface/hub/models--org--name/snapshots/2f9d4a0c3b5e6f708192a3b4c5d6e7f801234567
"""

import os
import platform
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._files import owners
from ansible_collections.gb10.cluster.plugins.module_utils._host import disk
from ansible_collections.gb10.cluster.plugins.module_utils._model import digests, manifest, model_code, model_files
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding, run

Repository = dict[str, t.Any]

#: The remedy for a plain directory. It is managed by its owner, so nothing is downloaded into it.
COPY_AGAIN = "Copy the files there again from where they are whole; nothing is downloaded into a directory that a profile names."


class Seen(t.NamedTuple):
    """The state of one repository or plain directory."""

    repository: Repository
    place: model_files.Place
    problems: list[model_files.Problem]
    shards: list[str]
    facts: dict[str, t.Any]
    incomplete: list[str]
    findings: list[dict[str, t.Any]]

    @property
    def complete(self) -> bool:
        """Return whether all files that its purpose needs are present."""
        return self.place.path is not None and not self.problems

    @property
    def missing(self) -> list[str]:
        """Return the files that are absent or cannot be used."""
        return sorted({problem.file for problem in self.problems})

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all its files."""
        return model_files.size_bytes(self.place.path) if self.place.path else 0


def asked(params: dict[str, t.Any]) -> list[Repository]:
    """Return the repositories to examine, the model first. A plain directory has no ``repo``."""
    model = {"name": "model", "purpose": "model", "files": [], **{name: params[name] for name in ("repo", "revision", "side_files")}}
    return params["repositories"] or [model]


def directory_of(params: dict[str, t.Any], repository: Repository) -> str:
    """Return the plain directory that replaces a repository, empty for a repository of the hub."""
    return params["path"] or (repository["repo"] if model_files.is_directory(repository["repo"] or "") else "")


def place_of(params: dict[str, t.Any], repository: Repository) -> model_files.Place:
    """Return where a repository is stored."""
    path = directory_of(params, repository)
    if path:
        return model_files.Place(path=path if os.path.isdir(path) else None, revision=None, repo_path=None)
    return model_files.locate(params["hf_home"], repository["repo"], repository["revision"])


def what(params: dict[str, t.Any], repository: Repository) -> str:
    """Return the name of a repository for messages."""
    path = directory_of(params, repository)
    if path:
        return f"{repository['purpose']} in {path}"
    of = "" if repository["purpose"] == "model" else f"{repository['purpose']} "
    return f"{of}{repository['repo']} (revision {repository['revision'] or 'main'}) in {params['hf_home']}"


def judge(
    name: str,
    place: model_files.Place,
    problems: t.Sequence[model_files.Problem],
    code: t.Sequence[model_files.Problem],
    incomplete: t.Sequence[str],
    node: str,
    note: str = "",
    plain: bool = False,
) -> list[dict[str, t.Any]]:
    """Return one finding for each problem, or a single passing one.

    ``note`` is the file that records what the code was. Nothing is ever downloaded into a ``plain`` directory.
    """
    again = COPY_AGAIN if plain else "Run the play with --tags model, which downloads what is missing."
    if place.path is None:
        findings = [finding("model.absent", node, "block", f"there is no {name}", remedy=again)]
    else:
        findings = [finding(problem.id, node, "block", problem.message, remedy=again, source=place.path) for problem in problems]
    for problem in code:
        changed = problem.id == "model.code_changed"
        remedy = model_code.code_remedy(place.path or "", [problem], note) if changed else "Have it downloaded instead of copied, or compare it with the hub's."
        findings.append(finding(problem.id, node, "block" if changed else "warn", problem.message, remedy=remedy, source=place.path or ""))
    if incomplete:
        message = f"{len(incomplete)} download(s) of it did not finish, or still run"
        findings.append(
            finding("model.incomplete_download", node, "warn", message, measured=list(incomplete), remedy=again, source=place.repo_path or "")
        )
    return findings or [finding("model.complete", node, "pass", f"{name} is complete", source=place.path or "")]


def look(module: AnsibleModule, repository: Repository) -> Seen:
    """Examine one repository, and record what its code is if that is not recorded yet."""
    params = module.params
    place = place_of(params, repository)
    needed = [*repository["side_files"], *model_files.named_files(repository["files"])]
    problems, shards, facts = model_files.examine(place.path, needed, repository["purpose"]) if place.path else ([], [], model_files.facts({}))
    plain = bool(directory_of(params, repository))
    if plain and place.path and not params["path"]:
        problems += model_files.outside_links(place.path)
    hub_path = None if plain else place.path
    note = model_code.note_path(params["state_dir"], repository["repo"], place.revision or "") if hub_path and params["state_dir"] else ""
    noted = model_code.read_note(note) if note else None
    code = model_code.code_problems(hub_path, repository["side_files"], noted) if hub_path else []
    incomplete = model_files.incomplete_blobs(place.repo_path)
    findings = judge(what(params, repository), place, problems, code, incomplete, platform.node(), note, plain and not params["path"])
    if repository["purpose"] != "model" and place.path:
        of = f" ({repository['purpose']} {repository['repo']})"
        findings = [entry if entry["verdict"] == "pass" else {**entry, "message": entry["message"] + of} for entry in findings]
    private = model_files.private_path(params["hf_home"], place.path) if place.path and not params["path"] else None
    if private:
        message = f"root in a container cannot read {private}: it belongs to another user, and not everybody may read it"
        remedy = f"chmod -R go+rX {place.path if plain else os.path.join(params['hf_home'], 'hub')}, or gb10_container_capabilities: [DAC_OVERRIDE]"
        findings.append(finding("model.private", platform.node(), "warn", message, remedy=remedy, source=private))
    seen = Seen(repository, place, problems, shards, facts, incomplete, findings)
    unchanged = not incomplete and not any(problem.id == "model.code_changed" for problem in code)
    if note and noted is None and seen.complete and unchanged and not module.check_mode:
        try:
            model_code.write_note(note, model_code.code_ids(hub_path or "", repository["side_files"]))
        except OSError as error:
            module.warn(f"{note} cannot be written ({error.strerror}), so a file of the model's code that is replaced by another is not found")
    return seen


def row(seen: Seen, contents: manifest.Manifest) -> dict[str, t.Any]:
    """Return the result's entry for one repository. ``contents`` is what was read of its files."""
    return {
        **{name: seen.repository[name] for name in ("name", "repo", "purpose", "files")},
        "revision": seen.place.revision,
        "present": seen.place.path is not None,
        "complete": seen.complete,
        "missing": seen.missing,
        "size_bytes": seen.size_bytes,
        "unfinished_bytes": model_files.unfinished_bytes(seen.place.repo_path, seen.incomplete),
        "snapshot_path": seen.place.path,
        "listing": model_files.listing(seen.place.path, contents) if seen.place.path and model_files.is_directory(seen.repository["repo"] or "") else None,
    }


def writer(params: dict[str, t.Any], all_seen: list[Seen]) -> model_files.Writer:
    """Return the account that a download runs as: root if one of the repositories needs that.

    Raises :class:`ClusterError` when files are to be written and another account could redirect root's writes. A complete repository is not written to.
    """
    if not params["hf_home"]:
        return model_files.Writer(0, 0)
    lacking = [seen.repository["repo"] for seen in all_seen if not directory_of(params, seen.repository) and not seen.complete]
    if not lacking and os.path.isdir(params["hf_home"]):
        status = os.stat(params["hf_home"])
        return model_files.Writer(status.st_uid, status.st_gid)
    writers = [model_files.writer(params["hf_home"], repo) for repo in lacking]
    return next((candidate for candidate in writers if candidate.because), model_files.Writer(*owners.owner_of(params["hf_home"])))


def compare(module: AnsibleModule, all_seen: list[Seen]) -> tuple[digests.Read, list[dict[str, t.Any]]]:
    """Compare the files with their digests, or with recorded facts without reading them. Return what was read, and the findings."""
    params = module.params
    roots = {path: directory_of(params, seen.repository) or seen.repository["repo"] for seen in all_seen if (path := seen.place.path)}
    notes = {root: manifest.path_of(params["state_dir"], root) for root in roots} if params["state_dir"] else {}
    noted = {root: manifest.read(note) for root, note in notes.items()}
    if params["verify"] == "full":
        read = digests.verify(roots, noted)
        problems = list(read.problems.items())
    else:
        read = digests.Read()
        problems = [(problem, roots[root]) for root, files in noted.items() for problem in digests.rewritten(root, files)]
    for root, files in read.noted.items():
        if root in notes and files != noted[root] and not module.check_mode:
            try:
                manifest.write(notes[root], root, files)
            except OSError as error:
                module.warn(f"{notes[root]} cannot be written ({error.strerror}), so a flipped byte in a file that the hub did not name is not found later")
    note_of = {problem: next((note for root, note in notes.items() if problem.file.startswith(root + os.sep)), "") for problem, _repo in problems}
    return read, [
        finding(
            problem.id, platform.node(), "block" if problem.id == "model.digest" else "warn", f"{problem.message} ({repo})",
            remedy=digests.remedy(problem, note_of[problem]), source=problem.file,
        )
        for problem, repo in problems
    ]  # fmt: skip


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    all_seen = [look(module, repository) for repository in asked(params)]
    model = all_seen[0]
    read, damaged = compare(module, all_seen)
    findings = [*damaged, *(entry for seen in all_seen for entry in seen.findings if not damaged or entry["verdict"] != "pass")]
    complete = all(seen.complete for seen in all_seen)
    worrying = [entry for entry in findings if entry["verdict"] != "pass"] or findings
    return {
        "verdict": "pass" if complete and not any(entry["verdict"] == "block" for entry in findings) else "block",
        "msg": "; ".join(entry["message"] for entry in findings),
        "remedy": worrying[0]["remedy"],
        "present": all(seen.place.path is not None for seen in all_seen),
        "complete": complete,
        "repositories": [row(seen, read.noted.get(seen.place.path or "", {})) for seen in all_seen if seen.repository["repo"]],
        "cache_exists": not params["hf_home"] or os.path.isdir(params["hf_home"]),
        "free_bytes": disk.disk(params["hf_home"])["free_bytes"] if params["hf_home"] else None,
        "download_as": writer(params, all_seen)._asdict(),
        "token_left": bool(params["token_file"]) and os.path.lexists(params["token_file"]),
        "revision": model.place.revision,
        "snapshot_path": model.place.path,
        "snapshot_relpath": os.path.relpath(model.place.path, params["hf_home"]) if model.place.path and not directory_of(params, model.repository) else None,
        "size_bytes": sum(seen.size_bytes for seen in all_seen),
        "shards": model.shards,
        "missing": sorted({name for seen in all_seen for name in seen.missing}),
        "incomplete_blobs": [name for seen in all_seen for name in seen.incomplete],
        "facts": model.facts,
        "verified": {"files": read.files, "bytes": read.size, "seconds": read.seconds, "without": read.without},
        "findings": findings,
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "repo": {"type": "str"},
            "repositories": model_files.REPOSITORIES,
            "revision": {"type": "str"},
            "hf_home": {"type": "path"},
            "path": {"type": "path"},
            "side_files": {"type": "list", "elements": "str", "default": []},
            "state_dir": {"type": "path"},
            "token_file": {"type": "path", "no_log": False},
            "verify": {"type": "str", "choices": ["quick", "full"], "default": "quick"},
        },
        mutually_exclusive=[("repo", "path", "repositories")],
        required_one_of=[("repo", "path", "repositories")],
        required_by={"repo": "hf_home", "repositories": "hf_home"},
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
