"""What tests of twins share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from torch import nn

from ampdoctor.record.twin.local import measures, sums
from tests.record.twin.replaying import Keeper

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["host", "device"])
def way_of_measuring(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure local twins as on the CPU, and as on a device that is not to be waited for."""
    if request.param == "device":
        for module in (measures, sums):
            monkeypatch.setattr(module, "_on_cpu", module._on_device)


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    """Keeps the steps of a training; nothing of it is left on torch's own classes."""
    keeper = Keeper()
    yield keeper
    keeper.kept.remove()
    assert "__call__" not in vars(nn.Sequential)
