# kind:   recommender with two large embedding tables, of which a batch uses a handful of rows
# wrong:  nothing: the other rows' gradients are zero, or absent, in every format
# expect: healthy
# run:    healthy_rare_embedding_rows.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"
USERS, ITEMS = 2000, 3000


class TwoTables(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.user = nn.Embedding(USERS, width)
        self.history = nn.EmbeddingBag(ITEMS, width, mode="sum", padding_idx=0)
        self.deep = nn.Sequential(nn.Linear(2 * width, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, user, seen):
        x = torch.cat([self.user(user), self.history(seen)], dim=1)
        return self.deep(x).squeeze(1)


def clicks(taste, count=64):
    user = torch.randint(0, 50, (count,))  # the active ones of today
    seen = torch.randint(1, 80, (count, 5))
    seen[:, 3:] = 0
    return user, seen, (taste[user, 0] + taste[seen[:, 0], 1] > 0).float()


if __name__ == "__main__":
    torch.manual_seed(204)
    taste = torch.randn(100, 2)
    model = TwoTables()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=MODE != "fp32")
    for step in range(150):
        user, seen, clicked = clicks(taste)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
            logits = model(user, seen)
        loss = nn.functional.binary_cross_entropy_with_logits(logits.float(), clicked)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 30 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"final {loss.item():.4e}")
