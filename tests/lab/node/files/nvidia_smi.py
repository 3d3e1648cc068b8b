# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SIMULATED nvidia-smi of a gb10.cluster lab node. It talks to no driver.

What it shows is decided by a state file, /var/lib/gb10-lab/gpu.json (or $GB10_LAB_GPU_STATE), read at each call; without the
file the card is idle. All keys are optional:

  processes  list of {"pid": int, "type": "C" | "G" | "C+G", "name": str, "used_mib": int or null}
  hang       true: never answer (a wedged driver)
  missing    true: answer as a shell does for an unknown command (127)
  half       true: break off in the middle of an answer, and succeed
  fields     mapping of a field of --query-gpu to its value: another clock, power or temperature
  replace    mapping of text to text, for whatever it answers: another driver, another name
  says       text: answer this, whatever was asked, and succeed
  rubbish    true: answer something that cannot be parsed, and succeed
  exit_code  not 0: fail with that code and the driver's usual complaint

Answers `-q -x`, `-L`, `--query-gpu=FIELDS --format=csv[,noheader][,nounits]` and `--query-compute-apps=FIELDS --format=…`; with `-l SECONDS` again and
again, from the state file as it is then.
The forms are recorded from a real NVIDIA H200, the values composed after what owners of a GB10 quote; tests/unit/fixtures/nvidia_smi
says which is which.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import pathlib
import signal
import sys
import time
from xml.sax.saxutils import escape

STATE = pathlib.Path(os.environ.get("GB10_LAB_GPU_STATE", "/var/lib/gb10-lab/gpu.json"))
TEMPLATE = pathlib.Path(os.environ.get("GB10_LAB_GPU_TEMPLATE", "/usr/share/gb10-lab/nvidia_smi.xml"))

UUID = "GPU-00000000-0000-0000-0000-000000000000"
NO_VALUE = "[N/A]"

# Field → (heading, value without unit, unit).
GPU_FIELDS = {
    "index": ("index", "0", ""),
    "count": ("count", "1", ""),
    "name": ("name", "NVIDIA GB10", ""),
    "gpu_name": ("name", "NVIDIA GB10", ""),
    "uuid": ("uuid", UUID, ""),
    "gpu_uuid": ("uuid", UUID, ""),
    "gpu_bus_id": ("pci.bus_id", "0000000F:01:00.0", ""),
    "pci.bus_id": ("pci.bus_id", "0000000F:01:00.0", ""),
    "driver_version": ("driver_version", "580.159.03", ""),
    "vbios_version": ("vbios_version", NO_VALUE, ""),
    "compute_cap": ("compute_cap", "12.1", ""),
    "memory.total": ("memory.total [MiB]", NO_VALUE, ""),
    "memory.used": ("memory.used [MiB]", NO_VALUE, ""),
    "memory.free": ("memory.free [MiB]", NO_VALUE, ""),
    "memory.reserved": ("memory.reserved [MiB]", NO_VALUE, ""),
    "utilization.gpu": ("utilization.gpu [%]", "0", " %"),
    "utilization.memory": ("utilization.memory [%]", "0", " %"),
    "temperature.gpu": ("temperature.gpu", "36", ""),
    "power.draw": ("power.draw [W]", "3.74", " W"),
    "power.limit": ("power.limit [W]", NO_VALUE, ""),
    "clocks.sm": ("clocks.current.sm [MHz]", "208", " MHz"),
    "clocks.gr": ("clocks.current.graphics [MHz]", "208", " MHz"),
    "clocks.mem": ("clocks.current.memory [MHz]", NO_VALUE, ""),
    "clocks_event_reasons.active": ("clocks_event_reasons.active", "0x0000000000000001", ""),
    "pstate": ("pstate", "P8", ""),
    "persistence_mode": ("persistence_mode", "Enabled", ""),
    "compute_mode": ("compute_mode", "Default", ""),
    "mig.mode.current": ("mig.mode.current", NO_VALUE, ""),
    "ecc.mode.current": ("ecc.mode.current", NO_VALUE, ""),
    "addressing_mode": ("addressing_mode", "ATS", ""),
}

# Field → heading.
APP_FIELDS = {
    "timestamp": "timestamp",
    "gpu_name": "gpu_name",
    "gpu_bus_id": "gpu_bus_id",
    "gpu_uuid": "gpu_uuid",
    "pid": "pid",
    "process_name": "process_name",
    "name": "process_name",
    "used_gpu_memory": "used_gpu_memory [MiB]",
    "used_memory": "used_gpu_memory [MiB]",
}

PROCESS = """\t\t\t<process_info>
\t\t\t\t<gpu_instance_id>N/A</gpu_instance_id>
\t\t\t\t<compute_instance_id>N/A</compute_instance_id>
\t\t\t\t<pid>{pid}</pid>
\t\t\t\t<type>{type}</type>
\t\t\t\t<process_name>{name}</process_name>
\t\t\t\t<used_memory>{memory}</used_memory>
\t\t\t</process_info>
"""


