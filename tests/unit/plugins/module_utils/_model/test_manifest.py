# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is noted of a model's files is read as it was written; anything else is unknown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._model import manifest


def test_written_and_read(tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "sub").mkdir(parents=True)
    (model / "sub/a.bin").write_text("a")
    (model / "b").symlink_to("sub/a.bin")
    (model / "nowhere").symlink_to("absent")
    assert manifest.file_names(str(model)) == ["b", "sub/a.bin"]
    path = manifest.path_of(str(tmp_path / "state"), str(model))
    assert path != manifest.path_of(str(tmp_path / "state"), str(model / "sub")) and manifest.read(path) == {}
    files = {"b": manifest.entry(os.stat(model / "b"), "0" * 64)}
    manifest.write(path, str(model), files)
    assert manifest.read(path) == files and manifest.is_same_file(files["b"], {**files["b"], "digest": ""})
    for name in ("size", "mtime_ns", "inode"):
        assert not manifest.is_same_file(files["b"], {**files["b"], name: 0})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": []}', '{"files": {"a": {}}}', "[" * 100_000])
def test_rubbish_is_unknown(tmp_path: Path, text: str) -> None:
    (tmp_path / "note.json").write_text(text)
    with pytest.raises(UnknownState, match="is not a model's manifest") as raised:
        manifest.read(str(tmp_path / "note.json"))
    assert f"Remove {tmp_path / 'note.json'}" in raised.value.remedy


def test_an_unreadable_manifest_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "note.json").mkdir()
    with pytest.raises(UnknownState):
        manifest.read(str(tmp_path / "note.json"))
