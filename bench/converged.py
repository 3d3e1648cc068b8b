# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The time of a bring-up on a cluster that already serves, as a multiple of a play with one ping on the same nodes.

    .venv/bin/python bench/converged.py -i inventories/lab [--rounds 3] [-e NAME=VALUE]

The cluster must be up, brought up with the same settings: a run that changes something is refused. Ping (bench/tasks/ping.yml) and bring-up
(playbooks/nemotron_tp2.yml) take turns, so that a machine that is busy for a while is so for both; each is measured from the start of ansible-playbook
to its end, and the ratio is that of the medians. Nothing is asserted, since times depend on the machine. Beside them: how many tasks ran, how often a
node was called, and the tasks that took longest.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import typing as t
from pathlib import Path

from plays import ROOT, Event, longest, play, tasks

#: The target: at most this many times as long as the ping.
LONGER = 8.0
#: Actions that reach no node: the rest of a task's results are calls.
CONTROLLER_ONLY = {
    *("ansible.builtin." + name for name in ("assert", "debug", "fail", "include_role", "include_tasks", "include_vars", "set_fact", "set_stats")),
    "ansible.builtin.validate_argument_spec",
    "gb10.cluster.inputs_info",
    "gb10.cluster.judge",
}


def node_calls(events: t.Sequence[Event]) -> int:
    """The number of module calls on nodes. Each item of a loop counts as a call; a task that was skipped or ran on the controller does not."""
    calls = looped = 0
    for event in events:
        data = event.get("event_data", {})
        if event["event"] not in ("runner_on_ok", "runner_item_on_ok") or data.get("task_action") in CONTROLLER_ONLY or on_controller(data):
            continue
        # The end of a loop comes after the ends of its items, and is not a separate call.
        looped += event["event"] == "runner_on_ok" and "results" in (data.get("res") or {})
        calls += 1
    return calls - looped


def on_controller(data: dict[str, t.Any]) -> bool:
    """Whether a result comes from the controller itself."""
    delegated = ((data.get("res") or {}).get("_ansible_delegated_vars") or {}).get("ansible_delegated_host")
    return (delegated or data.get("host")) == "localhost"


def changes(events: t.Sequence[Event]) -> dict[str, int]:
    """How many tasks changed something, by host; empty on a converged cluster."""
    return {host: count for event in events if event["event"] == "playbook_on_stats" for host, count in event["event_data"]["changed"].items() if count}


def spread(seconds: t.Sequence[float]) -> str:
    """Least, median and most of some times."""
    return f"{min(seconds):6.2f} {statistics.median(seconds):6.2f} {max(seconds):6.2f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-i", "--inventory", required=True, type=Path, help="file or directory")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each play (default 3)")
    parser.add_argument("-e", "--extra-var", action="append", default=[], metavar="NAME=VALUE", help="a variable of the bring-up")
    options = parser.parse_args()
    inventory = str(options.inventory.resolve())

    pings, bring_ups = [], []
    with tempfile.TemporaryDirectory(prefix="gb10-bench-") as scratch:
        variables = {"gb10_records_dir": scratch, **dict(pair.split("=", 1) for pair in options.extra_var)}
        for _round in range(options.rounds):
            ping = play(ROOT / "bench" / "tasks" / "ping.yml", inventory, {})
            bring_up = play(ROOT / "playbooks" / "nemotron_tp2.yml", inventory, variables)
            for name, run in (("the ping", ping), ("the bring-up", bring_up)):
                if run.rc:
                    print(f"{name} failed:\n{run.stdout}", file=sys.stderr)
                    return 1
            if changed := changes(bring_up.events):
                print(f"not converged: the bring-up changed {changed}. Bring the cluster up first, with the same settings.", file=sys.stderr)
                return 1
            pings.append(ping.seconds)
            bring_ups.append(bring_up.seconds)

    print(f"{options.rounds} rounds in turns           min    med    max")
    print(f"a play of one ping       {spread(pings)}")
    print(f"the converged bring-up   {spread(bring_ups)}")
    print(f"it is longer by          {statistics.median(bring_ups) / statistics.median(pings):13.2f}          (wanted: {LONGER:g} or less)")
    print(f"{tasks(bring_up.events)} tasks, {node_calls(bring_up.events)} calls of a node; the longest tasks of the last run:")
    for name, seconds in longest(bring_up.events, 10):
        print(f"  {seconds:6.2f} s  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
