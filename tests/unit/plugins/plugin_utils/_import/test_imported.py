# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recipes of three kinds: the profile that each becomes, and the reason why others are refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from ansible_collections.gb10.cluster.plugins.plugin_utils._import import architectures, imported, reading
from ansible_collections.gb10.cluster.plugins.plugin_utils._import.draft import Choices
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import derived, profiles, resolver, validation

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
RECIPES = FIXTURES / "recipes"
CASES = yaml.safe_load((RECIPES / "cases.yml").read_text(encoding="utf-8"))
PROFILES = yaml.safe_load((RECIPES / "profiles.yml").read_text(encoding="utf-8"))
CONTRACT = "0.33.0"
DIGEST = "sha256:" + "0" * 64
COMMIT = "0123456789abcdef0123456789abcdef01234567"
#: Arguments and variables that only an image with a fork of the engine accepts, by recipe.
FORKS = {
    "eugr/dspark-pinned": {"VLLM_B12X_W4A16_FORCE_TILE_CONFIG"},
    "sparkrun/gpt-oss-120b": {"mxfp4_layers", "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8"},
    "sparkrun/v1-with-more": {"max_parallel_prefills"},
}


def unknown(_image):
    """No registry answers."""
    return "", "no registry was asked"


def convert(name, resolve=unknown):
    return imported.convert(reading.read(str(RECIPES / f"{name}.yaml")), Choices(**CASES[name].get("choices", {})), resolve)


def of_text(text, tmp_path, name="recipe", **choices):
    """Import a recipe that is given as text."""
    path = tmp_path / f"{name}.yaml"
    path.write_text(text)
    return imported.convert(reading.read(str(path)), Choices(**choices), unknown)


def eugr(tmp_path, command, more="", **choices):
    """Import a recipe that consists of a command."""
    indented = "".join(f"  {line}\n" for line in command.splitlines())
    text = f'recipe_version: "1"\nname: n\nmodel: org/m\ncontainer: org/image:1\ndefaults: {{tensor_parallel: 2, port: 8000}}\n{more}\ncommand: |\n{indented}'
    return of_text(text, tmp_path, **choices)


def refusals(result):
    return {row.field: row.why for row in result.ledger.rows if row.outcome == "refused"}


# --- the recipes --------------------------------------------------------------------------------------------------------------


def test_every_recipe_has_a_case_and_most_import():
    assert set(CASES) == {str(path.relative_to(RECIPES).with_suffix("")) for path in RECIPES.glob("*/*.yaml")}
    assert len(CASES) >= 30 and set(PROFILES) == {name for name, case in CASES.items() if "refused" not in case} and len(PROFILES) >= 20


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_a_recipe_becomes_its_profile(name):
    result = convert(name)
    assert refusals(result) == {}
    profile = {key: value for key, value in result.profile.items() if key not in ("schema", "evidence", "notes")}
    assert profile == PROFILES[name]
    assert result.profile["evidence"] == "untested" and result.profile["notes"].startswith("Imported, untested: from ")
    differs = {row.field for row in result.ledger.rows if row.differs}
    assert differs - {"container", "docker_image"} == set(CASES[name].get("differs", [])) - {"docker_image"}


@pytest.mark.parametrize("name", sorted(set(CASES) - set(PROFILES)))
def test_a_refusal_says_why_and_what_to_do(name):
    result = convert(name)
    assert result.profile is None
    rows = [(row.field, row.why) for row in result.ledger.rows if row.outcome == "refused"]
    assert set(CASES[name]["refused"].items()) <= set(rows)
    assert all(row.remedy for row in result.ledger.rows if row.outcome == "refused")
    assert any(finding["id"] == "import.refused" and finding["verdict"] == "block" for finding in result.ledger.findings())


def test_each_mod_is_refused_for_its_own_reason():
    whys = [(row.found, row.why) for row in convert("eugr/glm-5.3-flash-mods").ledger.rows if row.outcome == "refused"]
    assert whys == [
        ("mods/fix-clamp", "it holds a script, or files that only a script can install (run.sh), and no script of a recipe is executed"),
        ("mods/absent", "it is a change to the image that is not next to the recipe, so its effect is unknown"),
    ]


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_the_file_is_a_valid_profile_that_says_where_it_came_from(name, tmp_path):
    recipe = reading.read(str(RECIPES / f"{name}.yaml"))
    result = convert(name)
    path = tmp_path / f"{result.profile['id']}.yml"
    path.write_text(imported.text(result.profile, recipe), encoding="utf-8")
    for file, content in result.files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(content)
    profile, problems = profiles.read(path)
    assert problems == [] and profile["serve"] == result.profile.get("serve", {})
    assert recipe.sha256 in path.read_text() and recipe.kind in path.read_text()


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_the_newest_engine_takes_what_a_profile_has(name):
    """The contract of the engine decides, which the collection reads from the image."""
    contract = json.loads((FIXTURES / "vllm" / "contracts" / f"{CONTRACT}.json").read_text(encoding="utf-8"))
    profile, _problems = validation.validate(convert(name).profile)
    arguments = derived.serve_arguments(profile, executor="native")
    steps = resolver.resolve(resolver.Engine(CONTRACT, contract), arguments, profile["env"]["shared"], "native").steps
    assert {step.name for step in steps if step.verdict == "block"} == FORKS.get(name, set())


