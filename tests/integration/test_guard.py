# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guard is set up once on the lab's nodes. It acts only on a collapse of memory. A dead node is named with its last minute.

The memory of a lab node is that of the machine underneath, so curves are played into a file that the guard reads as meminfo. The ranks are processes with
the title of a rank that use no memory.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import time
import typing as t
from pathlib import Path

import pytest
import yaml

from .lab import HEAD, ROOT, WORKER, Lab

UNIT = "/etc/systemd/system/gb10-guard.service"
RING = "/var/lib/gb10/guard/ring"
MEMINFO = "/var/lib/gb10-lab/meminfo"
NOTED = "/var/lib/gb10/gb10/memory.json"
IMAGE = "gb10-lab/engine:0.32.0"
ROOTS = {"kernel_log": "/run/gb10-lab/kernel.log", "sysfs_root": "/run/gb10-lab/sys"}

#: Writes values of available GiB to the file that the guard reads, one per second.
PLAYER = """
import os, sys, time
path, *levels = sys.argv[1:]
for level in levels:
    with open(path + ".new", "w") as stream:
        stream.write(f"MemTotal: 127600748 kB\\nMemFree: 1048576 kB\\nMemAvailable: {int(float(level) * 1048576)} kB\\nBuffers: 0 kB\\nCached: 1048576 kB\\n")
    os.replace(path + ".new", path)
    time.sleep(1)
"""
#: The curves that the unit tests replay.
CURVES = yaml.safe_load((ROOT / "tests" / "unit" / "fixtures" / "guard" / "curves.yml").read_text(encoding="utf-8"))
#: The steepest seconds of a healthy curve that are played, and the seconds of its first level before that, which separate it from the previous curve.
STEEP, LEVEL = 16, 7
#: Reported: 29 to 6.3 GiB in 9 s.
COLLAPSE = [29, 29, 29, 26.5, 24, 21.5, 18.9, 16.4, 13.9, 11.4, 8.8, 6.3, 3.8, 2.5, 1.9, 1.5, 1.2, 1.0, 0.9, 0.8]


def play_memory(lab: Lab, host: str, levels: t.Sequence[float]) -> None:
    lab.run(host, "python3", "-c", PLAYER, MEMINFO, *map(str, levels))


#: Notes on a node the memory before a start, as node_samples_info does, with the level in GiB, which may be unknown.
NOTE = """
import json, os, sys
path, level = sys.argv[1:]
os.makedirs(os.path.dirname(path), exist_ok=True)
content = {
    "available_mb": 61440, "boot_id": open("/proc/sys/kernel/random/boot_id").read().strip(), "noted_at": 0.0,
    "uptime_s": int(os.environ.get("UPTIME") or float(open("/proc/uptime").read().split()[0])),
    "level_mb": int(float(level) * 1024) if level else None, "level_why": "the plan" if level else "no facts of this model",
}
if os.environ.get("UPTIME"):
    # Of a start that was noted: what was available before it is what the teardown compares with.
    content = {**json.load(open(path)), "level_mb": content["level_mb"], "level_why": content["level_why"]}
with open(path + ".new", "w") as stream:
    json.dump(content, stream)
os.replace(path + ".new", path)
print(content["uptime_s"])
"""


def note_level(lab: Lab, host: str, level: float | None, uptime: str = "") -> str:
    """Note the level of a future start, or of the start that was noted at ``uptime``. Returns the uptime of the note."""
    return lab.run(host, "env", f"UPTIME={uptime}", "python3", "-c", NOTE, NOTED, "" if level is None else str(level)).strip()


def records(lab: Lab, host: str) -> list[dict[str, t.Any]]:
    """All records in a node's ring."""
    return [json.loads(line) for line in lab.run(host, "sh", "-c", f"cat {RING}/*.jsonl").splitlines() if line.startswith("{") and line.endswith("}")]


