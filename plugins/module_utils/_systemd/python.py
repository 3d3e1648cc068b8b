# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Python that runs the programs of root's units. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import stat
import sys
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

#: The distribution's Python, and the oldest version that the programs support.
SYSTEM, LEAST = "/usr/bin/python3", (3, 10)
#: Seconds for its answer.
SECONDS = 30.0
#: The most links in a path, as many as the kernel follows.
LINKS = 40

#: Imports the modules of the command line, and prints the version, then one path a line: its import paths, and the configuration of a virtual environment.
_ASK = """import importlib, os, sys
for name in sys.argv[1:]: importlib.import_module(name)
print(*sys.version_info[:2])
print(*sys.path, os.path.join(sys.prefix, "pyvenv.cfg"), sep="\\n")"""


def changeable(path: str) -> str:
    """Return the first directory, link or file of ``path`` that an account other than root can change, empty when there is none. Raises OSError."""
    here, left, links = "/", path.split("/"), 0
    while True:
        status = os.lstat(here)
        is_link = stat.S_ISLNK(status.st_mode)
        if status.st_uid != 0 or (not is_link and status.st_mode & 0o022):
            return here
        if is_link:
            links += 1
            if links > LINKS:
                return path
            target = os.readlink(here)
            here, left = "/" if target.startswith("/") else os.path.dirname(here), [*target.split("/"), *left]
        if not left:
            return ""
        # An empty name is the same directory.
        here = os.path.normpath(os.path.join(here, left.pop(0)))


def of_units(*modules: str) -> str:
    """Return the Python for root's units that import ``modules``: the current one where only root can change it, else the system's.

    Raises :class:`ClusterError` when neither is suitable.
    """
    own = _unfit(sys.executable, modules)
    if not own:
        return sys.executable
    if why := _unfit(SYSTEM, modules):
        names = "".join(f" with the Python package {name}" for name in modules)
        raise ClusterError(
            f"no Python on this node can run root's units: {sys.executable} {own}, and {SYSTEM} {why}",
            expected=f"{'.'.join(map(str, LEAST))} or newer{names}",
            remedy=f"Install it for {SYSTEM}, remove the write permission of other accounts on the named path (sudo chmod go-w), or set "
            "ansible_python_interpreter to a Python that only root can change.",
            reason="python",
        )
    return SYSTEM


def _changeable(path: str) -> str:
    """Return the result of :func:`changeable`, or the path itself when it cannot be read. Only root can create a missing file in root's directories."""
    try:
        return changeable(path)
    except FileNotFoundError:
        return ""
    except OSError:
        return path


def _unfit(python: str, modules: t.Sequence[str]) -> str:
    """Return why a Python cannot run a unit, empty when it can."""
    if other := _changeable(python):
        return f"can be changed by another account ({other})"
    if not os.path.exists(python):
        return "does not exist"
    try:
        answer = run_tool([python, "-I", "-c", _ASK, *modules], SECONDS)
    except ClusterError as error:
        return f"does not answer: {error}"
    first, _break, places = answer.stdout.partition("\n")
    version = tuple(int(word) for word in first.split() if word.isdecimal())
    if answer.rc or len(version) != 2:
        return f"prints: {(answer.raw.strip().splitlines() or ['nothing'])[-1][:200]}"
    if version < LEAST:
        return f"is {'.'.join(map(str, version))}"
    other = next(filter(None, map(_changeable, places.splitlines())), "")
    return f"can be changed by another account ({other})" if other else ""