# --- mods ---------------------------------------------------------------------------------------------------------------------

PATCH = "--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -1 +1 @@\n-a\n+b\n"


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"run.sh": "x", "a.patch": PATCH}, "it holds a script, or files that only a script can install (run.sh), and no script of a recipe is executed"),
        ({"template.jinja": "x"}, "it holds a script, or files that only a script can install (template.jinja), and no script of a recipe is executed"),
        ({"sub/a.patch": PATCH}, "it holds a script, or files that only a script can install (sub), and no script of a recipe is executed"),
        ({"README.md": "x"}, "it holds neither patches nor packages, so what it does is unknown"),
        ({"a.patch": PATCH.replace("a/vllm", "vllm")}, "its patch a.patch does not change one Python package by paths such as a/vllm/FILE"),
        ({"a.patch": PATCH.replace("/vllm", "/usr/local/lib/python3.12/dist-packages/vllm")}, "its patch a.patch does not change one Python package"),
        ({"a.patch": PATCH + PATCH.replace("vllm", "torch")}, "its patch a.patch does not change one Python package"),
        ({"a.patch": "no patch"}, "its patch a.patch does not change one Python package"),
        ({"requirements.txt": "tilelang>=0.1\n"}, "its package tilelang>=0.1 is not pinned to a version"),
        ({"requirements.txt": "git+https://x/y.git\n"}, "its package git+https://x/y.git is not pinned to a version"),
    ],
)
def test_a_mod_that_is_more_than_patches_and_packages_is_refused(tmp_path, files, why):
    for name, content in files.items():
        (tmp_path / "mods" / "m" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mods" / "m" / name).write_text(content)
    result = eugr(tmp_path, "vllm serve org/m", "mods: [mods/m]")
    assert result.profile is None and refusals(result)["mods"].startswith(why) and result.files == {}


@pytest.mark.parametrize("mod", ["../outside.patch", "mods/../../outside.patch", "mods/link.patch", "linked", "mods/m"])
def test_a_mod_that_leads_out_of_the_recipes_folder_is_refused(tmp_path, mod):
    folder = tmp_path / "recipes"
    (folder / "mods" / "m").mkdir(parents=True)
    (tmp_path / "outside.patch").write_text(PATCH)
    for link in ("mods/link.patch", "mods/m/link.patch"):
        (folder / link).symlink_to(tmp_path / "outside.patch")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.patch").write_text(PATCH)
    (folder / "linked").symlink_to("../elsewhere")
    result = eugr(folder, "vllm serve org/m", f"mods: [{mod}]")
    assert result.files == {} and ("is not next to the recipe" in refusals(result)["mods"] or "leads out of the recipe's folder" in refusals(result)["mods"])


TEMPLATE = "{%- set think_end_token = '</think>' %}\n{{ messages }}\n"
COPIES = "#!/bin/bash\nset -e\ncp t.jinja $WORKSPACE_DIR/fixed.jinja\necho \"use --chat-template fixed.jinja\"\n"
FETCHES = "cd $WORKSPACE_DIR\nwget https://huggingface.co/org/m/resolve/main/parser.py\n"


def mod(tmp_path, **files):
    (tmp_path / "mods" / "m").mkdir(parents=True)
    for name, content in files.items():
        (tmp_path / "mods" / "m" / name.replace("__", ".")).write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("named", ["fixed.jinja", "./fixed.jinja"])
def test_a_mod_that_only_copies_a_chat_template_gives_the_template_itself(named, tmp_path):
    mod(tmp_path, run__sh=COPIES.replace("$WORKSPACE_DIR/fixed", '"${WORKSPACE_DIR}"/fixed'), t__jinja=TEMPLATE, README__md="why")
    result = eugr(tmp_path, f"vllm serve org/m --chat-template {named} -tp 1", "mods: [mods/m]")
    assert refusals(result) == {} and result.profile["serve"]["chat_template"] == TEMPLATE and "mods" not in result.profile["image"]
    assert [(row.became, row.differs) for row in result.ledger.rows if row.field == "mods"] == [("fixed.jinja", False)]
    assert next(row for row in result.ledger.rows if row.field == "--chat-template").became == "serve.chat_template, the template itself"
    other = eugr(tmp_path, "vllm serve org/m --chat-template other.jinja -tp 1", "mods: [mods/m]")
    assert other.profile["serve"]["chat_template"] == "other.jinja" and any(row.differs for row in other.ledger.rows if row.field == "--chat-template")


def test_a_mod_that_only_downloads_a_file_of_the_model_is_its_side_file(tmp_path):
    mod(tmp_path, run__sh=FETCHES)
    command = "vllm serve org/m --reasoning-parser-plugin parser.py -tp 1"
    result = eugr(tmp_path, command, "mods: [mods/m]")
    assert set(refusals(result)) == {"model"}, "it is code, so it is pinned as any other"
    result = eugr(tmp_path, command, "mods: [mods/m]", revisions={"org/m": COMMIT})
    assert refusals(result) == {} and result.profile["model"]["side_files"] == ["parser.py"]


@pytest.mark.parametrize(
    "script",
    [
        COPIES + "pip install x\n",
        COPIES.replace("t.jinja", "../t.jinja"),
        COPIES.replace("$WORKSPACE_DIR/fixed", "/etc/fixed"),
        COPIES.replace("fixed.jinja\n", "x/fixed.jinja\n", 1),
        COPIES.replace("$WORKSPACE_DIR", "$HOME"),
        COPIES.replace("cp t", "cp -r t"),
        COPIES + "curl https://x | bash\n",
        "cd $WORKSPACE_DIR\n" + COPIES,
        FETCHES.replace("cd $WORKSPACE_DIR\n", ""),
        FETCHES.replace("org/m", "org/other"),
        FETCHES.replace("huggingface.co", "example.org"),
        FETCHES.replace("wget", "wget -O x"),
        "echo nothing\n",
        "",
    ],
)
def test_a_script_that_does_anything_else_is_not_read_as_data(script, tmp_path):
    mod(tmp_path, run__sh=script, t__jinja=TEMPLATE)
    assert refusals(eugr(tmp_path, "vllm serve org/m -tp 1", "mods: [mods/m]"))["mods"].startswith("it holds a script, or files that only a script can install")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{" * 131072, "is not a chat template that fits one argument"), (b"plain", "is not a chat template that fits one argument"),
        (b"{\0", "is not a chat template that fits one argument"), (b"{\xff", "is not UTF-8 text"),
        (b"{# api_key = 'planted-0123' #}", "holds what looks like a secret"),
    ],
)  # fmt: skip
def test_what_the_engine_would_not_take_for_a_template_is_refused(content, why, tmp_path):
    mod(tmp_path, run__sh=COPIES, t__jinja=content)
    assert refusals(eugr(tmp_path, "vllm serve org/m --chat-template fixed.jinja -tp 1", "mods: [mods/m]")) == {"mods": f"its file t.jinja {why}"}


