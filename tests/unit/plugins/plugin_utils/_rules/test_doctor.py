# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The doctor's rules: each is met by one change to a healthy stack, and by no other. The stack is composed after a recorded one."""

from __future__ import annotations

import copy
import json
import string
import typing as t
from pathlib import Path

import jsonschema
import pytest
import yaml
from changes import changed

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import checks, judging, rule_table, tuning

ROOT = Path(__file__).resolve().parents[5]
HEALTHY = json.loads((ROOT / "tests/unit/fixtures/node_info/healthy.json").read_text(encoding="utf-8"))
SCHEMA = json.loads(rule_table.TABLE.with_name("preflight.schema.json").read_text(encoding="utf-8"))
RAW = yaml.safe_load(rule_table.DOCTOR_TABLE.read_text(encoding="utf-8"))["rules"]
RUN = {"cluster": "", "time": "2026-11-21T15:00:00Z"}
RAY = "ray 192.168.100.11:6379"
ENV = {"NCCL_NET": "IB", "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1", "RAY_AUTH_MODE": "token", "RAY_memory_monitor_refresh_ms": "0"}
SERVE = ["/usr/bin/python3", "/usr/local/bin/vllm", "serve", "org/m", "--tensor-parallel-size", "2", "--distributed-executor-backend", "ray"]


def part(pid: int, kind: str, engine: str = "vllm", **changes: t.Any) -> dict[str, t.Any]:
    answer = {
        "pid": pid,
        "ppid": 1,
        "kind": kind,
        "engine": engine,
        "stack": RAY,
        "argv": [f"{kind}"],
        "container": "vllm_node",
        "container_id": "cd" * 32,
        "user": "root",
        "started": "2026-11-21T10:00:00Z",
        "age_s": 7200,
        "env": dict(ENV),
        "env_source": "live",
        "listens": [],
        "peers": [],
        "rdma": [],
        "memlock_bytes": -1,
        "rss_mb": 900,
        "gpu_mib": None,
        "cpu_percent": 3.0,
        "halted": False,
        "state": "alive",
        "orphan": False,
        "why": "",
        "versions": {"vllm": "0.32.0", "ray": "2.60.0"},
    }
    return {**answer, **changes}


def container(**changes: t.Any) -> dict[str, t.Any]:
    shape = {
        "id": "cd" * 32,
        "name": "vllm_node",
        "image": "eugr/spark-vllm:1",
        "image_id": "sha256:1f0c",
        "image_base": "",
        "ours": False,
        "memlock_bytes": -1,
    }
    return {**shape, "host_network": True, "privileged": True, "infiniband": True, "ports": [], "env": {}, **changes}


def api(**changes: t.Any) -> dict[str, t.Any]:
    shape = {
        "pid": 381,
        "engine": "vllm",
        "stack": RAY,
        "container": "vllm_node",
        "address": "192.168.100.11",
        "port": 8000,
        "asked": "http://192.168.100.11:8000",
    }
    answer = {"world": True, "state": "answers", "error": "", "health": 200, "models_status": 401, "models": None, "open": False, "running": 0.0, "tokens": 0.0}
    answer["token"] = None
    return {**shape, **answer, **changes}


def rank(pid: int, host: str, **changes: t.Any) -> dict[str, t.Any]:
    return part(pid, "rank", argv=["ray::RayWorkerProc.run"], rdma=["uverbs0"], env={**ENV, "VLLM_HOST_IP": host, "RAY_JOB_ID": str(pid)}, **changes)


