# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables of failure signatures: the shipped ones, those of users, and what makes one unusable."""

from __future__ import annotations

import collections

import pytest
import yaml

from ansible_collections.gb10.cluster.plugins.plugin_utils._serve import failures, signature

ROWS = signature.shipped()
EXAMPLES = [(row, example) for row in ROWS for example in row.examples]


def diagnosis(text):
    made = failures.Diagnosis()
    made.feed(text.splitlines())
    return made


@pytest.mark.parametrize(("row", "example"), EXAMPLES, ids=[f"{row.id}-{row.examples.index(example)}" for row, example in EXAMPLES])
def test_each_example_leads_to_its_own_signature(row, example):
    result = diagnosis(example)
    match = result.fatal if row.verdict == "block" else next((warning for warning in result.warnings if warning.signature.id == row.id), None)
    assert match is not None and match.signature.id == row.id


@pytest.mark.parametrize("row", [row for row in ROWS if row.harmless], ids=lambda row: row.id)
def test_what_is_harmless_leads_to_no_failure(row):
    for text in row.harmless:
        assert failures.diagnose([failures.Line(text)]) == []


#: Signatures whose examples match another signature too: the key is the more specific one and comes first.
SHARED = {
    # On the same line, the more specific signature wins over the general one.
    "context-too-long": {"engine-config-refused"},
    "cuda-busy": {"cuda-kernel-failed"},
    "cuda-device-assert": {"cuda-kernel-failed"},
    "cuda-graph-broken": {"cuda-kernel-failed"},
    "cuda-illegal-access": {"cuda-kernel-failed"},
    "cuda-not-permitted": {"cuda-kernel-failed"},
    "cuda-library-missing": {"module-missing"},
    "cuda-ptx-too-new": {"cuda-kernel-failed"},
    "driver-library-missing": {"module-missing"},
    "kernel-cublas-failed": {"cuda-kernel-failed"},
    "kernel-not-for-gpu": {"cuda-kernel-failed"},
    **{f"kernel-gpu-{kind}": {"kernel-gpu-other"} for kind in ("channel-ended", "exception", "firmware-hangs", "lost", "memory-fault", "page-fault")},
    "kernel-oom-engine": {"kernel-oom-other"},
    "library-symbol-missing": {"module-missing"},
    "model-heads-not-divisible": {"engine-config-refused"},
    "model-type-unknown": {"engine-config-refused"},
    "ranks-need-executor": {"engine-config-refused"},
    "rendezvous-port-taken": {"port-taken"},
    # The signature of the cause also wins over suspicions and echoes.
    "kernel-storage-fault": {"kernel-fault"},
    "memory-host-out": {"rank-aborted"},
    "rank-hangs": {"engine-dead"},
    "rank-killed": {"rank-died"},
    "rank-unreachable": {"nccl-error"},
}


@pytest.mark.parametrize(("row", "example"), EXAMPLES, ids=[f"{row.id}-{row.examples.index(example)}" for row, example in EXAMPLES])
def test_no_other_signature_matches_an_example(row, example):
    lines = example.splitlines()
    others = {other.id for other in ROWS if any(other.is_in(line, lines[:number]) for number, line in enumerate(lines)) and other.id != row.id}
    assert others <= SHARED.get(row.id, set())


def test_the_shared_examples_are_all_needed():
    lines = [(row, line) for row, example in EXAMPLES for line in example.splitlines()]
    matched = {(row.id, other.id) for row, line in lines for other in ROWS if other is not row and other.is_in(line)}
    # The pattern ``after`` of a signature is in the line before.
    assert {(id, other) for id, others in SHARED.items() for other in others} <= matched | {("rank-hangs", "engine-dead")}


def test_there_are_enough_signatures_and_each_has_a_source():
    assert len(ROWS) >= 80
    assert all(row.source and row.cause and row.consequence and row.remedy for row in ROWS)
    assert {row.where for row in ROWS} <= set(signature.WRITERS)


