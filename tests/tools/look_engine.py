# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start a real vLLM through this collection's launcher, look at it with the collection's own readers, and record what each of them returns.

    PYTHONPATH=collections python3 tests/tools/look_engine.py --shapes tests/unit/fixtures/gpu/shapes.json --only NAME --out records

Needs root, a GPU, its nvidia-smi, vLLM and ansible-core for this Python, and no engine on the machine. No container: the launcher and the engine run on the
machine itself, with the directories of a container (``/opt/gb10/run``), which must not exist and are removed at the end. The weights are random and the
tokenizer is a bare one of bytes, so every answer is wrong, as the readers must find. Records NAME.look.json and NAME.look.log.

While the engine loads: its stage by the log and its processes. While it serves: the token, the verdict on its health, the ranks' environment and rights, the
guard's sources, the questions with known answers. Then with its core stopped, with its core going on, and after the launcher stopped it.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import typing as t

import record_engine
from ansible_collections.gb10.cluster.plugins.module_utils._engine import at_work, engine_log, engine_state, health, launch, questions, token_probe
from ansible_collections.gb10.cluster.plugins.module_utils._guard import sources
from ansible_collections.gb10.cluster.plugins.module_utils._launcher import launcher, protocol
from ansible_collections.gb10.cluster.plugins.module_utils._process import classify, live_env, process_table
from ansible_collections.gb10.cluster.plugins.modules import rank_info

#: Seconds until a start's API must answer, between two looks, and for a request for a token.
START_SECONDS, LOOK_SECONDS, TOKEN_SECONDS = 400, 3, 15
#: Variables that the ranks' environment must have, as the launcher got them.
GIVEN = {"NCCL_IB_HCA": "rocep1s0f1", "NCCL_DEBUG": "INFO", "SPT_NOENV": "1"}
#: The name of the run, in the form that the launcher takes.
RUN_ID = "20260101T000000Z-0000"
PROC = "/proc"


