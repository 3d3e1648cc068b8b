# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judges the evaluated settings of one host. This plugin util is PRIVATE to the collection.

The form of each value is in :data:`FORMS`; the functions below judge values together, and with the profile.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import re
import typing as t
from pathlib import Path

from ansible_collections.gb10.cluster.plugins.module_utils._arguments.serve_arguments import TRUST
from ansible_collections.gb10.cluster.plugins.module_utils._companion import declared
from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError, Problem
from ansible_collections.gb10.cluster.plugins.module_utils._lease import modes
from ansible_collections.gb10.cluster.plugins.module_utils._node import fields, ray
from ansible_collections.gb10.cluster.plugins.module_utils._recover import budget
from ansible_collections.gb10.cluster.plugins.module_utils._sweep import declared as sweep
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs.env_values import ENV, SECRET_ENV, SECRET_LIKE, around_guard, build_env, env_of
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs.env_values import looks_secret, off_fabric, per_host_env
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs.forms import ABSOLUTE, RESERVED, Form, are_measures, concurrencies, is_absolute
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs.forms import is_device, is_own_place, is_gpu_choice, is_node_address, is_own_directory
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs.forms import is_ray_version, like, removable, rungs, whole
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs.secrets import SECRET_FILES, credentials, secret_files, unused_key
from ansible_collections.gb10.cluster.plugins.plugin_utils._inputs.settings import Problems, Values, only_if, options, settings, short
from ansible_collections.gb10.cluster.plugins.plugin_utils._plan import cached, declared_claims, planning
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import flags, repositories, validation
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile.form import snake
from ansible_collections.gb10.cluster.plugins.plugin_utils._protect import measures
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import tuning

#: Ids of findings that are made here.
IDS = (
    "input.cluster_name",
    "input.companions",
    "input.control_interface",
    "input.credential",
    "input.env",
    "input.env_per_host",
    "input.env_secret",
    "input.fabric_address",
    "input.fabric_fallback",
    "input.format",
    "input.host_env",
    "input.offline",
    "input.path",
    "input.placeholder",
    "input.plan",
    "input.port",
    "input.port_range",
    "input.range",
    "input.rules",
    "input.same_path",
    "input.same_port",
    "input.secret_file",
    "input.serve_arguments",
    "input.stop_grace",
    "input.sweep",
    "input.tenants",
)

#: Settings that must have one value for the whole cluster: nodes with different values would build half of two clusters.
CLUSTER_WIDE = (
    "gb10_api_key",
    "gb10_api_port",
    "gb10_cluster_group",
    "gb10_cluster_name",
    "gb10_copy_port",
    "gb10_env",
    "gb10_fabric_fallback",
    "gb10_head_host",
    "gb10_image_copy",
    "gb10_kv_cache",
    "gb10_layouts",
    "gb10_lease",
    "gb10_lease_lost_seconds",
    "gb10_lease_seconds",
    "gb10_mode",
    "gb10_model_copy",
    "gb10_profile",
    "gb10_profile_dirs",
    "gb10_profile_switches",
    "gb10_ray_gpus",
    "gb10_ray_port",
    "gb10_ray_port_range",
    "gb10_ray_version",
    "gb10_recover",
    "gb10_serve_arguments",
    "gb10_signature_dirs",
    "gb10_tenants",
    "gb10_worker_hosts",
)

#: The range from which Linux takes ports for outgoing connections (its default).
EPHEMERAL = (32768, 60999)


#: Directories on the nodes. One that also contains files of others would get the collection's owner and mode.
DIRECTORIES = ("gb10_state_dir", "gb10_log_dir", "gb10_secrets_dir", "gb10_hf_home")
#: No other directory may be in these: their content is shown, pruned, or protected as a whole.
UNSHARED_DIRECTORIES = ("gb10_log_dir", "gb10_secrets_dir", "gb10_hf_home")

#: Names of hosts that only occur in examples (RFC 2606, and those of inventories/example).
_PLACEHOLDER = re.compile(r"(\A|\.)(example\.(lan|com|net|org)|example|invalid)\Z")
#: The addresses of the example inventory.
EXAMPLE_API, EXAMPLE_FABRIC = "10.0.0.11", ("192.168.100.1", "192.168.100.2")


