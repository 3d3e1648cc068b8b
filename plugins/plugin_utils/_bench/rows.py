# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Defines the cases of a bench, makes its rows, and finds those that are slower than before. This plugin util is PRIVATE to the collection."""

from __future__ import annotations

import statistics
import typing as t

from ansible_collections.gb10.cluster.plugins.module_utils._engine import bench
from ansible_collections.gb10.cluster.plugins.module_utils._module import finding

Row = dict[str, t.Any]
Finding = dict[str, t.Any]

#: Ids of findings that are made here.
IDS = ("bench.case", "bench.client", "bench.engine", "bench.foreign", "bench.idle", "bench.image", "bench.length", "bench.regression")

#: Version of a row.
SCHEMA = 1

#: The columns of a row apart from the client's figures, in this order, in the CSV as well.
ABOUT = (
    "run", "time", "cluster", "profile", "image", "engine_version", "engine_digest", "place", "client", "workload", "concurrency", "prompts", "input_len",
    "output_len",
)  # fmt: skip
AROUND = ("acceptance_length", "power_w", "temperature_c", "foreign_requests", "regressed")
COLUMNS = (*ABOUT, *bench.FIGURES, *AROUND)
#: Rows with the same values of these are compared. A client on the head uses part of the resources that it measures, so its place counts.
KEY = ("image", "profile", "place", "client", "workload", "concurrency", "prompts", "input_len", "output_len")

#: The figures that are compared: name, name in words, and whether a higher value is slower.
COMPARED = (("output_tok_s", "tokens/s", False), ("ttft_p50_ms", "ms to the first token", True))
#: How much slower fails (0.1 is 10 %), the factor on the noise, the fewest earlier runs that show the noise, and the most that count.
SLOWER, NOISES, LEAST_RUNS, MOST_RUNS = 0.1, 3.0, 3, 20

SWEEP = (1, 2, 4, 8, 16, 32)
#: Prompts of the long cases, as far as the context allows, and their concurrency.
LONG, LONG_AT = 32768, (1, 4)
#: Workloads by which an owner of two Sparks published his speed: tokens of each answer, three at once.
WORKLOADS = {"medium": 300, "long": 600, "code": 300, "reasoning": 300}
WORKLOADS_AT, WORKLOAD_PROMPTS = 3, 6
TEXTS = {
    "medium": (
        "Explain how a heat pump works, and when it is the better choice for an old house.",
        "Describe how a letter travels from one country to another, from the mailbox to the door.",
        "Compare trains and planes for a journey of 800 km.",
    ),
    "long": (
        "Write a detailed guide for somebody who plants a vegetable garden for the first time, month by month.",
        "Tell the story of a lighthouse keeper who finds a message in a bottle, in several scenes.",
        "Describe how a city of one million people could store enough energy for a week without wind and sun.",
    ),
    "code": (
        "Write a Python function that merges overlapping intervals, with type hints, a docstring and tests.",
        "Write a C program that counts the words of its standard input with a hash table.",
        "Write a SQL schema for a library with members, copies and loans, and the query for all overdue loans.",
    ),
    "reasoning": (
        "Three friends share 40 apples so that the second gets twice as many as the first, and the third 5 more than the second. Who gets how many?",
        "A train leaves at 9:10 and goes 84 km/h, another leaves the same station at 9:40 and goes 126 km/h. When does it catch up? Show each step.",
        "Five houses stand in a row, and their owners have different pets. Make such a riddle with eight hints, and solve it step by step.",
    ),
}


# --- cases --------------------------------------------------------------------------------------------------------------------


