# kind:   a block around the whole loop with cache_enabled=False, then one around the micro-batches of each step
# wrong:  nothing: no copy of a weight outlives a step
# expect: healthy
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(17)
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)


def loss_of(x):
    return nn.functional.mse_loss(model(x).float(), x.sum(1, keepdim=True))


with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
    for _ in range(20):
        loss = loss_of(torch.randn(32, 8))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
for _ in range(20):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = [loss_of(torch.randn(16, 8)) for _ in range(3)]
    for loss in losses:
        (loss / 3).backward()
    optimizer.step()
print(loss.item())
