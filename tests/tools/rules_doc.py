# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write docs/rules.md from plugins/plugin_utils/rules.yml. A unit test fails while the two disagree.

    .venv/bin/python tests/tools/rules_doc.py
"""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "plugins" / "plugin_utils" / "rules.yml"
PAGE = ROOT / "docs" / "rules.md"

COMPARES = {"requirement": "node against requirement", "nodes": "node against node", "known_bad": "node against known-bad list"}

HEAD = """<!-- Made from plugins/plugin_utils/rules.yml by tests/tools/rules_doc.py; change the rules there. -->
# Rules of the preflight

{number} rules judge whether a cluster may start a profile: {requirement} compare a node with what is required, {nodes} compare nodes with each other, {known_bad}
compare a node with a list of what is known to fail. They are data: `plugins/plugin_utils/rules.yml`.

- **block** and **unknown** stop the play, after all nodes were judged. **warn** does with `gb10_fail_on_warn`.
- What a node could not tell is **unknown**, with what is missing and why. It is never taken for a pass.
- A rule that stands behind another one is not judged on a node where that one did not pass, and one that asks for nothing (the profile does not
  say, TCP is allowed) is not judged either; the record lists both, with the reason.
- What a later stage of the same play repairs is **warn** ("stage image will fix this"). It blocks where that stage is left out (`--tags`, `--skip-tags`),
  offline or not permitted.
- While an engine of this very cluster serves, its ports, memory and processes are its own.
- Rules whose ids begin with `probe.` judge what an active probe of the fabric measured (`--tags fabric`, [fabric.md](fabric.md)). The preflight itself
  loads no network and leaves them alone.
- Sources say "reported": one public report or more. Nothing here was measured on hardware of this project.

## Tuning

A profile (key `rules`) and the inventory (`gb10_rules`, which wins) change limits by name, and say what findings of a rule become at most:

```yaml
gb10_rules:
  memory.swap:
    most_mb: 4096
    why: old pages of the desktop
  fabric.mtu:
    verdict: warn        # or silenced
    why: the switch between the nodes carries 1500 bytes
  kernel.known_bad:
    bad:
      - {{match: "7.0.0-1019*", why: known}}
      - {{match: "6.18.0-1004*", why: it hung here}}
gb10_silenced: [limits.sshd]
```

What is tuned or silenced is still judged, listed and counted, with the verdict that it would have had.

## The verdict

The play prints a table of the rules that did not pass everywhere (`.` is a pass, `-` not judged), then every finding with its remedy. The same is
written as JSON to `gb10_preflight_path` on the controller and passed on as `gb10_preflight` (`set_stats`). Its schema is
`plugins/plugin_utils/preflight.schema.json`; it carries a version, `schema: 1`.

"""


def text(value: str) -> str:
    """One line of a table: words of the check in italics, no bar that would end the cell."""
    return re.sub(r"\{(\w+)\}", r"*\1*", " ".join(value.split())).replace("|", "\\|").replace("<", "&lt;")


def limits(row: dict[str, t.Any]) -> str:
    """The limits of a rule as they are written in an inventory."""
    return "; ".join(f"`{name}: {json.dumps(value)}`" for name, value in row.get("limits", {}).items()) or "none"


def section(row: dict[str, t.Any]) -> str:
    """The part of the page about one rule."""
    lines = [
        f"### {row['id']}",
        "",
        f"{row['title']}. **{row['verdict']}**, {COMPARES[row['compares']]}.",
        "",
        f"- Says: {text(row['message'])}",
        f"- Remedy: {text(row['remedy'])}",
        f"- Limits: {limits(row)}",
        f"- Evidence: {', '.join(f'`{path}`' for path in row['evidence']) or 'the profile and the inventory alone'}",
    ]
    if row.get("after"):
        lines.append(f"- After: {', '.join(row['after'])}")
    if row.get("only_if"):
        lines.append(f"- Not judged where {' or '.join(condition[3] for condition in row['only_if'])}.")
    if row.get("repair"):
        lines.append(f"- Stage {row['repair']['stage']} will {row['repair'].get('does', 'fix this')}.")
    lines += [f"- Source: {text(row['source'])}", f"- Tags: {', '.join(row['tags'])}", ""]
    return "\n".join(lines)


def overview(rows: list[dict[str, t.Any]]) -> str:
    """All rules in one table."""
    lines = ["## All rules", "", "| Rule | Wants | Else |", "|---|---|---|"]
    lines += [f"| [{row['id']}](#{row['id'].replace('.', '')}) | {text(row['title'])}. | {row['verdict']} |" for row in rows]
    return "\n".join(lines) + "\n"


def page() -> str:
    """The whole page."""
    rows = yaml.safe_load(TABLE.read_text(encoding="utf-8"))["rules"]
    numbers = {name: sum(row["compares"] == name for row in rows) for name in COMPARES}
    return "\n".join([HEAD.format(number=len(rows), **numbers) + overview(rows), "## Each rule", "", *(section(row) for row in rows)]).rstrip() + "\n"


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
