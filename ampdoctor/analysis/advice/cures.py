"""The cures that several rules recommend, as code for the run at hand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ampdoctor.analysis.calls.order import source_of
from ampdoctor.analysis.optimizers import class_name, optimizer_groups
from ampdoctor.analysis.wording import scale_code
from ampdoctor.finding import Fix, Grade
from ampdoctor.formats import HALF_DTYPES

if TYPE_CHECKING:
    from ampdoctor.trace.run import Run

NO_NATIVE_BF16 = re.compile(
    r"\b([KMP]\d0|P4|P100|V100S?|T4G?|GTX (?:9|1[06])\d\d|RTX 20\d\d|Quadro RTX \d000|TITAN (?:Xp?|V|RTX))\b"
)
"""GPUs before compute capability 8.0: BF16 is emulated there, and slow (NVIDIA, CUDA C++ Programming Guide)."""


def device_type(run: Run) -> str:
    """Return what `torch.autocast` calls the device of `run`: `cuda`, `cpu`."""
    return run.info.device.partition(":")[0].strip() or "cuda"


def optimizer_type(run: Run, module: str | None = None) -> str | None:
    """Return the class of the optimizer that trains `module`, or steps first, without its package."""
    groups = optimizer_groups(run, module)
    return class_name(groups[0].type) if groups else None


def line_of(run: Run, *calls: str) -> str | None:
    """Return `file:line` of the first call of one of the kinds `calls`, where it is known."""
    return next((s for c in run.calls if c.call in calls and (s := source_of(c))), None)


def comment(*parts: str | None) -> str:
    """Return a trailing comment of the parts that are known, or nothing."""
    known = ", ".join(part for part in parts if part)
    return f"  # {known}" if known else ""


def half_weights(run: Run) -> bool:
    """Whether a trained module holds its parameters in FP16 or BF16."""
    return any(m.trainable and HALF_DTYPES & set(m.dtypes) for m in run.modules)


def dynamic_scaler(run: Run, scale: float, expected: str, growth_interval: int | None = None) -> Fix:
    """Scale the loss with a GradScaler that starts at `scale`, and doubles it as often as torch has it or as said."""
    growth = f", growth_interval={growth_interval}" if growth_interval is not None else ""
    return _scaler(run, f"init_scale={scale_code(scale)}{growth}", "dynamic", expected)


def static_scaler(run: Run, scale: float, expected: str) -> Fix:
    """Scale the loss by a number that stays."""
    return _scaler(run, f"init_scale={scale_code(scale)}, growth_interval=10**9", "static", expected)


def _scaler(run: Run, settings: str, kind: str, expected: str) -> Fix:
    lines = [
        f'scaler = torch.amp.GradScaler("{device_type(run)}", {settings})  # once, before the loop',
        "",
        f"scaler.scale(loss).backward(){comment(line_of(run, 'backward'))}",
        f"scaler.step(optimizer){comment(line_of(run, 'optimizer_step', 'scaler_step'), optimizer_type(run))}",
        "scaler.update()",
    ]
    if half_weights(run):
        lines.insert(0, "model.float()  # a GradScaler needs FP32 weights; autocast makes the half copies")
    return Fix(f"Scale the loss with a {kind} GradScaler", "\n".join(lines), expected)


def bf16_autocast(run: Run, expected: str) -> Fix:
    """Use BF16 instead of FP16."""
    slow = NO_NATIVE_BF16.search(run.info.device)
    weights = "model.float()  # FP32 weights: updates are lost in BF16 ones\n" if half_weights(run) else ""
    code = f"""\
{weights}with torch.autocast("{device_type(run)}", dtype=torch.bfloat16):  # instead of torch.float16; no GradScaler
    ..."""
    warning = f" Mind that a {slow[1]} has no native BF16, so it is slow there." if slow else ""
    return Fix("Use BF16 autocast, which has FP32's range", code, expected + warning)


def fp32_island(run: Run, module: str, expected: str) -> Fix:
    """Run one module in FP32."""
    target = f'model.get_submodule("{module}")' if module else "model"
    code = f"""\
def in_fp32(module):
    forward = module.float().forward
    def wide(x):
        return x.float() if torch.is_tensor(x) and x.is_floating_point() else x
    def run(*args, **kwargs):
        with torch.autocast("{device_type(run)}", enabled=False):
            return forward(*map(wide, args), **{{k: wide(v) for k, v in kwargs.items()}})
    module.forward = run

in_fp32({target})  # once, before the loop"""
    return Fix(f"Run `{module or 'the model'}` in FP32", code, expected, Grade.ESTIMATED)
