"""Which GPUs of NVML's torch sees, and under which index."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ampdoctor.record.telemetry.visible import Device, by_torch, by_variable

WHOLE = ["GPU-aaaa1111-00", "GPU-aabb2222-00", "GPU-cccc3333-00", "GPU-dddd4444-00"]
GPUS = [Device(uuid, "A100", handle) for handle, uuid in enumerate(WHOLE)]
MIXED = [Device(uuid, name, 1) for uuid, name in zip(WHOLE, ("T4", "A100", "A100", "T4"), strict=True)]

FIRST = Device("MIG-1111", "A100 MIG", "handle", "gpu", 1, 0)
SECOND = Device("MIG-2222", "A100 MIG", "handle", "gpu", 2, 0)
DIVIDED = Device("GPU-eeee5555-00", "A100", "handle", instances=(FIRST, SECOND))

numbers = st.integers(0, len(GPUS) - 1)


def seen(variable: str | None, gpus: list[Device] = GPUS, order: str | None = None) -> list[int]:
    """Return the places among `gpus` of what is seen, whose indices must be 0, 1, …"""
    placed = by_variable(gpus, variable, order)
    assert [p.torch_index for p in placed] == list(range(len(placed)))
    return [gpus.index(p.device) for p in placed]


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("-1", []),
        (" 2 , 1 ", [2, 1]),
        ("0,2,-1,1", [0, 2]),
        ("1,9,0", [1]),
        ("1,1", []),
        ("+1,2nd", [1, 2]),
        ("none", []),
        ("GPU-cccc3333-00,GPU-aaaa1111-00", [2, 0]),
        ("GPU-c, GPU-d", [2, 3]),
        ("GPU-aa", []),
        ("GPU-c,GPU-aa,GPU-d", [2]),
        ("GPU-c,GPU-cccc", []),
        ("GPU-c,1", [2]),
        ("GPU-", []),
        ("GPU-ffff,GPU-c", []),
        ("MIG-1111", []),
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(variable: str | None, expected: list[int]) -> None:
    assert seen(variable) == expected


@given(st.lists(numbers, unique=True), st.lists(st.text(st.characters(codec="ascii"), max_size=4)))
def test_a_list_of_indices_is_a_list_of_uuids(chosen: list[int], rest: list[str]) -> None:
    after = ["-1", *rest] if rest else []
    assert seen(",".join([*map(str, chosen), *after])) == chosen
    if chosen:
        assert seen(",".join(WHOLE[index] for index in chosen)) == chosen


@given(st.text())
def test_whatever_the_variable_is_no_gpu_is_seen_twice(variable: str) -> None:
    places = seen(variable)
    assert len(set(places)) == len(places)


@given(st.permutations(range(len(GPUS))))
def test_the_uuids_that_torch_gives_decide(order: list[int]) -> None:
    placed = by_torch(GPUS, [WHOLE[index].removeprefix("GPU-") for index in order])
    assert placed is not None
    assert [(p.torch_index, p.device.handle) for p in placed] == list(enumerate(order))


def test_a_uuid_that_nvml_does_not_know_decides_nothing() -> None:
    assert by_torch(GPUS, ["aaaa1111-00", "unknown"]) is None
    assert by_torch([Device(None), *GPUS], ["None"]) is None


def test_of_an_instance_torch_may_give_its_own_uuid_or_that_of_its_gpu() -> None:
    assert [p.device for p in by_torch([DIVIDED], ["2222"]) or ()] == [SECOND]
    assert by_torch([DIVIDED], ["eeee5555-00"]) is None
    alone = Device("GPU-eeee5555-00", "A100", "handle", instances=(FIRST,))
    assert [p.device for p in by_torch([alone], ["eeee5555-00"]) or ()] == [FIRST]


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("MIG-1111", [FIRST]),
        ("MIG-2", [SECOND]),
        ("MIG-2222,MIG-1111", [SECOND, FIRST]),
        ("MIG-GPU-eeee5555-00/2/0", [SECOND]),
        ("MIG-GPU-eeee5555-00/3/0", []),
        ("MIG-GPU-eeee5555-00", []),
        ("MIG-", []),
        (None, [FIRST, SECOND]),
        ("4", [FIRST, SECOND]),
        ("0", [GPUS[0]]),
    ],
)
def test_instances_take_the_place_of_their_gpu(variable: str | None, expected: list[Device]) -> None:
    assert [p.device for p in by_variable([*GPUS, DIVIDED], variable, None)] == expected


def test_the_order_of_different_gpus_is_known_only_where_it_is_that_of_the_bus() -> None:
    assert seen("3,1", MIXED, "PCI_BUS_ID") == [3, 1]
    assert seen("GPU-d,GPU-c", MIXED) == [3, 2]
    assert by_variable(MIXED, "3,1", None) == []
    everything = by_variable(MIXED, None, "FASTEST_FIRST")
    assert [(p.torch_index, p.device) for p in everything] == [(None, gpu) for gpu in MIXED]
