# kind:   a data-parallel step by hand: a thread for each half of the batch, gradients summed by autograd
# wrong:  a new thread starts without autocast: the replicas run in FP32
# expect: autocast-not-active
import threading

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(50, 16), nn.GRU(16, 24, batch_first=True))
head = nn.Linear(24, 50)
params = [*model.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(params, lr=0.3, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)


def replica(tokens, outs, index):
    hidden, _ = model(tokens)
    outs[index] = head(hidden)


for _ in range(20):
    tokens = torch.randint(0, 50, (8, 7))
    optimizer.zero_grad()
    outs = [None, None]
    with torch.autocast(device_type="cpu", dtype=torch.float16):
        threads = [
            threading.Thread(target=replica, args=(part[:, :-1], outs, i)) for i, part in enumerate(tokens.chunk(2))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        logits = torch.cat(outs)
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(loss.item())
