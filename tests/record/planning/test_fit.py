"""The largest batch that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ampdoctor.errors import AmpDoctorError
from ampdoctor.record.planning.cards import CARDS, card_bytes
from ampdoctor.record.planning.fit import LARGEST, Fit, largest_batch
from tests.record.planning.models import planned

if TYPE_CHECKING:
    from collections.abc import Callable

CARD = 1000


class Steps:
    """Steps whose forward and backward take what a function says, and whose optimizer takes always the same."""

    def __init__(self, forward: Callable[[int], int], optimizer: int = 0) -> None:
        self._forward, self._optimizer = forward, optimizer
        self.run: set[int] = set()

    def __call__(self, batch: int) -> dict[str, int]:
        self.run.add(batch)
        return {"forward": self._forward(batch), "step": self._optimizer}


@pytest.mark.parametrize("batch", [1, 8, 500])
def test_even_growth_takes_two_steps_and_two_to_check(batch: int) -> None:
    steps = Steps(lambda n: 100 + 7 * n, optimizer=900)
    assert largest_batch(steps, batch, CARD) == Fit(128, True)  # 100 + 7 * 128 = 996
    assert len(steps.run) <= 4


def test_growth_that_gets_faster_is_followed() -> None:
    assert largest_batch(Steps(lambda n: max(200 + n, 10 * n)), 1, CARD).batch == 100
    assert largest_batch(Steps(lambda n: 100 + n * n), 1, CARD) == Fit(30, False)


def test_growth_in_stairs_is_searched() -> None:
    found = largest_batch(Steps(lambda n: 100 * (1 + n // 10)), 1, CARD)
    assert found == Fit(99, False)


@pytest.mark.parametrize("steps", [Steps(lambda n: 1000 + n), Steps(lambda n: n, optimizer=1001)])
def test_where_nothing_fits_it_is_zero(steps: Steps) -> None:
    assert largest_batch(steps, 4, CARD).batch == 0


def test_where_a_batch_is_asked_for_that_does_not_fit_a_smaller_one_is_found() -> None:
    assert largest_batch(Steps(lambda n: 400 + 100 * n), 64, CARD).batch == 6


def test_what_does_not_grow_ends_somewhere() -> None:
    assert largest_batch(Steps(lambda _: 10), 1, CARD).batch == LARGEST


def test_a_planned_step_grows_evenly() -> None:
    card = planned(batch=1000).peak_bytes
    assert largest_batch(lambda n: planned(batch=n).peaks, 400, card) == Fit(1000, True)
    # Of a few samples gradients make the peak of the backward pass, of many the activations.
    assert largest_batch(lambda n: planned(batch=n).peaks, 8, card) == Fit(1000, False)


@pytest.mark.parametrize(
    ("text", "size"),
    [("24GB", 24 * 10**9), ("24 GiB", 24 << 30), ("0.5gb", 5 * 10**8), ("1000", 1000), ("A100-80GB", 80 << 30)],
)
def test_sizes(text: str, size: int) -> None:
    assert card_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "24XB", "h1000", "0GB", "1e9"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(AmpDoctorError) as error:
        card_bytes(text)
    assert all(name in error.value.hint for name in CARDS)
