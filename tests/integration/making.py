# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Helpers that create things on the lab's nodes or break things there for a while, and names of what exists there."""

from __future__ import annotations

import contextlib
import re
import subprocess
import textwrap
import threading
import typing as t

import yaml

from .lab import HEAD, INVENTORY, ROOT, WORKER, Lab, Once, Play

IMAGE = "gb10-lab/engine-ray:0.32.0"
BARE_IMAGE = "gb10-lab/engine:0.32.0"
HUB = "/home/spark/.cache/huggingface/hub"
MODEL = f"{HUB}/models--gb10-lab--tiny-llama"
SNAPSHOT = f"{MODEL}/snapshots/0123456789abcdef0123456789abcdef01234567"
HEAD_CONTAINER, WORKER_CONTAINER = "gb10-gb10-head", "gb10-gb10-worker"

#: Text that a play prints while the engine starts.
IN_LOAD = "starting ranks"

#: Keep this node's engine busy until the flag file is gone, with the longest requests that it allows, one after the other. Arguments: URL, key file, flag
#: file, and the number of parallel requests.
WORK = """
import json, pathlib, sys, threading, urllib.request as request
url, key, flag = sys.argv[1], pathlib.Path(sys.argv[2]).read_text().strip(), pathlib.Path(sys.argv[3])
body = {"model": "tiny", "prompt": "Hello", "max_tokens": 900, "min_tokens": 900, "ignore_eos": True, "temperature": 0}
headers = {"Content-Type": "application/json", "Authorization": "Bearer " + key}
def ask():
    while flag.exists():
        with request.urlopen(request.Request(url, json.dumps(body).encode(), headers), timeout=300) as answer:
            answer.read()
threads = [threading.Thread(target=ask) for _ in range(int(sys.argv[4]))]
for thread in threads:
    thread.start()
print("at work", flush=True)
for thread in threads:
    thread.join()
"""
FLAG = "/run/gb10-lab/busy"


def lab_profile(lab: Lab, id: str, *changes: tuple[str, str]) -> str:
    """Write a variant of the lab's profile and return its path."""
    text = (ROOT / "tests" / "lab" / "profiles" / "lab_tiny_tp2.yml").read_text(encoding="utf-8")
    for old, new in (("id: lab_tiny_tp2", f"id: {id}"), *changes):
        assert old in text
        text = text.replace(old, new)
    path = lab.scratch / f"{id}.yml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@contextlib.contextmanager
def listening(lab: Lab, host: str, port: int, program: str) -> t.Iterator[None]:
    """Run another user's program that listens on a port of a node."""
    unit = "gb10-test-listener"
    lab.run(host, "systemd-run", "--quiet", f"--unit={unit}", "--collect", "python3", "-c", textwrap.dedent(program))
    try:
        lab.run(host, "timeout", "30", "sh", "-c", f"until ss -Hltn | grep -q ':{port} '; do :; done")
        yield
    finally:
        # A test that follows the remedy has already stopped it.
        lab.run(host, "systemctl", "stop", unit, check=False)


def relaying(address: str, ports: t.Sequence[int]) -> str:
    """Return a program that relays ports of its loopback interface. Without TLS, an engine trusts a registry only there."""
    return f"""
        import socket, threading

        def pass_on(source, sink):
            try:
                while part := source.recv(1 << 16):
                    sink.sendall(part)
            except OSError:
                pass
            for end in (source, sink):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

        def serve(port):
            with socket.create_server(("127.0.0.1", port)) as server:
                while True:
                    near, _address = server.accept()
                    try:
                        far = socket.create_connection(("{address}", port))
                    except OSError:
                        near.close()
                        continue
                    for ends in ((near, far), (far, near)):
                        threading.Thread(target=pass_on, args=ends, daemon=True).start()

        for port in {list(ports)}:
            threading.Thread(target=serve, args=(port,)).start()
        """


REGISTRY_PORT = 5000

REGISTRY_CONFIG = f"""
version: 0.1
storage: {{filesystem: {{rootdirectory: /tmp/gb10-registry/data}}}}
http: {{addr: ":{REGISTRY_PORT}"}}
"""


