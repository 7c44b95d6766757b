"""Statistics of arbitrary bit patterns, on both paths, against numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ampdoctor.record.stats import EXTRA, measurable, statistics_vector, torch_ops
from tests.record.stats.reference import as_expected, expected, measured

if TYPE_CHECKING:
    from collections.abc import Callable

DTYPES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
FP8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
PATHS: list[Callable[[torch.Tensor], torch.Tensor]] = [torch_ops._on_cpu, torch_ops._on_device]


def _agrees(tensor: torch.Tensor) -> None:
    found, reference = as_expected(measured(tensor)), vars(expected(tensor))
    assert found.pop("sum_squares") == pytest.approx(reference.pop("sum_squares"), rel=1e-12)
    assert found == reference


@st.composite
def _patterns(draw: Any, dtype: str, size: int) -> torch.Tensor:
    """Any bit patterns: NaN with a payload, both zeros, subnormals and infinities among them."""
    count = draw(st.integers(1, 40))
    raw = bytearray(draw(st.binary(min_size=count * size, max_size=count * size)))
    tensor = torch.frombuffer(raw, dtype=torch.uint8).view(getattr(torch, dtype)).clone()
    special = draw(st.sampled_from([None, 0.0, -0.0, float("inf"), float("-inf"), float("nan")]))
    if special is not None:
        tensor[:: draw(st.integers(1, 3))] = special
    return tensor


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_bit_pattern_is_counted_as_numpy_counts_it(dtype: str, path: Any) -> None:
    @settings(max_examples=60, deadline=None)
    @given(tensor=_patterns(dtype, DTYPES[dtype]), chunk=st.sampled_from([3, 7, 1 << 22]))
    def check(tensor: torch.Tensor, chunk: int) -> None:
        with mock.patch.multiple(torch_ops, _on_cpu=path, _CHUNK=chunk):
            _agrees(tensor)

    check()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", *FP8])
def test_every_number_of_a_short_format(dtype: str, path: Any) -> None:
    size = getattr(torch, dtype).itemsize
    codes = torch.arange(1 << (8 * size), dtype=torch.int32).to(torch.uint8 if size == 1 else torch.int16)
    with mock.patch.object(torch_ops, "_on_cpu", path):
        _agrees(codes.view(getattr(torch, dtype)))


@pytest.mark.parametrize("path", PATHS)
def test_the_edges_of_fp32(path: Any) -> None:
    info = torch.finfo(torch.float32)
    edges = [2.0**-149, 2.0**-148, 3 * 2.0**-149, info.tiny, info.tiny - 2.0**-149, info.max, -info.max, 1.0]
    with mock.patch.object(torch_ops, "_on_cpu", path):
        _agrees(torch.tensor(edges))


def test_fp64_beyond_the_histogram_is_counted_at_its_ends() -> None:
    found = as_expected(measured(torch.tensor([2.0**-1000, 2.0**-150, 2.0**200], dtype=torch.float64)))
    assert found["exponents"] == {-149: 2, 127: 1}
    assert found["absmax"] == 2.0**200


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[1], lambda x: x.expand(3, 4, 6), lambda x: x.unfold(1, 3, 1),
        lambda x: x.reshape(1, 2, 3, 4).to(memory_format=torch.channels_last), lambda x: x.flip(0), lambda x: x[0, 0],
        lambda x: x[:0], lambda x: x.new_zeros(0, 3), lambda x: x.permute(1, 0)[2:],
        lambda x: x[:, None].expand(4, 5, 6),
    ],
    ids=[
        "t", "strided", "row", "expanded", "unfold", "channels-last", "flip", "0-d", "empty", "empty-2d", "cut",
        "inner",
    ],
)  # fmt: skip
def test_views(view: Any, path: Any) -> None:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    x[0, 0], x[1, 1], x[2, 2] = float("inf"), float("nan"), 0.0
    with mock.patch.object(torch_ops, "_on_cpu", path):
        _agrees(view(x))


def test_a_permuted_tensor_is_not_copied() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert torch_ops.flat(x).data_ptr() == x.data_ptr()


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128])
def test_complex_numbers_count_twice(dtype: torch.dtype) -> None:
    x = torch.tensor([1 + 2j, 0j, complex("inf"), complex(0, float("nan"))]).to(dtype)
    parts = torch.view_as_real(x)
    assert repr(measured(x)) == repr(measured(parts))
    assert repr(measured(x.conj())) == repr(measured(torch.view_as_real(x.conj().resolve_conj())))
    # The imaginary part of a conjugate is a view with a negative bit, whose memory holds the opposite sign.
    assert x.conj().imag.is_neg()
    _agrees(x.conj().imag)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_what_can_be_measured() -> None:
    yes = [torch.zeros(2, dtype=getattr(torch, d)) for d in (*DTYPES, *FP8, "complex64")]
    assert all(measurable(t) for t in [*yes, torch.nn.Parameter(torch.zeros(2)), torch.zeros(())])
    no = [
        torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.bool), torch.zeros(2, device="meta"),
        torch.zeros(2, 2).to_sparse(), torch.zeros(2).as_subclass(_Subclass), torch.zeros(2, 2).to_sparse_csr(),
    ]  # fmt: skip
    if hasattr(torch, "float4_e2m1fn_x2"):
        no.append(torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2))
    assert not any(measurable(t) for t in no)


class _Subclass(torch.Tensor):
    pass


def test_the_default_device_and_dtype_of_the_user_do_not_matter() -> None:
    x = torch.tensor([1.0, 0.0, 2.0**-130])
    plain = measured(x)
    torch.set_default_dtype(torch.float64)
    with torch.device("meta"):
        vector = statistics_vector(x)
    assert (vector.device.type, vector.dtype, vector.numel()) == ("cpu", torch.float64, EXTRA)
    assert measured(x) == plain


def test_a_user_who_flushes_denormals(request: pytest.FixtureRequest) -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor can't")
    request.addfinalizer(lambda: torch.set_flush_denormal(False))
    # FP16's own subnormals are normal numbers in FP32: the setting must not hide them.
    found = as_expected(measured(torch.full((3,), 2.0**-24, dtype=torch.float16)))
    assert found["exponents"] == {-24: 3}
    # For FP32 the processor itself now takes subnormals for zeros, and so does the training.
    assert as_expected(measured(torch.full((3,), 2.0**-140)))["zeros"] == 3
