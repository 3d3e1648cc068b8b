# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad input through the real playbooks: one clear message with the variable and the remedy, before any node is contacted.

These tests need no lab. The nodes have documentation addresses and a connection plugin that records every use.
Many faults share one run, which also shows that a run lists all of them.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import through_ansible
import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

GOOD: dict[str, t.Any] = {
    "gb10_cluster": {
        "vars": {
            "ansible_connection": "watched",
            "gb10_fabric_interfaces": ["enp1s0f0np0"],
            # As an ini inventory or -e NAME=VALUE would give them.
            "gb10_api_port": "8000",
            "gb10_allow": "restart, interrupt",
        },
        "children": {
            "gb10_head": {"hosts": {"spark-1": {"ansible_host": "192.0.2.1", "gb10_fabric_address": "192.0.2.11"}}},
            "gb10_workers": {"hosts": {"spark-2": {"ansible_host": "192.0.2.2", "gb10_fabric_address": "192.0.2.12"}}},
        },
    },
}

PROFILE: dict[str, t.Any] = {
    "schema": 1,
    "id": "mine",
    "model": {"repo": "org/mine", "revision": "0" * 40},
    "image": {"base": "base:1", "tag": "tag:1", "layers": ["ray"]},
    "parallel": {"tensor": 2},
    "memory": {"config": {"num_attention_heads": 32}},
}


def inventory(head: dict[str, t.Any] | None = None, worker: dict[str, t.Any] | None = None, **variables: t.Any) -> dict[str, t.Any]:
    """The good inventory with changes for its hosts and its group."""
    changed = copy.deepcopy(GOOD)
    cluster = changed["gb10_cluster"]
    cluster["vars"].update(variables)
    cluster["children"]["gb10_head"]["hosts"]["spark-1"].update(head or {})
    cluster["children"]["gb10_workers"]["hosts"]["spark-2"].update(worker or {})
    return changed


@dataclasses.dataclass
class Run:
    """The output and the contacts of a play."""

    rc: int
    output: str
    contacts: list[str]

    def __str__(self) -> str:
        return f"rc {self.rc}, contacts {self.contacts}\n{self.output}"

    def says(self, part: str) -> bool:
        """Return whether the output contains ``part``, regardless of line breaks."""
        return " ".join(part.split()) in " ".join(self.output.split())


class Plays:
    """Runs playbooks, each with its own inventory, and keeps the results."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self._number = 0
        self._done: dict[str, Run] = {}

    def file(self, name: str, content: t.Any) -> Path:
        path = self.scratch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
        return path

    def play(self, hosts: t.Any, *arguments: str, playbook: str | Path = "serve.yml") -> Run:
        self._number += 1
        inventory_file = hosts if isinstance(hosts, (str, Path)) else self.file(f"{self._number}/hosts.yml", hosts)
        contacts = self.scratch / f"contacts-{self._number}"
        done = through_ansible.run(
            "playbook", "-i", str(inventory_file), str(ROOT / "playbooks" / playbook), *arguments,
            env={"ANSIBLE_CONNECTION_PLUGINS": str(HERE / "connection_plugins"), "GB10_TEST_CONTACTS": str(contacts)},
        )  # fmt: skip
        seen = contacts.read_text(encoding="utf-8").splitlines() if contacts.exists() else []
        return Run(done.rc, done.out, seen)

    def once(self, name: str) -> Run:
        """Run a scenario on its first use, and return its result."""
        if name not in self._done:
            self._done[name] = SCENARIOS[name](self)
        return self._done[name]

    def vaulted(self, value: str, password: str) -> str:
        """``value`` encrypted, as text for a YAML file."""
        password_file = self.file("vault-password", password)
        done = subprocess.run(
            [sys.executable, "-m", "ansible", "vault", "encrypt_string", "--vault-password-file", str(password_file), "--encrypt-vault-id", "default"],
            input=value, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    def with_vault(self, name: str) -> dict[str, t.Any]:
        """The good inventory with a variable of its group encrypted in place."""
        text = yaml.safe_dump(inventory(**{name: "ENCRYPTED"}))
        at = next(line for line in text.splitlines() if "ENCRYPTED" in line)
        indent = " " * (len(at) - len(at.lstrip()) + 2)
        lines = self.vaulted("https://hf_secret", "right").splitlines()
        return text.replace("ENCRYPTED", "\n".join([lines[0], *(indent + line.strip() for line in lines[1:])]))  # type: ignore[return-value]


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> Plays:
    return Plays(tmp_path_factory.mktemp("inputs"))


# -- good input ------------------------------------------------------------------------------------------------------


def test_a_good_inventory_passes_without_contact(plays: Plays) -> None:
    run = plays.play(GOOD, "--tags", "validate")
    assert run.rc == 0, str(run)
    assert run.says("Inputs: 1 pass")
    assert run.contacts == []


def test_one_node_of_the_pair_passes_without_contact(plays: Plays) -> None:
    arguments = ("--tags", "validate", "-e", "gb10_single=spark-2", "-e", "gb10_profile=nemotron_3_super_one")
    run = plays.play(GOOD, *arguments, playbook="serve.yml")
    assert run.rc == 0, str(run)
    assert run.says("Inputs: 1 pass")
    assert run.contacts == []


def test_a_contact_would_be_seen(plays: Plays) -> None:
    """The good inventory continues to preflight, which contacts nodes. No other test here may do that."""
    run = plays.play(GOOD)
    assert run.rc != 0, str(run)
    assert {contact.split()[0] for contact in run.contacts} == {"192.0.2.1", "192.0.2.2"}, str(run)


@pytest.mark.parametrize("given", [("gb10_single=spark-2",), ("gb10_single=spark-2", "gb10_profile=no_such_profile"), ("gb10_profile=no_such_profile",)])
def test_a_teardown_needs_no_profile(plays: Plays, given: tuple[str, ...]) -> None:
    """The pair's profile is of no use for a service on one node, and the profile of an earlier bring-up may be gone. The nodes report what exists."""
    run = plays.play(GOOD, *(word for setting in given for word in ("-e", setting)), playbook="teardown.yml")
    nodes = {"192.0.2.2"} if "gb10_single=spark-2" in given else {"192.0.2.1", "192.0.2.2"}
    assert run.says("Inputs: 1 pass") and {contact.split()[0] for contact in run.contacts} == nodes, str(run)