def load_state(path: pathlib.Path) -> dict:
    """The state file as a dict; an idle card when there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def memory_of(process: dict, unit: str, no_value: str) -> str:
    """Memory of a process with its unit, or what the tool writes when the driver does not tell."""
    used = process.get("used_mib")
    return no_value if used is None else f"{used}{unit}"


def xml(template: str, processes: list[dict]) -> str:
    """The `-q -x` document."""
    entries = "".join(
        PROCESS.format(
            pid=process["pid"],
            type=process.get("type", "C"),
            name=escape(process.get("name", "")),
            memory=memory_of(process, " MiB", "N/A"),
        )
        for process in processes
    )
    return template.replace("@TIMESTAMP@", time.strftime("%a %b %d %H:%M:%S %Y")).replace(
        "@PROCESSES@", f"\t\t<processes>\n{entries}\t\t</processes>\n"
    )


def app_value(field: str, process: dict, units: bool) -> str:
    """One column of one row of --query-compute-apps."""
    if field == "pid":
        return str(process["pid"])
    if field in ("process_name", "name"):
        return process.get("name", "")
    if field in ("used_gpu_memory", "used_memory"):
        return memory_of(process, " MiB" if units else "", NO_VALUE)
    if field == "timestamp":
        return time.strftime("%Y/%m/%d %H:%M:%S.000")
    return GPU_FIELDS[field][1]


def csv(known: dict, fields: list[str], rows: list[list[str]], headings: list[str], options: list[str]) -> int:
    """Print a query's answer; 2 with the tool's own words for a field that it does not know."""
    for field in fields:
        if field not in known:
            print(f'Field "{field}" is not a valid field to query.\n')
            return 2
    # As recorded: an idle card answers --query-compute-apps with the headings alone, with noheader with nothing at all.
    lines = ([] if "noheader" in options else [headings]) + rows
    for line in lines:
        print(", ".join(line))
    return 0


def query_gpu(fields: list[str], options: list[str], values: dict[str, str]) -> int:
    """Answer --query-gpu; ``values`` are those that the state file orders, by field."""
    known = {field: (heading, str(values.get(field, value)), unit) for field, (heading, value, unit) in GPU_FIELDS.items()}
    cells = [known.get(field, ("", "", "")) for field in fields]
    row = [value if "nounits" in options else value + unit for (_heading, value, unit) in cells]
    return csv(GPU_FIELDS, fields, [row], [heading for (heading, _value, _unit) in cells], options)


def query_apps(fields: list[str], options: list[str], processes: list[dict]) -> int:
    """Answer --query-compute-apps: graphics-only processes are not in it."""
    known = [field for field in fields if field in APP_FIELDS]
    rows = [
        [app_value(field, process, "nounits" not in options) for field in known]
        for process in processes
        if "C" in process.get("type", "C")
    ]
    return csv(APP_FIELDS, fields, rows, [APP_FIELDS[field] for field in known], options)


def misbehave(state: dict) -> int | None:
    """Do what the state file orders instead of an answer; None when it orders nothing."""
    if state.get("hang"):
        while True:
            signal.pause()
    if state.get("missing"):
        print("nvidia-smi: command not found", file=sys.stderr)
        return 127
    if state.get("says"):
        print(state["says"])
        return 0
    if state.get("rubbish"):
        print("\x00\x7f<<<simulated rubbish>>> 0x?? MiB,,")
        return 0
    if state.get("exit_code"):
        print(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
            "Make sure that the latest NVIDIA driver is installed and running.\n"
        )
        return int(state["exit_code"])
    return None


def main(argv: list[str]) -> int:
    """Answer one call, or one after the other. Returns the exit code."""
    code, again = once(argv)
    while again and not code:
        sys.stdout.flush()
        time.sleep(again)
        code, again = once(argv)
    return code


def once(argv: list[str]) -> tuple[int, int]:
    """Answer once. Returns the exit code, and after how many seconds the same is asked again (0: never)."""
    state = load_state(STATE)
    ordered = misbehave(state)
    if ordered is not None:
        return ordered, 0
    parser = argparse.ArgumentParser(prog="nvidia-smi", description="Simulated nvidia-smi of a gb10.cluster lab node.")
    parser.add_argument("-q", "--query", action="store_true")
    parser.add_argument("-x", "--xml-format", action="store_true")
    parser.add_argument("-L", "--list-gpus", action="store_true")
    parser.add_argument("--query-gpu", metavar="FIELDS")
    parser.add_argument("--query-compute-apps", metavar="FIELDS")
    parser.add_argument("--format", default="csv")
    parser.add_argument("-l", "--loop", type=int, default=0)
    arguments = parser.parse_args(argv)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = answer(parser, arguments, state.get("processes", []), state.get("fields", {}))
    text = said.getvalue()
    for old, new in state.get("replace", {}).items():
        text = text.replace(old, new)
    print(text[: len(text) // 2] if state.get("half") else text, end="")
    return code, arguments.loop


def answer(parser: argparse.ArgumentParser, arguments: argparse.Namespace, processes: list[dict], fields: dict[str, str]) -> int:
    """Print what the tool prints. Returns the exit code."""
    options = arguments.format.split(",")
    if arguments.list_gpus:
        print(f"GPU 0: {GPU_FIELDS['name'][1]} (UUID: {UUID})")
        return 0
    if arguments.query_gpu:
        return query_gpu([field.strip() for field in arguments.query_gpu.split(",")], options, fields)
    if arguments.query_compute_apps:
        return query_apps([field.strip() for field in arguments.query_compute_apps.split(",")], options, processes)
    if arguments.query and arguments.xml_format:
        print(xml(TEMPLATE.read_text(encoding="utf-8"), processes), end="")
        return 0
    parser.error("the simulated nvidia-smi answers -q -x, -L, --query-gpu and --query-compute-apps")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
