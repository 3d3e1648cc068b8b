# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inputs of a play, judged on the controller before any node is contacted. This plugin util is PRIVATE to the collection.

Two steps. :func:`judge_host` looks at the settings of one host as they were evaluated for it; :func:`judge_cluster` puts the
answers of all hosts together and adds what only shows between them. Types and choices come from the argument specs of the role
gb10.cluster.gb10, so each is written once; ranges, formats and what settings mean to each other are here.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import ipaddress
import itertools
import os
import re
import stat
import typing as t
from pathlib import Path

from ansible.module_utils.common.validation import check_type_bool, check_type_int
from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding
from ansible_collections.gb10.cluster.plugins.module_utils._node import ray_node
from ansible_collections.gb10.cluster.plugins.plugin_utils._profile import profiles
from ansible_collections.gb10.cluster.plugins.plugin_utils._rules import judging

Finding = dict[str, t.Any]
Values = t.Mapping[str, t.Any]

#: Stands where a finding concerns the whole cluster.
CLUSTER = "cluster"

#: The roles, seen from this file, in a clone and in an installed collection alike.
ROLES = Path(__file__).resolve().parents[3] / "roles"

#: Ids that a user may put into gb10_silenced: all that can stop or warn. A unit test looks for ids that are missing here; those of
#: rules.yml are not repeated.
KNOWN_IDS = judging.known_ids() | frozenset(
    """
    image.ray image.requires input.address input.choice input.cluster_group input.cluster_name input.confirm input.differs input.env input.env_per_host
    input.env_secret input.fabric_address input.fabric_fallback input.forks input.format input.head input.head_is_worker input.host_env
    input.limit input.no_role input.parallel input.path input.placeholder input.port input.port_range input.profile input.range input.rules
    input.same_address input.same_host input.same_path input.same_port input.secret_file input.serial input.serve_arguments input.silenced
    input.stop_grace input.template input.tensor_heads input.two_heads input.type input.unknown_setting input.vault input.worker memory.back
    model.absent model.dangling model.empty model.incomplete_download model.missing model.not_json model.size page_cache.files
    page_cache.sync proof.capability proof.completion proof.device proof.env proof.memlock proof.rank_hosts proof.secrets ray.node
    ray.stranger teardown.containers teardown.ports teardown.seen
    """.split()
)

#: Settings that must have one value for the whole cluster: nodes that disagree would build half of two clusters.
ALIKE = (
    "gb10_api_key",
    "gb10_api_port",
    "gb10_cluster_group",
    "gb10_cluster_name",
    "gb10_env",
    "gb10_fabric_fallback",
    "gb10_head_host",
    "gb10_master_port",
    "gb10_profile",
    "gb10_profile_dirs",
    "gb10_profile_switches",
    "gb10_ray_gpus",
    "gb10_ray_port",
    "gb10_ray_port_range",
    "gb10_ray_version",
    "gb10_serve_arguments",
    "gb10_worker_hosts",
)

#: Lowest and highest value of whole numbers; None is no limit. What is not here and matches no ending of :data:`FLOORS` starts at 0.
RANGES: dict[str, tuple[int, int | None]] = {
    "gb10_ray_gpus": (1, 16),
    "gb10_serve_timeout": (30, None),
    # Ray refuses less.
    "gb10_object_store_memory": (75 * 1024**2, None),
}
#: Lowest value by the ending of a setting's name.
FLOORS = {"_timeout": 1, "_grace": 1}

#: Ports below belong to the system; the range in which Linux picks ports for outgoing connections (its default).
FIRST_PORT, LAST_PORT = 1024, 65535
EPHEMERAL = (32768, 60999)

#: Variables that hold secrets, and how the collection hands them over instead.
SECRET_ENV = {
    "HF_HUB_TOKEN": "put the token into gb10_hf_token",
    "HF_TOKEN": "put the token into gb10_hf_token",
    "HUGGING_FACE_HUB_TOKEN": "put the token into gb10_hf_token",
    "RAY_AUTH_TOKEN": "remove it; the collection makes Ray's token",
    "VLLM_API_KEY": "remove it; gb10_api_key: generate makes a key and hands it over as a file",
}
#: Variables whose meaning is fixed by another setting.
OWNED_ENV = {
    "HF_HOME": "gb10_hf_home",
    "HF_HUB_CACHE": "gb10_hf_home",
    "RAY_AUTH_MODE": "the collection",
    "RAY_AUTH_TOKEN_PATH": "the collection",
}
_SECRET_LIKE = re.compile(r"(\A|_)(TOKEN|SECRET|PASSWORD|PASSWD|API_KEY|ACCESS_KEY|CREDENTIALS)(_|\Z)")

#: Files on the controller that hold one secret each, and nothing else.
SECRET_FILES = ("gb10_api_key_file", "gb10_hf_token_file")
#: Bytes of such a file that are looked at: no key and no token is longer.
SECRET_BYTES = 4096

#: What the plays pass on with set_stats. A job controller hands it to the next job of a workflow as variables, where it means nothing.
ARTIFACTS = frozenset("gb10_baseline gb10_doctor gb10_endpoint gb10_fabric gb10_preflight gb10_report gb10_status gb10_teardown gb10_verdict".split())

