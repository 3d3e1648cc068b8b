#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: download_watch
short_description: Wait for a model's download that runs in a container (internal)
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Waits until the download container of the role C(model) has ended, and returns its program's output. It regularly prints a line with the downloaded
    amount, the rate, and the remaining time.
  - It changes nothing. The container is left unchanged, running or not.
  - A refusal by the hub, and a program that ended without a message, are failures with a remedy.
extends_documentation_fragment:
  - gb10.cluster._attributes.internal
  - gb10.cluster._attributes.info_module
  - gb10.cluster._docker
options:
  container:
    description:
      - The container, by its id or name.
    type: str
    required: true
  cluster_name:
    description:
      - Name of the cluster whose download it is.
    type: str
    default: gb10
  repositories:
    description:
      - The repositories being downloaded, for messages.
    type: list
    elements: str
    required: true
  timeout:
    description:
      - Seconds after which a download that still runs is a failure, from 1.
    type: int
    default: 14400
  state_dir:
    description:
      - Directory on the node for the state of the collection's clusters. It contains the download's progress while it is watched.
    type: path
    default: /var/lib/gb10
seealso:
  - module: gb10.cluster.model_info
  - module: gb10.cluster.model_copy
"""

EXAMPLES = r"""
- name: Wait for the download
  gb10.cluster.download_watch:
    container: gb10-gb10-download
    repositories: [nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4]
  become: true
"""

RETURN = r"""
seconds:
  description: Seconds that the program worked, as it reports.
  returned: success
  type: float
  sample: 1312.4
bytes:
  description: Downloaded bytes of large files, without those left by an earlier run.
  returned: success
  type: int
  sample: 80371298048
container:
  description: As in O(container).
  returned: always
  type: str
  sample: 9b90461c92071f0c3f3d4b7f2c5fb0c5b7de7f2d4f7d8e9a0b1c2d3e4f506172
exit_code:
  description: How the program ended.
  returned: success
  type: int
  sample: 0
"""

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import EngineApi, NotFound
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, UnknownState, WaitTimeout
from ansible_collections.gb10.cluster.plugins.module_utils._files.copy_job import Note, Rate, note_path
from ansible_collections.gb10.cluster.plugins.module_utils._model import downloading
from ansible_collections.gb10.cluster.plugins.module_utils._module import require_least, run
from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

#: Seconds between two checks of the container.
LOOK_SECONDS = 1.0

AGAIN = "Run again, it goes on with what came"


def state_of(api: EngineApi, name: str) -> dict[str, t.Any]:
    """Return the container's state from Docker. Raises :class:`ClusterError` when the container does not exist or Docker does not report whether it runs."""
    try:
        state = api.inspect(name).get("State")
    except NotFound as error:
        raise ClusterError(f"there is no container {name}: it was removed from outside", remedy=f"{AGAIN}.", reason="absent") from error
    if not isinstance(state, dict) or not isinstance(state.get("Running"), bool):
        raise UnknownState(f"the Docker engine does not say whether {name} runs", remedy="See: docker inspect.", raw=str(state)[:2000])
    return state


def wait(api: EngineApi, name: str, timeout: int, note: t.Callable[[str], None]) -> dict[str, t.Any]:
    """Wait until the container has ended, and return its last state. Raises :class:`WaitTimeout`."""
    rate, last = Rate(), ""
    for _elapsed in clock(timeout, LOOK_SECONDS):
        state = state_of(api, name)
        if not state["Running"]:
            return state
        seen = downloading.progress(api.logs(name, tail=5))
        if seen:
            last = rate.text(time.monotonic(), *seen)
            note(last)
    raise WaitTimeout(
        f"the download did not end within {timeout} s; last seen: {last or 'nothing'}",
        remedy=f"{AGAIN}; raise gb10_transfer_timeout for a slow line.",
        reason="timeout",
    )


def outcome(state: dict[str, t.Any], output: str) -> dict[str, t.Any]:
    """Return the result in the output of a download that has ended. Raises :class:`ClusterError` when the download was refused or printed no result."""
    answer = downloading.answer(output)
    if answer is None:
        last = (output.strip().splitlines() or ["it was ended from outside"])[-1][:500]
        raise ClusterError(
            f"its program ended with exit code {state.get('ExitCode')}: {last}",
            remedy=f"{AGAIN}; check the node's way to the hub.",
            reason="ended",
            raw=output[-2000:],
        )
    refused = answer["failed"]
    if refused:
        raise ClusterError(f"{refused['what']} ({refused['where']})", expected=refused["expected"], remedy=refused["remedy"], reason="refused")
    return answer


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    require_least(params, {"timeout": 1})
    api, container = EngineApi(params["docker_socket"], params["docker_timeout"]), params["container"]
    what = " and ".join(params["repositories"])
    note = Note(note_path(params["state_dir"], downloading.KIND, params["cluster_name"]))
    try:
        state = wait(api, container, params["timeout"], note)
        answer = outcome(state, api.logs(container, tail=50))
    except ClusterError as error:
        words = {"remedy": error.remedy, "reason": error.reason, **error.details}
        raise type(error)(f"{what} could not be downloaded: {error}", container=container, **words) from error
    finally:
        note.remove()
    return {
        "container": container,
        "seconds": answer["seconds"],
        "bytes": answer["bytes"],
        "exit_code": state.get("ExitCode"),
        "msg": f"{what} downloaded, {answer['bytes'] / 1e6:.1f} MB in {answer['seconds']} s",
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "container": {"type": "str", "required": True},
            "cluster_name": {"type": "str", "default": "gb10"},
            "repositories": {"type": "list", "elements": "str", "required": True},
            "timeout": {"type": "int", "default": downloading.TIMEOUT},
            "state_dir": {"type": "path", "default": downloading.STATE_DIR},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    run(module, work)


if __name__ == "__main__":
    main()
