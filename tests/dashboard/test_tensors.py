"""Tensors are kept small, and come back as they were."""

from __future__ import annotations

import numpy as np
import pytest

from ampdoctor.trace.builder import RunBuilder
from ampdoctor_dashboard.data.packed import Column, Histograms
from ampdoctor_dashboard.data.tensors import GrowingIndex


def _two_steps() -> RunBuilder:
    builder = RunBuilder()
    for _ in range(2):
        builder.step()
        builder.tensor("a", "weight_grad", slot="weight", zeros=4, exponents={-3: 1, 2: 5}, loss_scale=1024.0)
        builder.tensor("b", "activation", dtype="float16", nan=2, exponents={-20: 7})
    return builder


def test_columns_come_back() -> None:
    index = GrowingIndex()
    index.add(_two_steps().build().table("tensors"))
    assert [site.key for site in index.sites] == ["weight_grad:a.weight", "activation:b.out"]
    assert index.step.tolist() == [0, 0, 1, 1]
    assert index.column("zeros").tolist() == [4.0, 0.0, 4.0, 0.0]
    assert index.column("nonfinite").tolist() == [0.0, 2.0, 0.0, 2.0]
    np.testing.assert_array_equal(index.column("loss_scale"), [1024.0, np.nan, 1024.0, np.nan])
    assert index.rows_of_role("activation").tolist() == [1, 3]


def test_histograms_come_back_on_one_axis_however_they_came_in() -> None:
    table = _two_steps().build().table("tensors")
    whole, parts = GrowingIndex(), GrowingIndex()
    whole.add(table)
    for row in range(table.num_rows):
        parts.add(table.slice(row, 1))
    for index in (whole, parts):
        lowest, counts = index.histograms(np.array([3, 0]))
        assert lowest == -20
        assert {lowest + int(e): int(counts[0, e]) for e in np.flatnonzero(counts[0])} == {-20: 7}
        assert {lowest + int(e): int(counts[1, e]) for e in np.flatnonzero(counts[1])} == {-3: 1, 2: 5}
    assert whole.histograms(np.array([0, 1]), (-3, 0)).counts.tolist() == [[1, 0, 0], [0, 0, 0]]
    assert whole.histograms(np.zeros(0, np.intp)).counts.shape == (0, 1)


@pytest.mark.parametrize("value", [1, 2**31, -(2**40)])
def test_whole_numbers_are_never_cut_off(value: int) -> None:
    column = Column(np.int32)
    column.extend(np.array([5]))
    column.extend(np.array([value]))
    assert column.values.tolist() == [5, value]


@pytest.mark.parametrize("value", [0.5, 1e-300, 1e300, float("inf")])
def test_floats_are_kept_closely(value: float) -> None:
    column = Column(np.float32)
    column.extend(np.array([1.0, np.nan]))
    column.extend(np.array([value]))
    assert column.values[2] == pytest.approx(value, rel=1e-6)
    assert np.isnan(column.values[1])


def test_exponents_that_no_float_has_are_left_out() -> None:
    histograms = Histograms()
    histograms.extend(np.array([10**12, 0]), np.array([1, 1]), np.array([3, 4]))
    lowest, counts = histograms.at(np.array([0, 1]))
    assert counts.shape[1] < 3000
    assert counts[1, -lowest] == 4


def test_rows_of_a_role_go_on_as_the_run_grows() -> None:
    table = _two_steps().build().table("tensors")
    index = GrowingIndex()
    index.add(table.slice(0, 2))
    assert index.rows_of_role("weight_grad").tolist() == [0]
    index.add(table.slice(2))
    assert index.rows_of_role("weight_grad").tolist() == [0, 2]
