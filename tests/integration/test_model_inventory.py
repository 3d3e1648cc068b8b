# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The models on the nodes are listed, named models are removed, and models that are wanted or in use stay."""

from __future__ import annotations

import json
import typing as t

import pytest

from .lab import HEAD, WORKER, Lab

HF_HOME = "/home/spark/.cache/huggingface"
REPO = "gb10-models-test/old"
BASE = f"{HF_HOME}/hub/models--gb10-models-test--old"
OLD, NEW = "a" * 40, "b" * 40
PLAIN = "/home/spark/gb10-models-test"

#: Make two revisions that share a file, and a plain model; arguments: the repository's directory, the two commits, the plain directory.
MAKE = """
set -e
mkdir -p "$0/blobs" "$0/refs" "$0/snapshots/$1" "$0/snapshots/$2" "$3"
head -c 100000 /dev/zero > "$0/blobs/shared"
echo '{}' > "$0/blobs/$1"
echo '{ }' > "$0/blobs/$2"
for commit in "$1" "$2"; do
    ln -sf ../../blobs/shared "$0/snapshots/$commit/weights.gguf"
    ln -sf "../../blobs/$commit" "$0/snapshots/$commit/config.json"
done
printf %s "$2" > "$0/refs/main"
echo '{}' > "$3/config.json"
chown -R spark: "$0" "$3"
"""


@pytest.fixture
def models(lab: Lab) -> t.Iterator[None]:
    """A repository on both nodes that no profile wants, and a plain directory with a model on the head."""
    for host in (HEAD, WORKER):
        lab.run(host, "sh", "-c", MAKE, BASE, OLD, NEW, PLAIN)
    lab.run(WORKER, "rm", "-rf", PLAIN)
    yield
    for host in (HEAD, WORKER):
        lab.run(host, "rm", "-rf", BASE, PLAIN)


def there(lab: Lab, host: str) -> set[str]:
    """All paths in a node's cache."""
    return set(lab.run(host, "find", f"{HF_HOME}/hub").split())


def test_models_are_listed_and_what_is_named_goes(lab: Lab, live_cluster: None, models: None) -> None:
    before = {host: there(lab, host) for host in (HEAD, WORKER)}
    record = lab.scratch / "models.json"
    printed = lab.play("models", gb10_to=str(record), gb10_model_directories=[PLAIN])
    assert printed.rc == 0, printed.failures
    assert printed.changed == {} and {host: there(lab, host) for host in before} == before
    assert f"{REPO}@{OLD} frees" in printed.said and f"{WORKER}: there is no {PLAIN}" in printed.said
    content = json.loads(record.read_text(encoding="utf-8"))
    assert content == printed.stat("gb10_models") and printed.stat("gb10_verdict") == "pass"
    by_name = {row["name"]: row for row in content["models"]}
    assert set(by_name[f"{REPO}@{OLD}"]["nodes"]) == {HEAD, WORKER} and by_name[f"{REPO}@{OLD}"]["state"] == "could go"
    assert by_name[PLAIN]["state"] == "its owner's"
    served = next(row for row in content["models"] if row["state"].startswith("in use: "))
    assert served["last_run"]["live"] and "lab_tiny_tp2" in served["wanted_by"] and set(served["nodes"]) == {HEAD, WORKER}

    again = lab.play("models", gb10_to=str(record))
    assert again.rc != 0 and "is not replaced" in again.failures

    refused = lab.play("models", gb10_models_remove=f"{REPO}@{OLD},{served['request']}")
    assert refused.rc != 0 and "models.in_use" in refused.failures
    assert {host: there(lab, host) for host in before} == before and lab.engine_lives()

    predicted = lab.play("models", check=True, gb10_models_remove=f"{REPO}@{OLD}")
    assert predicted.rc == 0, predicted.failures
    assert predicted.changed == {HEAD: 1, WORKER: 1} and {host: there(lab, host) for host in before} == before

    removed = lab.play("models", gb10_models_remove=f"{REPO}@{OLD}")
    assert removed.rc == 0, removed.failures
    assert removed.changed == {HEAD: 1, WORKER: 1}
    for host, files in before.items():
        assert files - there(lab, host) == {path for path in files if OLD in path} and there(lab, host) <= files
        assert lab.run(host, "cat", f"{BASE}/snapshots/{NEW}/config.json").strip() == "{ }"
        assert lab.run(host, "stat", "--dereference", "--format=%s", f"{BASE}/snapshots/{NEW}/weights.gguf").strip() == "100000"

    second = lab.play("models", gb10_models_remove=f"{REPO}@{OLD}")
    assert second.rc == 0, second.failures
    assert second.changed == {} and "is on no node" in second.said
    assert lab.engine_lives() and not lab.run(WORKER, "sh", "-c", "ls /var/lib/gb10/gb10/lock.json 2>/dev/null", check=False)


def test_what_the_profile_wants_and_what_is_open_stays(lab: Lab, no_cluster: None, models: None) -> None:
    listed = lab.play("models").stat("gb10_models")["models"]
    wanted = next(row for row in listed if "wanted by the profile of this cluster" in row["state"])
    refused = lab.play("models", gb10_models_remove=wanted["request"])
    assert refused.rc != 0 and "wanted by the profile of this cluster" in refused.failures
    reader = lab.run(HEAD, "sh", "-c", 'sleep 600 < "$0" >/dev/null 2>&1 & echo $!', f"{BASE}/snapshots/{NEW}/weights.gguf").strip()
    try:
        held = lab.play("models", gb10_models_remove=f"{REPO}@{OLD},{REPO}@{NEW}")
        assert held.rc != 0 and "sleep 600" in held.failures
    finally:
        lab.run(HEAD, "kill", reader)
    assert {OLD, NEW} == set(lab.run(HEAD, "ls", f"{BASE}/snapshots").split())
    whole = lab.play("models", gb10_models_remove=f"{REPO}@{OLD},{REPO}@{NEW}")
    assert whole.rc == 0, whole.failures
    assert not any(BASE in path for host in (HEAD, WORKER) for path in there(lab, host))