#: Indexes of the processes. Head: 0 server, 1 core, 2 rank, 3 raylet, 4 gcs_server, 5 dashboard. Worker: 0 rank, 1 raylet.
HEAD = {
    "processes": [
        part(381, "api_server", argv=SERVE),
        part(855, "engine_core", ppid=381, argv=["VLLM::EngineCore"]),
        rank(1033, "192.168.100.11"),
        part(321, "raylet", "ray", argv=["/x/ray/raylet"]),
        part(319, "gcs_server", "ray", argv=["/x/ray/gcs_server"], listens=[{"address": "0.0.0.0", "port": 6379}]),
        part(320, "ray_dashboard", "ray", argv=["python3", "dashboard.py", "--port=8265"], listens=[{"address": "0.0.0.0", "port": 20108}]),
    ],
    "containers": [container()],
    "apis": [api()],
    "sample_s": 2.0,
    "errors": [],
}
WORKER = {"processes": [rank(1104, "192.168.100.12"), part(325, "raylet", "ray")], "containers": [container()], "apis": [], "sample_s": 2.0, "errors": []}
NATIVE = ["python3", "vllm", "serve", "org/m", "--nnodes", "2", "--master-addr", "10.0.0.1"]


def answers(
    stack: dict[str, t.Any] | None = None, info: dict[str, t.Any] | None = None, zombies: t.Sequence[dict[str, t.Any]] = (), **settings: t.Any
) -> dict[str, t.Any]:
    return {
        "info": copy.deepcopy(info or HEALTHY),
        "stack": copy.deepcopy(stack or HEAD),
        "zombies": {"findings": list(zombies)},
        "failure": "",
        "settings": settings,
    }


def worker_info(**changes: t.Any) -> dict[str, t.Any]:
    text = json.dumps(HEALTHY).replace("192.168.100.11", "192.168.100.12").replace("192.168.101.11", "192.168.101.12")
    return changed(json.loads(text), changes)


