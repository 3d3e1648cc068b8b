# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every command that the README and the documentation show, tried as far as possible without a node; commands.yml lists how, and which test runs the rest.

All of it happens in a copy of the clone, with a home directory of its own.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
#: Where commands are shown to people, beside the comments that some files begin with.
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "tests" / "lab" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMENTED = [ROOT / "execution-environment.yml", *sorted((ROOT / "playbooks").glob("*.yml"))]

#: The programs that a documented command begins with.
PROGRAMS = frozenset({
    "./gb10", "ansible", "ansible-builder", "ansible-doc", "ansible-galaxy", "ansible-playbook", "ansible-vault", "antsibull-docs", "cp", "curl", "export",
    "make", "molecule", "pip", "pytest", "python", "python3", "ssh",
})
#: Seconds for one command.
TIMEOUT = 180

_ASSIGNMENT = re.compile(r"(?:[A-Z][A-Z0-9_]*=\S*\s+)*")
#: An explanation after a command: a comment, or words in brackets, both after a space.
_ASIDE = re.compile(r"\s{2,}(#|\(|[a-z]).*$|\s+# .*$")


# -- finding commands ------------------------------------------------------------------------------------------------


def is_command(line: str) -> bool:
    """Whether a line of code begins with a program of :data:`PROGRAMS`, with more behind it."""
    words = _ASSIGNMENT.sub("", line, count=1).split()
    return len(words) > 1 and words[0] in PROGRAMS


def plain(line: str) -> str:
    """Return a command without prompt and aside, its words set apart by one space."""
    return " ".join(_ASIDE.sub("", line.strip().removeprefix("$ ")).split())


def joined(lines: t.Iterable[str]) -> t.Iterator[str]:
    """Yield lines, those that end in a backslash together with the next."""
    kept = ""
    for line in lines:
        kept += line
        if kept.endswith("\\"):
            kept = kept[:-1]
            continue
        yield kept
        kept = ""


def of_markdown(text: str) -> set[str]:
    """Return the commands of a page: lines of its blocks of code, fenced or set in, and code within a line. A line after a prompt is always one."""
    commands, prose, fenced = set(), [], False
    for line in joined(text.splitlines()):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            if line.strip().startswith("$ ") or is_command(line.strip()):
                commands.add(plain(line))
        else:
            prose.append(line)
    return commands | {plain(code) for code in re.findall(r"`([^`]+)`", "\n".join(prose)) if is_command(" ".join(code.split()))}


def of_comments(text: str) -> set[str]:
    """Return the commands in the comments of a file: lines that are set in."""
    return {plain(line[1:]) for line in text.splitlines() if line.startswith("#   ") and is_command(line[1:].strip())}


def shown() -> dict[str, list[str]]:
    """Return every command that is shown, and where."""
    places: dict[str, list[str]] = {}
    for path in (*PAGES, *COMMENTED):
        text = path.read_text(encoding="utf-8")
        for command in of_comments(text) if path in COMMENTED else of_markdown(text):
            places.setdefault(command, []).append(str(path.relative_to(ROOT)))
    return places


# -- what is known of them ------------------------------------------------------------------------------------------

TABLE = {entry["command"]: entry for entry in yaml.safe_load((HERE / "commands.yml").read_text(encoding="utf-8"))}
#: Names of an inventory on the pages that represents the reader's own.
INVENTORIES = re.compile(r"(?<= -i )(inventories/(mine|NAME)|\./gb10-inventory)(?= )")
#: What asks for a password at a terminal, which no test has.
ASKS = re.compile(r" (-K|--ask-become-pass)(?= |$)")


def key(command: str) -> str:
    """Return the command as the table has it."""
    return INVENTORIES.sub("INVENTORY", ASKS.sub("", command))


SHOWN: dict[str, list[str]] = {}
for _command, _places in shown().items():
    SHOWN.setdefault(key(_command), []).extend(_places)


def of(how: str) -> list[str]:
    """Return the commands of the table that are tested in one way, those that are shown."""
    return [command for command, entry in TABLE.items() if entry["how"] == how]