def await_record(lab: Lab, host: str, wanted: t.Callable[[dict[str, t.Any]], bool], since: float, seconds: float = 20) -> dict[str, t.Any]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for record in records(lab, host):
            if record["t"] >= since and wanted(record):
                return record
        time.sleep(0.5)
    raise AssertionError(f"{host}: not in the ring within {seconds} s; its last records are {records(lab, host)[-5:]}")


@pytest.fixture
def unguarded(lab: Lab) -> t.Iterator[None]:
    """Nodes without a guard, before and after."""
    for when in ("before", "after"):
        gone = lab.play("protect", tags="guard", gb10_guard="absent", gb10_allow="forget")
        assert gone.rc == 0, gone.failures
        if when == "before":
            yield


@contextlib.contextmanager
def ranks(lab: Lab, host: str) -> t.Iterator[dict[str, str]]:
    """Run processes with a rank's title: own, own but deaf to SIGTERM, and foreign. Yields their containers' names by these words."""
    labels = ("--label=io.gb10.owner=gb10.cluster", "--label=io.gb10.cluster=gb10", "--label=io.gb10.role=head")
    start = {
        "ours": (labels, 'exec -a VLLM::Worker_TP0 sleep 900'),
        "deaf": (labels, 'trap "" TERM; exec -a VLLM::Worker_TP1 sleep 900'),
        "foreign": ((), 'exec -a VLLM::Worker_TP0 sleep 900'),
    }
    names = {word: f"gb10-guard-test-{word}" for word in start}
    try:
        for word, (options, script) in start.items():
            lab.run(host, "docker", "run", "--detach", "--init", f"--name={names[word]}", *options, "--entrypoint=bash", IMAGE, "-c", script)
        yield names
    finally:
        lab.run(host, "docker", "rm", "--force", *names.values(), check=False)


def running(lab: Lab, host: str, names: dict[str, str]) -> set[str]:
    shown = lab.run(host, "docker", "ps", "--format={{.Names}}").split()
    return {word for word, name in names.items() if name in shown}


def test_the_guard_is_set_up_once_and_taken_away(lab: Lab, unguarded: None) -> None:
    predicted = lab.play("protect", tags="guard", check=True)
    assert predicted.rc == 0 and set(predicted.changed) == {HEAD, WORKER}, predicted.failures
    assert "no such" in lab.run(HEAD, "sh", "-c", f"test -e {UNIT} && echo there || echo no such")

    first = lab.play("protect", tags="guard")
    assert first.rc == 0 and set(first.changed) == {HEAD, WORKER}, first.failures
    pids = {host: lab.run(host, "systemctl", "show", "--property=MainPID,NRestarts", "gb10-guard.service") for host in (HEAD, WORKER)}
    again = lab.play("protect", tags="guard")
    assert again.rc == 0 and again.changed == {}, again.said
    checked = lab.play("protect", tags="guard", check=True)
    assert checked.rc == 0 and checked.changed == {}, checked.said
    assert pids == {host: lab.run(host, "systemctl", "show", "--property=MainPID,NRestarts", "gb10-guard.service") for host in (HEAD, WORKER)}

    sample = await_record(lab, HEAD, lambda record: record.get("g") is not None and record.get("l") is not None, 0)
    assert sample["a"] > 0 and sample["g"]["c"] == 36 and sample["l"]["eth1"][0] is True
    assert "guard: active" in lab.play("status").said
    assert first.stat("gb10_guard_report")["nodes"][HEAD]["active"] is True

    other = lab.play("protect", tags="guard", gb10_guard_act="never")
    assert other.rc == 0 and set(other.changed) == {HEAD, WORKER}, other.failures

    gone = lab.play("protect", tags="guard", gb10_guard="absent")
    assert gone.rc == 0 and set(gone.changed) == {HEAD, WORKER}, gone.failures
    assert records(lab, HEAD)[-1]["e"] == "stop"
    assert "its ring remains" in lab.play("status").said
    assert lab.play("protect", tags="guard", gb10_guard="absent").changed == {}
    forgotten = lab.play("protect", tags="guard", gb10_guard="absent", gb10_allow="forget")
    assert forgotten.rc == 0 and set(forgotten.changed) == {HEAD, WORKER}
    assert "no such" in lab.run(HEAD, "sh", "-c", "test -e /var/lib/gb10/guard && echo there || echo no such")


