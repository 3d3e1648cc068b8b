# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SIMULATED nvidia-container-runtime-hook of a gb10.cluster lab node.

The Docker engine offers ``--gpus`` when a program of this name is on its PATH, and runs it before a container starts.
As NVIDIA's does, it gives the container the driver's libraries, which are simulated, too (driver.c), and it appends one JSON line per call to
/var/lib/gb10-lab/hook.log: arguments, container id, and the NVIDIA_* environment that the engine asked for.

Two keys of the state file that nvidia-smi reads, /var/lib/gb10-lab/gpu.json, are for it:

  lost      true: the container may not use the GPU ("Failed to initialize NVML: Unknown Error")
  withheld  true: the container gets nothing of the driver
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import sys
import time

PLACE = pathlib.Path("/var/lib/gb10-lab")
DRIVER = pathlib.Path("/usr/share/gb10-lab/driver")


def requested(config: dict) -> list[str]:
    """The NVIDIA_* variables of an OCI configuration, or none when it has no process."""
    return [entry for entry in config.get("process", {}).get("env", []) if entry.startswith("NVIDIA_")]


def give(root: pathlib.Path, state: dict) -> None:
    """Put the driver's libraries into a container's file system, unless the state file says otherwise."""
    if state.get("withheld"):
        return
    target = root / f"usr/lib/{os.uname().machine}-linux-gnu"
    for library in DRIVER.iterdir():
        shutil.copy(library, target)
        short = target / f"{library.name.partition('.so.')[0]}.so.1"
        short.unlink(missing_ok=True)
        short.symlink_to(library.name)
    if state.get("lost"):
        mark = root / PLACE.relative_to("/") / "gpu-lost"
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def main() -> None:
    """Read the OCI state that the runtime hands over on standard input, give the driver and write one line about it."""
    container = json.load(sys.stdin)
    bundle = pathlib.Path(container["bundle"])
    config = json.loads((bundle / "config.json").read_text(encoding="utf-8"))
    state_file = PLACE / "gpu.json"
    give(bundle / config["root"]["path"], json.loads(state_file.read_text(encoding="utf-8")) if state_file.exists() else {})
    line = {"time": time.time(), "argv": sys.argv, "container": container["id"], "env": requested(config)}
    PLACE.mkdir(parents=True, exist_ok=True)
    with (PLACE / "hook.log").open("a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
