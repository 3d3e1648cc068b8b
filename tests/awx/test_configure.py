# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook awx_configure against an emulated controller: it creates everything, a second run changes nothing, and a refusal is reported."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import awx_controller
import awx_job
import awx_rules
import pytest

TOKEN = "emulated-token-4711"


def configure(address: str, *arguments: str, token: str = TOKEN, **variables: t.Any) -> subprocess.CompletedProcess[str]:
    """Run the playbook as the documentation says."""
    return awx_job.ansible(
        "playbook",
        "playbooks/awx_configure.yml",
        "--extra-vars",
        json.dumps({**awx_job.SETTINGS, **variables}),
        *arguments,
        CONTROLLER_HOST=address,
        CONTROLLER_OAUTH_TOKEN=token,
    )


def changed(done: subprocess.CompletedProcess[str]) -> int:
    assert done.returncode == 0, done.stdout + done.stderr
    return int(re.search(r"changed=(\d+)", done.stdout)[1])


class Emulated(t.NamedTuple):
    controller: awx_controller.Controller
    address: str


@pytest.fixture(scope="module")
def emulated(awx_awx: Path, jobs: awx_job.Jobs) -> t.Iterator[Emulated]:
    controller = awx_controller.Controller(TOKEN, awx_rules.playbooks(jobs.project))
    with awx_controller.Server(controller) as address:
        yield Emulated(controller, address)


@pytest.fixture(scope="module")
def first(emulated: Emulated) -> subprocess.CompletedProcess[str]:
    return configure(emulated.address)


def test_everything_is_made(emulated: Emulated, first: subprocess.CompletedProcess[str], objects: dict[str, list[dict[str, t.Any]]]) -> None:
    assert changed(first) == 8
    controller = emulated.controller
    for name, kind in (
        ("controller_projects", "projects"),
        ("controller_inventories", "inventories"),
        ("controller_inventory_sources", "inventory_sources"),
        ("controller_credentials", "credentials"),
        ("controller_execution_environments", "execution_environments"),
        ("controller_templates", "job_templates"),
        ("controller_workflows", "workflow_job_templates"),
    ):
        assert sorted(item["name"] for item in controller.items[kind].values()) == sorted(item["name"] for item in objects[name])
    for template in objects["controller_templates"]:
        made = controller.named("job_templates", template["name"])
        assert (made["playbook"], made["job_tags"], made["forks"]) == (template["playbook"], template.get("job_tags", ""), 20)
        assert controller.survey("job_templates", template["name"]) == template.get("survey_spec", {})
        assert controller.associated("job_templates", template["name"], "credentials") == ["GB10 nodes"]
        assert controller.items["execution_environments"][made["execution_environment"]]["image"] == awx_job.SETTINGS["gb10_awx_image"]
    after = controller.named("job_templates", "GB10 teardown")
    assert json.loads(after["extra_vars"]) == {"__gb10_needed_consent": "teardown"}
    kinds = [controller.named("credential_types", name) for name in ("GB10 API key", "GB10 Hugging Face token")]
    assert [kind["injectors"]["env"] for kind in kinds] == [
        {"GB10_API_KEY_FILE": "{{ tower.filename.api_key }}"},
        {"GB10_HF_TOKEN_FILE": "{{ tower.filename.hf_token }}"},
    ]


def test_the_workflow_hangs_together(emulated: Emulated, first: subprocess.CompletedProcess[str], objects: dict[str, list[dict[str, t.Any]]]) -> None:
    (workflow,) = objects["controller_workflows"]
    kind = "workflow_job_template_nodes"
    for node in workflow["workflow_nodes"]:
        made = emulated.controller.named(kind, node["identifier"])
        assert emulated.controller.items["job_templates"][made["unified_job_template"]]["name"] == node["unified_job_template"]["name"]
        for following in ("success_nodes", "failure_nodes", "always_nodes"):
            wanted = sorted(other["identifier"] for other in node.get("related", {}).get(following, []))
            assert emulated.controller.associated(kind, node["identifier"], following) == wanted


def test_a_second_run_changes_nothing(emulated: Emulated, first: subprocess.CompletedProcess[str]) -> None:
    before = len(emulated.controller.requests)
    assert changed(configure(emulated.address)) == 0
    requests = emulated.controller.requests[before:]
    # Nothing is written: awx.awx does not write an object again that has not changed.
    assert [request for request in requests if request[0] != "GET"] == []
    assert len(requests) > 50
    assert changed(configure(emulated.address, "--check")) == 0


def test_a_change_of_the_data_is_one_change(emulated: Emulated, first: subprocess.CompletedProcess[str]) -> None:
    try:
        done = configure(emulated.address, gb10_awx_scm_branch="stable")
        assert changed(done) == 1
        assert emulated.controller.named("projects", "GB10 cluster")["scm_branch"] == "stable"
    finally:
        assert changed(configure(emulated.address)) == 1


