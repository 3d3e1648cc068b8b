# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine's log on its node: its lines, its end, and the stage of a start that it shows. This module util is PRIVATE to the collection."""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.module_utils._files import untrusted
from ansible_collections.gb10.cluster.plugins.module_utils._sections import BECOME

#: Most bytes of a log to read at once, and most characters of a line.
LOG_CHUNK = 262144
LINE_LENGTH = 2000
#: Bytes of the log's end that are searched for the stage.
STAGE_TAIL = 65536

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LINE_END = re.compile(r"\r\n|\n|\r")

#: The last stage of a start.
API_IS_UP = "API is up"

#: The stage of a start that a line of vLLM's log shows. The last match in the log counts.
STAGES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Initializing a V1 LLM engine"), "initializing engine"),
    (re.compile(r"Connecting to existing Ray cluster|Connected to Ray cluster"), "connecting to ray"),
    (re.compile(r"Creating a new placement group"), "starting ranks"),
    (re.compile(r"DP group leader: node_rank=|headless multiproc executor"), "starting ranks"),
    (re.compile(r"Waiting for creating a placement group"), "waiting for GPUs in ray"),
    (re.compile(r"world_size=\d+ rank=\d+ local_rank="), "joining ranks"),
    (re.compile(r"Starting to load model|Loading model from scratch"), "loading model"),
    (re.compile(r"Loading \S+ (?:checkpoint shards|using [\w ]+):.*?(?P<done>\d+)/(?P<total>\d+) \["), "loading weights"),
    (re.compile(r"Loading weights took|Model loading took"), "weights loaded"),
    (re.compile(r"Dynamo bytecode transform time|Compiling a graph|torch\.compile (?:takes|took)"), "compiling"),
    (re.compile(r"Available KV cache memory|KV cache size: "), "allocating KV cache"),
    (re.compile(r"DeepGEMM warmup: .*?(?P<done>\d+)/(?P<total>\d+) \["), "tuning kernels"),
    (re.compile(r"Autotuning process starts|\[AutoTuner\]: Tuning .*?(?P<done>\d+)/(?P<total>\d+) \["), "tuning kernels"),
    (re.compile(r"Capturing .*CUDA graphs?.*?(?P<done>\d+)/(?P<total>\d+) \[|Graph capturing finished"), "capturing graphs"),
    (re.compile(r"init engine \(profile, create kv cache, warmup model\) took|Starting vLLM (?:API )?server"), "starting API"),
    # If a front end does not log its own start, an answer proves it.
    (re.compile(r'Application startup complete|"(?:GET|POST) /\S* HTTP/[\d.]+" 200 OK'), API_IS_UP),
)


class Stage(t.NamedTuple):
    """The stage of a start; ``done`` of ``total`` shards or graphs if the log counts them, else zeros."""

    name: str
    done: int = 0
    total: int = 0


# -- log -------------------------------------------------------------------------------------------------------------


def plain_lines(text: str) -> list[str]:
    """Return the lines of a log without colors, each cut to :data:`LINE_LENGTH`. The carriage returns of a progress bar end a line, too."""
    return [line[:LINE_LENGTH].rstrip() for line in LINE_END.split(ANSI.sub("", text)) if line.strip()]


def read_log(path: str, offset: int, limit: int = LOG_CHUNK, to_end: bool = False) -> tuple[list[str], int]:
    """Return (lines from byte ``offset`` on, offset for the next reading); at most ``limit`` bytes are read.

    An incomplete last line is left for the next reading, unless the log is complete (``to_end``).
    If the log was truncated meanwhile, the rest of its former content is read first, from the copy next to it.
    """
    reading = _read(path, offset, limit)
    if reading is None:
        return [], offset
    size, raw = reading
    if size < offset:
        _size, raw = _read(f"{path}.1", offset, limit) or (0, b"")
        return plain_lines(raw.decode(errors="replace")), 0
    end = len(raw) if to_end else max(raw.rfind(b"\n"), raw.rfind(b"\r")) + 1
    if end == 0 and len(raw) == limit:
        end = limit
    return plain_lines(raw[:end].decode(errors="replace")), offset + end


def open_log(path: str) -> t.BinaryIO:
    """Open an engine's log, which its container can write. Raises FileNotFoundError, :class:`ClusterError` for anything but a log."""
    folder, name = os.path.split(path)
    top, below = os.path.split(folder)
    try:
        return untrusted.reader(top, f"{below}/{name}")
    except PermissionError:
        raise ClusterError(f"no permission to read {path}", remedy=BECOME) from None


def _read(path: str, offset: int, limit: int) -> tuple[int, bytes] | None:
    """Return (size, at most ``limit`` bytes from ``offset`` on) of a log, None without one. A negative offset counts from the end."""
    try:
        with open_log(path) as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(offset if offset >= 0 else max(0, size + offset))
            return size, log.read(limit) or b""
    except FileNotFoundError:
        return None


def log_end(path: str) -> list[str]:
    """Return the lines at the end of a log; none when there is no log."""
    _size, raw = _read(path, -STAGE_TAIL, STAGE_TAIL) or (0, b"")
    return plain_lines(raw.decode(errors="replace"))


def stage_of(lines: t.Iterable[str]) -> Stage | None:
    """Return the last stage that the log's lines show, None when they show none."""
    matches = ((name, pattern.search(line)) for line in lines for pattern, name in STAGES)
    stages = [(name, match.groupdict()) for name, match in matches if match]
    return Stage(stages[-1][0], *(int(stages[-1][1].get(count) or 0) for count in ("done", "total"))) if stages else None


def last_line(path: str) -> str:
    """Return the last line of a log that is not empty, an empty text without one."""
    return next(reversed(log_end(path)), "")


def log_stage(path: str) -> Stage | None:
    """Return the stage that the log's end shows."""
    return stage_of(log_end(path))
