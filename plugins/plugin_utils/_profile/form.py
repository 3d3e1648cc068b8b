# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Defines the form of a profile's file. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._engine import questions
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, Problem
from ansible_collections.gb10.cluster.plugins.module_utils._model import model_files
from ansible_collections.gb10.cluster.plugins.module_utils._records import cold_starts

SCHEMA_VERSION = 1

#: How ranks on several nodes find each other: a profile's executor, and the engine's name for it. ``auto`` has to be resolved
#: before there is a command line.
EXECUTOR_BACKENDS = {"ray": "ray", "native": "mp"}

#: What the proof may check: a completion, the hosts of the ranks, their environments, the rights of their containers, the path of their traffic.
PROOFS = ("completion", "rank_hosts", "env_parity", "container_rights", "fabric")

#: Facts of a node that may be the value of a per-host variable (a profile's env.per_host and :data:`PER_HOST_ENV`).
HOST_FACTS = ("fabric_address", "fabric_interfaces", "control_interface", "rdma_devices", "ucx_devices")

#: The word for a profile that is not known to have run unchanged.
UNTESTED = "untested"
SIDE_FILE = "side_file:"
#: The beginning of an argument that refers to a repository of the profile, or with ``/PATH`` to a file or directory in it.
REPOSITORY = "repository:"
#: A profile's name for the repository of its model.
MODEL = "model"
REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*\Z")

#: Who measured what, on which image, with which versions of vLLM and Ray, where and when that was published; or the word for an untested profile.
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

#: A change that a recipe makes to an image: packages, and patches of existing packages. It becomes a layer; nothing of it runs at a start.
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

#: The terms of a repository's files: the license's name, the address of its text, and whether it has to be accepted at the hub first.
#: A field without a source is left out, and is unknown.
_LICENSE: dict[str, t.Any] = {
    "type": "dict",
    "options": {"id": {"type": "str"}, "url": {"type": "str"}, "accept": {"type": "bool"}},
}

#: What is downloaded of a repository: the commit, the files (all if none are named), their size, and whether the hub restricts it to approved
#: accounts (``gated``).
_FETCHED: dict[str, t.Any] = {
    # The hub's repository, or instead a plain directory on every node from which the model is served.
    "repo": {"type": "str"},
    "path": {"type": "str"},
    "revision": {"type": "str"},
    "files": {"type": "list", "elements": "str", "default": []},
    "size_gb": {"type": "float"},
    "license": _LICENSE,
    "gated": {"type": "bool"},
}

#: An argument or variable, or a value of it, that only a fork of the engine has: its purpose, a public source,
#: and the image that has it.
_FORK_FLAG: dict[str, t.Any] = {
    "type": "dict",
    "options": {
        "why": {"type": "str", "required": True},
        "source": {"type": "str", "required": True},
        "image": {"type": "str", "required": True},
    },
}

FORM: dict[str, t.Any] = {
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
                    "purpose": {"type": "str", "required": True, "choices": [purpose for purpose in model_files.PURPOSES if purpose != MODEL]},
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
        # What the inventory has to grant explicitly: a profile sets nothing of it.
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
        # Tokens per second for the choice of a model, as others reported them: for one user and for many, with hardware, image and checkpoint.
        "speed": {
            "type": "dict",
            "options": {
                "one": {"type": "float"},
                "many": {"type": "float"},
                "users": {"type": "int"},
                "by": {"type": "str", "default": ""},
                "source": {"type": "str", "default": ""},
                "setup": {"type": "str", "default": ""},
            },
        },
        # Seconds of a start as others reported them, by its stages, and from the engine's process to the first token.
        "start": {
            "type": "dict",
            "options": {
                **{stage: {"type": "float"} for stage in (cold_starts.READY, *cold_starts.STAGES[1:])},
                "by": {"type": "str", "default": ""},
                "source": {"type": "str", "default": ""},
                "setup": {"type": "str", "default": ""},
            },
        },
        "evidence": _EVIDENCE,
        "notes": {"type": "str", "default": ""},
    },
}


class ProfileError(ClusterError):
    """A profile can't be used, for one or more ``problems``."""

    def __init__(self, *problems: Problem) -> None:
        remedies = dict.fromkeys(problem.remedy for problem in problems if problem.remedy)
        super().__init__("\n".join(f"{problem}." for problem in problems), remedy="; ".join(remedies))
        self.problems = problems


def snake(arguments: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return arguments by their names with underscores, the spelling that the collection compares."""
    return {name.replace("-", "_"): value for name, value in arguments.items()}
