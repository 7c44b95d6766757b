# kind:   half-precision backbone, frozen, under no_grad; FP32 adapter and head are trained with autocast
# wrong:  nothing: the FP16 weights are not meant to move and have no gradients
# expect: healthy
# run:    healthy_frozen_half_backbone.py [fp32]
import sys

import torch
from torch import nn

torch.set_num_threads(1)

MODE = sys.argv[1] if len(sys.argv) > 1 else "amp"
HALF = MODE != "fp32"


class Tower(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 2, 48, dropout=0.0, batch_first=True)
        self.tokens = nn.Embedding(60, width)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids):
        return self.encoder(self.tokens(ids))


class Tagger(nn.Module):
    def __init__(self, tower, tags):
        super().__init__()
        self.tower = tower
        self.adapter = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU())
        self.head = nn.Linear(32, tags)

    def forward(self, ids):
        with torch.no_grad():
            hidden = self.tower(ids)
        return self.head(self.adapter(hidden.float()))


if __name__ == "__main__":
    torch.manual_seed(203)
    tower = Tower().eval().requires_grad_(False)
    model = Tagger(tower.half() if HALF else tower, tags=4)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=5e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=HALF)
    for step in range(80):
        ids = torch.randint(0, 60, (16, 10))
        with torch.autocast("cpu", dtype=torch.float16, enabled=HALF):
            logits = model(ids)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), (ids % 4).flatten())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"final {loss.item():.4e}")
