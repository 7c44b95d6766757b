"""Which second opinion, when: early in the run, at each onset of trouble, and else within a share of the run's time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ampdoctor.formats import FP16, HALF_DTYPES, format_of_dtype
from ampdoctor.record.twin.counterfactual import FP32, Counterfactual
from ampdoctor.trace.schema import CallRow, OpRow, StepRow, TwinRow, TwinStepRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor.record.log import Finished
    from ampdoctor.record.tensor_rows import TensorRows

EARLY = 2
"""The first second opinion: the steps before it say how large gradients are, and what is zero-initialised has moved."""

START = "start"
"""Reason of the look at each operation of the very first step, before anything is known of the run."""

DEFAULT_SCALE = 2.0**16
"""The scale that torch's GradScaler starts from: what a user would get by default."""

BF16 = Counterfactual("bf16")

_GRADIENTS = ("grad_output", "weight_grad")

_HEADROOM = 2.0
"""Gradients may grow: a scale is chosen this factor and more below what FP16 holds."""

_HARMLESS = 0.999
"""Cosine from which on a cure needs no further one; RULES.md calls 0.9997 no fault."""

_MOST_ISLANDS = 4
"""Modules kept in FP32 at most: beyond that, BF16 is the simpler advice."""


@dataclass(frozen=True)
class Plan:
    """What is to be executed beside one step.

    Attributes:
        reason: first, asked, or the vital that turned.
        half: name of the format that the run holds in half.
        counterfactuals: the settings; FP32 is the first where there are any.
        given: there is one at all; each operation is looked at by itself in any case.
        declined: why there is less than there should be.
    """

    reason: str
    half: str
    counterfactuals: tuple[Counterfactual, ...]
    given: bool = True
    declined: str | None = None


