"""Trains with loader workers, forked and spawned, and with processes of its own beside."""

import multiprocessing
import os
import subprocess
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset


def report(queue):
    model = torch.nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    queue.put(os.getpid())


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(8, 2), torch.zeros(8, 1))
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = 0
    for start in ("fork", "spawn"):
        for x, y in DataLoader(data, 4, num_workers=1, multiprocessing_context=start):
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()
            steps += 1
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=report, args=(queue,))
    process.start()
    queue.get()
    process.join()
    subprocess.run([sys.executable, "-c", "print('a child')"], check=True)
    print(steps, process.exitcode, model.weight.tolist())


if __name__ == "__main__":
    main()
