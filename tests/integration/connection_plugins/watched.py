# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A connection that goes nowhere and records each attempt to use it."""

from __future__ import annotations

DOCUMENTATION = r"""
name: watched
short_description: Write down every use and refuse it
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - For tests that show that no node is contacted. The file is named by the environment variable GB10_TEST_CONTACTS.
options: {}
"""

import os
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection import ConnectionBase


class Connection(ConnectionBase):
    """Records the host and the operation of every use, and refuses it."""

    transport = "watched"
    has_pipelining = True

    def _refuse(self, what):
        with Path(os.environ["GB10_TEST_CONTACTS"]).open("a", encoding="utf-8") as stream:
            stream.write(f"{self._play_context.remote_addr} {what}\n")
        raise AnsibleConnectionFailure(f"{self._play_context.remote_addr} was contacted")

    def _connect(self):
        self._refuse("connect")

    def exec_command(self, cmd, in_data=None, sudoable=True):
        self._refuse("command")

    def put_file(self, in_path, out_path):
        self._refuse("put")

    def fetch_file(self, in_path, out_path):
        self._refuse("fetch")

    def close(self):
        """Do nothing: no connection is open."""
