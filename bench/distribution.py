# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How fast a model gets from one host to others, and what that costs in CPU, beside the ways that others take.

    sudo .venv/bin/python bench/distribution.py [--rounds 5] [--only copy again killed four] [--disk DIRECTORY]

The hosts are network namespaces of this machine, joined by a bridge; a namespace has its own addresses and links, and shares CPU, memory and disk with
the others. So only the ratios and the CPU seconds per GB (of both ends together) are meaningful. The rates say nothing about a 200 Gb/s link.
The model is a hub cache of 1.3 GB in 20 files. The ways take turns in every round, and medians are compared; each round is printed.

- copy: into memory, and from a cold disk onto a disk with everything flushed. "ours" is the module model_copy as a node runs it, from its first look at
  the cache to files that have their names; the time to start and end the server is printed next to it. The first row is the command of eugr/spark-vllm-docker's
  hf-download.sh, which is how others call it, too. Nothing gets faster from disk to disk than cp on one host does, which is the last row there.
- again: the same on a target that has all of it, against rsync -c.
- killed: our copy is killed when half has arrived; what the next run sends is counted on the source's link.
- four: four targets against one, on links of --rate.

Nothing is asserted, since times depend on the machine: each ratio is printed with its target. It needs root, ip, tc, rsync, and sshd; without rclone its
row is left out. systemd is not used: a stand-in starts the server with the command that systemd would get. images.py measures images.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import types
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.gb10.cluster.plugins.module_utils._model import copying  # noqa: E402
from ansible_collections.gb10.cluster.plugins.modules import model_copy  # noqa: E402

#: The targets: multiple of the first row's rate, share of its CPU per GB, share of the seconds of rsync -c, share sent again, multiple of one target.
FASTER, CPU_SHARE, AGAIN, RESENT, FOUR = 4.0, 1 / 3, 1 / 20, 0.52, 1.5
#: Files of the model, and bytes of each. A quarter of that is enough for a slow link.
FILES, SIZE = 20, 65_000_000
REPO, COMMIT = "gb10-bench/model", "c" * 40
BASE = "models--gb10-bench--model"
#: Addresses of the hosts, the source's first.
ADDRESSES = [f"10.203.77.{number}" for number in range(1, 6)]
PORT = 20300
#: Share of the machine's CPU above which the link is no longer the limit.
BUSY = 0.7
#: Seconds that anything here may take.
LIMIT = 300

#: Stand-ins for systemd on a machine where it does not run: they start and end the server with the command of its unit.
SYSTEMD_RUN = """#!/bin/sh
while [ $# -gt 0 ]; do
  case "$1" in
    --unit) unit=$2; shift 2 ;;
    --description|--property) shift 2 ;;
    --*) shift ;;
    *) break ;;
  esac
done
setsid "$@" < /dev/null > /dev/null 2>&1 &
echo $! > "$GB10_BENCH/$unit.pid"
"""
SYSTEMCTL = """#!/bin/sh
for unit; do :; done
pid=$(cat "$GB10_BENCH/$unit.pid" 2> /dev/null) && kill -0 "$pid" 2> /dev/null || { echo inactive; exit 0; }
case "$1" in
  show) echo active ;;
  stop) kill "$pid"; while kill -0 "$pid" 2> /dev/null; do sleep 0.01; done; rm "$GB10_BENCH/$unit.pid" ;;
esac
"""

Row = tuple[float, float]
#: Names of rows.
FIRST, OURS = "rsync over ssh, as others call it", "ours, verified"


class Cpu:
    """Counts the CPU seconds of this process and of everything that it starts, also of detached processes."""

    def __init__(self) -> None:
        own = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        paths = {line.split(":")[1]: line.split(":", 2)[2].lstrip("/") for line in own}
        version1 = next((names for names in paths if "cpuacct" in names.split(",")), None)
        if version1:
            self._place, self._file, self._unit = Path("/sys/fs/cgroup/cpuacct") / paths[version1], "cpuacct.usage", 1e9
        else:
            self._place, self._file, self._unit = Path("/sys/fs/cgroup") / paths[""], "cpu.stat", 1e6
        self._own = self._place / f"gb10-bench-{os.getpid()}"

    def __enter__(self) -> Cpu:
        self._own.mkdir()
        (self._own / "cgroup.procs").write_text(str(os.getpid()), encoding="utf-8")
        return self

    def __exit__(self, *_given: object) -> None:
        (self._place / "cgroup.procs").write_text(str(os.getpid()), encoding="utf-8")
        with contextlib.suppress(OSError):
            self._own.rmdir()

    def seconds(self) -> float:
        """Return what was used so far."""
        text = (self._own / self._file).read_text(encoding="utf-8")
        return int(text.split("usage_usec", 1)[-1].split()[0]) / self._unit


