# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program of the sweep's unit: looks once, judges, and tells. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import required_text, write_json
from ansible_collections.gb10.cluster.plugins.module_utils._redact import redacted, secrets_of
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import channels, judging, seeing, sweep_files

Config = dict[str, t.Any]

#: How a look fails that nobody thought of, at an answer in a shape that no reader expects.
FAULTS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def say(text: str, secrets: t.Mapping[str, str]) -> None:
    """Write a line to the journal, without any secret."""
    sys.stdout.write(f"{redacted(text, secrets)}\n")
    sys.stdout.flush()


class Sweep:
    """One sweep of a node, by what ``config`` says of it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.folder = sweep_files.folder_of(config["state_dir"])
        #: What stays until the next boot (RuntimeDirectory=): a full disk must not make a sweep forget what it told.
        self.spare = os.environ.get("RUNTIME_DIRECTORY", "")
        self.secrets = secrets_of({"secrets_dir": config["secrets_dir"]})

    def say(self, text: str) -> None:
        say(text, self.secrets)

    def send(self, channel: t.Mapping[str, t.Any], kind: str, subject: str, lines: t.Sequence[str], problems: t.Mapping[str, str]) -> str:
        """Send a message; return why it was not taken, empty when it was."""
        note = channels.Note(kind, subject, lines, problems, self.config["cluster"], self.config["node"])
        clean = note._replace(
            lines=[redacted(line, self.secrets) for line in lines], problems={id: redacted(text, self.secrets) for id, text in problems.items()}
        )
        why = channels.send(channel, clean, self.config["secrets_dir"], self.config["ca_file"])
        self.say(f"{channel['name']}: {f'not delivered, {why}' if why else f'took: {subject}'}")
        return redacted(why, self.secrets)

    def test(self) -> int:
        """Send a test through every channel, write what each answered where the module reads it, and return the exit code."""
        subject = f"{self.config['cluster']} on {self.config['node']}: test of an alert"
        lines = ["Somebody asked for it (gb10_sweep=test). Nothing is wrong."]
        answers = {one["name"]: self.send(one, "test", subject, lines, {}) for one in self.config["channels"]}
        write_json(os.path.join(self.folder, sweep_files.ANSWERS), answers)
        return 1 if any(answers.values()) else 0

    def seen(self) -> judging.Seen:
        """Look at everything. A look that fails in a way nobody thought of is a trouble, and no reason to be silent."""
        try:
            return seeing.see(self.config)
        except FAULTS as error:
            self.say(traceback.format_exc())
            fails = f"it failed, which is a fault of its own: {type(error).__name__}: {error}"
            return {"mode": None, "mode_error": "", "locks": [], "engines": [], "asked": [], "memory": seeing.memory(self.config["roots"]), "errors": [fails]}

    def before(self) -> tuple[judging.State | None, list[str]]:
        """Return what the last sweep kept, and what is wrong with where it did.

        What cannot be read counts as nothing: a trouble is told once too often rather than never.
        """
        kept: dict[str, judging.State] = {}
        for folder in filter(None, (self.folder, self.spare)):
            try:
                if state := sweep_files.read_state(folder):
                    kept[folder] = state
            except ClusterError as error:
                self.say(f"{error}; what was told before is not known")
        if not kept:
            return None, []
        newest = max(kept, key=lambda folder: kept[folder]["at"])
        return kept[newest], [f"it cannot write below {self.folder}; see its journal"] if newest == self.spare else []

    def keep(self, state: judging.State) -> None:
        """Keep the state. Raises OSError where it can be kept nowhere."""
        try:
            sweep_files.write_state(self.folder, state)
        except OSError as error:
            self.say(f"{self.folder}: {error.strerror or error}")
            if not self.spare:
                raise
            sweep_files.write_state(self.spare, state)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.spare, sweep_files.STATE))

    def run(self) -> int:
        """Look, judge and tell; return the exit code, which is not 0 where a channel did not take its message."""
        declared = {**self.config, "channels": [one["name"] for one in self.config["channels"]]}
        now = time.time()
        before, faults = self.before()
        seen = self.seen()
        judged = judging.judge({**seen, "errors": [*seen["errors"], *faults]}, declared, before, now)
        for one in judged.firing:
            self.say(f"{one.id}: {one.text}")
        for one in judged.pending:
            self.say(f"{one.id}: {one.text}; told once it has lasted {one.grace_s:.0f} s")
        state, undelivered = judged.after, {}
        for channel in self.config["channels"]:
            message = judged.messages.get(channel["name"])
            if message is None:
                continue
            if why := self.send(channel, message.kind, message.subject, message.lines, message.problems):
                undelivered[channel["name"]] = why
            else:
                state = judging.delivered(state, channel["name"], message, now)
        # Each line of a trouble may hold what a program printed.
        told = {name: {**one, "problems": self.clean(one["problems"])} for name, one in state["told"].items()}
        problems = [{"id": one["id"], "text": redacted(one["text"], self.secrets)} for one in state["problems"]]
        self.keep({**state, "told": told, "problems": problems, "quiet": redacted(state["quiet"], self.secrets), "undelivered": undelivered})
        self.say(f"silent: {judged.quiet}" if judged.quiet else judging.many(len(judged.firing)) if judged.firing else "all is well")
        return 1 if undelivered else 0

    def clean(self, problems: t.Mapping[str, str]) -> dict[str, str]:
        return {id: redacted(text, self.secrets) for id, text in problems.items()}


def asked_to_test(folder: str) -> bool:
    """Return whether somebody asked for a test, and take note of it."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, sweep_files.TEST))
        return True
    return False


def main(argv: t.Sequence[str]) -> int:
    """Run what the command line asks for, and return the exit code."""
    if len(argv) != 2 or argv[0] != "--config":
        say("usage: --config FILE", {})
        return 2
    try:
        sweep = Sweep(json.loads(required_text(argv[1])))
        return sweep.test() if asked_to_test(sweep.folder) else sweep.run()
    except (OSError, ValueError, KeyError) as error:
        say(f"failed: {type(error).__name__}: {error}. Remedy: look at the disk, and run protect --tags sweep again", secrets_of({}))
        return 1
