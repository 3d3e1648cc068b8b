# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is copied, and what of it has arrived."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from copying_pair import COMMIT, blob, cache

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import copy_job
from ansible_collections.gb10.cluster.plugins.module_utils._model import copying
from ansible_collections.gb10.cluster.plugins.module_utils._model.copying import Entry


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return cache(tmp_path)


def listed(base: Path, ref: str = "") -> dict[str, Entry]:
    return {entry.path: entry for entry in copying.listing(str(base), COMMIT, ref)}


def test_a_revision_is_its_links_their_files_and_the_refs_that_name_it(base: Path) -> None:
    cache(base.parents[1], files={"other.safetensors": b"other"}, commit="f" * 40)
    (base / "refs/main").write_text(COMMIT)
    (base / "refs/pr").mkdir()
    (base / "refs/pr/1").write_text("f" * 40)
    (base / "snapshots" / COMMIT / "__pycache__").mkdir()
    (base / "snapshots" / COMMIT / "__pycache__/x.pyc").write_text("x")
    entries = listed(base)
    assert entries["refs/main"].target == COMMIT and "refs/pr/1" not in entries
    assert entries[f"snapshots/{COMMIT}/sub/c.safetensors"] == Entry(f"snapshots/{COMMIT}/sub/c.safetensors", "link", target=f"blobs/{blob(b'C' * 100, True)}")
    assert entries[f"blobs/{blob(b'C' * 100, True)}"].size == 100
    assert not any("pycache" in path or blob(b"other", True) in path for path in entries)
    assert copying.entries_of(copying.rows(entries.values())) == list(entries.values())


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("../../../../../etc/passwd", "outside of the repository"),
        ("/etc/passwd", "outside of the repository"),
        ("../../blobs/none", "does not exist"),
        ("circle", "is a link itself"),
        ("own", "not among the blobs"),
    ],
)
def test_a_link_that_leads_elsewhere_is_named(base: Path, target: str, why: str) -> None:
    (base / "snapshots" / COMMIT / "own").write_text("x")
    (base / "snapshots" / COMMIT / "circle").symlink_to("circle")
    if target != "circle":
        (base / "snapshots" / COMMIT / "circle").unlink()
        (base / "snapshots" / COMMIT / "wrong").symlink_to(target)
    with pytest.raises(ClusterError, match=why) as caught:
        listed(base)
    assert caught.value.reason == "link" and "rm " in caught.value.remedy


def test_a_blob_that_is_a_link_is_named(base: Path) -> None:
    name = base / "blobs" / blob(b"{}", False)
    name.unlink()
    name.symlink_to("/etc/shadow")
    with pytest.raises(ClusterError, match="is a link itself"):
        listed(base)


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "blobs/../../x", "blobs//x", "a\nb", "a\0b", "."])
def test_a_list_that_leads_out_of_the_repository_is_refused(path: str) -> None:
    for row in (Entry(path, "file"), Entry("snapshots/x/y", "link", target=path)):
        with pytest.raises(ClusterError, match="not a path inside"):
            copying.entries_of(copying.rows([row]))


def test_plain_files_in_the_place_of_links_need_no_blobs(base: Path, tmp_path: Path) -> None:
    target = tmp_path / "two"
    entries = list(listed(base).values())
    for entry in entries:
        if entry.kind == "link":
            path = target / entry.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes((base / entry.target).read_bytes())
    lack = copying.lacking(entries, str(target))
    assert (lack.files, lack.links, lack.other) == ([], [], []) and [entry.path for entry in lack.refs] == ["refs/main"]
    (target / "snapshots" / COMMIT / "config.json").write_bytes(b"other")
    assert copying.lacking(entries, str(target)).other == [f"{target}/snapshots/{COMMIT}/config.json (5 bytes instead of 2)"]


def test_all_nodes_number_the_files_of_a_list_alike(base: Path) -> None:
    entries = copying.rows(copying.listing(str(base), COMMIT))
    numbers = copying.numbered([{"repo": "a", "entries": entries}, {"repo": "b", "entries": entries}])
    assert sorted(numbers.values()) == list(range(len(numbers))) and {repo for repo, _path in numbers} == {"a", "b"}
    assert all(path.startswith(("blobs/", "snapshots/")) for _repo, path in numbers)


def test_blocks_count_in_this_boot_and_for_the_same_file() -> None:
    entry, other = Entry("blobs/a", "file", 9, 5), Entry("blobs/b", "file", 9, 5)
    text = copying.progress_header("boot") + copying.progress_line(entry, 0) + copying.progress_line(other._replace(mtime=6), 0)
    assert copying.progress(text + "blobs/a\t9\t5\t41", "boot", [entry, other]) == {"blobs/a": {0}, "blobs/b": set()}
    assert copying.progress(text, "another", [entry]) is None and copying.progress("", "boot", [entry]) is None


def test_how_far_it_is() -> None:
    rate = copy_job.Rate()
    assert rate.text(0.0, 0, 4 * copy_job.GIB) == "0.0 of 4.0 GiB"
    assert rate.text(2.0, copy_job.GIB, 4 * copy_job.GIB) == "1.0 of 4.0 GiB, 537 MB/s, 0:06 min left"


def test_a_cache_has_one_lock_for_all_its_names(tmp_path: Path) -> None:
    os.makedirs(tmp_path / "hub")
    (tmp_path / "link").symlink_to("hub")
    assert copy_job.lock_path("/s", "model-copy", str(tmp_path / "link")) == copy_job.lock_path("/s", "model-copy", str(tmp_path / "hub"))
