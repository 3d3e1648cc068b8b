#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: health_sweep
short_description: Set up a node's health sweep, which is silent while all is well, or take it away
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - The sweep is one program of this collection, run by C(gb10-sweep.service) whenever C(gb10-sweep.timer) elapses. It looks at what is declared, which is
    the mode of the node and its engines, the companions of that mode, the memory, the other nodes, and endpoints elsewhere.
  - An engine is well when it gives a token, or is busy. While the mode changes or a run holds a lock on the node, nothing is told for O(quiet_minutes).
  - What is not as declared is told once, in one message of all problems, through each of O(channels); again after O(repeat_hours); and when all is
    well again. A channel that does not take a message gets it at the next sweep.
  - The secret of a channel is never an option. It lies in C(_sweep/NAME) below O(secrets_dir), with mode C(0600), before this module runs. That is
    the address of a webhook, or the token of a bot.
  - Program, settings and state are in C(_sweep) below O(state_dir). With O(state=absent), they go, as do units and secrets.
  - A unit of that name that this collection did not write, or that somebody edited, stays as it is, and the module fails.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._cluster.state_dir
  - gb10.cluster._look
  - gb10.cluster._unit
  - gb10.cluster._unit.program
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  state:
    description:
      - Whether the sweep is there.
    type: str
    choices: [present, absent]
    default: present
  cluster_name:
    description:
      - Name of the cluster, by which messages begin.
    type: str
    default: gb10
  node:
    description:
      - Name of this node in the inventory, as the record of the mode has it. Required with O(state=present).
    type: str
  log_dir:
    description:
      - Directory on the node that holds the logs of the collection's clusters.
    type: path
    default: /var/log/gb10
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
      - The other nodes by name, each with a list of its addresses. Their sshd has to greet, since a node that is down cannot tell of itself. One address that
        answers is enough.
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
      - Send a test through each of O(channels) now, by the unit itself. The module fails with what a channel answered that did not take it. That is no change.
    type: bool
    default: false
  tool_timeout:
    default: 30
seealso:
  - module: gb10.cluster.node_guard
  - module: gb10.cluster.cluster_record
"""

EXAMPLES = r"""
- name: Have a place for the secrets of channels
  ansible.builtin.file:
    path: /etc/gb10/secrets/_sweep
    state: directory
    mode: "0700"
  become: true

- name: Write the bot's token
  ansible.builtin.copy:
    content: "{{ vault_telegram_token }}"
    dest: /etc/gb10/secrets/_sweep/telegram
    mode: "0600"
  become: true
  no_log: true

- name: Sweep the node every 15 minutes, and tell a chat when something is wrong
  gb10.cluster.health_sweep:
    node: "{{ inventory_hostname }}"
    channels:
      - type: telegram
        chat_id: "-1001234567890"
    peers:
      spark-2: [192.168.100.11]
  become: true

- name: Take the sweep away
  gb10.cluster.health_sweep:
    state: absent
  become: true
"""

RETURN = r"""
sweep:
  description: What of the sweep is on the node afterwards, in check mode before.
  returned: success
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
  returned: with O(test=true), not in check mode
  type: dict
  sample: {"telegram": ""}
needs_program:
  description: Whether the node has another program than O(program_digest). The action plugin sends it then.
  returned: with O(state=present) or O(state=absent)
  type: bool
  sample: false
