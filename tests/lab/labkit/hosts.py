# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers that behave as hosts."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import typing as t

from .common import LABEL, LabError, docker, wait_until
from .labs import Engine
from .machine import Abilities, ca_bundle, nameservers


class File(t.NamedTuple):
    """A file to put into a host before its first boot."""

    content: bytes
    mode: int = 0o644
    uid: int = 0


def flags(abilities: Abilities) -> list[str]:
    """Options of `docker run` that let systemd and an inner engine run, on this machine."""
    chosen = ["--tmpfs", "/run:exec", "--tmpfs", "/run/lock", "--tmpfs", "/tmp:exec"]
    if abilities.privileged:
        chosen += ["--privileged"]
    else:
        # Everything but CAP_SYS_RESOURCE, which is the one that restricted machines lack.
        chosen += ["--cap-add=ALL", "--cap-drop=SYS_RESOURCE", "--device-cgroup-rule=a *:* rwm"]
        chosen += [f"--security-opt={option}" for option in ("seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined")]
    if abilities.cgroup_version == 2 and abilities.privileged:
        chosen += ["--cgroupns=private"]
    else:
        chosen += ["--volume=/sys/fs/cgroup:/sys/fs/cgroup:rw"]
    if abilities.memlock == -1:
        chosen += ["--ulimit=memlock=-1:-1"]
    return chosen


def machine_files(engine: Engine) -> dict[str, File]:
    """Files that every host needs: its engine's settings, the name servers of the machine underneath and, where needed, its CA bundle."""
    settings = dict(engine.settings)
    # Containers of the inner engine cannot use the resolver on loopback that Docker gives to the host itself.
    if nameservers():
        settings["dns"] = nameservers()
    files = {"etc/docker/daemon.json": File(f"{json.dumps(settings, indent=2)}\n".encode())}
    if engine.environment:
        lines = [f"Environment={name}={value}\n" for name, value in engine.environment.items()]
        files["etc/systemd/system/docker.service.d/environment.conf"] = File(f"[Service]\n{''.join(lines)}".encode())
    bundle = ca_bundle()
    if bundle is not None:
        files["etc/ssl/certs/ca-certificates.crt"] = File(bundle.read_bytes())
    return files


def archive(files: dict[str, File]) -> bytes:
    """A tar archive with the files, owners and modes kept."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, file in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.uid, info.gid = len(file.content), file.mode, file.uid, file.uid
            tar.addfile(info, io.BytesIO(file.content))
    return buffer.getvalue()


def put(container: str, files: dict[str, File]) -> None:
    """Write files into a container, running or not."""
    argv = ["docker", "cp", "--archive", "-", f"{container}:/"]
    done = subprocess.run(argv, input=archive(files), capture_output=True, timeout=60, check=False)
    if done.returncode != 0:
        raise LabError(f"exit code {done.returncode}: {' '.join(argv)}\n{done.stderr.decode(errors='replace').strip()}")


def state(container: str) -> str:
    """`running`, `exited`, `created`…, or `absent`."""
    return docker("container", "inspect", "--format", "{{.State.Status}}", container, check=False) or "absent"


def inside(container: str, *argv: str, timeout: float = 60) -> str:
    """Run a command in a host as root and return its output."""
    return docker("exec", container, *argv, timeout=timeout)


def create(
    name: str,
    image: str,
    abilities: Abilities,
    engine: Engine,
    *,
    spec: str,
    mounts: dict[str, str],
    network: tuple[str, ...],
    files: dict[str, File],
) -> None:
    """Create a host without starting it. ``spec`` becomes a label, by which a later run checks whether the host is still up to date."""
    arguments = ["--name", name, "--hostname", name.removeprefix("gb10-lab-"), "--label", LABEL, "--label", f"io.gb10.lab.spec={spec}"]
    arguments += ["--restart=on-failure", *flags(abilities), *network]
    arguments += [f"--volume={source}:{target}" for source, target in mounts.items()]
    docker("create", *arguments, image)
    put(name, {**machine_files(engine), **files})


def boot(container: str) -> None:
    """Start a host and wait until systemd has finished booting and the inner engine answers. Raises LabError when either does not."""
    docker("start", container)
    wait_until(lambda: is_up(container), f"systemd of {container}", timeout=90)
    verdict = docker("exec", container, "systemctl", "is-system-running", "--wait", timeout=120, check=False)
    if verdict != "running":
        # A unit that fails on this machine's kernel does not stop the lab. A missing engine does; that is checked next.
        print(f" systemd of {container} is {verdict}: {docker('exec', container, 'systemctl', '--failed', '--plain', '--no-legend', check=False)}")
    wait_until(lambda: engine_up(container), f"the inner Docker engine of {container}", timeout=60)


def is_up(container: str) -> bool:
    """Whether systemd answers in a host."""
    return docker("exec", container, "systemctl", "is-system-running", check=False) in ("starting", "running", "degraded")


def engine_up(container: str) -> bool:
    """Whether the inner engine answers."""
    return bool(docker("exec", container, "docker", "info", "--format", "{{.ID}}", check=False))


def remove(container: str) -> None:
    """Remove a host with its anonymous volumes."""
    docker("rm", "--force", "--volumes", container, timeout=120)


def spec_of(container: str) -> str:
    """The spec label a host was created with."""
    return docker("container", "inspect", "--format", '{{index .Config.Labels "io.gb10.lab.spec"}}', container)
