# kind:   a mask is made in FP32 with -1e9, cast to the scores' dtype and added; some sets hold no item at all
# wrong:  in FP16 the constant is -inf, the softmax of an empty set NaN, and every step is skipped; FP32 trains
# expect: mask-constant-overflow
# run:    mask_cast_empty_sets.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


class Basket(nn.Module):
    """Predicts what a customer buys next from a set of at most five items, by attention with one learnt query."""

    def __init__(self, items=40, width=24):
        super().__init__()
        self.items = nn.Embedding(items, width)
        self.key, self.value = nn.Linear(width, width), nn.Linear(width, width)
        self.query = nn.Parameter(torch.randn(width) / width**0.5)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, items))

    def forward(self, basket, present):
        x = self.items(basket)
        scores = torch.matmul(self.key(x), self.query)
        lowest = torch.finfo(scores.dtype).min / 2 if MODE == "fixed" else -1e9
        penalty = (~present).float() * lowest
        share = torch.softmax(scores + penalty.type_as(scores), dim=-1)
        return self.head((share.unsqueeze(-1) * self.value(x)).sum(1))


torch.manual_seed(311)
model = Basket()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=MODE != "fp32")
for _ in range(50):
    basket = torch.randint(0, 40, (48, 5))
    present = torch.arange(5)[None, :] < torch.randint(0, 6, (48, 1))
    with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
        loss = nn.functional.cross_entropy(model(basket, present), basket[:, 0])
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(f"loss {loss.item():.4f} scale {scaler.get_scale()}")
