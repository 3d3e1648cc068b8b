# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every module of the collection ends in one place, and no secret passes it."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState

KEY = "Zk3v9PqL0aWb7"
MODULES = Path(_module.__file__).parents[1] / "modules"


class Module:
    """A fake of AnsibleModule that keeps the result of its exit."""

    def __init__(self, **params):
        self.params = params
        self.no_log_values = set()

    def exit_json(self, **result):
        self.left = {**result, "failed": False}

    def fail_json(self, **result):
        self.left = {**result, "failed": True}


@pytest.fixture
def key_file(tmp_path):
    (tmp_path / "api_key").write_text(f"{KEY}\n")
    return str(tmp_path / "api_key")


def left(work, **params):
    module = Module(**params)
    _module.run(module, work)
    return module.left


def test_a_result_leaves_without_secrets(key_file):
    processes = [{"argv": ["vllm", "serve", "--api-key", "A", "B", "--port", "1"]}]
    result = left(lambda module: {"msg": f"a {KEY} b", "processes": processes, "lines": [json.dumps({"x": KEY})]}, api_key_file=key_file)
    assert result["msg"] == "a <secret api_key> b" and result["lines"] == ['{"x": "<secret api_key>"}']
    assert result["processes"][0]["argv"] == ["vllm", "serve", "--api-key", "<secret>", "<secret>", "--port", "1"]
    assert KEY not in json.dumps(result) and not result["failed"]


@pytest.mark.parametrize("family", [ClusterError, UnknownState])
def test_a_failure_leaves_without_secrets(key_file, family):
    def work(module):
        raise family(f"refused {KEY}", remedy="curl -H 'X-Api-Key: abc' x", raw=f"HF_TOKEN=abc {KEY}")

    result = left(work, api_key_file=key_file)
    assert result["failed"] and result["msg"] == "refused <secret api_key>" and result["verdict"] == family.verdict
    assert result["remedy"] == "curl -H 'X-Api-Key: <secret>' x" and result["raw"] == "HF_TOKEN=<secret> <secret api_key>"


def test_a_crash_is_a_failure_without_secrets(key_file):
    def work(module):
        raise KeyError(f"https://user:{KEY}@host")

    result = left(work, api_key_file=key_file)
    assert result["failed"] and result["verdict"] == "unknown" and "KeyError" in result["msg"]
    assert "in work" in result["traceback"] and KEY not in json.dumps(result)


def test_options_are_shown_without_secrets():
    result = left(lambda module: {}, env={"PROXY": "http://u:p@proxy", "DB_PASSWORD": "abc"})
    assert result["invocation"] == {"module_args": {"env": {"PROXY": "http://<secret>@proxy", "DB_PASSWORD": "<secret>"}}}


def test_warnings_are_left_to_ansible_with_the_known_secrets(key_file):
    module = Module(api_key_file=key_file)
    _module.run(module, lambda module: {})
    assert module.no_log_values == {KEY}


@pytest.mark.parametrize("path", sorted(MODULES.glob("*.py")), ids=lambda path: path.stem)
def test_no_module_has_another_exit(path):
    names = {node.attr for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Attribute)}
    assert not names & {"exit_json", "fail_json"}
