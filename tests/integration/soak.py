# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults of a pair under load, one after the other, on nodes and in an order that a seed determines: `make soak`. It prints a table, and ends within 100
minutes.

Environment: GB10_SOAK_SEED (a number; printed), GB10_SOAK_MINUTES (at most 100), GB10_SOAK_EXECUTOR (native or ray).
"""

from __future__ import annotations

import collections
import json
import os
import random
import threading
import time
import urllib.error
import urllib.request

from .lab import HEAD, RUN, Lab
from .recovering import FAULTS, SCALE, Pair

#: Minutes in all, and those that the last fault may need.
MINUTES, LAST_MINUTES = min(100.0, float(os.environ.get("GB10_SOAK_MINUTES", "100"))), 14.0
QUESTION, ANSWER = "Are you there?", "the cluster works"
CLIENTS = 3
COLUMNS = ("min", "fault", "node", "outcome", "named after s", "ended after s", "right", "no answer", "wrong", "first said")


class Clients:
    """Clients of the engine that ask one question again and again, and count the answers."""

    def __init__(self, lab: Lab) -> None:
        run = lab.json(HEAD, RUN)
        self.url = f"http://{run['api_address']}:{run['api_port']}/v1/chat/completions"
        self.key = lab.run(HEAD, "cat", "/etc/gb10/secrets/gb10/api_key").strip()
        self.counts: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.work) for _client in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def work(self) -> None:
        body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 120, "temperature": 0}).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
        while not self.over.wait(0.5):
            try:
                with urllib.request.urlopen(urllib.request.Request(self.url, body, headers), timeout=120) as answered:
                    content = json.load(answered)["choices"][0]["message"]["content"]
            except (OSError, ValueError, urllib.error.HTTPError):
                self.counts["no answer"] += 1
                continue
            right = ANSWER in content
            self.counts["right" if right else "wrong"] += 1
            self.wrong += [] if right else [content]

    def end(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()


def test_every_fault_has_its_outcome(lab: Lab) -> None:
    seed = int(os.environ.get("GB10_SOAK_SEED") or time.time())
    until = time.monotonic() + 60 * (MINUTES - LAST_MINUTES)
    pair = Pair(lab, os.environ.get("GB10_SOAK_EXECUTOR", "native"))
    print(f"seed {seed}, executor {pair.executor}, the times of the recovery are divided by {SCALE}", flush=True)
    draw = random.Random(seed)
    prefill, loop, *others = [(fault, draw.choice(fault.hosts)) for fault in FAULTS]
    draw.shuffle(others)
    rows, unexplained = [COLUMNS], []
    pair.begin()
    pair.well()
    clients, began = Clients(lab), time.monotonic()
    try:
        for fault, host in (prefill, loop, *others):
            if time.monotonic() > until:
                unexplained.append(f"the time was over before: {fault.name}")
                break
            before = dict(clients.counts)
            try:
                outcome, named, named_s, seconds = fault.outcome, *fault.run(pair, host)
            except AssertionError as error:
                outcome, named, named_s, seconds = "UNEXPLAINED", str(error), 0.0, 0.0
                unexplained.append(f"{fault.name} on {host}: {error}")
                pair.mend()
            counted = (clients.counts[kind] - before.get(kind, 0) for kind in COLUMNS[6:9])
            rows.append((f"{(time.monotonic() - began) / 60:.0f}", fault.name, host, outcome, f"{named_s:.0f}", f"{seconds:.0f}", *counted, named[:100]))
            print(" | ".join(map(str, rows[-1])), flush=True)
            pair.rest()
    finally:
        clients.end()
        print("\n".join(" | ".join(map(str, row)) for row in rows), flush=True)
    pair.end()
    assert not unexplained and not clients.wrong, (unexplained, clients.wrong)
