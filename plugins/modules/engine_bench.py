#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_bench
short_description: Measure a live engine once with its own client
version_added: 0.2.0
author: gb10.cluster contributors (@gb10-cluster)
description:
  - Runs C(vllm bench serve) in a container of the node image, without a GPU, against a live engine, and returns its figures.
  - Refuses while the engine has requests, and if it does not report whether it has any. Other clients' requests that were answered meanwhile are counted in
    RV(foreign_requests).
  - The prompts are new in each run, so that no prefix cache has them. Every answer has the same length.
  - The container is removed afterwards. If the play was interrupted, it ends automatically after O(timeout).
  - The API's key reaches the client as a file. It is not in any argument, container configuration or log.
  - With O(api_key_file) the client gets the key only if the listener at O(url) is the engine's container on this host. With O(api_key) this host cannot
    verify that, so check the node right before (RV(gb10.cluster.vllm_serve_info#module:key_withheld)).
notes:
  - Nothing on the node is changed, so RV(ignore:changed) stays false. The engine does work, though.
  - Runs on any host with Docker, the image and the model's tokenizer.
extends_documentation_fragment:
  - gb10.cluster._attributes
  - gb10.cluster._docker
  - gb10.cluster._repositories
attributes:
  check_mode:
    support: full
    details:
      - Sends nothing, and returns no figures.
  diff_mode:
    support: none
options:
  image:
    description:
      - Image with the client, a reference or an id. It must be on this host.
    type: str
    required: true
  url:
    description:
      - URL of the engine's API, such as V(http://192.168.100.11:8000).
    type: str
    required: true
  model:
    description:
      - Name under which the API serves the model.
    type: str
    required: true
  tokenizer:
    description:
      - Directory of the model's tokenizer in the container, where the hub cache's C(hub) is C(/root/.cache/huggingface/hub).
    type: str
    required: true
  hf_home:
    description:
      - Hub cache on this host. Only its C(hub) is mounted, read-only.
    type: path
    required: true
  mounts:
    description:
      - Additional directories of this host to mount, each with C(source) and C(target), for a model in a plain directory. They are read-only.
    type: list
    elements: dict
    default: []
  trust_remote_code:
    description:
      - Let the tokenizer run code of the model's repository, as its engine does. The code of O(repositories) is first compared, as at a start of the
        engine, with the hub's ids and with the records on this host.
    type: bool
    default: false
  api_key_file:
    description:
      - File on this host with the API's key.
      - Mutually exclusive with O(api_key).
    type: path
  api_key:
    description:
      - The API's key, on a host that has no file with it. It is written to a file of mode 0600 while the client runs.
    type: str
  workload:
    description:
      - Name of the workload, for the result.
    type: str
    required: true
  concurrency:
    description:
      - Requests at once, 1 or more. The same number is sent once before, and not measured.
    type: int
    required: true
  prompts:
    description:
      - Number of measured requests, 1 or more.
    type: int
    required: true
  input_len:
    description:
      - Tokens of each prompt of random words. Has no effect with O(texts).
    type: int
    default: 1024
  output_len:
    description:
      - Tokens of each answer, 2 or more.
    type: int
    default: 256
  texts:
    description:
      - Prompts to send, one after the other and from the start again, instead of random words. Each is sent in the model's own chat template.
    type: list
    elements: str
    default: []
  timeout:
    description:
      - Maximum seconds for everything.
    type: int
    default: 600
  probe_timeout:
    description:
      - Seconds to wait for the engine's metrics.
    type: int
    default: 10
  memory_mb:
    description:
      - Maximum memory of the client's container, in MiB. On a node of the cluster it shares the memory with the engine.
    type: int
    default: 6144
  cluster_name:
    description:
      - Name of the cluster whose engine gets the key of O(api_key_file).
    type: str
    default: gb10
    version_added: 0.2.0
  state_dir:
    description:
      - Directory with the known facts about images, and the state of the cluster. An unknown image is asked.
    type: path
    default: /var/lib/gb10
  log_dir:
    description:
      - Directory on this host for the logs of the collection's clusters.
    type: path
    default: /var/log/gb10
    version_added: 0.2.0
seealso:
  - module: gb10.cluster.node_samples_info
"""

EXAMPLES = r"""
- name: Measure eight requests at once
  gb10.cluster.engine_bench:
    image: local/vllm-ray:26.05.post1
    url: http://192.168.100.11:8000
    model: nvidia/nemotron-3-super
    tokenizer: /root/.cache/huggingface/hub/models--nvidia--x/snapshots/0123456789abcdef0123456789abcdef01234567
    hf_home: /var/lib/gb10/huggingface
    api_key_file: /etc/gb10/secrets/gb10/api_key
    workload: random
    concurrency: 8
    prompts: 32
  become: true
"""

RETURN = r"""
case:
  description: The parameters of the case.
  returned: success
  type: dict
  sample: {"workload": "random", "concurrency": 8, "prompts": 32, "input_len": 1024, "output_len": 256}
figures:
  description: The figures that the client measured. Empty in check mode.
  returned: success
  type: dict
  sample: {"duration_s": 101.2, "requests_s": 0.316, "output_tok_s": 80.9, "total_tok_s": 404.7, "input_tokens": 32768.0, "output_tokens": 8192.0,
           "ttft_mean_ms": 1810.1, "ttft_p50_ms": 1640.3, "ttft_p90_ms": 2604.6, "ttft_p99_ms": 3011.9, "tpot_mean_ms": 92.1, "tpot_p50_ms": 92.4,
           "tpot_p90_ms": 95.0, "tpot_p99_ms": 96.2, "itl_mean_ms": 92.0, "itl_p50_ms": 89.7, "itl_p90_ms": 97.1, "itl_p99_ms": 180.4}
acceptance_length:
  description: Average tokens per step of an engine with a drafter. Null without one.
  returned: success
  type: float
  sample: 2.31
foreign_requests:
  description: Other clients' requests that were answered meanwhile. Null if the engine does not count them.
  returned: success
  type: int
  sample: 0
began:
  description: When the client was started, in seconds since the epoch by this host's clock.
  returned: success
  type: float
  sample: 1795444323.1
ended:
  description: When it had ended.
  returned: success
  type: float
  sample: 1795444430.9
image_id:
  description: Id of the client's image.
  returned: success
  type: str
  sample: "sha256:5f0c"
"""

import contextlib
import inspect
import json
import os
import random
import shutil
import tempfile
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils import _module
from ansible_collections.gb10.cluster.plugins.module_utils._docker.engine_api import LABEL_OWNER, LABEL_ROLE, OWNER, EngineApi
from ansible_collections.gb10.cluster.plugins.module_utils._engine import api_key, bench, bench_client, engine_state
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._image import image_contract
from ansible_collections.gb10.cluster.plugins.module_utils._leftovers.prune import PROBE
from ansible_collections.gb10.cluster.plugins.module_utils._model import model_code, model_files
from ansible_collections.gb10.cluster.plugins.module_utils._node import obstacles
from ansible_collections.gb10.cluster.plugins.module_utils._node.fields import HF_HOME_TARGET

LEAST = {"concurrency": 1, "prompts": 1, "input_len": 1, "output_len": 2, "timeout": 1, "probe_timeout": 1, "memory_mb": 512}
CASE = ("workload", "concurrency", "prompts", "input_len", "output_len")
#: Without downloads and without a GPU.
ENV = {**image_contract.NO_GPU, "HF_HOME": HF_HOME_TARGET, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
#: Number of last lines that an error shows of a failed client, and characters of each.
LINES = 15
LINE = 300


@contextlib.contextmanager
def key_file(params: dict[str, t.Any]) -> t.Iterator[str]:
    """Provide the path of a file with the API's key that only root can read, empty without a key. Raises :class:`ClusterError`."""
    if not params["api_key"]:
        yield params["api_key_file"] or ""
        return
    directory = tempfile.mkdtemp(prefix="gb10-bench-")
    try:
        path = os.path.join(directory, "api_key")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
            stream.write(params["api_key"])
        yield path
    except OSError as error:
        raise ClusterError(f"the API's key cannot be written to {directory}: {error.strerror}", remedy="Free space there.") from error
    finally:
        shutil.rmtree(directory)


def key_of(params: dict[str, t.Any], path: str) -> api_key.ApiKey:
    """Return the API's key. A key from a file on this host is only for this host's engine. Raises :class:`ClusterError`."""
    if params["api_key"]:
        return api_key.KeyForElsewhere(params["api_key"])
    paths = engine_state.EnginePaths.of(params["state_dir"], params["log_dir"], params["cluster_name"])
    return api_key.of(engine_state.engine_state(paths) if path else {"pid": None}, path)


def mounts(params: dict[str, t.Any], key: str) -> list[dict[str, t.Any]]:
    """Return the bind mounts of the client's container."""
    pairs = [(os.path.join(params["hf_home"], "hub"), f"{HF_HOME_TARGET}/hub"), *((mount["source"], mount["target"]) for mount in params["mounts"])]
    pairs += [(key, bench_client.KEY_PATH)] if key else []
    return [{"Type": "bind", "Source": source, "Target": target, "ReadOnly": True} for source, target in pairs]


def explained(output: str, rc: int, timeout: float) -> ClusterError:
    """Return the error for a client that ended without a result."""
    lines = [line[-LINE:] for line in output.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if line[:1].isalpha()), "it said nothing")
    # The exit codes for SIGALRM, and below for a container that reached its memory limit.
    if rc in (142, 14):
        return ClusterError(f"vllm bench serve was not done within {timeout:g} s", remedy="Give it more: -e gb10_bench_minutes=N.", reason="time over")
    if rc == 137:
        return ClusterError("vllm bench serve was killed, mostly for its memory", remedy="Raise memory_mb of engine_bench.", reason="killed")
    remedy = "See the lines of the client in raw."
    if "tokenizer" in output.lower() and ("OSError" in output or "offline" in output.lower()):
        remedy = "The host needs the model's tokenizer in its hub cache: copy the snapshot's files without the weights to gb10_hf_home there."
    return ClusterError(f"vllm bench serve ended with status {rc}: {last}", remedy=remedy, reason="client failed", raw="\n".join(lines[-LINES:]))


def measured(params: dict[str, t.Any], api: EngineApi, image: dict[str, t.Any], key: str, hub: list[int], seconds: int) -> t.Any:
    """Run the client and return its unchanged result. Raises :class:`ClusterError`."""
    seed = random.SystemRandom().randrange(1, 2**31)
    order = {
        "arguments": bench.arguments(params, {**params, "seed": seed}),
        "optional": bench.optional(params),
        "texts": bench.texts(params, seed),
        "seconds": seconds,
        "hub": hub,
    }
    wrapper = image_contract.wrapper_of(api, image, params["image"], params["state_dir"], 300)
    host = {
        "Memory": params["memory_mb"] * 1024 * 1024,
        # An engine on the same host has priority.
        "CpuShares": 512,
    }
    ran = api.run_throwaway(
        image["Id"],
        [*wrapper, "python3", "-c", inspect.getsource(bench_client), json.dumps(order)],
        labels={LABEL_OWNER: OWNER, LABEL_ROLE: PROBE},
        timeout=seconds + 60,
        network="host",
        env=ENV,
        mounts=mounts(params, key),
        host=host,
    )
    try:
        return image_contract.marked_json(ran.stdout, bench_client.MARK)
    except ValueError:
        raise explained(ran.stdout + ran.stderr, ran.rc, seconds) from None


def work(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    _module.require_least(params, {name: least for name, least in LEAST.items() if name != "timeout"})
    case = {name: params[name] for name in CASE}
    name = f"{case['workload']} at {case['concurrency']}"
    if params["timeout"] < 1:
        raise ClusterError(f"no time is left for {name}", remedy="Give it more: -e gb10_bench_minutes=N.", reason="time over")
    api = EngineApi(params["docker_socket"], params["docker_timeout"])
    image = api.image(params["image"])
    if image is None:
        raise ClusterError(f"this host has no image {params['image']}", remedy="Load it: docker save IMAGE | ssh HOST docker load", reason="image missing")
    hub = obstacles.hub_identity(params["hf_home"])
    if params["trust_remote_code"]:
        model_code.check_repositories(params["state_dir"], params["hf_home"], params["repositories"] or ())
    nothing = {"acceptance_length": None, "foreign_requests": None, "began": 0.0, "ended": 0.0, "image_id": image["Id"]}
    if module.check_mode:
        return {"msg": f"{name} would be measured", "case": case, "figures": {}, **nothing}
    with key_file(params) as path:
        key = key_of(params, path)
        ask = (params["url"], key, params["probe_timeout"])
        bench.require_idle(*ask)
        # The client sends the key as soon as it starts.
        key.require(params["url"], params["probe_timeout"])
        before, began = bench.counters(*ask), time.time()
        result = measured(params, api, image, path, hub, params["timeout"])
        ended, after = time.time(), bench.counters(*ask)
    figures = bench.figures(result, case)
    return {
        "msg": f"{name}: {figures['output_tok_s']:.2f} tokens/s, first token after {figures['ttft_p50_ms']:.0f} ms",
        "case": case,
        "figures": figures,
        **nothing,
        "acceptance_length": bench.acceptance(before, after),
        "foreign_requests": bench.foreign(before, after, case["prompts"] + case["concurrency"]),
        "began": began,
        "ended": ended,
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "str", "required": True},
            "url": {"type": "str", "required": True},
            "model": {"type": "str", "required": True},
            "tokenizer": {"type": "str", "required": True, "no_log": False},
            "hf_home": {"type": "path", "required": True},
            "mounts": {"type": "list", "elements": "dict", "default": []},
            "trust_remote_code": {"type": "bool", "default": False},
            "repositories": model_files.REPOSITORIES,
            "api_key_file": {"type": "path", "no_log": False},
            "api_key": {"type": "str", "no_log": True},
            "workload": {"type": "str", "required": True},
            "concurrency": {"type": "int", "required": True},
            "prompts": {"type": "int", "required": True},
            "input_len": {"type": "int", "default": 1024},
            "output_len": {"type": "int", "default": 256},
            "texts": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 600},
            "probe_timeout": {"type": "int", "default": 10},
            "memory_mb": {"type": "int", "default": 6144},
            "cluster_name": {"type": "str", "default": "gb10"},
            "state_dir": {"type": "path", "default": "/var/lib/gb10"},
            "log_dir": {"type": "path", "default": "/var/log/gb10"},
            "docker_socket": {"type": "path", "default": "/var/run/docker.sock"},
            "docker_timeout": {"type": "int", "default": 60},
        },
        mutually_exclusive=[["api_key", "api_key_file"]],
        supports_check_mode=True,
    )
    _module.run(module, work)


if __name__ == "__main__":
    main()