def test_every_command_is_in_the_table() -> None:
    assert {command: places for command, places in SHOWN.items() if command not in TABLE} == {}


def test_every_command_of_the_table_is_shown() -> None:
    assert sorted(set(TABLE) - set(SHOWN)) == []


def test_entries_are_of_a_kind_that_is_understood() -> None:
    keys = {"here": {"elsewhere", "add", "prints"}, "tasks": {"by"}, "make": {"by"}, "by": {"by"}}
    for command, entry in TABLE.items():
        assert set(entry) <= {"command", "how"} | keys[entry["how"]], command
        assert entry["how"] == "here" or entry.get("by"), f"{command}: no test runs it"


def test_what_the_extraction_finds() -> None:
    page = """Type `make demo` or `vllm serve`, or `ansible`.

    ansible-playbook -i inventories/NAME a.yml

```console
$ strange thing
$ make x       # why
make y
output
$ ansible-playbook p.yml -e '{"a": "b  # c"}'
curl one \\
  --two
```
"""
    assert of_markdown(page) == {
        "make demo", "ansible-playbook -i inventories/NAME a.yml", "strange thing", "make x", "make y", "curl one --two",
        "ansible-playbook p.yml -e '{\"a\": \"b",
    }


# -- who runs the rest ----------------------------------------------------------------------------------------------

PARTS = yaml.safe_load((ROOT / "tests" / "parts.yml").read_text(encoding="utf-8"))["parts"]
#: Commands of all parts, one per line.
OF_PARTS = "\n".join(command for part in PARTS.values() for command in part["commands"])


def functions(path: Path) -> set[str]:
    """Return the names of a file's functions."""
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


def runs(path: str, commands: str = OF_PARTS) -> bool:
    """Whether a part, or one of these commands, runs the tests of this file, by its own name or by a directory's above it, or the program in it."""
    names = [path, *(str(parent) for parent in Path(path).parents if str(parent) != ".")]
    if path.startswith("molecule/"):
        return bool(re.search(rf"^molecule test -s {Path(path).parts[1]}$", commands, re.MULTILINE))
    if re.search(rf"^python {re.escape(path)}( |$)", commands, re.MULTILINE):
        return True
    return any(re.search(rf"^pytest\b.* {re.escape(name)}(\s|$)", commands, re.MULTILINE) for name in names)


def doubt(proof: str) -> str:
    """Return what is wrong with an entry of `by`, empty when it names something that is there and is run."""
    path, _colons, function = proof.partition("::")
    if proof.startswith("part "):
        return "" if proof.removeprefix("part ") in PARTS else "no such part"
    if re.fullmatch(r"molecule/\w+", proof):
        there = (ROOT / proof / "molecule.yml").is_file()
        return "" if there and runs(f"{proof}/molecule.yml") else "no such scenario, or no part runs it"
    if not (ROOT / path).is_file():
        return "no such file"
    if not function:
        return ""
    if function not in functions(ROOT / path):
        return "no such test"
    return "" if runs(path) else "no part runs it"


@pytest.mark.parametrize("command", [command for command, entry in TABLE.items() if entry.get("by")])
def test_who_runs_it_is_there(command: str) -> None:
    assert {proof: doubt(proof) for proof in TABLE[command]["by"] if doubt(proof)} == {}


@pytest.mark.parametrize(("proof", "why"), [
    ("part nothing", "no such part"), ("molecule/nothing", "no such scenario, or no part runs it"), ("tests/nothing.py::test_a", "no such file"),
    ("tests/integration/test_prune.py::test_nothing", "no such test"), ("tests/tools/run_parts.py::main", "no part runs it"),
])
def test_a_wrong_proof_is_seen(proof: str, why: str) -> None:
    assert doubt(proof) == why


# -- running them ---------------------------------------------------------------------------------------------------


