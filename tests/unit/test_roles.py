# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every role has the same skeleton, and describes its inputs in the same way everywhere."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import jinja2
import pytest
import yaml

ROOT = Path(__file__).parents[2]
ROLES = sorted(path for path in (ROOT / "roles").glob("*") if path.is_dir())
SKELETON = ("README.md", "meta/argument_specs.yml")

each_role = pytest.mark.parametrize("role", ROLES, ids=lambda path: path.name)


def load(path: Path) -> t.Any:
    """Return a YAML file's content; for an empty or missing file an empty mapping."""
    return (yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path.exists() else {}


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
    path = role / "defaults" / "main.yml"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    bare = [
        line for before, line in zip(["", *lines], lines)
        if line[:1].isalpha() and not before.startswith("#")
    ]
    assert bare == []


def merged_twice(node: yaml.Node) -> t.Iterator[str]:
    """Yield the keys of mappings beside a merge (``<<``) that also has them: Ansible warns about each in every run."""
    if isinstance(node, yaml.MappingNode):
        merged = [value for key, value in node.value if key.value == "<<"]
        while any(isinstance(source, yaml.SequenceNode) for source in merged):
            merged = [part for source in merged for part in (source.value if isinstance(source, yaml.SequenceNode) else [source])]
        theirs = {key.value for mapping in merged for key, _value in mapping.value}
        yield from (f"{key.value}, line {key.start_mark.line + 1}" for key, _value in node.value if key.value in theirs)
    for child in node.value if isinstance(node, (yaml.MappingNode, yaml.SequenceNode)) else ():
        for part in child if isinstance(child, tuple) else (child,):
            yield from merged_twice(part)


@pytest.mark.parametrize("path", [str(path.relative_to(ROOT)) for folder in ("roles", "playbooks") for path in sorted((ROOT / folder).rglob("*.yml"))])
def test_no_key_stands_beside_a_merge_that_has_it(path):
    assert list(merged_twice(yaml.compose((ROOT / path).read_text(encoding="utf-8")) or yaml.ScalarNode("", ""))) == []


@pytest.mark.parametrize(
    ("setting", "more", "unit"),
    [
        ("enabled", {}, "enabled"),
        ("present", {}, "present"),
        ("none", {}, "none"),
        ("enabled", {"__gb10_leased": False}, "enabled"),
        # It ends with the boot.
        ("enabled", {"__gb10_leased": True}, "present"),
        ("present", {"__gb10_leased": True}, "present"),
        ("none", {"__gb10_leased": True}, "none"),
        # A rung that hangs the node must not come back.
        ("enabled", {"__ladder_step": {"context": 512, "climbing": True}}, "none"),
        ("present", {"__ladder_step": {"context": 512, "climbing": True}}, "none"),
        ("enabled", {"__ladder_step": {"context": 512, "climbing": False}}, "enabled"),
        ("enabled", {"__ladder_step": {}}, "enabled"),
    ],
)
def test_what_is_brought_up_gets_a_unit_unless_it_is_only_tried_or_leased(setting, more, unit):
    text = load(ROOT / "roles/gb10/vars/main.yml")["__gb10_unit"]
    assert jinja2.Environment(autoescape=False).from_string(text).render(gb10_unit=setting, **more).strip() == unit


def rendered_recipe(mods: dict[str, str] | None = None, **variables: t.Any) -> str:
    """Return the recipe of a node image as the role writes it."""
    environment = jinja2.Environment(autoescape=False, trim_blocks=True, keep_trailing_newline=True)
    environment.filters.update(quote=shlex.quote, to_json=json.dumps)
    template = environment.from_string((ROOT / "roles/image/templates/Dockerfile.j2").read_text(encoding="utf-8"))
    return template.render(__image_mods=mods or {}, **{"gb10_build_pip_env": {}, **variables})


def test_each_mod_is_a_layer_that_is_checked_and_labelled():
    patch = {"sha256": "a" * 64, "package": "vllm"}
    profile = {"image": {"mods": {"fix-parser": {"patches": [patch]}, "extra": {"patches": []}}}}
    recipe = rendered_recipe({"fix-parser": "b" * 64, "extra": "c" * 64}, __gb10_profile=profile)
    assert f"COPY {'a' * 64}.patch /tmp/gb10/" in recipe and "| sha256sum --check" in recipe and "--fuzz=0" in recipe
    (label,) = [line for line in recipe.splitlines() if line.startswith("LABEL io.gb10.mods=")]
    assert json.loads(shlex.split(label)[1].partition("=")[2]) == {"fix-parser": "b" * 64, "extra": "c" * 64}


DIFF = "--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -1,2 +1,2 @@\n a = 1\n-b = 2\n+b = 3\n"


@pytest.mark.parametrize(("before", "fits"), [("a = 1\nb = 2\n", True), ("a = 0\nb = 2\n", False)])
@pytest.mark.parametrize("tool", ["patch", "git"])
def test_a_patch_is_applied_when_it_fits_exactly_and_else_the_build_fails(tmp_path, before, fits, tool):
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not on this machine")
    digest = hashlib.sha256(DIFF.encode()).hexdigest()
    profile = {"image": {"mods": {"fix": {"patches": [{"sha256": digest, "package": "vllm"}]}}}}
    recipe = rendered_recipe({"fix": "b" * 64}, __gb10_profile=profile)
    (command,) = [run for run in recipe.replace("\\\n", "").splitlines() if run.startswith("RUN echo")]
    package, layer, programs = tmp_path / "site" / "vllm", tmp_path / "gb10", tmp_path / "bin"
    for folder in (package, layer, programs):
        folder.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "x.py").write_text(before, encoding="utf-8")
    (layer / f"{digest}.patch").write_text(DIFF, encoding="utf-8")
    for program in ("sha256sum", "rm", tool):
        (programs / program).symlink_to(shutil.which(program))
    (programs / "python3").symlink_to(sys.executable)
    environment = {"PATH": str(programs), "PYTHONPATH": str(tmp_path / "site")}
    script = command.removeprefix("RUN ").replace("/tmp/gb10", str(layer))
    done = subprocess.run(["/bin/sh", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode == 0) is fits, done.stdout + done.stderr
    assert (package / "x.py").read_text(encoding="utf-8") == ("a = 1\nb = 3\n" if fits else before)


@pytest.mark.parametrize(("env", "run"), [({}, "&& PIP_CONSTRAINT= python3 -m pip"), ({"PIP_CONSTRAINT": "/c.txt"}, "&& python3 -m pip")])
def test_a_constraint_of_the_base_does_not_bind_the_layer_and_one_of_the_user_does(env: dict[str, str], run: str) -> None:
    """NGC images set PIP_CONSTRAINT for what users add with pip."""
    recipe = rendered_recipe(gb10_build_pip_env=env)
    assert "mod" not in recipe.lower() and run in recipe and ("ENV PIP_CONSTRAINT=/c.txt" in recipe) is bool(env)
