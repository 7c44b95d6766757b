# kind:   CNN with BatchNorm under FP16 autocast; one over-exposed batch overflows, the scaler skips that step
# wrong:  the running variance is NaN from then on: training is fine, model.eval() gives NaN
# expect: buffer-poisoned-by-overflow
# run:    poisoned_batchnorm_cnn.py [fp32|fixed]
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(14)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Block(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.conv = nn.Conv2d(i, o, 3, padding=1)
        self.bn = nn.BatchNorm2d(o)

    def forward(self, x):
        if MODE == "fixed":
            with torch.autocast("cpu", enabled=False):
                return F.relu(self.bn(self.conv(x.float())))
        return F.relu(self.bn(self.conv(x)))


net = nn.Sequential(Block(3, 8), Block(8, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=MODE != "fp32")
colours = torch.rand(3, 3, 1, 1)

net.train()
for step in range(40):
    kind = torch.randint(0, 3, (12,))
    images = colours[kind] + 0.1 * torch.rand(12, 3, 10, 10)
    if step == 9:
        images[5] *= 3e5  # a raw frame that was never normalised
    with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
        loss = F.cross_entropy(net(images), kind)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 8 == 0:
        print(f"step {step}: loss {loss.item():.4f}")

net.eval()
with torch.no_grad():
    print("evaluation", net(colours.expand(3, 3, 10, 10)).sum().item())
