# kind:   FP16 autocast with large activations, done with care: FP32 norm, scaled queries, epsilons that FP16 has
# right:  nothing overflows, no epsilon is lost where it counts, exp(-large) rounds to zero and means zero
# expect: healthy
# run:    healthy_careful_forward.py [fp32]
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(404)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"


class CarefulBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        h = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-8)).to(x.dtype) * self.gain
        q, k, v = self.q(h), self.k(h), self.v(h)
        q = F.normalize(q, dim=-1, eps=1e-4)  # padding rows would divide by zero with 1e-12
        k = F.normalize(k, dim=-1, eps=1e-4)
        return h + (8.0 * q @ k.transpose(-1, -2)).softmax(-1) @ v


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rise = nn.Linear(5, 32)
        nn.init.normal_(self.rise.weight, std=700.0)
        self.block = CarefulBlock(32)
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.block(self.rise(x)).mean(1))


net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=MODE != "fp32")
centres = torch.randn(4, 1, 5)
for step in range(30):
    kind = torch.randint(0, 4, (16,))
    with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
        logits = net(centres[kind] + 0.3 * torch.randn(16, 6, 5))
        log_p = F.log_softmax(logits.float(), dim=-1)
    entropy = -(log_p.exp() * log_p).sum(-1).mean()
    loss = F.nll_loss(log_p, kind) - 0.01 * entropy
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
print(f"final {loss.item():.4f}")