def test_the_longest_template_is_one_argument(tmp_path):
    mod(tmp_path, run__sh=COPIES, t__jinja=b"{" * 131071)
    assert refusals(eugr(tmp_path, "vllm serve org/m --chat-template fixed.jinja -tp 1", "mods: [mods/m]")) == {}


def test_a_mod_is_left_out_by_the_line_that_the_refusal_prints(tmp_path):
    mod(tmp_path, run__sh="pip install x\n")
    (tmp_path / "mods" / "n").mkdir()
    (tmp_path / "mods" / "n" / "run.sh").write_text("pip install y\n")
    recipe, more = "vllm serve org/m -tp 1", "mods: [mods/m, mods/n, mods/absent]"
    rows = [row for row in eugr(tmp_path, recipe, more).ledger.rows if row.outcome == "refused"]
    assert """-e '{"gb10_import_choices": {"without_mods": ["mods/m", "mods/n"]}}'""" in rows[0].remedy and rows[0].remedy == rows[1].remedy
    get = f"git clone --depth 1 https://github.com/eugr/spark-vllm-docker && cp -r spark-vllm-docker/mods {tmp_path}"
    assert rows[2].remedy.endswith(get) and "gb10_import_choices" not in rows[2].remedy
    result = eugr(tmp_path, recipe, more.replace(", mods/absent", ""), without_mods=["mods/m", "mods/n"])
    assert refusals(result) == {} and [(row.found, row.differs) for row in result.ledger.rows if row.field == "mods"] == [("mods/m", True), ("mods/n", True)]
    assert refusals(eugr(tmp_path, recipe, "", without_mods=["mods/m"])) == {"gb10_import_choices.without_mods": "the recipe does not name this mod"}
    guide = imported.convert(reading.read(str(RECIPES / "vllm-project" / "gpt-oss-120b.yaml")), Choices(without_mods=["mods/m"]), unknown)
    assert refusals(guide) == {"gb10_import_choices.without_mods": "the recipe does not name this mod"}


def test_an_argument_that_a_mod_may_have_brought_is_not_taken_without_it(tmp_path):
    recipe = "vllm serve org/m -tp 1 --gpu-memory-utilization-gb 50"
    result = eugr(tmp_path, recipe, "mods: [mods/m]", without_mods=["mods/m"])
    assert refusals(result) == {"--gpu-memory-utilization-gb": "no release of vLLM has it, so a mod that is left out may have brought it"}
    assert refusals(eugr(tmp_path, recipe, "mods: [mods/m]", without_mods=["mods/m"], image="org/own:1")) == {}


def test_mods_of_one_name_are_not_mixed_up(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "fix.patch").write_text(PATCH)
    assert refusals(eugr(tmp_path, "vllm serve org/m", "mods: [one/fix.patch, two/fix.patch]")) == {"mods": "it has the name fix, as another mod has"}


# --- the image ----------------------------------------------------------------------------------------------------------------


