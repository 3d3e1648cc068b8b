# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The code that a model brings: changed, replaced, or of unknown origin."""

from __future__ import annotations

import hashlib
import json
import os

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._model import model_code

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(tmp_path):
    """A hub cache with a revision of a model that has no files yet."""
    repo = tmp_path / "hub/models--org--name"
    (repo / "snapshots" / COMMIT).mkdir(parents=True)
    (repo / "blobs").mkdir()
    return tmp_path


@pytest.fixture
def snapshot(hub):
    return hub / "hub/models--org--name/snapshots" / COMMIT


def put(hub, name, content, blob=None):
    """Add a file as the hub's client does; ``blob`` names it, or its right id does."""
    repo = hub / "hub/models--org--name"
    blob = blob or hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    (repo / "blobs" / blob).write_bytes(content)
    path = repo / "snapshots" / COMMIT / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to("../" * (2 + name.count("/")) + f"blobs/{blob}")
    return repo / "blobs" / blob


def check(hub, *side_files):
    model_code.check_code(str(hub / "state"), str(hub), "org/name", COMMIT, side_files)


def code(hub, *side_files):
    findings = model_code.code_problems(str(hub / "hub/models--org--name/snapshots" / COMMIT), side_files)
    return {problem.file: problem.id for problem in findings}


def test_code_that_is_the_hubs_is_fine(hub):
    put(hub, "modeling_x.py", b"import os\n")
    put(hub, "sub/large.py", b"x = 1\n", hashlib.sha256(b"x = 1\n").hexdigest())
    assert code(hub) == {}
    # The id that git computes for this content.
    assert model_code.blob_id(b"import os\n", "0" * 40) == "21b405d8c2dac873e9063b1dff87e46c3876aa58"


@pytest.mark.parametrize("lfs", [False, True])
def test_code_that_was_changed_is_named(hub, lfs):
    blob = put(hub, "modeling_x.py", b"import os\n", hashlib.sha256(b"import os\n").hexdigest() if lfs else None)
    blob.write_bytes(b"import os; os.system('x')\n")
    assert code(hub) == {"modeling_x.py": "model.code_changed"}
    with pytest.raises(ClusterError, match="modeling_x.py was changed on this node") as caught:
        check(hub)
    assert caught.value.reason == "code changed" and str(blob) in caught.value.remedy


def test_json_counts_when_it_names_code(hub):
    for name, content in (("a.json", b'{"auto_map": {}}'), ("b.json", b"{}")):
        put(hub, name, content).write_bytes(content + b" ")
    assert code(hub) == {"a.json": "model.code_changed"}


