# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A recipe for another launcher as a profile, through the playbook, on the controller alone."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import through_ansible
import yaml

ROOT = Path(__file__).resolve().parents[2]
RECIPES = Path(__file__).with_name("fixtures") / "recipes"
#: Its image has a digest, so no registry is asked.
PINNED = RECIPES / "eugr" / "dspark-pinned.yaml"


def run(given, *arguments, cwd, env=None, **variables):
    """Run the playbook without an inventory; returns its exit code and its output on one line."""
    extra = json.dumps({"gb10_import": str(given), **variables})
    done = through_ansible.run("playbook", str(ROOT / "playbooks" / "import.yml"), *arguments, "--extra-vars", extra, cwd=cwd, env=env)
    return done.rc, " ".join(done.out.split())


def test_a_recipe_becomes_a_file_that_the_collection_takes_and_a_second_run_changes_nothing(tmp_path):
    code, text = run(PINNED, cwd=tmp_path, gb10_to="profiles")
    assert code == 0 and "changed=1" in text, text
    assert "import.taken controller --kv-cache-memory-bytes: 8589934592 is serve.kv_cache_memory_bytes" in text
    assert "is the profile dspark_pinned, imported and untested: -e gb10_profile=profiles/dspark_pinned.yml" in text
    profile, record = tmp_path / "profiles" / "dspark_pinned.yml", tmp_path / "profiles" / "dspark_pinned.import.json"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (profile, record)] == [0o600, 0o600]
    content = json.loads(record.read_text())
    assert (content["schema"], content["kind"], content["id"]) == (1, "gb10.cluster.import", "dspark_pinned")
    assert {row["outcome"] for row in content["rows"]} == {"taken", "changed", "dropped"}
    assert content["profile"] == yaml.safe_load(profile.read_text())
    words = (str(ROOT / "playbooks" / "plan.yml"), "--tags", "profiles", "-e", "gb10_profile=profiles/dspark_pinned.yml")
    listed = through_ansible.run("playbook", *words, cwd=tmp_path)
    assert listed.rc == 0 and "0xSero/DeepSeek-V4-Flash-0731-REAP" in listed.out and "untested" in listed.out, listed.out
    code, text = run(PINNED, cwd=tmp_path, gb10_to="profiles")
    assert code == 0 and "changed=0" in text, text


def test_patches_of_a_recipe_lie_next_to_the_profile(tmp_path):
    image = {"gb10_import_image": f"registry.example/engine@sha256:{'0' * 64}"}
    code, text = run(RECIPES / "eugr" / "with-patches.yaml", cwd=tmp_path, gb10_to="p", **image)
    assert code == 0 and "import.taken controller mods: mods/fix-prefix-cache is image.mods.fix-prefix-cache" in text, text
    assert (tmp_path / "p" / "with_patches.mods" / "kernels" / "kernels.patch").read_bytes() == (RECIPES / "eugr" / "mods" / "kernels.patch").read_bytes()
    listed = through_ansible.run("playbook", str(ROOT / "playbooks" / "plan.yml"), "--tags", "profiles", "-e", "gb10_profile=p/with_patches.yml", cwd=tmp_path)
    assert listed.rc == 0 and "local/with_patches:imported" in listed.out, listed.out


def test_a_file_of_the_users_is_never_written_over(tmp_path):
    (tmp_path / "dspark_pinned.yml").write_text("mine")
    code, text = run(PINNED, cwd=tmp_path, gb10_to=str(tmp_path))
    assert code != 0 and "dspark_pinned.yml: exists already, with another content; expected a new file" in text
    assert (tmp_path / "dspark_pinned.yml").read_text() == "mine" and [path.name for path in tmp_path.iterdir()] == ["dspark_pinned.yml"]


def test_check_mode_shows_the_file_and_writes_nothing(tmp_path):
    code, text = run(PINNED, "--check", "--diff", cwd=tmp_path, gb10_to="profiles")
    assert code == 0 and "changed=1" in text and "+id: dspark_pinned" in text and not (tmp_path / "profiles").exists(), text


def test_a_refused_recipe_fails_with_the_whole_table_and_writes_nothing(tmp_path):
    env = {"ANSIBLE_SHOW_CUSTOM_STATS": "true"}
    code, text = run(RECIPES / "eugr" / "glm-5.3-flash-mods.yaml", cwd=tmp_path, env=env, gb10_to="profiles")
    assert code != 0, text
    why = "it holds a script, or files that only a script can install (run.sh), and no script of a recipe is executed"
    assert f"block import.refused controller mods: mods/fix-clamp is refused: {why}" in text, text
    assert "mods/absent is refused: it is a change to the image that is not next to the recipe" in text
    assert "Nothing was written." in text and not (tmp_path / "profiles").exists()
    assert "gb10_verdict: block" in text and "kind: gb10.cluster.import" in text


def test_remote_code_is_refused_until_its_commit_is_given(tmp_path):
    recipe = RECIPES / "eugr" / "nemotron-3-super-solo.yaml"
    # It is unknown whether this release's registry has the model's code.
    given = {"gb10_import_image": f"vllm/vllm-openai:v0.20.0@sha256:{'0' * 64}"}
    code, text = run(recipe, cwd=tmp_path, **given)
    assert code != 0 and "whose commit the recipe does not name" in text
    revisions = {"nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": "4f0cf9daaeb7a4d5e23f80a00e7ed15f0e03caf6"}
    code, text = run(recipe, cwd=tmp_path, gb10_import_revisions=revisions, **given)
    assert code == 0 and "nothing was written: give a directory as gb10_to" in text and list(tmp_path.iterdir()) == [], text


def test_variant_features_and_values_are_chosen(tmp_path):
    chosen = {"gb10_import_choices": {"variant": "fp8", "features": ["spec_decoding"], "values": {"tensor_parallel": 2}}}
    image = f"vllm/vllm-openai@sha256:{'0' * 64}"
    code, text = run(RECIPES / "vllm-project" / "gemma-4-26b.yaml", cwd=tmp_path, gb10_import_image=image, gb10_to=".", **chosen)
    assert code == 0, text
    profile = yaml.safe_load((tmp_path / "gemma_4_26b_a4b_it_fp8.yml").read_text())
    assert profile["model"]["repo"] == "RedHatAI/gemma-4-26B-A4B-it-FP8-dynamic" and profile["parallel"] == {"tensor": 2}
    assert profile["serve"]["speculative_config"]["model"] == "repository:assistant" and profile["image"]["base"] == image
    assert profile["repositories"] == {"assistant": {"repo": "google/gemma-4-26B-A4B-it-assistant", "purpose": "assistant"}}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("none.yaml", "none.yaml: cannot be read: No such file or directory"),
        ("", "No recipe was named."),
        ("https://github.com/org/r/blob/main/a/glm.yaml", "curl -LO https://raw.githubusercontent.com/org/r/main/a/glm.yaml, look at it, then -e gb10_import="),
        ("qwen3-1.7b-vllm", "is the name of a recipe, which is not fetched; expected a file"),
        ("@official/qwen3-1.7b-vllm", "then -e gb10_import=./qwen3-1.7b-vllm.yaml"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, given, words):
    code, text = run(given, cwd=tmp_path)
    assert code != 0 and words in text
