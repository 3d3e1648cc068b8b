# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The image is built once, and the other node gets the missing parts: both have the same id, and the copy leaves nothing behind."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._wait import clock

from .hub import registry
from .lab import HEAD, WORKER, Lab, Play

IMAGE, BASE = "gb10-lab/engine-ray:0.32.0", "gb10-lab/engine:0.32.0"
PORT = 20301


def image_id(lab: Lab, host: str, name: str = IMAGE) -> str:
    """Return an image's id on a node, empty when it is absent."""
    return lab.run(host, "sh", "-c", 'docker image inspect --format "{{.Id}}" "$1" 2>/dev/null || true', "sh", name).strip()


def ids(lab: Lab, name: str = IMAGE) -> set[str]:
    return {image_id(lab, host, name) for host in (HEAD, WORKER)}


def forget(lab: Lab, host: str, *names: str) -> None:
    """Remove images of a node by their names, and layers that only they used."""
    for name in names:
        lab.run(host, "sh", "-c", 'docker rmi --force "$1" >/dev/null 2>&1 || true', "sh", name)


def leavings(lab: Lab, host: str) -> str:
    """Return what a copy left on a node: its unit, its files, its note, its listener."""
    units = lab.run(host, "systemctl", "list-units", "--all", "--no-legend", "--plain", "gb10-image-copy*")
    of_docker = "/var/lib/docker/tmp/docker-export-* /var/lib/docker/tmp/docker-import-*"
    files = lab.run(host, "sh", "-c", f"ls -d /run/gb10-image-copy/* /var/lib/gb10/image-copy-*.json {of_docker} 2>/dev/null", check=False)
    containers = lab.run(host, "docker", "ps", "--all", "--quiet", "--filter", "label=io.gb10.role=probe")
    return units + files + containers + lab.run(host, "ss", "-Hltn", f"sport = :{PORT}")


def blobs_of(lab: Lab, host: str) -> set[str]:
    """Return the blobs in the image's own export. Docker can export an image only if all of its blobs arrived."""
    listed = lab.run(host, "sh", "-c", 'docker save "$1" | tar -t', "sh", IMAGE)
    return {name for name in listed.split() if name.startswith("blobs/") or name.endswith("layer.tar")}


def image(lab: Lab, **more: t.Any) -> Play:
    return lab.play("serve", tags="image", **more)


@pytest.fixture
def made(lab: Lab, no_cluster: None) -> t.Iterator[str]:
    """The id of the node image, which is on both nodes now and afterwards."""
    played = image(lab)
    assert played.rc == 0, played.failures
    yield image_id(lab, HEAD)
    if len(ids(lab)) != 1 or "" in ids(lab) | ids(lab, BASE):
        assert image(lab).rc == 0


def test_a_worker_with_the_base_gets_the_thin_layers_alone(lab: Lab, made: str) -> None:
    forget(lab, WORKER, IMAGE)
    predicted = image_play_in_check_mode(lab)
    assert "would be copied" in predicted.said and image_id(lab, WORKER) == ""
    played = image(lab)
    assert played.rc == 0, played.failures
    assert ids(lab) == {made} and "layer(s) copied" in played.said
    size = int(lab.run(HEAD, "docker", "image", "inspect", "--format", "{{.Size}}", IMAGE))
    copied = next(result for result in results(played, "Copy the image") if result.get("bytes"))
    assert copied["bytes"] < size / 5 and copied["layers_sent"] <= 3 and copied["how"] in ("layers", "blobs")
    assert {host: leavings(lab, host) for host in (HEAD, WORKER)} == {HEAD: "", WORKER: ""}
    assert blobs_of(lab, WORKER) == blobs_of(lab, HEAD)
    again = image(lab)
    assert again.rc == 0 and again.changed == {} and not any(task == "Copy the image" for _role, task in again.tasks())


def test_where_the_base_came_from_a_registry_nothing_is_exported(lab: Lab, made: str) -> None:
    with registry(lab) as images:
        name = f"{images.direct}/bases/engine:1"
        lab.run(HEAD, "docker", "tag", BASE, name)
        lab.run(HEAD, "docker", "push", "--quiet", name, timeout=900)
        lab.run(HEAD, "docker", "rmi", name)
    forget(lab, WORKER, IMAGE)
    since = lab.run(HEAD, "date", "+%s").strip()
    played = image(lab)
    assert played.rc == 0, played.failures
    assert ids(lab) == {made}
    journal = lab.run(HEAD, "journalctl", "--no-pager", "--output", "cat", "--since", f"@{since}", "--unit", "gb10-image-copy-*")
    assert "asks for" in journal and "did not come" not in journal
    assert {host: leavings(lab, host) for host in (HEAD, WORKER)} == {HEAD: "", WORKER: ""}


def image_play_in_check_mode(lab: Lab) -> Play:
    predicted = lab.play("serve", check=True, tags="image")
    assert predicted.rc == 0, predicted.failures
    assert WORKER in predicted.changed
    return predicted


def results(played: Play, task: str) -> list[dict[str, t.Any]]:
    """Return a task's result on each node that it ran on."""
    return [event["event_data"]["res"] for event in played.events if event["event"] == "runner_on_ok" and event["event_data"]["task"] == task]


def test_a_worker_without_anything_gets_all_and_the_base_by_its_name(lab: Lab, made: str) -> None:
    base = image_id(lab, HEAD, BASE)
    forget(lab, WORKER, IMAGE, BASE)
    played = image(lab)
    assert played.rc == 0, played.failures
    assert ids(lab) == {made} and ids(lab, BASE) == {base}
    assert {host: leavings(lab, host) for host in (HEAD, WORKER)} == {HEAD: "", WORKER: ""}
    assert image(lab).changed == {}


def test_what_stands_in_the_way_is_named_and_the_worker_builds(lab: Lab, made: str) -> None:
    forget(lab, WORKER, IMAGE)
    fabric = lab.run(HEAD, "ip", "-4", "-o", "address", "show", "eth1").split()[3].partition("/")[0]
    lab.run(HEAD, "systemd-run", "--quiet", "--collect", "--unit", "users-listener", "python3", "-m", "http.server", "--bind", fabric, str(PORT))
    try:
        for _elapsed in clock(10, 0.2):
            if fabric in lab.run(HEAD, "ss", "-Hltn", f"sport = :{PORT}"):
                break
        stopped = image(lab)
        assert stopped.rc != 0 and f"port {PORT} of " in stopped.said and "gb10_copy_port" in stopped.said
        assert image_id(lab, WORKER) == ""
        played = image(lab, gb10_image_copy="preferred")
        assert played.rc == 0, played.failures
        assert "pulls and builds by itself" in played.said and image_id(lab, WORKER) not in ("", made)
        assert f"warn image.id {WORKER}" in played.said
    finally:
        lab.run(HEAD, "systemctl", "stop", "users-listener", check=False)
    # The port is free again. Nothing serves, so both nodes get the same id again.
    assert image(lab).rc == 0 and ids(lab) == {made}


def test_a_rebuilt_image_only_adds_and_replaces_all(lab: Lab, made: str) -> None:
    played = image(lab, gb10_allow="rebuild")
    assert played.rc == 0, played.failures
    (rebuilt,) = ids(lab)
    assert rebuilt not in ("", made)
    verified = results(played, "Verify that the layer only adds files")[0]["additions"]
    assert verified["how"] == "files" and verified["added"] > 1000 and verified["changed_paths"] == []
    assert image(lab).changed == {}
