# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts that a memory plan needs of a model in a hub cache of the controller. This plugin util is PRIVATE to the collection.

It reads only config.json, the index of the weights and the sizes of files, and downloads nothing.
"""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._memory import model_facts
from ansible_collections.gb10.cluster.plugins.module_utils._model import model_files
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import declared_claims

#: Repository names that the hub accepts.
_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_WEIGHTS = (".safetensors", ".gguf")
_GB = 1e9
MOST_RANKS = 16


def read_json(root: str, name: str) -> dict[str, t.Any]:
    """Return a JSON object of a snapshot, empty when it has no such file. Raises :class:`UnknownState` for anything else."""
    if not os.path.lexists(os.path.join(root, name)):
        return {}
    content, problem = model_files.read_json(root, name)
    if problem:
        raise UnknownState(f"{root}: {problem.message}", remedy="Download the file again.", reason="cache")
    return content


def weights_gb(root: str) -> float | None:
    """Return the GB of a snapshot's weights: the index's sum, else the sum of the files; None where neither is known."""
    size = (read_json(root, model_files.INDEX).get("metadata") or {}).get("total_size")
    if isinstance(size, (int, float)) and not isinstance(size, bool) and size > 0:
        return round(size / _GB, 3)
    if os.path.lexists(os.path.join(root, model_files.INDEX)):
        return None
    paths = [os.path.join(root, name) for name in os.listdir(root) if name.endswith(_WEIGHTS)]
    sizes = [os.path.getsize(path) for path in paths if os.path.isfile(path)]
    return round(sum(sizes) / _GB, 3) if sizes else None


def profile_of(model: str, nodes: t.Any = None) -> dict[str, t.Any]:
    """Return the parts of a profile that a memory plan reads, for a model (``org/name`` or ``org/name@revision``) in the hub cache: without arguments, and
    with one tensor rank on each of ``nodes``, in the form of ``gb10_plan_nodes``.

    Raises :class:`ClusterError` when its config.json is missing.
    """
    repo, _at, revision = model.partition("@")
    ranks = declared_claims.count_of(nodes)
    if not _REPO.fullmatch(repo):
        raise ClusterError(f"the model is {repo!r}, expected org/name", remedy="Correct gb10_plan_model.", reason="input")
    if not 1 <= ranks <= MOST_RANKS:
        raise ClusterError(f"the ranks are {ranks}, expected 1 to {MOST_RANKS}", remedy="Correct gb10_plan_nodes.", reason="input")
    home = os.path.expanduser(os.environ.get("HF_HOME") or "~/.cache/huggingface")
    place = model_files.locate(home, repo, revision or None)
    config = read_json(place.path, "config.json") if place.path else {}
    if not place.path or not config:
        where = place.path or os.path.join(home, "hub", model_files.repo_directory(repo))
        raise ClusterError(
            f"{where}: no config.json of {repo}{f' at {revision}' if revision else ''}, expected a snapshot of it in the hub cache {home}",
            remedy=f"hf download {repo} config.json model.safetensors.index.json, or set HF_HOME to the cache.",
            reason="cache",
        )
    size = weights_gb(place.path)
    return {
        "id": repo,
        "model": {"repo": repo, "revision": place.revision},
        "memory": {
            "class_gb": 128,
            "weights_gb": None,
            "config": {**model_facts.from_config(config), **({"checkpoint_gb": size} if size else {}), "source": f"config.json of {repo} at {place.revision}"},
        },
        "parallel": {"tensor": ranks, "pipeline": 1, "data": 1, "expert": False},
        "executor": "native",
        "image": {"layers": []},
        "env": {"shared": {}},
        "serve": {},
        "repositories": {},
        "ladder": [],
    }
