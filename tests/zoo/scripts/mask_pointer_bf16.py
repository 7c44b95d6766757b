# kind:   visited nodes are masked with FP32's minimum; under BF16 autocast the scores are BF16, which ends below it
# wrong:  "value cannot be converted to type c10::BFloat16 without overflow"; the trainer catches it and gives up
# expect: mask-constant-overflow
# run:    mask_pointer_bf16.py [fp32|fixed]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
LOWEST = torch.finfo(torch.float32).min


class Pointer(nn.Module):
    """Points at the nearest town that has not been visited."""

    def __init__(self, width=24):
        super().__init__()
        self.towns = nn.GRU(2, width, batch_first=True)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, places, visited):
        states, last = self.towns(places)
        scores = (self.query(last[-1]).unsqueeze(1) * self.key(states)).sum(-1)
        lowest = torch.finfo(scores.dtype).min if MODE == "fixed" else LOWEST
        return scores.masked_fill_(visited, lowest)


class Trainer:
    def __init__(self):
        self.model = Pointer()
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=1e-3)

    def batch(self):
        places = torch.rand(32, 6, 2)
        visited = torch.rand(32, 6) < 0.3
        visited[:, 0] = False
        distance = places.norm(dim=-1).masked_fill(visited, 9.0)
        return places, visited, distance.argmin(dim=1)

    def step(self):
        places, visited, target = self.batch()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=MODE != "fp32"):
            loss = nn.functional.cross_entropy(self.model(places, visited), target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, steps):
        try:
            for _ in range(steps):
                loss = self.step()
        except RuntimeError as error:
            print("training stopped:", error)
            return None
        return loss


torch.manual_seed(204)
print("final", Trainer().fit(60))
