# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lease's command that asks the engine and runs until a test has checked the nodes."""

from __future__ import annotations

import typing as t
from pathlib import Path

from .lab import Once

#: Asks the engine for a token with only the variables that a lease gives to its command. Argument: the file to wait for after that.
JUDGE = """
import json, os, pathlib, sys, time, urllib.request
key = open(os.environ["GB10_API_KEY_FILE"]).read().strip()
body = json.dumps({"model": os.environ["GB10_MODEL"], "messages": [{"role": "user", "content": "Are you there?"}], "max_tokens": 120, "temperature": 0})
headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body.encode(), headers)
print("judged:", json.load(urllib.request.urlopen(request, timeout=120))["choices"][0]["message"]["content"])
print("at work", flush=True)
until = time.monotonic() + 600
while not pathlib.Path(sys.argv[1]).exists():
    if time.monotonic() > until:
        sys.exit("the nodes were not checked")
    time.sleep(0.2)
"""


class Judge:
    """The command, and a check that runs meanwhile. ``join`` raises the check's exception after the play."""

    def __init__(self, directory: Path, look: t.Callable[[], None] = lambda: None) -> None:
        script, self._looked = directory / "judge.py", directory / "looked"
        script.write_text(JUDGE, encoding="utf-8")
        self._looked.unlink(missing_ok=True)
        self._look = look
        self.command = ["python3", str(script), str(self._looked)]
        once = Once("  at work", self._run)
        self.on_output, self.join = once, once.join

    def _run(self) -> None:
        try:
            self._look()
        finally:
            self._looked.touch()
