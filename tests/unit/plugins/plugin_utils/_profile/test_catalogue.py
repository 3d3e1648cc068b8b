# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The catalogue: every profile with its requirements, and a broken file next to valid ones."""

from __future__ import annotations

import pytest
import yaml

from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import catalogue, form, profiles, validation

SMALL = {
    "schema": 1,
    "id": "small",
    "model": {"repo": "org/small"},
    "image": {"base": "registry.example/vllm:1", "layers": []},
    "parallel": {"tensor": 2, "pipeline": 2},
}


@pytest.fixture
def directory(tmp_path):
    """Return a user's directory with a valid profile and two invalid files."""
    (tmp_path / "small.yml").write_text(yaml.safe_dump(SMALL), encoding="utf-8")
    (tmp_path / "broken.yml").write_text("a: [", encoding="utf-8")
    (tmp_path / "typo.yaml").write_text(yaml.safe_dump({**SMALL, "id": "typo", "modle": {}}), encoding="utf-8")
    return tmp_path


def by_id(entries):
    return {entry["id"]: entry for entry in entries}


def test_shipped_profiles_are_all_valid():
    entries = catalogue.catalogue()
    assert [entry["id"] for entry in entries] == sorted(path.stem for path in profiles.SHIPPED.glob("*.yml"))
    assert all(entry["problems"] == [] for entry in entries)


def test_needs_of_a_shipped_profile():
    needs = by_id(catalogue.catalogue())["nemotron_3_super_tp2"]["needs"]
    assert needs["nodes"] == "2, of 128 GB or more, all alike"
    assert needs["weights"] == "40.2 GB on each node"
    assert needs["image"] == "nvcr.io/nvidia/vllm:26.05.post1-py3 with ray added, as local/vllm-ray:26.05.post1"
    assert needs["versions"].startswith("vllm >=0.18.0,<0.33.0; python")
    assert needs["switches"]["mtp"].endswith("Needs vllm >=0.19.0. Untested.")
    assert needs["evidence"][0].startswith("reported by") and needs["evidence"][0].endswith("-dgx-spark-cluster/, 2026-06-14)")


def test_needs_of_a_profile_that_says_little():
    needs = catalogue.needs(validation.validate(SMALL)[0])
    assert needs["nodes"] == "4, of a size that the profile does not state"
    assert (needs["weights"], needs["versions"], needs["evidence"]) == ("not stated", "not stated", ["untested"])
    assert needs["image"] == "registry.example/vllm:1, as it is"


def test_evidence_names_the_digest_of_its_image():
    row = {"who": "me", "image": "r/vllm:1", "figures": "9 tok/s"}
    profile, problems = validation.validate({**SMALL, "evidence": [{**row, "digest": f"r/vllm@sha256:{'0' * 64}"}, row]})
    assert problems == []
    assert catalogue.needs(profile)["evidence"] == [f"me, on r/vllm:1 (r/vllm@sha256:{'0' * 64}): 9 tok/s", "me, on r/vllm:1: 9 tok/s"]


def test_a_broken_file_hides_nothing(directory):
    entries = by_id(catalogue.catalogue(directories=[str(directory)]))
    assert entries["small"]["problems"] == []
    assert "nemotron_3_super_tp2" in entries
    assert entries["typo"]["problems"] == [entries["typo"]["problems"][0]]
    assert "modle: is not a known field (did you mean 'model'?)" in entries["typo"]["problems"][0]
    assert entries["broken"]["problems"][0].startswith("the file: can't be read as YAML")
    assert (entries["broken"]["needs"], entries["broken"]["profile"]) == ({}, {})


def test_names_choose(directory):
    entries = catalogue.catalogue(["small", str(directory / "broken.yml")], [str(directory)])
    assert [entry["id"] for entry in entries] == ["small", "broken"]
    with pytest.raises(form.ProfileError, match="unknown profile 'none'"):
        catalogue.catalogue(["none"])


def test_needs_of_one_node_with_a_drafter():
    entry = by_id(catalogue.catalogue())["qwen3_8_27b_nvfp4_one"]
    assert entry["needs"]["nodes"] == "1, of 64 GB or more"
    assert entry["needs"]["beside"] == ["drafter: z-lab/Qwen3.8-27B-DFlash2 at 50307d4c4cde6860d4eee73e2547cd786fe8e8a4, drafter, 4 GB"]
    assert entry["needs"]["download"] == "25 GB on each node"
