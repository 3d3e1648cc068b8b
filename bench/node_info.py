# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How much faster one call of node_info is than the same checks as ordinary tasks, and what it costs compared to a ping.

    .venv/bin/python bench/node_info.py -i inventories/lab [--hosts gb10_cluster] [--repeat 3] [--no-become]

Three ratios are printed with their parts, and the tasks of the preflight that took longest. Nothing is asserted, since times depend on the machine:

- one look (bench/tasks/one_look.yml: one call of node_info a node, no facts) against bench/tasks/ordinary_checks.yml (more than 40 ordinary tasks, pipelined as
  well), from the start of the first task to the end of the last. At least 10 is what is wanted.
- the whole play of that look against a whole play of one ping (bench/tasks/ping.yml), from the start of ansible-playbook to its end. At most 2 is what
  is wanted.
- the whole of playbooks/doctor.yml against the same ping: it also finds the cluster, judges all inputs and all nodes, and leaves a record.

The runs take turns, so that a machine that is busy for a while is so for both; the medians count. Any inventory will do whose hosts can be reached
and can run the modules, also two names with ansible_connection=local, which measure no network. A preflight that ends with a verdict that stops
it is measured anyway. One that wrong inputs of its inventory stop has read no node, so there is no third ratio.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import typing as t
from pathlib import Path

from plays import ENDS, ROOT, Event, longest, play, shown, task_seconds, tasks

#: The targets: at least this many times faster, and at most this many times as long.
FASTER, LONGER = 10.0, 2.0


def answered(events: t.Sequence[Event], action: str) -> bool:
    """Whether a module's task ended on every host on which it began, and on at least one."""
    done = [event["event"] for event in events if event["event"] in ENDS and event["event_data"].get("task_action") == action]
    return bool(done) and not any(name in ("runner_on_failed", "runner_on_unreachable") for name in done)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-i", "--inventory", required=True, type=Path, help="file or directory")
    parser.add_argument("--hosts", default="gb10_cluster", help="group or hosts to look at (default gb10_cluster)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each play (default 3)")
    parser.add_argument("--no-become", action="store_true", help="look as the user that logs in")
    options = parser.parse_args()
    inventory = str(options.inventory.resolve())
    variables = {"bench_hosts": options.hosts, "bench_become": not options.no_become}

    looks, checks, whole_looks, preflights, pings = [], [], [], [], []
    count, stopped = 0, ""
    with tempfile.TemporaryDirectory(prefix="gb10-bench-") as scratch:
        kept = {**variables, "gb10_records_dir": scratch}
        for _number in range(options.repeat):
            look = play(ROOT / "bench" / "tasks" / "one_look.yml", inventory, variables)
            check = play(ROOT / "bench" / "tasks" / "ordinary_checks.yml", inventory, variables)
            for name, run in (("one_look", look), ("ordinary_checks", check)):
                if run.rc:
                    print(f"{name}.yml failed:\n{run.stdout}", file=sys.stderr)
                    return 1
            looks.append(task_seconds(look.events))
            whole_looks.append(look.seconds)
            checks.append(task_seconds(check.events))
            count = tasks(check.events)
            ping = play(ROOT / "bench" / "tasks" / "ping.yml", inventory, variables)
            preflight = play(ROOT / "playbooks" / "doctor.yml", inventory, kept)
            pings.append(ping.seconds)
            preflights.append(preflight.seconds)
            if not answered(preflight.events, "gb10.cluster.node_info"):
                stopped = preflight.stdout

    print(f"one look                 {shown(looks)}")
    print(f"{count} ordinary tasks        {shown(checks)}")
    print(f"one look is faster by    {statistics.median(checks) / statistics.median(looks):7.2f}     (wanted: {FASTER:g} or more)")
    print(f"a whole play of a ping   {shown(pings)}")
    print(f"a whole play of a look   {shown(whole_looks)}")
    print(f"the look is longer by    {statistics.median(whole_looks) / statistics.median(pings):7.2f}     (wanted: {LONGER:g} or less)")
    if stopped:
        print("the whole preflight      looked at no node; it said:")
        print("\n".join(stopped.rstrip().splitlines()[-25:]))
        return 0
    print(f"the whole preflight      {shown(preflights)}")
    print(f"the preflight is longer  {statistics.median(preflights) / statistics.median(pings):7.2f}")
    print("its longest tasks, of the last run:")
    for name, seconds in longest(preflight.events):
        print(f"  {seconds:6.2f} s  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
