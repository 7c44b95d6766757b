# kind:   HEALTHY: a frozen FP16 encoder that is fed in its own dtype, and an FP32 head that takes its output widened
# wrong:  nothing
# expect: healthy
# run:    healthy_half_encoder_cast_input.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fp16"

torch.manual_seed(508)
encoder = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16)).requires_grad_(False)
if MODE == "fp16":
    encoder.half()
head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9)
for _ in range(120):
    x = torch.randn(64, 16)
    with torch.no_grad():
        seen = encoder(x.to(encoder[0].weight.dtype)).float()
    loss = nn.functional.cross_entropy(head(seen), x[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"final {loss.item():.4f}")
