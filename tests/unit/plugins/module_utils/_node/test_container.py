# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's container: fields, digest, comparison, plan, and the messages of a failure."""

from __future__ import annotations

import dataclasses
import json
import os
import stat

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._engine import launch
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._node import container as nc
from ansible_collections.gb10.cluster.plugins.module_utils._node import fields, obstacles

#: The node's directory for what the image's engine compiles.
CACHE = "/var/lib/gb10/gb10/cache/0.20.1-arm64-1f0c3f3d2b4a5968"
FIELDS = {
    "node_role": "head",
    "state_dir": "/var/lib/gb10",
    "log_dir": "/var/log/gb10",
    "image": "local/vllm-ray:26.05",
    "image_id": "sha256:aaa",
    "env": {"NCCL_NET": "IB", "VLLM_X": "1"},
    "secret_files": {"ray_token": "/etc/gb10/secrets/ray_token"},
    "devices": ["/dev/infiniband"],
    "gpus": "all",
    "capabilities": ["IPC_LOCK"],
    "drop_capabilities": ["ALL"],
    "no_new_privileges": True,
    "hf_home": "/srv/hf",
    "ulimits": {"memlock": -1, "stack": 67108864},
    "shm_size": "10g",
    "ipc_host": False,
    "mounts": [{"source": "/srv/hub", "target": "/hub", "read_only": False}],
}


ABSENT = fields.absent_means("native")


def wanted(**more):
    return nc.WantedContainer("gb10", "native", {**FIELDS, **more}, ["ray", "start", "--block"], {})


def current(status="running", noted=None, digest=None, **other):
    kept = FIELDS if noted is None else noted
    values = {"exit_code": 0, "oom_killed": False, "started_at": "2026-11-21T01:57:53.754100254Z", **other}
    return nc.ExistingContainer(
        id="3ff22d443798" + "0" * 52, name="gb10-gb10-head", status=status, fields=kept, digest=digest or fields.digest(kept, ABSENT), **values
    )


# -- digest and comparison -------------------------------------------------------------------------------------------


def test_digest_is_versioned_and_heeds_no_order():
    turned = dict(reversed([(name, dict(reversed(value.items())) if isinstance(value, dict) else value) for name, value in FIELDS.items()]))
    assert fields.digest(turned, ABSENT) == fields.digest(FIELDS, ABSENT)
    assert fields.digest(FIELDS, ABSENT).startswith("2:")
    assert len(fields.digest(FIELDS, ABSENT)) == 2 + 64


def test_digest_does_not_move_between_versions_of_the_collection():
    # A change of this value restarts every cluster of every user at the next upgrade.
    first = {name: value for name, value in FIELDS.items() if name not in ("node_role", "state_dir", "log_dir")}
    assert fields.digest(first, ABSENT) == "2:4cde1173935f7195d4fae1fe7110035da440aad8f34403fb5b6e84a4dc8fd21e"


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_every_field_counts(name):
    other = {**FIELDS, name: {"A": "b"} if isinstance(FIELDS[name], dict) else "other"}
    assert fields.digest(other, ABSENT) != fields.digest(FIELDS, ABSENT)
    assert fields.compare(FIELDS, other, ABSENT)


@pytest.fixture
def new_option(monkeypatch):
    """A field that came after the containers of these tests."""
    monkeypatch.setattr(fields, "FIELDS", (*fields.FIELDS, fields.Field("new_option", {"type": "str"}, counts=True, absent="plain")))


def test_a_field_that_the_old_container_lacks_equals_its_default(new_option):
    upgraded = wanted(new_option="plain")
    assert upgraded.digest == current().digest
    assert nc.changes(current(), upgraded) == {}
    # Also when an old version had made its digests in another way.
    assert nc.changes(current(digest="0:0123"), upgraded) == {}


def test_a_field_that_the_old_container_lacks_differs_when_it_is_set(new_option):
    assert nc.changes(current(), wanted(new_option="fancy")) == {"new_option": ("plain", "fancy")}


def test_a_field_of_a_newer_version_is_left_alone():
    assert nc.changes(current(noted={**FIELDS, "from_the_future": 1}), wanted()) == {}


def test_differences_name_each_variable():
    other = wanted(env={"NCCL_NET": "IB", "VLLM_X": "2", "VLLM_Y": "1"}, ulimits={"memlock": -1})
    assert nc.changes(current(), other) == {"env.VLLM_X": ("1", "2"), "env.VLLM_Y": (None, "1"), "ulimits.stack": (67108864, None)}


