# kind:   speaker model in FP16: standard deviation pooled over time as sqrt(E[x^2] - E[x]^2), features with an offset
# wrong:  the difference comes out negative for some channels: NaN loss, every step skipped
# expect: cancellation-half
# run:    cancellation_fp16_std_pool.py [fp32|fixed]
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(29)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Pooling(nn.Module):
    def forward(self, frames):
        if MODE == "fixed":
            return torch.cat([frames.mean(2), frames.float().std(2).to(frames.dtype)], 1)
        mean = frames.mean(2)
        square = frames.pow(2).mean(2)
        return torch.cat([mean, torch.sqrt(square - mean.pow(2))], 1)


class Speaker(nn.Module):
    def __init__(self, speakers):
        super().__init__()
        self.frames = nn.Conv1d(10, 24, 3, padding=1)
        nn.init.constant_(self.frames.bias, 20.0)
        nn.init.normal_(self.frames.weight, std=0.05)
        self.pool = Pooling()
        self.who = nn.Linear(48, speakers)

    def forward(self, sound):
        return self.who(self.pool(self.frames(sound)) / 20.0)


model = Speaker(5)
optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0, enabled=MODE != "fp32")
voices = torch.randn(5, 10, 1)
for step in range(24):
    who = torch.randint(0, 5, (8,))
    sound = voices[who] + torch.randn(8, 10, 50)
    with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
        loss = F.cross_entropy(model(sound), who)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 6 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