def run(*words: str, **more: t.Any) -> None:
    """Run a program that must succeed, without printing its output."""
    subprocess.run(words, check=True, timeout=LIMIT, stdout=subprocess.DEVNULL, **more)


class Host:
    """A host: a network namespace, with the programs that run in it."""

    def __init__(self, number: int, scratch: Path) -> None:
        self.name, self.address, self._scratch = f"gb10b{os.getpid()}-{number}", ADDRESSES[number], scratch / f"host{number}"
        self._scratch.mkdir()
        self._programs: list[subprocess.Popen[bytes]] = []

    def words(self, *words: str) -> list[str]:
        """Return the command that runs another one on this host."""
        return ["ip", "netns", "exec", self.name, *words]

    def start(self, *words: str, **more: t.Any) -> subprocess.Popen[bytes]:
        """Start a program of this host, which ends with the bench at the latest."""
        program = subprocess.Popen(self.words(*words), **more)
        self._programs.append(program)
        return program

    def sent(self) -> int:
        """Return the bytes that this host has put on its link."""
        done = subprocess.run(self.words("cat", "/sys/class/net/eth0/statistics/tx_bytes"), check=True, capture_output=True, timeout=LIMIT)
        return int(done.stdout)

    def end(self) -> None:
        """End what still runs."""
        for program in self._programs:
            if program.poll() is None:
                program.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    program.wait(5)
        for path in self._scratch.glob("*.pid"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(path.read_text()), signal.SIGTERM)

    def node(self) -> Node:
        """Return a Python that has loaded the module, as a node's has when its work begins."""
        environment = {**os.environ, "GB10_BENCH": str(self._scratch), "PATH": f"{self._scratch.parent / 'bin'}:{os.environ['PATH']}"}
        words = (sys.executable, str(Path(__file__).resolve()), "--node")
        return Node(self, self.start(*words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE), self._scratch)


class Node:
    """The module on a host, called once or several times."""

    def __init__(self, host: Host, program: subprocess.Popen[bytes], scratch: Path) -> None:
        self._host, self._program, self._scratch = host, program, scratch
        self._line()

    def _line(self) -> t.Any:
        line = self._program.stdout.readline()
        if not line:
            raise SystemExit(f"the module ended on {self._host.name}")
        return json.loads(line)

    def begin(self, state: str, hf_home: Path, **params: t.Any) -> None:
        """Have the module begin."""
        given = {
            "state": state, "hf_home": str(hf_home), "cluster_name": self._host.name, "address": self._host.address, "port": PORT, "clients": None,
            "source": None, "secret": None, "listing": None, "streams": 4, "timeout": LIMIT, "disk_floor_gib": 0, "required": True,
            "state_dir": str(self._scratch / "state"), "lock_id": "", "repositories": [{"repo": REPO, "revision": COMMIT}],
        }  # fmt: skip
        self._program.stdin.write(json.dumps({**given, **params}).encode() + b"\n")
        self._program.stdin.flush()

    def result(self) -> dict[str, t.Any]:
        """Return its result once it is there."""
        answer = self._line()
        if "failed" in answer:
            raise SystemExit(f"{self._host.name}: {answer['failed']}")
        return answer

    def call(self, state: str, hf_home: Path, **params: t.Any) -> dict[str, t.Any]:
        """Call the module and return its result."""
        self.begin(state, hf_home, **params)
        return self.result()

    def kill(self) -> None:
        """Kill it."""
        self._program.kill()
        self._program.wait(LIMIT)

    def close(self) -> None:
        """Close its input and wait until it has ended."""
        self._program.stdin.close()
        self._program.wait(LIMIT)


def node() -> int:
    """Run the module as on a node: read parameters and write results, one line each."""
    print("{}", flush=True)
    for line in sys.stdin:
        try:
            answer = model_copy.work(types.SimpleNamespace(params=json.loads(line), check_mode=False))
        except Exception as error:  # the error is passed to the bench
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    return 0


