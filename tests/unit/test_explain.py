# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Logs of anyone's cluster explained through the playbook, on the controller alone."""

from __future__ import annotations

import gzip
import json
import shutil
import stat
from pathlib import Path

import pytest
import through_ansible
import yaml

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = Path(__file__).with_name("fixtures")
FATAL = yaml.safe_load((FIXTURES / "field" / "logs" / "fatal.yml").read_text())
KEY = "hf_" + "abcdefghijklmnopqrstuvwxyz"


def explain(given, *arguments, cwd, **variables):
    """Run the playbook without an inventory; returns its exit code and its output on one line."""
    done = through_ansible.run(
        "playbook", str(ROOT / "playbooks" / "explain.yml"), *arguments, "--extra-vars", json.dumps({"gb10_explain": str(given), **variables}), cwd=cwd
    )
    return done.rc, " ".join(done.out.split())


@pytest.fixture
def cluster(tmp_path):
    """Logs of two nodes: an engine on the head that lost its worker, and the worker's packed kernel log with the reason."""
    logs = tmp_path / "logs"
    for node in ("spark-1", "spark-2"):
        (logs / node).mkdir(parents=True)
    (logs / "spark-1" / "engine.log").write_text(
        f"(APIServer pid=1) INFO 06-06 20:10:00 [api.py:1] token {KEY}\n"
        f"(EngineCore pid=5) ERROR 06-06 20:20:29 [core.py:9] torch.distributed.DistBackendError: NCCL error with HF_TOKEN={KEY}\n"
    )
    lines = "Jun 06 20:20:27 spark kernel: Out of memory: Killed process 4137 (VLLM::Worker_TP) total-vm:160396000kB\n"
    (logs / "spark-2" / "dmesg.gz").write_bytes(gzip.compress(lines.encode()))
    (logs / "spark-2" / "core").write_bytes(b"\x7fELF\0\0\0")
    (logs / "spark-2" / "hosts").symlink_to("/etc/hosts")
    return logs


def test_the_first_cause_of_all_nodes_is_named_and_written_down(cluster, tmp_path):
    code, text = explain(cluster, cwd=tmp_path, gb10_to="why.json")
    assert code == 0, text
    assert "The first cause is kernel-oom-engine on spark-2 at" in text and "Consequence: the rank is gone" in text
    assert "not read: " in text and "core (not text)" in text and "hosts (a link)" in text
    record = json.loads((tmp_path / "why.json").read_text())
    assert [finding["id"] for finding in record["findings"]] == ["kernel-oom-engine", "nccl-error", "explain.unread"]
    assert (record["schema"], record["kind"], record["verdict"]) == (1, "gb10.cluster.explain", "block")
    assert [finding["certainty"] for finding in record["findings"][:2]] == ["known", "suspected"]
    assert stat.S_IMODE((tmp_path / "why.json").stat().st_mode) == 0o600


def test_the_record_is_passed_on_by_a_name_that_is_no_setting(cluster, tmp_path):
    extra = ["--extra-vars", json.dumps({"gb10_explain": str(cluster)})]
    done = through_ansible.run("playbook", str(ROOT / "playbooks" / "explain.yml"), *extra, cwd=tmp_path, env={"ANSIBLE_SHOW_CUSTOM_STATS": "true"})
    stats = " ".join(done.out.partition("CUSTOM STATS:")[2].split())
    assert "gb10_verdict: block" in stats and "gb10_explanation: files:" in stats and "kind: gb10.cluster.explain" in stats, done.out


def test_no_secret_is_shown_or_written(cluster, tmp_path):
    code, text = explain(cluster, "-vvv", cwd=tmp_path, gb10_to="why.json")
    assert code == 0, text
    assert KEY not in text and KEY not in (tmp_path / "why.json").read_text() and "<secret>" in text


def test_a_file_is_never_written_over(cluster, tmp_path):
    (tmp_path / "why.json").write_text("mine")
    code, text = explain(cluster, cwd=tmp_path, gb10_to="why.json")
    assert code != 0 and "why.json: exists already; expected the name of a new file" in text and "a new file. Remedy: Give gb10_to another name" in text
    assert (tmp_path / "why.json").read_text() == "mine"


def test_check_mode_writes_nothing_and_says_the_same(cluster, tmp_path):
    code, text = explain(cluster, "--check", cwd=tmp_path, gb10_to="why.json")
    assert code == 0 and "kernel-oom-engine on spark-2" in text and not (tmp_path / "why.json").exists()


def test_an_unknown_error_is_shown_with_its_last_lines(tmp_path):
    (tmp_path / "docker.log").write_text("INFO 11-21 02:00:00 [x.py:1] hello\nERROR 11-21 02:00:01 [x.py:2] KeyError: 'layer.3'\nRuntimeError: over\n")
    code, text = explain("docker.log", cwd=tmp_path)
    assert code == 0 and "The cause is unknown: unknown on docker at" in text and "KeyError: 'layer.3'" in text and "RuntimeError: over" in text


def test_a_healthy_log_is_not_explained_away(tmp_path):
    shutil.copy(FIXTURES / "vllm" / "ready_ray_tp2.log", tmp_path / "engine.log")
    code, text = explain("engine.log", cwd=tmp_path)
    assert code == 0 and "1 log read. No line says why an engine would fail." in text


def test_signatures_of_ones_own_are_tried_too_and_judged_before(tmp_path):
    own = tmp_path / "mine"
    own.mkdir()
    row = {"id": "my-proxy", "patterns": ["proxy said 407"], "source": "us", "examples": ["proxy said 407"]}
    row.update({"cause": "our proxy refused", "consequence": "the engine ends", "remedy": "Ask the site."})
    (own / "x.yml").write_text(yaml.safe_dump([row]))
    (tmp_path / "a.log").write_text("ERROR proxy said 407\n")
    code, text = explain("a.log", cwd=tmp_path, gb10_signature_dirs=["mine"])
    assert code == 0 and "The first cause is my-proxy on a: our proxy refused" in text
    (own / "x.yml").write_text(yaml.safe_dump([{**row, "patterns": ["(a+)+"]}]))
    code, text = explain("a.log", cwd=tmp_path, gb10_signature_dirs=["mine"])
    assert code != 0 and "x.yml[0].patterns[0]: may take forever" in text and "Remedy: correct " in text


@pytest.mark.parametrize(("given", "words"), [("none.log", "none.log: cannot be read: No such file or directory"), ("", "No log was named.")])
def test_what_cannot_be_explained_is_named(tmp_path, given, words):
    code, text = explain(given, cwd=tmp_path)
    assert code != 0 and words in text


def test_logs_of_which_none_is_text_are_no_answer(tmp_path):
    (tmp_path / "core").write_bytes(b"\0" * 100)
    code, text = explain(tmp_path, cwd=tmp_path)
    assert code != 0 and "no log could be read (core: not text); expected text" in text


def test_whole_recorded_starts_that_failed_are_explained_by_their_cause(tmp_path):
    answers = {Path(item["log"]).stem: item["answer"] for item in FATAL if "log" in item}
    code, text = explain(FIXTURES / "field" / "logs" / "fatal", cwd=tmp_path, gb10_to=str(tmp_path / "why.json"))
    assert code == 0, text
    first = {}
    for finding in json.loads((tmp_path / "why.json").read_text())["findings"]:
        if finding["certainty"] == "known" and finding["verdict"] == "block":
            first.setdefault(Path(finding["log"]).stem, finding["id"])
    assert first == answers