def test_a_tag_becomes_the_digest_that_its_registry_names():
    result = convert("eugr/shell-variables", lambda image: (DIGEST, "") if image == "vllm/vllm-openai:v0.28.0" else ("", "another image"))
    assert result.profile["image"]["base"] == f"vllm/vllm-openai@{DIGEST}"


def test_a_tag_is_kept_and_reported_where_no_registry_answers():
    result = convert("eugr/glm-4.7-flash-awq")
    row = next(row for row in result.ledger.rows if row.became == "image.base, by its tag")
    assert row.differs and row.why.startswith("its digest is unknown: no registry was asked.") and "can be given to another image" in row.why
    assert result.profile["image"]["base"] == "eugr/spark-vllm:latest"


def test_no_registry_is_asked_about_a_digest_or_a_refused_recipe():
    images = []
    convert("eugr/dspark-pinned", lambda image: images.append(image) or (DIGEST, ""))
    convert("sparkrun/hooks", lambda image: images.append(image) or (DIGEST, ""))
    assert images == []


def test_an_image_that_is_given_wins(tmp_path):
    result = imported.convert(reading.read(str(RECIPES / "eugr/built-image.yaml")), Choices(image="registry.example/mine:1"), unknown)
    assert result.profile["image"]["base"] == "registry.example/mine:1"
    assert refusals(eugr(tmp_path, "vllm serve org/m", image="--privileged; x"))["container"] == "it is not the reference of an image"


# --- code and secrets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["vllm serve org/m --trust-remote-code", "vllm serve org/m --trust-remote-code --revision main"])
def test_code_of_a_repository_needs_its_commit(tmp_path, command):
    result = eugr(tmp_path, command)
    why = {"--trust-remote-code": "it runs code of org/m, whose commit the recipe does not name"}
    assert refusals(result) == why and result.profile is None
    assert [row.outcome for row in result.ledger.rows if row.field == "--trust-remote-code"] == ["refused"]
    line = r'''-e "{\"gb10_import_revisions\": {\"org/m\": \"$(git ls-remote https://huggingface.co/org/m HEAD | cut -f1)\"}}"'''
    assert next(row.remedy for row in result.ledger.rows if row.outcome == "refused").endswith(line)
    assert eugr(tmp_path, command, revisions={"org/m": COMMIT}).profile["model"]["revision"] == COMMIT


@pytest.mark.parametrize(
    ("model", "image", "outcome", "differs"),
    [
        ("Qwen/Qwen3.6-35B-A3B-FP8", "vllm/vllm-openai:v0.24.0", "dropped", False),
        ("cyankiwi/MiniMax-M2.7-AWQ-4bit", "vllm/vllm-openai:v0.11.0", "dropped", False),
        # The release is unknown. An engine without the code fails right at its start.
        ("nvidia/Gemma-4-26B-A4B-NVFP4", "eugr/spark-vllm:latest", "dropped", True),
        ("nvidia/Gemma-4-26B-A4B-NVFP4", "vllm/vllm-openai:v0.18.0", "refused", True),
        ("moonshotai/Kimi-K2.5", "vllm/vllm-openai:v0.32.0", "refused", True),
        ("Qwen/Qwen3-VL-Embedding-8B", "vllm/vllm-openai:v0.32.0", "refused", True),
    ],
)
def test_code_of_a_repository_is_left_out_where_the_release_has_its_own(tmp_path, model, image, outcome, differs):
    text = f"recipe_version: '1'\nname: n\nmodel: {model}\ncontainer: {image}\ncommand: vllm serve {model} --trust-remote-code\n"
    result = of_text(text, tmp_path)
    [row] = [row for row in result.ledger.rows if row.field == "--trust-remote-code"]
    assert (row.outcome, row.differs) == (outcome, differs), row
    assert (f"git ls-remote https://huggingface.co/{model} HEAD" in row.remedy) is differs
    assert outcome == "refused" or "trust_remote_code" not in result.profile.get("serve", {}) and "vLLM has this model's code itself since" in row.why
    pinned = of_text(text, tmp_path, revisions={model: COMMIT})
    assert pinned.profile["serve"]["trust_remote_code"] is True


def test_the_line_that_is_printed_is_one_that_a_shell_and_ansible_take(tmp_path):
    remedy = next(row.remedy for row in eugr(tmp_path, "vllm serve org/m --trust-remote-code").ledger.rows if row.outcome == "refused")
    line = remedy[remedy.index("-e ") :]
    script = f'git() {{ printf "{COMMIT}\\tHEAD\\n"; }}; printf %s {line.removeprefix("-e ")}'
    given = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=20).stdout
    assert json.loads(given) == {"gb10_import_revisions": {"org/m": COMMIT}}


