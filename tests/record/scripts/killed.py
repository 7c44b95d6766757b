"""Forks trainings that record themselves, and kills each with SIGKILL when it has written a little more."""

import gc
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from ampdoctor.record import background
from ampdoctor.record.recorder import Recorder
from ampdoctor.trace.writer import prepare_folder

BYTES = 5003


def train(folder, steps):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters())
    with Recorder(folder, every=1, strict=True):
        for _ in range(steps):
            optimizer.zero_grad()
            F.mse_loss(model(torch.ones(2, 8)), torch.zeros(2, 1)).backward()
            optimizer.step()


def written(folder):
    return sum(path.stat().st_size for path in folder.glob("*.arrows"))


def main(place, count):
    background.SOON = background.LATER = 0.0
    # Torch imports half of itself on the first step: the children have that behind them.
    prepare_folder(Path(place) / "first")
    train(Path(place) / "first", 2)
    gc.collect()
    gc.freeze()
    for number in range(count):
        folder = Path(place) / str(number)
        prepare_folder(folder)
        child = os.fork()
        if child == 0:
            train(folder, sys.maxsize)
        while written(folder) < BYTES * number:
            time.sleep(0.0005)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