#: Setting → what its text has to look like, and how to say that.
FORMATS: dict[str, tuple[re.Pattern[str], str]] = {
    "gb10_hf_endpoint": (re.compile(r"\Z|https?://[^\s/]+\S*\Z"), "an address that begins with https:// or http://, or nothing"),
    "gb10_hf_token": (re.compile(r"\S*\Z"), "one word without spaces and line breaks (`| trim` takes them off)"),
    "gb10_ray_version": (re.compile(r"\d+\.\d+\.\d+\Z"), "a version of three numbers, such as 2.60.0"),
    "gb10_shm_size": (re.compile(r"[1-9]\d*(\.\d+)?[bkmgt]?b?\Z", re.IGNORECASE), "a size as Docker takes it, such as 16g"),
}
#: Setting that is a list → what each of its entries has to look like, and how to say that.
ENTRIES: dict[str, tuple[re.Pattern[str], str]] = {
    "gb10_container_devices": (re.compile(r"/dev/[^\s]+\Z"), "a path below /dev"),
    "gb10_fabric_interfaces": (re.compile(r"[^\s/:,=^]{1,15}\Z"), "the name of one interface"),
    "gb10_rdma_devices": (re.compile(r"[^\s/:,=^]+\Z"), "the name of one RDMA device, without a port"),
}
_CLUSTER_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,31}\Z")

#: Directories on the nodes. Those that hold others' files beside the collection's would get its owner and mode.
PLACES = ("gb10_state_dir", "gb10_log_dir", "gb10_secrets_dir", "gb10_hf_home")
#: Nothing of the others may lie in these: what is in them is shown, pruned, or protected as a whole.
APART = ("gb10_log_dir", "gb10_secrets_dir", "gb10_hf_home")
SYSTEM_PLACES = frozenset(
    "/ /bin /boot /dev /etc /home /lib /media /mnt /opt /proc /root /run /sbin /srv /sys /tmp /usr /usr/local /var /var/lib /var/log /var/run /var/tmp".split()
)

#: Names of hosts that only an example has (RFC 2606, and the ones of inventories/example).
_PLACEHOLDER = re.compile(r"(\A|\.)(example\.(lan|com|net|org)|example|invalid)\Z")

#: Variables with the passwords that Ansible logs in with. It evaluates them before any task, and says then what is wrong in words
#: of its own, so the playbooks judge them first.
PASSWORDS = (
    "ansible_become_pass",
    "ansible_become_password",
    "ansible_password",
    "ansible_ssh_pass",
    "ansible_ssh_password",
    "ansible_ssh_private_key_passphrase",
    "ansible_sudo_pass",
)
KEY_FILES = ("ansible_private_key_file", "ansible_ssh_private_key_file")

VAULT_REMEDY = "run with --ask-vault-pass or --vault-password-file FILE and give the password that it was encrypted with"


class Problem(t.NamedTuple):
    """What is wrong with a value, wherever it came from; :meth:`at` makes it a finding."""

    id: str
    message: str
    remedy: str
    verdict: str = "block"
    measured: t.Any = None
    needed: t.Any = None

    def at(self, node: str) -> Finding:
        return finding(self.id, node, self.verdict, self.message, measured=self.measured, needed=self.needed, remedy=self.remedy)


class Failure(t.NamedTuple):
    """A variable that could not be evaluated: whether a vault was in the way, and what Ansible said."""

    vault: bool
    message: str

    @classmethod
    def of(cls, text: str) -> Failure:
        """From the text of Ansible's exception. Its class for vaults is private to Ansible; both of its sentences have these words."""
        line = text.splitlines()[0]
        for prefix in ("Error rendering template: ", "Attempt to use undecryptable variable: "):
            line = line.removeprefix(prefix)
        return cls("vault secrets" in line, line)


Problems = t.Iterator[Problem]


# --- what there is ----------------------------------------------------------------------------------------------------------