def test_a_foreign_unit_stays(lab: Lab, unguarded: None) -> None:
    lab.write(WORKER, UNIT, "[Unit]\nDescription=mine\n")
    try:
        ran = lab.play("protect", tags="guard")
        assert ran.rc != 0 and "is not this collection's" in ran.said
        assert "Description=mine" in lab.run(WORKER, "cat", UNIT)
    finally:
        lab.run(WORKER, "rm", "-f", UNIT)


def test_a_collapse_ends_its_own_ranks_only(lab: Lab, no_cluster: None, unguarded: None) -> None:
    """Meanwhile no play runs, and the disk is written to continuously."""
    for host in (HEAD, WORKER):
        play_memory(lab, host, [60])
    assert lab.play("protect", tags="guard", gb10_node_roots={**ROOTS, "meminfo": MEMINFO}).rc == 0
    write = "timeout 60 dd if=/dev/zero of=/var/tmp/gb10-guard-test bs=1M count=200 conv=fsync 2>/dev/null"
    burden = f"for i in 1 2 3 4; do {write}; done; rm -f /var/tmp/gb10-guard-test"
    note_level(lab, HEAD, 15)
    try:
        with ranks(lab, HEAD) as names:
            await_record(lab, HEAD, lambda record: record.get("p") == "loading", time.time() - 1)
            lab.run(HEAD, "sh", "-c", f"({burden}) > /dev/null 2>&1 &")
            began = time.time()
            play_memory(lab, HEAD, [29, 28.5, 29, *[3.5, 4.4, 3.9] * 5])
            assert running(lab, HEAD, names) == {"ours", "deaf", "foreign"}, "a level alone does nothing"
            play_memory(lab, HEAD, COLLAPSE)
            term = await_record(lab, HEAD, lambda record: record.get("signal") == "SIGTERM", began)
            kill = await_record(lab, HEAD, lambda record: record.get("signal") == "SIGKILL", began)
            assert len(term["pids"]) == 2 and len(kill["pids"]) == 1 and 5 <= kill["t"] - term["t"] <= 8
            assert running(lab, HEAD, names) == {"foreign"}
            journal = lab.run(HEAD, "journalctl", "--unit=gb10-guard.service", "--no-pager", "--since=-2min")
            assert "below the expected 15.0 GiB; SIGTERM to pids" in journal and "SIGKILL to pids" in journal
    finally:
        for host in (HEAD, WORKER):
            lab.run(host, "rm", "-f", MEMINFO)


def test_without_a_level_it_is_only_said_what_would_be_done(lab: Lab, no_cluster: None, unguarded: None) -> None:
    """It is in the ring, in the journal and in status, also for accounts that may not read the ring."""
    for host in (HEAD, WORKER):
        play_memory(lab, host, [60])
    assert lab.play("protect", tags="guard", gb10_node_roots={**ROOTS, "meminfo": MEMINFO}).rc == 0
    note_level(lab, HEAD, None)
    try:
        with ranks(lab, HEAD) as names:
            began = time.time()
            await_record(lab, HEAD, lambda record: record.get("e") == "level" and "without a level" in record["text"], began - 30)
            play_memory(lab, HEAD, COLLAPSE)
            would = await_record(lab, HEAD, lambda record: record.get("e") == "would", began)
            assert "no action: the level is unknown, no facts of this model" in would["text"]
            assert running(lab, HEAD, names) == {"ours", "deaf", "foreign"}
            assert would["text"] in lab.run(HEAD, "journalctl", "--unit=gb10-guard.service", "--no-pager", "--since=-2min")
            assert lab.run(HEAD, "stat", "--format=%a %U %G", RING).split() == ["2750", "root", "adm"]
            refused = lab.run(HEAD, "su", "--shell=/bin/sh", "nobody", "-c", f"ls {RING}; cat {RING}/*", check=False)
            assert "jsonl" not in refused and set(lab.run(HEAD, "sh", "-c", f"stat --format='%a %G' {RING}/*").splitlines()) == {"640 adm"}
            unprivileged = ("su", "--shell=/bin/sh", "nobody", "-c", "cat /var/lib/gb10/guard/said.json")
            assert json.loads(lab.run(HEAD, *unprivileged))["text"] == would["text"]
        assert would["text"] in lab.play("status").said
    finally:
        for host in (HEAD, WORKER):
            lab.run(host, "rm", "-f", MEMINFO)


