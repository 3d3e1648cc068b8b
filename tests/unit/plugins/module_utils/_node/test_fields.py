# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of a container's fields: what was recorded of version 1, and that the modules document what the table says."""

from __future__ import annotations

import json
import pathlib

import pytest
import yaml

from ansible_collections.gb10.cluster.plugins.doc_fragments import _docker, _node
from ansible_collections.gb10.cluster.plugins.module_utils._node import container, fields, native, ray
from ansible_collections.gb10.cluster.plugins.modules import node_container, ray_cluster

RECORDED = json.loads((pathlib.Path(__file__).parents[3] / "fixtures" / "node_container" / "digest_1.json").read_text(encoding="utf-8"))
MODULES = {"ray_cluster": (ray, ray_cluster), "node_container": (native, node_container)}

each_recorded = pytest.mark.parametrize("recorded", RECORDED, ids=lambda one: f"{one['module']}: {one['what']}")
each_module = pytest.mark.parametrize("name", MODULES)


def wanted(recorded):
    kind, _module = MODULES[recorded["module"]]
    defaults = {name: option.get("default") for name, option in fields.argument_spec(kind.EXECUTOR).items()}
    return kind.wanted({**defaults, **recorded["options"]}, recorded["image_id"], None)


# -- what live containers of version 1 have ------------------------------------------------------------------------------


@each_recorded
def test_an_upgrade_recreates_no_container(recorded):
    """Whoever changes a recorded digest restarts every cluster of every user at the next upgrade. Fields may be added."""
    labels = wanted(recorded).labels
    assert {**labels, "io.gb10.fields": recorded["labels"]["io.gb10.fields"]} == recorded["labels"]
    assert json.loads(recorded["labels"]["io.gb10.fields"]).items() <= json.loads(labels["io.gb10.fields"]).items()


@each_recorded
def test_fields_alone_recreate_no_container_either(recorded):
    """Should the way of making digests change, the fields are compared."""
    there = container.existing(
        {
            "Id": "a",
            "Name": "/a",
            "State": {"Status": "running", "ExitCode": 0, "OOMKilled": False, "StartedAt": ""},
            "Config": {"Labels": {**recorded["labels"], "io.gb10.spec": "0:0"}},
        }
    )
    assert container.changes(there, wanted(recorded)) == {}


@each_recorded
def test_docker_gets_what_it_got(recorded):
    payload = container.creation_payload(wanted(recorded))
    assert {name: value for name, value in payload.items() if name != "labels"} == recorded["payload"]


# -- the table and the documentation -------------------------------------------------------------------------------------


def comparable(option):
    """Return what an option's documentation and its entry in an argument specification must have in common."""
    nested = option.get("suboptions") or option.get("options") or {}
    said = {name: option.get(name) for name in ("type", "choices", "elements", "default")}
    return {**said, "required": option.get("required", False), "options": {name: comparable(entry) for name, entry in nested.items()}}


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
        assert [one.lstrip("_") for one in ours[0]] == [one.lstrip("_") for one in ours[1]], name
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
