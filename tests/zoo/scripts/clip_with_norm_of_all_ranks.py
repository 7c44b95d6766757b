# kind:   the norm is taken first, to be shared with other ranks, and the gradients are clipped by it
# wrong:  both are of gradients times the loss scale, for nothing unscales them before
# expect: clip-before-unscale
# run:    clip_with_norm_of_all_ranks.py [fp32|fixed]
import sys

import torch
from torch import nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


def norm_over_ranks(parameters):
    # One rank only: an all_reduce of its square would follow.
    return get_total_norm([p.grad for p in parameters if p.grad is not None])


def main():
    torch.manual_seed(7)
    net = nn.Sequential(
        nn.Conv1d(1, 12, 5, padding=2), nn.BatchNorm1d(12), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(),
        nn.Linear(48, 3),
    )  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**13, enabled=MODE != "fp32")
    for step in range(60):
        kind = torch.randint(0, 3, (24,))
        time = torch.linspace(0, 6.3, 32)
        wave = torch.sin(time * (1.0 + kind[:, None])) + 0.1 * torch.randn(24, 32)
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            loss = nn.functional.cross_entropy(net(wave[:, None]), kind)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        if MODE == "fixed":
            scaler.unscale_(optimizer)
        clip_grads_with_norm_(net.parameters(), 1.0, norm_over_ranks(list(net.parameters())))
        scaler.step(optimizer)
        scaler.update()
        if step % 20 == 19:
            print(f"step {step + 1}: {loss.item():.4f}")


main()
