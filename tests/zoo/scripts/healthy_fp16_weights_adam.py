# kind:   FP16 weights trained with Adam whose eps is large enough for FP16, at a learning rate that moves them
# wrong:  nothing: the second moment is 0 for small gradients, but eps is not
# expect: healthy
# run:    healthy_fp16_weights_adam.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"
DTYPE = torch.float32 if MODE == "fp32" else torch.float16

torch.manual_seed(306)
model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 3)).to(DTYPE)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, eps=1e-3)
x = torch.randn(200, 10)
label = (x @ torch.randn(10, 3)).argmax(dim=1)
for step in range(60):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x.to(DTYPE)).float(), label, reduction="sum")
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step}: {loss.item() / 200:.4f}")
print(f"final {loss.item() / 200:.4e}")
