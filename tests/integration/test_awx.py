# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every job template on the lab, run as AWX runs it: an ssh key in an agent, secrets as files, survey answers, the highest verbosity.

All templates run in check mode on cold nodes. Real runs cover the workflow, status, the doctor, prune, another key, a busy engine, teardown, the fabric probe,
a baseline, and a download with a token. The output of every job is kept, and at the end it may contain no planted secret.
"""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import awx_job
import awx_rules
import jsonschema
import pytest

from .lab import BASELINE, HEAD, INVENTORY, RECORD_SCHEMA, ROOT, WORKER, Lab
from .making import busy, lab_profile

TOKEN = "hf_plantedTokenOfTheLab"
KEY = "plantedKeyOfTheLab"

#: The survey answers that give consent. The lab's nodes booted with the machine under them, which may be long ago.
ANSWERS: dict[str, dict[str, t.Any]] = {
    "GB10 teardown": {"gb10_allow": ["teardown"]},
    "GB10 prune": {"gb10_allow": ["remove"]},
    "GB10 doctor": {"gb10_allow": ["baseline"]},
}
#: The tags with which a template is launched, in addition to a launch without tags.
TAGS = {
    "GB10 serve": ("preflight", "proof,report"),
    "GB10 doctor": ("stacks", "fabric", "baseline"),
    "GB10 plan": ("profiles",),
    "GB10 status": ("glance", "logs", "postmortem"),
    "GB10 protect": ("guard", "sweep"),
    "GB10 bench": ("ladder",),
}
LAUNCHES = sorted((template["name"], tags) for template in awx_job.templates() for tags in ("", *TAGS.get(template["name"], ())))


def lab_inventory() -> dict[str, t.Any]:
    """The lab's inventory as AWX would have it: the list from `ansible-inventory` with absolute paths, without the variables that a credential provides."""
    done = awx_job.ansible("inventory", "-i", str(INVENTORY), "--list", "--export")
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout.replace("{{ inventory_dir }}", str(INVENTORY)))
    for group in listed.values():
        for name in ("ansible_user", "ansible_ssh_private_key_file"):
            group.get("vars", {}).pop(name, None)
        # The agent has the key, so there is no key file.
        if "ansible_ssh_common_args" in group.get("vars", {}):
            group["vars"]["ansible_ssh_common_args"] = group["vars"]["ansible_ssh_common_args"].replace("-o IdentitiesOnly=yes", "")
    return listed


class Awx:
    """Jobs on the lab, with everything that AWX would provide."""

    def __init__(self, place: Path, objects: dict[str, list[dict[str, t.Any]]], absent: str) -> None:
        self.jobs = awx_job.Jobs(place, objects)
        #: A profile that the survey offers, whose model is on no node.
        self.absent = absent
        (self.workflow,) = objects["controller_workflows"]
        self.inventory = lab_inventory()
        self.key = (ROOT / ".lab" / "id_ed25519").read_text(encoding="utf-8")
        #: All jobs by label.
        self.done: dict[str, awx_job.Done] = {}

    def credentials(self, key: str = KEY) -> list[awx_job.Credential]:
        return [self.jobs.credential("GB10 Hugging Face token", hf_token=TOKEN), self.jobs.credential("GB10 API key", api_key=key)]

    def launch(self, name: str, answers: dict[str, t.Any] | None = None, *, label: str = "", key: str = KEY, **options: t.Any) -> awx_job.Done:
        """Launch a template with survey answers, as a person does."""
        template = self.jobs.templates[name]
        return self.run(label or name, name, awx_rules.extra_vars(template, awx_rules.accepted(template, answers or {})), key=key, **options)

    def run(
        self, label: str, name: str, variables: dict[str, t.Any], *, key: str = KEY, tags: str = "", settings: dict[str, t.Any] | None = None, **options: t.Any
    ) -> awx_job.Done:
        """Run a template with these variables. ``settings`` are additional variables of the inventory."""
        secrets = self.credentials(key) if name == "GB10 serve" else []
        template = awx_rules.tagged(self.jobs.templates[name], tags)
        inventory = copy.deepcopy(self.inventory)
        inventory["gb10_cluster"].setdefault("vars", {}).update(settings or {})
        done = self.jobs.run(template, inventory, variables, credentials=secrets, login="spark", ssh_key=self.key, **options)
        self.done[label] = done
        print(f"{label}: {done.status}, largest event {done.largest()}, passes on {', '.join(sorted(done.artifacts)) or 'nothing'}")
        return done

    def walk(self, answers: dict[str, t.Any]) -> dict[str, awx_job.Done]:
        """Run the workflow as AWX does. Returns the jobs by the identifiers of their workflow nodes."""
        nodes = {node["identifier"]: node for node in self.workflow["workflow_nodes"]}
        variables = awx_rules.extra_vars(self.workflow, awx_rules.accepted(self.workflow, answers))
        artifacts: dict[str, t.Any] = {}
        ran: dict[str, awx_job.Done] = {}
        waiting = ["preflight"]
        while waiting:
            name = waiting.pop(0)
            node = nodes[name]
            template = self.jobs.templates[node["unified_job_template"]["name"]]
            node_variables = awx_rules.node_vars(template, variables, artifacts)
            ran[name] = self.run(f"workflow {name}", template["name"], node_variables, tags=node.get("job_tags", ""))
            artifacts |= ran[name].artifacts
            following = "success_nodes" if ran[name].status == "successful" else "failure_nodes"
            waiting += [other["identifier"] for other in node.get("related", {}).get(following, [])]
        return ran


