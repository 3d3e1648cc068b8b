# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole systems that owners reported, from the example inventories. Each comes up with its companions, is unchanged by a second run, and is removed."""

from __future__ import annotations

import contextlib
import typing as t
from pathlib import Path

import pytest

from .lab import HEAD, WORKER, Lab
from .leased import Judge
from .likeness import Likeness

PAIR = "gb10"
NONE: dict[str, set[str]] = {HEAD: set(), WORKER: set()}


@pytest.fixture
def likeness(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[t.Callable[..., Likeness]]:
    """Yields a function that creates the likeness of an example on nodes where nothing runs."""
    lab.down()
    with contextlib.ExitStack() as made:

        def make(example: str, **options: t.Any) -> Likeness:
            system = Likeness(tmp_path_factory.mktemp(example), example, **options)
            made.callback(system.remove)
            system.lay()
            assert not system.holding() and system.engines() == NONE
            return system

        yield make


def test_two_engines_with_speech_and_ollama_beside_them(likeness: t.Callable[..., Likeness]) -> None:
    """Two models, speech recognition, speech synthesis and a small model to fall back on: five services of single nodes."""
    system = likeness("two_services")
    beside = {(host, companion["name"]) for host, companions in system.companions.items() for companion in companions}
    assert len(beside) == 3
    printed = system.check().said
    assert all(f"up: {host} on {host}" in printed for host in (HEAD, WORKER)), printed[-2000:]
    assert f"companions: asr on {HEAD}, ollama on {HEAD}, tts on {WORKER}" in printed

    system.change()
    assert system.engines() == {host: {host} for host in (HEAD, WORKER)}
    assert system.answering() == beside
    assert system.model(HEAD) != system.model(WORKER)
    assert all("the cluster works" in system.token(host, host) for host in (HEAD, WORKER))

    system.change("off")
    assert system.engines() == NONE and not system.holding()


def test_a_pair_with_speech_beside_it(likeness: t.Callable[..., Likeness]) -> None:
    system = likeness("pair_with_speech")
    beside = {(HEAD, "asr"), (WORKER, "tts")}
    assert f"up: {PAIR} on {HEAD}, {WORKER}" in system.check().said

    system.change()
    assert system.engines() == {host: {PAIR} for host in (HEAD, WORKER)}
    assert system.answering() == beside
    assert "the cluster works" in system.token(PAIR)

    system.change("off")
    assert system.engines() == NONE and not system.holding()


def test_judges_give_way_to_a_pair_for_a_job_and_are_back_after_it(likeness: t.Callable[..., Likeness], tmp_path: Path) -> None:
    """The job is a command that has the pair as a lease."""
    system = likeness("judges_and_pair", in_containers=True)
    judges = {(HEAD, "judge"), (WORKER, "judge")}
    system.check()
    system.change()
    assert system.answering() == judges and system.engines() == NONE

    printed = system.check("cluster").said
    assert f"Mode: off -> cluster up: {PAIR} on {HEAD}, {WORKER}, profile lab_tiny_tp2 without: judge on {HEAD}, judge on {WORKER}" in printed

    def look() -> None:
        assert not system.holding() and not system.answering()
        assert system.engines() == {host: {PAIR} for host in (HEAD, WORKER)}
        assert system.modes() == {("cluster", "leased")}

    job = Judge(tmp_path, look)
    played = system.lease("cluster", job)
    assert "judged: " in played.said and "the cluster works" in played.said
    report = played.stat("gb10_mode_report")
    assert (report["lease"]["exit_code"], report["lease"]["before"], report["lease"]["during"], report["lease"]["after"]) == (0, "off", "cluster", "off")
    # The pair's memory is free again before the judges start.
    memory = {finding["node"]: finding["verdict"] for finding in played.stat("gb10_teardown") if finding["id"] == "memory.back"}
    assert (memory, played.stat("gb10_verdict")) == ({HEAD: "pass", WORKER: "pass"}, "pass"), played.said[-4000:]
    order = [("teardown", "Watch the memory until it is back"), ("companions", "Start the containers")]
    assert [task for task in played.tasks() if task in order] == order
    assert system.answering() == judges and system.engines() == NONE and system.modes() == {("off", "settled")}
    system.unchanged()


def test_one_spark_serves_and_the_other_is_left_alone(likeness: t.Callable[..., Likeness], lab: Lab) -> None:
    system = likeness("one_spark")
    look = ("find", "/var/lib/gb10", "/var/log/gb10", "/etc/gb10", "/etc/systemd/system", "-printf", "%p %s %T@ %m\\n")

    def there() -> tuple[str, str]:
        return lab.run(WORKER, *look, check=False), lab.run(WORKER, "docker", "ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.Names}} {{.State}}")

    before = there()
    assert f"up: {PAIR} on {HEAD}," in system.check().said
    played = system.change()
    assert played.hosts == {HEAD, "localhost"} and system.engines() == {HEAD: {PAIR}, WORKER: set()}
    assert "the cluster works" in system.token(PAIR)
    system.change("off")
    assert system.engines() == NONE and there() == before
