# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judges the inputs of one host on the controller, before any node is contacted. This plugin util is PRIVATE to the collection.

``cluster`` combines the answers of all hosts and adds the problems that only show between hosts.
"""

from __future__ import annotations

import hashlib
import itertools
import typing as t
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.module_utils._module import problem_finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs import finding_ids, secrets, settings, values
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import form, profiles
from ansible_collections.gb10.cluster.plugins.plugin_utils._serve import signature


def judge_host(
    node: str,
    evaluated: settings.Values,
    failures: t.Mapping[str, settings.Failure],
    login: settings.Values,
    names: t.Iterable[str],
    roots: t.Sequence[Path] = (),
    with_profile: bool = True,
    given: t.Collection[str] = (),
) -> dict[str, t.Any]:
    """Judge the settings that were evaluated for one host.

    ``evaluated`` are the settings that could be evaluated, ``failures`` the variables that could not. ``login`` has the set values of
    :data:`secrets.KEY_FILES` and ``ansible_host``, ``names`` the names of all variables of the host. Relative paths of profiles are resolved
    against ``roots``; ``given`` has the names that are set on the command line. Without ``with_profile`` the profile is neither read nor judged.
    Returns ``settings`` (in their types, without secrets and free mappings), ``marks`` (setting → key → :func:`_marks`, of mappings that
    are the same on all hosts), ``profile`` (None when it can't be used, or it was not requested), ``findings``.
    """
    typed, problems = settings.typed(evaluated)
    problems += [failure.problem(name) for name, failure in failures.items()]
    problems += values.wrong_forms(typed)
    # A value with an error of its own is not compared with others.
    wrong = {problem.where for problem in problems}
    sound = {name: value for name, value in typed.items() if name not in wrong}
    problems += secrets.credentials_of(typed)
    problems += itertools.chain(values.judge(sound), finding_ids.silenced(sound.get("gb10_silenced", [])))
    problems += itertools.chain(secrets.login(login), values.placeholders(node, str(login.get("ansible_host") or ""), sound))
    problems += settings.unknown_settings(names, given)
    profile = None
    if with_profile and {"gb10_profile", "gb10_profile_dirs"} <= set(typed):
        try:
            profile = profiles.load(typed["gb10_profile"], typed["gb10_profile_dirs"], typed.get("gb10_profile_switches", []), roots)
        except form.ProfileError as error:
            problems += error.problems
        else:
            problems += values.with_profile(profile, typed)
    if "gb10_signature_dirs" in sound:
        try:
            signature.load(sound["gb10_signature_dirs"], roots)
        except signature.SignatureError as error:
            problems += error.problems
    options = settings.settings()
    return {
        "settings": {name: value for name, value in typed.items() if not isinstance(value, dict) and not options[name].get("no_log")},
        "marks": {name: _marks(typed[name]) for name in values.CLUSTER_WIDE if isinstance(typed.get(name), dict)},
        "profile": profile,
        "findings": [problem_finding(problem, node) for problem in problems],
    }


def judge_role(
    role: str,
    node: str,
    evaluated: settings.Values,
    failures: t.Mapping[str, settings.Failure],
    roots: t.Sequence[Path] = (),
    with_profile: bool = True,
) -> list[dict[str, t.Any]]:
    """Return the findings about the settings of a role that needs no cluster, and with ``with_profile`` about the profile that it uses."""
    spec = settings.read_by(role)
    typed, problems = settings.typed(evaluated, spec)
    problems += [failure.problem(name) for name, failure in failures.items()]
    problems += values.wrong_forms(typed, spec)
    wrong = {problem.where for problem in problems}
    if role == "plan" and typed.get("gb10_plan_model") and not wrong:
        problems += values.of_plan(None, typed)
    elif with_profile and not typed.get("gb10_plan_model"):
        chosen = {name: typed.get(name) or settings.settings()[name]["default"] for name in settings.OF_PROFILE}
        try:
            profile = profiles.load(chosen["gb10_profile"], chosen["gb10_profile_dirs"], chosen["gb10_profile_switches"], roots)
        except form.ProfileError as error:
            problems += error.problems
        else:
            problems += values.of_engine(profile, chosen["gb10_serve_arguments"])
            if role == "plan":
                problems += values.of_plan(profile, {name: value for name, value in typed.items() if name not in wrong})
    return [problem_finding(problem, node) for problem in problems]


def _marks(mapping: dict[str, t.Any]) -> dict[str, str]:
    """Return 16 bits of a digest of each value: enough to show that two values differ, too few to reveal a value, which could be a secret."""
    return {str(key): hashlib.sha256(str(value).encode()).hexdigest()[:4] for key, value in mapping.items()}
