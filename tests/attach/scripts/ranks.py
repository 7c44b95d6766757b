"""Two ranks of a distributed training, started as torchrun would; they wait for `go` and `end` as train.py does."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def wait_for(name):
    print(f"waiting for {name}", flush=True)
    while not Path(name).exists():
        time.sleep(0.01)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    net = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(40):
        optimizer.zero_grad()
        net(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        if step == 4:
            wait_for("go")
    wait_for("end")
    # torch joins gloo's thread while it holds the GIL, which that thread may still want to free its last work
    time.sleep(1.0)
    dist.destroy_process_group()


if "RANK" in os.environ:
    main()
else:
    import subprocess

    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[1], "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen([sys.executable, __file__], env={**os.environ, **group, "RANK": str(rank)}) for rank in (0, 1)
    ]
    print(*(rank.pid for rank in ranks), flush=True)
    sys.exit(max(rank.wait() for rank in ranks))
