# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every job template, set up and run as AWX does, up to the first contact with a node; no node answers.

That shows whether a job's names resolve from a checkout, its answers have their effect, its files are found, and its secrets do not leak.
On nodes the same is done by tests/integration/test_awx.py.
"""

from __future__ import annotations

import copy
import stat
import typing as t
from pathlib import Path

import awx_job
import awx_rules
import pytest

TOKEN = "hf_plantedTokenOfTheTest"
KEY = "plantedKeyOfTheTest"
#: An address without a listener.
HOST = {"ansible_port": 1, "ansible_ssh_common_args": "-o ConnectTimeout=5", "ansible_python_interpreter": "/usr/bin/python3"}
INVENTORY: dict[str, t.Any] = {
    "_meta": {
        "hostvars": {
            "spark-1": {**HOST, "ansible_host": "127.0.0.1", "gb10_fabric_address": "192.168.100.1"},
            "spark-2": {**HOST, "ansible_host": "127.0.0.2", "gb10_fabric_address": "192.168.100.2", "gb10_single_profile": "gpt_oss_120b_one"},
        }
    },
    "all": {"children": ["gb10_cluster"]},
    "gb10_cluster": {
        "children": ["gb10_head", "gb10_workers"],
        "vars": {"gb10_fabric_interfaces": ["enp1s0f0np0"], "gb10_rdma_devices": ["rocep1s0f0"], "gb10_control_interface": "enp1s0f0np0"},
    },
    "gb10_head": {"hosts": ["spark-1"]},
    "gb10_workers": {"hosts": ["spark-2"]},
}

#: Template, with the tags of a launch → answers of a person who means it, and how the job ends where no node answers.
LAUNCHES = {
    ("GB10 serve", ""): ({"gb10_allow": ["restart"], "gb10_serve_timeout": 900}, "unreachable"),
    ("GB10 serve", "preflight"): ({}, "unreachable"),
    ("GB10 serve", "proof,report"): ({}, "unreachable"),
    ("GB10 doctor", ""): ({"gb10_profile": "nemotron_3_super_tp2"}, "unreachable"),
    ("GB10 doctor", "stacks"): ({}, "unreachable"),
    ("GB10 doctor", "fabric"): ({}, "unreachable"),
    ("GB10 doctor", "baseline"): ({"gb10_allow": ["baseline"]}, "unreachable"),
    ("GB10 plan", ""): ({"gb10_plan_context": "128K"}, "successful"),
    ("GB10 plan", "profiles"): ({}, "successful"),
    ("GB10 status", ""): ({}, "unreachable"),
    ("GB10 status", "logs"): ({}, "unreachable"),
    ("GB10 status", "postmortem"): ({}, "unreachable"),
    ("GB10 teardown", ""): ({"gb10_allow": ["teardown"]}, "unreachable"),
    ("GB10 mode", ""): ({"gb10_mode": "singles"}, "unreachable"),
    ("GB10 models", ""): ({"gb10_models_remove": "org/name@leftovers"}, "unreachable"),
    ("GB10 prune", ""): ({"gb10_allow": ["remove"], "gb10_prune_days": 3}, "unreachable"),
    ("GB10 protect", ""): ({"gb10_protect": "revert"}, "unreachable"),
    ("GB10 protect", "guard"): ({"gb10_guard": "absent", "gb10_guard_act": "never"}, "unreachable"),
    ("GB10 protect", "sweep"): ({"gb10_sweep": "absent"}, "unreachable"),
    ("GB10 bench", ""): ({"gb10_bench_suite": "short"}, "unreachable"),
    ("GB10 bench", "ladder"): ({"gb10_allow": ["ladder"], "gb10_ladder_rungs": "1024,2048"}, "unreachable"),
    ("GB10 bundle", ""): ({"gb10_bundle": "import", "gb10_bundle_dir": "/mnt/ssd/bundle"}, "unreachable"),
    ("GB10 import", ""): ({"gb10_import": "tests/unit/fixtures/recipes/eugr/dspark-pinned.yaml"}, "successful"),
    ("GB10 explain", ""): ({"gb10_explain": "galaxy.yml"}, "successful"),
    ("GB10 calibrate", ""): ({"gb10_to": "/tmp/gb10-calibrate-of-a-test.tar.gz"}, "unreachable"),
}


def asked_nodes(done: awx_job.Done) -> bool:
    """Whether a job got as far as its nodes, none of which answers."""
    return "does not answer over ssh" in done.stdout or "UNREACHABLE" in done.stdout


def credentials(jobs: awx_job.Jobs) -> list[awx_job.Credential]:
    return [jobs.credential("GB10 Hugging Face token", hf_token=TOKEN), jobs.credential("GB10 API key", api_key=KEY)]


def test_every_template_is_launched(jobs: awx_job.Jobs) -> None:
    assert {name for name, _tags in LAUNCHES} == set(jobs.templates)


@pytest.mark.parametrize(("name", "tags"), LAUNCHES)
def test_a_job_runs_as_far_as_it_can(jobs: awx_job.Jobs, name: str, tags: str) -> None:
    answers, end = LAUNCHES[name, tags]
    done = jobs.launch(name, INVENTORY, answers, tags, credentials=credentials(jobs))
    output = done.stdout
    assert done.status == ("successful" if end == "successful" else "failed"), output
    assert "couldn't resolve module/action" not in output and "was not found" not in output
    if end == "unreachable":
        assert asked_nodes(done) and any(action.startswith("gb10.cluster.") for action in done.actions), output
    assert done.leaks(TOKEN, KEY) == []
    assert done.strange_controls() == []
    assert done.largest()[0] < awx_rules.EVENT_BYTES
    assert done.changed == {}


def test_without_a_confirmation_no_node_is_contacted(jobs: awx_job.Jobs) -> None:
    done = jobs.launch("GB10 teardown", INVENTORY)
    assert done.status == "failed"
    assert "gb10_allow: lacks teardown, which this job needs" in done.failures
    assert "choose teardown in the survey" in " ".join(done.stdout.split())
    assert not asked_nodes(done)


@pytest.mark.parametrize(("allowed", "end"), [([], "refused"), (["teardown"], "unreachable")])
def test_the_workflow_takes_down_only_when_it_was_asked_to(jobs: awx_job.Jobs, objects: dict[str, t.Any], allowed: list[str], end: str) -> None:
    """With all variables that AWX passes: the workflow's answers, and those of the jobs before it."""
    (workflow,) = objects["controller_workflows"]
    answers = awx_rules.extra_vars(workflow, awx_rules.accepted(workflow, {"gb10_allow": allowed}))
    template = jobs.templates["GB10 teardown"]
    passed_on = {"gb10_verdict": "block", "gb10_preflight": {"findings": [], "verdict": "pass"}}
    done = jobs.run(template, INVENTORY, awx_rules.node_vars(template, answers, passed_on))
    assert done.status == "failed"
    assert asked_nodes(done) is (end == "unreachable"), done.stdout
    assert ("gb10_allow: lacks teardown" in done.stdout) is (end == "refused")
    # Values that the play passed on are not unknown settings.
    assert "no role reads this variable" not in done.stdout


