"""Number formats as data: one entry is one format.

Sources: IEEE 754-2019 (FP16, FP32, FP64), Google's bfloat16, NVIDIA's TF32, and "FP8 Formats for Deep Learning"
(arXiv:2209.05433) for E4M3fn and E5M2. Every derived figure is checked against a real cast in the tests.
"""

from __future__ import annotations

from dataclasses import dataclass

from ampdoctor.errors import AmpDoctorError


@dataclass(frozen=True)
class NumberFormat:
    """A binary floating-point format with round-to-nearest-even.

    Attributes:
        name: the short name people use (`fp16`).
        title: the name in text (`FP16`).
        exponent_bits: width of the exponent field.
        mantissa_bits: explicit significand bits.
        has_inf: whether the format encodes infinity; without it, overflow becomes NaN.
        max: largest finite value; typed in, because E4M3fn gives its top code to NaN and not to inf.
        bytes: storage size; None for a compute-only format (TF32 is stored as FP32).
        dtype: name of the torch dtype that stores it; None for a compute-only format.
        for_gradients: one sentence on what the format means for gradients.
    """

    name: str
    title: str
    exponent_bits: int
    mantissa_bits: int
    max: float
    has_inf: bool
    bytes: int | None
    dtype: str | None
    for_gradients: str

    @property
    def min_exponent(self) -> int:
        """Exponent of the smallest normal number (FP16: -14)."""
        return 2 - (1 << (self.exponent_bits - 1))

    @property
    def max_exponent(self) -> int:
        """Exponent of the binade that holds `max` (FP16: 15)."""
        return (1 << (self.exponent_bits - 1)) - (1 if self.has_inf else 0)

    @property
    def min_normal(self) -> float:
        """Smallest normal number (FP16: 2^-14)."""
        return 2.0**self.min_exponent

    @property
    def min_subnormal_exponent(self) -> int:
        """Exponent of the smallest subnormal (FP16: -24)."""
        return self.min_exponent - self.mantissa_bits

    @property
    def min_subnormal(self) -> float:
        """Smallest nonzero number (FP16: 2^-24)."""
        return 2.0**self.min_subnormal_exponent

    @property
    def flush_exponent(self) -> int:
        """Exponent e such that |x| <= 2^e rounds to zero (FP16: -25; the tie goes to even, i.e. to zero)."""
        return self.min_subnormal_exponent - 1

    @property
    def eps(self) -> float:
        """Distance from 1.0 to the next larger number (FP16: 2^-10)."""
        return 2.0**-self.mantissa_bits

    @property
    def overflow_at(self) -> float:
        """Smallest magnitude that no longer rounds to `max` (FP16: 65520): half a last place above it."""
        return self.max + 0.5 * 2.0 ** (self.max_exponent - self.mantissa_bits)

    @property
    def binades(self) -> int:
        """How many powers of two the nonzero numbers span (FP16: 40)."""
        return self.max_exponent - self.min_subnormal_exponent + 1


FP64 = NumberFormat(
    "fp64", "FP64", 11, 52, 1.7976931348623157e308, True, 8, "float64",
    "Never needed for gradients.",
)  # fmt: skip
FP32 = NumberFormat(
    "fp32", "FP32", 8, 23, 3.4028234663852886e38, True, 4, "float32",
    "Holds every gradient that training produces; the reference.",
)  # fmt: skip
TF32 = NumberFormat(
    "tf32", "TF32", 8, 10, 3.4011621342146535e38, True, None, None,
    "Compute format of matmuls on FP32 tensors: FP32's range, so nothing flushes; 3 decimal digits.",
)  # fmt: skip
FP16 = NumberFormat(
    "fp16", "FP16", 5, 10, 65504.0, True, 2, "float16",
    "Gradients at or below 2^-25 become zero and those above 65504 inf: needs loss scaling.",
)  # fmt: skip
BF16 = NumberFormat(
    "bf16", "BF16", 8, 7, 3.3895313892515355e38, True, 2, "bfloat16",
    "FP32's range, so gradients don't flush and no loss scaling is needed; only 2-3 decimal digits.",
)  # fmt: skip
E4M3FN = NumberFormat(
    "e4m3fn", "FP8 E4M3fn", 4, 3, 448.0, False, 1, "float8_e4m3fn",
    "Too narrow for gradients even with a scale per tensor; meant for weights and activations.",
)  # fmt: skip
E5M2 = NumberFormat(
    "e5m2", "FP8 E5M2", 5, 2, 57344.0, True, 1, "float8_e5m2",
    "Nearly FP16's range in one byte: gradients need a scale per tensor; 1 decimal digit.",
)  # fmt: skip

FORMATS: dict[str, NumberFormat] = {f.name: f for f in (FP64, FP32, TF32, FP16, BF16, E4M3FN, E5M2)}
_BY_DTYPE = {f.dtype: f for f in FORMATS.values() if f.dtype is not None}


def find_format(name: str) -> NumberFormat:
    """Return the format called `name` (`fp16`, case-insensitive).

    Raises:
        AmpDoctorError: no such format; the hint lists those there are.
    """
    try:
        return FORMATS[name.lower()]
    except KeyError:
        raise AmpDoctorError(f"unknown number format {name!r}", hint="known formats: " + ", ".join(FORMATS)) from None


def format_of_dtype(dtype: str) -> NumberFormat | None:
    """Return the format that stores the torch dtype called `dtype` (`float16`), or None if it is no float."""
    return _BY_DTYPE.get(dtype)


def title_of_dtype(dtype: str) -> str:
    """Return what text calls the torch dtype called `dtype`: FP16."""
    number_format = format_of_dtype(dtype)
    return number_format.title if number_format else dtype


HALF_DTYPES = frozenset({"float16", "bfloat16"})
"""Names of the dtypes meant by "half" in rules and findings."""

SCALE_BEYOND_FP32 = 2.0**64
"""A loss scale that makes losses and gradients of ordinary size overflow FP32 too: what breaks then is its doing."""
