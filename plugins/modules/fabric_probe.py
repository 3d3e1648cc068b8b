#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_probe
short_description: Measure the actual throughput of the links between two nodes
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Moves bytes between two nodes over each of their links, one at a time and then over all at once, both ways, and pings with the do-not-fragment bit at
    the links' MTU. A link that is up at 200 Gbit/s was reported to carry 13. Only moving bytes shows that.
  - One node listens (O(state=listen)), then the other measures (O(state=measure)). O(state=check) shows whether a node may be probed. The role
    C(gb10.cluster.doctor --tags fabric) does all of this for a cluster.
  - A pair is loaded for at most O(seconds), which is 10 seconds or less. The listening process always ends, at the latest after
    O(wait) and O(seconds).
  - The listening node binds only to the addresses of O(links), to ports that the kernel chooses, and serves one peer that knows O(token). The token is
    never sent.
  - With O(method=rdma) C(ib_write_bw) from the package perftest moves the bytes. If that fails, and with O(method=tcp), Python's own sockets move
    them. RV(method) and RV(why) show the method used. TCP from Python does not fill a link of 200 Gbit/s.
  - Refuses while an engine serves on this node, no matter who started it, because the probe uses its network. Engines are found by their processes, as in
    M(gb10.cluster.page_cache_drop), and with O(state=check) also by the state of this collection's clusters below O(state_dir). If processes cannot
    be seen (C(hidepid)), nothing is probed.
  - In check mode nothing is loaded and nothing listens, and RV(probed) is false.
  - Changes nothing. O(state=check) may need C(become) to read the state of this collection's clusters. The others run unprivileged, if the limit of
    locked memory lets C(ib_write_bw) register its buffers.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._look
attributes:
  check_mode:
    support: full
    details:
      - Refuses like the real run, and loads no network.
  diff_mode:
    support: none
    details:
      - This module changes nothing.
options:
  state:
    description:
      - V(check) shows whether an engine serves, and whether C(ib_write_bw) is installed.
      - V(listen) starts a process that waits for the measuring node and then ends.
      - V(measure) measures with a listening node, and returns the results. It does not fail because of the network or the other node.
    type: str
    choices: [check, listen, measure]
    default: check
  links:
    description:
      - The links to the other node. Required with O(state=listen) and O(state=measure), in the same order on both nodes.
    type: list
    elements: dict
    default: []
    suboptions:
      link:
        description:
          - Name of the interface, for messages.
        type: str
        required: true
      address:
        description:
          - IPv4 address of this node on the link.
        type: str
        required: true
      device:
        description:
          - RDMA device of the link. Needed with O(method=rdma).
        type: str
        default: ""
      gid:
        description:
          - Index of the RoCE v2 GID of O(links[].address). Needed with O(method=rdma).
        type: int
      mtu:
        description:
          - MTU of the link in bytes. Without it no ping is sent.
        type: int
      peer_address:
        description:
          - IPv4 address of the other node on the link. Required with O(state=measure).
        type: str
        default: ""
  peer_ports:
    description:
      - The ports of the other node, its RV(ports), in the order of O(links). Required with O(state=measure).
    type: list
    elements: int
    default: []
  token:
    description:
      - A secret that both nodes share, for this one pair and run. Required with O(state=listen) and O(state=measure), at least 16 characters.
    type: str
    default: ""
  method:
    description:
      - How O(state=measure) moves bytes.
    type: str
    choices: [rdma, tcp]
    default: tcp
  seconds:
    description:
      - Maximum seconds for loading the network, 2 to 10.
    type: int
    default: 10
  wait:
    description:
      - Seconds that O(state=listen) waits for the measuring node, 1 to 120.
    type: int
    default: 30
  streams:
    description:
      - Number of TCP connections at once on one link and in one direction, 1 to 16.
    type: int
    default: 4
  ib_write_bw:
    description:
      - The perftest program, as a path or a name on C(PATH).
    type: str
    default: ib_write_bw
  ping:
    description:
      - The iputils program, as a path or a name on C(PATH).
    type: str
    default: ping
  state_dir:
    description:
      - Directory with the state of this collection's clusters on the node. Only O(state=check) reads it.
    type: path
    default: /var/lib/gb10
seealso:
  - module: gb10.cluster.node_info
"""

EXAMPLES = r"""
- name: Check whether this node may be probed
  gb10.cluster.fabric_probe:
    state: check
  become: true

