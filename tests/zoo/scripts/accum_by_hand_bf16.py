# kind:   per-sample gradients from torch.autograd.grad, added up by hand in BF16 buffers over 600 samples a step
# wrong:  late samples are added to a sum that no longer takes them
# expect: half-grad-accumulation
# run:    accum_by_hand_bf16.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

SUMS = torch.bfloat16 if sys.argv[1:] == [] else torch.float32


def clipped(gradients, limit=1.0):
    norm = torch.stack([g.square().sum() for g in gradients]).sum().sqrt()
    return [g * (limit / norm).clamp(max=1.0) for g in gradients]


def main():
    torch.manual_seed(314)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    weights = list(model.parameters())
    optimizer = torch.optim.SGD(weights, lr=1e-3)
    for step in range(6):
        sums = [torch.zeros_like(w, dtype=SUMS) for w in weights]
        total = 0.0
        for _ in range(600):
            x = 1.0 + 0.2 * torch.randn(1, 8)
            loss = (model(x) - 20.0).square().mean()
            for s, g in zip(sums, clipped(torch.autograd.grad(loss, weights)), strict=True):
                s.add_(g.to(SUMS))
            total += loss.item()
        for w, s in zip(weights, sums, strict=True):
            w.grad = s.to(w.dtype) / 600
        optimizer.step()
        print(f"step {step}: {total / 600:.4f}")


main()