@pytest.fixture(scope="module")
def awx(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Awx]:
    """AWX with a survey that offers the lab's profiles."""
    place = tmp_path_factory.mktemp("awx")
    absent = lab_profile(lab, "lab_absent_model", ("gb10-lab/tiny-llama", "gb10-lab/absent"))
    profiles = ["lab_tiny_tp2", "lab_tiny_native_tp2", absent]
    lab.clear()
    yield Awx(place, awx_job.data(place, gb10_awx_profiles=profiles, gb10_awx_profile=profiles[0]), absent)
    lab.clear()
    # The next cluster generates its own key.
    for host in (HEAD, WORKER):
        lab.run(host, "rm", "-f", "/etc/gb10/secrets/gb10/api_key")


def record_of(done: awx_job.Done, name: str) -> dict[str, t.Any]:
    """Return the record that a job publishes, after a check of its schema and verdict."""
    record = done.artifacts[name]
    jsonschema.validate(record, RECORD_SCHEMA)
    assert done.artifacts["gb10_verdict"] == record["verdict"]
    return record


# --- check mode, on cold nodes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "tags"), LAUNCHES)
def test_check_mode_of_every_template_succeeds_on_cold_nodes(lab: Lab, awx: Awx, name: str, tags: str) -> None:
    done = awx.launch(name, ANSWERS.get(name), tags=tags, label=f"check {name} {tags}", check=True)
    assert done.status == "successful", done.stdout
    assert lab.containers(HEAD) == lab.containers(WORKER) == {}, "check mode made a container"


# --- for real -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def brought_up(lab: Lab, awx: Awx) -> dict[str, awx_job.Done]:
    """The workflow on cold nodes: preflight, bring-up, proof."""
    lab.clear()
    return awx.walk({"gb10_profile": "lab_tiny_tp2"})


def test_the_workflow_ends_in_a_proof(brought_up: dict[str, awx_job.Done]) -> None:
    assert {name: done.status for name, done in brought_up.items()} == dict.fromkeys(("preflight", "bring_up", "proof"), "successful"), "\n".join(
        done.failures for done in brought_up.values()
    )


def test_preflight_passes_its_record_on(brought_up: dict[str, awx_job.Done]) -> None:
    record = record_of(brought_up["preflight"], "gb10_preflight")
    assert record["kind"] == "gb10.cluster.preflight"
    assert record["verdict"] in ("pass", "warn", "silenced")
    assert brought_up["preflight"].changed == {}


def test_bring_up_passes_endpoint_verdict_and_report_on(lab: Lab, brought_up: dict[str, awx_job.Done]) -> None:
    artifacts = brought_up["bring_up"].artifacts
    assert re.fullmatch(r"http://[\d.]+:8000/v1", artifacts["gb10_endpoint"])
    assert artifacts["gb10_verdict"] == "pass"
    report = artifacts["gb10_report"]
    assert (report["engine"]["live"], report["profile"]) == (True, "lab_tiny_tp2")
    assert {proof["verdict"] for proof in report["proofs"]} == {"pass"}
    assert set(brought_up["bring_up"].changed) == {HEAD, WORKER}
    # The given key is the one in use.
    assert lab.run(HEAD, "cat", "/etc/gb10/secrets/gb10/api_key") == KEY


def test_progress_and_verdicts_are_plain_lines(brought_up: dict[str, awx_job.Done]) -> None:
    output = brought_up["bring_up"].stdout.replace("\r\n", "\n")
    assert re.search(rf"^{HEAD}: [a-z].*, \d\d:\d\d$", output, re.MULTILINE)
    assert re.search(rf"^{HEAD}: ready after \d\d:\d\d, first token in ", output, re.MULTILINE)
    assert re.search(r"^Preflight .*: .*\d+ pass", output, re.MULTILINE)
    assert re.search(r"^  pass +proof\.completion ", output, re.MULTILINE)


