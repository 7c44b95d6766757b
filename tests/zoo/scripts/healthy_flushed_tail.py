# kind:   FP16 at a small static scale: a good part of the gradient's elements flush, and hold next to no energy
# wrong:  nothing: the cosine to the FP32 gradient is 0.9999, and the loss falls as in FP32
# expect: healthy
# run:    healthy_flushed_tail.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"

if __name__ == "__main__":
    torch.manual_seed(736)
    model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, enabled=MODE != "fp32")
    sizes = torch.logspace(0, -5, 24)  # features in their own units
    for step in range(120):
        features = torch.randn(64, 24)
        target = features[:, :8].argmax(1)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16, enabled=MODE != "fp32"):
            loss = nn.functional.cross_entropy(model(features * sizes), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"final {loss.item():.4e}")
