#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: lease_command
short_description: Run a command on the controller while the nodes are leased to it (internal)
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Runs O(command) on the controller, without a shell, and shows its output line by line. The output is stored in a log there that only its user may read.
  - The task runs on all nodes of the lease at once. Each instance renews the lease of its own node (M(gb10.cluster.node_service)) until the command has ended.
  - "The command's environment contains E(GB10_MODE), E(GB10_CLUSTER), E(GB10_ENDPOINT), E(GB10_MODEL), E(OPENAI_BASE_URL), and E(GB10_API_KEY_FILE), a
    file of mode 0600 with the API's key, which is deleted with the task. E(GB10_SERVICES_FILE) is a JSON file that has C(endpoint), C(model) and
    C(api_key_file) of each cluster by its name. The variables describe the first one."
  - Each engine must answer this controller before the command starts.
  - If the run is interrupted, or its process is killed, the instances end the command and give the lease up, so that the nodes end it. If the lease of
    one node is over, because the node was not reached for O(lost_seconds) or was rebooted, they end the command, give up those of the others, and fail.
  - A command that fails does not fail the task, so that a play can first restore the nodes. See RV(exit_code).
extends_documentation_fragment:
  - gb10.cluster._attributes.internal
attributes:
  action:
    description: Runs on the controller, and asks the nodes for their keys and leases.
    support: full
  check_mode:
    support: full
    details:
      - Runs nothing.
  diff_mode:
    support: none
options:
  command:
    description:
      - The program and its arguments.
    type: list
    elements: str
    required: true
  mode:
    description:
      - The mode that is up for it.
    type: str
    required: true
  clusters:
    description:
      - Names of the clusters of the mode.
    type: list
    elements: str
    required: true
  nodes:
    description:
      - The nodes on which this task runs, the same on each. The instance of the first one runs the command.
    type: list
    elements: str
    required: true
  engines:
    description:
      - What this node's units report about their engines (RV(gb10.cluster.node_state_info#module:engines)).
    type: list
    elements: dict
    required: true
  address:
    description:
      - The controller's address for this node, for an engine that listens on all addresses.
    type: str
    required: true
  secrets_dir:
    description:
      - Directory on the node for the clusters' secrets.
    type: path
    default: /etc/gb10/secrets
  has_key:
    description:
      - Whether the engines require a key.
    type: bool
    default: true
  beside:
    description:
      - A file on the controller. The log is written to its directory, as C(CLUSTER-lease-TIME.log).
    type: path
    required: true
  cluster_name:
    description:
      - Name of the cluster, for the log.
    type: str
    default: gb10
  limit_seconds:
    description:
      - Maximum seconds for the command. After that it gets SIGTERM, and SIGKILL 30 s later. V(0) sets no limit.
    type: int
    default: 86400
  lost_seconds:
    description:
      - The value of the lease (O(gb10.cluster.node_service#module:lease.lost_seconds)). It is renewed every fifth of that, and at least every 30 s.
    type: int
    default: 300
  lease_id:
    description:
      - Id of the lease. With an empty value nothing is renewed.
    type: str
    default: ""
  state_dir:
    description:
      - Directory on the node for the state of the collection's clusters.
    type: path
    default: /var/lib/gb10
  roots:
    description:
      - As O(gb10.cluster.node_service#module:roots).
    type: dict
    default: {}
seealso:
  - module: gb10.cluster.node_service
"""

EXAMPLES = r"""
- name: Run the judges
  gb10.cluster.lease_command:
    command: [./judge.sh, --turns, "500"]
    mode: cluster
    clusters: [gb10]
    nodes: "{{ ansible_play_hosts }}"
    engines: "{{ seen['engines'] }}"
    address: "{{ ansible_host }}"
    beside: "{{ __gb10_records }}-report.json"
    lease_id: "{{ mode_lock['lock']['id'] }}"
  become: true
  register: ended
"""

RETURN = r"""
exit_code:
  description: Exit code of the command, 128 plus the signal's number if a signal ended it.
  returned: on the first node, when it ended
  type: int
  sample: 0
limited:
  description: Whether it was ended at O(limit_seconds).
  returned: on the first node, when it ended
  type: bool
  sample: false
seconds:
  description: How long it ran.
  returned: on the first node, when it ended
  type: float
  sample: 5230.4
log:
  description: The file on the controller with its complete output.
  returned: on the first node, when it ended
  type: str
  sample: /home/ada/.cache/gb10/gb10-lease-20261124T070000Z.log
tail:
  description: The last 20 lines of the output.
  returned: on the first node, when it ended
  type: list
  elements: str
  sample: ["500 turns judged"]
lost:
  description: Whether the task failed because the lease was lost.
  returned: when the task failed
  type: bool
  sample: false
"""