def test_what_a_person_put_into_the_credential_stays(emulated: Emulated, first: subprocess.CompletedProcess[str]) -> None:
    credential = emulated.controller.named("credentials", "GB10 nodes")
    credential["inputs"] = {"username": "nvidia", "ssh_key_data": "$encrypted$"}
    assert changed(configure(emulated.address)) == 0
    assert credential["inputs"] == {"username": "nvidia", "ssh_key_data": "$encrypted$"}


def test_the_token_is_in_no_output(emulated: Emulated, first: subprocess.CompletedProcess[str]) -> None:
    done = configure(emulated.address, "-vvvv")
    assert changed(done) == 0
    assert TOKEN not in done.stdout + done.stderr


@pytest.mark.usefixtures("awx_awx")
def test_a_playbook_that_the_project_has_not_is_reported(jobs: awx_job.Jobs) -> None:
    controller = awx_controller.Controller(TOKEN, awx_rules.playbooks(jobs.project))
    with awx_controller.Server(controller) as address:
        done = configure(address, gb10_awx_playbooks="elsewhere")
    assert done.returncode != 0
    assert "Playbook not found for project." in done.stdout
    assert controller.items["job_templates"] == {}


@pytest.mark.usefixtures("awx_awx")
def test_a_wrong_token_is_reported() -> None:
    controller = awx_controller.Controller(TOKEN)
    with awx_controller.Server(controller) as address:
        done = configure(address, token="another")
    assert done.returncode != 0
    assert "401" in done.stdout
    assert controller.writes == []


def test_from_an_installed_collection(awx_awx: Path, tmp_path: Path) -> None:
    """Only the needed files of the collection are there, in another directory."""
    installed = tmp_path / "ansible_collections" / "gb10" / "cluster"
    for name in ("awx", "meta", "playbooks", "plugins", "roles"):
        shutil.copytree(awx_job.ROOT / name, installed / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "ansible.cfg").touch()
    controller = awx_controller.Controller(TOKEN, [f"playbooks/{path.name}" for path in (installed / "playbooks").glob("*.yml")])
    with awx_controller.Server(controller) as address:
        done = awx_job.ansible(
            "playbook",
            "gb10.cluster.awx_configure",
            "--extra-vars",
            json.dumps(awx_job.SETTINGS),
            cwd=tmp_path,
            CONTROLLER_HOST=address,
            CONTROLLER_OAUTH_TOKEN=TOKEN,
            ANSIBLE_CONFIG=str(tmp_path / "ansible.cfg"),
            ANSIBLE_COLLECTIONS_PATH=f"{tmp_path}{os.pathsep}{awx_awx}",
        )
    assert changed(done) == 8


def test_as_the_documentation_shows_it(awx_awx: Path, jobs: awx_job.Jobs) -> None:
    """Its two lines in a shell, with the addresses and the token of this test."""
    page = (awx_job.ROOT / "docs" / "awx.md").read_text(encoding="utf-8")
    shown = re.search(r"^ +export CONTROLLER_HOST=.*\n +ansible-playbook .*$", page, re.MULTILINE)[0]
    controller = awx_controller.Controller(TOKEN, awx_rules.playbooks(jobs.project))
    with awx_controller.Server(controller) as address:
        typed = shown.replace("https://awx.example.com", address).replace("=TOKEN", f"={TOKEN}")
        assert address in typed and TOKEN in typed
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "GB10_", "CONTROLLER_", "TOWER_"))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-e", "-c", typed], cwd=awx_job.ROOT, env={**clean, "PATH": path}, capture_output=True, text=True, timeout=300, check=False
        )
    assert changed(done) == 8
    assert controller.named("projects", "GB10 cluster")["scm_url"] == "https://git.example.com/gb10.git"


@pytest.mark.usefixtures("awx_awx")
@pytest.mark.parametrize("missing", awx_job.SETTINGS)
def test_without_an_address_nothing_is_asked_for(missing: str) -> None:
    done = configure("http://127.0.0.1:1", **{missing: ""})
    assert done.returncode != 0
    assert "Give both: -e gb10_awx_scm_url=ADDRESS" in " ".join(done.stdout.split())


# --- the emulator itself can refuse -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("projects", {"name": "p"}, "This field is required."),
        ("projects", {"name": "p", "organization": 99}, "object does not exist"),
        ("projects", {"name": "p", "organization": 1, "color": "red"}, "has no field color"),
        ("organizations", {"name": "Default"}, "already exists"),
        ("credential_types", {"name": "t", "kind": "ssh"}, "Must be 'cloud' or 'net'."),
        ("credential_types", {"name": "t", "kind": "cloud", "injectors": {"file": {"template": "{{ unknown }}"}}}, "undefined field"),
        ("credential_types", {"name": "t", "kind": "cloud", "inputs": {"fields": [], "required": ["x"]}}, "a field that is none"),
    ],
)
def test_the_emulator_refuses(kind: str, body: dict[str, t.Any], text: str) -> None:
    controller = awx_controller.Controller(TOKEN)
    status, answer = controller.answer("POST", f"/api/v2/{kind}/", f"Bearer {TOKEN}", body)
    assert status == 400
    assert text in json.dumps(answer)
    assert controller.answer("GET", f"/api/v2/{kind}/", "Bearer other", None)[0] == 401
