# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arguments and variables of the engine, resolved for its image. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import resolver
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules.checks import CLUSTER
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.table import Finding

#: Ids of findings that are made here.
IDS = ("engine.answers", "engine.flags")
READS = {
    "profile": "__gb10_profile",
    "executor": "__gb10_executor",
    "image": "__gb10_image",
    "arguments": "__gb10_wanted_arguments",
    "env": "__gb10_wanted_env",
}


def resolved(
    image: dict[str, t.Any], profile: dict[str, t.Any], arguments: dict[str, t.Any], env: dict[str, str], executor: str, nodes: int
) -> tuple[dict[str, t.Any], list[Finding]]:
    """Return the changes to the wanted arguments and variables for an image's engine, and a finding for each change and refusal.

    ``image`` is the answer of ``image_info``. The changes are ``without`` (names), ``arguments`` and ``env`` (new values).
    """
    tag = profile["image"]["tag"]
    judged = functools.partial(finding, "engine.answers", CLUSTER)
    if not image["exists"]:
        return {}, [judged("unknown", f"image {tag} is not on the head, so its engine's flags are unknown.", remedy="run with --tags image")]
    contract = image["contract"]
    version, takes = contract["versions"].get("vllm"), contract["engine"]
    if not version:
        return {}, [judged("block", f"image {tag} holds no vLLM.", remedy="choose another image.base")]
    try:
        engine = resolver.Engine(version, takes, [*contract["image_env"], *profile["env"]["declared"]], profile["fork_flags"])
    except ValueError as error:
        return {}, [judged("unknown", f"{error}.", remedy="choose another image.base")]
    findings = []
    if not takes:
        findings.append(
            judged(
                "warn",
                f"vLLM {version} does not say what it takes ({contract['engine_error']}), so the history of releases alone is asked.",
                remedy="see docs/flags.md; an argument that it does not know ends its start",
            )
        )
    result = resolver.resolve(engine, arguments, env, executor, places=executor == "native" and nodes > 1)
    findings += [finding("engine.flags", CLUSTER, step.verdict, step.message, remedy=step.remedy, source=step.source) for step in result.steps]
    given = {**result.arguments, **result.env}
    return (
        {
            "without": [name for name in (*arguments, *env) if name not in given],
            "arguments": {name: value for name, value in result.arguments.items() if name not in arguments},
            "env": {name: value for name, value in result.env.items() if name not in env},
        }
    ), findings


def judge(answers: Answers, run: Run) -> Outcome:
    """Resolve the engine's arguments and variables, and show each change. Check mode on a head without an image cannot resolve them."""
    head = next(iter(answers.values()))
    if run.check_mode and not head["image"].get("exists"):
        return Outcome("Engine (its arguments would be resolved)")
    env = {name: value for answer in answers.values() for name, value in answer["env"].items()}
    changes, findings = resolved(head["image"], head["profile"], head["arguments"], env, head["executor"], len(answers))
    return Outcome(
        "Engine's arguments",
        findings or None,
        returns={
            "steps": [entry["message"] for entry in findings],
            "diff": {
                "before": {name: {**head["arguments"], **env}[name] for name in changes.get("without", ())},
                "after": {**changes.get("arguments", {}), **changes.get("env", {})},
            },
            **({"changes": changes} if changes else {}),
        },
    )
