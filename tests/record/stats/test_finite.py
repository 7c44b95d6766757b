"""Whether gradients hold an inf or a NaN, by the kernel and without it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from ampdoctor.record.stats import all_finite, cpu

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
BAD = (float("inf"), -float("inf"), float("nan"))


@pytest.fixture(params=["kernel", "torch"])
def _by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "torch":
        monkeypatch.setattr(cpu, "finite", None)
    elif cpu.finite is None:
        pytest.skip("the kernel was not built")


@pytest.mark.usefixtures("_by")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("where", [0, 1, 4095, 4096, 8191, 9999])
def test_one_element_is_enough(dtype: torch.dtype, where: int) -> None:
    tensors = [torch.randn(10_000).to(dtype) for _ in range(3)]
    tensors[1][where] = torch.finfo(dtype).max
    assert all_finite(tensors)
    for bad in BAD:
        tensors[1][where] = bad
        assert not all_finite(tensors)


@pytest.mark.usefixtures("_by")
@pytest.mark.parametrize("bad", [1.0, *BAD])
def test_layouts_of_memory(bad: float) -> None:
    last = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, bad]])
    for tensor in (last.t(), last[:, ::2], last.view(3, 2), last[1, 2].expand(5), last[1, 2]):
        assert all_finite([tensor]) == (bad == 1.0)


def test_others_are_not_looked_at() -> None:
    nan = torch.tensor([float("nan")])
    others = [None, torch.empty(0), torch.arange(3), torch.empty(2, device="meta"), nan.to_sparse(), nn.Parameter(nan)]
    assert all_finite(others)
    assert all_finite([])


@given(st.lists(st.floats(width=32), max_size=40), st.sampled_from(DTYPES))
def test_it_agrees_with_torch(values: list[float], dtype: torch.dtype) -> None:
    tensor = torch.tensor(values, dtype=torch.float32).to(dtype)
    assert all_finite([torch.ones(2), tensor]) == bool(torch.isfinite(tensor).all())
