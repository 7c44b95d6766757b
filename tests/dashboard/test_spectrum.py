"""The spectrum: exponents by step, and what number formats hold of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ampdoctor.trace.builder import RunBuilder
from ampdoctor_dashboard.data.spectrum import bands_of, first_choice, spectrum_at, spectrum_of
from ampdoctor_dashboard.figures.bars import Bars, Range, bars
from ampdoctor_dashboard.figures.spectrogram import Edge, Spectrogram, spectrogram
from ampdoctor_dashboard.figures.style import Style
from ampdoctor_dashboard.widgets.step_bars import step_bars
from tests.dashboard.built import opened

if TYPE_CHECKING:
    from pathlib import Path

    from ampdoctor_dashboard.data.opened import OpenedRun


@pytest.fixture
def run(tmp_path: Path) -> OpenedRun:
    """One gradient on two steps in two micro-batches, at the loss scales 2^10 and 2^9."""
    builder = RunBuilder()
    for scale in (1024.0, 512.0):
        builder.step()
        for _ in range(2):
            builder.tensor(
                "a", "grad_output", dtype="float16", zeros=3, nan=1, exponents={-8: 4, -5: 2}, loss_scale=scale
            )
    builder.twin("fp32", "a", "grad_output", slot="out", exp_lowest=-30, exp_counts=[5, 0, 1])
    builder.tensor("a", "activation", exponents={0: 1})
    return opened(tmp_path / "run", builder)


def test_micro_batches_add_up_and_the_loss_scale_is_divided_out(run: OpenedRun) -> None:
    held, unscaled = (spectrum_of(run, 0, unscaled=u) for u in (False, True))
    assert held.steps.tolist() == [0, 1]
    assert held.zeros.tolist() == [6.0, 6.0]
    assert held.nonfinite.tolist() == [2.0, 2.0]
    assert held.scale.tolist() == [10.0, 9.0]
    assert {held.lowest + int(e): int(held.counts[0, e]) for e in np.flatnonzero(held.counts[0])} == {-8: 8, -5: 4}
    assert {unscaled.lowest + int(e) for e in np.flatnonzero(unscaled.counts[0])} == {-18, -15}
    assert {unscaled.lowest + int(e) for e in np.flatnonzero(unscaled.counts[1])} == {-17, -14}


def test_the_twin_stands_on_the_same_axis(run: OpenedRun) -> None:
    unscaled, held = (spectrum_at(run, 0, 1, unscaled=u) for u in (True, False))
    assert unscaled is not None
    assert held is not None
    assert unscaled.fp32 == {-30: 5, -28: 1}
    assert held.fp32 == {-21: 5, -19: 1}
    assert spectrum_at(run, 0, 7, unscaled=True) is None


def test_formats_move_with_the_loss_scale() -> None:
    unscaled = {(b.number_format.name, b.scale): b for b in bands_of("grad_output", 10.0, unscaled=True)}
    assert unscaled["fp16", 10.0].edge == -35.0
    assert unscaled["fp16", 10.0].normal == -24.0
    assert unscaled["fp16", 10.0].own
    assert unscaled["fp16", 0.0].edge == -25.0
    assert unscaled["fp16", 16.0].edge == -41.0
    held = {(b.number_format.name, b.scale): b for b in bands_of("grad_output", 10.0, unscaled=False)}
    assert held["fp16", 10.0].edge == -25.0
    assert held["fp16", 16.0].edge == -31.0
    assert bands_of("weight", 0.0, unscaled=True)[0].edge == -25.0


def test_a_gradient_in_half_is_shown_first(run: OpenedRun) -> None:
    assert first_choice(run) == 0


def test_bars_say_shares_and_put_zeros_beside() -> None:
    data = Bars({-3: 6, 0: 2}, {-40: 8}, 1, 1, 10, [Range("<i>FP16", "fp16", -25.0, -14.0, 16.0, strong=True)], "size")
    figure = bars(data, Style())
    fp32, own, outside = figure.data[:3]
    assert list(own.x) == [-2.5, 0.5]
    assert list(own.y) == [0.6, 0.2]
    assert list(fp32.y) == [0.8]
    assert list(outside.y) == [0.1, 0.1]
    assert figure.layout.yaxis3.ticktext == ("&lt;i&gt;FP16",)
    assert figure.layout.xaxis.range[0] < -40.0


def test_spectrogram_of_nothing_says_so() -> None:
    none, empty = np.zeros(0), np.zeros((0, 1), np.int64)
    data = Spectrogram(np.zeros(0, np.int64), 0, empty, none, none, [], "size", "nothing there")
    assert "nothing there" in spectrogram(data, Style()).layout.annotations[0].text


def test_spectrogram_draws_every_edge_step_by_step() -> None:
    ones = np.ones(2)
    data = Spectrogram(
        np.array([0, 4]), -3, np.array([[1, 3], [0, 4]]), ones / 2, ones * 0,
        [Edge("FP16", "#D55E00", -25 * ones, -14 * ones, 16 * ones, own=True)], "size", "", 4,
    )  # fmt: skip
    figure = spectrogram(data, Style())
    assert figure.data[0].z.tolist()[1] == pytest.approx([np.log10(0.75), 0.0], abs=1e-6)
    assert figure.layout.shapes[0].x0 == 0.5


def test_a_step_that_was_not_recorded_says_so(run: OpenedRun) -> None:
    assert "7" in step_bars(run, 0, 7, Style(), unscaled=True).layout.annotations[0].text
