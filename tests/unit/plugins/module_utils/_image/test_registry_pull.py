# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pulling an image, with an engine in memory; and the controller's part, with a node that gives set answers."""

from __future__ import annotations

import base64
import json
import types

import pytest

from ansible_collections.gb10.cluster.plugins.action import image_copy as action
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import NotFound
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._files import copy_job
from ansible_collections.gb10.cluster.plugins.module_utils._image import pulling, registry_pull
from ansible_collections.gb10.cluster.plugins.plugin_utils._progress import node_job

BY_DIGEST, TAG = "r/vllm@sha256:cd", "r/vllm:1"


class Engine:
    """Has images by name; pulls a requested image with these events."""

    def __init__(self, names=(), events=({"status": "Pull complete", "id": "a"},)):
        self.names, self.events, self.notes = dict(names), events, []

    def image(self, name):
        return {"Id": self.names[name]} if name in self.names else None

    def pull(self, image):
        yield from self.events
        self.names[image] = "sha256:i"

    def tag(self, image, name):
        self.names[name] = self.names[image]


@pytest.fixture
def call(tmp_path, monkeypatch):
    def call(engine, *, check_mode=False, **params):
        monkeypatch.setattr(registry_pull, "Docker", lambda socket, timeout: engine)
        defaults = {"image": BY_DIGEST, "tag": TAG, "timeout": 60, "state_dir": str(tmp_path / "state"), "docker_socket": "", "docker_timeout": 1}
        return registry_pull.work(types.SimpleNamespace(params={**defaults, **params}, check_mode=check_mode))

    return call


def test_an_image_is_pulled_and_tagged_once(call):
    engine = Engine()
    first = call(engine)
    assert first["changed"] and first["actions"] == [f"pull {BY_DIGEST}", f"tag it {TAG}"] and first["image_id"] == "sha256:i"
    assert engine.names == {BY_DIGEST: "sha256:i", TAG: "sha256:i"}
    again = call(engine)
    assert not again["changed"] and again["diff"]["before"] == again["diff"]["after"]


def test_a_tag_that_is_another_image_is_moved(call):
    engine = Engine({BY_DIGEST: "sha256:i", TAG: "sha256:old"})
    assert call(engine)["actions"] == [f"tag it {TAG}"] and engine.names[TAG] == "sha256:i"


def test_check_mode_predicts(call):
    engine = Engine()
    result = call(engine, check_mode=True)
    assert result["changed"] and result["image_id"] is None and engine.names == {}


def test_the_progress_file_exists_only_during_the_pull(call, tmp_path, monkeypatch):
    monkeypatch.setattr(copy_job, "NOTE_SECONDS", 0.0)
    path = tmp_path / "state" / pulling.note_path("", BY_DIGEST)
    seen = []

    class Looking(Engine):
        def pull(self, image):
            yield {"status": "Already exists", "id": "a"}
            seen.append(json.loads(path.read_text()))
            yield from super().pull(image)

    call(Looking())
    assert seen == [{"text": "0.0 of 0.0 GiB downloaded, 1 of 1 layers unpacked"}] and not path.exists()


def test_a_failure_and_a_pull_without_end_leave_no_note(call, tmp_path):
    with pytest.raises(ClusterError, match="manifest unknown"):
        call(Engine(events=[{"error": "manifest unknown"}]))
    with pytest.raises(WaitTimeout, match=r"not pulled within 0 s; last seen: 0.0 of 0.0 GiB"):
        call(Engine(), timeout=0)
    assert not list(tmp_path.rglob("*.json"))


def test_an_image_without_a_registry_has_a_remedy(call):
    class Empty(Engine):
        def pull(self, image):
            yield from ()
            raise NotFound(f"pulling image {image}: manifest unknown")

    with pytest.raises(ClusterError, match="manifest unknown") as caught:
        call(Empty())
    assert "Correct image.base" in caught.value.remedy and caught.value.reason == "no image"


# -- the controller's half -------------------------------------------------------------------------------------------


@pytest.fixture
def controller(monkeypatch):
    """The action plugin with a node whose job has these statuses; its calls and its lines are recorded."""

    def make(statuses, check_mode=False, **args):
        plugin = object.__new__(action.ActionModule)
        plugin._task = types.SimpleNamespace(check_mode=check_mode, async_val=0, args={"state": "pulled", "image": BY_DIGEST, **args})
        calls, shown = [], []
        note = base64.b64encode(json.dumps({"text": "1.0 of 2.0 GiB downloaded"}).encode()).decode()

        def execute(name, module_args=None, task_vars=None, wrap_async=False):
            calls.append((name, (module_args or {}).get("mode") or ("job" if wrap_async else ""), plugin._task.async_val))
            if name == "ansible.legacy.slurp":
                return {"content": note}
            if name == "ansible.legacy.async_status":
                return statuses.pop(0) if module_args["mode"] == "status" else {}
            return {"ansible_job_id": "j1", "started": True} if wrap_async else {"changed": True}

        monkeypatch.setattr(node_job.ActionBase, "run", lambda *_args: {})
        monkeypatch.setattr(plugin, "_execute_module", execute)
        monkeypatch.setattr(plugin, "get_shell_option", lambda *_args, **_options: "~/.ansible_async")
        monkeypatch.setattr(plugin, "_remote_expand_user", lambda path: path)
        monkeypatch.setattr(node_job.display, "display", shown.append)
        monkeypatch.setattr(node_job, "clock", lambda timeout, sleep: iter(float(second) for second in range(int(timeout))))
        return plugin.run(None, {"inventory_hostname": "spark-1"}), calls, shown

    return make


def test_lines_show_the_progress_until_the_jobs_result(controller):
    result, calls, shown = controller([*[{"finished": 0}] * 5, {"finished": 1, "changed": True, "msg": "pulled", "ansible_job_id": "j1", "stdout": ""}])
    assert result == {"changed": True, "msg": "pulled"}
    assert shown == ["spark-1: pulling 1.0 of 2.0 GiB downloaded, 00:05"]
    assert calls[0] == (action.ActionModule.MODULE, "job", 7260) and calls[1][2] == 0
    assert [mode for _name, mode, _async in calls[1:]] == [*["status"] * 5, "", "status", "cleanup"]


def test_a_job_without_an_end_is_aborted(controller):
    result, _calls, _shown = controller([{"finished": 0}] * 100, timeout=20)
    assert result["failed"] and result["msg"] == "pulling did not end within 80 s"


def test_check_mode_starts_no_job(controller):
    result, calls, _shown = controller([], check_mode=True)
    assert result == {"changed": True} and calls == [(action.ActionModule.MODULE, "", 0)]