@pytest.mark.parametrize(
    "unit", ["CUDA error: ", "Model architectures ['", "Got completion from peer ", "NVRM: Xid (PCI", "ibv_modify_qp failed with ", "a" * 50 + " "]
)
def test_a_hostile_line_is_searched_in_bounded_time(unit):
    line = unit * (1_000_000 // len(unit))
    assert all(len(line) > signature.SEARCHED and row.is_in(line) in (True, False) for row in ROWS)


def test_only_the_beginning_of_a_line_is_searched():
    assert not any(row.is_in("x" * signature.SEARCHED + " CUDA error: ") for row in ROWS)


@pytest.mark.parametrize(
    ("patterns", "words"),
    [
        (["abc"], ("abc",)),
        (["a.c\\.def", "x"], ("c.def", "x")),
        (["(?:abc|d)ef", "gh?ij"], ("ef", "ij")),
        (["[ab]", "abc"], ()),
        (["(?:abc)"], ("abc",)),
    ],
)
def test_the_words_without_which_no_line_matches(tmp_path, patterns, words):
    example = "abc a.c.def gij"
    rows = signature.load([str(table(tmp_path / "own", {**OWN, "patterns": patterns, "examples": [example]}))])
    assert next(row for row in rows if row.id == OWN["id"]).words == words


# -- tables of users -----------------------------------------------------------------------------------------------------

OWN = {
    "id": "my-proxy",
    "patterns": ["proxy said (?:407|502)"],
    "cause": "the proxy of our site refused",
    "consequence": "the engine ends",
    "remedy": "Ask the site.",
    "source": "our site, 2026-11",
    "examples": ["ERROR 11-22 10:00:00 [x.py:1] proxy said 407"],
}


def table(directory, *rows, name="mine.yml"):
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(yaml.safe_dump(list(rows)), encoding="utf-8")
    return directory


def test_a_users_table_is_read_beside_the_shipped_one(tmp_path):
    rows = signature.load([str(table(tmp_path / "own", OWN))])
    assert len(rows) == len(ROWS) + 1
    (finding,) = failures.diagnose([failures.Line(OWN["examples"][0], "spark-1")], rows)
    assert (finding["id"], finding["certainty"], finding["remedy"]) == ("my-proxy", "known", "Ask the site.")


def test_a_users_signature_takes_the_place_of_a_shipped_one_with_its_id(tmp_path):
    rows = signature.load(["own"], [table(tmp_path / "own", {**OWN, "id": "port-taken"}).parent])
    assert len(rows) == len(ROWS) and next(row for row in rows if row.id == "port-taken").remedy == "Ask the site."


def test_a_directory_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(signature.SignatureError, match=f"gb10_signature_dirs: no directory {tmp_path}/none on the controller") as raised:
        signature.load([str(tmp_path / "none")])
    assert raised.value.problems[0].remedy == "correct gb10_signature_dirs" and raised.value.problems[0].id == "input.signatures"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"patterns": ["a("]}, "[0].patterns[0]: is not a regular expression: "),
        ({"patterns": ["(a+)+b"]}, "[0].patterns[0]: may take forever: it has an open repetition within another"),
        ({"patterns": ["(?:a|b*)*c"]}, "[0].patterns[0]: may take forever"),
        ({"patterns": ["(a)\\1"]}, "[0].patterns[0]: may take forever: it has a reference to a group"),
        ({"patterns": ["a.*b.*c.*d"]}, "[0].patterns[0]: may take too long: one alternative has 3 open repetitions, and at most 2 are bearable"),
        ({"patterns": ["(?i)a"]}, "[0].patterns[0]: is not a regular expression: global flags"),
        ({"patterns": []}, "[0].patterns: is empty; expected at least one"),
        ({"after": "("}, "[0].after: is not a regular expression: "),
        ({"examples": []}, "[0].examples: is empty; expected at least one"),
        ({"examples": ["something else"]}, "[0].examples[0]: found a line that the signature does not answer"),
        ({"examples": ["INFO 11-22 10:00:00 [x.py:1] proxy said 407"]}, "[0].examples[0]: found a line that the signature does not answer"),
        ({"harmless": ["ERROR proxy said 502"]}, "[0].harmless[0]: found a line that the signature answers"),
        ({"id": "My Proxy"}, "[0].id: found 'My Proxy' (a string); expected lowercase letters and digits"),
        ({"verdict": "fatal"}, "[0].verdict: found 'fatal' (a string); expected one of block, warn"),
        ({"remedy": None}, "[0].remedy: is missing; expected a string"),
        ({"paterns": ["a"]}, "[0].paterns: is not a known field (did you mean 'patterns'?)"),
    ],
)
def test_what_is_wrong_with_a_users_table_is_named(tmp_path, changes, words):
    own = table(tmp_path / "own", {**OWN, **changes})
    with pytest.raises(signature.SignatureError) as raised:
        signature.load([str(own)])
    (problem,) = raised.value.problems
    assert str(problem).startswith(f"{own}/mine.yml{words}")
    assert (problem.id, problem.verdict, problem.remedy) == ("input.signatures", "block", f"correct {own}/mine.yml")


@pytest.mark.parametrize("text", ["a: [", "just text", "{a: b}", "- text"])
def test_a_file_that_is_no_table_is_named(tmp_path, text):
    (tmp_path / "x.yml").write_text(text)
    with pytest.raises(signature.SignatureError, match="x.yml"):
        signature.load([str(tmp_path)])


def test_an_id_that_stands_twice_in_a_file_is_named(tmp_path):
    with pytest.raises(signature.SignatureError, match="the id my-proxy stands on 2 signatures; expected each id once"):
        signature.load([str(table(tmp_path / "own", OWN, OWN))])


def test_each_id_cause_and_remedy_stands_once():
    ids = [row["id"] for path in sorted(signature.SHIPPED.glob("*.yml")) for row in yaml.safe_load(path.read_text())]
    assert [id for id, count in collections.Counter(ids).items() if count > 1] == []
    for field in ("cause", "remedy"):
        counted = collections.Counter(getattr(row, field) for row in ROWS)
        assert [text for text, count in counted.items() if count > 1] == []