def test_an_image_replaced_under_its_tag_is_a_difference():
    assert nc.changes(current(), wanted(image_id="sha256:bbb")) == {"image_id": ("sha256:aaa", "sha256:bbb")}


def test_differences_in_words_are_short():
    text = nc.difference_text({"env.B": (None, "x" * 100), "env.A": ("1", None)})
    assert text == f'env.A "1" -> nothing, env.B nothing -> "{"x" * 56}...'


def test_labels_carry_digest_and_fields():
    labels = wanted().labels
    assert labels["io.gb10.owner"] == "gb10.cluster"
    assert labels["io.gb10.spec"] == fields.digest(FIELDS, ABSENT)
    assert json.loads(labels["io.gb10.fields"]) == FIELDS


# -- what is there ---------------------------------------------------------------------------------------------------


def inspected(labels):
    state = {"Status": "exited", "ExitCode": 137, "OOMKilled": True, "StartedAt": "2026-11-21T01:57:53.754100254Z"}
    return {"Id": "i", "Name": "/gb10-gb10-head", "State": state, "Config": {"Labels": labels}}


def test_current_is_read_from_the_labels():
    container = nc.existing(inspected(wanted().labels))
    assert (container.name, container.status, container.exit_code, container.oom_killed) == ("gb10-gb10-head", "exited", 137, True)
    assert container.fields == FIELDS
    assert not container.running
    assert not container.holds_processes


def test_the_uptime_is_that_of_the_first_process(monkeypatch):
    container = nc.existing(inspected(wanted().labels))
    assert container.uptime() == 0
    began = nc.read_stat(os.getpid()).start_ticks / os.sysconf("SC_CLK_TCK")
    monkeypatch.setattr(nc, "boot_seconds", lambda: began + 100)
    assert dataclasses.replace(container, pid=os.getpid()).uptime() == pytest.approx(100)
    assert dataclasses.replace(container, pid=2**30).uptime() == 0


@pytest.mark.parametrize("labels", [None, {}, {"io.gb10.fields": "{"}, {"io.gb10.fields": "[]", "io.gb10.spec": "1:abc"}])
def test_a_container_with_unreadable_labels_is_replaced(labels):
    container = nc.existing(inspected(labels))
    assert (container.readable, container.fields, container.digest) == (False, {}, "")
    running = dataclasses.replace(container, status="running", exit_code=0)
    assert nc.replacement_reason(running, nc.changes(running, wanted())) == "container of this collection has labels without its fields"
    assert [step.verb for step in nc.plan("started", running.name, running)] == ["stop", "remove", "create", "start"]


def test_an_image_id_is_shown_as_docker_shows_it():
    before, after = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
    assert nc.difference_text({"image_id": (before, after)}) == 'image_id "sha256:aaaaaaaaaaaa" -> "sha256:bbbbbbbbbbbb"'
    assert nc.difference_text({"x": (None, "sha256:of nothing")}) == 'x nothing -> "sha256:of nothing"'


@pytest.mark.parametrize(
    ("words", "going"),
    [
        ("removal of container 4f66ad9a0b2e is already in progress", True),
        ("You cannot remove a running container 4f66ad9a0b2e. Stop the container before attempting removal or force remove", False),
    ],
)
def test_another_removal_is_recognized_by_dockers_message(words, going):
    assert nc.under_removal(ClusterError(f"removing container 4f66ad9a0b2e: {words}", detail=words)) is going


# -- plan ------------------------------------------------------------------------------------------------------------

REPLACE = ["remove", "create", "start"]


@pytest.mark.parametrize(
    ("state", "container", "changed", "verbs", "reason"),
    [
        ("started", None, (), ["create", "start"], "no container"),
        ("started", current(), (), [], ""),
        ("started", current(), ("env.VLLM_X", "env.A"), ["stop", *REPLACE], "changed: env.A, env.VLLM_X"),
        ("started", current("paused"), (), ["stop", *REPLACE], "container of this collection was paused"),
        ("started", current("exited", exit_code=1), (), REPLACE, "container of this collection had exited with code 1"),
        (
            *("started", current("exited", exit_code=137, oom_killed=True), ("gpus",), REPLACE),
            "container of this collection had exited with code 137, out of memory",
        ),
        ("started", current("created"), (), REPLACE, "container of this collection was created but never started"),
        ("started", current("dead"), (), REPLACE, "container of this collection was dead"),
        ("stopped", None, (), [], ""),
        ("stopped", current(), (), ["stop"], "state stopped"),
        ("stopped", current("exited"), (), [], ""),
        ("stopped", current("created"), (), [], ""),
        ("absent", None, (), [], ""),
        ("absent", current(), (), ["stop", "remove"], "state absent"),
        ("absent", current("exited"), (), ["remove"], "state absent"),
    ],
)
def test_plan(state, container, changed, verbs, reason):
    steps = nc.plan(state, "gb10-gb10-head", container, changed)
    assert [step.verb for step in steps] == verbs
    assert (steps[0].reason if steps else "") == reason