@contextlib.contextmanager
def registry(lab: Lab) -> t.Iterator[str]:
    """Run Debian's registry on the head. Both nodes reach it as localhost, the only address that an engine trusts without TLS."""
    fetch = "mkdir /tmp/gb10-registry && cd /tmp/gb10-registry && apt-get update -q && apt-get download -q docker-registry && dpkg-deb -x *.deb ."
    lab.run(HEAD, "sh", "-c", fetch)
    lab.run(HEAD, "sh", "-c", 'printf %s "$1" > /tmp/gb10-registry/config.yml', "sh", REGISTRY_CONFIG)
    program = ("/tmp/gb10-registry/usr/bin/docker-registry", "serve", "/tmp/gb10-registry/config.yml")
    lab.run(HEAD, "systemd-run", "--quiet", "--unit=gb10-test-registry", "--collect", *program)
    address = lab.run(HEAD, "sh", "-c", "ip -4 -o addr show eth0 | tr -s ' ' | cut -d' ' -f4 | cut -d/ -f1").strip()
    relay = relaying(address, [REGISTRY_PORT])
    try:
        with listening(lab, WORKER, REGISTRY_PORT, relay):
            lab.run(HEAD, "timeout", "30", "sh", "-c", f"until ss -Hltn | grep -q ':{REGISTRY_PORT} '; do :; done")
            yield f"localhost:{REGISTRY_PORT}"
    finally:
        lab.run(HEAD, "systemctl", "stop", "gb10-test-registry", check=False)
        lab.run(HEAD, "rm", "-r", "/tmp/gb10-registry")


def listener(lab: Lab, host: str, port: int) -> t.ContextManager[None]:
    """A foreign program that listens on a port of a node."""
    program = f"""
        import socket
        taken = socket.create_server(("0.0.0.0", {port}))
        taken.accept()
        """
    return listening(lab, host, port, program)


def endless_hub(lab: Lab, host: str, port: int) -> t.ContextManager[None]:
    """Run a hub on a node's loopback interface that sends its answers one byte per second, so a read timeout of the client never expires."""
    program = f"""
        import socket, threading, time

        def drip(asker):
            try:
                asker.recv(65536)
                asker.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: 1000000\\r\\n\\r\\n")
                while True:
                    asker.sendall(b" ")
                    time.sleep(1)
            except OSError:
                asker.close()

        hub = socket.create_server(("127.0.0.1", {port}))
        while True:
            threading.Thread(target=drip, args=(hub.accept()[0],), daemon=True).start()
        """
    return listening(lab, host, port, program)


def begun(lab: Lab, pattern: str) -> t.Callable[[], None]:
    """Return a function that waits until both nodes run a process that matches a pattern. The pattern must not match its own text."""

    def wait() -> None:
        for host in (HEAD, WORKER):
            lab.run(host, "timeout", "120", "sh", "-c", 'until pgrep --full "$1" > /dev/null; do sleep 0.2; done', "sh", pattern)

    return wait


def build_settings(**more: str) -> dict[str, str]:
    """The lab's own variables for pip in image builds, and more."""
    hosts = yaml.safe_load((INVENTORY / "hosts.yml").read_text(encoding="utf-8"))
    return {**hosts["gb10_cluster"]["vars"].get("gb10_build_pip_env", {}), **more}


@contextlib.contextmanager
def moved_away(lab: Lab, host: str, path: str) -> t.Iterator[None]:
    """Move a file or link of a node away for the duration of the block."""
    lab.run(host, "mv", path, f"{path}.away")
    try:
        yield
    finally:
        lab.run(host, "mv", f"{path}.away", path)


def build(lab: Lab, recipe: str, tag: str) -> None:
    """Build an image on the worker from a recipe that needs no network."""
    lab.run(WORKER, "sh", "-c", 'printf %s "$1" | docker build --quiet --network none --tag "$2" -', "sh", recipe, tag)


def put_back(lab: Lab, kept: str, *others: str) -> None:
    """Give the worker's node image its tag back, and remove the tags that a test made."""
    lab.run(WORKER, "docker", "tag", kept, IMAGE)
    for tag in (kept, *others):
        lab.run(WORKER, "docker", "rmi", "--no-prune", tag)


