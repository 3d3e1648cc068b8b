# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The units of the health sweep: set up, tested, or removed. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import json
import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._files import files
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least, require_most
from ansible_collections.gb10.cluster.plugins.module_utils._redact import read_secret
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import channels, declared, sweep_files, unit_text
from ansible_collections.gb10.cluster.plugins.module_utils._systemd import install, python, setup
from ansible_collections.gb10.cluster.plugins.module_utils._systemd.unit import Unit
from ansible_collections.gb10.cluster.plugins.module_utils._tool import run_tool

#: Seconds beyond what a sweep may take, until a test of it counts as lost.
MARGIN = 30

Params = dict[str, t.Any]

#: What each state needs.
NEEDS: dict[str, tuple[str, ...]] = {"present": ("node",), "absent": ()}
CHANNEL: dict[str, t.Any] = {
    "name": {"type": "str"},
    "type": {"type": "str", "choices": list(declared.TYPES), "required": True},
    "chat_id": {"type": "str"},
    "api_url": {"type": "str"},
    "allow_http": {"type": "bool"},
    "command": {"type": "list", "elements": "str"},
    "to": {"type": "str"},
    "from": {"type": "str"},
}
ENDPOINT: dict[str, t.Any] = {"name": {"type": "str", "required": True}, "url": {"type": "str", "required": True}, "status": {"type": "raw"}}
COMPANION: dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "port": {"type": "int", "required": True},
    "health_path": {"type": "str", "required": True},
    "modes": {"type": "list", "elements": "raw"},
}
OPTIONS: dict[str, t.Any] = {
    "node": {"type": "str"},
    "secrets_dir": {"type": "path", "default": "/etc/gb10/secrets", "no_log": False},
    "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
    "minutes": {"type": "int", "default": 15},
    "repeat_hours": {"type": "int", "default": 24},
    "quiet_minutes": {"type": "int", "default": 120},
    "memory_floor_gib": {"type": "int", "default": 2},
    "start_timeout": {"type": "int", "default": 3600},
    "token_timeout": {"type": "int", "default": 15, "no_log": False},
    "silent_timeout": {"type": "int", "default": 600},
    "channels": {"type": "list", "elements": "dict", "default": [], "options": CHANNEL},
    "endpoints": {"type": "list", "elements": "dict", "default": [], "options": ENDPOINT},
    "peers": {"type": "dict", "default": {}},
    "sshd_ports": {"type": "dict", "default": {}},
    "companions": {"type": "list", "elements": "dict", "default": [], "options": COMPANION},
    "ca_file": {"type": "str", "default": ""},
    "test": {"type": "bool", "default": False},
}


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
    require_most(params, {"minutes": 1440, "token_timeout": 120})
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
                remedy = "Write it there with mode 0600, as gb10.cluster.protect --tags sweep does."
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
        answers = {"answers": test(params)} if params["test"] and not module.check_mode and not install.awaits_program(params, done) else {}
    tested = f"; a test went through {', '.join(answers['answers'])}" if answers else "; a test would be sent" if params["test"] else ""
    return {
        **done,
        **answers,
        "msg": f"{done['msg']}{tested}",
        "sweep": sweep_files.sweep(unit, params["tool_timeout"]),
    }
