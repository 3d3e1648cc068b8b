# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""nvidia-smi -q -x, from answers of the real tool (recorded_*) and composed variations of them."""

from __future__ import annotations

import pathlib

import hypothesis
import hypothesis.strategies as st
import pytest

from ansible_collections.gb10.cluster.plugins.module_utils._errors import UnknownState
from ansible_collections.gb10.cluster.plugins.module_utils._gpu import driver, driver_xml
from ansible_collections.gb10.cluster.plugins.module_utils._tool import ToolResult

FIXTURES = pathlib.Path(__file__).parents[3] / "fixtures/nvidia_smi"
KEYS = {
    "index", "name", "uuid", "bus_id", "driver_version", "cuda_version", "vbios", "memory_total_mb", "memory_used_mb", "utilisation_percent", "sm_clock_mhz",
    "sm_clock_max_mhz", "power_w", "temperature_c", "pstate", "throttle", "persistence", "mig", "processes", "source",
}  # fmt: skip
UUID = "GPU-00000000-0000-0000-0000-000000000000"


def recorded(name: str) -> str:
    return (FIXTURES / name).read_text()


BUSY = recorded("recorded_h200_busy.xml")
GB10 = recorded("composed_gb10_two.xml")


class Noted:
    """Collects the parts that could not be read."""

    def __init__(self):
        self.errors = []

    def __call__(self, reader, otherwise=None):
        try:
            return reader()
        except UnknownState as error:
            self.errors.append(str(error))
            return otherwise


def test_a_recorded_gpu_with_its_process():
    (gpu,) = driver_xml.parse_gpus(BUSY)
    assert gpu.keys() == KEYS
    assert gpu["processes"] == [{"pid": 411, "type": "C", "name": "python3", "used_mib": 2566}]
    assert (gpu["name"], gpu["bus_id"], gpu["driver_version"], gpu["cuda_version"]) == ("NVIDIA H200", "00000000:00:06.0", "580.159.04", "13.0")
    assert (gpu["memory_total_mb"], gpu["sm_clock_max_mhz"], gpu["pstate"], gpu["persistence"], gpu["mig"]) == (143771, 1980, "P0", True, False)
    assert gpu["throttle"] == [] and gpu["source"] == "xml" and gpu["power_w"] > 50 and gpu["temperature_c"] > 20


def test_the_recordings_agree_with_the_short_answers_of_the_same_moment():
    for name in ("recorded_h200_idle", "recorded_h200_busy", "recorded_h200_two"):
        (gpu,) = driver_xml.parse_gpus(recorded(f"{name}.xml"))
        listed = [(entry.pid, entry.name, entry.used_mib) for entry in driver.parse_processes(recorded(f"{name}_compute_apps.csv"))]
        assert [(entry["pid"], entry["name"], entry["used_mib"]) for entry in gpu["processes"]] == listed


def test_gb10_has_no_memory_of_its_own_and_still_tells_that_of_processes():
    (gpu,) = driver_xml.parse_gpus(GB10)
    assert gpu["memory_total_mb"] is None and gpu["memory_used_mb"] is None and gpu["mig"] is None and gpu["vbios"] is None
    assert gpu["throttle"] == ["gpu_idle"]
    assert [(entry["pid"], entry["type"], entry["used_mib"]) for entry in gpu["processes"]] == [(2804, "G", 43), (114687, "C", 71020), (114999, "C", None)]


def process(pid, kind, used, instance="N/A"):
    return (
        f"<process_info><gpu_instance_id>{instance}</gpu_instance_id><compute_instance_id>N/A</compute_instance_id><pid>{pid}</pid><type>{kind}</type>"
        f"<process_name>python3</process_name><used_memory>{used}</used_memory></process_info>"
    )


