# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an attacker can find: the ports of a serving cluster and their answers, and places that reveal secrets from the nodes.

The scan is compared with the table of ports in SECURITY.md, which describes the defaults. The lab uses the defaults.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import typing as t
import urllib.parse
from pathlib import Path

import pytest
import yaml

from .lab import HEAD, INVENTORY, ROOT, RUN, WORKER, Lab, secret_file
from .making import HEAD_CONTAINER, IMAGE, listening

pytestmark = pytest.mark.usefixtures("without_units")

KEY_FILE = "/etc/gb10/secrets/gb10/api_key"
ENGINE_JSON = "/var/lib/gb10/gb10/launch/engine.json"
LAUNCHER = ("docker", "exec", HEAD_CONTAINER, "python3", "/opt/gb10/launch/launcher.py")
SPEC = ("--spec", "/opt/gb10/launch/engine.json")

HOSTS = yaml.safe_load((INVENTORY / "hosts.yml").read_text(encoding="utf-8"))["gb10_cluster"]["children"]
ADDRESSES = {
    host: {"management": about["ansible_host"], "fabric": about["gb10_fabric_address"]} for group in HOSTS.values() for host, about in group["hosts"].items()
}

#: Answers in place of the engine, keeps everything that it receives, and wants a key for everything except /health.
THIEF_PORT, TAKEN = 18000, "/run/gb10-test-thief"
THIEF = f"""
import socket
server = socket.create_server(("0.0.0.0", {THIEF_PORT}))
while True:
    taken, _peer = server.accept()
    with taken, open("{TAKEN}", "ab", buffering=0) as kept:
        taken.settimeout(5)
        try:
            said = taken.recv(65536)
            kept.write(said)
            status = b"200 OK" if said.startswith(b"GET /health") else b"401 No"
            taken.sendall(b"HTTP/1.1 " + status + b"\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\n{{}}")
        except OSError:
            pass
"""

# --- ports --------------------------------------------------------------------------------------------------------------------

#: Number of parallel connection attempts, and the timeout of one in seconds.
AT_ONCE, PATIENCE = 500, 5.0

#: gRPC methods of Ray that change nothing. They are called with an empty message.
GRPC_METHODS = (
    "ray.rpc.NodeInfoGcsService/GetAllNodeInfo",
    "ray.rpc.NodeManagerService/GetNodeStats",
    "ray.rpc.ObjectManagerService/Pull",
    "ray.rpc.CoreWorkerService/GetCoreWorkerStats",
    "ray.rpc.RayletDriver/ClusterInfo",
)
EMPTY_MESSAGE = b"\0" * 5
#: gRPC's status codes for an unknown method and for a request without a credential.
UNIMPLEMENTED, UNAUTHENTICATED = "12", "16"


#: First bytes of servers that send first, with the words of the table. ZeroMQ's greeting ends with the name of its security mechanism, which is NULL.
GREETINGS = {b"SSH-": "an ssh banner", b"\xff\0\0\0\0\0\0\0\x01\x7f": "a greeting of ZeroMQ", b"": "accepts the connection, says nothing"}


#: The network of the API in the words of the table. In the lab it is the management network.
API_NETWORK = "the network of `gb10_api_address`"


class Row(t.NamedTuple):
    """A row of the table in SECURITY.md: the roles that listen, the networks from which they can be reached, and their answer."""

    name: str
    ports: range
    roles: frozenset[str]
    networks: frozenset[str]
    answer: str


def ports_of(text: str) -> range:
    """The ports in a cell of the table: one port, a range, or the kernel's ephemeral range."""
    numbers = [int(number) for number in re.findall(r"\d{2,5}", text)]
    return range(numbers[0], numbers[-1] + 1)


def table() -> list[Row]:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    lines = text[text.index("| Who listens | Ports | On | Reachable from | Without a credential |"):].partition("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return [
        Row(name, ports_of(ports), frozenset(roles.split(", ")), frozenset(networks.replace(API_NETWORK, "management").split(", ")), answer)
        for name, ports, roles, networks, answer in cells[2:]
    ]


