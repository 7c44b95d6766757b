"""The compiled comparison of a tensor with its FP32 twin, against the same numbers by torch's operations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ampdoctor.record.stats import cpu
from ampdoctor.record.twin import compare
from ampdoctor.record.twin.compare import Comparison, comparison_vector, decode

if TYPE_CHECKING:
    from collections.abc import Iterator

HALVES = {"float16": 2.0**-14, "bfloat16": 2.0**-126, "float32": 2.0**-126}
SUMS = ("dot", "squares", "squares_fp32", "squares_lost")

pytestmark = pytest.mark.skipif(not cpu.compiled(), reason="ampdoctor was installed without a C compiler")


def _bits(dtype: torch.dtype, count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count * dtype.itemsize,), dtype=torch.uint8, generator=generator).view(dtype)


def _plainly(ours: torch.Tensor, theirs: torch.Tensor, edge: float, ratio: float) -> Comparison:
    numbers = compare._on_device(ours.double(), theirs.double(), (edge, edge / ratio))
    numbers[0] = ours.numel()
    return decode(numbers.numpy())


def _agrees(ours: torch.Tensor, theirs: torch.Tensor, edge: float, ratio: float = 1.0) -> None:
    found = cpu.compared(ours, theirs, (edge, edge / ratio))
    assert found is not None
    compiled, plain = decode(found.numpy()), _plainly(ours, theirs, edge, ratio)
    for name in Comparison._fields:
        if name in SUMS:
            scale = math.sqrt(plain.squares * plain.squares_fp32) if name == "dot" else getattr(plain, name)
            assert getattr(compiled, name) == pytest.approx(getattr(plain, name), rel=1e-12, abs=1e-12 * scale)
        else:
            assert getattr(compiled, name) == getattr(plain, name), name


@pytest.mark.parametrize("dtype", HALVES)
def test_any_bits_of_any_length(dtype: str) -> None:
    lengths = st.integers(1, 40) | st.integers(4090, 4100) | st.just(9001)

    @settings(max_examples=40, deadline=None)
    @given(count=lengths, seed=st.integers(0, 1 << 30), zeros=st.booleans(), scale=st.integers(-20, 20))
    def check(count: int, seed: int, zeros: bool, scale: int) -> None:
        kind = getattr(torch, dtype)
        ours, theirs = _bits(kind, count, seed), _bits(torch.float32, count, seed + 1)
        if zeros:
            ours[::2] = 0.0
            theirs[::3] = 0.0
            theirs[1::5] *= 1e-30
        _agrees(ours, theirs, HALVES[dtype], 2.0**scale)

    check()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_share_a_large_pair(dtype: str, threads: int, torch_threads: None) -> None:
    torch.set_num_threads(threads)
    theirs = torch.randn(3 * (1 << 21) + 777) * 1e-6
    _agrees(theirs.to(getattr(torch, dtype)), theirs, HALVES[dtype])


@pytest.mark.parametrize("dtype", HALVES)
def test_it_is_what_twins_are_compared_by(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = torch.randn(50, 30) * 3e-7
    ours = theirs.to(getattr(torch, dtype))
    compiled = comparison_vector(ours.t(), theirs.t(), HALVES[dtype])
    monkeypatch.setattr(cpu, "compare", None)
    plain = comparison_vector(ours.t(), theirs.t(), HALVES[dtype])
    torch.testing.assert_close(compiled, plain, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (torch.ones(3, dtype=torch.float64), torch.ones(3)),
        (torch.ones(3), torch.ones(3, dtype=torch.float64)),
        (torch.ones(6)[::2], torch.ones(3)),
        (torch.ones(3), torch.ones(2)),
        (torch.ones(3, dtype=torch.complex64).conj().imag, torch.ones(3)),
        (torch._efficientzerotensor((3,)), torch.ones(3)),
    ],
    ids=["wide", "wide twin", "strided", "shorter twin", "negative", "no memory"],
)
def test_what_it_cannot_read_is_left_to_torch(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert cpu.compared(ours, theirs, (1.0, 1.0)) is None


def test_nothing_at_all() -> None:
    found = cpu.compared(torch.empty(0), torch.empty(0), (1.0, 1.0))
    assert found is not None
    assert found.tolist() == [0.0] * 13


@pytest.fixture
def torch_threads() -> Iterator[None]:
    """Puts the number of torch's threads back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