def small(body: str = "", count: object = 1, before: str = "", after: str = "", processes: str = "") -> str:
    gpu = f'<gpu id="0000000F:01:00.0"><product_name>NVIDIA GB10</product_name>{body}<processes>{processes}</processes></gpu>'
    return f"{before}<nvidia_smi_log><driver_version>580.95.05</driver_version><attached_gpus>{count}</attached_gpus>{gpu}</nvidia_smi_log>{after}"


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        # Listed as C and as G: one process, its memory once.
        ([(7, "C", "100 MiB"), (7, "G", "100 MiB")], [(7, "C+G", 100)]),
        ([(7, "G", "40 MiB"), (7, "C", "N/A")], [(7, "C+G", 40)]),
        ([(7, "C+G", "N/A"), (7, "C", "N/A")], [(7, "C+G", None)]),
        # On two MIG instances: the sum.
        ([(7, "C", "100 MiB", "1"), (7, "C", "50 MiB", "2"), (3, "C", "1 MiB", "1")], [(3, "C", 1), (7, "C", 150)]),
    ],
)
def test_a_process_counts_once(listed, expected):
    (gpu,) = driver_xml.parse_gpus(small(processes="".join(process(*row) for row in listed)))
    assert [(entry["pid"], entry["type"], entry["used_mib"]) for entry in gpu["processes"]] == expected


def test_what_the_tool_warns_of_around_the_document_is_left_out():
    head = "some line\n<?xml version='1.0' ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v13.dtd\">\n"
    text = small(before=head, after="\nWARNING: infoROM is corrupted at gpu 000F:01:00.0\n")
    assert driver_xml.parse_gpus(text)[0]["name"] == "NVIDIA GB10"


def test_versions_are_read_without_the_annotations_of_the_610_branch():
    """The words are those of ``nvidia-smi -q`` of driver 610.57.04 on a GB10, as an owner recorded them; their place in XML is inferred."""
    old = "<driver_version>580.95.05</driver_version>"
    annotated = (
        "<driver_version>610.57.04 [Deprecated; will be removed]</driver_version>"
        "<cuda_version>13.3 [Deprecated; use CUDA UMD Version instead]</cuda_version>"
    )
    for versions in (annotated, "<kmd_version>610.57.04</kmd_version><cuda_umd_version>13.3</cuda_umd_version>"):
        (gpu,) = driver_xml.parse_gpus(small().replace(old, versions))
        assert (gpu["driver_version"], gpu["cuda_version"]) == ("610.57.04", "13.3")


def test_older_drivers_use_other_names():
    (gpu,) = driver_xml.parse_gpus(
        small(
            "<clocks_throttle_reasons><clocks_throttle_reason_sw_power_cap>Active</clocks_throttle_reason_sw_power_cap>"
            "<clocks_throttle_reason_gpu_idle>Not Active</clocks_throttle_reason_gpu_idle></clocks_throttle_reasons>"
            "<power_readings><power_draw>12.5 W</power_draw></power_readings>"
        )
    )
    assert gpu["throttle"] == ["sw_power_cap"] and gpu["power_w"] == 12.5 and gpu["sm_clock_mhz"] is None


def test_no_reported_reason_differs_from_no_active_reason():
    assert driver_xml.parse_gpus(small())[0]["throttle"] is None


@pytest.mark.parametrize(
    ("key", "body"),
    [
        ("memory_used_mb", "<fb_memory_usage><used>viel</used></fb_memory_usage>"),
        ("memory_used_mb", "<fb_memory_usage><used>5 GiB</used></fb_memory_usage>"),
        ("temperature_c", "<temperature><gpu_temp>GPU requires reset</gpu_temp></temperature>"),
        ("utilisation_percent", "<utilization><gpu_util>[Unknown Error]</gpu_util></utilization>"),
        ("persistence", "<persistence_mode>Aktiviert</persistence_mode>"),
        ("throttle", "<clocks_event_reasons><clocks_event_reason_gpu_idle>Aktiv</clocks_event_reason_gpu_idle></clocks_event_reasons>"),
    ],
)
def test_a_figure_that_cannot_be_read_is_noted_and_hides_no_other(key, body):
    noted = Noted()
    (gpu,) = driver_xml.parse_gpus(small(body), noted)
    assert gpu[key] is None and gpu["name"] == "NVIDIA GB10" and len(noted.errors) == 1
    with pytest.raises(UnknownState):
        driver_xml.parse_gpus(small(body))


