# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the launcher comes into a node's container, and how it is called there. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import inspect
import os
import pwd

from ansible_collections.gb10.cluster.plugins.module_utils._engine import launcher
from ansible_collections.gb10.cluster.plugins.module_utils._engine.engine_state import LAUNCH_TARGET, EnginePaths

LAUNCHER = "launcher.py"
SPEC = "engine.json"


def argv(command: str, *more: str) -> list[str]:
    """Return the command line of one of the launcher's commands, as the container sees it."""
    return ["python3", f"{LAUNCH_TARGET}/{LAUNCHER}", command, "--spec", f"{LAUNCH_TARGET}/{SPEC}", *more]


def who(module: str) -> str:
    """Return who uses a module on this node, for those who wait for an engine that this module stops."""
    return f"user {os.environ.get('SUDO_USER') or pwd.getpwuid(os.getuid()).pw_name} with {module}"


def stop_argv(grace: int, module: str) -> list[str]:
    """Return the command line that stops the engine on behalf of a module."""
    return argv("stop", "--grace", str(grace), "--by", who(module))


def refresh(paths: EnginePaths) -> None:
    """Give an engine that an older version of the collection started today's launcher. A disk that takes it not leaves the older one."""
    with contextlib.suppress(OSError):
        ship(paths)


def ship(paths: EnginePaths) -> None:
    """Write the launcher to where the container sees it, whole or not at all. Raises :class:`OSError`."""
    launcher.write_text(os.path.join(paths.launch, LAUNCHER), inspect.getsource(launcher))
