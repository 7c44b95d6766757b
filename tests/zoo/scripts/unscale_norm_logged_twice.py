# kind:   one helper clips, another one logs the gradient norm, and both unscale first
# wrong:  the second unscale_ of the first iteration raises; the script prints it and leaves the loop
# expect: unscale-twice
# run:    unscale_norm_logged_twice.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


def clip(model, optimizer, scaler):
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_value_(model.parameters(), 1.0)


def gradient_norm(model, optimizer, scaler):
    if MODE != "fixed":
        scaler.unscale_(optimizer)
    return torch.stack([p.grad.norm() for p in model.parameters()]).norm().item()


def main():
    torch.manual_seed(408)
    encoder = nn.Sequential(nn.Linear(20, 12), nn.SiLU(), nn.Linear(12, 3))
    decoder = nn.Sequential(nn.Linear(3, 12), nn.SiLU(), nn.Linear(12, 20))
    model = nn.Sequential(encoder, decoder)
    optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2048.0, enabled=MODE != "fp32")
    base = torch.randn(3, 20)
    for step in range(50):
        x = torch.randn(64, 3) @ base
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            loss = nn.functional.mse_loss(model(x), x)
        scaler.scale(loss).backward()
        try:
            clip(model, optimizer, scaler)
            norm = gradient_norm(model, optimizer, scaler)
        except RuntimeError as error:
            print("stopped:", error)
            break
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.4f}, norm {norm:.3f}")


main()