def test_the_example_names_what_to_fill_in(plays: Plays) -> None:
    run = plays.play(ROOT / "inventories" / "example", "--tags", "validate", "-e", "ansible_connection=watched")
    assert run.rc == 0, str(run)
    assert run.says("Inputs: 5 warn")
    for host in ("spark-1", "spark-2"):
        assert run.says(f"ansible_host: {host}.example.lan stands in the example inventory for your own."), str(run)
    for address in ("gb10_api_address: 10.0.0.11", "gb10_fabric_address: 192.168.100.1", "gb10_fabric_address: 192.168.100.2"):
        assert run.says(f"{address} stands in the example inventory for your own."), str(run)
    assert run.contacts == []


# -- secrets in settings -----------------------------------------------------------------------------------------------

#: Secrets of different shapes, by the setting that the message names. None of them may be printed.
PLANTED = {
    "gb10_env.http_proxy": "http://me:planted-01@proxy:3128",
    "gb10_env.CACHE_URL": "redis://:planted-02@cache/0",
    "gb10_env.EXTRA": "serve --api-key planted-03 planted-04",
    "gb10_env.HEADERS": "X-Api-Key: planted-05",
    "gb10_env.JSON": '{"password": "planted-06"}',
    "gb10_env.aws_secret_access_key": "planted-07",
    "gb10_host_env.DB_PASSWD": "planted-08",
    "gb10_build_pip_env.PIP_INDEX_URL": "https://planted-09@index.lan/simple",
    "gb10_hf_endpoint": "https://planted-10:x@hub.lan",
    "gb10_serve_arguments.kv_transfer_config.auth": "Authorization: Basic planted-11",
    "gb10_env.DATABASE": "postgresql://me:a/planted-14@db/app",
}


@pytest.mark.parametrize("verbosity", ["-v", "-vvvv"])
def test_secrets_in_settings_are_refused_before_any_host_and_never_shown(plays: Plays, verbosity: str) -> None:
    settings: dict[str, t.Any] = {}
    for place, value in PLANTED.items():
        *outer, name = place.split(".")
        target = settings
        for part in outer:
            target = target.setdefault(part, {})
        target[name] = value
    profile = {**PROFILE, "env": {"shared": {"NO_PROXY_URL": "https://planted-12@mirror.lan"}}, "serve": {"chat_template": "--passphrase planted-13"}}
    path = plays.file("planted.yml", {**profile, "id": "planted"})
    run = plays.play(inventory(**settings, gb10_profile=str(path)), verbosity)
    assert run.rc != 0 and run.contacts == [], str(run)
    for place in (*PLANTED, "profile planted.env.shared.NO_PROXY_URL", "profile planted.serve.chat_template"):
        assert run.says(f"{place}: "), (place, str(run))
    assert "planted-" not in run.output, str(run)


def test_what_channels_keep_secret_is_not_shown_where_they_are_refused(plays: Plays) -> None:
    run = plays.once("sweep")
    assert run.rc != 0 and run.contacts == [] and "planted-" not in run.output, str(run)


# -- bad input -------------------------------------------------------------------------------------------------------


def members(plays: Plays) -> Run:
    hosts = inventory(
        head={"gb10_fabric_address": "192.0.2.11"},
        worker={"ansible_host": "192.0.2.1", "gb10_fabric_address": "192.0.2.11"},
        gb10_worker_hosts=["spark-1", "spark-2", "spark-7"],
        gb10_api_address="spark-1.lan",
    )
    cluster = hosts["gb10_cluster"]["children"]
    cluster["gb10_head"]["hosts"]["spark-3"] = {"ansible_host": "192.0.2.3"}
    cluster["gb10_spare"] = {"hosts": {"spark-4": {"ansible_host": "192.0.2.4", "gb10_fabric_address": "192.0.2.14"}}}
    return plays.play(hosts)


def no_head(plays: Plays) -> Run:
    hosts = copy.deepcopy(GOOD)
    hosts["gb10_cluster"]["children"].pop("gb10_head")
    return plays.play(hosts)