async def open_ports(address: str) -> list[int]:
    """Scan an address for TCP ports that accept a connection."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def is_open(port: int) -> bool:
        async with limit:
            try:
                _reader, writer = await asyncio.wait_for(asyncio.open_connection(address, port), PATIENCE)
            except (OSError, asyncio.TimeoutError):
                return False
            writer.close()
            return True

    ports = range(1, 65536)
    return [port for port, accepted in zip(ports, await asyncio.gather(*map(is_open, ports))) if accepted]


def curl(address: str, port: int, path: str, *options: str, data: bytes | None = None) -> str:
    """Return a server's answer with headers and trailers, empty if it is not HTTP."""
    done = subprocess.run(
        ["curl", "--silent", "--include", "--path-as-is", "--max-time", "3", *options, f"http://{address}:{port}{path}"],
        input=data, capture_output=True, timeout=30, check=False,
    )  # fmt: skip
    return done.stdout.decode(errors="replace")


def speaks_http2(address: str, port: int) -> bool:
    """Return whether a server answers the HTTP/2 preface with its settings, as every gRPC server does."""
    with contextlib.suppress(OSError), socket.create_connection((address, port), PATIENCE) as connection:
        connection.settimeout(2.0)
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        return connection.recv(9)[3:4] == b"\4"
    return False


def grpc_status(address: str, port: int, method: str) -> str:
    """gRPC's status code for a request without a token, empty if the server is not gRPC."""
    options = ("--http2-prior-knowledge", "--header", "content-type: application/grpc", "--header", "te: trailers", "--data-binary", "@-")
    match = re.search(r"^grpc-status: (\d+)", curl(address, port, f"/{method}", *options, data=EMPTY_MESSAGE), re.MULTILINE | re.IGNORECASE)
    return match[1] if match else ""


def greeting(address: str, port: int) -> bytes:
    """The first bytes that a server sends by itself or in answer to an empty line."""
    with contextlib.suppress(OSError), socket.create_connection((address, port), PATIENCE) as connection:
        connection.settimeout(1.0)
        with contextlib.suppress(TimeoutError):
            return connection.recv(64)
        connection.sendall(b"\r\n\r\n")
        return connection.recv(64)
    return b""


def answer_of(address: str, port: int) -> str:
    """A port's answer without a credential, in the words of the table."""
    if speaks_http2(address, port):
        statuses = {grpc_status(address, port, method) for method in GRPC_METHODS} - {""}
        return "refused" if statuses - {UNIMPLEMENTED} == {UNAUTHENTICATED} else f"gRPC {sorted(statuses)}"
    lines = curl(address, port, "/").splitlines()
    if lines and lines[0].startswith("HTTP/"):
        code = lines[0].split()[1]
        return "refused" if code in ("401", "403") else f"HTTP {code}"
    received = greeting(address, port)
    return next((words for begin, words in GREETINGS.items() if received.startswith(begin)), repr(received))


def owner(lab: Lab, host: str, port: int) -> str:
    """The process that listens on a port of a node, for an error message."""
    return lab.run(host, "ss", "-ltnpH", "sport", "=", f":{port}").strip()


@pytest.fixture(scope="module")
def scan(lab: Lab) -> dict[tuple[str, str, int], str]:
    """The answers of all listening ports while the cluster serves, by (host, network, port)."""
    lab.up()
    # The recovery answers where there is a unit.
    played = lab.play("serve", gb10_unit="enabled")
    assert played.rc == 0, played.failures
    places = [(host, network, address) for host, networks in ADDRESSES.items() for network, address in networks.items()]
    there = [((host, network, port), address) for host, network, address in places for port in asyncio.run(open_ports(address))]
    with concurrent.futures.ThreadPoolExecutor(max_workers=16) as pool:
        answers = pool.map(lambda entry: answer_of(entry[1], entry[0][2]), there)
        return {place: answer for (place, _address), answer in zip(there, answers)}


def test_every_port_that_listens_stands_in_the_table_and_answers_as_it_says(lab: Lab, scan: dict[tuple[str, str, int], str]) -> None:
    rows, roles = table(), {HEAD: "head", WORKER: "worker"}
    wrong, seen = [], set()
    for (host, network, port), answer in scan.items():
        fitting = [row for row in rows if port in row.ports and roles[host] in row.roles and network in row.networks]
        # Several rows share the kernel's ephemeral ports.
        own = [row for row in fitting if row.answer == answer]
        seen |= {(row.name, roles[host], network) for row in own}
        if not own:
            wrong.append(f"{host} {network} {port} answers {answer}, not {[row.answer for row in fitting] or 'in any row'}; {owner(lab, host, port)}")
    claimed = {(row.name, role, network) for row in rows for role in row.roles for network in row.networks}
    assert not wrong, "\n".join(wrong)
    assert seen == claimed
    assert lab.engine_lives(), "the scan ended the engine"


