# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Root in the head's container plants files of all kinds at every path that it can write. No file outside changes, no content from outside is shown, and no
other account can use the planted files.

Each test ends without a cluster. The upgrade of a cluster from an older version of the collection is tested here as well.
"""

from __future__ import annotations

import json
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_ENTRYPOINT
from ansible_collections.gb10.cluster.plugins.module_utils._node import container, fields, ray

from .lab import HEAD, INVENTORY, ROOT, RUN, WORKER, Lab, Play
from .making import HEAD_CONTAINER, WORKER_CONTAINER

pytestmark = pytest.mark.usefixtures("without_units")

#: Text in files of the head that no container can see.
SECRET = "canary-of-the-host-7f3a"
CANARIES = ("/root/gb10-canary", "/etc/gb10-canary", "/var/lib/gb10/canary.json", "/var/lib/gb10/gb10/canary.log", "/home/spark/gb10-canary")
#: Files of the node that an escape would read or write. A new name in one of the directories is a change too.
WATCHED = ("/etc/passwd", "/etc/shadow", "/etc/hostname", *CANARIES)
DIRECTORIES = ("/root", "/etc", "/etc/cron.d", "/var/lib/gb10", "/home/spark")

#: Directories that every container of the collection can write, by their paths in the container.
WRITABLE = ("/opt/gb10/run", "/opt/gb10/cache", "/var/log/gb10/engine")

#: The container's directory with the order of its run.
LAUNCH = "/opt/gb10/launch"

#: Runs in the container: plants one kind of file at every path of the collection, makes it accessible to all, and prints the paths and the failures.
PLANT = """
import json, os, shutil, socket, stat, sys
kind, writable, canaries, launch = sys.argv[1], sys.argv[2].split(","), sys.argv[3].split(","), sys.argv[4]
run, cache, logs = writable
noted = {}
if os.path.isfile(run + "/run.json") and not os.path.islink(run + "/run.json") and os.path.getsize(run + "/run.json") < 1 << 20:
    try:
        noted = json.load(open(run + "/run.json", "rb"))
    except ValueError:
        pass  # what was planted there before
run_id = json.load(open(launch + "/engine.json"))["run_id"]
names = [run + "/" + name for name in ("run.json", "exit.json", "stop.json", "run.lock", ".room", "run.json.broken", "config")]
names += [logs + "/" + name for name in (run_id + ".log", run_id + ".log.1", run_id + ".log.1.new", ".room", "20261001T000000Z-0000.log", "containers")]
names += [cache + "/" + name for name in ("planted", "huggingface_modules")]
failed = []

def clear(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)

def program(path):
    shutil.copy(shutil.which("id"), path)
    os.chmod(path, 0o6755)

def listener(path):
    os.chdir(os.path.dirname(path))
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.basename(path))
        os.chmod(os.path.basename(path), 0o777)

def second_name(path):
    with open(path + ".first", "w") as stream:
        stream.write("{}")
    os.link(path + ".first", path)

def attempt(path, act):
    try:
        clear(path)
        clear(path + ".first")
        act(path)
        os.utime(path, (0, 0), follow_symlinks=False)
    except OSError as error:
        failed.append(f"{path}: {error.strerror}")

for number, path in enumerate(names):
    canary = canaries[number % len(canaries)]
    if kind == "links":
        attempt(path, lambda path: os.symlink(canary, path))
    elif kind == "relative links":
        attempt(path, lambda path: os.symlink("../" * 12 + canary[1:], path))
    elif kind == "links to be made":
        attempt(path, lambda path: os.symlink(canary + "-made", path))
    elif kind == "FIFOs":
        attempt(path, os.mkfifo)
    elif kind == "devices":
        attempt(path, lambda path: os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5)))
    elif kind == "links to another mount":
        attempt(path, lambda path: os.link(launch + "/engine.json", path))
    elif kind == "hard links":
        attempt(path, second_name)
    elif kind == "sockets":
        attempt(path, listener)
    elif kind == "setuid programs":
        attempt(path, program)
    elif kind == "directories":
        attempt(path, os.mkdir)
