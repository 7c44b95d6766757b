# kind:   one corrupt batch makes the loss jump a thousandfold; clipping holds the step back, and training goes on
# wrong:  nothing that lasts: no NaN, no skip after calibration, and the loss is back on the next batch
# expect: healthy
# run:    healthy_jump_recovered.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"


def batch(step):
    x = torch.randn(48, 12)
    y = torch.sin(x[:, :1]) + 0.5 * x[:, 1:2]
    return x, y * 40 if step == 30 else y


if __name__ == "__main__":
    torch.manual_seed(705)
    model = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=MODE != "fp32")
    for step in range(90):
        x, y = batch(step)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16, enabled=MODE != "fp32"):
            loss = nn.functional.mse_loss(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"final {loss.item():.4e}")
