# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The data in awx/ by AWX's rules: the lists, the questions of surveys, the effect of the answers. The rules in awx_rules are tested to refuse, too."""

from __future__ import annotations

import copy
import itertools
import json
import typing as t
from pathlib import Path

import awx_job
import awx_rules
import pytest
import yaml

from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs import tags

ROOT = awx_job.ROOT
Objects = dict[str, list[dict[str, t.Any]]]

#: Options of each kind that the roles of infra.aap_configuration document (README.md of roles/controller_* in
#: github.com/redhat-cop/infra.aap_configuration, read in 2026-11), as far as the data could use them.
DOCUMENTED = {
    "controller_projects": "name description organization scm_type scm_url default_environment scm_branch scm_refspec credential scm_clean "
    "scm_delete_on_update scm_track_submodules scm_update_on_launch scm_update_cache_timeout allow_override timeout wait update_project state",
    "controller_inventories": "name description organization instance_groups input_inventories variables kind host_filter state",
    "controller_inventory_sources": "name description inventory organization source source_path source_vars host_filter limit credential "
    "execution_environment overwrite overwrite_vars timeout verbosity update_on_launch update_cache_timeout source_project scm_branch state",
    "controller_credential_types": "name description injectors inputs kind state",
    "controller_credentials": "name description organization credential_type inputs user team state update_secrets",
    "controller_execution_environments": "name description image organization credential pull state",
    "controller_templates": "name description execution_environment job_type inventory organization project playbook credentials forks limit verbosity "
    "extra_vars job_tags skip_tags diff_mode use_fact_cache ask_scm_branch_on_launch ask_diff_mode_on_launch ask_variables_on_launch ask_limit_on_launch "
    "ask_tags_on_launch ask_skip_tags_on_launch ask_job_type_on_launch ask_verbosity_on_launch ask_inventory_on_launch ask_credential_on_launch "
    "ask_execution_environment_on_launch ask_forks_on_launch survey_enabled survey_spec survey become_enabled allow_simultaneous timeout instance_groups "
    "job_slice_count labels state",
    "controller_workflows": "name description organization ask_inventory_on_launch ask_limit_on_launch ask_scm_branch_on_launch ask_variables_on_launch "
    "extra_vars allow_simultaneous inventory limit labels job_tags skip_tags scm_branch state workflow_nodes destroy_current_nodes survey_enabled survey_spec "
    "survey",
}
#: The same of a node of a workflow, in the form that role calls the export model.
DOCUMENTED_NODE = frozenset({"identifier", "unified_job_template", "related", "all_parents_must_converge", "extra_data", "inventory", "job_tags", "state"})
DOCUMENTED_QUESTION = frozenset(
    {"question_name", "question_description", "required", "type", "variable", "default", "min", "max", "choices", "new_question"}
)
#: Module of awx.awx for each of the lists.
MODULES = {
    "controller_projects": "project", "controller_inventories": "inventory", "controller_inventory_sources": "inventory_source",
    "controller_credential_types": "credential_type", "controller_credentials": "credential", "controller_templates": "job_template",
    "controller_execution_environments": "execution_environment", "controller_workflows": "workflow_job_template",
}  # fmt: skip


def options() -> dict[str, dict[str, t.Any]]:
    """Every variable in a role's argument spec. The role doctor has settings of the other roles without their defaults."""
    known: dict[str, dict[str, t.Any]] = {}
    for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            for name, option in entry.get("options", {}).items():
                known[name] = {**option, **known.get(name, {})}
    return known


OPTIONS = options()
#: Defaults that only the role doctor has, in its vars and tasks.
DOCTORS = {"gb10_become": True}
#: Settings that an unanswered question leaves to the inventory.
INVENTORYS = ("gb10_allow", "gb10_mode", "gb10_profile")
#: What a survey begins with for settings without a default, and for those that it leaves to the inventory.
WITHOUT_DEFAULT = {"gb10_explain": "", "gb10_import": "", **dict.fromkeys(INVENTORYS, "")}


def surveyed(objects: Objects) -> list[dict[str, t.Any]]:
    """Templates and workflows that have a survey."""
    return [template for template in (*objects["controller_templates"], *objects["controller_workflows"]) if template["survey_enabled"]]