@pytest.mark.parametrize(
    ("model", "architecture"),
    [
        ("org/Qwen3.8-Flash-Next-NVFP4", "Qwen4ExpForConditionalGeneration"),
        ("/models/Qwen3.8-27B-NVFP4/", "Qwen3_5ForConditionalGeneration"),
        ("org/Qwen3-Coder-Next-FP8", "Qwen3NextForCausalLM"),
        ("org/Qwen3-Coder-30B", "Qwen3ForCausalLM"),
        ("org/GLM-4.7-Flash", "Glm4MoeLiteForCausalLM"),
        ("org/GLM-4.7-FP8", "Glm4MoeForCausalLM"),
        ("org/GLM-5.3-Flash-NVFP4", "Glm5NextForConditionalGeneration"),
        ("org/DeepSeek-V4.1-Flash", "DeepseekV41ForCausalLM"),
        ("org/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", "NemotronHForCausalLM"),
    ],
)
def test_a_model_is_known_by_its_name(model, architecture):
    assert architectures.known(model, "").architecture == architecture


def test_a_commit_that_is_none_is_refused(tmp_path):
    assert refusals(eugr(tmp_path, "vllm serve org/m", revisions={"org/m": "main"})) == {"model.revision": "expected 40 hexadecimal digits"}


def test_a_plugin_is_a_file_of_the_pinned_repository(tmp_path):
    command = "vllm serve org/m --reasoning-parser-plugin parser.py --reasoning-parser p"
    assert "it is code of a repository" in refusals(eugr(tmp_path, command))["model"]
    profile = eugr(tmp_path, command, revisions={"org/m": COMMIT}).profile
    assert profile["model"]["side_files"] == ["parser.py"] and profile["serve"]["reasoning_parser_plugin"] == "side_file:parser.py"
    elsewhere = eugr(tmp_path, "vllm serve org/m --tool-parser-plugin /opt/parser.py")
    assert refusals(elsewhere) == {"--tool-parser-plugin": "it is a file with code that is in no repository"}


def test_no_secret_is_kept_or_shown(tmp_path):
    token = "hf_" + "a" * 30
    more = f"env: {{HF_TOKEN: {token}, MY_PASSWORD: geheim123, VLLM_X: 'https://me:geheim123@example.com'}}\ndescription: uses {token}"
    result = eugr(tmp_path, f"export VLLM_API_KEY=geheim123\nvllm serve org/m --api-key geheim123 --hf-token {token}", more)
    text = json.dumps(result.profile) + str(result.ledger.rows)
    assert result.profile and "geheim123" not in text.replace("export VLLM_API_KEY=geheim123", "") and "env" not in result.profile
    assert token not in json.dumps(result.profile)
    assert {row.field for row in result.ledger.rows if "it is a secret" in row.why} >= {"--api-key", "--hf-token", "env.HF_TOKEN", "env.VLLM_API_KEY"}


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ("{A: $OTHER}", "it has no value: a profile has no variables of the machine that it is read on"),
        ("{A: '{{ lookup(\"pipe\", \"id\") }}'}", "it holds a Jinja template, which is not filled in"),
        ("{A: [1, 2]}", "it is not one text or number"),
        ("{A: null}", "it is not one text or number"),
        ("{'A B': 1}", "is not a valid variable name"),
        ("[A=1]", "(a list)"),
    ],
)
def test_variables_that_are_none(tmp_path, env, why):
    result = eugr(tmp_path, "vllm serve org/m", f"env: {env}")
    assert result.profile is None and any(why in row.why or why in row.found for row in result.ledger.rows if row.outcome == "refused"), result.ledger.rows


def test_a_variable_with_a_default_has_that(tmp_path):
    result = eugr(tmp_path, "vllm serve org/m", "env: {A: '${B:-x}/y', C: '${D-}'}")
    assert result.profile["env"]["shared"] == {"A": "x/y", "C": ""}
    assert [row.field for row in result.ledger.rows if "its default is taken" in row.why] == ["env.A", "env.C"]


