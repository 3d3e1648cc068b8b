# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which options and states each unit has."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.modules import node_service


def params(name: str, state: str, **more: t.Any) -> dict[str, t.Any]:
    options = {"guard": {}, "sweep": {"start_timeout": 3600}, "recover": {}, "lease": {}}
    return {"name": name, "state": state, "specification": None, "start_timeout": 300, **options, **more}


@pytest.mark.parametrize(
    ("name", "state", "what"),
    [
        ("engine", "serving", "state is serving, expected present, kept, absent with name=engine"),
        ("companions", "kept", "state is kept, expected present, absent with name=companions"),
        ("guard", "renewed", "state is renewed, expected present, absent, serving with name=guard"),
        ("engine", "present", "missing with name=engine: specification"),
        ("sweep", "present", "missing with name=sweep: sweep.node"),
        ("recover", "present", "missing with name=recover: specification, recover.node, recover.head"),
        ("recover", "kept", "state is kept, expected present, absent with name=recover"),
        ("lease", "present", "missing with name=lease: lease.lease_id, lease.holder, lease.mode, lease.clusters"),
        ("lease", "given_up", "missing with name=lease: lease.lease_id"),
    ],
)
def test_what_a_unit_does_not_have_is_refused(name: str, state: str, what: str) -> None:
    with pytest.raises(ClusterError, match=what):
        node_service.params_of(params(name, state))


def test_options_of_a_unit_are_below_its_name() -> None:
    assert node_service.params_of(params("sweep", "absent"))["start_timeout"] == 3600
    assert node_service.params_of(params("engine", "absent"))["start_timeout"] == 300
    assert node_service.params_of(params("lease", "renewed", lease={"lease_id": "abc"}))["lease_id"] == "abc"


def test_every_state_of_a_unit_can_be_given() -> None:
    documented = node_service.DOCUMENTATION
    states = {state for service in node_service.SERVICES.values() for state in service.NEEDS}
    assert f"choices: [{', '.join(node_service.SERVICES)}]" in documented and all(f"V({state})" in documented for state in states)