def questions(objects: Objects) -> list[tuple[str, dict[str, t.Any]]]:
    return [(template["name"], question) for template in surveyed(objects) for question in template["survey_spec"]["spec"]]


def by_name(objects: Objects, name: str) -> dict[str, t.Any]:
    return next(template for template in objects["controller_templates"] if template["name"] == name)


# --- lists --------------------------------------------------------------------------------------------------------------------


def test_awx_lists_the_playbooks_and_nothing_else(jobs: awx_job.Jobs) -> None:
    assert awx_rules.playbooks(jobs.project) == sorted(f"playbooks/{path.name}" for path in (ROOT / "playbooks").glob("*.yml"))


def test_awx_offers_the_example_inventory(jobs: awx_job.Jobs, objects: Objects) -> None:
    (source,) = objects["controller_inventory_sources"]
    assert source["source_path"] == "inventories/example/hosts"
    assert source["source_path"] in awx_rules.inventories(jobs.project)


def test_every_template_names_a_playbook_that_awx_lists(jobs: awx_job.Jobs, objects: Objects) -> None:
    listed = awx_rules.playbooks(jobs.project)
    assert [template["name"] for template in objects["controller_templates"] if template["playbook"] not in listed] == []


@pytest.mark.parametrize(
    ("path", "content", "listed"),
    [
        ("site.yml", "- hosts: all\n", True),
        ("deep/er/site.yaml", "- name: x\n  hosts: all\n", True),
        ("site.yml", "- import_playbook: other.yml\n", True),
        ("site.yml", "$ANSIBLE_VAULT;1.1;AES256\n", True),
        ("inventories/prod.yml", "all:\n  hosts:\n    a:\n", True),
        ("site.yml", "- ansible.builtin.import_playbook: other.yml\n", False),
        ("site.txt", "- hosts: all\n", False),
        ("tasks/site.yml", "- hosts: all\n", False),
        ("molecule/x/tasks/converge.yml", "- hosts: all\n", False),
        ("roles/x/site.yml", "- hosts: all\n", False),
        (".hidden/site.yml", "- hosts: all\n", False),
        ("group_vars/all.yml", "hosts: 3\n", False),
    ],
)
def test_the_listing_rule(tmp_path: Path, path: str, content: str, listed: bool) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(content, encoding="utf-8")
    assert awx_rules.playbooks(tmp_path) == ([path] if listed else [])


@pytest.mark.parametrize(("name", "playbooks", "inventories"), [("hosts.yml", ["hosts.yml"], []), ("hosts", [], ["hosts"])])
def test_an_inventory_is_offered_under_a_name_without_an_ending(tmp_path: Path, name: str, playbooks: list[str], inventories: list[str]) -> None:
    """In the form that init writes. Ansible reads either."""
    text = "---\ngb10_cluster:\n  children:\n    gb10_head:\n      hosts:\n        spark-1:\n"
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert (awx_rules.playbooks(tmp_path), awx_rules.inventories(tmp_path)) == (playbooks, inventories)
    listed = awx_job.ansible("inventory", "-i", str(tmp_path / name), "--list")
    assert json.loads(listed.stdout)["gb10_head"] == {"hosts": ["spark-1"]}


# --- surveys ------------------------------------------------------------------------------------------------------------------


def test_awx_takes_every_survey(objects: Objects) -> None:
    assert {template["name"]: awx_rules.survey_error(template["survey_spec"]) for template in surveyed(objects)} == {
        template["name"]: "" for template in surveyed(objects)
    }


QUESTION = {"question_name": "q", "variable": "v", "type": "multiplechoice", "choices": ["a", "b"], "default": "a", "required": True}
GOOD = {"name": "n", "description": "d", "spec": [QUESTION]}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"default": "c"}, "the default is none of the choices"),
        ({"default": "a\nb"}, "there is more than one default"),
        ({"choices": None}, "there are no choices"),
        ({"required": "true"}, "'required' has the wrong type"),
        ({"variable": None}, "'variable' is missing"),
        ({"type": "boolean"}, "there is no type boolean"),
        ({"type": "integer", "default": "3"}, "the default is no integer"),
        ({"type": "integer", "default": 3, "min": "1"}, "'min' is no whole number"),
        ({"type": "text", "default": "$encrypted$"}, "$encrypted$ is no default"),
        ({"default": True}, "the default is no multiplechoice"),
    ],
)
def test_awx_would_refuse(change: dict[str, t.Any], error: str) -> None:
    assert awx_rules.survey_error(GOOD) == ""
    bad = copy.deepcopy(GOOD)
    bad["spec"][0] |= change
    bad["spec"][0] = {name: value for name, value in bad["spec"][0].items() if value is not None}
    assert error in awx_rules.survey_error(bad)


