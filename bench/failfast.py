# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Seconds from the first sign of a failure to its named cause, for every injection of tests/integration/injecting.py into a real start on the lab.

    .venv/bin/python bench/failfast.py [--only TEXT ...] [--rounds 1]

Each is a whole bring-up, of one to two minutes. Nothing is asserted, since times depend on the machine; wanted are a median of at most 5 s and a 95th
percentile of 15 s, for stalls of 60 s. A stall's first sign is the limit of progress, whose seconds are printed. A plain wait on /health ends with the
timeouts of the engine and of the programs that wait: 600 s for a rank that never joins (DistStoreError, eugr/spark-vllm-docker#335), 1800 s for one that
hangs (the exec timeout of MiaAI's recipe for two Sparks).
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

#: Seconds of a plain wait for a peer that is gone, and for one that runs but does not answer.
GONE, SILENT = 600, 1800


def percentile(seconds: list[float], share: float) -> float:
    """Return what this share of the seconds is at most."""
    return sorted(seconds)[round(share * (len(seconds) - 1))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], help="parts of the ids of the injections to run")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    seconds: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as private:
        lab = Lab(Path(private))
        # Image, model and caches are there before the first injection.
        lab.up()
        for injection in [injection for injection in INJECTIONS if any(part in injection.id for part in arguments.only)] * arguments.rounds:
            lab.clear()
            try:
                with injected(lab, injection) as outcome:
                    named = outcome.names(injection.host) and outcome.first["id"] in injection.ids
                    right = named and outcome.first["remedy"] and outcome.known is injection.known
                    wrong = "" if right else f" WRONG: {outcome.first['node']}: {outcome.first['cause']}"
            except AssertionError as error:
                print(f"{injection.id}: {error}", flush=True)
                continue
            seconds[injection.stalls].append(outcome.seconds)
            limit = f" after a limit of {injection.still:.0f} s" if injection.still else ""
            plain = f"plain wait {GONE if injection.known else SILENT} s"
            print(f"{injection.id:<36} {outcome.seconds:6.1f} s  {outcome.first['id']:<16} {plain}{limit}{wrong}", flush=True)
        lab.clear()
    for stalls, all_of_them in seconds.items():
        if all_of_them:
            print(
                f"{'stalls' if stalls else 'failures'}: median {statistics.median(all_of_them):.1f} s, "
                f"95th percentile {percentile(all_of_them, 0.95):.1f} s, {len(all_of_them)} injections"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
