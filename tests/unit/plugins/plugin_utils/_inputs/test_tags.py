# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tags that no stage has, checked against the shipped playbooks."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs import tags

STAGES = {"validate", "preflight", "image", "model", "memory", "ray", "native", "serve", "proof", "report"}


def problems(*books, run=("all",), skip=()):
    return [str(problem) for problem in tags.problems(books, run, skip)]


@pytest.mark.parametrize("book", ["serve.yml", "nemotron_tp2.yml"])
def test_stages_are_the_tags_of_the_playbook_and_of_what_it_imports(book):
    assert tags.known(tags.PLAYBOOKS / book) - {"always", "never"} == STAGES


def test_a_tag_that_no_stage_has_is_refused_with_the_near_one():
    book = str(tags.PLAYBOOKS / "doctor.yml")
    (text,) = problems(book, run=["prefligth", "fabric"])
    assert text == "--tags: no stage has the tag 'prefligth' (did you mean 'preflight'?); expected one of baseline, fabric, preflight, stacks, validate"
    assert problems("gb10.cluster.doctor", "gb10.cluster.teardown", skip=["notest", "molecule-notest"]) == []
    assert problems("gb10.cluster.doctor", skip=["fabrik"])[0].startswith("--skip-tags: no stage has the tag 'fabrik' (did you mean 'fabric'?)")
    assert problems("gb10.cluster.status.yml", run=["preflight"])[0].endswith("expected one of glance, logs, postmortem")
    assert problems("gb10.cluster.prune", run=["x"])[0].endswith("this playbook has no stages")
    # A tag does not reach files that the playbook includes at run time.
    assert problems("gb10.cluster.mode", run=["serve"])[0].endswith("this playbook has no stages")


@pytest.mark.parametrize("run", [["all"], ["all", "fabric"], ["preflight"], ["validate"], ["untagged"], ["never"]])
def test_tags_that_there_are_pass(run):
    assert problems("gb10.cluster.doctor", run=run) == []


def test_a_playbook_of_the_users_has_tags_of_its_own(tmp_path):
    own = tmp_path / "site.yml"
    own.write_text("- import_playbook: gb10.cluster.serve\n")
    assert (
        problems(str(own), run=["x"])
        == []
        == problems(str(own), "gb10.cluster.serve", run=["x"])
        == problems("gb10.cluster.no_such", run=["x"])
        == problems(run=["x"])
    )


def test_the_playbooks_of_one_run_count_together():
    assert problems("gb10.cluster.status", "gb10.cluster.doctor", run=["glance", "fabric"]) == []


@pytest.mark.parametrize(
    ("book", "run", "words"),
    [
        ("serve", ["all"], "gb10_to: the playbook serve does not write it"),
        ("status", ["all"], "gb10_to: the playbook status does not write it"),
        ("status", ["postmortem"], ""),
        ("bench", ["ladder"], ""),
        ("init", ["all"], ""),
    ],
)
def test_a_file_that_no_playbook_writes_is_refused(book, run, words):
    refused = list(tags.unwritten([f"gb10.cluster.{book}"], run, "why.json"))
    assert [str(problem) for problem in refused] == ([words] if words else []) and all(problem.remedy for problem in refused)
    assert not list(tags.unwritten([f"gb10.cluster.{book}"], run, "")) and not list(tags.unwritten(["site.yml"], run, "why.json"))


def test_a_file_is_written_by_one_of_the_playbooks():
    assert not list(tags.unwritten(["gb10.cluster.serve", "gb10.cluster.bench"], ["all"], "benches"))
    assert set(tags.WRITING) <= {path.stem for path in tags.PLAYBOOKS.glob("*.yml")}