@pytest.mark.parametrize("spec", [{}, {**GOOD, "spec": []}, {"name": "n", "spec": GOOD["spec"]}, {**GOOD, "spec": GOOD["spec"] * 2}, {**GOOD, "name": 3}, []])
def test_awx_would_refuse_the_whole_survey(spec: t.Any) -> None:
    assert awx_rules.survey_error(spec)


def test_questions_are_of_sorts_that_awx_stores_and_hands_on_unchanged(objects: Objects) -> None:
    """AWX silently drops the default of a multiselect question, and a password would become a variable of the play."""
    for name, question in questions(objects):
        # The id of a lock, that only a refused job names, files, names of models and nodes, lengths, rungs and the place of logs or of a recipe are texts,
        # and mostly there is none.
        text = question["variable"] in (
            "gb10_break_lock", "gb10_bundle_dir", "gb10_explain", "gb10_import", "gb10_ladder_rungs", "gb10_lease",
            "gb10_mode", "gb10_models_remove", "gb10_plan_context", "gb10_protect_measures", "gb10_single", "gb10_to",
        )  # fmt: skip
        assert question["type"] in (("text",) if text else ("multiselect",) if question["variable"] == "gb10_allow" else ("multiplechoice", "integer")), name
        assert set(question) <= DOCUMENTED_QUESTION, name
        # A mode or a profile that was not chosen is the one of the inventory.
        assert question["required"] is not (text or question["variable"] in INVENTORYS) and question["question_description"], name


def test_answers_have_the_types_of_the_settings(objects: Objects) -> None:
    for name, question in questions(objects):
        option = OPTIONS[question["variable"]]
        if option["type"] == "bool":
            assert sorted(awx_rules.choices(question)) == ["false", "true"], (name, question)
        elif option["type"] == "int":
            assert question["type"] == "integer", (name, question)
        elif option["type"] == "list":
            assert question["type"] == "multiselect" and set(awx_rules.choices(question)) <= set(option["choices"]), (name, question)
        else:
            # A command is a list of words, or a text.
            assert option["type"] in ("str", "raw") and question["type"] in ("multiplechoice", "text"), (name, question)


def test_an_unanswered_survey_does_what_the_collection_does_by_itself(objects: Objects) -> None:
    for name, question in questions(objects):
        default = {**DOCTORS, **WITHOUT_DEFAULT}.get(question["variable"], OPTIONS[question["variable"]].get("default"))
        plain = str(default).lower() if isinstance(default, bool) else default
        assert question["default"] == plain, (name, question["variable"])


def test_what_disrupts_asks_first(objects: Objects) -> None:
    asks = {template["name"]: {question["variable"]: question["default"] for question in template["survey_spec"]["spec"]} for template in surveyed(objects)}
    offered = {name: awx_rules.choices(question) for name, question in questions(objects) if question["variable"] == "gb10_allow"}
    assert {default["gb10_allow"] for default in asks.values() if "gb10_allow" in default} == {""}
    assert offered == {
        "GB10 serve": ["restart", "interrupt", "stale_head"],
        "GB10 doctor": ["baseline"],
        "GB10 teardown": ["teardown", "interrupt", "lost_node"],
        "GB10 mode": ["restart", "interrupt", "lost_node"],
        "GB10 prune": ["remove"],
        "GB10 bench": ["ladder"],
        "GB10 bundle": ["names"],
        "GB10 bring-up with proof": ["teardown"],
    }
    assert asks["GB10 models"]["gb10_models_remove"] == ""
    # What loads the links is a tag, and a job begins without any.
    assert [template["name"] for template in objects["controller_templates"] if template.get("job_tags")] == []


