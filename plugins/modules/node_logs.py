#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_logs
short_description: Copy the logs of a node's containers and engine to the controller
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Collects the data that shows why a cluster failed and writes it below O(dest) on the controller, in a directory named after the host. It is
    the end of the engine's log, how its last run started and ended, the logs and the description of the cluster's containers, Ray's own logs
    from them, the kernel's log and the node's memory.
  - Also works on containers that have ended. Nothing on the node is changed.
  - Values of the files in O(secrets_dir) are removed from every text before it leaves the node, and so are strings that look like tokens.
  - A source that cannot be read is listed in RV(errors). The others are still collected.
notes:
  - An action plugin with the same name writes the files, with mode 0600 in directories of mode 0700.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._docker
  - gb10.cluster._cluster
  - gb10.cluster._cluster.state_dir
options:
  dest:
    description:
      - Directory on the controller. It is created if it does not exist. Files with the same name in it are overwritten.
    type: path
    required: true
  max_bytes:
    description:
      - Maximum bytes of one file, from 4096 to 16777216. Of a longer one only the end is kept.
    type: int
    default: 262144
  log_dir:
    description:
      - Directory on the node for the logs of the collection's clusters.
    type: path
    default: /var/log/gb10
  secrets_dir:
    description:
      - Directory on the node for the secrets of the collection's clusters.
    type: path
    default: /etc/gb10/secrets
attributes:
  check_mode:
    support: full
    details:
      - Does the same in check mode, because it changes nothing on the node.
  diff_mode:
    support: none
  action:
    description: Runs partly on the controller.
    support: full
seealso:
  - module: gb10.cluster.vllm_serve_info
"""

EXAMPLES = r"""
- name: Copy the logs to the controller
  gb10.cluster.node_logs:
    dest: "{{ lookup('ansible.builtin.env', 'HOME') }}/gb10-logs"
  become: true
"""

RETURN = r"""
dest:
  description: Directory of this host on the controller.
  returned: success
  type: str
  sample: /home/me/gb10-logs/spark-1
files:
  description: The written files.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name below RV(dest).
      type: str
    bytes:
      description: Its size.
      type: int
    cut:
      description: Whether only the end was kept.
      type: bool
  sample:
    - name: engine.log
      bytes: 18211
      cut: false
errors:
  description: The sources that could not be read, with the reason.
  returned: success
  type: list
  elements: dict
  contains:
    source:
      description: The source.
      type: str
    error:
      description: The reason.
      type: str
  sample: []
"""

import collections
import io
import json
import os
import tarfile
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module, _redact, _tool
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_OWNER, OWNER, EngineApi, NotFound, cluster_and_role, name_of
from ansible_collections.gb10.cluster.plugins.module_utils._engine import engine_state
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.notes import read_note, read_side
from ansible_collections.gb10.cluster.plugins.module_utils._launcher.protocol import ENGINE_LOGS, ORDER

#: Where Ray keeps the logs of its latest session, inside the container.
RAY_LOGS = "/tmp/ray/session_latest/logs"
#: Maximum bytes to read of that directory, and to keep of each file.
RAY_ARCHIVE_LIMIT = 33554432
RAY_FILE_BYTES = 65536

CONTAINER_LOG_LINES = 2000
KERNEL_LOG = ("journalctl", "--dmesg", "--lines=500", "--no-pager", "--output=short-iso")
TOOL_TIMEOUT = 10

#: The keys of a container's description that show why it ended. The rest repeats the options with which the collection created it.
CONTAINER_KEYS = ("Id", "Name", "Created", "Path", "Args", "Image", "State", "RestartCount", "Mounts")

LEAST_BYTES = 4096
MOST_BYTES = 16777216


class Log(t.NamedTuple):
    """One text for the controller."""

    name: str
    text: str
    cut: bool


def end_of(text: str, limit: int) -> tuple[str, bool]:
    """Return (the last whole lines of ``text`` in at most ``limit`` bytes, whether anything was left out)."""
    raw = text.encode()
    if len(raw) <= limit:
        return text, False
    tail = raw[-limit:]
    return tail[tail.find(b"\n") + 1:].decode(errors="replace"), True


def end_of_file(top: str, relative: str, limit: int) -> tuple[str, bool]:
    """Return the end of a file as :func:`end_of` does, without reading the rest. A partial first line is left out.

    The container can write to ``top``: see :mod:`untrusted`.
    """
    with untrusted.reader(top, relative) as handle:
        size = handle.seek(0, os.SEEK_END)
        handle.seek(max(0, size - limit))
        raw = handle.read(limit)
    return (raw if size <= limit else raw[raw.find(b"\n") + 1:]).decode(errors="replace"), size > limit


def described(inspected: dict[str, t.Any]) -> str:
    """Return the useful part of Docker's details of a container, as JSON."""
    config = inspected["Config"]
    chosen = {key: inspected[key] for key in CONTAINER_KEYS if key in inspected}
    return json.dumps({**chosen, "Reference": config["Image"], "Env": sorted(config.get("Env") or []), "Labels": config.get("Labels")}, indent=1) + "\n"


def containers_of(cluster: str, entries: list[dict[str, t.Any]]) -> dict[str, str]:
    """Return the ids of a cluster's containers, each with the name for its files: its role, or its own name when others have that role.

    Two containers can have the same role when one was renamed by hand or lost its labels.
    """
    names = {entry["Id"]: name_of(entry) for entry in entries}
    owners = {entry["Id"]: cluster_and_role(name_of(entry), entry["Labels"]) for entry in entries}
    roles = {ident: role for ident, (owner, role) in owners.items() if owner == cluster}
    counted = collections.Counter(roles.values())
    return {ident: role if role and counted[role] == 1 else names[ident] for ident, role in roles.items()}


