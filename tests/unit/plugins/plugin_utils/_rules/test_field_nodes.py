# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recorded answers of real Sparks, judged by the rules: a healthy node is not blocked, a faulty one gets its own finding. Sources: fixtures/field."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
import yaml
from healthy_pair import asked, judged, node, second

from ansible_collections.gb10.cluster.plugins.module_utils._gpu import driver
from ansible_collections.gb10.cluster.plugins.module_utils._network import fabric_probe, fabric_transfer
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify, process_table, tenants

FIELD = Path(__file__).resolve().parents[3] / "fixtures" / "field"
GPU = FIELD / "nvidia_smi"
RECORDS = yaml.safe_load((FIELD / "nodes.yml").read_text(encoding="utf-8"))

#: One row of the table of processes: GPU, GI, CI, pid, type, name, memory.
ROW = re.compile(r"^\|\s+0\s+N/A\s+N/A\s+(?P<pid>\d+)\s+(?P<type>\S+)\s+(?P<name>\S+)\s+(?P<mib>\d+)MiB \|$", re.MULTILINE)


def verdicts(record):
    return {(finding["id"], finding["verdict"]) for finding in record["findings"]}


def both(**changes):
    """Judge two nodes with the same answers."""
    return verdicts(judged(asked(node(**changes)), second(node(**changes))))


def tenants_of(table):
    """Return the ``tenants`` that ``node_info`` reports on a machine with this table of processes."""
    rows = [match.groupdict() for match in ROW.finditer((GPU / table).read_text(encoding="utf-8"))]
    assert rows or "No running processes found" in (GPU / table).read_text(encoding="utf-8")
    listed = [{"pid": int(row["pid"]), "gpu": 0, "type": row["type"], "name": row["name"], "used_mib": int(row["mib"])} for row in rows]
    running = {entry["pid"]: make_process(entry["pid"], entry["name"]) for entry in listed}
    return tenants.tenants(process_table.Scan(running, 0), listed, (), {}, "/nonexistent")


def make_process(pid, name):
    return process_table.Process(pid, 1, "S", name.rpartition("/")[2], (name,), "", 1000, 1024)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("table-580.126.09-idle-bare.txt", set()),
        ("table-580.126.09-idle-desktop.txt", set()),
        ("table-580.173.02-serving-cut.txt", set()),
        ("table-580.159.03-after-stop.txt", set()),
        ("table-580.159.03-desktop-session.txt", {("tenant.desktop", "warn")}),
        ("table-580.159.03-llama-server-1.txt", {("tenant.holding", "block")}),
        ("table-580.159.03-vllm-serving.txt", {("tenant.holding", "block")}),
    ],
)
def test_who_holds_memory_by_recorded_tables(table, expected):
    assert {entry for entry in both(tenants=tenants_of(table)) if entry[0].startswith("tenant.")} == expected


@pytest.mark.parametrize("record", RECORDS["compute_apps"], ids=lambda record: record["csv"])
def test_recorded_processes_of_the_driver(record):
    (process,) = driver.parse_processes(record["csv"])
    assert (process.name, process.used_mib) == (record["name"], record["used_mib"])


def test_the_recorded_processes_are_known_for_what_they_are():
    kinds = {tenant["name"]: tenant["kind"] for tenant in tenants_of("table-580.159.03-desktop-session.txt")}
    assert set(kinds.values()) == {"desktop"} and classify.judge(["/usr/share/cursor/cursor"]) is None


@pytest.mark.parametrize("file", sorted(path.name for path in GPU.glob("telemetry-*.csv")))
def test_no_second_of_recorded_load_is_taken_for_low_power(file):
    rows = list(csv.DictReader((GPU / file).read_text(encoding="utf-8").splitlines(), skipinitialspace=True))
    busy = [row for row in rows if int(row["utilization.gpu [%]"].split()[0]) >= 90]
    assert busy
    for row in busy:
        figures = {
            "gpus__0__utilisation_percent": int(row["utilization.gpu [%]"].split()[0]),
            "gpus__0__sm_clock_mhz": int(row["clocks.current.sm [MHz]"].split()[0]),
            "gpus__0__power_w": float(row["power.draw [W]"].split()[0]),
        }
        assert both(**figures) == set(), row


@pytest.mark.parametrize("record", RECORDS["kernels"], ids=lambda record: f"{record['release']} {record.get('cmdline', '')}")
def test_recorded_kernels(record):
    expected = {(record["rule"], record["verdict"])} if "rule" in record else set()
    assert both(kernel__release=record["release"], kernel__cmdline=f"ro quiet {record.get('cmdline', '')}") == expected


@pytest.mark.parametrize("record", RECORDS["memory"], ids=lambda record: record["what"])
def test_recorded_memory(record):
    first, other = (node(**{f"memory__{name}": value for name, value in figures.items()}) for figures in record["nodes"])
    assert verdicts(judged(asked(first), second(other))) == set(map(tuple, record.get("findings", [])))


@pytest.mark.parametrize("record", RECORDS["twins"], ids=lambda record: record["what"])
def test_recorded_addresses_of_twins_do_not_block(record):
    shared = {"network": record["network"], "family": "ipv4", "scope": "global", "prefix": record["prefix"]}
    networks = [{"address": address, **shared} for address in record["addresses"]]
    changes = {f"fabric__{number}__networks": [network] for number, network in enumerate(networks)}
    gids = {f"fabric__{number}__gids__1__address": network["address"] for number, network in enumerate(networks)}
    assert verdicts(judged(asked(node(**changes, **gids)))) == {("fabric.twins_apart", "warn")}


@pytest.mark.parametrize("record", RECORDS["ib_write_bw"], ids=lambda record: record["file"])
def test_recorded_transfers(record):
    text = (FIELD / "network" / record["file"]).read_text(encoding="utf-8")
    if record["gbits"] is None:
        with pytest.raises(fabric_probe.UnknownState):
            fabric_transfer.parse_ib_write_bw(text)
    else:
        assert fabric_transfer.parse_ib_write_bw(text) == record["gbits"]