def test_the_profiles_that_are_offered_are_the_shipped_ones(objects: Objects) -> None:
    shipped = sorted(path.stem for path in (ROOT / "playbooks" / "profiles").glob("*.yml"))
    offered = [awx_rules.choices(question) for _name, question in questions(objects) if question["variable"] == "gb10_profile"]
    assert len(offered) >= 5
    assert all(choices == shipped for choices in offered)


def test_profiles_of_ones_own_can_be_offered(tmp_path: Path) -> None:
    own = awx_job.data(tmp_path, gb10_awx_profiles=["mine"], gb10_awx_profile="mine")
    offered = {question["default"]: awx_rules.choices(question) for _name, question in questions(own) if question["variable"] == "gb10_profile"}
    assert offered == {"mine": ["mine"]}
    assert all(awx_rules.survey_error(template["survey_spec"]) == "" for template in surveyed(own))


# --- variables ----------------------------------------------------------------------------------------------------------------


def test_runtime_over_survey_over_template() -> None:
    template = {"extra_vars": {"a": "template", "b": "template", "v": "template"}, "survey_enabled": True, "survey_spec": copy.deepcopy(GOOD)}
    template["survey_spec"]["spec"].append({"question_name": "q", "variable": "b", "type": "text", "default": "survey", "required": False})
    assert awx_rules.extra_vars(template, {}) == {"a": "template", "b": "survey", "v": "a"}
    assert awx_rules.extra_vars(template, {"b": "runtime"}) == {"a": "template", "b": "runtime", "v": "a"}
    assert awx_rules.extra_vars({**template, "survey_enabled": False}, {}) == template["extra_vars"]


@pytest.mark.parametrize("answers", [{"v": "c"}, {"v": True}, {"stranger": 1}])
def test_answers_that_awx_refuses(answers: dict[str, t.Any]) -> None:
    template = {"survey_enabled": True, "survey_spec": GOOD}
    assert awx_rules.accepted(template, {"v": "b"}) == {"v": "b"}
    with pytest.raises(awx_rules.Refused):
        awx_rules.accepted(template, answers)


def test_a_default_that_is_no_answer_counts_for_nothing() -> None:
    question = {"question_name": "q", "variable": "v", "type": "multiselect", "choices": "a\nb", "default": "a", "required": False}
    assert awx_rules.extra_vars({"survey_enabled": True, "survey_spec": {**GOOD, "spec": [question]}}, {}) == {}


def test_every_launch_with_the_defaults_is_accepted(objects: Objects) -> None:
    for template in surveyed(objects):
        variables = awx_rules.extra_vars(template, awx_rules.accepted(template, {}))
        # A choice that begins with none leaves it to the inventory.
        offered = {question["variable"] for question in template["survey_spec"]["spec"] if question["type"] == "text" or question["default"] != ""}
        assert offered <= set(variables)


def test_every_variable_is_a_setting_of_some_role_and_no_secret(objects: Objects) -> None:
    for template in (*objects["controller_templates"], *objects["controller_workflows"]):
        for variable in set(awx_rules.extra_vars(template, {})) - {"__gb10_needed_consent"}:
            assert variable in OPTIONS, (template["name"], variable)
            assert not OPTIONS[variable].get("no_log"), (template["name"], variable)


# --- templates ----------------------------------------------------------------------------------------------------------------


def test_no_two_jobs_of_a_template_at_a_time_and_no_way_around_the_survey(objects: Objects) -> None:
    for template in (*objects["controller_templates"], *objects["controller_workflows"]):
        assert template["allow_simultaneous"] is False
        # Only answers to questions can be given, and no part of the cluster can be left out.
        assert not template.get("ask_variables_on_launch") and not template.get("ask_limit_on_launch")
        assert not template.get("limit")
    # Half of a cluster can't be judged: a slice of a job is one.
    assert all(template.get("job_slice_count", 1) == 1 and template["forks"] >= 2 for template in objects["controller_templates"])


def tags_of(template: dict[str, t.Any]) -> set[str]:
    return tags.known(ROOT / template["playbook"]) - {"always", "never"}