@pytest.mark.parametrize(
    "content",
    [
        b'{"auto\\u005fmap": {"AutoConfig": "x.Y"}}',
        b'{"a\\u0075to_map": ["x.Y", null]}',
        b'{"text_config": [{"auto_map": "x.Y"}]}',
        b'{"auto_map": {"AutoConfig": "x.Y"}, "auto_map": null}',
        b'{"custom_pipelines": {"t": {"impl": "x.Y"}}}',
        b'{"auto_map": {"AutoConfig": "x.Y"}, "vocabulary": "' + b"x" * (1 << 20) + b'"}',
        b'{"auto_map": {"AutoConfig": "x.Y"}, "vocabulary": "' + b"x" * (17 << 20) + b'"}',
        b'\xef\xbb\xbf{"auto_map": {"AutoConfig": "x.Y"}}',
        '{"auto_map": {"AutoConfig": "x.Y"}}'.encode("utf-16"),
        '{"auto_map": {"AutoConfig": "x.Y"}}'.encode("utf-32-le"),
        b'{"auto_map": {"AutoConfig": "x.Y"}',
        b'{"auto_map": ' + b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("name", ["config.json", "processor_config.json", "sub/anything.json"])
def test_json_that_names_code_is_seen_however_it_is_written(hub, snapshot, name, content):
    put(hub, name, content)
    assert sorted(model_code.code(str(snapshot)).files) == [name]


@pytest.mark.parametrize(
    "content", [b"{}", b"", b'{"vocab": {"auto_map": 5}}', b'{"auto_map": null}', b'{"say": "auto_map"}', b'{"a": "\\u0041"}', b'{"a": "\\u00e9"}']
)
def test_json_without_code_has_no_references(hub, snapshot, content):
    put(hub, "tokenizer.json", content)
    (snapshot / "dangling.json").symlink_to("nowhere")
    assert sorted(model_code.code(str(snapshot)).files) == []


def test_long_json_and_other_kinds_of_files_count_as_code_and_are_not_read(hub, snapshot):
    with open(put(hub, "config.json", b"{}"), "r+b") as handle:
        handle.truncate(64 << 30)
    os.mkfifo(snapshot / "tokenizer_config.json")
    (snapshot / "modeling.py").symlink_to("/dev/zero")
    assert code(hub) == {
        "config.json": "model.code_unverified", "modeling.py": "model.code_changed", "tokenizer_config.json": "model.code_changed"
    }  # fmt: skip
    check_refused(hub)


def check_refused(hub, *side_files):
    with pytest.raises(ClusterError) as caught:
        check(hub, *side_files)
    return caught.value


# -- of another repository ---------------------------------------------------------------------------------------------

OTHER = "89abcdef" * 5


def other(hub, commit=OTHER, content=b"import os\n"):
    """Put another repository's code into the cache, and return its blob."""
    repo = hub / "hub/models--them--base"
    name = model_code.blob_id(content, "0" * 40)
    for path in (repo / "blobs", repo / "snapshots" / commit):
        path.mkdir(parents=True, exist_ok=True)
    (repo / "blobs" / name).write_bytes(content)
    path = repo / "snapshots" / commit / "modeling_x.py"
    path.unlink(missing_ok=True)
    path.symlink_to(f"../../blobs/{name}")
    return repo / "blobs" / name


@pytest.fixture
def naming(hub):
    """A model that names code of another repository, as quantized ones do."""
    put(hub, "config.json", b'{"auto_map": {"AutoConfig": "them/base--modeling_x.Config", "AutoModel": "org/name--own.Model"}}')
    return f"../../../models--them--base/snapshots/{OTHER}/modeling_x.py"


def note(hub, snapshot):
    model_code.write_note(model_code.note_path(str(hub / "state"), "org/name", COMMIT), model_code.code_ids(str(snapshot)))


def test_code_of_another_repository_is_compared_like_its_own(hub, snapshot, naming):
    blob = other(hub)
    assert code(hub) == {}
    note(hub, snapshot)
    check(hub)
    blob.write_bytes(b"import sys\n")
    assert code(hub) == {naming: "model.code_changed"}
    assert f"{hub}/hub/models--them--base/snapshots/{OTHER}/modeling_x.py" in check_refused(hub).remedy
    # A link to another blob whose content has the id that its name says.
    other(hub, content=b"import os; os.system('x')\n")
    assert check_refused(hub).details["files"] == [naming]


def test_another_revision_of_another_repository_is_another_code(hub, snapshot, naming):
    other(hub)
    note(hub, snapshot)
    other(hub, COMMIT)
    assert check_refused(hub).details["files"] == [naming.replace(OTHER, COMMIT)]


def test_code_of_a_repository_that_is_absent_was_not_looked_at(hub, snapshot, naming):
    assert code(hub) == {"config.json": "model.code_unverified"}
    note(hub, snapshot)
    other(hub)
    assert check_refused(hub).details["files"] == [naming]


@pytest.mark.parametrize("name", ["../..", "/etc", "", "x" * 5000])
def test_an_invalid_repository_is_ignored(hub, name):
    put(hub, "config.json", json.dumps({"auto_map": {"AutoConfig": f"{name}--modeling_x.Config"}}).encode())
    assert code(hub) == {"config.json": "model.code_unverified"}


def test_the_code_of_a_generation_of_its_own_is_code(hub, snapshot):
    put(hub, "custom_generate/generate.py", b"x = 1\n")
    assert sorted(model_code.code(str(snapshot)).files) == ["custom_generate/generate.py"]


def test_code_that_does_not_come_from_the_hub_is_named(hub, snapshot):
    put(hub, "config.json", b"{}")
    (snapshot / "own.py").write_text("x = 1\n")
    assert code(hub) == {"own.py": "model.code_changed"}
    assert code(hub, "own.py") == {"own.py": "model.code_unverified"}


def test_a_directory_that_is_a_link_is_named(hub, snapshot, tmp_path):
    put(hub, "config.json", b"{}")
    (tmp_path / "elsewhere").mkdir()
    (snapshot / "package").symlink_to(tmp_path / "elsewhere")
    assert code(hub) == {"package": "model.code_changed"}


def test_a_copy_without_ids_is_unverified(hub, snapshot):
    (snapshot / "modeling_x.py").write_bytes(b"import os\n")
    assert code(hub) == {"modeling_x.py": "model.code_unverified"}
    check(hub)


def test_a_model_that_is_absent_has_no_code(tmp_path):
    check(tmp_path)


# -- against what was noted --------------------------------------------------------------------------------------------


@pytest.fixture
def noted(hub, snapshot):
    """A model whose code was noted, and where."""
    put(hub, "modeling_x.py", b"import os\n")
    put(hub, "config.json", b'{"auto_map": {}}')
    put(hub, "generation_config.json", b"{}")
    (snapshot / "own.py").write_text("x = 1\n")
    note = model_code.note_path(str(hub / "state"), "org/name", COMMIT)
    model_code.write_note(note, model_code.code_ids(str(snapshot), ["own.py"]))
    return note


def test_noted_code_passes_and_the_note_has_its_ids(hub, noted):
    check(hub, "own.py")
    assert json.loads(open(noted).read())["files"] == {
        "config.json": model_code.blob_id(b'{"auto_map": {}}', "0" * 40), "modeling_x.py": model_code.blob_id(b"import os\n", "0" * 40),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        # A link to another blob, whose content has the id that its name says.
        ("modeling_x.py", b"import os; os.system('x')\n", "was 21b405d8c2da when this revision was first seen here, it is [0-9a-f]{12} now"),
        ("modeling_y.py", b"import os\n", "was no code when .*, it is 21b405d8c2da now"),
        ("generation_config.json", b'{"auto_map": {"AutoConfig": "x"}}', "was no code when"),
        ("config.json", b"{}", "was [0-9a-f]{12} when .*, it is no code now"),
    ],
)
def test_a_file_that_leads_to_another_blob_is_named(hub, noted, name, content, words):
    put(hub, name, content)
    with pytest.raises(ClusterError, match=f"{name} was replaced on this node: it {words}") as caught:
        check(hub, "own.py")
    assert caught.value.details["files"] == [name] and f"If the change was intended: remove {noted}." in caught.value.remedy


def test_a_file_that_went_is_named_and_a_side_file_of_a_persons_own_is_theirs(hub, snapshot, noted):
    (snapshot / "own.py").write_text("x = 2\n")
    check(hub, "own.py")
    (snapshot / "modeling_x.py").unlink()
    with pytest.raises(ClusterError, match="modeling_x.py was replaced on this node"):
        check(hub, "own.py")


def test_changed_content_is_named_once(hub, snapshot, noted):
    (snapshot / "modeling_x.py").resolve().write_text("import sys\n")
    findings = model_code.code_problems(str(snapshot), ["own.py"], model_code.read_note(noted))
    assert [problem.file for problem in findings] == ["modeling_x.py", "own.py"]


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', "[" * 100_000])
def test_an_unreadable_note_is_not_a_pass(hub, noted, content):
    with open(noted, "w") as handle:
        handle.write(content)
    with pytest.raises(UnknownState, match="is not a note of the model's code") as caught:
        check(hub, "own.py")
    assert f"remove {noted}" in caught.value.remedy
