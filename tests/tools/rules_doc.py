# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write docs/rules.md, docs/doctor.md and docs/signatures.md from the tables in plugins/plugin_utils. A unit test fails while they disagree.

    .venv/bin/python tests/tools/rules_doc.py
"""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "plugins" / "plugin_utils" / "_rules" / "rules.yml"
PAGE = ROOT / "docs" / "rules.md"
DOCTOR_TABLE = ROOT / "plugins" / "plugin_utils" / "_rules" / "doctor.yml"
DOCTOR_PAGE = ROOT / "docs" / "doctor.md"
DOCTOR_TAG = "doctor"
SIGNATURES = ROOT / "plugins" / "plugin_utils" / "_serve" / "signatures"
SIGNATURES_PAGE = ROOT / "docs" / "signatures.md"

COMPARES = {"requirement": "node against requirement", "nodes": "node against node", "known_bad": "node against known-bad list"}

HEAD = """<!-- Made from plugins/plugin_utils/_rules/rules.yml by tests/tools/rules_doc.py; change the rules there. -->
# Rules of the preflight

{number} rules judge whether a cluster may start a profile: {requirement} compare a node with what is required, {nodes} compare nodes with each
other, {known_bad} compare a node with a list of what is known to fail. They are data: `plugins/plugin_utils/_rules/rules.yml`.

- **block** and **unknown** stop the play, after all nodes were judged. **warn** does with `gb10_fail_on: warn`.
- Where a node did not answer what a rule needs, one that blocks is **unknown** and one that warns **warns**, with what is missing and why. Neither is
  taken for a pass.
- A rule is skipped on a node where a rule that it depends on did not pass, and so is one that has nothing to check (the profile does not
  say, TCP is allowed). The record lists both, with the reason.
- What a later stage of the same play repairs is **warn** ("stage image will fix this"). It blocks where that stage is left out (`--tags`, `--skip-tags`),
  offline or not permitted.
- While an engine of this very cluster serves, its ports, memory and processes are its own.
- Rules whose ids begin with `probe.` judge what an active probe of the fabric measured (`--tags fabric`, [fabric.md](fabric.md)). The preflight itself
  loads no network and leaves them alone.
- Sources say "reported": one public report or more. Nothing here was measured on a GB10 by this project.

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
      - {{match: "7.0.0-1019*", unless: kho=off, why: RDMA fails, known: two reports}}
      - {{match: "6.18.0-1004*", unless: "", why: it hung, known: seen here once}}
gb10_silenced: [limits.sshd]
```

What is tuned or silenced is still judged, listed and counted, with the verdict that it would have had.

## The verdict

The play prints a table of the rules that did not pass everywhere (`.` is a pass, `-` not judged), then every finding with its remedy, once: an entry
names all nodes that share it. The same is written as JSON to `CLUSTER-preflight.json` in `gb10_records_dir` on the controller and passed on as `gb10_preflight`
(`set_stats`). Its schema is
`plugins/plugin_utils/_rules/preflight.schema.json`; it carries a version, `schema: 1`.

This is what two lab nodes said that were made sick for it; the driver's tool, the process and the RDMA device are simulated. What the lab silences is left out.

```
Preflight (as JSON in ~/.cache/gb10/gb10-preflight.json): 3 block, 3 warn, 6 silenced, 157 pass, 13 not judged (6 of them lowered by hand)
                      spark-1   spark-2   cluster
  gpu.driver_same     .         .         block
  fabric.mtu          .         warn
  fabric.mtu_same     .         .         block
  cuda_zombie.ghost   .         block
  env.left            warn      warn

  block     cuda_zombie.ghost   spark-2           GPU process 4194000 (VLLM::EngineCore) is gone, and the driver still counts 70000 MiB as its own.
                                                  → Reboot this node when it is idle: nothing else frees this memory.
  block     fabric.mtu_same     cluster           the MTU differs between nodes: spark-1 9000, spark-2 1500; large transfers hang.
                                                  → ip link set NAME mtu 9000 for every link of every node, and make it last (netplan)
  block     gpu.driver_same     cluster           the NVIDIA driver differs between nodes: spark-1 580.159.03, spark-2 580.95.05.
                                                  → install the same driver on every node and reboot the ones that change
  warn      env.left            spark-1, spark-2  /etc/environment sets NCCL_IB_DISABLE=1; whatever is started on this node by hand \
