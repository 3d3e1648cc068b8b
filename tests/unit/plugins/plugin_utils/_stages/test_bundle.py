# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report of a bundle's play, and whether a bring-up follows."""

from __future__ import annotations

import datetime
import typing as t

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import bundle
from ansible_collections.gb10.cluster.plugins.plugin_utils._text.outcome import Outcome, Run

ABOUT = {
    "path": "/mnt/ssd/b", "digest": "d" * 64, "profile": "tiny", "made_by": "gb10.cluster 0.2.0", "made_at": "2026-11-23T18:00:00Z", "image": "gb10/engine:ray",
    "image_config": "sha256:" + "8" * 64, "base_digest": "", "recipe": "r", "models": ["org/tiny@0123456789ab"], "wheels": 0, "files": 12, "bytes": 3 << 30,
}  # fmt: skip


def judged(verb: str = "import", recipe: str = "r", check_mode: bool = False, about: dict[str, t.Any] | None = None, **more: t.Any) -> Outcome:
    answer = {"changed": True, "msg": "12 file(s), 3.0 GiB, imported and compared", "bundle": {**ABOUT, **(about or {})}, **more}
    run = Run({"verb": verb, "recipe": recipe}, [], "", [], [], datetime.datetime.now(datetime.timezone.utc), check_mode)
    return bundle.judge({"spark-1": {"bundled": answer}}, run)


@pytest.mark.parametrize("verb", ["export", "import", "verify"])
def test_what_it_is_and_what_comes_next(verb: str) -> None:
    outcome = judged(verb)
    assert outcome.findings is None and outcome.stats["gb10_verdict"] == "pass" and outcome.title == bundle.TITLES[verb]
    assert any("gb10.cluster.serve -e gb10_offline=true" in line for line in outcome.lines) is (verb == "import")
    assert "  12 file(s), 3.0 GiB, 0 package(s), made by gb10.cluster 0.2.0 2026-11-23T18:00:00Z" in outcome.lines
    assert f"  sha256 of SHA256SUMS: {'d' * 64}" in outcome.lines and any("as root of a container" in line for line in outcome.lines)
    assert any("Signed by a@example.org" in line for line in judged(verb, signed_by="a@example.org").lines)
    assert outcome.stats["gb10_bundled"]["nodes"]["spark-1"]["bundle"]["recipe"] == "r"
    assert not any("serve" in line for line in judged(check_mode=True).lines)


@pytest.mark.parametrize(
    ("more", "id", "words"),
    [
        ({"recipe": "newer"}, "bundle.recipe", "for which it needs the Internet"),
        ({"recipe": "newer", "about": {"wheels": 14}}, "bundle.recipe", "the 14 package(s) of the bundle let it do so without Internet"),
        ({"other_texts": ["profile/tiny.yml"]}, "bundle.profile", "profile/tiny.yml"),
        ({"unlisted": ["hub/x"], "verb": "export"}, "bundle.unlisted", "hub/x"),
    ],
)
def test_what_a_person_should_know_is_a_warning(more: dict[str, t.Any], id: str, words: str) -> None:
    outcome = judged(**more)
    (finding,) = outcome.findings or []
    assert (finding["id"], finding["verdict"], finding["node"]) == (id, "warn", "spark-1") and words in finding["message"] and finding["remedy"]
    assert outcome.stats["gb10_verdict"] == "warn" and id in bundle.IDS


def test_an_image_without_an_own_layer_has_no_recipe() -> None:
    assert judged(recipe="", about={"recipe": ""}).findings is None
