# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The two-Spark labs of gb10.cluster: `current`, and `next`, whose nodes have the next Debian and its Docker. Both can be up at once.

  check   what is needed against what this machine has, and what `up` would do
  up      two nodes running, reachable by ssh, described in inventories/lab (or lab_next); safe to repeat
  down    removes the nodes and networks, keeps the images
  clean   removes all that the lab made, the images too; never touches the other lab
  status  what is there; fails unless both nodes run

Needs Linux, Python 3.10 or later, and root or the right to use Docker.
"""

from __future__ import annotations

import argparse
import sys

from labkit import cluster, machine
from labkit.common import LabError
from labkit.labs import LABS, Lab


def check(lab: Lab) -> None:
    """Print what the lab needs, what is there, and what `up` would do. Raises LabError when something is short."""
    machine.check(lab, machine.engine_answers() and cluster.cached(lab))


def up(lab: Lab) -> None:
    """Check, see to a Docker engine, bring the lab up."""
    check(lab)
    machine.ensure_engine()
    cluster.up(lab)


def main() -> int:
    """Run one command. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lab", choices=LABS, default="current")
    parser.add_argument("command", choices=("check", "up", "down", "clean", "status"))
    arguments = parser.parse_args()
    lab, command = LABS[arguments.lab], arguments.command
    print(f"lab {lab.name}: {command}")
    try:
        if command == "check":
            check(lab)
        elif command == "up":
            up(lab)
        elif not machine.engine_answers():
            print("  no Docker engine answers: nothing of the lab is here")
        elif command == "status":
            return 0 if cluster.status(lab) else 1
        else:
            {"down": cluster.down, "clean": cluster.clean}[command](lab)
    except LabError as error:
        print(f"\nlab {lab.name}: {command}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
