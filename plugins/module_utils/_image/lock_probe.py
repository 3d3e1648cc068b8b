# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which files pip would add to an image for some requirements, as one line of JSON. This module util is PRIVATE to the collection.

The text of this file is run inside the image by its own ``python3`` with lists of requirements as its argument, so it needs nothing but the
standard library of Python 3.8 or newer, and pip 22.2 or newer. Nothing is installed.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile

#: Stands before the JSON, so that other output of the image does no harm.
MARK = "gb10-layer-lock:"
#: Most characters of pip's own words in the answer.
SHOWN = 2000
#: What pip says when the requirements do not go with what is installed, and when the one version that was asked for is nowhere.
CONFLICT, MISSING = "ResolutionImpossible", "No matching distribution found"


def normal(name):
    """Return a distribution's name in the one spelling that all tools agree on."""
    return re.sub(r"[-_.]+", "-", name).lower()


def constraints(requirements):
    """Return what pins every installed package to its version, but those that are asked for."""
    wanted = {normal(re.split(r"[^A-Za-z0-9._-]", one)[0]) for one in requirements}
    named = [(normal(entry.metadata["Name"]), entry.version) for entry in importlib.metadata.distributions() if entry.metadata["Name"]]
    # Of two distributions with one name Python imports the one it finds first.
    installed = dict(reversed(named))
    return "".join(f"{name}=={version}\n" for name, version in sorted(installed.items()) if name not in wanted)


def locked(report):
    """Return a line for each file of pip's report, as its option --require-hashes wants them."""
    lines = []
    for entry in report["install"]:
        metadata, digest = entry["metadata"], entry["download_info"]["archive_info"]["hash"]
        lines.append(f"{normal(metadata['name'])}=={metadata['version']} --hash={digest.replace('=', ':', 1)}")
    return sorted(lines)


def resolve(requirements):
    """Return the answer: what would be added, or what pip said instead."""
    with tempfile.TemporaryDirectory() as place:
        pins, report = os.path.join(place, "constraints.txt"), os.path.join(place, "report.json")
        with open(pins, "w", encoding="utf-8") as stream:
            stream.write(constraints(requirements))
        argv = [sys.executable, "-m", "pip", "install", "--dry-run", "--progress-bar=off", "--no-cache-dir", "--root-user-action=ignore", "--only-binary=:all:"]
        argv += ["--constraint", pins, "--report", report, *requirements]
        # Inside the image there is no module to run a command for it. Who started the container ends it in time.
        # One stream: what is in the way stands just before the last line, whatever else pip warns of.
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)  # pylint: disable=ansible-bad-function
        if done.returncode:
            return {"lock": None, "error": done.stdout.strip()[-SHOWN:]}
        with open(report, encoding="utf-8") as stream:
            return {"lock": locked(json.load(stream)), "error": ""}


def first_that_fits(attempts):
    """Return the answers for these lists of requirements, up to the first that another version cannot help."""
    # An index that does not answer has nothing either. The packages of a bundle are all there are, and may hold another version.
    helped = (CONFLICT, MISSING) if "PIP_NO_INDEX" in os.environ else (CONFLICT,)
    answers = []
    for requirements in attempts:
        answers.append(resolve(requirements))
        if not any(words in answers[-1]["error"] for words in helped):
            break
    return answers


if __name__ == "__main__":
    sys.stdout.write("\n" + MARK + json.dumps(first_that_fits(json.loads(sys.argv[1]))) + "\n")