def test_check_mode_is_an_ordinary_job(jobs: awx_job.Jobs) -> None:
    done = jobs.launch("GB10 serve", INVENTORY, tags="preflight", check=True)
    assert (done.status, done.changed) == ("failed", {})
    assert asked_nodes(done)


def test_unrequested_answers_start_nothing(jobs: awx_job.Jobs) -> None:
    with pytest.raises(awx_rules.Refused, match="gb10_hf_token_file are not allowed on launch"):
        jobs.launch("GB10 serve", INVENTORY, {"gb10_hf_token_file": "/tmp/token"})
    with pytest.raises(awx_rules.Refused, match="is none of"):
        jobs.launch("GB10 serve", INVENTORY, {"gb10_profile": "no_such_profile"})
    with pytest.raises(awx_rules.Refused, match="job_tags"):
        jobs.launch("GB10 teardown", INVENTORY, tags="preflight")


def test_the_doctor_passes_its_verdict_on(jobs: awx_job.Jobs) -> None:
    """Such a job fails all the same, since no node could be read."""
    done = jobs.launch("GB10 doctor", INVENTORY, tags="stacks", verbosity=0)
    assert done.status == "failed"
    assert done.artifacts["gb10_doctor"]["kind"] == "gb10.cluster.doctor"
    assert done.artifacts["gb10_verdict"] == done.artifacts["gb10_doctor"]["verdict"] == "block"


@pytest.mark.parametrize("content", ["", "two words"])
def test_a_credential_that_is_no_secret_is_reported_before_any_node_is_contacted(jobs: awx_job.Jobs, content: str) -> None:
    done = jobs.launch("GB10 serve", INVENTORY, credentials=[jobs.credential("GB10 Hugging Face token", hf_token=content)], verbosity=0)
    assert done.status == "failed"
    assert "gb10_hf_token_file" in done.failures and "expected one word" in done.failures
    assert not asked_nodes(done)


# --- that this can fail -------------------------------------------------------------------------------------------------------


def test_credentials_are_files_of_their_owner(jobs: awx_job.Jobs, tmp_path: Path) -> None:
    (environment,) = [credential.inject(tmp_path) for credential in credentials(jobs)[:1]]
    path = Path(environment["GB10_HF_TOKEN_FILE"])
    assert (path.read_text(encoding="utf-8"), stat.S_IMODE(path.stat().st_mode)) == (TOKEN, 0o600)
    assert TOKEN not in str(environment)


def test_a_leak_would_be_seen(jobs: awx_job.Jobs) -> None:
    template = copy.deepcopy(jobs.templates["GB10 plan"])
    # A token of the hub's form would be recognized and not shown.
    done = jobs.run(template, INVENTORY, {"gb10_profile": KEY})
    assert done.leaks(KEY)
    assert done.leaks("no such secret anywhere") == []


def test_names_resolve_by_the_link_in_the_checkout(jobs: awx_job.Jobs) -> None:
    """Nothing would run without it: the checkout is used, not a collection that happens to be installed."""
    link = jobs.project / "collections" / "ansible_collections" / "gb10" / "cluster"
    assert link.is_symlink() and link.resolve() == jobs.project.resolve()
    link.rename(link.with_name("away"))
    try:
        done = jobs.launch("GB10 plan", INVENTORY)
        assert done.status == "failed"
        assert "gb10.cluster" in done.stdout
    finally:
        link.with_name("away").rename(link)