def ray_logs(archive: bytes) -> t.Iterator[tuple[str, str, bool]]:
    """Yield (file name, end of its text, whether it was cut) of the files of Ray's log directory that are not empty.

    ``archive`` is a tar stream that may be cut off. Then the files before the cut are yielded.
    """
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r|") as stream:
        while True:
            try:
                member = stream.next()
                content = stream.extractfile(member) if member and member.isfile() and member.size else None
                raw = content.read() if content else b""
            except tarfile.ReadError:
                return
            if member is None:
                return
            if raw:
                yield os.path.basename(member.name), *end_of(raw.decode(errors="replace"), RAY_FILE_BYTES)


class Collector:
    """Reads the sources one after the other; what cannot be read becomes an entry of ``errors``."""

    def __init__(self, params: dict[str, t.Any]) -> None:
        self.params = params
        self.logs: list[Log] = []
        self.errors: list[dict[str, str]] = []

    def take(self, name: str, read: t.Callable[[], tuple[str, bool] | None]) -> None:
        """Add one text; ``read`` returns None when there is nothing to take."""
        try:
            result = read()
        except (ClusterError, OSError) as error:
            self.errors.append({"source": name, "error": " ".join(str(error).split())})
            return
        if result:
            self.logs.append(Log(name, *result))

    def file(self, name: str, top: str, relative: str) -> None:
        def read() -> tuple[str, bool] | None:
            try:
                return end_of_file(top, relative, self.params["max_bytes"])
            except FileNotFoundError:
                return None

        self.take(name, read)

    def engine(self) -> None:
        """Collect the engine's files: the launcher's records, and the log of the last run."""
        paths = engine_state.EnginePaths.of(self.params["state_dir"], self.params["log_dir"], self.params["cluster_name"])
        for note in ("run.json", "exit.json"):
            self.file(note, paths.run, note)
        try:
            # Without a readable record, the last order names the run.
            noted = read_note(os.path.join(paths.run, "run.json")) or read_note(os.path.join(paths.launch, ORDER))
        except ClusterError as error:
            self.errors.append({"source": "engine.log", "error": str(error)})
            noted = read_side(os.path.join(paths.launch, ORDER))
        if noted and noted.get("run_id"):
            self.file("engine.log", paths.log, f"{ENGINE_LOGS}/{noted['run_id']}.log")

    def containers(self) -> None:
        """Collect the logs and descriptions of the cluster's containers, and Ray's own logs from inside them."""
        api = EngineApi(self.params["docker_socket"], self.params["docker_timeout"])
        try:
            entries = api.containers({LABEL_OWNER: OWNER})
        except ClusterError as error:
            self.errors.append({"source": "containers", "error": str(error)})
            return
        for ident, what in containers_of(self.params["cluster_name"], entries).items():
            self.take(f"container-{what}.json", lambda ident=ident: (described(api.inspect(ident)), False))
            self.take(f"container-{what}.log", lambda ident=ident: end_of(api.logs(ident, CONTAINER_LOG_LINES), self.params["max_bytes"]))
            self.ray(api, what, ident)

    def ray(self, api: EngineApi, what: str, ident: str) -> None:
        try:
            for name, text, cut in ray_logs(api.archive(ident, RAY_LOGS, RAY_ARCHIVE_LIMIT)):
                self.logs.append(Log(f"ray-{what}-{name}", text, cut))
        except NotFound:
            # Ray never ran in this container.
            return
        except (ClusterError, tarfile.TarError) as error:
            self.errors.append({"source": f"{RAY_LOGS} in the container of {what}", "error": str(error)})

    def kernel(self) -> None:
        def read() -> tuple[str, bool]:
            result = _tool.run_tool(KERNEL_LOG, TOOL_TIMEOUT)
            if result.rc != 0:
                raise UnknownState(f"journalctl ended with code {result.rc}: {result.raw[:500]}")
            return end_of(result.stdout, self.params["max_bytes"])

        self.take("kernel.log", read)

    def memory(self) -> None:
        def read() -> tuple[str, bool]:
            with open("/proc/meminfo", encoding="ascii", errors="replace") as handle:
                return handle.read(), False

        self.take("meminfo.txt", read)


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    if not LEAST_BYTES <= params["max_bytes"] <= MOST_BYTES:
        raise ClusterError(f"max_bytes is {params['max_bytes']}; expected {LEAST_BYTES} to {MOST_BYTES}", remedy="Correct max_bytes.", reason="input")
    _redact.check_readable(os.path.join(params["secrets_dir"], params["cluster_name"]))
    collector = Collector(params)
    for part in (collector.engine, collector.containers, collector.kernel, collector.memory):
        part()
    return {
        "msg": f"{len(collector.logs)} texts, {len(collector.errors)} sources that could not be read",
        "logs": [log._asdict() for log in collector.logs],
        "errors": collector.errors,
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "dest": {"type": "path", "required": True},
            "cluster_name": {"type": "str", "default": "gb10"},
            "max_bytes": {"type": "int", "default": 262144},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "log_dir": {"type": "path", "default": "/var/log/gb10"},
            "secrets_dir": {"type": "path", "default": "/etc/gb10/secrets"},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    _module.run(module, work)


if __name__ == "__main__":
    main()
