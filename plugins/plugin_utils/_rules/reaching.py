# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why a node could not be reached, from Ansible's message. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._module import finding

#: Ids of the findings of this file.
IDS = ("node.reach",)

#: Characters of Ansible's own message that are shown.
SHOWN = 300


class Cause(t.NamedTuple):
    """A cause and its remedy; ``{node}`` is the node's name, ``{login}`` the destination for ssh, ``{said}`` the text that ``pattern`` matched."""

    id: str
    pattern: str
    what: str
    remedy: str


#: The first match applies. The patterns match messages of ssh, of sudo, and of Ansible about them.
CAUSES = (
    Cause(
        "sudo",
        r"sudo: a (terminal|password) is required|Missing (sudo|become) password|(waiting|Timeout).{0,40}(become success|privilege escalation)|Incorrect sudo",
        "sudo on the node needs a password, or rejected it",
        "add -K, and give the password of the account on the nodes",
    ),
    Cause("sudoers", r"not in the sudoers|may not run sudo|not allowed to execute", "the account may not use sudo there", "name one that may with -u NAME"),
    Cause("host key", r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED", "its host key is unknown, or changed", "ssh {login} true"),
    Cause(
        "account",
        r"Permission denied \(|Authentication failed|Too many authentication failures|Invalid/incorrect (username/)?password",
        "it refuses the account or its key",
        "ssh-copy-id {login}, or name the account with -u NAME",
    ),
    Cause(
        "home",
        r"Failed to create temporary directory|Could not chdir to home directory",
        "Ansible cannot write its temporary files there: the account has no home, or its disk is full or read-only",
        "give the account a home, or run with -e ansible_remote_tmp=/tmp/.ansible-gb10",
    ),
    Cause(
        "python",
        r"python[\w./-]*: (not found|No such file or directory)|No such file or directory.{0,80}python|No python interpreters|interpreter .{0,60}was not found",
        "it has no Python where Ansible looks for it",
        "ssh {login} sudo apt-get install -y python3, or set ansible_python_interpreter",
    ),
    Cause(
        "name",
        r"Could not resolve hostname|Name or service not known|Temporary failure in name resolution",
        "its name has no address",
        "correct the name, or give {node} an ansible_host",
    ),
    Cause(
        "answer",
        r"(port \d+: )?(Connection (timed out|refused|reset|closed)|No route to host|Network is unreachable|Operation timed out)|banner exchange",
        "it does not answer over ssh ({said})",
        "see that it is on and on the network: ping {address}; then ssh {login} true",
    ),
)


def cause_of(message: str, node: str, address: str, account: str = "") -> dict[str, str]:
    """Return ``cause``, ``what`` and ``remedy`` for a node that could not be reached, from Ansible's message."""
    text = " ".join(message.split())
    login = f"{account}@{address}" if account else address
    for cause in CAUSES:
        if match := re.search(cause.pattern, text, re.IGNORECASE):
            return {"cause": cause.id, "what": cause.what.format(said=match[0]), "remedy": cause.remedy.format(node=node, address=address, login=login)}
    shown = text[:SHOWN] or "no answer"
    return {"cause": "unknown", "what": f"a first task failed there: {shown}", "remedy": f"ssh {login} python3 --version"}


def unanswered(reached: t.Mapping[str, t.Mapping[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Return a finding for each node that could not be reached, from the results of ``node_state_info``."""
    return [
        finding("node.reach", node, "block", f"the node could not be looked at: {answer['what']}.", remedy=answer["remedy"])
        for node, answer in reached.items()
        if not answer["reached"]
    ]


def failure(reach: t.Mapping[str, t.Any] | None) -> dict[str, str]:
    """Return why a node could not be reached (``failure``) and a ``remedy`` for the doctor, which can also use an ordinary account; empty when it was
    reached."""
    if not reach or reach["reached"]:
        return {}
    without = "; or run with -e gb10_become=false for what an ordinary account sees" if reach["cause"] in ("sudo", "sudoers", "unknown") else ""
    return {"failure": reach["what"], "remedy": f"{reach['remedy']}{without}"}
