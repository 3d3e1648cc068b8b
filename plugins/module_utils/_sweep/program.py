# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program of the sweep's unit: checks once, judges, and sends messages. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
import time
import traceback
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import required_text, write_json
from ansible_collections.gb10.cluster.plugins.module_utils._redact import redacted, secrets_of
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import channels, checks, judging, sweep_files

Config = dict[str, t.Any]

#: Unexpected errors of a check, for example at an answer of an unknown shape.
FAULTS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def say(text: str, secrets: t.Mapping[str, str]) -> None:
    """Write a line to the journal, without secrets."""
    sys.stdout.write(redacted(text, secrets) + "\n")
    sys.stdout.flush()


class Sweep:
    """One sweep of the node that ``config`` describes."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.folder = sweep_files.folder_of(config["state_dir"])
        #: A second place for the state until the next boot (RuntimeDirectory=): on a full disk a sweep must not forget its messages.
        self.spare = os.environ.get("RUNTIME_DIRECTORY", "")
        self.secrets = secrets_of({"secrets_dir": config["secrets_dir"]})

    def say(self, text: str) -> None:
        say(text, self.secrets)

    def send(self, channel: t.Mapping[str, t.Any], message: judging.Message) -> str:
        """Send a message; return the error, empty when it was delivered."""
        lines, problems = [redacted(line, self.secrets) for line in message.lines], self.clean(message.problems)
        note = channels.Note(message.kind, message.subject, lines, problems, self.config["cluster"], self.config["node"])
        why = channels.send(channel, note, self.config["secrets_dir"], self.config["ca_file"])
        self.say(f"{channel['name']}: {f'not delivered, {why}' if why else f'delivered: {message.subject}'}")
        return redacted(why, self.secrets)

    def test(self) -> int:
        """Send a test through every channel, write the answers for the module, and return the exit code."""
        subject = f"{self.config['cluster']} on {self.config['node']}: test of an alert"
        message = judging.Message("test", subject, ["This test was requested (gb10_sweep=test). Nothing is wrong."], {})
        answers = {channel["name"]: self.send(channel, message) for channel in self.config["channels"]}
        write_json(os.path.join(self.folder, sweep_files.ANSWERS), answers)
        return 1 if any(answers.values()) else 0

    def seen(self) -> judging.Seen:
        """Run all checks. An unexpected error is a trouble, not a reason for silence."""
        try:
            return checks.see(self.config)
        except FAULTS as error:
            self.say(traceback.format_exc())
            fails = f"the sweep itself failed: {type(error).__name__}: {error}"
            return judging.nothing(checks.memory(self.config["roots"]), [fails])

    def before(self) -> tuple[judging.State | None, list[str]]:
        """Return the state of the last sweep, and the problems of its storage.

        An unreadable state counts as none: a repeated alert is better than a missing one.
        """
        kept: dict[str, judging.State] = {}
        for folder in filter(None, (self.folder, self.spare)):
            try:
                if state := sweep_files.read_state(folder):
                    kept[folder] = state
            except ClusterError as error:
                self.say(f"{error}; earlier alerts are unknown")
        if not kept:
            return None, []
        newest = max(kept, key=lambda folder: kept[folder]["at"])
        return kept[newest], [f"it cannot write below {self.folder}; see its journal"] if newest == self.spare else []

    def keep(self, state: judging.State) -> None:
        """Write the state. Raises OSError where neither place is writable."""
        try:
            sweep_files.write_state(self.folder, state)
        except OSError as error:
            self.say(f"{self.folder}: {error.strerror or error}")
            if not self.spare:
                raise
            sweep_files.write_state(self.spare, state)
        else:
            if self.spare:
                pathlib.Path(self.spare, sweep_files.STATE).unlink(missing_ok=True)

    def run(self) -> int:
        """Check, judge and send; return the exit code, which is 1 where a message was not delivered."""
        declared = {**self.config, "channels": [channel["name"] for channel in self.config["channels"]]}
        now = time.time()
        before, faults = self.before()
        seen = self.seen()
        judged = judging.judge({**seen, "errors": [*seen["errors"], *faults]}, declared, before, now)
        for trouble in judged.firing:
            self.say(f"{trouble.id}: {trouble.text}")
        for trouble in judged.pending:
            self.say(f"{trouble.id}: {trouble.text}; alerts after {trouble.grace_s:.0f} s")
        state, undelivered = judged.after, {}
        for channel in self.config["channels"]:
            name = channel["name"]
            if message := judged.messages.get(name):
                if why := self.send(channel, message):
                    undelivered[name] = why
                else:
                    state = judging.delivered(state, name, message, now)
        # Each line of a trouble may contain the output of a program.
        confirmed = {name: {**entry, "problems": self.clean(entry["problems"])} for name, entry in state["told"].items()}
        problems = [{"id": problem["id"], "text": redacted(problem["text"], self.secrets)} for problem in state["problems"]]
        self.keep({**state, "told": confirmed, "problems": problems, "quiet": redacted(state["quiet"], self.secrets), "undelivered": undelivered})
        self.say(f"silent: {judged.quiet}" if judged.quiet else judging.many(len(judged.firing)) if judged.firing else "all is well")
        return 1 if undelivered else 0

    def clean(self, problems: t.Mapping[str, str]) -> dict[str, str]:
        return {id: redacted(text, self.secrets) for id, text in problems.items()}


def asked_to_test(folder: str) -> bool:
    """Return whether a test was requested, and remove the request."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, sweep_files.TEST))
        return True
    return False


def main(argv: t.Sequence[str]) -> int:
    """Run a sweep or a requested test with the configuration on the command line, and return the exit code."""
    if len(argv) != 2 or argv[0] != "--config":
        say("usage: --config FILE", {})
        return 2
    try:
        sweep = Sweep(json.loads(required_text(argv[1])))
        return sweep.test() if asked_to_test(sweep.folder) else sweep.run()
    except (OSError, ValueError, KeyError) as error:
        say(f"failed: {type(error).__name__}: {error}. Remedy: check the disk, and run protect --tags sweep again", secrets_of({}))
        return 1
