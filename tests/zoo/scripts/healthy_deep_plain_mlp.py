# kind:   twelve layers without norm or shortcuts: the first layers' gradients are a hundredth of the last ones' or less
# wrong:  nothing: they are small beside those above, but Adam moves them alike and the loss falls
# expect: healthy
# run:    healthy_deep_plain_mlp.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"

if __name__ == "__main__":
    torch.manual_seed(713)
    layers = [nn.Linear(20, 40), nn.Tanh()]
    for _ in range(10):
        layers += [nn.Linear(40, 40), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(40, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
    for step in range(120):
        x = torch.randn(96, 20)
        target = x[:, :4].argmax(1)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16, enabled=MODE != "fp32"):
            loss = nn.functional.cross_entropy(model(x), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"final {loss.item():.4e}")
