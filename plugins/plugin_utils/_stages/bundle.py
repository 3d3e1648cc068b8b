# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The result of a bundle, and whether a bring-up can use it. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.plugin_utils._text import table
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Answers, Outcome, Run

#: Version of the returned statistics.
SCHEMA = 1
#: Only the answers that the task names.
READS: dict[str, str] = {}
#: Ids of findings that are made here.
IDS = ("bundle.profile", "bundle.recipe", "bundle.unlisted")
TITLES = {"export": "Bundle, exported", "import": "Bundle, imported", "verify": "Bundle, verified"}
#: The warning about trust in the author of a bundle.
TRUST = "Its author can run any program as root of a container on each node that imports it."
#: The fields of a result that are returned.
KEPT = ("changed", "bundle", "written", "bytes", "seconds", "image_id", "left_out", "other_texts", "unlisted", "signed_by")


def findings_of(node: str, answer: dict[str, t.Any], recipe: str) -> list[table.Finding]:
    """Return findings about parts that a bring-up would not use, and about unneeded files. ``recipe`` is this collection's, empty if it builds nothing."""
    about, others, unlisted = answer["bundle"], answer.get("other_texts") or [], answer.get("unlisted") or []
    return [
        entry
        for is_found, entry in (
            (
                recipe and about["recipe"] != recipe,
                finding(
                    "bundle.recipe",
                    node,
                    "warn",
                    "the bundle's image was built by another recipe than this collection's, so a bring-up with this collection builds it again"
                    + _packages(about),
                    measured=about["recipe"] or "none",
                    needed=recipe,
                    remedy=f"bring it up with the collection that made the bundle ({about['made_by']}), or export it again with this one: --tags image first",
                ),
            ),
            (
                others,
                finding(
                    "bundle.profile",
                    node,
                    "warn",
                    f"this controller's profile is not the one that the bundle was made with: {', '.join(others)}",
                    remedy=f"compare them with those in {about['path']}, and use the bundle's where it is right",
                ),
            ),
            (
                unlisted,
                finding(
                    "bundle.unlisted",
                    node,
                    "warn",
                    f"{len(unlisted)} file(s) of an earlier export remain in {about['path']}, and are not needed: {', '.join(unlisted[:5])}",
                    remedy="remove them when the disk is short, or export into a new directory",
                ),
            ),
        )
        if is_found
    ]


def _packages(about: dict[str, t.Any]) -> str:
    return f"; the {about['wheels']} package(s) of the bundle let it do so without Internet" if about["wheels"] else ", for which it needs the Internet"


def judge(answers: Answers, run: Run) -> Outcome:
    """Show the result of a bundle, and return it. ``settings`` has ``verb`` and ``recipe``."""
    verb, lines, findings = run.settings["verb"], [], []
    for node, answer in answers.items():
        bundled, about = answer["bundled"], answer["bundled"]["bundle"]
        counts = f"{about['files']} file(s), {about['bytes'] / (1 << 30):.1f} GiB, {about['wheels']} package(s)"
        lines += [
            f"{node}: {bundled['msg']}",
            f"  {about['path']}: profile {about['profile']}, image {about['image']} ({about['image_config'][:19]}), {', '.join(about['models'])}",
            f"  {counts}, made by {about['made_by']} {about['made_at']}".rstrip(),
        ]
        by = f"Signed by {bundled['signed_by']}." if bundled.get("signed_by") else "Compare this digest with the maker's by another channel, or have it signed."
        lines += [f"  sha256 of SHA256SUMS: {about['digest']}", f"  {TRUST} {by}"] if about["digest"] else []
        findings += findings_of(node, bundled, run.settings["recipe"] if verb != "verify" else "")
    if verb == "import" and not run.check_mode:
        lines.append("To bring it up: ansible-playbook -i inventories/NAME gb10.cluster.serve -e gb10_offline=true")
    return Outcome(
        TITLES[verb],
        findings or None,
        lines=lines,
        stats={
            "gb10_bundled": {
                "schema": SCHEMA,
                "verb": verb,
                "nodes": {node: {word: answer["bundled"].get(word) for word in KEPT} for node, answer in answers.items()},
            },
            "gb10_verdict": table.verdict(findings, run.silenced) if findings else "pass",
        },
    )
