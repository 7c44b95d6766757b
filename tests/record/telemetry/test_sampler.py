"""What is sampled through the real binding, from a library that stands in for NVML."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import pytest

from ampdoctor.trace.schema import GpuRow

if TYPE_CHECKING:
    from tests.record.telemetry.conftest import Stub

FIRST, SECOND, THIRD = "GPU-aaaa1111", "GPU-aabb2222", "GPU-cccc3333"
THREE = f"{FIRST}|A100,{SECOND}|A100,{THIRD}|A100"
DIVIDED = f"{FIRST}|A100|MIG-1111/1/0|MIG-2222/2/0,{SECOND}|A100"

FIGURES = {
    "nvmlDeviceGetMemoryInfo": {"memory_used_bytes", "memory_total_bytes"},
    "nvmlDeviceGetComputeRunningProcesses": {"processes", "process_bytes"},
    "nvmlDeviceGetUtilizationRates": {"utilization", "memory_utilization"},
    "nvmlDeviceGetPowerUsage": {"power_w"},
    "nvmlDeviceGetEnforcedPowerLimit": {"power_limit_w"},
    "nvmlDeviceGetPowerManagementDefaultLimit": {"power_default_w"},
    "nvmlDeviceGetTemperature": {"temperature_c"},
    "nvmlDeviceGetClockInfo": {"sm_clock_mhz"},
    "nvmlDeviceGetMaxClockInfo": {"max_sm_clock_mhz"},
    "nvmlDeviceGetCurrentClocksEventReasons": {"throttle"},
    "nvmlDeviceGetUUID": {"uuid"},
    "nvmlDeviceGetName": {"name"},
    "nvmlDeviceGetMigMode": set(),
}
"""What a function tells."""

NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, UNKNOWN = 3, 4, 9, 999


def _situation(gpus: str = THREE, looks: int = 1, then: dict[str, str] | None = None, **rest: str) -> dict[str, Any]:
    environment = {"STUB_GPUS": gpus, "STUB_PROCESSES": "self=4096,7=100", **rest}
    return {"environment": environment, "looks": looks, "then": then}


def _uuids(found: dict[str, Any]) -> list[tuple[int | None, str]]:
    return [(row["device"], row["uuid"]) for row in found["looks"][0]]


def test_every_figure_of_every_gpu(stub: Stub) -> None:
    (found,) = stub.sample(_situation(STUB_THROTTLE=str(4 | 32 | 1 << 9)))
    assert found["said"] == "sampled"
    assert _uuids(found) == [(0, FIRST), (1, SECOND), (2, THIRD)]
    row = GpuRow(**found["looks"][0][1])
    assert (row.step, row.name, row.mig, row.current) == (7, "A100", False, None)
    assert (row.memory_used_bytes, row.memory_total_bytes) == (1024, 80 << 30)
    assert (row.process_bytes, row.processes) == (4096, 2)
    assert (row.utilization, row.memory_utilization) == (0.75, 0.5)
    assert (row.power_w, row.power_limit_w, row.power_default_w) == (250.5, 400.0, 500.0)
    assert row.temperature_c == 65.0
    assert (row.sm_clock_mhz, row.max_sm_clock_mhz) == (1200.0, 1410.0)
    assert row.throttle == ["sw_power_cap", "sw_thermal_slowdown", "bit_9"]


def test_each_look_is_taken_anew(stub: Stub) -> None:
    (found,) = stub.sample(_situation(f"{FIRST}|A100", looks=3, STUB_USED="1000,2000,3000"))
    assert [looked[0]["memory_used_bytes"] for looked in found["looks"][:3]] == [1000, 2000, 3000]


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, UNKNOWN])
def test_what_nvml_does_not_say_is_null_and_nothing_else(stub: Stub, code: int) -> None:
    told = {name for names in FIGURES.values() for name in names}
    situations = [_situation(f"{FIRST}|A100", STUB_FAIL=f"{function}={code}") for function in FIGURES]
    for found, missing in zip(stub.sample(*situations), FIGURES.values(), strict=True):
        assert found["said"] == "sampled"
        assert {name for name in told if found["looks"][0][0][name] is None} == missing


def test_an_old_driver_is_asked_by_the_names_that_it_knows(old_driver: Stub) -> None:
    (found,) = old_driver.sample(_situation(STUB_THROTTLE="8"))
    assert found["looks"][0][0]["throttle"] == ["hw_slowdown"]


def test_a_process_that_the_driver_hides_has_no_bytes(stub: Stub) -> None:
    hidden, alone, absurd = stub.sample(*(_situation(STUB_PROCESSES=text) for text in ("1=100", "", f"self={1 << 60}")))
    assert (hidden["looks"][0][0]["processes"], hidden["looks"][0][0]["process_bytes"]) == (1, None)
    assert (alone["looks"][0][0]["processes"], alone["looks"][0][0]["process_bytes"]) == (0, None)
    assert absurd["looks"][0][0]["process_bytes"] is None


def test_only_visible_gpus_are_sampled_under_the_index_that_torch_gives_them(stub: Stub) -> None:
    expected = {
        "2,0": [(0, THIRD), (1, FIRST)],
        "1,-1,0": [(0, SECOND)],
        f"{THIRD},{FIRST}": [(0, THIRD), (1, FIRST)],
        "GPU-aab": [(0, SECOND)],
    }
    found = stub.sample(*(_situation(CUDA_VISIBLE_DEVICES=variable) for variable in expected))
    assert [_uuids(one) for one in found] == list(expected.values())


def test_the_uuids_that_torch_gives_decide_whatever_the_variables_say(stub: Stub) -> None:
    situation = _situation(f"{FIRST}|T4,{SECOND}|A100,{THIRD}|A100", CUDA_VISIBLE_DEVICES="0,1")
    bare = [uuid.removeprefix("GPU-") for uuid in (THIRD, FIRST)]
    (found,) = stub.sample(situation | {"torch": {"uuids": bare, "current": 1}})
    assert _uuids(found) == [(0, THIRD), (1, FIRST)]
    assert [row["current"] for row in found["looks"][0]] == [False, True]


def test_where_torch_gives_no_uuids_it_says_how_many_devices_there_are(stub: Stub) -> None:
    (found,) = stub.sample(_situation(DIVIDED) | {"torch": {"uuids": [None], "current": 0}})
    assert _uuids(found) == [(0, "MIG-1111")]


def test_a_mig_instance_has_its_own_memory_and_the_clocks_of_the_whole_gpu(stub: Stub) -> None:
    (found,) = stub.sample(_situation(DIVIDED, CUDA_VISIBLE_DEVICES="MIG-2222"))
    (row,) = (GpuRow(**row) for row in found["looks"][0])
    assert (row.uuid, row.mig, row.gpu_instance, row.compute_instance) == ("MIG-2222", True, 2, 0)
    assert (row.memory_total_bytes, row.utilization, row.power_w) == (10 << 30, None, 250.5)


def test_what_can_not_be_told_of_an_instance_leaves_the_rest(stub: Stub) -> None:
    asked = ["nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId"]
    failing = [f"{function}={NOT_SUPPORTED}" for function in asked]
    situations = [_situation(DIVIDED, CUDA_VISIBLE_DEVICES="MIG-1111", STUB_FAIL=text) for text in failing]
    first, second = (found["looks"][0][0] for found in stub.sample(*situations))
    assert (first["mig"], first["gpu_instance"], first["compute_instance"]) == (True, None, 0)
    assert (second["mig"], second["gpu_instance"], second["compute_instance"]) == (True, 1, None)


def test_that_there_is_no_nvml_is_a_fact_with_a_reason(stub: Stub, no_library: Stub) -> None:
    if _has_library():
        pytest.skip("this machine has NVML")
    (absent,) = no_library.sample(_situation())
    assert absent == {"said": "no NVML: NVMLError_LibraryNotFound: NVML Shared Library Not Found", "looks": []}
    failing = (f"nvmlInitWithFlags={code}" for code in (DRIVER_NOT_LOADED, NO_PERMISSION, UNKNOWN))
    for found in stub.sample(*(_situation(STUB_FAIL=text) for text in failing)):
        assert found["said"].startswith("no NVML: NVMLError")
        assert found["looks"] == []


def test_gpus_that_can_not_be_counted_or_seen_are_none(stub: Stub) -> None:
    uncounted, empty, unseen, forbidden = stub.sample(
        _situation(STUB_FAIL=f"nvmlDeviceGetCount_v2={UNKNOWN}"), _situation(""), _situation(CUDA_VISIBLE_DEVICES=""),
        _situation(STUB_FAIL=f"nvmlDeviceGetHandleByIndex_v2={NO_PERMISSION}"),
    )  # fmt: skip
    assert uncounted["said"].startswith("ended: NVMLError")
    assert empty["said"] == forbidden["said"] == "no GPU: NVML lists none of those that torch sees"
    assert unseen["said"] == f"{empty['said']} (CUDA_VISIBLE_DEVICES=)"


def test_a_gpu_that_is_lost_ends_its_own_rows_and_no_others(stub: Stub) -> None:
    (found,) = stub.sample(_situation(then={"STUB_LOST": SECOND}))
    assert found["said"].startswith(f"sampled, but for {SECOND}: ")
    assert [row["uuid"] for row in found["looks"][-1]] == [FIRST, THIRD]


def test_a_gpu_that_is_lost_ends_the_sampling_where_it_was_the_only_one(stub: Stub) -> None:
    (found,) = stub.sample(_situation(f"{FIRST}|A100", looks=2, then={"STUB_LOST": FIRST}))
    assert found["said"].startswith("ended: NoAnswerError: ")
    assert len(found["looks"]) == 2


@pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetName"])
def test_a_call_that_hangs_is_left_behind(stub: Stub, function: str) -> None:
    (found,) = stub.sample(_situation(STUB_HANG=function))
    assert found == {"said": "no NVML: it had not answered by the end", "looks": []}


def test_a_call_that_hangs_later_leaves_what_came_before(stub: Stub) -> None:
    (found,) = stub.sample(_situation(looks=2, then={"STUB_HANG": "nvmlDeviceGetPowerUsage"}))
    assert found["said"] == "ended: NVML did not answer"
    assert len(found["looks"]) == 2


def _has_library() -> bool:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True
