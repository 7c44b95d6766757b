# kind:   Charbonnier loss sqrt(d^2 + 1e-8) in FP16: where prediction and target agree, the derivative is infinite
# wrong:  the loss is finite, the gradients are NaN on every step, the scale falls
# expect: eps-underflow
# run:    eps_sqrt_gradient_only.py [fp32|fixed]
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(90)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
EPS = 1e-3 if MODE == "fixed" else 1e-8


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Conv1d(1, 12, 5, padding=2)
        self.outer = nn.Conv1d(12, 1, 5, padding=2)

    def forward(self, noisy):
        return F.relu(self.outer(F.relu(self.inner(noisy))))


def charbonnier(output, clean):
    return torch.sqrt((output - clean) ** 2 + EPS).mean()


model = Denoiser()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0, enabled=MODE != "fp32")
for step in range(30):
    clean = F.relu(torch.randn(8, 1, 40))  # half of it is zero, as is half of a ReLU's output
    noisy = clean + 0.2 * torch.randn_like(clean)
    with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
        output = model(noisy)
        loss = charbonnier(output, clean.to(output.dtype))
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 6 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
