"""The number format that the values of a site went through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.formats import FP32, HALF_DTYPES, NumberFormat, format_of_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ampdoctor_dashboard.data.tensors import Site


def formats_of(sites: Sequence[Site]) -> list[NumberFormat]:
    """Return the format of each site's values.

    It is that of its dtype; of a gradient about to be cast, the one it is cast to; of the gradient of an FP32 weight
    whose module computes in half, that half: it was made in it, and carries its zeros.
    """
    halves: dict[str, str] = {}
    for site in sites:
        if site.role in {"activation", "grad_output"} and site.dtype in HALF_DTYPES and site.slot.startswith("out"):
            halves.setdefault(site.module, site.dtype)
    return [format_of_dtype(_dtype(site, halves)) or FP32 for site in sites]


def _dtype(site: Site, halves: dict[str, str]) -> str:
    if site.cast_to:
        return site.cast_to
    return halves.get(site.module, site.dtype) if site.role == "weight_grad" else site.dtype