def values(plays: Plays) -> Run:
    return plays.play(
        inventory(
            worker={"gb10_fabric_address": "", "gb10_host_env": {"VLLM_API_KEY": "k3y"}, "gb10_ray_version": "2.55.1"},
            gb10_profile="nemotron",
            gb10_cluster_name=7,
            gb10_ray_gpus=0,
            gb10_fabric_interfaces="enp1s0f0np0",
            gb10_fabric_fallback="rdma",
            gb10_api_port=20150,
            gb10_ray_port=70000,
            gb10_memlock="lots",
            gb10_shm_size="16 gigs",
            gb10_container_gpus="0,1",
            gb10_env={"NOT A NAME": "1", "MULTI": "two\nlines", "VLLM_HOST_IP": "192.0.2.11", "HF_TOKEN": "t0ken"},
            gb10_hf_home="models",
            gb10_secrets_dir="/etc",
            gb10_log_dir="/var/lib/gb10",
            gb10_stop_grace=0,
            gb10_allow="restrt",
            gb10_offline=None,
            gb10_silenced=["disk.fre"],
            gb10_api_prot=8001,
            gb10_build_ca_file="{{ no_such_thing }}",
            gb10_serve_arguments="{{ 1 / 0 }}",
        )
    )


def arguments(plays: Plays) -> Run:
    given = {"api_key": "k3y", "--max-model-len": 4096, "hf_token": "t0ken"}
    return plays.play(inventory(gb10_ray_port=8000, gb10_ray_port_range="20100-20110", gb10_serve_arguments=given))


def schema(plays: Plays) -> Run:
    bad = {**PROFILE, "model": {"repo": 7, "revision": "main"}, "parallel": {"tensor": "two"}, "servings": {}}
    return plays.play(inventory(gb10_profile=str(plays.file("profiles/mine.yml", bad))))


def broken_yaml(plays: Plays) -> Run:
    return plays.play(inventory(gb10_profile=str(plays.file("broken/mine.yml", "schema: 1\nid: {mine\nmodel: x\n"))))


def sizes(plays: Plays) -> Run:
    return plays.play(inventory(gb10_profile=str(plays.file("sizes/mine.yml", {**PROFILE, "parallel": {"tensor": 3}}))))


def half(plays: Plays) -> Run:
    return plays.play(GOOD, "--limit", "spark-1", "--forks", "1")


def outside(plays: Plays) -> Run:
    return plays.play({**GOOD, "others": {"hosts": {"box": {"ansible_host": "192.0.2.9", "ansible_connection": "watched"}}}}, "--limit", "box")


def serial(plays: Plays) -> Run:
    book = [{"hosts": "gb10_cluster", "gather_facts": False, "serial": 1, "tasks": [
        {"ansible.builtin.import_role": {"name": "gb10.cluster.engine", "tasks_from": "validate"}},
        {"ansible.builtin.import_role": {"name": "gb10.cluster.doctor", "tasks_from": "preflight"}},
    ]}]  # fmt: skip
    return plays.play(GOOD, playbook=plays.file("serial.yml", book))


def no_group(plays: Plays) -> Run:
    return plays.play({"sparks": {"hosts": {"spark-1": {"ansible_host": "192.0.2.1", "ansible_connection": "watched"}}}})


def other_single(plays: Plays) -> Run:
    return plays.play(GOOD, "-e", "gb10_single=spark-9", playbook="serve.yml")


def pair_alone(plays: Plays) -> Run:
    return plays.play(GOOD, "-e", "gb10_single=spark-2", playbook="serve.yml")


def no_mode(plays: Plays) -> Run:
    return plays.play(GOOD, playbook="mode.yml")


def bare_off(plays: Plays) -> Run:
    return plays.play(inventory(gb10_mode=False), playbook="mode.yml")


def no_singles(plays: Plays) -> Run:
    return plays.play(GOOD, "-e", "gb10_mode=singles", playbook="mode.yml")


def too_large(plays: Plays) -> Run:
    return plays.play(inventory(gb10_single_profile="nemotron_3_super_tp2"), "-e", "gb10_mode=singles", playbook="mode.yml")


def sweep(plays: Plays) -> Run:
    channels = [
        {"type": "slack", "url": "https://hooks.lan/planted-21"},
        {"type": "telegram", "token": "123456789:planted-22-of-a-bot"},
        {"type": "webhook", "url": "hooks.lan/planted-23"},
        {"type": "mail", "command": ["/usr/sbin/sendmail", "-t"]},
        {"type": "mail", "name": "curl", "command": ["curl", "--password", "planted-24", "https://mail.lan"]},
    ]
    endpoints = [{"url": "https://gateway.lan/v1/models"}, {"name": "alias", "url": "ftp://gateway.lan"}, {"name": "other", "url": "http://x", "status": 99}]
    given = inventory(gb10_sweep_alerts=channels, gb10_sweep_endpoints=endpoints, gb10_sweep_minutes=0)
    return plays.play(given, "-vvv", "--tags", "sweep", playbook="protect.yml")


def no_channel(plays: Plays) -> Run:
    return plays.play(GOOD, "-e", "gb10_sweep=test", "--tags", "sweep", playbook="protect.yml")


