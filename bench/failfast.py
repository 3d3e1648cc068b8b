# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Seconds from the first sign of a failure to its named cause, for ranks that are killed and stopped in real starts on the lab.

    .venv/bin/python bench/failfast.py [--only TEXT] [--rounds 1]

Each injection of tests/integration/injecting.py is a whole bring-up, of one to two minutes. Nothing is asserted, since times depend on the machine; wanted
are a median of at most 5 s and a 95th percentile of 15 s. A plain wait on /health ends with the timeouts of the engine and of whoever waits: 600 s for a
rank that never joins (DistStoreError, eugr/spark-vllm-docker#335), 1800 s for one that hangs (the exec timeout of MiaAI's recipe for two Sparks).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from plays import ROOT

sys.path.insert(0, str(ROOT))
from tests.integration.injecting import INJECTIONS, injected  # noqa: E402
from tests.integration.lab import Lab  # noqa: E402

PLAIN_WAIT = {"KILL": 600.0, "STOP": 1800.0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a part of the ids of the injections to run")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    seconds = []
    with tempfile.TemporaryDirectory() as private:
        lab = Lab(Path(private))
        for one in [one for one in INJECTIONS if arguments.only in one.id] * arguments.rounds:
            lab.clear()
            with injected(lab, one) as found:
                seconds.append(found.seconds)
                right = "right node" if found.first["node"] == one.host else f"WRONG: {found.first['node']}"
                print(f"{one.id:<42} {found.seconds:6.1f} s  {right:<12} {found.first['id']:<16} plain wait {PLAIN_WAIT[one.signal]:.0f} s", flush=True)
    if seconds:
        ordered = sorted(seconds)
        print(f"median {statistics.median(ordered):.1f} s, 95th percentile {ordered[round(0.95 * (len(ordered) - 1))]:.1f} s, {len(ordered)} injections")
    return 0


if __name__ == "__main__":
    sys.exit(main())
