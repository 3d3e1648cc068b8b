# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings and passwords as Ansible evaluates them. What follows from them is in plugin_utils/test__inputs.py."""

from __future__ import annotations

import json

import through_ansible


def ask(tmp_path, passwords_of=None, **variables):
    """Run the action for a host with these variables; returns its exit code and all it printed."""
    inventory = tmp_path / "hosts.json"
    inventory.write_text(json.dumps({"all": {"hosts": {"spark-1": {"ansible_connection": "local", **variables}}}}), encoding="utf-8")
    arguments = ["-a", json.dumps({"passwords_of": passwords_of})] if passwords_of else []
    done = through_ansible.run("adhoc", "-i", str(inventory), "spark-1", "-m", "gb10.cluster.inputs_info", *arguments)
    return done.rc, done.out


def test_without_the_settings_it_says_how_to_get_them(tmp_path):
    code, output = ask(tmp_path)
    assert code != 0
    assert "include the role gb10.cluster.gb10 before" in " ".join(output.split())


def test_a_password_that_cannot_be_evaluated_is_named(tmp_path):
    code, output = ask(tmp_path, ["spark-1"], ansible_ssh_private_key_passphrase="{{ no_such_thing }}", ansible_sudo_pass="s3cret")
    assert code != 0, output
    assert "ansible_ssh_private_key_passphrase: can't be evaluated: 'no_such_thing' is undefined" in " ".join(output.replace("''", "'").split())
    assert "s3cret" not in output
