# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fixtures of the tests on the lab.

The lab must be up (`make lab-up`). Tests run in the order of their files and leave the lab as they found it: no cluster.
"""

from __future__ import annotations

import typing as t

import pytest

from .fault import Bystanders, Fault, Row, table
from .lab import BASELINE, HEAD, INVENTORY, WORKER, Lab
from .modes import Modes

ROWS = pytest.StashKey[list[Row]]()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Lab]:
    if not (INVENTORY / "hosts.yml").exists():
        pytest.fail("the lab is not up; run `make lab-up` first")
    made = Lab(tmp_path_factory.mktemp("runner"))
    yield made
    made.down()


@pytest.fixture
def no_cluster(lab: Lab) -> None:
    """Start a test without a cluster."""
    lab.clear()


@pytest.fixture(scope="module")
def without_units(lab: Lab) -> t.Iterator[None]:
    """Bring-ups set up no unit: it would bring back what a test breaks, and hold the cluster's lock meanwhile."""
    lab.clear()
    lab.settings["gb10_unit"] = "none"
    yield
    del lab.settings["gb10_unit"]


@pytest.fixture
def live_cluster(lab: Lab) -> None:
    """Start a test with a serving cluster that has the lab's own settings."""
    lab.up()


@pytest.fixture(scope="module")
def modes(tmp_path_factory: pytest.TempPathFactory, lab: Lab) -> t.Iterator[Modes]:
    """Nodes that also have a single-node profile each, at first without a cluster."""
    lab.down()
    made = Modes.prepared(lab, tmp_path_factory.mktemp("modes"))
    yield made
    made.end()


@pytest.fixture
def no_baseline(lab: Lab) -> t.Iterator[None]:
    """Nodes without a baseline, before and after. A baseline from here would change later results of the zombie check."""
    for host in (HEAD, WORKER):
        lab.run(host, "rm", "-f", BASELINE)
    yield
    for host in (HEAD, WORKER):
        lab.run(host, "rm", "-f", BASELINE)


@pytest.fixture(scope="session")
def bystanders(lab: Lab) -> t.Iterator[Bystanders]:
    """A user's own things on the nodes, beside the cluster."""
    things = Bystanders(lab)
    yield things
    things.remove()


@pytest.fixture
def fault(request: pytest.FixtureRequest, lab: Lab, bystanders: Bystanders) -> Fault:
    """A fault that becomes one row of the table at the end."""
    name = request.node.name.removeprefix("test_").replace("_", " ")
    made = Fault(lab, bystanders, name)
    request.config.stash.setdefault(ROWS, []).append(made.row)
    return made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash.get(ROWS, [])
    if rows:
        terminalreporter.section("faults")
        for line in table(rows):
            terminalreporter.write_line(line)
