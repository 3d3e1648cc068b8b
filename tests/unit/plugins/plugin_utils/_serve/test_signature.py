# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables of failure signatures: the shipped ones, those of users, and what makes one unusable."""

from __future__ import annotations

import collections

import pytest
import yaml

from ansible_collections.gb10.cluster.plugins.plugin_utils._serve import failures, signature

ROWS = signature.shipped()
EXAMPLES = [(row, example) for row in ROWS for example in row.examples]


def diagnosis(text):
    made = failures.Diagnosis()
    made.feed(text.splitlines())
    return made


@pytest.mark.parametrize(("row", "example"), EXAMPLES, ids=[f"{row.id}-{row.examples.index(example)}" for row, example in EXAMPLES])
def test_each_example_leads_to_its_own_signature(row, example):
    found = diagnosis(example)
    match = found.fatal if row.verdict == "block" else next((one for one in found.warnings if one.signature.id == row.id), None)
    assert match is not None and match.signature.id == row.id


@pytest.mark.parametrize("row", [row for row in ROWS if row.harmless], ids=lambda row: row.id)
def test_what_is_harmless_leads_to_no_failure(row):
    for text in row.harmless:
        found = diagnosis(text)
        assert row.id not in [match.signature.id for match in (found.fatal, *found.warnings) if match], text


def test_each_id_cause_and_remedy_stands_once():
    ids = [row["id"] for path in sorted(signature.SHIPPED.glob("*.yml")) for row in yaml.safe_load(path.read_text())]
    assert [id for id, count in collections.Counter(ids).items() if count > 1] == []
    for field in ("cause", "remedy"):
        counted = collections.Counter(getattr(row, field) for row in ROWS)
        assert [text for text, count in counted.items() if count > 1] == []
