# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of a container's fields: what versions 1 and 2 recorded, and that the modules document the table."""

from __future__ import annotations

import json
import pathlib

import pytest
import yaml

from ansible_collections.gb10.cluster.plugins.doc_fragments import _docker, _node
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._node import container, fields, native, ray
from ansible_collections.gb10.cluster.plugins.modules import node_container, ray_cluster

FIXTURES = pathlib.Path(__file__).parents[3] / "fixtures" / "node_container"
MODULES = {"ray_cluster": (ray, ray_cluster), "node_container": (native, node_container)}

#: What a container of version 1 lacks.
NEWER = ["only the capabilities that serving needs", "no new privileges for its programs"]
HUB = "a hub cache that it can only read, without the tokens next to it"


def recorded_of(version):
    return json.loads((FIXTURES / f"digest_{version}.json").read_text(encoding="utf-8"))


def each_recorded(version):
    return pytest.mark.parametrize("recorded", recorded_of(version), ids=lambda entry: f"{entry['module']}: {entry['what']}")


each_module = pytest.mark.parametrize("name", MODULES)


def wanted(recorded):
    kind, _module = MODULES[recorded["module"]]
    defaults = {name: option.get("default") for name, option in fields.argument_spec(kind.EXECUTOR).items()}
    return kind.wanted({**defaults, **recorded["options"]}, recorded["image_id"], None)


def there(labels):
    """The container that has these labels, as Docker describes it."""
    state = {"Status": "running", "ExitCode": 0, "OOMKilled": False, "StartedAt": ""}
    return container.existing({"Id": "a", "Name": "/a", "State": state, "Config": {"Labels": labels}})


@each_module
@pytest.mark.parametrize("capability", ["ALL", "cap_sys_admin", "SYS_MODULE"])
def test_no_module_gives_a_container_the_node(name, capability):
    kind, _module = MODULES[name]
    defaults = {option: about.get("default") for option, about in fields.argument_spec(kind.EXECUTOR).items()}
    with pytest.raises(ClusterError, match="by which root of the container is root of the node"):
        kind.wanted({**defaults, **recorded_of(2)[0]["options"], "capabilities": ["IPC_LOCK", capability]}, "sha256:0", None)


# -- what live containers have -------------------------------------------------------------------------------------------


@each_recorded(1)
def test_an_upgrade_recreates_no_container(recorded):
    """A change of this restarts every cluster of every user at the next upgrade: a live container of version 1 stays, and waits for what is new."""
    live, now = there(recorded["labels"]), wanted(recorded)
    assert live.digest.startswith("1:") and now.digest.startswith("2:")
    assert container.changes(live, now) == {}
    assert container.waiting_protections(live, now) == NEWER


@each_recorded(1)
def test_consent_brings_what_waited(recorded):
    live, now = there(recorded["labels"]), wanted(recorded)
    assert container.changes(live, now, protect=True) == {"drop_capabilities": ([], ["ALL"]), "no_new_privileges": (False, True)}


@each_recorded(1)
def test_an_old_container_that_differs_is_seen_to_differ(recorded):
    changed = wanted({**recorded, "options": {**recorded["options"], "env": {**recorded["options"].get("env", {}), "NEW": "1"}}})
    assert container.changes(there(recorded["labels"]), changed)["env.NEW"] == (None, "1")


def mounted(source):
    """Options of a container of version 1 whose hub cache was a mount like any other, and the container."""
    recorded = recorded_of(1)[0]
    own = json.loads(recorded["labels"]["io.gb10.fields"])
    own["mounts"] = [{"source": source, "target": "/root/.cache/huggingface", "read_only": False}]
    labels = {**recorded["labels"], "io.gb10.fields": json.dumps(own), "io.gb10.spec": "1:0"}
    return {**recorded, "options": {**recorded["options"], "hf_home": "/srv/hf"}}, there(labels)


def test_the_hub_cache_that_was_mounted_whole_waits():
    recorded, live = mounted("/srv/hf")
    assert container.changes(live, wanted(recorded)) == {}
    assert container.waiting_protections(live, wanted(recorded)) == [*NEWER, HUB]
    assert {"hf_home", "mounts"} < set(container.changes(live, wanted(recorded), protect=True))


