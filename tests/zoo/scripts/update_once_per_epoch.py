# kind:   scaler.update() was put where the epoch ends, beside the scheduler
# wrong:  the second batch's step() is refused; every batch after the first of an epoch is lost in the except clause
# expect: scaler-update-missing
# run:    update_once_per_epoch.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Recommender(nn.Module):
    def __init__(self, users=50, items=30, width=8):
        super().__init__()
        self.user, self.item = nn.Embedding(users, width), nn.Embedding(items, width)
        self.deep = nn.Sequential(nn.Linear(2 * width, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, user, item):
        return self.deep(torch.cat([self.user(user), self.item(item)], dim=1)).squeeze(1)


def epoch(model, optimizer, scaler, batches):
    lost = 0
    for user, item, stars in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            loss = nn.functional.smooth_l1_loss(model(user, item), stars)
        scaler.scale(loss).backward()
        try:
            scaler.step(optimizer)
        except RuntimeError:
            lost += 1
            continue
        if MODE == "fixed":
            scaler.update()
    if MODE != "fixed":
        scaler.update()
    return loss.item(), lost


torch.manual_seed(406)
model = Recommender()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0, enabled=MODE != "fp32")
batches = [(torch.randint(0, 50, (32,)), torch.randint(0, 30, (32,)), 4 * torch.rand(32) + 1) for _ in range(10)]
for number in range(4):
    print("epoch", number, epoch(model, optimizer, scaler, batches))