def _is_cluster_name(value: t.Any) -> bool:
    return bool(re.match(r"[a-z0-9][a-z0-9_.-]{0,31}\Z", value)) and value not in RESERVED


OWN_DIRECTORY = Form("input.path", is_own_directory, f"{ABSOLUTE} that is not one of the system's directories")
SECRET_PATH = Form(
    "input.path", lambda path: not path or os.path.isabs(os.path.expanduser(path)), "the absolute path of a file on the controller"
)
PORT = whole(1024, 65535, "input.port")
#: Images are copied through the next port, and the nodes' recoveries answer at the one after it.
COPY_PORT = whole(1024, 65533, "input.port")

#: Setting → the form of its value. Ports and other whole numbers that are not here: :func:`form_of`.
FORMS: dict[str, Form] = {
    "gb10_bundle_dir": Form("input.path", lambda path: not path or is_absolute(path.rpartition(":")[2]), f"{ABSOLUTE}, after NODE: if it is not the head's"),
    "gb10_bundle_signers": Form("input.path", lambda path: not path or is_absolute(path), ABSOLUTE),
    "gb10_build_ca_file": Form("input.path", lambda path: not path or is_absolute(path), ABSOLUTE),
    "gb10_cluster_name": Form(
        "input.cluster_name",
        _is_cluster_name,
        "1 to 32 of a-z, 0-9, '_', '.' and '-', a letter or digit first: it becomes part of a container's name and of directories; "
        f"not one of {', '.join(RESERVED)}",
        "choose another gb10_cluster_name",
    ),
    "gb10_bench_concurrency": Form("input.format", concurrencies, "whole numbers from 1 to 1024, with commas between them"),
    "gb10_bench_minutes": whole(1, 480),
    "gb10_bench_tokens": Form("input.format", like(r"[1-9]\d*/([2-9]|[1-9]\d+)\Z"), "tokens of a prompt and of its answer, 2 or more, such as 1024/256"),
    "gb10_container_capabilities": Form(
        "input.format",
        fields.is_confined,
        f"one by which a container stays confined: not {', '.join(fields.UNCONFINED)}",
        "leave it out of gb10_container_capabilities",
        each=True,
    ),
    "gb10_container_devices": Form("input.format", is_device, "a path below /dev, not the memory's", each=True),
    "gb10_container_gpus": Form("input.format", is_gpu_choice, "all, none, or a list of GPU ids"),
    "gb10_copy_port": COPY_PORT,
    "gb10_fabric_address": Form(
        "input.fabric_address",
        is_node_address,
        "the node's IP address on the ConnectX-7 link, or any other of a node alone",
        "set gb10_fabric_address for this host in the inventory",
    ),
    "gb10_fabric_interfaces": Form("input.format", like(r"[^\s/:,=^]{1,15}\Z"), "the name of one interface", each=True),
    "gb10_hf_endpoint": Form("input.format", like(r"\Z|https?://[^\s/]+\S*\Z"), "an address that begins with https:// or http://, or nothing"),
    "gb10_ladder_rungs": Form("input.format", rungs, "whole numbers that grow, with commas between them, or nothing"),
    "gb10_lease_lost_seconds": whole(20, 86400),
    "gb10_import_choices": Form(
        "input.format", {"values", "variant", "features", "without_mods"}.issuperset, "a mapping with values, variant, features or without_mods"
    ),
    "gb10_memlock": Form("input.range", lambda limit: limit == -1 or limit >= 65536, "-1 (unlimited) or 65536 and more, in bytes"),
    "gb10_model_directories": Form("input.path", is_absolute, ABSOLUTE, each=True),
    "gb10_models_remove": Form(
        "input.format", removable, "REPO@REVISION, the revision as 40 hexadecimal digits or 'leftovers', several with commas between them",
        "copy it from the list that the playbook models prints without it",
    ),
    "gb10_mode": Form("input.format", lambda mode: not mode or modes.NAME.match(mode), "cluster, singles, 'off' in quotes, or the name of a layout"),
    # Ray refuses less.
    "gb10_object_store_memory": whole(75 * 1024**2),
    "gb10_plan_concurrency": whole(1),
    "gb10_ray_gpus": whole(1, 16),
    "gb10_ray_version": Form("input.format", is_ray_version, "a version of three numbers from 2.52 on, such as 2.60.0: those before ignore the token"),
    "gb10_protect_measures": Form("input.format", are_measures, f"some of {', '.join(measures.NAMES)}, with commas between them"),
    "gb10_rdma_devices": Form("input.format", like(r"[^\s/:,=^]+\Z"), "the name of one RDMA device, without a port", each=True),
    "gb10_records_dir": Form("input.path", is_own_place, "the absolute path of a directory on the controller"),
    "gb10_recover": Form("input.format", budget.is_act, budget.EXPECTED),
    "gb10_serve_timeout": whole(30),
    "gb10_stall_seconds": whole(1),
    "gb10_sweep_ca_file": Form("input.path", lambda path: not path or is_absolute(path), ABSOLUTE),
    "gb10_sweep_minutes": whole(1, 1440),
    "gb10_shm_size": Form("input.format", like(r"(?i)[1-9]\d*(\.\d+)?[bkmgt]?b?\Z"), "a size as Docker takes it, such as 16g"),
    **dict.fromkeys(DIRECTORIES, OWN_DIRECTORY),
    **dict.fromkeys(SECRET_FILES, SECRET_PATH),
}


