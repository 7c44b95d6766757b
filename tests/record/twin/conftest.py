"""What tests of twins share."""

from __future__ import annotations

import pytest

from ampdoctor.record.twin.local import measures, sums


@pytest.fixture(params=["host", "device"])
def way_of_measuring(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure local twins as on the CPU, and as on a device that is not to be waited for."""
    if request.param == "device":
        for module in (measures, sums):
            monkeypatch.setattr(module, "_on_cpu", module._on_device)
