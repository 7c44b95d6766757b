"""Trains with an Adam that keeps its moments in BF16, to save memory.

The second moment decays by a factor of 0.999 a step. BF16 has 8 bits: that rounds back to what it was, so the large
gradients of the first steps are never forgotten, and the steps stay too small.
"""

import argparse
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FEATURES = 24
BATCH_SIZE = 128
LEARNING_RATE = 1e-2
DECAY = (0.9, 0.999)
STATE = torch.bfloat16  # torch.float32 cures it


class LeanAdam(torch.optim.Optimizer):
    """Adam without weight decay."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                self._update(parameter, group["lr"])

    def _update(self, parameter: nn.Parameter, lr: float) -> None:
        state, gradient = self.state[parameter], parameter.grad
        if gradient is None:
            return
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter, dtype=STATE)
            state["exp_avg_sq"] = torch.zeros_like(parameter, dtype=STATE)
        first, second = DECAY
        state["step"] += 1
        state["exp_avg"].mul_(first).add_(gradient.to(STATE), alpha=1 - first)
        state["exp_avg_sq"].mul_(second).add_(gradient.square().to(STATE), alpha=1 - second)
        mean = state["exp_avg"].float() / (1 - first ** state["step"])
        square = state["exp_avg_sq"].float() / (1 - second ** state["step"])
        parameter.sub_(lr * mean / (square.sqrt() + 1e-8))


def batch() -> tuple[Tensor, Tensor]:
    """Vectors, and the same turned by one place, far away from zero."""
    x = torch.randn(BATCH_SIZE, FEATURES)
    return x, 6.0 + 4.0 * x.roll(1, dims=1)


def train(steps: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, FEATURES))
    optimizer = LeanAdam(model.parameters(), lr=LEARNING_RATE)
    x, y = batch()
    for step in range(1, steps + 1):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            predicted = model(x)
        loss = F.mse_loss(predicted.float(), y, reduction="none").sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1 or step % 100 == 0:
            print(f"step {step}  loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600, help="optimizer steps")
    train(parser.parse_args().steps)
