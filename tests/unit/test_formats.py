"""Every figure of every format, against torch's own and against a real cast."""

from __future__ import annotations

import math

import pytest
import torch

from ampdoctor.errors import AmpDoctorError
from ampdoctor.formats import FORMATS, FP16, HALF_DTYPES, NumberFormat, find_format, format_of_dtype

STORED = [f for f in FORMATS.values() if f.dtype is not None]
NARROW = [f for f in STORED if f.bytes is not None and f.bytes < 4]


def _dtype(number_format: NumberFormat) -> torch.dtype:
    dtype = getattr(torch, str(number_format.dtype))
    assert isinstance(dtype, torch.dtype)
    return dtype


def _cast(value: float, number_format: NumberFormat) -> float:
    return float(torch.tensor(value, dtype=torch.float64).to(_dtype(number_format)).to(torch.float64))


@pytest.mark.parametrize("number_format", STORED, ids=lambda f: f.name)
def test_agrees_with_torch_finfo(number_format: NumberFormat) -> None:
    info = torch.finfo(_dtype(number_format))
    assert number_format.max == info.max
    assert number_format.min_normal == info.smallest_normal
    assert number_format.eps == info.eps
    assert number_format.bytes == info.bits // 8


@pytest.mark.parametrize("number_format", NARROW, ids=lambda f: f.name)
def test_flushes_where_a_real_cast_does(number_format: NumberFormat) -> None:
    edge = 2.0**number_format.flush_exponent
    assert _cast(edge, number_format) == 0.0
    assert _cast(edge * 1.0001, number_format) == number_format.min_subnormal


@pytest.mark.parametrize("number_format", NARROW, ids=lambda f: f.name)
def test_overflows_where_a_real_cast_does(number_format: NumberFormat) -> None:
    at = number_format.overflow_at
    assert _cast(at * (1.0 - 2.0**-20), number_format) == number_format.max
    beyond = _cast(at * (1.0 + 2.0**-20), number_format)
    # Without an infinity, torch gives NaN or the largest number, by version.
    assert beyond == math.inf if number_format.has_inf else math.isnan(beyond) or beyond == number_format.max


def test_fp16_spans_forty_binades() -> None:
    assert FP16.binades == 40
    assert (FP16.min_subnormal_exponent, FP16.max_exponent) == (-24, 15)


def test_formats_are_found_by_name_and_dtype() -> None:
    assert find_format("FP16") is FP16
    assert format_of_dtype("float16") is FP16
    assert format_of_dtype("int64") is None
    assert all(format_of_dtype(dtype) is not None for dtype in HALF_DTYPES)


def test_an_unknown_format_is_told_with_those_there_are() -> None:
    with pytest.raises(AmpDoctorError) as caught:
        find_format("fp12")
    assert "fp12" in caught.value.message
    assert "bf16" in caught.value.hint