def form_of(name: str, option: dict[str, t.Any] | None = None) -> Form | None:
    """Return the form of a setting's value, None where its type is enough."""
    if name in FORMS or (option or settings()[name])["type"] != "int":
        return FORMS.get(name)
    if name.endswith("_port"):
        return PORT
    return whole(1 if name.endswith(("_timeout", "_grace")) else 0)


def wrong_forms(values: Values, spec: dict[str, dict[str, t.Any]] | None = None) -> Problems:
    """Yield problems of values that do not have their form. The default for ``spec`` is all settings."""
    for name, value in values.items():
        option = (spec or settings())[name]
        form = form_of(name, option)
        for entry in value if form and form.each else [value]:
            if form and not form.fits(entry):
                own_place = f"give {name} a directory of its own, such as {option.get('default')}" if form is OWN_DIRECTORY else ""
                shown = "has another form" if option.get("no_log") else f"{'holds' if form.each else 'is'} {_quoted(entry)}"
                measured = None if option.get("no_log") else entry
                yield Problem(form.id, name, shown, form.expected, own_place or form.remedy or f"set {name} to {form.expected}", measured=measured)


def _quoted(value: t.Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{short(value)}'" if isinstance(value, str) else short(value)


# --- relations between values -------------------------------------------------------------------------------------------------


def _ports_of(values: Values) -> dict[str, int]:
    """Return the ports of these settings, and those that follow from gb10_copy_port."""
    ports = {name: value for name, value in values.items() if form_of(name) in (PORT, COPY_PORT)}
    return ports | ({f"gb10_copy_port + {more}": ports["gb10_copy_port"] + more for more in (1, 2)} if "gb10_copy_port" in ports else {})


def _ports(values: Values) -> Problems:
    """Yield problems of ports: no two may be equal, and none may be inside Ray's range."""
    ports = _ports_of(values)
    for (name, port), (other, value) in itertools.combinations(sorted(ports.items(), reverse=True), 2):
        if port == value:
            yield Problem("input.same_port", name, f"is {port}, and so is {other}", "a port of its own", f"choose another {name} or {other}", measured=port)
    given = values.get("gb10_ray_port_range")
    wrong = functools.partial(Problem, "input.port_range")
    try:
        # No port is 0: those that are inside are named below, each with its variable.
        span = ray.parse_port_range(given, 0) if given is not None else None
    except ClusterError as error:
        yield wrong("gb10_ray_port_range", error.what, error.expected, error.remedy, measured=given)
        return
    if span:
        inside = f"lies inside gb10_ray_port_range {span.first}-{span.last}, which Ray's own processes use"
        overlap = f"overlaps {EPHEMERAL[0]}-{EPHEMERAL[1]}, from which Linux takes ports for outgoing connections"
        lower = {"remedy": "choose a range below, such as 20100-20299", "verdict": "warn", "measured": given}
        yield from only_if(
            *(
                (
                    span.first <= port <= span.last,
                    wrong(name, f"{port} {inside}", remedy=f"choose a port outside the range for {name}, or move gb10_ray_port_range", measured=port),
                )
                for name, port in ports.items()
            ),
            (
                span.first <= EPHEMERAL[1] and span.last >= EPHEMERAL[0],
                wrong("gb10_ray_port_range", f"{span.first}-{span.last} {overlap}", **lower),
            ),
        )


def _directories(values: Values) -> Problems:
    """Yield problems of directories on the nodes that have to be separate from each other."""
    wrong = functools.partial(Problem, "input.same_path", expected="a directory of its own")
    paths = {name: os.path.normpath(values[name]) for name in DIRECTORIES if name in values}
    for (name, path), (other, inner) in itertools.permutations(paths.items(), 2):
        if path == inner and name < other:
            yield wrong(name, f"is {path}, and so is {other}", remedy="give each a directory of its own", measured=path)
        elif name in UNSHARED_DIRECTORIES and path != inner and Path(path) in Path(inner).parents:
            yield wrong(other, f"{inner} lies inside {name} ({path})", remedy="give each a directory of its own", measured=inner)
    if {"gb10_state_dir", "gb10_hf_home"} <= set(paths) and "gb10_cluster_name" in values:
        state, hub = Path(paths["gb10_state_dir"], values["gb10_cluster_name"]), Path(paths["gb10_hf_home"])
        if state in (hub, *hub.parents):
            what = f"{hub} lies in the state of the cluster {values['gb10_cluster_name']} ({state})"
            yield wrong("gb10_hf_home", what, remedy="choose another gb10_cluster_name or gb10_hf_home", measured=str(state))


def _control(control: str, interfaces: list[str]) -> Problems:
    """Yield a warning about rendezvous over another link than the fabric: it works where both nodes have it, and is mostly a mistake."""
    if control and interfaces and control not in interfaces:
        what = f"is {short(control)}, which is none of gb10_fabric_interfaces ({', '.join(interfaces)})"
        remedy = "leave it out for the first of them, unless rendezvous is meant to go another way"
        yield Problem("input.control_interface", "gb10_control_interface", what, remedy=remedy, verdict="warn", measured=control)


def _one_cache(kv_cache: str, arguments: dict[str, t.Any]) -> Problems:
    """Yield a problem if the size of the cache is set: then it cannot be taken from a record."""
    stated = next((name for name in arguments if name.replace("-", "_") == "kv_cache_memory_bytes" and arguments[name] is not None), "")
    if kv_cache == "recorded" and stated:
        what = "states the size of the KV cache, and gb10_kv_cache is recorded, which takes it from the memory plan"
        yield Problem("input.serve_arguments", f"gb10_serve_arguments.{stated}", what, remedy="remove it, or set gb10_kv_cache to profile")


def _tenants(tenants: list[t.Any], head: str, workers: list[str]) -> Problems:
    """Yield problems of declared tenants: each has a name and a size, and is on a node of this cluster."""
    faults = declared_claims.tenant_faults(tenants)
    for where, what, expected in faults:
        yield Problem("input.tenants", where, what, expected, "correct gb10_tenants")
    strange = [] if faults else [(index, tenant) for index, tenant in enumerate(tenants) if tenant.get("node") not in (None, head, *workers)]
    for index, tenant in strange:
        what = f"{short(tenant['node'])} is not a node of this cluster, so {short(tenant['name'])} is ignored"
        yield Problem("input.tenants", f"gb10_tenants[{index}].node", what, f"one of {', '.join([head, *workers])}", "correct it", verdict="warn")


def _companions(companions: list[t.Any], layouts: dict[str, t.Any]) -> Problems:
    """Yield problems of companions: each is valid, and none has the name, the port or the unit of another."""
    for fault in declared.faults(companions, map(str, layouts)):
        yield Problem("input.companions", *fault)
    for index, companion in enumerate(companions):
        env = companion.get("env") if isinstance(companion, dict) else None
        if not isinstance(env, dict):
            continue
        where = f"gb10_companions[{index}].env"
        yield from validation.env_problems(env, where, "input.companions", f"correct the variable in {where}")
        for name in map(str, env):
            if name in SECRET_ENV or SECRET_LIKE.search(name):
                yield looks_secret(f"{where}.{name}")


def _companion_ports(values: Values) -> Problems:
    """Yield problems of companions with a port that the cluster needs."""
    ports = _ports_of(values)
    try:
        span = ray.parse_port_range(values["gb10_ray_port_range"], 0) if "gb10_ray_port_range" in values else None
    except ClusterError:
        span = None  # named by _ports
    for fault in declared.port_faults(values.get("gb10_companions", []), ports, (span.first, span.last) if span else None):
        yield Problem("input.companions", *fault)


def _sweep_alerts(alerts: list[t.Any]) -> Problems:
    """Yield problems of the sweep's channels. Their secrets are never shown."""
    for fault in sweep.channel_faults(alerts):
        yield Problem("input.sweep", *fault)


def _sweep_endpoints(endpoints: list[t.Any]) -> Problems:
    for fault in sweep.endpoint_faults(endpoints):
        yield Problem("input.sweep", *fault)


def _sweep_test(state: str, alerts: list[t.Any]) -> Problems:
    """Yield a problem of a test without a channel."""
    what, remedy = "is test, and gb10_sweep_alerts has no channel", "declare where alerts go in gb10_sweep_alerts"
    yield from only_if((state == "test" and not alerts, Problem("input.sweep", "gb10_sweep", what, remedy=remedy)))


#: The settings that a rule needs, in the order of its parameters. A rule is left out when one of them has no usable value.
RULES: tuple[tuple[tuple[str, ...], t.Callable[..., t.Iterable[Problem]]], ...] = (
    (("gb10_api_key", "gb10_api_key_file"), unused_key),
    (("gb10_env",), per_host_env),
    (("gb10_env",), functools.partial(env_of, "gb10_env", ENV)),
    (("gb10_host_env",), functools.partial(env_of, "gb10_host_env", "input.host_env")),
    (("gb10_build_pip_env",), build_env),
    (("gb10_env", "gb10_fabric_fallback"), functools.partial(off_fabric, "gb10_env")),
    (("gb10_host_env", "gb10_fabric_fallback"), functools.partial(off_fabric, "gb10_host_env")),
    (("gb10_env", "gb10_api_key"), functools.partial(around_guard, "gb10_env", ENV)),
    (("gb10_host_env", "gb10_api_key"), functools.partial(around_guard, "gb10_host_env", "input.host_env")),
    (("gb10_control_interface", "gb10_fabric_interfaces"), _control),
    (("gb10_kv_cache", "gb10_serve_arguments"), _one_cache),
    (("gb10_tenants", "gb10_head_host", "gb10_worker_hosts"), _tenants),
    (("gb10_companions", "gb10_layouts"), _companions),
    (("gb10_sweep_alerts",), _sweep_alerts),
    (("gb10_sweep_endpoints",), _sweep_endpoints),
    (("gb10_sweep", "gb10_sweep_alerts"), _sweep_test),
    (("gb10_rules",), functools.partial(tuning.tuning_problems, where="gb10_rules", id="input.rules")),
)


def judge(values: Values) -> Problems:
    """Yield problems between values that are right in themselves."""
    for wanted, rule in RULES:
        if all(name in values for name in wanted):
            yield from rule(*(values[name] for name in wanted))
    yield from itertools.chain(_ports(values), _companion_ports(values), _directories(values), secret_files(values))


def with_profile(profile: dict[str, t.Any], values: Values) -> Problems:
    """Yield problems of the settings together with the profile, and of the profile's own variables."""
    where = f"profile {profile['id']}: env.shared"
    yield from env_of(where, ENV, profile["env"]["shared"])
    yield from credentials(profile, f"profile {profile['id']}")
    yield from off_fabric(where, profile["env"]["shared"], str(values.get("gb10_fabric_fallback", "")))
    yield from around_guard(where, ENV, profile["env"]["shared"], str(values.get("gb10_api_key", "")))
    arguments = values.get("gb10_serve_arguments", {})
    yield from of_engine(profile, arguments)
    readable = "is a secret; a command line can be read by everybody on the node"
    for name, value in arguments.items():
        wrong = functools.partial(Problem, "input.serve_arguments", f"gb10_serve_arguments.{name}")
        yield from only_if(
            (isinstance(value, str) and "\0" in value, wrong("holds a zero byte", remedy="correct the value in gb10_serve_arguments")),
            (name.replace("-", "_") == "hf_token", wrong(readable, remedy="put the token into a file, and name it in gb10_hf_token_file")),
        )
    given = snake({**profile["serve"], **arguments})
    for name, repo in repositories.not_listed(profile, given).items():
        what = f"names {repo}, which the play does not download, and the engine asks no hub"
        remedy = "list it under repositories of the profile, and write repository:NAME here"
        if given.get(TRUST):
            # Any revision of it in the cache would run, and no commit is compared.
            what, remedy = f"{what}; {TRUST} runs code from there, which no commit pins", f"{remedy}, with its revision"
        yield Problem("input.offline", f"profile {profile['id']}: serve.{name}", what, remedy=remedy, verdict="block" if given.get(TRUST) else "warn")
    shutdown, grace = {**profile["serve"], **arguments}.get("shutdown_timeout"), values.get("gb10_stop_grace")
    if isinstance(shutdown, int) and grace is not None and 0 < grace <= shutdown:
        what = f"{grace} s is not more than the engine's own shutdown_timeout of {shutdown} s; it would be killed, and may leak memory"
        remedy = f"set gb10_stop_grace well above {shutdown}"
        yield Problem("input.stop_grace", "gb10_stop_grace", what, remedy=remedy, verdict="warn", measured=grace, needed=shutdown)


def of_plan(profile: dict[str, t.Any] | None, given: Values) -> Problems:
    """Yield problems of the settings of a memory plan, which needs no cluster. Without a profile it is for a model of a hub cache."""
    spec = options("plan")
    chosen = {name: option.get("default") for name, option in spec.items()} | dict(given)
    wrong = functools.partial(Problem, "input.plan")
    if profile is None:
        try:
            profile = cached.profile_of(chosen["gb10_plan_model"], chosen["gb10_plan_nodes"])
        except ClusterError as error:
            yield wrong("gb10_plan_model", error.what, remedy=error.remedy)
            return
    for where, what, expected in planning.setting_faults(chosen, math.prod(profile["parallel"][size] for size in ("tensor", "pipeline", "data"))):
        yield wrong(where, what, expected, f"correct {where.partition('[')[0]}")
    folder = Path(os.path.expanduser(chosen["gb10_to"] or "")).parent
    if folder.is_absolute() and not folder.is_dir():
        yield wrong("gb10_to", f"there is no directory {folder}", remedy=f"mkdir -p {folder}, or name another file")


def of_engine(profile: dict[str, t.Any], arguments: dict[str, t.Any]) -> Problems:
    """Yield problems of the engine's arguments, from the settings and from the profile."""
    yield from validation.serve_problems(profile, arguments, "gb10_serve_arguments", "input.serve_arguments", "correct gb10_serve_arguments")
    yield from flags.problems(profile, arguments, "gb10_serve_arguments")
    yield from flags.problems(profile, {name: value for name, value in profile["serve"].items() if name not in arguments}, f"profile {profile['id']}: serve")


# --- placeholders -------------------------------------------------------------------------------------------------------------


def placeholders(node: str, host: str, values: Values) -> Problems:
    """Yield warnings for values of the example inventory. Its addresses may be real ones beside another ``host``."""
    example = bool(_PLACEHOLDER.search(host))
    fabric, api = values.get("gb10_fabric_address"), values.get("gb10_api_address")
    rows = (
        ("ansible_host", host, example, "put in the name or address at which Ansible reaches this node"),
        ("gb10_fabric_address", fabric, example and fabric in EXAMPLE_FABRIC, "put in the node's address on the ConnectX-7 link: ip -br address there"),
        (
            "gb10_api_address",
            api,
            example and api == EXAMPLE_API and values.get("gb10_head_host") == node,
            "put in the address of the head that the API's users come to, or remove the line",
        ),
    )
    for name, value, applies, remedy in rows:
        if applies:
            what = f"{value} stands in the example inventory for your own"
            yield Problem("input.placeholder", name, what, remedy=remedy, verdict="warn", measured=value)
