#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_secrets
short_description: Manage a cluster's secrets on a node, as files that only root can read
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Creates the directory of a cluster's secrets, and in it the requested files C(ray_token), C(recover_key) and C(api_key).
  - A generated secret stays. A given secret replaces another, but never an API key that a container of the cluster uses.
  - No secret is in a result, a difference or a message.
  - If O(secrets_dir) differs from the usual directory, a link there points to it. Through that link every module of the collection finds the secrets
    that must not leave the node, independent of its options.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._docker
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Shows which files and directories are created or written, not their content.
options:
  cluster_name:
    description:
      - Name of the cluster.
    type: str
    default: gb10
  secrets_dir:
    description:
      - Directory for the secrets of clusters on the node. It gets mode C(0700), and so does the cluster's directory below it.
    type: path
    default: /etc/gb10/secrets
  make:
    description:
      - Secrets to generate with 43 random characters if the node has none, or an empty one.
    type: list
    elements: str
    choices: [ray_token, recover_key, api_key]
    default: []
  shared:
    description:
      - Secrets for a node that did not generate them, by name. C(ray_token) is the token of the cluster's Ray, C(recover_key) the key with which the nodes
        sign the state of their recovery for each other.
    type: dict
    default: {}
  api_key:
    description:
      - The API key to set for the cluster.
    type: str
"""

EXAMPLES = r"""
- name: Generate the secrets of the head
  gb10.cluster.cluster_secrets:
    make: [ray_token, api_key]
  become: true

- name: Set your own API key
  gb10.cluster.cluster_secrets:
    api_key: "{{ lookup('ansible.builtin.file', 'api_key') }}"
  become: true
"""

RETURN = r"""
ray_token_digest:
  description:
    - SHA-256 of the Ray token, for comparing nodes. Null if there is none.
    - It does not reveal the token, because the token is random. There is no digest of the API key, which a person may have chosen.
  returned: success
  type: str
  sample: 0d1ce3d8c2a1f7a94c9b1f1f5b0d6a4d9e0d0f6b1c9d5e8a7f3b2c1d0e9f8a7b
recover_key_digest:
  description: SHA-256 of the recovery's key, for comparing nodes. Null if there is none.
  returned: success
  type: str
  sample: 9e0d0f6b1c9d5e8a7f3b2c1d0e9f8a7b0d1ce3d8c2a1f7a94c9b1f1f5b0d6a4d
"""

import hashlib
import os
import secrets
import stat
import string
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi, find_node_container
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, file_error
from ansible_collections.gb10.cluster.plugins.module_utils._files.files import write_link, write_whole
from ansible_collections.gb10.cluster.plugins.module_utils._module import run
from ansible_collections.gb10.cluster.plugins.module_utils._redact import SECRETS_DIR
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

SHARED = ("ray_token", "recover_key")
NAMES = (*SHARED, "api_key")
ALPHABET = string.ascii_letters + string.digits
LENGTH = 43
#: A file with only these bytes counts as empty.
BLANK = b"\0 \t\r\n"


#: Prefix of the name of a link in the default directory to a cluster's secrets elsewhere. Names of clusters have no capitals.
LINK = "ELSEWHERE-"


class Plan(t.NamedTuple):
    """The steps: directories to create or to give their mode, secrets to generate, secrets to write, and links (path → target)."""

    directories: list[str]
    make: list[str]
    write: list[str]
    links: dict[str, str]

    def changes(self) -> dict[str, str]:
        """Return the changes for the diff."""
        return {**dict.fromkeys(self.directories, "0700"), **dict.fromkeys(self.make, "made"), **dict.fromkeys(self.write, "written"), **self.links}

    def actions(self, place: str) -> list[str]:
        """Return each step as a text."""
        made = [f"make {os.path.join(place, name)}" for name in self.make]
        written = [f"write {os.path.join(place, name)}" for name in self.write]
        return [*(f"make directory {path}" for path in self.directories), *made, *written, *(f"link {path} to {to}" for path, to in self.links.items())]


def plan(
    modes: dict[str, int | None], current: dict[str, bytes | None], make: t.Sequence[str], given: dict[str, bytes], links: dict[str, tuple[str | None, str]]
) -> Plan:
    """Return the steps, from the directories' modes, the present secrets, and each link's present and wanted target. Only an absent secret is generated."""
    return Plan(
        directories=[path for path, mode in modes.items() if mode != 0o700],
        make=[name for name in make if current[name] is None and name not in given],
        write=[name for name, content in given.items() if current[name] != content],
        links={path: wanted for path, (target, wanted) in links.items() if target != wanted},
    )


def read(path: str) -> bytes | None:
    """Return a secret, None when there is none. An empty file counts as none, because a power cut can leave one. Raises OSError."""
    try:
        with open(path, "rb") as stream:
            content = stream.read()
        return content if content.strip(BLANK) else None
    except FileNotFoundError:
        return None


def mode_of(path: str) -> int | None:
    """Return the mode of a directory, None when there is none. Raises OSError."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        return None


