# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Exactly the collection's old leftovers are removed, and only on request."""

from __future__ import annotations

import typing as t

import pytest

from .lab import HEAD, WORKER, Lab

IMAGE = "gb10-lab/engine:0.32.0"
OURS = "gb10-prune-test/ours:1"
THEIRS = "gb10-prune-test/theirs:1"
LOGS = "/var/log/gb10/gb10"
LABELS = ("--label=io.gb10.owner=gb10.cluster", "--label=io.gb10.role=head")

#: Created and never started, except the last one.
CONTAINERS = {
    "prune-ours": (*LABELS, "--label=io.gb10.cluster=gb10"),
    "prune-other-cluster": (*LABELS, "--label=io.gb10.cluster=other"),
    "prune-stranger": (),
    "prune-running": (*LABELS, "--label=io.gb10.cluster=gb10"),
}
#: Age in days, by path below the cluster's logs.
FILES = {
    "engine/20261001T010000Z-0a1b.log": 40,
    "engine/20261001T010000Z-0a1b.log.1": 40,
    "engine/20991231T235959Z-ffff.log": 40,
    "engine/20261002T010000Z-0a1c.log": 1,
    "engine/notes.txt": 40,
    "containers/gb10-gb10-head-0123456789ab.log": 40,
    "containers/foreign.log": 40,
}
GOING = ["engine/20261001T010000Z-0a1b.log", "engine/20261001T010000Z-0a1b.log.1", "containers/gb10-gb10-head-0123456789ab.log"]


def build(lab: Lab, tag: str, base: str, step: str) -> str:
    """Build an image with one step on another image, as the node's user would. Returns its id."""
    recipe = f"FROM {base}\n{step}\n"
    lab.run(HEAD, "sh", "-c", 'printf "%s" "$0" | docker build --quiet --tag "$1" -', recipe, tag)
    return lab.run(HEAD, "docker", "image", "inspect", "--format={{.Id}}", tag).strip()


@pytest.fixture
def leavings(lab: Lab, no_cluster: None) -> t.Iterator[str]:
    """Leftovers of the collection on the head, each beside something that only looks similar. Yields the id of the image that lost its name."""
    # Leftovers of other tests are removed first, so that the list contains exactly what is planted here.
    assert lab.play("prune", gb10_allow="remove", gb10_prune_days=0).rc == 0
    for name, options in CONTAINERS.items():
        lab.run(HEAD, "docker", "create", f"--name={name}", *options, "--entrypoint=sleep", IMAGE, "600")
    lab.run(HEAD, "docker", "start", "prune-running")
    predecessor = build(lab, OURS, IMAGE, "LABEL io.gb10.base=none io.gb10.recipe=first")
    build(lab, OURS, IMAGE, "LABEL io.gb10.base=none io.gb10.recipe=second")
    build(lab, THEIRS, OURS, "LABEL mine=1")
    for path, days in FILES.items():
        lab.run(HEAD, "install", "-D", "/dev/null", f"{LOGS}/{path}")
        lab.run(HEAD, "touch", f"--date={days} days ago", f"{LOGS}/{path}")
    yield predecessor
    lab.run(HEAD, "docker", "rm", "--force", *CONTAINERS, check=False)
    lab.run(HEAD, "docker", "rmi", THEIRS, OURS, predecessor, check=False)
    lab.run(HEAD, "rm", "--force", *(f"{LOGS}/{path}" for path in FILES))


def there(lab: Lab) -> set[str]:
    """Everything on the head that prune might look at: containers, images, files."""
    containers = lab.run(HEAD, "docker", "ps", "--all", "--format={{.Names}}").split()
    images = lab.run(HEAD, "docker", "images", "--no-trunc", "--format={{.ID}} {{.Repository}}:{{.Tag}}").splitlines()
    files = lab.run(HEAD, "find", "/var/log/gb10", "/var/lib/gb10", "/etc/gb10", "-not", "-type", "d", "-not", "-name", "lock.json", check=False).split()
    return {*containers, *images, *files}


def test_what_is_ours_and_old_is_printed_and_goes_on_request(lab: Lab, leavings: str) -> None:
    before = there(lab)
    going = {"prune-ours", f"{leavings} <none>:<none>", *(f"{LOGS}/{path}" for path in GOING)}
    assert going <= before

    printed = lab.play("prune")
    assert printed.rc == 0, printed.failures
    assert printed.changed == {} and there(lab) == before
    for name in ("prune-ours", leavings[:19], *GOING):
        assert name in printed.stdout
    assert "gb10_allow=remove" in printed.stdout
    assert "notes.txt" in printed.stdout and THEIRS in printed.stdout, "what is not ours is named as staying"
    assert "prune-stranger" not in printed.stdout and "prune-running" not in printed.stdout

    predicted = lab.play("prune", check=True, gb10_allow="remove")
    assert predicted.rc == 0, predicted.failures
    assert predicted.changed == {HEAD: 1} and there(lab) == before

    removed = lab.play("prune", gb10_allow="remove")
    assert removed.rc == 0, removed.failures
    assert removed.changed == {HEAD: 1}
    assert before - there(lab) == going and there(lab) <= before

    again = lab.play("prune", gb10_allow="remove")
    assert again.rc == 0, again.failures
    assert again.changed == {} and "nothing to remove" in again.stdout
    assert not lab.run(WORKER, "sh", "-c", "ls /var/lib/gb10/gb10/lock.json 2>/dev/null", check=False)