def test_another_hub_cache_is_a_difference():
    recorded, live = mounted("/srv/other")
    assert {"hf_home", "mounts"} < set(container.changes(live, wanted(recorded)))


@each_recorded(2)
def test_a_recorded_container_is_the_wanted_one(recorded):
    now = wanted(recorded)
    assert now.labels == recorded["labels"]
    assert container.changes(there(recorded["labels"]), now, protect=True) == {}
    assert container.waiting_protections(there(recorded["labels"]), now) == []


@each_recorded(2)
def test_fields_alone_recreate_no_container_either(recorded):
    """Should the way of making digests change, the fields are compared."""
    assert container.changes(there({**recorded["labels"], "io.gb10.spec": "0:0"}), wanted(recorded), protect=True) == {}


@each_recorded(2)
def test_docker_gets_what_it_got(recorded):
    payload = container.creation_payload(wanted(recorded), wanted(recorded).paths.cache)
    assert {name: value for name, value in payload.items() if name != "labels"} == recorded["payload"]


def test_the_hub_is_read_only_and_nothing_beside_it_is_mounted():
    payload = container.creation_payload(wanted({**recorded_of(1)[0], "options": {**recorded_of(1)[0]["options"], "hf_home": "/srv/hf"}}), "/cache")
    assert [mount for mount in payload["mounts"] if mount["Source"].startswith("/srv")] == [
        {"Type": "bind", "Source": "/srv/hf/hub", "Target": "/root/.cache/huggingface/hub", "ReadOnly": True}
    ]


@pytest.mark.parametrize(("given", "core"), [({}, 0), ({"core": -1}, -1)])
def test_an_engine_that_crashes_leaves_no_memory_image(given, core):
    entry = recorded_of(2)[0]
    now = wanted({**entry, "options": {**entry["options"], "ulimits": {"memlock": -1, "stack": 67108864, **given}}})
    limits = container.creation_payload(now, "/cache")["ulimits"]
    assert [limit for limit in limits if limit["Name"] == "core"] == [{"Name": "core", "Soft": core, "Hard": core}]
    if not given:
        assert now.digest == entry["labels"]["io.gb10.spec"], "the limit does not count"


# -- the table and the documentation -------------------------------------------------------------------------------------


def comparable(option):
    """Return what an option's documentation and its entry in an argument specification must have in common."""
    nested = option.get("suboptions") or option.get("options") or {}
    described = {name: option.get(name) for name in ("type", "choices", "elements", "default")}
    return {**described, "required": option.get("required", False), "options": {name: comparable(entry) for name, entry in nested.items()}}


@each_module
def test_the_documented_options_are_those_of_the_table(name):
    kind, module = MODULES[name]
    texts = (module.DOCUMENTATION, _node.ModuleDocFragment.DOCUMENTATION, _docker.ModuleDocFragment.DOCUMENTATION)
    documented = {option: entry for text in texts for option, entry in yaml.safe_load(text)["options"].items()}
    spec = fields.argument_spec(kind.EXECUTOR)
    assert {option: comparable(entry) for option, entry in documented.items()} == {option: comparable(entry) for option, entry in spec.items()}
    assert all(entry["description"] for entry in documented.values())


def test_every_executor_has_its_functions():
    """They are chosen by the executor, so they must have the same names and parameters."""
    for name in ("wanted", "to_remove_first", "engine_is_gone", "wait"):
        ours = [function.__code__.co_varnames[: function.__code__.co_argcount] for function in (getattr(ray, name), getattr(native, name))]
        assert [field.lstrip("_") for field in ours[0]] == [field.lstrip("_") for field in ours[1]], name
    assert {ray.EXECUTOR, native.EXECUTOR} == set(fields.EXECUTORS) == {name for field in fields.FIELDS for name in field.executors}


def test_fields_are_named_once():
    names = [field.name for field in fields.FIELDS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("field", fields.FIELDS, ids=lambda field: field.name)
def test_only_what_counts_reaches_docker(field):
    """An option that adds to the payload and not to the digest could never be changed."""
    if field.option and "default" in field.option and field.payload(field.option["default"]):
        assert field.counts
    assert field.counts or field.option or field.absent is not fields.NEVER_ABSENT
