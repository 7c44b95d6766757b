"""The distributions behind an estimate: many windows at once come out as one by one."""

from __future__ import annotations

import numpy as np
import pytest

from ampdoctor.tails import WINDOW, most_likely_flushed, most_likely_tail


@pytest.mark.parametrize("mantissa_bits", [2, 7, 10])
def test_many_windows_come_out_as_one_by_one(mantissa_bits: int) -> None:
    random = np.random.default_rng(3)
    windows = np.floor(random.lognormal(3.0, 3.0, (300, WINDOW)))
    windows[:, 0] += 1.0
    one_by_one = [most_likely_tail(window, mantissa_bits).flushed for window in windows]
    np.testing.assert_allclose(most_likely_flushed(windows, mantissa_bits), one_by_one, rtol=1e-2, atol=1e-6)


def test_nothing_seen_nothing_flushed() -> None:
    assert most_likely_flushed(np.zeros((2, WINDOW)), 10).tolist() == [0.0, 0.0]
