"""Twins on other CUDA streams than the one that they were allocated on; streams are stand-ins here."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ampdoctor.record.twin import carried, storages, streams
from ampdoctor.record.twin.carried import CarriedTwin
from ampdoctor.record.twin.counterfactual import FP32
from ampdoctor.record.twin.operations import Operation, traits_of
from ampdoctor.record.twin.place import NOWHERE, Place
from tests.record.twin.beside import half


class Device:
    """What is current on it, and what its allocator was told."""

    def __init__(self) -> None:
        self.current = "main"
        self.told: list[tuple[int, str]] = []


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """Take the CPU for a device with streams."""
    found = Device()

    def record(tensor: torch.Tensor, stream: str) -> None:
        found.told.append((tensor.untyped_storage()._cdata, stream))

    for module in (storages, streams):
        monkeypatch.setattr(module, "stream_of", lambda device: found.current)
    monkeypatch.setattr(streams, "record", record)
    monkeypatch.setattr(carried, "record", record)
    return found


def twin_of(tensor: torch.Tensor) -> CarriedTwin:
    """Return a world in which `tensor` has a twin."""
    twin = CarriedTwin(FP32)
    twin.replace(tensor, tensor.float())
    return twin


def test_use_on_another_stream_is_told(device: Device) -> None:
    tensor = half(4)
    twin = twin_of(tensor)
    twin.values(tensor)
    assert device.told == []
    device.current = "side"
    memory = twin.values(tensor).untyped_storage()._cdata
    assert device.told == [(memory, "side")]


def test_what_the_user_tells_is_told_of_the_twin_as_well(device: Device) -> None:
    tensor = half(4)
    twin = twin_of(tensor)
    function: Any = torch.ops.aten.record_stream.default
    for known in (tensor, half(4)):
        operation = Operation(
            function, (known, "user's"), {}, traits_of(function), Place(None, False, NOWHERE)
        )  # fmt: skip
        assert twin.before(operation) is None
    assert device.told == [(twin.values(tensor).untyped_storage()._cdata, "user's")]


def test_on_the_cpu_there_are_no_streams() -> None:
    tensor = half(4)
    twin = twin_of(tensor).storages.of(tensor)
    assert twin is not None
    assert twin.stream is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_side_stream_on_a_device() -> None:
    tensor = half(1 << 20).cuda()
    twin, side = twin_of(tensor), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        total = twin.values(tensor).sum()
    twin.storages.forget(tensor)
    torch.full((1 << 20,), 7.0, device="cuda")
    side.synchronize()
    assert torch.equal(total, tensor.float().sum())
