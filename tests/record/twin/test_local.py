"""Local twins against numbers that can be worked out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.record.twin.local_rows import BRAIN, HALF, Locally, brain, half, row_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = pytest.mark.usefixtures("way_of_measuring")


def test_a_product_below_the_smallest_number_is_flushed() -> None:
    a = torch.tensor([[2.0**-14, 1.0], [0.0, 2.0**-12]], dtype=HALF)
    b = torch.tensor([[2.0**-14], [0.0]], dtype=HALF)

    row = row_of(lambda: a @ b)

    # 2^-28 and 0: of the one nonzero result nothing is left.
    assert (row.op, row.direction, row.source, row.step) == ("aten.mm", "forward", "live", 7)
    assert (row.dtype_in, row.dtype_out) == ("float16", "float16")
    assert (row.calls, row.numel, row.nonzero, row.flushed) == (1, 2, 1, 1)
    assert (row.energy_lost, row.relative_error, row.absmax) == (1.0, 1.0, 2.0**-28)
    assert (row.first_lost, row.first_born) == (row.seq, None)
    assert (row.absorbed, row.integers_lost, row.cancelled) == (None, None, None)


def test_energy_lost_is_the_share_of_the_squares() -> None:
    x = torch.tensor([3 * 2.0**-27, 4 * 2.0**-27, 0.0, 2.0**-24])

    row = row_of(lambda: x.to(HALF))

    # 3 and 4 * 2^-27 lie below and on the border, 2^-25, which is rounded to zero; 8 * 2^-27 is the smallest number.
    assert (row.op, row.dtype_in, row.dtype_out) == ("aten._to_copy", "float32", "float16")
    assert (row.numel, row.nonzero, row.flushed) == (4, 3, 2)
    assert row.energy_lost == pytest.approx(25 / 89)
    assert row.relative_error == pytest.approx((25 / 89) ** 0.5)


@pytest.mark.parametrize(
    ("values", "dtype", "lost"),
    [
        (torch.arange(4100), HALF, 1024 + 3),  # odd ones above 2048, and above 4096 all but multiples of 4
        (torch.arange(300), BRAIN, 22),  # odd ones above 256
        (torch.arange(300, dtype=torch.float32), BRAIN, 22),
        (torch.arange(300) + 0.5, BRAIN, 0),  # no whole numbers
        (torch.tensor([70000]), HALF, 0),  # overflows
        (torch.arange(256, dtype=torch.uint8), BRAIN, None),
    ],
)
def test_whole_numbers_that_a_cast_changes(values: torch.Tensor, dtype: torch.dtype, lost: int | None) -> None:
    rows = rows_of(lambda: values.to(dtype))

    assert [row.integers_lost for row in rows] == ([] if lost is None else [lost])


def test_copying_into_a_tensor_of_another_dtype_is_a_cast() -> None:
    target = torch.zeros(3, 2, dtype=HALF)

    row = row_of(lambda: target.copy_(torch.tensor([1e-9, 4097.0])))

    assert (row.op, row.numel, row.flushed, row.integers_lost) == ("aten.copy_", 6, 3, 0)


def test_position_numbers_made_in_half() -> None:
    row = row_of(lambda: torch.arange(300, dtype=BRAIN))

    assert (row.integers_lost, row.first_lost) == (22, row.seq)


def test_overflow_of_a_product_is_born_there_and_not_in_fp32() -> None:
    a, b = half(300.0, 1.0).reshape(1, 2), torch.eye(2, dtype=HALF) * 300

    row = row_of(lambda: a @ b)

    assert (row.overflowed, row.born, row.born_fp32, row.first_born) == (1, 1, 0, row.seq)
    assert row.absmax == 90000.0
    assert row.relative_error == 0.0  # finite elements only


def test_a_quotient_of_zeros_is_born_in_fp32_too() -> None:
    row = row_of(lambda: half(0.0, 1.0) / half(0.0, 1.0))

    assert (row.overflowed, row.born, row.born_fp32) == (0, 1, 1)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2,
        lambda x: torch.softmax(x, 0),
        lambda x: x.mul_(2),
        lambda x: x.to(HALF),
        lambda x: torch.full((2,), float("-inf"), dtype=HALF),
        lambda x: torch.ones(2, dtype=HALF).mul(float("-inf")),
    ],
)
def test_what_comes_in_infinite_is_not_born(function: Callable[[torch.Tensor], Any]) -> None:
    mask = brain(0.0, float("-inf"))

    assert [row.born for row in rows_of(lambda: function(mask))] in ([0], [])


def test_in_place_operations_are_compared_with_what_was_there_before() -> None:
    x = half(2.0**-14, 1.0)

    row = row_of(lambda: x.mul_(half(2.0**-14, 1.0)))

    assert (row.flushed, row.nonzero) == (1, 2)
    assert x.tolist() == [0.0, 1.0]


def test_a_result_that_is_given() -> None:
    out = torch.full((2,), float("nan"), dtype=HALF)

    row = row_of(lambda: torch.mul(half(2.0**-14, 300.0), half(2.0**-14, 300.0), out=out))

    assert (row.flushed, row.born, row.numel) == (1, 1, 2)


def test_lists_of_tensors_are_one_call() -> None:
    tensors = [half(2.0**-14), half(2.0**-14, 1.0)]

    row = row_of(lambda: torch._foreach_mul_(tensors, 2.0**-14))

    assert (row.calls, row.numel, row.flushed) == (1, 3, 2)


def test_dropout_takes_the_mask_of_the_run() -> None:
    x = torch.full((64,), 65000.0, dtype=HALF)

    row = row_of(lambda: torch.native_dropout(x, 0.5, True))

    assert row.nonzero == row.overflowed == row.born  # those that were kept, and doubled
    assert 0 < row.nonzero < 64
    assert row.born_fp32 == 0


def test_tensors_in_many_pieces_and_any_order_in_memory() -> None:
    values = torch.zeros(6, 5, 300, 40)
    values[:, 2] = 2.0**-30
    by_channel = values.permute(3, 0, 2, 1)

    row = row_of(lambda: by_channel.to(HALF))

    assert (row.numel, row.nonzero, row.flushed) == (values.numel(), 72000, 72000)
    assert row.energy_lost == 1.0


def test_extreme_values_are_summed_rightly() -> None:
    for factor in (2.0**-120, 2.0**110):
        x = torch.tensor([1.0, 1.0 + 2.0**-9]) * factor

        row = row_of(lambda x=x: x.to(BRAIN))  # type: ignore[misc]

        assert row.relative_error == pytest.approx(2.0**-9 / 2**0.5, rel=0.01)


def test_what_is_exact_is_not_looked_at() -> None:
    x = brain(1.0, 2.0)

    assert rows_of(lambda: (x.float(), x.clone(), x.relu(), x[0].item(), torch.cat([x, x]), x > 1)) == []


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.floats(-45, 20), st.sampled_from([(7,), (3, 5), (2, 300, 200)]), st.booleans())
def test_flushed_at_a_cast_is_what_numpy_counts(
    seed: int, exponent: float, shape: tuple[int, ...], transposed: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    spread = 12 * torch.randn(shape, generator=generator)
    x = torch.randn(shape, generator=generator) * torch.exp2(spread + exponent)
    x = x.mT if transposed and x.ndim > 1 else x
    with np.errstate(over="ignore", under="ignore"):
        expected = x.numpy().astype(np.float16)

    row = row_of(lambda: x.to(HALF))

    assert row.flushed == np.count_nonzero((expected == 0) & (x.numpy() != 0))
    assert row.overflowed == np.count_nonzero(~np.isfinite(expected))
    assert row.nonzero == np.count_nonzero(x.numpy())
    assert row.absmax == np.abs(x.numpy()).max()


def test_operations_that_know_no_fp32_are_named() -> None:
    locally = Locally()
    sparse = torch.eye(2, dtype=HALF).to_sparse()

    with locally.mode:
        assert (sparse * 2).is_sparse

    assert [row.op for row in locally.rows()] == []
    assert any("sparse_coo tensor" in name for name in locally.twins.not_twinned)
