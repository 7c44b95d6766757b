"""The small parts: the loss curve, backward overflows, columns, memory, wording, cures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch

from ampdoctor.analysis.advice.cures import bf16_autocast, dynamic_scaler, fp32_island
from ampdoctor.analysis.backward.overflow import backward_overflows
from ampdoctor.analysis.columns import nonfinite_steps, recorded_dtypes, trains_in_fp16
from ampdoctor.analysis.loss import loss_curve
from ampdoctor.analysis.memo import once_per_run
from ampdoctor.analysis.wording import counted, number, percent, place, scale_code, scale_text
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run


def _losses(*losses: float | None) -> Run:
    run = RunBuilder()
    for loss in losses:
        run.step(loss=loss)
    return run.build()


def test_the_loss_curve_is_of_the_finite_losses() -> None:
    curve = loss_curve(_losses(4.0, None, math.nan, 2.0, 1.0))
    assert curve.steps == (0, 3, 4)
    assert (curve.start, curve.end) == (2.0, 2.0)
    empty = loss_curve(_losses(math.nan))
    assert (empty.start, empty.end) == (None, None)


def test_growth_is_told_from_the_losses_before() -> None:
    curve = loss_curve(_losses(1.0, 2.0, 500.0, math.nan))
    assert curve.growth_before(3) == 500.0
    assert curve.growth_before(1) == 1.0
    assert loss_curve(_losses(-1.0, 5.0, 9.0)).growth_before(2) == 1.0


def _backward(*, loss: float = 1.0, nan: int = 0, cast: int = 0, inf: int = 0) -> Run:
    run = RunBuilder().step(loss=loss)
    run.tensor("a", "activation", dtype="float16", exponents={2: 9}, nan=nan, inputs_finite=True)
    run.tensor("a", "grad_output", slot="cast", cast_to="float16", exponents={cast: 9})
    run.tensor("a", "grad_output", dtype="float16", exponents={3: 9}, posinf=inf)
    return run.build()


def test_only_a_backward_pass_by_itself_overflows() -> None:
    (found,) = backward_overflows(_backward(inf=1))
    assert (found.first.row.slot, found.largest_activation) == ("out", 4.0)
    assert backward_overflows(_backward()) == ()
    assert backward_overflows(_backward(inf=1, nan=1)) == ()
    assert backward_overflows(_backward(inf=1, loss=math.inf)) == ()


def test_a_cast_overflows_before_its_result_is_seen() -> None:
    (found,) = backward_overflows(_backward(cast=17, inf=1))
    assert found.first.row.slot == "cast"


def test_columns_are_asked_without_rows() -> None:
    run = RunBuilder().step().tensor("a", "activation", dtype="float16")
    run.step().tensor("a", "activation", dtype="bfloat16", nan=1).tensor("a", "weight", posinf=1)
    built = run.build()
    assert nonfinite_steps(built, "activation") == [1]
    assert nonfinite_steps(built, "grad_output") == []
    assert recorded_dtypes(built, "activation") == {"float16", "bfloat16"}
    assert trains_in_fp16(built)
    assert not trains_in_fp16(RunBuilder().build())


def test_what_was_worked_out_is_remembered_while_the_run_lives() -> None:
    asked: list[Run] = []

    @once_per_run
    def ask(run: Run) -> int:
        asked.append(run)
        return len(asked)

    run = _losses(1.0)
    assert (ask(run), ask(run), ask(_losses(1.0))) == (1, 1, 2)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"), (1.0, "100 %"), (1e-6, "< 0.01 %"), (1 - 1e-6, "> 99.99 %"), (0.9987, "99.87 %"),
        (0.5, "50.0 %"), (0.003, "0.30 %"),
    ],
)  # fmt: skip
def test_a_percentage_is_never_rounded_to_none_or_all(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("scale", "text", "code"),
    [
        (128.0, "128", "128.0"), (65536.0, "65536 (2^16)", "65536.0"), (2.0**22, "2^22", "2.0**22"),
        (0.25, "2^-2", "2.0**-2"),
    ],
)  # fmt: skip
def test_a_scale_is_readable_and_exact(scale: float, text: str, code: str) -> None:
    assert scale_text(scale) == text
    assert scale_code(scale) == code
    assert eval(code) == scale


def test_numbers_and_counts() -> None:
    assert [number(v) for v in (65504.0, 3.84e5, 0.03125, 7.0)] == ["65504", "3.84e+05", "0.0312", "7"]
    assert [counted(1, "step"), counted(3, "step"), counted(2, "pass", "passes")] == ["1 step", "3 steps", "2 passes"]


@pytest.mark.parametrize(
    ("gpu", "slow"),
    [
        ("Tesla T4", True), ("NVIDIA T4G", True), ("NVIDIA T400 4GB", False), ("NVIDIA T1000", False),
        ("Tesla V100-SXM2-32GB", True), ("NVIDIA GeForce GTX 1080 Ti", True), ("NVIDIA GeForce RTX 2080 Ti", True),
        ("Quadro RTX 6000", True), ("NVIDIA RTX 6000 Ada Generation", False), ("NVIDIA A100-SXM4-80GB", False),
        ("NVIDIA TITAN V", True), ("NVIDIA H200", False), ("NVIDIA GeForce RTX 3090", False), ("NVIDIA L40", False),
    ],
)  # fmt: skip
def test_a_gpu_without_native_bf16_is_known_by_its_whole_name(gpu: str, slow: bool) -> None:
    fix = bf16_autocast(RunBuilder(device=f"cuda: {gpu}").step().build(), "It fits.")
    assert ("native BF16" in fix.expected) == slow


def test_an_island_takes_any_arguments() -> None:
    class Body(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, mask: torch.Tensor, *, residual: torch.Tensor) -> Any:
            assert mask.dtype is torch.bool
            return self.linear(x) + residual, x.dtype, residual.dtype

    model = torch.nn.ModuleDict({"body": Body()})
    run = RunBuilder(device="cpu").step().build()
    exec(fp32_island(run, "body", "So.").code, {"torch": torch, "model": model})
    half = torch.ones(2, 4, dtype=torch.float16)
    out, *seen = model["body"](half, torch.ones(4, dtype=torch.bool), residual=half)
    assert out.dtype is torch.float32
    assert seen == [torch.float32, torch.float32]


@pytest.mark.parametrize("device", ["cuda: Tesla T4", "cpu", ""])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_cures_are_python_for_the_run_at_hand(device: str, dtype: str) -> None:
    run = RunBuilder(device=device).step().module("body", dtypes=[dtype]).optimizer("Lion").build()
    fixes = [
        dynamic_scaler(run, 2.0**20, "It fits."),
        bf16_autocast(run, "It fits."),
        fp32_island(run, "body.0", "So."),
    ]
    for fix in fixes:
        compile(fix.code, "cure", "exec")
        assert f'"{device.partition(":")[0] or "cuda"}"' in fix.code
    assert "Lion" in fixes[0].code
    assert "init_scale=2.0**20" in fixes[0].code
    assert ("model.float()" in fixes[0].code) == (dtype == "float16")
    assert ("native BF16" in fixes[1].expected) == ("T4" in device)
    assert '"body.0"' in fixes[2].code


def test_the_outermost_module_has_no_name() -> None:
    assert [place(name) for name in ("", "head", "the loss")] == ["the model as a whole", "`head`", "the loss"]