def one_for_all(plays: Plays) -> Run:
    own = inventory(gb10_single_profile="gpt_oss_120b_one")
    return plays.play(own, "-e", "gb10_mode=singles", "-e", "gb10_profile=nemotron_3_super_tp2", playbook="mode.yml")


def no_such_single(plays: Plays) -> Run:
    return plays.play(inventory(gb10_single_profile="no_such_profile"), "-e", "gb10_mode=singles", playbook="mode.yml")


def two_modes(plays: Plays) -> Run:
    hosts = yaml.safe_load(yaml.safe_dump(GOOD))
    hosts["gb10_cluster"]["children"]["gb10_head"]["hosts"]["spark-1"]["gb10_mode"] = "cluster"
    hosts["gb10_cluster"]["children"]["gb10_workers"]["hosts"]["spark-2"]["gb10_mode"] = "singles"
    return plays.play(hosts, playbook="mode.yml")


def no_program(plays: Plays) -> Run:
    return plays.play(inventory(gb10_mode="cluster"), "-e", "gb10_lease=./no_such_judge.sh", playbook="mode.yml")


def no_words(plays: Plays) -> Run:
    return plays.play(inventory(gb10_mode="cluster", gb10_lease_lost_seconds=5), "-e", '{"gb10_lease": []}', playbook="mode.yml")


def lease_of_nothing(plays: Plays) -> Run:
    settings = {"gb10_mode": "off", "gb10_allow": "forget", "gb10_unit": "none"}
    return plays.play(inventory(**settings), "-e", '{"gb10_lease": ["true"]}', playbook="mode.yml")


def vault_setting(plays: Plays) -> Run:
    return plays.play(plays.file("vault-setting.yml", plays.with_vault("gb10_hf_endpoint")), "-e", json.dumps({"gb10_env": {"A": "{{ no_such_proxy }}"}}))


def vault_wrong(plays: Plays) -> Run:
    hosts = plays.file("vault-wrong.yml", plays.with_vault("gb10_hf_endpoint"))
    return plays.play(hosts, "--vault-password-file", str(plays.file("wrong-password", "wrong")))


def vault_become(plays: Plays) -> Run:
    return plays.play(plays.file("vault-become.yml", plays.with_vault("ansible_become_password")))


def vault_file(plays: Plays) -> Run:
    directory = plays.file("vault-file/hosts.yml", GOOD).parent
    plays.file("vault-file/group_vars/gb10_cluster/vault.yml", "".join(f"{line.strip()}\n" for line in plays.vaulted("a: b", "right").splitlines()[1:]))
    return plays.play(directory)


def key_file(plays: Plays) -> Run:
    key = plays.file("id_ed25519", "not a key")
    key.chmod(0o644)
    return plays.play(inventory(ansible_ssh_private_key_file=str(key)))


SCENARIOS: dict[str, t.Callable[[Plays], Run]] = {
    scenario.__name__: scenario
    for scenario in (
        members, no_head, values, arguments, schema, broken_yaml, sizes, half, outside, serial, no_group, other_single, pair_alone,
        sweep, no_channel, no_mode, bare_off, no_singles, too_large, one_for_all, no_such_single, two_modes,
        no_program, no_words, lease_of_nothing,
        vault_setting, vault_wrong, vault_become, vault_file, key_file,
    )
}  # fmt: skip

