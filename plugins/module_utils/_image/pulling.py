# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Progress and failures of an image's pull. This module util is PRIVATE to the collection."""

from __future__ import annotations

import hashlib
import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.copy_job import GIB
from ansible_collections.gb10.cluster.plugins.module_utils._image.images import registry_of

#: The engine's status of a complete layer, and of a downloaded one.
_UNPACKED = ("Already exists", "Pull complete")
_DOWNLOADED = ("Download complete", "Verifying Checksum", "Extracting")


def note_path(state_dir: str, image: str) -> str:
    """Return the file with the progress of an image's pull."""
    return os.path.join(state_dir, f"image-pull-{hashlib.sha256(image.encode()).hexdigest()[:12]}.json")


#: Messages of a registry, or of the route to it (engines 20.10 to 29), with the remedy; ``{registry}`` is its name.
_REFUSALS = (
    (r"no space left", "Free space on the node (the playbooks prune and models list what could be removed), then run again."),
    (r"toomanyrequests|\b429\b|rate limit", "Wait, or log in on the node as root, which raises the limit: docker login {registry}"),
    (
        r"unauthorized|authentication required|denied|no basic auth|\b40[13]\b",
        "Log in on the node as root (docker login {registry}) with an account that may read it, or correct image.base.",
    ),
    (
        r"manifest unknown|not found|name unknown|\b404\b",
        "Correct image.base: this registry has no such name, tag or digest, or shows it only after docker login {registry}.",
    ),
    (
        r"x509|certificate|HTTP response to HTTPS",
        "Check the node's clock and trusted certificates; add a registry without TLS to insecure-registries in daemon.json.",
    ),
    (
        r"connection refused|no such host|no route|timeout|deadline exceeded|server misbehaving|network is unreachable",
        "Run curl -I https://{registry}/v2/ on the node; behind a proxy, configure it for Docker, too (systemctl edit docker).",
    ),
    (r"EOF|connection reset|short read|verification failed|broken pipe", "Run again: it continues with the remaining layers."),
)


def remedy_of(words: str, image: str) -> str:
    """Return the remedy for the engine's message about a failed pull."""
    remedies = (remedy for pattern, remedy in _REFUSALS if re.search(pattern, words, re.IGNORECASE))
    template = next(remedies, "Run on the node: journalctl -u docker --since -10min")
    return template.format(registry=registry_of(image))


class Progress:
    """The progress of all layers, from the engine's events."""

    def __init__(self) -> None:
        self._known, self._unpacked = set[str](), set[str]()
        self._bytes: dict[str, tuple[int, int]] = {}

    def feed(self, event: dict[str, t.Any]) -> None:
        """Process one event of the engine. Raises :class:`ClusterError` if it reports a failure."""
        if event.get("error"):
            raise ClusterError(f"the Docker engine cannot pull the image: {event['error']}")
        layer, status = event.get("id"), str(event.get("status", ""))
        detail = event.get("progressDetail") or {}
        if status.startswith("Pulling from") or not layer:
            return
        self._known.add(layer)
        if status == "Downloading" and detail.get("total"):
            self._bytes[layer] = (int(detail.get("current") or 0), int(detail["total"]))
        elif status.startswith((*_DOWNLOADED, *_UNPACKED)) and layer in self._bytes:
            total = self._bytes[layer][1]
            self._bytes[layer] = (total, total)
        if status.startswith(_UNPACKED):
            self._unpacked.add(layer)

    def text(self) -> str:
        """Return the progress as text."""
        done, total = (sum(sizes) / GIB for sizes in zip(*self._bytes.values())) if self._bytes else (0.0, 0.0)
        return f"{done:.1f} of {total:.1f} GiB downloaded, {len(self._unpacked)} of {len(self._known)} layers unpacked"
