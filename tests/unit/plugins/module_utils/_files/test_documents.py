# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files with one mapping that has a schema."""

from __future__ import annotations

import os

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import documents

KEYS = {"name": str, "number": int}
DOCUMENT = documents.Document("thing", "the record of a thing", 1, lambda content: documents.lacking(content, KEYS), "Remove {path}.")


def test_a_written_document_is_readable_for_all_users(tmp_path):
    path = str(tmp_path / "thing.json")
    assert DOCUMENT.read(path) is None and DOCUMENT.read(f"{path}/below") is None
    mask = os.umask(0o077)
    try:
        DOCUMENT.write(path, {"name": "one", "number": 1})
    finally:
        os.umask(mask)
    assert DOCUMENT.read(path) == {"schema": 1, "name": "one", "number": 1} and os.stat(path).st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not JSON"),
        ("[" * 100000, "is not JSON"),
        ("[]", "is not the record of a thing: its schema is not 1"),
        ('{"schema": 2, "name": "one", "number": 1}', "its schema is not 1"),
        ('{"schema": 1, "name": "one", "number": true}', "is not the record of a thing: number: missing, or of another type"),
        ('{"schema": 1}', "name, number: missing, or of another type"),
    ],
)
def test_another_content_is_unknown_with_a_remedy(tmp_path, text, why):
    path = tmp_path / "thing.json"
    path.write_text(text)
    with pytest.raises(UnknownState, match=why) as caught:
        DOCUMENT.read(str(path))
    assert (caught.value.remedy, caught.value.reason) == (f"Remove {path}.", "thing broken") and caught.value.details["raw"] == text[:2000]


def test_a_file_that_may_not_be_read_is_unknown(tmp_path):
    with pytest.raises(UnknownState, match="cannot be read: Is a directory") as caught:
        DOCUMENT.read(str(tmp_path))
    assert (caught.value.remedy, caught.value.reason) == (documents.UNREAD, "thing unread")