#: Scenario, text of the message, and its remedy.
CASES = [
    ("members", "the group gb10_head holds 2 hosts of gb10_cluster: spark-1, spark-3; expected exactly one head.", "leave one host in gb10_head"),
    ("members", "gb10_worker_hosts: spark-1 is the head and a worker.", "take it out of gb10_workers (or gb10_worker_hosts)"),
    ("members", "gb10_worker_hosts: 'spark-7' is not a host of the inventory.", "add it to the inventory, or take it out of gb10_worker_hosts"),
    ("members", "gb10_fabric_address: 192.0.2.11 is also the address of spark-1.", "give every node its own"),
    ("members", "ansible_host: 192.0.2.1 is also spark-1; one machine can't be two nodes.", "give every node its own ansible_host"),
    ("members", "gb10_api_address: 'spark-1.lan' is not an IP address.", "set gb10_api_address to an IP address of spark-1"),
    ("members", "spark-4 is in gb10_cluster but is neither the head nor a worker.", "put it into the group gb10_workers"),
    ("members", "the cluster has 4 GPUs (4 nodes, gb10_ray_gpus 1)", "add or remove workers, or choose another profile"),
    ("no_head", "gb10_head_host: '' is not a host of the inventory; expected exactly one head.", "put one host into the group gb10_head"),
    ("sweep", "gb10_sweep_minutes: is 0; expected 1 to 1440.", "set gb10_sweep_minutes to 1 to 1440"),
    ("sweep", "gb10_sweep_alerts[0].type: is 'slack'; expected webhook, telegram or mail.", "correct gb10_sweep_alerts"),
    ("sweep", "gb10_sweep_alerts[1].chat_id: is missing; expected the number of a chat", "correct gb10_sweep_alerts"),
    ("sweep", "gb10_sweep_alerts[2].url: has another form; expected an address that begins with https:// or http://", "correct gb10_sweep_alerts"),
    ("sweep", "gb10_sweep_alerts[3].to: is missing, and sendmail -t takes the recipients from the message", "correct gb10_sweep_alerts"),
    ("sweep", "gb10_sweep_alerts[4].command: holds what looks like a password or a token", "correct gb10_sweep_alerts"),
    ("sweep", "gb10_sweep_endpoints[0].name: is missing; expected 1 to 64 characters in one line", "correct gb10_sweep_endpoints"),
    ("sweep", "gb10_sweep_endpoints[1].url: has another form; expected an address that begins with https:// or http://", "correct gb10_sweep_endpoints"),
    ("sweep", "gb10_sweep_endpoints[2].status: has another form; expected a status from 100 to 599, or a list of some.", "correct gb10_sweep_endpoints"),
    ("no_channel", "gb10_sweep: is test, and gb10_sweep_alerts has no channel.", "declare where alerts go in gb10_sweep_alerts"),
    ("values", "gb10_profile: unknown profile 'nemotron'", "choose one with -e gb10_profile=ID"),
    ("values", "Known: ", "nemotron_3_super_tp2"),
    ("values", "gb10_cluster_name: is the number '7'; expected text.", 'write it in quotes: gb10_cluster_name: "…"'),
    ("values", "gb10_ray_gpus: is 0; expected 1 to 16.", "set gb10_ray_gpus to 1 to 16"),
    ("values", "gb10_fabric_interfaces: is the text 'enp1s0f0np0'; expected a list of texts.", "gb10_fabric_interfaces: [enp1s0f0np0]"),
    ("values", "gb10_fabric_fallback: is 'rdma'; expected none or tcp.", "set gb10_fabric_fallback to none or tcp"),
    ("values", "gb10_api_port: 20150 lies inside gb10_ray_port_range 20100-20299", "choose a port outside the range for gb10_api_port"),
    ("values", "gb10_ray_port: is 70000; expected 1024 to 65535.", "set gb10_ray_port to 1024 to 65535"),
    ("values", "gb10_memlock: is the text 'lots'; expected a whole number.", "set gb10_memlock to a whole number"),
    ("values", "gb10_shm_size: is '16 gigs'; expected a size as Docker takes it, such as 16g.", "set gb10_shm_size to a size"),
    ("values", "gb10_container_gpus: is '0,1'; expected all, none, or a list of GPU ids.", "set gb10_container_gpus to all, none, or a list of GPU ids"),
    ("values", "gb10_env.NOT A NAME: is not a valid variable name", "correct the variable in gb10_env"),
    ("values", "gb10_env.MULTI: holds a line break or a zero byte; expected one line", "correct the variable in gb10_env"),
    ("values", "gb10_env.VLLM_HOST_IP: differs from node to node", "it follows from gb10_fabric_address; a value of your own goes into gb10_host_env"),
    ("values", "gb10_env.HF_TOKEN: is a secret", "put the token into a file, and name it in gb10_hf_token_file"),
    ("values", "spark-2 gb10_host_env.VLLM_API_KEY: is a secret", "gb10_api_key: generate makes a key"),
    ("values", "spark-2 gb10_fabric_address: is ''; expected the node's IP address", "set gb10_fabric_address for this host in the inventory"),
    ("values", "gb10_ray_version: has one value for the whole cluster, but differs between hosts: spark-1 2.60.0, spark-2", "set gb10_ray_version once"),
    ("values", "gb10_hf_home: is 'models'; expected an absolute path", "give gb10_hf_home a directory of its own"),
    ("values", "gb10_secrets_dir: is '/etc'; expected an absolute path", "give gb10_secrets_dir a directory of its own, such as /etc/gb10/secrets"),
    ("values", "gb10_log_dir: is /var/lib/gb10, and so is gb10_state_dir; expected a directory of its own.", "give each a directory of its own"),
    ("values", "gb10_stop_grace: is 0; expected 1 or more.", "set gb10_stop_grace to 1 or more"),
    ("values", "gb10_allow: contains 'restrt' (did you mean 'restart'?)", "set gb10_allow to"),
    ("values", "gb10_offline: has no value; expected true or false.", "give gb10_offline a value, or remove its line"),
    ("values", "gb10_silenced: no finding has the id 'disk.fre' (did you mean 'disk.free'?)", "correct the id"),
    ("values", "gb10_api_prot: no role reads this variable (did you mean 'gb10_api_port'?).", "correct its name, or remove it"),
    ("values", "gb10_build_ca_file: can't be evaluated: 'no_such_thing' is undefined", "correct the expression in gb10_build_ca_file"),
    ("values", "gb10_serve_arguments: can't be evaluated: division by zero", "correct the expression in gb10_serve_arguments"),
    ("arguments", "gb10_ray_port: is 8000, and so is gb10_api_port; expected a port of its own.", "choose another gb10_ray_port or gb10_api_port"),
    ("arguments", "gb10_ray_port_range: 20100-20110 has 11 ports; expected 50 or more", "Give a longer range, for example 20100-20299."),
    ("arguments", "gb10_serve_arguments.api_key: is set by the collection", "remove it from gb10_serve_arguments"),
    ("arguments", "gb10_serve_arguments.--max-model-len: begins with dashes.", "leave out the dashes: write max_model_len"),
    ("arguments", "gb10_serve_arguments.hf_token: is a secret", "put the token into a file, and name it in gb10_hf_token_file"),
    ("schema", "profiles/mine.yml: model.repo: ", "correct the file, or choose another profile with -e gb10_profile=ID"),
    ("schema", "profiles/mine.yml: parallel.tensor: ", "correct the file"),
    ("schema", "profiles/mine.yml: servings: ", "correct the file"),
    ("broken_yaml", "broken/mine.yml: the file: can't be read as YAML", "correct the file"),
    ("sizes", "asks for 3 ranks (tensor 3 x pipeline 1 x data 1), the cluster has 2 GPUs (2 nodes, gb10_ray_gpus 1)", "add or remove workers"),
    ("sizes", "profile mine: tensor 3 does not divide the model's 32 attention heads.", "change parallel.tensor in the profile"),
    ("half", "the play leaves out spark-2 of the cluster's nodes spark-1, spark-2.", "run without --limit (it is 'spark-1')"),
    ("half", "forks is 1, the cluster has 2 nodes", "run with --forks 2 or more"),
    ("outside", "--limit box leaves out all hosts of the cluster (gb10_cluster: spark-1, spark-2)", "Run without --limit"),
    ("serial", "the play handles 1 of 2 hosts at once; half a cluster can't serve.", "remove `serial` from the play"),
    ("no_group", "The inventory has no hosts in the group gb10_cluster.", "Another group is named with -e gb10_cluster_group=NAME"),
    ("other_single", "gb10_single is spark-9, which is not a host of the inventory.", "Name one of its hosts: spark-1, spark-2"),
    ("pair_alone", "asks for 2 ranks", "add or remove workers, or choose another profile"),
    ("no_mode", "gb10_mode is not set; expected one of cluster, singles, off.", "name one, such as -e gb10_mode=cluster; gb10_layouts in the inventory"),
    ("bare_off", "gb10_mode: is false; expected text", "write it in quotes"),
    ("no_singles", "no host has a gb10_single_profile", "set gb10_single_profile for each host"),
    ("too_large", "asks for 2 ranks", "choose other nodes for it, or another profile for these"),
    ("one_for_all", "gb10_profile is set on the command line", "leave it out, and write it into the inventory"),
    ("no_such_single", "no_such_profile", "-e gb10_profile="),
    ("two_modes", "gb10_mode: has one value for the whole cluster, but differs between hosts: spark-1 cluster, spark-2 singles", "set gb10_mode once"),
    ("vault_setting", "gb10_hf_endpoint: is encrypted and can't be decrypted: Attempting to decrypt", "run with --ask-vault-pass or --vault-password-file"),
    ("vault_setting", "gb10_env: can't be evaluated: 'no_such_proxy' is undefined", "correct the expression in gb10_env"),
    ("vault_wrong", "gb10_hf_endpoint: is encrypted and can't be decrypted: Decryption failed", "and give the password that it was encrypted with"),
    ("vault_become", "ansible_become_password: is encrypted and can't be decrypted", "run with --ask-vault-pass or --vault-password-file FILE"),
    ("vault_file", "(group_vars or host_vars): is encrypted and can't be decrypted: Attempting to", "run with --ask-vault-pass or --vault-password-file FILE"),
    ("no_program", "gb10_lease names ./no_such_judge.sh, which is not an executable program on this controller", "correct its path"),
    ("no_words", "gb10_lease_lost_seconds: is 5; expected 20 to 86400", "set gb10_lease_lost_seconds to 20 to 86400"),
    ("lease_of_nothing", "gb10_mode is off, but a lease needs a mode that serves.", "-e gb10_mode=cluster, or another mode that has an engine"),
    ("lease_of_nothing", "gb10_allow contains forget, which removes the declared mode", "remove forget from gb10_allow"),
    ("lease_of_nothing", "gb10_unit is none, so the nodes could not end the lease by themselves", "remove gb10_unit"),
    ("key_file", "can be read by others (mode 0644).", "chmod 0600 "),
]  # fmt: skip


