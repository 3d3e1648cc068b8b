#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: calibration_info
short_description: Record what a node's driver, kernel, Docker engine and network say, word for word
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Returns the texts that the other modules of this collection parse, as they stand on the node. These are the answers of the NVIDIA driver's tool, the
    kernel's log and its figures of memory, what Docker says of itself, and the ConnectX functions in sysfs.
  - Can take the node's memory once a second for a while instead.
  - A source that this node does not have is listed in RV(errors) and does not hide the others.
  - It also runs unprivileged, and then sees less. It only reads, and needs Python's standard library alone.
  - The texts name the machine. M(gb10.cluster.calibration) replaces that before it writes them anywhere.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._docker
  - gb10.cluster._look
  - gb10.cluster._look.driver
options:
  sections:
    description:
      - What is recorded.
      - V(samples) takes the memory once a second for O(sample_s) seconds.
    type: list
    elements: str
    choices: [driver, proc, kernel, docker, network, samples]
    default: [driver, proc, kernel, docker, network]
  sample_s:
    description:
      - Seconds for which memory is sampled, from 1 to 14400.
    type: int
    default: 60
  sample_until:
    description:
      - A file on the node. Sampling also ends when it is gone.
    type: path
    default: ""
"""

EXAMPLES = r"""
- name: Record the node
  gb10.cluster.calibration_info:
  become: true
  register: recorded

- name: Record a minute of its memory
  gb10.cluster.calibration_info:
    sections: [samples]
    sample_s: 60
  register: sampled
"""

RETURN = r"""
files:
  description: What was recorded.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: A path that says what it is.
      type: str
    text:
      description: The text. A symbolic link has none.
      type: str
    link:
      description: Where a symbolic link leads.
      type: str
  sample:
    - name: proc/sys/vm/swappiness
      text: "60"
errors:
  description: What could not be read, and why.
  returned: success
  type: list
  elements: dict
  contains:
    section:
      description: The file that is missing.
      type: str
    verdict:
      description: V(unknown) or V(block).
      type: str
    error:
      description: What went wrong.
      type: str
    remedy:
      description: What to do about it.
      type: str
  sample: []
hostname:
  description: What the node calls itself.
  returned: success
  type: str
  sample: spark-1
"""

import socket
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._calibrate.recording import Recorder, memory_samples
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS

SECTIONS = ("driver", "proc", "kernel", "docker", "network", "samples")
LONGEST_SAMPLE = 14400


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    if not 1 <= params["sample_s"] <= LONGEST_SAMPLE:
        raise ClusterError(f"sample_s is {params['sample_s']}; expected 1 to {LONGEST_SAMPLE}", remedy="Correct sample_s.", reason="input")
    recorder = Recorder(params["roots"], params["tool_timeout"], EngineApi(params["docker_socket"], params["docker_timeout"]))
    for section in SECTIONS[:-1]:
        if section in params["sections"]:
            getattr(recorder, section)()
    if "samples" in params["sections"]:
        recorder.take("samples.jsonl", lambda: memory_samples(params["roots"], params["sample_s"], params["sample_until"]))
    errors = recorder.sections.errors
    msg = f"{len(recorder.files)} files, {len(errors)} that could not be read"
    return {"msg": msg, "files": recorder.files, "errors": errors, "hostname": socket.gethostname()}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "sections": {"type": "list", "elements": "str", "default": list(SECTIONS[:-1]), "choices": list(SECTIONS)},
            "sample_s": {"type": "int", "default": 60},
            "sample_until": {"type": "path", "default": ""},
            "roots": ROOTS,
            "tool_timeout": {"type": "int", "default": 30},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    _module.run(module, work)


if __name__ == "__main__":
    main()
