# kind:   scaler that tries the next scale every 40 steps and finds it too high each time
# wrong:  nothing: one skip per growth interval is how dynamic scaling probes its limit
# expect: healthy
# run:    healthy_one_skip_per_growth.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"


def train(steps=200):
    torch.manual_seed(215)
    model = nn.Sequential(nn.Linear(10, 40), nn.Softplus(), nn.Linear(40, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**18, growth_interval=40, enabled=MODE != "fp32")
    plane = torch.randn(10)
    skipped = []
    for step in range(steps):
        x = torch.randn(64, 10)
        target = torch.stack([x @ plane, (x @ plane).abs()], dim=1)
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            loss = nn.functional.smooth_l1_loss(model(x), target)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() < scale:
            skipped.append(step)
    print(f"skipped {skipped}, scale {scaler.get_scale():g}")
    return loss.item()


if __name__ == "__main__":
    print(f"final {train():.4e}")
