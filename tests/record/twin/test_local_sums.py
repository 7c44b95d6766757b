"""What sums absorb and cancel, against numbers that can be worked out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.record.twin.local_rows import BRAIN, brain, row_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("way_of_measuring")


def test_what_is_added_may_be_absorbed() -> None:
    row = row_of(lambda: brain(256.0, 256.0, 256.0, 0.0) + brain(0.5, 2.0, 0.0, 0.5))

    assert (row.op, row.absorbed, row.cancelled, row.flushed) == ("aten.add", 1, 0, 0)
    assert row.first_lost == row.seq


def test_a_total_of_infinity_absorbs_nothing() -> None:
    row = row_of(lambda: brain(float("-inf"), 1.0) + brain(1.0, 1.0))

    assert (row.absorbed, row.born, row.overflowed) == (0, 0, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_of_full_precision_absorb_too(dtype: torch.dtype) -> None:
    eps = torch.finfo(dtype).eps
    total = torch.ones(3, dtype=dtype)
    update = torch.tensor([eps / 8, eps, 0.0], dtype=dtype)

    row = row_of(lambda: total.add_(update, alpha=2))

    assert (row.op, row.absorbed, row.cancelled, row.relative_error) == ("aten.add_", 1, None, None)
    assert (row.nonzero, row.flushed, row.born) == (3, 0, 0)
    assert total.tolist() == [1.0, 1.0 + 2 * eps, 1.0]


@pytest.mark.parametrize(
    ("sum_of", "absorbed"),
    [
        (lambda w, u: w.sub_(u), 1),
        (lambda w, u: w.lerp_(u, torch.finfo(w.dtype).eps / 16), 3),
        (lambda w, u: w.lerp_(w.clone(), 0.5), 0),
        (lambda w, u: w.addcmul_(u, u.sign(), value=0.5), 1),
        (lambda w, u: w.addcdiv_(u, torch.ones_like(u), value=-0.5), 1),
        (lambda w, u: torch._foreach_add_([w, w.clone()], [u, u], alpha=-1), 2),
        (lambda w, u: torch._foreach_sub([w], [u]), 1),
        (lambda w, u: torch._foreach_addcdiv_([w], [u], [u.sign()], [0.5]), 1),
        (lambda w, u: torch._foreach_addcmul_([w], [u], [u.sign()], torch.tensor([0.5])), 1),
        (lambda w, u: w.add_(u, alpha=0), None),
        (lambda w, u: w + 1e-12, None),  # the eps of a quotient is meant to be absorbed
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, BRAIN])
def test_all_kinds_of_sums(sum_of: Callable[..., Any], absorbed: int | None, dtype: torch.dtype) -> None:
    eps = torch.finfo(dtype).eps
    w, u = (torch.tensor([1.0, 1.0, 1.0], dtype=dtype), torch.tensor([eps / 8, 0.0, 2.0], dtype=dtype))

    # Only what the last operation does: some of these make their operands first.
    rows = rows_of(lambda: sum_of(w, u))

    if absorbed is None:
        assert all(row.absorbed is None for row in rows)
    else:
        assert rows[-1].absorbed == absorbed


def test_cancellation_leaves_rounding_alone() -> None:
    # eps is 2^-7: below 2^-5 of the larger one a difference is cancelled, zero is none.
    row = row_of(lambda: brain(1.0, 1.0, 1.0, 2.0) - brain(1 - 2.0**-6, 0.75, 1.0, 1.984375))

    assert row.cancelled == 2


@pytest.mark.parametrize("order", [1, -1])
def test_one_half_operand_is_enough_for_cancellation(order: int) -> None:
    wide, narrow = torch.tensor([1.0, 1.0, 1.0, 2.0]), brain(1 - 2.0**-6, 0.75, 1.0, 1.984375)
    kept = wide.clone()

    row = row_of(lambda: wide - narrow if order == 1 else narrow - wide)

    assert (row.cancelled, row.dtype_out) == (2, "float32")
    assert torch.equal(wide, kept)


def test_what_was_cast_from_half_just_before_is_known_as_half() -> None:
    a, b = brain(1.0, 1.0, 1.0, 2.0), brain(1 - 2.0**-6, 0.75, 1.0, 1.984375)

    (row,) = rows_of(lambda: a.float().view(2, 2) - b.float().view(2, 2))

    assert (row.op, row.dtype_in, row.cancelled) == ("aten.sub", "float32", 2)


@pytest.mark.parametrize(
    "difference",
    [
        lambda a, b: a - b,
        lambda a, b: a.to(BRAIN).float().mul_(1.25) - b.to(BRAIN).float().mul_(1.25),  # computed in FP32 since
    ],
)
def test_full_precision_is_not_asked_for_cancellation(difference: Callable[..., Any]) -> None:
    a, b = torch.tensor([1.0, 1.0]), torch.tensor([1 - 2.0**-6, 0.75])

    assert [row.cancelled for row in rows_of(lambda: difference(a, b)) if row.op == "aten.sub"] == [None]
