# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Words that the launcher in a node's container and the host share. This module util is PRIVATE to the collection.

The launcher is one file without imports from here, so it has its own copies; a test keeps them equal.
"""

from __future__ import annotations

import re

#: Where the node's directories appear inside every node container.
LAUNCH_TARGET = "/opt/gb10/launch"
#: Below it: a separate directory for the API guard, from which the engine imports it.
GUARD_DIRECTORY = "guard"
RUN_TARGET = "/opt/gb10/run"
LOG_TARGET = "/var/log/gb10"
CACHE_TARGET = "/opt/gb10/cache"
#: Below the log directory: where engines write theirs.
ENGINE_LOGS = "engine"

#: The variable that marks an engine and all its descendants; its value is the run's directory, a colon and the run's id.
MARK = "GB10_RUN_ID"
#: The text that the launcher prints when it keeps a container open.
HOLDS = "the launcher holds this container open"
#: The required keys of a run's record.
RUN_KEYS = frozenset({"run_id", "pid", "start_ticks", "container_start", "boot_id", "log_path"})
#: The host's order to the launcher, below the directory of :data:`LAUNCH_TARGET`.
ORDER = "engine.json"
#: Next to it: the image that the container was created from.
MADE_OF = "container.json"
#: Next to it: the host's own record of the runs that a module of the collection stopped. The launcher does not read it.
STOP_NOTE = "stop.json"
#: A run's id: the time of its order, and a few random digits.
RUN_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{4}")