def test_facts_of_one_machine_are_left_out(tmp_path):
    names = {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_HCA": "$IB_IF", "VLLM_HOST_IP": "10.0.0.1", "MASTER_ADDR": "10.0.0.1", "NCCL_IB_GID_INDEX": 3}
    command = "vllm serve org/m -tp {tensor_parallel} --nnodes 2 --node-rank {node_rank} --master-addr {head_ip} --headless"
    result = eugr(tmp_path, command, f"env: {json.dumps(names)}")
    assert result.profile and "env" not in result.profile and "serve" not in result.profile
    off = eugr(tmp_path, "vllm serve org/m -tp 2", "env: {NCCL_IB_DISABLE: 1, NCCL_NET: Socket}")
    assert {row.field for row in off.ledger.rows if row.differs and "InfiniBand" in row.why} == {"env.NCCL_IB_DISABLE", "env.NCCL_NET"}


# --- several repositories -----------------------------------------------------------------------------------------------------


def test_a_drafter_without_a_commit_is_an_unpinned_repository(tmp_path):
    command = """vllm serve org/m --speculative-config '{{"method":"eagle3","model":"org/draft","num_speculative_tokens":3}}'"""
    result = eugr(tmp_path, command)
    assert result.profile["repositories"] == {"drafter": {"repo": "org/draft", "purpose": "drafter"}}
    assert result.profile["serve"]["speculative_config"] == {"method": "eagle3", "model": "repository:drafter", "num_speculative_tokens": 3}
    assert [row.why for row in result.ledger.rows if row.differs and "drafter" in row.became] == ["its commit is unknown: the main branch in the cache is used"]
    code = eugr(tmp_path, f"{command} --trust-remote-code", revisions={"org/m": COMMIT})
    assert refusals(code)["--trust-remote-code"] == "it runs code of org/draft, whose commit the recipe does not name"
    both = eugr(tmp_path, f"{command} --trust-remote-code", revisions={"org/m": COMMIT, "org/draft": COMMIT})
    assert both.profile["repositories"]["drafter"]["revision"] == COMMIT


def test_a_tokenizer_of_another_repository_needs_its_commit(tmp_path):
    command = "vllm serve org/m --tokenizer org/tokens"
    assert "the engine would look for the model's commit in it" in refusals(eugr(tmp_path, command))["--tokenizer"]
    profile = eugr(tmp_path, command, revisions={"org/tokens": COMMIT}).profile
    assert profile["repositories"] == {"tokenizer": {"repo": "org/tokens", "purpose": "tokenizer", "revision": COMMIT}}
    assert profile["serve"]["tokenizer"] == "repository:tokenizer"


def test_adapters_are_repositories_too(tmp_path):
    profile = eugr(tmp_path, "vllm serve org/m --enable-lora --lora-modules a=org/one b=/opt/two").profile
    assert profile["repositories"] == {"adapter1": {"repo": "org/one", "purpose": "adapter"}}
    assert profile["serve"]["lora_modules"] == [{"name": "a", "path": "repository:adapter1"}, "b=/opt/two"]


def test_a_drafter_in_a_folder_has_to_be_in_the_image(tmp_path):
    result = eugr(tmp_path, """vllm serve org/m --speculative-config '{{"method":"dflash","model":"/workspace/dflash"}}'""")
    assert "repositories" not in result.profile and any(row.found == "/workspace/dflash" and row.differs for row in result.ledger.rows)


# --- nodes --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "command", "parallel"),
    [
        ("solo_only: true", "vllm serve org/m -tp {tensor_parallel}", {"tensor": 1}),
        ("", "vllm serve org/m -tp 2 -pp 2 --enable-expert-parallel", {"tensor": 2, "pipeline": 2, "expert": True}),
        ("cluster_only: true", "vllm serve org/m -tp 1 -pp 2", {"tensor": 1, "pipeline": 2}),
        ("", "vllm serve org/m --data-parallel-size 2 --data-parallel-address 10.0.0.1", {"tensor": 1, "data": 2}),
    ],
)
def test_sizes_become_parallel(tmp_path, more, command, parallel):
    assert eugr(tmp_path, command, more).profile["parallel"] == parallel


@pytest.mark.parametrize(
    ("more", "command", "field"),
    [
        ("cluster_only: true", "vllm serve org/m -tp 1", "parallel"),
        ("solo_only: true", "vllm serve org/m -tp 2", "parallel"),
        ("", "vllm serve org/m -tp many", "--tensor-parallel-size"),
        ("", "vllm serve org/m -tp {absent}", "--tensor-parallel-size"),
        ("", "vllm serve org/m --distributed-executor-backend external_launcher", "--distributed-executor-backend"),
        ("", "vllm serve org/m --max-model-len {absent}", "--max-model-len"),
        ("", "vllm serve org/m --config /etc/vllm.yaml", "--config"),
        ("", "vllm serve org/other", "command"),
        ("", "vllm serve org/m --revision " + "a" * 40 + " --code-revision " + "b" * 40, "--code-revision"),
        ("solo_only: maybe", "vllm serve org/m", "solo_only"),
        ("mods: one", "vllm serve org/m", "mods"),
        ("volumes: ['/home/me/fix.py:/usr/lib/fix.py']", "vllm serve org/m", "volumes"),
    ],
)
def test_what_cannot_be_in_a_profile_is_named(tmp_path, more, command, field):
    result = eugr(tmp_path, command, more)
    assert result.profile is None and field in refusals(result), result.ledger.rows


@pytest.mark.parametrize(
    ("choices", "field", "why"),
    [
        ({"values": {"tensor_paralel": 1}}, "gb10_import_choices.values.tensor_paralel", "the command does not use it"),
        ({"revisions": {"org/n": COMMIT}}, "gb10_import_revisions", "the recipe does not name this repository (did you mean 'org/m'?)"),
        ({"variant": "fp8"}, "gb10_import_choices.variant, .features", "recipes of this kind have none"),
        ({"features": ["x"]}, "gb10_import_choices.variant, .features", "recipes of this kind have none"),
    ],
)
def test_a_choice_that_changes_nothing_is_a_mistake(tmp_path, choices, field, why):
    assert refusals(eugr(tmp_path, "vllm serve org/m -tp {tensor_parallel}", **choices)) == {field: why}