if kind == "forged notes":
    forged = {**noted, "run_id": "../../../../../root/gb10-canary", "log_path": "/var/log/gb10/../../../root/gb10-canary", "pid": 1, "start_ticks": 1}
    forged.update(container_start=1, boot_id="b", started_at=1e300, api_address="127.0.0.1", api_port=22, digest="1:forged")
    for name in ("run.json", "exit.json", "stop.json"):
        clear(run + "/" + name)
        with open(run + "/" + name, "w") as handle:
            json.dump({**forged, "run_ids": [forged["run_id"]], "error": canaries[0], "ended_at": 1.0, "by": "x" * 5000}, handle)
if kind == "huge notes":
    for name in ("run.json", "exit.json", "stop.json"):
        clear(run + "/" + name)
        with open(run + "/" + name, "w") as handle:
            handle.truncate(1 << 40)
for directory in (run, cache, logs):
    os.chmod(directory, 0o777)
    try:
        if os.path.ismount(directory):
            os.rename(directory, directory + ".gone")
            failed.append("MOVED " + directory)
    except OSError:
        pass
print(json.dumps([names, failed]))
"""

#: Runs as an account without rights: tries to use each path in every way, and prints how far it got with each.
REACH = """
import json, os, socket, stat, subprocess, sys
reached = {}
for path in json.load(sys.stdin):
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        continue
    reached[path] = "seen"
    try:
        if stat.S_ISSOCK(mode):
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(path)
        elif stat.S_ISDIR(mode):
            os.listdir(path)
        elif stat.S_ISREG(mode) and mode & 0o111:
            reached[path] = "ran as " + subprocess.run([path, "-u"], capture_output=True, text=True, timeout=10).stdout.strip()
        else:
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            reached[path] = "opened"
    except OSError:
        pass
