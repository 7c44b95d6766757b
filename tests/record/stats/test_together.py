"""Many tensors at once, by the kernel: each is what it is by itself, and what the kernel can't read is left alone."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ampdoctor.record.stats import FEW, StatisticsTable, copied, cpu, note_known, places_of, subtract
from tests.record.stats.reference import as_expected, by_kernel, expected

pytestmark = pytest.mark.skipif(not cpu.compiled(), reason="the kernel was not built")

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
FLOATS = st.floats(width=32)


@st.composite
def tensors(draw: st.DrawFn, dtypes: tuple[torch.dtype, ...] = DTYPES) -> torch.Tensor:
    """A tensor of any values, of no dimension, one or two."""
    values = draw(st.lists(FLOATS, max_size=300))
    found = torch.tensor(values, dtype=torch.float32).to(draw(st.sampled_from(dtypes)))
    if found.numel() and found.numel() % 2 == 0 and draw(st.booleans()):
        found = found.view(2, -1)
    return found


def _rows(table: StatisticsTable, count: int) -> list[tuple[list[float], list[int]]]:
    heads, counts = table.filled(count, {})
    ends = np.cumsum(heads[:, -1].astype(int))
    return [(head.tolist(), part.tolist()) for head, part in zip(heads, np.split(counts, ends[:-1]), strict=True)]


@given(st.lists(tensors(), min_size=1, max_size=20))
@settings(deadline=None)
def test_together_is_one_by_one(several: list[torch.Tensor]) -> None:
    alone, together, in_groups = StatisticsTable(), StatisticsTable(), StatisticsTable()
    for row, tensor in enumerate(several):
        alone.measure(row, tensor)
        assert as_expected(by_kernel(tensor))["exponents"] == expected(tensor).exponents
    places = places_of(several)
    assert places is not None
    together.measure_all(0, places)
    for first in range(0, len(several), FEW):
        assert in_groups.measure_few(first, several[first : first + FEW])
    one_by_one = repr(_rows(alone, len(several)))
    assert repr(_rows(together, len(several))) == one_by_one
    assert repr(_rows(in_groups, len(several))) == one_by_one


def test_what_is_left_of_an_interrupted_look_is_not_counted() -> None:
    table, first, second = StatisticsTable(), torch.tensor([1.0, 2.0]), torch.tensor([4.0])
    assert table.measure_few(0, [first, first])
    assert table.measure_few(0, [second])  # as nobody took the rows
    assert [counts for _, counts in _rows(table, 1)] == [[1]]


@given(st.lists(tensors(dtypes=(torch.float32,)), min_size=1, max_size=8), st.data())
@settings(deadline=None)
def test_differences_are_those_of_torch(before: list[torch.Tensor], data: st.DataObject) -> None:
    changing = [tensor.clone() for tensor in before]
    copy = copied(changing)
    assert (copy is None) == (not any(map(torch.numel, before)))
    if copy is None:
        return
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(copy.apart(), before, strict=True))
    for tensor in changing:
        tensor.mul_(data.draw(FLOATS)).add_(data.draw(FLOATS))
    now = copy.describes(changing)
    assert now is not None
    subtract(copy, now)
    for found, old, new in zip(copy.apart(), before, changing, strict=True):
        assert found.shape == old.shape
        assert found.numpy().tobytes() == (old - new).numpy().tobytes() or found.isnan().any()
        assert torch.equal(found.nan_to_num(), (old - new).nan_to_num())


class _Own(torch.Tensor):
    """A class of the user's."""


_UNREADABLE: dict[str, Any] = {
    "another dtype": torch.zeros(2, dtype=torch.float64),
    "integers": torch.zeros(2, dtype=torch.int64),
    "scattered": torch.zeros(4, 4)[:, ::2],
    "sparse": torch.eye(2).to_sparse(),
    "without values": torch.empty(2, device="meta"),
    "of a class of its own": torch.zeros(2).as_subclass(_Own),
    "negative by a bit": torch.tensor([1j]).conj().imag,
    "no memory": torch._efficientzerotensor(2),
    "no tensor": None,
}


@pytest.mark.parametrize("kind", _UNREADABLE)
def test_what_can_not_be_read_as_it_is(kind: str) -> None:
    plain = [torch.ones(2), nn.Parameter(torch.ones(3))]
    assert places_of(plain) is not None
    assert places_of([*plain, _UNREADABLE[kind]]) is None
    assert copied([*plain, _UNREADABLE[kind]]) is None
    assert not StatisticsTable().measure_few(0, [*plain, _UNREADABLE[kind]])


def test_only_what_is_the_same_tensor_has_a_difference() -> None:
    held = [torch.ones(4), torch.ones(2, 2)]
    copy = copied(held)
    assert copy is not None
    assert copy.describes(held) is not None
    for other in (torch.ones(4).half(), torch.ones(2, 2), torch.ones(5), torch.ones(8)[::2]):
        assert copy.describes([other, held[1]]) is None
    assert copied([torch.ones(2).half()]) is None


@pytest.mark.parametrize("grad_enabled", [True, False])
def test_what_is_noted_of_tensors(grad_enabled: bool) -> None:
    assert note_known is not None
    with torch.inference_mode():
        inference = torch.ones(3)
    changed = torch.ones(2, 2).add_(1).mul_(2)
    several = [changed, inference]
    places = places_of(several)
    assert places is not None
    known: list[Any] = ["before"]
    seen: dict[int, Any] = {}
    sites = [("a.b", "weight", "w"), ("a.c", "activation", "out")]
    contexts = [(0, None, True), (3, "bfloat16", grad_enabled)]
    order = itertools.count(5)
    note_known(places.ctypes.data, several, sites, contexts, ("float32", "?", "?"), 7, order, known, seen, 11)
    assert known == [
        "before",
        7, 5, "a.b", "weight", "w", 0, "float32", torch.Size([2, 2]), 4, None, True, None,
        7, 6, "a.c", "activation", "out", 3, "float32", torch.Size([3]), 3, "bfloat16", grad_enabled, None,
    ]  # fmt: skip
    assert {key: (ref(), version, row) for key, (ref, version, row) in seen.items()} == {
        id(changed): (changed, 2, 11), id(inference): (inference, 0, 12)
    }  # fmt: skip


def test_a_note_that_fails_leaves_nothing_behind() -> None:
    assert note_known is not None
    several = [torch.ones(2), torch.ones(3)]
    places = places_of(several)
    known: list[Any] = ["before"]
    seen: dict[int, Any] = {}
    assert places is not None
    arguments = places.ctypes.data, several, [("a", "b", "c"), "no site"], [(0, None, True)] * 2, ("f", "f", "f"), 0
    with pytest.raises(ValueError, match="tuples of three"):
        note_known(*arguments, itertools.count(), known, seen, 0)
    assert known == ["before"]
    for wrong in ([], [("a", "b", "c")]):
        with pytest.raises(ValueError, match="for each tensor"):
            note_known(*arguments[:2], wrong, *arguments[3:], itertools.count(), known, seen, 0)