def test_actions_read_well():
    assert [str(step) for step in nc.plan("started", "gb10-gb10-head", None)] == ["create gb10-gb10-head (no container)", "start gb10-gb10-head"]


def test_session_is_another_after_another_start():
    first = nc.session("a", "2026-11-21T01:57:53Z")
    assert len(first) == 16
    assert first != nc.session("a", "2026-11-21T01:57:54Z")
    assert first != nc.session("b", "2026-11-21T01:57:53Z")


def test_snapshot_has_one_shape():
    assert nc.snapshot("absent", {}) == {"state": "absent", "fields": {}}
    assert nc.snapshot("running", FIELDS)["fields"]["env.NCCL_NET"] == "IB"


# -- arguments -------------------------------------------------------------------------------------------------------


def test_an_image_s_own_entrypoint_stands_before_the_program():
    plain, wrapped = nc.creation_payload(wanted(), CACHE), nc.creation_payload(wanted(), CACHE, ["/usr/bin/tini", "--"])
    assert (wrapped["entrypoint"], wrapped["command"]) == (["/usr/bin/tini"], ["--", "ray", "start", "--block"])
    assert wrapped["labels"] == {**plain["labels"], "io.gb10.entrypoint": '["/usr/bin/tini","--"]'}
    assert launch.run_argv(wrapped["labels"], "r1")[:3] == ["/usr/bin/tini", "--", "python3"]
    assert launch.run_argv(plain["labels"], "r1") == launch.argv("run", "--run-id", "r1")


