# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's half of a pull: it shows how far the node is, until the job is over."""

from __future__ import annotations

import base64
import json
import types

import pytest

from ansible_collections.gb10.cluster.plugins.action import image_copy
from ansible_collections.gb10.cluster.plugins.plugin_utils._progress import node_job


@pytest.fixture
def watched(monkeypatch):
    """Run the watch on a job that ends at its second look; returns its result and what was shown."""
    shown = []
    looks = iter([{"finished": 0}, {"finished": 1, "changed": True, "msg": "pulled"}])
    note = base64.b64encode(json.dumps({"text": "3 of 20 GiB"}).encode()).decode()

    def execute(name, module_args, task_vars):
        if name == "ansible.legacy.slurp":
            return {"content": note}
        return next(looks) if module_args["mode"] == "status" else {}

    action = image_copy.ActionModule.__new__(image_copy.ActionModule)
    action._vars, action._task = {"inventory_hostname": "spark-1"}, types.SimpleNamespace(args={"state": "pulled", "image": "x"})
    monkeypatch.setattr(action, "_execute_module", execute)
    monkeypatch.setattr(action, "_remote_expand_user", lambda path: path)
    monkeypatch.setattr(action, "get_shell_option", lambda _name, default: default)
    monkeypatch.setattr(node_job, "clock", lambda _limit, _pause: iter(range(0, 600, 10)))
    monkeypatch.setattr(node_job, "display", types.SimpleNamespace(display=shown.append))
    return action._watch("j1", 600), shown


def test_the_pull_is_watched_until_it_ends(watched):
    result, shown = watched
    assert (result["changed"], result["msg"]) == (True, "pulled")
    assert len(shown) == 1 and shown[0].startswith("spark-1: copying the image 3 of 20 GiB")
