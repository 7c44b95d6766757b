"""What the page What-if shows, on gradients that one can work out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ampdoctor.errors import AmpDoctorError
from ampdoctor.trace.builder import RunBuilder
from ampdoctor_dashboard.data import whatif
from ampdoctor_dashboard.data.step_run import nearest
from ampdoctor_dashboard.figures.style import Style
from ampdoctor_dashboard.figures.whatif import ScaleCurve, recommended_mark, scale_curve
from ampdoctor_dashboard.widgets.whatif import rows
from ampdoctor_dashboard.words import Words
from tests.dashboard.built import opened

if TYPE_CHECKING:
    from pathlib import Path

    from ampdoctor_dashboard.data.opened import OpenedRun


@pytest.fixture
def run(tmp_path: Path) -> OpenedRun:
    """An FP32 run: of 100 elements of a gradient, 25 lie at 2^-30, and 75 at 2^-10."""
    builder = RunBuilder().module("head").step()
    builder.tensor("head", "weight_grad", slot="weight", exponents={-30: 25, -10: 75})
    return opened(tmp_path / "run", builder)


def test_flushed_share_falls_where_the_scale_lifts_the_small_ones(run: OpenedRun) -> None:
    found = whatif.answers(run, whatif.Asked(format="fp16"))
    assert found.own.own_scale == 1.0
    assert found.own.total.estimated == pytest.approx(0.25)
    # What lies in the bin of 2^-30 is at least that, and FP16 keeps what is above 2^-25.
    assert found.at(6).total.estimated == pytest.approx(0.0)
    assert found.at(-12).total.estimated == pytest.approx(0.25)
    assert found.shares("estimated")[0] == pytest.approx(0.25)


def test_overflow_begins_where_the_largest_passes_the_format(run: OpenedRun) -> None:
    assert whatif.answers(run, whatif.Asked(format="fp16")).overflows_from is None  # 2^-10 * 2^24 is 2^14
    assert whatif.answers(run, whatif.Asked(format="e4m3fn")).overflows_from == 19  # 2^-10 * 2^19 is 512


def test_subnormal_is_what_is_kept_with_fewer_bits(run: OpenedRun) -> None:
    found = whatif.answers(run, whatif.Asked(format="fp16"))
    place = 8 - whatif.LOWEST  # 2^-30 * 2^8 is 2^-22: below 2^-14
    assert found.subnormal[place] == pytest.approx(0.25)
    assert found.subnormal[20 - whatif.LOWEST] == pytest.approx(0.0)


def test_answers_are_worked_out_once(run: OpenedRun) -> None:
    asked = whatif.Asked(format="fp16")
    assert whatif.answers(run, asked) is whatif.answers(run, asked)


def test_scales_beyond_the_ends_are_those_of_the_ends(run: OpenedRun) -> None:
    found = whatif.answers(run, whatif.Asked(format="fp16"))
    assert found.at(99) is found.by_scale[whatif.HIGHEST]
    assert found.at(None) is found.own


def test_what_was_not_recorded_is_refused(run: OpenedRun) -> None:
    with pytest.raises(AmpDoctorError):
        whatif.answers(run, whatif.Asked(step=7))
    with pytest.raises(AmpDoctorError):
        whatif.answers(run, whatif.Asked(sites="tail.*"))


def test_default_step_is_the_last_with_a_twin(tmp_path: Path) -> None:
    builder = RunBuilder().module("head")
    for step in range(3):
        builder.step().tensor("head", "weight_grad", slot="weight", exponents={-10: 5})
        if step == 1:
            builder.twin_step("run").twin("run", "head", "weight_grad")
    assert whatif.default_step(opened(tmp_path / "run", builder)) == 1


def test_rows_hold_percent_and_leave_unknown_empty(run: OpenedRun) -> None:
    listed, left_out = rows(whatif.answers(run, whatif.Asked(format="fp16")).own, Words())
    assert left_out == 0
    assert listed[0]["flushed"] == 25.0
    assert listed[0]["measured"] is None


def test_nearest_step_is_chosen() -> None:
    assert nearest([0, 4, 8], 5) == 4
    assert nearest([0, 4, 8], None) == 8
    assert nearest([], 5) is None


def _curve(**other: object) -> ScaleCurve:
    x = np.array([0.0, 1.0, 2.0])
    values: dict[str, object] = {
        "format": "FP16", "exponent": x, "flushed": np.array([1.0, 0.5, 0.0]), "low": np.zeros(3), "high": np.ones(3),
        "subnormal": np.zeros(3), "measured": {0.0: 0.9}, "asked": 1.0, "own": 0.0, "own_title": "1",
    }  # fmt: skip
    return ScaleCurve(**(values | other))  # type: ignore[arg-type]


def test_figure_shows_band_points_and_scales() -> None:
    figure = scale_curve(_curve(overflows_from=2.0), Style())
    names = [trace.name for trace in figure.data]
    assert names == [
        None,
        "bounds of the estimate",
        "flushed (estimated)",
        "subnormal (estimated)",
        "flushed (measured)",
    ]
    assert figure.layout.shapes[0].x0 == 1.0  # the one that the slider moves
    assert figure.layout.shapes[1].x0 == 1.5  # overflow
    assert list(figure.data[-1].x) == [0.0]
    assert figure.layout.xaxis.title.text == "loss scale [powers of two]"
    shape, text = recommended_mark(2.0, Style())
    assert shape["x0"] == 2.0
    assert text["text"] == "recommended: 2^2"


def test_figure_says_why_nothing_is_known() -> None:
    unknown = np.full(3, np.nan)
    figure = scale_curve(_curve(flushed=unknown, high=unknown, measured={}), Style())
    assert "nothing can be predicted" in figure.layout.annotations[0].text
