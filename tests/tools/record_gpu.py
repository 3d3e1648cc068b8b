# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Record what the NVIDIA driver and the kernel show of GPU processes, dead and alive, as test inputs.

    sudo python3 tests/tools/record_gpu.py [--out gpu_situations_spark] [--gib 4] [--only idle,live,...]

Needs the driver, its nvidia-smi and Python 3.10 or newer; this file alone may be copied to a machine. It starts processes that take ``--gib`` GiB
of GPU memory (1 GiB where host memory is pinned or managed), one after the other, kills or leaves them as the situation asks, writes what is seen,
and ends all that it started: about a minute, never more than four. Nothing else should use the GPU meanwhile. Other users' processes are not touched.

What is written has the shape of tests/unit/fixtures/gpu_situations (its README says what each situation is): put there as a directory
``gpu_situations_NAME``, it is tested by being there. Serial numbers, UUIDs, board ids, container ids, the host's name, and the paths of Python and
of this file are replaced; of the ancestors of a process number, state, parent and name are kept, and no arguments. Look through it all the same
before you send it in. With Ansible and the collection on the machine, the answers of node_info and cuda_zombie_check are kept, too (``answers.json``).

Exit status: 0 when every situation was recorded, 3 when one or more could not be (``machine.json`` says why).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime
import json
import os
import pathlib
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import typing as t

#: Seconds for the whole run; a process that holds memory ends by then, too.
LIMIT = 240
#: Seconds that the driver's tool gets for an answer, and a process until it holds its memory.
TOOL_SECONDS, HOLD_SECONDS = 20, 60
#: Seconds over which the return of memory is watched, and between two looks.
WATCH_SECONDS, WATCH_STEP = 8.0, 0.5
#: Samples that are taken even where the driver answers so slowly that fewer fit into that time.
LEAST_SAMPLES = 6
GIB = 1024**3
#: What of the host's memory is pinned or managed at most.
HOST_BYTES = GIB
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15

SITUATIONS = ("idle", "live", "defunct", "pidns", "orphan", "pinned", "managed")

#: What the driver's tool is asked, by the name of the file.
QUERIES = {
    "smi.xml": ["-q", "-x"],
    "compute_apps.csv": ["--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader"],
    "gpu.csv": ["--query-gpu=index,name,uuid,driver_version,memory.total,memory.used", "--format=csv,noheader,nounits"],
}
#: What is kept of a process, and of the machine (once, while it is idle).
PROCESS_FILES = ("stat", "status", "cmdline")
IDLE_FILES = {"vmstat": "vmstat", "pressure_memory": "pressure/memory"}
ZERO_UUID = "00000000-0000-0000-0000-000000000000"
NUMBERED = ("serial", "pdi", "board_id", "gpu_part_number", "board_part_number", "chassis_serial_number", "module_id", "guid", "cluster_uuid")


# -- the holder: what runs in the child -----------------------------------------------------------------------------


def set_title(title: str) -> None:
    """Give this process another command line and name, in place, as engines do."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NAME, title.encode()[:15], 0, 0, 0)
    with open("/proc/self/stat", encoding="ascii", errors="replace") as stream:
        fields = stream.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end: fields 48 and 49 of the whole line
    if start and end > start:
        text = title.encode()[: end - start - 1]
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, text, len(text))


def cuda_hold(kind: str, size: int) -> str:
    """Take ``size`` bytes and return a line that describes how. Raises RuntimeError with the driver's status."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: object) -> None:
        status = getattr(cuda, name)(*arguments)
        if status:
            raise RuntimeError(f"{name} gives {status}")

    call("cuInit", ctypes.c_uint(0))
    version, device, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
    call("cuDriverGetVersion", ctypes.byref(version))
    call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    if kind == "pinned":
        host = ctypes.c_void_p()
        call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(size), ctypes.c_uint(0))
        ctypes.memset(host, 1, size)
    elif kind == "managed":
        pointer = ctypes.c_uint64()
        call("cuMemAllocManaged", ctypes.byref(pointer), ctypes.c_size_t(size), ctypes.c_uint(1))
        ctypes.memset(pointer.value, 1, size)
    else:
        pointer = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(1), ctypes.c_size_t(size))
        call("cuCtxSynchronize")
    return f"{kind} {size} bytes, CUDA {version.value}"


def pid_outside() -> str:
    with open("/proc/self/status", encoding="ascii", errors="replace") as stream:
        return next((line.split(":", 1)[1].strip() for line in stream if line.startswith("NSpid:")), "?")


