# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the proof detects in live ranks: variables that differ between them, and traffic outside the fabric. With Ray and without."""

from __future__ import annotations

import typing as t

import pytest

from .fault import Fault
from .lab import HEAD, WORKER, Lab

pytestmark = pytest.mark.usefixtures("without_units")

EXECUTORS = {"ray": {}, "native": {"gb10_profile": "lab_tiny_native_tp2"}}
#: The name of the interface in NCCL's syntax for an exact match: another value with the same meaning.
OWN = {"NCCL_SOCKET_IFNAME": "=eth1"}
#: Variables that only these libraries read, without an effect here.
MISSING, STALE = {"UCX_LOG_LEVEL": "warn"}, {"LMCACHE_STALE": "22", "WANDB_API_KEY": "4f1c9a77d02b"}


@pytest.fixture(scope="module", params=EXECUTORS)
def profile(lab: Lab, request: pytest.FixtureRequest) -> t.Iterator[dict[str, str]]:
    """A cluster whose containers have their own variables. The inventory now contains only the interface's name."""
    chosen = EXECUTORS[request.param]
    lab.clear()
    lab.write_host_vars(HEAD, {"gb10_host_env": MISSING})
    lab.write_host_vars(WORKER, {"gb10_host_env": {**OWN, **STALE}})
    try:
        # Variables from the inventory may differ between hosts. A secret among them needs the silenced finding.
        played = lab.play(gb10_silenced=["input.env_secret"], **chosen)
        assert played.rc == 0, played.failures
        lab.remove_host_vars(HEAD)
        lab.write_host_vars(WORKER, {"gb10_host_env": OWN})
        yield chosen
    finally:
        lab.remove_host_vars(WORKER)
        lab.clear()


def test_every_variable_that_differs_is_named_with_both_values(lab: Lab, profile: dict[str, str]) -> None:
    """A stale variable in the worker's container, a missing one and a secret are named. Interfaces and variables that Ray sets are not."""
    played = lab.play(tags="proof", **profile)
    assert played.rc != 0
    message = " ".join(played.failures.split())
    assert f"LMCACHE_STALE differs between the live ranks: {HEAD} (not set), {WORKER} 22." in message
    assert f"UCX_LOG_LEVEL differs between the live ranks: {HEAD} warn, {WORKER} (not set)." in message
    assert f"WANDB_API_KEY differs between the live ranks: {HEAD} (not set), {WORKER} <secret>." in message
    assert message.count("differs between the live ranks") == 3
    assert STALE["WANDB_API_KEY"] not in str(played.events)
    shown = lab.play("status", **profile)
    assert shown.stat("gb10_proof") == "unproven" and "unproven: it failed proof.env_same at " in shown.said, shown.said
    # The finding can be silenced, and then the play changes nothing.
    silenced = lab.play(tags="proof", gb10_silenced=["proof.env_same"], **profile)
    assert (silenced.rc, silenced.changed) == (0, {}), silenced.failures
    assert lab.play("status", **profile).stat("gb10_proof") == "proven"


@pytest.mark.parametrize("chosen", EXECUTORS.values(), ids=EXECUTORS)
def test_traffic_over_the_management_network_is_caught(lab: Lab, no_cluster: None, fault: Fault, chosen: dict[str, str]) -> None:
    """The engine serves and gives tokens. Only the counters show which network its collectives use."""
    played = lab.play(gb10_host_env={"GLOO_SOCKET_IFNAME": "eth0"}, **chosen)
    fault.answered(played, "outside the fabric over eth0", "GLOO_SOCKET_IFNAME", where="both")
    assert "proof.fabric" in played.said
    # The engine gives tokens, so it is left running for inspection.
    fault.left(live=True)
    fault.completes(gb10_allow="restart", **chosen)
    assert not lab.play(**chosen).changed