def test_templates_are_few_and_ask_for_the_tags_of_their_playbooks(objects: Objects) -> None:
    assert len(objects["controller_templates"]) <= 14
    asks = {template["name"] for template in objects["controller_templates"] if template.get("ask_tags_on_launch")}
    assert {"GB10 serve", "GB10 doctor", "GB10 plan", "GB10 status", "GB10 protect", "GB10 bench"} == asks
    for template in objects["controller_templates"]:
        # A template's description names the tags of its playbook, except for the stages of a bring-up.
        named = tags_of(template) - {"validate"} if template["name"] in ("GB10 doctor", "GB10 plan", "GB10 status") else set()
        assert [tag for tag in named if tag not in template["description"] and tag != "preflight"] == [], template["name"]


def test_tags_of_the_workflow_are_tags_of_their_playbooks(objects: Objects, nodes: dict[str, dict[str, t.Any]]) -> None:
    """AWX takes the tags of a node where its template asks for them."""
    for node in nodes.values():
        template = by_name(objects, node["unified_job_template"]["name"])
        job_tags = set(filter(None, node.get("job_tags", "").split(",")))
        assert job_tags <= tags_of(template) and (template.get("ask_tags_on_launch") or not job_tags), node["identifier"]
    assert nodes["preflight"]["job_tags"] == "preflight" and nodes["proof"]["job_tags"] == nodes["not_proven"]["job_tags"] == "proof,report"


def test_only_bring_up_gets_the_secrets(tmp_path: Path) -> None:
    own = awx_job.data(tmp_path, gb10_awx_secret_credentials=["our token", "our key"])
    got = {template["name"]: template["credentials"] for template in own["controller_templates"]}
    assert got.pop("GB10 serve") == got.pop("GB10 mode") == ["GB10 nodes", "our token", "our key"]
    assert set(map(tuple, got.values())) == {("GB10 nodes",)}


def test_secrets_are_files_that_the_settings_look_for(objects: Objects) -> None:
    defaults = yaml.safe_load((ROOT / "roles" / "gb10" / "defaults" / "main.yml").read_text(encoding="utf-8"))
    expected = {"GB10 Hugging Face token": "gb10_hf_token_file", "GB10 API key": "gb10_api_key_file"}
    for type in objects["controller_credential_types"]:
        assert set(type["injectors"]) == {"file", "env"}
        (variable,) = type["injectors"]["env"]
        assert f"'{variable}'" in defaults[expected[type["name"]]]
        (field,) = type["inputs"]["fields"]
        assert field["secret"] is True
        # Of the environment only the file's name is known.
        assert type["injectors"]["env"][variable] == f"{{{{ tower.filename.{field['id']} }}}}"
    assert {type["name"] for type in objects["controller_credential_types"]} == set(expected)


def test_no_credential_holds_anything(objects: Objects) -> None:
    assert [credential for credential in objects["controller_credentials"] if credential.get("inputs")] == []
    text = "".join((ROOT / "awx" / file).read_text(encoding="utf-8") for file in awx_job.DATA)
    assert "type: password" not in text


# --- the workflow -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def nodes(objects: Objects) -> dict[str, dict[str, t.Any]]:
    (workflow,) = objects["controller_workflows"]
    return {node["identifier"]: node for node in workflow["workflow_nodes"]}


def run(nodes: dict[str, dict[str, t.Any]], outcome: dict[str, str]) -> tuple[list[str], bool]:
    """Walk through a workflow whose jobs end with ``outcome``; returns the jobs that ran, and whether the workflow has failed."""
    followed = {following["identifier"] for node in nodes.values() for kind in node.get("related", {}).values() for following in kind}
    waiting, ran = [name for name in nodes if name not in followed], []
    while waiting:
        name = waiting.pop(0)
        ran.append(name)
        related = nodes[name].get("related", {})
        waiting += [following["identifier"] for following in related.get("success_nodes" if outcome[name] == "successful" else "failure_nodes", [])]
    return ran, awx_rules.workflow_failed(nodes, {name: outcome[name] for name in ran})


GOES_WELL = dict.fromkeys(("preflight", "bring_up", "proof"), "successful")
ASKED = {"teardown": "successful", "not_proven": "failed"}
NOT_ASKED = {"teardown": "failed"}


