# kind:   HEALTHY: a second optimizer that is stepped only on iterations in which its part was used
# wrong:  nothing
# expect: healthy
# run:    healthy_optimizer_by_turns.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fp16"

torch.manual_seed(412)
trunk = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 4))
auxiliary = nn.Linear(4, 2)
of_trunk = torch.optim.SGD(trunk.parameters(), lr=0.1)
of_auxiliary = torch.optim.SGD(auxiliary.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=MODE == "fp16")
for step in range(80):
    x = torch.randn(64, 10)
    target = x[:, :4].argmax(1)
    of_trunk.zero_grad()
    of_auxiliary.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16, enabled=MODE == "fp16"):
        logits = trunk(x)
        loss = nn.functional.cross_entropy(logits, target)
        if step % 3 == 0:
            loss = loss + 0.1 * nn.functional.cross_entropy(auxiliary(logits), target % 2)
    scaler.scale(loss).backward()
    scaler.step(of_trunk)
    if any(p.grad is not None for p in auxiliary.parameters()):
        scaler.step(of_auxiliary)
    scaler.update()
print(f"final {loss.item():.4f}")
