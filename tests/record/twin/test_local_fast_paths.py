"""The CPU's shortcuts of local twins say what the long way says, of random numbers and of those at the edges."""

from __future__ import annotations

import math
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING

import pytest
import torch

from ampdoctor.record.twin.local import bits, brain_sums, measures
from ampdoctor.record.twin.local.measures import Measure
from tests.record.twin.local_rows import BRAIN, HALF, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ampdoctor.trace.schema import OpRow

    Sum = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

EDGES = [
    0.0, 1.0, 1.0078125, 3.0, 2.0**-14, 2.0**-24, 65504.0, 2.0**-120, 2.0**-121, 1.5 * 2.0**-121, 2.0**-122, 2.0**-126,
    2.0**-127, 2.0**-133, 3.3e38, math.inf, math.nan,
]  # fmt: skip


def every_pair(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return edges beside edges, of either sign."""
    values = torch.tensor([*EDGES, *(-e for e in EDGES)], dtype=torch.float64).to(dtype)
    return values.repeat(len(values)), values.repeat_interleave(len(values))


def random(*shape: int, spread: float = 0.0, zeros: float = 0.0) -> torch.Tensor:
    """Return BF16 numbers, over some binades or partly zero."""
    values = torch.randn(shape) * torch.exp2(torch.randn(shape) * spread)
    return (values * (torch.rand(shape) >= zeros)).to(BRAIN)


@cache
def pairs() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return what is added up in BF16."""
    torch.manual_seed(0)
    a, b = every_pair(BRAIN)
    usual = torch.isfinite(a) & torch.isfinite(b) & ((a == 0) | (a.abs() > 1e-30))
    usual &= (b == 0) | (b.abs() > 1e-30)
    near = random(64, 65)
    return {
        "edges": (a, b),
        "finite edges": (a[usual], b[usual]),
        "random": (random(300, 301), random(300, 301)),
        "many binades": (random(64, 64, spread=6.0), random(64, 64, spread=6.0)),
        "zeros": (random(64, 64, zeros=0.5), random(64, 64, zeros=0.5)),
        "opposite": (near, -near),
        "nearly opposite": (near, -near * (1 + random(64, 65) / 16)),
        "smallest numbers": (random(64, 64) * 2.0**-124, random(64, 64) * 2.0**-124),
        "many pieces": (random(3, 90_000), random(3, 90_000)),
        "transposed": (random(64, 65).t(), random(64, 65).t()),
        "one transposed": (random(64, 65).t(), random(65, 64)),
        "every other": (random(64, 65)[::2, ::3], random(64, 65)[::2, ::3]),
        "broadcast": (random(64, 65), random(65)),
        "broadcast total": (random(65), random(64, 65)),
        "a number": (random(), random()),
        "nothing": (random(0, 3), random(0, 3)),
    }


SUMS: dict[str, Sum] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "scaled": lambda a, b: torch.add(a, b, alpha=0.25),
    "in place": lambda a, b: a.clone().expand(torch.broadcast_shapes(a.shape, b.shape)).clone().add_(b),
    "list": lambda a, b: torch._foreach_add([a + 0], [b.expand_as(a + b).contiguous()])[0]
    if a.shape == (a + b).shape
    else a,
}  # fmt: skip


def readable(row: OpRow) -> dict[str, object]:
    """Return what a row says; NaN is made equal to itself."""
    return {name: str(value) for name, value in asdict(row).items()}


@pytest.mark.parametrize("name", pairs())
@pytest.mark.parametrize("sum_of", SUMS.values(), ids=SUMS)
def test_brain_sums_are_those_in_floats(name: str, sum_of: Sum, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pairs()[name]
    short = [readable(row) for row in rows_of(lambda: sum_of(a, b))]
    monkeypatch.setattr(brain_sums, "counts", lambda *_: None)

    assert short == [readable(row) for row in rows_of(lambda: sum_of(a, b))]


def test_sixteen_bits_are_enough_for_most_sums() -> None:
    known = {
        name: brain_sums.counts(a, b, a.float() + b.float())
        for name, (a, b) in pairs().items()
        if a.numel() and a.shape == b.shape
    }

    assert [name for name, counts in known.items() if counts is None] == ["edges", "smallest numbers"]


@pytest.mark.parametrize("dtype", [BRAIN, HALF, torch.float32, torch.float64])
def test_what_bits_tell(dtype: torch.dtype) -> None:
    edges, _ = every_pair(dtype)
    finite = edges[torch.isfinite(edges)]
    for values in (edges, finite, finite[finite != 0], -finite.abs(), finite.abs(), finite[:1]):
        signed = bits.integers(values)
        assert bits.any_zero(signed) == bool((values == 0).any())
        assert bits.nonzero(signed) == int(torch.count_nonzero(values))
        if dtype.itemsize > 2:
            assert str(bits.largest(signed)) == str(float(values.abs().amax()))


@pytest.mark.parametrize("dtype", [BRAIN, HALF, torch.float32])
def test_numbers_on_the_host_are_those_on_a_device(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    usual = torch.randn(1000)
    edges, _ = every_pair(torch.float32)
    for reference in (edges, edges[torch.isfinite(edges)], usual, usual * 2e-8, -usual.abs()):
        run = reference.to(dtype)
        host, device = measures._on_cpu(run, reference), measures._on_device(run, reference)
        for measure in Measure:
            here, there = host[measure], float(device[measure])
            assert here == pytest.approx(there, rel=1e-5, nan_ok=True), measure
