# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How far the pull of an image is. The events have the shape of those that engine 20.10 sends."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._image import images, pulling

GIB = 1 << 30


def event(status, layer="", current=None, total=None):
    detail = {} if total is None else {"current": current, "total": total}
    return {"status": status, **({"id": layer} if layer else {}), "progressDetail": detail}


def test_the_text_follows_the_layers():
    progress = pulling.Progress()
    assert progress.text() == "0.0 of 0.0 GiB downloaded, 0 of 0 layers unpacked"
    for update in (event("Pulling from nvidia/vllm", "26.05-py3"), event("Already exists", "a"), event("Pulling fs layer", "b"), event("Waiting", "c")):
        progress.feed(update)
    assert progress.text() == "0.0 of 0.0 GiB downloaded, 1 of 3 layers unpacked"
    progress.feed(event("Downloading", "b", GIB, 4 * GIB))
    progress.feed(event("Downloading", "c", GIB, 2 * GIB))
    assert progress.text() == "2.0 of 6.0 GiB downloaded, 1 of 3 layers unpacked"
    progress.feed(event("Download complete", "b"))
    progress.feed(event("Extracting", "b", 100, 200))
    assert progress.text() == "5.0 of 6.0 GiB downloaded, 1 of 3 layers unpacked"
    progress.feed(event("Pull complete", "b"))
    progress.feed(event("Status: Downloaded newer image"))
    assert progress.text() == "5.0 of 6.0 GiB downloaded, 2 of 3 layers unpacked"


def test_the_engines_word_for_a_failure_is_raised():
    with pytest.raises(ClusterError, match="cannot pull the image: manifest unknown"):
        pulling.Progress().feed({"error": "manifest unknown", "errorDetail": {}})


def test_two_images_have_two_notes():
    assert pulling.note_path("/s", "a") != pulling.note_path("/s", "b") and pulling.note_path("/s", "a") == pulling.note_path("/s", "a")


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("Get https://r.lan/v2/: unauthorized: authentication required", "docker login r.lan"),
        ("pull access denied for users/x, repository does not exist or may require 'docker login'", "docker login r.lan"),
        ("toomanyrequests: You have reached your pull rate limit", "raises the limit"),
        ("manifest for r.lan/x:1 not found: manifest unknown: manifest unknown", "Correct image.base"),
        ("dial tcp 127.0.0.1:5999: connect: connection refused", "curl -I https://r.lan/v2/"),
        ("x509: certificate signed by unknown authority", "trusted certificates"),
        ("unexpected EOF", "Run again"),
        ("write /var/lib/docker/tmp/x: no space left on device", "Free space"),
        ("of its own", "journalctl -u docker"),
    ],
)
def test_messages_of_a_registry_have_remedies(words, remedy):
    assert remedy in pulling.remedy_of(words, "r.lan/users/x:1")


@pytest.mark.parametrize(
    ("image", "registry"),
    [("vllm/vllm-openai:1", "docker.io"), ("ubuntu", "docker.io"), ("localhost:5000/x:1", "localhost:5000"), ("nvcr.io/nvidia/vllm@sha256:d", "nvcr.io")],
)
def test_the_registry_of_an_image(image, registry):
    assert images.registry_of(image) == registry
