# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook calibrate on this machine, without Docker, on a recorded answer of the driver's tool with names planted everywhere."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

import pytest
import through_ansible

from ansible_collections.gb10.cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.gb10.cluster.plugins.plugin_utils._calibrate import archive, replay

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "tools"))

import field_check  # noqa: E402

RECORDED = ROOT / "tests/unit/fixtures/nvidia_smi"

HOST, ADDRESS, SERIAL, MAC, USER, SECRET = "quietbox-7", "192.168.77.31", "1652823055", "4c:bb:47:2c:11:22", "jenny", "Planted0Secret0Value"
PLANTED = (HOST, ADDRESS, SERIAL, MAC, MAC.replace(":", ""), USER, SECRET, "1f4da8c0", "c0a84d1f")
KERNEL_LOG = f"""[    0.000000] Linux version 6.17.0-1008-nvidia (build@{HOST})
[    1.000000] usb 1-1: SerialNumber: {SERIAL}
[    2.000000] mlx5_core 0000:01:00.0: MAC {MAC.upper()} of {HOST.upper()}, {ADDRESS}, API_TOKEN={SECRET}
[    3.000000] NVRM: Xid (PCI:000f:01:00): 79, pid=1234, name=/home/{USER}/run, GPU has fallen off the bus.
"""


@pytest.fixture
def machine(tmp_path):
    """An inventory of this one machine, whose driver's tool and kernel log are files."""
    smi = tmp_path / "nvidia-smi"
    answers = {"-q": "idle.xml", "--query-compute-apps*": "idle_compute_apps.csv", "--query-gpu*": "idle_gpu.csv"}
    cases = "".join(f"{word}) cat {tmp_path}/{name};;\n" for word, name in answers.items())
    smi.write_text(f'#!/bin/sh\ncase "$1" in\n{cases}*) echo "{HOST}";;\nesac\n')
    smi.chmod(0o755)
    for name in answers.values():
        text = (RECORDED / f"recorded_h200_{name}").read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("<serial>0</serial>", f"<serial>{SERIAL}</serial>"))
    (tmp_path / "kernel.log").write_text(KERNEL_LOG)
    variables = {
        "ansible_connection": "local",
        "ansible_host": ADDRESS,
        "ansible_user": USER,
        "ansible_password": SECRET,
        "gb10_become": False,
        "gb10_node_roots": {"nvidia_smi": str(smi), "kernel_log": str(tmp_path / "kernel.log")},
    }
    (tmp_path / "hosts.yml").write_text(json.dumps({"all": {"hosts": {HOST: variables}}}))
    return tmp_path


def calibrate(machine, *arguments, **settings):
    extra = json.dumps({"gb10_cluster_group": "all", **settings})
    play = ["playbook", "-i", str(machine / "hosts.yml"), str(ROOT / "playbooks/calibrate.yml"), "--tags", "driver", "-e", extra, *arguments]
    return through_ansible.run(*play, env={"HOME": str(machine)})


def found_in(path, words):
    """Return which of the words are in an archive, in names, contents and headers, whatever their case."""
    raw = gzip.decompress(path.read_bytes()).lower() + path.read_bytes()[:64].lower()
    return [word for word in words if word.lower().encode() in raw]


def test_an_archive_of_a_machine_without_docker_is_anonymous_and_replays_to_the_same(machine):
    path = machine / "out.tar.gz"
    done = calibrate(machine, gb10_to=str(path))
    assert done.rc == 0 and "changed=0" in done.stdout, done.out
    assert found_in(path, [*PLANTED, os.environ.get("LOGNAME") or "no such user here"]) == []
    assert path.stat().st_mode & 0o777 == 0o600
    content = field_check.read_archive(str(path))
    (gpu,) = json.loads(content.texts["node-1/answers/info.json"])["gpus"]
    assert gpu["name"] == "NVIDIA H200" and gpu["source"] == "xml"
    facts = json.loads(content.texts["calibration.json"])
    assert facts["nodes"] == ["node-1"] and {"preflight", "image", "engine", "ranks", "logs"} <= {gap["what"] for gap in facts["missing"]}
    assert "MemTotal:" in content.texts["node-1/proc/meminfo"]
    verdicts = json.loads(content.texts[replay.VERDICTS])
    assert verdicts["parsers"]["node-1/driver/smi.xml"][0]["name"] == "NVIDIA H200"
    assert [event["kind"] for event in verdicts["parsers"]["node-1/kernel.log"]] == ["xid"]
    assert field_check.changes(str(path)) == []


def test_without_a_file_it_says_what_it_would_take_and_reads_nothing(machine):
    done = calibrate(machine)
    assert done.rc == 0 and "with -e gb10_to=FILE" in done.stdout, done.out
    assert "Look at the machine" not in done.stdout and list(machine.glob("*.tar.gz")) == []


