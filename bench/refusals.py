# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Seconds until a wrong value or name is refused, as a multiple of a play without a task.

    .venv/bin/python bench/refusals.py [--rounds 1]

The wrong inputs are those of tests/integration/test_inputs.py: each of ALONE in a run of its own, and all of TOGETHER in one. Each is measured from the start
of ansible-playbook to its end, and takes turns with a play without a task over the same inventory (bench/tasks/empty.yml), so that a machine that is busy
for a while is so for both. Needs no lab. Nothing is asserted, since times depend on the machine; that each says what is wrong, and that no connection to a node
is opened, is asserted by those tests, and counted here.

On two CPUs that were busy with other work (ansible-core 2.19, Python 3.11): 46 wrong values and names in 24 runs, no connection to a node; the median of a
refusal was 4.35 s, that of a play without a task 1.82 s, which is 2.39 times as long.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from plays import ROOT, shown

sys.path.insert(0, str(ROOT))
from tests.integration.test_inputs import ALONE, GOOD, TOGETHER, Plays, extra  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    rounds = parser.parse_args().rounds
    together = extra(gb10_serve_arguments={name: value for given, _message in TOGETHER for name, value in given.items()})
    wrong = [*((playbook, arguments) for playbook, arguments, _message in ALONE), ("serve.yml", together)]
    empty: list[float] = []
    refused: list[float] = []
    contacts = 0
    with tempfile.TemporaryDirectory(prefix="gb10-bench-") as scratch:
        plays = Plays(Path(scratch))
        for playbook, arguments in wrong * rounds:
            for into, book, given in ((empty, ROOT / "bench" / "tasks" / "empty.yml", ()), (refused, playbook, arguments)):
                began = time.monotonic()
                run = plays.play(GOOD, *given, playbook=book)
                into.append(time.monotonic() - began)
                if (run.rc == 0) != (into is empty):
                    raise SystemExit(f"{book} {' '.join(given)}: {run}")
                contacts += len(run.contacts)
            print(f"{refused[-1] / empty[-1]:5.2f} times {empty[-1]:.2f} s  {playbook} {' '.join(arguments)[:80]}", flush=True)
    print(f"{len(ALONE) + len(TOGETHER)} wrong values and names in {len(wrong)} runs, {contacts} connections to nodes")
    print(f"a play without a task: {shown(empty)}")
    print(f"a refusal:             {shown(refused)}")
    ratios = [refusal / plain for refusal, plain in zip(refused, empty)]
    print(f"a refusal takes {statistics.median(refused) / statistics.median(empty):.2f} times as long, {min(ratios):.2f} to {max(ratios):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