@pytest.mark.parametrize(
    ("outcome", "ran", "failed"),
    [
        (GOES_WELL, ["preflight", "bring_up", "proof"], False),
        ({"preflight": "failed"}, ["preflight"], True),
        ({**GOES_WELL, "bring_up": "failed", **ASKED}, ["preflight", "bring_up", "teardown", "not_proven"], True),
        ({**GOES_WELL, "bring_up": "failed", **NOT_ASKED}, ["preflight", "bring_up", "teardown"], True),
        ({**GOES_WELL, "proof": "failed", **ASKED}, ["preflight", "bring_up", "proof", "teardown", "not_proven"], True),
    ],
)
def test_a_workflow_with_a_failure_in_it_has_failed(nodes: dict[str, dict[str, t.Any]], outcome: dict[str, str], ran: list[str], failed: bool) -> None:
    assert run(nodes, outcome) == (ran, failed)


def test_without_the_last_node_a_failure_would_end_well(nodes: dict[str, dict[str, t.Any]]) -> None:
    """What that node is for: AWX's rule, as written here, must be able to report a failure."""
    cut = copy.deepcopy(nodes)
    cut["teardown"]["related"] = {}
    del cut["not_proven"]
    assert run(cut, {**GOES_WELL, "bring_up": "failed", "teardown": "successful"})[1] is False


def test_nodes_are_this_collections_templates(objects: Objects, nodes: dict[str, dict[str, t.Any]]) -> None:
    for node in nodes.values():
        assert set(node) <= DOCUMENTED_NODE
        assert by_name(objects, node["unified_job_template"]["name"])
        assert node["unified_job_template"]["type"] == "job_template"
        assert node["unified_job_template"]["organization"] == {"name": "Default"}
        for following in itertools.chain.from_iterable(node.get("related", {}).values()):
            assert following["identifier"] in nodes


def test_the_workflows_answers_reach_its_jobs_and_mean_what_they_meant(objects: Objects, nodes: dict[str, dict[str, t.Any]]) -> None:
    """AWX passes the workflow's variables to every job, even if its template does not ask for them: none may confirm something else."""
    (workflow,) = objects["controller_workflows"]
    answers = awx_rules.extra_vars(workflow, {"gb10_profile": "gpt_oss_120b_tp2", "gb10_allow": ["teardown"]})
    assert set(answers) == {"gb10_profile", "gb10_allow"}
    passed_on = {"gb10_verdict": "pass", "gb10_preflight": {"findings": []}}
    for node in nodes.values():
        template = by_name(objects, node["unified_job_template"]["name"])
        variables = awx_rules.node_vars(template, answers, passed_on)
        assert variables["gb10_profile"] == answers["gb10_profile"]
        if Path(template["playbook"]).stem == "teardown":
            assert variables["__gb10_needed_consent"] == "teardown"
        else:
            assert "__gb10_needed_consent" not in variables


# --- others that use the data -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_data_fit_infra_aap_configuration(objects: Objects, name: str) -> None:
    for item in objects[name]:
        assert set(item) <= set(DOCUMENTED[name].split()), item["name"]


@pytest.mark.usefixtures("awx_awx")
def test_the_data_fit_awx_awx(objects: Objects) -> None:
    done = awx_job.ansible("doc", "--json", *(f"awx.awx.{module}" for module in MODULES.values()))
    documented = json.loads(done.stdout)
    for name, module in MODULES.items():
        known = documented[f"awx.awx.{module}"]["doc"]["options"]
        for item in objects[name]:
            assert set(item) <= set(known), item["name"]
    assert set(MODULES) == set(objects) == set(DOCUMENTED)


def test_the_playbook_reads_all_of_the_data() -> None:
    (play,) = yaml.safe_load((ROOT / "playbooks" / "awx_configure.yml").read_text(encoding="utf-8"))
    assert sorted(Path(file).name for file in play["vars_files"]) == awx_job.DATA
    tasks = yaml.safe_load((ROOT / "playbooks" / "tasks" / "awx_configure.yml").read_text(encoding="utf-8"))
    used = {task["loop"].strip("{} ") for task in tasks}
    assert used == set(MODULES)
