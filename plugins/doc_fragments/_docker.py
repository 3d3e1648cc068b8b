# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of every module that talks to a node's Docker engine. This fragment is PRIVATE to the collection."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  docker_socket:
    description:
      - Path of the Unix socket of the node's Docker engine.
    type: path
    default: /var/run/docker.sock
  docker_timeout:
    description:
      - Seconds to wait for one answer from the Docker engine.
    type: int
    default: 60
"""
