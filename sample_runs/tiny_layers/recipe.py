"""Trains a net of small layers under BF16 autocast, to be faster.

Every weight, bias and input is cast before it is used, and every gradient cast back. On tensors this small an
operation takes as long as it takes to start, so the casts cost more time than half precision saves.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 32
LAYERS = 12
BATCH_SIZE = 16
LEARNING_RATE = 1e-3


def batch() -> tuple[Tensor, Tensor]:
    """Vectors and their sums."""
    x = torch.randn(BATCH_SIZE, WIDTH)
    return x, x.sum(1, keepdim=True)


def train(steps: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [module for _ in range(LAYERS) for module in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 1))
    for module in layers[::2]:
        nn.init.kaiming_normal_(module.weight)  # type: ignore[arg-type]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    for step in range(1, steps + 1):
        x, y = batch()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            predicted = model(x)
        loss = F.mse_loss(predicted.float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1 or step % 5 == 0:
            print(f"step {step}  loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=15, help="optimizer steps")
    train(parser.parse_args().steps)
