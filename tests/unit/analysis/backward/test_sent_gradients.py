"""What is sent in FP16, added up over the places of a step."""

from __future__ import annotations

from typing import Any

import pytest

from ampdoctor.analysis.backward.sent_gradients import sent_in_fp16
from ampdoctor.trace.builder import RunBuilder


def _sent(run: RunBuilder, **columns: Any) -> RunBuilder:
    row = {"dtype_in": "float32", "dtype_out": "float16", "nonzero": 100, "flushed": 50, "beyond": 0, "largest": 1.0}
    return run.rounding("sent", **(row | columns))


@pytest.mark.parametrize(
    ("rms", "energy"),
    [((1.0, 1e-9), 0.0), ((1e-9, 1.0), 1.0), ((2.0, 1.0), 1 / 5), ((0.0, 0.0), 0.0), ((1.0, None), 0.0)],
    ids=["one large", "one lost", "both", "nothing", "an older trace"],
)
def test_the_share_that_is_lost_is_one_of_all_squares(rms: tuple[float, float | None], energy: float) -> None:
    run = RunBuilder().step()
    for line, (size, lost) in enumerate(zip(rms, (0.0, 1.0), strict=True)):
        _sent(run, line=line, numel=100, rms=size, energy_flushed=lost)
    (found,) = sent_in_fp16(run.build())
    assert found.energy == pytest.approx(energy, abs=1e-9)


def test_an_overflow_that_a_scaler_finds_is_none() -> None:
    run = RunBuilder()
    for skipped in (True, False):
        _sent(run.step(), beyond=3, energy_flushed=0.0).scaler("skip" if skipped else "step", found_inf=skipped)
    assert [s.beyond for s in sent_in_fp16(run.build())] == [0, 3]
