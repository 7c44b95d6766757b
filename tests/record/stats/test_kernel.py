"""The compiled kernel, against numpy: any bits, any length, any layout, any number of threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ampdoctor.record.stats import cpu, fast_vector, statistics_vector
from tests.record.stats.reference import as_expected, by_kernel, expected, measured

if TYPE_CHECKING:
    from collections.abc import Iterator

DTYPES = {"float16": 2, "bfloat16": 2, "float32": 4}
CHUNK = 4096
WORTH_A_TABLE = 1 << 19
WORTH_A_THREAD = 1 << 21

pytestmark = pytest.mark.skipif(not cpu.compiled(), reason="ampdoctor was installed without a C compiler")


def _agrees(tensor: torch.Tensor) -> None:
    found, reference = as_expected(by_kernel(tensor)), vars(expected(tensor))
    assert found.pop("sum_squares") == pytest.approx(reference.pop("sum_squares"), rel=1e-12)
    assert found == reference


@pytest.mark.parametrize("tensor", [torch.randn(3000), torch.randn(40).half(), torch.zeros(5), torch.empty(0)])
def test_as_a_vector_it_is_what_torch_operations_say(tensor: torch.Tensor) -> None:
    torch.testing.assert_close(fast_vector(tensor), statistics_vector(tensor), rtol=1e-12, atol=0.0)


def _bits(dtype: str, count: int, seed: int = 0) -> torch.Tensor:
    raw = torch.randint(0, 256, (count * DTYPES[dtype],), dtype=torch.uint8, generator=_generator(seed))
    return raw.view(getattr(torch, dtype))


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_bit_pattern_of_any_length(dtype: str) -> None:
    lengths = st.integers(0, 40) | st.integers(CHUNK - 9, CHUNK + 9) | st.just(3 * CHUNK + 5)

    @settings(max_examples=60, deadline=None)
    @given(count=lengths, seed=st.integers(0, 1 << 30), zeros=st.booleans(), finite=st.booleans())
    def check(count: int, seed: int, zeros: bool, finite: bool) -> None:
        tensor = _bits(dtype, count, seed)
        if finite:
            tensor[~torch.isfinite(tensor)] = 1.0
        if zeros:
            tensor[::3] = 0.0
        _agrees(tensor)

    check()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_number_of_a_short_format(dtype: str) -> None:
    codes = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(getattr(torch, dtype))
    _agrees(codes)
    _agrees(codes.repeat(WORTH_A_TABLE >> 16))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_share_a_large_tensor(dtype: str, threads: int, torch_threads: Any) -> None:
    tensor = _bits(dtype, 3 * WORTH_A_THREAD + 12345)
    torch_threads(threads)
    _agrees(tensor)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[1:], lambda x: x.expand(3, 4, 6), lambda x: x[0, 0],
        lambda x: x.reshape(1, 2, 3, 4).to(memory_format=torch.channels_last), lambda x: x[:0], lambda x: x.flip(0),
        lambda x: x.requires_grad_().t(),
    ],
    ids=["t", "strided", "cut", "expanded", "0-d", "channels-last", "empty", "flip", "trained"],
)  # fmt: skip
def test_views(view: Any, dtype: str) -> None:
    x = torch.randn(4, 6, generator=_generator(0)).to(getattr(torch, dtype))
    x[0, 0], x[1, 1], x[2, 2] = float("inf"), float("nan"), 0.0
    _agrees(view(x))


@pytest.mark.parametrize("tensor", [torch.ones(3, dtype=torch.complex64).conj().imag, torch._efficientzerotensor((3,))])
def test_what_lies_in_memory_as_something_else(tensor: torch.Tensor) -> None:
    _agrees(tensor)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("largest", [1.0, 0.75])
@pytest.mark.parametrize("count", [1, 1000, WORTH_A_TABLE // 4])
def test_a_process_that_flushes_subnormals_is_told_of_them_all_the_same(count: int, largest: float, dtype: str) -> None:
    info = torch.finfo(getattr(torch, dtype))
    tensor = torch.tensor([largest * info.tiny, info.tiny / 2, info.tiny / 4, 0.0], dtype=getattr(torch, dtype))
    tensor = tensor.repeat(count)
    before = as_expected(by_kernel(tensor))
    torch.set_flush_denormal(True)
    try:
        assert as_expected(by_kernel(tensor)) | {"sum_squares": 0} == before | {"sum_squares": 0}
    finally:
        torch.set_flush_denormal(False)
    assert before["zeros"] == count


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_it_torch_operations_say_the_same(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = _bits(dtype, 1000)
    monkeypatch.setattr(cpu, "measure", None)
    assert repr(by_kernel(tensor)) == repr(measured(tensor))


@pytest.fixture
def torch_threads() -> Iterator[Any]:
    """Sets the number of torch's threads for one test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
