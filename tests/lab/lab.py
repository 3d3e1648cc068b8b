# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The two-Spark lab of gb10.cluster.

  check   what is needed against what this machine has, and what `up` would do
  up      two nodes running, reachable by ssh, described in inventories/lab; safe to repeat
  down    removes the nodes and networks, keeps the images
  clean   removes all that the lab made, the images too
  status  what is there; fails unless both nodes run

Needs Linux, Python 3.10 or later, and root or the right to use Docker.
"""

from __future__ import annotations

import argparse
import sys

from labkit import cluster, machine
from labkit.common import LabError


def up() -> None:
    """Check, see to a Docker engine, bring the lab up."""
    machine.check(machine.engine_answers() and cluster.cached())
    machine.ensure_engine()
    cluster.up()


def main() -> int:
    """Run one command. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("check", "up", "down", "clean", "status"))
    command = parser.parse_args().command
    print(f"lab {command}")
    try:
        if command == "check":
            machine.check(machine.engine_answers() and cluster.cached())
        elif command == "up":
            up()
        elif not machine.engine_answers():
            print("  no Docker engine answers: nothing of the lab is here")
        elif command == "status":
            return 0 if cluster.status() else 1
        else:
            {"down": cluster.down, "clean": cluster.clean}[command]()
    except LabError as error:
        print(f"\nlab {command}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
