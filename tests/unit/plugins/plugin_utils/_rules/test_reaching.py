# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why a node cannot be reached, by the messages of ssh, sudo and Ansible."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import reaching


@pytest.mark.parametrize(
    ("text", "cause", "remedy"),
    [
        ("Failed to connect to the host via ssh: ssh: Could not resolve hostname spark1: Name or service not known", "name", "correct the name"),
        ("ssh: connect to host 192.0.2.1 port 22: Connection timed out", "answer", "ping 192.0.2.1; then ssh me@192.0.2.1"),
        ("ssh: connect to host 192.0.2.1 port 22: Connection refused", "answer", "see that it is on"),
        ("ssh: connect to host 192.0.2.1 port 22: No route to host", "answer", "see that it is on"),
        ("Failed to connect to the host via ssh: me@192.0.2.1: Permission denied (publickey,password).", "account", "ssh-copy-id me@192.0.2.1"),
        ("Host key verification failed.", "host key", "ssh me@192.0.2.1 true"),
        ("Premature end of stream waiting for become success.\n>>> Standard Error\nsudo: a password is required", "sudo", "add -K"),
        ("Missing sudo password", "sudo", "add -K"),
        ("Timeout (12s) waiting for privilege escalation prompt:", "sudo", "add -K"),
        ("me is not in the sudoers file.", "sudoers", "-u NAME"),
        ("Failed to create temporary directory. In some cases, you may have been able to authenticate", "home", "ansible_remote_tmp"),
        ("The module interpreter '/usr/bin/python3' was not found.", "python", "apt-get install -y python3"),
        ("/bin/sh: 1: /usr/bin/python3: not found", "python", "python3"),
        ("something else\nentirely", "unknown", "ssh me@192.0.2.1 python3 --version"),
        ("", "unknown", "python3 --version"),
    ],
)
def test_what_was_said_has_its_cause_and_what_to_type(text, cause, remedy):
    result = reaching.cause_of(text, "spark-1", "192.0.2.1", "me")
    assert result["cause"] == cause and remedy in result["remedy"], result
    assert result["what"] and "\n" not in result["what"] and "{" not in result["remedy"]


def test_only_nodes_that_do_not_answer_are_findings():
    reached = {"reached": True, "what": "", "remedy": "", "cause": ""}
    lost = {"reached": False, **reaching.cause_of("Missing sudo password", "spark-2", "spark-2")}
    (finding,) = reaching.unanswered({"spark-1": reached, "spark-2": lost})
    assert (finding["id"], finding["node"], finding["verdict"]) == ("node.reach", "spark-2", "block")
    assert reaching.failure(reached) == {} == reaching.failure(None)
    assert "-e gb10_become=false" in reaching.failure(lost)["remedy"]
