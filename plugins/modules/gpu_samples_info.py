#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_samples_info
short_description: Sample power and temperature of a node's GPU for a while
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Asks the driver's tool for power and temperature again and again, until a file on the node is gone or the time is over.
  - A figure that the tool does not say is null. A tool that cannot be asked leaves out its sample, and RV(errors) says why.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
  - gb10.cluster._look
options:
  seconds:
    description:
      - Seconds for which samples are taken at most, 1 to 28800.
    type: int
    required: true
  interval:
    description:
      - Seconds between two samples, 1 or more.
    type: int
    default: 5
  until:
    description:
      - A file on the node. Samples are taken as long as it exists.
    type: path
  tool_timeout:
    description:
      - Seconds that the driver's tool gets for one answer.
    type: int
    default: 10
seealso:
  - module: gb10.cluster.engine_bench
  - module: gb10.cluster.node_info
"""

EXAMPLES = r"""
- name: Sample for a minute
  gb10.cluster.gpu_samples_info:
    seconds: 60
  register: sampled
"""

RETURN = r"""
samples:
  description: The samples in their order, each with C(t) (seconds since the epoch by the node's clock), C(power_w) and C(temperature_c).
  returned: success
  type: list
  elements: dict
  sample: [{"t": 1795444323.1, "power_w": 46.6, "temperature_c": 68}]
errors:
  description: Why samples are missing, each reason once.
  returned: success
  type: list
  elements: str
  sample: []
"""

import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import driver_xml
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

LONGEST = 28800


def sample(gpus: list[dict[str, t.Any]], now: float) -> dict[str, t.Any]:
    """Return one sample: the power of all GPUs together, the highest temperature. What one of them does not say is unknown."""
    power, heat = ([gpu.get(name) for gpu in gpus] for name in ("power_w", "temperature_c"))
    return {
        "t": round(now, 1),
        "power_w": round(sum(power), 2) if power and None not in power else None,
        "temperature_c": max(heat) if heat and None not in heat else None,
    }


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    _module.require_least(params, {"seconds": 1, "interval": 1, "tool_timeout": 1})
    if params["seconds"] > LONGEST:
        raise ClusterError(f"seconds is {params['seconds']}, expected at most {LONGEST}", remedy="Correct seconds.", reason="input")
    samples: list[dict[str, t.Any]] = []
    errors: dict[str, None] = {}
    for _elapsed in clock(params["seconds"], params["interval"]):
        try:
            samples.append(sample(driver_xml.gpus(params["roots"]["nvidia_smi"], params["tool_timeout"]), time.time()))
        except ClusterError as error:
            errors[str(error)] = None
        if params["until"] and not os.path.exists(params["until"]):
            break
    return {"msg": f"{len(samples)} sample(s)", "samples": samples, "errors": list(errors)}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "seconds": {"type": "int", "required": True},
            "interval": {"type": "int", "default": 5},
            "until": {"type": "path"},
            "tool_timeout": {"type": "int", "default": 10},
            "roots": ROOTS,
        },
        supports_check_mode=True,
    )
    _module.run(module, work)


if __name__ == "__main__":
    main()
