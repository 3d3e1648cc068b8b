# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which directory an image's engine compiles into, and how much lies there."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._leftovers import caches

BUILT = {"io.gb10.base": "sha256:b", "io.gb10.recipe": "r"}
STEP = [{"CreatedBy": "LABEL io.gb10.base=sha256:b io.gb10.recipe=r"}]
USERS = [{"CreatedBy": "RUN pip install vllm==0.99"}, *STEP]


class Api:
    """A Docker engine whose images have one history."""

    def __init__(self, history):
        self._history = history

    def history(self, image_id):
        assert self._history is not None, "an image without our label is not asked for its history"
        return self._history


def name(image_id="sha256:aaa", labels=None, history=None, version="0.20.1", architecture="arm64"):
    return caches.directory_name(Api(history), {"Id": image_id, "Architecture": architecture, "Config": {"Labels": labels}}, version)


def test_another_base_recipe_engine_or_architecture_is_another_directory():
    names = [
        name(labels=BUILT, history=STEP),
        name(labels={**BUILT, "io.gb10.base": "sha256:c"}, history=STEP),
        name(labels={**BUILT, "io.gb10.recipe": "s"}, history=STEP),
        name(labels=BUILT, history=STEP, version="0.31.0"),
        name(labels=BUILT, history=STEP, architecture="amd64"),
        name(),
        name(image_id="sha256:bbb"),
    ]
    assert len(set(names)) == len(names)
    assert names[0].startswith("0.20.1-arm64-")


def test_an_image_that_is_built_again_by_the_same_recipe_keeps_its_directory():
    """Its id differs each time, and on each node."""
    assert name(image_id="sha256:aaa", labels=BUILT, history=STEP) == name(image_id="sha256:bbb", labels=BUILT, history=STEP)


def test_an_image_that_a_user_built_on_ours_has_its_own():
    """It inherits the labels, and can contain another engine."""
    assert name(image_id="sha256:aaa", labels=BUILT, history=USERS) == name(image_id="sha256:aaa")


def test_what_an_image_does_not_say_is_called_unknown_and_no_version_leads_elsewhere():
    assert name(version=None, architecture="").startswith("unknown-unknown-")
    assert name(version="../0.13.0+faa43dbf.nv26.01-dev").startswith(".._0.13.0+faa43dbf.nv26.01_dev-arm64-")


def test_directories_have_sizes_and_links_lead_nowhere(tmp_path):
    top, outside = tmp_path / "cache", tmp_path / "outside"
    kept = top / name()
    (kept / "triton/a").mkdir(parents=True)
    (kept / "triton/a/kernel.so").write_bytes(b"x" * 5000)
    os.utime(kept / "triton/a/kernel.so", (4_000_000_000, 4_000_000_000))
    outside.mkdir()
    (outside / "large").write_bytes(b"x" * 500000)
    (kept / "link").symlink_to(outside)
    (top / name(version="0.1.0")).symlink_to(outside)
    (top / "file").write_text("x")
    (cache,) = caches.directories(str(top))
    assert (cache.path, cache.origin, cache.files, cache.written) == (str(kept), name()[-16:], 2, 4_000_000_000)
    assert 5000 <= cache.size < 50000
    assert cache.view({str(kept)}) == {"path": str(kept), "size_bytes": cache.size, "files": 2, "in_use": True}


def test_a_node_without_caches_has_none(tmp_path):
    assert caches.directories(str(tmp_path / "none")) == []


def test_caches_that_may_not_be_read_are_unknown(tmp_path, monkeypatch):
    def refuse(path, *more, **how):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UnknownState, match="cannot be read") as caught:
        caches.directories(str(tmp_path))
    assert "become: true" in caught.value.remedy


@pytest.mark.parametrize(("status", "held"), [("running", True), ("paused", True), ("restarting", True), ("exited", False), ("created", False)])
def test_a_container_that_may_have_processes_holds_its_directories(status, held):
    listed = [{"State": status, "Mounts": [{"Source": "/c"}]}, {"State": status}, {"State": status, "Mounts": None}]
    assert caches.mounted(listed) == ({"/c"} if held else set())