"""

import contextlib
import json
import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import files
from ansible_collections.gb10.cluster.plugins.module_utils._files.roots import ROOTS
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least, run
from ansible_collections.gb10.cluster.plugins.module_utils._redact import read_secret
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import channels, declared, sweep_files, unit_text
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import install, python, setup
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

#: Seconds beyond what a sweep may take, until a test of it counts as lost.
MARGIN = 30

Params = dict[str, t.Any]


def wanted(params: Params, unit: Unit) -> dict[str, bytes]:
    """Return the files of the sweep by their paths, in the order in which they are written."""
    service, timer = unit.paths
    return {
        os.path.join(unit.folder, sweep_files.CONFIG): unit_text.config(params).encode(),
        service: unit_text.service(unit.folder, python.of_units(), params).encode(),
        timer: unit_text.timer(params["minutes"]).encode(),
    }


def check(params: Params) -> None:
    """Raise :class:`ClusterError` for options that cannot be used."""
    least = {"minutes": 1, "repeat_hours": 0, "quiet_minutes": 1, "memory_floor_gib": 0, "start_timeout": 1, "token_timeout": 1, "tool_timeout": 1}
    require_least(params, least)
    for name, most in (("minutes", 1440), ("token_timeout", 120)):
        if params[name] > most:
            raise ClusterError(f"{name} is {params[name]}, expected at most {most}", remedy=f"Correct {name}.", reason="input")
    for index, one in enumerate(params["channels"]):
        needs = [word for word in declared.NEEDS[one["type"]] if word != declared.SECRETS.get(one["type"]) and not one.get(word)]
        if needs:
            raise ClusterError(f"channels[{index}] has no {needs[0]}", expected=f"one for {one['type']}", remedy="Give it.", reason="input")
        require_hidden(one, one.get("api_url") or "", f"channels[{index}].api_url")
    for name, port in params["sshd_ports"].items():
        if not str(port).isdecimal() or int(port) > 65535:
            raise ClusterError(f"sshd_ports.{name} is {port!r}", expected="0 to 65535", remedy="Correct it.", reason="input")
    for name, addresses in params["peers"].items():
        if not isinstance(addresses, list) or not addresses or not all(isinstance(one, str) and one for one in addresses):
            raise ClusterError(f"peers.{name} is {addresses!r}", expected="a list of addresses", remedy="Correct it.", reason="input")
    names = [declared.name_of(one) for one in params["channels"]]
    for name in names:
        if not declared.NAME.match(name) or names.count(name) > 1:
            raise ClusterError(f"channels have the name {name!r}", expected="one name for each, of a-z, 0-9 and '-'", remedy="Correct it.", reason="input")
    for problem in declared.endpoint_faults([{word: value for word, value in one.items() if value is not None} for one in params["endpoints"]]):
        raise ClusterError(problem.what, where=problem.where, expected=problem.expected, remedy="Correct endpoints.", reason="input")


def require_hidden(channel: dict[str, t.Any], url: str, where: str) -> None:
    """Raise :class:`ClusterError` when the secret of a channel would be sent to ``url`` for everybody to read."""
    if url and (what := declared.why_in_clear(url, bool(channel["allow_http"]))):
        raise ClusterError(what, where=where, expected="https", remedy="Give one with https, or allow_http: true for a private address.", reason="input")


def stale_secrets(params: Params) -> list[str]:
    """Return the files of channels that there are no more."""
    names = {declared.name_of(one) for one in params["channels"] if one["type"] in declared.SECRETS}
    folder = os.path.dirname(channels.secret_path(params["secrets_dir"], "x"))
    return [os.path.join(folder, name) for name in files.names(folder) if name not in names]


def require_secrets(params: Params) -> None:
    """Raise :class:`ClusterError` when the secret of a channel is not there, can be read by others, or is an address that shows it to others."""
    for one in params["channels"]:
        if one["type"] in declared.SECRETS:
            path = channels.secret_path(params["secrets_dir"], declared.name_of(one))
            status = os.lstat(path) if os.path.lexists(path) else None
            if status is None or not status.st_size:
                remedy = "Write it there with mode 0600, as the role sweep does."
                lacks = "is empty" if status else "is not there"
                raise ClusterError(f"{path} {lacks}, which holds the {declared.SECRETS[one['type']]} of a channel", remedy=remedy, reason="secret")
            mode = status.st_mode & 0o777
            if mode & 0o077:
                raise ClusterError(f"{path} can be read by others (mode {mode:04o})", remedy=f"chmod 0600 {path}", reason="secret")
            if one["type"] == declared.WEBHOOK:
                require_hidden(one, read_secret(path), path)


def job(params: Params, unit: Unit) -> install.Job:
    """Return how the sweep is set up, and all that it leaves."""
    def remove(path: str) -> tuple[str, t.Callable[[], None]]:
        return f"remove {path}", lambda: os.unlink(path)

    return install.Job(
        unit,
        lambda: wanted(params, unit),
        [sweep_files.LINK, *sweep_files.left(params["state_dir"], params["secrets_dir"])],
        first=[remove(path) for path in stale_secrets(params)] if params["state"] == "present" else [],
        # The service reads its files at each sweep; a timer that runs keeps to what it was started with.
        stale=lambda differing: unit.path in differing,
    )


def test(params: Params) -> dict[str, str]:
    """Have the unit send a test, and return what each channel said. Raises :class:`ClusterError` when one did not take it."""
    folder = sweep_files.folder_of(params["state_dir"])
    request, path = os.path.join(folder, sweep_files.TEST), os.path.join(folder, sweep_files.ANSWERS)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    files.write_whole(request, b"")
    # A sweep that is under way just now is waited for, and has not seen the request: the second start is the test then.
    for _time in range(2):
        # It fails where a channel did not take the test, which its answers say.
        run_tool(["systemctl", "start", sweep_files.SERVICE], unit_text.LONGEST_SECONDS + MARGIN)
        if not os.path.lexists(request):
            break
    try:
        answers = json.loads(files.required_text(path))
    except (OSError, ValueError) as error:
        raise UnknownState(f"the test was not sent: {error}", remedy=f"See on the node: journalctl -u {sweep_files.SERVICE}", reason="test") from error
    refused = {name: said for name, said in answers.items() if said}
    if refused:
        raise ClusterError(
            f"{len(refused)} of {len(answers)} channel(s) did not take the test: {'; '.join(f'{name}: {said}' for name, said in refused.items())}",
            remedy="Correct gb10_sweep_alerts, or what it leads to, and test again.",
            reason="test",
            answers=answers,
        )
    return answers


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    if params["test"] and (params["state"] == "absent" or not params["channels"]):
        why = "state is absent" if params["state"] == "absent" else "there are no channels"
        raise ClusterError(f"test is true, and {why}", remedy="Give channels with state=present, or leave test out.", reason="input")
    unit = sweep_files.unit_of(params["state_dir"], params["roots"]["etc_root"])
    if params["state"] == "present":
        check(params)
        if not module.check_mode:
            unit.require_ours()
            require_secrets(params)
    done = install.bring(module, job(params, unit), "sweep")
    with setup.failures(unit.folder):
        answers = {"answers": test(params)} if params["test"] and not module.check_mode and not install.waits(params, done) else {}
    tested = f"; a test went through {', '.join(answers['answers'])}" if answers else "; a test would be sent" if params["test"] else ""
    return {
        **done,
        **answers,
        "msg": f"{done['msg']}{tested}",
        "sweep": sweep_files.sweep(unit, params["tool_timeout"]),
    }


def main() -> None:
    channel = {
        "name": {"type": "str"},
        "type": {"type": "str", "choices": list(declared.TYPES), "required": True},
        "chat_id": {"type": "str"},
        "api_url": {"type": "str"},
        "allow_http": {"type": "bool"},
        "command": {"type": "list", "elements": "str"},
        "to": {"type": "str"},
        "from": {"type": "str"},
    }
    endpoint = {"name": {"type": "str", "required": True}, "url": {"type": "str", "required": True}, "status": {"type": "raw"}}
    companion = {
        "name": {"type": "str", "required": True},
        "port": {"type": "int", "required": True},
        "health_path": {"type": "str", "required": True},
        "modes": {"type": "list", "elements": "raw"},
    }
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "cluster_name": {"type": "str", "default": "gb10"},
            "node": {"type": "str"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "log_dir": {"type": "path", "default": "/var/log/gb10"},
            "secrets_dir": {"type": "path", "default": "/etc/gb10/secrets", "no_log": False},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "minutes": {"type": "int", "default": 15},
            "repeat_hours": {"type": "int", "default": 24},
            "quiet_minutes": {"type": "int", "default": 120},
            "memory_floor_gib": {"type": "int", "default": 2},
            "start_timeout": {"type": "int", "default": 3600},
            "token_timeout": {"type": "int", "default": 15, "no_log": False},
            "silent_timeout": {"type": "int", "default": 600},
            "channels": {"type": "list", "elements": "dict", "default": [], "options": channel},
            "endpoints": {"type": "list", "elements": "dict", "default": [], "options": endpoint},
            "peers": {"type": "dict", "default": {}},
            "sshd_ports": {"type": "dict", "default": {}},
            "companions": {"type": "list", "elements": "dict", "default": [], "options": companion},
            "ca_file": {"type": "str", "default": ""},
            "test": {"type": "bool", "default": False},
            "tool_timeout": {"type": "int", "default": 30},
            **install.PROGRAM_SPEC,
            "roots": ROOTS,
        },
        required_if=[("state", "present", ["node"])],
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
