"""Trains wide layers on a few rows at a time, under BF16 autocast to save memory.

Weights, gradients and moments stay in FP32. The half copies that autocast makes of the weights take more than the
smaller activations save.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 1536
CLASSES = 16
BATCH_SIZE = 4  # 4096 cures it
LEARNING_RATE = 1e-3


def batch(means: Tensor) -> tuple[Tensor, Tensor]:
    """Points around the means of their classes."""
    labels = torch.randint(CLASSES, (BATCH_SIZE,))
    return means[labels] + torch.randn(BATCH_SIZE, WIDTH), labels


def train(steps: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    means = torch.randn(CLASSES, WIDTH)
    for step in range(1, steps + 1):
        x, labels = batch(means)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1 or step % 5 == 0:
            print(f"step {step}  loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=15, help="optimizer steps")
    train(parser.parse_args().steps)
