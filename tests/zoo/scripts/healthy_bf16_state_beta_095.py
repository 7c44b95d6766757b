# kind:   FP32 weights with Adam's moments in BF16, at betas (0.9, 0.95) as large models are trained with
# wrong:  nothing: a twentieth of the second moment is many times what BF16 can resolve, so it decays
# expect: healthy
# run:    healthy_bf16_state_beta_095.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

STATE = torch.float32 if sys.argv[1:] == ["fp32"] else torch.bfloat16


class LeanAdam(torch.optim.Optimizer):
    def __init__(self, params, lr, betas):
        super().__init__(params, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p, dtype=STATE)
                    state["exp_avg_sq"] = torch.zeros_like(p, dtype=STATE)
                state["step"] += 1
                state["exp_avg"].lerp_(p.grad.to(STATE), 1 - beta1)
                state["exp_avg_sq"].lerp_(p.grad.square().to(STATE), 1 - beta2)
                mean = state["exp_avg"].float() / (1 - beta1 ** state["step"])
                square = state["exp_avg_sq"].float() / (1 - beta2 ** state["step"])
                p.sub_(group["lr"] * mean / (square.sqrt() + 1e-8))


torch.manual_seed(309)
model = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 12))
optimizer = LeanAdam(model.parameters(), lr=2e-3, betas=(0.9, 0.95))
x = torch.randn(96, 12)
for step in range(300):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(model(x).float(), 3.0 * x.flip(1) + 2.0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step}: {loss.item():.4f}")
print(f"final {loss.item():.4e}")
