"""Where memory and time went: numbers that can be worked out by hand, and what is said where there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ampdoctor.analysis.memory.advice import advice
from ampdoctor.analysis.memory.ledgers import ledgers
from ampdoctor.trace.info import RunInfo, write_info
from ampdoctor.trace.run import open_run
from ampdoctor.trace.schema import GpuRow, MemoryRow, PaceRow, StepRow, TimingRow
from ampdoctor.trace.writer import TraceWriter
from ampdoctor_dashboard.data.gpu import telemetry
from ampdoctor_dashboard.data.memory import chosen_ledger, chosen_speed, costs, kept_by_module
from ampdoctor_dashboard.data.opened import OpenedRun
from ampdoctor_dashboard.figures import costs as figures
from ampdoctor_dashboard.figures.amounts import LONGEST, short, unit_of
from ampdoctor_dashboard.figures.style import Style

if TYPE_CHECKING:
    from pathlib import Path

MIB = 2**20


def _memory(step: int, phase: str, component: str, size: int, **more: Any) -> MemoryRow:
    base: dict[str, Any] = {"device": "cpu", "dtype": "float32", "storages": 1}
    return MemoryRow(step=step, phase=phase, component=component, bytes=size, **(base | more))


def _timing(module: str | None, op: str, direction: str, ms: float, dtype: str = "float32") -> TimingRow:
    return TimingRow(
        step=4, module=module, op=op, direction=direction, dtype_in="float32", dtype_out=dtype, calls=2, host_ms=ms,
        numel=1, misaligned=0,
    )  # fmt: skip


def _run(folder: Path, *, empty: bool = False, **info: Any) -> OpenedRun:
    folder.mkdir()
    write_info(folder, RunInfo(status="complete", exit_code=0, **info))
    writer = TraceWriter(folder)
    for step in range(8):
        row = StepRow(step=step, time=float(step), wall_ms=10.0, micro_batches=1, applied=True, examined=False)
        writer.append("steps", [row])
    if not empty:
        for step in (4, 7):
            writer.append("memory", [
                _memory(step, "forward", "weights", 4 * MIB), _memory(step, "forward", "activations", 2 * MIB,
                        module="a", kind="aten.mm", dtype="float16"),
                _memory(step, "forward", "activations", MIB, module="b", kind="aten.add"),
                _memory(step, "peak", "weights", 4 * MIB), _memory(step, "peak", "gradients", step * MIB),
            ])  # fmt: skip
        writer.append("timings", [
            _timing("a", "aten.mm", "forward", 3.0), _timing("a", "aten.mm", "backward", 6.0),
            _timing(None, "aten._to_copy", "forward", 1.0, "float16"),
        ])  # fmt: skip
        base: dict[str, Any] = {"step": 4, "device": "cpu", "rounds": 3}
        writer.append("paces", [
            PaceRow(setting="fp32", own=True, wall_ms=8.0, fastest_ms=7.0, slowest_ms=10.0, kept_bytes=3 * MIB, **base),
            PaceRow(setting="bf16", own=False, wall_ms=4.0, fastest_ms=4.0, slowest_ms=5.0, kept_bytes=2 * MIB, **base),
        ])  # fmt: skip
        writer.append("gpu", [
            GpuRow(step=s, time=100.0 + s, device=0, mig=False, uuid="GPU-0", name="H200", utilization=0.5,
                   throttle=["sw_power_cap"] if s == 1 else [])
            for s in range(3)
        ])  # fmt: skip
    writer.close()
    return OpenedRun("run", folder)


@pytest.fixture
def opened(tmp_path: Path) -> OpenedRun:
    """A run whose memory was recorded on two steps."""
    return _run(tmp_path / "run")


def test_the_nearest_step_and_the_peak_are_shown_by_default(opened: OpenedRun) -> None:
    run = costs(opened)
    last, near, asked = (chosen_ledger(run, step, "") for step in (None, 5, 4))
    assert last is not None
    assert near is not None
    assert asked is not None
    assert (last.ledger.step, last.phase, last.asked) == (7, "peak", None)
    assert (near.ledger.step, near.asked) == (4, 5)
    assert (asked.ledger.step, asked.asked) == (4, None)
    forward = chosen_ledger(run, 4, "forward")
    assert forward is not None
    assert forward.phase == "forward"


def test_activations_are_added_up_by_module_and_dtype(opened: OpenedRun) -> None:
    ledger = ledgers(costs(opened))[4]
    assert kept_by_module(ledger) == {"a": {"float16": 2 * MIB}, "b": {"float32": MIB}}


def test_boxes_hold_what_is_in_them(opened: OpenedRun) -> None:
    box = figures.boxes(opened, 4, "forward", Style()).data[0]
    sizes = dict(zip(box.ids, box.values, strict=True))
    assert sizes["all"] == 7 * MIB
    for name in box.ids:
        inner = [v for v, parent in zip(box.values, box.parents, strict=True) if parent == name]
        assert not inner or sum(inner) == sizes[name]


def test_moments_and_steps_are_in_one_unit(opened: OpenedRun) -> None:
    bars = figures.moments(opened, 4, "", Style())
    assert {bar.name: list(bar.y) for bar in bars.data}["weights"] == [4.0, 4.0]
    assert "MiB" in bars.layout.yaxis.title.text
    areas = {area.name: list(area.y) for area in figures.steps(opened, None, "peak", Style()).data}
    assert areas == {"weights": [4.0, 4.0], "gradients": [4.0, 7.0]}


def test_time_is_by_operation_with_casts_apart_and_by_direction(opened: OpenedRun) -> None:
    figure = figures.by_operation(opened, None, "", Style())
    assert list(figure.layout.yaxis.ticktext) == ["aten.mm", "dtype casts"]
    assert {bar.name: list(bar.x) for bar in figure.data} == {"forward": [3.0, 1.0], "backward": [6.0, 0.0]}
    speed = chosen_speed(costs(opened), None)
    assert speed is not None
    assert speed.total_ms == 10.0


def test_paces_have_their_range(opened: OpenedRun) -> None:
    bar = figures.paces(opened, None, "", Style()).data[0]
    assert list(bar.y) == ["FP32 (run)", "BF16 autocast"]
    assert (list(bar.x), list(bar.error_x.array), list(bar.error_x.arrayminus)) == ([8.0, 4.0], [2.0, 1.0], [1.0, 0.0])
    assert list(figures.kept_in_each(opened, None, "", Style()).data[0].y) == [3.0, 2.0]


def test_telemetry_is_by_gpu_and_names_what_throttled(opened: OpenedRun) -> None:
    (gpu,) = telemetry(opened)
    assert (gpu.name, gpu.seconds.tolist()) == ("cuda:0 H200", [0.0, 1.0, 2.0])
    assert {reason: at.tolist() for reason, at in gpu.throttled.items()} == {"sw_power_cap": [1.0]}
    figure = figures.gpu(opened, None, "", Style())
    assert [list(t.x) for t in figure.data if t.marker.symbol == "square"] == [[1.0]]


DRAWN = (
    figures.boxes, figures.moments, figures.modules, figures.other_layouts, figures.steps, figures.by_operation,
    figures.paces, figures.kept_in_each, figures.gpu,
)  # fmt: skip


@pytest.mark.parametrize("draw", DRAWN)
def test_an_empty_figure_says_why_and_what_would_fill_it(tmp_path: Path, draw: Any) -> None:
    figure = draw(_run(tmp_path / "run", empty=True), None, "", Style())
    (said,) = figure.layout.annotations
    assert len(said.text) > 40


def test_a_gpu_that_was_not_looked_at_is_explained(tmp_path: Path) -> None:
    opened = _run(tmp_path / "run", empty=True, gpu_telemetry="NVML is not installed")
    assert "NVML is not installed" in figures.gpu(opened, None, "", Style()).layout.annotations[0].text


def test_the_page_and_the_command_give_the_same_advice(sample_runs: Path) -> None:
    folder = sample_runs / "bert_fp16_scaled"
    run, own = open_run(folder), costs(OpenedRun("run", folder))
    assert advice(own, ledgers(own)[4]) == advice(run, ledgers(run)[4])


def test_names_are_cut_and_are_no_markup() -> None:
    assert len(short("x" * 100_000)) <= LONGEST
    assert short("<b>") == "&lt;b&gt;"
    assert [unit_of(n) for n in (0, 1023, 1024, 3 * MIB)] == [("bytes", 1), ("bytes", 1), ("KiB", 1024), ("MiB", MIB)]