def test_check_mode_reads_and_writes_nothing(machine):
    done = calibrate(machine, "--check", gb10_to=str(machine / "out.tar.gz"))
    assert done.rc == 0 and "changed=0" in done.stdout and list(machine.glob("*.tar.gz")) == [], done.out


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"gb10_to": "{there}"}, "exists"),
        ({"gb10_to": "{there}/x.tar.gz"}, "not a directory"),
    ],
)
def test_what_is_refused_before_any_node_is_read(machine, settings, text):
    there = machine / "there.tar.gz"
    there.write_text("mine")
    done = calibrate(machine, **{name: str(value).format(there=there) if isinstance(value, str) else value for name, value in settings.items()})
    assert done.rc != 0 and text in done.stdout and "Look at the machine" not in done.stdout, done.out
    assert there.read_text() == "mine"


def test_a_judgment_that_changed_is_listed(machine, capsys):
    path = machine / "out.tar.gz"
    assert calibrate(machine, gb10_to=str(path)).rc == 0
    content = field_check.read_archive(str(path))
    verdicts = json.loads(content.texts[replay.VERDICTS])
    records = json.loads(content.texts[replay.RECORDS])
    (finding,) = (finding for finding in records["doctor"]["findings"] if finding["id"] == "gpu.present")
    assert finding["verdict"] == "block"
    finding["verdict"] = "warn"
    verdicts["parsers"]["node-1/driver/smi.xml"][0]["name"] = "GB10"
    changed = machine / "changed.tar.gz"
    texts = {**content.texts, replay.VERDICTS: json.dumps(verdicts), replay.RECORDS: json.dumps(records)}
    archive.written(str(changed), archive.Content(texts, content.links))
    assert field_check.main([str(changed)]) == 1
    output = capsys.readouterr().out
    assert 'rules > doctor > gpu.present > node-1: "warn" on the machine, "block" now' in output and "2 judged otherwise" in output
    assert field_check.main(["--row", str(path)]) == 0 and "NVIDIA H200" in capsys.readouterr().out


# -- archives that were sent in --------------------------------------------------------------------------------------

KEPT = sorted((ROOT / "tests/unit/fixtures/calibrations").glob("*.tar.gz"))
MATRIX = (ROOT / "docs/SUPPORT_MATRIX.md").read_text(encoding="utf-8")


def test_the_matrix_has_the_row_of_every_archive_that_is_kept_and_no_other():
    rows = [line for line in MATRIX.splitlines() if line.startswith("| `") and ".tar.gz`" in line]
    assert sorted(rows) == sorted(field_check.row(str(path)) for path in KEPT)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_an_archive_that_is_kept_is_judged_as_on_its_machine(path):
    assert field_check.changes(str(path)) == []


@pytest.mark.parametrize("content", [b"", b"no archive", gzip.compress(b"no tar", mtime=0)])
def test_what_is_not_an_archive_is_refused(tmp_path, capsys, content):
    path = tmp_path / "x.tar.gz"
    path.write_bytes(content)
    with pytest.raises(ClusterError):
        field_check.changes(str(path))
    assert field_check.main([str(path)]) == 2 and str(path) in capsys.readouterr().err


@pytest.mark.parametrize("texts", [{}, {replay.ASKED: "[]"}, {replay.ASKED: "{}", replay.VERDICTS: "[1]", replay.RECORDS: "7"}])
@pytest.mark.parametrize("way", [[], ["--row"]])
def test_what_holds_other_json_than_ours_is_refused_in_one_line(tmp_path, capsys, texts, way):
    path = tmp_path / "x.tar.gz"
    path.write_bytes(archive.packed(archive.Content(texts, {})))
    assert field_check.main([*way, str(path)]) == 2
    output = capsys.readouterr().err
    assert "is not an archive of calibrate" in output and len(output.splitlines()) == 1


def test_an_interface_of_an_archive_is_no_path_on_the_controller(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "address").write_text("read from outside")
    node = {"info": {"interfaces": [{"name": name, "driver": "mlx5_core", "networks": []} for name in (str(outside), f"../../../{outside}", "..", "eth0")]}}
    evidence = {"nodes": ["n"], "doctor": {"n": node}}
    texts = {replay.ASKED: json.dumps(evidence), "n/sys/class/net/eth0/address": "4c:bb:47:2c:00:01"}
    replayed = replay.of_texts(archive.Content(texts, {}))
    assert "read from outside" not in json.dumps(replayed)
    assert [link["netdev"] for link in replayed["parsers"]["n/sys"]["fabric"]] == ["eth0"]


def test_two_archives_of_one_content_are_the_same_bytes():
    content = archive.Content({"a": "x", "b/c": "y"}, {"d": "a"})
    assert archive.packed(content) == archive.packed(content)
