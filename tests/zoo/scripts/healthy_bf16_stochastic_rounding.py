# kind:   BF16 weights at a learning rate of 1e-4, with an optimizer that rounds stochastically
# wrong:  nothing: most weights keep their value on a given step, but on average they move as in FP32
# expect: healthy
# run:    healthy_bf16_stochastic_rounding.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"


def round_stochastically(value):
    """FP32 to BF16: the 16 bits that go decide, by chance, whether the last one that stays goes up."""
    bits = value.view(torch.int32)
    bits = bits + torch.randint_like(bits, 1 << 16)
    return (bits & -65536).view(torch.float32).to(torch.bfloat16)


class StochasticAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99)):
        super().__init__(params, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure=None):
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(p, group["lr"], *group["betas"])
        return loss

    def update(self, p, lr, beta1, beta2):
        state = self.state[p]
        if not state:
            state["steps"] = 0
            state["mean"] = torch.zeros_like(p, dtype=torch.float32)
            state["square"] = torch.zeros_like(p, dtype=torch.float32)
        state["steps"] += 1
        grad = p.grad.float()
        state["mean"].lerp_(grad, 1 - beta1)
        state["square"].lerp_(grad.square(), 1 - beta2)
        mean = state["mean"] / (1 - beta1 ** state["steps"])
        square = state["square"] / (1 - beta2 ** state["steps"])
        new = p.float() - lr * mean / (square.sqrt() + 1e-8)
        p.copy_(round_stochastically(new) if p.dtype == torch.bfloat16 else new)


def main():
    torch.manual_seed(213)
    dtype = torch.float32 if MODE == "fp32" else torch.bfloat16
    teacher = nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 4))
    model = nn.Sequential(nn.Linear(16, 128), nn.SiLU(), nn.Linear(128, 4)).to(dtype)
    optimizer = StochasticAdam(model.parameters())
    x = torch.randn(256, 16)
    with torch.no_grad():
        y = 3.0 * teacher(x)

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x.to(dtype)).float(), y)
        loss.backward()
        return loss

    for step in range(300):
        loss = optimizer.step(closure=torch.enable_grad()(closure))
        if step % 60 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"final {loss.item():.4e}")


if __name__ == "__main__":
    main()
