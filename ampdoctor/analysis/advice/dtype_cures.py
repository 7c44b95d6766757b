"""What brings tensors of two dtypes together, as code for the run at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import comment, device_type
from ampdoctor.finding import Fix, Grade
from ampdoctor.formats import HALF_DTYPES, title_of_dtype

if TYPE_CHECKING:
    from ampdoctor.analysis.calls.dtype_clashes import Clash
    from ampdoctor.trace.run import Run


def cures_of(run: Run, clash: Clash) -> list[Fix]:
    """Return what helps against `clash`, best first."""
    if clash.failure.row.call == "backward":
        return [_loss_in_fp32(clash), _cast_here(clash)]
    if clash.autocast:
        return [_cast_here(clash), _island(run, clash)]
    if clash.weights in HALF_DTYPES:
        return [_fp32_weights(run, clash), _cast_input(clash)]
    half = next((d for d in clash.dtypes if d in HALF_DTYPES), "bfloat16")
    if clash.weights:
        return [_under_autocast(run, clash, half), _widen_input(clash)]
    return [_under_autocast(run, clash, half), _cast_here(clash)]


def _fp32_weights(run: Run, clash: Clash) -> Fix:
    scaler = "  # and a GradScaler around backward" if clash.weights == "float16" else ""
    code = f"""\
model.float()  # instead of .half() or .bfloat16(), before the optimizer is made
with torch.autocast("{device_type(run)}", dtype=torch.{clash.weights}):{scaler}
    output = model(x){comment(clash.failure.source)}"""
    expected = "Autocast casts weights and input for each operation, and the FP32 weights take small updates."
    return Fix("Keep the weights in FP32 and run under autocast", code, expected, Grade.OBSERVED)


def _cast_input(clash: Clash) -> Fix:
    code = f"""\
x = x.to(next(model.parameters()).dtype){comment(clash.failure.source)}
# and the buffers, masks and states that the model is handed"""
    expected = (
        f"All is {title_of_dtype(clash.weights or '')} then; right for a frozen model, while trained weights lose "
        "updates in it."
    )
    return Fix("Or cast the input to the weights' dtype", code, expected, Grade.OBSERVED)


def _under_autocast(run: Run, clash: Clash, half: str) -> Fix:
    code = f"""\
with torch.autocast("{device_type(run)}", dtype=torch.{half}):  # around this call too
    output = model(x){comment(clash.failure.source)}"""
    return Fix("Run it under autocast", code, "Autocast casts both to one dtype.", Grade.OBSERVED)


def _widen_input(clash: Clash) -> Fix:
    code = f"output = module(x.float()){comment(clash.failure.source)}"
    return Fix("Or widen the input to FP32", code, "It then fits the FP32 weights.", Grade.OBSERVED)


def _cast_here(clash: Clash) -> Fix:
    code = f"""\
b = b.to(a.dtype){comment(clash.failure.source)}
# destination[index] = source.to(destination.dtype), for a write by index"""
    return Fix("Cast one of the tensors on this line", code, "The operation then sees one dtype.", Grade.OBSERVED)


def _island(run: Run, clash: Clash) -> Fix:
    code = f"""\
with torch.autocast("{device_type(run)}", enabled=False):
    result = operation(a.float(), b.float()){comment(clash.failure.source)}"""
    return Fix("Or run the operation in FP32", code, "Both tensors are FP32 there.", Grade.OBSERVED)


def _loss_in_fp32(clash: Clash) -> Fix:
    code = f"""\
loss = criterion(output.float(), target.float())
loss.backward(){comment(clash.failure.source)}"""
    return Fix("Compute the loss in FP32", code, "Its backward pass then starts from one dtype.", Grade.OBSERVED)