@pytest.mark.usefixtures("live_cluster")
def test_no_route_of_the_api_answers_without_the_key(lab: Lab) -> None:
    """All routes that the engine lists, with every method, and routes that act without a body. None serves a request."""
    address, port = ADDRESSES[HEAD]["management"], 8000
    key = lab.run(HEAD, "cat", KEY_FILE).strip()
    document = curl(address, port, "/openapi.json", "--header", f"Authorization: Bearer {key}")
    listed = json.loads(document[document.index("{"):])["paths"]
    assert {"/scale_elastic_ep", "/invocations", "/tokenize", "/v1/chat/completions"} <= set(listed)
    requests = {(method.upper(), re.sub(r"\{[^}]*\}", "x", path)) for path, methods in listed.items() for method in methods}
    requests |= {(method, path) for path in ("/metrics", "/docs", "/redoc", "/openapi.json", "//metrics", "/metrics/") for method in ("GET", "HEAD", "POST")}
    requests |= {("GET", path) for path in ("/v1/../metrics", "/health/../metrics", "/health/", "/health%2f", "/health;x", "/Health", "/%6detrics")}
    requests |= {(method, "/sleep") for method in ("POST", "PUT", "OPTIONS", "TRACE", "CONNECT")}
    statuses = {}
    for method, path in sorted(requests - {("GET", "/health"), ("HEAD", "/health")}):
        options = ("--head",) if method == "HEAD" else ("--request", method)
        statuses[method, path] = curl(address, port, path, *options).split(" ", 2)[1:2]
    # The server itself answers malformed requests with 400.
    assert {request for request, status in statuses.items() if status not in (["401"], ["400"])} == set()
    assert curl(address, port, "/health").startswith("HTTP/1.1 200")
    assert curl(address, port, "/metrics", "--header", f"Authorization: Bearer {key}").startswith("HTTP/1.1 200")
    for wrong in (f"Bearer {key}x", f"Basic {key}", key, "Bearer"):
        assert curl(address, port, "/metrics", "--header", f"Authorization: {wrong}").startswith("HTTP/1.1 401"), wrong
    assert lab.engine_lives()