class Clone:
    """A copy of the clone in which commands are typed."""

    def __init__(self, place: Path) -> None:
        self.path = place / "clone"
        self.home = place / "home"
        self.home.mkdir()
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file() or (ROOT / name).is_symlink():
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.path / name, follow_symlinks=False)

    def run(self, command: str, *more: str, cwd: Path | None = None, env: dict[str, str] | None = None, shown: str = "stdout") -> str:
        """Run a command as typed, with arguments behind it, in the clone or in ``cwd``; returns what it printed, fails with that when it fails."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
            "HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            # Job controllers and CI have no terminal, and a pager would wait for one.
            "PAGER": "cat",
            "ANSIBLE_LOCALHOST_WARNING": "false",
            **(env or {}),
        }
        argv = [*shlex.split(command), *more]
        where = {"cwd": cwd or self.path, "env": environment, "stdin": subprocess.DEVNULL}
        done = subprocess.run(argv, **where, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        assert done.returncode == 0, f"{shlex.join(argv)} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        return getattr(done, shown)


#: The inventory that represents the reader's own, and a profile for the placeholder of a profile's ID.
MINE, ID = "inventories/own", "nemotron_3_super_tp2"


@pytest.fixture(scope="module", name="clone")
def _clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone whose owner has an environment, an inventory, started the lab, and wrote the profile that docs/profiles.md shows."""
    clone = Clone(tmp_path_factory.mktemp("commands"))
    (clone.path / ".venv").symlink_to(Path(sys.executable).parents[1])
    shutil.copytree(clone.path / "inventories" / "example", clone.path / "gb10-inventory")
    shutil.copytree(clone.path / "inventories" / "example", clone.path / MINE)
    shutil.copy(clone.path / "inventories" / "example" / "hosts", clone.path / "inventories" / "lab" / "hosts.yml")
    page = (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8")
    (profile,) = re.findall(r"^```yaml\n(---\nschema: 1\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (clone.path / "profiles").mkdir()
    (clone.path / "profiles" / f"{yaml.safe_load(profile)['id']}.yml").write_text(profile, encoding="utf-8")
    return clone


def typed(command: str) -> str:
    """Return a command of the table as a person types it: with an inventory and a profile."""
    return re.sub(r"(?<=[= ])ID\b", ID, command.replace(" INVENTORY ", f" {MINE} "))


@pytest.mark.parametrize("command", of("here"))
def test_it_runs(clone: Clone, command: str) -> None:
    entry = TABLE[command]
    place = clone.path
    if entry.get("elsewhere"):
        place = clone.path.parent / "elsewhere"
        clone.run(f"ansible-galaxy collection build --force --output-path {place}")
    printed = clone.run(typed(command), *entry.get("add", []), cwd=place)
    assert [words for words in entry.get("prints", []) if words not in printed] == [], printed


def tags_of(listing: str) -> set[str]:
    """Return the tags in what :func:`listed` returns."""
    return set(re.findall(r"\w+", " ".join(re.findall(r"TASK TAGS: \[(.*)\]", listing))))


def test_all_stages_are_listed_as_tags(clone: Clone) -> None:
    page = (ROOT / "docs" / "bring_up.md").read_text(encoding="utf-8")
    stages = re.findall(r"^\| `(\w+)` \|", page[: page.index("## How long a start takes")], re.MULTILINE)
    assert stages[0] == "validate" and set(stages) <= tags_of(listed(clone, "ansible-playbook playbooks/nemotron_tp2.yml"))


def line_of(clone: Clone, command: str) -> str:
    """Return the line that a command comes to: that of ``./gb10`` is what it prints, and it stops there."""
    if not command.startswith("./gb10"):
        return command
    (clone.home / "stop.sh").write_text("exec() { exit 0; }\n", encoding="utf-8")
    return clone.run(command, shown="stderr", env={"BASH_ENV": str(clone.home / "stop.sh")}).strip()


def without_values(line: str) -> str:
    """Return a line without the options that change no list of tasks and tags, so that each playbook is listed once."""
    return re.sub(r" (--check|--diff|(-e|-i|-u|--limit|--tags) ('[^']*'|\S+))(?= |$)", "", line)


def group_of(command: str) -> str:
    """Return the playbook of a command: those of one playbook run in one process, which lists it once."""
    return re.search(r"(?:\./gb10 |playbooks/|gb10\.cluster\.)(\w+)|$", command)[1] or "others"


@functools.cache
def listed(clone: Clone, line: str) -> str:
    """Return the plays, tasks and tags that ansible-playbook lists."""
    return clone.run(line, "--list-tasks", "--list-tags")


@pytest.mark.parametrize("command", [pytest.param(command, marks=pytest.mark.xdist_group(group_of(command))) for command in of("tasks")])
def test_its_tasks_are_listed(clone: Clone, command: str) -> None:
    if command.startswith("ansible "):
        module = re.search(r"-m (\S+)", command)[1]
        assert json.loads(clone.run(f"ansible-doc --json {module}"))[module]
        assert "hosts (1)" in clone.run(typed(command), "--list-hosts")
        return
    whole = line_of(clone, typed(command))
    words = shlex.split(whole)
    values = [value for option, value in zip(words, words[1:]) if option == "-e"]
    assert [value for value in values if not re.match(r"\w+=", value) and not isinstance(yaml.safe_load(value), dict)] == []
    listing = listed(clone, without_values(whole))
    assert re.search(r"^  play #\d+ \(.*?\): ", listing, re.MULTILINE)
    assert re.search(r"^      \S.*\tTAGS: ", listing, re.MULTILINE)
    wanted = re.search(r"--tags (\S+)", whole)
    if wanted:
        # `all` is Ansible's own.
        assert set(wanted[1].split(",")) - {"all"} <= tags_of(listing), f"{wanted[1]}: the tags are {sorted(tags_of(listing))}"


def parts_of(words: t.Sequence[str]) -> list[str]:
    """Return the parts that run_parts.py runs for these arguments, without what they need."""
    names = [word for word in words if not word.startswith("--")]
    return [name for name, part in PARTS.items() if names[0] in part.get("suites", [])] if "--suite" in words else names


def missing_of(command: str) -> list[str]:
    """Return the files, directories and scenarios that a command of a part names and that are not there."""
    words = shlex.split(command)
    named = [f"molecule/{words[-1]}/molecule.yml"] if words[0] == "molecule" else [word for word in words if word.startswith("tests/")]
    return [name for name in named if not (ROOT / name).exists()]


def unproven(command: str, named: t.Sequence[t.Sequence[str]]) -> list[str]:
    """Return the commands that a make target runs by the table, but that its recipe's parts do not run."""
    names = [name for words in named for name in parts_of(words)]
    commands = "\n".join(line for name in names for line in PARTS[name]["commands"])
    proofs = [proof.partition("::")[0] for proof in TABLE[command]["by"]]
    return [proof for proof in proofs if not (proof.removeprefix("part ") in names if proof.startswith("part ") else runs(proof, commands))]


@pytest.mark.parametrize("command", of("make"))
def test_its_recipe_names_parts_that_run_what_the_table_says(clone: Clone, command: str) -> None:
    recipe = clone.run(command, "--dry-run", "--no-print-directory").splitlines()
    named = [line.split("run_parts.py", 1)[1].split() for line in recipe if "run_parts.py" in line]
    for words in named:
        names = parts_of(words)
        assert names and set(names) <= set(PARTS), f"{set(names) - set(PARTS)} is no part"
        assert [name for part in names for line in PARTS[part]["commands"] for name in missing_of(line)] == []
    assert named == [] or unproven(command, named) == []


def test_a_part_that_runs_something_else_is_seen() -> None:
    assert unproven("make preflight", [["preflight"]]) == []
    assert unproven("make preflight", [["faults"]]) == ["tests/integration/test_preflight.py"]
    assert unproven("make play-next", [["native"]]) == ["molecule/default"]
    assert unproven("make lint sanity units", [["--resume", "units"]]) == ["part lint", "tests/tools/sanity.py"]
    assert missing_of("pytest tests/nothing.py") == ["tests/nothing.py"] and missing_of("molecule test -s nothing") == ["molecule/nothing/molecule.yml"]
