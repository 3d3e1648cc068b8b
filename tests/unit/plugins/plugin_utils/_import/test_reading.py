# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of unknown origin: the kind of each recipe, and files that are not recipes."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._import import reading
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.ledger import RecipeError

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 10)}]\n" for n in range(9))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('recipe_version: "1"\nname: n\ncontainer: c\ncommand: vllm serve m', "eugr/spark-vllm-docker"),
        ("recipe_version: 1\ncommand: vllm serve m", "eugr/spark-vllm-docker"),
        ("name: n\ncontainer: c\ncommand: vllm serve m", "eugr/spark-vllm-docker"),
        ('recipe_version: "1"\nname: n\nmin_nodes: 2\ncommand: vllm serve m', "sparkrun"),
        ('recipe_version: "2"\nmodel: m\ncommand: vllm serve m', "sparkrun"),
        ("model: m\nruntime: vllm\ncontainer: c", "sparkrun"),
        ("model: {model_id: org/m}\nmeta: {}", "vllm-project/recipes"),
    ],
)
def test_whose_recipe_it_is(text, kind):
    assert reading.kind_of(reading.parse(text.encode(), "r.yaml"), "r.yaml") == kind


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"model: [unclosed", "cannot be read as YAML"),
        (b"model: m\n---\nmodel: n", "cannot be read as YAML"),
        (b"model: m\nmodel: n", "the key 'model' is given twice"),
        (b"model: !!python/object/apply:os.system ['id']", "cannot be read as YAML"),
        (b"", "holds NoneType"),
        (b"- a\n- b", "holds list"),
        (b"just text", "holds str"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"model: \x1b[31m", "line 1 holds the character U+001B"),
        ("a: 1\nb: \ue002x".encode(), "line 2 holds the character U+E002"),
        (b'a: 1\nb: "\\ue002x"', "line 2 holds the character U+E002"),
        (b'a: "\\ud800"', "line 1 holds the character U+D800"),
        (b'"\\0": 1', "line 1 holds the character U+0000"),
        (BOMB.encode(), "holds more than 50000 values"),
        (b"a: &a [*a]", "holds more than 50000 values, or refers to itself"),
        (b"[" * 1000, "cannot be read as YAML"),
        (b"key: " + b"9" * 10_000, "cannot be read as YAML"),
    ],
    ids="open two twice tag empty list text bytes control private escaped surrogate zero bomb itself deep long".split(),
)
def test_what_is_not_a_mapping_of_plain_values(content, what):
    with pytest.raises(RecipeError) as refused:
        reading.parse(content, "r.yaml")
    assert what in refused.value.what and refused.value.remedy


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("schema: 1\nid: x\nimage: {}\nparallel: {}", "is a profile of this collection already"),
        ("schema_version: 4\nmodel: m\nserve: {}", "is a recipe of NVIDIA/local-ai-inference-recipes"),
        ("services: {vllm: {}}", "is not a known kind of recipe (it has services)"),
    ],
)
def test_what_is_another_kind_of_file(text, what):
    with pytest.raises(RecipeError) as refused:
        reading.kind_of(reading.parse(text.encode(), "r.yaml"), "r.yaml")
    assert what in refused.value.what


def test_dates_are_texts_and_merged_keys_are_allowed():
    text = "x: &x {a: 1, b: 2026-04-16}\nmodel: {<<: *x, a: 2}"
    assert reading.parse(text.encode(), "r")["model"] == {"a": 2, "b": "2026-04-16"}


def test_files_that_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"#" * (reading.MOST_BYTES + 1))
    for name, what in (("pipe", "is not a file"), ("", "is not a file"), ("absent", "cannot be read: No such file"), ("large", "is larger than 256 KiB")):
        with pytest.raises(RecipeError) as refused:
            reading.read(str(tmp_path / name))
        assert what in refused.value.what


def test_a_key_that_is_given_twice_with_one_value_says_one_thing():
    assert reading.parse(b"container: vllm-node\nmodel: m\ncontainer: vllm-node", "r.yaml") == {"container": "vllm-node", "model": "m"}
    for two in (b"model: 1\nmodel: '1'", b"env: {a: 1}\nenv: {a: 1}"):
        with pytest.raises(RecipeError) as refused:
            reading.parse(two, "r.yaml")
        assert "is given twice" in refused.value.what
