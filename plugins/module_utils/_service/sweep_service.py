# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The units of the health sweep: set up, tested, or removed. This module util is PRIVATE to the collection."""

from __future__ import annotations

import contextlib
import functools
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

#: Seconds beyond a sweep's own limit, after which a test counts as lost.
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
    """Return the sweep's files by path, in the order in which they are written."""
    service, timer = unit.paths
    return {
        os.path.join(unit.folder, sweep_files.CONFIG): unit_text.config(params).encode(),
        service: unit_text.service(unit.folder, python.of_units(), params).encode(),
        timer: unit_text.timer(params["minutes"]).encode(),
    }


def check(params: Params) -> None:
    """Raise :class:`ClusterError` for invalid options."""
    least = {"minutes": 1, "repeat_hours": 0, "quiet_minutes": 1, "memory_floor_gib": 0, "start_timeout": 1, "token_timeout": 1, "tool_timeout": 1}
    require_least(params, least)
    require_most(params, {"minutes": 1440, "token_timeout": 120})
    names = [declared.name_of(channel) for channel in params["channels"]]
    for where, what, expected in option_faults(params, names):
        raise ClusterError(what, where=where, expected=expected, remedy=f"Correct {where}.", reason="input")
    for index, channel in enumerate(params["channels"]):
        require_hidden(channel, channel.get("api_url") or "", f"channels[{index}].api_url")


def option_faults(params: Params, names: t.Sequence[str]) -> t.Iterator[tuple[str, str, str]]:
    """Yield an option, its fault and what is expected."""
    for index, channel in enumerate(params["channels"]):
        kind = channel["type"]
        for word in declared.NEEDS[kind]:
            if word != declared.SECRETS.get(kind) and not channel.get(word):
                yield f"channels[{index}].{word}", "is missing", f"a value for {kind}"
        if not declared.NAME.match(names[index]) or names.count(names[index]) > 1:
            yield f"channels[{index}].name", f"is {names[index]!r}", "a unique name of a-z, 0-9 and '-'"
    for name, port in params["sshd_ports"].items():
        if not str(port).isdecimal() or int(port) > 65535:
            yield f"sshd_ports.{name}", f"is {port!r}", "0 to 65535"
    for name, addresses in params["peers"].items():
        if not isinstance(addresses, list) or not addresses or not all(isinstance(address, str) and address for address in addresses):
            yield f"peers.{name}", f"is {addresses!r}", "a list of addresses"
    yield from (fault[:3] for fault in declared.endpoint_faults([unit_text.given(endpoint) for endpoint in params["endpoints"]]))


def require_hidden(channel: dict[str, t.Any], url: str, where: str) -> None:
    """Raise :class:`ClusterError` when the secret of a channel would be sent to ``url`` in clear text."""
    if url and (what := declared.why_in_clear(url, bool(channel["allow_http"]))):
        raise ClusterError(what, where=where, expected="https", remedy="Use an https address, or allow_http: true for a private address.", reason="input")


def stale_secrets(params: Params) -> list[str]:
    """Return the secret files of channels that are no longer declared."""
    names = {declared.name_of(channel) for channel in params["channels"] if channel["type"] in declared.SECRETS}
    folder = channels.secret_path(params["secrets_dir"], "")
    return [os.path.join(folder, name) for name in files.names(folder) if name not in names]


def require_secrets(params: Params) -> None:
    """Raise :class:`ClusterError` when the secret of a channel is missing, readable by other accounts, or an address that would expose it."""
    for channel in params["channels"]:
        if kind := declared.SECRETS.get(channel["type"]):
            path = channels.secret_path(params["secrets_dir"], declared.name_of(channel))
            status = os.lstat(path) if os.path.lexists(path) else None
            if status is None or not status.st_size:
                remedy = "Write the file with mode 0600, as gb10.cluster.protect --tags sweep does."
                what = f"{path} {'is empty' if status else 'does not exist'}; it must contain the {kind} of a channel"
                raise ClusterError(what, remedy=remedy, reason="secret")
            if (mode := status.st_mode & 0o777) & 0o077:
                raise ClusterError(f"{path} is readable by other accounts (mode {mode:04o})", remedy=f"chmod 0600 {path}", reason="secret")
            if channel["type"] == declared.WEBHOOK:
                require_hidden(channel, read_secret(path), path)


def job(params: Params, unit: Unit) -> install.Job:
    """Return the installation of the sweep."""
    stale = stale_secrets(params) if params["state"] == "present" else []
    return install.Job(
        unit,
        lambda: wanted(params, unit),
        [sweep_files.LINK, *sweep_files.left(params["state_dir"], params["secrets_dir"])],
        first=[(f"remove {path}", functools.partial(os.unlink, path)) for path in stale],
        # The service reads its files at each sweep; a running timer keeps its old settings.
        stale=lambda differing: unit.path in differing,
    )


def test(params: Params) -> dict[str, str]:
    """Let the unit send a test, and return the answer of each channel. Raises :class:`ClusterError` when it was not delivered to one."""
    folder = sweep_files.folder_of(params["state_dir"])
    request, path = os.path.join(folder, sweep_files.TEST), os.path.join(folder, sweep_files.ANSWERS)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    files.write_whole(request, b"")
    # A sweep that runs already has not read the request: then the second start is the test.
    for _time in range(2):
        # The service fails when a test was not delivered; its answers say so.
        run_tool(["systemctl", "start", sweep_files.SERVICE], unit_text.LONGEST_SECONDS + MARGIN)
        if not os.path.lexists(request):
            break
    try:
        answers = json.loads(files.required_text(path))
    except (OSError, ValueError) as error:
        raise UnknownState(f"the test was not sent: {error}", remedy=f"Run on the node: journalctl -u {sweep_files.SERVICE}", reason="test") from error
    if refused := [f"{name}: {why}" for name, why in answers.items() if why]:
        raise ClusterError(
            f"the test was not delivered to {len(refused)} of {len(answers)} channel(s): {'; '.join(refused)}",
            remedy="Correct gb10_sweep_alerts, or the service that it names, and test again.",
            reason="test",
            answers=answers,
        )
    return answers


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    if params["test"] and (params["state"] == "absent" or not params["channels"]):
        why = "state is absent" if params["state"] == "absent" else "there are no channels"
        raise ClusterError(f"test is true, but {why}", remedy="Set channels with state=present, or remove test.", reason="input")
    unit = sweep_files.unit_of(params["state_dir"], params["roots"]["etc_root"])
    if params["state"] == "present":
        check(params)
        if not module.check_mode:
            unit.require_ours()
            require_secrets(params)
    done = install.bring(module, job(params, unit), "sweep")
    with setup.failures(unit.folder):
        answers = {"answers": test(params)} if params["test"] and not module.check_mode and not install.awaits_program(params, done) else {}
    tested = f"; a test was delivered to {', '.join(answers['answers'])}" if answers else "; a test would be sent" if params["test"] else ""
    return {
        **done,
        **answers,
        "msg": f"{done['msg']}{tested}",
        "sweep": sweep_files.sweep(unit, params["tool_timeout"]),
    }
