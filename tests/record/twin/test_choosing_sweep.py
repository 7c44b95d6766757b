"""The loss scale that is recommended, held against real runs at every scale; and the recorder's own choice of scales.

The whole table, over more recorded scales, is in benchmarks/README.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from ampdoctor.record.log import Finished
from ampdoctor.record.twin.plan import Knowledge
from ampdoctor.trace.builder import RunBuilder
from benchmarks.estimates import MODELS
from benchmarks.scales import choose

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.record.tensor_rows import TensorRows
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TensorRow
    from tests.record.twin.training import Case


@pytest.mark.parametrize("case", MODELS, ids=str)
def test_the_recommended_scale_is_near_a_best_one_and_never_overflows(case: Case) -> None:
    chosen = choose(case, 0)
    assert chosen.near, chosen
    assert chosen.fits, chosen


@pytest.mark.parametrize("name", ["cnn", "transformer", "vit", "gan"])
def test_a_scale_that_overflows_is_told_from_what_twins_saw(name: str) -> None:
    (case,) = (c for c in MODELS if c.name == name)
    chosen = choose(case, 24)
    assert chosen.near, chosen
    assert chosen.fits, chosen


def _known(run: Run) -> Knowledge:
    known = Knowledge()
    rows = [("", row) for row in (*run.ops, *run.twins, *run.steps)]
    known.learn(Finished(rows, [cast("TensorRows", _Recorded(run.tensors()))]))
    return known


class _Recorded:
    """What was recorded of a step's tensors, as the recorder has it."""

    def __init__(self, known: list[TensorRow]) -> None:
        self.step = 0
        self._known = known
        self.absmax = np.array([row.absmax for row in known])
        self.zeros = np.array([row.zeros for row in known])
        self.loss_scale = [row.loss_scale for row in known]

        self.numel = np.array([row.numel for row in known])

    def column(self, name: str) -> list[Any]:
        return [getattr(row, name) for row in self._known]

    def coded(self, name: str) -> tuple[list[str], Any]:
        different, codes = np.unique(self.column(name), return_inverse=True)
        return different.tolist(), codes


def _gradients() -> RunBuilder:
    builder = RunBuilder().step()
    return builder.tensor("head", "grad_output", dtype="float16", exponents={-4: 10, -8: 100})


def test_twins_are_tried_a_binade_under_the_largest_number() -> None:
    # 2^-4 times 2^18 is 2^14.
    assert _known(_gradients().build()).best_scale() == 2.0**18


@pytest.mark.parametrize(
    "seen",
    [
        lambda b: b.op("aten.mm", "attention", direction="backward", absmax=2.0),
        lambda b: b.twin("fp32", "attention", "grad_output", absmax=2.0),
    ],
    ids=["operation", "fp32 twin"],
)
def test_gradients_inside_a_module_count_as_well(seen: Callable[[RunBuilder], RunBuilder]) -> None:
    assert _known(seen(_gradients()).build()).best_scale() == 2.0**13


def test_forward_and_fp32_operations_do_not_count() -> None:
    builder = _gradients().op("aten.mm", "attention", absmax=2.0)
    builder.op("aten.sum", "attention", direction="backward", dtype_out="float32", absmax=2.0)
    builder.op("aten.mm", "attention", direction="backward", dtype_out="bfloat16", absmax=2.0)
    assert _known(builder.build()).best_scale() == 2.0**18


def _tried(*, overflowed: int, loss: float = 1.0) -> Knowledge:
    base = {"number_format": "fp16", "loss_scale": 2.0**18}
    builder = _gradients().twin("fp16@2^18", "", "loss", value=loss, **base)
    builder.twin("fp16@2^18", "", "gradient", overflowed=overflowed, cosine=None, **base)
    return _known(builder.build())


def test_after_an_overflow_a_lower_scale_is_tried() -> None:
    known = _tried(overflowed=1)
    assert known.best_scale() == 2.0**16
    assert known.wants_lower()


def test_what_fits_is_not_tried_again() -> None:
    assert not _tried(overflowed=0).wants_lower()
    assert not Knowledge().wants_lower()


def test_a_loss_that_overflows_wants_no_lower_scale() -> None:
    known = _tried(overflowed=1, loss=float("inf"))
    assert known.best_scale() == 2.0**18
    assert not known.wants_lower()