def test_a_choice_that_a_recipe_of_variants_does_not_have(tmp_path):
    text = (RECIPES / "vllm-project/gemma-4-26b.yaml").read_text()
    result = of_text(text, tmp_path, variant="fp", features=["speed"], values={"max_model_len": 1})
    assert refusals(result) == {"variants": "it is not a variant of the recipe (did you mean 'fp8'?)"}
    with pytest.raises(reading.RecipeError, match="is .2."):
        of_text(text, tmp_path, values={"tensor_parallel": "2"})
    result = of_text(text, tmp_path, features=["speed"], values={"max_model_len": 1})
    assert refusals(result) == {"features": "it is not a feature of the recipe", "gb10_import_choices.values": "recipes of this kind have no placeholders"}


# --- what the launchers do by themselves ----------------------------------------------------------------------------------------


def sparkrun(tmp_path, defaults):
    """Import a recipe without a command."""
    return of_text(yaml.safe_dump({"model": "org/m", "runtime": "vllm", "container": "org/image:1", "defaults": defaults}), tmp_path)


def test_a_command_made_of_defaults_has_all_that_sparkrun_knows(tmp_path):
    config = {"method": "dspark", "model": "it's/here"}
    result = sparkrun(tmp_path, {
        "tool_call_parser": "hermes", "reasoning_parser": "qwen3", "moe_backend": "marlin", "load_format": "fastsafetensors", "seed": 7,
        "compilation_config": {"pass_config": {"fuse_act_quant": True}}, "hf_overrides": json.dumps(config), "enable_chunked_prefill": False,
        "enforce_eager": False, "enable_auto_tool_choice": True, "rope_scaling": "x",
    })  # fmt: skip
    assert refusals(result) == {}
    assert result.profile["serve"] == {
        "tool_call_parser": "hermes", "reasoning_parser": "qwen3", "moe_backend": "marlin", "load_format": "fastsafetensors", "seed": 7,
        "compilation_config": {"pass_config": {"fuse_act_quant": True}}, "hf_overrides": config, "enable_chunked_prefill": False,
        "enable_auto_tool_choice": True,
    }  # fmt: skip
    assert [row.field for row in result.ledger.rows if row.outcome == "dropped" and row.differs] == ["defaults.rope_scaling"]


def variants(tmp_path, model="", variant="", more=""):
    """Import a recipe of vllm-project/recipes that consists of its model."""
    text = f"meta: {{slug: m, hardware: {{dgx_spark_gb10: verified}}}}\nmodel: {{model_id: org/m{model}}}\nvariants: {{default: {{{variant}}}}}\n{more}"
    return of_text(text, tmp_path)


@pytest.mark.parametrize(
    ("model", "image"),
    [
        ("", "vllm/vllm-openai:latest"),
        (', min_vllm_version: "0.17.0"', "vllm/vllm-openai:latest"),
        (", nightly_required: true", "vllm/vllm-openai:nightly"),
        (', docker_image: "vllm/vllm-openai:v0.25.0"', "vllm/vllm-openai:v0.25.0"),
        (', docker_image: {amd: "vllm/vllm-openai-rocm:nightly"}', "vllm/vllm-openai:latest"),
    ],
)
def test_the_image_is_the_one_that_the_site_of_the_recipes_takes(tmp_path, model, image):
    result = variants(tmp_path, model)
    assert refusals(result) == {} and result.profile["image"]["base"] == image
    assert result.profile.get("requires", {}) == ({"vllm": ">=0.17.0"} if "min_" in model else {})


@pytest.mark.parametrize(("variant", "nodes"), [("tp: 4", 1), ("tp: 4, vram_minimum_gb: 80", 1), ("tp: 8, vram_minimum_gb: 200", 2)])
def test_the_gpus_of_one_machine_are_no_number_of_sparks(tmp_path, variant, nodes):
    assert variants(tmp_path, variant=variant).profile["parallel"] == {"tensor": nodes}


def test_a_recipe_may_use_the_words_of_a_strategy(tmp_path):
    more = "strategy_overrides: {single_node_tp: {extra_args: [--seed, '1'], vllm_args: [--seed, '2'], env: {A: x, B: x}, extra_env: {B: y}}}"
    profile = variants(tmp_path, more=more).profile
    assert profile["serve"] == {"seed": 2} and profile["env"] == {"shared": {"A": "x", "B": "y"}}


def test_all_reasons_are_named_at_once(tmp_path):
    result = eugr(tmp_path, "vllm serve org/m --trust-remote-code -tp x", "mods: [a, b]\npre_exec: pip install x\nruntime: atlas")
    assert set(refusals(result)) == {"runtime", "pre_exec", "mods", "--trust-remote-code", "--tensor-parallel-size"}


def test_an_id_of_a_shipped_profile_is_not_taken(tmp_path):
    name = profiles.known()[0]
    assert imported.slug(name) == f"{name}_imported" and imported.slug("Qwen3.8-27B (NVFP4)") == "qwen3_8_27b_nvfp4"