def options(role: str) -> dict[str, dict[str, t.Any]]:
    """The options of a role's main entry point, by name."""
    specs = yaml_load((ROLES / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    return specs["argument_specs"]["main"].get("options") or {}


@functools.cache
def settings() -> dict[str, dict[str, t.Any]]:
    """The settings of the whole collection, by name."""
    return options("gb10")


@functools.cache
def known_settings() -> frozenset[str]:
    """The names of all variables that a role of the collection reads."""
    return frozenset(name for path in ROLES.glob("*/meta/argument_specs.yml") for name in options(path.parents[1].name))


# --- one host ---------------------------------------------------------------------------------------------------------------


def judge_host(
    node: str, values: Values, failures: t.Mapping[str, Failure], login: Values, names: t.Iterable[str], roots: t.Sequence[Path] = ()
) -> dict[str, t.Any]:
    """Judge what was evaluated for one host.

    ``values`` are the settings that could be evaluated, ``failures`` the variables that could not. ``login`` holds what is set of
    :data:`KEY_FILES` and ``ansible_host``, ``names`` the names of all variables of the host. ``roots`` is what relative paths of
    profiles are seen from.
    Returns ``settings`` (in their types, without secrets and free mappings), ``marks`` (setting → key → :func:`_mark`, of mappings that are
    alike on all hosts), ``profile`` (None when it can't be used), ``findings``.
    """
    typed, problems = _typed(values)
    problems += _secret_files(typed)
    problems += itertools.starmap(_failed, failures.items())
    for wanted, rule in RULES:
        if all(name in typed for name in wanted):
            problems += rule(*(typed[name] for name in wanted))
    for judge in (_ports, _ranges, _formats, _places):
        problems += judge(typed)
    problems += [*_key_files(login), *_placeholder(login), *_unknown_settings(names)]
    profile, wrong = _load_profile(typed, roots)
    problems += wrong
    if profile is not None:
        problems += _with_profile(profile, typed)
    plain = {name: value for name, value in typed.items() if not isinstance(value, dict) and not settings()[name].get("no_log")}
    marks = {name: {str(key): _mark(value) for key, value in typed[name].items()} for name in ALIKE if isinstance(typed.get(name), dict)}
    return {"settings": plain, "marks": marks, "profile": profile, "findings": [problem.at(node) for problem in problems]}


def _mark(value: t.Any) -> str:
    """Return 16 bits of a digest: enough to see that two values differ, too few to tell what a value is, which could be a secret."""
    return hashlib.sha256(str(value).encode()).hexdigest()[:4]


def judge_passwords(failures: t.Mapping[str, t.Mapping[str, Failure]]) -> list[Finding]:
    """Judge the passwords that could not be evaluated, by host and variable; one that no host of several has is the cluster's."""
    return _gathered({host: [_failed(name, failure).at(host) for name, failure in failed.items()] for host, failed in failures.items()})


def _failed(name: str, failure: Failure) -> Problem:
    if failure.vault:
        return Problem("input.vault", f"{name} is encrypted and can't be decrypted: {failure.message}", VAULT_REMEDY)
    return Problem("input.template", f"{name} can't be evaluated: {failure.message}", f"correct the expression in {name}, or define what it uses")


def _load_profile(typed: Values, roots: t.Sequence[Path]) -> tuple[dict[str, t.Any] | None, list[Problem]]:
    if not {"gb10_profile", "gb10_profile_dirs"} <= set(typed):
        return None, []
    try:
        return profiles.load(typed["gb10_profile"], typed["gb10_profile_dirs"], typed.get("gb10_profile_switches", []), roots), []
    except profiles.ProfileError as error:
        # Every problem of a file begins with its path; what the YAML reader says has lines of its own.
        text = str(error)
        parts = re.split(rf"\n(?={re.escape(text.partition(': ')[0])}: )", text)
        return None, [_wrong_profile(" ".join(part.split())) for part in parts]


def _wrong_profile(text: str) -> Problem:
    """One problem of a :class:`_profile.ProfileError`; some of them end in what to do."""
    message, advice = re.match(r"(.*?)(?:\. ((?:Choose|Give) .*))?\Z", text).groups()
    if not advice:
        advice = "correct gb10_profile_dirs" if text.startswith("gb10_profile_dirs") else "correct the file, or choose another profile with -e gb10_profile=ID"
    return Problem("input.profile", f"{message}.", advice)


# --- types ------------------------------------------------------------------------------------------------------------------

_WORDS = {"str": "text", "int": "a whole number", "bool": "true or false", "list": "a list", "dict": "a mapping", "raw": "a value"}
_PYTHON: dict[str, type] = {"str": str, "list": list, "dict": dict}
_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = ((str, "the text"), ((int, float), "the number"), (list, "a list"), (dict, "a mapping"))


def _typed(values: Values) -> tuple[dict[str, t.Any], list[Problem]]:
    """The values in their option's type, without those that have another, and what is wrong with the latter."""
    typed: dict[str, t.Any] = {}
    problems: list[Problem] = []
    for name, value in values.items():
        option = settings()[name]
        try:
            converted = _as_type(option, value)
        except TypeError:
            problems.append(_wrong_type(name, option, value))
            continue
        choices = option.get("choices")
        if choices and converted not in choices:
            wanted = " or ".join(map(str, choices))
            problems.append(Problem("input.choice", f"{name}: is '{value}'; expected {wanted}.", f"set {name} to {wanted}", measured=value, needed=choices))
            continue
        typed[name] = converted
    return typed, problems


def _as_type(option: dict[str, t.Any], value: t.Any) -> t.Any:
    """``value`` as the roles understand it. Raises :class:`TypeError` where they would not, or would take it for something else.

    Stricter than a module's options, since roles use the values as they are written: a text is no list of its letters, and a
    version written without quotes (2.60) is a number that has lost its zero.
    """
    wanted = option["type"]
    if value is None:
        raise TypeError
    if wanted == "bool":
        return check_type_bool(value)
    if wanted == "int":
        if isinstance(value, (bool, float)):
            raise TypeError
        return check_type_int(value)
    if wanted == "list" and isinstance(value, list):
        if option.get("elements") == "str" and not all(isinstance(entry, (str, int)) and not isinstance(entry, bool) for entry in value):
            raise TypeError
        return [str(entry) for entry in value] if option.get("elements") == "str" else list(value)
    if wanted == "dict" and isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        raise TypeError
    if wanted == "raw" or isinstance(value, _PYTHON[wanted]):
        return value
    raise TypeError


def _wrong_type(name: str, option: dict[str, t.Any], value: t.Any) -> Problem:
    wanted = _WORDS[option["type"]] + (" of texts" if option.get("elements") == "str" else "")
    if value is None:
        return Problem("input.type", f"{name}: has no value; expected {wanted}.", f"give {name} a value, or remove its line", needed=wanted)
    kind = _kind(value)
    if isinstance(value, (list, dict)) and isinstance(value, _PYTHON.get(option["type"], ())):
        kind += " of more than texts" if isinstance(value, list) else " with names that are no texts"
    shown = "" if option.get("no_log") or isinstance(value, (bool, dict, list)) else f" '{_short(value)}'"
    if option["type"] == "str" and not isinstance(value, (dict, list)):
        remedy = f'write it in quotes: {name}: "…"'
    elif option["type"] == "list" and isinstance(value, str):
        remedy = f"write {name} as a list: {name}: [{_short(value)}] (on the command line: -e '{{\"{name}\": [\"{_short(value)}\"]}}')"
    else:
        remedy = f"set {name} to {wanted}"
    return Problem("input.type", f"{name}: is {kind}{shown}; expected {wanted}.", remedy, measured=kind, needed=wanted)


def _kind(value: t.Any) -> str:
    """What a value of YAML is called."""
    if isinstance(value, bool):
        return str(value).lower()
    return next((word for types, word in _KINDS if isinstance(value, types)), f"a {type(value).__name__}")


def _short(value: t.Any) -> str:
    """A value for a message: one line, and not a long one."""
    text = str(value).replace("\n", "\\n").replace("\0", "\\0")
    return text if len(text) <= 60 else f"{text[:57]}..."


# --- numbers, formats, places -------------------------------------------------------------------------------------------------


def _ranges(typed: Values) -> Problems:
    for name, value in typed.items():
        if settings()[name]["type"] != "int" or name.endswith("_port") or name == "gb10_memlock":
            continue
        ending = next((floor for end, floor in FLOORS.items() if name.endswith(end)), 0)
        low, high = RANGES.get(name, (ending, None))
        if value < low or (high is not None and value > high):
            needed = f"{low} to {high}" if high is not None else f"{low} or more"
            yield Problem("input.range", f"{name}: is {value}; expected {needed}.", f"set {name} to {needed}", measured=value, needed=needed)


def _formats(typed: Values) -> Problems:
    for name, (pattern, wanted) in FORMATS.items():
        if name in typed and not pattern.match(typed[name]):
            shown = "" if settings()[name].get("no_log") else f"is '{_short(typed[name])}'; "
            yield Problem("input.format", f"{name}: {shown}expected {wanted}.", f"correct {name}", needed=wanted)
    for name, (pattern, wanted) in ENTRIES.items():
        for entry in typed.get(name, []):
            if not pattern.match(entry):
                yield Problem("input.format", f"{name}: holds '{_short(entry)}'; expected {wanted}.", f"correct {name}", measured=entry, needed=wanted)


def _ports(typed: Values) -> Problems:
    """Ports lie in the range an ordinary service uses, no two are equal, and none lies inside Ray's range."""
    ports = {name: value for name, value in typed.items() if name.endswith("_port") and settings()[name]["type"] == "int"}
    needed = f"{FIRST_PORT} to {LAST_PORT}"
    for name, port in ports.items():
        if not FIRST_PORT <= port <= LAST_PORT:
            yield Problem("input.port", f"{name}: {port} is out of range; expected {needed}.", f"set {name}", measured=port, needed=needed)
    for (name, port), (other, value) in itertools.combinations(sorted(ports.items(), reverse=True), 2):
        if port == value:
            yield Problem("input.same_port", f"{name} and {other} are both {port}.", "choose another for one of them", measured=port)
    if "gb10_ray_port_range" not in typed:
        return
    try:
        # No port is 0: those that lie inside are named below, each with its variable.
        span = ray_node.parse_port_range(typed["gb10_ray_port_range"], 0)
    except ClusterError as error:
        message = f"gb10_ray_port_range: {str(error).removeprefix('port_range ')}."
        yield Problem("input.port_range", message, error.remedy or "", measured=typed["gb10_ray_port_range"])
        return
    for name, port in ports.items():
        if span.first <= port <= span.last:
            message = f"{name}: {port} lies inside gb10_ray_port_range {span.first}-{span.last}, which Ray's own processes use."
            yield Problem("input.port_range", message, f"choose a port outside the range for {name}, or move gb10_ray_port_range", measured=port)
    first, last = EPHEMERAL
    if span.first <= last and span.last >= first:
        message = f"gb10_ray_port_range: {span.first}-{span.last} overlaps {first}-{last}, from which Linux takes ports for outgoing connections."
        yield Problem("input.port_range", message, "choose a range below, such as 20100-20299", verdict="warn", measured=typed["gb10_ray_port_range"])


def _places(typed: Values) -> Problems:
    """Directories on the nodes are absolute, the collection's own, and apart from each other where that matters."""
    if typed.get("gb10_build_ca_file"):
        yield from _absolute("gb10_build_ca_file", typed["gb10_build_ca_file"])
    for name in ("gb10_report_path", "gb10_preflight_path", "gb10_fabric_path"):
        path = typed.get(name, "/")
        if not path.startswith(("/", "~")) or Path(path).expanduser().is_dir() and path != "/":
            message = f"{name}: is '{_short(path)}'; expected the absolute path of a file."
            yield Problem("input.path", message, f"set {name} to one", measured=path)
    places = {}
    for name in PLACES:
        if name in typed:
            wrong = list(_absolute(name, typed[name]))
            if not wrong and (os.path.normpath(typed[name]) in SYSTEM_PLACES or typed[name].startswith(("/proc/", "/sys/", "/dev/"))):
                remedy = f"give {name} a directory of its own, such as {settings()[name]['default']}"
                wrong = [Problem("input.path", f"{name}: {typed[name]} is the system's.", remedy)]
            yield from wrong
            if not wrong:
                places[name] = os.path.normpath(typed[name])
    for (name, path), (other, place) in itertools.permutations(places.items(), 2):
        if path == place and name < other:
            yield Problem("input.same_path", f"{name} and {other} are both {path}.", "give each a directory of its own", measured=path)
        elif name in APART and path != place and Path(path) in Path(place).parents:
            yield Problem("input.same_path", f"{other} ({place}) lies inside {name} ({path}).", "give each a directory of its own", measured=place)
    if {"gb10_state_dir", "gb10_hf_home"} <= set(places) and "gb10_cluster_name" in typed:
        state = Path(places["gb10_state_dir"], typed["gb10_cluster_name"])
        if state == Path(places["gb10_hf_home"]) or state in Path(places["gb10_hf_home"]).parents:
            message = f"gb10_hf_home ({places['gb10_hf_home']}) lies in the state of the cluster {typed['gb10_cluster_name']} ({state})."
            yield Problem("input.same_path", message, "choose another gb10_cluster_name or gb10_hf_home", measured=str(state))


def _absolute(name: str, path: str) -> Problems:
    if not path.startswith("/") or ".." in path.split("/") or re.search(r"[\s:\0]", path):
        wanted = "an absolute path without '..', spaces and colons"
        yield Problem("input.path", f"{name}: is '{_short(path)}'; expected {wanted}.", f"set {name} to {wanted}", measured=path, needed=wanted)


# --- settings that have a rule of their own -----------------------------------------------------------------------------------


def _cluster_name(name: str) -> Problems:
    if not _CLUSTER_NAME.match(name):
        wanted = "1 to 32 of a-z, 0-9, '_', '.' and '-', a letter or digit first"
        message = f"gb10_cluster_name: '{_short(name)}' can't be part of a container's name and of directories; expected {wanted}."
        yield Problem("input.cluster_name", message, "choose another gb10_cluster_name", measured=name, needed=wanted)


def _confirmed(confirmed: bool) -> Problems:
    if not confirmed:
        message = "gb10_confirmed: is false, so nobody wants this run; no node was contacted."
        yield Problem("input.confirm", message, "answer the survey's question with true, or run with -e gb10_confirmed=true", measured=False, needed=True)


def _unused_key(api_key: str, path: str) -> Problems:
    if api_key == "none" and path:
        message = f"gb10_api_key_file: {_short(path)} is not read, since gb10_api_key is none: the API serves without a key."
        yield Problem("input.secret_file", message, "leave the file out, or set gb10_api_key to generate", verdict="warn")


def _memlock(limit: int) -> Problems:
    if limit != -1 and limit < 65536:
        needed = "-1 (unlimited) or 65536 and more, in bytes"
        yield Problem("input.range", f"gb10_memlock: is {limit}; expected {needed}.", "set gb10_memlock to -1", measured=limit, needed=needed)


def _container_gpus(gpus: t.Any) -> Problems:
    if gpus in ("all", "none") or (isinstance(gpus, list) and gpus and all(isinstance(gpu, (str, int)) and not isinstance(gpu, bool) for gpu in gpus)):
        return
    wanted = "all, none, or a list of GPU ids"
    yield Problem("input.format", f"gb10_container_gpus: is '{_short(gpus)}'; expected {wanted}.", f"set gb10_container_gpus to {wanted}", needed=wanted)


def _fabric_address(address: str) -> Problems:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        found = None
    if found is None or found.is_unspecified or found.is_loopback or found.is_multicast:
        message = f"gb10_fabric_address: '{_short(address)}' is no IP address of a node." if address else "gb10_fabric_address: is not set."
        remedy = "set gb10_fabric_address for this host in the inventory"
        yield Problem("input.fabric_address", message, remedy, measured=address, needed="the node's address on the ConnectX-7 link")


def _env(env: dict[str, t.Any]) -> Problems:
    for name in env:
        if name in profiles.PER_HOST_ENV:
            fact = f"gb10_{profiles.PER_HOST_ENV[name].replace('ucx_devices', 'rdma_devices')}"
            message = f"gb10_env.{name}: differs from node to node; one value for all of them can't be right."
            yield Problem("input.env_per_host", message, f"remove it, it follows from {fact}; a value of your own goes into gb10_host_env of each host")
    yield from _env_of("gb10_env", env, "input.env")


def _host_env(env: dict[str, t.Any]) -> Problems:
    yield from _env_of("gb10_host_env", env, "input.host_env")


def _build_env(env: dict[str, t.Any]) -> Problems:
    for problem in profiles.env_problems(env):
        yield Problem("input.env", f"gb10_build_pip_env.{problem}", "correct the variable in gb10_build_pip_env")
    for name, value in env.items():
        if re.search(r"://[^/\s]+@", str(value)):
            message = f"gb10_build_pip_env.{name}: holds a user or password, which would stay readable in the image's history."
            yield Problem("input.env_secret", message, "use an index that needs none for the build", verdict="warn")


def _env_of(where: str, env: dict[str, t.Any], id: str) -> Problems:
    """What holds for variables of containers, whoever's they are. No value is ever shown: it could be a secret."""
    for problem in profiles.env_problems(env):
        yield Problem(id, f"{where}.{problem}", f"correct the variable in {where}")
    for name in map(str, env):
        if name in SECRET_ENV:
            message = f"{where}.{name}: is a secret; anybody who may ask Docker could read it in the container's configuration."
            yield Problem("input.env_secret", message, SECRET_ENV[name])
        elif name in OWNED_ENV:
            yield Problem(id, f"{where}.{name}: is set by the collection from {OWNED_ENV[name]}.", f"remove it from {where}")
        elif _SECRET_LIKE.search(name):
            message = f"{where}.{name}: looks like a secret; variables of containers can be read in their configuration."
            yield Problem("input.env_secret", message, "if it is one, hand it over as a file; otherwise add input.env_secret to gb10_silenced", verdict="warn")


def _off_fabric(where: str, env: dict[str, t.Any], fallback: str) -> Problems:
    around = [name for name, value in (("NCCL_NET", "socket"), ("NCCL_IB_DISABLE", "1")) if str(env.get(name, "")).lower() in (value, "true")]
    if fallback == "none" and around:
        message = f"{where}.{around[0]}: takes NCCL off InfiniBand, and gb10_fabric_fallback is none."
        yield Problem("input.fabric_fallback", message, f"remove {around[0]}, or set gb10_fabric_fallback to tcp if that is what you want")


def _silenced(ids: list[str]) -> Problems:
    for id in ids:
        if id not in KNOWN_IDS:
            yield Problem("input.silenced", f"gb10_silenced: no finding has the id '{_short(id)}'.{_meant(id, KNOWN_IDS)}", "correct the id", verdict="warn")


def _tuned_rules(tuning: dict[str, t.Any]) -> Problems:
    for problem in judging.tuning_problems(tuning, "gb10_rules"):
        path = problem.partition(": ")[0]
        id = path.removeprefix("gb10_rules.")
        near = _meant(id, judging.known_ids()) if problem.endswith("no rule has this id") else ""
        yield Problem("input.rules", f"{problem}.{near}", f"correct {path}; docs/rules.md lists all rules with their limits")


#: Which settings a rule needs, in the order of its parameters. It is left out when one of them has no usable value.
RULES: tuple[tuple[tuple[str, ...], t.Callable[..., Problems]], ...] = (
    (("gb10_cluster_name",), _cluster_name),
    (("gb10_confirmed",), _confirmed),
    (("gb10_api_key", "gb10_api_key_file"), _unused_key),
    (("gb10_memlock",), _memlock),
    (("gb10_container_gpus",), _container_gpus),
    (("gb10_fabric_address",), _fabric_address),
    (("gb10_env",), _env),
    (("gb10_host_env",), _host_env),
    (("gb10_build_pip_env",), _build_env),
    (("gb10_env", "gb10_fabric_fallback"), functools.partial(_off_fabric, "gb10_env")),
    (("gb10_host_env", "gb10_fabric_fallback"), functools.partial(_off_fabric, "gb10_host_env")),
    (("gb10_silenced",), _silenced),
    (("gb10_rules",), _tuned_rules),
)


def _with_profile(profile: dict[str, t.Any], typed: Values) -> Problems:
    """What a profile says about the settings over it, and what holds for its own variables as for those of the settings."""
    where = f"profile {profile['id']}: env.shared"
    yield from _env_of(where, profile["env"]["shared"], "input.env")
    yield from _off_fabric(where, profile["env"]["shared"], str(typed.get("gb10_fabric_fallback", "")))
    arguments = typed.get("gb10_serve_arguments", {})
    for name, value in arguments.items():
        if isinstance(value, str) and "\0" in value:
            yield Problem("input.serve_arguments", f"gb10_serve_arguments.{name}: holds a zero byte.", "correct the value in gb10_serve_arguments")
        if name.replace("-", "_") == "hf_token":
            message = f"gb10_serve_arguments.{name}: is a secret; a command line can be read by everybody on the node."
            yield Problem("input.serve_arguments", message, "put the token into gb10_hf_token")
    for problem in profiles.serve_problems(profile, arguments, "gb10_serve_arguments"):
        yield Problem("input.serve_arguments", problem, "correct gb10_serve_arguments")
    shutdown, grace = {**profile["serve"], **arguments}.get("shutdown_timeout"), typed.get("gb10_stop_grace")
    if isinstance(shutdown, int) and grace is not None and 0 < grace <= shutdown:
        message = f"gb10_stop_grace: {grace} s is not more than the engine's own shutdown_timeout of {shutdown} s; it would be killed, and may leak memory."
        yield Problem("input.stop_grace", message, f"set gb10_stop_grace well above {shutdown}", verdict="warn", measured=grace, needed=shutdown)


# --- what Ansible logs in with ------------------------------------------------------------------------------------------------


def _key_files(login: Values) -> Problems:
    """A private key that others can read is refused by ssh, at the first contact and in many words."""
    for name in KEY_FILES:
        if not login.get(name):
            continue
        path = Path(str(login[name])).expanduser()
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError as error:
            yield Problem("input.secret_file", f"{name}: {path} can't be used: {error.strerror}.", f"correct {name}")
            continue
        yield from _open_to_others(name, path, mode)


def _secret_files(typed: Values) -> Problems:
    """Each holds one word. What it is appears nowhere."""
    for name in SECRET_FILES:
        if not typed.get(name):
            continue
        path = Path(typed[name]).expanduser()
        if not path.is_absolute():
            message = f"{name}: is '{_short(typed[name])}'; expected the absolute path of a file on the controller."
            yield Problem("input.path", message, f"set {name} to one", measured=typed[name])
            continue
        try:
            with path.open("rb") as file:
                words = file.read(SECRET_BYTES).split()
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        except OSError as error:
            yield Problem("input.secret_file", f"{name}: {path} can't be used: {error.strerror}.", f"correct {name}, or the credential that it comes from")
            continue
        if len(words) != 1:
            found = f"{len(words)} words" if words else "nothing"
            yield Problem("input.secret_file", f"{name}: {path} holds {found}; expected one word.", f"put the secret alone into {path}", needed="one word")
        else:
            yield from _open_to_others(name, path, mode)


def _open_to_others(name: str, path: Path, mode: int) -> Problems:
    if mode & 0o077:
        message = f"{name}: {path} can be read by others (mode {mode:04o})."
        yield Problem("input.secret_file", message, f"chmod 0600 {path}", measured=f"{mode:04o}", needed="0600")


def _placeholder(login: Values) -> Problems:
    host = str(login.get("ansible_host") or "")
    if _PLACEHOLDER.search(host):
        message = f"ansible_host: {host} stands in the example inventory for your own."
        yield Problem("input.placeholder", message, "put in the name or address at which Ansible reaches this node", verdict="warn", measured=host)


def _unknown_settings(names: t.Iterable[str]) -> Problems:
    for name in sorted(names):
        if name.startswith("gb10_") and name not in known_settings() and name not in ARTIFACTS:
            message = f"{name}: no role reads this variable.{_meant(name, known_settings())}"
            yield Problem("input.unknown_setting", message, "correct its name, or remove it", verdict="warn")


def _meant(name: str, known: t.Collection[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f" Did you mean {near[0]}?" if near else ""


# --- all hosts together -------------------------------------------------------------------------------------------------------


def judge_cluster(answers: dict[str, dict[str, t.Any]], play: dict[str, t.Any]) -> list[Finding]:
    """Judge the inputs of a play from what ``inputs_info`` answered for each of its hosts. No node is asked.

    ``play`` has ``groups`` (name to hosts), ``hosts`` (all hosts of the play), ``batch`` (hosts of this batch), ``limit`` (the
    --limit pattern or empty) and ``forks``.
    """
    found = _gathered({host: answer["findings"] for host, answer in answers.items()})
    found += [problem.at(CLUSTER) for problem in _differences(answers)]
    first = next(iter(answers.values()))
    values, profile = first["settings"], first["profile"]
    nodes: list[str] = []
    if {"gb10_cluster_group", "gb10_head_host", "gb10_worker_hosts"} <= set(values):
        head, workers = values["gb10_head_host"], values["gb10_worker_hosts"]
        nodes = [*([head] if head else []), *workers]
        found += _members(values["gb10_cluster_group"], head, workers, play)
        found += [problem.at(CLUSTER) for problem in _reach(nodes, play)]
        present = {node: answers[node] for node in dict.fromkeys(nodes) if node in answers}
        found += _between(present)
        if head in present:
            found += _api(present, head)
        if profile is not None and "gb10_ray_gpus" in values:
            found += [problem.at(CLUSTER) for problem in _sizes(profile, nodes, values["gb10_ray_gpus"])]
    if found:
        return found
    return [finding("input", CLUSTER, "pass", f"{profile['id'] if profile else ''} on {', '.join(nodes)}.")]


def _gathered(findings: dict[str, list[Finding]]) -> list[Finding]:
    """Findings of all hosts; one that every host has is the cluster's."""
    gathered: list[Finding] = []
    for host, found in findings.items():
        for one in found:
            everywhere = len(findings) > 1 and all(
                any((other["id"], other["message"]) == (one["id"], one["message"]) for other in others) for others in findings.values()
            )
            named = {**one, "node": CLUSTER if everywhere else host}
            if named not in gathered:
                gathered.append(named)
    return gathered


def _differences(answers: dict[str, dict[str, t.Any]]) -> Problems:
    for name in ALIKE:
        values = {host: answer["settings"][name] for host, answer in answers.items() if name in answer["settings"]}
        told = list(values.values())
        if any(value != told[0] for value in told[1:]):
            listed = ", ".join(f"{host} {_short(value)}" for host, value in values.items())
            message = f"{name}: has one value for the whole cluster, but differs between hosts: {listed}."
            yield Problem("input.differs", message, f"set {name} once, for the group of the cluster", measured=values)
        marks = [answer["marks"][name] for answer in answers.values() if name in answer["marks"]]
        differing = sorted({key for one in marks for key in one if any(other.get(key) != one[key] for other in marks)})
        if differing:
            message = f"{name}: has one value for the whole cluster, but differs between hosts: {', '.join(differing)}."
            own = "; what one host alone needs goes into its gb10_host_env" if name == "gb10_env" else ""
            yield Problem("input.differs", message, f"set {name} once, for the group of the cluster{own}", measured=differing)


def _members(group: str, head: str, workers: list[str], play: dict[str, t.Any]) -> list[Finding]:
    """Who is in the cluster: one head, workers that exist, nobody twice, nobody without a part."""
    groups, everyone = play["groups"], play["groups"].get("all", [])
    found: list[Finding] = []

    def block(id: str, message: str, remedy: str, node: str = CLUSTER) -> None:
        found.append(finding(id, node, "block", message, remedy=remedy))

    members = groups.get(group, [])
    heads = [host for host in members if host in groups.get("gb10_head", [])]
    if not members:
        message = f"gb10_cluster_group: the inventory has no hosts in a group {group}."
        block("input.cluster_group", message, "choose it on the command line: -e gb10_cluster_group=NAME")
    if not head or head not in everyone:
        message = f"gb10_head_host: '{head}' is no host of the inventory; a cluster needs exactly one head."
        block("input.head", message, f"put one host into the group gb10_head below {group}, or set gb10_head_host to one of its hosts")
    if len(heads) > 1:
        message = f"the group gb10_head holds {len(heads)} hosts of {group}: {', '.join(heads)}; a cluster needs exactly one head."
        block("input.two_heads", message, "leave one host in gb10_head and put the others into gb10_workers")
    if head and head in workers:
        block("input.head_is_worker", f"gb10_worker_hosts: {head} is the head and a worker.", "take it out of gb10_workers (or gb10_worker_hosts)", node=head)
    for worker in dict.fromkeys(workers):
        if worker not in everyone:
            block("input.worker", f"gb10_worker_hosts: '{worker}' is no host of the inventory.", "add it to the inventory, or take it out of gb10_worker_hosts")
        elif workers.count(worker) > 1:
            block("input.worker", f"gb10_worker_hosts: {worker} is listed {workers.count(worker)} times.", "list every worker once", node=worker)
    for host in play["batch"]:
        if host not in (head, *workers, *heads):
            remedy = "put it into the group gb10_workers, or take it out of the cluster's group"
            block("input.no_role", f"{host} is in {group} but neither the head nor a worker.", remedy, node=host)
    return found


def _reach(nodes: list[str], play: dict[str, t.Any]) -> Problems:
    """The play handles all nodes, at once."""
    missing = [node for node in nodes if node in play["groups"].get("all", []) and node not in play["hosts"]]
    if missing:
        remedy = "these hosts are in another group: choose it with -e gb10_cluster_group=NAME"
        if play["limit"]:
            remedy = f"run without --limit (it is '{play['limit']}')"
        yield Problem("input.limit", f"the play leaves out {', '.join(missing)} of the cluster's nodes {', '.join(nodes)}.", remedy)
    if sorted(play["batch"]) != sorted(play["hosts"]):
        message = f"the play handles {len(play['batch'])} of {len(play['hosts'])} hosts at once; half a cluster can't serve."
        yield Problem("input.serial", message, "remove `serial` from the play")
    if play["forks"] < len(nodes):
        message = f"forks is {play['forks']}, the cluster has {len(nodes)} nodes; head and workers are watched at the same time."
        yield Problem("input.forks", message, f"run with --forks {len(nodes)} or more", measured=play["forks"], needed=len(nodes))


def _between(answers: dict[str, dict[str, t.Any]]) -> list[Finding]:
    """What no two nodes may share."""
    found: list[Finding] = []
    addresses: dict[str, str] = {}
    machines: dict[tuple[str, ...], str] = {}
    for node, answer in answers.items():
        address = answer["settings"].get("gb10_fabric_address")
        if address and address in addresses:
            message = f"gb10_fabric_address: {address} is also the address of {addresses[address]}."
            found.append(finding("input.same_address", node, "block", message, measured=address, remedy="give every node its own"))
        elif address:
            addresses[address] = node
        login = answer["login"]
        machine = tuple(str(login[part]) for part in ("connection", "host", "port"))
        if machine in machines:
            message = f"ansible_host: {login['host']} is also {machines[machine]}; one machine can't be two nodes."
            found.append(finding("input.same_host", node, "block", message, measured=login["host"], remedy="give every node its own ansible_host"))
        else:
            machines[machine] = node
    return found


def _api(answers: dict[str, dict[str, t.Any]], head: str) -> list[Finding]:
    """The API listens on an address of the head. Its default is the head's fabric address, which is judged already."""
    values = answers[head]["settings"]
    if "gb10_api_address" not in values or values["gb10_api_address"] == values.get("gb10_fabric_address"):
        return []
    address = values["gb10_api_address"]
    owner = next((node for node, answer in answers.items() if node != head and answer["settings"].get("gb10_fabric_address") == address), None)
    verdict, remedy = "block", f"set gb10_api_address to an IP address of {head}"
    try:
        everywhere = ipaddress.ip_address(address).is_unspecified
    except ValueError:
        message = f"gb10_api_address: '{_short(address)}' is no IP address."
    else:
        if owner:
            message = f"gb10_api_address: {address} is the address of {owner}, but the API listens on the head."
        elif everywhere and values.get("gb10_api_key") == "none":
            message = f"gb10_api_address: {address} listens on all networks and gb10_api_key is none: whoever reaches the head can use the model."
            verdict, remedy = "warn", "name one address of the head, or set gb10_api_key to generate"
        else:
            return []
    return [finding("input.address", head, verdict, message, measured=address, remedy=remedy)]


def _sizes(profile: dict[str, t.Any], nodes: list[str], ray_gpus: int) -> Problems:
    """The ranks a profile asks for must be the GPUs that the nodes have, and tensor parallel must divide the heads."""
    parallel = profile["parallel"]
    ranks = parallel["tensor"] * parallel["pipeline"] * parallel["data"]
    gpus = len(nodes) * ray_gpus
    if ranks != gpus:
        message = (
            f"profile {profile['id']} asks for {ranks} ranks (tensor {parallel['tensor']} x pipeline {parallel['pipeline']} x data {parallel['data']}), "
            f"the cluster has {gpus} GPUs ({len(nodes)} nodes, gb10_ray_gpus {ray_gpus})."
        )
        yield Problem("input.parallel", message, "add or remove workers, or choose another profile", measured=gpus, needed=ranks)
    if profile["executor"] == "native" and parallel["data"] > 1:
        message = f"profile {profile['id']}: executor native spreads tensor and pipeline ranks, but data is {parallel['data']}."
        yield Problem("input.parallel", message, "set parallel.data to 1, or executor to ray", measured=parallel["data"], needed=1)
    heads = profile["memory"]["config"].get("num_attention_heads")
    if heads and heads % parallel["tensor"]:
        message = f"profile {profile['id']}: tensor {parallel['tensor']} does not divide the model's {heads} attention heads."
        remedy = "change parallel.tensor in the profile"
        yield Problem("input.tensor_heads", message, remedy, measured=parallel["tensor"], needed=f"a divisor of {heads}")