# -- the hosts -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def hosts(count: int, scratch: Path, rate: str = "") -> t.Iterator[list[Host]]:
    """Make hosts that are joined by a bridge; with ``rate`` none sends faster than that."""
    made, switch = [], f"gb10b{os.getpid()}-sw"
    with contextlib.ExitStack() as stack:

        def namespace(name: str) -> None:
            run("ip", "netns", "add", name)
            stack.callback(run, "ip", "netns", "del", name)

        namespace(switch)
        run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "bridge", "up")
        for number in range(count):
            host = Host(number, scratch)
            stack.callback(shutil.rmtree, scratch / f"host{number}")
            namespace(host.name)
            stack.callback(host.end)
            run("ip", "link", "add", "eth0", "netns", host.name, "type", "veth", "peer", "name", host.name, "netns", switch)
            run("ip", "-n", switch, "link", "set", host.name, "master", "bridge", "up")
            run("ip", "-n", host.name, "link", "set", "lo", "up")
            run("ip", "-n", host.name, "link", "set", "eth0", "up")
            run("ip", "-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0")
            if rate:
                run("tc", "-n", host.name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "256k", "latency", "50ms")
            made.append(host)
        yield made


def make_model(home: Path, size: int) -> None:
    """Make a model in a hub cache, as the hub's client lays one out."""
    base = home / "hub" / BASE
    for folder in ("blobs", "refs", f"snapshots/{COMMIT}"):
        (base / folder).mkdir(parents=True)
    for number in range(1, FILES + 1):
        name = f"model-{number:05}-of-{FILES:05}.safetensors"
        data = os.urandom(size)
        digest = hashlib.sha256(data).hexdigest()
        with open(base / "blobs" / digest, "wb") as handle:
            handle.write(data)
            os.fsync(handle.fileno())
        (base / "snapshots" / COMMIT / name).symlink_to(f"../../blobs/{digest}")
    (base / "refs/main").write_text(COMMIT, encoding="ascii")


def blobs(home: Path) -> list[Path]:
    """Return the files of the model."""
    return sorted((home / "hub" / BASE / "blobs").iterdir())


def cool(home: Path) -> None:
    """Take the model out of the page cache."""
    for path in blobs(home):
        with open(path, "rb") as handle:
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def flush(home: Path) -> None:
    """Write the model to the disk."""
    for path in blobs(home):
        with open(path, "rb") as handle:
            os.fsync(handle.fileno())


def empty(home: Path) -> None:
    """Empty a target's cache."""
    shutil.rmtree(home, ignore_errors=True)
    (home / "hub").mkdir(parents=True)


# -- the ways --------------------------------------------------------------------------------------------------------


