# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Ray's head reports about its nodes."""

from __future__ import annotations

import pytest
from stage_answers import stopping

from ansible_collections.gb10.cluster.plugins.plugin_utils._stages import ray as stage


def ray(*nodes):
    listed = [{"address": address, "alive": alive, "gpus": gpus} for address, alive, gpus in nodes]
    return {"ray_error": "", "ray_version": "2.60.0", "ray_without_token": "refused", "nodes": listed}


ADDRESSES = {"spark-1": "192.168.100.1", "spark-2": "192.168.100.2"}


@pytest.mark.parametrize(
    ("answer", "ids"),
    [
        (ray(("192.168.100.1", True, 1), ("192.168.100.2", True, 1)), set()),
        (ray(("192.168.100.1", True, 1), ("192.168.100.2", False, 1), ("192.168.100.2", True, 1)), set()),
        (ray(("192.168.100.1", True, 1)), {"ray.node"}),
        (ray(("192.168.100.1", True, 1), ("192.168.100.2", False, 1)), {"ray.node"}),
        (ray(("192.168.100.1", True, 1), ("192.168.100.2", True, 0)), {"ray.node"}),
        (ray(("192.168.100.1", True, 1), ("192.168.100.2", True, 1), ("192.168.100.9", True, 1)), {"ray.stranger"}),
    ],
)
def test_gate(answer, ids):
    assert stopping(stage.gate(answer, ADDRESSES, 1)) == ids


@pytest.mark.parametrize(("came", "verdict"), [("refused", "pass"), ("answered", "block"), ("", "unknown"), ("no answer", "unknown")])
def test_gate_of_the_token(came, verdict):
    answer = {**ray(("192.168.100.1", True, 1), ("192.168.100.2", True, 1)), "ray_without_token": came}
    (finding,) = (finding for finding in stage.gate(answer, ADDRESSES, 1) if finding["id"] == "ray.token")
    assert finding["verdict"] == verdict and ("gb10_ray_version" in finding["remedy"]) is (verdict == "block")


def test_a_head_that_does_not_answer_is_not_taken_for_one_without_nodes():
    (finding,) = stage.gate({**ray(), "ray_error": "no answer within 10 s"}, ADDRESSES, 1)
    assert (finding["id"], finding["verdict"]) == ("ray.node", "unknown") and "no answer within 10 s" in finding["message"]