def judged(head: dict[str, t.Any] | None = None, worker: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
    record = judging.judge_stacks({"spark-1": head or answers(), "spark-2": worker or answers(WORKER, worker_info())}, RUN)
    jsonschema.validate(record, SCHEMA)
    return record


def ids(record: dict[str, t.Any]) -> set[str]:
    return {finding["id"] for finding in record["findings"]}


def native(head: t.Sequence[str] = (), worker: t.Sequence[str] = ()) -> dict[str, t.Any]:
    """Return a native stack of two nodes; ``head`` and ``worker`` are added to its arguments."""
    of = {"stack": "native 10.0.0.1:29501"}
    return {
        "head": {
            **HEAD,
            "processes": [part(381, "api_server", argv=[*NATIVE, "-tp", "2", *head], **of), {**rank(1033, "a", ppid=381), **of}],
            "apis": [api(**of)],
        },
        "worker": {
            **WORKER,
            "processes": [part(325, "headless", argv=[*NATIVE, "-tp", "2", "--headless", "--node-rank", "1", *worker], **of), {**rank(1104, "b"), **of}],
        },
    }


OLLAMA = {
    "pid": 901,
    "name": "ollama",
    "cmdline": "ollama serve",
    "user": "ollama",
    "kind": "ollama",
    "container": "",
    "cuda": True,
    "gpu_mib": 6220,
    "rss_mb": 900,
}

#: Rule → the change that meets this rule and no other. `head` and `worker` change the stacks, `info` the head's machine.
TRIGGERS: dict[str, dict[str, t.Any]] = {
    "node.answers": {"failure": "Missing sudo password", "words": ["Missing sudo password", "gb10_become=false"], "beside": {"stack.spins"}},
    "stack.env_same": {
        "worker": {"processes__0__env__VLLM_ALLOW_LONG_MAX_MODEL_LEN": "0"},
        "node": "cluster",
        "words": ["VLLM_ALLOW_LONG_MAX_MODEL_LEN", "spark-1 1, spark-2 0", RAY],
    },
    "stack.arguments_same": {
        "native": (["--dtype", "auto"], ["--dtype", "bfloat16"]),
        "node": "cluster",
        "words": ["--dtype", "spark-1 auto, spark-2 bfloat16"],
    },
    "stack.image_same": {"worker": {"containers__0__image_id": "sha256:2a"}, "node": "cluster", "words": ["sha256:1f0c", "sha256:2a", "docker save"]},
    "stack.versions_same": {"worker": {"processes__0__versions": {"vllm": "0.31.0", "ray": "2.60.0"}}, "node": "cluster", "words": ["vllm differs", "0.31.0"]},
    "stack.ranks_complete": {"worker": {"processes": [part(325, "raylet", "ray")]}, "words": ["started for 2 ranks, 1 were found (spark-1 1)"]},
    "stack.orphans": {
        "head": {"processes__1__orphan": True, "processes__1__why": "process 1 adopted it"},
        "words": ["VLLM::EngineCore (pid 855)", "sudo kill 855", "cuda_zombie_check"],
    },
    "stack.halted": {"worker": {"processes__0__halted": True}, "node": "spark-2", "words": ["pid 1104", "kill -CONT 1104", "hangs"]},
    "stack.rdma_used": {"worker": {"processes__0__rdma": []}, "node": "spark-2", "words": ["pid 1104", "rocep1s0f0", "--device=/dev/infiniband"]},
    "stack.rdma_allowed": {
        "head": {"processes__2__env__NCCL_IB_DISABLE": "1"},
        "worker": {"processes__0__env__NCCL_IB_DISABLE": "1"},
        "node": "both",
        "words": ["NCCL_IB_DISABLE=1"],
    },
    "stack.memlock": {"head": {"processes__2__memlock_bytes": 8388608}, "words": ["8388608", "memlock=-1:-1"]},
    "ray.raylet": {"worker": {"processes": [WORKER["processes"][0]]}, "node": "spark-2", "words": ["ray start --address"]},
    "ray.open": {"head": {"processes__4__env": {}}, "words": ["gcs_server (pid 319)", "6379", "RAY_AUTH_MODE=token"]},
    "ray.memory_monitor": {"worker": {"processes__1__env": {}}, "node": "spark-2", "words": ["RAY_memory_monitor_refresh_ms=(not set)"]},
    "stack.api_answers": {
        "head": {"apis__0__state": "silent", "apis__0__error": "no answer within 3 s", "apis__0__health": None},
        "words": ["192.168.100.11:8000", "no answer within 3 s"],
    },
    "stack.token": {
        "head": {"apis__0__token": {"api": "answers", "completion": None, "progress": {"grew": False, "still_s": 700.0, "limit_s": 600.0}}},
        "worker": {"processes__0__state": "uninterruptible"},
        "words": ["stalled: no progress for 700 s", "spark-2", "(pid 1104)", "cannot be interrupted"],
    },
    "stack.api_closed": {
        "head": {"apis__0__open": True, "apis__0__models_status": 200, "apis__0__models": [{"id": "tiny", "max_model_len": 2048}]},
        "words": ["tiny", "without a key"],
    },
    "stack.secret_in_arguments": {"head": {"processes__0__argv": [*SERVE, "--api-key", "<secret>"]}, "words": ["(--api-key)"]},
    "stack.spins": {
        "head": {"apis__0__running": 2.0},
        "worker": {"processes__0__cpu_percent": 99.5},
        "node": "spark-2",
        "words": ["pid 1104", "99.5 %", "2 request(s)", "in a minute"],
    },
    "stack.idle_spin": {"head": {"processes__2__cpu_percent": 101.0}, "words": ["101 %"]},
    "stack.memory_left": {"info": {"memory__available_mb": 5500}, "words": ["5.4 GiB"]},
    "stack.alone": {"info": {"tenants": [OLLAMA, {**OLLAMA, "pid": 855, "kind": "vllm"}]}, "words": ["ollama (pid 901, ollama, user ollama)", "6220 MiB"]},
    "stack.one_engine": {
        "head": {"processes": [*HEAD["processes"], part(77, "api_server", stack="local 77", argv=["vllm", "serve", "x"])]},
        "words": ["2 engines", "pid 77"],
    },
}


def triggered(trigger: dict[str, t.Any]) -> dict[str, t.Any]:
    stacks = native(*trigger["native"]) if "native" in trigger else {"head": HEAD, "worker": WORKER}
    head = answers(changed(stacks["head"], trigger.get("head", {})), changed(HEALTHY, trigger.get("info", {})))
    worker = answers(changed(stacks["worker"], trigger.get("worker", {})), worker_info())
    if "failure" in trigger:
        head = {"info": {"failed": True, "msg": trigger["failure"]}, "stack": {}, "zombies": {}, "failure": trigger["failure"], "settings": {}}
    return judged(head, worker)


def test_a_healthy_stack_meets_no_rule():
    record = judged()
    assert [(finding["id"], finding["message"]) for finding in record["findings"]] == []
    assert record["verdict"] == "pass" and record["kind"] == "gb10.cluster.doctor" and record["profile"] is None
    assert any("vllm api_server, vllm serve (pid 381) in container vllm_node" in line and "answers" in line for line in record["found"])
    assert any(line == f"spark-2: 1 rank (pid 1104) in container vllm_node, stack {RAY}" for line in record["found"])


def test_the_same_without_ray():
    stacks = native()
    assert ids(judged(answers(stacks["head"]), answers(stacks["worker"], worker_info()))) == set()


@pytest.mark.parametrize(
    ("token", "state", "verdict"),
    [
        ({"completion": {"tokens": 1, "seconds": 0.4}, "progress": None}, "alive", None),
        ({"completion": None, "progress": {"grew": True, "still_s": 0.0, "limit_s": 600.0}}, "alive", None),
        ({"completion": None, "progress": {"grew": False, "still_s": 15.0, "limit_s": 600.0}}, "alive", "unknown"),
        ({"completion": None, "progress": {"grew": False, "still_s": 15.0, "limit_s": 600.0}}, "stopped", "block"),
    ],
)
def test_busy_is_not_hung_and_unknown_does_not_pass(token, state, verdict):
    head = changed(HEAD, {"apis__0__token": {"api": "answers", **token}})
    record = judged(answers(head), answers(changed(WORKER, {"processes__0__state": state}), worker_info()))
    assert next((finding["verdict"] for finding in record["findings"] if finding["id"] == "stack.token"), None) == verdict


def test_there_is_a_trigger_for_each_rule():
    assert set(TRIGGERS) == {row["id"] for row in RAW}


@pytest.mark.parametrize("rule", [row["id"] for row in RAW])
def test_each_rule_answers_alone_on_the_right_node(rule):
    trigger, row = TRIGGERS[rule], next(row for row in RAW if row["id"] == rule)
    record = triggered(trigger)
    assert ids(record) - trigger.get("beside", set()) == {rule}, [(finding["id"], finding["message"]) for finding in record["findings"]]
    concerned = trigger.get("node", "spark-1")
    mine = [finding for finding in record["findings"] if finding["id"] == rule]
    assert {finding["node"] for finding in mine} == ({"spark-1", "spark-2"} if concerned == "both" else {concerned})
    for finding in mine:
        assert finding["verdict"] == row["verdict"] and finding["remedy"] and finding["source"]
        assert all(word in f"{finding['message']} {finding['remedy']}" for word in trigger.get("words", [])), finding
        assert "{" not in finding["message"] + finding["remedy"] and "None" not in finding["message"]


@pytest.mark.parametrize("row", RAW, ids=lambda row: row["id"])
def test_each_row_is_well_formed(row):
    assert row["check"] in {**checks.CHECKS, **checks.COMPARISONS} and row["verdict"] in ("block", "warn") and rule_table.DOCTOR_TAG in row["tags"]
    assert row["title"][0].isupper() and not row["title"].endswith(".") and row["source"]
    for text in (row["message"], row["remedy"]):
        assert all(name is None or name.isidentifier() for _text, name, _spec, _conversion in string.Formatter().parse(text))


def test_the_rules_of_the_preflight_that_need_no_profile_are_judged_too():
    record = judged(
        answers(info=changed(HEALTHY, {"environment": [{"where": "/etc/environment", "name": "VLLM_X", "value": "1"}], "memory__swap_free_mb": 100}))
    )
    assert ids(record) == {"env.left", "memory.swap"}
    assert not {"image.present", "model.ready", "tenant.holding", "fabric.address", "port.free"} & set(record["matrix"])


# --- nodes that say little ----------------------------------------------------------------------------------------------------

EMPTY = {"processes": [], "containers": [], "apis": [], "sample_s": None, "errors": []}


def test_nodes_without_any_stack_pass():
    record = judged(answers(EMPTY), answers(EMPTY, worker_info()))
    assert ids(record) == set() and record["found"] == ["spark-1: no engine and no Ray runs", "spark-2: no engine and no Ray runs"]


def test_a_node_that_cannot_be_reached_is_reported_and_the_other_judged():
    lost = {
        "info": {"unreachable": True, "msg": "Failed to connect to the host via ssh: no route"},
        "stack": {"skipped": True},
        "zombies": {"skipped": True},
        "failure": "",
    }
    other = answers(WORKER, worker_info(memory__swap_free_mb=100))
    record = judged(lost, other)
    assert {("node.answers", "spark-1", "block"), ("memory.swap", "spark-2", "warn")} == {
        (finding["id"], finding["node"], finding["verdict"]) for finding in record["findings"]
    }
    assert "no route" in record["findings"][0]["message"] and record["found"][0] == "spark-1: could not be looked at"
    assert all(entry["why"] == "node.answers comes first" for entry in record["not_judged"] if entry["node"] == "spark-1")


def test_no_node_answers():
    lost = {"info": {"unreachable": True, "msg": "no route"}, "stack": {}, "zombies": {}}
    assert ids(judging.judge_stacks({"a": lost, "b": lost}, RUN)) == {"node.answers"}


def test_without_the_module_for_processes_the_rest_is_judged():
    record = judged({**answers(), "zombies": {"failed": True, "msg": "no such module"}})
    assert ids(record) and all(id.startswith(("cuda_zombie.", "stack.orphans")) for id in ids(record))
    assert all("no such module" in finding["message"] for finding in record["findings"])


def test_what_an_ordinary_account_may_not_see_is_unknown_with_the_reason():
    errors = [
        {"section": name, "verdict": "unknown", "error": f"{name} may not be seen", "remedy": "Run the task with become: true."}
        for name in ("env", "rdma", "listens", "versions")
    ]
    blind = changed(HEAD, {f"processes__{index}__{name}": None for index in range(6) for name in ("env", "rdma", "listens", "versions")})
    record = judged(answers({**blind, "errors": errors}))
    assert {finding["verdict"] for finding in record["findings"]} == {"unknown", "warn"}
    assert {"stack.env_same", "stack.rdma_used", "ray.open", "stack.versions_same"} <= ids(record)
    assert all("may not be seen" in finding["message"] and "become" in finding["remedy"] for finding in record["findings"])
    assert any(finding["message"].startswith("whether Ray does not take orders from everybody is unknown") for finding in record["findings"])


def test_processes_that_could_not_be_listed_pass_nothing():
    error = {"section": "processes", "verdict": "unknown", "error": "hidepid", "remedy": "become"}
    record = judged(answers({**EMPTY, "processes": None, "errors": [error]}))
    assert {finding["verdict"] for finding in record["findings"]} == {"unknown", "warn"} and "stack.env_same" in ids(record)
    assert all(" is unknown, since " in finding["message"] for finding in record["findings"])
    record = judged(answers({**EMPTY, "errors": [error]}))
    assert "stack.alone" in ids(record)


# --- what is one stack ----------------------------------------------------------------------------------------------------------


def test_engines_of_their_own_on_two_nodes_are_not_compared():
    def alone(pid: int, **env: str) -> dict[str, t.Any]:
        of = {"stack": f"local {pid}", "age_s": 7200}
        return {
            **EMPTY,
            "processes": [part(pid, "api_server", argv=["vllm", "serve", f"m{pid}"], **of), part(pid + 1, "rank", ppid=pid, env=env, **of)],
            "apis": [api(pid=pid, **of)],
        }

    assert ids(judged(answers(alone(7, VLLM_A="1")), answers(alone(7, VLLM_A="2"), worker_info()))) == set()


def test_two_engines_that_meet_at_their_own_loopback_are_two():
    head, worker = native()["head"], native()["worker"]
    for stack in (head, worker):
        for process in [*stack["processes"], *stack["apis"]]:
            process["stack"] = "native 127.0.0.1:29501"
    record = judged(answers(head), answers(worker, worker_info()))
    assert ids(record) == {"stack.ranks_complete"}


def test_a_stack_that_starts_is_given_time():
    young = changed(HEAD, {"processes__0__age_s": 30, "processes__2__age_s": 30, "processes__2__rdma": [], "processes__2__cpu_percent": 100.0})
    starting = {**young, "apis": [api(state="not_listening", address=None, asked=None, world=None, open=None, running=None, tokens=None)]}
    record = judged(answers(starting), answers({**WORKER, "processes": WORKER["processes"][1:]}, worker_info()))
    assert [(finding["id"], finding["verdict"]) for finding in record["findings"]] == [("stack.api_answers", "warn")]
    late = changed(starting, {"processes__0__age_s": 9000})
    assert ("stack.api_answers", "block") in [(finding["id"], finding["verdict"]) for finding in judged(answers(late))["findings"]]


def test_it_is_unknown_whether_who_burns_a_core_makes_progress_where_no_api_says_so():
    record = judged(answers(changed(HEAD, {"processes__2__cpu_percent": 99.0, "apis__0__running": None, "apis__0__tokens": None})))
    assert {(finding["id"], finding["verdict"]) for finding in record["findings"]} == {("stack.spins", "warn"), ("stack.idle_spin", "warn")}
    assert all(" is unknown, since " in finding["message"] for finding in record["findings"])


def test_a_core_that_burns_while_tokens_come_is_at_work():
    assert ids(judged(answers(changed(HEAD, {"processes__2__cpu_percent": 99.0, "apis__0__running": 4.0, "apis__0__tokens": 80.0})))) == set()


def test_memory_that_is_nearly_gone_blocks():
    (finding,) = judged(answers(info=changed(HEALTHY, {"memory__available_mb": 3000})))["findings"]
    assert (finding["id"], finding["verdict"]) == ("stack.memory_left", "block")


def test_two_ranks_of_one_node_are_compared_and_named():
    second = rank(1034, "192.168.100.11")
    second["env"]["NCCL_NET"] = "Socket"
    record = judged(answers({**HEAD, "processes": [*HEAD["processes"], second]}))
    finding = next(finding for finding in record["findings"] if finding["id"] == "stack.env_same")
    assert finding["node"] == "spark-1" and "spark-1 (pid 1034) Socket" in finding["message"]


def test_images_that_were_built_here_go_by_base_and_recipe():
    same = {"image_base": "sha256:ba5e 4ec1be"}
    head = answers({**HEAD, "containers": [container(image_id="sha256:aa", **same)]})
    assert ids(judged(head, answers({**WORKER, "containers": [container(image_id="sha256:bb", **same)]}, worker_info()))) == set()


def test_a_rule_is_tuned_and_silenced_by_id():
    head = changed(HEAD, {"processes__4__env": {}})
    worker = changed(WORKER, {"processes__0__env__VLLM_X": "1"})
    per_host = [*next(row for row in RAW if row["id"] == "stack.env_same")["limits"]["per_host"], "VLLM_X"]
    rules = {"stack.env_same": {"per_host": per_host, "why": "mine"}}
    record = judged(answers(head, silenced=["ray.open"], rules=rules), answers(worker, worker_info(), rules=rules))
    assert [(finding["id"], finding["verdict"]) for finding in record["findings"]] == [("ray.open", "silenced")]
    assert tuning.tuning_problems(rules, "rules", "input.rules") == []
    assert "ray.open" in rule_table.known_ids()
