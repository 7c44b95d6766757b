# kind:   two-tower retrieval in FP16 without a scaler; embeddings are divided by their length, which is over 65504
# wrong:  x.norm() is infinite, x / inf is zero: all similarities are 0 and the loss stays at log(n)
# expect: norm-overflow
# run:    norm_vector_length_retrieval.py [fp32|fixed]
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(41)

MODE = sys.argv[1] if len(sys.argv) > 1 else "fault"


def unit(x):
    if MODE == "fixed":
        x = x.float()
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)


class Tower(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, 128), nn.Tanh(), nn.Linear(128, 256))
        nn.init.normal_(self.body[2].weight, std=900.0)

    def forward(self, x):
        return unit(self.body(x))


queries, items = Tower(10), Tower(14)
head = nn.Linear(256, 256, bias=False)
parameters = [*queries.parameters(), *items.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(parameters, lr=1e-3)
link = torch.randn(10, 14)

for step in range(30):
    left = torch.randn(24, 10)
    right = left @ link + 0.1 * torch.randn(24, 14)
    with torch.autocast("cpu", dtype=torch.float16, enabled=MODE != "fp32"):
        similarity = head(queries(left)) @ items(right).to(torch.float16 if MODE != "fp32" else torch.float32).T
        loss = F.cross_entropy(10.0 * similarity.float(), torch.arange(24))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 6 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
print(f"final {loss.item():.4f}")