class Ways:
    """The ways from the first host to the second."""

    def __init__(self, source: Host, target: Host, scratch: Path, home: Path, other: Path) -> None:
        self.source, self.target, self.home, self.other = source, target, home, other
        self.daemon = 0.0
        self._scratch = Path(tempfile.mkdtemp(dir=scratch))
        self._given: dict[str, t.Any] = {}
        self._ssh()

    def _ssh(self) -> None:
        place = self._scratch
        Path("/run/sshd").mkdir(exist_ok=True)
        for name in ("host", "user"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name))
        (place / "sshd").write_text(
            f"ListenAddress {self.target.address}\nHostKey {place}/host\nAuthorizedKeysFile {place}/user.pub\nStrictModes no\nPidFile none\nUsePAM no\n"
            "PermitRootLogin prohibit-password\n",
            encoding="ascii",
        )
        known = "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR"
        (place / "ssh").write_text(f"User root\nIdentityFile {place}/user\n{known}\n", encoding="ascii")
        self.target.start("/usr/sbin/sshd", "-D", "-f", str(place / "sshd"))
        wait_for(lambda: not subprocess.run(self._shell("true"), check=False, capture_output=True, timeout=LIMIT).returncode)

    def _shell(self, *words: str) -> list[str]:
        return self.source.words("ssh", "-F", str(self._scratch / "ssh"), self.target.address, *words)

    def others(self) -> None:
        """One rsync over ssh, by the command that others use."""
        self._push(["-av", "--mkpath", "--progress"], f"ssh -F {self._scratch / 'ssh'}", str(self.home / "hub" / BASE), "")

    def _push(self, options: list[str], shell: str, source: str, more: str) -> None:
        run(*self.source.words("rsync", *options, "-e", shell, source, f"root@{self.target.address}:{self.other / 'hub'}/{more}"))

    def tuned(self) -> None:
        """Two rsyncs over ssh, with the fastest cipher and without comparing blocks."""
        shell = f"ssh -F {self._scratch / 'ssh'} -c aes128-gcm@openssh.com"

        def half(number: int) -> None:
            listed = self._scratch / f"half{number}"
            names = [str(path.relative_to(self.home / "hub")) for path in blobs(self.home)[number::2]]
            listed.write_text("\n".join([*names, *([f"{BASE}/refs/", f"{BASE}/snapshots/"] if number == 0 else [])]), encoding="ascii")
            self._push(["-a", "-r", "--whole-file", f"--files-from={listed}"], shell, str(self.home / "hub"), "")

        at_once([lambda: half(0), lambda: half(1)])

    def plain_daemon(self) -> None:
        """One rsync from a daemon."""
        run(*self.target.words("rsync", "-a", f"rsync://{self.source.address}:{PORT + 1}/hub/{BASE}", str(self.other / "hub")))

    def start_daemon(self) -> None:
        """Start the daemon that :meth:`plain_daemon` asks."""
        config = self._scratch / "rsyncd.conf"
        config.write_text(f"use chroot = yes\nuid = 0\ngid = 0\n[hub]\npath = {self.home / 'hub'}\n", encoding="utf-8")
        self.source.start("rsync", "--daemon", "--no-detach", f"--config={config}", f"--port={PORT + 1}", f"--address={self.source.address}")

    def rclone(self) -> None:
        """Rclone over http, four files at once. Http has no digests, so that nothing is compared but sizes."""
        url = f"http://{self.source.address}:{PORT + 2}"
        words = ("rclone", "copy", "--transfers=4", "--http-url", url, ":http:", str(self.other / "hub" / BASE / "blobs"))
        run(*self.target.words(*words), stderr=subprocess.DEVNULL)

    def start_rclone(self) -> None:
        """Start the server that :meth:`rclone` asks."""
        words = ("rclone", "serve", "http", "--addr", f"{self.source.address}:{PORT + 2}", str(self.home / "hub" / BASE / "blobs"))
        self.source.start(*words, stderr=subprocess.DEVNULL)

    def on_one_host(self) -> None:
        """Copy on the target alone, over no link and with no digest."""
        run("cp", "-a", "--reflink=never", str(self.home / "hub" / BASE), str(self.other / "hub"))

    def begin_ours(self) -> None:
        """Have the source serve the model, and the target ready; that takes as long for a model of any size."""
        began = time.monotonic()
        self._node, self._taker = self.source.node(), self.target.node()
        self._given = self._node.call("served", self.home, clients=[self.target.address])
        self._given["secret"] = Path(self._given["secret_file"]).read_text(encoding="ascii")
        self.daemon = time.monotonic() - began

    def ours(self) -> dict[str, t.Any]:
        """Our module."""
        return self._taker.call("copied", self.other, source=self.source.address, secret=self._given["secret"], listing=self._given["listing"])

    def begin_ours_only(self) -> Node:
        """Start our module, and return it."""
        self._taker.begin("copied", self.other, source=self.source.address, secret=self._given["secret"], listing=self._given["listing"])
        return self._taker

    def end_ours(self) -> None:
        """End the daemon."""
        self._node.call("stopped", self.home, listing=self._given["listing"])
        for process in (self._node, self._taker):
            process.close()

    def compare(self) -> None:
        """rsync -c over ssh, by the command that others use."""
        self._push(["-avc", "--mkpath", "--progress"], f"ssh -F {self._scratch / 'ssh'}", str(self.home / "hub" / BASE), "")


def wait_for(done: t.Callable[[], bool]) -> None:
    """Return once a condition is true."""
    until = time.monotonic() + LIMIT
    while not done():
        if time.monotonic() > until:
            raise SystemExit("a program did not start")
        time.sleep(0.05)


def at_once(calls: t.Sequence[t.Callable[[], t.Any]]) -> None:
    """Call several functions at the same time."""
    errors: list[BaseException] = []

    def guarded(call: t.Callable[[], t.Any]) -> None:
        try:
            call()
        except (Exception, SystemExit) as error:  # raised by the thread that waits
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# -- what is measured ------------------------------------------------------------------------------------------------


def median(values: t.Iterable[float]) -> float:
    return statistics.median(values)


def of_wanted(name: str, value: float, unit: str, most: bool, limit: float) -> None:
    """Print a figure with its target."""
    print(f"{name:<44} {value:8.3f}{unit}  (wanted: {limit:.3g}{unit} or {'less' if most else 'more'})", flush=True)


