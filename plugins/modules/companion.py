#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: companion
short_description: Run one service beside the engine on a node
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Starts or stops a companion, a service that shares a node's memory with the engine, such as Ollama, speech recognition or speech synthesis.
  - A companion is a container of this collection's (O(image)) or a unit of the owner's that is there already (O(unit)).
  - The container is C(gb10-companion-NAME), with this collection's labels, in the host's network and without a restart policy. It is recreated only when a
    digest over O(image), O(port), O(env), O(arguments), O(mounts) and O(gpus) differs, and the diff names each that does. One that has exited is replaced. The
    last five logs of replaced containers stay below O(log_dir), in C(companions/containers).
  - A unit is started and stopped as its owner defined it, its own C(TimeoutStopSec) included. It is never written, enabled or disabled.
  - Started means that O(health_path) answers with a status of 200 to 299 at 127.0.0.1.
  - A container that is stopped or removed does not come back at a boot, unless O(comes_back=true).
  - Stopping is gentle. A companion that does not end within O(stop_timeout) is reported and left running unless O(kill=true).
requirements:
  - The Docker SDK for Python on the node (C(python3-docker) of the distribution, 5.0.3 or newer), for a container.
  - Docker Engine 20.10 or newer.
  - systemd, for a unit.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._docker
attributes:
  check_mode:
    support: full
    details:
      - An image that is not on the node may be missing in check mode.
  diff_mode:
    support: full
options:
  name:
    description:
      - The companion's name on its node. 1 to 32 of a-z, 0-9 and '-', and neither C(head) nor C(worker) as its last word.
    type: str
    required: true
  state:
    description:
      - V(started) has it run and answer, V(stopped) has it end.
      - V(absent) removes its container as well. A unit is only stopped.
    type: str
    choices: [started, stopped, absent]
    default: started
  image:
    description:
      - The image by its digest (C(repository@sha256:...)), or the id of one on the node (C(sha256:...)). It has to be on the node.
    type: str
  unit:
    description:
      - An existing service of systemd, such as V(ollama.service).
    type: str
  port:
    description:
      - The TCP port that it listens on. Nobody else may hold it when the companion is started.
    type: int
  health_path:
    description:
      - What is asked at that port, such as V(/api/tags) or V(/health).
    type: str
  env:
    description:
      - Variables of the container. They can be read in its configuration, so no secrets.
    type: dict
    default: {}
  arguments:
    description:
      - What follows the image, its command. Each word is passed as it is; there is no shell.
    type: list
    elements: str
    default: []
  mounts:
    description:
      - Directories and files of the node in the container. A source that does not exist is refused.
    type: list
    elements: dict
    default: []
    suboptions:
      source:
        description:
          - The path on the node.
        type: path
        required: true
      target:
        description:
          - The path in the container.
        type: str
        required: true
      read_only:
        description:
          - Whether the container can only read it.
        type: bool
        default: false
  gpus:
    description:
      - Whether the container gets the node's GPU.
    type: bool
    default: false
  health_timeout:
    description:
      - Seconds until it has to answer.
    type: int
    default: 120
  stop_timeout:
    description:
      - Seconds until it has to have ended.
    type: int
    default: 120
  kill:
    description:
      - Kill a companion that does not end in time. A killed process can leave GPU memory behind that only a reboot brings back.
    type: bool
    default: false
  comes_back:
    description:
      - Whether a container that is stopped or removed stays among those that C(gb10-companions.service) starts at a boot
        (M(gb10.cluster.node_service)). With V(false) it is taken out of that unit's specification below O(state_dir).
    type: bool
    default: false
  state_dir:
    description:
      - The directory on the node that holds the state of the collection.
    type: path
    default: /var/lib/gb10
  log_dir:
    description:
      - The directory of logs on the node.
    type: path
    default: /var/log/gb10
  tool_timeout:
    description:
      - Seconds that systemctl may take to answer.
    type: int
    default: 30
seealso:
  - module: gb10.cluster.node_service
  - module: gb10.cluster.node_info
"""

EXAMPLES = r"""
- name: Run Ollama beside the engine, one model at a time
  gb10.cluster.companion:
    name: ollama
    image: ollama/ollama@sha256:2f9d4a0c3b5e6f708192a3b4c5d6e7f8012345679b90461c92071f0c3f3d4b7f
    port: 11434
    health_path: /api/tags
    gpus: true
    env:
      OLLAMA_MAX_LOADED_MODELS: 1
    mounts:
      - source: /var/lib/ollama
        target: /root/.ollama
  become: true

- name: Start a service that is there already
  gb10.cluster.companion:
    name: asr
    unit: parakeet.service
    port: 8765
    health_path: /health
  become: true

- name: Stop it
  gb10.cluster.companion:
    name: asr
    unit: parakeet.service
    state: stopped
  become: true
"""

RETURN = r"""
name:
  description: The companion's name.
  returned: success
  type: str
  sample: ollama
health:
  description: What it answered, empty where it was not asked.
  returned: success
  type: str
  sample: status 200
log:
  description: The last lines of its log.
  returned: when it ended, or was not started
  type: str
  sample: "Error: listen tcp 127.0.0.1:11434: bind: address already in use"
exit_code:
  description: Exit code of a container that ended while it was waited for.
  returned: when the container ended
  type: int
  sample: 1
listeners:
  description: Who listens on the port.
  returned: when somebody else does
  type: list
  elements: dict
detail:
  description: What Docker said, in its own words.
  returned: when Docker refused something
  type: str
  sample: 'could not select device driver "nvidia" with capabilities: [[gpu]]'
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._companion import declared
from ansible_collections.gb10.cluster.plugins.module_utils._companion.act import apply
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least, run


def check(params: dict[str, t.Any]) -> None:
    """Raise :class:`ClusterError` for a name, an image or a unit of another form."""
    forms = {"name": (declared.NAME, declared.NAME_MEANS), "image": (declared.IMAGE, declared.IMAGE_MEANS), "unit": (declared.UNIT, "NAME.service")}
    for word, (form, means) in forms.items():
        if params[word] is not None and not form.match(params[word]):
            raise ClusterError(f"{word} is {params[word]!r}", expected=means, remedy=f"Correct {word}.", reason="input")
    require_least(params, {"health_timeout": 1, "stop_timeout": 1, "tool_timeout": 1})


def work(module: AnsibleModule) -> dict[str, t.Any]:
    check(module.params)
    return apply(module)


def main() -> None:
    mount = {"source": {"type": "path", "required": True}, "target": {"type": "str", "required": True}, "read_only": {"type": "bool", "default": False}}
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["started", "stopped", "absent"], "default": "started"},
            "image": {"type": "str"},
            "unit": {"type": "str"},
            "port": {"type": "int"},
            "health_path": {"type": "str"},
            "env": {"type": "dict", "default": {}},
            "arguments": {"type": "list", "elements": "str", "default": []},
            "mounts": {"type": "list", "elements": "dict", "default": [], "options": mount},
            "gpus": {"type": "bool", "default": False},
            "health_timeout": {"type": "int", "default": 120},
            "stop_timeout": {"type": "int", "default": 120},
            "kill": {"type": "bool", "default": False},
            "comes_back": {"type": "bool", "default": False},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "log_dir": {"type": "path", "default": "/var/log/gb10"},
            "tool_timeout": {"type": "int", "default": 30},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        mutually_exclusive=[("image", "unit")],
        required_if=[("state", "started", ["port", "health_path"]), ("state", "started", ["image", "unit"], True)],
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
