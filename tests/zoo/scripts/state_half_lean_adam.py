# kind:   FP32 weights, BF16 autocast, and a "memory-lean" Adam that keeps both of its moments in BF16
# wrong:  the second moment never comes down from the large gradients of the first steps: the run crawls later
# expect: optimizer-state-half
# run:    state_half_lean_adam.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
STATE = torch.bfloat16 if MODE == "fault" else torch.float32


class LeanAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, decay=(0.9, 0.999)):
        super().__init__(params, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            first, second = group["decay"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["t"] = 0
                    state["m"] = torch.zeros_like(p, dtype=STATE)
                    state["s"] = torch.zeros_like(p, dtype=STATE)
                state["t"] += 1
                state["m"].mul_(first).add_(p.grad.to(STATE), alpha=1 - first)
                state["s"].mul_(second).add_(p.grad.square().to(STATE), alpha=1 - second)
                m = state["m"].float() / (1 - first ** state["t"])
                s = state["s"].float() / (1 - second ** state["t"])
                p.sub_(group["lr"] * m / (s.sqrt() + 1e-8))


def main():
    torch.manual_seed(307)
    model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 24))
    optimizer = LeanAdam(model.parameters(), lr=1e-2)
    x = torch.randn(128, 24)
    y = 6.0 + 4.0 * x.roll(1, dims=1)
    for step in range(600):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=MODE != "fp32"):
            guess = model(x)
        loss = nn.functional.mse_loss(guess.float(), y, reduction="none").sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"final {loss.item():.4e}")


if __name__ == "__main__":
    main()
