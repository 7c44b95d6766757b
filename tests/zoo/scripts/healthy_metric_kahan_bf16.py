# kind:   a running loss kept in BF16 by Kahan summation, and a BF16 sum that is cleared every 20 steps
# wrong:  nothing: what rounding takes is added later, and the short sum does not fill up
# expect: healthy
# run:    healthy_metric_kahan_bf16.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

DTYPE = torch.float32 if sys.argv[1:] == ["fp32"] else torch.bfloat16


class KahanSum:
    def __init__(self):
        self.total = torch.zeros((), dtype=DTYPE)
        self.lost = torch.zeros((), dtype=DTYPE)

    def add(self, value):
        value = value.to(DTYPE) - self.lost
        total = self.total + value
        self.lost = (total - self.total) - value
        self.total = total


torch.manual_seed(320)
model = nn.Sequential(nn.Linear(8, 24), nn.SiLU(), nn.Linear(24, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
whole, short = KahanSum(), torch.zeros((), dtype=DTYPE)
for step in range(600):
    x, label = torch.randn(16, 8), torch.randint(0, 4, (16,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(x)
    loss = nn.functional.cross_entropy(logits.float(), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    whole.add(loss.detach())
    short += loss.detach().to(DTYPE)
    if step % 20 == 19:
        short.zero_()
print(f"mean {whole.total.item() / 600:.4f}")