class Knowledge:
    """What the rows written so far say that a plan needs."""

    def __init__(self) -> None:
        self.half: str | None = None
        self.examined = False
        self._largest = 0.0
        self._hand_made = 1.0  # loss scale that the step's code multiplied by; divides what no scaler has scaled
        self._zeros = self._halves = 0
        self._losing: dict[str, float] = {}
        self._cosines: dict[str, float] = {}
        self._sound_losses: set[str] = set()
        self._scales: dict[float, bool] = {}  # those tried, and whether gradients overflowed
        self._bytes: dict[int, float] = {}

    def learn(self, finished: Finished) -> None:
        """Take note of a step's rows."""
        made = [r.largest_factor or 1.0 for _, r in finished.rows if isinstance(r, CallRow)]
        self._hand_made = max(made, default=1.0)
        for tensors in finished.tensors:
            self._tensors(tensors)
        for _, row in finished.rows:
            if isinstance(row, OpRow):
                self._operation(row)
            elif isinstance(row, TwinRow):
                self._twin(row)
            elif isinstance(row, StepRow):
                self.examined |= row.examined

    def zero_share(self) -> float:
        """Return the share of zeros among the half gradients of the last step that had any."""
        return self._zeros / self._halves if self._halves else 0.0

    def best_scale(self) -> float | None:
        """Return the largest power of two at which no gradient seen so far comes near FP16's largest number."""
        if not self._largest:
            return None
        return 2.0 ** math.floor(math.log2(FP16.max / _HEADROOM / self._largest))

    def step_bytes(self) -> float:
        """Return the bytes of the tensors of an examined step: what a twin in FP32 may need about twice of."""
        return max(self._bytes.values(), default=0.0)

    def unsatisfied(self, name: str) -> bool:
        """Whether the counterfactual `name` was tried and turns the gradient all the same."""
        return self._cosines.get(name, 1.0) < _HARMLESS

    def wants_islands(self) -> bool:
        """Whether FP16 at its best scale was tried, was not enough, and modules in FP32 were not tried yet."""
        tried = [name for name in self._cosines if name.startswith("fp16@")]
        islands = any("+fp32:" in name for name in tried)
        return bool(tried and self._losing) and not islands and all(self.unsatisfied(n) for n in tried)

    def wants_lower(self) -> bool:
        """Whether gradients overflowed at every scale tried, and a lower one that may fit was not tried yet."""
        tried = self._scales
        return bool(tried) and all(tried.values()) and self.best_scale() not in {None, *tried}

    def losing_modules(self) -> list[str]:
        """Return the modules whose operations lose most of their energy, worst first."""
        return sorted(self._losing, key=lambda m: -self._losing[m])

    def _tensors(self, tensors: TensorRows) -> None:
        (dtypes, dtype), (roles, role), numel = tensors.coded("dtype"), tensors.coded("role"), tensors.numel
        # Without modules nothing is seen of the forward; but gradients are cast to half on their way.
        narrow = zip(reversed(tensors.column("cast_to")), reversed(tensors.column("dtype")), strict=True)
        last = next((name for cast, own in narrow if (name := cast or own) in HALF_DTYPES), None)
        if last is not None:
            self.half = "fp16" if last == "float16" else "bf16"
        gradients = np.array([name in _GRADIENTS for name in roles])[role]
        scales = np.array([scale or self._hand_made for scale in tensors.loss_scale])
        self._largest = float((tensors.absmax / scales)[gradients].max(initial=self._largest))
        counted = gradients | np.array([name == "activation" for name in roles])[role]
        size = float((numel * np.array([_bytes(name) for name in dtypes])[dtype])[counted].sum())
        self._bytes[tensors.step] = self._bytes.get(tensors.step, 0.0) + size
        cast = np.array([name == "grad_output" for name in roles])[role]
        cast &= np.array([name in HALF_DTYPES for name in dtypes])[dtype]
        halves = int(numel[cast].sum())
        if halves:
            self._zeros, self._halves = int(tensors.zeros[cast].sum()), halves

    def _twin(self, row: TwinRow) -> None:
        """Take note of what a twin came to: FP32's gradients, and a scale at which FP16's overflow."""
        if row.role == "loss" and row.value is not None and math.isfinite(row.value):
            self._sound_losses.add(row.counterfactual)
        if row.counterfactual == FP32.name and row.role in _GRADIENTS:
            self._largest = max(self._largest, row.absmax)
        if row.role != "gradient":
            return
        if row.cosine is not None:
            self._cosines[row.counterfactual] = row.cosine
        scaled = row.number_format == "fp16" and row.loss_scale and not row.fp32_modules
        if scaled and row.loss_scale and row.counterfactual in self._sound_losses:
            over = row.overflowed > 0 and not row.nonfinite_fp32
            self._scales[row.loss_scale] = over
            # What overflows may be twice as large as what just fits.
            least = _HEADROOM * FP16.max / row.loss_scale if over else 0.0
            self._largest = max(self._largest, least)

    def _operation(self, row: OpRow) -> None:
        half = "float16" in row.dtype_out.split(",")
        if row.direction == "backward" and half and math.isfinite(row.absmax):
            # Gradients inside a module (attention's) are seen here and nowhere else.
            self._largest = max(self._largest, row.absmax / (row.loss_scale or self._hand_made))
        if row.direction == "backward" and row.module and row.energy_lost:
            self._losing[row.module] = max(row.energy_lost, self._losing.get(row.module, 0.0))


@cache
def _bytes(dtype: str) -> int:
    number_format = format_of_dtype(dtype)
    return (number_format.bytes if number_format else None) or 4


def counterfactuals(known: Knowledge, half: str, *, always: bool = False) -> tuple[Counterfactual, ...]:
    """Return what to carry, the most telling first: a plan that must be smaller leaves the last ones out.

    A run in BF16 is not tried in FP16 unless the user wants second opinions `always`: its forward may not fit there.
    """
    wanted = [FP32]
    if half == "fp16":
        wanted.append(BF16)
    elif not always:
        return (FP32,)
    best = known.best_scale()
    if best is not None:
        wanted += _with_scale(known, best)
    if half == "fp16" and best != DEFAULT_SCALE:
        wanted.append(Counterfactual("fp16", DEFAULT_SCALE))
    return tuple(wanted)


def _with_scale(known: Knowledge, best: float) -> Sequence[Counterfactual]:
    """Return FP16 at the best scale and, where that was tried and is not enough, with modules kept in FP32."""
    scaled = Counterfactual("fp16", best)
    modules = known.losing_modules()
    if not modules or not known.unsatisfied(scaled.name):
        return [scaled]
    sizes = sorted({n for n in (1, 2, _MOST_ISLANDS) if n <= len(modules)})
    return [scaled, *(Counterfactual("fp16", best, tuple(modules[:n])) for n in sizes)]


def declined(step: int, plan: Plan, kind: str) -> TwinStepRow:
    """Return the row of a second opinion that was not given; `plan` says why."""
    return TwinStepRow(
        step=step, kind=kind, reason=plan.reason, counterfactuals=[], declined=plan.declined, not_twinned=[],
        operations=0, eager=False,
    )  # fmt: skip