@pytest.mark.parametrize("listing", ["N/A", process("N/A", "C", "1 MiB"), process("", "C", "1 MiB"), process(1, "C", "lots")])
def test_processes_that_cannot_be_read_are_unknown_and_not_none(listing):
    noted = Noted()
    assert driver_xml.parse_gpus(small(processes=listing), noted)[0]["processes"] is None and len(noted.errors) == 1


BOMB = '<?xml version="1.0"?><!DOCTYPE nvidia_smi_log [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "Не удалось инициализировать NVML",
        recorded("recorded_h200_no_devices.txt"),
        recorded("recorded_h200_two_compute_apps.csv"),
        BUSY[: len(BUSY) // 2],
        BUSY[:-20],
        BUSY.replace("</gpu>", "", 1),
        BUSY.replace("<attached_gpus>1<", "<attached_gpus>2<"),
        small(count=""),
        small(count=0),
        small("&b;", before=BOMB),
        small("&xxe;", before='<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi.dtd">'),
        small("&xxe;", before='<!DOCTYPE nvidia_smi_log [<!ENTITY xxe SYSTEM "file:///etc/passwd">]>'),
        small("&xxe;", before='<!DOCTYPE nvidia_smi_log [<!ENTITY % p SYSTEM "file:///etc/passwd"> %p;]>'),
        "</nvidia_smi_log><nvidia_smi_log>",
    ],
)
def test_an_incomplete_answer_is_unknown(text):
    with pytest.raises(UnknownState):
        driver_xml.parse_gpus(text, Noted())


@pytest.mark.parametrize("text", [small(before=BOMB), small("<a>" * 100 + "</a>" * 100)])
def test_unused_declarations_and_deep_nesting_do_no_harm(text):
    assert len(driver_xml.parse_gpus(text, Noted())) == 1


def test_no_gpu_is_seen_as_none():
    assert driver_xml.parse_gpus("<nvidia_smi_log><attached_gpus>0</attached_gpus></nvidia_smi_log>") == []