def _random(concurrency: int, wanted: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    about = {"input_len": wanted["input"], "output_len": wanted["output"], "texts": []}
    return {"workload": "random", "concurrency": concurrency, "prompts": max(8, 4 * concurrency), **about}


def cases(wanted: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """Return the cases. ``wanted`` has ``suite``, ``concurrency``, ``input``, ``output`` and ``context`` (0: unknown)."""
    suite, result = wanted["suite"], []
    if suite == "short":
        result += [_random(concurrency, wanted) for concurrency in wanted["concurrency"]]
    if suite in ("sweep", "all"):
        result += [_random(concurrency, wanted) for concurrency in SWEEP]
        long = min(LONG, wanted["context"] * 3 // 4 - wanted["output"]) if wanted["context"] else LONG
        if long > wanted["input"]:
            result += [
                {**_random(concurrency, {**wanted, "input": long}), "workload": "random-long", "prompts": 2 * concurrency + 2} for concurrency in LONG_AT
            ]
    if suite in ("workloads", "all"):
        result += [
            {"workload": name, "concurrency": WORKLOADS_AT, "prompts": WORKLOAD_PROMPTS, "input_len": 0, "output_len": tokens, "texts": list(TEXTS[name])}
            for name, tokens in WORKLOADS.items()
        ]
    return result


# --- rows ---------------------------------------------------------------------------------------------------------------------


def around(samples: t.Mapping[str, t.Any], began: float, ended: float) -> dict[str, t.Any]:
    """Return power (the sum of the nodes' means) and temperature (the highest) from ``began`` to ``ended``. A value that one node lacks is unknown."""
    nodes = {}
    for node, answer in samples.items():
        taken = [sample for sample in answer["samples"] if began <= sample["t"] <= ended] if answer else []
        power = [sample["power_w"] for sample in taken if sample["power_w"] is not None]
        heat = [sample["temperature_c"] for sample in taken if sample["temperature_c"] is not None]
        nodes[node] = {"power_w": round(statistics.fmean(power), 2) if power else None, "temperature_c": max(heat, default=None)}
    powers, heats = ([reading[word] for reading in nodes.values()] for word in ("power_w", "temperature_c"))
    return {
        "power_w": round(sum(powers), 2) if powers and None not in powers else None,
        "temperature_c": max(heats) if heats and None not in heats else None,
        "nodes": nodes,
    }


def row(result: t.Mapping[str, t.Any], about: t.Mapping[str, t.Any], samples: t.Mapping[str, t.Any]) -> Row:
    """Return the row of a measured case; ``result`` is the result of engine_bench, ``about`` has the fields of all rows of the run."""
    return {
        "schema": SCHEMA,
        **about,
        **result["case"],
        **result["figures"],
        **around(samples, result["began"], result["ended"]),
        "acceptance_length": result["acceptance_length"],
        "foreign_requests": result["foreign_requests"],
        "regressed": False,
    }


def key_of(record: t.Mapping[str, t.Any]) -> tuple[t.Any, ...]:
    """Return the key by which a row is compared."""
    return tuple(record.get(name) for name in KEY)


def name_of(record: t.Mapping[str, t.Any]) -> str:
    """Return a row's case in words."""
    return f"{record['workload']} at {record['concurrency']}"


def table(rows: t.Iterable[t.Mapping[str, t.Any]]) -> list[str]:
    """Return rows as lines of a table."""
    titles = ("case", "tokens/s", "TTFT p50", "p99", "TPOT p50", "p99", "ITL p99", "accepted", "W", "C")
    names = ("output_tok_s", "ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms", "tpot_p99_ms", "itl_p99_ms", "acceptance_length", "power_w", "temperature_c")
    cells = [titles, *((name_of(record), *("-" if record.get(name) is None else f"{record[name]:.1f}" for name in names)) for record in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(titles))]
    return ["  ".join([line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))]) for line in cells]


# --- comparing ----------------------------------------------------------------------------------------------------------------


def comparable(earlier: t.Iterable[Row], key: tuple[t.Any, ...]) -> list[Row]:
    """Return the earlier rows of a key that count: not slowed down by others' requests, and not slower than before themselves."""
    return [record for record in earlier if key_of(record) == key and not record.get("foreign_requests") and not record.get("regressed")][-MOST_RUNS:]


def slower_by(now: float, expected: float, more_is_slower: bool) -> float:
    """Return by how much something is slower than expected, 0.1 for 10 %."""
    return (now / expected if more_is_slower else expected / now) - 1 if now > 0 and expected > 0 else 0.0


def limit_of(values: t.Sequence[float]) -> float:
    """Return by how much slower fails, from earlier values: the threshold, or three times their noise if that is more."""
    return max(SLOWER, NOISES * statistics.stdev(values) / statistics.fmean(values)) if len(values) > 1 else SLOWER


def compare(record: Row, earlier: t.Iterable[Row]) -> list[Finding]:
    """Return the findings about a row compared with earlier rows of its key, empty without any."""
    known, findings = comparable(earlier, key_of(record)), []
    if not known:
        return []
    changed = any(past.get("engine_digest") != record.get("engine_digest") for past in known)
    hint = "the engine's arguments or variables changed since: compare them; " if changed else ""
    for name, words, more_is_slower in COMPARED:
        values = [past[name] for past in known]
        expected, limit = statistics.median(values), limit_of(values)
        slower = slower_by(record[name], expected, more_is_slower)
        if slower <= limit:
            continue
        enough = len(known) >= LEAST_RUNS
        runs = f"{len(known)} earlier run(s) of this image and profile"
        why = f"fails beyond {100 * limit:.0f} %" if enough else f"noise is known from {LEAST_RUNS} runs on"
        findings.append(
            finding(
                "bench.regression", record["client"], "block" if enough else "warn",
                f"{name_of(record)}: {record[name]:.1f} {words}, {100 * slower:.0f} % slower than {expected:.1f}, the median of {runs} ({why}).",
                measured=record[name], needed=round(expected, 3),
                remedy=f"{hint}run the doctor (clocks, temperature, tenants, links), then the bench again",
            )
        )  # fmt: skip
    return findings


def compare_images(record: Row, earlier: t.Sequence[Row]) -> list[Finding]:
    """Return a warning where the first row on an image is slower than the last image's rows of the same case."""
    others = [name for name in KEY if name != "image"]
    same = [past for past in earlier if all(past.get(name) == record.get(name) for name in others)]
    known = comparable(same, key_of(same[-1])) if same else []
    if not known or any(past["image"] == record["image"] for past in same):
        return []
    expected = statistics.median(past["output_tok_s"] for past in known)
    slower = slower_by(record["output_tok_s"], expected, False)
    if slower <= SLOWER:
        return []
    return [
        finding(
            "bench.image",
            record["client"],
            "warn",
            f"{name_of(record)}: {record['output_tok_s']:.1f} tokens/s on this image, {100 * slower:.0f} % slower than {expected:.1f} on the one before.",
            measured=record["output_tok_s"],
            needed=round(expected, 3),
            remedy="compare the engine's flags and kernels of the two images (docs/flags.md), or go back to the one before",
        )
    ]


def judged(rows: t.Sequence[Row], earlier: t.Sequence[Row]) -> tuple[list[Row], list[Finding]]:
    """Return the rows, each with its result of the comparison, and the findings."""
    marked, findings = [], []
    for record in rows:
        own_findings = [*compare(record, earlier), *compare_images(record, earlier)]
        if record["foreign_requests"]:
            findings.append(
                finding(
                    "bench.foreign",
                    record["client"],
                    "warn",
                    f"{name_of(record)}: {record['foreign_requests']} request(s) of others were answered meanwhile; the row is kept, and never compared.",
                    measured=record["foreign_requests"],
                    needed=0,
                    remedy="run it again",
                )
            )
            own_findings = []
        marked.append({**record, "regressed": any(entry["verdict"] == "block" for entry in own_findings)})
        findings += own_findings
    return marked, findings
