# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole plays as the benches run them, and the times from their events."""

from __future__ import annotations

import dataclasses
import datetime
import os
import statistics
import sys
import tempfile
import time
import typing as t
from pathlib import Path

import ansible_runner

ROOT = Path(__file__).resolve().parents[1]
#: Events that end a task on a host.
ENDS = ("runner_on_ok", "runner_on_failed", "runner_on_skipped", "runner_on_unreachable", "runner_item_on_ok")

Event = dict[str, t.Any]


def utc(created: str) -> float:
    """Seconds since the epoch of an event of ansible-runner, which writes UTC."""
    return datetime.datetime.fromisoformat(created).replace(tzinfo=datetime.timezone.utc).timestamp()


def task_seconds(events: t.Sequence[Event]) -> float:
    """Seconds from the start of the first task to the end of the last. Raises :class:`ValueError` when no task ran."""
    begins = [utc(event["created"]) for event in events if event["event"] == "playbook_on_task_start"]
    ends = [utc(event["created"]) for event in events if event["event"] in ENDS]
    if not begins or not ends:
        raise ValueError("no task ran")
    return max(ends) - min(begins)


def tasks(events: t.Sequence[Event]) -> int:
    """Number of tasks that ran."""
    return sum(event["event"] == "playbook_on_task_start" for event in events)


def longest(events: t.Sequence[Event], most: int = 6) -> list[tuple[str, float]]:
    """The tasks that took longest, with their seconds from their start to their last end on a host."""
    rows = []
    for event in events:
        if event["event"] == "playbook_on_task_start":
            uuid = event["event_data"]["task_uuid"]
            ends = [utc(other["created"]) for other in events if other["event"] in ENDS and other["event_data"].get("task_uuid") == uuid]
            if ends:
                rows.append((event["event_data"]["task"], max(ends) - utc(event["created"])))
    return sorted(rows, key=lambda row: -row[1])[:most]


@dataclasses.dataclass
class Run:
    """One run of a play."""

    rc: int
    events: list[Event]
    stdout: str
    #: Wall-clock seconds of the whole ansible-playbook.
    seconds: float


def play(book: Path, inventory: str, variables: dict[str, t.Any]) -> Run:
    """Run a playbook to its end."""
    with tempfile.TemporaryDirectory(prefix="gb10-bench-") as private:
        began = time.time()
        runner = ansible_runner.run(
            private_data_dir=private,
            project_dir=str(ROOT),
            playbook=str(book),
            inventory=inventory,
            extravars=variables,
            envvars={
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
                "ANSIBLE_PIPELINING": "true",
            },
            quiet=True,
        )
        return Run(runner.rc, list(runner.events), runner.stdout.read(), time.time() - began)


def shown(seconds: t.Sequence[float]) -> str:
    """The median of some times, with all of them."""
    return f"{statistics.median(seconds):7.2f} s  ({', '.join(f'{value:.2f}' for value in seconds)})"
