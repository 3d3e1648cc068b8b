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
  - Sets up one of the collection's units on a node, with its program and its files, starts it, and removes it again. The program is the
    collection's own code. The controller sends it if the node has a different one.
  - O(name=engine) stops an engine gently, and recreates container and engine after a reboot, without a controller (C(gb10-engine-CLUSTER.service)). It runs the
    modules of this collection with the arguments in O(specification), the same ones that the roles pass to them.
  - O(name=companions) starts the containers of companions at a boot, before the engines, and stops them gently at a shutdown (C(gb10-companions.service)). The
    role P(gb10.cluster.companions#role) creates them. A companion that fails to start is named in the journal and in RV(unit). The
    others and the engines still start.
  - O(name=guard) samples the node every second into a ring file on the disk with more than a day of samples, and ends this collection's ranks before memory
    runs out while they load (C(gb10-guard.service)). If the expected memory of a start is unknown, it only reports what it would do, in the ring, in the
    journal, and as RV(guard.said).
  - O(name=sweep) compares the node with the declared state, and sends one alert if something is wrong, again after O(sweep.repeat_hours), and when the problem
    is solved (C(gb10-sweep.timer), C(gb10-sweep.service)). The secret of a channel is in C(_sweep/NAME) below O(sweep.secrets_dir), never in an option.
  - O(name=recover) looks at the engine every minute, on each of its nodes, and names an engine that died or hangs. With O(recover.act=restart), once the
    evidence of all nodes has agreed three times, each node keeps evidence, stops its part, verifies its memory, and starts its part again through the unit of
    O(name=engine) (C(gb10-recover-CLUSTER.timer) and C(.service)). The other nodes get its state as a signed answer (C(.socket) and C(@.service)), with the
    key in C(CLUSTER/recover_key) below O(recover.secrets_dir). It never acts under a lock, a change of mode or a lease.
  - O(name=lease) ends a mode that exists for one command on the controller if its caller is silent for O(lease.lost_seconds), and at a reboot
    (C(gb10-lease.service)). To end it, the unit takes over the lock of the mode, stops the units of O(lease.clusters), waits for the node's memory, and starts
    the units of O(lease.restore). The module itself starts and stops no engine.
  - A unit that is removed or kept leaves the programs that it started running.
  - A unit of that name that this collection did not write, or that was edited, is left unchanged, and the module fails.
  - If the node was not shut down cleanly, an engine's or the companions' unit starts once if C(unclean_boot) in O(specification) is C(once). It does not start
    if no unit has run for 60 minutes since the former unclean boot. Without C(once) it never starts then. The reason is in the journal and in RV(unit).
    A later manual C(systemctl start) is allowed. So is the first start if root created the file C(power_cycled) in O(state_dir) before. The file is then
    removed.
  - An engine's unit that is set up to start at a boot disables enabled units of other clusters on the node that do not run.
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
      - A lease is a record of who uses the nodes, not a setting on them. It has no diff.
options:
  name:
    description:
      - The unit.
    type: str
    choices: [engine, companions, guard, sweep, recover, lease]
    required: true
  state:
    description:
      - With V(present) the unit exists and runs. With V(absent) it is removed with its files. The guard's ring stays unless O(guard.forget_ring=true).
      - With V(kept), an existing unit of an engine stays with its files. It does not run, nor start at boot. None is set up.
      - With V(serving) the guard records that the node's current ranks are serving. That is a record and not state of the node, so RV(ignore:changed) stays
        false. Without a guard, nothing is done.
      - With V(renewed), the caller of a lease reports that it is alive. It fails if the lease is over, or another caller's.
      - With V(returning), the lease's mode is gone, and the caller restores the previous state. If it is silent for
        O(lease.lost_seconds), and no run works on a cluster of O(lease.restore), the node starts its unit. A lease that is over, or another's, is left alone.
      - With V(given_up), the caller no longer needs the lease, so that the node ends it now. A lease that is over, or another's, is left alone.
    type: str
    choices: [present, absent, kept, serving, renewed, returning, given_up]
    default: present
  specification:
    description:
      - The actions of an engine's or the companions' unit, as created by the roles P(gb10.cluster.engine#role) and P(gb10.cluster.companions#role).
        Required with O(state=present) for both, and for O(name=recover), which takes the nodes of its cluster from it.
      - For companions, C(companions) is a list of C(name), C(port), C(health_path), C(gpus), C(health_timeout) and C(stop_timeout).
    type: dict
  log_dir:
    description:
      - Directory on the node for the logs of the collection's clusters. Used with O(name=sweep).
    type: path
    default: /var/log/gb10
  lock_id:
    description:
      - With O(name=engine) or O(name=recover), the id of the cluster lock that this run acquired (RV(gb10.cluster.cluster_lock#module:lock)). Before it
        writes, starts or removes anything, the module verifies that the lock on this node still has this id. With an empty value nothing is checked.
    type: str
    default: ""
  guard:
    description:
      - Settings of the guard.
    type: dict
    suboptions:
      act:
        description:
          - When the guard may act. V(loading) while ranks load, V(always) also while they serve, V(never) not at all.
        type: str
        choices: [loading, always, never]
        default: loading
      load_seconds:
        description:
          - Seconds after which a rank counts as serving even without a report, 60 or more.
        type: int
        default: 7200
      addresses:
        description:
          - Addresses of this node on the fabric. Their interfaces are watched, and those of RDMA devices.
        type: list
        elements: str
        default: []
      forget_ring:
        description:
          - With O(state=absent), whether to also remove the ring.
        type: bool
        default: false
  sweep:
    description:
      - Settings of the sweep and its alerts.
    type: dict
    suboptions:
      node:
        description:
          - Name of this node in the inventory, as in the record of the mode. Required with O(state=present).
        type: str
      secrets_dir:
        description:
          - Directory on the node for the secrets of clusters and channels.
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
          - Hours after which an alert for an unresolved problem is repeated. With 0 it never is.
        type: int
        default: 24
      quiet_minutes:
        description:
          - Minutes for which a change of the mode, or a run that has a lock, keeps the sweep silent.
        type: int
        default: 120
      memory_floor_gib:
        description:
          - GiB that must be available on the node. 0 disables the check.
        type: int
        default: 2
      start_timeout:
        description:
          - Maximum seconds for the start of an engine.
        type: int
        default: 3600
      token_timeout:
        description:
          - Maximum seconds for a token from an engine, 1 to 120.
        type: int
        default: 15
      silent_timeout:
        description:
          - Seconds for which another node's sshd may accept connections without a greeting. A node that loads weights was reported to be that busy.
        type: int
        default: 600
      channels:
        description:
          - Channels for messages, without their secrets. The list may be empty, which leaves the journal and RV(sweep).
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description:
              - Name of the channel and of the file with its secret. The default is its type.
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
              - URL of the bot's API, if not Telegram's.
            type: str
          allow_http:
            description:
              - Whether the secret may be sent by http to a private address. To the node itself this is always allowed, and to any other address never.
            type: bool
          command:
            description:
              - Words of the command that reads the message, run without a shell. Required for V(mail).
            type: list
            elements: str
          to:
            description:
              - Recipients. With them the command reads a complete message with its headers, without them the plain text.
            type: str
          from:
            description:
              - The sender in these headers.
            type: str
      endpoints:
        description:
          - Further endpoints to check over the network.
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description:
              - Its name in messages.
            type: str
            required: true
          url:
            description:
              - Its URL, http or https. Certificates are verified, and no redirect is followed.
            type: str
            required: true
          status:
            description:
              - The expected status, or a list of them. The default is any of 200 to 299.
            type: raw
      peers:
        description:
          - The other nodes by name, each with a list of its addresses. Their sshd must greet, because a node that is down cannot report itself. One address
            that answers is enough.
        type: dict
        default: {}
      sshd_ports:
        description:
          - Ports of these sshds, by node name. The default is V(22). With V(0) that node is not checked.
        type: dict
        default: {}
      companions:
        description:
          - The services of this node in addition to its engines, from the setting C(gb10_companions). Those in the declared mode are checked.
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
              - Its port at 127.0.0.1.
            type: int
            required: true
          health_path:
            description:
              - The path requested at that port.
            type: str
            required: true
          modes:
            description:
              - The modes in which it is up. The default is every mode that has an engine.
            type: list
            elements: raw
      ca_file:
        description:
          - A file on the node with certificate authorities to trust in addition to the system's. Empty for none.
        type: str
        default: ""
      test:
        description:
          - Send a test through each of O(sweep.channels) now, by the unit itself. If a channel does not accept it, the module fails with its answer. That is
            not a change.
        type: bool
        default: false
  recover:
    description:
      - Settings of the recovery of an engine.
    type: dict
    suboptions:
      node:
        description:
          - Name of this node, as in O(specification). Required with O(state=present).
        type: str
      head:
        description:
          - Name of the head. Required with O(state=present).
        type: str
      act:
        description:
          - V(observe) names a fault, and what V(restart) would have done. V(restart) also does it.
        type: str
        choices: [observe, restart]
        default: observe
      pause:
        description:
          - A time and a reason, for which nothing is done, such as C(2h upgrading the switch). An existing pause with the same text stays as it began.
            Empty for none.
        type: str
        default: ""
      port:
        description:
          - Port of this node's fabric address at which the other nodes ask for its state.
        type: int
        default: 20302
      secrets_dir:
        description:
          - Directory on the node for the secrets of clusters.
        type: path
        default: /etc/gb10/secrets
      answers:
        description:
          - The known answers to ask for after a recovery, as O(gb10.cluster.engine_questions#module:checks).
        type: list
        elements: str
        default: []
      model:
        description:
          - The served name of the model to ask.
        type: str
      tolerance_mb:
        description:
          - How many MiB below the recorded value count as freed, as O(gb10.cluster.node_samples_info#module:tolerance_mb).
        type: int
        default: 4096
      wait_timeout:
        description:
          - Seconds to wait for the memory, as O(gb10.cluster.node_samples_info#module:wait_timeout).
        type: int
        default: 180
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
          - Its holder, as in the lock. Required with O(state=present).
        type: dict
      program:
        description:
          - Name of the command's program, for display. Its arguments stay on the controller.
        type: str
        default: ""
      mode:
        description:
          - The mode that is up for the command. Required with O(state=present).
        type: str
      lost_seconds:
        description:
          - Seconds of silence of the caller after which the node ends the lease, 20 or more. V(renewed) and V(returning) replace the value.
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
          - Names of the clusters that ran before and whose units were kept on this node (O(state=kept)). One without a unit
            is left out, and the node reports this when it ends the lease.
        type: list
        elements: str
        default: []
      whole:
        description:
          - Whether O(lease.restore) names all clusters that this node had before.
        type: bool
        default: true
      awaits:
        description:
          - For a worker, the address at which the head answers while its part of the engine exists (C(address), C(port)), and how many C(seconds) the worker
            waits for its end. Empty for a node that does not wait.
        type: dict
        default: {}
      tolerance_mb:
        description:
          - How many MiB below the recorded value count as freed, as O(gb10.cluster.node_samples_info#module:tolerance_mb).
        type: int
        default: 4096
      wait_timeout:
        description:
          - Seconds to wait for the memory, as O(gb10.cluster.node_samples_info#module:wait_timeout).
        type: int
        default: 180
      companions:
        description:
          - Whether companions are declared. The node leaves them unchanged, so a mode with companions is not settled after it ended a lease.
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

- name: Set up the guard
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

- name: Check the node every 15 minutes, and write to a chat if something is wrong
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
  description: The state of the unit on the node afterwards, in check mode before.
  returned: with O(name=engine) or O(name=companions)
  type: dict
  contains:
    name:
      description: Its name.
      type: str
    installed:
      description: Whether it exists.
      type: bool
    files:
      description: Whether its specification and program exist.
      type: bool
    enabled:
      description: Whether it is started at boot. Null if systemd does not report it.
      type: bool
    starting:
      description: Whether it is starting and not up yet. Null if systemd does not report it.
      type: bool
    active:
      description: Whether it runs. Null if systemd does not report it.
      type: bool
    failed:
      description: Whether it failed, or refused to start. Null if systemd does not report it.
      type: bool
    state:
      description: Its last recorded state, C(starting), C(running), C(stopped), C(refused) or C(failed). Empty if it never ran.
      type: str
    reason:
      description: Why.
      type: str
    at:
      description: When, in UTC.
      type: str
    error:
      description: Why its record cannot be read. Empty if it can.
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
  description: The state of the guard on the node afterwards, in check mode before.
  returned: with O(name=guard)
  type: dict
  contains:
    name:
      description: The name of the unit.
      type: str
    installed:
      description: Whether the unit exists.
      type: bool
    files:
      description: Whether the directory of its files exists.
      type: bool
    enabled:
      description: Whether it is started at boot. Null if systemd does not report it.
      type: bool
    starting:
      description: Whether it is starting, and does not run yet. Null if systemd does not report it.
      type: bool
    active:
      description: Whether it runs. Null if systemd does not report it.
      type: bool
    failed:
      description: Whether it failed. Null if systemd does not report it.
      type: bool
    ring:
      description: Path of the ring.
      type: str
    ring_bytes:
      description: Its size in bytes. Null if the account may not read it.
      type: int
    older:
      description: Whether an older version of this collection set it up, which ends ranks based on the trend only. C(protect --tags guard) renews it.
      type: bool
    said:
      description: Its last action within a day, or the one it would have taken (C(text)), and the time in seconds since 1970 (C(at)). Null if there is none.
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
  description: The ranks that were reported as serving, each as pid and start in clock ticks since boot.
  returned: with O(state=serving)
  type: list
  elements: list
  sample: [[41270, 812345]]
sweep:
  description: The state of the sweep on the node afterwards, in check mode before.
  returned: with O(name=sweep)
  type: dict
  contains:
    name:
      description: The name of the unit.
      type: str
    installed:
      description: Whether its timer exists.
      type: bool
    files:
      description: Whether the directory of its files exists.
      type: bool
    enabled:
      description: Whether systemd starts the timer at boot. Null if systemd does not report it.
      type: bool
    starting:
      description: Whether the timer is starting, and does not run yet. Null if systemd does not report it.
      type: bool
    active:
      description: Whether the timer runs. Null if systemd does not report it.
      type: bool
    failed:
      description: Whether the last sweep failed, which includes a channel that did not accept its message. Null if systemd does not report it.
      type: bool
    last_sweep:
      description: When the last sweep was, in UTC. Empty before the first.
      type: str
    quiet:
      description: Why the last sweep sent no alerts. Empty if nothing prevented them.
      type: str
    problems:
      description: The problems that the last sweep found, each with C(id) and C(text).
      type: list
      elements: dict
    last_alert:
      description: When a channel last accepted a message, and how that message began. Empty if none ever did.
      type: str
    undelivered:
      description: Why a channel did not accept its last message, by its name.
      type: dict
    error:
      description: Why the state of the last sweep cannot be read. Empty if it can.
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
recover:
  description: The state of the recovery on the node afterwards, in check mode before.
  returned: with O(name=recover)
  type: dict
  contains:
    name:
      description: The name of the timer.
      type: str
    installed:
      description: Whether it exists.
      type: bool
    files:
      description: Whether the directory of its files exists.
      type: bool
    enabled:
      description: Whether systemd starts the timer at boot. Null if systemd does not report it.
      type: bool
    starting:
      description: Whether the timer is starting, and does not run yet. Null if systemd does not report it.
      type: bool
    active:
      description: Whether the timer runs. Null if systemd does not report it.
      type: bool
    failed:
      description: Whether the last look found a problem, or failed itself. Null if systemd does not report it.
      type: bool
    problems:
      description: What the last look reports, at most one text.
      type: list
      elements: str
    line:
      description: The last look, the last recovery and the remaining budget as a line. Empty on a worker without a problem.
      type: str
    error:
      description: Why its state cannot be read. Empty if it can.
      type: str
  sample:
    name: gb10-recover-gb10.timer
    installed: true
    active: true
    failed: false
    problems: []
    line: "recovery: observe, well at 2026-11-24T02:10:00Z; budget left: 2 in 6 h, 3 in 24 h"
    error: ""
answers:
  description: Each channel's answer to the test, by its name. Empty for one that accepted it.
  returned: with O(sweep.test=true), not in check mode
  type: dict
  sample: {"telegram": ""}
lease:
  description: The lease afterwards, in check mode before. Empty if there is none.
  returned: with O(name=lease)
  type: dict
  contains:
    id:
      description: Its id.
      type: str
    holder:
      description: Its holder.
      type: dict
    program:
      description: Name of the command's program.
      type: str
    mode:
      description: The mode that is up for it.
      type: str
    began_at:
      description: When it began, in UTC.
      type: str
    state:
      description: V(live), V(ending) while the node ends it automatically, or V(ended) after that.
      type: str
    reason:
      description: Why the node ended it, and the actions it took.
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
      description: Seconds after which the node ends it unless it is renewed. 0 if it is over.
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
  description: Clusters whose units were kept for the end of the lease and do not run. They are not needed after it.
  returned: with O(name=lease) and O(state=absent)
  type: list
  elements: str
  sample: []
needs_program:
  description: Whether the node has a program other than O(program_digest). The action plugin then sends it.
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
    companions_service, engine_service, guard_service, lease_service, recover_service, sweep_service,
)
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import install

#: Each has ``work``, and ``NEEDS`` with the options that each of its states requires. Its own options are below its name.
SERVICES: dict[str, t.Any] = {
    "engine": engine_service, "companions": companions_service, "guard": guard_service, "sweep": sweep_service, "recover": recover_service,
    "lease": lease_service,
}  # fmt: skip


def params_of(params: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the options of one service, including its own. Raises :class:`ClusterError` when it lacks the state, or an option that the state requires."""
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
    own = {name: {"type": "dict", "apply_defaults": True, "options": SERVICES[name].OPTIONS} for name in ("guard", "sweep", "recover", "lease")}
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
