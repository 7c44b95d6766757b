# kind:   DistributedDataParallel with fp16_compress_hook and gradients between 1e-4 and 1
# fine:   FP16 holds them
# expect: healthy
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

torch.set_num_threads(1)

torch.manual_seed(53)
dist.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/store", rank=0, world_size=1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 3)))
model.register_comm_hook(None, default_hooks.fp16_compress_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    x = torch.randn(64, 10)
    loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
# torch joins gloo's thread while it holds the GIL, which that thread may still want to free its last work
time.sleep(0.5)
dist.destroy_process_group()
