# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages by name: each is a file in this folder with the variables that it reads and its judgement. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import importlib
import pathlib
import typing as t

from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Every other file in this folder is a stage.
NAMES = sorted(path.stem for path in pathlib.Path(__file__).parent.glob("*.py") if path.stem not in ("__init__", "registry"))


class Stage(t.Protocol):
    """The interface of a stage's file: the variables of every node that it reads in addition to the task's answers, and its judgement."""

    READS: dict[str, str]

    @staticmethod
    def judge(answers: Answers, run: Run) -> Outcome: ...


def stage(name: str) -> Stage:
    """Return a stage."""
    return t.cast(Stage, importlib.import_module(f"{__name__.rpartition('.')[0]}.{name}"))


def ids() -> set[str]:
    """Return the ids of the findings of all stages. The ids of rules are in the rules' tables."""
    return {id for name in NAMES for id in getattr(stage(name), "IDS", ())}
