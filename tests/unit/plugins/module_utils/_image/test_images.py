# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine's facts about images, in the collection's terms."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._image import images

INSPECTED = {
    "Id": "sha256:1a",
    "Architecture": "arm64",
    "Os": "linux",
    "Created": "2026-11-20T18:02:11Z",
    "Size": 7,
    "Config": {"Labels": {"io.gb10.base": "b"}},
}


class Api:
    """Has one image."""

    def image(self, reference):
        return INSPECTED if reference == "there:1" else None


def test_images_by_name():
    result = images.images(Api(), ["there:1", "gone:1", "there:1"])
    assert list(result) == ["there:1", "gone:1"]
    assert result["gone:1"] is None
    assert (result["there:1"]["id"], result["there:1"]["architecture"], result["there:1"]["labels"]) == ("sha256:1a", "arm64", {"io.gb10.base": "b"})
    assert result["there:1"]["repo_digests"] == []


@pytest.mark.parametrize("answer", [{}, {"Id": "x"}, [], {"Id": "x", "Architecture": "arm64", "Config": [1]}])
def test_an_answer_that_lacks_something_is_unknown(answer):
    with pytest.raises(UnknownState):
        images.summary("x:1", answer)


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("nvcr.io/nvidia/vllm:26.05-py3", "nvcr.io/nvidia/vllm"),
        ("localhost:5000/a/b", "localhost:5000/a/b"),
        ("localhost:5000/a/b:1@sha256:cd", "localhost:5000/a/b"),
        ("vllm@sha256:cd", "vllm"),
    ],
)
def test_a_repository_precedes_tag_and_digest(reference, name):
    assert images.repository(reference) == name


@pytest.mark.parametrize(
    ("reference", "digests", "expected"),
    [
        ("docker.io/vllm/vllm-openai:v0.27.1", ["vllm/vllm-openai@sha256:cd"], "vllm/vllm-openai@sha256:cd"),
        ("debian:12", ["docker.io/library/debian@sha256:cd"], "docker.io/library/debian@sha256:cd"),
        ("nvcr.io/nvidia/vllm:26.05-py3", ["mirror.example/nvidia/vllm@sha256:cd"], None),
    ],
)
def test_an_image_has_a_digest_where_its_own_repository_knows_it(reference, digests, expected):
    assert images.by_digest(reference, digests) == expected
