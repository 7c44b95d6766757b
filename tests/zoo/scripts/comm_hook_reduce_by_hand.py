# kind:   gradients averaged over the ranks by hand, in FP16 to save bandwidth
# wrong:  a loss averaged over many pixels has gradients of 1e-9: FP16 makes them zero before they are sent
# expect: comm-hook-underflow
# run:    comm_hook_reduce_by_hand.py [fixed]
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)

DTYPE = torch.float32 if "fixed" in sys.argv else torch.float16


def average(model):
    for parameter in model.parameters():
        sent = parameter.grad.to(DTYPE)
        dist.all_reduce(sent)
        parameter.grad.copy_(sent / dist.get_world_size())


class Worker:
    def __init__(self):
        torch.manual_seed(51)
        self.model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GELU(), nn.Conv2d(8, 1, 3, padding=1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, eps=1e-12)

    def train(self, steps):
        for _ in range(steps):
            image = torch.rand(4, 1, 24, 24)
            target = image.roll(1, dims=-1)
            loss = 3e-8 * (self.model(image) - target).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            average(self.model)
            self.optimizer.step()
        return loss.item()


def main():
    store = Path(tempfile.mkdtemp()) / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    try:
        print(Worker().train(12))
    finally:
        # torch joins gloo's thread while it holds the GIL, which that thread may still want to free its last work
        time.sleep(0.5)
        dist.destroy_process_group()


main()
