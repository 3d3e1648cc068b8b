# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start a real vLLM with dummy weights, one model shape after the other, and record its output and resource use as test inputs.

    python3 tests/tools/record_engine.py --shapes tests/unit/fixtures/gpu/shapes.json --out records [--only NAME,NAME] [--seconds 1500]

Needs a GPU, its nvidia-smi, and vLLM for this Python; this file and the list of shapes alone may be copied to a machine. Nothing is downloaded: each shape
brings its config.json. A shape with a result in ``--out`` is not started again, so an interrupted run continues where it was. Nothing else should use the
GPU meanwhile. Every process that this starts ends with it.

Of each start: NAME.json (arguments, seconds, the answer, processes and their memory, exit), NAME.log, NAME.smi.csv (seconds, MiB used, GPU %, W), and
NAME.idle.prom, NAME.load.prom, NAME.after.prom (/metrics). A shape with ``inject`` is a start that something is done to: see INJECTIONS.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import platform
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import typing as t
import urllib.error
import urllib.request

#: Seconds until a start must answer, and until it must have ended.
START_SECONDS, END_SECONDS = 240, 30
SMI = ["nvidia-smi", "--query-gpu=memory.used,utilization.gpu,power.draw", "--format=csv,noheader"]
#: A process that holds memory beside the engine: its GiB, or, where the number is below zero, the GiB that it leaves free.
HOLDER = (
    "import sys, time, torch; torch.cuda.init(); print('up', flush=True); sys.stdin.readline(); gib = float(sys.argv[1]); "
    "free = torch.cuda.mem_get_info()[0]; size = int(gib * 2**30 if gib > 0 else free + gib * 2**30); "
    "x = torch.zeros(size, dtype=torch.uint8, device='cuda'); print('holds', size, flush=True); time.sleep(300)"
)


