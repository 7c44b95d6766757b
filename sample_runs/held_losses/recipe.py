"""Keeps the losses of an epoch as tensors, to print their mean.

Each of them holds on to the graph of its step, so memory grows with every step until the epoch is over.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 3
LENGTH = 16
BATCH_SIZE = 24
EPOCH = 60
LEARNING_RATE = 3e-3


def batch(means: Tensor) -> tuple[Tensor, Tensor]:
    """Signals around the means of their classes."""
    labels = torch.randint(CLASSES, (BATCH_SIZE,))
    return means[labels] + torch.randn(BATCH_SIZE, 2, LENGTH), labels


def train(epochs: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(2, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * (LENGTH - 2), CLASSES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    means = torch.randn(CLASSES, 2, LENGTH)
    for epoch in range(1, epochs + 1):
        losses = []
        for _ in range(EPOCH):
            x, labels = batch(means)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss)  # loss.detach() cures it
        print(f"epoch {epoch}  loss {torch.stack(losses).mean().item():.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1, help="of 60 optimizer steps")
    train(parser.parse_args().epochs)
