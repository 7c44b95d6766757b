# kind:   hand-written GroupNorm in a CNN under FP16 autocast; images in 0..255 and a wide first layer
# wrong:  the variance overflows, the norm divides by infinity, the output is zero: chance level, no NaN in the forward
# expect: norm-overflow
# run:    norm_group_by_hand_cnn.py [fp32|fixed]
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(5)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Groups(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.groups = groups
        self.gain = nn.Parameter(torch.ones(1, channels, 1, 1))
        self.shift = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, x):
        grouped = x.reshape(x.shape[0], self.groups, -1)
        if MODE == "fixed":
            grouped = grouped.float()
        centred = grouped - grouped.mean(-1, keepdim=True)
        variance = (centred * centred).mean(-1, keepdim=True)
        normal = centred / torch.sqrt(variance + 1e-3)
        return normal.reshape(x.shape).to(x.dtype) * self.gain + self.shift


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 5, padding=2)
        self.norm = Groups(8, 2)
        self.out = nn.Linear(8 * 16, 4)

    def forward(self, image):
        x = F.relu(self.norm(self.stem(image)))
        return self.out(F.adaptive_avg_pool2d(x, 4).flatten(1))


model = Digits()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=MODE != "fp32")
shapes = 255.0 * (torch.rand(4, 1, 12, 12) > 0.5)

for step in range(40):
    kind = torch.randint(0, 4, (16,))
    pixels = 4.0 * (shapes[kind] + 40.0 * torch.rand(16, 1, 12, 12))
    with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
        loss = F.cross_entropy(model(pixels), kind)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if step % 10 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
print(f"final {loss.item():.4f}")
