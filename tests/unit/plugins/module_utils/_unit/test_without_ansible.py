# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A module that a unit runs has the arguments that it would have from Ansible."""

from __future__ import annotations

import importlib
import io
import json
import sys
import types
import typing as t

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gb10.cluster.plugins.module_utils._unit import specification, steps, without_ansible

#: What a module is given beside its defaults, as a play may type it.
GIVEN: dict[str, dict[str, t.Any]] = {
    "cuda_zombie_check": {"roots": {"proc_root": "/p"}, "tool_timeout": "7", "fail_on": "warn,block", "wait": "no", "earlier": {"a": [1]}},
    "node_samples_info": {"source": "memory", "expected": '{"mb": 7}', "roots": {"meminfo": "/m", "kernel_log": "auto"}},
    "vllm_serve_info": {"sample_s": "1.5", "log_offset": 9, "probe": 1, "ray_offsets": None},
    "page_cache_drop": {"level": "3", "paths": ["$HOME/x", "~/y"], "compact": "off"},
    "node_service": {"name": "guard", "state": "serving", "guard": {"addresses": ["10.0.0.1"]}, "lease": {"clusters": "a,b"}},
    "cluster_lock": {"holder": {"user": "ada", "pid": 7}, "nodes": []},
    "vllm_serve": {"model": "org/name"},
}


class Made(Exception):
    """Has what a module wants of AnsibleModule."""


def spec_of(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, t.Any]:
    module = importlib.import_module(f"{steps.MODULES}.{name}")

    def made(argument_spec: dict[str, t.Any], **_rules: t.Any) -> t.NoReturn:
        raise Made(argument_spec)

    monkeypatch.setattr(module, "AnsibleModule", made)
    with pytest.raises(Made) as caught:
        module.main()
    return caught.value.args[0]


@pytest.mark.parametrize("name", specification.MODULES)
def test_arguments_are_those_that_ansible_makes(name, monkeypatch):
    spec = spec_of(name, monkeypatch)
    needed = {word: option.get("choices", ["x"])[0] for word, option in spec.items() if option.get("required")}
    for given in (needed, {**needed, **GIVEN.get(name, {})}):
        wanted = ArgumentSpecValidator(spec).validate(given)
        assert wanted.error_messages == []
        assert without_ansible.converted(spec, given) == wanted.validated_parameters


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"other": 1}, "unsupported parameters: other"),
        ({}, "missing required arguments: name"),
        ({"name": "x", "count": "many"}, "argument 'count' is 'many', which cannot be converted to int"),
        ({"name": "x", "on": "perhaps"}, "argument 'on' is 'perhaps', which cannot be converted to bool"),
        ({"name": "y"}, "value of name must be one of: x, got: y"),
    ],
)
def test_what_cannot_be_used_fails_as_a_module_does(given, says, monkeypatch, capsys):
    spec = {"name": {"required": True, "choices": ["x"]}, "count": {"type": "int"}, "on": {"type": "bool"}}
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(json.dumps({"ANSIBLE_MODULE_ARGS": given}).encode())))
    with pytest.raises(SystemExit) as caught:
        without_ansible.AnsibleModule(spec)
    assert caught.value.code == 1 and json.loads(capsys.readouterr().out) == {"changed": False, "failed": True, "msg": says, "warnings": []}


def test_a_result_is_printed_with_its_warnings(monkeypatch, capsys):
    arguments = {"ANSIBLE_MODULE_ARGS": {"_ansible_check_mode": True, "name": 7}}
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(json.dumps(arguments).encode())))
    module = without_ansible.AnsibleModule({"name": {}}, supports_check_mode=True, required_if=[])
    assert module.check_mode and module.params == {"name": "7"} and module.no_log_values == set()
    module.warn("look")
    with pytest.raises(SystemExit) as caught:
        module.exit_json(changed=True, names={"a"})
    assert caught.value.code == 0 and json.loads(capsys.readouterr().out) == {"changed": True, "names": ["a"], "warnings": ["look"]}
