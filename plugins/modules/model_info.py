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
  - Looks at a model in a hub cache, or in a plain directory, without reading its weights.
  - C(config.json) must parse. Each file that C(model.safetensors.index.json) names must be there, and as long as its own safetensors
    header says, so a truncated copy is found in milliseconds. A single C(model.safetensors) is fine, too.
  - There must be a tokenizer, and every one of O(side_files).
  - Links into the cache that lead nowhere, and downloads that did not finish, are reported.
  - In a hub cache the model's own code (Python, and JSON that names it) is read and compared with the hub's ids of its content. What was changed
    is the verdict V(block); what has no such id, as in a model that was copied by hand, is a warning.
  - With O(state_dir), what that code is gets noted on the node when a revision is first seen complete, and is compared from then on. A file that leads to
    another blob of the cache, one that came and one that went are the verdict V(block), too. Such a note is no change.
  - An absent or incomplete model is a result and not a failure. An existing file that may not be read is the verdict V(unknown).
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
options:
  repo:
    description:
      - The model's repository, as C(organization/name).
      - Mutually exclusive with O(path), and one of the two is required.
    type: str
  revision:
    description:
      - The commit, or the name of a ref such as V(main).
      - Without it, the cache's ref C(main) decides.
    type: str
  hf_home:
    description:
      - The directory that holds C(hub/). Required with O(repo).
    type: path
  path:
    description:
      - A plain directory that holds the model.
    type: path
  side_files:
    description:
      - Further files that the model needs, relative to its directory, such as a reasoning parser.
    type: list
    elements: str
    default: []
  state_dir:
    description:
      - Directory on the node that holds the state of the collection's clusters. Notes of code lie in C(model-code) below it. In check mode none is written.
    type: path
    version_added: 0.2.0
  token_file:
    description:
      - A file that a download leaves behind when it is interrupted. RV(token_left) says whether it is there.
    type: path
    version_added: 0.2.0
"""

EXAMPLES = r"""
- name: Look for the model
  gb10.cluster.model_info:
    repo: nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4
    revision: main
    hf_home: /home/spark/.cache/huggingface
    side_files: [super_v3_reasoning_parser.py]
  register: model

- name: Stop when it is not complete
  ansible.builtin.assert:
    that: model.complete
    fail_msg: "{{ model.msg }}"
"""

RETURN = r"""
verdict:
  description: V(pass) when the model is complete and its code unchanged, V(block) otherwise.
  returned: always
  type: str
  sample: pass
present:
  description: Whether this revision of the model is there at all.
  returned: success
  type: bool
  sample: true
complete:
  description: Whether it can be served.
  returned: success
  type: bool
  sample: true
cache_exists:
  description: Whether O(hf_home) is there. True for a plain directory.
  returned: success
  type: bool
  sample: true
token_left:
  description: Whether O(token_file) is there.
  returned: success
  type: bool
  sample: false
download_as:
  description: The user and group that a download into the cache should run as, the cache's own; root's where something in the way is another user's.
  returned: success
  type: dict
  version_added: 0.2.0
  sample: {"uid": 1000, "gid": 1000, "because": ""}
revision:
  description: The commit, null when it is not known or for a plain directory.
  returned: success
  type: str
  sample: 2f9d4a0c3b5e6f708192a3b4c5d6e7f801234567
snapshot_path:
  description: The directory that holds the model's files on this node, null when it is absent.
  returned: success
  type: str
  sample: /home/spark/.cache/huggingface/hub/models--org--name/snapshots/2f9d4a0c3b5e6f708192a3b4c5d6e7f801234567
snapshot_relpath:
  description: The same relative to O(hf_home), for use where the cache is mounted elsewhere. Null for a plain directory.
  returned: success
  type: str
  sample: hub/models--org--name/snapshots/2f9d4a0c3b5e6f708192a3b4c5d6e7f801234567
size_bytes:
  description: The bytes of all its files.
  returned: success
  type: int
  sample: 80371298048
shards:
  description: The files that hold the weights, relative to RV(snapshot_path), whether they are there or not.
  returned: success
  type: list
  elements: str
  sample: [model-00001-of-00017.safetensors]
missing:
  description: The files that are absent or cannot be used.
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
  description: What C(config.json) says; null for what it does not say.
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
      description: The context length that the model was made for, in tokens.
      type: int
      sample: 262144
    hidden_size:
      description: Values that one token is between two layers.
      type: int
      sample: 4096
    num_hidden_layers:
      description: Its layers, of whatever kind.
      type: int
      sample: 88
    dtype:
      description: The type of these values.
      type: str
      sample: bfloat16
