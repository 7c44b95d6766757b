"""Two ranks train the same few steps: `alike.py HOW`, where HOW says who starts and who records them."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

import ampdoctor

HOW = sys.argv[1]
STEPS = 3


def train(rank: int) -> None:
    """Train as this rank; with "raises" the second one fails."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(rank)
    recorder = ampdoctor.watch(model, out=sys.argv[2]).start() if HOW == "watched" else None
    for step in range(STEPS):
        loss = model(torch.randn(3, 4, generator=data)).square().mean()
        if HOW == "raises" and rank == 1 and step == STEPS - 1:
            raise ValueError("a row that is too long")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sys.stdout.write(f"rank {rank} step {step} loss {loss.item()!r}\n")
        sys.stdout.flush()
    if recorder is not None:
        recorder.stop()


def spawned(rank: int, port: str) -> None:
    """Be a rank that no launcher has told of it."""
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    train(rank)
    # torch joins gloo's thread while it holds the GIL, which that thread may still want to free its last work
    time.sleep(1.0)
    dist.destroy_process_group()


if __name__ == "__main__":
    if HOW == "spawned":
        multiprocessing.spawn(spawned, args=(sys.argv[2],), nprocs=2)
    else:
        dist.init_process_group("gloo")
        train(int(os.environ["RANK"]))
        # torch joins gloo's thread while it holds the GIL, which that thread may still want to free its last work
        time.sleep(1.0)
        dist.destroy_process_group()
