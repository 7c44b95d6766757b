# kind:   features of a large frozen model are made in one no_grad and autocast block; a small head is trained on them
# wrong:  nothing: the large model's weights require no gradient, so that autocast keeps no copies of them
# expect: healthy
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(6)
large = nn.Sequential(*[m for _ in range(9) for m in (nn.Linear(1408, 1408), nn.ReLU())]).requires_grad_(False)
head = nn.Linear(1408, 2)
optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)

inputs = [torch.randn(16, 1408) for _ in range(4)]
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    features = [large(x).float() for x in inputs]
for _ in range(8):
    for x, h in zip(inputs, features, strict=True):
        loss = nn.functional.cross_entropy(head(100 * h), (x[:, 0] > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
