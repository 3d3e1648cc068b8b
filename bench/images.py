# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How fast an image gets from one node to another, beside docker save, ssh and docker load.

    .venv/bin/python bench/images.py -i inventories/lab --base TAG [--image TAG] [--source HOST] [--target HOST] [--rounds 5] [--only thin full]

Both nodes have the base, which no other image of the target builds on. The source pulled it from a registry, or pushed it to one: an engine with the classic
store that has it from an archive exports the whole image for a thin layer. The bench builds an image on the source that adds 50 MB to it, in files as large as
Ray's, and removes that in the end; with --image it takes one that is there. The target loses the image, and with "full" its base, too; then it is copied,
in turns by either way, and by ours last, which leaves both names on both nodes. What counts are the tasks of Ansible that copy
(bench/tasks/copy_image.yml), from the start of the first to the end of the last: for ours that is serving, reading the secret, fetching and stopping; for
the others one task with the pipe. The bytes that the source sent on its fabric link are printed, too. The target accepts a key of the bench
while the bench runs, for a user (ansible_user) who may use sudo.

Nothing is asserted, since times depend on the machine: each ratio is printed with its target.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import typing as t
from pathlib import Path

from plays import ENDS, ROOT, Event, play, shown, utc

#: The targets: how many times as fast with the base on the target, and at most how many times as long without it.
THIN_FASTER, FULL_LONGER = 5.0, 1.05
#: The image that is built, and the bytes that it adds: a layer of 50 MB is what owners report to save and load whole images for.
THIN, THIN_BYTES = "gb10-bench/thin:1", 50_000_000
#: The key's place on the source.
KEY = "/root/.gb10-bench/key"


def copy_seconds(events: t.Sequence[Event]) -> float:
    """Seconds of the tasks that copy. Raises :class:`ValueError` when there was none."""
    began = [utc(event["created"]) for event in events if event["event"] == "playbook_on_task_start" and event["event_data"]["task"].startswith("Copy")]
    ended = [utc(event["created"]) for event in events if event["event"] in ENDS and event["event_data"]["task"].startswith("Copy")]
    if not began or not ended:
        raise ValueError("nothing was copied")
    return max(ended) - min(began)


def came(events: t.Sequence[Event]) -> dict[str, t.Any]:
    """The play's result of the copy. Raises :class:`SystemExit` when the target has another image."""
    result = next(event["event_data"]["res"]["msg"] for event in events if event["event"] == "runner_on_ok" and event["event_data"]["task"] == "Say what came")
    if len(set(result["ids"])) != 1:
        raise SystemExit(f"the target has another image: {result['ids']}")
    return result


def run(name: str, inventory: str, variables: dict[str, t.Any]) -> t.Sequence[Event]:
    """Run a play of the bench, which must succeed, and return its events."""
    played = play(ROOT / "bench" / "tasks" / name, inventory, variables)
    if played.rc:
        raise SystemExit(f"{name} failed:\n{played.stdout}")
    return played.events


def measure(inventory: str, variables: dict[str, t.Any], kind: str, rounds: int) -> None:
    """Print the seconds and bytes of both ways of one kind of copy, and their ratio."""
    forgotten = [variables["bench_image"], *([variables["bench_base"]] if kind == "full" else [])]
    seconds: dict[str, list[float]] = {"others": [], "ours": []}
    sent: dict[str, list[int]] = {"others": [], "ours": []}
    size = 0
    for _round in range(rounds):
        for way in seconds:
            events = run("copy_image.yml", inventory, {**variables, "bench_forgotten": forgotten, "bench_way": way})
            result = came(events)
            seconds[way].append(copy_seconds(events))
            sent[way].append(int(result["sent"]))
            size = int(result["size"])
    has = "its base" if kind == "thin" else "nothing of it"
    print(f"an image of {size / 1e9:.2f} GB, of which the target has {has}:")
    for way, name in (("others", "docker save | ssh docker load"), ("ours", "this collection")):
        print(f"{name:<32} {shown(seconds[way])}  {statistics.median(sent[way]) / 1e6:.0f} MB on the link")
    theirs, ours = (statistics.median(seconds[way]) for way in ("others", "ours"))
    if kind == "thin":
        print(f"ours is faster by                {theirs / ours:7.2f}     (wanted: {THIN_FASTER:g} or more)\n", flush=True)
    else:
        print(f"ours takes of theirs             {ours / theirs:7.2f}     (wanted: {FULL_LONGER:g} or less)\n", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-i", "--inventory", required=True, type=Path, help="file or directory")
    parser.add_argument("--base", required=True, help="an image of 2 GB or more by its tag; both nodes have it, the source from a registry")
    parser.add_argument("--image", help="an image that was built on it, by its tag; the source has it (default: one that the bench builds)")
    parser.add_argument("--source", default="spark-1", help="host that has the image (default spark-1)")
    parser.add_argument("--target", default="spark-2", help="host that it is copied to (default spark-2)")
    parser.add_argument("--rounds", type=int, default=5, help="copies of each way (default 5)")
    parser.add_argument("--only", nargs="+", default=["thin", "full"], choices=["thin", "full"])
    options = parser.parse_args()
    inventory = str(options.inventory.resolve())
    image = options.image or THIN
    variables = {"bench_source": options.source, "bench_target": options.target, "bench_image": image, "bench_base": options.base, "bench_key": KEY}
    thin = {**variables, "bench_layer_bytes": THIN_BYTES}
    run("image_key.yml", inventory, {**variables, "bench_key_state": "present"})
    try:
        if not options.image:
            run("image_thin.yml", inventory, {**thin, "bench_thin_state": "present"})
        for kind in options.only:
            measure(inventory, variables, kind, options.rounds)
    finally:
        if not options.image:
            run("image_thin.yml", inventory, {**thin, "bench_thin_state": "absent"})
        run("image_key.yml", inventory, {**variables, "bench_key_state": "absent"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
