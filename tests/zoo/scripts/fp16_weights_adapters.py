# kind:   a backbone is loaded in FP16 to save memory, and its adapters take over the dtype
# wrong:  scaler.step raises "Attempting to unscale FP16 gradients." on the first step, uncaught
# expect: unscale-fp16-gradients
# run:    fp16_weights_adapters.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Adapted(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base.requires_grad_(False)
        dtype = torch.float32 if MODE == "fixed" else base.weight.dtype
        self.down = nn.Parameter(0.1 * torch.randn(rank, base.in_features, dtype=dtype))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank, dtype=dtype))

    def forward(self, x):
        low = nn.functional.linear(nn.functional.linear(x, self.down), self.up)
        return self.base(x) + low


def build():
    backbone = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 5))
    if MODE != "fp32":
        backbone.half()
    for index in (0, 2, 4):
        backbone[index] = Adapted(backbone[index])
    return backbone


torch.manual_seed(410)
model = build()
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.Adam(trained, lr=1e-3)
scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
data, label = torch.randn(256, 12), torch.randint(0, 5, (256,))
for epoch in range(3):
    for part in torch.randperm(256).split(64):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            loss = nn.functional.cross_entropy(model(data[part]), label[part])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    print(f"epoch {epoch}: {loss.item():.4f}")
