# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The time to redact secrets from a text: milliseconds for 16 KiB, and how many times as long 64 KiB take (4 is linear, 16 would be square).

Run it from the repository's root:

    python bench/redact.py

The last rows are texts on which a pattern with a second repetition would be slow.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.gb10.cluster.plugins.module_utils._redact import redacted  # noqa: E402

SIZE = 16384
LOG = ROOT / "tests/unit/fixtures/field/logs/healthy/qwen3.6-35b-bf16-0.19.log"
UNITS = (
    "a.", "a-", "token", "token=", "http://", "://a", "a@://", "://a:", "--api-key ",
    "'token': '", r"\"token\": \"", "token=[", "x-", "bearer ", "  - ", "password: a\n",
    "curl ", "curl -u a:", "-u ", "login -p", "sshpass -p '", "cookie: ", "/hooks/", "hooks.slack.com/services/", "&sig=", "/bot1", "tokens={", "token_",
    "token:", "password: ", "{token: ", "eyJaaaaaaaaa.", "-----BEGIN PRIVATE KEY-----", "_KEY=", "--key ",
)  # fmt: skip


def milliseconds(text: str) -> float:
    """Return the shortest of five attempts."""
    spent = []
    for _attempt in range(5):
        began = time.perf_counter()
        redacted(text, {"api_key": "Zk3v9PqL0aWb7"})
        spent.append(time.perf_counter() - began)
    return min(spent) * 1000


def main() -> None:
    rows = {"a log": LOG.read_text(encoding="utf-8"), **{f"{unit!r} again and again": unit for unit in UNITS}}
    for name, unit in rows.items():
        once, four = (milliseconds((unit * (size // len(unit) + 1))[:size]) for size in (SIZE, 4 * SIZE))
        print(f"{once:8.2f} ms  x{four / once:4.1f}  {name}")


if __name__ == "__main__":
    main()
