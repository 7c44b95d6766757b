# kind:   binary cross-entropy by hand on a sigmoid in FP16, with an epsilon that FP16 does not have
# wrong:  confident logits: p is 1 in FP16, log(1 - p + 1e-8) is -inf, 0 * inf is NaN
# expect: log-of-zero-underflow
# run:    log_zero_binary_by_hand.py [fp32|fixed]
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(64)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 10, 3, padding=1)
        self.b = nn.Conv2d(10, 1, 3, padding=1)
        nn.init.normal_(self.b.weight, std=0.6)

    def forward(self, x):
        return self.b(F.relu(self.a(x)))


def bce(logits, target, eps=1e-8):
    if MODE == "fixed":
        return F.binary_cross_entropy_with_logits(logits.float(), target.float())
    p = torch.sigmoid(logits)
    return -(target * torch.log(p + eps) + (1 - target) * torch.log(1 - p + eps)).mean()


class Experiment:
    def __init__(self):
        self.model = Segmenter()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=5e-3)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=MODE != "fp32")

    def step(self):
        x = 4 * torch.randn(4, 3, 12, 12)
        target = (x.mean(1, keepdim=True) > 0).float()
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            logits = self.model(x)
            loss = bce(logits, target.to(logits.dtype))
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()


if __name__ == "__main__":
    experiment = Experiment()
    for number in range(30):
        loss = experiment.step()
        if number % 6 == 0:
            print(f"step {number}: loss {loss:.4f}")