findings:
  description: One finding for each thing that is wrong, or one that says that all is well.
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

from ansible_collections.gb10.cluster.plugins.module_utils._model import model_code, model_files
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding, run


def place_of(params: dict[str, t.Any]) -> model_files.Place:
    """Return where the asked model lies."""
    if params["path"]:
        return model_files.Place(path=params["path"] if os.path.isdir(params["path"]) else None, revision=None, repo_path=None)
    return model_files.locate(params["hf_home"], params["repo"], params["revision"])


def what(params: dict[str, t.Any]) -> str:
    """Return how to call the asked model in a message."""
    if params["path"]:
        return f"a model in {params['path']}"
    return f"{params['repo']} (revision {params['revision'] or 'main'}) in {params['hf_home']}"


def judge(
    name: str,
    place: model_files.Place,
    problems: t.Sequence[model_files.Problem],
    code: t.Sequence[model_files.Problem],
    incomplete: t.Sequence[str],
    node: str,
    note: str = "",
) -> list[dict[str, t.Any]]:
    """Return one finding for each thing that is wrong, or a single passing one. ``note`` is where it is noted what the code was."""
    again = "Run the play with --tags model, which downloads what is missing."
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


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    place = place_of(params)
    problems, shards, facts = model_files.examine(place.path, params["side_files"]) if place.path else ([], [], model_files.facts({}))
    hub_path = place.path if params["repo"] else None
    note = model_code.note_path(params["state_dir"], params["repo"], place.revision or "") if hub_path and params["state_dir"] else ""
    noted = model_code.read_note(note) if note else None
    code = model_code.code_problems(hub_path, params["side_files"], noted) if hub_path else []
    incomplete = model_files.incomplete_blobs(place.repo_path)
    findings = judge(what(params), place, problems, code, incomplete, platform.node(), note)
    private = model_files.private_path(params["hf_home"], hub_path) if hub_path else None
    if private:
        message = f"root in a container cannot read {private}: it belongs to another user, and not everybody may read it"
        remedy = f"chmod -R go+rX {os.path.join(params['hf_home'], 'hub')}, or gb10_container_capabilities: [DAC_OVERRIDE]"
        findings.append(finding("model.private", platform.node(), "warn", message, remedy=remedy, source=private))
    complete = place.path is not None and not problems
    unchanged = not incomplete and not any(problem.id == "model.code_changed" for problem in code)
    if note and noted is None and complete and unchanged and not module.check_mode:
        try:
            model_code.write_note(note, model_code.code_ids(hub_path or "", params["side_files"]))
        except OSError as error:
            module.warn(f"{note} cannot be written ({error.strerror}), so a file of the model's code that is replaced by another is not found")
    return {
        "verdict": "pass" if complete and not any(entry["verdict"] == "block" for entry in findings) else "block",
        "msg": "; ".join(entry["message"] for entry in findings),
        "remedy": findings[0]["remedy"],
        "present": place.path is not None,
        "complete": complete,
        "cache_exists": not params["hf_home"] or os.path.isdir(params["hf_home"]),
        "download_as": (model_files.writer(params["hf_home"], params["repo"]) if params["repo"] else model_files.Writer(0, 0))._asdict(),
        "token_left": bool(params["token_file"]) and os.path.lexists(params["token_file"]),
        "revision": place.revision,
        "snapshot_path": place.path,
        "snapshot_relpath": os.path.relpath(place.path, params["hf_home"]) if place.path and params["repo"] else None,
        "size_bytes": model_files.size_bytes(place.path) if place.path else 0,
        "shards": shards,
        "missing": sorted({problem.file for problem in problems}),
        "incomplete_blobs": incomplete,
        "facts": facts,
        "findings": findings,
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "repo": {"type": "str"},
            "revision": {"type": "str"},
            "hf_home": {"type": "path"},
            "path": {"type": "path"},
            "side_files": {"type": "list", "elements": "str", "default": []},
            "state_dir": {"type": "path"},
            "token_file": {"type": "path", "no_log": False},
        },
        mutually_exclusive=[("repo", "path")],
        required_one_of=[("repo", "path")],
        required_by={"repo": "hf_home"},
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
