# kind:   DistributedDataParallel with fp16_compress_hook and gradients accumulated over 4 micro-batches
# wrong:  the loss is divided by all tokens of a large batch, and what the hook sends is below 2^-24
# expect: comm-hook-underflow
# run:    comm_hook_fp16_language_model.py [fixed]
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class LanguageModel(nn.Module):
    def __init__(self, words=60, width=32):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.rnn = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


def run():
    torch.manual_seed(52)
    model = DistributedDataParallel(LanguageModel())
    if "fixed" not in sys.argv:
        model.register_comm_hook(state=None, hook=fp16_compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=3e5)
    tokens_in_batch = 4_000_000
    for _ in range(8):
        for _ in range(4):
            ids = torch.randint(0, 60, (4, 9))
            logits = model(ids[:, :-1]).flatten(0, 1)
            loss = nn.functional.cross_entropy(logits, ids[:, 1:].flatten(), reduction="sum")
            (loss / tokens_in_batch / 100).backward()
        optimizer.step()
        optimizer.zero_grad()
    print(loss.item())


os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "29541", "RANK": "0", "WORLD_SIZE": "1"}
dist.init_process_group("gloo")
run()
# torch joins gloo's thread while it holds the GIL, which that thread may still want to free its last work
time.sleep(0.5)
dist.destroy_process_group()