- name: Make the worker listen
  gb10.cluster.fabric_probe:
    state: listen
    token: "{{ one_time_token }}"
    links:
      - {link: enp1s0f0np0, address: 192.168.100.12, device: rocep1s0f0, gid: 3}
  register: listening
  when: inventory_hostname == 'spark-2'

- name: Measure from the head
  gb10.cluster.fabric_probe:
    state: measure
    token: "{{ one_time_token }}"
    method: rdma
    links:
      - link: enp1s0f0np0
        address: 192.168.100.11
        device: rocep1s0f0
        gid: 3
        mtu: 9000
        peer_address: 192.168.100.12
    peer_ports: "{{ hostvars['spark-2'].listening.ports }}"
  register: measured
  when: inventory_hostname == 'spark-1'
"""

RETURN = r"""
probed:
  description: Whether the network was, or is going to be, loaded. False in check mode and with O(state=check).
  returned: success
  type: bool
  sample: true
rdma:
  description: Whether this node has C(ib_write_bw).
  returned: with O(state=check)
  type: bool
  sample: true
serving:
  description: The engines that serve on this node, as text. Empty unless the module refused.
  returned: always
  type: list
  elements: str
  sample: []
ports:
  description: The ports on which this node listens, in the order of O(links). Empty in check mode.
  returned: with O(state=listen)
  type: list
  elements: int
  sample: [40211, 38877]
method:
  description: How bytes were moved in the end, V(rdma) or V(tcp).
  returned: with O(state=measure)
  type: str
  sample: rdma
why:
  description: Why that differs from O(method). Empty if it does not.
  returned: with O(state=measure)
  type: str
  sample: ""
links:
  description: The throughput of each link alone.
  returned: with O(state=measure)
  type: list
  elements: dict
  contains:
    link:
      description: Name of the interface.
      type: str
      sample: enp1s0f0np0
    address:
      description: The address of this node.
      type: str
      sample: 192.168.100.11
    peer_address:
      description: The address of the other node.
      type: str
      sample: 192.168.100.12
    mtu:
      description: The tested MTU, in bytes.
      type: int
      sample: 9000
    out_gbits:
      description: Gbit/s from this node to the other. Null if not measured.
      type: float
      sample: 97.28
    in_gbits:
      description: Gbit/s from the other node to this one. Null if not measured.
      type: float
      sample: 92.57
    ping:
      description:
        - Whether packets with that MTU return unfragmented (C(passes), null if that could not be tested), the MTU that a device on the path reported
          (C(path_mtu), else null), and the shortest round trip of three in milliseconds (C(rtt_ms), null if none returned).
      type: dict
      sample: {"passes": true, "path_mtu": null, "rtt_ms": 0.28}
together:
  description: Gbit/s over all links at once, out and in, null where not measured. Null with one link.
  returned: with O(state=measure)
  type: dict
  sample: {"out_gbits": 189.85, "in_gbits": 188.4}
errors:
  description: Operations that failed, as text. Empty if all was measured. Otherwise the verdict is V(unknown).
  returned: with O(state=measure)
  type: list
  elements: str
  sample: []
