# kind:   BF16 weights at a learning rate that moves them; the gradients of 8 micro-batches are added up in BF16
# wrong:  nothing: eight of them fit well into 8 bits
# expect: healthy
# run:    healthy_bf16_short_accumulation.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

DTYPE = torch.float32 if sys.argv[1:] == ["fp32"] else torch.bfloat16

torch.manual_seed(317)
model = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 3)).to(DTYPE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.4)
x = torch.randn(512, 12)
label = (x @ torch.randn(12, 3)).argmax(dim=1)
for step in range(60):
    optimizer.zero_grad()
    total = 0.0
    for _ in range(8):
        rows = torch.randint(0, 512, (8,))
        loss = nn.functional.cross_entropy(model(x[rows].to(DTYPE)).float(), label[rows]) / 8
        loss.backward()
        total += loss.item()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step}: {total:.4f}")
print(f"final {total:.4e}")
