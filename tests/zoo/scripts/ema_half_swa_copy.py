# kind:   timm-style EMA: a BF16 deep copy of the model, updated by copy_ of a sum that FP32 weights make FP32
# wrong:  what is copied rounds back to what was there
# expect: ema-half-stuck
# run:    ema_half_swa_copy.py [fp32|fixed]
import copy
import sys

import torch
from torch import nn

torch.set_num_threads(1)

HALF = sys.argv[1:] == []


class Averaged(nn.Module):
    def __init__(self, model, decay=0.9995):
        super().__init__()
        self.module = copy.deepcopy(model)
        self.module.eval()
        if HALF:
            self.module.bfloat16()
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for average, value in zip(self.module.parameters(), model.parameters(), strict=True):
            average.copy_(average.float() * self.decay + (1.0 - self.decay) * value)


torch.manual_seed(312)
model = nn.Sequential(nn.Embedding(40, 24), nn.Flatten(), nn.Linear(24 * 6, 40))
averaged = Averaged(model)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
loss = torch.tensor(0.0)
for epoch in range(6):
    for _ in range(20):
        ids = torch.randint(0, 40, (32, 6))
        loss = nn.functional.cross_entropy(model(ids), ids[:, 2])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        averaged.update(model)
    print(f"epoch {epoch}: {loss.item():.4f}")