# A scenario runs once, so its cases stay in one process when tests run in several (--dist loadgroup).
@pytest.mark.parametrize(
    ("scenario", "message", "remedy"), [pytest.param(*case, marks=pytest.mark.xdist_group(case[0]), id=f"{case[0]}: {case[1][:50]}") for case in CASES]
)
def test_bad_input_is_refused_without_contact(plays: Plays, scenario: str, message: str, remedy: str) -> None:
    run = plays.once(scenario)
    assert run.rc != 0, str(run)
    assert run.says(message), str(run)
    assert run.says(remedy), str(run)
    assert run.contacts == [], str(run)


def test_no_output_shows_a_secret(plays: Plays) -> None:
    for scenario in ("values", "arguments", "vault_setting"):
        run = plays.once(scenario)
        assert "t0ken" not in run.output and "k3y" not in run.output, str(run)


def test_the_right_vault_password_is_enough(plays: Plays) -> None:
    hosts = plays.file("vault-right.yml", plays.with_vault("gb10_hf_endpoint"))
    run = plays.play(hosts, "--tags", "validate", "--vault-password-file", str(plays.file("vault-password", "right")))
    assert run.rc == 0, str(run)
    assert run.says("Inputs: 1 pass")
    assert "hf_secret" not in run.output


# -- every playbook --------------------------------------------------------------------------------------------------

