"""Rules about the GPU itself, beyond their examples: which one is meant, what filled it, what is said without one."""

from __future__ import annotations

from typing import Any

import pytest

from ampdoctor.analysis import devices
from ampdoctor.analysis.devices import looks
from ampdoctor.engine import diagnose
from ampdoctor.finding import Confidence, Finding, Severity
from ampdoctor.rules.gpu_throttled import GpuThrottled
from ampdoctor.rules.near_oom import NearOom
from ampdoctor.trace.builder import RunBuilder

GIB = 2**30
TOTAL = 24 * GIB


def _filled(*peaks: float, builder: RunBuilder | None = None, **columns: Any) -> RunBuilder:
    run = builder or RunBuilder(device="cuda: NVIDIA L4")
    for peak in peaks:
        seen = {"memory_total_bytes": TOTAL, "memory_used_bytes": 23 * GIB} | columns
        run.step(loss=2.0, peak_bytes=int(peak * GIB)).gpu(**seen)
    return run


def _oom(run: RunBuilder) -> Finding:
    (finding,) = NearOom().check(run.build())
    return finding


def _evidence(finding: Finding) -> dict[str, Any]:
    return {e.name: e.value for e in finding.evidence}


def test_a_full_gpu_is_a_note_and_one_that_fills_up_a_warning() -> None:
    steady = _oom(_filled(*[22.0] * 30))
    assert steady.severity is Severity.NOTE
    assert steady.location.first_step == 0
    growing = _oom(_filled(*[20.0 + n / 10 for n in range(30)]))
    assert growing.severity is Severity.WARNING
    assert _evidence(growing)["grown_bytes"] > GIB / 2
    assert growing.location.first_step == 29


def test_growth_while_the_optimizer_makes_its_state_is_none() -> None:
    assert _oom(_filled(*[10.0] * 5, *[22.0] * 25)).severity is Severity.NOTE


def test_what_others_hold_counts_and_is_named() -> None:
    finding = _oom(_filled(*[12.0] * 30, process_bytes=13 * GIB, processes=3))
    assert _evidence(finding)["other_bytes"] == 10 * GIB
    assert finding.fixes[0].title == "Move the other processes"
    assert finding.confidence is Confidence.HIGH


def test_where_it_is_hidden_whose_memory_it_is_only_tensors_count() -> None:
    assert list(NearOom().check(_filled(*[12.0] * 30, process_bytes=None, processes=0).build())) == []
    finding = _oom(_filled(*[22.0] * 30, process_bytes=None))
    assert "other_bytes" not in _evidence(finding)
    assert finding.confidence is Confidence.MEDIUM


def test_peaks_beyond_what_is_there_leave_nothing() -> None:
    assert _evidence(_oom(_filled(*[24.5] * 30)))["left_bytes"] == 0


def test_of_several_gpus_the_one_counts_that_the_steps_speak_of() -> None:
    run = RunBuilder()
    for _ in range(30):
        run.step(loss=2.0, peak_bytes=22 * GIB)
        for device, gib in ((0, 24), (1, 80)):
            run.gpu(device=device, current=device == 1, uuid=f"GPU-{device}", memory_used_bytes=23 * GIB,
                    memory_total_bytes=gib * GIB)  # fmt: skip
    assert list(NearOom().check(run.build())) == []


def test_which_of_several_gpus_it_is_must_be_known() -> None:
    run = RunBuilder().step(loss=1.0).gpu(uuid="GPU-1", current=None).gpu(uuid="GPU-2", current=None)
    assert looks(run.build()) == []
    assert len(looks(RunBuilder().step(loss=1.0).gpu(current=None).gpu(current=None).build())) == 2


def test_a_long_run_is_judged_by_looks_at_even_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_LOOKS", 10)
    assert [r.step for r in looks(_filled(*[1.0] * 35).build())] == list(range(0, 35, 4))


@pytest.mark.parametrize("rule", [NearOom(), GpuThrottled()])
def test_a_rule_that_is_skipped_says_why_there_are_no_figures(rule: NearOom | GpuThrottled) -> None:
    why = "no NVML: NVMLError_LibraryNotFound: NVML Shared Library Not Found"
    run = RunBuilder(gpu_telemetry=why).step(loss=1.0, peak_bytes=GIB).build()
    (skipped,) = diagnose(run, rules=[rule]).skipped
    assert why in skipped.reason
    assert "gpu." in skipped.reason


def _throttled(*reasons: tuple[str, ...], **columns: Any) -> list[Finding]:
    run = RunBuilder()
    for throttle in reasons:
        run.step(loss=1.0).gpu(throttle=list(throttle), **columns)
    return list(GpuThrottled().check(run.build()))


def test_time_without_work_does_not_count() -> None:
    hot, idle = ("hw_thermal_slowdown",), ("gpu_idle",)
    (finding,) = _throttled(*[hot] * 30, *[idle] * 100)
    assert _evidence(finding)["throttled_share"] == 1.0
    assert _throttled(*[hot] * 30, *[()] * 40) == []


def test_a_power_cap_without_limits_says_nothing() -> None:
    assert _throttled(*[("sw_power_cap",)] * 60) == []


def test_heat_and_power_have_other_cures() -> None:
    (hot,) = _throttled(*[("sw_thermal_slowdown", "sw_power_cap")] * 40, temperature_c=91.0)
    assert [fix.title for fix in hot.fixes] == ["See what holds it down, and cool it"]
    (capped,) = _throttled(*[("sw_power_cap",)] * 40, sm_clock_mhz=500.0, power_default_w=70.0, power_limit_w=40.0,
                           power_w=39.5)  # fmt: skip
    assert capped.fixes[0].title.startswith("Raise the power limit")
    assert "with a limit of 40 W" in next(e.text for e in capped.evidence if e.name == "power_w")
