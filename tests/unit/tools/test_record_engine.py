# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tool that records starts of a real engine, with a stand-in for vLLM that answers at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "record_engine.py"
ENGINE = """
import http.server, subprocess, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
if "--refuse" in sys.argv:
    sys.exit("error: unrecognized arguments: --refuse")
core = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)  # EngineCore"])
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"vllm:num_requests_running 0.0\\n")
    do_GET = do_POST = answer
print("Loading model from", sys.argv[2], flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def test_starts_are_recorded_and_end_and_are_not_made_twice(tmp_path):
    cli = tmp_path / "site" / "vllm" / "entrypoints" / "cli"
    cli.mkdir(parents=True)
    (cli / "main.py").write_text(ENGINE)
    shapes = [
        {"name": "one", "config": {"hidden_size": 1}, "serve": ["--max-model-len", "8"]},
        {"name": "refused", "inject": "wrong_flag", "config": {}, "serve": ["--refuse", "1"]},
        {"name": "stopped", "inject": "stop_core", "config": {}, "serve": []},
    ]
    (tmp_path / "shapes.json").write_text(json.dumps(shapes))
    out, work = tmp_path / "out", tmp_path / "work"
    argv = [sys.executable, str(TOOL), "--shapes", str(tmp_path / "shapes.json"), "--out", str(out), "--work", str(work)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert [line.split(": ")[1] for line in done.stdout.splitlines()] == ["one", "refused", "stopped"]
    answered, refused, stopped = (json.loads((out / f"{name}.json").read_text()) for name in ("one", "refused", "stopped"))
    assert answered["asked"]["status"] == 200 and answered["arguments"] == ["--max-model-len", "8", "--load-format", "dummy"] and "ready_seconds" in answered
    assert json.loads((work / "models" / "one" / "config.json").read_text()) == {"hidden_size": 1}
    assert (out / "one.log").read_text().startswith("Loading model from MODELS/one\n") and "running" in (out / "one.load.prom").read_text()
    assert refused["not_ready"] == "ended" and refused["exit"] == 1
    assert [process["state"] for process in stopped["processes_stopped"] if "EngineCore" in process["command"]] == ["T"]
    again = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert again.stdout == ""
    for process in [*answered["processes"], *stopped["processes"]]:
        assert not Path(f"/proc/{process['pid']}").exists() or str(work) not in Path(f"/proc/{process['pid']}/cmdline").read_text()