def hold(kind: str, size: int, title: str, die_with_parent: bool) -> None:
    signal.alarm(LIMIT)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if die_with_parent:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if title:
        set_title(title)
    try:
        outcome = cuda_hold(kind, size)
    except (OSError, RuntimeError, AttributeError) as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
        sys.exit(4)
    print(json.dumps({"pid": os.getpid(), "nspid": pid_outside(), "said": outcome}), flush=True)
    while True:
        time.sleep(1)


def engine(size: int) -> None:
    """An engine-like parent: starts a core that holds memory, prints its pid, and waits to be killed."""
    signal.alarm(LIMIT)
    set_title("vllm serve /models/example --port 8000")
    child = subprocess.Popen(holder_argv("device", size, "VLLM::EngineCore", die_with_parent=False), stdin=subprocess.DEVNULL)
    print(json.dumps({"child": child.pid}), flush=True)
    child.wait()


def holder_argv(kind: str, size: int, title: str, *, die_with_parent: bool) -> list[str]:
    more = ["--die-with-parent"] if die_with_parent else []
    return [sys.executable, os.path.abspath(__file__), "--hold", kind, "--bytes", str(size), "--title", title, *more]


# -- the recorder ---------------------------------------------------------------------------------------------------


def redact(text: str, host: str) -> str:
    """Return ``text`` without what names this one machine."""
    text = re.sub(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", ZERO_UUID, text, flags=re.IGNORECASE)
    text = re.sub(r"\b[0-9a-f]{64}\b", "0" * 64, text)
    for tag in NUMBERED:
        text = re.sub(rf"(<{tag}>)(?!N/A)[^<]*(</{tag}>)", lambda match: f"{match[1]}0{match[2]}", text)
    text = text.replace(sys.executable, "/usr/bin/python3").replace(os.path.realpath(sys.executable), "/usr/bin/python3")
    text = text.replace(os.path.abspath(__file__), "/x/record.py")
    return re.sub(rf"\b{re.escape(host)}\b", "node", text) if len(host) > 3 else text


def read(path: str) -> str:
    """Return at most 1 MiB of a file. Raises OSError."""
    with open(path, "rb") as stream:
        return stream.read(1 << 20).decode("utf-8", "backslashreplace")


def stat_fields(pid: int) -> list[str]:
    """Return the fields of a process's stat after its name: state, parent, …; none when it is gone."""
    try:
        return read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def start_time(pid: int) -> str:
    """Return when a process began, in ticks since boot; empty when it is gone."""
    fields = stat_fields(pid)
    return fields[19] if len(fields) > 19 else ""


def ancestors(pid: int) -> str:
    """Return a process and its parents up to the first one, a line each: pid, state, parent, name."""
    lines = []
    while pid and len(lines) < 64:
        try:
            stat = read(f"/proc/{pid}/stat")
        except (FileNotFoundError, ProcessLookupError):
            break
        name = stat.partition("(")[2].rpartition(")")[0]
        state, parent = stat.rpartition(")")[2].split()[:2]
        lines.append(f"{pid} {state} {parent} {'init' if pid == 1 else name}\n")
        pid = int(parent)
    return "".join(lines)


def children(parent: int) -> list[int]:
    """Return the children of a process."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if stat_fields(pid)[1:2] == [str(parent)]]


class NotRecorded(Exception):
    """A situation could not be produced or recorded; the message says why."""


class Recorder:
    """Makes the situations, one after the other, and writes what is seen."""

    def __init__(self, out: pathlib.Path, nvidia_smi: str, size: int, pace: float) -> None:
        self.out, self.nvidia_smi, self.size, self.pace = out, nvidia_smi, size, pace
        self.host = platform.node()
        self.started: list[subprocess.Popen[str]] = []
        #: (pid, start time) of own processes that are not children of this one.
        self.adopted: list[tuple[int, str]] = []

    def write(self, situation: str, name: str, text: str) -> None:
        path = self.out / situation / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(redact(text, self.host), encoding="utf-8", newline="")

    def ask(self, arguments: t.Sequence[str]) -> str:
        """Return what the driver's tool prints. Raises :class:`NotRecorded` when it fails: half an answer is not a test input."""
        try:
            done = subprocess.run(
                [self.nvidia_smi, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TOOL_SECONDS,
                env={**os.environ, "LC_ALL": "C"},
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotRecorded(f"{self.nvidia_smi}: {error}") from error
        if done.returncode:
            raise NotRecorded(f"{self.nvidia_smi} {' '.join(arguments)} ended with {done.returncode}: {(done.stdout + done.stderr)[:500]!r}")
        return done.stdout.decode("utf-8", "backslashreplace")

    def look(self, situation: str, pid: int = 0, beside: t.Mapping[str, int] | None = None) -> None:
        """Write the driver's answers and the memory of this moment, a process with its ancestors, and others in directories ``beside``."""
        for name, arguments in QUERIES.items():
            self.write(situation, name, self.ask(arguments))
        self.write(situation, "meminfo", read("/proc/meminfo"))
        if pid:
            self.write(situation, "ancestors.txt", ancestors(pid))
        for place, number in {"": pid, **(beside or {})}.items():
            for name in PROCESS_FILES if number else ():
                self.write(os.path.join(situation, place), name, read(f"/proc/{number}/{name}"))
        self._modules(situation)

    def _modules(self, situation: str) -> None:
        """Write the answers of the collection's modules, where Ansible and the collection are on this machine."""
        ansible = shutil.which("ansible")
        if not ansible:
            return
        answers = {}
        arguments = {"node_info": {"sections": ["gpus", "memory", "tenants"]}, "cuda_zombie_check": {"fail_on": [], "wait": False, "wait_sleep": 0}}
        environment = {**os.environ, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json", "ANSIBLE_LOCALHOST_WARNING": "false"}
        for module, options in arguments.items():
            common = {**options, "nvidia_smi": self.nvidia_smi}
            argv = [ansible, "localhost", "-i", "localhost,", "-c", "local", "-m", f"gb10.cluster.{module}", "-a", json.dumps(common)]
            argv += ["-e", json.dumps({"ansible_python_interpreter": sys.executable})]
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=environment, check=False)
            if "=> {" not in done.stdout:
                raise NotRecorded(f"{module} gave no answer: {(done.stdout + done.stderr)[-500:]}")
            answers[module] = json.loads("{" + done.stdout.partition("=> {")[2])
        self.write(situation, "answers.json", json.dumps(answers, indent=1) + "\n")

    def watch(self, situation: str) -> None:
        """Write how memory is returned, one line per sample."""
        lines, began = [], time.monotonic()
        while time.monotonic() - began < WATCH_SECONDS * self.pace or len(lines) < LEAST_SAMPLES:
            memory = dict(line.split(":", 1) for line in read("/proc/meminfo").splitlines() if ":" in line)
            sample = {
                "t": round(time.monotonic() - began, 2),
                "mem_available": memory["MemAvailable"].strip(),
                "mem_free": memory["MemFree"].strip(),
                "gpu": self.ask(["--query-gpu=memory.used", "--format=csv,noheader"]).strip(),
                "apps": self.ask(QUERIES["compute_apps.csv"]).splitlines(),
            }
            lines.append(json.dumps(sample) + "\n")
            time.sleep(WATCH_STEP * self.pace)
        self.write(situation, "samples.jsonl", "".join(lines))

    def start(self, argv: t.Sequence[str]) -> subprocess.Popen[str]:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.started.append(child)
        return child

    @staticmethod
    def hear(child: subprocess.Popen[str]) -> dict[str, t.Any]:
        """Return the next line that a process prints. Raises :class:`NotRecorded` when it prints nothing or an error."""
        ready, _writable, _failed = select.select([child.stdout], [], [], HOLD_SECONDS)
        line = child.stdout.readline() if ready else ""
        if not line:
            child.kill()
            raise NotRecorded(f"the process that takes the memory said nothing: {child.stderr.read()[-500:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise NotRecorded(answer["error"])
        return answer

    def clean(self) -> None:
        """End all that was started."""
        for pid, start in self.adopted:
            if start and start_time(pid) == start:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for child in self.started:
            child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(10)
            child.stdout.close()
            child.stderr.close()
        if self.started:
            time.sleep(2 * self.pace)  # the driver lists a process for a moment after its end
        self.adopted, self.started = [], []

    # -- the situations --

    def idle(self) -> None:
        self.look("idle")
        for name, path in IDLE_FILES.items():
            with contextlib.suppress(FileNotFoundError):
                self.write("idle", name, read(f"/proc/{path}"))

    def _held(self, situation: str, kind: str, size: int, title: str = "") -> None:
        self.write(situation, "meminfo_before", read("/proc/meminfo"))
        child = self.start(holder_argv(kind, size, title, die_with_parent=True))
        self.hear(child)
        self.look(situation, child.pid)

    def live(self) -> None:
        self._held("live", "device", self.size, "VLLM::Worker_TP0")

    def pinned(self) -> None:
        self._held("pinned", "pinned", min(self.size, HOST_BYTES))

    def managed(self) -> None:
        self._held("managed", "managed", min(self.size, HOST_BYTES))

    def defunct(self) -> None:
        child = self.start(holder_argv("device", self.size, "", die_with_parent=True))
        self.hear(child)
        os.kill(child.pid, signal.SIGKILL)  # and not waited for: it stays as a zombie
        self.look("defunct_at_once", child.pid)
        time.sleep(6 * self.pace)
        self.look("defunct", child.pid)

    def pidns(self) -> None:
        options = ["--pid", "--fork", "--kill-child", "--mount-proc"]
        try:
            child = self.start(["unshare", *options, *holder_argv("device", self.size, "", die_with_parent=False)])
        except OSError as error:
            raise NotRecorded(f"unshare: {error}") from error
        self.hear(child)
        inner = children(child.pid)
        self.adopted += [(pid, start_time(pid)) for pid in inner]
        self.look("pidns", inner[0])

    def orphan(self) -> None:
        parent = self.start([sys.executable, os.path.abspath(__file__), "--engine", "--bytes", str(self.size)])
        core = int(self.hear(parent)["child"])
        self.adopted.append((core, start_time(core)))
        self.hear(parent)  # the core writes to the same pipe once it holds the memory
        self.look("orphan_before", core, {"engine": parent.pid})
        parent.kill()
        parent.wait(20)
        time.sleep(self.pace)
        self.look("orphan", core)
        if start_time(core) == self.adopted[-1][1]:
            os.kill(core, signal.SIGTERM)
        self.watch("orphan_ended")
        self.look("orphan_ended")


def machine(recorder: Recorder) -> dict[str, t.Any]:
    """Return the facts of this machine, without its name. Raises :class:`NotRecorded` when the driver does not report them."""
    text = recorder.ask(["-q", "-x"])

    def text_of(tag: str) -> str | None:
        match = re.search(rf"<{tag}>([^<]*)</{tag}>", text)
        return match[1] if match else None

    return {
        "gpu": text_of("product_name"),
        "driver": text_of("driver_version"),
        "cuda": text_of("cuda_version"),
        "kernel": platform.release(),
        "arch": platform.machine(),
        "recorded": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "euid": os.geteuid(),
        "pid_namespace": os.readlink("/proc/self/ns/pid"),
    }


def record(recorder: Recorder, names: t.Sequence[str]) -> dict[str, str]:
    """Record the situations; returns the reason for each one that could not be recorded."""
    failed = {}
    for name in names:
        try:
            getattr(recorder, name)()
            print(f"{name}: recorded", flush=True)
        except (NotRecorded, OSError, ValueError, subprocess.SubprocessError) as error:
            if isinstance(error, TimeoutError):
                raise
            failed[name] = f"{type(error).__name__}: {redact(str(error), recorder.host)}"
            print(f"{name}: {failed[name]}", flush=True)
        finally:
            recorder.clean()
    return failed


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu_situations_new"), help="directory to write; it must not exist")
    parser.add_argument("--gib", type=float, default=4, help="GPU memory that a process takes, in GiB (default 4)")
    parser.add_argument("--only", default=",".join(SITUATIONS), help="situations, by comma (default all)")
    parser.add_argument("--nvidia-smi", default="nvidia-smi", help="the driver's tool")
    parser.add_argument("--pace", type=float, default=1, help="factor of the times that a real driver is given; without one, nothing has to be waited for")
    for name in ("--hold", "--title"):
        parser.add_argument(name, default="", help=argparse.SUPPRESS)
    parser.add_argument("--bytes", type=int, default=0, help=argparse.SUPPRESS)
    for name in ("--die-with-parent", "--engine"):
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.only.split(",")) - set(SITUATIONS)
    if unknown:
        parser.error(f"no such situation: {', '.join(sorted(unknown))}; there are {', '.join(SITUATIONS)}")
    return options


def over(_number: int, _frame: t.Any) -> t.NoReturn:
    raise TimeoutError(f"ended, or the limit of {LIMIT} s is over")


def main() -> int:
    options = parsed()
    if options.hold:
        hold(options.hold, options.bytes, options.title, options.die_with_parent)
        return 0
    if options.engine:
        engine(options.bytes)
        return 0
    options.out.mkdir(parents=True)
    recorder = Recorder(options.out, options.nvidia_smi, int(options.gib * GIB), options.pace)
    signal.signal(signal.SIGALRM, over)
    signal.signal(signal.SIGTERM, over)
    signal.alarm(LIMIT)
    try:
        described = machine(recorder)
        failed = record(recorder, options.only.split(","))
    except (NotRecorded, TimeoutError) as error:
        print(f"not recorded: {error}", file=sys.stderr)
        return 3
    finally:
        signal.alarm(0)
        recorder.clean()
    recorder.write("", "machine.json", json.dumps({**described, **({"not_recorded": failed} if failed else {})}, indent=1) + "\n")
    print(f"wrote {options.out}")
    return 3 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