def bare_tokenizer(model: pathlib.Path) -> None:
    """Write a tokenizer that encodes each byte, and a template of a chat."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.save(str(model / "tokenizer.json"))
    template = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
    (model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}))


class Looks:
    """One start and what was seen of it."""

    def __init__(self, shape: dict[str, t.Any], out: pathlib.Path, work: pathlib.Path) -> None:
        self.start = record_engine.Start(shape, out, work)
        self.paths = engine_state.EnginePaths(str(work / "launch"), protocol.RUN_TARGET, str(work / "cache"), str(work / "log"))
        self.url = f"http://127.0.0.1:{self.start.port}"
        self.found: dict[str, t.Any] = {"name": shape["name"], "date": time.strftime("%Y-%m-%d"), "given": GIVEN, "loading": []}
        self.members: tuple[float, list[dict[str, t.Any]]] = 0.0, []

    def order(self) -> pathlib.Path:
        """Write the model and the launcher's order, and return the order's path."""
        # By default a single rank runs in the process of the engine's core. With mp it is a separate process, as on several nodes.
        argv = [word for word in self.start.written() if word != "--skip-tokenizer-init"] + ["--distributed-executor-backend", "mp"]
        bare_tokenizer(self.start.model)
        for folder in (self.paths.launch, self.paths.run, self.paths.engine_log):
            os.makedirs(folder)
        path = pathlib.Path(self.paths.launch) / protocol.ORDER
        spec = {"argv": argv, "run_id": RUN_ID, "digest": "look", "run_dir": self.paths.run, "config_root": f"{self.paths.run}/config"}
        spec |= {"log_path": self.paths.log_of(RUN_ID), "keep_logs": 3, "log_max_bytes": 1 << 28, "secret_env": {}, "no_carry_env": []}
        path.write_text(json.dumps({**spec, "guard": launch.guard_of({}), "api_address": "127.0.0.1", "api_port": self.start.port}))
        return path

    def processes(self) -> list[dict[str, t.Any]]:
        """Return the engine's processes with what they used of a core since the last call."""
        before, now = self.members, time.monotonic()
        self.members = now, at_work.members(map(int, filter(str.isdigit, os.listdir(PROC))))
        return at_work.compared(before[1], self.members[1], now - before[0])

    def health(self) -> dict[str, t.Any]:
        """Ask for a token and judge the engine's health."""
        answer = token_probe.ask(self.url, self.start.name, None, 5, TOKEN_SECONDS, prompt=engine_state.PROMPT)
        processes, progress = {"node": self.processes()}, answer.progress or {}
        verdict = health.verdict(health.Probe(answer.api, bool(answer.completion), **progress), processes)
        return {"asked": answer.as_result(), "processes": processes["node"], "verdict": verdict._asdict()}

    def ranks(self) -> list[dict[str, t.Any]]:
        """Return what the look at live ranks returns of each."""
        seen = process_table.require_all_seen(process_table.scan(PROC), "a rank")
        rows = []
        for pid, process in rank_info.ranks_among(seen.processes).items():
            environ, source = live_env.environment(pid, PROC)
            rights = rank_info.effective(pid, ["/dev/infiniband/uverbs0"], PROC)
            about = {"pid": pid, "title": process.shown_command[: rank_info.TITLE_LIMIT], "source": source, "libcuda": rank_info.libcuda(pid, PROC)}
            rows.append({**about, **rank_info.select(environ, [*GIVEN, launcher.MARK], ["HF_TOKEN"]), **rights})
        return rows

    def guard(self) -> dict[str, t.Any]:
        """Return what the guard's sources return after a few seconds."""
        gpu = sources.Gpu("nvidia-smi")
        config = {"served": "/nonexistent", "state_dir": "/nonexistent", "load_seconds": 3600}
        ranks = sources.Ranks(PROC, pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip(), config)
        deadline = time.monotonic() + 15
        while gpu.now() is None and time.monotonic() < deadline:
            gpu.tend()
            time.sleep(0.2)
        ranks.look()
        readings = {"memory": sources.memory(PROC), "total": sources.total(PROC), "gpu": gpu.now(), "ranks": ranks.states(), "phase": ranks.phase()}
        gpu.stop()
        return readings

    def answers(self) -> list[dict[str, t.Any]]:
        """Ask the questions with known answers."""
        params = {"api_key_file": None, "model": None, "max_tokens": 64, "timeout": 60}
        engine = questions.Engine.of({"api_address": "127.0.0.1", "api_port": self.start.port, "secret_env": {}, "pid": None, "argv": []}, params, 50)
        return [questions.ask(name, engine._replace(max_tokens=64), RUN_ID) for name in questions.CHECKS]

    def state(self) -> dict[str, t.Any]:
        kept = engine_state.engine_state(self.paths)
        return {key: kept[key] for key in ("live", "run_id", "pid", "seconds", "exit_code", "exit_signal", "stopped_by", "unreadable")}

    def load(self, process: subprocess.Popen[bytes]) -> bool:
        """Look every few seconds until the API answers; returns whether it did."""
        while self.start.seconds() < START_SECONDS and process.poll() is None:
            stage = engine_log.log_stage(self.paths.log_of(RUN_ID))
            texts = [f"{row['text']}: {row['state']}, {row['cpu_percent']} %, {row['io_mb']} MiB" for row in self.processes()]
            self.found["loading"].append({"seconds": self.start.seconds(), "stage": stage and list(stage), "processes": texts})
            if engine_state.asked_health(self.url, 2) == health.ANSWERS:
                self.found["ready_seconds"] = self.start.seconds()
                return True
            time.sleep(LOOK_SECONDS)
        return False

    def serve(self) -> None:
        """Look at the serving engine, then with its core stopped, then with its core going on."""
        self.found["state"], self.found["serving"] = self.state(), self.health()
        self.found["ranks"], self.found["guard"], self.found["answers"] = self.ranks(), self.guard(), self.answers()
        core = next(row["pid"] for row in self.processes() if row["kind"] == classify.ENGINE_CORE)
        os.kill(core, signal.SIGSTOP)
        try:
            self.found["stopped"] = self.health()
        finally:
            os.kill(core, signal.SIGCONT)
        self.found["continued"] = self.health()

    def run(self) -> None:
        """Start, look, stop, and write what was found."""
        order = self.order()
        program = [sys.executable, launcher.__file__]
        with open(self.start.path("launcher.txt"), "wb") as log:
            process = subprocess.Popen([*program, "run", "--spec", str(order), "--run-id", RUN_ID], env={**os.environ, **GIVEN}, stdout=log, stderr=log)
            try:
                if self.load(process):
                    self.serve()
            finally:
                done = subprocess.run([*program, "stop", "--spec", str(order), "--grace", "30"], capture_output=True, text=True, timeout=120, check=False)
                self.found["stop"] = json.loads(done.stdout) if done.stdout.startswith("{") else done.stdout + done.stderr
                self.found["launcher_exit"], self.found["state_after"] = process.wait(60), self.state()
                self.found["left"] = self.processes()
                self.write()

    def write(self) -> None:
        work = self.start.work
        log = pathlib.Path(self.paths.log_of(RUN_ID)).read_text(errors="replace")
        self.start.path("look.log").write_text(record_engine.short(record_engine.clean(log, work)))
        text = record_engine.clean(json.dumps(self.found, indent=1, default=str), work)
        self.start.path("look.json").write_text(text + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="look at a real engine with the collection's readers")
    parser.add_argument("--shapes", type=pathlib.Path, required=True, help="the list of shapes")
    parser.add_argument("--only", required=True, help="the shape's name")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="where the records go")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    shape = next(shape for shape in json.loads(options.shapes.read_text()) if shape["name"] == options.only)
    if os.path.exists(protocol.RUN_TARGET):
        print(f"{protocol.RUN_TARGET} exists already: remove it, or look at an engine where nothing of this collection runs", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as work:
        try:
            Looks(shape, options.out, pathlib.Path(work)).run()
        finally:
            shutil.rmtree(os.path.dirname(protocol.RUN_TARGET))
    return 0


if __name__ == "__main__":
    sys.exit(main())