def test_the_proof_changes_nothing(brought_up: dict[str, awx_job.Done]) -> None:
    assert brought_up["proof"].changed == {}
    artifacts = brought_up["proof"].artifacts
    assert artifacts["gb10_verdict"] == "pass"
    assert artifacts["gb10_endpoint"] == brought_up["bring_up"].artifacts["gb10_endpoint"]
    assert {proof["verdict"] for proof in artifacts["gb10_report"]["proofs"]} == {"pass"}


def test_a_second_bring_up_changes_nothing(awx: Awx, brought_up: dict[str, awx_job.Done]) -> None:
    again = awx.launch("GB10 serve", {"gb10_profile": "lab_tiny_tp2"}, label="second bring-up")
    assert (again.status, again.changed) == ("successful", {}), again.failures


def test_another_key_is_refused_while_a_container_has_the_first(lab: Lab, awx: Awx, brought_up: dict[str, awx_job.Done]) -> None:
    refused = awx.launch("GB10 serve", {"gb10_profile": "lab_tiny_tp2"}, label="another key", key=f"{KEY}2")
    assert refused.status == "failed"
    assert "The API key in gb10_api_key_file is another one than the cluster's" in refused.failures
    assert lab.run(HEAD, "cat", "/etc/gb10/secrets/gb10/api_key") == KEY
    assert lab.engine_lives()


def test_status_names_the_endpoint(awx: Awx, brought_up: dict[str, awx_job.Done]) -> None:
    done = awx.launch("GB10 status")
    assert (done.status, done.changed) == ("successful", {}), done.failures
    assert set(done.artifacts["gb10_status"]) == {HEAD, WORKER}
    assert done.artifacts["gb10_endpoint"] == brought_up["bring_up"].artifacts["gb10_endpoint"]


def test_the_doctor_passes_its_record_on(lab: Lab, awx: Awx, brought_up: dict[str, awx_job.Done]) -> None:
    before = lab.containers(HEAD), lab.containers(WORKER)
    done = awx.launch("GB10 doctor", tags="stacks", label="doctor of stacks")
    assert (done.status, done.changed) == ("successful", {}), done.failures
    record = record_of(done, "gb10_doctor")
    assert record["kind"] == "gb10.cluster.doctor"
    assert set(record["nodes"]) == {HEAD, WORKER}
    assert any("vllm serve" in line for line in record["found"]), record["found"]
    assert (lab.containers(HEAD), lab.containers(WORKER)) == before
    assert lab.engine_lives()


def test_prune_that_only_lists_removes_nothing(lab: Lab, awx: Awx, brought_up: dict[str, awx_job.Done]) -> None:
    before = lab.containers(HEAD), lab.containers(WORKER)
    done = awx.launch("GB10 prune", label="prune that lists")
    assert (done.status, done.changed) == ("successful", {}), done.failures
    assert done.artifacts["gb10_verdict"] == "pass"
    assert "total: " in done.stdout or "nothing to remove" in done.stdout, done.stdout
    assert (lab.containers(HEAD), lab.containers(WORKER)) == before
    assert lab.engine_lives()


def test_an_unanswered_teardown_touches_nothing(lab: Lab, awx: Awx, brought_up: dict[str, awx_job.Done]) -> None:
    refused = awx.launch("GB10 teardown", label="unanswered teardown")
    assert refused.status == "failed"
    assert "gb10_allow: lacks teardown" in refused.failures
    assert lab.engine_lives()


def test_a_busy_engine_is_neither_taken_down_nor_restarted(lab: Lab, awx: Awx, brought_up: dict[str, awx_job.Done]) -> None:
    before = lab.containers(HEAD)
    with busy(lab, brought_up["bring_up"].artifacts["gb10_endpoint"]):
        down = awx.launch("GB10 teardown", {"gb10_allow": ["teardown"]}, label="busy teardown")
        other = awx.launch("GB10 serve", {"gb10_profile": "lab_tiny_native_tp2", "gb10_allow": ["restart"]}, label="busy restart")
    for done in (down, other):
        assert done.status == "failed"
        assert re.search(r"its engine works on \d+ request", done.failures), done.failures
        assert "gb10_allow=interrupt" in done.stdout
    assert lab.containers(HEAD) == before
    assert lab.engine_lives()


