#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: sshd_latency_info
short_description: Measure how long a node's sshd takes to greet
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - A node whose memory ends answers pings, and logins no more (reported of several Sparks). What a new login waits for first is the greeting of sshd,
    for which sshd has to start a process. This module asks for it from the node itself, again and again, until a file on the node is gone or the time is over.
  - Nobody logs in, and nothing is changed. sshd notes each connection in its log.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._attributes.info_module
options:
  addresses:
    description:
      - Addresses of this node. The first one whose port takes a connection is asked; an sshd may listen on some alone.
    type: list
    elements: str
    default: [127.0.0.1]
  port:
    description:
      - The port of sshd.
    type: int
    default: 22
  seconds:
    description:
      - Seconds for which it is asked at most, 1 to 28800. It is asked once at least.
    type: int
    default: 1
  interval:
    description:
      - Seconds between two questions, 1 or more.
    type: int
    default: 5
  until:
    description:
      - A file on the node. It is asked as long as that exists.
    type: path
  timeout:
    description:
      - Seconds after which a greeting counts as not come, 1 or more.
    type: int
    default: 30
seealso:
  - module: gb10.cluster.rung_info
"""

EXAMPLES = r"""
- name: Measure it for a minute
  gb10.cluster.sshd_latency_info:
    seconds: 60
  register: sshd
"""

RETURN = r"""
samples_ms:
  description: Milliseconds from the first packet to the greeting, in their order; null for one that did not come.
  returned: success
  type: list
  elements: int
  sample: [4, 5, 31]
worst_ms:
  description: The longest of them. Null where one did not come, or nobody was asked.
  returned: success
  type: int
  sample: 31
address:
  description: The address that was asked, empty when no address takes connections.
  returned: success
  type: str
  sample: 127.0.0.1
errors:
  description: Why greetings did not come, each reason once.
  returned: success
  type: list
  elements: str
  sample: []
"""

import os
import socket
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._network.greeting import greet
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

LONGEST = 28800


def open_address(addresses: t.Sequence[str], port: int, timeout: float) -> tuple[str, str]:
    """Return the first address whose port takes a connection, and why none does."""
    said = []
    for address in addresses:
        try:
            with socket.create_connection((address, port), timeout):
                return address, ""
        except TimeoutError:
            # It listens, and does not get to it: that is what is measured.
            return address, ""
        except OSError as error:
            said.append(f"{address}:{port}: {error.strerror or error}")
    return "", "; ".join(said)


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    _module.require_least(params, {"port": 1, "seconds": 1, "interval": 1, "timeout": 1})
    if params["seconds"] > LONGEST:
        raise ClusterError(f"seconds is {params['seconds']}, expected at most {LONGEST}", remedy="Correct seconds.", reason="input")
    address, closed = open_address(params["addresses"], params["port"], params["timeout"])
    if not address:
        return {"msg": f"no sshd takes connections: {closed}", "samples_ms": [], "worst_ms": None, "address": "", "errors": [closed]}
    samples: list[int | None] = []
    errors: dict[str, None] = {}
    for _elapsed in clock(params["seconds"], params["interval"]):
        try:
            samples.append(greet(address, params["port"], params["timeout"]))
        except OSError as error:
            samples.append(None)
            errors[error.strerror or str(error)] = None
        if params["until"] and not os.path.exists(params["until"]):
            break
    known = [one for one in samples if one is not None]
    worst = max(known) if known and len(known) == len(samples) else None
    return {"msg": f"{len(samples)} greeting(s), the slowest {worst} ms", "samples_ms": samples, "worst_ms": worst, "address": address, "errors": list(errors)}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "addresses": {"type": "list", "elements": "str", "default": ["127.0.0.1"]},
            "port": {"type": "int", "default": 22},
            "seconds": {"type": "int", "default": 1},
            "interval": {"type": "int", "default": 5},
            "until": {"type": "path"},
            "timeout": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    _module.run(module, work)


if __name__ == "__main__":
    main()
