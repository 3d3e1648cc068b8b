# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SIMULATED nvidia-container-runtime-hook of a gb10.cluster lab node.

The Docker engine offers ``--gpus`` when a program of this name is on its PATH, and runs it before a container starts.
This one mounts no driver: it appends one JSON line per call to /var/lib/gb10-lab/hook.log (arguments, container id, and the
NVIDIA_* environment that the engine asked for) and succeeds.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time

LOG = pathlib.Path("/var/lib/gb10-lab/hook.log")


def requested(state: dict) -> list[str]:
    """The NVIDIA_* variables in the bundle of an OCI container state, or none when the bundle has no process."""
    config = json.loads((pathlib.Path(state["bundle"]) / "config.json").read_text(encoding="utf-8"))
    return [entry for entry in config.get("process", {}).get("env", []) if entry.startswith("NVIDIA_")]


def main() -> None:
    """Read the OCI state that the runtime hands over on standard input and write one line about it."""
    state = json.load(sys.stdin)
    line = {"time": time.time(), "argv": sys.argv, "container": state["id"], "env": requested(state)}
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with LOG.open("a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