def steepest(points: t.Sequence[tuple[float, float]]) -> list[float]:
    """The levels of the steepest part of a curve, one per second, interpolated between its points."""
    levels: list[float] = []
    for (begin, level), (end, after) in itertools.pairwise(points):
        levels += [level + (after - level) * step / (end - begin) for step in range(int(end - begin))]
    levels.append(points[-1][1])
    first = max(range(max(1, len(levels) - STEEP)), key=lambda at: levels[at] - min(levels[at : at + STEEP]))
    return [round(level, 3) for level in levels[first : first + STEEP]]


def test_healthy_curves_end_nothing(lab: Lab, no_cluster: None, unguarded: None) -> None:
    """The guard may act in any phase, and the ranks are loading."""
    for host in (HEAD, WORKER):
        play_memory(lab, host, [60])
    assert lab.play("protect", tags="guard", gb10_guard_act="always", gb10_node_roots={**ROOTS, "meminfo": MEMINFO}).rc == 0
    noted = note_level(lab, HEAD, 60)
    try:
        with ranks(lab, HEAD) as names:
            await_record(lab, HEAD, lambda record: record.get("p") == "loading", time.time() - 1)
            began = time.time()
            # From the lowest to the highest, so that memory never falls between two curves. Such a fall would be a collapse that was never recorded.
            curves = sorted(((steepest(entry["points"]), entry["name"]) for entry in CURVES["healthy"]), key=lambda curve: curve[0][0])
            for levels, name in curves:
                # The noted level is 1 GiB below the curve's lowest level.
                note_level(lab, HEAD, min(levels) - 1, noted)
                play_memory(lab, HEAD, [levels[0]] * LEVEL + levels)
                assert running(lab, HEAD, names) == {"ours", "deaf", "foreign"}, f"{name}: {[row for row in records(lab, HEAD) if row['t'] >= began][-40:]}"
            seen = [record for record in records(lab, HEAD) if record["t"] >= began]
            assert len(curves) >= 10 and not [record for record in seen if "signal" in record or record.get("e") == "would"]
            assert min(record["a"] for record in seen if record.get("a")) < 4 * 1024 * 1024, "the lowest levels were seen"
    finally:
        for host in (HEAD, WORKER):
            lab.run(host, "rm", "-f", MEMINFO)


def test_while_they_serve_it_is_only_reported(lab: Lab, no_cluster: None, unguarded: None) -> None:
    for host in (HEAD, WORKER):
        play_memory(lab, host, [60])
    assert lab.play("protect", tags="guard", gb10_node_roots={**ROOTS, "meminfo": MEMINFO}).rc == 0
    note_level(lab, HEAD, 15)
    try:
        with ranks(lab, HEAD) as names:
            await_record(lab, HEAD, lambda record: record.get("p") == "loading", time.time() - 1)
            again = lab.play("protect", tags="guard", gb10_node_roots={**ROOTS, "meminfo": MEMINFO})
            assert again.rc == 0 and again.changed == {}
            pids = [[rank[0], int(lab.run(HEAD, "cat", f"/proc/{rank[0]}/stat").rpartition(")")[2].split()[19])] for rank in records(lab, HEAD)[-1]["r"]]
            lab.write(HEAD, "/var/lib/gb10/guard/served.json", json.dumps({"ranks": pids}))
            began = time.time()
            await_record(lab, HEAD, lambda record: record.get("p") == "serving", began)
            play_memory(lab, HEAD, COLLAPSE)
            would = await_record(lab, HEAD, lambda record: record.get("e") == "would", began)
            assert "gb10_guard_act is loading" in would["text"]
            assert running(lab, HEAD, names) == {"ours", "deaf", "foreign"}
    finally:
        for host in (HEAD, WORKER):
            lab.run(host, "rm", "-f", MEMINFO)