@pytest.mark.usefixtures("live_cluster")
def test_who_answers_in_place_of_the_engine_is_not_sent_the_key(lab: Lab) -> None:
    address, key = ADDRESSES[HEAD]["management"], lab.run(HEAD, "cat", KEY_FILE).strip()
    led = ("OUTPUT", "--table", "nat", "--proto", "tcp", "--destination", address, "--dport", "8000", "--jump", "REDIRECT", "--to-ports", str(THIEF_PORT))
    ask = [Path(sys.executable).with_name("ansible"), HEAD, "-i", INVENTORY, "-b", "-m", "gb10.cluster.vllm_serve_info"]
    ask += ["-a", f"probe=true api_key_file={KEY_FILE}"]

    def engine_info() -> dict[str, t.Any]:
        env = {**os.environ, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
        done = subprocess.run(ask, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=True)
        return json.loads(done.stdout[done.stdout.index("=> {") + 3:])

    before = engine_info()
    assert before["key_withheld"] == "" and before["completion"]
    try:
        with listening(lab, HEAD, THIEF_PORT, THIEF):
            lab.run(HEAD, "iptables", "--insert", *led)
            try:
                info, played = engine_info(), lab.play("status")
            finally:
                lab.run(HEAD, "iptables", "--delete", *led)
            came = lab.run(HEAD, "cat", TAKEN)
    finally:
        lab.run(HEAD, "rm", "-f", TAKEN)
    assert "GET /health" in came and "GET /metrics" in came, "no other process answered in its place, so this proves nothing"
    assert "authorization" not in came.lower() and key not in came and "POST" not in came
    assert "the API's key was not sent" in info["key_withheld"] and "the API's key was not sent" in info["progress"]["withheld"]
    assert info["completion"] is None and info["requests_running"] is None
    assert "it was not asked for a token: the API's key was not sent" in played.said and key not in played.stdout + json.dumps(played.events)
    assert engine_info()["completion"], "with its port its own again it serves"


@pytest.mark.usefixtures("live_cluster")
def test_an_engine_without_the_guard_survives_an_upgrade_with_one_warning(lab: Lab) -> None:
    """As an earlier version of the collection started it: the same arguments, and an order without a guard."""
    order, old = lab.json(HEAD, ENGINE_JSON), "20260101T000000Z-0001"
    lab.run(HEAD, *LAUNCHER, "stop", *SPEC)
    former = {**{name: value for name, value in order.items() if name != "guard"}, "run_id": old, "log_path": f"/var/log/gb10/engine/{old}.log"}
    lab.write(HEAD, ENGINE_JSON, json.dumps(former))
    lab.run(HEAD, *LAUNCHER[:2], "--detach", *LAUNCHER[2:], "run", *SPEC, "--run-id", old)
    lab.run(HEAD, "timeout", "30", "sh", "-c", 'until grep -qF "$1" "$2"; do :; done', "sh", old, RUN)
    played = lab.play()
    assert played.rc == 0 and not played.changed, played.failures
    assert lab.json(HEAD, RUN)["run_id"] == old
    assert played.said.count("started before the collection guarded them") == 1
    assert curl(ADDRESSES[HEAD]["management"], 8000, "/metrics").startswith("HTTP/1.1 200")
    allowed = lab.play(gb10_allow="restart")
    assert allowed.rc == 0 and set(allowed.changed) == {HEAD}, allowed.failures
    assert curl(ADDRESSES[HEAD]["management"], 8000, "/metrics").startswith("HTTP/1.1 401")


# --- secrets ------------------------------------------------------------------------------------------------------------------

#: The prefix of every planted secret. Nothing else on the nodes contains it.
PLANTED = "pl4nted"

#: Many shapes of text with a secret, which replaces ``{}``.
SHAPES = (
    "--api-key {}A {}B",
    "--hf-token=-{}",
    "AWS_SECRET_ACCESS_KEY={}",
    "HF_PASSWD={}",
    "hf_token={}",
    "redis://:{}@cache/0",
    "https://{}@mirror.lan/simple",
    "X-Api-Key: {}",
    "Authorization: Basic {}",
    "--passphrase {}",
    "postgresql://spark:a/{}@db/app",
    '{"password": "{}"}',
    "GITHUB_PAT={}",
    "VLLM_API_KEYS={}",
    "session_cookie={}",
    "https://hooks.slack.com/services/T0/B0/{}",
    "https://api.telegram.org/bot123456:{}/sendMessage",
    "curl -u spark:{} http://mirror.lan",
    "sshpass -p {} ssh mirror.lan",
)

#: A user's own program, which the collection sees as an engine, as a tenant and as the process on a port.
STRANGER = "import socket, sys, time\nheld = socket.create_server(('0.0.0.0', int(sys.argv[-1])))\ntime.sleep(600)\n"


def planted(place: str) -> list[str]:
    """The shapes, each with a different secret."""
    return [shape.replace("{}", f"{PLANTED}-{place}-{number}-x") for number, shape in enumerate(SHAPES)]


def engine_log(lab: Lab) -> str:
    return f"/var/log/gb10/gb10/engine/{lab.json(HEAD, RUN)['run_id']}.log"


@pytest.fixture
def plantation(lab: Lab) -> t.Iterator[None]:
    """Each shape is three times on the head: in a user's own processes, in files with variables, and in logs. The log also contains the cluster's key."""
    lab.up()
    key = lab.run(HEAD, "cat", KEY_FILE).strip()
    log = engine_log(lab)
    kept = lab.run(HEAD, "cat", log)
    started = []
    try:
        lab.run(HEAD, "mkdir", "-p", "/opt/users")
        lab.write(HEAD, "/opt/users/vllm", STRANGER)
        for number, line in enumerate(planted("process")):
            secret = line.split() if line.startswith("--") else [line]
            words = ["serve", "org/model", *secret, "--port", str(29100 + number)]
            name = f"users-{number}"
            lab.run(HEAD, "systemd-run", "--unit", name, "--setenv", f"VLLM_TOKEN={PLANTED}-env-{number}", "python3", "/opt/users/vllm", *words)
            started.append(name)
        lab.run(HEAD, "docker", "run", "--detach", "--name", "users-app", "--env", f"HF_TOKEN={PLANTED}-docker", "--entrypoint", "sleep", IMAGE, "infinity")
        exports = [f"export VLLM_EXTRA_{number}='{line}'" for number, line in enumerate(planted("file"))]
        lab.write(HEAD, "/etc/profile.d/users.sh", "\n".join([*exports, f"export HF_TOKEN={PLANTED}-file", ""]))
        spellings = [key, json.dumps({"key": f"{key}"}), urllib.parse.quote(key)]
        lab.write(HEAD, log, kept + "".join(f"{line}\n" for line in [*planted("log"), *spellings]))
        yield
    finally:
        for name in started:
            lab.run(HEAD, "systemctl", "stop", name, check=False)
        lab.run(HEAD, "docker", "rm", "--force", "users-app", check=False)
        lab.run(HEAD, "rm", "-rf", "/opt/users", "/etc/profile.d/users.sh")
        lab.write(HEAD, log, kept)


def leaks(text: str, key: str) -> list[str]:
    """The lines of a text with a planted secret or the key."""
    return [line[:400] for line in text.splitlines() if PLANTED in line or key in line]


@pytest.mark.usefixtures("plantation")
def test_planted_secrets_come_out_nowhere(lab: Lab, tmp_path: Path) -> None:
    key = lab.run(HEAD, "cat", KEY_FILE).strip()
    findings = {}
    for playbook, tags in (("doctor", "stacks"), ("doctor", ""), ("status", ""), ("status", "logs"), ("nemotron_tp2", "")):
        record = tmp_path / f"{playbook}-{tags}"
        token = secret_file(lab, f"{PLANTED}-input")
        played = lab.play(playbook, tags=tags, verbosity=4, gb10_records_dir=str(record), gb10_hf_token_file=token)
        events = json.dumps(played.events)
        findings[f"{playbook} {tags}: output at -vvvv"] = leaks(played.stdout, key)
        findings[f"{playbook} {tags}: events, as AWX stores them"] = leaks(json.dumps(played.events, indent=1), key)
        findings.update({f"{path}": leaks(path.read_text(encoding="utf-8"), key) for path in record.rglob("*") if path.is_file()})
        if tags == "stacks":
            # The planted texts were seen, otherwise this test would prove nothing.
            assert "org/model" in events and "VLLM_EXTRA_9" in events and "<secret>" in events
    logs = subprocess.run(
        [Path(sys.executable).with_name("ansible"), HEAD, "-i", INVENTORY, "-b", "-vvvv", "-m", "gb10.cluster.node_logs", "-a", f"dest={tmp_path}/logs"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    findings["logs: output"] = leaks(logs.stdout + logs.stderr, key)
    gathered = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "logs").rglob("*") if path.is_file()}
    findings.update({f"logs: {name}": leaks(text, key) for name, text in gathered.items()})
    assert gathered["engine.log"].count("<secret") >= len(SHAPES)
    for host in (HEAD, WORKER):
        for name in lab.containers(host):
            findings[f"docker inspect {name}"] = leaks(json.dumps(lab.inspect(host, name), indent=1), key)
        # No file of the collection keeps them on a node, except the log in which they were planted.
        kept = lab.run(host, "grep", "-rlF", "-e", PLANTED, "-e", key, "/var/log/gb10", "/var/lib/gb10", check=False).split()
        findings[f"kept on {host}"] = [path for path in kept if path != engine_log(lab)]
    assert {place: lines for place, lines in findings.items() if lines} == {}


def test_secrets_in_settings_are_refused_and_shown_nowhere(lab: Lab) -> None:
    """Secrets that would be in a container's configuration, with the output as AWX sees it. test_inputs.py covers contacts and the other settings."""
    played = lab.play(verbosity=4, gb10_env={f"EXTRA_{number}": line for number, line in enumerate(planted("input"))})
    assert played.rc != 0
    assert all(f"gb10_env.EXTRA_{number}: holds what looks like a password, a token or a key" in played.said for number in range(len(SHAPES)))
    assert PLANTED not in played.stdout + json.dumps(played.events)


@pytest.mark.usefixtures("live_cluster")
def test_ray_refuses_a_question_without_the_token(lab: Lab) -> None:
    played = lab.play(tags="ray")
    assert played.rc == 0, played.failures
    assert "requests without the token" in played.said
    # It does not accept another token either.
    head = f"{ADDRESSES[HEAD]['fabric']}:6379"
    program = (
        "import os, sys; os.environ.pop('RAY_AUTH_TOKEN_PATH', None); os.environ['RAY_AUTH_TOKEN'] = 'another-token-of-32-letters-or-so'\n"
        "from ray._raylet import GcsClient\n"
        f"try: GcsClient(address={head!r}).get_all_node_info(timeout=5)\n"
        "except Exception as error: sys.exit(0 if type(error).__name__ == 'AuthenticationError' else 2)\n"
        "sys.exit(1)\n"
    )
    lab.run(HEAD, "docker", "exec", HEAD_CONTAINER, "python3", "-c", program)