gets them, on this node alone.
                                                  → take them out of /etc/environment; for the containers they belong into the profile's env or into gb10_env
  warn      fabric.mtu          spark-2           eth1 has an MTU of 1500; 9000 carries about 1 % more.
                                                  → ip link set eth1 mtu 9000, on all nodes, and make it last (netplan)
```

"""


DOCTOR_HEAD = """<!-- Made from plugins/plugin_utils/_rules/doctor.yml by tests/tools/rules_doc.py; change the rules there. -->
# The doctor

What is wrong on these machines? The doctor reads, prints verdicts, changes nothing and installs nothing.

| Command | What it judges |
|---|---|
| `ansible-playbook gb10.cluster.doctor -i spark-1,spark-2,` | [All engines on these machines](#what-runs), no matter who started them. |
| `ansible-playbook -i ./gb10-inventory gb10.cluster.doctor` | May this cluster start its profile? [The preflight](preflight.md): it fails if a rule blocks. |
| `ansible-playbook -i ./gb10-inventory gb10.cluster.doctor --tags stacks` | All engines on the cluster's nodes, no matter who started them. |
| `ansible-playbook -i ./gb10-inventory gb10.cluster.doctor --tags fabric` | [What the links carry](fabric.md). It loads the network for 10 seconds per pair. |
| `ansible-playbook -i ./gb10-inventory gb10.cluster.doctor --tags baseline` | Nothing: it records [the memory after a boot](#baseline). |

`--tags all,fabric` judges the cluster and its links. With an inventory, `-e gb10_single=spark-2` judges that node's own service ([serve](serve.md#one-node)).

## Baseline

On unified memory, a driver leak does not show in any process. The doctor calculates it: used memory, minus the kernel's share, minus the memory of GPU
processes, minus the memory that was already unexplained when this boot began. The tag `baseline` records the last figure.

Run it right after a boot, before anything uses the GPU:

```console
$ ./gb10 baseline
$ ansible-playbook -i ./gb10-inventory gb10.cluster.doctor --tags baseline
```

- A baseline is valid for its own boot. A second run in the same boot keeps the first one.
- It refuses if an engine or a container of the collection runs, if a GPU process computes, or if the boot was more than 1800 s
  ago. `-e gb10_allow=baseline` records anyway, and the file lists the reasons against it.
- Where an enabled [unit](unit.md) starts the engine at boot, run teardown, reboot, record the baseline, and serve again.
- One copy stays on the node for [cuda_zombie_check](../plugins/modules/cuda_zombie_check.py), another goes to `CLUSTER-baseline` in
  `gb10_records_dir` on the controller. It
  contains no machine name and no user name. The calculation is uncalibrated: no baseline files from real Sparks have been sent yet, and they would be welcome.

It prints one line per node (composed from the texts of the module and the role, no real hardware):

```
536 MiB are unexplained 100 s after the boot; on the controller: /home/me/.cache/gb10/gb10-baseline/baseline-spark-1.json
```

## What runs

```
./gb10 doctor spark-1 spark-2
ansible-playbook gb10.cluster.doctor -i spark-1,spark-2,
```

judges every engine on these machines: a stack of this collection, eugr's or sparkrun's containers, a compose file, plain `vllm serve`.
It needs no inventory file, group, profile or setting. It reads (two module calls per node, some seconds), installs nothing and changes nothing. Findings do not
fail the play unless you ask for it (`-e gb10_fail_on=block`, or `warn`).

- List all nodes of a stack: the doctor compares the ranks with each other.
- Another account: `-u NAME`. With sudo's password: `-K`. Without sudo: `-e gb10_become=false`; the doctor then reports what it could not read, and rules that
  need it are **unknown**.
- It reports a node that it cannot reach, and judges the others.
- It asks each API for `/health`, `/v1/models` and `/metrics`, without a key (`-e doctor_probe=none`: not at all). It sends no request that would
  generate a token.
- It reads the counters of a stack twice, two seconds apart, to see whether the stack makes progress.
- It applies these settings of an inventory, if there is one: `gb10_become`, `gb10_rules`, `gb10_silenced`, `gb10_cluster_group`.
- Rules are tuned and silenced by id, as with the preflight ([rules.md](rules.md#tuning)): `-e '{{"gb10_silenced": ["ray.open"]}}'`.
- The verdict is also written as JSON to `doctor.json` in `gb10_records_dir` (`~/.cache/gb10`) on the controller, in the preflight's schema.

The module [stack_info](../plugins/modules/stack_info.py) returns the same facts without a verdict: `ansible -i spark-1, all -b -m gb10.cluster.stack_info`.

## Output

From the lab, shortened: two nodes that serve with Ray, read by an account without root's rights and outside the group docker.

```
{example}
```

## Its own rules

{number} rules judge the engines. {shared} of the [preflight's rules](rules.md) that need no profile (tag `doctor`) judge the nodes: {shared_ids}.

"""

DOCTOR_EXAMPLE = """\
spark-1: vllm api_server, vllm serve (pid 5724) in container 7e77b25ea7de since 2026-11-22T19:06:02Z, stack ray 10.77.1.11:6379; 10.77.0.11:8000 answers
spark-1: 1 gcs_server (pid 5398) in container 7e77b25ea7de, stack ray 10.77.1.11:6379
spark-1: 1 raylet (pid 5511) in container 7e77b25ea7de, stack ray 10.77.1.11:6379
spark-1: 1 rank (pid 5894) in container 7e77b25ea7de, stack ray 10.77.1.11:6379
spark-2: 1 raylet (pid 3549) in container f75c603848ff, stack ray 10.77.1.11:6379
spark-2: 1 rank (pid 3838) in container f75c603848ff, stack ray 10.77.1.11:6379
Doctor (as JSON in /home/me/.cache/gb10/doctor.json): 6 unknown, 8 warn, 6 silenced, 133 pass (6 of them lowered by hand)
                       spark-1   spark-2   cluster
  stack.env_same       .         .         unknown
  stack.image_same     .         .         warn
  stack.memlock        warn      warn
  ...
  unknown   stack.env_same       cluster           whether the ranks of a stack have the same variables is unknown, since stack.processes[5894].env is missing:
                                                   the environment of process 5381 cannot be read: Permission denied
                                                   → Run the task with become: true.
  warn      stack.image_same     cluster           whether the ranks of a stack run in the same image is unknown, since stack.containers is missing:
                                                   stack.containers: no permission to talk to the Docker engine at /var/run/docker.sock
                                                   → Run the task with become: true, or add the user to the group docker.
  warn      stack.memlock        spark-1           ray::RayWorkerProc.run (pid 5894) in container 7e77b25ea7de may lock 8388608 bytes of memory; RDMA registers
                                                   all that ranks exchange.
                                                   → start its container with --ulimit memlock=-1:-1
  ..."""


SIGNATURES_HEAD = """<!-- Made from plugins/plugin_utils/_serve/signatures by tests/tools/rules_doc.py; change the tables there. -->
# Lines of a log that are known

{number} signatures say what a line of a log means: of vLLM, Ray, NCCL, torch, Docker or the kernel. The bring-up ends at the first of them on any node,
and [explain](explain.md) looks for them in logs of anyone's cluster. Which words they look for, with example lines, is data:
`plugins/plugin_utils/_serve/signatures`; [explain](explain.md#signatures-of-your-own) says how to add your own. Sources say who reported the line.

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


def doctor_page() -> str:
    """The page about the doctor."""
    rows = yaml.safe_load(DOCTOR_TABLE.read_text(encoding="utf-8"))["rules"]
    shared = [row["id"] for row in yaml.safe_load(TABLE.read_text(encoding="utf-8"))["rules"] if DOCTOR_TAG in row["tags"]]
    links = ", ".join(f"[{id}](rules.md#{id.replace('.', '')})" for id in shared)
    head = DOCTOR_HEAD.format(number=len(rows), shared=len(shared), shared_ids=links, example=DOCTOR_EXAMPLE)
    return "\n".join([head + overview(rows), "## Each rule", "", *(section(row) for row in rows)]).rstrip() + "\n"


def signatures_page() -> str:
    """The page about the lines of logs that are known, a section a table."""
    tables = {path: path.read_text(encoding="utf-8") for path in sorted(SIGNATURES.glob("*.yml"))}
    rows = {path: yaml.safe_load(content) for path, content in tables.items()}
    lines = [SIGNATURES_HEAD.format(number=sum(map(len, rows.values()))).rstrip(), ""]
    for path, content in tables.items():
        title = content.splitlines()[1].removeprefix("# ")
        lines += [f"## {path.stem}", "", title, "", "| Id | Cause | Consequence | Remedy | Source |", "|---|---|---|---|---|"]
        cells = ((f"`{row['id']}`", *(text(row[field]) for field in ("cause", "consequence", "remedy", "source"))) for row in rows[path])
        lines += [*(f"| {' | '.join(row)} |" for row in cells), ""]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    DOCTOR_PAGE.write_text(doctor_page(), encoding="utf-8")
    SIGNATURES_PAGE.write_text(signatures_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
