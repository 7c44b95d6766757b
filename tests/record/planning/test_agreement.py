"""A plan against the ledger of a live run on the CPU."""

from __future__ import annotations

import gc
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import torch

from ampdoctor.record.ledger.look import FIRST
from ampdoctor.record.planning.layouts import LAYOUTS
from ampdoctor.record.planning.optimizers import OPTIMIZERS
from tests.record.planning.models import Transformer, planned, tokens, transformer

if TYPE_CHECKING:
    from tests.record.recording import Recording

BATCH = 8


def live_peak(recording: Recording, layout: str, optimizer_name: str) -> Counter[str]:
    """Train under the recorder and return the components at the peak of a step."""
    gc.collect()  # optimizers of other tests would be taken for this one's
    half, weights = LAYOUTS[layout].autocast, getattr(torch, LAYOUTS[layout].weights)
    model = Transformer().to(weights)
    optimizer = OPTIMIZERS[optimizer_name].make(list(model.parameters()), False)
    with recording.start(model=model, optimizer=optimizer, strict=True):
        for _ in range(FIRST + 2):
            x, y = tokens(BATCH)
            with torch.autocast("cpu", getattr(torch, half or "bfloat16"), enabled=half is not None):
                loss = model(x, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    rows = [row for row in recording.run.memory if row.phase == "peak"]
    found: Counter[str] = Counter()
    for row in rows:
        if row.step == rows[0].step:
            found[row.component] += row.bytes
    return found


@pytest.mark.parametrize("layout", ["fp32", "amp-bf16", "pure-bf16"])
@pytest.mark.parametrize("optimizer", ["adamw", "adamw-fused", "sgd-momentum"])
def test_each_component_is_that_of_a_live_run(recording: Recording, layout: str, optimizer: str) -> None:
    live = live_peak(recording, layout, optimizer)
    memory = planned(transformer, layout, optimizer, BATCH)
    assert memory.peak_bytes == pytest.approx(live.total(), rel=0.05)
    for component, size in memory.components.items():
        assert size == pytest.approx(live[component], rel=0.01), component
