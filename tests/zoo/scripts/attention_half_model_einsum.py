# kind:   vision transformer held in FP16 (model.half(), no autocast, no scaler), scores by einsum, softmax in FP32
# wrong:  scores pass 65504 before they are scaled; from the first step on the weights are NaN
# expect: attention-overflow
# run:    attention_half_model_einsum.py [fp32|fixed]
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(77)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"
DTYPE = torch.float32 if MODE == "fp32" else torch.float16


class Heads(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.wq = nn.Parameter(torch.randn(width, width) * 9.0)
        self.wk = nn.Parameter(torch.randn(width, width) * 9.0)
        self.wv = nn.Parameter(torch.randn(width, width) / width**0.5)

    def forward(self, x):
        q, k, v = x @ self.wq, x @ self.wk, x @ self.wv
        if MODE == "fixed":
            q = q / 512.0
        scores = torch.einsum("bid,bjd->bij", q, k)
        weights = torch.softmax(scores.float() * x.shape[-1] ** -0.5, dim=-1).to(x.dtype)
        return x + weights @ v


model = nn.Sequential(nn.Linear(12, 64), Heads(64), nn.LayerNorm(64), Heads(64), nn.Flatten(), nn.Linear(576, 5))
model.to(DTYPE)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
patches = torch.randn(40, 9, 12)
labels = torch.randint(0, 5, (40,))

for epoch in range(6):
    for chunk in torch.randperm(40).split(10):
        loss = F.cross_entropy(model(3 * patches[chunk].to(DTYPE)).float(), labels[chunk])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
