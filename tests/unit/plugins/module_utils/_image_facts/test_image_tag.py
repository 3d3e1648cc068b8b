# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A registry's answer for a tag, with an engine that gives set answers."""

from __future__ import annotations

import types

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._image_facts import image_tag

DIGEST = "sha256:" + "2f" * 32


@pytest.fixture
def call(monkeypatch):
    def call(answer):
        def registry_digest(image):
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(image_tag, "Docker", lambda socket, timeout: types.SimpleNamespace(registry_digest=registry_digest))
        params = {"image": "nvcr.io/nvidia/vllm:26.05-py3", "docker_socket": "", "docker_timeout": 1}
        return image_tag.work(types.SimpleNamespace(params=params, check_mode=False))

    return call


def test_the_reference_names_the_digest_and_no_tag(call):
    result = call(DIGEST)
    assert (result["digest"], result["reference"]) == (DIGEST, f"nvcr.io/nvidia/vllm@{DIGEST}")


def test_a_refusal_of_the_registry_has_a_remedy(call):
    with pytest.raises(ClusterError, match="the registry does not report the digest of nvcr.io/nvidia/vllm:26.05-py3: denied") as caught:
        call(ClusterError("denied: login required"))
    assert "docker login" in caught.value.remedy and "image.base" in caught.value.remedy


def test_an_answer_that_cannot_be_read_stays_unknown(call):
    with pytest.raises(UnknownState, match="no digest here"):
        call(UnknownState("no digest here"))
