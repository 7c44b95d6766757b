# kind:   large embedding tables kept in BF16 and frozen; projection and head are FP32 and trained under autocast
# wrong:  nothing: what is half is not trained
# expect: healthy
# run:    healthy_half_frozen_tables.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"


class Recommender(nn.Module):
    def __init__(self, users=200, items=300, width=32):
        super().__init__()
        self.users = nn.Embedding(users, width)
        self.items = nn.Embedding(items, width)
        for table in (self.users, self.items):
            table.requires_grad_(False)
            if MODE != "fp32":
                table.bfloat16()
        self.mix = nn.Sequential(nn.Linear(2 * width, 64), nn.SiLU(), nn.Linear(64, 1))

    def forward(self, user, item):
        pair = torch.cat([self.users(user), self.items(item)], dim=-1)
        return self.mix(pair.float()).squeeze(-1)


torch.manual_seed(303)
model = Recommender()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-3)
for step in range(150):
    user, item = torch.randint(0, 200, (64,)), torch.randint(0, 300, (64,))
    liked = ((user + item) % 3 == 0).float()
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=MODE != "fp32"):
        score = model(user, item)
    loss = nn.functional.binary_cross_entropy_with_logits(score.float(), liked)
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: {loss.item():.4f}")
print(f"final {loss.item():.4e}")