print(json.dumps(reached))
"""


class Outside:
    """The head's files that no container may change, and everything that was printed or gathered since."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        for path in CANARIES:
            lab.write(HEAD, path, f"{SECRET} {path}\n")
        self._before = self._state()
        self.said: list[str] = []

    def _state(self) -> str:
        files = self.lab.run(HEAD, "sha256sum", *WATCHED)
        # The glance file of a unit exists only as long as the unit.
        return files + self.lab.run(HEAD, "ls", "-A1", "--ignore=glance-*.json", *DIRECTORIES)

    def heard(self, played: Play) -> Play:
        """Keep everything that a play printed and returned."""
        self.said += [played.stdout, json.dumps(played.events, default=str), *self._gathered(played.logs)]
        return played

    @staticmethod
    def _gathered(directory: Path | None) -> list[str]:
        return [path.read_text(encoding="utf-8", errors="replace") for path in sorted(directory.rglob("*")) if path.is_file()] if directory else []

    def logs(self) -> str:
        """Gather the head's logs with the module node_logs alone."""
        dest = self.lab.scratch / "escape-logs"
        done = subprocess.run(
            [Path(sys.executable).with_name("ansible"), HEAD, "-i", INVENTORY, "-b", "-m", "gb10.cluster.node_logs", "-a", f"dest={dest}"],
            cwd=ROOT, env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        self.said += [done.stdout, done.stderr, *self._gathered(dest)]
        assert done.returncode == 0, done.stdout
        return done.stdout

    def assert_untouched(self) -> None:
        assert self._state() == self._before
        assert not [text for text in self.said if SECRET in text]
        assert not [text for text in self.said if "Traceback (most recent call last)" in text and "launcher" in text]

    def remove(self) -> None:
        self.lab.run(HEAD, "rm", "-f", *CANARIES)


@pytest.fixture
def outside(lab: Lab) -> t.Iterator[Outside]:
    made = Outside(lab)
    yield made
    made.remove()
    down = lab.play("teardown", gb10_allow="interrupt")
    assert down.rc == 0, down.failures


@pytest.fixture
def stranger(lab: Lab) -> t.Iterator[str]:
    """An account of the head without any rights."""
    name = "gb10-stranger"
    lab.run(HEAD, "useradd", "--system", "--no-create-home", name)
    yield name
    lab.run(HEAD, "userdel", name)


def on_host(lab: Lab) -> dict[str, str]:
    """The head's path of each directory that its container can write, by the container's path."""
    return {mount["Destination"]: mount["Source"] for mount in lab.inspect(HEAD, HEAD_CONTAINER)["Mounts"] if mount["RW"]}


def plant(lab: Lab, kind: str) -> list[str]:
    """Plant one kind of file. Returns the operations that the container was not allowed to do."""
    argv = ("docker", "exec", HEAD_CONTAINER, "python3", "-c", PLANT, kind, ",".join(WRITABLE), ",".join(CANARIES), LAUNCH)
    _names, failed = json.loads(lab.run(HEAD, *argv))
    assert not [text for text in failed if text.startswith("MOVED")], failed
    return failed


def plant_on_host(lab: Lab, kind: str) -> None:
    """Plant files that no container of the collection may create, but a container with more rights could."""
    places = on_host(lab)
    argv = ("python3", "-c", PLANT, kind, ",".join(places[name] for name in WRITABLE), ",".join(CANARIES), "/var/lib/gb10/gb10/launch")
    assert json.loads(lab.run(HEAD, *argv))[1] == []


def reached(lab: Lab, account: str, *more: str) -> dict[str, str]:
    """Return what an account can use among the files that the head's container can write, by root's paths and through the container's own root."""
    tops = [*on_host(lab).values(), *more]
    paths = [path for path in lab.run(HEAD, "find", *tops, "-xdev").splitlines() if path]
    inspected = lab.inspect(HEAD, HEAD_CONTAINER)
    inside = [f"/proc/{inspected['State']['Pid']}/root{name}" for name in (*WRITABLE, "/tmp/planted", "/dev/shm/planted")]
    own = [f"{inspected['GraphDriver']['Data'][name]}/tmp/planted" for name in ("UpperDir", "MergedDir")]
    shared = [f"/var/lib/docker/containers/{inspected['Id']}/mounts/shm/planted"]
    tried = subprocess.run(
        ["docker", "exec", "-i", f"gb10-lab-{HEAD}", "runuser", "-u", account, "--", "python3", "-c", REACH],
        input=json.dumps([*paths, *inside, *own, *shared]), capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert len(paths) > len(tops), "nothing was planted"
    return json.loads(tried.stdout)


#: The engine accepts this argument and ends, because the model is not quantized.
FAILING = {"quantization": "awq"}
CONSENT = {"gb10_allow": "restart,interrupt"}

#: The words of each kind in the message that names it.
KINDS = {
    "links": "a link", "FIFOs": "a FIFO", "sockets": "a socket", "hard links": "2 names (hard links)", "devices": "a device", "directories": "a directory",
    "setuid programs": "run.json", "forged notes": "run.json", "huge notes": "more than 262144 bytes",
}  # fmt: skip


def test_what_a_container_can_write_is_what_is_planted_in(lab: Lab, live_cluster: None) -> None:
    for host, name in ((HEAD, HEAD_CONTAINER), (WORKER, WORKER_CONTAINER)):
        mounts = lab.inspect(host, name)["Mounts"]
        assert sorted(mount["Destination"] for mount in mounts if mount["RW"]) == sorted(WRITABLE)


def test_no_account_gains_anything_by_what_the_container_leaves(lab: Lab, live_cluster: None, stranger: str, outside: Outside) -> None:
    """Each kind at every path, made accessible to all by the container; then the same with the parent directory as an older version left it."""
    inside = ("docker", "exec", HEAD_CONTAINER, "sh", "-c")
    lab.run(HEAD, *inside, 'for at in /tmp /dev/shm; do cp "$(command -v id)" $at/planted && chmod 6755 $at/planted; done')
    for kind in ("links", "FIFOs", "sockets", "hard links", "devices", "setuid programs"):
        (plant_on_host if kind == "devices" else plant)(lab, kind)
        assert reached(lab, stranger) == {}, kind
    # Without the protection of that directory the same attempt gives the account root.
    above = "/var/lib/gb10/gb10"
    lab.run(HEAD, "chmod", "0755", above)
    assert "ran as 0" in reached(lab, stranger).values()
    shown = outside.heard(lab.play("status"))
    assert shown.rc != 0
    closed = outside.heard(lab.play("teardown", gb10_allow="interrupt"))
    assert closed.rc == 0, closed.failures
    assert lab.run(HEAD, "stat", "--format=%a", above).strip() == "700"
    outside.assert_untouched()


def looked(lab: Lab, outside: Outside, kind: str) -> None:
    """Run status, gather logs, prune, sweep, serve, and a start that would fail, each over the planted files. The engine survives all of it."""
    shown = outside.heard(lab.play("status"))
    assert shown.rc != 0 and KINDS[kind] in shown.said, kind
    outside.heard(lab.play("doctor", tags="stacks"))
    assert "run.json" in outside.logs()
    pruned = outside.heard(lab.play("prune", gb10_allow="remove", gb10_prune_days=0))
    assert pruned.rc != 0 and "run.json" in pruned.said, kind
    lab.run(HEAD, "systemctl", "start", "gb10-sweep.service", check=False)
    outside.said.append(lab.run(HEAD, "journalctl", "--unit=gb10-sweep.service", "--no-pager", "--output=cat"))
    for variables in ({"tags": "serve,proof"}, {**CONSENT, "gb10_serve_arguments": FAILING}):
        played = outside.heard(lab.play(**variables))
        assert played.rc != 0 and "run.json" in played.said, (kind, variables)
    # It is live regardless of its notes.
    assert lab.run(HEAD, "pgrep", "--full", "vllm serve")
    outside.assert_untouched()


@pytest.fixture
def watched(lab: Lab, no_cluster: None) -> t.Iterator[None]:
    """A serving cluster whose engine has a unit, and whose nodes have a sweep without a channel."""
    for played in (lab.play(gb10_unit="enabled"), lab.play("protect", tags="sweep", gb10_sweep_alerts=[])):
        assert played.rc == 0, played.failures
    yield
    gone = lab.play("protect", tags="sweep", gb10_sweep="absent")
    assert gone.rc == 0, gone.failures


def test_nothing_leads_out(lab: Lab, watched: None, outside: Outside) -> None:
    """Each kind in turn under one live engine. Then its unit starts over the planted files, and a teardown makes the next bring-up possible."""
    for kind in KINDS:
        (plant_on_host if kind == "devices" else plant)(lab, kind)
        looked(lab, outside, kind)
    plant(lab, "links")
    lab.run(HEAD, "systemctl", "restart", "gb10-engine-gb10.service", check=False, timeout=400)
    journal = lab.run(HEAD, "journalctl", "--unit=gb10-engine-gb10.service", "--no-pager", "--output=cat")
    outside.said.append(journal)
    assert "was tampered with: a link" in journal
    assert lab.json(HEAD, "/var/lib/gb10/gb10/unit/state.json")["state"] == "failed"
    outside.assert_untouched()
    refused = outside.heard(lab.play(gb10_unit="enabled"))
    assert refused.rc != 0 and "was tampered with: a link" in refused.said
    assert "in a container of image gb10-lab/engine-ray:0.32.0" in refused.said and "playbook teardown, which removes" in refused.said
    down = outside.heard(lab.play("teardown", gb10_allow="interrupt"))
    assert down.rc == 0, down.failures
    assert not lab.run(HEAD, "pgrep", "--full", "vllm serve", check=False)
    again = outside.heard(lab.play("teardown", gb10_allow="interrupt"))
    assert again.rc == 0 and HEAD not in again.changed
    completed = outside.heard(lab.play())
    assert completed.rc == 0 and lab.engine_lives(), completed.failures
    outside.assert_untouched()


@pytest.mark.parametrize("kind", ["links to be made", "directories", "forged notes"])
def test_what_is_left_without_a_container_goes_with_a_teardown(lab: Lab, live_cluster: None, outside: Outside, kind: str) -> None:
    """A start over it is refused, in check mode too. After the remedy from the message a start completes."""
    plant(lab, kind)
    lab.clear()
    for check in (True, False):
        failed = outside.heard(lab.play(check=check))
        assert failed.rc != 0 and "run.json" in failed.said and "playbook teardown" in failed.said
    assert HEAD_CONTAINER not in lab.containers(HEAD)
    predicted = outside.heard(lab.play("teardown", check=True))
    assert predicted.rc == 0 and HEAD in predicted.changed
    down = outside.heard(lab.play("teardown"))
    assert down.rc == 0 and HEAD in down.changed, down.failures
    outside.assert_untouched()
    completed = outside.heard(lab.play())
    assert completed.rc == 0, completed.failures
    assert lab.engine_lives()
    outside.assert_untouched()


def test_another_python3_in_the_container_does_not_prevent_a_teardown(lab: Lab, live_cluster: None, outside: Outside) -> None:
    """The launcher runs in the container, where root can replace its interpreter."""
    replace = 'it=$(command -v python3) && rm "$it" && printf "#!/bin/sh\necho {}\n" > "$it" && chmod 755 "$it"'
    lab.run(HEAD, "docker", "exec", HEAD_CONTAINER, "sh", "-c", replace)
    refused = outside.heard(lab.play("teardown"))
    assert refused.rc != 0 and "ended with code 0 and no answer" in refused.said
    assert "teardown with -e gb10_allow=interrupt" in refused.said and lab.containers(HEAD)
    down = outside.heard(lab.play("teardown", gb10_allow="interrupt"))
    assert down.rc == 0, down.failures
    assert "stopped the container as a whole" in down.said
    assert not lab.containers(HEAD) and not lab.run(HEAD, "pgrep", "--full", "vllm serve", check=False)
    outside.assert_untouched()


def test_what_a_container_may_not_do(lab: Lab, live_cluster: None, outside: Outside) -> None:
    """No device node, no link to a file of another mount, no write to read-only files, no access to the user's token."""
    home = "/home/spark/.cache/huggingface"
    lab.write(HEAD, f"{home}/token", f"{SECRET}\n")
    lab.write(HEAD, f"{home}/stored_tokens", f"{SECRET}\n")
    try:
        assert any("Operation not permitted" in text for text in plant(lab, "devices"))
        assert all("Invalid cross-device link" in text for text in plant(lab, "links to another mount"))
        inside = ("docker", "exec", HEAD_CONTAINER, "python3", "-c")
        listed = lab.run(HEAD, *inside, "import os; print(os.listdir('/root/.cache/huggingface'))")
        assert "token" not in listed
        for path in ("/root/.cache/huggingface/hub/x", "/opt/gb10/launch/launcher.py", "/opt/gb10/launch/x"):
            written = lab.run(HEAD, *inside, f"open({path!r}, 'w')", check=False)
            assert not written
        status = lab.run(HEAD, "docker", "exec", HEAD_CONTAINER, "cat", "/proc/1/status")
        assert "NoNewPrivs:\t1" in status and "CapEff:\t0000000000004000" in status and "CapBnd:\t0000000000004000" in status
        assert "Max core file size        0                    0" in lab.run(HEAD, "docker", "exec", HEAD_CONTAINER, "cat", "/proc/1/limits")
        outside.assert_untouched()
    finally:
        lab.run(HEAD, "rm", "-f", f"{home}/token", f"{home}/stored_tokens")


# --- a cluster of an older version ------------------------------------------------------------------------------------------


def older(lab: Lab, host: str, name: str, session: str = "") -> str:
    """Replace a container with one of version 1, as the collection created it then. Returns its session."""
    inspected = lab.inspect(host, name)
    now = json.loads(inspected["Config"]["Labels"]["io.gb10.fields"])
    own = fields.without([field for field in fields.FIELDS if field.protection and field.name in now], now)
    if session:
        own["head_session"] = session
    wanted = container.WantedContainer("gb10", "ray", own, ["ray", *ray.start_arguments(own)], ray.ray_environment(own))
    # The lab's engine needs its image's entrypoint, as NVIDIA's does.
    wrapper = json.loads(inspected["Config"]["Labels"].get(LABEL_ENTRYPOINT, "[]"))
    payload = container.creation_payload(wanted, wanted.paths.cache, wrapper)
    payload["labels"]["io.gb10.spec"] = "1:" + wanted.digest.partition(":")[2]
    engine_log, state_cache = wanted.paths.engine_log, wanted.paths.cache
    payload["mounts"] = [
        {**mount, "Source": wanted.paths.log, "Target": "/var/log/gb10"} if mount["Source"] == engine_log else mount
        for mount in payload["mounts"]
        if mount["Source"] != state_cache
    ]
    payload["environment"] = {key: value for key, value in payload["environment"].items() if key not in container.CACHES}
    lab.run(host, "docker", "rm", "--force", name)
    program = "import docker, json, sys; docker.from_env().containers.create(**json.loads(sys.argv[1])).start()"
    lab.run(host, "python3", "-c", program, json.dumps(payload))
    made = lab.inspect(host, name)
    return container.session(made["Id"], made["State"]["StartedAt"])


def test_an_upgrade_with_a_live_engine(lab: Lab, live_cluster: None, outside: Outside) -> None:
    """Nothing is recreated without consent, one warning names each pending protection, and consent applies them."""
    session = older(lab, HEAD, HEAD_CONTAINER)
    older(lab, WORKER, WORKER_CONTAINER, session)
    before = {host: lab.containers(host) for host in (HEAD, WORKER)}
    started = lab.play()
    assert started.rc == 0, started.failures
    run = lab.json(HEAD, RUN)["run_id"]

    # The older version left it accessible to all.
    above = "/var/lib/gb10/gb10"
    lab.run(HEAD, "chmod", "0755", above)
    assert f"{above} can be entered by other accounts (mode 0755)" in lab.play("status").said
    predicted = lab.play(check=True)
    assert predicted.rc == 0 and predicted.changed == {HEAD: 1}, predicted.failures
    upgraded = lab.play()
    assert upgraded.rc == 0 and upgraded.changed == {HEAD: 1}, upgraded.failures
    assert lab.run(HEAD, "stat", "--format=%a", above).strip() == "700"
    assert {host: lab.containers(host) for host in (HEAD, WORKER)} == before and lab.json(HEAD, RUN)["run_id"] == run
    protections = [field.protection.what for field in fields.FIELDS if field.protection]
    assert [upgraded.said.count(f"could have {what}: that waits for gb10_allow=restart") for what in protections] == [1, 1, 1]

    # Differences are still detected.
    drifted = lab.play(gb10_env={"NCCL_DEBUG": "INFO"})
    assert drifted.rc != 0 and "env.NCCL_DEBUG" in drifted.failures

    # Such a container can write to the host's directory of container logs.
    lab.run(HEAD, "rm", "-rf", "/var/log/gb10/gb10/containers")
    lab.run(HEAD, "docker", "exec", HEAD_CONTAINER, "ln", "-s", "/root", "/var/log/gb10/containers")
    allowed = outside.heard(lab.play(**CONSENT))
    assert allowed.rc == 0, allowed.failures
    assert "that waits for gb10_allow=restart" not in allowed.said
    assert "/var/log/gb10/gb10/containers was tampered with: a link" in json.dumps(allowed.events, default=str)
    assert not set(before[HEAD].values()) & set(lab.containers(HEAD).values())
    assert lab.play("teardown").rc == 0
    assert lab.run(HEAD, "stat", "--format=%F", "/var/log/gb10/gb10/containers", check=False).strip() in ("", "directory")
    outside.assert_untouched()
