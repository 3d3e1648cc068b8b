# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prints the files that pip would add to an image for some requirements as one line of JSON. This module util is PRIVATE to the collection.

The image's own ``python3`` runs the text of this file with lists of requirements as its argument, so it needs only the standard
library of Python 3.8 or newer, and pip 22.2 or newer. Nothing is installed.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile

#: Precedes the JSON, to find it in the image's other output.
MARK = "gb10-layer-lock:"
#: Most characters of pip's message in the answer.
SHOWN = 2000
#: Messages of pip for a conflict with the installed packages, and for a version that does not exist.
CONFLICT, MISSING = "ResolutionImpossible", "No matching distribution found"


def normal(name):
    """Return a distribution's name in its normal form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def constraints(requirements):
    """Return constraints that pin every installed package to its version, except the requested ones."""
    wanted = {normal(re.split(r"[^A-Za-z0-9._-]", requirement)[0]) for requirement in requirements}
    named = [(normal(entry.metadata["Name"]), entry.version) for entry in importlib.metadata.distributions() if entry.metadata["Name"]]
    # Of two distributions with one name Python imports the one it finds first.
    installed = dict(reversed(named))
    return "".join(f"{name}=={version}\n" for name, version in sorted(installed.items()) if name not in wanted)


def locked(report):
    """Return a line for each file of pip's report, in the form of its option --require-hashes."""
    lines = []
    for entry in report["install"]:
        metadata, digest = entry["metadata"], entry["download_info"]["archive_info"]["hash"]
        lines.append(f"{normal(metadata['name'])}=={metadata['version']} --hash={digest.replace('=', ':', 1)}")
    return sorted(lines)


def resolve(requirements):
    """Return the files that would be added, or pip's message."""
    with tempfile.TemporaryDirectory() as place:
        pins, report = os.path.join(place, "constraints.txt"), os.path.join(place, "report.json")
        with open(pins, "w", encoding="utf-8") as stream:
            stream.write(constraints(requirements))
        argv = [sys.executable, "-m", "pip", "install", "--dry-run", "--progress-bar=off", "--no-cache-dir", "--root-user-action=ignore", "--only-binary=:all:",
                "--constraint", pins, "--report", report, *requirements]  # fmt: skip
        # The image has no module to run a command. The caller of the container limits its time.
        # One stream: the reason of a failure is just before the last line, among pip's warnings.
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)  # pylint: disable=ansible-bad-function
        if done.returncode:
            return {"lock": None, "error": done.stdout.strip()[-SHOWN:]}
        with open(report, encoding="utf-8") as stream:
            return {"lock": locked(json.load(stream)), "error": ""}


def first_that_fits(attempts):
    """Return the answers for these lists of requirements, up to the first success or failure that another version cannot fix."""
    # An index that does not answer has no packages either. With a bundle's packages alone, another version may exist.
    helped = (CONFLICT, MISSING) if "PIP_NO_INDEX" in os.environ else (CONFLICT,)
    answers = []
    for requirements in attempts:
        answers.append(resolve(requirements))
        if not any(words in answers[-1]["error"] for words in helped):
            break
    return answers


if __name__ == "__main__":
    sys.stdout.write("\n" + MARK + json.dumps(first_that_fits(json.loads(sys.argv[1]))) + "\n")