def measure_copy(cpu: Cpu, scratch: Path, rounds: int, place: Path, kind: str, cold: bool) -> None:
    """Print a table of the ways into one kind of target."""
    home, other = place / "source", place / "target"
    make_model(home, SIZE)
    gigabytes = FILES * SIZE / 1e9
    with hosts(2, scratch) as (source, target):
        ways = Ways(source, target, scratch, home, other)
        ways.start_daemon()
        table: dict[str, t.Callable[[], t.Any]] = {
            FIRST: ways.others,
            "rsync over ssh, aes128-gcm, 2 at once": ways.tuned,
            "rsync daemon": ways.plain_daemon,
        }
        if shutil.which("rclone"):
            ways.start_rclone()
            table["rclone over http, 4 at once, not verified"] = ways.rclone
        table["ours, verified"] = ways.ours
        if cold:
            table["cp on one host: what the disk gives"] = ways.on_one_host
        rows: dict[str, list[Row]] = {name: [] for name in table}
        daemons = []
        for _round in range(rounds):
            for name, way in table.items():
                empty(other)
                if cold:
                    cool(home)
                if way == ways.ours:
                    ways.begin_ours()
                    daemons.append(ways.daemon)
                began, used = time.monotonic(), cpu.seconds()
                way()
                if cold:
                    flush(other)
                rows[name].append((gigabytes * 1000 / (time.monotonic() - began), (cpu.seconds() - used) / gigabytes))
                if way == ways.ours:
                    ways.end_ours()
                if len(blobs(other)) != FILES:
                    raise SystemExit(f"{name}: {len(blobs(other))} files arrived")
    shutil.rmtree(place)
    first = next(iter(rows.values()))
    print(f"{kind:<44}    MB/s   times  CPU s/GB   share    rounds, MB/s")
    for name, measured in rows.items():
        rate, cost = (median(column) for column in zip(*measured))
        ratio, share = (median(b / a for a, b in zip(before, after)) for before, after in zip(zip(*first), zip(*measured)))
        print(f"  {name:<42} {rate:7.0f} {ratio:7.2f} {cost:9.2f} {share:7.2f}    {' '.join(f'{row[0]:.0f}' for row in measured)}")
    of_wanted("ours is faster by", median(b[0] / a[0] for a, b in zip(first, rows[OURS])), "", False, FASTER)
    of_wanted("ours takes of its CPU per GB", median(b[1] / a[1] for a, b in zip(first, rows[OURS])), "", True, CPU_SHARE)
    print(f"loading the module and starting the server took {median(daemons):.2f} s beside that\n", flush=True)


def measure_again(scratch: Path, rounds: int, place: Path) -> None:
    """Print the time of a run on a target that already has the whole model."""
    home, other = place / "source", place / "target"
    make_model(home, SIZE)
    with hosts(2, scratch) as (source, target):
        ways = Ways(source, target, scratch, home, other)
        empty(other)
        ways.begin_ours()
        ways.ours()
        theirs, ours = [], []
        for _round in range(rounds):
            for way, seconds in ((ways.compare, theirs), (ways.ours, ours)):
                began = time.monotonic()
                way()
                seconds.append(time.monotonic() - began)
        ways.end_ours()
    shutil.rmtree(place)
    print(f"again, with all of it there: rsync -c {median(theirs):.2f} s, ours {median(ours):.3f} s")
    of_wanted("ours takes of rsync -c", median(b / a for a, b in zip(theirs, ours)), "", True, AGAIN)
    print(flush=True)


def measure_killed(scratch: Path, rounds: int, place: Path) -> None:
    """Print what is sent again after our clients were killed at half."""
    home, other = place / "source", place / "target"
    make_model(home, SIZE)
    total, shares, at, stage = FILES * SIZE, [], [], other / "hub" / copying.STAGE
    # Slow enough to be killed at the right moment.
    with hosts(2, scratch, "3gbit") as (source, target):
        ways = Ways(source, target, scratch, home, other)
        for _round in range(rounds):
            empty(other)
            ways.begin_ours()
            killed = ways.begin_ours_only()
            wait_for(lambda: arrived(stage) >= total / 2)
            killed.kill()
            at.append(arrived(stage) / total)
            ways.begin_ours()
            before = source.sent()
            ways.ours()
            shares.append((source.sent() - before) / total)
            ways.end_ours()
    shutil.rmtree(place)
    print(f"killed when {', '.join(f'{share:.1%}' for share in at)} had arrived; sent again: {', '.join(f'{share:.1%}' for share in shares)}")
    of_wanted("sent again", 100 * median(shares), " %", True, 100 * RESENT)
    print(flush=True)


