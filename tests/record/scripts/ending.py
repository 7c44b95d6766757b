"""Trains three steps and ends in the way it is told to.

By hand, because torch takes a second to import what an optimizer needs.
"""

import os
import sys
import time

import torch


def train(steps, weight):
    for step in range(steps):
        loss = (weight * torch.ones(3) - 1.0).square().sum()
        loss.backward()
        with torch.no_grad():
            weight -= 0.1 * weight.grad
        weight.grad = None
        print("step", step, float(loss.detach()), flush=True)


def chained(loss):
    try:
        loss.backward()
        loss.backward()
    except RuntimeError as error:
        raise ValueError("chained") from error


def main(how):
    torch.manual_seed(0)
    weight = torch.randn(3, requires_grad=True)
    train(3, weight)
    loss = (weight * torch.tensor(2.0)).sum()
    if how == "exit 3":
        sys.exit(3)
    if how == "chained":
        chained(loss)
    if how == "in step":
        optimizer = torch.optim.SGD([weight], lr=0.1)
        optimizer.param_groups[0]["lr"] = "much"
        loss.backward()
        optimizer.step()
    if how == "in unscale":
        optimizer = torch.optim.SGD([weight], lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.unscale_(optimizer)
    if how == "own hook":
        sys.excepthook = lambda kind, error, trace: print("own hook:", error, file=sys.stderr)
        raise ValueError("the user's own")
    if how == "os._exit":
        os._exit(4)
    if how == "wait":
        while True:
            time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1])