BOOKS = sorted(
    path.name
    for path in (ROOT / "playbooks").glob("*.yml")
    if path.name != "serve.yml" and "import_playbook" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("playbook", BOOKS)
def test_every_playbook_refuses_bad_input_without_contact(plays: Plays, playbook: str) -> None:
    run = plays.play(inventory(gb10_cluster_name="My Cluster"), playbook=playbook)
    assert run.rc != 0, str(run)
    assert run.says("gb10_cluster_name: is 'My Cluster'; expected 1 to 32 of a-z"), str(run)
    assert run.contacts == [], str(run)


# -- wrong values and names, each alone ---------------------------------------------------------------------------------


def extra(**values: t.Any) -> tuple[str, ...]:
    return ("-e", json.dumps(values))


def serve(**values: t.Any) -> tuple[str, ...]:
    return extra(gb10_serve_arguments=values)


#: Playbook, arguments, and message. Each needs a separate run with the good inventory, so these are few and quick.
ALONE: list[tuple[str, tuple[str, ...], str]] = [
    ("serve.yml", ("-e", "gb10_profle=qwen3_8_27b_nvfp4_tp2"), "gb10_profle: no role reads this variable (did you mean 'gb10_profile'?)."),
    ("serve.yml", ("-e", "gb10_prot=8000", "--check"), "gb10_prot: no role reads this variable."),
    ("teardown.yml", ("-e", "gb10_clustr_group=other"), "gb10_clustr_group: no role reads this variable (did you mean 'gb10_cluster_group'?)."),
    ("serve.yml", ("--tags", "prefligth"), "--tags: no stage has the tag 'prefligth' (did you mean 'preflight'?)"),
    ("serve.yml", ("--skip-tags", "modell"), "--skip-tags: no stage has the tag 'modell' (did you mean 'model'?)"),
    ("status.yml", ("--tags", "preflight"), "--tags: no stage has the tag 'preflight'; expected one of glance, logs, postmortem."),
    ("plan.yml", ("-e", "gb10_plan_contxt=1000"), "gb10_plan_contxt: no role reads this variable (did you mean 'gb10_plan_context'?)."),
    ("plan.yml", ("-e", "gb10_profile=nope"), "gb10_profile: unknown profile 'nope'."),
    ("plan.yml", ("-e", "gb10_plan_concurrency=many"), "gb10_plan_concurrency: is the text 'many'; expected a whole number."),
    ("plan.yml", serve(max_model_len="huge"), "gb10_serve_arguments.max_model_len: is 'huge'; expected a whole number of 1 or more"),
    ("plan.yml", ("-e", "gb10_plan_nodes=121.7,lots"), "gb10_plan_nodes[1].total_gib: is 'lots'; expected GiB from 8 to 4096."),
    ("plan.yml", ("-e", "gb10_plan_nodes=121.7,119.6,120"), "gb10_plan_nodes: names 3; expected 2"),
    ("plan.yml", ("-e", "gb10_plan_context=long"), "gb10_plan_context: is 'long'; expected a whole number of 1 or more."),
    ("plan.yml", ("-e", "gb10_plan_model=org/nope"), "hub/models--org--nope: no config.json"),
    ("awx_configure.yml", ("-e", "gb10_awx_scm_ulr=x"), "gb10_awx_scm_ulr: no role reads this variable (did you mean 'gb10_awx_scm_url'?)."),
    ("plan.yml", ("--tags", "x"), "--tags: no stage has the tag 'x'"),
    ("explain.yml", ("-e", "gb10_explian=./engine.log"), "gb10_explian: no role reads this variable (did you mean 'gb10_explain'?)."),
    ("status.yml", ("-e", "gb10_to=why.json"), "gb10_to: the playbook status does not write it."),
    ("serve.yml", ("-e", "gb10_report_path=r.json"), "gb10_report_path: no role reads this variable any more."),
    ("import.yml", ("-e", "gb10_import_imgae=x"), "gb10_import_imgae: no role reads this variable (did you mean 'gb10_import_image'?)."),
    ("import.yml", ("-e", "gb10_import=https://github.com/o/r/blob/main/g.yaml"), "curl -LO https://raw.githubusercontent.com/o/r/main/g.yaml"),
    ("doctor.yml", ("-e", "doctor_probe=maybe"), "doctor_probe: is 'maybe'; expected none or api or token."),
    ("doctor.yml", ("-e", "gb10_becom=false"), "gb10_becom: no role reads this variable (did you mean 'gb10_become'?)."),
    ("init.yml", ("-e", "gb10_init_dir=x"), "gb10_init_dir: no role reads this variable any more."),
    ("plan.yml", ("--tags", "profiles", "-e", "gb10_profile=qwen3_8_27b"), "gb10_profile: unknown profile 'qwen3_8_27b' (did you mean"),
]  # fmt: skip

#: Arguments and their messages. One run with all of them prints each message on a separate line.
TOGETHER: list[tuple[dict[str, t.Any], str]] = [
    ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization: is 1.5; expected a number above 0, up to 1."),
    ({"max_model_len": -5}, "max_model_len: is -5; expected a whole number of 1 or more"),
    ({"max_num_batched_tokens": "64kk"}, "max_num_batched_tokens: is '64kk'; expected a whole number of 1 or more"),
    ({"max_num_seqs": 0}, "max_num_seqs: is 0; expected a whole number of 1 or more."),
    ({"kv_cache_memory_bytes": "3.5G"}, "kv_cache_memory_bytes: is '3.5G'; expected a whole number of 1 or more"),
    ({"dtype": "float7"}, "dtype: is 'float7'; expected one of auto, bfloat16, float, float16, float32, half"),
    ({"max_model_length": 4096}, "max_model_length: is an argument of no release of vLLM from 0.19.1 to 0.33.0 (did you mean 'max_model_len'?)."),
    ({"swap_space": 4}, "swap_space: vLLM 0.32.0 knows no --swap-space; it was removed in 0.18.0"),
    ({"--max-num-seqs": 4}, "--max-num-seqs: begins with dashes."),
    ({"enforce_eager": "yes"}, "enforce_eager: is 'yes'; expected true or false."),
    ({"enable_prefix_caching": 1}, "enable_prefix_caching: is 1; expected true or false."),
    ({"seed": "x"}, "seed: is 'x'; expected a whole number."),
    ({"block_size": 0}, "block_size: is 0; expected a whole number of 1 or more."),
    ({"shutdown_timeout": -1}, "shutdown_timeout: is -1; expected a whole number of 0 or more."),
    ({"moe_backend": "marlinn"}, "moe_backend: is 'marlinn'; expected one of"),
    ({"linear_backend": "cutlas"}, "(did you mean 'cutlass'?)"),
    ({"scheduling_policy": "lifo"}, "scheduling_policy: is 'lifo'; expected one of fcfs, priority"),
    ({"performance_mode": "fast"}, "performance_mode: is 'fast'; expected one of balanced, interactivity, throughput"),
    ({"stream_interval": 0.5}, "stream_interval: is 0.5; expected a whole number of 1 or more."),
    ({"kv_cache_dtype": "fp9"}, "kv_cache_dtype: is 'fp9', which no release of vLLM has (did you mean 'fp8'?)."),
    ({"tensor_parallel_size": 2}, "tensor_parallel_size: is set by the collection from parallel.tensor"),
    ({"quantum_mode": True}, "quantum_mode: is an argument of no release of vLLM from 0.19.1 to 0.33.0."),
    ({"hf_token": "x"}, "hf_token: is a secret"),
]  # fmt: skip


@pytest.mark.parametrize(("playbook", "arguments", "message"), ALONE, ids=lambda value: value if isinstance(value, str) and value.endswith(".yml") else "")
def test_a_wrong_value_or_name_is_one_message_without_contact(plays: Plays, playbook: str, arguments: tuple[str, ...], message: str) -> None:
    run = plays.play(GOOD, *arguments, playbook=playbook)
    assert run.rc not in (0, 4) and run.says(message), str(run)
    assert "caused by" not in run.output, str(run)
    assert run.contacts == [], str(run)


def wrong_arguments(plays: Plays) -> Run:
    return plays.play(GOOD, *extra(gb10_serve_arguments={name: value for given, _message in TOGETHER for name, value in given.items()}))


SCENARIOS["wrong_arguments"] = wrong_arguments


@pytest.mark.xdist_group("wrong_arguments")
@pytest.mark.parametrize(("given", "message"), TOGETHER, ids=lambda value: next(iter(value)) if isinstance(value, dict) else "")
def test_a_wrong_argument_is_one_message_without_contact(plays: Plays, given: dict[str, t.Any], message: str) -> None:
    run = plays.once("wrong_arguments")
    assert run.rc != 0 and run.contacts == [], str(run)
    where = f"gb10_serve_arguments.{next(iter(given))}: "
    assert run.says(message) and run.output.count(where) == 1, str(run)


def test_at_least_forty_wrong_values_and_names_are_refused() -> None:
    assert len(ALONE) + len(TOGETHER) >= 40


# -- nodes that can't be looked at ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("playbook", "tags"), [("doctor.yml", "all"), ("doctor.yml", "fabric"), ("doctor.yml", "baseline"), ("status.yml", "all"), ("serve.yml", "all")]
)
def test_nodes_that_do_not_answer_are_one_table_and_a_failure(plays: Plays, playbook: str, tags: str) -> None:
    run = plays.play(GOOD, "--tags", tags, playbook=playbook)
    assert run.rc == 2 and "UNREACHABLE" not in run.output, str(run)
    # The watched connection's error is not a known cause, and differs from node to node.
    assert run.says("Nodes: 2 block") and run.output.count("the node could not be looked at") == 2, str(run)
    assert {contact.split()[0] for contact in run.contacts} == {"192.0.2.1", "192.0.2.2"}, str(run)


def test_the_doctor_needs_hosts_and_one_that_answers(plays: Plays) -> None:
    run = plays.play("spark1", playbook="doctor.yml")
    assert run.rc == 2 and run.says("No host was named. Name them with -i, with a comma after the last one"), str(run)
    run = plays.play(GOOD, "-e", "doctor_probe=none", "--tags", "stacks", playbook="doctor.yml")
    assert run.rc == 2 and "UNREACHABLE" not in run.output and run.says("the node could not be looked at"), str(run)
