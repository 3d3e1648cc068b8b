# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands of the README's first screen and of the page from_the_box run unchanged on a fresh machine."""

from __future__ import annotations

import re
import subprocess
import sys
import typing as t

import pytest

from .lab import ROOT

sys.path.insert(0, str(ROOT / "tests" / "lab"))
from labkit import hosts, images  # noqa: E402
from labkit.labs import TRIXIE  # noqa: E402
from labkit.machine import ca_bundle, proxies  # noqa: E402

NAME = "gb10-lab-fresh"
#: The system's file of trusted certificates.
TRUSTED = "etc/ssl/certs/ca-certificates.crt"
#: What an installer or administrator has already done: the account may use sudo, and packages can be installed.
INSTALLED = """
set -eu
apt-get update -q
apt-get install -q --yes --no-install-recommends ca-certificates sudo
useradd --create-home --shell /bin/bash me
echo 'me ALL=(ALL) NOPASSWD:ALL' > /etc/sudoers.d/me
mkdir /home/me/clone
"""
#: Lists the files of a clone, without files that are generated there.
FILES = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")


def first_screen() -> list[str]:
    """The commands of the README's first block, without the comments after them."""
    block = re.search(r"^```\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [re.sub(r"\s{2,}#.*$", "", line) for line in block[1].splitlines()]


def from_the_box() -> list[str]:
    """The commands on the controller from the page, up to the first command that needs a Spark."""
    page = (ROOT / "docs" / "from_the_box.md").read_text(encoding="utf-8")
    return re.findall(r"^\$ (.*)$", page[page.index("## 2."):page.index("## 4.")], re.MULTILINE)


@pytest.fixture
def machine() -> t.Iterator[t.Callable[..., subprocess.CompletedProcess[str]]]:
    """A fresh Debian 13, with a clone in the home of a user who may use sudo."""

    def docker(*words: str, check: bool = True, content: bytes | None = None) -> subprocess.CompletedProcess[t.Any]:
        return subprocess.run(["docker", *words], input=content, capture_output=True, text=content is None, timeout=500, check=check)

    names = subprocess.run(FILES, cwd=ROOT, capture_output=True, timeout=60, check=True).stdout
    clone = subprocess.run(["tar", "--create", "--null", "--files-from=-"], cwd=ROOT, input=names, capture_output=True, timeout=60, check=True).stdout
    docker("rm", "--force", NAME, check=False)
    given = [f"--env={name}={value}" for name, value in proxies().items()]
    docker("run", "--detach", "--name", NAME, "--label=io.gb10.lab=1", *given, images.ensure_base(TRIXIE), "sleep", "infinity")
    try:
        docker("exec", NAME, "sh", "-c", INSTALLED)
        # Behind a proxy that re-signs connections, pip needs its certificate. An ordinary machine does not need this.
        bundle = ca_bundle()
        if bundle:
            hosts.put(NAME, {TRUSTED: hosts.File(bundle.read_bytes())})
        docker("exec", "--interactive", NAME, "tar", "--extract", "--directory=/home/me/clone", content=clone)
        docker("exec", NAME, "chown", "--recursive", "me:me", "/home/me/clone")
        options = ("--user=me", f"--env=PIP_CERT=/{TRUSTED}", "--env=HOME=/home/me", "--workdir=/home/me/clone")
        yield lambda script: docker("exec", *options, NAME, "bash", "-c", script, check=False)
    finally:
        docker("rm", "--force", NAME)


def test_a_fresh_machine_gets_as_far_as_a_spark(machine: t.Callable[..., subprocess.CompletedProcess[str]]) -> None:
    short, long = first_screen(), from_the_box()
    ready = long[: long.index("pip install -r requirements.txt") + 1]
    assert short[0] == ready[0] and len(ready) == 4, "both pages begin with the same packages"
    # A test has no address to clone from.
    assert short[1].startswith("git clone ADDRESS ")
    doctors = [short[2], long[len(ready)]]
    assert doctors[0] == "./gb10 doctor spark-1 spark-2" and doctors[1].startswith("ansible-playbook gb10.cluster.doctor -i spark-1,spark-2,")
    # As in a shell, each line sees the effects of the lines before it, and the first failure ends the script. The short form creates the environment,
    # which the page's own lines then use. The password that -K asks for is an empty line.
    typed = [short[0], f"set +e\n{doctors[0]}\nset -e", *ready[1:], f"set +e\necho | {doctors[1]}"]
    done = machine("set -e\n" + "\n".join(typed) + "\n")
    shown = done.stdout + done.stderr
    print(shown)
    # No host has that name: a Spark is needed from here on, and everything before it works.
    assert shown.count("block  node.answers  spark-1, spark-2") == len(doctors), shown
    assert "\nansible-playbook -i spark-1,spark-2, gb10.cluster.doctor\n" in f"\n{done.stderr}", "the short form prints the line that it runs"
