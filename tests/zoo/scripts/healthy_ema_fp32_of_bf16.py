# kind:   BF16 weights at a learning rate that moves them, an FP32 EMA of them, and a quick BF16 average beside it
# wrong:  nothing: the slow average is FP32, and a decay of 0.5 is coarse enough for BF16
# expect: healthy
# run:    healthy_ema_fp32_of_bf16.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

DTYPE = torch.float32 if sys.argv[1:] == ["fp32"] else torch.bfloat16

torch.manual_seed(313)
model = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 4)).to(DTYPE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
slow = [p.detach().float().clone() for p in model.parameters()]
quick = [p.detach().clone() for p in model.parameters()]
x = torch.randn(256, 10)
label = (x @ torch.randn(10, 4)).argmax(dim=1)
for step in range(120):
    rows = torch.randint(0, 256, (16,))
    loss = nn.functional.cross_entropy(model(x[rows].to(DTYPE)).float(), label[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for s, q, p in zip(slow, quick, model.parameters(), strict=True):
            s.mul_(0.999).add_(p.float(), alpha=0.001)
            q.lerp_(p, 0.5)
    if step % 40 == 0:
        print(f"step {step}: {loss.item():.4f}")
print(f"final {loss.item():.4e}")