def arrived(stage: Path) -> int:
    """Return the bytes of a stage."""
    size = 0
    for folder, _folders, names in os.walk(stage):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                # The files are as long as they will be from the start, with holes.
                size += os.stat(os.path.join(folder, name)).st_blocks * 512
    return size


def measure_four(cpu: Cpu, scratch: Path, rounds: int, place: Path, rate: str) -> None:
    """Print how long four targets take that pass the model on to each other, compared with one."""
    home, others = place / "source", [place / f"target{number}" for number in range(1, 5)]
    make_model(home, SIZE // 4)
    seconds: dict[int, list[float]] = {1: [], 4: []}
    busy = []
    with hosts(5, scratch, rate) as (source, *targets):
        for _round in range(rounds):
            for count, times in seconds.items():
                chain = [source, *targets[:count]]
                for other in others:
                    empty(other)
                giver, takers = source.node(), [target.node() for target in chain[1:]]
                given = giver.call("served", home, clients=[chain[1].address])
                secret = Path(given["secret_file"]).read_text(encoding="ascii")
                began, used = time.monotonic(), cpu.seconds()
                for number, taker in enumerate(takers, 1):
                    after = [host.address for host in chain[number + 1:number + 2]]
                    taker.begin("copied", others[number - 1], source=chain[number - 1].address, secret=secret, listing=given["listing"], clients=after)
                for taker in takers:
                    taker.result()
                times.append(time.monotonic() - began)
                busy.append((cpu.seconds() - used) / times[-1] / (os.cpu_count() or 1))
                giver.call("stopped", home, listing=given["listing"])
                for process in (giver, *takers):
                    process.close()
                if any(len(blobs(other)) != FILES for other in others[:count]):
                    raise SystemExit("not all files arrived")
    shutil.rmtree(place)
    print(f"links of {rate}: one target {median(seconds[1]):.2f} s, four {median(seconds[4]):.2f} s")
    print(f"most that was used of the CPU: {max(busy):.0%}  (wanted: less than {BUSY:.0%}, else the link is not what limits)")
    of_wanted("four targets take of one", median(b / a for a, b in zip(seconds[1], seconds[4])), "", True, FOUR)
    print(flush=True)


def main() -> int:
    if sys.argv[1:] == ["--node"]:
        return node()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="of each (default 5)")
    parser.add_argument("--only", nargs="+", default=["copy", "again", "killed", "four"], choices=["copy", "again", "killed", "four"])
    parser.add_argument("--disk", type=Path, default=Path("/var/tmp"), help="directory on a disk, with room for 3 GB (default /var/tmp)")
    parser.add_argument("--rate", default="400mbit", help="what a host may send with four targets, as tc says it (default 400mbit)")
    options = parser.parse_args()
    missing = [name for name in ("ip", "tc", "rsync", "ssh", "ssh-keygen") if not shutil.which(name)]
    if os.geteuid() != 0 or missing or not Path("/usr/sbin/sshd").exists():
        print(f"this needs root, sshd, and {', '.join(missing) or 'nothing else'}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="gb10-bench-") as name, tempfile.TemporaryDirectory(prefix="gb10-bench-", dir="/dev/shm") as memory:
        scratch = Path(name)
        (scratch / "bin").mkdir()
        for tool, text in (("systemd-run", SYSTEMD_RUN), ("systemctl", SYSTEMCTL), ("journalctl", "#!/bin/sh\n")):
            (scratch / "bin" / tool).write_text(text, encoding="ascii")
            (scratch / "bin" / tool).chmod(0o755)
        with Cpu() as cpu, tempfile.TemporaryDirectory(prefix="gb10-bench-", dir=options.disk) as disk:
            if "copy" in options.only:
                measure_copy(cpu, scratch, options.rounds, Path(memory) / "m", "within memory", False)
                measure_copy(cpu, scratch, options.rounds, Path(disk) / "m", "from a cold disk to a disk, flushed", True)
            if "again" in options.only:
                measure_again(scratch, options.rounds, Path(memory) / "m")
            if "killed" in options.only:
                measure_killed(scratch, options.rounds, Path(memory) / "m")
            if "four" in options.only:
                measure_four(cpu, scratch, options.rounds, Path(memory) / "m", options.rate)
    return 0


if __name__ == "__main__":
    sys.exit(main())