def test_creation_payload():
    assert nc.creation_payload(wanted(), CACHE) == {
        "image": "local/vllm-ray:26.05",
        "name": "gb10-gb10-head",
        "entrypoint": ["ray"],
        "command": ["start", "--block"],
        "environment": {**nc.CACHES, "NCCL_NET": "IB", "VLLM_X": "1"},
        "labels": wanted().labels,
        "network_mode": "host",
        "init": True,
        "devices": ["/dev/infiniband:/dev/infiniband:rwm"],
        "device_requests": [{"driver": "nvidia", "count": -1, "capabilities": [["gpu"]]}],
        "cap_add": ["IPC_LOCK"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "ulimits": [{"Name": name, "Soft": limit, "Hard": limit} for name, limit in (("core", 0), ("memlock", -1), ("stack", 67108864))],
        "mounts": [
            {"Type": "bind", "Source": "/var/lib/gb10/gb10/launch", "Target": "/opt/gb10/launch", "ReadOnly": True},
            {"Type": "bind", "Source": "/var/lib/gb10/gb10/run", "Target": "/opt/gb10/run", "ReadOnly": False},
            {"Type": "bind", "Source": CACHE, "Target": "/opt/gb10/cache", "ReadOnly": False},
            {"Type": "bind", "Source": "/var/log/gb10/gb10/engine", "Target": "/var/log/gb10/engine", "ReadOnly": False},
            {"Type": "bind", "Source": "/etc/gb10/secrets/ray_token", "Target": "/run/secrets/gb10/ray_token", "ReadOnly": True},
            {"Type": "bind", "Source": "/srv/hub", "Target": "/hub", "ReadOnly": False},
            {"Type": "bind", "Source": "/srv/hf/hub", "Target": "/root/.cache/huggingface/hub", "ReadOnly": True},
        ],
        "log_config": {"type": "json-file", "config": {"max-size": "50m", "max-file": "3"}},
        "shm_size": "10g",
    }


def test_host_ipc_takes_the_place_of_shm():
    arguments = nc.creation_payload(wanted(ipc_host=True, shm_size=""), CACHE)
    assert arguments["ipc_mode"] == "host"
    assert "shm_size" not in arguments


def test_the_sdk_understands_the_arguments():
    models = pytest.importorskip("docker.models.containers")
    config = models._create_container_args({**nc.creation_payload(wanted(), CACHE), "version": "1.41"})["host_config"]
    assert config["DeviceRequests"] == [{"Driver": "nvidia", "Count": -1, "DeviceIDs": [], "Capabilities": [["gpu"]], "Options": {}}]
    assert config["Devices"] == [{"PathOnHost": "/dev/infiniband", "PathInContainer": "/dev/infiniband", "CgroupPermissions": "rwm"}]
    assert config["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "50m", "max-file": "3"}}
    assert config["ShmSize"] == 10 * 1024**3
    assert config["Mounts"][0]["ReadOnly"] is True
    assert not config.get("Privileged")
    assert not config.get("RestartPolicy")
    assert not config.get("AutoRemove")


def test_the_way_to_the_gpu_is_not_part_of_the_digest():
    by_cdi = nc.creation_payload(wanted(), CACHE, cdi_devices=["nvidia.com/gpu=all"])
    assert by_cdi == {**nc.creation_payload(wanted(), CACHE), "device_requests": [{"driver": "cdi", "device_ids": ["nvidia.com/gpu=all"]}]}


def test_environment_is_text():
    assert fields.environment({"B": 1, "A": "x", "C": 0.5}) == {"A": "x", "B": "1", "C": "0.5"}


@pytest.mark.parametrize("value", [None, ["a"], {"a": 1}])
def test_environment_refuses_what_has_no_one_spelling(value):
    with pytest.raises(ClusterError, match="env X is"):
        fields.environment({"X": value})

# -- secrets and devices ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_secret_of_its_owner_alone_is_fine(tmp_path, mode):
    path = tmp_path / "secret"
    path.write_text("x")
    path.chmod(mode)
    obstacles.check_secret_file("ray_token", str(path))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_secret_that_others_can_read_is_refused(tmp_path, mode):
    path = tmp_path / "secret"
    path.write_text("x")
    path.chmod(mode)
    with pytest.raises(ClusterError, match=f"has mode {mode:04o}; expected 0600") as caught:
        obstacles.check_secret_file("ray_token", str(path))
    assert caught.value.remedy == f"chmod 0600 {path}"


def test_a_secret_must_be_a_file(tmp_path):
    with pytest.raises(ClusterError, match="No such file"):
        obstacles.check_secret_file("ray_token", str(tmp_path / "none"))
    with pytest.raises(ClusterError, match="is not a file"):
        obstacles.check_secret_file("ray_token", str(tmp_path))


def test_a_missing_device_is_named(tmp_path):
    obstacles.check_devices(["/dev/null", "/dev/null:/dev/zero:r"])
    with pytest.raises(ClusterError, match="has no /dev/no-such-device") as caught:
        obstacles.check_devices(["/dev/no-such-device"])
    assert "gb10_container_devices" in caught.value.remedy


@pytest.mark.skipif(os.geteuid() != 0, reason="making a device node takes root")
def test_a_disk_is_refused_as_a_device(tmp_path):
    (tmp_path / "mapper").mkdir()
    os.mknod(tmp_path / "mapper/root", stat.S_IFBLK | 0o600, os.makedev(7, 250))
    (tmp_path / "by-name").symlink_to("mapper/root")
    for device in (f"{tmp_path}/mapper/root", f"{tmp_path}/by-name:/dev/x:r", f"{tmp_path}/mapper"):
        with pytest.raises(ClusterError, match="is a disk of this node") as caught:
            obstacles.check_devices(["/dev/null", device])
        assert caught.value.details["device"] == device and "gb10_container_devices" in caught.value.remedy


def test_a_second_way_to_a_disk_is_one(tmp_path):
    number = f"{os.major(os.stat('/dev/zero').st_rdev)}:{os.minor(os.stat('/dev/zero').st_rdev)}"
    (tmp_path / "class/nvme-generic").mkdir(parents=True)
    (tmp_path / "dev/char" / number).mkdir(parents=True)
    (tmp_path / "dev/char" / number / "subsystem").symlink_to(tmp_path / "class/nvme-generic")
    obstacles.check_devices(["/dev/null"], str(tmp_path))
    with pytest.raises(ClusterError, match="/dev/zero is a disk of this node"):
        obstacles.check_devices(["/dev/null", "/dev/zero"], str(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="making a device node takes root")
def test_the_memory_is_refused_as_a_device(tmp_path):
    os.mknod(tmp_path / "other", stat.S_IFCHR | 0o600, os.makedev(1, 1))
    for device in (f"{tmp_path}/other:/dev/x", str(tmp_path)):
        with pytest.raises(ClusterError, match="other is the memory of this node"):
            obstacles.check_devices([device])


# -- what is told ----------------------------------------------------------------------------------------------------

# Recorded from engine 20.10 and its init program, and in the lab from engine 26.1 with a specification of no device and of another driver.
RECORDED_REFUSALS = {
    'could not select device driver "nvidia" with capabilities: [[gpu]]': ("has no NVIDIA runtime", "gb10_container_gpus"),
    "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all": ("does not find the GPU", "sudo nvidia-ctk cdi generate"),
    'runc create failed: unable to start container process: error during container init: error mounting "/usr/share/gb10-lab/driver/libcuda.so.580.95.05" to '
    'rootfs at "/usr/lib/x86_64-linux-gnu/libcuda.so.1": create mount destination for /usr/lib/x86_64-linux-gnu/libcuda.so.1 mount: bind mount source stat: '
    "stat /usr/share/gb10-lab/driver/libcuda.so.580.95.05: no such file or directory: unknown": ("not those of this node", "sudo nvidia-ctk cdi generate"),
    "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: "
    "error setting rlimits for ready process: error setting rlimit type 8: operation not permitted: unknown": ("may not grant", "gb10_memlock"),
    "invalid mount config for type \"bind\": bind source path does not exist: /nope": ("is missing", "Create it"),
    'Conflict. The container name "/gb10-gb10-head" is already in use by container "2ed9".': ("foreign container", "gb10_cluster_name"),
    'OCI runtime create failed: exec: "ray": executable file not found in $PATH: unknown': ("has no `ray` program", "image.layers: [ray]"),
}


@pytest.mark.parametrize("detail", sorted(RECORDED_REFUSALS))
def test_refusals_of_the_engine(detail):
    message, remedy = RECORDED_REFUSALS[detail]
    error = nc.refusal("starting container x", "base:1", ClusterError(f"starting container x: {detail}", detail=detail))
    assert message in str(error)
    assert remedy in error.remedy
    assert error.details["detail"] == detail


def test_an_unknown_refusal_keeps_the_engines_words():
    error = nc.refusal("starting container x", "base:1", ClusterError("starting container x: odd", detail="odd", status=500))
    assert (str(error), error.details["detail"]) == ("starting container x: odd", "odd")


@pytest.mark.parametrize("log", [
    pytest.param("[FATAL tini (7)] exec ray failed: No such file or directory\n", id="init program"),
    pytest.param("== vLLM ==\n\n/opt/nvidia/nvidia_entrypoint.sh: line 16: exec: ray: not found\n", id="entrypoint"),
])
def test_a_missing_program_shows_in_the_log(log):
    error = nc.died(current("exited", exit_code=127), "spark-1", "base:1", log)
    assert str(error).startswith("image base:1 has no `ray` program")


LOG = """2026-11-21 02:11:52,292 INFO scripts.py:1234 -- Local node IP: 192.0.2.2
Traceback (most recent call last):
  File "/usr/local/bin/ray", line 4, in <module>
    sys.exit(main())
             ^^^^^^
RuntimeError: Version mismatch: The cluster was started with:
    Ray: 2.60.0
    Python: 3.12.3
This process on node 192.0.2.2 was started with:
    Ray: 2.59.0
    Python: 3.12.3
"""


def test_an_exit_has_its_code_and_last_lines():
    error = nc.died(current("exited", exit_code=1), "spark-2", "base:1", LOG)
    assert str(error) == (
        "container gb10-gb10-head on spark-2 ended with exit code 1; its log ends:\n"
        "2026-11-21 02:11:52,292 INFO scripts.py:1234 -- Local node IP: 192.0.2.2\nRuntimeError: Version mismatch: The cluster was started with:\n"
        "    Ray: 2.60.0\n    Python: 3.12.3\nThis process on node 192.0.2.2 was started with:\n    Ray: 2.59.0\n    Python: 3.12.3"
    )
    assert error.remedy == "Give every node the same image: run the play with --tags image."
    assert error.details == {
        "node": "spark-2", "container": "gb10-gb10-head", "exit_code": 1, "oom_killed": False, "log": LOG,
    }  # fmt: skip


def test_a_death_for_lack_of_memory_says_so():
    error = nc.died(current("exited", exit_code=137, oom_killed=True), "spark-2", "base:1", "")
    assert str(error).endswith("ended with exit code 137, killed for lack of memory; its log is empty")
    assert error.remedy == "Read its whole log: docker logs gb10-gb10-head"


def test_last_words_are_bounded():
    assert nc.end_of_log("\n".join(f"line {number}" for number in range(20)), lines=2) == "line 18\nline 19"
    assert nc.end_of_log("x" * 1000, length=10) == "x" * 10


def test_surplus_logs_are_the_oldest():
    assert nc.surplus_logs([(float(age), f"log{age}") for age in (3, 1, 7, 2, 5, 6, 4)], keep=5) == ["log2", "log1"]
