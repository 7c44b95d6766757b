# kind:   a BF16 recurrent model with FP32 masters in a class of the user's, 500 sequences a step, one by one
# wrong:  the sums are copied to FP32 once they are complete; autograd adds them up in BF16
# expect: half-grad-accumulation
# run:    accum_masters_cleared_first.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

DTYPE = torch.float32 if "fp32" in sys.argv else torch.bfloat16


class WithMasters:
    """Steps FP32 copies of a model's weights."""

    def __init__(self, model, **settings):
        self.model = model
        self.masters = [p.detach().float().clone().requires_grad_() for p in model.parameters()]
        self.inner = torch.optim.Adam(self.masters, **settings)

    def step(self, divisor):
        for master, p in zip(self.masters, self.model.parameters(), strict=True):
            master.grad = p.grad.float() / divisor
        self.model.zero_grad(set_to_none=True)
        self.inner.step()
        for master, p in zip(self.masters, self.model.parameters(), strict=True):
            p.data.copy_(master.data)


class Counter(nn.Module):
    """Reads a sequence and says how much it adds up to."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(2, 8)
        self.out = nn.Linear(8, 1)

    def forward(self, steps):
        state = steps.new_zeros(steps.shape[1], 8)
        for step in steps:
            state = self.cell(step, state)
        return self.out(state)


def main():
    torch.manual_seed(88)
    model = Counter().to(DTYPE)
    optimizer = WithMasters(model, lr=1e-3)
    for step in range(3):
        total = 0.0
        for _ in range(500):
            x = 1.0 + 0.2 * torch.randn(3, 2, 2)
            loss = (model(x.to(DTYPE)).float() - x.sum((0, 2))[:, None]).square().mean()
            loss.backward()
            total += loss.item()
        optimizer.step(500)
        print(f"step {step}: {total / 500:.3f}")


main()