# --- commands before the engine, and files of one machine ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "hook",
    [
        "mkdir -p /root/.cache/vllm && cp -a /opt/seed/. ~/.cache/vllm/ 2>/dev/null || true",
        "cp -r /opt/seed/triton $HOME/.triton",
        "{copy: /home/me/kernels, dest: /root/.cache/flashinfer}",
        "export A=1; ln -sfn /opt/tuned /root/.cache/tuned",
    ],
)
def test_what_only_fills_a_cache_is_left_out(tmp_path, hook):
    value = hook if hook.startswith("{") else json.dumps(hook)
    result = eugr(tmp_path, "vllm serve org/m", f"pre_exec: [{value}]")
    assert refusals(result) == {} and result.profile
    assert any("is about a cache" in row.why and not row.differs for row in result.ledger.rows)
    before = eugr(tmp_path, f"{hook}\nvllm serve org/m") if not hook.startswith("{") else result
    assert refusals(before) == {} and before.profile


@pytest.mark.parametrize(
    "hook",
    [
        "cp /opt/x.py /usr/lib/python3/x.py",
        "cp -a /a /root/.cache/a && pip install x",
        "pip install x || true",
        "ln -sf /opt/lib.so /usr/lib/lib.so",
        "mkdir -p /root/.cache/a /etc/a",
        "vllm serve org/other",
        "cp a",
        "cp",
    ],
)
def test_a_hook_that_does_more_is_refused(tmp_path, hook):
    result = eugr(tmp_path, "vllm serve org/m", f"pre_exec: [{json.dumps(hook)}]")
    assert result.profile is None and set(refusals(result)) <= {"pre_exec", "command"}


def test_a_directory_of_the_nodes_becomes_a_path(tmp_path):
    text = "sparkrun_version: '0.3'\ncontainer: org/image:1\nvolumes: ['/data/models:/models:ro']\ncommand: |\n  {command}\n{more}"
    draft = json.dumps({"method": "dflash", "model": "/models/drafter", "num_speculative_tokens": 4})
    command = f"vllm serve /models/Qwen3.6-27B --trust-remote-code --speculative-config '{draft}'"
    result = of_text(text.replace("{command}", command).replace("{more}", ""), tmp_path)
    assert result.profile["model"] == {"path": "/data/models/Qwen3.6-27B"}
    assert result.profile["repositories"] == {"drafter": {"path": "/data/models/drafter", "purpose": "drafter"}}
    assert result.profile["serve"]["speculative_config"]["model"] == "repository:drafter"
    assert [row.outcome for row in result.ledger.rows if row.field == "volumes"] == ["dropped"]
    assert validation.validate(result.profile)[1] == []
    unmounted = text.replace("{command}", "vllm serve {model}").replace("{more}", "model: /srv/models/x").replace("'/data/models:/models:ro'", "")
    absolute = of_text(unmounted, tmp_path)
    assert absolute.profile["model"] == {"path": "/srv/models/x"}
    code = of_text(text.replace("{command}", "vllm serve /models/mine --trust-remote-code").replace("{more}", ""), tmp_path)
    assert refusals(code) == {"--trust-remote-code": "it runs code of /data/models/mine, whose commit the recipe does not name"}
    assert next(row.remedy for row in code.ledger.rows if row.outcome == "refused") == "name the hub's repository in the recipe instead of the directory"


def test_a_link_and_a_snapshot_say_which_commit_it_is(tmp_path):
    snapshot = f"/root/.cache/huggingface/hub/models--org--m/snapshots/{COMMIT}"
    for command in (f"ln -sfn {snapshot} /model && vllm serve /model", f"vllm serve {snapshot}"):
        result = eugr(tmp_path, command)
        assert result.profile["model"] == {"repo": "org/m", "revision": COMMIT}, result.ledger.rows
    drafter = f"/root/.cache/huggingface/hub/models--org--draft/snapshots/{COMMIT}/"
    result = eugr(tmp_path, f"""vllm serve org/m --speculative-config.model {drafter} --speculative-config.method eagle3""")
    assert result.profile["repositories"] == {"drafter": {"repo": "org/draft", "purpose": "drafter", "revision": COMMIT}}


def test_what_a_guide_says_of_a_spark_is_shown_and_its_image_is_named(tmp_path):
    guide = """## Overview
- **DGX Spark:** vLLM 0.24 or newer
### DGX Spark (GB10)
Leave headroom:
```bash
# Use container: vllm/vllm-openai:v0.24.0-ubuntu2404
vllm serve org/m --gpu-memory-utilization 0.8 \\
  --max-num-seqs 8
```
### Others
vllm serve org/m --gpu-memory-utilization 0.95
"""
    text = yaml.safe_dump({"meta": {"slug": "m", "hardware": {"dgx_spark_gb10": "verified"}}, "model": {"model_id": "org/m"}, "guide": guide})
    result = of_text(text, tmp_path)
    rows = [row for row in result.ledger.rows if row.field == "guide"]
    assert [row.found for row in rows] == ["- **DGX Spark:** vLLM 0.24 or newer", "DGX Spark (GB10)"] and all(row.differs for row in rows)
    assert "vllm serve org/m --gpu-memory-utilization 0.8 --max-num-seqs 8" in rows[1].why and "0.95" not in rows[1].why
    [image] = [row for row in result.ledger.rows if row.field == "docker_image" and row.became.endswith(":latest")]
    assert image.differs and image.remedy.endswith("-e gb10_import_image=vllm/vllm-openai:v0.24.0-ubuntu2404")