def lab_engine(*argv: str) -> None:
    """Run a command of the Docker engine that runs the nodes."""
    subprocess.run(["docker", *argv], check=True, timeout=120, stdout=subprocess.DEVNULL)


def await_node(lab: Lab, host: str, seconds: float = 90) -> None:
    """Wait until a restarted node is up with its guard."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if lab.run(host, "systemctl", "is-active", "ssh", "docker", "gb10-guard", check=False).split() == ["active"] * 3:
            return
        time.sleep(1)
    raise AssertionError(f"{host} was not up within {seconds} s: {lab.run(host, 'systemctl', '--failed', check=False)}")


def test_a_node_that_is_killed_is_named_with_its_last_minute(lab: Lab, no_cluster: None, unguarded: None, tmp_path: Path) -> None:
    """The node has a slow leak, a thermal throttle, a link flap and a line from the driver. Then all of its processes are killed at once, from outside."""
    for host in (HEAD, WORKER):
        play_memory(lab, host, [60])
    assert lab.play("protect", tags="guard", gb10_node_roots={**ROOTS, "meminfo": MEMINFO}).rc == 0
    none = lab.play("status", tags="postmortem")
    assert none.rc == 0 and "No node is known to have died" in none.said, none.failures
    hot = {"clocks.sm": "1204", "temperature.gpu": "86", "power.draw": "61.5", "utilization.gpu": "96", "clocks_event_reasons.active": "0x0000000000000020"}
    levels = [str(12 - second * 0.05) for second in range(120)]
    try:
        lab.run(WORKER, "sh", "-c", 'python3 -c "$@" > /dev/null 2>&1 &', "player", PLAYER, MEMINFO, *levels)
        time.sleep(45)
        with lab.driver((WORKER,), fields=hot):
            time.sleep(6)
            lab.run(WORKER, "sh", "-c", "ip link set eth1 down; sleep 3; ip link set eth1 up")
            lab.run(WORKER, "sh", "-c", "echo '4,99,1,-;NVRM: Xid (PCI:000f:01:00): 43, pid=7, name=VLLM' >> /run/gb10-lab/kernel.log")
            time.sleep(4)
            killed = time.time()
            lab_engine("kill", "--signal=KILL", f"gb10-lab-{WORKER}")
            gone = lab.play("status", tags="postmortem")
            lab_engine("start", f"gb10-lab-{WORKER}")
            await_node(lab, WORKER)
        assert f"{WORKER} went first" in gone.said and "not sure" in gone.said and "does not answer" in gone.said, gone.failures
        assert gone.stat("gb10_postmortem")["sure"] is False

        shown = lab.play("status", tags="postmortem", gb10_to=str(tmp_path / "why.json"))
        assert shown.rc == 0, shown.failures
        record = shown.stat("gb10_postmortem")
        assert (record["first"], record["sure"]) == (WORKER, True), record
        assert -5 <= record["at"] - killed <= 1, "a kill loses seconds"
        signs = "\n".join(record["nodes"][WORKER]["signs"])
        for sign in ("memory went down slowly", "software thermal", "down to 1204 MHz", "link eth1 went down", "Xid (PCI:000f:01:00): 43"):
            assert sign in signs, signs
        assert not any("memory went down" in sign for sign in record["nodes"][HEAD]["signs"])
        assert shown.said.count("eth1=") >= 55, "the table has its last minute"
        assert json.loads((tmp_path / "why.json").read_text(encoding="utf-8"))["windows"][WORKER]
        again = lab.play("status", tags="postmortem", gb10_to=str(tmp_path / "why.json"))
        assert again.rc != 0 and "is not replaced" in again.said
    finally:
        for host in (HEAD, WORKER):
            lab.run(host, "rm", "-f", MEMINFO)
