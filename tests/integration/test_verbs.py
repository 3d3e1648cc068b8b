# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read-only verbs as their pages in docs/ show them: the baseline, and the status of a serving cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from .lab import BASELINE, HEAD, WORKER, Lab


@pytest.mark.usefixtures("no_baseline", "no_cluster")
def test_a_baseline_is_recorded_once_and_comes_to_the_controller(lab: Lab) -> None:
    place = lab.scratch / "baselines"
    # The lab booted with the machine underneath, possibly days ago.
    taken = lab.play("doctor", tags="baseline", gb10_records_dir=str(place), gb10_allow="baseline")
    assert taken.rc == 0, taken.failures
    assert taken.changed == {HEAD: 1, WORKER: 1}
    for host in (HEAD, WORKER):
        path = place / "gb10-baseline" / f"baseline-{host}.json"
        assert json.loads(path.read_text(encoding="utf-8")) == lab.json(host, BASELINE)
        assert re.search(rf"-?\d+ MiB are unexplained \d+ s after the boot.*; on the controller: {re.escape(str(path))}", taken.said)

    again = lab.play("doctor", tags="baseline", gb10_records_dir=str(place))
    assert again.rc == 0, again.failures
    assert again.changed == {} and "this boot has a baseline since" in again.said


@pytest.mark.usefixtures("live_cluster")
def test_status_says_what_runs_where(lab: Lab) -> None:
    shown = lab.play("status")
    assert (shown.rc, shown.changed) == (0, {}), shown.failures
    for host, role in ((HEAD, "head"), (WORKER, "worker")):
        assert f"gb10-gb10-{role} running since " in shown.said, host
    assert re.search(r"Ray nodes: [\d.]+, [\d.]+", shown.said)
    assert re.search(r"engine: http://[\d.]+:8000, a token in [\d.]+ s, 0 request\(s\) running or waiting, log /var/log/gb10/gb10/engine/\S+\.log", shown.said)
    assert re.search(r"\d\d routes asked without the API's key, none answers\.", shown.said)


@pytest.mark.usefixtures("live_cluster")
def test_logs_come_to_the_controller_and_show_how_the_engines_ends(lab: Lab) -> None:
    place = lab.scratch / "logs"
    shown = lab.play("status", tags="logs", gb10_records_dir=str(place))
    assert (shown.rc, shown.changed) == (0, {}), shown.failures
    directories = shown.stat("gb10_logs")
    assert set(directories) == {HEAD, WORKER} and all(Path(directory).is_relative_to(place) for directory in directories.values())
    last = (Path(directories[HEAD]) / "engine.log").read_text(encoding="utf-8").splitlines()[-1]
    assert " ".join(last.split()) in shown.said and "Ray nodes: " not in shown.said
