#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_service
short_description: Set up a systemd unit of the collection on a node, or remove it (internal)
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Sets up one of the units that the collection has on a node, with its program and its files, starts it, and removes it again. The program is the
    collection's own code; the controller sends it where the node has another one.
  - O(name=engine) stops an engine gently, and recreates container and engine after a reboot, without a controller (C(gb10-engine-CLUSTER.service)). It runs the
    modules of this collection with the arguments in O(specification), which are those that the roles pass to them.
  - O(name=companions) starts the containers of companions at a boot, before the engines, and stops them gently at a shutdown (C(gb10-companions.service)). The
    role P(gb10.cluster.companions#role) creates them. A companion that does not come up is named in the journal and in RV(unit), and stops neither the
    others nor an engine.
  - O(name=guard) samples the node every second into a ring on the disk that holds more than a day, and ends ranks of this collection while they load before
    memory is gone (C(gb10-guard.service)). Where nothing says what a start leaves, it only says what it would do, in the ring, in the journal, and as
    RV(guard.said).
  - O(name=sweep) compares the node with what is declared, and sends one alert when something is wrong, again after O(sweep.repeat_hours), and when all is well
    again (C(gb10-sweep.timer), C(gb10-sweep.service)). The secret of a channel is in C(_sweep/NAME) below O(sweep.secrets_dir), never in an option.
  - O(name=lease) ends a mode that is there for one command of the controller when its caller is silent for O(lease.lost_seconds), and at a reboot
    (C(gb10-lease.service)). To end it, the unit takes over the lock of the mode, stops the units of O(lease.clusters), waits for the node's memory, and starts
    the units of O(lease.restore). The module itself starts and stops no engine.
  - A unit that is removed leaves what it started running. So does one that is kept.
  - A unit of that name that this collection did not write, or that somebody edited, stays as it is, and the module fails.
  - When the node was not shut down cleanly, the first start of an engine's or the companions' unit is refused, with the reason in the journal and in RV(unit).
    A person's C(systemctl start) after that goes ahead. So does the first start when root made the file C(power_cycled) in O(state_dir) before, which is
    removed.
requirements:
  - With O(name=companions), Docker Engine 20.10 or newer, with its command line.
extends_documentation_fragment:
  - gb10.cluster._attributes.internal
  - gb10.cluster._cluster
  - gb10.cluster._cluster.state_dir
  - gb10.cluster._look
  - gb10.cluster._unit
  - gb10.cluster._unit.start
  - gb10.cluster._unit.program
attributes:
  check_mode:
    support: full
  diff_mode:
    support: partial
    details:
      - A lease is a record of who uses the nodes, not a setting of theirs. It has no diff.
options:
  name:
    description:
      - The unit.
    type: str
    choices: [engine, companions, guard, sweep, lease]
    required: true
  state:
    description:
      - With V(present) the unit is there and runs. With V(absent) it is removed with its files; the guard's ring stays unless O(guard.forget_ring=true).
      - With V(kept), a unit of an engine that is there stays with its files. It does not run, nor start at boot. None is set up.
      - With V(serving) the guard learns that the ranks which are on the node now serve. That is a record and not state of the node, so RV(ignore:changed) stays
        false. Without a guard, nothing is done.
      - With V(renewed), the caller of a lease says that it lives. It fails when the lease is over, or another's.
      - With V(returning), nothing is there for the lease any more, and the caller brings back what was there before. When it is silent for
        O(lease.lost_seconds), and no run works on a cluster of O(lease.restore), the node starts its unit. A lease that is over, or another's, is left alone.
      - With V(given_up), the caller needs the lease no more, so that the node ends it now. A lease that is over, or another's, is left alone.
    type: str
    choices: [present, absent, kept, serving, renewed, returning, given_up]
    default: present
  specification:
    description:
      - What the unit of an engine or of the companions does, as the roles P(gb10.cluster.engine#role) and P(gb10.cluster.companions#role) make it.
        Required with O(state=present) for both.
      - For companions, C(companions) is a list of C(name), C(port), C(health_path), C(gpus), C(health_timeout) and C(stop_timeout).
    type: dict
  log_dir:
    description:
      - Directory on the node that holds the logs of the collection's clusters. Of use with O(name=sweep).
    type: path
    default: /var/log/gb10
  lock_id:
    description:
      - With O(name=engine), the id of the cluster's lock that this run took (RV(gb10.cluster.cluster_lock#module:lock)). Before it writes, starts or removes
        anything, the module makes sure that the lock on this node still is that one. With an empty one nothing is checked.
    type: str
    default: ""
  guard:
    description:
      - What the guard does.
    type: dict
    suboptions:
      act:
        description:
          - When the guard may act. V(loading) while ranks load, V(always) then and while they serve, V(never) not at all.
        type: str
        choices: [loading, always, never]
        default: loading
      load_seconds:
        description:
          - Seconds after which a rank counts as serving although nobody said so, 60 or more.
        type: int
        default: 7200
      addresses:
        description:
          - Addresses of this node on the fabric. The interfaces that have them are watched, and those of RDMA devices.
        type: list
        elements: str
        default: []
      forget_ring:
        description:
          - With O(state=absent), whether the ring goes as well.
        type: bool
        default: false
  sweep:
    description:
      - What the sweep looks at, and where its alerts go.
    type: dict
    suboptions:
      node:
        description:
          - Name of this node in the inventory, as the record of the mode has it. Required with O(state=present).
        type: str
      secrets_dir:
        description:
          - Directory on the node that holds the secrets of clusters, and those of the channels.
        type: path
        default: /etc/gb10/secrets
      docker_socket:
        description:
          - The socket of the Docker engine.
        type: path
        default: /var/run/docker.sock
      minutes:
        description:
          - Minutes between two sweeps, 1 to 1440.
        type: int
        default: 15
      repeat_hours:
        description:
          - Hours after which a channel is told once more of what still lasts. With 0 it never is.
        type: int
        default: 24
      quiet_minutes:
        description:
          - Minutes for which a change of the mode, or a run that holds a lock, keeps the sweep silent.
        type: int
        default: 120
      memory_floor_gib:
        description:
          - GiB that have to be available on the node. With 0 that is not looked at.
        type: int
        default: 2
      start_timeout:
        description:
          - Seconds that an engine may take to start.
        type: int
        default: 3600
      token_timeout:
        description:
          - Seconds that an engine gets for a token, 1 to 120.
        type: int
        default: 15
      silent_timeout:
        description:
          - Seconds for which the sshd of another node may take connections and say nothing. One that loads weights was reported to be that busy.
        type: int
        default: 600
      channels:
        description:
          - Where messages go, without their secrets. None at all is possible, and leaves the journal and RV(sweep).
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description:
              - Name of the channel, which is that of the file with its secret. Its type if left out.
            type: str
          type:
            description:
              - V(webhook) gets JSON by POST, V(telegram) is a bot, V(mail) a command that reads the message.
            type: str
            choices: [webhook, telegram, mail]
            required: true
          chat_id:
            description:
              - The chat that the bot writes to. Required for V(telegram).
            type: str
          api_url:
            description:
              - Where the bot's API is, if not at Telegram.
            type: str
          allow_http:
            description:
              - Whether the secret may be sent by http to a private address. To the node itself it always may, and to any other address never.
            type: bool
          command:
            description:
              - Words of the command that reads the message. There is no shell. Required for V(mail).
            type: list
            elements: str
          to:
            description:
              - Recipients. With them the command reads a whole message with its headers, without them the plain text.
            type: str
          from:
            description:
              - The sender in these headers.
            type: str
      endpoints:
        description:
          - What else is asked over the network.
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description:
              - By what messages name it.
            type: str
            required: true
          url:
            description:
              - What is asked, http or https. Certificates are verified, and no redirect is followed.
            type: str
            required: true
          status:
            description:
              - The status, or a list of some, that it has to answer with. If left out, any of 200 to 299.
            type: raw
      peers:
        description:
          - The other nodes by name, each with a list of its addresses. Their sshd has to greet, since a node that is down cannot report itself. One address
            that answers is enough.
        type: dict
        default: {}
      sshd_ports:
        description:
          - Ports at which these sshd listen, by name. V(22) for one that is left out; with V(0) that node is not asked.
        type: dict
        default: {}
      companions:
        description:
          - The services of this node beside its engines, of the setting C(gb10_companions). Those that the declared mode has are asked.
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description:
              - Its name.
            type: str
            required: true
          port:
            description:
              - The port that it listens on at 127.0.0.1.
            type: int
            required: true
          health_path:
            description:
              - What is asked at that port.
            type: str
            required: true
          modes:
            description:
              - The modes that it is up in. If left out, V(cluster) and V(singles).
            type: list
            elements: raw
      ca_file:
        description:
          - A file on the node with certificate authorities to trust beside those of the system. Empty for none.
        type: str
        default: ""
      test:
        description:
          - Send a test through each of O(sweep.channels) now, by the unit itself. The module fails with what a channel answered that did not take it. That is
            no change.
        type: bool
        default: false
  lease:
    description:
      - The lease.
    type: dict
    suboptions:
      lease_id:
        description:
          - Id of the lease, which is that of the mode's lock (RV(gb10.cluster.cluster_lock#module:lock)). Required unless O(state=absent).
        type: str
      holder:
        description:
          - Who holds it, as the lock has it. Required with O(state=present).
        type: dict
      program:
        description:
          - Name of the command's program, for people. Its arguments stay on the controller.
        type: str
        default: ""
      mode:
        description:
          - The mode that is there for the command. Required with O(state=present).
        type: str
        choices: [cluster, singles]
      lost_seconds:
        description:
          - Seconds without a word of the caller after which the node ends the lease, 20 or more. V(renewed) and V(returning) replace what it was.
        type: int
        default: 300
      clusters:
        description:
          - Names of the clusters that have a part on this node for the lease. Each needs its unit (O(name=engine)). Required with
            O(state=present).
        type: list
        elements: str
      restore:
        description:
          - Names of the clusters that were there before and whose units were kept on this node (O(state=kept)). One without a unit
            is left out, and the node says so when it ends the lease.
        type: list
        elements: str
        default: []
      whole:
        description:
          - Whether O(lease.restore) names all that this node had before.
        type: bool
        default: true
      awaits:
        description:
          - For a worker, where the head answers as long as its part of the engine is there (C(address), C(port)), and how many C(seconds) the worker waits for
            its end. Empty for a node that waits for nobody.
        type: dict
        default: {}
      tolerance_mb:
        description:
          - How many MiB less than noted count as back, as O(gb10.cluster.node_samples_info#module:tolerance_mb).
        type: int
        default: 4096
      wait_timeout:
        description:
          - Seconds to wait for the memory, as O(gb10.cluster.node_samples_info#module:wait_timeout).
        type: int
        default: 180
      companions:
        description:
          - Whether companions are declared. The node leaves them as they are, so a mode with some is not settled when it ended a lease.
        type: bool
        default: false
seealso:
  - module: gb10.cluster.node_samples_info
  - module: gb10.cluster.node_state_info
  - module: gb10.cluster.cluster_record
"""

EXAMPLES = r"""
- name: Start the engine again after a clean reboot
  gb10.cluster.node_service:
    name: engine
    enabled: true
    specification: "{{ __engine_unit_specification }}"
  become: true

- name: Remove the unit, and leave the engine running
  gb10.cluster.node_service:
    name: engine
    state: absent
  become: true

- name: Guard the node
  gb10.cluster.node_service:
    name: guard
    guard:
      addresses: [192.168.100.10]
  become: true

- name: Write the bot's token
  ansible.builtin.copy:
    content: "{{ vault_telegram_token }}"
    dest: /etc/gb10/secrets/_sweep/telegram
    mode: "0600"
  become: true
  no_log: true

- name: Check the node every 15 minutes, and write to a chat when something is wrong
  gb10.cluster.node_service:
    name: sweep
    sweep:
      node: "{{ inventory_hostname }}"
      channels:
        - type: telegram
          chat_id: "-1001234567890"
      peers:
        spark-2: [192.168.100.11]
  become: true

- name: Renew a lease
  gb10.cluster.node_service:
    name: lease
    state: renewed
    lease:
      lease_id: "{{ mode_lock['lock']['id'] }}"
  become: true
"""

RETURN = r"""
unit:
  description: What of the unit is on the node afterwards, in check mode before.
  returned: with O(name=engine) or O(name=companions)
  type: dict
  contains:
    name:
      description: Its name.
      type: str
    installed:
      description: Whether it is there.
      type: bool
    files:
      description: Whether its specification and program are there.
      type: bool
    enabled:
      description: Whether it is started at boot. Null when systemd does not say.
      type: bool
    starting:
      description: Whether it starts, and has not come up yet. Null when systemd does not say.
      type: bool
    active:
      description: Whether it runs. Null when systemd does not say.
      type: bool
    failed:
      description: Whether it failed, or refused to start. Null when systemd does not say.
      type: bool
    state:
      description: What it recorded last, C(starting), C(running), C(stopped), C(refused) or C(failed). Empty when it never ran.
      type: str
    reason:
      description: Why.
      type: str
    at:
      description: When, in UTC.
      type: str
    error:
      description: Why its record cannot be read, empty when it can.
      type: str
  sample:
    name: gb10-engine-gb10.service
    installed: true
    files: true
    enabled: true
    starting: false
    active: true
    failed: false
    state: running
    reason: ""
    at: "2026-11-24T02:10:00Z"
    error: ""
guard:
  description: What of the guard is on the node afterwards, in check mode before.
  returned: with O(name=guard)
  type: dict
  contains:
    name:
      description: The name of the unit.
      type: str
    installed:
      description: Whether the unit is there.
      type: bool
    files:
      description: Whether the directory of its files is there.
      type: bool
    enabled:
      description: Whether it is started at boot. Null when systemd does not say.
      type: bool
    starting:
      description: Whether it starts, and does not run yet. Null when systemd does not say.
      type: bool
    active:
      description: Whether it runs. Null when systemd does not say.
      type: bool
    failed:
      description: Whether it failed. Null when systemd does not say.
      type: bool
    ring:
      description: Where the ring lies.
      type: str
    ring_bytes:
      description: How many bytes it has. Null for whoever may not read it.
      type: int
    older:
      description: Whether an older version of this collection set it up, which ends ranks by the trend alone. C(protect --tags guard) renews it.
      type: bool
    said:
      description: What it did, or would have done, last within a day (C(text)), and when in seconds since 1970 (C(at)). Null where there is nothing.
      type: dict
  sample:
    installed: true
    enabled: true
    starting: false
    active: true
    failed: false
    ring: /var/lib/gb10/guard/ring
    ring_bytes: 8734021
    older: false
    said: null
serving:
  description: The ranks that were said to serve, each as pid and start in clock ticks since boot.
  returned: with O(state=serving)
  type: list
  elements: list
  sample: [[41270, 812345]]
sweep:
  description: What of the sweep is on the node afterwards, in check mode before.
  returned: with O(name=sweep)
  type: dict
  contains:
    name:
      description: The name of the unit.
      type: str
    installed:
      description: Whether its timer is there.
      type: bool
    files:
      description: Whether the directory of its files is there.
      type: bool
    enabled:
      description: Whether systemd starts the timer at boot. Null when systemd does not say.
      type: bool
    starting:
      description: Whether the timer starts, and does not run yet. Null when systemd does not say.
      type: bool
    active:
      description: Whether the timer runs. Null when systemd does not say.
      type: bool
    failed:
      description: Whether the last sweep failed, which is also when a channel did not take its message. Null when systemd does not say.
      type: bool
    last_sweep:
      description: When the last sweep was, in UTC. Empty before the first.
      type: str
    quiet:
      description: Why the last sweep told nothing, empty when nothing kept it from that.
      type: str
    problems:
      description: What the last sweep found, each with C(id) and C(text).
      type: list
      elements: dict
    last_alert:
      description: When a channel took a message last, and how that began. Empty when none ever did.
      type: str
    undelivered:
      description: Why a channel did not take its last message, by its name.
      type: dict
    error:
      description: Why the state of the last sweep cannot be read, empty when it can.
      type: str
  sample:
    installed: true
    enabled: true
    active: true
    failed: false
    last_sweep: "2026-11-24T02:10:00Z"
    quiet: ""
    problems: []
    last_alert: ""
    undelivered: {}
    error: ""
answers:
  description: What each channel said to the test, by its name. Empty for one that took it.
  returned: with O(sweep.test=true), not in check mode
  type: dict
  sample: {"telegram": ""}
lease:
  description: The lease afterwards, in check mode before. Empty when there is none.
  returned: with O(name=lease)
  type: dict
  contains:
    id:
      description: Its id.
      type: str
    holder:
      description: Who holds it.
      type: dict
    program:
      description: Name of the command's program.
      type: str
    mode:
      description: The mode that is there for it.
      type: str
    began_at:
      description: When it began, in UTC.
      type: str
    state:
      description: V(live), V(ending) while the node ends it by itself, or V(ended) after that.
      type: str
    reason:
      description: Why the node ended it, and what it did.
      type: str
    clusters:
      description: The clusters that have a part on this node for it.
      type: list
      elements: str
    restore:
      description: The clusters whose units the node starts again when it ends the lease.
      type: list
      elements: str
    left_seconds:
      description: Seconds after which the node ends it unless it is renewed, 0 when it is over.
      type: int
  sample:
    id: 0f3b8a2f6c1d4e57
    holder: {"user": "ada", "hostname": "workbench", "pid": 4711}
    program: judge.sh
    mode: cluster
    began_at: "2026-11-24T07:00:00Z"
    state: live
    reason: ""
    clusters: [gb10]
    restore: [spark-1]
    left_seconds: 288
kept:
  description: Clusters whose units were kept for the end of the lease and do not run. Nobody needs them after it.
  returned: with O(name=lease) and O(state=absent)
  type: list
  elements: str
  sample: []
needs_program:
  description: Whether the node has another program than O(program_digest). The action plugin sends it then.
  returned: with O(state=present), O(state=kept) or O(state=absent)
  type: bool
  sample: false
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._module import run
from ansible_collections.gb10.cluster.plugins.module_utils._service import (
    companions_service, engine_service, guard_service, lease_service, sweep_service,
)
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import install

#: Each has ``work``, and ``NEEDS``: the options that each of its states needs. Options of its own are below its name.
SERVICES: dict[str, t.Any] = {
    "engine": engine_service, "companions": companions_service, "guard": guard_service, "sweep": sweep_service, "lease": lease_service,
}  # fmt: skip


def params_of(params: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the options of one service, its own among them. Raises :class:`ClusterError` for a state that it does not have, or lacks options for."""
    name, state = params["name"], params["state"]
    needs = SERVICES[name].NEEDS
    if state not in needs:
        raise ClusterError(f"state is {state}, expected {', '.join(needs)} with name={name}", remedy="Correct state.", reason="input")
    given = {**params, **(params.get(name) or {})}
    missing = [option if option in params else f"{name}.{option}" for option in needs[state] if given.get(option) is None]
    if missing:
        raise ClusterError(f"state is {state}, and missing with name={name}: {', '.join(missing)}", remedy="Give them.", reason="input")
    return given


def work(module: AnsibleModule) -> dict[str, t.Any]:
    module.params = params_of(module.params)
    return SERVICES[module.params["name"]].work(module)


def main() -> None:
    own = {name: {"type": "dict", "apply_defaults": True, "options": SERVICES[name].OPTIONS} for name in ("guard", "sweep", "lease")}
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "choices": list(SERVICES), "required": True},
            "state": {"type": "str", "choices": ["present", "absent", "kept", "serving", "renewed", "returning", "given_up"], "default": "present"},
            "enabled": {"type": "bool", "default": False},
            "specification": {"type": "dict"},
            "cluster_name": {"type": "str", "default": "gb10"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "log_dir": {"type": "path", "default": "/var/log/gb10"},
            "lock_id": {"type": "str", "default": ""},
            "start_timeout": {"type": "int", "default": 300},
            "tool_timeout": {"type": "int", "default": 60},
            **own,
            **install.PROGRAM_SPEC,
            "roots": ROOTS,
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