def test_teardown_with_consent_ends_requests_and_leaves_nothing(lab: Lab, awx: Awx, brought_up: dict[str, awx_job.Done]) -> None:
    with busy(lab, brought_up["bring_up"].artifacts["gb10_endpoint"]):
        done = awx.launch("GB10 teardown", {"gb10_allow": ["teardown", "interrupt"]}, label="teardown with consent")
    assert done.status == "successful", done.failures
    assert (done.artifacts["gb10_verdict"], done.artifacts["gb10_endpoint"]) == ("pass", "")
    verdicts = {finding["verdict"] for finding in done.artifacts["gb10_teardown"]}
    assert verdicts and verdicts <= {"pass", "silenced"}
    assert lab.containers(HEAD) == lab.containers(WORKER) == {}


def test_a_proof_of_nothing_fails(awx: Awx, brought_up: dict[str, awx_job.Done]) -> None:
    """Without this failure a workflow could succeed although its cluster was taken down."""
    done = awx.launch("GB10 serve", {"gb10_profile": "lab_tiny_tp2"}, tags="proof,report", label="proof of nothing")
    assert done.status == "failed"
    assert done.artifacts.get("gb10_verdict") != "pass"


# --- for real, on cold nodes again ---------------------------------------------------------------------------------------------


def test_the_fabric_probe_passes_its_record_on(no_cluster: None, awx: Awx) -> None:
    done = awx.launch("GB10 doctor", tags="fabric", label="fabric probe")
    assert (done.status, done.changed) == ("successful", {}), done.failures
    record = record_of(done, "gb10_fabric")
    assert record["kind"] == "gb10.cluster.fabric" and record["verdict"] in ("pass", "silenced")
    assert set(record["probe"]) == {HEAD, WORKER}


def test_the_baseline_passes_the_record_of_each_node_on(lab: Lab, no_cluster: None, no_baseline: None, awx: Awx) -> None:
    done = awx.launch("GB10 doctor", {"gb10_allow": ["baseline"]}, tags="baseline", label="baseline")
    assert (done.status, done.changed) == ("successful", {HEAD: 1, WORKER: 1}), done.failures
    assert done.artifacts["gb10_baseline"] == {host: lab.json(host, BASELINE) for host in (HEAD, WORKER)}


def test_a_token_that_is_used_is_nowhere_to_be_seen(lab: Lab, no_cluster: None, awx: Awx) -> None:
    """The model is on no node and the hub refuses: both nodes get the token and try a download."""
    hub = {"gb10_hf_endpoint": "http://127.0.0.1:9", "gb10_model_copy": "never"}
    done = awx.launch("GB10 serve", {"gb10_profile": awx.absent}, label="download", settings=hub, verbosity=awx_job.LOUDEST)
    assert done.status == "failed"
    assert "could not be downloaded" in done.failures and "gb10-lab/absent" in done.failures, done.failures
    ok = {(event["event_data"]["task"], event["event_data"]["host"]) for event in done.events if event["event"] == "runner_on_ok"}
    for task in ("Write the hub token", "Remove the hub token"):
        assert {(task, HEAD), (task, WORKER)} <= ok
    assert done.leaks(TOKEN, KEY) == []
    for host in (HEAD, WORKER):
        assert lab.run(host, "grep", "-rlF", TOKEN, "/etc/gb10", "/var/lib/gb10", "/var/log", check=False) == ""
    # The lock was taken, but the cluster was not read after that.
    assert done.artifacts["gb10_verdict"] == "unknown"
    assert lab.containers(HEAD) == lab.containers(WORKER) == {}


# --- the output of all jobs ---------------------------------------------------------------------------------------------------


def test_no_secret_is_anywhere_in_what_the_jobs_said(lab: Lab, awx: Awx, brought_up: dict[str, awx_job.Done]) -> None:
    ray_token = lab.run(HEAD, "cat", "/etc/gb10/secrets/gb10/ray_token").strip()
    key_line = awx.key.splitlines()[2]
    assert len(ray_token) > 20 and len(key_line) > 20
    assert len(awx.done) > len(awx.jobs.templates)
    assert {label: done.leaks(TOKEN, KEY, ray_token, key_line) for label, done in awx.done.items()} == {label: [] for label in awx.done}


def test_events_are_of_a_size_that_awx_keeps(awx: Awx, brought_up: dict[str, awx_job.Done]) -> None:
    largest = {label: done.largest() for label, done in awx.done.items()}
    assert {label: size for label, size in largest.items() if size[0] >= awx_rules.EVENT_BYTES} == {}


def test_no_terminal_is_needed(awx: Awx, brought_up: dict[str, awx_job.Done]) -> None:
    assert {label: done.strange_controls() for label, done in awx.done.items()} == {label: [] for label in awx.done}


def test_the_lab_has_an_agent() -> None:
    """Without ssh-agent none of these jobs reaches a node, and all these tests would fail for that reason alone."""
    assert subprocess.run(["ssh-agent", sys.executable, "-c", ""], check=False).returncode == 0
