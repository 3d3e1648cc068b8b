# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every role has the same skeleton, and says the same about its inputs in each place where it says it."""

from __future__ import annotations

import shlex
import typing as t
from pathlib import Path

import jinja2
import pytest
import yaml

ROOT = Path(__file__).parents[2]
ROLES = sorted(path for path in (ROOT / "roles").glob("*") if path.is_dir())
SKELETON = ("README.md", "defaults/main.yml", "meta/argument_specs.yml", "tasks/main.yml")

each_role = pytest.mark.parametrize("role", ROLES, ids=lambda path: path.name)


def load(path: Path) -> t.Any:
    """Return what a YAML file says; an empty file is an empty mapping."""
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {}


def options_of(role: Path) -> dict[str, dict[str, t.Any]]:
    """Return the options of all entry points of a role; where two share an option they must agree."""
    options: dict[str, dict[str, t.Any]] = {}
    for entry_point in load(role / "meta" / "argument_specs.yml")["argument_specs"].values():
        for name, option in entry_point.get("options", {}).items():
            assert options.setdefault(name, option).get("default") == option.get("default"), name
    return options


@each_role
@pytest.mark.parametrize("file", SKELETON)
def test_skeleton_is_complete(role: Path, file: str) -> None:
    assert (role / file).is_file()


@each_role
def test_every_default_is_documented_and_nothing_else_is_optional(role: Path) -> None:
    defaults = set(load(role / "defaults" / "main.yml"))
    options = options_of(role)
    without_default = {name for name, option in options.items() if option.get("required") or "default" not in option}
    assert defaults - set(options) == set()
    assert set(options) - without_default - defaults == set()


@each_role
def test_defaults_have_the_documented_values(role: Path) -> None:
    options = options_of(role)
    defaults = load(role / "defaults" / "main.yml")
    documented = {name: options[name]["default"] for name in defaults if "default" in options[name]}
    assert {name: defaults[name] for name in documented} == documented


@each_role
def test_names_carry_the_role_or_the_collection(role: Path) -> None:
    assert [name for name in options_of(role) if not name.startswith((f"{role.name}_", "gb10_"))] == []


@each_role
def test_entry_points_are_described(role: Path) -> None:
    for name, entry_point in load(role / "meta" / "argument_specs.yml")["argument_specs"].items():
        assert entry_point["short_description"] and entry_point["description"], name
        assert (role / "tasks" / f"{name}.yml").is_file(), name


@each_role
def test_every_default_has_a_comment(role: Path) -> None:
    lines = (role / "defaults" / "main.yml").read_text(encoding="utf-8").splitlines()
    bare = [
        line for before, line in zip(["", *lines], lines)
        if line[:1].isalpha() and not before.startswith("#")
    ]
    assert bare == []


def merged_twice(node: yaml.Node) -> t.Iterator[str]:
    """Give the keys of mappings that stand beside a merge (``<<``) which has them, too: Ansible warns of each at every run."""
    if isinstance(node, yaml.MappingNode):
        merged = [value for key, value in node.value if key.value == "<<"]
        while any(isinstance(one, yaml.SequenceNode) for one in merged):
            merged = [part for one in merged for part in (one.value if isinstance(one, yaml.SequenceNode) else [one])]
        theirs = {key.value for one in merged for key, _value in one.value}
        yield from (f"{key.value}, line {key.start_mark.line + 1}" for key, _value in node.value if key.value in theirs)
    for child in node.value if isinstance(node, (yaml.MappingNode, yaml.SequenceNode)) else ():
        for part in child if isinstance(child, tuple) else (child,):
            yield from merged_twice(part)


@pytest.mark.parametrize("path", [str(path.relative_to(ROOT)) for folder in ("roles", "playbooks") for path in sorted((ROOT / folder).rglob("*.yml"))])
def test_no_key_stands_beside_a_merge_that_has_it(path):
    assert list(merged_twice(yaml.compose((ROOT / path).read_text(encoding="utf-8")) or yaml.ScalarNode("", ""))) == []


@pytest.mark.parametrize(("env", "run"), [({}, "&& PIP_CONSTRAINT= python3 -m pip"), ({"PIP_CONSTRAINT": "/c.txt"}, "&& python3 -m pip")])
def test_a_constraint_of_the_base_does_not_bind_the_layer_and_one_of_the_user_does(env: dict[str, str], run: str) -> None:
    """NGC images set PIP_CONSTRAINT for what users add with pip."""
    environment = jinja2.Environment(autoescape=False)
    environment.filters["quote"] = shlex.quote
    recipe = environment.from_string((ROOT / "roles/image/templates/Dockerfile.j2").read_text(encoding="utf-8")).render(gb10_build_pip_env=env)
    assert run in recipe and ("ENV PIP_CONSTRAINT=/c.txt" in recipe) is bool(env)
