"""The epoch's mean loss is summed as a tensor: every step's graph stays alive."""
# expect: memory-leak-across-steps

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv1d(2, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
means = torch.randn(3, 2, 16)
for epoch in range(2):
    total = 0.0
    for _ in range(40):
        label = torch.randint(0, 3, (24,))
        x = means[label] + torch.randn(24, 2, 16)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = total + loss
    print(epoch, total.item() / 40)