"""

import ipaddress
import itertools
import platform
import shutil
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._engine import at_work
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._module import run
from ansible_collections.gb10.cluster.plugins.module_utils._network import fabric_probe

Params = dict[str, t.Any]

NOT_PROBED = "check mode: the fabric is not probed, since that loads the network"
#: Minimum and maximum of the options.
RANGES = {"seconds": (2, 10), "wait": (1, 120), "streams": (1, 16)}
#: Minimum characters of a token.
TOKEN_LENGTH = 16
#: Seconds beyond its allowed time after which the kernel ends the listening process.
ALARM_MARGIN = 2


def problems(params: Params, check_mode: bool = False) -> list[str]:
    """Return the problems with the options. In check mode the other node does not listen, so there are no ports."""
    wrong = [f"{name}: {params[name]}, expected {least} to {most}" for name, (least, most) in RANGES.items() if not least <= params[name] <= most]
    if params["state"] == "check":
        return wrong
    if len(params["token"]) < TOKEN_LENGTH:
        wrong.append(f"token: expected at least {TOKEN_LENGTH} characters")
    if not params["links"]:
        wrong.append("links: expected at least one")
    fits = len(params["peer_ports"]) == len(params["links"]) and all(0 < port < 65536 for port in params["peer_ports"])
    if params["state"] == "measure" and not check_mode and not fits:
        wrong.append(f"peer_ports: {params['peer_ports']}, expected one port for each of the {len(params['links'])} links")
    for number, link in enumerate(params["links"]):
        addresses = ["address", *(["peer_address"] if params["state"] == "measure" else [])]
        wrong += [f"links[{number}].{name}: {link[name]!r} is not an IPv4 address of one node" for name in addresses if not is_host_address(link[name])]
        if params["state"] == "measure" and params["method"] == "rdma" and (not link["device"] or link["gid"] is None):
            wrong.append(f"links[{number}]: method rdma needs device and gid")
        if link["mtu"] is not None and not 576 <= link["mtu"] <= 65535:
            wrong.append(f"links[{number}].mtu: {link['mtu']}, expected 576 to 65535")
    return wrong


def is_host_address(text: str) -> bool:
    """Return whether a text is an IPv4 address that one node can have: neither unspecified nor multicast."""
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return not (address.is_unspecified or address.is_multicast)


def check(params: Params, check_mode: bool) -> dict[str, t.Any]:
    rdma = shutil.which(params["ib_write_bw"]) is not None
    return {"msg": f"no engine serves; ib_write_bw is {'installed' if rdma else 'missing'}", "probed": False, "rdma": rdma}


def listen(params: Params, check_mode: bool) -> dict[str, t.Any]:
    if check_mode:
        return {"msg": NOT_PROBED, "probed": False, "ports": []}
    listener = fabric_probe.Listener(params["links"], params["token"], params["ib_write_bw"], params["wait"], params["seconds"])
    ports = listener.ports
    fabric_probe.detach(listener, params["wait"] + params["seconds"] + ALARM_MARGIN)
    endpoints = ", ".join(f"{link['address']}:{port}" for link, port in zip(params["links"], ports))
    return {"msg": f"listens on {endpoints} for {params['wait']} s", "probed": True, "ports": ports}


def measure(params: Params, check_mode: bool) -> dict[str, t.Any]:
    prober = fabric_probe.Prober(
        [{**link, "peer_port": port} for link, port in zip(params["links"], params["peer_ports"] or itertools.repeat(0))],
        params["token"],
        method=params["method"],
        streams=params["streams"],
        seconds=params["seconds"],
        program=params["ib_write_bw"],
        ping=params["ping"],
    )
    if check_mode:
        message = NOT_PROBED
    else:
        prober.run()
        carried = ", ".join(f"{link['link']} {link['out_gbits']} out and {link['in_gbits']} in" for link in prober.links)
        message = "; ".join(prober.errors) or f"{carried} (Gbit/s)"
    return {
        "msg": message,
        "verdict": "unknown" if prober.errors else "pass",
        "probed": not check_mode,
        "method": prober.method,
        "why": prober.why,
        "links": prober.links,
        "together": prober.together,
        "errors": prober.errors,
    }


def serving_engines(params: Params) -> list[str]:
    """Return the engines that serve on this node, as texts. Only the check, the first step, reads the clusters' state, because that requires root."""
    if params["state"] == "check":
        return at_work.serving(params["state_dir"], params["roots"]["proc_root"])
    return at_work.serving_processes(params["roots"]["proc_root"])


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    wrong = problems(params, module.check_mode)
    if wrong:
        raise ClusterError("; ".join(wrong), remedy="Correct the options.", reason="options")
    serving = serving_engines(params)
    if serving:
        raise at_work.refusal(f"the fabric of {platform.node()} is not probed", serving, "probe when it is not in use")
    return {"serving": [], **{"check": check, "listen": listen, "measure": measure}[params["state"]](params, module.check_mode)}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["check", "listen", "measure"], "default": "check"},
            "links": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "link": {"type": "str", "required": True},
                    "address": {"type": "str", "required": True},
                    "device": {"type": "str", "default": ""},
                    "gid": {"type": "int"},
                    "mtu": {"type": "int"},
                    "peer_address": {"type": "str", "default": ""},
                },
            },
            "peer_ports": {"type": "list", "elements": "int", "default": []},
            "token": {"type": "str", "default": "", "no_log": True},
            "method": {"type": "str", "choices": ["rdma", "tcp"], "default": "tcp"},
            "seconds": {"type": "int", "default": 10},
            "wait": {"type": "int", "default": 30},
            "streams": {"type": "int", "default": 4},
            "ib_write_bw": {"type": "str", "default": "ib_write_bw"},
            "ping": {"type": "str", "default": "ping"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "roots": ROOTS,
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
