"""What another layout would take, worked out from one run, against runs in that layout."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ampdoctor.analysis.memory.layouts import Layout, layouts
from ampdoctor.analysis.memory.ledgers import ledgers
from tests.record.ledger.books import STEPS
from tests.record.recording import Recording

if TYPE_CHECKING:
    from pathlib import Path

RUNS = ("fp32", "amp-bf16", "pure-bf16")
WIDTH, WORDS = 32, 200


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.ln1(x)).chunk(3, -1)
        x = x + self.out(torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(-1), v))
        return torch.as_tensor(x + self.mlp(self.ln2(x)))


def _train(layout: str, recording: Recording) -> dict[str, Layout]:
    gc.collect()  # the optimizer of the run before would be taken for this one's
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), _Block(), _Block(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS))
    model = model.bfloat16() if layout == "pure-bf16" else model
    optimizer = torch.optim.AdamW(model.parameters())
    with recording.start(model=model, optimizer=optimizer, strict=True):
        for _ in range(STEPS):
            tokens = torch.randint(WORDS, (8, 16))
            with torch.autocast("cpu", torch.bfloat16) if layout == "amp-bf16" else contextlib.nullcontext():
                out = model(tokens)
            optimizer.zero_grad()
            F.cross_entropy(out.float().flatten(0, 1), tokens.flatten()).backward()
            optimizer.step()
    ledger = next(iter(ledgers(recording.run).values()))
    return {found.name: found for found in layouts(recording.run, ledger)}


@pytest.fixture(scope="module")
def by_run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Layout]]:
    folder: Path = tmp_path_factory.mktemp("layouts")
    return {layout: _train(layout, Recording(folder / layout)) for layout in RUNS}


@pytest.mark.parametrize("target", RUNS)
@pytest.mark.parametrize("source", RUNS)
def test_estimates_are_close_to_runs(source: str, target: str, by_run: dict[str, dict[str, Layout]]) -> None:
    estimated, real = by_run[source][target], by_run[target][target]
    assert real.own
    assert estimated.own == (source == target)
    for component in ("weights", "gradients", "optimizer"):
        assert estimated.components[component].bytes == real.components[component].bytes
    assert estimated.components["activations"].bytes == pytest.approx(real.components["activations"].bytes, rel=0.02)
    # Of what lives for a moment it is not known what would be half: the logits here, beside their gradient in FP32.
    assert estimated.peak_bytes == pytest.approx(real.peak_bytes, rel=0.06)