def target_of(path: str) -> str | None:
    """Return the target of a link, None when it does not exist. Raises OSError, also when the path is not a link."""
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return None


def require_no_container(params: dict[str, t.Any]) -> None:
    """Raise :class:`ClusterError` when a container uses the present key. It has the file mounted, and its engine read the key at its start."""
    container = find_node_container(EngineApi(params["docker_socket"], params["docker_timeout"]), params["cluster_name"], "head")
    if container:
        raise ClusterError(
            f"The API key that was given (gb10_api_key_file) is another one than the cluster's, and {container['Name'].lstrip('/')} has that one.",
            remedy="take the cluster down first (the playbook teardown), or leave gb10_api_key_file out to keep its key.",
        )


def act(steps: Plan, place: str, given: dict[str, bytes]) -> None:
    """Carry out the steps. Raises OSError."""
    for path in steps.directories:
        os.makedirs(path, mode=0o700, exist_ok=True)
        os.chmod(path, 0o700)
    for name in steps.make:
        write_whole(os.path.join(place, name), "".join(secrets.choice(ALPHABET) for dummy in range(LENGTH)).encode())
    for name in steps.write:
        write_whole(os.path.join(place, name), given[name])
    for path, target in steps.links.items():
        write_link(path, target)


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    place = os.path.join(params["secrets_dir"], params["cluster_name"])
    given = {name: text.encode() for name, text in {**params["shared"], "api_key": params["api_key"]}.items() if name in NAMES and text}
    try:
        current = {name: read(os.path.join(place, name)) for name in NAMES}
        elsewhere = os.path.normpath(params["secrets_dir"]) != SECRETS_DIR
        modes = {path: mode_of(path) for path in (*([SECRETS_DIR] if elsewhere else []), params["secrets_dir"], place)}
        link = os.path.join(SECRETS_DIR, LINK + params["cluster_name"])
        links = {link: (target_of(link), place)} if elsewhere else {}
        steps = plan(modes, current, params["make"], given, links)
        there = {name: "absent" if content is None else "there" for name, content in current.items()}
        if "api_key" in steps.write and current["api_key"] is not None:
            require_no_container(params)
        if not module.check_mode:
            act(steps, place, given)
            current = {name: read(os.path.join(place, name)) for name in NAMES}
    except OSError as error:
        raise file_error(error, place, BECOME, "permission") from error
    actions = steps.actions(place)
    before = {**{path: "absent" if mode is None else f"{mode:04o}" for path, mode in modes.items()}, **{name: there[name] for name in NAMES}}
    before.update({path: target or "absent" for path, (target, _wanted) in links.items()})
    return {
        "changed": bool(actions),
        "actions": actions,
        "msg": "; ".join(actions) or "the secrets are there",
        **{f"{name}_digest": hashlib.sha256(content).hexdigest() if (content := current[name]) is not None else None for name in SHARED},
        "diff": {"before": before, "after": {**before, **steps.changes()}},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "cluster_name": {"type": "str", "default": "gb10"},
            "secrets_dir": {"type": "path", "default": "/etc/gb10/secrets", "no_log": False},
            "make": {"type": "list", "elements": "str", "choices": list(NAMES), "default": [], "no_log": False},
            "shared": {"type": "dict", "default": {}, "no_log": True},
            "api_key": {"type": "str", "no_log": True},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