@contextlib.contextmanager
def busy(lab: Lab, endpoint: str, requests: int = 4) -> t.Iterator[None]:
    """Keep this many requests running on the head."""
    lab.run(HEAD, "touch", FLAG)
    key_file = "/etc/gb10/secrets/gb10/api_key"
    ask = (
        f"import urllib.request as web; key = open({key_file!r}).read().strip(); "
        f"asked = web.Request('{endpoint.removesuffix('/v1')}/metrics', headers={{'Authorization': f'Bearer {{key}}'}}); "
        "print(web.urlopen(asked).read().decode())"
    )
    argv = ["docker", "exec", f"gb10-lab-{HEAD}", "python3", "-c", WORK, f"{endpoint}/completions", key_file, FLAG, str(requests)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout.readline().strip() == "at work"
            for _look in range(100):
                answer = lab.run(HEAD, "python3", "-c", ask)
                if re.search(r"^vllm:num_requests_running\S* [1-9]", answer, re.MULTILINE):
                    break
            else:
                raise AssertionError("no request ever ran")
            yield
        finally:
            lab.run(HEAD, "rm", "-f", FLAG)
            # If the engine was stopped meanwhile, the requests end with an error, which does not matter here.
            reader = threading.Thread(target=process.stdout.read)
            reader.start()
            process.wait(timeout=300)
            reader.join()


def lose_ssh(lab: Lab, host: str) -> None:
    """Refuse new ssh connections to a node, and end the existing ones."""
    lab.run(host, "systemctl", "stop", "ssh")
    lab.run(host, "pkill", "--full", "^sshd(-session)?: spark", check=False)


def play_losing_ssh(lab: Lab, text: str, host: str, playbook: str = "nemotron_tp2", **variables: t.Any) -> tuple[Play, float]:
    """Run a play, and cut ssh to a node when it prints a text. Return the play and the time of the cut in seconds since the epoch. Then ssh is restored."""
    cut = Once(text, lambda: lose_ssh(lab, host))
    try:
        played = lab.play(playbook, on_output=cut, **variables)
        cut.join()
    finally:
        lab.run(host, "systemctl", "start", "ssh")
    return played, cut.at


def docker(*words: str, check: bool = True) -> None:
    """Run a command of the Docker engine that runs the nodes."""
    subprocess.run(["docker", *words], check=check, capture_output=True, timeout=360)


def shut_down(*hosts: str) -> None:
    """Shut nodes down as their systemd does, all at once."""
    docker("stop", "--time=300", *(f"gb10-lab-{host}" for host in hosts))


def boot(*hosts: str) -> None:
    """Boot nodes that are down, and wait until their systemd answers."""
    docker("start", *(f"gb10-lab-{host}" for host in hosts))
    for host in hosts:
        docker("exec", f"gb10-lab-{host}", "timeout", "60", "sh", "-c", "until systemctl list-jobs > /dev/null 2>&1; do sleep 0.2; done")


def reboot(*hosts: str) -> None:
    """Shut nodes down as their systemd does, all at once, and boot them."""
    shut_down(*hosts)
    boot(*hosts)


def cut_power(*hosts: str) -> None:
    """Cut the power of nodes, and boot them."""
    docker("kill", *(f"gb10-lab-{host}" for host in hosts))
    boot(*hosts)


#: Mount a full file system with a copy of a directory over the directory. Argument: the directory.
FILL = """
set -e
copy=$(mktemp --directory /run/gb10-lab-state.XXXXXX)
mount -t tmpfs -o "size=$(($(du --summarize --block-size=1K "$1" | cut --fields=1) + 64))k,mode=$(stat --format=%a "$1")" tmpfs "$copy"
cp --archive "$1/." "$copy"
cat /dev/zero > "$copy/filled" || true
mount --move "$copy" "$1"
rmdir "$copy"
"""


@contextlib.contextmanager
def full_state_disk(lab: Lab, host: str) -> t.Iterator[None]:
    """Put the state of a node on a disk without a free byte, simulated by a small file system with a copy. The original state is visible again afterwards."""
    lab.run(host, "sh", "-c", FILL, "sh", "/var/lib/gb10")
    try:
        yield
    finally:
        # After a lazy unmount the file system disappears together with the container that still uses it.
        lab.run(host, "umount", "--lazy", "/var/lib/gb10")
