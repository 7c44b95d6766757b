"""A training that each framework is given: a tiny model, three batches, and a scaler for FP16 on the CPU."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.record.training import Outcome

STEPS, BATCH, FEATURES, CLASSES = 3, 4, 8, 4

SCALE = 1024.0


class Tiny(nn.Module):
    """Returns its loss, and keeps every one; raises on step `fails_on`."""

    def __init__(self, fails_on: int | None = None) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, 16), nn.Linear(16, CLASSES)
        self.losses: list[torch.Tensor] = []
        self._fails_on = fails_on

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        if len(self.losses) == self._fails_on:
            raise ValueError("what the user has got wrong")
        loss = F.cross_entropy(self.last(torch.relu(self.first(x))).float(), labels)
        self.losses.append(loss.detach().clone())
        return {"loss": loss}

    def outcome(self) -> Outcome:
        """Return all that came out of the training, by its bits."""
        return Outcome.of(losses=self.losses, parameters=list(self.parameters()))


def examples() -> list[dict[str, torch.Tensor]]:
    """Return the examples of all batches, the same ones each time."""
    generator = torch.Generator().manual_seed(1)
    return [
        {"x": torch.randn(FEATURES, generator=generator), "labels": torch.tensor(i % CLASSES)}
        for i in range(STEPS * BATCH)
    ]


def batches() -> list[dict[str, torch.Tensor]]:
    """Return the examples by batches."""
    rows = examples()
    parts = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
    return [{key: torch.stack([row[key] for row in part]) for key in part[0]} for part in parts]


def scaler() -> torch.amp.GradScaler:
    """Return a scaler whose scale these steps neither overflow nor outgrow."""
    return torch.amp.GradScaler("cpu", init_scale=SCALE)


def framework(name: str) -> Any:
    """Import a framework, or skip the tests without it; frameworks warn of each other, and of torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(name.partition(".")[0])
        return importlib.import_module(name)


def loaded(*names: str) -> Any:
    """Return a fixture that imports frameworks before any test of a file looks at the process: they change it too."""

    @pytest.fixture(scope="module", autouse=True)
    def load() -> None:
        for name in names:
            framework(name)

    return load
