"""Tensors that were spread over ranks, put together again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ampdoctor.trace.builder import RunBuilder
from ampdoctor.trace.histograms import histogram_of
from ampdoctor.trace.parts import joined, spread
from ampdoctor.trace.rows import as_rows
from ampdoctor.trace.schema import TensorRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

VALUES = np.array([[0.0, 1.5, -3.0], [2.0**-20, np.nan, 7.0], [0.25, 0.0, np.inf]], dtype=np.float32)


def _rank(number: int, *rows: int, parts: int = 2) -> pa.Table:
    held = VALUES[list(rows)]
    run = RunBuilder().step()
    run.values("0", "activation", VALUES, slot="out")
    run.values(
        "0", "weight_grad", held, slot="weight", shape=list(held.shape), part=number, parts=parts, whole_shape=[3, 3]
    )
    run.values("0", "activation", VALUES, slot="out.1")
    return run.build().table("tensors")


def _gradient(table: pa.Table) -> TensorRow:
    (row,) = (r for r in as_rows(table, TensorRow) if r.role == "weight_grad")
    return row


def test_the_whole_is_as_if_it_had_been_measured_at_once() -> None:
    both = joined(_rank(0, 0, 1), [_rank(1, 2)])
    whole = RunBuilder().step().values("0", "weight_grad", VALUES, shape=[3, 3]).build().tensors()[0]
    row = _gradient(both.table)
    assert both.incomplete == 0
    for name in ("numel", "shape", "zeros", "nan", "posinf", "neginf", "absmax", "exp_lowest", "exp_counts", "part"):
        assert getattr(row, name) == getattr(whole, name), name
    assert row.rms == pytest.approx(whole.rms, rel=1e-15)
    assert histogram_of(row).numel == VALUES.size
    assert [r.slot for r in as_rows(both.table, TensorRow)] == ["out", "weight", "out.1"]


def test_copies_of_a_part_count_once() -> None:
    both = joined(_rank(0, 0, 1), [_rank(0, 0, 1), _rank(1, 2), _rank(1, 2)])
    assert _gradient(both.table).numel == VALUES.size


def test_no_more_ranks_are_read_than_it_takes() -> None:
    def others() -> Iterator[pa.Table]:
        yield _rank(1, 2)
        raise AssertionError("all parts were there")

    assert joined(_rank(0, 0, 1), others()).incomplete == 0


def test_what_is_known_of_an_incomplete_tensor_stays_a_part() -> None:
    alone = joined(_rank(0, 0, 1, parts=3), [])
    assert alone.incomplete == 1
    assert _gradient(alone.table) == _gradient(_rank(0, 0, 1, parts=3))
    more = joined(_rank(0, 0, parts=3), [_rank(2, 2, parts=3)])
    assert (more.incomplete, _gradient(more.table).numel, _gradient(more.table).parts) == (1, 6, 3)


def test_counts_add_up_and_comparisons_are_averaged() -> None:
    tables = [
        RunBuilder()
        .step()
        .tensor("0", "update", exponents={-4: numel}, part=part, parts=2, whole_shape=[4],
                expected_to_move=numel, unchanged=part, energy_unchanged=float(part))
        .build().table("tensors")
        for part, numel in ((0, 3), (1, 1))
    ]  # fmt: skip
    (row,) = as_rows(joined(tables[0], tables[1:]).table, TensorRow)
    assert (row.expected_to_move, row.unchanged, row.energy_unchanged, row.square_cosine) == (4, 1, 0.25, None)


def test_a_table_of_whole_tensors_is_not_spread() -> None:
    assert not spread(RunBuilder().step().values("0", "activation", VALUES).build().table("tensors"))
    assert spread(_rank(0, 0))
