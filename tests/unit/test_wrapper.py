# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The short form ./gb10: the ansible-playbook line that it prints and runs, what it refuses, and the words that completion offers."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Takes the place of ansible-playbook: records its arguments, and ends with the code in ENDS.
RECORDER = """#!{python}
import json, os, sys
with open(os.environ["RECORD"], "w") as record:
    json.dump({{"argv": sys.argv[1:], "config": os.environ.get("ANSIBLE_CONFIG", ""), "path": sys.argv[0],
               "shown": os.environ.get("ANSIBLE_DISPLAY_OK_HOSTS", "true")}}, record)
sys.exit(int(os.environ.get("ENDS", "0")))
"""
#: Takes the place of python3 where an environment is made: `-m venv DIR` makes one whose python records what pip is asked for.
MAKER = """#!/bin/sh
[ "$1 $2" = "-m venv" ] || exit 9
[ -z "$NO_VENV" ] || exit 1
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho "$@" > "$RECORD.pip"\\ncp "$RECORDER" "%s/bin/ansible-playbook"\\n' "$3" > "$3/bin/python"
chmod +x "$3/bin/python"
"""


class Clone:
    """A directory with the wrapper and the playbooks, and programs that record."""

    def __init__(self, path: Path) -> None:
        self.path, self.bin, self.record = path / "clone", path / "bin", path / "record.json"
        shutil.copytree(ROOT / "playbooks", self.path / "playbooks")
        shutil.copy(ROOT / "gb10", self.path / "gb10")
        self.bin.mkdir()
        self.program("ansible-playbook", RECORDER.format(python=sys.executable))
        self.program("python3", MAKER)

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text, encoding="utf-8")
        (self.bin / name).chmod(0o755)

    def type(self, *words: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        """Type a line of the wrapper in the clone, or in ``cwd``."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        variables = {"PATH": f"{self.bin}{os.pathsep}/usr/bin{os.pathsep}/bin", "RECORD": str(self.record), "RECORDER": str(self.bin / "ansible-playbook")}
        argv = [str(self.path / "gb10"), *words]
        return subprocess.run(argv, cwd=cwd or self.path, env={**kept, **variables, **env}, capture_output=True, text=True, timeout=60, check=False)

    def ran(self) -> dict[str, t.Any]:
        return json.loads(self.record.read_text(encoding="utf-8"))


@pytest.fixture(name="clone")
def _clone(tmp_path: Path) -> Clone:
    clone = Clone(tmp_path)
    (clone.path / "gb10-inventory").mkdir()
    return clone


HERE = ["-i", "gb10-inventory"]


@pytest.mark.parametrize(
    ("typed", "runs"),
    [
        (["init", "spark-1", "spark-2"], ["-i", "spark-1,spark-2,", "gb10.cluster.init"]),
        (["init", "spark-1", "-K"], ["-i", "spark-1,", "gb10.cluster.init", "-K"]),
        (["doctor", "spark-1", "spark-2", "-u", "nvidia"], ["-i", "spark-1,spark-2,", "gb10.cluster.doctor", "-u", "nvidia"]),
        (["doctor"], [*HERE, "gb10.cluster.doctor"]),
        (["serve", "my_tp2", "--check"], [*HERE, "gb10.cluster.serve", "-e", "gb10_profile=my_tp2", "--check"]),
        (["serve"], [*HERE, "gb10.cluster.serve"]),
        (["preflight", "my_tp2"], [*HERE, "gb10.cluster.serve", "-e", "gb10_profile=my_tp2", "--tags", "preflight"]),
        (["status", "-i", "mine"], ["gb10.cluster.status", "-i", "mine"]),
        (["status", "--inventory=mine"], ["gb10.cluster.status", "--inventory=mine"]),
        (["logs"], [*HERE, "gb10.cluster.status", "--tags", "logs"]),
        (["fabric"], [*HERE, "gb10.cluster.doctor", "--tags", "fabric"]),
        (["profiles"], ["gb10.cluster.plan", "--tags", "profiles"]),
        (["plan", "my_one"], ["gb10.cluster.plan", "-e", "gb10_profile=my_one"]),
        (["import", "my recipe.yaml"], ["gb10.cluster.import", "-e", "gb10_import=my recipe.yaml"]),
        (["explain", "./logs"], ["gb10.cluster.explain", "-e", "gb10_explain=./logs"]),
        (["mode", "off"], [*HERE, "gb10.cluster.mode", "-e", "gb10_mode=off"]),
        (["serve", "-e", '{"a": "it\'s $HOME *"}'], [*HERE, "gb10.cluster.serve", "-e", '{"a": "it\'s $HOME *"}']),
    ],
)
def test_a_line_becomes_the_long_form(clone: Clone, typed: list[str], runs: list[str]) -> None:
    done = clone.type(*typed)
    assert done.returncode == 0 and done.stdout == "", done.stderr
    assert clone.ran()["argv"] == runs
    assert shlex.split(done.stderr) == ["ansible-playbook", *runs], "what is printed can be typed"


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["guard"], "gb10 protect --tags guard"),
        (["sweep", "-e", "gb10_sweep=absent"], "gb10 protect --tags sweep"),
        (["ladder"], "gb10 bench --tags ladder"),
        (["single", "spark-2"], "gb10 serve PROFILE -e gb10_single=HOST"),
        (["sreve"], "There is no verb 'sreve'."),
        (["find_cluster"], "There is no verb 'find_cluster'."),
        (["../x"], "There is no verb '../x'."),
        (["status", "spark-1"], "status does not accept 'spark-1'"),
        (["serve", "a", "b"], "serve does not accept 'a b'"),
        (["init"], "gb10 init spark-1 spark-2"),
    ],
)
def test_what_cannot_be_run_is_refused_with_what_to_type(clone: Clone, typed: list[str], says: str) -> None:
    done = clone.type(*typed)
    assert done.returncode == 2 and says in done.stderr and not clone.record.exists()


def test_without_an_inventory_it_says_how_to_write_one(clone: Clone) -> None:
    (clone.path / "gb10-inventory").rmdir()
    done = clone.type("status")
    assert done.returncode == 2 and "gb10 init spark-1 spark-2" in done.stderr and not clone.record.exists()


def test_elsewhere_the_inventory_beside_the_wrapper_is_found(clone: Clone, tmp_path: Path) -> None:
    assert clone.type("status", cwd=tmp_path).returncode == 0
    assert clone.ran()["argv"] == ["-i", str(clone.path / "gb10-inventory"), "gb10.cluster.status"]
    (tmp_path / "gb10-inventory").mkdir()
    clone.type("status", cwd=tmp_path)
    assert clone.ran()["argv"] == ["-i", "gb10-inventory", "gb10.cluster.status"], "the one of the directory comes first"


def test_through_a_link_it_finds_its_clone(clone: Clone, tmp_path: Path) -> None:
    (clone.bin / "gb10").symlink_to(clone.path / "gb10")
    done = subprocess.run(
        [str(clone.bin / "gb10"), "status"], cwd=tmp_path, env={"PATH": f"{clone.bin}:/usr/bin:/bin", "RECORD": str(clone.record)}, timeout=60, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0 and clone.ran()["argv"][1] == str(clone.path / "gb10-inventory")


def test_it_ends_as_the_play_ends(clone: Clone) -> None:
    assert clone.type("status", ENDS="4").returncode == 4


@pytest.mark.parametrize(("verb", "shown"), [("status", "false"), ("glance", "false"), ("doctor", "false"), ("serve", "true"), ("teardown", "true")])
def test_verbs_that_only_read_leave_out_what_went_well(clone: Clone, verb: str, shown: str) -> None:
    clone.type(verb)
    assert clone.ran()["shown"] == shown
    clone.type(verb, ANSIBLE_DISPLAY_OK_HOSTS="true")
    assert clone.ran()["shown"] == "true", "a setting of the user comes first"


def test_without_a_verb_it_lists_them(clone: Clone) -> None:
    done = clone.type()
    assert done.returncode == 0 and "gb10 init spark-1 spark-2" in done.stdout
    assert {"serve", "status", "teardown", "preflight", "logs", "glance"} <= set(done.stdout.split("Verbs: ")[1].split())


def test_a_clone_without_an_environment_gets_one_and_the_next_line_uses_it(clone: Clone) -> None:
    (clone.path / "requirements.txt").write_text("ansible\n", encoding="utf-8")
    done = clone.type("status")
    assert done.returncode == 0 and "550 MB" in done.stderr
    command = (clone.record.parent / "record.json.pip").read_text(encoding="utf-8").strip()
    assert command == f"-m pip install --quiet --disable-pip-version-check -r {clone.path}/requirements.txt"
    ran = clone.ran()
    assert (ran["argv"], ran["config"]) == ([*HERE, "gb10.cluster.status"], f"{clone.path}/ansible.cfg")
    assert ran["path"] == f"{clone.path}/.venv/bin/ansible-playbook"
    again = clone.type("status", ANSIBLE_CONFIG="/mine.cfg", NO_VENV="1")
    assert again.returncode == 0 and "550 MB" not in again.stderr and clone.ran()["config"] == "/mine.cfg"


def test_a_failed_environment_names_the_package(clone: Clone) -> None:
    (clone.path / "requirements.txt").write_text("ansible\n", encoding="utf-8")
    done = clone.type("status", NO_VENV="1")
    assert done.returncode == 2 and "sudo apt install python3-venv" in done.stderr and not clone.record.exists()


def test_it_is_short() -> None:
    assert len((ROOT / "gb10").read_text(encoding="utf-8").splitlines()) <= 80 and os.access(ROOT / "gb10", os.X_OK)


# -- completion --------------------------------------------------------------------------------------------------------------


def offered(*words: str) -> list[str]:
    """What completion offers for the last of the words."""
    script = f'. {ROOT}/completion/gb10.sh; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gb10; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-uec", script, "bash", *words], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


def test_completion_knows_verbs_profiles_tags_and_modes() -> None:
    assert offered("gb10", "stat") == ["status"] and {"serve", "logs", "plan"} <= set(offered("gb10", ""))
    assert offered("./gb10", "serve", "nemotron") == ["nemotron_3_super_one", "nemotron_3_super_tp2"]
    assert offered("gb10", "mode", "") == ["cluster", "off", "singles"]
    assert offered("gb10", "serve", "--tags", "pro") == ["proof"] and offered("gb10", "explain", "--tags", "") == []
    assert "--check" in offered("gb10", "serve", "x", "--") and offered("gb10", "status", "x") == []


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh on this machine")
def test_completion_can_be_read_by_zsh() -> None:
    script = f"autoload -U compinit bashcompinit && compinit -D && bashcompinit && . {ROOT}/completion/gb10.sh && [[ -n $_gb10_verbs ]]"
    subprocess.run(["zsh", "-fec", script], capture_output=True, timeout=60, check=True)
