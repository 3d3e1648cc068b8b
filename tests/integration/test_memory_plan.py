# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory plan before a start, beside a live engine and with other tenants, and the size of the KV cache from the record of a start.

The memory of a lab node is that of the machine underneath, so the nodes read a file with a Spark's figures as their meminfo.
"""

from __future__ import annotations

import typing as t

import pytest
import yaml

from .lab import HEAD, ROOT, RUN, WORKER, Lab
from .test_guard import ROOTS

MEMINFO = "/run/gb10-lab/plan-meminfo"
STARTS = "/var/lib/gb10/gb10/starts.json"
FLAG = "--kv-cache-memory-bytes"
#: The facts of the lab's Llama (tests/lab/engine) as a profile has them.
FACTS = {
    "num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 64,
    "vocab_size": 512, "parameters": 1600000, "weights_bits": 16,
}  # fmt: skip


def put_memory(lab: Lab, available_gib: float) -> None:
    kib = int(available_gib * 1048576)
    for host in (HEAD, WORKER):
        text = f"MemTotal: 127600748 kB\nMemFree: {kib} kB\nMemAvailable: {kib} kB\nBuffers: 0 kB\nCached: 0 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
        lab.write(host, MEMINFO, text)


@pytest.fixture
def planned(lab: Lab, no_cluster: None) -> t.Iterator[dict[str, t.Any]]:
    """Settings with a profile whose model has facts, on nodes without a cluster and without recorded starts. Everything is restored afterwards."""
    kept = {host: lab.run(host, "sh", "-c", f"cat {STARTS} 2>/dev/null; rm -f {STARTS}") for host in (HEAD, WORKER)}
    profile = yaml.safe_load((ROOT / "tests" / "lab" / "profiles" / "lab_tiny_tp2.yml").read_text(encoding="utf-8"))
    profile.update(id="lab_tiny_planned", memory={"config": FACTS})
    profile["serve"]["gpu_memory_utilization"] = 0.5
    path = lab.scratch / "lab_tiny_planned.yml"
    path.write_text(yaml.safe_dump(profile), encoding="utf-8")
    put_memory(lab, 117)
    try:
        yield {"gb10_profile": str(path), "gb10_node_roots": {**ROOTS, "meminfo": MEMINFO}}
    finally:
        lab.clear()
        for host, text in kept.items():
            lab.run(host, "rm", "-f", MEMINFO, STARTS)
            if text:
                lab.write(host, STARTS, text)


def argv(lab: Lab) -> list[str]:
    return lab.json(HEAD, RUN)["argv"]


def test_a_size_of_the_cache_is_applied_once_a_start_is_recorded(lab: Lab, planned: dict[str, t.Any]) -> None:
    refused = lab.play(gb10_kv_cache="recorded", **planned)
    assert refused.rc != 0 and "no start of this image, profile and driver with 2048 tokens is recorded" in refused.said
    assert "-e gb10_kv_cache=profile" in refused.said and not lab.containers(HEAD) and ("image", "Ask what the image holds") not in refused.tasks()

    first = lab.play(**planned)
    assert first.rc == 0, first.failures
    assert FLAG not in argv(lab) and first.stat("gb10_report")["kv_cache"] == {"bytes": None, "why": ""}
    shown = str(lab.play("status").stat("gb10_status"))
    assert shown.count("last proven start: lab_tiny_planned with 2048 tokens took") == 2
    # Without a GPU nothing is compiled.
    cold = first.stat("gb10_report")["cold_start"]
    assert {"image", "weights", "warmup", "first_token", "ready"} <= set(cold["seconds"]) and (cold["compiled"], cold["last"], cold["error"]) == ("", {}, "")
    assert lab.json(HEAD, STARTS)["starts"][-1]["cold_start"] == cold and "cold_start" not in lab.json(WORKER, STARTS)["starts"][-1]
    assert f"start: {cold['seconds']['ready']:.0f} s (" in first.said and f"start: {cold['seconds']['ready']:.0f} s (" in shown

    # The same engine with another cache size is another engine. The old one is not removed without consent, and the new one is admitted in its place.
    kept = lab.play(gb10_kv_cache="recorded", **planned)
    assert kept.rc != 0 and "gb10_allow=restart" in kept.failures and FLAG not in argv(lab)
    applied = lab.play(gb10_kv_cache="recorded", gb10_allow="restart", **planned)
    assert applied.rc == 0, applied.failures
    last = applied.stat("gb10_report")["cold_start"]["last"]
    assert last["seconds"] == cold["seconds"], "the same image and profile"
    report = applied.stat("gb10_report")["kv_cache"]
    given = argv(lab)
    assert given[given.index(FLAG) + 1] == str(report["bytes"]) and report["bytes"] % 2**28 == 0
    assert "confirmed by recorded starts" in report["why"] and f"KV cache: {report['bytes']} bytes" in applied.said

    for check in (False, True):
        again = lab.play(check=check, gb10_kv_cache="recorded", **planned)
        assert (again.rc, again.changed) == (0, {}), again.stdout
    alone = lab.play(tags="serve", gb10_kv_cache="recorded", **planned)
    assert (alone.rc, alone.changed) == (0, {}), alone.stdout

    check_admission(lab, planned)


def check_admission(lab: Lab, planned: dict[str, t.Any]) -> None:
    """Judge a restart beside the live engine. With 2 GiB available the plan does not fit. With the engine's memory as reported by the driver it fits."""
    put_memory(lab, 2)
    restart = {**planned, "gb10_allow": "restart"}
    assert lab.play(tags="preflight", **planned).rc == 0, "what lives is not judged"
    refused = lab.play(tags="preflight", **restart)
    assert refused.rc != 0 and "plan.fits" in refused.said and "no: " in refused.said
    rank = lab.run(HEAD, "pgrep", "--oldest", "--full", "^ray::RayWorkerProc").split()[0]
    other = lab.run(WORKER, "pgrep", "--oldest", "--full", "^ray::RayWorkerProc").split()[0]
    with (
        lab.driver((HEAD,), processes=[{"pid": int(rank), "name": "ray::RayWorkerProc", "used_mib": 117760}]),
        lab.driver((WORKER,), processes=[{"pid": int(other), "name": "ray::RayWorkerProc", "used_mib": 117760}]),
    ):
        admitted = lab.play(tags="preflight", **restart)
        assert admitted.rc == 0, admitted.failures
    with lab.driver(processes=[{"pid": int(rank), "name": "ray::RayWorkerProc", "used_mib": None}]):
        unknown = lab.play(tags="preflight", **restart)
        assert unknown.rc != 0 and any(text in unknown.said for text in ("the driver does not say what the live engine holds", "is unknown, since held."))


def test_what_others_claim_stops_a_start_and_is_named(lab: Lab, planned: dict[str, t.Any]) -> None:
    fits = lab.play(tags="preflight", gb10_tenants=[{"name": "speech", "gib": 6}], **planned)
    assert fits.rc == 0, fits.failures
    claims = [{"name": "speech", "node": WORKER, "gib": 112}, {"name": "ollama", "gib": 2}]
    refused = lab.play(tags="preflight", gb10_tenants=claims, **planned)
    assert refused.rc != 0 and "others there: speech 112 GiB declared, ollama 2 GiB declared" in refused.said
    findings = [finding for finding in refused.stat("gb10_preflight")["findings"] if finding["id"] == "plan.fits"]
    assert [(finding["node"], finding["verdict"]) for finding in findings] == [(WORKER, "block")]