class Tool:
    """Answers like the driver's tool, chosen by the first argument."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def __call__(self, argv, timeout):
        name = argv[1].removeprefix("--").partition("=")[0].replace("-", "_").lstrip("_")
        self.asked.append(name)
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, ToolResult) else ToolResult(0, answer, "")


@pytest.fixture
def tool(monkeypatch):
    def tool(**answers):
        fake = Tool(**answers)
        monkeypatch.setattr(driver_xml, "run_tool", fake)
        monkeypatch.setattr(driver, "run_tool", fake)
        return fake

    return tool


GPU_ROW = f"0, NVIDIA GB10, {UUID}, 580.95.05, [N/A], [N/A]\n"


def test_the_whole_answer_is_asked_once(tool):
    fake = tool(q=GB10)
    assert driver_xml.gpus("nvidia-smi", 5)[0]["source"] == "xml" and fake.asked == ["q"]


@pytest.mark.parametrize("rc", [0, 6])
def test_a_node_without_a_gpu_has_an_empty_list(tool, rc):
    fake = tool(q=ToolResult(rc, recorded("recorded_h200_no_devices.txt"), ""))
    assert driver_xml.gpus_or_none("nvidia-smi", 5) == [] and fake.asked == ["q"]
    with pytest.raises(UnknownState, match="No devices were found") as caught:
        driver_xml.gpus("nvidia-smi", 5)
    assert caught.value.reason == driver.NO_GPU


@pytest.mark.parametrize("answer", [BUSY[:5000], "rubbish", ToolResult(9, "NVIDIA-SMI has failed", "")])
def test_half_an_answer_falls_back_to_the_short_ones(tool, answer):
    tool(q=answer, query_gpu=GPU_ROW, query_compute_apps=f"{UUID}, 9, a, b, 12 MiB\n{UUID}, 7, python3, [N/A]\n")
    (gpu,) = driver_xml.gpus("nvidia-smi", 5)
    assert gpu.keys() == KEYS and gpu["source"] == "csv" and gpu["name"] == "NVIDIA GB10" and gpu["throttle"] is None
    assert gpu["processes"] == [{"pid": 7, "type": "C", "name": "python3", "used_mib": None}, {"pid": 9, "type": "C", "name": "a, b", "used_mib": 12}]


def test_a_tool_that_fails_and_yet_describes_everything_is_read_and_noted(tool):
    fake = tool(q=ToolResult(14, GB10 + "WARNING: infoROM is corrupted at gpu 000F:01:00.0\n", ""))
    noted = Noted()
    assert driver_xml.gpus("nvidia-smi", 5, noted)[0]["source"] == "xml" and fake.asked == ["q"]
    assert "status 14" in noted.errors[0]


def test_short_processes_that_cannot_be_read_leave_the_gpu(tool):
    tool(q="rubbish", query_gpu=GPU_ROW, query_compute_apps="rubbish")
    noted = Noted()
    assert driver_xml.gpus("nvidia-smi", 5, noted)[0]["processes"] is None and len(noted.errors) == 1


@pytest.mark.parametrize("reason", ["tool missing", "tool hangs"])
def test_a_tool_that_is_missing_or_hangs_is_not_asked_again(tool, reason):
    fake = tool(q=UnknownState("no", reason=reason))
    with pytest.raises(UnknownState, match="no"):
        driver_xml.gpus("nvidia-smi", 5)
    assert fake.asked == ["q"]


def test_two_unreadable_answers_are_unknown_and_both_shown(tool):
    tool(q=ToolResult(9, "NVIDIA-SMI has failed", ""), query_gpu="rubbish\n")
    with pytest.raises(UnknownState, match="status 9: NVIDIA-SMI has failed; and in short: .*rubbish") as caught:
        driver_xml.gpus("nvidia-smi", 5)
    assert caught.value.details["raw"]


def test_short_processes_on_two_gpus_and_on_a_stranger():
    gpus = [{"index": 0, "uuid": "GPU-a"}, {"index": 1, "uuid": "GPU-b"}]
    listed = driver_xml.parse_processes_by_gpu("GPU-a, 1, x, 1 MiB\nGPU-b, 1, x, 2 MiB\n")
    assert [gpu["processes"][0]["used_mib"] for gpu in driver_xml.join_csv(gpus, listed)] == [1, 2]
    with pytest.raises(UnknownState, match="GPU-c"):
        driver_xml.join_csv(gpus, {"GPU-c": []})
    assert driver_xml.join_csv(gpus[:1], {"MIG-c": [{"pid": 4}]})[0]["processes"] == [{"pid": 4}]


def only_unknown(read, text):
    try:
        read(text)
    except UnknownState:
        pass


@st.composite
def mutated(draw, texts):
    """A real text with a few pieces cut, doubled, moved or replaced."""
    text = draw(st.sampled_from(texts))
    for _step in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 2000)))
        pieces = ["<", ">", "&", "&amp;", "&x;", "]]>", "<!--", "\0", "N/A", "-1", "9" * 5000, "²", "1e999 W", text[start:end] * 2]
        piece = draw(st.one_of(st.text(max_size=20), st.sampled_from(pieces)))
        text = text[:start] + piece + text[end:]
    return text


@hypothesis.settings(deadline=None, derandomize=True, database=None, max_examples=150)
@hypothesis.given(mutated([BUSY[:2000] + BUSY[-3000:], BUSY, GB10, small(processes=process(1, "C", "2 MiB"))]))
def test_mutated_answers_are_read_or_unknown(text):
    only_unknown(driver_xml.parse_gpus, text)
    only_unknown(lambda answer: driver_xml.parse_gpus(answer, Noted()), text)


@hypothesis.settings(deadline=None, derandomize=True, database=None)
@hypothesis.given(mutated([f"{UUID}, 9, a, b, 12 MiB\n{UUID}, 7, python3, [N/A]\n", GPU_ROW]))
def test_mutated_short_answers_are_read_or_unknown(text):
    only_unknown(driver_xml.parse_processes_by_gpu, text)
    only_unknown(driver.parse_gpus, text)
    only_unknown(driver.parse_processes, text)
