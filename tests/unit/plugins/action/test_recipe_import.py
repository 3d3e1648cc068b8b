# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The registry requests of a recipe import and the files that it writes."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.action import recipe_import
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError


def action(answer):
    """An action whose module returns the given answer; it records the calls."""
    made = object.__new__(recipe_import.ActionModule)
    made.asked = []
    made._execute_module = lambda **options: made.asked.append(options) or answer
    return made


def test_the_registry_is_asked_through_the_module_for_digests():
    made = action({"digest": {"digest": "sha256:" + "1" * 64, "reference": "org/image@…"}})
    assert made._digest("org/image:1", {}) == ("sha256:" + "1" * 64, "")
    assert made.asked == [{"module_name": "gb10.cluster.image_info", "module_args": {"image": "org/image:1", "want": ["digest"]}, "task_vars": {}}]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"failed": True, "msg": "the registry does not say\nwhat it is."}, "the registry does not say what it is"),
        ({"failed": True}, "no answer"),
        (
            {"failed": True, "msg": "the node's Python lacks the Docker SDK", "reason": "no Docker SDK"},
            "registries are asked through the Docker engine of this controller, whose Python lacks the Docker SDK (pip install docker)",
        ),
    ],
)
def test_a_registry_that_does_not_answer_is_a_reason_and_no_failure(answer, why):
    assert action(answer)._digest("org/image:1", {}) == ("", why)


def test_the_same_profile_is_written_once_and_another_never_over_it(tmp_path):
    profile, record = str(tmp_path / "new" / "x.yml"), str(tmp_path / "new" / "x.import.json")
    files = {profile: b"id: x\n", record: b"{}\n"}
    recipe_import.write(recipe_import.pending(files))
    # A registry's answers change from day to day, so the record of the same profile may differ.
    assert recipe_import.pending({**files, record: b"{1}\n"}) == {}
    with pytest.raises(ClusterError) as refused:
        recipe_import.pending({**files, profile: b"id: y\n"})
    assert refused.value.where == profile and "exists already" in refused.value.what
    (tmp_path / "new" / "x.yml").unlink()
    with pytest.raises(ClusterError) as refused:
        recipe_import.pending({**files, record: b"{1}\n"})
    assert refused.value.where == record
    assert recipe_import.pending(files) == {profile: b"id: x\n"}


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterError) as refused:
        recipe_import.write({str(tmp_path / "file" / "x.yml"): b""})
    assert "cannot be written" in refused.value.what and refused.value.remedy