def get(port: int, path: str, body: dict[str, t.Any] | None = None, timeout: float = 30) -> tuple[int, str]:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (OSError, ValueError) as error:
        return 0, f"{type(error).__name__}: {error}"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def output_of(argv: list[str], seconds: float = 20) -> str:
    """Return what a program prints, nothing where it fails."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


class Start:
    """One start of the engine."""

    def __init__(self, shape: dict[str, t.Any], out: pathlib.Path, work: pathlib.Path) -> None:
        self.shape, self.out, self.work, self.name = shape, out, work, shape["name"]
        self.port, self.began = free_port(), time.monotonic()
        self.model = work / "models" / self.name
        self.log = out / f"{self.name}.log"
        self.found: dict[str, t.Any] = {"name": self.name, "date": time.strftime("%Y-%m-%d"), **{key: shape[key] for key in ("inject", "cut") if key in shape}}
        self.holder: subprocess.Popen[str] | None = None
        self.ended = threading.Event()

    def path(self, ending: str) -> pathlib.Path:
        return self.out / f"{self.name}.{ending}"

    def seconds(self) -> float:
        return round(time.monotonic() - self.began, 2)

    # -- the parts of a start

    def written(self) -> list[str]:
        """Write the model's files and return the command."""
        self.model.mkdir(parents=True, exist_ok=True)
        (self.model / "config.json").write_text(json.dumps(self.shape["config"], indent=1))
        for name, content in self.shape.get("files", {}).items():
            (self.model / name).write_text(json.dumps(content))
        for name in self.shape.get("shards", []):
            # A file of weights without tensors.
            (self.model / name).write_bytes((2).to_bytes(8, "little") + b"{}")
        arguments = list(self.shape.get("serve", []))
        if "draft" in self.shape:
            place = self.work / "models" / f"{self.name}-draft"
            place.mkdir(parents=True, exist_ok=True)
            (place / "config.json").write_text(json.dumps(self.shape["draft"], indent=1))
            arguments += ["--speculative-config", json.dumps({**self.shape["speculative"], "model": str(place)})]
        arguments += [] if "--load-format" in arguments else ["--load-format", "dummy"]
        self.found["arguments"] = [argument.replace(str(self.work), "WORK") for argument in arguments]
        main = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(self.model)]
        return [*main, "--host", "127.0.0.1", "--port", str(self.port), "--served-model-name", self.name, "--skip-tokenizer-init", *arguments]

    def watch(self) -> None:
        """Write the output of the driver's tool, once a second."""
        with self.path("smi.csv").open("w") as stream:
            while not self.ended.wait(1.0):
                stream.write(f"{self.seconds():.1f},{output_of(SMI).strip()}\n")

    def ready(self, process: subprocess.Popen[bytes]) -> bool:
        while self.seconds() < self.shape.get("seconds", START_SECONDS) and process.poll() is None:
            if self.shape.get("inject") == "oom_beside":
                self.hold_at("Loading model")
            if get(self.port, "/health", timeout=2)[0] == 200:
                self.found["ready_seconds"] = self.seconds()
                return True
            time.sleep(0.25)
        return False

    def ask(self, tokens: int = 8, timeout: float = 60) -> dict[str, t.Any]:
        began = time.monotonic()
        body = {"model": self.name, "prompt": list(range(100, 164)), "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        status, text = get(self.port, "/v1/completions", body, timeout)
        return {"status": status, "seconds": round(time.monotonic() - began, 2), "text": text[:600]}

    def loaded(self) -> None:
        """Read the metrics idle, with eight requests under way, and after them."""
        self.path("idle.prom").write_text(self.metrics())
        threads = [threading.Thread(target=self.ask, args=(192,)) for _request in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(0.6)
        self.path("load.prom").write_text(self.metrics())
        for thread in threads:
            thread.join()
        self.path("after.prom").write_text(self.metrics())

    def metrics(self) -> str:
        """Return the engine's own metrics without the buckets of histograms."""
        lines = get(self.port, "/metrics")[1].splitlines()
        return "\n".join(line for line in lines if line.startswith("vllm:") and "_bucket{" not in line and "_created{" not in line) + "\n"

    def processes(self, process: subprocess.Popen[bytes]) -> list[dict[str, t.Any]]:
        return [seen(pid) for pid in [process.pid, *below(process.pid)]]

    # -- the injections

    def hold(self, gib: float, now: bool) -> None:
        self.holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(gib)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.holder.stdin and self.holder.stdout
        self.holder.stdout.readline()
        if now:
            self.holder.stdin.write("\n")
            self.holder.stdin.flush()
            self.found["holder"] = self.holder.stdout.readline().strip()

    def hold_at(self, words: str) -> None:
        if self.holder and "holder" not in self.found and words in self.log.read_text(errors="replace"):
            assert self.holder.stdin and self.holder.stdout
            self.holder.stdin.write("\n")
            self.holder.stdin.flush()
            self.found["holder"] = self.holder.stdout.readline().strip()

    def kill_core(self, process: subprocess.Popen[bytes]) -> None:
        core = self.core(process)
        os.kill(core, signal.SIGKILL)
        time.sleep(0.3)
        self.found["processes_after"] = self.processes(process)
        self.found["asked_after"] = self.ask(timeout=15)
        self.found["health_after"] = get(self.port, "/health", timeout=5)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
        self.found["ended_by_itself"] = process.poll() is not None

    def kill_server(self, process: subprocess.Popen[bytes]) -> None:
        orphans = below(process.pid)
        process.kill()
        process.wait(END_SECONDS)
        time.sleep(2)
        self.found["processes_after"] = [seen(pid) for pid in orphans]
        self.found["compute_apps_after"] = output_of(["nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader"])

    def stop_core(self, process: subprocess.Popen[bytes]) -> None:
        core = self.core(process)
        os.kill(core, signal.SIGSTOP)
        self.found["asked_stopped"] = self.ask(timeout=15)
        self.found["health_stopped"] = get(self.port, "/health", timeout=5)
        self.found["processes_stopped"] = self.processes(process)
        os.kill(core, signal.SIGCONT)
        self.found["asked_after"] = self.ask()

    def core(self, process: subprocess.Popen[bytes]) -> int:
        cores = [entry["pid"] for entry in self.processes(process) if "EngineCore" in entry["name"] + entry["command"]]
        return cores[0] if cores else below(process.pid)[-1]

    # -- the whole start

    def run(self) -> None:
        command = self.written()
        inject = self.shape.get("inject")
        if inject in ("share_beside", "oom_beside"):
            self.hold(self.shape["hold_gib"], now=inject == "share_beside")
        self.began = time.monotonic()
        with self.log.open("wb") as log:
            environment = {**os.environ, **self.shape.get("env", {})}
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
            watcher = threading.Thread(target=self.watch)
            watcher.start()
            try:
                self.serve(process, inject)
            finally:
                self.end(process)
                self.ended.set()
                watcher.join()
        self.path("json").write_text(json.dumps(self.found, indent=1) + "\n")

    def serve(self, process: subprocess.Popen[bytes], inject: str | None) -> None:
        if not self.ready(process):
            self.found["not_ready"] = "ended" if process.poll() is not None else f"no answer in {self.seconds()} s"
            return
        self.found["asked"] = self.ask()
        self.found["processes"] = self.processes(process)
        self.found["compute_apps"] = output_of(["nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader"])
        self.found["meminfo"] = pathlib.Path("/proc/meminfo").read_text().splitlines()[:5]
        if inject in INJECTIONS:
            INJECTIONS[inject](self, process)
        else:
            self.loaded()

    def end(self, process: subprocess.Popen[bytes]) -> None:
        began = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.found["killed"] = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        self.found["exit"] = process.wait()
        self.found["end_seconds"] = round(time.monotonic() - began, 2)
        if self.holder:
            self.holder.kill()
            self.holder.wait()


INJECTIONS: dict[str | None, t.Callable[[Start, subprocess.Popen[bytes]], None]] = {
    "kill_core": Start.kill_core,
    "kill_server": Start.kill_server,
    "stop_core": Start.stop_core,
}


def below(pid: int) -> list[int]:
    """Return the descendants of a process, nearest first."""
    parents: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            stat = pathlib.Path(f"/proc/{name}/stat").read_text(errors="replace")
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(name))
    descendants, queue = [], [pid]
    while queue:
        mine = parents.get(queue.pop(0), [])
        descendants += mine
        queue += mine
    return descendants


def seen(pid: int) -> dict[str, t.Any]:
    """Return what the kernel shows of a process: its memory in kB, its state, its command."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text(errors="replace")
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return {"pid": pid, "name": "", "command": "", "gone": True}
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    sizes = {key: int(fields[key].split()[0]) for key in ("VmRSS", "RssAnon", "RssFile", "RssShmem") if key in fields}
    return {"pid": pid, "parent": int(fields["PPid"]), "name": fields["Name"].strip(), "state": fields["State"].split()[0], "command": command[:200], **sizes}


def machine() -> dict[str, t.Any]:
    gpu = output_of(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]).strip()
    code = "import torch, vllm, json; print(json.dumps({'vllm': vllm.__version__, 'torch': torch.__version__, 'cuda': torch.version.cuda}))"
    text = output_of([sys.executable, "-c", code], 120).strip().splitlines()
    releases = json.loads(text[-1]) if text else {}
    return {"gpu": gpu, "kernel": platform.release(), "python": platform.python_version(), "processors": os.cpu_count(), **releases}


#: A line of a progress bar, with the text before the percentage.
BAR = re.compile(r"^.*?(Capturing CUDA graphs \(\w+\)|DeepGEMM warmup|[\w .()-]+): +\d+%\|")
#: How many lines of the list of routes stay, and how many characters of a line.
ROUTES, WIDTH = 2, 1500


def short(text: str) -> str:
    """Return a log with the first and the last line of each progress bar, and the first lines of the list of routes."""
    kept: list[str] = []
    routes = 0
    for line in filter(None, (line.rstrip() for line in re.split(r"[\r\n]+", text))):
        routes += "Route: /" in line
        if "Route: /" in line and routes > ROUTES:
            continue
        bars = [match[1] if (match := BAR.match(entry)) else None for entry in [*kept[-2:], line]]
        if len(bars) == 3 and bars[0] and len(set(bars)) == 1:
            kept.pop()
        kept.append(line[:WIDTH])
    return "\n".join(kept) + "\n"


def clean(text: str, work: pathlib.Path) -> str:
    """Return a text without what names this one machine."""
    text = text.replace(str(work / "models"), "MODELS").replace(str(work), "WORK")
    site = next((folder for folder in os.environ.get("PYTHONPATH", "").split(":") if folder), "")
    text = text.replace(site, "SITE") if site else text
    text = text.replace(os.path.expanduser("~") + "/.cache", "CACHE").replace(sys.prefix, "PYTHON")
    text = text.replace(platform.node(), "node") if len(platform.node()) > 3 else text
    return re.sub(r"tcp://\d+\.\d+\.\d+\.\d+", "tcp://192.0.2.2", text)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="record starts of a real engine")
    parser.add_argument("--shapes", type=pathlib.Path, required=True, help="the list of shapes")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="where the records go")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/record_engine"), help="where the models' files go")
    parser.add_argument("--only", default="", help="names, by comma (default all)")
    parser.add_argument("--seconds", type=float, default=1500, help="no start begins after so many seconds")
    return parser.parse_args()


def main() -> int:
    options, began = parsed(), time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    if not (options.out / "machine.json").exists():
        (options.out / "machine.json").write_text(json.dumps(machine(), indent=1) + "\n")
    wanted = set(filter(None, options.only.split(",")))
    for shape in json.loads(options.shapes.read_text()):
        if (wanted and shape["name"] not in wanted) or (options.out / f"{shape['name']}.json").exists():
            continue
        if time.monotonic() - began > options.seconds:
            break
        start = Start(shape, options.out, options.work)
        start.run()
        start.log.write_text(short(clean(start.log.read_text(errors="replace"), options.work)))
        print(f"{time.monotonic() - began:.0f} s: {start.name}: {start.found.get('ready_seconds', start.found.get('not_ready'))}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
